"""Tasks started, signalled and asked by others: a plain `temporalio` client and the `temporal` command line.

The lines are the README's own; nothing of ours is imported by them.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from client.tasks import Tasks
from schemas.outcome import OutcomeKind
from schemas.state import EventKind
from stores.archive import RunArchive
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from stores.running import SERVER_FILE, ServerRecord, read_record
from stores.settings import Settings
from tests.docs.commands import ROOT, blocks
from tests.support.aio import run
from tests.support.server import DevServer, client_of
from tests.support.tasks import worker

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def served(server: DevServer) -> Iterator[Settings]:
    """A server and a worker process."""
    with worker(server.settings):
        yield server.settings


@pytest.fixture
def folder(served: Settings, tmp_path: Path) -> Path:
    """A folder with the input that `surefoot scenario input` prints."""
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    made = in_shell("surefoot scenario input scenarios/hello-file.yaml > task.json", tmp_path, served)
    assert "stored in" in made.stderr
    assert json.loads((tmp_path / "task.json").read_text())["spec"]["name"] == "hello file"
    return tmp_path


def in_shell(lines: str, folder: Path, settings: Settings) -> subprocess.CompletedProcess[str]:
    """Run shell lines with our programs on the path."""
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "SUREFOOT_HOME": str(settings.home)}
    done = subprocess.run(
        ["bash", "-euc", lines], cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def address(settings: Settings) -> str:
    """Return the server's address."""
    record = read_record(settings.run_dir / SERVER_FILE, ServerRecord)
    assert record is not None
    return record.address


def assert_heard(settings: Settings, task_id: str, messages: list[str]) -> None:
    """The task finished, and received these messages."""

    async def look() -> None:
        artifacts = ArtifactStore(settings.artifacts_dir)
        tasks = Tasks(
            await client_of(settings),
            lambda: Ledger(settings.database_url),
            artifacts,
            RunArchive(settings.archive_dir, artifacts),
        )
        view = await tasks.look(task_id)
        assert view.outcome is not None
        assert (view.outcome.kind, view.outcome.verified) == (OutcomeKind.FINISHED, True)
        assert view.state is not None
        heard = [event.text for event in view.state.events if event.kind is EventKind.MESSAGE]
        assert heard == messages

    run(look())


def test_a_plain_temporalio_client_starts_steers_and_asks_a_task(served: Settings, folder: Path) -> None:
    (folder / "plain.py").write_text(next(block.text for block in blocks("README.md") if block.file == "plain.py"))
    done = in_shell(f"python plain.py {address(served)}", folder, served)
    assert "'kind': 'FINISHED'" in done.stdout
    assert_heard(served, "task-plain", ["steer from ann: be brief → the next decision sees it"])


def test_the_temporal_command_line_starts_pauses_resumes_and_asks_a_task(served: Settings, folder: Path) -> None:
    block = next(block.text for block in blocks("README.md") if "temporal workflow start" in block.text)
    lines = [line for line in block.splitlines() if line.startswith(("WHICH", "temporal"))]
    done = in_shell("\n".join([f"ADDRESS={address(served)}", *lines]), folder, served)
    assert '"kind":"FINISHED"' in done.stdout
    assert '"status":"' in done.stdout
    assert_heard(served, "task-by-hand", ["pause from ann: lunch → paused", "resume from unknown → resumed"])
