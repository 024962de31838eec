"""Clients and workers of different versions: what is asked is never half understood, what is said always is."""

import asyncio
import contextlib
import gc
import json
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from client.tasks import Tasks
from client.views import TaskView
from schemas.contract import TASK_WORKFLOW
from schemas.lenient import read_reply
from schemas.outcome import EXIT_STOPPED, OutcomeKind, StopReason, exit_code
from schemas.state import AgentState, Summary, TaskInput, TaskResult
from stores.archive import RunArchive
from stores.artifacts import ArtifactStore
from stores.database import open_database
from stores.ledger import Ledger
from stores.tables import RUNS
from tests.client import newer_worker
from tests.support.running import Running, on_server
from tests.support.scripted import World, spec
from tests.support.server import DevServer, client_of
from workflows.agent_task import AgentTask

Handle = WorkflowHandle[Any, Any]


def an_input(queue: str, **more: Any) -> dict[str, Any]:
    """Return a task's input as JSON."""
    found: dict[str, Any] = TaskInput(spec=spec(queue)).model_dump(mode="json", exclude_unset=True)
    return {**found, **more}


def only_required(schema: dict[str, Any], value: Any, at: dict[str, Any] | None = None) -> Any:
    """Return ``value`` without any field that has a default: what the oldest possible client sends."""
    place = at or schema
    while "$ref" in place:
        place = schema["$defs"][place["$ref"].rsplit("/", 1)[1]]
    if isinstance(value, list):
        return [only_required(schema, item, place.get("items", {})) for item in value]
    if not isinstance(value, dict) or "properties" not in place:
        return value
    needed = place.get("required", [])
    return {name: only_required(schema, value[name], place["properties"][name]) for name in needed}


async def send(running: Running, task: Any) -> TaskResult:
    """Start a task with this input, and wait for its end."""
    result: TaskResult = await running.client.execute_workflow(
        TASK_WORKFLOW,
        task,
        id=f"versions-{uuid.uuid4().hex[:8]}",
        task_queue=running.queue,
        task_timeout=timedelta(seconds=2),
        execution_timeout=timedelta(seconds=30),
        result_type=TaskResult,
    )
    return result


def test_an_older_client_that_sends_only_what_is_needed_is_served(server: DevServer) -> None:
    async def test(running: Running) -> None:
        task = only_required(TaskInput.model_json_schema(), an_input(running.queue))
        assert set(task) == {"spec"}
        assert "bounds" not in task["spec"]
        assert (await send(running, task)).outcome.kind is OutcomeKind.FINISHED

    on_server(server.settings, World(), test)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine:RuntimeWarning")
@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda task: task.update(colour="blue"), "colour: Extra inputs"),
        (lambda task: task["spec"].update(bounds={"max_dreams": 3}), "spec.bounds.max_dreams"),
        (lambda task: task["spec"]["requirements"][0].update(check={"kind": "dream"}), "spec.requirements.0.check"),
        (lambda task: task.update(contract=2), "contract: Input should be less than or equal to 1"),
    ],
    ids=["a field", "a bound", "a kind of check", "a version"],
)
def test_a_newer_client_is_refused_with_the_field_and_what_to_do(
    server: DevServer, change: Callable[[dict[str, Any]], None], named: str
) -> None:
    async def test(running: Running) -> None:
        task = an_input(running.queue)
        change(task)
        with pytest.raises(WorkflowFailureError) as failure:
            await send(running, task)
        cause = failure.value.cause
        assert isinstance(cause, ApplicationError)
        assert (cause.type, cause.non_retryable) == ("InputRefused", True)
        assert named in cause.message
        assert "update the workers (this one knows contract 1" in cause.message

    on_server(server.settings, World(), test)
    gc.collect()  # the coroutine that the SDK drops, while its warning is expected


@contextlib.asynccontextmanager
async def newer_task(server: DevServer) -> AsyncIterator[tuple[Client, Tasks, Handle, str]]:
    """Start a task on a worker of the future."""
    settings = server.settings
    client = await client_of(settings)
    artifacts = ArtifactStore(settings.artifacts_dir)
    archive = RunArchive(settings.archive_dir, artifacts)
    tasks = Tasks(client, lambda: Ledger(settings.database_url), artifacts, archive)
    queue = f"q-{uuid.uuid4().hex[:12]}"
    async with working_on(client, queue, newer_worker.NewerTask):
        handle: Handle = await client.start_workflow(
            TASK_WORKFLOW,
            an_input(queue),
            id=f"task-{uuid.uuid4().hex[:8]}",
            task_queue=queue,
            task_timeout=timedelta(seconds=2),
        )
        await tasks.look(handle.id)
        yield client, tasks, handle, queue


def working_on(client: Client, queue: str, workflow: type) -> Worker:
    """Return a worker that remembers no task."""
    return Worker(client, task_queue=queue, workflows=[workflow], max_cached_workflows=0)


def test_an_older_client_reads_what_it_knows_of_a_newer_worker_s_task(server: DevServer) -> None:
    async def test() -> None:
        async with newer_task(server) as (_client, tasks, handle, _queue):
            view = await tasks.look(handle.id)
            assert view.summary is not None
            assert view.summary.spend.microusd == 5
            assert view.state is not None
            assert [event.id for event in view.state.events] == ["e1", "e3"]
            assert view.state.requirements[0].met
            assert "the worker is of another version; not understood: " in view.note
            await handle.signal("end")
            await handle.result()
            assert_stopped_for_a_new_reason(await tasks.look(handle.id))

    asyncio.run(test())


def assert_stopped_for_a_new_reason(view: TaskView) -> None:
    """The kind of the outcome, and with it the exit code, hold; the new reason stands in the detail."""
    assert view.outcome is not None
    assert (view.outcome.kind, view.outcome.reason) == (OutcomeKind.STOPPED_INCOMPLETE, StopReason.UNKNOWN)
    assert view.outcome.detail == "bored: nothing new under the sun"
    assert exit_code(view.outcome) == EXIT_STOPPED
    assert "outcome.reason bored" in view.note
    assert view.ended_at


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine:RuntimeWarning")
def test_what_a_newer_worker_hands_over_waits_for_a_worker_that_understands_it(server: DevServer) -> None:
    """A rolling change back: the task must neither be lost nor go on half understood."""

    async def test() -> None:
        async with newer_task(server) as (client, _tasks, handle, queue):
            await handle.signal("hand over")
            await until_handed_over(client, handle)
        latest = client.get_workflow_handle(handle.id)
        async with working_on(client, queue, AgentTask):
            await latest.signal("end")
            await until_refused(latest)
        assert (await latest.describe()).status is WorkflowExecutionStatus.RUNNING
        async with working_on(client, queue, newer_worker.NewerTask), asyncio.timeout(30):
            assert (await latest.result())["outcome"]["reason"] == "bored"

    asyncio.run(test())
    gc.collect()  # the coroutine that the SDK drops, while its warning is expected


async def until_handed_over(client: Client, handle: Handle) -> None:
    """Wait for the chain's second run."""
    for _ in range(600):
        if (await client.get_workflow_handle(handle.id).describe()).run_id != handle.first_execution_run_id:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not hand over")


async def until_refused(handle: Handle) -> None:
    """Wait until a worker has given a workflow task back, with the reason."""
    for _ in range(600):
        async for event in handle.fetch_history_events():
            if "handed over by a newer worker" in event.workflow_task_failed_event_attributes.failure.message:
                return
        await asyncio.sleep(0.05)
    raise AssertionError("nobody refused it")


SAMPLES: list[tuple[type[Any], dict[str, Any]]] = [
    (Summary, newer_worker.summary()),
    (AgentState, newer_worker.state()),
    (TaskResult, newer_worker.result()),
]


@pytest.mark.parametrize(("kind", "sample"), SAMPLES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_reply_is_read_but_for_what_is_new_and_that_is_named(kind: type[Any], sample: dict[str, Any]) -> None:
    read = read_reply(kind, json.dumps(sample))
    assert isinstance(read.value, kind)
    assert "colour" in read.notes
    assert read_reply(kind, read.value.model_dump_json()).notes == ()


def test_a_reply_that_lacks_what_cannot_be_done_without_is_none_with_the_reason() -> None:
    for broken in (
        b"no json",
        b"[]",
        b'{"outcome": {"kind": "ENLIGHTENED"}}',
        b'{"outcome": 1, "summary": [], "more": {}}',
    ):
        read = read_reply(TaskResult, broken)
        assert read.value is None
        assert read.notes


def test_a_ledger_that_a_newer_worker_writes_to_is_still_listed(server: DevServer) -> None:
    ledger, name = Ledger(server.settings.database_url), uuid.uuid4().hex
    ids = {"workflow_id": f"task-{name}", "run_id": name, "first_run_id": name}
    outcome = {"kind": "STOPPED_INCOMPLETE", "reason": "bored", "detail": "", "mood": "grey"}
    times = {"started_at": "2030-01-01", "ended_at": "2030-01-02"}
    row = {**ids, **times, "name": "x", "outcome": outcome, "spend": {}, "state": {"sha256": "0" * 64, "size_bytes": 1}}
    with open_database(server.settings.database_url).begin() as connection:
        for number, kind in enumerate(("STOPPED_INCOMPLETE", "ENLIGHTENED")):
            record = json.dumps({**row, "outcome": {**outcome, "kind": kind}})
            connection.execute(RUNS.insert().values(**{**ids, "run_id": f"{name}{number}"}, record_json=record))
    found = [run for run in ledger.runs(5) if run.workflow_id == f"task-{name}"]
    assert [run.outcome.reason for run in found] == [StopReason.UNKNOWN]
