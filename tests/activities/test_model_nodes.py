"""Every node reads its reply by its own rules, and keeps what is long in the artifact store."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.model.litellm_gateway import LiteLlmGateway
from schemas import contract
from schemas.budget import Spend
from schemas.calls import ActionsReply, PlanReply, ProblemKind, TextReply, VerdictReply
from schemas.contract import ActivityRef
from schemas.effects import EffectClass
from schemas.models import ModelChoice, Node
from schemas.rehearsal import Rehearsal
from tests.activities.model_bench import PRICE, ModelBench
from tests.support.aio import run_activity
from tests.support.model_stub import Behaviour, ModelStub, queued

TOOLS = ("run", "read_file")
STEP = {"title": "Find the fault", "instruction": "Run the tests and read what fails.", "requirements": ["tests-pass"]}


@pytest.fixture(scope="module")
def gateway() -> LiteLlmGateway:
    return LiteLlmGateway({})


@pytest.fixture
def bench(tmp_path: Path, gateway: LiteLlmGateway) -> ModelBench:
    return ModelBench(tmp_path, gateway)


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[ModelStub]:
    with ModelStub(tmp_path / "bill.jsonl") as running:
        yield running


def answered(bench: ModelBench, stub: ModelStub, node: Node, content: Any, **texts: str) -> Any:
    text = content if isinstance(content, str) else json.dumps(content)
    stub.script = queued([Behaviour(content=text)])
    tools = TOOLS if node is Node.PROPOSE_ACTION else ()
    seq = len(stub.bill()) + 1
    return run_activity(
        getattr(bench.nodes, node.value), bench.request(node, bench.choice(stub.url), seq, texts, tools=tools)
    )


@pytest.mark.parametrize("node", [Node.PLAN, Node.REPLAN])
def test_a_plan_keeps_its_instructions_as_artifacts(bench: ModelBench, stub: ModelStub, node: Node) -> None:
    reply = answered(bench, stub, node, {"why": "since", "steps": [STEP, STEP | {"requirements": ["a", "a"]}]})
    assert isinstance(reply, PlanReply)
    assert reply.plan is not None
    assert [step.title for step in reply.plan.steps] == ["Find the fault"] * 2
    assert bench.artifacts.get_text(reply.plan.steps[0].instruction) == STEP["instruction"]
    assert reply.plan.steps[1].requirements == ("a",)


def test_an_unusable_plan_is_a_problem_in_words(bench: ModelBench, stub: ModelStub) -> None:
    reply = answered(bench, stub, Node.PLAN, {"why": "since", "steps": []})
    assert reply.plan is None
    assert reply.problem.kind is ProblemKind.INVALID
    assert "steps" in reply.problem.detail


def test_actions_are_checked_bounded_and_kept_as_canonical_bytes(bench: ModelBench, stub: ModelStub) -> None:
    actions = [
        {"tool": "run", "arguments": {"command": "pytest -q"}},
        {"tool": "run", "arguments": {"cmd": "pytest"}},
        {"tool": "deploy", "arguments": {"b": 1, "a": "ä"}},
        {"tool": "run", "arguments": {"command": "one too many"}},
    ]
    reply = answered(bench, stub, Node.PROPOSE_ACTION, {"thought": "look", "actions": actions, "more": False})
    assert isinstance(reply, ActionsReply)
    run, wrong, unknown = reply.actions
    assert run.invalid is None
    assert run.preview == "pytest -q"
    assert bench.artifacts.get_text(run.arguments) == '{"command":"pytest -q"}'
    assert wrong.invalid is not None
    assert "command" in wrong.invalid
    assert unknown.invalid is not None
    assert (unknown.effect_class, unknown.irreversible) == (EffectClass.NONE, True)
    assert bench.artifacts.get_text(unknown.arguments) == '{"a":"ä","b":1}'
    assert reply.more  # what was cut off has not been done


def test_the_schema_of_actions_offers_each_allowed_tool_with_its_own_arguments(
    bench: ModelBench, stub: ModelStub
) -> None:
    answered(bench, stub, Node.PROPOSE_ACTION, {"thought": "none", "actions": [], "more": False})
    schema = stub.bill()[0]["body"]["response_format"]["json_schema"]["schema"]
    offered = schema["properties"]["actions"]["items"]["anyOf"]
    assert [item["properties"]["tool"]["enum"] for item in offered] == [["read_file"], ["run"]]
    assert list(offered[1]["properties"]["arguments"]["properties"]) == ["command"]


@pytest.mark.parametrize("node", [Node.IS_STEP_DONE, Node.VALIDATE_PLAN_STEP, Node.IS_STEP_DONE_BY_VALIDATION])
def test_a_yes_needs_words_that_stand_where_it_says(bench: ModelBench, stub: ModelStub, node: Node) -> None:
    def judged(citation: dict[str, str] | None) -> VerdictReply:
        reply: VerdictReply = answered(
            bench,
            stub,
            node,
            {"reason": "seen", "citation": citation, "result": True},
            observations="2 passed",
            frame="x",
        )
        return reply

    true = judged({"source": "o17", "quote": "2  passed"}).verdict
    assert true is not None
    assert (true.result, true.claimed, true.citation_found) == (True, True, True)
    for citation in (None, {"source": "o17", "quote": "3 passed"}, {"source": "f18", "quote": "2 passed"}):
        refused = judged(citation).verdict
        assert refused is not None
        assert (refused.result, refused.claimed) == (False, True)
        assert "not accepted" in refused.reason


@pytest.mark.parametrize("node", [Node.SUMMARIZE_ACTIONS, Node.SUMMARIZE_PLAN_STEP])
def test_summaries_are_plain_bounded_text_and_may_be_missing(bench: ModelBench, stub: ModelStub, node: Node) -> None:
    reply = answered(bench, stub, node, f"  Two\ntests {'x' * 9000}")
    assert isinstance(reply, TextReply)
    assert reply.text is not None
    assert len(bench.artifacts.get_text(reply.text)) == 4000
    assert reply.line.startswith("Two tests xx")
    assert "response_format" not in stub.bill()[0]["body"]
    assert answered(bench, stub, node, " \n ").text is None


def model_refs() -> list[ActivityRef[Any, Any]]:
    return [ref for ref in contract.all_refs() if ref.cls is contract.MODEL]


@pytest.mark.parametrize("ref", model_refs(), ids=lambda ref: ref.name)
def test_each_model_activity_of_the_contract_is_served(bench: ModelBench, ref: ActivityRef[Any, Any]) -> None:
    method = getattr(bench.nodes, ref.name)
    assert method.__temporal_activity_definition.name == ref.name


def script(bench: ModelBench, replies: list[dict[str, Any]], **more: Any) -> ModelChoice:
    text = json.dumps({"replies": replies, **more})
    Rehearsal.model_validate_json(text)
    return ModelChoice(model="rehearsed", price=PRICE, rehearsal=bench.artifacts.put_text(text))


def test_the_rehearsed_model_gives_the_first_reply_that_fits_and_keeps_its_own_record(bench: ModelBench) -> None:
    choice = script(
        bench,
        [
            {"node": "plan", "when": ["never there"], "reply": "wrong"},
            {"node": "replan", "reply": "wrong"},
            {"node": "plan", "when": ["the goal"], "unless": ["^the frame$"], "reply": "wrong"},
            {
                "node": "plan",
                "when": [r"^token (?P<token>\w+)$", "the goal"],
                "reply": {"why": "token {{token}}", "steps": [{**STEP, "title": "Use {{token}}"}]},
            },
        ],
        delay_seconds=0,
    )
    request = bench.request(Node.PLAN, choice, 1, {"frame": "token a1b2\nthe frame"})
    reply = run_activity(bench.nodes.plan, request)
    assert reply.plan is not None
    assert reply.plan.why == "token a1b2"
    assert reply.plan.steps[0].title == "Use a1b2"
    assert bench.record().model == "rehearsed"
    (line,) = [json.loads(line) for line in (bench.logs / "rehearsed-model.jsonl").read_text().splitlines()]
    assert line["reply"] == 4
    assert line["effect_id"] == request.key.effect_id
    assert line["microusd"] == reply.receipt.charged.microusd > 0
    assert line["input_tokens"] + line["output_tokens"] == reply.receipt.charged.tokens


def test_the_rehearsed_model_never_invents(bench: ModelBench) -> None:
    choice = script(bench, [{"node": "plan", "when": ["never there"], "reply": "wrong"}])
    request = bench.request(Node.PLAN, choice)
    with pytest.raises(ApplicationError) as raised:
        run_activity(bench.nodes.plan, request)
    assert (raised.value.type, raised.value.non_retryable) == ("RehearsalIncomplete", True)
    assert bench.ledger.totals(request.key.first_run_id).spend == Spend()


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        ({"node": "plan", "when": ["("], "reply": "x"}, "regular expression"),
        ({"node": "plan", "when": ["x"], "reply": {"why": ["{{token}}"]}}, "token"),
        ({"node": "plann", "reply": "x"}, "node"),
        ({"node": "plan", "reply": "x", "if": "y"}, "if"),
    ],
)
def test_a_script_with_a_mistake_is_refused_before_anything_runs(reply: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Rehearsal.model_validate_json(json.dumps({"replies": [reply]}))
