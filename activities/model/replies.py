"""What a model may answer, and how a reply is read: strictly, but for code fences and words around the one object."""

import json
from collections.abc import Callable
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from schemas.base import clip
from schemas.calls import ProblemKind, ReplyProblem

MAX_STEPS = 12
MAX_PROPOSED = 50  # what a reply may hold at all; a request keeps fewer


def _line(limit: int) -> Callable[[Any], Any]:
    return lambda value: clip(" ".join(value.split()), limit) if isinstance(value, str) else value


def _cut(limit: int) -> Callable[[Any], Any]:
    return lambda value: clip(value.strip(), limit) if isinstance(value, str) else value


def _bounded(limit: int) -> Any:
    """A string that is cut, not refused, when it is longer; the schema that is sent names the bound."""
    return Field(json_schema_extra={"maxLength": limit})


Reason = Annotated[str, BeforeValidator(_line(500)), Field(min_length=1), _bounded(500)]
Title = Annotated[str, BeforeValidator(_line(160)), Field(min_length=1), _bounded(160)]
Instruction = Annotated[str, BeforeValidator(_cut(4000)), Field(min_length=1), _bounded(1200)]
Name = Annotated[str, Field(max_length=60)]


class Answer(BaseModel):
    """A reply's shape: strict and closed. Reasons stand before results, since a model writes in this order."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


AnswerType = TypeVar("AnswerType", bound=Answer)


class StepAnswer(Answer):
    """A step of a plan."""

    title: Title
    instruction: Instruction
    requirements: Annotated[list[Name], Field(max_length=50)] = []


class PlanAnswer(Answer):
    """Reply of the planners."""

    why: Reason
    steps: Annotated[list[StepAnswer], Field(min_length=1, max_length=MAX_STEPS)]


class CitationAnswer(Answer):
    """Where the evidence stands."""

    source: Annotated[str, _bounded(60)]
    quote: Annotated[str, _bounded(500)]


class VerdictAnswer(Answer):
    """Reply of the judges."""

    reason: Reason
    citation: CitationAnswer | None = None
    result: bool


class ActionAnswer(Answer):
    """One proposed action."""

    tool: Name
    arguments: dict[str, JsonValue]


class ActionsAnswer(Answer):
    """Reply of the executor."""

    thought: Reason
    actions: Annotated[list[ActionAnswer], Field(max_length=MAX_PROPOSED)]
    more: bool = False


def read_reply(text: str, finish_reason: str, shape: type[AnswerType]) -> AnswerType | ReplyProblem:
    """Return the answer in ``text``, or what is wrong with it in words that a model can use. Never raises."""
    stripped = text.strip()
    if finish_reason == "length":
        return ReplyProblem(kind=ProblemKind.TRUNCATED, detail="the reply was cut off at its token limit; be brief")
    if not stripped:
        why = f" ({clip(finish_reason, 60)})" if finish_reason not in {"", "stop"} else ""
        return ReplyProblem(kind=ProblemKind.EMPTY, detail=f"the reply was empty{why}")
    try:
        value = _one_object(stripped)
    except (ValueError, RecursionError) as error:
        return ReplyProblem(kind=ProblemKind.NOT_JSON, detail=clip(f"the reply is not one JSON object: {error}"))
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        return ReplyProblem(kind=ProblemKind.INVALID, detail=_in_a_line(error))


def _one_object(text: str) -> dict[str, Any]:
    """Return the object in ``text``, from its first brace to its last: fences and words around it are let pass."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        raise ValueError("it holds no object in braces")
    value: dict[str, Any] = json.loads(
        text[start : end + 1],
        object_pairs_hook=_without_doubles,
        parse_constant=_no_constant,
        strict=False,  # a raw line break inside a string means what it shows
    )
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # infinities and lone surrogates end here
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def _in_a_line(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    parts = [f"{'.'.join(str(part) for part in item['loc']) or 'reply'}: {item['msg']}" for item in found[:3]]
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    return clip("; ".join(parts) + more)
