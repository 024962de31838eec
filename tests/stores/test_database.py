"""Every process may migrate, at any time; only the first one does anything."""

import subprocess
import sys
import uuid
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from schemas.effects import OpenedAs
from schemas.errors import LedgerUnavailable
from stores.database import DatabaseRefused, UnknownRevision, migrate, open_database, shown
from stores.ledger import Ledger
from stores.revisions import HEAD
from stores.tables import METADATA
from tests.stores.intents import ROOT, finish, intent, start, tell, wait_for_line
from tests.support.postgres import PASSWORD, PostgresServer


def test_the_revisions_build_exactly_the_tables_that_the_code_uses(database_url: str) -> None:
    migrate(database_url)
    engine = open_database(database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
    engine.dispose()
    assert ScriptDirectory(str(ROOT / "stores" / "migrations")).get_current_head() == HEAD


def test_an_acknowledged_commit_is_on_disk(sqlite_url: str, postgres: PostgresServer) -> None:
    for url, setting, wanted in (
        (sqlite_url, "PRAGMA journal_mode", "wal"),
        (sqlite_url, "PRAGMA synchronous", 2),  # FULL
        (postgres.fresh(), "SHOW synchronous_commit", "on"),
    ):
        migrate(url)
        engine = open_database(url)
        with engine.connect() as connection:
            assert connection.exec_driver_sql(setting).scalar() == wanted
        engine.dispose()


def test_a_database_that_is_up_to_date_costs_no_alembic(database_url: str) -> None:
    migrate(database_url)
    code = (
        "import sys; from stores.ledger import Ledger; Ledger(sys.argv[1]).totals('x');"
        "sys.exit('alembic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, database_url], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(("kind", "times"), [("sqlite", 25), ("postgresql", 8)])
def test_processes_that_start_together_on_nothing_all_get_a_working_ledger(
    tmp_path: Path, postgres: PostgresServer, kind: str, times: int
) -> None:
    processes = [start("tests.stores.migrate_process") for _ in range(4)]
    for process in processes:
        wait_for_line(process)
    for number in range(times):
        url = f"sqlite:///{tmp_path}/{number}/new/surefoot.db" if kind == "sqlite" else postgres.fresh()
        for process in processes:
            tell(process, url)
        assert [wait_for_line(process) for process in processes] == ["migrated"] * 4
        ledger = Ledger(url)
        assert ledger.open(intent(1)).how is OpenedAs.NEW
        assert len(ledger.stores()[0]) == 32, "one name, whoever gave it"
    for process in processes:
        finish(process)


def test_a_ledger_of_the_first_revision_gets_a_name_and_keeps_its_chains(database_url: str) -> None:
    Ledger(database_url).open(intent(1))
    engine = open_database(database_url)
    with engine.begin() as connection:  # what the second revision brings is taken back
        for change in ("DROP TABLE stores", "DROP TABLE chains", "UPDATE alembic_version SET version_num = '0001'"):
            connection.exec_driver_sql(change)
    engine.dispose()
    ledger = Ledger(database_url)
    assert ledger.knows("run-1")
    assert not ledger.knows("run-2")
    assert ledger.stores() == (ledger.stores()[0], None)


def test_every_ledger_has_a_name_of_its_own_and_one_artifact_store(database_url: str, tmp_path: Path) -> None:
    ledger, other = Ledger(database_url), Ledger(f"sqlite:///{tmp_path}/other.db")
    assert ledger.stores()[0] != other.stores()[0]
    name = ledger.stores()[0]
    assert ledger.stores("first") == (name, "first")
    assert ledger.stores("second") == (name, "first"), "the first one prevails"
    assert Ledger(database_url).stores() == (name, "first")


def test_a_revision_of_a_newer_version_is_refused_and_left_alone(database_url: str) -> None:
    migrate(database_url)
    engine = open_database(database_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(UnknownRevision, match=r"9999.*0002.*newer version.*SUREFOOT_HOME.*SUREFOOT_DATABASE_URL"):
        Ledger(database_url)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one() == "9999"
    engine.dispose()


def test_only_an_absolute_path_or_postgresql_is_accepted() -> None:
    for url in ("mysql://host/name", "sqlite://", "sqlite:///relative.db"):
        with pytest.raises(ValueError, match="absolute"):
            migrate(url)


def test_a_file_that_is_no_database_and_a_folder_that_cannot_be_made_are_named(tmp_path: Path) -> None:
    (tmp_path / "surefoot.db").write_bytes(b"no database " * 100)
    with pytest.raises(DatabaseRefused, match=r"surefoot\.db is not a database that can be read: file is not a data"):
        migrate(f"sqlite:///{tmp_path}/surefoot.db")
    with pytest.raises(LedgerUnavailable, match=r"below/x\.db cannot be used"):
        migrate(f"sqlite:///{tmp_path}/surefoot.db/below/x.db")
    assert (tmp_path / "surefoot.db").read_bytes() == b"no database " * 100


def test_both_spellings_of_a_postgresql_url_are_the_same_database(postgres: PostgresServer) -> None:
    url = postgres.fresh()
    assert Ledger(url).open(intent(1)).how is OpenedAs.NEW
    assert Ledger(url.replace("postgresql:", "postgresql+psycopg:")).open(intent(1)).how is OpenedAs.DANGLING


def test_a_password_may_come_from_the_environment(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = postgres.fresh().replace(f":{PASSWORD}@", "@")
    with pytest.raises(LedgerUnavailable, match="password"):
        migrate(bare)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    migrate(bare)


def test_no_error_of_a_database_shows_the_password(postgres: PostgresServer) -> None:
    good = postgres.fresh()
    wrong = {
        "nobody listens": good.replace(f":{postgres.port}/", ":1/"),
        "no such host": good.replace("127.0.0.1", "nowhere.invalid"),
        "no such user": good.replace("surefoot:", "somebody:"),
        "no such database": good.rpartition("/")[0] + "/nothing",
        "an unknown option": good + "?colour=red",
    }
    for what, url in wrong.items():
        with pytest.raises(LedgerUnavailable, match="is it running") as caught:
            Ledger(url)
        assert PASSWORD not in str(caught.value), what
        assert shown(url) in str(caught.value), what
        assert "surefoot:***@" in shown(good)


def test_a_database_of_another_encoding_or_without_rights_says_what_to_do(postgres: PostgresServer) -> None:
    latin = postgres.fresh(ENCODING="'LATIN1'", LOCALE="'C'", TEMPLATE="template0")
    with pytest.raises(DatabaseRefused, match=r"LATIN1.*UTF8"):
        migrate(latin)
    guest, url = f"guest_{uuid.uuid4().hex[:8]}", postgres.fresh()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {guest} LOGIN PASSWORD '{PASSWORD}'".encode())
    with pytest.raises(LedgerUnavailable, match="permission denied for schema public"):
        migrate(url.replace("surefoot:", f"{guest}:"))


def test_a_database_that_lost_a_right_a_table_or_its_writes_is_an_outage_with_the_way_out(
    postgres: PostgresServer,
) -> None:
    """Waiting helps: what is claimed then goes on as after a restart, and nothing fails as a fault of ours."""
    user, owner = f"worker_{uuid.uuid4().hex[:8]}", postgres.fresh()
    Ledger(owner)
    url = owner.replace("surefoot:", f"{user}:")
    rights = f"SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {user}; GRANT USAGE ON ALL SEQUENCES "
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{PASSWORD}'".encode())
        connection.execute(f"GRANT {rights} IN SCHEMA public TO {user}".encode())
        Ledger(url).check(writing=True)
        changes = (
            (
                f"REVOKE UPDATE ON chain_sums FROM {user}",
                f"GRANT UPDATE ON chain_sums TO {user}",
                r"permission denied.*\(give this user SELECT, INSERT and UPDATE",
            ),
            (
                f"ALTER ROLE {user} SET default_transaction_read_only = on",
                f"ALTER ROLE {user} RESET default_transaction_read_only",
                r"read-only transaction \(it takes no writes: end",
            ),
            (
                "ALTER TABLE effects RENAME TO gone",
                "ALTER TABLE gone RENAME TO effects",
                r"does not exist .*\(restore its tables from a backup",
            ),
        )
        for number, (lose, regain, said) in enumerate(changes):
            connection.execute(lose.encode())
            ledger = Ledger(url)  # a role's settings are read when it connects
            with pytest.raises(LedgerUnavailable, match=said):
                ledger.check(writing=True)
            with pytest.raises(LedgerUnavailable, match=said):
                ledger.open(intent(number))
            connection.execute(regain.encode())
            assert Ledger(url).open(intent(number)).how is OpenedAs.NEW


def test_a_file_that_lost_a_table_says_so(sqlite_url: str) -> None:
    ledger = Ledger(sqlite_url)
    engine = open_database(sqlite_url)
    with engine.connect() as connection:
        connection.exec_driver_sql("ALTER TABLE runs RENAME TO gone")
        connection.commit()
    ledger.check(writing=False)
    with pytest.raises(LedgerUnavailable, match=r"no such table: runs \(restore its tables from a backup"):
        ledger.check(writing=True)
    engine.dispose()


def test_without_the_driver_the_remedy_is_named() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from stores.database import DatabaseRefused, migrate\n"
        "try: migrate('postgresql://ann:secret@host/db')\n"
        "except DatabaseRefused as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=60, check=True, text=True
    )
    assert done.stdout.startswith("postgresql://ann:***@host/db needs the package psycopg")
    assert "make setup" in done.stdout


def test_a_pool_recovers_from_connections_that_the_server_has_closed(postgres: PostgresServer) -> None:
    url = postgres.fresh()
    ledger = Ledger(url)
    ledger.open(intent(1))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert ledger.open(intent(2)).how is OpenedAs.NEW


def test_a_writer_waits_for_a_lock_only_so_long(postgres: PostgresServer) -> None:
    url = postgres.fresh()
    ledger = Ledger(url)
    ledger.open(intent(1))
    engine = open_database(url, busy_timeout_ms=100)
    with psycopg.connect(url) as holder:
        holder.execute("SELECT 1 FROM effects FOR UPDATE")
        holder.execute("SELECT pg_advisory_xact_lock(hashtextextended('run-1', 0))")
        with pytest.raises(LedgerUnavailable, match="lock timeout"):
            Ledger(engine).open(intent(2))
        assert Ledger(engine).totals("run-1").open_effects == 1, "reading does not wait for writers"
        other = intent(1, run_id="run-2", first_run_id="run-2")
        assert Ledger(engine).open(other).how is OpenedAs.NEW, "another chain does not wait"
    engine.dispose()
    assert ledger.open(intent(2)).how is OpenedAs.NEW
