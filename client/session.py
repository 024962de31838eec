"""What a command needs to speak to tasks: a server that answers, the stores, and a typed client on both."""

import asyncio
import sys
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

from client.builds import FRESH_POLL_SECONDS
from client.embedded import ensure_running, server_of
from client.problems import PrerequisiteError
from client.tasks import Tasks
from stores.archive import RunArchive
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from stores.settings import Settings
from stores.temporal import connect, names_own_server
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
    tasks: Tasks
    """Tasks as they are seen from outside."""


def start_embedded(settings: Settings, worker: bool) -> None:
    """Start what is missing of the embedded server, unless Temporal's own configuration names another one."""
    if not names_own_server():
        ensure_running(settings, worker)


def wake_embedded(settings: Settings) -> None:
    """Bring the embedded server of a home that has been used back, and say so.

    A home whose server's file is lost has been used too: its archive can be read.

    Raises PrerequisiteError where nothing was ever started, or it does not come up.
    """
    if names_own_server() or server_of(settings):
        return
    if not (settings.temporal_db.exists() or settings.archive_dir.exists()):
        raise PrerequisiteError(f"no server has run for {settings.home} yet; start one with `surefoot up`")
    say("the embedded server is not running; starting it, without a worker (`surefoot up` starts one)")
    ensure_running(settings, worker=False)  # looking at tasks does not set them going again


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
    return Session(settings, client, artifacts, archive, Tasks(client, ledger, artifacts, archive))


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


def say(text: str) -> None:
    """Tell the person something that is not the command's result."""
    print(f"surefoot: {text}", file=sys.stderr, flush=True)
