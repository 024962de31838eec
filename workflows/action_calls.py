"""Actions: one attempt each, reconciled where it died half-way, never repeated blindly."""

import asyncio

from temporalio.exceptions import ActivityError, ApplicationError

from schemas import contract
from schemas.actions import Observation, ObservationStatus, ProposedAction
from schemas.base import clip
from schemas.budget import Spend
from schemas.state import EventKind, Ref
from schemas.workspace import ActionReply, ActionRequest, Workspace
from workflows.calls import START_WITHIN_SECONDS, Calls, failed
from workflows.control import budget

MAX_VOID_IN_A_ROW = 3


class ActionCalls:
    """Performs actions for one run."""

    def __init__(self, calls: Calls) -> None:
        """Perform through the run's calls."""
        self.calls = calls
        self.journal = calls.journal

    async def perform(self, workspace: Workspace, action: ProposedAction, action_id: str) -> Observation:
        """Perform one gated action once. Pause and cancel stop it, and its processes are then gone.

        Raises: Ended where the budget does not allow it, HandOver.
        """
        for _ in range(MAX_VOID_IN_A_ROW):
            await self.calls.ready()
            cost = Spend(tool_calls=1)
            self.calls.refuse_over(cost)
            request = ActionRequest(
                key=self.journal.next_key(),
                workspace=workspace.ref,
                action=action,
                action_id=action_id,
                observation_id=self.journal.next_id("o"),
                timeout_seconds=self.journal.spec.bounds.action_timeout_seconds,
                limits=self.journal.spec.limits,
            )
            observation = await self._perform_once(request, cost)
            if observation.status is not ObservationStatus.VOID:
                return observation
        raise failed("WorkspaceUnavailable", f"{action_id} could not be performed {MAX_VOID_IN_A_ROW} times in a row")

    async def _perform_once(self, request: ActionRequest, cost: Spend) -> Observation:
        """Perform under one effect id; whatever becomes of it, the action in the record gets its one observation."""
        begun = self.journal.begin_action(
            request.action, request.action_id, request.observation_id, request.key.effect_id
        )
        self.journal.state = budget.open_call(self.journal.state, cost)
        charged, chain = cost, Spend()
        try:
            reply = await self._perform_or_reconcile(request)
            charged, chain = reply.charged, reply.chain
        except (Exception, asyncio.CancelledError) as error:
            self.journal.observe(begun, _not_seen(request, error))
            raise
        finally:
            self.journal.state = budget.settle(self.journal.state, cost, charged, chain)
        self.journal.observe(begun, reply.observation)
        if reply.over:
            raise self.calls.over(reply.over)
        if reply.observation.status is ObservationStatus.UNKNOWN:
            self.journal.count(unknown_effects=1)
        return reply.observation

    async def _perform_or_reconcile(self, request: ActionRequest) -> ActionReply:
        """One attempt only: what died half-way is reconciled, never repeated blindly."""
        try:
            return await self.calls.execute(
                contract.PERFORM_ACTION,
                request,
                extra_seconds=request.timeout_seconds,
                until=lambda: self.journal.state.cancel is not None or self.journal.state.paused_by is not None,
                summary=f"{request.action.tool} {clip(request.action.preview, 80)}",
                patient=False,
            )
        except ActivityError as error:
            if _is_final(error):
                raise self.calls.ended_by(error, contract.PERFORM_ACTION.name) from error
            text, refs = f"{request.action.tool}: the attempt was lost", {Ref.EFFECT: request.key.effect_id}
            self.journal.note(EventKind.CALL, text, place=request.action_id, ok=False, refs=refs)
        if self.calls.cancelled():  # find out what became of it all the same, but not for ever
            return await self._reconcile_soon(request)
        return await self.calls.run(contract.RECONCILE_ACTION, request)

    async def _reconcile_soon(self, request: ActionRequest) -> ActionReply:
        try:
            return await self.calls.execute(
                contract.RECONCILE_ACTION, request, start_within_seconds=START_WITHIN_SECONDS, patient=False
            )
        except ActivityError as error:
            raise self.calls.ended_by(error, contract.RECONCILE_ACTION.name) from error


def _not_seen(request: ActionRequest, error: BaseException) -> Observation:
    """Return the observation of an action whose end the run did not live to see; the ledger may know more."""
    cancelled = isinstance(error, asyncio.CancelledError)
    why = "the run was cancelled through Temporal" if cancelled else f"the run ended: {error}"
    return Observation(
        id=request.observation_id,
        action_id=request.action_id,
        tool=request.action.tool,
        preview=request.action.preview,
        status=ObservationStatus.INTERRUPTED if cancelled else ObservationStatus.UNKNOWN,
        summary=clip(f"{why} before its result was seen"),
        effect_id=request.key.effect_id,
    )


def _is_final(error: ActivityError) -> bool:
    cause = error.cause
    return isinstance(cause, ApplicationError) and cause.non_retryable
