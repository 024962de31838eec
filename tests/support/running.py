"""Runs a task on a real server with one worker in this process."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from schemas.contract import STATE_QUERY, TASK_WORKFLOW, WORKFLOW_TASK_TIMEOUT_SECONDS
from schemas.messages import Note
from schemas.state import AgentState, TaskInput, TaskResult
from schemas.task import TaskSpec
from stores.settings import Settings
from tests.support.scripted import World, spec
from tests.support.server import client_of
from workflows.agent_task import AgentTask

Result = TypeVar("Result")
Handle = WorkflowHandle[Any, TaskResult]


class Running:
    """One client, one worker with scripted activities, and tasks on a queue of their own."""

    def __init__(self, client: Client, queue: str) -> None:
        self.client = client
        self.queue = queue

    async def start(self, task: TaskSpec | None = None, workflow_id: str | None = None) -> Handle:
        """Start a task."""
        return await self.client.start_workflow(
            TASK_WORKFLOW,
            TaskInput(spec=task or spec(self.queue)),
            id=workflow_id or f"task-{uuid.uuid4().hex[:12]}",
            task_queue=self.queue,
            task_timeout=timedelta(seconds=WORKFLOW_TASK_TIMEOUT_SECONDS),
            result_type=TaskResult,
        )

    async def run(self, task: TaskSpec | None = None) -> TaskResult:
        """Run a task to its end."""
        return await (await self.start(task)).result()


def on_server(
    settings: Settings, world: World, test: Callable[[Running], Coroutine[Any, Any, Result]], **worker: Any
) -> Result:
    """Run ``test`` with a worker that serves AgentTask and the scripted ``world``."""

    async def go() -> Result:
        client = await client_of(settings)
        async with working(client, world, **worker) as running:
            return await test(running)

    return asyncio.run(go())


@contextlib.asynccontextmanager
async def working(client: Client, world: World, **worker: Any) -> AsyncIterator[Running]:
    """Run a worker on a queue of its own."""
    queue = f"q-{uuid.uuid4().hex[:12]}"
    async with Worker(
        client,
        task_queue=queue,
        workflows=[AgentTask],
        activities=world.registered(),
        max_heartbeat_throttle_interval=timedelta(seconds=0.5),
        **worker,
    ):
        yield Running(client, queue)


async def signal(handle: Handle, name: str, **note: Any) -> None:
    """Send a signal as the product does."""
    await handle.signal(name, Note(**note))


async def until(handle: Handle, condition: Callable[[AgentState], bool], seconds: float = 20) -> AgentState:
    """Query the state until it satisfies ``condition``."""
    async with asyncio.timeout(seconds):
        while True:
            state: AgentState = await handle.query(STATE_QUERY, result_type=AgentState)
            if condition(state):
                return state
            await asyncio.sleep(0.05)
