"""What a model may answer at each node: the one shape that replies and rehearsed scripts are checked against."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from schemas.base import clip
from schemas.models import Node

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


SHAPE: dict[Node, type[Answer]] = {
    Node.PLAN: PlanAnswer,
    Node.REPLAN: PlanAnswer,
    Node.IS_STEP_DONE: VerdictAnswer,
    Node.PROPOSE_ACTION: ActionsAnswer,
    Node.VALIDATE_PLAN_STEP: VerdictAnswer,
    Node.IS_STEP_DONE_BY_VALIDATION: VerdictAnswer,
}
"""Shape of each node's reply; the others answer with free text."""
