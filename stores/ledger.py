"""The ledger of effects: what may happen is claimed here first, and what happened is written here once."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, Table, func, select

from schemas.budget import Spend, add, exceeded
from schemas.effects import (
    SETTLED,
    EffectResult,
    EffectState,
    Intent,
    LedgerTotals,
    Opened,
    OpenedAs,
    ProcessGroup,
)
from schemas.errors import Fenced
from schemas.lenient import read_reply
from stores import claims, sums
from stores.database import migrate, open_database
from stores.records import EffectRow, RunRow, UnendedChain, UnsettledEffect
from stores.tables import EFFECTS, NO_ROWS_READ, NO_ROWS_WRITTEN, RUNS
from stores.transactions import Transactions

PATIENCE_SECONDS = 15.0
"""How long a worker's call waits for a database that is away."""
RESULT_PATIENCE_SECONDS = 40.0
"""How long a result waits for it: what was paid for is not thrown away, and asked for again, for a restart's sake.

With the patience of the artifact store they fit into what an activity has beyond its request's own time-out.
"""

FRESH_SECONDS = 0.25
"""Who acts later than this after the claim was made or noted makes sure of it again: see ``Ledger.confirm``."""
ROWS_AT_ONCE = 500


class Ledger:
    """Claims, results and sums of effects, and the runs that ended; several processes may use one database at once.

    Every method raises LedgerUnavailable where the database does not answer. Nothing is written then, except where it
    went away under the very commit: the next ``open`` tells.
    """

    def __init__(self, engine_or_url: Engine | str, *, patient: bool = False) -> None:
        """Use an engine of ``open_database``, or open (and migrate) the database at a URL.

        A ``patient`` ledger waits for a database that is away, as long as the two constants say; not here, though.
        """
        if isinstance(engine_or_url, str):
            migrate(engine_or_url)
            engine_or_url = open_database(engine_or_url)
            weakref.finalize(self, engine_or_url.dispose)  # the connections are ours alone: they end with us
        self._transactions = Transactions(engine_or_url)
        self._patience = PATIENCE_SECONDS if patient else 0.0
        self._result_patience = RESULT_PATIENCE_SECONDS if patient else 0.0

    def open(self, intent: Intent) -> Opened:
        """Claim an effect, or say why not; the reservation counts from here on.

        A new or released effect is NEW, or OVER_LIMIT (nothing is written). An effect that an earlier attempt
        claimed and did not end is DANGLING and now ours: the earlier attempt can write no more. Raises EffectMismatch.
        """

        def work(connection: Connection) -> Opened:
            claims.lock_chain(connection, intent.key.first_run_id)
            row = claims.find(connection, intent)
            if row is not None and row.state != EffectState.RELEASED:
                return claims.pick_up(connection, row)
            so_far = sums.totals(connection, intent.key.first_run_id)
            spend = claims.reserved_spend(intent)
            over = exceeded(add(add(so_far.spend, so_far.open), spend), intent.limits)
            if over is not None:
                return Opened(how=OpenedAs.OVER_LIMIT, over=over)
            fence = claims.claim(connection, intent, row, EffectState.INTENT, spend)
            return Opened(how=OpenedAs.NEW, fence=fence)

        return self._transactions.write(work, self._patience)

    def void(self, intent: Intent) -> Opened:
        """Say that an effect that was never claimed, or was released, never will happen; otherwise like ``open``.

        For a reconciler that finds no claim: a first attempt that comes late finds the effect VOID and does not act.
        The answer is never NEW and never OVER_LIMIT. Raises EffectMismatch.
        """

        def work(connection: Connection) -> Opened:
            claims.lock_chain(connection, intent.key.first_run_id)
            row = claims.find(connection, intent)
            if row is not None and row.state != EffectState.RELEASED:
                return claims.pick_up(connection, row)
            fence = claims.claim(connection, intent, row, EffectState.VOID, Spend())
            result = EffectResult(state=EffectState.VOID, charged=Spend())
            return Opened(how=OpenedAs.SETTLED, fence=fence, result=result)

        return self._transactions.write(work, self._patience, repeatable=True)

    def note(
        self, effect_id: str, fence: int, *, process: ProcessGroup | None = None, marker_json: str | None = None
    ) -> None:
        """Keep what a reconciler will need; what is None stays as it is. Raises Fenced."""
        noted: dict[str, Any] = {}
        if process is not None:
            noted["process_json"] = process.model_dump_json()
        if marker_json is not None:
            noted["marker_json"] = marker_json
        self._write(effect_id, fence, noted)

    def confirm(self, effect_id: str, fence: int) -> None:
        """Make sure that the claim still holds, where time has passed since it was made or noted. Raises Fenced."""

        def work(connection: Connection) -> None:
            if claims.of_open_claim(connection, effect_id, fence) is None:
                raise claims.fenced(connection, effect_id, fence)

        self._transactions.read(work, self._patience)

    def close(self, effect_id: str, fence: int, result: EffectResult) -> LedgerTotals:
        """Write the result, once, and return the chain's sums with it.

        Raises Fenced where the claim is lost; the result is then kept as late.
        """
        if result.state not in SETTLED:
            raise ValueError(f"{result.state} does not end an effect")
        settled = {
            "state": result.state.value,
            **claims.spend_columns(result.charged),
            "outcome_json": result.outcome_json,
            "settled_at": claims.clock(),
        }
        tries = 0

        def work(connection: Connection) -> LedgerTotals | Fenced:
            nonlocal tries
            tries += 1
            claims.lock_chain_of(connection, effect_id)
            chain = claims.compare_and_set(connection, effect_id, fence, settled)
            if chain is None and tries > 1:  # the commit of the try before may be kept, and its answer lost
                chain = claims.settled_as(connection, effect_id, fence, result)
            if chain is not None:
                return sums.totals(connection, chain)
            claims.record_late(connection, effect_id, fence, result)
            return claims.fenced(connection, effect_id, fence)

        ended = self._transactions.write(work, self._result_patience, repeatable=True)
        if isinstance(ended, Fenced):  # outside of the transaction, which has to keep the late result
            raise ended
        return ended

    def release(self, effect_id: str, fence: int) -> None:
        """Give the claim and its reservation back: provably nothing happened and nothing was billed. Raises Fenced."""
        self._write(effect_id, fence, {"state": EffectState.RELEASED.value, **claims.spend_columns(Spend())})

    def totals(self, first_run_id: str) -> LedgerTotals:
        """Return the chain's sums; zero for a chain without effects."""
        return self._transactions.read(lambda connection: sums.totals(connection, first_run_id), self._patience)

    def check(self, *, writing: bool) -> None:
        """Raise LedgerUnavailable where nothing can be read, or no claim or result be written, now.

        Changes nothing, and has no patience.
        """

        def work(connection: Connection) -> None:
            for statement in NO_ROWS_WRITTEN if writing else (NO_ROWS_READ,):
                connection.execute(statement)

        if writing:
            self._transactions.write(work)
        else:
            self._transactions.read(work)

    def unsettled(self, first_run_id: str) -> list[UnsettledEffect]:
        """Return the chain's effects that were claimed and have no result."""
        query = claims.of_chain(first_run_id).where(EFFECTS.c.state == EffectState.INTENT)

        def work(connection: Connection) -> list[UnsettledEffect]:
            return [
                UnsettledEffect(effect_id=row.effect_id, name=row.name, process=claims.process_of(row))
                for row in connection.execute(query)
            ]

        return self._transactions.read(work, self._patience)

    def rows(self, first_run_id: str) -> list[EffectRow]:
        """Return all effects of the chain, in the order in which they were claimed."""

        def work(connection: Connection) -> list[EffectRow]:
            return [claims.effect_row(row) for row in connection.execute(claims.of_chain(first_run_id))]

        return self._transactions.read(work, self._patience)

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

    def _write(self, effect_id: str, fence: int, values: dict[str, Any]) -> None:
        def work(connection: Connection) -> None:
            claims.lock_chain_of(connection, effect_id)
            if claims.compare_and_set(connection, effect_id, fence, values) is None:
                raise claims.fenced(connection, effect_id, fence)

        # a note may be written twice; a claim that was given back is not given back again
        self._transactions.write(work, self._patience, repeatable="state" not in values)


def _page(table: Table, names: Sequence[str], after: int) -> Callable[[Connection], Sequence[Row[Any]]]:
    """Return what reads the next rows of a table by number; a transaction of its own does not hold up any writer."""
    query = select(table.c.number, *(table.c[name] for name in names)).where(table.c.number > after)
    return lambda connection: connection.execute(query.order_by(table.c.number).limit(ROWS_AT_ONCE)).all()
