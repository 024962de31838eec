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

from client.embedded import ensure_running, server_of, supervisor_of
from client.problems import PrerequisiteError
from client.tasks import Tasks
from client.views import NOT_RUNNING
from stores.archive import RunArchive
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from stores.settings import Settings
from stores.temporal import connect, names_own_server
from stores.tracing import stop_tracing

Value = TypeVar("Value")

FRESH_POLL_SECONDS = 75.0  # a poll lasts a minute: a worker that lives has polled within this time


@dataclass(frozen=True)
class Records:
    """What a task can be looked up in: the stores of a home, and Temporal where it runs."""

    settings: Settings
    """Where everything is."""
    client: Client | None
    """Temporal; None where the embedded server does not run."""
    artifacts: ArtifactStore
    """Texts and blobs."""
    archive: RunArchive
    """Events of runs."""
    tasks: Tasks
    """Tasks as they are seen from outside."""


@dataclass(frozen=True)
class Session(Records):
    """An open connection with the stores of its home."""

    client: Client
    """Temporal."""


def start_embedded(settings: Settings, worker: bool) -> None:
    """Start what is missing of the embedded server, unless Temporal's own configuration names another one."""
    if not names_own_server():
        ensure_running(settings, worker)


def wake_embedded(settings: Settings) -> None:
    """Bring the embedded server of a home that has been used back, and say so.

    A home whose server's file is lost has been used too: its archive can be read.

    Raises PrerequisiteError where nothing was ever started, or it does not come up.
    """
    if answers(settings):
        return
    say("the embedded server is not running; starting it, without a worker (`surefoot up` starts one)")
    ensure_running(settings, worker=False)  # looking at tasks does not set them going again


def answers(settings: Settings) -> bool:
    """Whether there is a server to ask; one that its supervisor is starting again is waited for.

    Raises PrerequisiteError where nothing was ever started, or it does not come back.
    """
    if names_own_server() or server_of(settings):
        return True
    if supervisor_of(settings):
        ensure_running(settings, worker=False)
        return True
    if not (settings.temporal_db.exists() or settings.archive_dir.exists()):
        raise PrerequisiteError(f"no server has run for {settings.home} yet; start one with `surefoot up`")
    return False


def with_records(settings: Settings, work: Callable[[Records], Awaitable[Value]]) -> Value:
    """Run ``work``, which only looks, on what there is; nothing is started for that.

    Where the embedded server does not run, that is said, and there are only the ledger and the archive. Raises as
    ``with_session``; PrerequisiteError where nothing was ever started.
    """
    if answers(settings):
        return with_session(settings, work)
    say(f"{NOT_RUNNING}. This is from the ledger and the archive")

    async def run() -> Value:
        return await work(Records(settings, None, *_stores(settings, None)))

    return asyncio.run(run())


def with_session(settings: Settings, work: Callable[[Session], Awaitable[Value]]) -> Value:
    """Run ``work`` on an open session. Raises ServerUnreachable, TelemetryUnavailable."""

    async def run() -> Value:
        return await work(await open_session(settings))

    try:
        return asyncio.run(run())
    finally:
        stop_tracing()


async def open_session(settings: Settings) -> Session:
    """Return an open session; there is nothing to close. Raises ServerUnreachable."""
    client = await open_client(settings)
    return Session(settings, client, *_stores(settings, client))


def _stores(settings: Settings, client: Client | None) -> tuple[ArtifactStore, RunArchive, Tasks]:
    artifacts = ArtifactStore(settings.artifacts_dir)
    archive = RunArchive(settings.archive_dir, artifacts)
    ledger = cache(lambda: Ledger(settings.database_url))  # opened where it is needed: a pause is not held up by it
    return artifacts, archive, Tasks(client, ledger, artifacts, archive)


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
