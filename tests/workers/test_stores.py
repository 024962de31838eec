"""Workers of one queue have the same ledger and the same artifacts: who would mix in others is refused, with why."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from schemas.effects import EffectState
from schemas.outcome import EXIT_PREREQUISITE, OutcomeKind
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from stores.running import SERVER_FILE, ServerRecord, read_record
from stores.settings import Settings
from tests.client.scenario_files import rehearsed_scenario
from tests.proof.bench import Ended, ended, rehearsed_spec, run, serving_home, start, with_client
from tests.support.postgres import PostgresServer
from tests.support.server import DevServer, client_of, settings_of
from tests.support.tasks import WorkerProcess, commands, plan, reply, verdict, worker
from workers.belonging import telling_worker
from workers.main import make_parts
from workers.roles import home_worker, workspace_workers

LAST = "echo d >> words.txt; cp words.txt out.txt"
WORDS = ["a", "b", "c", "d"]
SCRIPT = [
    reply("plan", plan("Write out.txt")),
    reply("is_step_done", verdict(False)),
    reply("validate_plan_step", verdict(False)),
    reply("summarize_actions", "rehearsed"),
    reply("propose_action", commands(*(f"echo {word} >> words.txt" for word in "abc"), LAST)),
]
TASKS = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with serving_home(tmp_path_factory.mktemp("home")) as server:
        yield server


def address_of(server: DevServer) -> str:
    record = read_record(server.settings.run_dir / SERVER_FILE, ServerRecord)
    assert record is not None
    return record.address


def said_by(server: DevServer, settings: Settings, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ours in a home, on the queue and on the server of another one."""
    named = {
        "SUREFOOT_HOME": str(settings.home),
        "SUREFOOT_DATABASE_URL": settings.database_url,
        "SUREFOOT_QUEUE_PREFIX": settings.queue_prefix,
        "TEMPORAL_ADDRESS": address_of(server),
    }
    return subprocess.run(
        [sys.executable, "-m", *command],
        env={**os.environ, **named},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def findings(text: str, name: str) -> list[str]:
    """Return the status of each finding of that name."""
    return [line.split()[0] for line in text.splitlines() if line.split()[1:2] == [name]]


def words_of(end: Ended) -> list[str]:
    written = end.root / "words.txt"
    return written.read_text().split() if written.exists() else []


def test_a_worker_of_another_home_is_refused_and_the_first_goes_on(server: DevServer, tmp_path: Path) -> None:
    ours, mistyped = settings_of(server.settings.home, queue_prefix="apart"), tmp_path / "hoem"
    other = settings_of(mistyped, queue_prefix="apart")
    scenario = rehearsed_scenario(tmp_path, "touch out.txt", "workspace: {kind: local}\n")
    with worker(ours) as first:
        for role in ("all", "workspace"):
            refused = said_by(server, other, "workers.main", "--without-litellm", "--role", role)
            assert refused.returncode == EXIT_PREREQUISITE
            assert "ready" not in json.loads(refused.stdout), "it has never polled"
            said = refused.stderr.splitlines()[-1]
            for part in (f"{first.pid}@", f"home {ours.home}", f"home {mistyped}", f"{mistyped}/surefoot.db"):
                assert part in said
            for remedy in ("database_url", "folder of artifacts", "SUREFOOT_HOME", "queue_prefix", "namespace", "75 s"):
                assert remedy in said
        refused = said_by(server, other, "client.main", "submit", str(scenario))
        assert (refused.returncode, refused.stdout) == (EXIT_PREREQUISITE, "")
        assert f"{first.pid}@" in refused.stderr
        asked = said_by(server, other, "client.main", "doctor")
        assert asked.returncode == EXIT_PREREQUISITE
        assert findings(asked.stdout, "stores") == ["ok", "fail"]
        assert first.alive
        end = run(ours, rehearsed_spec(ours, SCRIPT), "task-goes-on")
        assert (end.outcome.kind, words_of(end)) == (OutcomeKind.FINISHED, WORDS)
        assert with_client(ours, lambda client: client.count_workflows()).count == 1, "nothing was submitted"


@pytest.mark.slow
def test_workers_of_the_same_stores_work_side_by_side(server: DevServer) -> None:
    ours = settings_of(server.settings.home, queue_prefix="beside")
    with worker(ours) as first, worker(ours, "--role", "home") as second, worker(ours, "--role", "workspace") as third:
        end = run(ours, rehearsed_spec(ours, SCRIPT), "task-beside")
        assert (end.outcome.kind, words_of(end)) == (OutcomeKind.FINISHED, WORDS)
        asked = said_by(server, ours, "client.main", "doctor")
        assert findings(asked.stdout, "stores") == ["ok"]
        assert first.alive
        assert second.alive
        assert third.alive


@pytest.mark.slow
def test_a_ledger_is_used_with_its_own_artifacts_only(
    server: DevServer, tmp_path: Path, postgres: PostgresServer
) -> None:
    url = postgres.fresh()
    ours = settings_of(server.settings.home, queue_prefix="bound", database_url=url)
    other = settings_of(tmp_path / "other", queue_prefix="bound", database_url=url)
    with worker(ours):
        pass
    for made in (False, True):
        if made:
            (other.artifacts_dir / "claims.key").write_bytes(b"k" * 32)
        else:
            other.artifacts_dir.mkdir(parents=True)  # as a mount point without its mount
        refused = said_by(server, other, "workers.main", "--without-litellm")
        assert refused.returncode == EXIT_PREREQUISITE
        said = refused.stderr.splitlines()[-1]
        assert f"{'is another one' if made else 'is not there'}: {other.artifacts_dir}" in said
        assert "surefoot:***@" in said
        asked = said_by(server, other, "client.main", "doctor")
        assert asked.returncode == EXIT_PREREQUISITE
        assert findings(asked.stdout, "stores") == ["fail"]
    emptied = settings_of(ours.home, queue_prefix="elsewhere", database_url=f"sqlite:///{tmp_path}/mistyped.db")
    before = ArtifactStore(ours.artifacts_dir).names()
    for settings, why in ((other, "is another one"), (emptied, "no worker has started with the ledger")):
        collecting = said_by(server, settings, "client.main", "gc", "--older-than", "0h")
        assert (collecting.returncode, collecting.stdout) == (EXIT_PREREQUISITE, "")
        assert why in collecting.stderr
    assert ArtifactStore(ours.artifacts_dir).names() == before
    assert (other.artifacts_dir / "claims.key").read_bytes() != (ours.artifacts_dir / "claims.key").read_bytes()
    with worker(ours):
        pass


@pytest.mark.slow
def test_of_workers_that_start_together_those_of_one_store_go_on(server: DevServer, tmp_path: Path) -> None:
    """Neither sees the other before both poll; here the other one comes to poll a moment later."""
    ours = settings_of(server.settings.home, queue_prefix="together")
    started = WorkerProcess(ours, "--without-litellm")

    async def beside(client: Client) -> int:
        async with telling_worker(client, ours, "0" * 8, "test"):  # the lesser name stays
            return await asyncio.to_thread(started.wait, 90)

    try:
        assert with_client(ours, beside) == EXIT_PREREQUISITE
    finally:
        started.kill()
    assert "on queue together other stores are in use" in (ours.home / "worker.log").read_text()


def test_a_chain_stays_in_the_ledger_that_it_began_in(server: DevServer) -> None:
    """Two ledgers on the same queues after all: whatever becomes of a task, its effects are in one, and happen once."""
    ours = settings_of(server.settings.home, queue_prefix="mixed")
    other = settings_of(ours.home, queue_prefix="mixed", database_url=f"sqlite:///{ours.home}/other.db")

    async def mixed(client: Client) -> list[Ended]:
        async with contextlib.AsyncExitStack() as stack:
            for settings in (ours, other):
                # a client's workers have queues of their own
                parts, its = make_parts(settings, None), await client_of(ours)
                for polling in (home_worker(its, settings, parts), *workspace_workers(its, settings, parts)):
                    await stack.enter_async_context(polling)
            spec = rehearsed_spec(ours, SCRIPT)
            return list(await asyncio.gather(*[ended(await start(client, ours, spec)) for _ in range(TASKS)]))

    for end in with_client(ours, mixed):
        rows = [Ledger(settings.database_url).rows(end.first_run_id) for settings in (ours, other)]
        assert sorted(map(bool, rows)) == [False, True], "all effects are in one of the ledgers"
        done = [row for row in rows[0] + rows[1] if (row.name, row.state) == ("run", EffectState.DONE)]
        assert len(done) == len(words_of(end)), "each happened once"
