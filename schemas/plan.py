"""Plans and their versions: the agent's changing model of its task."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from schemas.base import Count, Frozen, Line
from schemas.texts import TextRef

Title = Annotated[str, Field(min_length=1, max_length=160)]


class StepStatus(StrEnum):
    """How a step stands within its plan version."""

    TODO = "todo"
    DONE = "done"
    FAILED = "failed"


class StepDraft(Frozen):
    """A step as a planner wrote it."""

    title: Title
    """What the step is, in a line."""
    instruction: TextRef
    """What to do and what will be visible when it is done."""
    requirements: tuple[str, ...] = ()
    """Ids of the requirements that the step works towards."""


class PlanDraft(Frozen):
    """A plan as a planner wrote it: only the steps that are still to do."""

    why: Line
    """Why the plan is as it is."""
    steps: tuple[StepDraft, ...] = Field(min_length=1, max_length=12)
    """Ordered steps."""


class Step(Frozen):
    """A step of a plan version."""

    id: str
    """As ``v2.s3``."""
    title: Title
    """What the step is, in a line."""
    instruction: TextRef | None
    """What to do and what will be visible then; None for a step that is done, and for one that code added."""
    requirements: tuple[str, ...] = ()
    """Ids of the requirements that the step works towards."""
    status: StepStatus = StepStatus.TODO
    """How it stands."""
    done_as: str | None = None
    """Id under which it was done, where an earlier version did it."""
    summary: TextRef | None = None
    """What was found when it was done."""


class PlanVersion(Frozen):
    """One version of the plan."""

    version: Annotated[int, Field(ge=1)]
    """1, 2, …"""
    why: Line
    """Why it was written."""
    after_step: str | None = None
    """Step of the version before that could not be done; None where all were done and a requirement was unmet."""
    learned: Line = ""
    """What was learned from the version before."""
    steps: tuple[Step, ...]
    """Ordered steps; those done earlier come first, as done."""


class Cursor(Frozen):
    """Where the run is in its current plan version."""

    step: Count = 0
    """Index of the current step, from 0; equal to the number of steps when all are done."""
    iteration: Count = 0
    """Iterations of the step that have ended."""
    actions: Count = 0
    """Actions of the current iteration that have been decided."""
