"""Which worker serves which queue: the one place where workflows and activities meet."""

import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from typing import Any, cast

from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import Worker, WorkerDeploymentConfig

from activities.model.port import Gateways
from activities.nodes import ModelNodes
from activities.prompting import templates
from activities.runs import RunActivities
from activities.tools.registry import tool_guide
from activities.workspace_activities import WorkspaceActivities
from schemas.contract import ActivityRef, Role, all_refs, workspace_queue
from schemas.workspace import WorkspaceKind
from stores.archive import RunArchive
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from stores.settings import Settings
from workers.belonging import BelongingInterceptor
from workers.masking import MaskingInterceptor
from workers.telemetry import agent_spans
from workflows.agent_task import AgentTask

# How long a workflow waits for a worker that has died before another one takes it; Temporal's default is 10 s.
STICKY = timedelta(seconds=1)
# The last heartbeat sent is the last that counts after a SIGKILL; Temporal's default throttles to 0.8 × time-out.
HEARTBEAT_THROTTLE = timedelta(seconds=1)
GRACE = timedelta(seconds=5)
# Workflow tasks share one interpreter. A worker that comes back to many long histories replays a few after the other;
# all at once each would take as long as all, and time out on the others again and again.
WORKFLOW_TASKS = 4
# Where none is given the SDK compiles and hashes every module that is loaded: a second, nearly four with LiteLLM.
BUILD_ID = f"surefoot {version('surefoot')}"


@dataclass(frozen=True)
class Parts:
    """What the activities work with; the secrets are the artifact store's, so that what is resolved is masked."""

    ledger: Ledger
    artifacts: ArtifactStore
    gateways: Gateways


def home_activities(settings: Settings, parts: Parts) -> list[Callable[..., Any]]:
    """Return the activities of the workflow's own queue: models, ledger, archive."""
    nodes = ModelNodes(parts.gateways, parts.ledger, parts.artifacts)
    archive = RunArchive(settings.archive_dir, parts.artifacts)
    runs = RunActivities(parts.ledger, parts.artifacts, archive, templates(), tool_guide)
    return _methods(Role.HOME, (nodes, runs))


def workspace_activities(settings: Settings, parts: Parts) -> list[Callable[..., Any]]:
    """Return the activities of a workspace's queue."""
    return _methods(Role.WORKSPACE, (WorkspaceActivities(parts.ledger, parts.artifacts, settings.workspaces_dir),))


def home_worker(client: Client, settings: Settings, parts: Parts) -> Worker:
    """Return the worker of workflows and of what is close to them."""
    activities = home_activities(settings, parts)
    return _worker(client, settings, parts, settings.queue_prefix, activities, workflows=[AgentTask])


def workspace_workers(client: Client, settings: Settings, parts: Parts) -> list[Worker]:
    """Return a worker for each kind of workspace on this host."""
    activities, host = workspace_activities(settings, parts), socket.gethostname()
    queues = [workspace_queue(settings.queue_prefix, kind.value, host) for kind in WorkspaceKind]
    return [_worker(client, settings, parts, queue, activities) for queue in queues]


def _worker(
    client: Client,
    settings: Settings,
    parts: Parts,
    queue: str,
    activities: Sequence[Callable[..., Any]],
    workflows: Sequence[type] = (),
) -> Worker:
    return Worker(
        client,
        task_queue=queue,
        workflows=workflows,
        activities=activities,
        max_concurrent_workflow_tasks=WORKFLOW_TASKS if workflows else None,
        sticky_queue_schedule_to_start_timeout=STICKY,
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        graceful_shutdown_timeout=GRACE,
        interceptors=[MaskingInterceptor(parts.artifacts.secrets), BelongingInterceptor(parts.ledger), *agent_spans()],
        build_id=None if settings.deployment else BUILD_ID,
        deployment_config=_version(settings),
    )


def _version(settings: Settings) -> WorkerDeploymentConfig | None:
    """Return the version that the workers poll for: they get no new task before it is made the current one.

    Tasks are pinned: each ends on the build that it began on, over every continue-as-new, so that no build has to read
    the state that another one has carried over. That cannot stand at the workflow: the server refuses a behaviour
    from an unversioned worker.
    """
    if settings.deployment is None:
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(settings.deployment.name, settings.deployment.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )


def _methods(role: Role, services: Iterable[object]) -> list[Callable[..., Any]]:
    """Return the method of each reference of ``role``; a reference that no service has is a fault of ours."""
    given = list(services)
    return [_method(ref, given) for ref in all_refs() if ref.cls.role is role]


def _method(ref: ActivityRef[Any, Any], services: list[object]) -> Callable[..., Any]:
    return cast(Callable[..., Any], next(getattr(item, ref.name) for item in services if hasattr(item, ref.name)))
