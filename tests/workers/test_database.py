"""Workers and commands on a database that is PostgreSQL, is away, or belongs to a newer version."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from temporalio.client import Client

from schemas.effects import EffectKind, EffectState
from schemas.outcome import EXIT_PREREQUISITE, OutcomeKind
from stores.artifacts import ArtifactStore
from stores.database import open_database
from stores.ledger import Ledger
from tests.proof.bench import Ended, ended, rows_of, serving_home, start, with_client
from tests.support.judging import assert_bill_equation
from tests.support.postgres import PASSWORD, PostgresServer
from tests.support.server import DevServer
from tests.support.tasks import commands, plan, rehearsed_bill, rehearsed_choice, reply, task_spec, verdict, worker
from workers.health import checks_of

SCRIPT = [
    reply("plan", plan("Write out.txt")),
    reply("is_step_done", verdict(False)),
    reply("propose_action", commands("echo done > out.txt")),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[DevServer]:
    with serving_home(tmp_path_factory.mktemp("home"), database_url=postgres.fresh()) as server:
        yield server


def test_a_task_runs_to_its_verified_end_with_its_ledger_on_postgresql(home: DevServer) -> None:
    settings = home.settings
    spec = task_spec(settings, rehearsed_choice(ArtifactStore(settings.artifacts_dir), SCRIPT))
    spec = spec.model_copy(update={"evaluator": (spec.requirements[0].check,)})

    async def work(client: Client) -> Ended:
        return await ended(await start(client, settings, spec))

    with worker(settings):
        end = with_client(settings, work)
    assert (end.outcome.kind, end.outcome.verified) == (OutcomeKind.FINISHED, True)
    rows = rows_of(settings, end.first_run_id)
    assert [(row.name, row.state) for row in rows] == [
        ("plan", EffectState.DONE),
        ("is_step_done", EffectState.DONE),
        ("propose_action", EffectState.DONE),
        ("run", EffectState.DONE),
    ]
    assert_bill_equation(rows, rehearsed_bill(settings), end.spend_microusd)
    assert sum(row.charged.microusd for row in rows if row.kind is EffectKind.MODEL) == end.spend_microusd > 0
    recorded = Ledger(settings.database_url).run(end.handle.id)
    assert recorded is not None
    assert not list(settings.home.glob("surefoot.db*")), "nothing of the ledger is in a file"
    logged = "".join(path.read_text(errors="replace") for path in settings.home.rglob("*.log"))
    assert PASSWORD not in logged


def said_by(home: Path, url: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ours on that database, and return how it ended."""
    named = {"SUREFOOT_HOME": str(home), "SUREFOOT_DATABASE_URL": url, "TEMPORAL_ADDRESS": "127.0.0.1:1"}
    return subprocess.run(
        [sys.executable, "-m", *command],
        env={**os.environ, **named},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_worker_whose_database_is_down_at_its_start_says_so_and_ends(tmp_path: Path) -> None:
    """Whoever keeps it running (the supervisor, systemd, Kubernetes) starts it again until the database is there."""
    url = f"postgresql://surefoot:{PASSWORD}@127.0.0.1:1/surefoot"
    done = said_by(tmp_path, url, "workers.main", "--without-litellm")
    assert done.returncode == EXIT_PREREQUISITE
    line = done.stderr.splitlines()[-1]
    assert line.startswith("the ledger's database postgresql://surefoot:***@127.0.0.1:1/surefoot cannot be used:")
    assert "refused" in line
    assert PASSWORD not in done.stdout + done.stderr


def test_a_database_of_a_newer_version_is_refused_with_the_way_out(tmp_path: Path, postgres: PostgresServer) -> None:
    for url in (f"sqlite:///{tmp_path}/surefoot.db", postgres.fresh()):
        Ledger(url)
        engine = open_database(url)
        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        engine.dispose()
        done = said_by(tmp_path, url, "workers.main", "--without-litellm")
        assert done.returncode == EXIT_PREREQUISITE
        assert "revision 9999" in done.stderr
        assert "SUREFOOT_DATABASE_URL" in done.stderr
        assert PASSWORD not in done.stderr


def test_doctor_and_probes_say_that_a_database_takes_no_writes(tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.fresh()
    Ledger(url)
    with psycopg.connect(url, autocommit=True) as connection:
        name = url.rpartition("/")[2]
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
    done = said_by(tmp_path, url, "client.main", "doctor")
    assert done.returncode == EXIT_PREREQUISITE
    assert re.search(r"fail database .*read-only transaction \(it takes no writes", done.stdout)

    ledger = Ledger(url, patient=True)

    async def ask() -> str | None:
        client = await Client.connect("127.0.0.1:1", lazy=True)
        (ledger_answers,) = checks_of(client, [], ledger)
        return await ledger_answers()

    said = asyncio.run(ask())
    assert said is not None
    assert "it takes no writes" in said


def test_doctor_names_a_database_without_its_password(tmp_path: Path, postgres: PostgresServer) -> None:
    good = postgres.fresh()
    away = good.replace(f":{postgres.port}/", ":1/")
    for url, status in ((good, "ok"), (away, "fail")):
        done = said_by(tmp_path, url, "client.main", "doctor")
        [line] = [line for line in done.stdout.splitlines() if line.split()[1] == "database"]
        assert line.startswith(status)
        assert "postgresql://surefoot:***@127.0.0.1" in line
        assert PASSWORD not in done.stdout + done.stderr
    assert "start that database" in done.stdout
