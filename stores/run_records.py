"""The ended runs in the ledger, the chains that have not ended, and what their texts refer to."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, func, select

from schemas.lenient import read_reply
from stores.records import RunRow, UnendedChain
from stores.tables import EFFECTS, RUNS
from stores.transactions import Transactions

ROWS_AT_ONCE = 500


class RunRecords:
    """The part of the ledger that speaks of runs as wholes."""

    def __init__(self, transactions: Transactions, patience_seconds: float) -> None:
        """Wait so long for a database that is away."""
        self._transactions = transactions
        self._patience = patience_seconds

    def record_run(self, row: RunRow) -> None:
        """Write an ended run once; a second record of the same run id changes nothing."""
        known = select(RUNS.c.number).where(RUNS.c.run_id == row.run_id)
        identity = row.model_dump(include={"run_id", "first_run_id", "workflow_id"})

        def work(connection: Connection) -> None:
            if not connection.execute(known).first():
                connection.execute(RUNS.insert().values(**identity, record_json=row.model_dump_json()))

        self._transactions.write(work, self._patience, repeatable=True)

    def run(self, workflow_id: str) -> RunRow | None:
        """Return the run of that workflow id that was recorded last, or None."""
        found = self._runs(select(RUNS.c.record_json).where(RUNS.c.workflow_id == workflow_id), 1)
        return found[0] if found else None

    def recorded(self, run_ids: Sequence[str]) -> set[str]:
        """Return those of ``run_ids`` that are recorded as ended."""
        pages = [run_ids[at : at + ROWS_AT_ONCE] for at in range(0, len(run_ids), ROWS_AT_ONCE)]
        queries = [select(RUNS.c.run_id).where(RUNS.c.run_id.in_(page)) for page in pages]

        def work(connection: Connection) -> set[str]:
            return {str(row.run_id) for query in queries for row in connection.execute(query)}

        return self._transactions.read(work, self._patience)

    def last_chain(self, workflow_id: str) -> str | None:
        """Return the first run id of the latest chain of that workflow id that claimed an effect, or None."""
        query = select(EFFECTS.c.first_run_id).where(EFFECTS.c.workflow_id == workflow_id)
        latest = query.order_by(EFFECTS.c.number.desc()).limit(1)
        row = self._transactions.read(lambda connection: connection.execute(latest).first(), self._patience)
        return None if row is None else str(row.first_run_id)

    def without_end(self) -> list[UnendedChain]:
        """Return the chains that claimed effects and of which no run is recorded as ended."""
        ended = select(RUNS.c.first_run_id)
        chain = (EFFECTS.c.workflow_id, EFFECTS.c.first_run_id)
        query = select(*chain, func.max(EFFECTS.c.created_at).label("last")).group_by(*chain)
        unended = query.where(EFFECTS.c.first_run_id.not_in(ended))
        rows = self._transactions.read(lambda connection: connection.execute(unended).all(), self._patience)
        return [UnendedChain(workflow_id=row[0], first_run_id=row[1], last_effect_at=row[2]) for row in rows]

    def texts(self) -> Iterator[str]:
        """Yield every text in which an effect or an ended run may refer to artifacts."""
        for table, names in ((EFFECTS, ("outcome_json", "marker_json", "late_json")), (RUNS, ("record_json",))):
            last = 0
            while rows := self._transactions.read(_page(table, names, last), self._patience):
                last = rows[-1].number
                for row in rows:
                    yield from row[1:]

    def runs(self, limit: int) -> list[RunRow]:
        """Return the ``limit`` runs that were recorded last, newest first."""
        return self._runs(select(RUNS.c.record_json), limit)

    def _runs(self, query: Select[Any], limit: int) -> list[RunRow]:
        newest = query.order_by(RUNS.c.number.desc()).limit(limit)

        def work(connection: Connection) -> list[RunRow]:
            read = [read_reply(RunRow, row.record_json).value for row in connection.execute(newest)]
            return [row for row in read if row is not None]  # a newer worker's may tell of an end unknown here

        return self._transactions.read(work, self._patience)


def _page(table: Table, names: Sequence[str], after: int) -> Callable[[Connection], Sequence[Row[Any]]]:
    """Return what reads the next rows of a table by number; a transaction of its own does not hold up any writer."""
    query = select(table.c.number, *(table.c[name] for name in names)).where(table.c.number > after)
    return lambda connection: connection.execute(query.order_by(table.c.number).limit(ROWS_AT_ONCE)).all()
