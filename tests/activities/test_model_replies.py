"""A reply is read strictly, but for code fences and words around its one object; reading never raises."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.model.replies import read_reply
from activities.model.reply_schema import Offer, reply_schema
from schemas.answers import MAX_STEPS, SHAPE, ActionsAnswer, Answer, PlanAnswer, VerdictAnswer
from schemas.calls import ProblemKind, ReplyProblem
from schemas.models import Node
from schemas.plan import PlanDraft

GOOD = '{"reason": "exit code 0", "citation": {"source": "o1", "quote": "2 passed"}, "result": true}'
SHAPES: list[type[Answer]] = [PlanAnswer, VerdictAnswer, ActionsAnswer]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}```",
        f"Here is my answer:\n```json\n{GOOD}\n```\nI hope it helps.",
        f"  \n{GOOD}\n\n",
        GOOD.replace("exit code 0", "exit\ncode 0"),
    ],
)
def test_fences_words_around_and_raw_line_breaks_are_let_pass(text: str) -> None:
    answer = read_reply(text, "stop", VerdictAnswer)
    assert isinstance(answer, VerdictAnswer)
    assert answer.result is True
    assert answer.reason == "exit code 0"


@pytest.mark.parametrize(
    ("text", "finish_reason", "kind", "word"),
    [
        ("", "stop", ProblemKind.EMPTY, "empty"),
        (" \n", "content_filter", ProblemKind.EMPTY, "content_filter"),
        (GOOD, "length", ProblemKind.TRUNCATED, "cut off"),
        ("RESULT: true", "stop", ProblemKind.NOT_JSON, "no object"),
        (GOOD[:-5], "stop", ProblemKind.NOT_JSON, "not one JSON object"),
        (f"{GOOD}\n{GOOD}", "stop", ProblemKind.NOT_JSON, "not one JSON object"),
        (GOOD.replace("true", "True"), "stop", ProblemKind.NOT_JSON, "not one JSON object"),
        ('{"reason": "x", "result": false, "result": true}', "stop", ProblemKind.NOT_JSON, "twice"),
        ('{"reason": "\\ud800", "result": false}', "stop", ProblemKind.NOT_JSON, "surrogate"),
        ("{" * 100_000, "stop", ProblemKind.NOT_JSON, "not one"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "stop", ProblemKind.NOT_JSON, "not one"),
        (GOOD.replace("true", '"true"'), "stop", ProblemKind.INVALID, "result"),
        (GOOD.replace("true", "1"), "stop", ProblemKind.INVALID, "result"),
        ('{"result": true}', "stop", ProblemKind.INVALID, "reason: Field required"),
        ('{"reason": "  ", "result": true}', "stop", ProblemKind.INVALID, "reason"),
        ('{"reason": "x", "result": true, "sure": 0.9}', "stop", ProblemKind.INVALID, "sure"),
    ],
)
def test_what_could_change_the_meaning_is_refused(text: str, finish_reason: str, kind: ProblemKind, word: str) -> None:
    problem = read_reply(text, finish_reason, VerdictAnswer)
    assert isinstance(problem, ReplyProblem)
    assert problem.kind is kind
    assert word in problem.detail


def test_a_number_beyond_json_is_refused_inside_free_arguments() -> None:
    text = '{"thought": "t", "actions": [{"tool": "run", "arguments": {"n": 1e999}}], "more": false}'
    problem = read_reply(text, "stop", ActionsAnswer)
    assert isinstance(problem, ReplyProblem)
    assert problem.kind is ProblemKind.NOT_JSON


@given(text=st.text(), finish_reason=st.sampled_from(["stop", "length", ""]), shape=st.sampled_from(SHAPES))
def test_no_text_makes_reading_raise(text: str, finish_reason: str, shape: type[Answer]) -> None:
    read_reply(text, finish_reason, shape)


@given(value=JSON_VALUES, shape=st.sampled_from(SHAPES), cut=st.integers(0, 40))
def test_no_json_makes_reading_raise_and_no_detail_outgrows_its_line(
    value: object, shape: type[Answer], cut: int
) -> None:
    text = json.dumps(value)
    answer = read_reply(text[: len(text) - cut], "stop", shape)
    if isinstance(answer, ReplyProblem):
        assert len(answer.detail) <= 500


@given(reason=st.text(min_size=1, max_size=3000), result=st.booleans())
def test_a_verdict_reads_back_with_its_result_whatever_the_reason(reason: str, result: bool) -> None:
    text = json.dumps({"reason": reason, "citation": None, "result": result})
    answer = read_reply(text, "stop", VerdictAnswer)
    if isinstance(answer, VerdictAnswer):
        assert answer.result is result
        assert len(answer.reason) <= 500
    else:
        assert not reason.strip() or answer.kind is ProblemKind.NOT_JSON  # a lone surrogate


def test_long_strings_are_cut_and_too_many_steps_refused() -> None:
    step = {"title": "t" * 999, "instruction": "i" * 9999, "requirements": []}
    answer = read_reply(json.dumps({"why": "w" * 999, "steps": [step]}), "stop", PlanAnswer)
    assert isinstance(answer, PlanAnswer)
    assert (len(answer.why), len(answer.steps[0].title), len(answer.steps[0].instruction)) == (500, 160, 4000)
    problem = read_reply(json.dumps({"why": "w", "steps": [step] * (MAX_STEPS + 1)}), "stop", PlanAnswer)
    assert isinstance(problem, ReplyProblem)
    assert "steps" in problem.detail


def test_a_plan_may_have_as_many_steps_as_the_schema_of_plans() -> None:
    bound = next(item.max_length for item in PlanDraft.model_fields["steps"].metadata if hasattr(item, "max_length"))
    assert bound == MAX_STEPS


@pytest.mark.parametrize("node", list(SHAPE))
@pytest.mark.parametrize("bounded", [True, False])
def test_schemas_are_closed_complete_and_put_the_reason_first(node: Node, bounded: bool) -> None:
    arguments = {"run": {"type": "object", "properties": {"command": {"type": "string", "maxLength": 5}}}}
    schema = reply_schema(node, Offer(arguments, 3, ["o1"]), bounded)
    assert schema is not None
    for part in _objects(schema):
        assert part["additionalProperties"] is False
    assert schema["required"] == list(schema["properties"])
    assert next(iter(schema["properties"])) in {"why", "reason", "thought"}
    text = json.dumps(schema)
    assert "$ref" not in text
    assert ("maxLength" in text) is bounded


def test_a_verdict_is_asked_for_a_citation_of_what_was_shown() -> None:
    schema = reply_schema(Node.IS_STEP_DONE, Offer(labels=["o2", "f1", "o2"]), True)
    assert schema is not None
    citation = schema["properties"]["citation"]
    assert citation["type"] == "object"
    assert citation["properties"]["source"]["enum"] == ["f1", "o2"]


def test_free_text_nodes_have_no_schema() -> None:
    assert reply_schema(Node.SUMMARIZE_ACTIONS, Offer(), True) is None


def _objects(schema: object) -> list[dict[str, object]]:
    if isinstance(schema, list):
        return [found for item in schema for found in _objects(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [found for value in schema.values() for found in _objects(value)]
