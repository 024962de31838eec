"""Writes and starts tasks for the proofs and looks at them from outside: outcomes, ledger rows, events, histories."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from schemas.contract import TASK_WORKFLOW, WORKFLOW_TASK_TIMEOUT_SECONDS
from schemas.effects import EffectKind, EffectState
from schemas.outcome import Outcome, OutcomeKind
from schemas.state import AgentState, Event, TaskInput, TaskResult
from schemas.task import TaskSpec
from stores.archive import read_chunk
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from stores.records import EffectRow
from stores.settings import Settings
from tests.support.server import DevServer, client_of, running_server
from tests.support.tasks import WorkerProcess, plan, rehearsed_choice, reply, task_spec, verdict

Handle = WorkflowHandle[Any, TaskResult]
Result = TypeVar("Result")

PATIENCE_SECONDS = 240


@contextlib.contextmanager
def serving_home(home: Path, *, server_flags: Sequence[str] = (), **flags: Any) -> Iterator[DevServer]:
    """Run a server that has answered once."""
    with running_server(home, server_flags=server_flags, **flags) as server:
        asyncio.run(_answered(server.settings))
        yield server


async def _answered(settings: Settings) -> None:
    await client_of(settings)


def with_client(settings: Settings, work: Callable[[Client], Coroutine[Any, Any, Result]]) -> Result:
    """Run ``work`` with a client."""

    async def go() -> Result:
        return await work(await client_of(settings))

    return asyncio.run(go())


def one_step(title: str, *replies: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a script that plans one step, which no judge finds done; ``replies`` come first and say what is done."""
    return [
        *replies,
        reply("plan", plan(title)),
        reply("is_step_done", verdict(False)),
        reply("validate_plan_step", verdict(False)),
        reply("summarize_actions", "rehearsed"),
    ]


def rehearsed_spec(settings: Settings, script: list[dict[str, Any]], **changes: Any) -> TaskSpec:
    """Return a task with a script."""
    return task_spec(settings, rehearsed_choice(ArtifactStore(settings.artifacts_dir), script), **changes)


async def start(client: Client, settings: Settings, spec: TaskSpec, workflow_id: str | None = None) -> Handle:
    """Start a task as the product does."""
    return await client.start_workflow(
        TASK_WORKFLOW,
        TaskInput(spec=spec),
        id=workflow_id or f"task-{uuid.uuid4().hex[:12]}",
        task_queue=settings.queue_prefix,
        task_timeout=timedelta(seconds=WORKFLOW_TASK_TIMEOUT_SECONDS),
        result_type=TaskResult,
    )


@dataclass(frozen=True)
class Ended:
    """A task that has ended."""

    handle: Handle
    result: TaskResult

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        return self.result.outcome

    @property
    def first_run_id(self) -> str:
        """First run of its chain."""
        assert self.handle.first_execution_run_id is not None
        return self.handle.first_execution_run_id

    @property
    def root(self) -> Path:
        """Its files."""
        return Path(self.result.workspace_root)

    @property
    def spend_microusd(self) -> int:
        """What it says that it has spent."""
        return self.result.summary.spend.microusd


async def ended(handle: Handle, seconds: float = PATIENCE_SECONDS) -> Ended:
    """Wait for a task's typed end, through outages of the server; anything else than a typed end is an error."""
    try:
        async with asyncio.timeout(seconds):
            result = await _result(handle)
    except WorkflowFailureError as error:
        cause = error.cause
        assert isinstance(cause, ApplicationError), repr(cause)
        result = TaskResult.model_validate_json(json.dumps(cause.details[0]))
        assert (result.outcome.kind, result.outcome.error_type) == (OutcomeKind.FAILED, cause.type)
    return Ended(handle, result)


async def _result(handle: Handle) -> TaskResult:
    while True:
        try:
            return await handle.result()
        except RPCError:
            await asyncio.sleep(0.2)


def run(settings: Settings, spec: TaskSpec, workflow_id: str | None = None) -> Ended:
    """Run a task to its end."""

    async def work(client: Client) -> Ended:
        return await ended(await start(client, settings, spec, workflow_id))

    return with_client(settings, work)


@dataclass(frozen=True)
class Kill:
    """A worker's SIGKILL of itself, at one point of the first effect of a name; the file ``flag`` says that it was."""

    point: str
    name: str
    flag: Path

    def run(self, settings: Settings, spec: TaskSpec, *flags: str, seconds: float = PATIENCE_SECONDS) -> Ended:
        """Run a task into the kill, and on the next worker to its end within ``seconds``."""
        kill = json.dumps({"point": self.point, "name": self.name, "nth": 1, "flag": str(self.flag)})
        doomed = WorkerProcess(settings, *flags, module="tests.support.killing_worker", KILL=kill)

        async def work(client: Client) -> Ended:
            handle = await start(client, settings, spec)
            assert await asyncio.to_thread(doomed.wait) == -9
            assert self.flag.exists()
            successor = await asyncio.to_thread(WorkerProcess, settings, *flags)
            try:
                return await ended(handle, seconds)
            finally:
                successor.kill()

        try:
            return with_client(settings, work)
        finally:
            doomed.kill()


async def happened(condition: Callable[[], object], seconds: float = 60, what: str = "it") -> None:
    """Wait until ``condition()`` is true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.02)


def rows_of(settings: Settings, first_run_id: str) -> list[EffectRow]:
    """Return a chain's rows."""
    return Ledger(settings.database_url).rows(first_run_id)


def actions(rows: list[EffectRow]) -> list[EffectRow]:
    """Return the rows of actions."""
    return [row for row in rows if row.kind is EffectKind.ACTION]


def states(rows: list[EffectRow], name: str) -> list[EffectState]:
    """Return the states of the rows of one node or tool, in order."""
    return [row.state for row in rows if row.name == name]


def lines_of(path: Path) -> list[str]:
    """Return a file's lines; none where there is no file."""
    return path.read_text().splitlines() if path.exists() else []


def events_of(settings: Settings, state: AgentState) -> list[Event]:
    """Return every event of a run, archived ones first."""
    artifacts = ArtifactStore(settings.artifacts_dir)
    archived = [event for chunk in state.archive for event in read_chunk(artifacts.get_bytes(chunk)).events]
    return archived + list(state.events)


@dataclass(frozen=True)
class RunOfChain:
    """One run of a chain as the server describes it."""

    run_id: str
    events: int
    history_bytes: int


async def chain_of(client: Client, workflow_id: str) -> list[RunOfChain]:
    """Return all runs of a workflow id, oldest first."""
    found = [item async for item in client.list_workflows(f"WorkflowId = '{workflow_id}'")]
    described = [await client.get_workflow_handle(workflow_id, run_id=item.run_id).describe() for item in found]
    described.sort(key=lambda item: item.start_time)
    infos = [item.raw_description.workflow_execution_info for item in described]
    return [RunOfChain(info.execution.run_id, info.history_length, info.history_size_bytes) for info in infos]


def final_state(settings: Settings, end: Ended) -> AgentState:
    """Return the state that was recorded at the end."""
    row = Ledger(settings.database_url).run(end.handle.id)
    assert row is not None
    return AgentState.model_validate_json(ArtifactStore(settings.artifacts_dir).get_bytes(row.state))


async def attempts(handle: Handle) -> list[tuple[str, int]]:
    """Return every call of the run with the number of its last attempt, in order."""
    names, found = {}, []
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            names[event.event_id] = event.activity_task_scheduled_event_attributes.activity_type.name
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            started = event.activity_task_started_event_attributes
            found.append((names[started.scheduled_event_id], started.attempt))
    return found
