"""A workspace opens once, as a whole, from files that cannot reach anything else."""

import shutil
import tarfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError

from activities.workspace_activities import WorkspaceActivities
from activities.workspaces.manifest import load_manifest
from activities.workspaces.opening import Opening, workspace_name
from schemas.base import rebuild
from schemas.errors import SeedInvalid
from schemas.workspace import OpenWorkspaceRequest, SnapshotRequest, Workspace, WorkspaceKind
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from stores.sandbox_probe import probe_sandbox
from stores.seeds import pack_seed, unpack_seed
from tests.activities.workspace_bench import WorkspaceBench, spec
from tests.support.aio import run_activity


def opening_of(home: Path) -> Opening:
    return Opening(home / "workspaces", ArtifactStore(home / "artifacts"), lambda: None)


def ask(
    files: dict[str, str] | None = None, seed: bytes | None = None, home: Path | None = None
) -> OpenWorkspaceRequest:
    wanted = spec(WorkspaceKind.LOCAL, files)
    if seed is not None and home is not None:
        wanted = rebuild(wanted, seed=ArtifactStore(home / "artifacts").put_bytes(seed))
    return OpenWorkspaceRequest(workflow_id="task-x", first_run_id="run-1", spec=wanted)


def never() -> bool:
    return False


def test_opened_again_a_workspace_is_the_same_with_its_files_as_they_are(tmp_path: Path) -> None:
    opening = opening_of(tmp_path)
    request = ask({"a.txt": "before", "deep/er/b.txt": "b"})
    workspace = opening.open(request, never)
    (Path(workspace.root) / "a.txt").write_text("changed")
    assert opening.open(request, never) == workspace
    assert (Path(workspace.root) / "a.txt").read_text() == "changed"
    seed = load_manifest(workspace.seed_manifest, ArtifactStore(tmp_path / "artifacts"))
    assert sorted(seed.entries) == ["a.txt", "deep/er/b.txt"]


def test_opened_by_several_at_once_it_is_made_once(tmp_path: Path) -> None:
    opening = opening_of(tmp_path)
    request = ask({f"{number}.txt": str(number) for number in range(30)})
    opened: list[Workspace] = []
    threads = [threading.Thread(target=lambda: opened.append(opening.open(request, never))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 6
    assert len(set(opened)) == 1
    assert len(list(Path(opened[0].root).iterdir())) == 30
    assert list((tmp_path / "workspaces" / ".opening").iterdir()) == []


def test_files_are_written_over_the_seed(tmp_path: Path) -> None:
    folder = tmp_path / "seed"
    folder.mkdir()
    (folder / "a.txt").write_text("from the seed")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    request = ask({"a.txt": "from the scenario"}, pack_seed(folder), tmp_path)
    root = Path(opening_of(tmp_path).open(request, never).root)
    assert (root / "a.txt").read_text() == "from the scenario"
    assert (root / "run.sh").stat().st_mode & 0o777 == 0o755


@given(st.text(), st.text(), st.text(), st.text())
def test_a_folder_name_is_safe_and_belongs_to_one_chain(task: str, run: str, task2: str, run2: str) -> None:
    name = workspace_name(task, run)
    assert len(name) < 130
    assert not set(name) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert not name.startswith((".", "-"))
    assert (name == workspace_name(task2, run2)) == ((task, run) == (task2, run2))


def test_run_ids_that_begin_alike_have_different_folders() -> None:
    """Run ids carry their time in front: two starts within a minute share the first eight digits."""
    first, second = "019a9f3c-1111-7aaa-8000-000000000001", "019a9f3c-2222-7bbb-8000-000000000002"
    assert workspace_name("task-x", first) != workspace_name("task-x", second)


def test_the_same_folder_gives_the_same_seed(tmp_path: Path) -> None:
    seeds = []
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "sub").mkdir(parents=True)
        for file in ("b", "a", "sub/c") if name == "one" else ("sub/c", "a", "b"):
            (folder / file).write_text(file)
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / f"{name}.pyc").write_text("noise")
        (folder / ".git").mkdir()
        (folder / "link").symlink_to("sub/c")
        seeds.append(pack_seed(folder))
    assert seeds[0] == seeds[1]
    out = tmp_path / "out"
    out.mkdir()
    unpack_seed(seeds[0], out)
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*")) == ["a", "b", "link", "sub", "sub/c"]
    assert (out / "link").read_text() == "sub/c"


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "sub/../../outside"])
def test_a_seed_takes_no_link_that_leads_out(tmp_path: Path, target: str) -> None:
    folder = tmp_path / "seed"
    (folder / "sub").mkdir(parents=True)
    (folder / "link").symlink_to(target)
    with pytest.raises(SeedInvalid, match="leads out"):
        pack_seed(folder)


def test_a_seed_has_a_greatest_size(tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(65 * 1024 * 1024)
    with pytest.raises(SeedInvalid, match="more than 64 MiB"):
        pack_seed(tmp_path)


def evil_tar(kind: str) -> bytes:
    info = tarfile.TarInfo({"dots": "../evil", "absolute": "/tmp/evil-seed"}.get(kind, "evil"))
    if kind in ("link", "device"):
        info.type = tarfile.SYMTYPE if kind == "link" else tarfile.CHRTYPE
        info.linkname = "/etc"
    info.size = 10**9 if kind == "huge" else 0
    return info.tobuf() + bytes(10240)


@pytest.mark.parametrize("kind", ["dots", "absolute", "link", "device", "huge", "garbage"])
def test_a_seed_that_would_write_elsewhere_is_refused(tmp_path: Path, kind: str) -> None:
    seed = b"no tar" if kind == "garbage" else evil_tar(kind)
    with pytest.raises(SeedInvalid):
        opening_of(tmp_path).open(ask(seed=seed, home=tmp_path), never)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artifacts", "workspaces"]
    assert [path.name for path in (tmp_path / "workspaces").rglob("*")] == [".opening"]
    assert not Path("/tmp/evil-seed").exists()


def test_a_chain_of_links_that_leads_out_is_refused(tmp_path: Path) -> None:
    """Each target looks harmless: the first is the folder itself, the second its parent by way of the first."""
    seed = b""
    for name, target in (("here", "."), ("out", "here/..")):
        link = tarfile.TarInfo(name)
        link.type, link.linkname = tarfile.SYMTYPE, target
        seed += link.tobuf()
    with pytest.raises(SeedInvalid, match="out is a link that leads out"):
        opening_of(tmp_path).open(ask(seed=seed + bytes(10240), home=tmp_path), never)


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "sub/link/evil"])
def test_a_file_that_would_be_written_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "seed"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "link").symlink_to(".")
    with pytest.raises(SeedInvalid, match="workspace file"):
        opening_of(tmp_path).open(ask({path: "x"}, pack_seed(folder), tmp_path), never)


def test_without_bubblewrap_a_sandbox_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    activities = WorkspaceActivities(
        Ledger(f"sqlite:///{tmp_path}/surefoot.db"), ArtifactStore(tmp_path / "artifacts"), tmp_path / "workspaces"
    )
    request = rebuild(ask(), spec=spec(WorkspaceKind.SANDBOX))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ApplicationError, match=r"is not installed.*apt-get install bubblewrap.*kind: local") as refused:
        run_activity(activities.open_workspace, request)
    assert refused.value.non_retryable
    assert refused.value.type == "SandboxUnavailable"
    assert run_activity(activities.open_workspace, ask()).kind is WorkspaceKind.LOCAL


def test_the_probe_says_what_bubblewrap_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe_sandbox() is None
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probe_sandbox() == "bwrap: No permissions to create new namespace"


def test_a_workspace_is_waited_for_while_its_volume_is_away_and_not_where_it_was_removed(tmp_path: Path) -> None:
    bench = WorkspaceBench(tmp_path)
    request = SnapshotRequest(workspace=bench.workspace, frame_id="f1")
    workspaces = Path(bench.workspace.root).parent.parent
    mount_point = workspaces.rename(tmp_path / "elsewhere")
    for _ in ("no folder", "an empty one"):
        with pytest.raises(ApplicationError, match="mount the volume") as away:
            run_activity(bench.activities.snapshot, request)
        assert (away.value.type, away.value.non_retryable) == ("WorkspaceUnavailable", False)
        workspaces.mkdir(exist_ok=True)
    workspaces.rmdir()
    mount_point.rename(workspaces)
    run_activity(bench.activities.snapshot, request)

    shutil.rmtree(Path(bench.workspace.root).parent)
    with pytest.raises(ApplicationError, match=f"no workspace {bench.workspace.name} any more") as lost:
        run_activity(bench.activities.snapshot, request)
    assert (lost.value.type, lost.value.non_retryable) == ("WorkspaceLost", True)
    stray = SnapshotRequest(workspace=rebuild(bench.workspace, name="../task-x"), frame_id="f1")
    with pytest.raises(ApplicationError, match=r"no workspace of the name '\.\./task-x'"):
        run_activity(bench.activities.snapshot, stray)
