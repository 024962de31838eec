"""What ends without a record gets one while Temporal still has it: events, state and row, once."""

import asyncio
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
from temporalio.worker import Worker

from schemas.budget import Spend
from schemas.contract import TASK_WORKFLOW
from schemas.outcome import OutcomeKind
from schemas.state import AgentState, EventKind, TaskInput
from stores.archive import RunArchive
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from stores.records import RunRow
from stores.unrecorded import Unrecorded
from tests.support.running import Handle, Running, on_server, until
from tests.support.scripted import World, spec
from tests.support.server import DevServer, client_of, running_server
from workflows.agent_task import AgentTask

LONG = 600.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with running_server(tmp_path_factory.mktemp("home")) as started:
        yield started


class Records:
    """The stores of a home, and what records into them."""

    def __init__(self, server: DevServer, client: Client) -> None:
        settings = server.settings
        self.artifacts = ArtifactStore(settings.artifacts_dir)
        self.ledger = Ledger(settings.database_url)
        self.archive = RunArchive(settings.archive_dir, self.artifacts)
        self.unrecorded = Unrecorded(client, self.ledger, self.artifacts, self.archive)

    async def record(self, queue: str, expected: list[str]) -> None:
        """Record until these are found: Temporal lists what it has closed a little later."""
        async with asyncio.timeout(30):
            while (found := await self.unrecorded.record(queue)) != expected:
                assert found == []
                await asyncio.sleep(0.1)

    def row(self, handle: Handle) -> RunRow:
        """Return the row of a run."""
        row = self.ledger.run(handle.id)
        assert row is not None
        return row


async def acting(handle: Handle) -> None:
    """Wait until a task performs its action."""
    await until(handle, lambda state: any(event.kind is EventKind.ACTION for event in state.events))


def test_a_terminated_run_is_recorded_once_with_who_did_it_and_why(server: DevServer) -> None:
    async def test(running: Running) -> None:
        records = Records(server, running.client)
        handle = await running.start()
        await acting(handle)
        assert await records.unrecorded.record(running.queue) == [], "it runs"
        before: AgentState = await handle.query("state", result_type=AgentState)
        await handle.terminate(reason="by hand")
        await records.record(running.queue, [handle.id])
        assert await records.unrecorded.record(running.queue) == []
        row = records.row(handle)
        assert (row.outcome.kind, row.outcome.error_type) == (OutcomeKind.FAILED, "Terminated")
        assert f"terminated by {running.client.identity}: by hand" in row.outcome.detail
        assert row.name == "scripted"
        state = AgentState.model_validate_json(records.artifacts.get_bytes(row.state))
        assert state.events[:-1] == before.events
        archived = records.archive.read(handle.id, row.first_run_id)
        assert (archived.events, archived.complete) == (state.events, True)
        assert archived.events[-1].text == f"{row.outcome.label}: {row.outcome.detail}"
        assert row.spend.microusd >= before.spend.microusd > 0

    on_server(server.settings, World(seconds=LONG), test)


def test_a_run_whose_own_time_was_over_is_recorded_as_that(server: DevServer) -> None:
    async def test(running: Running) -> None:
        records = Records(server, running.client)
        handle: Any = await running.client.start_workflow(
            TASK_WORKFLOW,
            TaskInput(spec=spec(running.queue)),
            id=f"task-{uuid.uuid4().hex[:12]}",
            task_queue=running.queue,
            run_timeout=timedelta(seconds=3),
        )
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        await records.record(running.queue, [handle.id])
        assert records.row(handle).outcome.label == "FAILED(TimedOut)"

    on_server(server.settings, World(seconds=LONG), test)


def test_a_run_that_could_not_record_its_end_is_recorded_with_the_outcome_that_it_had(server: DevServer) -> None:
    async def test(running: Running) -> None:
        records = Records(server, running.client)
        handle = await running.start()
        result = await handle.result()  # the scripted ledger keeps nothing
        assert result.outcome.kind is OutcomeKind.FINISHED
        await records.record(running.queue, [handle.id])
        row = records.row(handle)
        assert row.outcome == result.outcome
        assert row.spend == Spend(**result.summary.spend.model_dump())

    on_server(server.settings, World(), test)


def test_a_run_that_a_reset_has_ended_is_none_that_ended(server: DevServer) -> None:
    async def test(running: Running) -> None:
        records = Records(server, running.client)
        handle = await running.start()
        await acting(handle)
        execution = WorkflowExecution(workflow_id=handle.id, run_id=handle.first_execution_run_id or "")
        await running.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=running.client.namespace,
                workflow_execution=execution,
                reason="again",
                workflow_task_finish_event_id=4,
                request_id=uuid.uuid4().hex,
            )
        )
        closed = f"TaskQueue = '{running.queue}' AND ExecutionStatus = 'Terminated'"
        async with asyncio.timeout(30):
            while (await running.client.count_workflows(closed)).count == 0:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.1)
        assert await records.unrecorded.record(running.queue) == []
        assert records.ledger.run(handle.id) is None
        latest: Handle = running.client.get_workflow_handle(handle.id)
        await acting(latest)
        await latest.terminate(reason="and now for good")
        await records.record(running.queue, [handle.id])
        assert "and now for good" in records.row(handle).outcome.detail

    world = World(seconds=LONG, met=lambda world: False)  # else the new run ends by itself, at once
    on_server(server.settings, world, test)


def test_where_nobody_answers_the_history_is_kept_and_the_run_recorded_when_somebody_does(server: DevServer) -> None:
    world = World(seconds=LONG)

    async def begin(running: Running) -> tuple[str, str]:
        handle = await running.start()
        await acting(handle)
        return handle.id, running.queue

    task_id, queue = on_server(server.settings, world, begin)

    async def go() -> None:
        client = await client_of(server.settings)
        records = Records(server, client)
        handle: Handle = client.get_workflow_handle(task_id)
        await handle.terminate(reason="nobody is there")
        async with asyncio.timeout(60):
            while not (kept := [path for path in records.archive.histories() if task_id in path.parent.name]):
                assert await records.unrecorded.record(queue) == []
        history = await handle.fetch_history()
        assert WorkflowHistory.from_json(task_id, kept[0].read_text()).events == history.events
        assert records.ledger.run(task_id) is None
        assert await records.unrecorded.record(queue) == [], "and it is kept once"
        async with Worker(client, task_queue=queue, workflows=[AgentTask], activities=world.registered()):
            await records.record(queue, [task_id])

    asyncio.run(go())
