"""Every process may migrate, at any time; only the first one does anything."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from schemas.effects import OpenedAs
from schemas.errors import LedgerUnavailable
from stores.database import HEAD, UnknownRevision, migrate, open_database
from stores.ledger import Ledger
from stores.tables import METADATA
from tests.stores.intents import ROOT, finish, intent, start, tell, wait_for_line


def test_the_revisions_build_exactly_the_tables_that_the_code_uses(url: str) -> None:
    migrate(url)
    engine = open_database(url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2, "2 is FULL"
    engine.dispose()
    assert ScriptDirectory(str(ROOT / "stores" / "migrations")).get_current_head() == HEAD


def test_a_database_that_is_up_to_date_costs_no_alembic(url: str) -> None:
    migrate(url)
    code = (
        "import sys; from stores.ledger import Ledger; Ledger(sys.argv[1]).totals('x');"
        "sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, url], cwd=ROOT, timeout=60, check=False).returncode == 0


def test_processes_that_start_together_on_nothing_all_get_a_working_ledger(tmp_path: Path) -> None:
    processes = [start("tests.stores.migrate_process") for _ in range(4)]
    for process in processes:
        wait_for_line(process)
    for number in range(25):
        url = f"sqlite:///{tmp_path}/{number}/new/surefoot.db"
        for process in processes:
            tell(process, url)
        assert [wait_for_line(process) for process in processes] == ["migrated"] * 4
        assert Ledger(url).open(intent(1)).how is OpenedAs.NEW
    for process in processes:
        finish(process)


def test_a_revision_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path, url: str) -> None:
    migrate(url)
    connection = sqlite3.connect(tmp_path / "surefoot.db")
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    with pytest.raises(UnknownRevision, match=r"9999.*0001.*newer version.*SUREFOOT_HOME"):
        Ledger(url)
    assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("9999",)
    connection.close()


def test_only_an_absolute_sqlite_path_is_accepted() -> None:
    for url in ("postgresql://host/name", "sqlite://", "sqlite:///relative.db"):
        with pytest.raises(ValueError, match="absolute"):
            migrate(url)


def test_a_file_that_is_no_database_and_a_folder_that_cannot_be_made_are_named(tmp_path: Path) -> None:
    (tmp_path / "surefoot.db").write_bytes(b"no database " * 100)
    with pytest.raises(LedgerUnavailable, match=r"surefoot\.db cannot be used: file is not a database"):
        migrate(f"sqlite:///{tmp_path}/surefoot.db")
    with pytest.raises(LedgerUnavailable, match=r"below/x\.db cannot be used"):
        migrate(f"sqlite:///{tmp_path}/surefoot.db/below/x.db")
    assert (tmp_path / "surefoot.db").read_bytes() == b"no database " * 100
