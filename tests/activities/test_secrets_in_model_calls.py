"""What a model or its provider says, and what it is told, holds no secret."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from activities.runs import RunActivities
from activities.tools.registry import tool_guide
from schemas.effects import CallStatus
from schemas.models import Node
from schemas.workspace import OpenRunRequest
from stores.archive import RunArchive
from stores.masking import label
from stores.secrets import Secrets
from tests.activities.model_bench import CHAIN, ModelBench
from tests.support.aio import run_activity
from tests.support.model_stub import Behaviour, ModelStub
from tests.support.secret_scan import scan

TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
KEY = "sk-verysecret-0123456789abcdef"
SIGN = label("TOKEN")


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[ModelStub]:
    with ModelStub(tmp_path / "bill.jsonl") as running:
        yield running


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ModelBench]:
    secrets = Secrets()
    secrets.learn("TOKEN", TOKEN)
    yield ModelBench(tmp_path / "home", environment={"STUB_KEY": KEY}, secrets=secrets)
    assert scan([tmp_path / "home"], {"TOKEN": TOKEN, "STUB_KEY": KEY}) == []


def test_a_reply_is_masked_before_it_is_kept_and_read(bench: ModelBench, stub: ModelStub) -> None:
    action = {"tool": "run", "arguments": {"command": f"x {TOKEN}"}}
    actions = json.dumps({"thought": f"use {TOKEN}", "actions": [action], "more": False})
    stub.script = lambda asked: Behaviour(content=actions, reasoning=f"{TOKEN} is it")
    request = bench.request(Node.PROPOSE_ACTION, bench.choice(stub.url), tools=("run",))
    reply = run_activity(bench.nodes.propose_action, request)
    assert reply.thought == f"use {SIGN}"
    assert reply.actions[0].preview == f"x {SIGN}"
    assert bench.artifacts.get_text(reply.actions[0].arguments) == f'{{"command":"x {SIGN}"}}'
    assert (reply.actions[0].invalid or "").startswith("the arguments hold the value or the mask of secret TOKEN")
    assert "use the environment variable in a command of run, $TOKEN where" in (reply.actions[0].invalid or "")
    reasoning = bench.record().reasoning
    assert reasoning is not None
    assert bench.artifacts.get_text(reasoning) == f"{SIGN} is it"


@pytest.mark.parametrize(
    ("content", "fine"),
    [
        (f"key={SIGN}", False),
        (f"key={TOKEN[:20]}\n  {TOKEN[20:]}", False),
        ("key=‹secret:OTHER›", True),
        ("$TOKEN", True),
    ],
)
def test_no_action_is_performed_other_than_it_was_proposed(
    bench: ModelBench, stub: ModelStub, content: str, fine: bool
) -> None:
    action = {"tool": "write_file", "arguments": {"path": "conf.ini", "content": content}}
    stub.script = lambda asked: Behaviour(content=json.dumps({"thought": "write", "actions": [action], "more": False}))
    request = bench.request(Node.PROPOSE_ACTION, bench.choice(stub.url), tools=("write_file",))
    proposed = run_activity(bench.nodes.propose_action, request).actions[0]
    assert (proposed.invalid is None) is fine
    if fine:
        assert json.loads(bench.artifacts.get_text(proposed.arguments))["content"] == content


def test_a_prompt_is_masked_and_a_citation_of_its_mask_is_found(bench: ModelBench, stub: ModelStub) -> None:
    quote = f"key: {SIGN}"
    verdict = f'{{"reason": "seen", "citation": {{"source": "f18", "quote": "{quote}"}}, "result": true}}'
    stub.script = lambda asked: Behaviour(content=verdict)
    texts = {"frame": f"key: {TOKEN}", "step": base64.b64encode(f"- {TOKEN}".encode()).decode()}
    request = bench.request(Node.IS_STEP_DONE, bench.choice(stub.url), texts=texts)
    reply = run_activity(bench.nodes.is_step_done, request)
    assert reply.verdict is not None
    assert (reply.verdict.result, reply.verdict.citation_found) == (True, True)
    prompt = stub.bill()[0]["body"]["messages"][1]["content"]
    assert quote in prompt
    assert TOKEN not in prompt


@pytest.mark.parametrize("long", ["", "x" * 380])
@pytest.mark.parametrize("kind", ["error", "server_error"])
def test_a_provider_that_quotes_secrets_is_not_believed(
    bench: ModelBench, stub: ModelStub, long: str, kind: str
) -> None:
    hidden = base64.b64encode(f"key={KEY}".encode()).decode()
    stub.script = lambda asked: Behaviour(
        kind="error", status=400 if kind == "error" else 500, message=f"{long} no {TOKEN}, {KEY}, {hidden}"
    )
    request = bench.request(Node.SUMMARIZE_ACTIONS, bench.choice(stub.url, api_key_env="STUB_KEY"))
    if kind == "error":
        with pytest.raises(ApplicationError) as caught:
            run_activity(bench.nodes.summarize_actions, request)
        said = str(caught.value) + str(caught.value.__cause__)
    else:
        reply = run_activity(bench.nodes.summarize_actions, request)
        assert reply.receipt.status is CallStatus.AMBIGUOUS
        said = reply.receipt.detail
    assert TOKEN[:6] not in said
    assert KEY not in said
    assert hidden not in said
    assert long or SIGN in said


def test_a_run_learns_the_names_of_its_secrets_and_how_to_use_them(bench: ModelBench, tmp_path: Path) -> None:
    archive = RunArchive(tmp_path / "archive", bench.artifacts)
    runs = RunActivities(bench.ledger, bench.artifacts, archive, {node: "t" for node in Node}, tool_guide)
    request = OpenRunRequest(
        workflow_id="task-1", run_id="r", first_run_id=CHAIN, goal=f"g {TOKEN}", tools=("run",), secrets=("A", "B_2")
    )
    reply = run_activity(runs.open_run, request)
    guide = bench.artifacts.get_text(reply.tool_guide)
    assert guide.startswith("run: ")
    assert "environment variables set: $A, $B_2." in guide
    assert "‹secret:NAME›" in guide
    assert bench.artifacts.get_text(reply.goal) == f"g {SIGN}"
