"""The ledger's database: connections, and the schema's revisions."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import DatabaseError

from schemas.errors import LedgerUnavailable
from stores.files import exclusive_lock

HEAD = "0001"
"""The newest revision in ``stores/migrations``."""

BUSY_TIMEOUT_MS = 10_000
READ_ONLY = {"surefoot_read_only": True}


class UnknownRevision(Exception):
    """The database has a schema that this version does not know."""

    def __init__(self, path: Path, revision: str) -> None:
        """Name the file, the revision, and what to do."""
        super().__init__(
            f"{path} has schema revision {revision}, this version of Surefoot knows revisions up to {HEAD}: "
            "it was written by a newer version. Use that version, or choose another data folder with SUREFOOT_HOME."
        )


def open_database(url: str, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Engine:
    """Return an engine for ``url`` (``sqlite:////absolute/path``) whose transactions are safe between processes.

    Its connections may be used from any thread; one waits at most ``busy_timeout_ms`` for the others. The schema
    must be there: see ``migrate``.
    """
    engine = create_engine(url, pool_size=5, max_overflow=27, pool_timeout=busy_timeout_ms / 1000)

    def prepare(connection: Any, _record: Any) -> None:
        # the driver's own BEGIN would be a deferred one, which cannot be upgraded while others write
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={busy_timeout_ms}")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", _begin)
    return engine


def migrate(url: str) -> None:
    """Bring the database to the newest revision; every process that opens it calls this, several at once too.

    Cheap where nothing is to do. Raises UnknownRevision, and LedgerUnavailable where the file cannot be used.
    """
    path = _path(url)
    try:
        if _revision(path) == HEAD:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(path.with_name(path.name + ".lock")):
            revision = _revision(path)
            if revision != HEAD:
                _upgrade(url, path, revision)
    except (OSError, sqlite3.Error, DatabaseError) as error:
        raise LedgerUnavailable(f"the ledger's database {path} cannot be used: {error}") from error


def _upgrade(url: str, path: Path, revision: str | None) -> None:
    # Alembic takes a third of a second to import: only the first process of an installation pays for it
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if revision is not None and revision not in known:
        raise UnknownRevision(path, revision)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")  # stays with the file
    engine = open_database(url)
    try:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    finally:
        engine.dispose()


def _revision(path: Path) -> str | None:
    """Return the revision that the file says, or None where there is no file or no schema in it."""
    if not path.exists():
        return None
    with contextlib.closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_MS / 1000)) as connection:
        try:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            return None
    return None if row is None else str(row[0])


def _path(url: str) -> Path:
    database = make_url(url).database
    if not url.startswith("sqlite:") or not database or not Path(database).is_absolute():
        raise ValueError(f"the ledger needs sqlite:////absolute/path, not {url}")
    return Path(database)


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    connection.exec_driver_sql("BEGIN" if options.get("surefoot_read_only") else "BEGIN IMMEDIATE")
