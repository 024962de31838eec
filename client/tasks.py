"""Tasks seen from outside: what is known of one, live from Temporal and afterwards from the records."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from client.builds import why_untaken
from client.problems import BadInput, PrerequisiteError
from schemas.base import clip
from schemas.contract import STATE_QUERY, SUMMARY_QUERY, TASK_WORKFLOW
from schemas.errors import ArtifactMissing
from schemas.lenient import Read, in_a_line, read_reply
from schemas.messages import Note, SignalName
from schemas.outcome import Outcome, OutcomeKind
from schemas.state import AgentState, Summary, TaskResult
from stores.archive import RunArchive
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from stores.records import EffectRow, RunRow, UnsettledEffect

Reply = TypeVar("Reply", AgentState, Summary)

QUERY_TIMEOUT = timedelta(seconds=5)
TERMINATED = "Terminated"
"""Error type of a run that was ended from outside without a chance to close and record itself."""
FAILING_ATTEMPTS = 4  # a worker that dies and comes back costs one or two
NO_ANSWER = (
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.FAILED_PRECONDITION,
    RPCStatusCode.RESOURCE_EXHAUSTED,  # queries that no worker answers pile up in the server
)


class UnknownTask(BadInput):
    """No task has this id."""

    def __init__(self, task_id: str) -> None:
        """Name the id."""
        super().__init__(f"no task {task_id}; `surefoot ps` lists the tasks")


class NotATask(BadInput):
    """The workflow is none of Surefoot's tasks."""


@dataclass(frozen=True)
class TaskView:
    """Everything that is known of a task now."""

    id: str
    """Its id."""
    ended: bool
    """Whether it has ended."""
    run_id: str = ""
    """Last run of its chain, as far as known."""
    first_run_id: str = ""
    """First run of its chain."""
    summary: Summary | None = None
    """Its own summary; None where it was not to be had."""
    state: AgentState | None = None
    """Its state; None likewise."""
    result: TaskResult | None = None
    """Its result, where it completed and Temporal still knows it."""
    outcome: Outcome | None = None
    """How it ended."""
    row: RunRow | None = None
    """Its row in the ledger, once it has ended."""
    ended_at: str = ""
    """When it ended (ISO 8601, UTC), as far as known."""
    why_not: str = ""
    """Why summary and state are missing."""
    note: str = ""
    """What of it this client does not understand, where the worker is of another version."""


class Tasks:
    """Speaks to Temporal about tasks and reads what they left in the stores."""

    def __init__(self, client: Client, ledger: Ledger, artifacts: ArtifactStore, archive: RunArchive) -> None:
        """Use these; nothing is opened or closed here."""
        self._client = client
        self._ledger = ledger
        self._artifacts = artifacts
        self._archive = archive

    async def look(self, task_id: str) -> TaskView:
        """Return what is known of a task. Raises UnknownTask, NotATask; RPCError where the server is down."""
        described = await self._describe(task_id)
        row = await asyncio.to_thread(self._ledger.run, task_id)
        if described is None:
            return self._from_row(row) if row else await asyncio.to_thread(self._from_traces, task_id)
        if described.workflow_type != TASK_WORKFLOW:
            raise NotATask(f"{task_id} is a workflow of type {described.workflow_type}, not a task")
        run_id = described.run_id
        if described.status is WorkflowExecutionStatus.RUNNING:
            return await self._running(described)
        return await self._ended(described, row if row and row.run_id == run_id else None)

    async def send(self, task_id: str, name: SignalName, note: Note) -> None:
        """Send a message. Raises UnknownTask; BadInput where the task has ended."""
        try:
            await self._client.get_workflow_handle(task_id).signal(name.value, note)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            view = await self.look(task_id)
            label = view.outcome.label if view.outcome else "unknown"
            raise BadInput(f"{task_id} has ended as {label}; nothing was sent") from error

    def effects(self, first_run_id: str) -> Sequence[EffectRow]:
        """Return the chain's effects from the ledger."""
        return self._ledger.rows(first_run_id)

    def unsettled(self, first_run_id: str) -> Sequence[UnsettledEffect]:
        """Return the chain's effects that are open, with the processes that they run in."""
        return self._ledger.unsettled(first_run_id)

    def rows(self, limit: int) -> Sequence[RunRow]:
        """Return the latest ended runs from the ledger."""
        return self._ledger.runs(limit)

    async def _describe(self, task_id: str) -> WorkflowExecutionDescription | None:
        try:
            return await self._client.get_workflow_handle(task_id).describe()
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                return None
            raise

    async def _running(self, described: WorkflowExecutionDescription) -> TaskView:
        task_id, first = described.id, described.raw_info.first_run_id
        summary = await self._query(task_id, SUMMARY_QUERY, Summary)
        state = await self._query(task_id, STATE_QUERY, AgentState) if summary else None
        silent = summary is None or state is None
        why_not = await self._silence(described) if silent else ""
        return TaskView(
            task_id,
            ended=False,
            run_id=described.run_id,
            first_run_id=first,
            summary=summary.value if summary else None,
            state=state.value if state else None,
            why_not=why_not,
            note=in_a_line((*(summary.notes if summary else ()), *(state.notes if state else ()))),
        )

    async def _silence(self, described: WorkflowExecutionDescription) -> str:
        """Say why nobody answers for a task, as far as Temporal knows."""
        raw = described.raw_description
        if raw.pending_workflow_task.attempt >= FAILING_ATTEMPTS:
            attempt = raw.pending_workflow_task.attempt
            return f"its worker fails on it (attempt {attempt}); logs/worker.log in the data folder says why"
        untaken = await why_untaken(self._client, described.id, raw.workflow_execution_info)
        return untaken or "no worker answers for it; start one with `surefoot up` or `surefoot worker`"

    async def _query(self, task_id: str, name: str, kind: type[Reply]) -> Read[Reply] | None:
        """Return what the task answers, or None where nobody answers for it."""
        handle = self._client.get_workflow_handle(task_id)
        try:
            raw: RawValue = await handle.query(name, result_type=RawValue, rpc_timeout=QUERY_TIMEOUT)
            return read_reply(kind, raw.payload.data)
        except (WorkflowQueryFailedError, WorkflowQueryRejectedError):
            return None
        except RPCError as error:
            if error.status in NO_ANSWER:
                return None
            raise

    async def _ended(self, described: WorkflowExecutionDescription, row: RunRow | None) -> TaskView:
        handle = self._client.get_workflow_handle(described.id, run_id=described.run_id, result_type=RawValue)
        result: Read[TaskResult] = Read(None)
        try:
            result = read_reply(TaskResult, (await handle.result()).payload.data)
            outcome = result.value.outcome if result.value else row.outcome if row else None
        except WorkflowFailureError as error:
            result = _result_of(error)
            outcome = row.outcome if row else _of_failure(described.status, error)
        if outcome is None:
            raise PrerequisiteError(f"{described.id}: {in_a_line(result.notes)}; update this client to read its end")
        state = self._kept_state(result.value, row)
        if state.value is None and row is None:  # terminated, for one: Temporal still has its history
            state = await self._query(described.id, STATE_QUERY, AgentState) or state
        return TaskView(
            described.id,
            ended=True,
            run_id=described.run_id,
            first_run_id=described.raw_info.first_run_id,
            summary=result.value.summary if result.value else None,
            state=state.value,
            result=result.value,
            outcome=outcome,
            row=row,
            ended_at=row.ended_at if row else described.close_time.isoformat() if described.close_time else "",
            why_not="" if state.value else f"its final state {'cannot be read' if row else 'was not recorded'}",
            note=in_a_line((*result.notes, *state.notes)),
        )

    def _from_row(self, row: RunRow) -> TaskView:
        state = self._kept_state(None, row)
        return TaskView(
            row.workflow_id,
            ended=True,
            run_id=row.run_id,
            first_run_id=row.first_run_id,
            state=state.value,
            outcome=row.outcome,
            row=row,
            ended_at=row.ended_at,
            why_not="Temporal has forgotten it; this is from the ledger and the archive"
            + ("" if state.value else ", without its final state, which cannot be read"),
            note=in_a_line(state.notes),
        )

    def _from_traces(self, task_id: str) -> TaskView:
        """Return what is left of a run that nobody recorded as ended. Raises UnknownTask where nothing is."""
        archived = self._archive.chains(task_id)
        first_run_id = archived[-1] if archived else self._ledger.last_chain(task_id)
        if first_run_id is None:
            raise UnknownTask(task_id)
        detail = "Temporal does not know it any more and its end was not recorded: it was terminated, most likely"
        return TaskView(
            task_id,
            ended=True,
            run_id=first_run_id,
            first_run_id=first_run_id,
            outcome=Outcome(kind=OutcomeKind.FAILED, error_type="Unrecorded", detail=detail),
            why_not="nothing is left of it but its effects in the ledger and what it had archived",
        )

    def _kept_state(self, result: TaskResult | None, row: RunRow | None) -> Read[AgentState]:
        ref = (result.state if result else None) or (row.state if row else None)
        if ref is None:
            return Read(None)
        try:
            return read_reply(AgentState, self._artifacts.get_bytes(ref))
        except ArtifactMissing as error:
            return Read(None, (str(error),))


def _result_of(error: WorkflowFailureError) -> Read[TaskResult]:
    """Return the result that a FAILED run gives along with its failure; nothing where there is none."""
    details = error.cause.details if isinstance(error.cause, ApplicationError) else ()
    return read_reply(TaskResult, json.dumps(details[0])) if details else Read(None)


def _of_failure(status: WorkflowExecutionStatus | None, error: WorkflowFailureError) -> Outcome:
    """Return the outcome of a run that ended without recording one."""
    cause = error.cause
    if status is WorkflowExecutionStatus.CANCELED:
        return Outcome(kind=OutcomeKind.CANCELLED, detail="Cancelled through Temporal")
    if status is WorkflowExecutionStatus.TERMINATED:
        return Outcome(kind=OutcomeKind.FAILED, error_type=TERMINATED, detail=clip(str(cause) or "without a reason"))
    if isinstance(cause, ApplicationError):
        kind, detail = cause.type or "ApplicationError", cause.message
    else:
        kind, detail = type(cause).__name__, str(cause)
    return Outcome(kind=OutcomeKind.FAILED, error_type=kind, detail=clip(detail))
