"""The activities of a worker that serves workspaces."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from activities.actions import Actions
from activities.checks import Checks
from activities.frames import describe_difference, take_frame
from activities.registration import implements
from activities.workspaces.manifest import load_manifest
from activities.workspaces.opening import Opening, workspace_root
from activities.workspaces.processes import end_guard
from activities.workspaces.scanning import scan
from activities.workspaces.stopping import or_cancelled, to_the_end
from schemas import contract
from schemas.checks import Check
from schemas.frames import Frame
from schemas.texts import TextRef
from schemas.workspace import (
    ActionReply,
    ActionRequest,
    ChecksReply,
    CloseWorkspaceReply,
    CloseWorkspaceRequest,
    EvaluateRequest,
    OpenWorkspaceRequest,
    RunChecksRequest,
    SnapshotRequest,
    Workspace,
    WorkspaceRef,
)
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from stores.sandbox_probe import probe_sandbox

MAX_FINAL_DIFFERENCE_CHARACTERS = 20_000


class WorkspaceActivities:
    """Opens, observes, acts in, measures and closes the workspaces below one folder."""

    def __init__(
        self,
        ledger: Ledger,
        artifacts: ArtifactStore,
        workspaces_dir: Path,
        probe: Callable[[], str | None] = probe_sandbox,
    ) -> None:
        """Use the worker's stores; ``probe`` says why a sandbox does not work here."""
        self._ledger = ledger
        self._artifacts = artifacts
        self._workspaces_dir = workspaces_dir.absolute()  # guards and sandboxes run elsewhere
        self._opening = Opening(self._workspaces_dir, artifacts, probe)
        self._actions = Actions(ledger, artifacts)

    @implements(contract.OPEN_WORKSPACE)
    async def open_workspace(self, request: OpenWorkspaceRequest) -> Workspace:
        """Open the chain's workspace, or return it with its files as they are."""
        return await or_cancelled(lambda stop: asyncio.to_thread(self._opening.open, request, stop.is_set))

    @implements(contract.SNAPSHOT)
    async def snapshot(self, request: SnapshotRequest) -> Frame:
        """Take a frame."""
        root = self._root(request.workspace)
        return await or_cancelled(
            lambda stop: asyncio.to_thread(take_frame, root, self._artifacts, request, stop.is_set)
        )

    @implements(contract.PERFORM_ACTION)
    async def perform_action(self, request: ActionRequest) -> ActionReply:
        """Perform a gated action; a cancelled one is an observation, too, once all that it had started is gone."""
        root = self._root(request.workspace)
        return await to_the_end(lambda stop: self._actions.perform(request, root, stop))

    @implements(contract.RECONCILE_ACTION)
    async def reconcile_action(self, request: ActionRequest) -> ActionReply:
        """Settle an action whose attempt died."""
        root = self._root(request.workspace)
        return await to_the_end(lambda _: self._actions.reconcile(request, root))

    @implements(contract.RUN_CHECKS)
    async def run_checks(self, request: RunChecksRequest) -> ChecksReply:
        """Run the requirements' checks."""
        checks = [(requirement.id, requirement.check) for requirement in request.requirements]
        return await self._check(request.workspace, checks)

    @implements(contract.EVALUATE)
    async def evaluate(self, request: EvaluateRequest) -> ChecksReply:
        """Run the evaluator's checks."""
        checks = [(f"evaluator.{number}", check) for number, check in enumerate(request.evaluator, 1)]
        return await self._check(request.workspace, checks)

    @implements(contract.CLOSE_WORKSPACE)
    async def close_workspace(self, request: CloseWorkspaceRequest) -> CloseWorkspaceReply:
        """End what a dead attempt left running, and say what has become of the files."""
        root = self._root(request.workspace)
        killed = await to_the_end(lambda _: asyncio.to_thread(self._end_guards, request.first_run_id))
        difference = await or_cancelled(
            lambda stop: asyncio.to_thread(self._final_difference, request.workspace, root, stop.is_set)
        )
        return CloseWorkspaceReply(killed=killed, difference=difference)

    def _root(self, workspace: WorkspaceRef) -> Path:
        return workspace_root(self._workspaces_dir, workspace)

    async def _check(self, workspace: Workspace, checks: Sequence[tuple[str, Check]]) -> ChecksReply:
        root = self._root(workspace)
        results = await or_cancelled(lambda stop: Checks(workspace, root, self._artifacts, stop).run(checks))
        return ChecksReply(results=results)

    def _end_guards(self, first_run_id: str) -> int:
        owners = [effect.process for effect in self._ledger.unsettled(first_run_id)]
        return sum(end_guard(owner) for owner in owners if owner is not None)

    def _final_difference(self, workspace: Workspace, root: Path, stopped: Callable[[], bool]) -> TextRef | None:
        seed = load_manifest(workspace.seed_manifest, self._artifacts)
        now = scan(root, self._artifacts, seed, stopped)
        text = describe_difference(seed, now, self._artifacts, MAX_FINAL_DIFFERENCE_CHARACTERS)
        return self._artifacts.put_text(text) if text else None
