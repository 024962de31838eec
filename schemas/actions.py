"""Actions, and what is observed of them."""

from enum import StrEnum

from pydantic import Field

from schemas.base import Frozen, Line
from schemas.effects import EffectClass
from schemas.texts import TextRef


class ProposedAction(Frozen):
    """An action as the executor proposed it. Digest and executor use the very same argument bytes."""

    tool: str = Field(max_length=60)
    """Name of the tool."""
    arguments: TextRef
    """The arguments as JSON bytes."""
    preview: str = Field(max_length=240)
    """The arguments in a line, for people."""
    effect_class: EffectClass = EffectClass.NONE
    """The tool's class; an unknown tool is NONE and irreversible."""
    irreversible: bool = True
    """Whether it can be undone (delete, refund, deploy, payment, send cannot)."""
    invalid: Line | None = None
    """What is wrong with tool or arguments; such an action is never performed."""


class ObservationStatus(StrEnum):
    """How an action ended."""

    SUCCEEDED = "succeeded"
    """The tool did what was asked (a command: exit code 0)."""
    FAILED = "failed"
    """The tool ran and reports a failure (a command: another exit code)."""
    TIMED_OUT = "timed_out"
    """Stopped at its time limit, with everything it had started."""
    INTERRUPTED = "interrupted"
    """Stopped by pause or cancel, with everything it had started."""
    UNKNOWN = "unknown"
    """Nobody can tell whether it happened; the next frame decides."""
    VOID = "void"
    """Proven not to have happened: the workflow may decide it anew under a new effect id."""
    INVALID = "invalid"
    """Never performed: unknown tool or invalid arguments."""
    REFUSED = "refused"
    """Never performed: the gate refused it."""


class Observation(Frozen):
    """What is known after an action; every action has exactly one."""

    id: str = Field(max_length=20)
    """As ``o17``."""
    action_id: str = Field(max_length=60)
    """As ``v2.s3.i1.a2``."""
    tool: str = Field(max_length=60)
    """Name of the tool."""
    preview: str = Field(max_length=240)
    """The arguments in a line."""
    status: ObservationStatus
    """How it ended."""
    exit_code: int | None = None
    """Exit code of a command, or None."""
    summary: Line = ""
    """What happened, in a line written by code."""
    excerpt: TextRef | None = None
    """Bounded text for prompts: the headline, then head and tail of the output; None where there is no output."""
    output: TextRef | None = None
    """The whole output, where it is longer than the excerpt."""
    effect_id: str | None = None
    """Key in the ledger; None where nothing was performed."""


def headline(observation: Observation) -> str:
    """Return what was done and how it ended in a line, as prompts and records show it."""
    return f"{observation.tool} {observation.preview}: {observation.status.value}. {observation.summary}"
