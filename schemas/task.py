"""What a task is: immutable, validated once at submit, stored with the run."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from schemas.base import Frozen
from schemas.budget import Limits
from schemas.checks import Check, Requirement
from schemas.models import ModelChoice, Tier
from schemas.secrets import SecretNames
from schemas.workspace import WorkspaceSpec


class Bounds(Frozen):
    """The three nested bounds, and the time of one action. Reaching an inner one moves one level out."""

    max_plan_versions: Annotated[int, Field(ge=1, le=100)] = 20
    """Plan versions, the first included; the outermost bound."""
    max_plan_step_iterations: Annotated[int, Field(ge=1, le=20)] = 3
    """Attempts at one step of one plan version."""
    max_plan_step_actions: Annotated[int, Field(ge=1, le=50)] = 5
    """Actions in one attempt."""
    action_timeout_seconds: Annotated[int, Field(ge=1, le=7200)] = 120
    """Longest run time of one action."""


class Caps(Frozen):
    """When a run of the chain hands over to the next one, below Temporal's own limits."""

    events: Annotated[int, Field(ge=100, le=40_000)] = 3500
    """History events."""
    history_bytes: Annotated[int, Field(ge=500_000, le=40_000_000)] = 2_000_000
    """History size; a run begins with up to half of the least cap, its spec and its state."""


class TaskSpec(Frozen):
    """One agent task, complete: nothing is looked up later that could change it."""

    name: str = Field(min_length=1, max_length=100)
    """Short name, for people."""
    goal: str = Field(min_length=1, max_length=20_000)
    """What is to be achieved, in words."""
    instructions: str = Field(default="", max_length=20_000)
    """Standing instructions: conventions, things to avoid."""
    task_type: str = Field(default="task", max_length=60)
    """Kind of task, for search."""
    requirements: tuple[Requirement, ...] = Field(min_length=1, max_length=50)
    """What must hold; known to the agent. At least one is mandatory: a claim finishes nothing."""
    evaluator: tuple[Check, ...] = Field(default=(), max_length=50)
    """Checks hidden from the agent, run once at the end; they change no outcome."""
    bounds: Bounds = Bounds()
    """Bounds of the loops."""
    limits: Limits = Limits()
    """Limits of spend."""
    caps: Caps = Caps()
    """When a run of the chain hands over to the next."""
    models: dict[Tier, ModelChoice]
    """Model of each tier, with its frozen price."""
    tools: tuple[str, ...] = Field(min_length=1, max_length=50)
    """Names of the tools that may be used."""
    secrets: SecretNames = ()
    """Names of the secrets that its commands get as environment variables; the workspace's worker has the values."""
    workspace: WorkspaceSpec
    """Where it happens."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        ids = [requirement.id for requirement in self.requirements]
        if len(set(ids)) != len(ids):
            raise ValueError(f"requirement ids must differ, got {', '.join(ids)}")
        if not any(requirement.mandatory for requirement in self.requirements):
            raise ValueError("at least one requirement must be mandatory: without one nothing could finish the task")
        missing = [tier.value for tier in Tier if tier not in self.models]
        if missing:
            raise ValueError(f"models lacks the tiers {', '.join(missing)}")
        if self.limits.microusd is not None:
            unpriced = sorted({choice.model for choice in self.models.values() if choice.price is None})
            if unpriced:
                raise ValueError(f"a money limit needs a price for {', '.join(unpriced)}")
        return self
