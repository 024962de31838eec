"""What the ledger's database tells: effects and ended runs, for people and judges."""

from schemas.base import Count, Frozen, Line
from schemas.budget import Reservation, Spend
from schemas.checks import CheckResult
from schemas.effects import EffectKind, EffectState, ProcessGroup
from schemas.outcome import Outcome
from schemas.texts import BlobRef, TextRef


class EffectRow(Frozen):
    """One effect as the ledger has it."""

    effect_id: str
    """Its key, ``<workflow id>:<run id>:<seq>``."""
    kind: EffectKind
    """Model request or action."""
    name: str
    """Node or tool."""
    state: EffectState
    """Where it stands."""
    fence: Count
    """How often it was claimed."""
    reserved: Reservation
    """What it may cost at most."""
    charged: Spend
    """What it counts in the chain's spend: the reservation while it is open, nothing once released."""
    outcome_json: str = "{}"
    """The activity's own record of the outcome."""
    late_json: str = "[]"
    """JSON array of results that came after another attempt had taken over; they changed nothing."""
    created_at: str
    """ISO 8601, UTC, by the clock of the process that wrote it."""
    settled_at: str | None = None
    """Likewise; None while it is open or released."""


class UnsettledEffect(Frozen):
    """An effect that was claimed and has no result."""

    effect_id: str
    """Its key."""
    name: str
    """Node or tool."""
    process: ProcessGroup | None = None
    """The process that it started, where it noted one."""


class UnendedChain(Frozen):
    """A chain whose end nobody has recorded."""

    workflow_id: str
    """Temporal's workflow id."""
    first_run_id: str
    """First run of the chain."""
    last_effect_at: str
    """When it last claimed an effect: ISO 8601, UTC, by the clock of the process that did."""


class RunRow(Frozen):
    """An ended run, written once."""

    workflow_id: str
    """Temporal's workflow id."""
    run_id: str
    """Last run of the chain."""
    first_run_id: str
    """First run of the chain."""
    name: str
    """The task's name."""
    outcome: Outcome
    """How it ended."""
    spend: Spend
    """What the chain has spent."""
    started_at: str
    """ISO 8601, UTC, workflow time."""
    ended_at: str
    """ISO 8601, UTC, workflow time."""
    state: BlobRef
    """The final state in the artifact store."""
    summary: Line = ""
    """The end in one line."""
    evaluator: tuple[CheckResult, ...] = ()
    """What the hidden evaluator found."""
    difference: TextRef | None = None
    """What changed in the workspace, as a unified difference."""
