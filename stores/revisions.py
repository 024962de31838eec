"""The schema's revision in a ledger's file, told without SQLAlchemy, whose import takes half a second."""

import contextlib
import sqlite3
from pathlib import Path

HEAD = "0002"
"""The newest revision in ``stores/migrations``."""

SQLITE = "sqlite:///"
BUSY_TIMEOUT_SECONDS = 10.0


def revision_of_file(path: Path) -> str | None:
    """Return the revision that a file says, or None where there is no file or no schema in it. Raises sqlite3.Error."""
    if not path.exists():
        return None
    with contextlib.closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS)) as connection:
        try:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            return None
    return None if row is None else str(row[0])


def is_ours(url: str) -> bool:
    """Whether the database is a file of this version, or one that is yet to be written; False leaves it open."""
    if not url.startswith(SQLITE):
        return False
    try:
        return revision_of_file(Path(url.removeprefix(SQLITE))) in (None, HEAD)
    except (sqlite3.Error, OSError):
        return False
