"""What a command needs to speak to tasks: a server that answers, the stores, and a typed client on both."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.runtime import Runtime, TelemetryConfig

from client.tasks import Tasks
from stores.archive import RunArchive
from stores.artifacts import ArtifactStore
from stores.identity import FRESH_POLL_SECONDS, known_stores, refuse_other_stores
from stores.ledger import Ledger
from stores.settings import Settings
from stores.temporal import connect
from stores.tracing import stop_tracing

Value = TypeVar("Value")


@dataclass(frozen=True)
class Session:
    """An open connection with the stores of its home."""

    settings: Settings
    """Where everything is."""
    client: Client
    """Temporal."""
    artifacts: ArtifactStore
    """Texts and blobs."""
    archive: RunArchive
    """Events of runs."""
    ledger: Ledger
    """Effects, and runs that ended."""
    tasks: Tasks
    """Tasks as they are seen from outside."""


def with_session(settings: Settings, work: Callable[[Session], Awaitable[Value]]) -> Value:
    """Run ``work`` on an open session. Raises ServerUnreachable, LedgerUnavailable, TelemetryUnavailable."""

    async def run() -> Value:
        return await work(await open_session(settings))

    try:
        return asyncio.run(run())
    finally:
        stop_tracing()


async def open_session(settings: Settings) -> Session:
    """Return an open session; there is nothing to close. Raises ServerUnreachable, LedgerUnavailable."""
    artifacts = ArtifactStore(settings.artifacts_dir)
    client = await open_client(settings)
    ledger = await asyncio.to_thread(Ledger, settings.database_url)
    archive = RunArchive(settings.archive_dir, artifacts)
    return Session(settings, client, artifacts, archive, ledger, Tasks(client, ledger, artifacts, archive))


async def check_stores(session: Session) -> None:
    """Make sure that the workers look for a task where this session has put what belongs to it. Raises StoresDiffer."""
    settings = session.settings
    stores = await asyncio.to_thread(known_stores, settings, session.ledger, session.artifacts)
    await refuse_other_stores(session.client, settings, stores)


async def open_client(settings: Settings) -> Client:
    """Return a client that writes nothing to standard output by itself. Raises ServerUnreachable."""
    _silence_core()
    return await connect(settings)


@cache
def _silence_core() -> None:
    """Let Temporal's core log nothing, once a process: it would log to standard output, among a command's results."""
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=None)), error_if_already_set=False)


async def polled(client: Client, queue: str, activities: bool = False) -> bool:
    """Whether a worker takes workflow tasks (or activities) from ``queue``."""
    kind = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY if activities else TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=kind,
    )
    described = await client.workflow_service.describe_task_queue(request)
    newest = max((poller.last_access_time.ToSeconds() for poller in described.pollers), default=0)
    return time.time() - newest < FRESH_POLL_SECONDS
