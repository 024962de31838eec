"""The database goes away under running tasks and comes back: nothing is lost, nothing is paid or done twice."""

import asyncio
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from temporalio.client import Client

from schemas.contract import SUMMARY_QUERY
from schemas.effects import EffectKind, EffectState
from schemas.errors import LedgerUnavailable, StorageUnavailable
from schemas.state import Summary
from stores.ledger import Ledger
from stores.records import EffectRow
from stores.settings import Settings
from tests.proof.bench import Ended, Handle, ended, serving_home, start, with_client
from tests.proof.counting import counting_spec, judge
from tests.support.disks import fill, small_disk
from tests.support.postgres import PASSWORD, running_postgres
from tests.support.tasks import rehearsed_bill, worker

WORDS = 12
COMMAND_SECONDS = 0.6
THINKING_SECONDS = 0.3


async def through(
    client: Client,
    settings: Settings,
    tasks: int,
    outages: tuple[float, ...],
    begin: Callable[[], None],
    over: Callable[[], None],
) -> list[EffectRow]:
    """Run tasks through outages of these lengths in seconds, and return all their rows."""
    spec = counting_spec(settings, WORDS, COMMAND_SECONDS, THINKING_SECONDS)
    handles = [await start(client, settings, spec) for _ in range(tasks)]
    for seconds in outages:
        await asyncio.sleep(3.0)
        await asyncio.to_thread(begin)
        await asyncio.sleep(seconds)
        await asyncio.to_thread(over)
    ends = await asyncio.gather(*(ended(handle) for handle in handles))
    return [row for end in ends for row in judge(settings, end)]


def report(what: str, rows: list[EffectRow]) -> None:
    """Print the figures."""
    calls = [row for row in rows if row.kind is EffectKind.MODEL]
    lost = [row for row in calls if row.state is EffectState.AMBIGUOUS]
    unknown = [row for row in rows if row.state is EffectState.UNKNOWN]
    sys.stdout.write(f"\n{what}: {len(calls)} model calls, {len(lost)} ambiguous, {len(unknown)} unknown effects\n")


@pytest.mark.parametrize(
    ("tasks", "outages"),
    [(1, (3.0,)), pytest.param(4, (6.0, 26.0), marks=[pytest.mark.slow, pytest.mark.timeout(400)])],
    ids=["one task, a restart", "four tasks, a restart and half a minute"],
)
def test_postgresql_is_killed_under_running_tasks(tmp_path: Path, tasks: int, outages: tuple[float, ...]) -> None:
    with running_postgres() as postgres, serving_home(tmp_path, database_url=postgres.fresh()) as server:
        settings = server.settings
        with worker(settings):
            rows = with_client(
                settings,
                lambda client: through(client, settings, tasks, outages, postgres.kill, postgres.start),
            )
        report(f"PostgreSQL killed for {outages} s", rows)
        answered = [row for row in rows if row.kind is EffectKind.MODEL and row.state is EffectState.DONE]
        assert len(answered) >= tasks * WORDS
        # a claim whose commit was under way may be lost; an answer that had come is waited with
        billed = {line["effect_id"] for line in rehearsed_bill(settings)}
        assert billed <= {row.effect_id for row in answered}
        assert PASSWORD not in (settings.home / "worker.log").read_text()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_postgresql_is_stopped_at_once_and_started_again(tmp_path: Path) -> None:
    with running_postgres() as postgres, serving_home(tmp_path, database_url=postgres.fresh()) as server:
        settings = server.settings
        with worker(settings):
            rows = with_client(
                settings, lambda client: through(client, settings, 2, (4.0, 4.0), postgres.stop, postgres.start)
            )
        report("PostgreSQL stopped twice", rows)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_right_is_taken_from_the_workers_user_and_given_back(tmp_path: Path) -> None:
    """Longer than the patience of an activity's call: the runs wait, and none ends as a fault of ours."""
    with running_postgres() as postgres:
        owner = postgres.fresh()
        Ledger(owner)

        def tell(*statements: str) -> None:
            with psycopg.connect(owner, autocommit=True) as connection:
                for statement in statements:
                    connection.execute(statement.encode())

        tell(
            f"CREATE ROLE ordinary LOGIN PASSWORD '{PASSWORD}'",
            "GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO ordinary",
            "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO ordinary",
        )
        with serving_home(tmp_path, database_url=owner.replace("surefoot:", "ordinary:")) as server:
            settings = server.settings
            with worker(settings):
                rows = with_client(
                    settings,
                    lambda client: through(
                        client,
                        settings,
                        2,
                        (30.0,),
                        lambda: tell("REVOKE ALL ON effects FROM ordinary"),
                        lambda: tell("GRANT SELECT, INSERT, UPDATE ON effects TO ordinary"),
                    ),
                )
            report("a right lost for 30 s", rows)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_another_process_holds_the_file_of_the_ledger(tmp_path: Path) -> None:
    with serving_home(tmp_path) as server, worker(server.settings):
        settings = server.settings
        holder = sqlite3.connect(tmp_path / "surefoot.db", isolation_level=None, check_same_thread=False)
        rows = with_client(
            settings,
            lambda client: through(
                client,
                settings,
                2,
                (20.0,),  # longer than a writer waits for the others
                lambda: holder.execute("BEGIN EXCLUSIVE").close(),
                lambda: holder.execute("ROLLBACK").close(),
            ),
        )
        holder.close()
        report("file held for 20 s", rows)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_outage_longer_than_all_attempts_is_waited_out(tmp_path: Path) -> None:
    with serving_home(tmp_path) as server, worker(server.settings):
        settings = server.settings
        holder = sqlite3.connect(tmp_path / "surefoot.db", isolation_level=None)

        async def work(client: Client) -> tuple[str, Ended]:
            handle = await start(client, settings, counting_spec(settings, WORDS, COMMAND_SECONDS, THINKING_SECONDS))
            await asyncio.sleep(3.0)
            holder.execute("BEGIN EXCLUSIVE").close()
            async with asyncio.timeout(400):
                while "waiting for the ledger" not in (said := await now_of(handle)):  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.5)
            await asyncio.sleep(20.0)
            holder.execute("ROLLBACK").close()
            return said, await ended(handle)

        said, end = with_client(settings, work)
        holder.close()
        report(f"file held until {said}", judge(settings, end))
        assert "surefoot.db" in said, "people see what the task waits for"


async def now_of(handle: Handle) -> str:
    """Return what the run says it does."""
    summary: Summary = await handle.query(SUMMARY_QUERY, result_type=Summary)
    return summary.now


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_disk_of_ledger_and_artifacts_is_full_for_a_while(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, 40_000_000), serving_home(tmp_path, database_url=f"sqlite:///{disk}/surefoot.db") as server:
        settings = server.settings
        (disk / "artifacts").mkdir()
        settings.artifacts_dir.symlink_to(disk / "artifacts")

        async def work(client: Client) -> tuple[tuple[str, str], Ended]:
            handle = await start(client, settings, counting_spec(settings, WORDS, COMMAND_SECONDS, THINKING_SECONDS))
            await asyncio.sleep(3.0)
            filler = await asyncio.to_thread(fill, disk)
            said = await failure_of(handle)
            filler.unlink()
            return said, await ended(handle)

        with worker(settings):
            said, end = with_client(settings, work)
        report(f"disk full until {said}", judge(settings, end))
        assert said[0] in (StorageUnavailable.__name__, LedgerUnavailable.__name__)
        assert "cannot be used" in said[1], "people see why their task does not go on"


async def failure_of(handle: Handle) -> tuple[str, str]:
    """Wait until an attempt of a call that is still open has failed with an error; return its type and message."""
    async with asyncio.timeout(120):
        while True:
            pending = (await handle.describe()).raw_description.pending_activities
            for failure in (item.last_failure for item in pending if item.HasField("last_failure")):
                if not failure.HasField("timeout_failure_info"):  # a heartbeat came too late on a busy machine
                    return failure.application_failure_info.type, failure.message
            await asyncio.sleep(0.1)
