"""LiteLLM behind the port: one request per completion, failures sorted by whether they may have been billed."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.model.litellm_gateway import LiteLlmGateway
from activities.model.port import AmbiguousCall, Completion, CompletionReply
from schemas.base import rebuild
from schemas.errors import (
    ContentRefused,
    ContextExceeded,
    ModelAuth,
    ModelBadRequest,
    ModelQuota,
    ModelRateLimited,
    ModelUnreachable,
    SecretUnresolved,
)
from schemas.models import ModelChoice, Node
from schemas.pricing import Usage
from tests.support.aio import run
from tests.support.model_stub import Behaviour, ModelStub

ROOT = Path(__file__).parents[2]
KEY = "sk-verysecret-0123456789abcdef"
SCHEMA = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


@pytest.fixture(scope="module")
def gateway() -> LiteLlmGateway:
    return LiteLlmGateway({"STUB_KEY": KEY, "EMPTY_KEY": " "})


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[ModelStub]:
    with ModelStub(tmp_path / "bill.jsonl") as running:
        yield running


def completion(url: str, **changes: Any) -> Completion:
    choice = ModelChoice(model="openai/stub", api_base=url, api_key_env="STUB_KEY", timeout_seconds=20)
    return Completion(
        effect_id="task-ä 1:run-1:7",
        node=Node.IS_STEP_DONE,
        system="be strict",
        user="is it done?",
        choice=rebuild(choice, **changes),
        schema=SCHEMA,
        max_output_tokens=99,
        timeout_seconds=changes.get("timeout_seconds", 20),
    )


def answer(gateway: LiteLlmGateway, stub: ModelStub, behaviour: Behaviour, **changes: Any) -> CompletionReply:
    stub.script = lambda asked: behaviour
    return run(gateway.complete(completion(stub.url, **changes)))


def test_one_completion_is_one_request_with_cap_schema_key_and_effect_id(
    gateway: LiteLlmGateway, stub: ModelStub
) -> None:
    reply = answer(gateway, stub, Behaviour(content="yes", reasoning="hmm", usage={"prompt_tokens": 12}))
    assert (reply.text, reply.reasoning, reply.finish_reason, reply.model) == ("yes", "hmm", "stop", "stub")
    assert reply.usage == Usage(input_tokens=12, output_tokens=2)
    (entry,) = stub.bill()
    assert entry["authorization"] == f"Bearer {KEY}"
    assert entry["key"] == "task-%C3%A4%201:run-1:7"
    body = entry["body"]
    assert body["max_tokens"] == 99
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["response_format"]["json_schema"] == {"name": "is_step_done", "schema": SCHEMA, "strict": True}


def test_without_a_named_key_an_own_service_gets_none_and_without_structured_output_no_schema(
    gateway: LiteLlmGateway, stub: ModelStub
) -> None:
    answer(gateway, stub, Behaviour(), api_key_env=None, structured_output=False)
    (entry,) = stub.bill()
    assert entry["authorization"] == "Bearer none"
    assert "response_format" not in entry["body"]


@pytest.mark.parametrize(
    ("behaviour", "error", "word"),
    [
        (Behaviour(kind="quota"), ModelQuota, "quota"),
        (Behaviour(kind="error", status=402, message="pay"), ModelQuota, "pay"),
        (Behaviour(kind="error", status=400, message="Your credit balance is too low"), ModelQuota, "credit"),
        (Behaviour(kind="unauthorized"), ModelAuth, "Incorrect API key"),
        (Behaviour(kind="error", status=403, message="not you"), ModelAuth, "not you"),
        (Behaviour(kind="context"), ContextExceeded, "8192"),
        (Behaviour(kind="error", message="the prompt is too long for it"), ContextExceeded, "too long"),
        (Behaviour(kind="error", message="refused", code="content_policy_violation"), ContentRefused, "refused"),
        (Behaviour(kind="error", message="Rejected by our content policy"), ContentRefused, "policy"),
        (Behaviour(kind="error", status=404, message="no model stub"), ModelBadRequest, "no model"),
        (Behaviour(kind="error", status=413, message="too large"), ModelBadRequest, "too large"),
        (Behaviour(kind="error", status=418, message="teapot"), ModelBadRequest, "teapot"),
        (Behaviour(kind="error", status=422, message="odd"), ModelBadRequest, "odd"),
        (Behaviour(kind="error", status=400, message="what"), ModelBadRequest, "what"),
        (Behaviour(kind="error", status=408, message="slow"), AmbiguousCall, "slow"),
        (Behaviour(kind="error", status=409, message="conflict"), AmbiguousCall, "conflict"),
        (Behaviour(kind="server_error"), AmbiguousCall, "server had an error"),
        (Behaviour(kind="error", status=502, message="bad gateway"), AmbiguousCall, "bad gateway"),
        (Behaviour(kind="error", status=503, message="busy"), AmbiguousCall, "busy"),
        (Behaviour(kind="error", status=504, message="late"), AmbiguousCall, "late"),
        (Behaviour(kind="error", status=529, message="overloaded"), AmbiguousCall, "overloaded"),
        (Behaviour(kind="reset"), AmbiguousCall, "onnection"),
        (Behaviour(kind="malformed"), AmbiguousCall, "stub"),
    ],
    ids=lambda value: f"{value.kind}-{value.status}" if isinstance(value, Behaviour) else None,
)
def test_failures_are_sorted_and_sent_once_and_show_no_key(
    gateway: LiteLlmGateway, stub: ModelStub, behaviour: Behaviour, error: type[Exception], word: str
) -> None:
    with pytest.raises(error) as raised:
        answer(gateway, stub, behaviour)
    assert type(raised.value) is error
    assert word in str(raised.value)
    assert len(str(raised.value)) <= 400
    assert KEY[:12] not in str(raised.value)
    assert len(stub.bill()) == 1


@pytest.mark.parametrize(
    ("retry_after", "message", "error", "seconds"),
    [
        ("7", "slow down", ModelRateLimited, 7.0),
        (None, "slow down", ModelRateLimited, None),
        ("soon", "slow down", ModelRateLimited, None),
        ("1e99", "slow down", ModelRateLimited, 600.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", "slow down", ModelRateLimited, 0.0),
        ("34", "You exceeded your current quota. Please retry in 34s", ModelRateLimited, 34.0),
        (None, "You exceeded your current quota, check your plan", ModelQuota, None),
    ],
)
def test_a_rate_limit_carries_the_wished_delay_and_a_quota_is_none(
    gateway: LiteLlmGateway,
    stub: ModelStub,
    retry_after: str | None,
    message: str,
    error: type[Exception],
    seconds: float | None,
) -> None:
    with pytest.raises(error) as raised:
        answer(gateway, stub, Behaviour(kind="error", status=429, message=message, retry_after=retry_after))
    assert getattr(raised.value, "retry_after_seconds", None) == seconds
    assert len(stub.bill()) == 1


def test_a_stall_ends_at_the_time_out_and_may_have_been_billed(gateway: LiteLlmGateway, stub: ModelStub) -> None:
    with pytest.raises(AmbiguousCall):
        answer(gateway, stub, Behaviour(kind="stall"), timeout_seconds=1)
    assert len(stub.bill()) == 1


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("http://127.0.0.1:{free}/v1", "127.0.0.1:{free}"),
        ("http://ann:open-sesame@127.0.0.1:{free}/v1?token=open-sesame", "127.0.0.1:{free}"),
        ("http://no-such-host.invalid/v1", "no-such-host.invalid"),
    ],
)
def test_where_no_connection_opens_nothing_was_sent_and_the_address_is_named(
    gateway: LiteLlmGateway, url: str, named: str
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        free = str(unused.getsockname()[1])
        with pytest.raises(ModelUnreachable) as raised:
            run(gateway.complete(completion(url.replace("{free}", free))))
    assert f" at {named.replace('{free}', free)}: " in str(raised.value)
    assert "open-sesame" not in str(raised.value)


@pytest.mark.parametrize("name", ["NO_SUCH_KEY", "EMPTY_KEY"])
def test_a_named_key_without_a_value_sends_nothing(gateway: LiteLlmGateway, stub: ModelStub, name: str) -> None:
    with pytest.raises(SecretUnresolved, match=name):
        answer(gateway, stub, Behaviour(), api_key_env=name)
    assert stub.bill() == []


def test_a_model_without_provider_is_a_bad_request(gateway: LiteLlmGateway) -> None:
    with pytest.raises(ModelBadRequest, match="nonsense"):
        run(gateway.complete(completion("http://127.0.0.1:1/v1", model="nonsense", api_base=None)))


@pytest.mark.parametrize(
    "usage", [None, {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": -4}, {"prompt_tokens": 10**12}]
)
def test_a_usage_that_cannot_be_is_unknown(
    gateway: LiteLlmGateway, stub: ModelStub, usage: dict[str, Any] | None
) -> None:
    assert answer(gateway, stub, Behaviour(content="yes", usage=usage)).usage is None


def test_cached_and_reasoning_tokens_are_counted_apart(gateway: LiteLlmGateway, stub: ModelStub) -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_creation_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 30},
    }
    assert answer(gateway, stub, Behaviour(usage=usage)).usage == Usage(
        input_tokens=100, cached_input_tokens=60, cache_write_tokens=20, output_tokens=50, reasoning_tokens=30
    )


@pytest.mark.parametrize(
    ("behaviour", "text", "finish_reason"),
    [
        (Behaviour(kind="empty_choices"), "", "no choices"),
        (Behaviour(content=None, finish_reason="content_filter"), "", "content_filter"),
        (Behaviour(content=None, tool_calls=[{"id": "1", "type": "function", "function": {}}]), "", ""),
        (Behaviour(content="half", finish_reason="length"), "half", "length"),
        (Behaviour(content="<think>so</think>done"), "done", "stop"),
    ],
)
def test_replies_that_say_little_are_replies(
    gateway: LiteLlmGateway, stub: ModelStub, behaviour: Behaviour, text: str, finish_reason: str
) -> None:
    reply = answer(gateway, stub, behaviour)
    assert reply.text == text
    assert reply.usage is not None
    assert finish_reason in reply.finish_reason


def test_a_model_named_by_a_path_shows_only_its_last_part(gateway: LiteLlmGateway, stub: ModelStub) -> None:
    assert answer(gateway, stub, Behaviour(), model="openai//srv/models/model.gguf").model == "model.gguf"


def test_cancelling_stops_waiting_at_once(gateway: LiteLlmGateway, stub: ModelStub) -> None:
    async def cancelled() -> None:
        stub.script = lambda asked: Behaviour(kind="stall")
        sending = asyncio.create_task(gateway.complete(completion(stub.url)))
        await asyncio.to_thread(stub.wait_for, 1)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(sending, 5)

    run(cancelled())


def test_loading_makes_no_network_call_and_reads_no_env_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENAI_API_KEY=planted\nPLANTED=yes\n")
    program = """
import json, os, socket, sys
tried = []
def refuse(*arguments, **named):
    tried.append(repr(arguments[:2]))
    raise OSError("no network in this test")
socket.getaddrinfo = refuse
socket.socket.connect = refuse
socket.create_connection = refuse
import activities.model.litellm_gateway as module
assert "litellm" not in sys.modules
module.load()
names = sorted(name for name in os.environ if "PLANTED" in name or name == "OPENAI_API_KEY")
print(json.dumps({"tried": tried, "names": names, "loaded": "litellm" in sys.modules}))
"""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"tried": [], "names": [], "loaded": True}
