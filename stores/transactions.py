"""Transactions of the ledger's database: as a whole or not at all, and again where the database comes back in time."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from stores.database import READ_ONLY, is_outage, unavailable

Value = TypeVar("Value")
Work = Callable[[Connection], Value]

FIRST_DELAY_SECONDS = 0.2
LONGEST_DELAY_SECONDS = 2.0
MAX_CONFLICTS = 5


class Transactions:
    """Runs work on one database; LedgerUnavailable where it does not answer, and nothing is written then."""

    def __init__(self, engine: Engine) -> None:
        """Use an engine of ``open_database``."""
        self._engine = engine

    def read(self, work: Work[Value], patience_seconds: float = 0.0) -> Value:
        """Return what ``work`` reads; it waits for no writer. It is tried again for as long as the patience lasts."""
        return self._run(work, READ_ONLY, patience_seconds, repeatable=True)

    def write(self, work: Work[Value], patience_seconds: float = 0.0, *, repeatable: bool = False) -> Value:
        """Return what ``work`` returns, once what it wrote is kept.

        Where the database goes away the work is tried again for as long as the patience lasts. Where a server goes away
        under the commit nobody can tell whether the work is kept: only ``repeatable`` work is tried again then.
        """
        in_a_file = self._engine.dialect.name == "sqlite"  # a commit that fails there is not kept
        return self._run(work, {}, patience_seconds, repeatable=repeatable or in_a_file)

    def _run(self, work: Work[Value], options: dict[str, Any], patience_seconds: float, *, repeatable: bool) -> Value:
        deadline = time.monotonic() + patience_seconds
        delay, conflicts = FIRST_DELAY_SECONDS, 0
        while True:
            committing = False
            try:
                with self._engine.connect().execution_options(**options) as connection:
                    transaction = connection.begin()
                    value = work(connection)
                    committing = True
                    transaction.commit()
                    return value
            except IntegrityError:  # somebody else's row appeared between looking and writing: look again
                conflicts += 1
                if conflicts > MAX_CONFLICTS:
                    raise
                continue
            except (DBAPIError, PoolTimeout) as error:
                if not is_outage(error):
                    raise
                if (committing and not repeatable) or time.monotonic() + delay > deadline:
                    url = self._engine.url.render_as_string(hide_password=False)
                    raise unavailable(url, error) from error
            time.sleep(delay)
            delay = min(2 * delay, LONGEST_DELAY_SECONDS)
