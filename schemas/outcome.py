"""How a run stands and how it ended: one typed outcome for client, ledger, search attributes and console."""

from enum import StrEnum
from typing import Self

from pydantic import model_validator

from schemas.base import Frozen, Line


class Status(StrEnum):
    """What a run is doing now; once it has ended its outcome takes this place."""

    PLANNING = "PLANNING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    PAUSED = "PAUSED"
    CLOSING = "CLOSING"


class OutcomeKind(StrEnum):
    """The four ends."""

    FINISHED = "FINISHED"
    STOPPED_INCOMPLETE = "STOPPED_INCOMPLETE"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


class StopReason(StrEnum):
    """Why a run stopped incomplete."""

    BUDGET_USD = "budget_usd"
    BUDGET_TOKENS = "budget_tokens"
    BUDGET_MODEL_CALLS = "budget_model_calls"
    BUDGET_TOOL_CALLS = "budget_tool_calls"
    MAX_PLAN_VERSIONS = "max_plan_versions"
    UNKNOWN = "unknown"
    """Never sent: what a client reads where a newer worker gives a reason that it does not know."""


class Outcome(Frozen):
    """The end of a run."""

    kind: OutcomeKind
    """Which of the four ends."""
    reason: StopReason | None = None
    """Why it stopped, exactly where the kind is STOPPED_INCOMPLETE."""
    error_type: str | None = None
    """Name of the error, exactly where the kind is FAILED."""
    detail: Line = ""
    """One sentence for a person."""
    verified: bool | None = None
    """Whether the hidden evaluator passed; None where there is none or it could not run."""

    @model_validator(mode="after")
    def _facts_match_the_kind(self) -> Self:
        if (self.reason is not None) != (self.kind is OutcomeKind.STOPPED_INCOMPLETE):
            raise ValueError("a reason belongs to STOPPED_INCOMPLETE, and only to it")
        if (self.error_type is not None) != (self.kind is OutcomeKind.FAILED):
            raise ValueError("an error type belongs to FAILED, and only to it")
        return self

    @property
    def label(self) -> str:
        """The outcome in one word, as ``STOPPED_INCOMPLETE(max_plan_versions)``."""
        inside = self.reason.value if self.reason else self.error_type
        return f"{self.kind.value}({inside})" if inside else self.kind.value


EXIT_VERIFIED = 0
EXIT_NOT_VERIFIED = 1
EXIT_BAD_INPUT = 2
EXIT_STOPPED = 3
EXIT_FAILED = 4
EXIT_CANCELLED = 5
EXIT_PREREQUISITE = 6


def exit_code(outcome: Outcome) -> int:
    """Return the exit code of ``outcome``; a FINISHED run without an evaluator counts as verified by its checks."""
    if outcome.kind is OutcomeKind.FINISHED:
        return EXIT_NOT_VERIFIED if outcome.verified is False else EXIT_VERIFIED
    return {
        OutcomeKind.STOPPED_INCOMPLETE: EXIT_STOPPED,
        OutcomeKind.FAILED: EXIT_FAILED,
        OutcomeKind.CANCELLED: EXIT_CANCELLED,
    }[outcome.kind]
