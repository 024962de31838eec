"""Statements of the ledger's every step, compiled once and run by the driver itself."""

from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import ClauseElement

Values = Mapping[str, Any]


class Statement:
    """One statement of SQLAlchemy's, for a connection that has begun a transaction.

    SQLAlchemy takes several times as long to run one as SQLite does, and every step runs dozens: so what it compiles is
    kept, and given to the driver as it is. Everything else of it stays: dialects, pool, transactions, errors.
    """

    def __init__(self, clause: ClauseElement) -> None:
        """Prepare ``clause``: its parameters are named, and its types need no conversion."""
        self._clause = clause
        names = [column.name for column in clause.selected_columns] if isinstance(clause, Select) else []
        self._row: Any = namedtuple("Row", names) if names else None
        self._compiled: dict[tuple[str, tuple[str, ...]], tuple[str, Sequence[str] | None]] = {}

    def run(self, connection: Connection, *values: Values) -> list[Any]:
        """Run it with ``values``, once for each of them, and return the rows of a query.

        Raises sqlalchemy.exc.DBAPIError and its kinds.
        """
        dialect = connection.dialect
        text, order = self._text(dialect, tuple(values[0]))
        given: list[Any] = [item if order is None else [item[name] for name in order] for item in values]
        cursor = connection.connection.cursor()
        try:
            if len(given) == 1:
                cursor.execute(text, given[0])
            else:
                cursor.executemany(text, given)
            return [] if self._row is None else [self._row._make(row) for row in cursor.fetchall()]
        except dialect.loaded_dbapi.Error as error:
            if dialect.is_disconnect(error, connection.connection, cursor):
                connection.invalidate(error)
            raise DBAPIError.instance(text, None, error, dialect.loaded_dbapi.Error, dialect=dialect) from error
        finally:
            cursor.close()

    def _text(self, dialect: Dialect, names: tuple[str, ...]) -> tuple[str, Sequence[str] | None]:
        """Return the dialect's text of the statement, and the order of its parameters where these have no names."""
        known = self._compiled.get((dialect.name, names))
        if known is None:
            compiled = self._clause.compile(dialect=dialect, column_keys=list(names))
            known = self._compiled[dialect.name, names] = (str(compiled), getattr(compiled, "positiontup", None))
        return known
