"""Requests to model nodes, and what they answer."""

from enum import StrEnum

from pydantic import Field

from schemas.actions import ProposedAction
from schemas.base import Count, Frozen, Line
from schemas.budget import Limits, Reservation
from schemas.effects import CallReceipt
from schemas.ids import CallKey
from schemas.models import ModelChoice, Node
from schemas.plan import PlanDraft
from schemas.texts import ContextText, TextRef


class PromptRef(Frozen):
    """A prompt template, frozen into the run."""

    node: Node
    """Node that it belongs to."""
    version: str = Field(max_length=20)
    """First twelve hex digits of the template's SHA-256."""
    template: TextRef
    """The template itself."""


class RepairRequest(Frozen):
    """The one second chance of a structured reply."""

    reply: TextRef
    """The reply that could not be used (bounded)."""
    problem: Line
    """What is wrong with it."""


class ModelRequest(Frozen):
    """One request of one node to one model; its digest, without the reservation and limits, identifies the effect."""

    key: CallKey
    """The effect's identity."""
    node: Node
    """Node that asks."""
    place: str = Field(max_length=60)
    """Plan, step or iteration that it is asked for, for people and records."""
    choice: ModelChoice
    """Model that answers."""
    template: TextRef
    """The node's prompt template, as the run has frozen it."""
    context: tuple[ContextText, ...] = Field(max_length=200)
    """What fills the template, chosen by the context builder."""
    tools: tuple[str, ...] = ()
    """Names of the tools that may be proposed; only ``propose_action`` has any."""
    max_actions: Count = 0
    """How many actions a reply may hold; only for ``propose_action``."""
    repair: RepairRequest | None = None
    """Set where the reply before could not be used."""
    reservation: Reservation
    """What the request may cost at most."""
    limits: Limits
    """The run's limits, checked by the ledger once more."""


class ProblemKind(StrEnum):
    """Why a reply cannot be used."""

    EMPTY = "empty"
    TRUNCATED = "truncated"
    NOT_JSON = "not_json"
    INVALID = "invalid"


class ReplyProblem(Frozen):
    """An unusable reply; data, not an error."""

    kind: ProblemKind
    """Which kind."""
    detail: Line
    """What is wrong and where, as the model is told in a repair request."""


class Citation(Frozen):
    """Where a verdict's evidence stands."""

    source: str = Field(max_length=40)
    """Label of a text in the prompt, as ``o17`` or ``f18``."""
    quote: str = Field(max_length=500)
    """Words that stand there."""


class Verdict(Frozen):
    """A judge's answer. ``result`` is what drives the flow: a yes without a citation that code found is a no."""

    result: bool
    """Whether the step is done: the model said yes and its citation was found."""
    claimed: bool
    """What the model said."""
    reason: Line
    """The model's reason, or why its answer could not be used."""
    citation: Citation | None = None
    """What the model cited."""
    citation_found: bool = False
    """Whether code found the quote in the cited text of this prompt."""


class PlanReply(Frozen):
    """Reply of ``plan`` and ``replan``."""

    receipt: CallReceipt
    """What the call did and cost."""
    plan: PlanDraft | None = None
    """The plan; None where there is no usable one."""
    problem: ReplyProblem | None = None
    """Why there is no plan, where the model answered."""


class VerdictReply(Frozen):
    """Reply of the judges."""

    receipt: CallReceipt
    """What the call did and cost."""
    verdict: Verdict | None = None
    """The verdict; None where there is no usable one, which means not done."""
    problem: ReplyProblem | None = None
    """Why there is no verdict, where the model answered."""


class ActionsReply(Frozen):
    """Reply of ``propose_action``."""

    receipt: CallReceipt
    """What the call did and cost."""
    thought: Line = ""
    """Why these actions, in the model's words."""
    actions: tuple[ProposedAction, ...] = ()
    """A short batch; each is gated and performed on its own."""
    more: bool = False
    """Whether the executor wants to see the results before it goes on with this step."""
    problem: ReplyProblem | None = None
    """Why there is no batch, where the model answered."""


class TextReply(Frozen):
    """Reply of the free-text nodes; an empty one is no summary, and no reason to ask again."""

    receipt: CallReceipt
    """What the call did and cost."""
    text: TextRef | None = None
    """The text, bounded; None where there is none."""
    line: Line = ""
    """Its beginning, for people."""
