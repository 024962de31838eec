"""The activity contract: names that never change, with their types and their class.

Workflows call these references, activities register under them; a parity test compares both sides.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from pydantic import BaseModel

from schemas import calls, frames, workspace
from schemas.models import Node

Request = TypeVar("Request", bound=BaseModel)
Reply = TypeVar("Reply", bound=BaseModel)

CONTRACT_VERSION = 1
"""Version of what clients may send; raised only by a change that an older client or worker could not live with."""
TASK_WORKFLOW = "AgentTask"
STATE_QUERY = "state"
SUMMARY_QUERY = "summary"
# What a worker killed between activities costs; Temporal's default is 10 s. A replay has to end within it, or the task
# is never taken up again: a history at its caps takes about a second of a processor.
WORKFLOW_TASK_TIMEOUT_SECONDS = 5


class SearchAttribute(StrEnum):
    """Search attributes that a run publishes; Keyword unless said otherwise."""

    STATUS = "SurefootStatus"
    OUTCOME = "SurefootOutcome"
    REASON = "SurefootReason"
    TASK_TYPE = "SurefootTaskType"
    SITE = "SurefootSite"
    POLICY = "SurefootPolicy"
    WAITING = "SurefootWaiting"
    """Bool."""
    SPEND_USD = "SurefootSpendUsd"
    """Double."""


class Role(StrEnum):
    """Which worker serves an activity."""

    HOME = "home"
    """The workflow's own queue: model and ledger."""
    WORKSPACE = "workspace"
    """The queue of the task's workspace."""


@dataclass(frozen=True)
class ActivityClass:
    """Time-outs and attempts that all activities of a class share."""

    start_to_close_seconds: int
    """Longest single attempt; a request that names its own time-out gets that on top."""
    heartbeat_seconds: int | None
    """After this silence the attempt counts as dead."""
    attempts: int
    """Attempts in all, the first included."""
    role: Role
    """Who serves it."""


# Beyond its own time-out a call has time for what it may wait for: room for its reply (40 s), then the ledger (40 s).
MODEL = ActivityClass(start_to_close_seconds=120, heartbeat_seconds=5, attempts=6, role=Role.HOME)
LEDGER = ActivityClass(start_to_close_seconds=30, heartbeat_seconds=None, attempts=10, role=Role.HOME)
ACT = ActivityClass(start_to_close_seconds=120, heartbeat_seconds=5, attempts=1, role=Role.WORKSPACE)
OBSERVE = ActivityClass(start_to_close_seconds=660, heartbeat_seconds=5, attempts=6, role=Role.WORKSPACE)


@dataclass(frozen=True)
class ActivityRef(Generic[Request, Reply]):
    """One activity: its wire name, its types, its class."""

    name: str
    request: type[Request]
    reply: type[Reply]
    cls: ActivityClass


PLAN = ActivityRef(Node.PLAN.value, calls.ModelRequest, calls.PlanReply, MODEL)
REPLAN = ActivityRef(Node.REPLAN.value, calls.ModelRequest, calls.PlanReply, MODEL)
IS_STEP_DONE = ActivityRef(Node.IS_STEP_DONE.value, calls.ModelRequest, calls.VerdictReply, MODEL)
PROPOSE_ACTION = ActivityRef(Node.PROPOSE_ACTION.value, calls.ModelRequest, calls.ActionsReply, MODEL)
SUMMARIZE_ACTIONS = ActivityRef(Node.SUMMARIZE_ACTIONS.value, calls.ModelRequest, calls.TextReply, MODEL)
VALIDATE_PLAN_STEP = ActivityRef(Node.VALIDATE_PLAN_STEP.value, calls.ModelRequest, calls.VerdictReply, MODEL)
IS_STEP_DONE_BY_VALIDATION = ActivityRef(
    Node.IS_STEP_DONE_BY_VALIDATION.value, calls.ModelRequest, calls.VerdictReply, MODEL
)
SUMMARIZE_PLAN_STEP = ActivityRef(Node.SUMMARIZE_PLAN_STEP.value, calls.ModelRequest, calls.TextReply, MODEL)

OPEN_RUN = ActivityRef("open_run", workspace.OpenRunRequest, workspace.OpenRunReply, LEDGER)
ARCHIVE_RUN = ActivityRef("archive_run", workspace.ArchiveRequest, workspace.ArchiveReply, LEDGER)
RECORD_RUN = ActivityRef("record_run", workspace.RecordRunRequest, workspace.RecordRunReply, LEDGER)

OPEN_WORKSPACE = ActivityRef("open_workspace", workspace.OpenWorkspaceRequest, workspace.Workspace, OBSERVE)
SNAPSHOT = ActivityRef("snapshot", workspace.SnapshotRequest, frames.Frame, OBSERVE)
PERFORM_ACTION = ActivityRef("perform_action", workspace.ActionRequest, workspace.ActionReply, ACT)
RECONCILE_ACTION = ActivityRef("reconcile_action", workspace.ActionRequest, workspace.ActionReply, OBSERVE)
RUN_CHECKS = ActivityRef("run_checks", workspace.RunChecksRequest, workspace.ChecksReply, OBSERVE)
EVALUATE = ActivityRef("evaluate", workspace.EvaluateRequest, workspace.ChecksReply, OBSERVE)
CLOSE_WORKSPACE = ActivityRef(
    "close_workspace", workspace.CloseWorkspaceRequest, workspace.CloseWorkspaceReply, OBSERVE
)


def all_refs() -> tuple[ActivityRef[BaseModel, BaseModel], ...]:
    """Return every reference of this module."""
    return tuple(value for value in globals().values() if isinstance(value, ActivityRef))


def stores_queue(prefix: str) -> str:
    """Return the queue that every worker polls, and no task ever reaches: its pollers say which stores they use."""
    return f"{prefix}.stores"


def workspace_queue(prefix: str, kind: str, host: str) -> str:
    """Return the queue of the workspaces of ``kind`` on ``host``."""
    return f"{prefix}.ws.{kind}.{host}"
