"""What a plain client may send: no input wedges a run, and nobody's word but the chain's own counts."""

import asyncio
import functools
import gc
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from schemas.checks import RequirementState
from schemas.contract import TASK_WORKFLOW
from schemas.outcome import OutcomeKind
from schemas.state import AgentState, TaskInput, TaskResult
from schemas.task import Bounds
from schemas.workspace import WorkspaceSpec
from tests.support.running import Running, on_server, signal, until
from tests.support.scripted import World, spec
from tests.support.server import DevServer

NEVER = {"max_plan_versions": 1, "max_plan_step_iterations": 1}


async def start(running: Running, args: list[Any]) -> TaskResult:
    """Start a task with any arguments, and wait for its end."""
    result: TaskResult = await running.client.execute_workflow(
        TASK_WORKFLOW,
        args=args,
        id=f"foreign-{uuid.uuid4().hex[:8]}",
        task_queue=running.queue,
        task_timeout=timedelta(seconds=2),
        execution_timeout=timedelta(seconds=20),
        result_type=TaskResult,
    )
    return result


# the SDK makes the run's coroutine before it finds that it cannot construct the workflow, and drops it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine:RuntimeWarning")
@pytest.mark.parametrize(
    "args",
    [[], [None], [{}], [{"spec": {"name": "x"}}], ["text"], [b"\xff\x00"], [{"spec": 1}, 2], [{"spec": {}, "more": 1}]],
    ids=["nothing", "null", "empty", "missing fields", "text", "bytes", "two", "unknown field"],
)
def test_an_input_that_is_no_task_fails_the_run_and_wedges_nothing(server: DevServer, args: list[Any]) -> None:
    async def test(running: Running) -> None:
        with pytest.raises(WorkflowFailureError) as failure:
            await start(running, args)
        assert isinstance(failure.value.cause, ApplicationError)
        assert failure.value.cause.type == ("InputRefused" if len(args) == 1 else "TypeError")

    on_server(server.settings, World(), test)
    gc.collect()  # the dropped coroutine, while its warning is expected


def test_a_state_that_a_client_gives_is_not_believed(server: DevServer) -> None:
    async def test(running: Running) -> None:
        task = spec(running.queue, bounds=Bounds(**NEVER))
        met = RequirementState(id="done", mandatory=True, met=True)
        for requirements in ((met,), ()):
            state = AgentState(started_at="2026-01-01T00:00:00+00:00", requirements=requirements)
            result = await start(running, [TaskInput(spec=task, state=state)])
            assert result.outcome.kind is OutcomeKind.STOPPED_INCOMPLETE

    on_server(server.settings, World(met=lambda world: False), test)


@pytest.mark.parametrize(
    "policy",
    [{"cron_schedule": "@every 1s"}, {"retry_policy": RetryPolicy(initial_interval=timedelta(milliseconds=100))}],
    ids=["cron", "retry"],
)
def test_a_state_that_a_client_gives_is_not_believed_in_a_later_run_either(
    server: DevServer, policy: dict[str, Any]
) -> None:
    """A run that Temporal starts anew follows another one, as one of a chain does, and gets a client's input."""

    async def test(running: Running) -> None:
        other = await running.start(workflow_id="other-task")
        forged = AgentState(
            started_at="2026-01-01T00:00:00+00:00",
            requirements=(RequirementState(id="done", mandatory=True, met=True),),
        )
        handles = [
            await running.client.start_workflow(
                TASK_WORKFLOW,
                TaskInput(spec=spec(running.queue), state=forged, handed_over_by=claimed),
                id=f"again-{uuid.uuid4().hex[:8]}",
                task_queue=running.queue,
                run_timeout=timedelta(seconds=2),
                **policy,
            )
            for claimed in (None, other.first_execution_run_id, "")
        ]
        for handle in handles:
            await eventually(functools.partial(runs_again, handle, handle.first_execution_run_id))
            state = await handle.query("state", result_type=AgentState)
            assert state.started_at > "2026-01-02"
            await handle.terminate()
        await other.terminate()

    on_server(server.settings, World(seconds=60, met=lambda world: False), test)


async def runs_again(handle: Any, first: str | None) -> bool:
    """Whether a later run of the task runs."""
    found = await handle.describe()
    return found.run_id != first and found.status is WorkflowExecutionStatus.RUNNING


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - it is the server that changes, and tells nobody
            await asyncio.sleep(0.1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine:RuntimeWarning")
def test_an_input_that_is_no_task_fails_every_run_of_a_schedule_and_wedges_none(server: DevServer) -> None:
    async def test(running: Running) -> None:
        handle = await running.client.start_workflow(
            TASK_WORKFLOW,
            {"spec": 1, "handed_over_by": "me"},
            id=f"again-{uuid.uuid4().hex[:8]}",
            task_queue=running.queue,
            cron_schedule="@every 1s",
        )
        query = f"WorkflowId='{handle.id}' AND ExecutionStatus='Failed'"

        async def failed_twice() -> bool:
            return len([run async for run in running.client.list_workflows(query)]) >= 2

        await eventually(failed_twice)
        await handle.terminate()

    on_server(server.settings, World(), test)
    gc.collect()  # the dropped coroutines, while their warning is expected


def test_a_cancel_gets_through_where_nobody_serves_the_workspace(server: DevServer) -> None:
    async def test(running: Running) -> None:
        handle = await running.start(spec(running.queue, workspace=WorkspaceSpec(queue="nobody", files={})))
        await until(handle, lambda state: state.goal is not None)
        await signal(handle, "cancel", by="ann")
        async with asyncio.timeout(15):
            assert (await handle.result()).outcome.kind is OutcomeKind.CANCELLED

    on_server(server.settings, World(), test)


def test_a_huge_note_is_refused_without_being_read(server: DevServer) -> None:
    async def test(running: Running) -> None:
        handle = await running.start()
        await handle.signal("steer", {f"field{n}": "x" * 50 for n in range(5000)})
        state = await until(handle, lambda state: state.messages.refused == 1)
        assert any("more than 20,000" in event.text for event in state.events)
        await signal(handle, "cancel")
        await handle.result()

    on_server(server.settings, World(seconds=60), test)


def test_an_evaluator_that_could_not_run_has_verified_nothing(server: DevServer) -> None:
    world = World(evaluator_fails=True)

    async def test(running: Running) -> None:
        task = spec(running.queue)
        result = await running.run(spec(running.queue, evaluator=(task.requirements[0].check,)))
        assert result.outcome.kind is OutcomeKind.FINISHED
        assert result.outcome.verified is False

    on_server(server.settings, world, test)


def test_checks_run_once_more_before_a_stop_even_if_the_frame_looks_the_same(server: DevServer) -> None:
    """What a check reads may lie where no frame looks."""
    checks: list[int] = []

    def met(world: World) -> bool:
        checks.append(1)
        return len(checks) == 2  # the first time is before any work

    world = World(met=met, actions=lambda request: (), verdict=lambda request: False)

    async def test(running: Running) -> None:
        assert (await running.run(spec(running.queue, bounds=Bounds(**NEVER)))).outcome.kind is OutcomeKind.FINISHED

    on_server(server.settings, world, test)
