"""What the client makes of what Temporal tells: ids that are used again, calls that are tried again."""

import asyncio
import json
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from client import asking, lines, listing
from client.api import Surefoot
from client.live import follow_to_end
from client.session import open_session
from schemas.contract import TASK_WORKFLOW
from schemas.errors import ModelUnreachable
from schemas.outcome import EXIT_FAILED, OutcomeKind
from schemas.state import Summary
from tests.support.running import Running, on_server, signal, until
from tests.support.scripted import World, plan_of
from tests.support.server import DevServer

REASON = "no connection to 127.0.0.1:18092"


class Failing(Interceptor):
    """Lets the first attempts of one activity fail."""

    def __init__(self, name: str, attempts: int) -> None:
        self.name, self.attempts = name, attempts

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _FailingInbound(next, self)


class _FailingInbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, failing: Failing) -> None:
        super().__init__(next)
        self._failing = failing

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        if info.activity_type == self._failing.name and info.attempt <= self._failing.attempts:
            raise ApplicationError(REASON, type=ModelUnreachable.__name__)
        return await super().execute_activity(input)


def test_a_task_id_that_is_used_again_is_listed_as_its_newest_run(
    server: DevServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test(running: Running) -> str:
        for _ in range(2):
            handle = await running.start(workflow_id="task-again")
            assert (await handle.result()).outcome.kind is OutcomeKind.FINISHED
        cancelled = await running.start(workflow_id="task-again")
        await signal(cancelled, "cancel")
        await cancelled.result()
        described = await cancelled.describe()
        return described.start_time.isoformat()

    started = on_server(server.settings, World(), test)
    listing.ps(server.settings, 20, False, as_json=True)
    every = map(json.loads, capsys.readouterr().out.splitlines())
    (listed,) = [item for item in every if item["id"] == "task-again"]
    assert listed["status"] == "CANCELLED"
    assert listed["started"] == f"{started[:19]}Z"


# the SDK never awaits the run of a workflow that could not begin
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine:RuntimeWarning")
def test_a_task_that_was_refused_is_listed_with_the_reason(
    server: DevServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test(running: Running) -> None:
        refused = await running.client.start_workflow(
            TASK_WORKFLOW, {"contract": 99}, id="task-refused", task_queue=running.queue
        )
        with pytest.raises(WorkflowFailureError):
            await refused.result()

    on_server(server.settings, World(), test)
    listing.ps(server.settings, 20, False, as_json=True)
    every = map(json.loads, capsys.readouterr().out.splitlines())
    (listed,) = [item for item in every if item["id"] == "task-refused"]
    assert (listed["status"], listed["exit_code"]) == ("FAILED(InputRefused)", EXIT_FAILED)
    assert listed["ended"] >= listed["started"]
    asking.show(server.settings, "task-refused", 15, True, as_json=False)
    assert "--diff" not in capsys.readouterr().out


def test_a_call_that_is_tried_again_says_how_often_and_why(
    server: DevServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async def test(running: Running) -> None:
        session = await open_session(server.settings)
        task = Surefoot(session).task((await running.start()).id)
        async with asyncio.timeout(60):
            await follow_to_end(session.tasks, task.id, as_json=False, on_terminal=False)

    on_server(server.settings, World(), test, interceptors=[Failing("plan", 2)])
    told = [line.strip() for line in capsys.readouterr().out.splitlines() if "retrying" in line]
    assert told == [f"! retrying {attempt} of 6: plan: {REASON}" for attempt in (2, 3)]


def test_a_pause_that_waits_for_a_call_says_so(server: DevServer) -> None:
    async def test(running: Running) -> tuple[Summary, str]:
        handle = await running.start()
        await until(handle, lambda state: state.reserved.model_calls == 1)  # the first request is under way
        await signal(handle, "pause", by="ann", text="lunch")
        await until(handle, lambda state: state.paused_by is not None)
        session = await open_session(server.settings)
        summary = (await session.tasks.look(handle.id)).summary
        assert summary is not None
        await signal(handle, "cancel")
        await handle.result()
        return summary, lines.status_line(summary)

    world = World(plan=plan_of("only"))
    summary, line = on_server(server.settings, world, test, interceptors=[Failing("plan", 2)])
    assert summary.now.startswith("pausing for ann: lunch, as soon as the call under way has ended: ")
    assert summary.now in line
