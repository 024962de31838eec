"""Model calls: reserve, ask, settle, and ask again where that is allowed. Every request is a decision of its own."""

import asyncio
from typing import TypeVar, cast

from temporalio.exceptions import ActivityError, ApplicationError, CancelledError

from schemas.base import counted
from schemas.budget import Spend
from schemas.calls import (
    ActionsReply,
    ModelRequest,
    PlanReply,
    RepairRequest,
    ReplyProblem,
    TextReply,
    VerdictReply,
)
from schemas.contract import ActivityRef
from schemas.effects import CallReceipt, CallStatus
from schemas.errors import UNBILLED
from schemas.models import TIER_OF_NODE, Node
from schemas.sizing import prompt_tokens
from schemas.state import EventKind, Ref
from workflows.calls import Calls, failed
from workflows.control import budget, context

ModelReply = TypeVar("ModelReply", PlanReply, VerdictReply, ActionsReply, TextReply)
First = TypeVar("First")
Second = TypeVar("Second")

MAX_UNANSWERED = {
    CallStatus.AMBIGUOUS: 3,  # a provider that does not answer three times is down
    CallStatus.LOST: 10,  # the worker died, not the model: a task survives that, but no request that kills its worker
}
MAX_REPAIRED_TOKENS = 20_000  # a repair quotes the reply; a longer one is not worth sending again
MAX_ENLARGED = 2  # a prompt that outgrew its reservation twice is asked no third time


class ModelCalls:
    """Asks models for one run."""

    def __init__(self, calls: Calls) -> None:
        """Ask through the run's calls."""
        self.calls = calls
        self.journal = calls.journal

    async def ask(self, ref: ActivityRef[ModelRequest, ModelReply], place: str, learned: str = "") -> ModelReply:
        """Ask a model node once, and once more where a structured reply cannot be used.

        Raises: Ended where the budget does not allow it or no answer comes, HandOver.
        """
        effect_id, reply = await self._ask_answered(ref, place, learned, None)
        problem = getattr(reply, "problem", None)
        if problem is None:
            return reply
        raw = reply.receipt.raw
        repairable = raw is not None and raw.tokens <= MAX_REPAIRED_TOKENS
        self._note_unusable(effect_id, problem, place, repaired=repairable)
        if raw is None or not repairable:
            return reply
        repair = RepairRequest(reply=raw, problem=problem.detail)
        effect_id, second = await self._ask_answered(ref, place, learned, repair)
        if second_problem := getattr(second, "problem", None):
            self._note_unusable(effect_id, second_problem, place, repaired=False)
        return second

    async def _ask_answered(
        self, ref: ActivityRef[ModelRequest, ModelReply], place: str, learned: str, repair: RepairRequest | None
    ) -> tuple[str, ModelReply]:
        """Ask until a reply comes back, and return its effect's id with it.

        Unanswered calls and outgrown reservations are asked again, each bounded.
        """
        needed, enlarged = 0, 0
        unanswered = dict.fromkeys(MAX_UNANSWERED, 0)
        while True:
            await self.calls.ready()
            request = self._request(Node(ref.name), place, learned, repair, needed)
            reply = await self._ask_once(ref, request)
            receipt = reply.receipt
            match receipt.status:
                case CallStatus.ANSWERED:
                    return request.key.effect_id, reply
                case CallStatus.OVER_LIMIT:
                    raise self.calls.over(receipt.detail)
                case CallStatus.NEEDS_MORE:
                    enlarged, needed = enlarged + 1, receipt.needed_input_tokens
                    if enlarged > MAX_ENLARGED:
                        raise failed("ContextExceeded", f"{ref.name}: the prompt needs {needed:,} tokens")
                case CallStatus.AMBIGUOUS | CallStatus.LOST:
                    unanswered[receipt.status] += 1
                    self._note_unanswered(request, receipt)
                    count = unanswered[receipt.status]
                    if count >= MAX_UNANSWERED[receipt.status] and self.journal.state.cancel is None:
                        raise failed("ModelUnanswered", f"{ref.name}: {counted(count, 'request')}: {receipt.detail}")

    def _request(self, node: Node, place: str, learned: str, repair: RepairRequest | None, needed: int) -> ModelRequest:
        spec, state = self.journal.spec, self.journal.state
        choice = spec.models[TIER_OF_NODE[node]]
        prompt = next(item for item in state.prompts if item.node is node)
        texts = context.build_context(spec, state, node, learned)
        proposing = node is Node.PROPOSE_ACTION
        tokens = prompt_tokens(prompt.template, texts, repair, len(spec.tools) if proposing else 0)
        return ModelRequest(
            key=self.journal.next_key(),
            node=node,
            place=place,
            choice=choice,
            template=prompt.template,
            context=texts,
            tools=spec.tools if proposing else (),
            max_actions=spec.bounds.max_plan_step_actions - state.cursor.actions if proposing else 0,
            repair=repair,
            reservation=budget.reserve(choice, max(tokens, needed)),
            limits=spec.limits,
        )

    async def _ask_once(self, ref: ActivityRef[ModelRequest, ModelReply], request: ModelRequest) -> ModelReply:
        cost = budget.model_call(request.reservation)
        self.calls.refuse_over(cost)
        self.journal.state = budget.open_call(self.journal.state, cost)
        charged, chain = cost, Spend()  # where nobody says what it cost: at most the reservation
        try:
            reply = await self.calls.execute(
                ref,
                request,
                extra_seconds=request.choice.timeout_seconds,
                until=self.calls.cancelled,
            )
            charged, chain = reply.receipt.charged, reply.receipt.chain
            return reply
        except ActivityError as error:
            if _not_billed(error):
                charged = Spend()
            raise self.calls.ended_by(error, ref.name) from error
        finally:
            self.journal.state = budget.settle(self.journal.state, cost, charged, chain)

    def _note_unanswered(self, request: ModelRequest, receipt: CallReceipt) -> None:
        self.journal.count(ambiguous_calls=1)
        charged = budget.exact_dollars(receipt.charged.microusd)
        text = f"{request.node.value}: no answer, charged {charged}: {receipt.detail}"
        refs = {Ref.EFFECT: request.key.effect_id}
        self.journal.note(EventKind.CALL, text, place=request.place, ok=False, refs=refs)

    def _note_unusable(self, effect_id: str, problem: ReplyProblem, place: str, *, repaired: bool) -> None:
        self.journal.count(unusable_replies=1)
        text = f"unusable reply ({problem.kind.value}): {problem.detail}"
        refs = {Ref.EFFECT: effect_id}
        self.journal.note(EventKind.AGENT_ERROR, text, place=place, ok=False, visible=repaired, refs=refs)


def _not_billed(error: ActivityError) -> bool:
    """Whether the error proves that nothing was billed: it is sorted as that, or the call never started."""
    cause = error.cause
    return isinstance(cause, CancelledError) or (isinstance(cause, ApplicationError) and cause.type in UNBILLED)


async def both(first: "asyncio.Future[First]", second: "asyncio.Future[Second]") -> tuple[First, Second]:
    """Wait for both, also where one fails, so that no paid call is left alone; then raise the first failure."""
    done = await asyncio.gather(first, second, return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result
    return cast(First, done[0]), cast(Second, done[1])
