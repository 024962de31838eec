"""Effects: what is written before and after something happens once."""

from enum import StrEnum

from pydantic import Field

from schemas.base import Count, Frozen, Line, MicroUsd, Sha256
from schemas.budget import Limits, Reservation, Spend
from schemas.ids import CallKey
from schemas.pricing import Usage
from schemas.texts import TextRef


class EffectKind(StrEnum):
    """What kind of thing happens."""

    MODEL = "model"
    ACTION = "action"


class EffectClass(StrEnum):
    """How a tool's effect behaves when it may have happened already."""

    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    KEYED = "keyed"
    RECONCILABLE = "reconcilable"
    NONE = "none"


class EffectState(StrEnum):
    """Where an effect stands in the ledger.

    INTENT → DONE | AMBIGUOUS | UNKNOWN | INTERRUPTED | VOID, or
    INTENT → RELEASED → INTENT (provably without effect, tried again).
    """

    INTENT = "intent"
    """Claimed; it may be happening."""
    RELEASED = "released"
    """Provably did not happen; the same effect may be tried again."""
    DONE = "done"
    """Happened; the outcome is recorded."""
    AMBIGUOUS = "ambiguous"
    """A model request that may have been billed; the whole reservation is charged."""
    UNKNOWN = "unknown"
    """An action of which nobody can tell whether it happened."""
    INTERRUPTED = "interrupted"
    """An action that was stopped half-way on purpose, by cancel, pause or its time limit."""
    VOID = "void"
    """Proven never to have happened, and never to happen under this id."""


SETTLED = frozenset(
    {EffectState.DONE, EffectState.AMBIGUOUS, EffectState.UNKNOWN, EffectState.INTERRUPTED, EffectState.VOID}
)


class ProcessGroup(Frozen):
    """The process that owns a running command, so that a reconciler can end it."""

    host: str = Field(max_length=255)
    """Host name."""
    pid: Count
    """Process id of the guard process, which kills all it started when it ends."""
    started_ticks: Count
    """Start time in clock ticks since boot (``/proc/<pid>/stat`` field 22): tells a reused pid."""


class Intent(Frozen):
    """What is claimed in the ledger before an effect starts."""

    key: CallKey
    """The effect's identity."""
    kind: EffectKind
    """Model request or action."""
    name: str = Field(max_length=60)
    """Node or tool."""
    digest: Sha256
    """SHA-256 of the request; the same id with another digest is an EffectMismatch."""
    reservation: Reservation
    """What it may cost at most."""
    limits: Limits
    """The run's limits: the ledger refuses an intent that would take the chain beyond them."""


class EffectResult(Frozen):
    """What is written after an effect ended."""

    state: EffectState
    """A settled state."""
    charged: Spend
    """What the effect adds to the chain's spend."""
    outcome_json: str = Field(default="{}", max_length=20_000)
    """The activity's own record of the outcome, small: texts are references."""


class OpenedAs(StrEnum):
    """What the ledger answers to an intent."""

    NEW = "new"
    """Claimed: act now."""
    SETTLED = "settled"
    """It has ended already: return the recorded result."""
    DANGLING = "dangling"
    """An earlier attempt claimed it and left no result; the fence is now ours. Reconcile, never repeat blindly."""
    OVER_LIMIT = "over_limit"
    """Not claimed: the chain's spend with this reservation would be over a limit."""


class Opened(Frozen):
    """The ledger's answer to an intent."""

    how: OpenedAs
    """What to do."""
    fence: Count = 0
    """Number of this claim; a later claim has a greater one and makes this one lose."""
    result: EffectResult | None = None
    """The recorded result, where SETTLED."""
    process: ProcessGroup | None = None
    """The process that the earlier attempt recorded, where DANGLING."""
    marker_json: str = "{}"
    """What the earlier attempt noted before acting, where DANGLING."""
    over: str | None = None
    """Name of the limit, where OVER_LIMIT."""


class CallStatus(StrEnum):
    """How a model call ended."""

    ANSWERED = "answered"
    """A reply came back; it may still be unusable."""
    AMBIGUOUS = "ambiguous"
    """It may have been billed and no reply came back: the provider was slow, broke off, or the call was stopped."""
    LOST = "lost"
    """It may have been billed, and who asked is gone: an earlier attempt claimed it and left no answer."""
    NEEDS_MORE = "needs_more"
    """Nothing was sent: the prompt is larger than the reservation."""
    OVER_LIMIT = "over_limit"
    """Nothing was sent: the ledger's total with this reservation is over a limit."""


class CallRecord(Frozen):
    """What a model call did and cost, as the ledger keeps it."""

    status: CallStatus
    """How it ended."""
    detail: Line = ""
    """Why, for everything but ANSWERED: masked provider text, or the limit's name."""
    model: str = ""
    """Model that answered, as the provider names it."""
    usage: Usage = Usage()
    """Tokens as the provider counted them; zero where it did not say."""
    usage_known: bool = True
    """False where the provider sent no usage: the reservation is charged."""
    charged: Spend = Spend()
    """What the call added to the chain's spend."""
    finish_reason: str = ""
    """The provider's reason for the end of the reply."""
    text: str = Field(default="", max_length=8000)
    """The reply as it came, without its reasoning, where it is short: it is kept with its account, by one commit."""
    raw: TextRef | None = None
    """The same, where it is long."""
    reasoning: TextRef | None = None
    """Reasoning that the provider returned apart from the answer."""


class CallReceipt(Frozen):
    """What a workflow needs to know of a model call; part of every model reply. The ledger's CallRecord says more."""

    status: CallStatus
    """How it ended."""
    detail: Line = ""
    """Why, for everything but ANSWERED: masked provider text, or the limit's name."""
    charged: Spend = Spend()
    """What the call added to the chain's spend."""
    chain: Spend = Spend()
    """The chain's settled spend in the ledger after this call: after a reset it exceeds what the state remembers."""
    needed_input_tokens: Count = 0
    """Input tokens that the prompt needs, where NEEDS_MORE."""
    raw: TextRef | None = None
    """The reply as it came, only where it cannot be used: a repair quotes it."""


class LedgerTotals(Frozen):
    """A chain's figures from the ledger."""

    spend: Spend
    """Charges of all settled effects."""
    open: Spend = Spend()
    """Reservations of intents without a result; they count against the limits as well."""
    reserved_ambiguous_microusd: MicroUsd = 0
    """Part of the spend that ambiguous calls reserved, whatever was billed for them."""
    open_effects: Count = 0
    """Intents without a result."""
    unknown_effects: Count = 0
    """Actions that ended unknown."""
