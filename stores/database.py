"""The ledger's database: connections, and the schema's revisions. SQLite on one machine, PostgreSQL past it."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, NotSupportedError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from schemas.errors import LedgerUnavailable, StorageUnavailable
from stores.files import exclusive_lock, make_private
from stores.remedies import is_mendable, remedy_of
from stores.revisions import HEAD, revision_of_file

BUSY_TIMEOUT_MS = 10_000
MIGRATING_TIMEOUT_MS = 60_000
READ_ONLY = {"surefoot_read_only": True}
NO_DATABASE = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)

POSTGRES_POOL = {"pool_size": 5, "max_overflow": 7}  # its connections are few: a hundred for all workers together
SQLITE_POOL = {"pool_size": 5, "max_overflow": 27}
# a host that is cut off closes nothing: without these a connection to it would wait for a quarter of an hour
POSTGRES_NETWORK = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 11_000,
}
MIGRATION_LOCK = 0x5355_5245_464F_4F54  # "SUREFOOT"


class DatabaseRefused(Exception):
    """The database cannot be used as it is, and waiting does not help; the message says what to do."""


class UnknownRevision(DatabaseRefused):
    """The database has a schema that this version does not know."""

    def __init__(self, database: str, revision: str) -> None:
        """Name the database, the revision, and what to do."""
        super().__init__(
            f"{database} has schema revision {revision}, this version of Surefoot knows revisions up to {HEAD}: it was "
            "written by a newer version. Use that version, or choose another data folder with SUREFOOT_HOME or another "
            "database with SUREFOOT_DATABASE_URL."
        )


def shown(url: str) -> str:
    """Return the database's name for people: a file's path, or the URL without its password."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return parsed.database or url
    return parsed.set(drivername=parsed.get_backend_name()).render_as_string(hide_password=True)


def open_database(url: str, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Engine:
    """Return an engine for ``url`` whose transactions are safe between processes.

    ``url`` is ``sqlite:////absolute/path`` or ``postgresql://user@host/database``. Its connections may be used from any
    thread; one waits at most ``busy_timeout_ms`` for the others. The schema must be there: see ``migrate``. Raises
    DatabaseRefused where the driver is missing.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        return _open_postgres(parsed, busy_timeout_ms)
    engine = create_engine(url, pool_timeout=busy_timeout_ms / 1000, **SQLITE_POOL)

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

    Cheap where nothing is to do. Raises DatabaseRefused, UnknownRevision, and LedgerUnavailable where the database
    does not answer or its file cannot be used.
    """
    with _told(url):
        if make_url(url).get_backend_name() == "postgresql":
            _migrate_postgres(url)
        else:
            _migrate_sqlite(url, _path(url))


def check_database(url: str) -> None:
    """Say what ``migrate`` would raise, as far as that shows without writing: a command asks before it starts anything.

    Raises DatabaseRefused, UnknownRevision, LedgerUnavailable.
    """
    with _told(url):
        if make_url(url).get_backend_name() != "postgresql":
            _refuse_unknown(url, revision_of_file(_path(url)))
            return
        with _engine(url) as engine, engine.connect() as connection:
            _refuse_unknown(url, _revision(connection))


@contextlib.contextmanager
def _told(url: str) -> Iterator[None]:
    """Raise what the drivers raise as what it is to us."""
    try:
        yield
    except (OSError, sqlite3.Error, DBAPIError, PoolTimeout, StorageUnavailable) as error:
        if isinstance(error, sqlite3.DatabaseError) and getattr(error, "sqlite_errorcode", 0) in NO_DATABASE:
            raise DatabaseRefused(
                f"{shown(url)} is not a database that can be read: {error}. Put a backup in its place, or choose "
                "another data folder with SUREFOOT_HOME or another database with SUREFOOT_DATABASE_URL."
            ) from error
        raise unavailable(url, error) from error


def unavailable(url: str, error: Exception) -> LedgerUnavailable:
    """Return the typed error for what a driver said about the database at ``url``."""
    said = " ".join(str(getattr(error, "orig", None) or error).split())
    password = make_url(url).password
    if password:  # no driver is known to repeat it; a password in a log is too dear to rely on that
        said = said.replace(str(password), "***")
    ours = make_url(url).get_backend_name() == "sqlite"
    remedy = remedy_of(error, said, in_a_file=ours)
    return LedgerUnavailable(f"the ledger's database {shown(url)} cannot be used: {said} ({remedy})")


def is_outage(error: Exception) -> bool:
    """Whether the database did not answer or could not do its work, rather than refuse what it was told.

    A right or a table that it has lost counts as well: what it was told was right before, and is once that is mended.
    """
    if isinstance(error, PoolTimeout) or is_mendable(error):
        return True
    if not isinstance(error, DBAPIError):
        return False
    refused = isinstance(error, IntegrityError | ProgrammingError | DataError | NotSupportedError)
    return error.connection_invalidated or not refused


def _open_postgres(url: URL, busy_timeout_ms: int) -> Engine:
    timeouts = f"-c lock_timeout={busy_timeout_ms} -c statement_timeout={2 * busy_timeout_ms}"
    idle = f"-c idle_in_transaction_session_timeout={6 * busy_timeout_ms}"  # of a host that is cut off
    try:
        return create_engine(
            url.set(drivername="postgresql+psycopg"),
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,  # a database that was restarted has closed the connections of the pool
            pool_timeout=busy_timeout_ms / 1000,
            connect_args={
                **POSTGRES_NETWORK,
                "application_name": "surefoot",
                "client_encoding": "utf8",
                "options": f"{timeouts} {idle}",
            },
            **POSTGRES_POOL,
        )
    except ImportError as error:
        raise DatabaseRefused(
            f"{url.render_as_string(hide_password=True)} needs the package psycopg, which is not installed; "
            "run `make setup`"
        ) from error


def _migrate_sqlite(url: str, path: Path) -> None:
    if revision_of_file(path) == HEAD:
        return
    make_private(path.parent)
    with exclusive_lock(path.with_name(path.name + ".lock")):
        revision = revision_of_file(path)
        if revision == HEAD:
            return
        _refuse_unknown(url, revision)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")  # stays with the file
        with _engine(url) as engine, engine.begin() as transaction:
            _upgrade(transaction)


def _migrate_postgres(url: str) -> None:
    with _engine(url) as engine:
        with engine.connect() as connection:
            if _revision(connection) == HEAD:
                return
        with engine.begin() as connection:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {MIGRATING_TIMEOUT_MS}")
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {MIGRATING_TIMEOUT_MS}")
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
            revision = _revision(connection)
            if revision == HEAD:
                return
            _refuse_unknown(url, revision)
            encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
            if encoding != "UTF8":
                raise DatabaseRefused(f"{shown(url)} has the encoding {encoding}; create it with ENCODING 'UTF8'")
            _upgrade(connection)


def _refuse_unknown(url: str, revision: str | None) -> None:
    if revision in (None, HEAD):
        return
    from alembic.script import ScriptDirectory

    known = {script.revision for script in ScriptDirectory.from_config(_configuration()).walk_revisions()}
    if revision not in known:
        raise UnknownRevision(shown(url), revision)


def _upgrade(connection: Connection) -> None:
    # Alembic takes a third of a second to import: only the first process of an installation pays for it
    from alembic import command

    config = _configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _configuration() -> Any:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@contextlib.contextmanager
def _engine(url: str) -> Iterator[Engine]:
    engine = open_database(url)
    try:
        yield engine
    finally:
        engine.dispose()


def _revision(connection: Connection) -> str | None:
    """Return the revision that a PostgreSQL database says, or None where there is no schema in it."""
    if connection.exec_driver_sql("SELECT to_regclass('alembic_version')").scalar() is None:
        return None
    row = connection.exec_driver_sql("SELECT version_num FROM alembic_version").first()
    return None if row is None else str(row[0])


def _path(url: str) -> Path:
    database = make_url(url).database
    if not url.startswith("sqlite:") or not database or not Path(database).is_absolute():
        raise ValueError("the ledger needs sqlite:////absolute/path or postgresql://user@host/database")
    return Path(database)


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    connection.exec_driver_sql("BEGIN" if options.get("surefoot_read_only") else "BEGIN IMMEDIATE")
