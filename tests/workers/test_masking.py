"""What leaves an activity is masked, whichever activity it is; what a process logs is masked as well."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ActivityOutboundInterceptor, ExecuteActivityInput

from schemas.calls import TextReply
from schemas.effects import CallReceipt, CallStatus
from schemas.errors import ModelBadRequest
from stores.masking import label
from stores.secrets import Secrets
from tests.support.aio import run
from workers.masking import MAX_CAUSES, MaskingInterceptor

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
SIGN = label("TOKEN")
ROOT = Path(__file__).parent.parent.parent


class Sent(ActivityOutboundInterceptor):
    """Keeps what would be sent as a heartbeat."""

    def __init__(self) -> None:
        self.details: tuple[Any, ...] = ()

    def heartbeat(self, *details: Any) -> None:
        self.details = details


class Activity(ActivityInboundInterceptor):
    """An activity that beats once and then returns or raises what it was given."""

    def __init__(self, gives: Any) -> None:
        self.gives = gives

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self.outbound = outbound

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        self.outbound.heartbeat({"at": f"key {TOKEN}"}, [TOKEN], 3)
        if isinstance(self.gives, BaseException):
            raise self.gives
        return self.gives


def through(gives: Any, sent: Sent | None = None) -> Any:
    secrets = Secrets()
    secrets.learn("TOKEN", TOKEN)
    inbound = MaskingInterceptor(secrets).intercept_activity(Activity(gives))
    inbound.init(sent or Sent())
    return run(inbound.execute_activity(ExecuteActivityInput(fn=print, args=(), executor=None, headers={})))


def raised(error: BaseException) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        through(error)
    return caught.value


def reply(line: str) -> TextReply:
    return TextReply(receipt=CallReceipt(status=CallStatus.ANSWERED), line=line)


def test_heartbeats_are_masked() -> None:
    sent = Sent()
    through(reply("fine"), sent)
    assert sent.details == ({"at": f"key {SIGN}"}, [SIGN], 3)


def test_a_reply_is_masked_and_one_without_secrets_is_the_same_object() -> None:
    assert through(reply(f"a {TOKEN} b")).line == f"a {SIGN} b"
    clean = reply("nothing")
    assert through(clean) is clean


def test_a_masked_text_stays_within_its_bound() -> None:
    secrets = Secrets()
    secrets.learn("A_LONG_NAME_FOR_A_SHORT_VALUE", "8letters")
    inbound = MaskingInterceptor(secrets).intercept_activity(Activity(reply("8letters" * 62)))
    inbound.init(Sent())
    masked = run(inbound.execute_activity(ExecuteActivityInput(fn=print, args=(), executor=None, headers={})))
    assert len(masked.line) == 8 * 62
    assert masked.line.startswith(label("A_LONG_NAME_FOR_A_SHORT_VALUE"))


def test_a_failure_is_masked_with_its_causes_and_details_and_keeps_what_it_is() -> None:
    inner = ValueError(f"inner {TOKEN}")
    inner.__context__ = KeyError(TOKEN)
    error = ApplicationError(f"no {TOKEN}", {"seen": TOKEN}, type="ModelAuth", non_retryable=True)
    error.__cause__ = inner
    masked = raised(error)
    assert (masked.message, masked.type, masked.non_retryable) == (f"no {SIGN}", "ModelAuth", True)
    assert masked.details == ({"seen": SIGN},)
    texts = []
    link: BaseException | None = masked
    while link is not None:
        texts.append(str(link))
        assert link.__context__ is None or link.__context__ is link.__cause__
        link = link.__cause__
    assert texts == [f"ModelAuth: no {SIGN}", f"ValueError: inner {SIGN}", f"KeyError: '{SIGN}'"]


def test_a_bug_keeps_its_type_and_can_be_retried() -> None:
    masked = raised(RuntimeError(f"broken by {TOKEN}"))
    assert (masked.type, masked.non_retryable) == ("RuntimeError", False)


def test_a_failure_without_secrets_goes_on_as_it_is() -> None:
    error = ModelBadRequest("no such model")
    with pytest.raises(ModelBadRequest) as caught:
        through(error)
    assert caught.value is error


def test_a_chain_of_causes_without_end_is_cut() -> None:
    error: BaseException = ValueError(TOKEN)
    for number in range(MAX_CAUSES + 5):
        outer = ValueError(str(number))
        outer.__cause__ = error
        error = outer
    masked: BaseException | None = raised(error)
    while masked is not None:
        assert TOKEN not in str(masked)
        masked = masked.__cause__


LOGGING = f"""
import base64, logging
from stores.settings import LogLevel
from stores.secrets import Secrets
from workers.logs import log_json
secrets = Secrets()
secrets.learn("TOKEN", {TOKEN!r})
log_json(LogLevel.INFO, secrets.mask)
log = logging.getLogger("somebody")
log.info("key %s", {TOKEN!r}, extra={{"given": {TOKEN!r}}})
log.info(base64.b64encode(b"a" + {TOKEN.encode()!r}).decode())
try:
    raise ValueError({TOKEN!r})
except ValueError:
    log.exception("failed")
raise RuntimeError({TOKEN!r})
"""


def test_a_process_logs_no_secret_not_even_as_it_dies() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOGGING], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [SIGN in json.dumps(line, ensure_ascii=False) for line in lines] == [True] * 4
    assert TOKEN not in done.stderr
    assert lines[0]["given"] == SIGN
    assert lines[3]["event"] == "the process ends"
    assert done.returncode == 1
