"""Workspaces: where actions happen. A workspace is a task queue; its kind says how it is isolated."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from schemas.actions import Observation, ProposedAction
from schemas.base import Count, Frozen, Line
from schemas.budget import Limits, Spend
from schemas.calls import PromptRef
from schemas.checks import Check, CheckResult, RelativePath, Requirement
from schemas.effects import LedgerTotals
from schemas.ids import CallKey
from schemas.models import Node
from schemas.outcome import Outcome
from schemas.secrets import SecretNames
from schemas.texts import BlobRef, TextRef

FileText = Annotated[str, Field(max_length=100_000)]


class WorkspaceKind(StrEnum):
    """How commands are isolated."""

    SANDBOX = "sandbox"
    """bubblewrap: no network, read-only system, resource limits, dies with its parent."""
    LOCAL = "local"
    """No isolation: commands run as the worker's user, with its network and files."""


class WorkspaceLimits(Frozen):
    """Resource limits of a command in a sandbox."""

    memory_mb: Annotated[int, Field(ge=64, le=65_536)] = 2048
    """Address space of a process, in MiB."""
    cpu_seconds: Annotated[int, Field(ge=1, le=86_400)] = 600
    """CPU time of a process."""
    processes: Annotated[int, Field(ge=1, le=10_000)] = 512
    """Processes at once (of the sandbox's user)."""
    file_mb: Annotated[int, Field(ge=1, le=65_536)] = 1024
    """Largest file that may be written, in MiB."""


class WorkspaceSpec(Frozen):
    """The workspace a task asks for."""

    kind: WorkspaceKind = WorkspaceKind.SANDBOX
    """How commands are isolated."""
    queue: str = Field(min_length=1, max_length=200)
    """Task queue of the worker that serves it."""
    seed: BlobRef | None = None
    """A tar of the files to start with."""
    files: Annotated[dict[RelativePath, FileText], Field(default_factory=dict, max_length=200)]
    """Files to start with, written over the seed: path → text."""
    limits: WorkspaceLimits = WorkspaceLimits()
    """Resource limits."""


class WorkspaceRef(Frozen):
    """An open workspace, as far as actions and frames need to know it: thousands of requests hold it."""

    name: str = Field(max_length=300)
    """Folder name under the worker's workspaces folder."""
    kind: WorkspaceKind
    """How commands are isolated."""
    limits: WorkspaceLimits
    """Resource limits."""
    secrets: SecretNames = ()
    """Names of the secrets that its commands get as environment variables."""


class Workspace(WorkspaceRef):
    """An open workspace."""

    queue: str
    """Task queue of the worker that serves it."""
    root: str = Field(max_length=1000)
    """Absolute path on the worker's host, for people."""
    seed_manifest: BlobRef
    """Manifest of the files it started with, for directory checks."""

    @property
    def ref(self) -> WorkspaceRef:
        """What actions and frames need of it."""
        return WorkspaceRef(name=self.name, kind=self.kind, limits=self.limits, secrets=self.secrets)


class OpenRunRequest(Frozen):
    """Asked at the start of every run of a chain."""

    workflow_id: str
    """Temporal's workflow id."""
    run_id: str
    """Temporal's run id."""
    first_run_id: str
    """First run of the chain."""
    goal: str = Field(max_length=20_000)
    """The goal's text; empty where the state has it already."""
    instructions: str = Field(default="", max_length=20_000)
    """Standing instructions of the task's author."""
    tools: tuple[str, ...]
    """Names of the tools that the task may use."""
    secrets: SecretNames = ()
    """Names of the secrets that its commands get; the tools' guide tells them."""


class OpenRunReply(Frozen):
    """What a run needs before its first decision."""

    goal: TextRef
    """The goal in the artifact store."""
    instructions: TextRef
    """The instructions in the artifact store."""
    tool_guide: TextRef
    """Names, descriptions and argument schemas of the tools, for prompts."""
    prompts: tuple[PromptRef, ...] = Field(min_length=len(Node))
    """Prompt templates, one for each node."""
    totals: LedgerTotals
    """What the chain has spent according to the ledger."""


class OpenWorkspaceRequest(Frozen):
    """Opens a workspace once; asked again it returns the same one, with its files as they are."""

    workflow_id: str
    """Temporal's workflow id."""
    first_run_id: str
    """First run of the chain; a workflow id used again gets another folder."""
    spec: WorkspaceSpec
    """What to open."""
    secrets: SecretNames = ()
    """Names of the secrets that its commands get; one that does not resolve keeps it from being opened."""


class SnapshotRequest(Frozen):
    """Takes a frame of a workspace."""

    workspace: WorkspaceRef
    """Where."""
    frame_id: str
    """Id of the new frame."""
    before: BlobRef | None = None
    """Manifest of the frame to take the difference to."""


class ActionRequest(Frozen):
    """Performs one gated action."""

    key: CallKey
    """The effect's identity."""
    workspace: WorkspaceRef
    """Where."""
    action: ProposedAction
    """What."""
    action_id: str
    """Place of the action, as ``v2.s3.i1.a2``."""
    observation_id: str
    """Id of the observation that it gives."""
    timeout_seconds: Annotated[int, Field(ge=1, le=86_400)]
    """Longest run time of the tool."""
    limits: Limits
    """The run's limits, checked by the ledger once more."""


class ActionReply(Frozen):
    """What an action gave."""

    observation: Observation
    """The observation."""
    charged: Spend
    """What it added to the chain's spend."""
    chain: Spend
    """The chain's settled spend in the ledger after it."""
    over: str | None = None
    """Name of the limit that kept it from being performed, or None."""


class CloseWorkspaceRequest(Frozen):
    """Ends what still runs in a workspace; its files stay."""

    workspace: Workspace
    """Which."""
    first_run_id: str
    """Chain whose open effects are looked up for processes left behind."""


class CloseWorkspaceReply(Frozen):
    """What closing found."""

    killed: Count
    """Guard processes that were still running."""
    difference: TextRef | None = None
    """Unified difference of the files to those it started with, bounded."""


class RunChecksRequest(Frozen):
    """Runs requirement checks, without a model."""

    workspace: Workspace
    """Where."""
    requirements: tuple[Requirement, ...]
    """Which."""


class EvaluateRequest(Frozen):
    """Runs the hidden evaluator once."""

    workspace: Workspace
    """Where."""
    evaluator: tuple[Check, ...]
    """Its checks; all must hold."""


class ChecksReply(Frozen):
    """Results, in the order asked."""

    results: tuple[CheckResult, ...]
    """One for each check."""


class ArchiveRequest(Frozen):
    """Moves records out of the state into a numbered chunk of the run's archive."""

    workflow_id: str
    """Temporal's workflow id."""
    first_run_id: str
    """First run of the chain."""
    chunk: Count
    """Number of the chunk, from 1; the same number with the same content is written once."""
    records_jsonl: str = Field(max_length=1_500_000)
    """The records, one JSON object a line."""


class ArchiveReply(Frozen):
    """Where the chunk is."""

    chunk: BlobRef
    """The chunk in the artifact store."""


class RecordRunRequest(Frozen):
    """Writes the one row of an ended run."""

    workflow_id: str
    """Temporal's workflow id."""
    run_id: str
    """Last run of the chain."""
    first_run_id: str
    """First run of the chain."""
    name: str
    """The task's name."""
    outcome: Outcome
    """How it ended."""
    spend: Spend
    """What the state has counted."""
    started_at: str
    """ISO 8601, UTC, workflow time."""
    ended_at: str
    """ISO 8601, UTC, workflow time."""
    state_json: str = Field(max_length=1_500_000)
    """The final state as JSON; its events become the archive's last chunk."""
    summary: Line = ""
    """The end in one line."""
    evaluator: tuple[CheckResult, ...] = ()
    """What the hidden evaluator found."""
    difference: TextRef | None = None
    """What changed in the workspace."""


class RecordRunReply(Frozen):
    """What was written."""

    state: BlobRef
    """The final state in the artifact store."""
    totals: LedgerTotals
    """The chain's figures in the ledger at the end."""
