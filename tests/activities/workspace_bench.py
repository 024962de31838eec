"""A workspace with everything around it real: ledger file, artifacts, guard processes, and bubblewrap."""

import itertools
import json
from pathlib import Path
from typing import Any

from activities.tools.registry import check_action
from activities.workspace_activities import WorkspaceActivities
from schemas.actions import Observation, ProposedAction, headline
from schemas.budget import Limits
from schemas.checks import Check, CheckResult, Requirement
from schemas.frames import Frame
from schemas.ids import CallKey
from schemas.texts import TextRef
from schemas.workspace import (
    ActionReply,
    ActionRequest,
    EvaluateRequest,
    OpenWorkspaceRequest,
    RunChecksRequest,
    SnapshotRequest,
    Workspace,
    WorkspaceKind,
    WorkspaceLimits,
    WorkspaceSpec,
)
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from stores.secrets import Secrets
from tests.support.aio import run_activity

CHAIN = "first-run"
ALL_TOOLS = ("run", "read_file", "write_file", "edit_file", "list_files", "search_files")


def spec(kind: WorkspaceKind, files: dict[str, str] | None = None, **limits: int) -> WorkspaceSpec:
    """Return what a task would ask for."""
    return WorkspaceSpec(kind=kind, queue="q", files=files or {}, limits=WorkspaceLimits(**limits))


class WorkspaceBench:
    """Opens a workspace and does things in it as a worker would."""

    def __init__(
        self,
        home: Path,
        kind: WorkspaceKind = WorkspaceKind.LOCAL,
        files: dict[str, str] | None = None,
        secrets: Secrets | None = None,
        patience_seconds: float = 0.0,
        **limits: int,
    ) -> None:
        self.home = home
        self.artifacts = ArtifactStore(home / "artifacts", secrets=secrets, patience_seconds=patience_seconds)
        self.ledger = Ledger(f"sqlite:///{home}/surefoot.db")
        self.activities = WorkspaceActivities(self.ledger, self.artifacts, home / "workspaces")
        self.workspace: Workspace = run_activity(
            self.activities.open_workspace,
            OpenWorkspaceRequest(
                workflow_id="task-x",
                first_run_id=CHAIN,
                spec=spec(kind, files, **limits),
                secrets=secrets.names if secrets else (),
            ),
        )
        self.root = Path(self.workspace.root)
        self._numbers = itertools.count(1)

    def request(
        self, tool: str, timeout_seconds: int = 60, limits: Limits | None = None, **arguments: Any
    ) -> ActionRequest:
        """Return a request with a new effect id."""
        number = next(self._numbers)
        text = json.dumps(arguments)
        checked = check_action(tool, text, ALL_TOOLS)
        return ActionRequest(
            key=CallKey(workflow_id="task-x", run_id="run-1", first_run_id=CHAIN, seq=number),
            workspace=self.workspace,
            action=ProposedAction(
                tool=tool,
                arguments=self.artifacts.put_text(text),
                preview=checked.preview,
                effect_class=checked.effect_class,
                irreversible=checked.irreversible,
                invalid=checked.invalid,
            ),
            action_id=f"v1.s1.i1.a{number}",
            observation_id=f"o{number}",
            timeout_seconds=timeout_seconds,
            limits=limits or Limits(),
        )

    def perform(self, request: ActionRequest) -> ActionReply:
        """Perform a request."""
        return run_activity(self.activities.perform_action, request)

    def reconcile(self, request: ActionRequest) -> ActionReply:
        """Reconcile a request."""
        return run_activity(self.activities.reconcile_action, request)

    def act(self, tool: str, timeout_seconds: int = 60, **arguments: Any) -> Observation:
        """Perform a new action."""
        return self.perform(self.request(tool, timeout_seconds, **arguments)).observation

    def text(self, ref: TextRef | None) -> str:
        """Return a text by its reference; nothing for None."""
        return "" if ref is None else self.artifacts.get_text(ref)

    def shown(self, observation: Observation) -> str:
        """Return the output that an observation shows, without its headline; nothing where it shows none."""
        head, _, output = self.text(observation.excerpt).partition("\n")
        assert not head or head == headline(observation)
        return output

    def frame(self, frame_id: str = "f1", before: Frame | None = None) -> Frame:
        """Take a frame."""
        request = SnapshotRequest(
            workspace=self.workspace, frame_id=frame_id, before=before.manifest if before else None
        )
        return run_activity(self.activities.snapshot, request)

    def check(self, check: Check) -> CheckResult:
        """Run one requirement's check."""
        requirement = Requirement(id="holds", text="It holds.", check=check)
        request = RunChecksRequest(workspace=self.workspace, requirements=(requirement,))
        return run_activity(self.activities.run_checks, request).results[0]

    def evaluate(self, *checks: Check) -> tuple[CheckResult, ...]:
        """Run an evaluator."""
        request = EvaluateRequest(workspace=self.workspace, evaluator=checks)
        return run_activity(self.activities.evaluate, request).results
