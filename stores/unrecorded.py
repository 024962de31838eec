"""Runs that ended without recording it: terminated, timed out, or closed while a store was away.

Temporal keeps the history of such a run for a while, and any worker answers for its last state from it. So that nothing
is lost when that while is over, the state is read and recorded as the run would have done it itself: its events in the
archive, its row in the ledger. Where no worker answers, Temporal's history is kept as it is.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Any

from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowHistoryEventFilterType,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from schemas.base import clip, rebuild
from schemas.budget import add, greater
from schemas.contract import STATE_QUERY, SUMMARY_QUERY, TASK_WORKFLOW
from schemas.lenient import read_reply
from schemas.outcome import Outcome, OutcomeKind
from schemas.state import AgentState, Event, EventKind, Source, Summary
from schemas.workspace import RecordRunRequest
from stores.archive import RunArchive
from stores.artifacts import ArtifactStore
from stores.ending import record_end
from stores.ledger import Ledger

QUERY_TIMEOUT_SECONDS = 5
TERMINATED = "Terminated"
"""Error type of a run that was ended from outside without a chance to close and record itself."""
TIMED_OUT = "TimedOut"
"""Error type of one whose own time-out, which whoever started it has set, was over."""
FROM_OUTSIDE = {WorkflowExecutionStatus.TERMINATED: TERMINATED, WorkflowExecutionStatus.TIMED_OUT: TIMED_OUT}
NO_ANSWER = (
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.FAILED_PRECONDITION,
    RPCStatusCode.RESOURCE_EXHAUSTED,  # queries that no worker answers pile up in the server
)

log = logging.getLogger("surefoot.unrecorded")


class Unrecorded:
    """Finds the runs of one Temporal that ended without a record, and records them."""

    def __init__(self, client: Client, ledger: Ledger, artifacts: ArtifactStore, archive: RunArchive) -> None:
        """Use these; nothing is opened or closed here."""
        self._client = client
        self._ledger = ledger
        self._artifacts = artifacts
        self._archive = archive

    async def record(self, queue: str) -> list[str]:
        """Record what can be of the tasks of a queue, and return their ids. Several processes may do so at once.

        Raises RPCError, LedgerUnavailable, StorageUnavailable.
        """
        query = (
            f"WorkflowType = '{TASK_WORKFLOW}' AND TaskQueue = '{queue}' "
            "AND ExecutionStatus != 'Running' AND ExecutionStatus != 'ContinuedAsNew'"
        )
        closed = [item async for item in self._client.list_workflows(query)]
        known = await asyncio.to_thread(self._ledger.recorded, [item.run_id for item in closed])
        return [item.id for item in closed if item.run_id not in known and await self._record(item)]

    async def _record(self, item: WorkflowExecution) -> bool:
        handle = self._client.get_workflow_handle(item.id, run_id=item.run_id)
        try:
            described = await handle.describe()
            if described.raw_description.workflow_extended_info.reset_run_id:
                return False  # a reset has ended this run; its chain went on
            state = await self._state(handle)
            summary = await self._summary(handle) if state is not None else None
            if state is None or summary is None:
                await self._keep_history(handle, described)
                return False
            outcome = await _outcome(handle, described, state)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:  # its time was up meanwhile
                return False
            raise
        await asyncio.to_thread(self._write, described, state, summary, outcome)
        log.info("recorded the end of %s as %s", item.id, outcome.label)
        return True

    def _write(
        self, described: WorkflowExecutionDescription, state: AgentState, summary: Summary, outcome: Outcome
    ) -> None:
        ended = (described.close_time or described.start_time).isoformat(timespec="milliseconds")
        totals = self._ledger.totals(_chain(described))
        spend = greater(state.spend, add(totals.spend, totals.open))
        final = rebuild(_with_end(state, outcome, ended), spend=spend)
        request = RecordRunRequest(
            workflow_id=described.id,
            run_id=described.run_id,
            first_run_id=_chain(described),
            name=summary.name,
            outcome=outcome,
            spend=spend,
            started_at=state.started_at,
            ended_at=ended,
            state_json=final.model_dump_json(),
            summary=clip(f"{outcome.label}: {outcome.detail}"),
        )
        record_end(self._ledger, self._artifacts, self._archive, request)

    async def _keep_history(self, handle: "WorkflowHandle[Any, Any]", described: WorkflowExecutionDescription) -> None:
        place = (described.id, _chain(described), described.run_id)
        if self._archive.history(*place).exists():
            return
        history = await handle.fetch_history()
        await asyncio.to_thread(self._archive.put_history, *place, history.to_json())
        log.warning("nobody answers for the ended %s: Temporal's history of it is kept in the archive", described.id)

    async def _state(self, handle: "WorkflowHandle[Any, Any]") -> AgentState | None:
        data = await answer_of(handle, STATE_QUERY)
        return None if data is None else read_reply(AgentState, data).value

    async def _summary(self, handle: "WorkflowHandle[Any, Any]") -> Summary | None:
        data = await answer_of(handle, SUMMARY_QUERY)
        return None if data is None else read_reply(Summary, data).value


async def answer_of(handle: "WorkflowHandle[Any, Any]", name: str) -> bytes | None:
    """Return what a worker answers for a run, None where none does."""
    timeout = timedelta(seconds=QUERY_TIMEOUT_SECONDS)
    try:
        raw: RawValue = await handle.query(name, result_type=RawValue, rpc_timeout=timeout)
    except (WorkflowQueryFailedError, WorkflowQueryRejectedError):
        return None
    except RPCError as error:
        if error.status in NO_ANSWER:
            return None
        raise
    return raw.payload.data


async def _outcome(
    handle: "WorkflowHandle[Any, Any]", described: WorkflowExecutionDescription, state: AgentState
) -> Outcome:
    """Return how a run ended: as Temporal tells it where it was ended from outside, else as the run had decided."""
    error_type = FROM_OUTSIDE.get(described.status) if described.status else None
    if error_type is None and state.outcome is not None:
        return state.outcome
    detail = ""
    async for event in handle.fetch_history_events(event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT):
        if event.HasField("workflow_execution_terminated_event_attributes"):
            said = event.workflow_execution_terminated_event_attributes
            detail = f"terminated by {said.identity or 'unknown'}: {said.reason or 'without a reason'}"
        elif event.HasField("workflow_execution_timed_out_event_attributes"):
            detail = "the time-out with which the run was started was over"
    status = described.status.name if described.status else "unknown"
    return Outcome(kind=OutcomeKind.FAILED, error_type=error_type or status, detail=clip(detail))


def _with_end(state: AgentState, outcome: Outcome, ended: str) -> AgentState:
    """Return the last state with the end that the run did not live to see, as its last event."""
    if state.outcome == outcome:
        return state
    number = state.counters.seq + 1
    end = Event(
        id=f"e{number}",
        kind=EventKind.STATE_CHANGE,
        source=Source.CONTROLLER,
        visible=False,
        place="",
        at=ended,
        text=f"{outcome.label}: {outcome.detail}",
        ok=False,
    )
    counters = rebuild(state.counters, seq=number)
    return rebuild(state, counters=counters, events=(*state.events, end), outcome=outcome)


def _chain(described: WorkflowExecutionDescription) -> str:
    return described.raw_info.first_run_id
