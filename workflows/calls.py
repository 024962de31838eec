"""Calls to the world: wait while paused, run, race against messages. The only place that schedules activities."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, cast

from pydantic import BaseModel
from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

from schemas import contract
from schemas.base import clip
from schemas.budget import Spend
from schemas.contract import ActivityRef, Role
from schemas.outcome import Outcome, OutcomeKind, Status
from schemas.state import AgentState, Decision, DecisionKind
from workflows.control import budget, records
from workflows.control.decision import decide, stop
from workflows.journal import Journal
from workflows.outages import HandOver, Outages

Request = TypeVar("Request", bound=BaseModel)
Reply = TypeVar("Reply", bound=BaseModel)

FIRST_RETRY_SECONDS = 1
LONGEST_RETRY_SECONDS = 30
START_WITHIN_SECONDS = 60  # while a run ends: a workspace that no worker serves any more must not keep it


class Ended(Exception):
    """The run ends with this decision."""

    def __init__(self, decision: Decision) -> None:
        """Carry the decision to the end of the run."""
        super().__init__(decision.sentence)
        self.decision = decision


def failed(error_type: str, detail: str, rule: str = "error") -> Ended:
    """Return the end of a run that an error ends."""
    detail = clip(detail)
    outcome = Outcome(kind=OutcomeKind.FAILED, error_type=error_type, detail=detail)
    return Ended(Decision(kind=DecisionKind.STOP, rule=rule, sentence=detail, outcome=outcome))


class Calls:
    """Calls activities for one run."""

    def __init__(self, journal: Journal) -> None:
        """Work on the run's journal."""
        self.journal = journal
        self.outages = Outages(journal)
        self._archiving = asyncio.Lock()  # two calls side by side would archive the same events twice

    @property
    def state(self) -> AgentState:
        """The run's state."""
        return self.journal.state

    def cancelled(self) -> bool:
        """Whether people have cancelled a run that has no outcome yet."""
        return self.state.cancel is not None and self.state.outcome is None

    async def ready(self, *, at_head: bool = False) -> None:
        """Wait while paused; end where cancelled; hand over where the history has grown to its caps.

        Called before every call, and ``at_head`` of every iteration. There, and while paused, the run hands over at
        its caps. Inside an iteration, which would begin anew, it does so only where twice the caps are reached.
        """
        while True:
            await self._archive_if_due()
            if self.state.cancel is not None:
                raise Ended(decide(self.journal.spec, self.state))
            if self._history_is_full(1 if at_head or self.state.paused_by else 2):
                raise HandOver
            if self.state.paused_by is None:
                if self.state.status is Status.PAUSED:
                    self.journal.enter(Status.RUNNING)
                return
            self.journal.enter(Status.PAUSED)
            self.journal.say(f"paused by {self.state.paused_by}")
            await workflow.wait_condition(
                lambda: (
                    self.state.paused_by is None
                    or self.state.cancel is not None
                    or records.archive_due(self.state)
                    or self._history_is_full(1)
                )
            )

    async def execute(
        self,
        ref: ActivityRef[Request, Reply],
        request: Request,
        *,
        extra_seconds: int = 0,
        until: Callable[[], bool] = lambda: False,
        start_within_seconds: int | None = None,
        summary: str = "",
        patient: bool = True,
    ) -> Reply:
        """Run one activity; where ``until`` becomes true first, cancel it and wait until it has cleaned up.

        Without ``start_within_seconds`` it waits for a worker as long as that takes. One that an outage ends is run
        again once that is over; not so where it is not ``patient``.

        Raises: temporalio.exceptions.ActivityError; HandOver where the history has no room to wait for an outage.
        """
        with self.outages.one() as outage:
            while True:
                handle = self._schedule(ref, request, extra_seconds, start_within_seconds, summary)
                try:
                    return cast(Reply, await self._raced(handle, until))
                except ActivityError as error:
                    if not (patient and await outage.wait(error)):
                        raise

    def _schedule(
        self,
        ref: ActivityRef[Request, Reply],
        request: Request,
        extra_seconds: int,
        start_within_seconds: int | None,
        summary: str,
    ) -> "workflow.ActivityHandle[Any]":
        cls = ref.cls
        queue = None if cls.role is Role.HOME else self.journal.spec.workspace.queue
        return workflow.start_activity(
            ref.name,
            request,
            result_type=ref.reply,
            task_queue=queue,
            schedule_to_start_timeout=timedelta(seconds=start_within_seconds) if start_within_seconds else None,
            start_to_close_timeout=timedelta(seconds=cls.start_to_close_seconds + extra_seconds),
            heartbeat_timeout=timedelta(seconds=cls.heartbeat_seconds) if cls.heartbeat_seconds else None,
            retry_policy=RetryPolicy(
                initial_interval=timedelta(seconds=FIRST_RETRY_SECONDS),
                maximum_interval=timedelta(seconds=LONGEST_RETRY_SECONDS),
                maximum_attempts=cls.attempts,
            ),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=summary or None,
        )

    async def _raced(self, handle: "workflow.ActivityHandle[Any]", until: Callable[[], bool]) -> Any:
        try:
            await workflow.wait_condition(lambda: handle.done() or until())
        except asyncio.CancelledError:
            handle.cancel()
            await asyncio.gather(handle, return_exceptions=True)  # Temporal's own cancel waits for the clean-up too
            raise
        if not handle.done():
            handle.cancel()
        return await handle

    async def run(self, ref: ActivityRef[Request, Reply], request: Request, *, extra_seconds: int = 0) -> Reply:
        """Run one activity to its end; an error that no trying again helps ends the run as FAILED, a cancel as that."""
        try:
            return await self.execute(ref, request, extra_seconds=extra_seconds, until=self.cancelled)
        except ActivityError as error:
            raise self.ended_by(error, ref.name) from error

    async def archive(self, keep: int) -> None:
        """Move all but the ``keep`` newest events to the archive, chunk by chunk."""
        while chunk := records.chunk_to_archive(self.state, keep):
            info = workflow.info()
            reply = await self.run(
                contract.ARCHIVE_RUN,
                contract.ARCHIVE_RUN.request(
                    workflow_id=info.workflow_id,
                    first_run_id=info.first_execution_run_id,
                    chunk=self.state.counters.chunks + 1,
                    records_jsonl=records.chunk_lines(chunk),
                ),
            )
            self.journal.state = records.archived(self.state, len(chunk), reply.chunk)

    async def _archive_if_due(self) -> None:
        async with self._archiving:
            if records.archive_due(self.state):
                await self.archive(records.KEPT_EVENTS)

    def _history_is_full(self, times: int) -> bool:
        info, caps = workflow.info(), self.journal.spec.caps
        return (
            info.get_current_history_length() >= times * caps.events
            or info.get_current_history_size() >= times * caps.history_bytes
            or (times == 1 and info.is_continue_as_new_suggested())
        )

    def refuse_over(self, cost: Spend) -> None:
        """End the run where ``cost`` on top of everything spent and open would pass a limit."""
        name = budget.over_limit(self.state, self.journal.spec.limits, cost)
        if name is not None:
            raise self.over(name)

    def over(self, name: str) -> Ended:
        """Return the end of a run that a limit ends."""
        limit = getattr(self.journal.spec.limits, name)
        sentence = (
            f"The next call could take {name} over its limit of {limit:,}; {getattr(self.state.spend, name):,} spent"
        )
        return Ended(stop(budget.REASON_OF_LIMIT[name], "hard_budget", sentence))

    def ended_by(self, error: ActivityError, name: str) -> Ended:
        """Return the end of a run that an activity\'s error ends."""
        if self.cancelled():
            return Ended(decide(self.journal.spec, self.state))
        cause = error.cause
        if isinstance(cause, ApplicationError):
            return failed(cause.type or "ActivityFailed", f"{name}: {cause.message}")
        return failed("ActivityFailed", f"{name}: {cause or error}")
