"""Tasks seen from outside: what is known of one, live from Temporal and afterwards from the records."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from client.builds import why_untaken
from client.pending import retrying
from client.problems import BadInput, PrerequisiteError
from client.views import (
    FAILING_ATTEMPTS,
    NOT_RUNNING,
    TaskView,
    of_failure,
    result_of,
    silence,
    unended,
    unrecorded,
    without_ledger,
)
from schemas.contract import STATE_QUERY, SUMMARY_QUERY, TASK_WORKFLOW
from schemas.errors import ArtifactMissing, LedgerUnavailable
from schemas.lenient import Read, in_a_line, read_reply
from schemas.messages import Note, SignalName
from schemas.state import AgentState, Summary, TaskResult
from stores.archive import RunArchive
from stores.artifacts import ArtifactStore
from stores.database import DatabaseRefused
from stores.ledger import Ledger
from stores.records import EffectRow, RunRow, UnendedChain, UnsettledEffect
from stores.unrecorded import answer_of

Reply = TypeVar("Reply", AgentState, Summary)

LEDGER_AWAY = (LedgerUnavailable, DatabaseRefused)
"""What the ledger raises where it cannot be read: whatever Temporal says of a task is told without it."""


class UnknownTask(BadInput):
    """No task has this id."""

    def __init__(self, task_id: str) -> None:
        """Name the id."""
        super().__init__(f"no task {task_id}; `surefoot ps` lists the tasks")


class NotATask(BadInput):
    """The workflow is none of Surefoot's tasks."""


class Tasks:
    """Speaks to Temporal about tasks and reads what they left in the stores."""

    def __init__(
        self, client: Client | None, ledger: Callable[[], Ledger], artifacts: ArtifactStore, archive: RunArchive
    ) -> None:
        """Use these; ``ledger`` is called where something is asked that only the ledger knows.

        Without a client, which stands for an embedded server that does not run, there are only the records.
        """
        self._server = client
        self._ledger = ledger
        self._artifacts = artifacts
        self._archive = archive

    @property
    def _client(self) -> Client:
        self.need_server()
        assert self._server is not None, "just looked at"
        return self._server

    def need_server(self) -> None:
        """Raise PrerequisiteError where there are only the records."""
        if self._server is None:
            raise PrerequisiteError(NOT_RUNNING)

    async def look(self, task_id: str) -> TaskView:
        """Return what is known of a task; one that runs is asked itself, and needs no ledger.

        Raises UnknownTask, NotATask; RPCError where the server is down, LedgerUnavailable where the ledger is and
        Temporal does not know the task (any more).
        """
        described = await self._describe(task_id) if self._server else None
        if described is None:
            return await asyncio.to_thread(self._from_records, task_id)
        if described.workflow_type != TASK_WORKFLOW:
            raise NotATask(f"{task_id} is a workflow of type {described.workflow_type}, not a task")
        if described.status is WorkflowExecutionStatus.RUNNING:
            return await self._running(described)
        try:
            row, unread = await asyncio.to_thread(self._row, task_id), ""
        except LEDGER_AWAY as error:
            row, unread = None, without_ledger("its row", error)
        return await self._ended(described, row if row and row.run_id == described.run_id else None, unread)

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
        """Return the chain's effects from the ledger. Raises LedgerUnavailable, DatabaseRefused."""
        return self._ledger().rows(first_run_id)

    def unsettled(self, first_run_id: str) -> Sequence[UnsettledEffect]:
        """Return the chain's effects that are open, with the processes that they run in."""
        return self._ledger().unsettled(first_run_id)

    def rows(self, limit: int) -> Sequence[RunRow]:
        """Return the latest ended runs from the ledger. Raises LedgerUnavailable, DatabaseRefused."""
        return self._ledger().runs(limit)

    def without_end(self) -> Sequence[UnendedChain]:
        """Return the chains that nobody has recorded the end of. Raises LedgerUnavailable, DatabaseRefused."""
        return self._ledger().without_end()

    def _row(self, task_id: str) -> RunRow | None:
        return self._ledger().run(task_id)

    def _from_records(self, task_id: str) -> TaskView:
        row = self._row(task_id)
        return self._from_row(row) if row else self._from_traces(task_id)

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
            retrying=await retrying(self._client, described),
        )

    async def _silence(self, described: WorkflowExecutionDescription) -> str:
        """Say why nobody answers for a task, as far as Temporal knows."""
        raw = described.raw_description
        attempt = raw.pending_workflow_task.attempt
        if attempt >= FAILING_ATTEMPTS:
            return silence(attempt)
        return await why_untaken(self._client, described.id, raw.workflow_execution_info) or silence(attempt)

    async def _query(self, task_id: str, name: str, kind: type[Reply]) -> Read[Reply] | None:
        """Return what the task answers, or None where nobody answers for it."""
        handle = self._client.get_workflow_handle(task_id)
        data = await answer_of(handle, name)
        return None if data is None else read_reply(kind, data)

    async def _ended(self, described: WorkflowExecutionDescription, row: RunRow | None, unread: str) -> TaskView:
        handle = self._client.get_workflow_handle(described.id, run_id=described.run_id, result_type=RawValue)
        closed = described.close_time
        result: Read[TaskResult] = Read(None)
        try:
            result = read_reply(TaskResult, (await handle.result()).payload.data)
            outcome = result.value.outcome if result.value else row.outcome if row else None
        except WorkflowFailureError as error:
            result = result_of(error)
            outcome = row.outcome if row else of_failure(described.status, error)
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
            ended_at=row.ended_at if row else closed.isoformat(timespec="milliseconds") if closed else "",
            why_not="" if state.value else self._lost_state(described, row),
            note=in_a_line((*result.notes, *state.notes, *([unread] if unread else []))),
        )

    def _lost_state(self, described: WorkflowExecutionDescription, row: RunRow | None) -> str:
        """Say why an ended task has no state, and where the rest of it can still be read."""
        if row is not None:
            return "its final state cannot be read"
        kept = self._archive.history(described.id, described.raw_info.first_run_id, described.run_id)
        where = f"its history is kept in {kept}" if kept.exists() else "Temporal still has its history"
        return (
            f"its final state was not recorded, and no worker answers for it. {where}: a worker that can replay it "
            "reads it and records the run (`surefoot up`, then `surefoot gc`)"
        )

    def _from_row(self, row: RunRow) -> TaskView:
        state = self._kept_state(None, row)
        why = "Temporal has forgotten it" if self._server else "Temporal was not asked"
        return TaskView(
            row.workflow_id,
            ended=True,
            run_id=row.run_id,
            first_run_id=row.first_run_id,
            state=state.value,
            outcome=row.outcome,
            row=row,
            ended_at=row.ended_at,
            why_not=f"{why}; this is from the ledger and the archive"
            + ("" if state.value else ", without its final state, which cannot be read"),
            note=in_a_line(state.notes),
        )

    def _from_traces(self, task_id: str) -> TaskView:
        """Return what is left of a run that nobody recorded as ended. Raises UnknownTask where nothing is."""
        archived = self._archive.chains(task_id)
        first_run_id = archived[-1] if archived else self._ledger().last_chain(task_id)
        if self._server is None:
            if first_run_id is None:
                raise PrerequisiteError(f"neither the ledger nor the archive knows {task_id}; {NOT_RUNNING}")
            return unended(task_id, first_run_id)
        if first_run_id is None:
            raise UnknownTask(task_id)
        folder = self._archive.folder(task_id, first_run_id)
        return unrecorded(task_id, first_run_id, [path for path in self._archive.histories() if path.parent == folder])

    def _kept_state(self, result: TaskResult | None, row: RunRow | None) -> Read[AgentState]:
        ref = (result.state if result else None) or (row.state if row else None)
        if ref is None:
            return Read(None)
        try:
            return read_reply(AgentState, self._artifacts.get_bytes(ref))
        except ArtifactMissing as error:
            return Read(None, (str(error),))
