"""Opening a workspace: once, as a whole, and the same one whenever it is asked for again."""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from activities.workspaces.manifest import save_manifest
from activities.workspaces.paths import PathRefused, split_path, write_file
from activities.workspaces.scanning import scan
from schemas.errors import SandboxUnavailable, SeedInvalid, WorkspaceLost, WorkspaceUnavailable
from schemas.workspace import OpenWorkspaceRequest, Workspace, WorkspaceKind, WorkspaceRef
from stores.artifacts import ArtifactStore
from stores.seeds import unpack_seed

FILES = "files"
INCOMING = "incoming"
RECORD = "workspace.json"
OPENING = ".opening"
MAX_NAME_CHARACTERS = 100


def workspace_name(workflow_id: str, first_run_id: str) -> str:
    """Return the folder name of a chain's workspace: safe whatever the ids hold, and different for different chains.

    The ids go in by a digest: workflow ids are chosen by users, and run ids of one minute begin alike.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", workflow_id)[:MAX_NAME_CHARACTERS].strip("-.") or "task"
    digest = hashlib.sha256(f"{workflow_id}\x00{first_run_id}".encode()).hexdigest()
    return f"{safe}.{digest[:10]}"


def workspace_root(workspaces_dir: Path, workspace: WorkspaceRef) -> Path:
    """Return the folder of an open workspace's files.

    Raises WorkspaceUnavailable where the folder of all workspaces is not there, as where its volume is not mounted;
    WorkspaceLost where it is, and this one is not in it.
    """
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", workspace.name) is None:
        raise WorkspaceLost(f"there is no workspace of the name {workspace.name!r}")
    root = workspaces_dir / workspace.name / FILES
    try:
        if root.is_dir():
            return root
        opened_here = (workspaces_dir / OPENING).is_dir()  # left by the first workspace that was opened there
    except OSError as error:  # of a volume that does not answer any more
        raise WorkspaceUnavailable(f"{root} cannot be read: {error.strerror}; mount its volume anew") from None
    if not opened_here:
        raise WorkspaceUnavailable(f"{workspaces_dir} is missing or empty: mount the volume of its workspaces")
    raise WorkspaceLost(f"{workspaces_dir} has no workspace {workspace.name} any more: it was removed or moved away")


class Opening:
    """Opens workspaces below one folder."""

    def __init__(self, workspaces_dir: Path, artifacts: ArtifactStore, probe: Callable[[], str | None]) -> None:
        """Use ``probe`` to find out why a sandbox does not work here, None where it does."""
        self._workspaces_dir = workspaces_dir
        self._artifacts = artifacts
        self._probe = probe

    def open(self, request: OpenWorkspaceRequest, stopped: Callable[[], bool]) -> Workspace:
        """Return the chain's workspace, made where it is not there yet. Blocks.

        Raises SandboxUnavailable, SecretUnresolved, SeedInvalid, ArtifactMissing, Stopped.
        """
        if request.spec.kind is WorkspaceKind.SANDBOX and (reason := self._probe()):
            raise SandboxUnavailable(reason)
        self._artifacts.secrets.resolve(request.secrets)  # a task without them would only find out half-way
        name = workspace_name(request.workflow_id, request.first_run_id)
        folder = self._workspaces_dir / name
        if not folder.exists():
            self._make(name, request, stopped)
        return Workspace.model_validate_json((folder / RECORD).read_text())

    def _make(self, name: str, request: OpenWorkspaceRequest, stopped: Callable[[], bool]) -> None:
        """Make the folder beside its place and move it there as a whole; whoever comes second keeps the first one's."""
        opening = self._workspaces_dir / OPENING / f"{name}.{secrets.token_hex(4)}"
        root = opening / FILES
        root.mkdir(parents=True)
        (opening / INCOMING).mkdir()
        try:
            self._fill(root, opening / INCOMING, request)
            workspace = Workspace(
                name=name,
                kind=request.spec.kind,
                queue=request.spec.queue,
                root=str(self._workspaces_dir / name / FILES),
                limits=request.spec.limits,
                secrets=request.secrets,
                seed_manifest=save_manifest(scan(root, self._artifacts, None, stopped), self._artifacts),
            )
            (opening / RECORD).write_text(workspace.model_dump_json())
            with contextlib.suppress(OSError):  # the other attempt was first: its folder is not empty
                os.rename(opening, self._workspaces_dir / name)  # noqa: PTH104 - replaces nothing but an empty folder
        finally:
            shutil.rmtree(opening, ignore_errors=True)
        if not (self._workspaces_dir / name / RECORD).exists():
            raise WorkspaceUnavailable(f"the workspace {name} cannot be made in {self._workspaces_dir}")

    def _fill(self, root: Path, incoming: Path, request: OpenWorkspaceRequest) -> None:
        if request.spec.seed is not None:
            unpack_seed(self._artifacts.get_bytes(request.spec.seed), root)
        for path, text in sorted(request.spec.files.items()):
            try:
                write_file(root, split_path(root, path), text.encode("utf-8", "replace"), incoming)
            except PathRefused as error:
                raise SeedInvalid(f"workspace file {path}: {error}") from None
