"""A disk that is full or read-only is told as that: typed, retryable, with what to do; what was there stays whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.errors import LedgerUnavailable, StorageUnavailable
from schemas.outcome import EXIT_PREREQUISITE
from stores.artifacts import ArtifactStore
from stores.files import PLENTY_BYTES, exclusive_lock, write_once
from stores.ledger import Ledger
from tests.client.scenario_files import rehearsed_scenario
from tests.stores.intents import ROOT, intent
from tests.support.disks import as_a_stranger, fill, read_only, small_disk

LIMITED = """
import resource, sys
from pathlib import Path
from schemas.errors import LedgerUnavailable, StorageUnavailable
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from tests.stores.intents import intent

folder = Path(sys.argv[1])
store, ledger = ArtifactStore(folder / "artifacts"), Ledger(f"sqlite:///{folder}/surefoot.db")
small = store.put_bytes(b"small")
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
try:
    store.put_bytes(b"x" * 1_000_000)
except StorageUnavailable as error:
    print("artifact:", error)
try:
    ledger.open(intent(1))
except LedgerUnavailable as error:
    print("ledger:", error)
assert store.get_bytes(small) == b"small"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.put_bytes(b"x" * 1_000_000)
print(ledger.open(intent(1)).how.value)
print(*sorted(path.name for path in (folder / "artifacts").rglob(".*")))
"""


def test_what_cannot_be_written_is_typed_and_goes_through_once_there_is_room(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LIMITED, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    artifact, ledger, how, *left = done.stdout.splitlines()
    assert artifact.startswith(f"artifact: {tmp_path}/artifacts/")
    assert artifact.endswith("cannot be used: File too large; raise the limit on the size of files")
    assert ledger.startswith(f"ledger: the ledger's database {tmp_path}/surefoot.db cannot be used: ")
    assert how == "new"
    assert left == [""], "no temporary file is left"


QUOTA = """
import resource, sys, time
from pathlib import Path
from schemas.errors import StorageUnavailable
from stores.artifacts import ROOM_SECONDS, ArtifactStore

store = ArtifactStore(Path(sys.argv[1]))
store.check_room()
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
time.sleep(ROOM_SECONDS)
try:
    store.check_room()
except StorageUnavailable as error:
    print(error)
"""


def test_a_limit_that_the_disk_does_not_tell_of_is_noticed_all_the_same(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", QUOTA, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "File too large" in done.stdout


def test_a_disk_that_fills_up_is_noticed_at_once(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 2 * PLENTY_BYTES):
        store = ArtifactStore(tmp_path / "disk" / "artifacts")
        store.check_room()
        fill(tmp_path / "disk")
        with pytest.raises(StorageUnavailable, match="No space left"):
            store.check_room()


def test_a_full_disk_is_typed_and_forgotten_once_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, 2_000_000):
        artifacts, ledger = ArtifactStore(disk / "artifacts"), Ledger(f"sqlite:///{disk}/surefoot.db")
        kept = artifacts.put_bytes(b"kept")
        filler = fill(disk)
        with pytest.raises(StorageUnavailable, match=r"artifacts/.* No space left on device; make room there"):
            artifacts.put_bytes(b"x" * 100_000)
        with pytest.raises(StorageUnavailable, match="No space left"):
            write_once(disk / "once", b"x" * 100_000)
        with pytest.raises(
            LedgerUnavailable,
            match=r"surefoot\.db cannot be used: (database or disk is full|disk I/O error) .*have room",
        ):
            claim_many(ledger)
        filler.unlink()
        assert artifacts.get_bytes(kept) == b"kept"
        artifacts.put_bytes(b"x" * 100_000)
        before = ledger.totals("run-1").open_effects
        ledger.open(intent(5000, run_id="r"))
        assert ledger.totals("run-1").open_effects == len(ledger.rows("run-1")) == before + 1
        del ledger


def claim_many(ledger: Ledger) -> None:
    """Claim until there is no room."""
    for seq in range(1000):
        ledger.open(intent(seq, run_id="r"))


def test_a_folder_that_is_a_file_is_no_matter_of_waiting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError), exclusive_lock(tmp_path / "file" / "below" / "lock"):
        pass


@pytest.mark.parametrize("made_before", [True, False], ids=["a home in use", "a new home"])
def test_a_read_only_home_is_refused_by_every_command_that_writes(tmp_path: Path, made_before: bool) -> None:
    folder = tmp_path / "data"
    home = folder / "home"
    folder.mkdir()
    if made_before:
        Ledger(f"sqlite:///{home}/surefoot.db")
        ArtifactStore(home / "artifacts").put_bytes(b"x")
    inside = read_only(folder)
    scenario = rehearsed_scenario(tmp_path, "true")
    for command in (["client.main", "up"], ["client.main", "run", str(scenario)], ["client.main", "worker"]):
        done = subprocess.run(
            [*inside, sys.executable, "-m", *command],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "SUREFOOT_HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        said = done.stderr.splitlines()[-1]
        assert done.returncode == EXIT_PREREQUISITE, done.stderr
        assert str(home) in said
        assert "read-only" in said.lower() or "readonly" in said.lower() or "unable to open" in said, said
        assert "SUREFOOT_HOME" in said or "must be writable" in said
        assert f'File "{ROOT}' not in done.stderr, "no traceback"


@pytest.mark.parametrize("made_before", [True, False], ids=["folders in use", "an empty home"])
def test_a_worker_refuses_the_home_of_another_user_before_it_takes_a_task(tmp_path: Path, made_before: bool) -> None:
    home = tmp_path / "home"
    home.mkdir()
    if made_before:
        Ledger(f"sqlite:///{home}/surefoot.db")
        ArtifactStore(home / "artifacts").put_bytes(b"x")
    done = subprocess.run(
        [*as_a_stranger(home), sys.executable, "-m", "workers.main", "--without-litellm"],
        env={**os.environ, "SUREFOOT_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 6, done.stderr
    assert json.loads(done.stdout)["reason"].startswith(f"{home}/artifacts cannot be used"), "it never says ready"
    assert f"{home}/artifacts" in done.stderr
    assert "Permission denied; give this user the right to write there, or name another data folder" in done.stderr


def test_a_home_that_its_owner_keeps_closed_is_named_with_the_way_out(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    stranger = as_a_stranger(home)
    home.chmod(0)
    done = subprocess.run(
        [*stranger, sys.executable, "-m", "client.main", "ps"],
        env={**os.environ, "SUREFOOT_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    home.chmod(0o755)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "Permission denied; give this user the right to read there, or name another data folder" in done.stderr
