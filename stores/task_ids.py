"""Ids of tasks straight from the ledger's file: a shell that completes words cannot wait for anything heavier."""

import contextlib
import sqlite3
from pathlib import Path

SQLITE = "sqlite:///"
WAIT_SECONDS = 0.5
LISTS = {
    True: "SELECT workflow_id FROM effects WHERE first_run_id NOT IN (SELECT first_run_id FROM runs) "
    "GROUP BY workflow_id ORDER BY MAX(number) DESC LIMIT ?",
    False: "SELECT workflow_id FROM runs GROUP BY workflow_id ORDER BY MAX(number) DESC LIMIT ?",
}


def file_of(database_url: str) -> Path | None:
    """Return the ledger's file, or None where the ledger is none."""
    return Path(database_url.removeprefix(SQLITE)) if database_url.startswith(SQLITE) else None


def task_ids(file: Path, running: bool, limit: int) -> list[str]:
    """Return the ids of tasks that have begun and not ended, or of ended ones, the latest first.

    The file is neither made nor migrated. Raises sqlite3.Error where it is not there, or not a ledger.
    """
    with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=WAIT_SECONDS)) as connection:
        return [str(row[0]) for row in connection.execute(LISTS[running], (limit,))]
