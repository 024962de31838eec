"""Which model answers which node."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from schemas.base import Frozen
from schemas.pricing import Price
from schemas.texts import TextRef

REHEARSED = "rehearsed"


class Tier(StrEnum):
    """The kind of model a node asks for."""

    PLANNER = "planner"
    EXECUTOR = "executor"
    JUDGE = "judge"
    SUMMARIZER = "summarizer"


class Node(StrEnum):
    """A place in the graph that asks a model; also the name of its activity and of its prompt file."""

    PLAN = "plan"
    REPLAN = "replan"
    IS_STEP_DONE = "is_step_done"
    PROPOSE_ACTION = "propose_action"
    SUMMARIZE_ACTIONS = "summarize_actions"
    VALIDATE_PLAN_STEP = "validate_plan_step"
    IS_STEP_DONE_BY_VALIDATION = "is_step_done_by_validation"
    SUMMARIZE_PLAN_STEP = "summarize_plan_step"


TIER_OF_NODE: dict[Node, Tier] = {
    Node.PLAN: Tier.PLANNER,
    Node.REPLAN: Tier.PLANNER,
    Node.IS_STEP_DONE: Tier.JUDGE,
    Node.PROPOSE_ACTION: Tier.EXECUTOR,
    Node.SUMMARIZE_ACTIONS: Tier.SUMMARIZER,
    Node.VALIDATE_PLAN_STEP: Tier.JUDGE,
    Node.IS_STEP_DONE_BY_VALIDATION: Tier.JUDGE,
    Node.SUMMARIZE_PLAN_STEP: Tier.SUMMARIZER,
}


class ModelChoice(Frozen):
    """A model with everything that a request to it needs, frozen into the run."""

    model: str = Field(min_length=1, max_length=200)
    """A LiteLLM model string, or ``rehearsed``."""
    api_base: str | None = Field(default=None, max_length=500)
    """Address of an OpenAI-compatible service, where it is not the provider's own."""
    api_key_env: str | None = Field(default=None, max_length=100)
    """Name of the environment variable that holds the key; the worker resolves it, history never holds it."""
    price: Price | None = None
    """Frozen price; None only where no money limit is set."""
    max_output_tokens: Annotated[int, Field(ge=16, le=200_000)] = 2048
    """Output cap of every request, and what a reservation counts for the reply."""
    timeout_seconds: Annotated[int, Field(ge=1, le=600)] = 120
    """Longest wait for one reply."""
    structured_output: bool = True
    """Whether the request carries the reply's JSON Schema (``response_format``); the reply is validated either way."""
    rehearsal: TextRef | None = None
    """The script, where the model is ``rehearsed``."""

    @property
    def rehearsed(self) -> bool:
        """Whether a script answers instead of a model."""
        return self.model == REHEARSED
