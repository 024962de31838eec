"""Which builds of the workers poll, which one a task needs, and what to do where these do not meet."""

import time
from collections import Counter
from dataclasses import dataclass

from temporalio.api.enums.v1 import TaskQueueType, VersioningBehavior, WorkerVersioningMode
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import WorkflowExecutionInfo, WorkflowExecutionVersioningInfo
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from schemas.contract import TASK_WORKFLOW
from stores.identity import FRESH_POLL_SECONDS

MANY_TASKS = 1000
OPEN_TASKS = f"WorkflowType = '{TASK_WORKFLOW}' AND ExecutionStatus = 'Running'"
PINNED_TASKS = f"{OPEN_TASKS} AND TemporalWorkflowVersioningBehavior = 'Pinned'"
VERSION_ATTRIBUTE = "TemporalWorkerDeploymentVersion"


@dataclass(frozen=True, order=True)
class Build:
    """A version of workers."""

    deployment: str
    """What all versions have in common."""
    build_id: str
    """Which one it is."""

    def __str__(self) -> str:
        """Return it for people."""
        return f"build {self.build_id} of {self.deployment}"


@dataclass(frozen=True)
class Polling:
    """Who takes workflow tasks from a queue."""

    queue: str
    """Its name."""
    unversioned: bool
    """Whether workers without a version do."""
    builds: frozenset[Build]
    """The builds that do."""
    current: Build | None
    """The build that new tasks begin on; None where no build does."""

    @property
    def waiting_to_be_current(self) -> Build | None:
        """A build that polls and gets no new task, where nobody gets one; None where somebody does."""
        idle = self.builds and not self.unversioned and self.current not in self.builds
        return max(self.builds) if idle else None


async def polling(client: Client, queue: str) -> Polling:
    """Return who takes workflow tasks from ``queue``."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    seen = await client.workflow_service.describe_task_queue(request)
    since = time.time() - FRESH_POLL_SECONDS
    options = [item.deployment_options for item in seen.pollers if item.last_access_time.ToSeconds() > since]
    versioned = [item for item in options if item.worker_versioning_mode == _VERSIONED]
    current = seen.versioning_info.current_deployment_version
    return Polling(
        queue=queue,
        unversioned=len(versioned) < len(options),
        builds=frozenset(Build(item.deployment_name, item.build_id) for item in versioned),
        current=Build(current.deployment_name, current.build_id) if current.build_id else None,
    )


def pinned_to(info: WorkflowExecutionVersioningInfo) -> Build | None:
    """Return the build that a task stays on, or None where any may take it."""
    override = info.versioning_override
    if override.HasField("pinned"):
        version = override.pinned.version
    elif info.behavior == VersioningBehavior.VERSIONING_BEHAVIOR_PINNED and not override.auto_upgrade:
        version = info.deployment_version
    else:
        return None
    return Build(version.deployment_name, version.build_id)


async def why_untaken(client: Client, task_id: str, info: WorkflowExecutionInfo) -> str | None:
    """Return why no worker answers for a task, and what to do, where that may be a matter of builds."""
    build = pinned_to(info.versioning_info)
    if build is not None:
        words = f"{server_words(client)} --workflow-id {task_id} --versioning-override-behavior auto_upgrade"
        return (
            f"no worker of {build} answers for it, and it stays on that build; start a worker of it, or let the "
            f"current build take the task: temporal workflow update-options {words}"
        )
    by = await polling(client, info.task_queue)
    waiting = by.waiting_to_be_current
    return f"{not_current(by)}: {make_current(client, waiting)}" if waiting else None


def not_current(by: Polling) -> str:
    """Say that those who poll get no new task."""
    builds = ", ".join(map(str, sorted(by.builds)))
    return f"only {builds} polls {by.queue}, and new tasks begin on {by.current or 'no build yet'}"


def make_current(client: Client, build: Build) -> str:
    """Return the command with which new tasks begin on ``build``."""
    name = f"--deployment-name {build.deployment} --build-id {build.build_id}"
    return f"temporal worker deployment set-current-version {server_words(client)} {name}"


def server_words(client: Client) -> str:
    """Return the words by which the ``temporal`` program finds the server that ``client`` speaks to."""
    return f"--address {client.service_client.config.target_host} --namespace {client.namespace}"


async def needed_builds(client: Client, queue: str) -> dict[Build, int]:
    """Return the builds that open tasks of a main queue stay on, and how many tasks each has."""
    found: Counter[Build] = Counter()
    try:
        async for item in client.list_workflows(f"{PINNED_TASKS} AND TaskQueue = '{queue}'", limit=MANY_TASKS):
            for value in item.search_attributes.get(VERSION_ATTRIBUTE, []):
                deployment, _, build_id = str(value).rpartition(":")
                found[Build(deployment, build_id)] += 1
    except RPCError as error:
        if error.status is not RPCStatusCode.INVALID_ARGUMENT:  # of a server that knows no builds
            raise
    return dict(found)


_VERSIONED = WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED
