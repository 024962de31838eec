"""The ledger of effects: what may happen is claimed here first, and what happened is written here once."""

import weakref
from typing import Any

from sqlalchemy import Connection, Engine, Select, select, update

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
from stores import claims, sums
from stores.database import migrate, open_database
from stores.records import EffectRow, UnsettledEffect
from stores.run_records import RunRecords
from stores.tables import CHAINS, EFFECTS, NO_ROWS_READ, NO_ROWS_WRITTEN, STORES
from stores.transactions import Transactions

PATIENCE_SECONDS = 15.0
"""How long a worker's call waits for a database that is away."""
RESULT_PATIENCE_SECONDS = 40.0
"""How long a result waits for it: what was paid for is not thrown away, and asked for again, for a restart's sake.

With the patience of the artifact store they fit into what an activity has beyond its request's own time-out.
"""

FRESH_SECONDS = 0.25
"""Who acts later than this after the claim was made or noted makes sure of it again: see ``Ledger.confirm``."""


class Ledger(RunRecords):
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
        super().__init__(Transactions(engine_or_url), PATIENCE_SECONDS if patient else 0.0)
        self._result_patience = RESULT_PATIENCE_SECONDS if patient else 0.0

    def stores(self, artifacts: str | None = None) -> tuple[str, str | None]:
        """Return this ledger's own name, and the fingerprint of the artifact store that belongs to it.

        Where none does yet, ``artifacts`` does from here on; of several processes one prevails.
        """
        unbound = update(STORES).where(STORES.c.artifacts.is_(None)).values(artifacts=artifacts)
        query = select(STORES.c.ledger, STORES.c.artifacts)

        def work(connection: Connection) -> tuple[str, str | None]:
            if artifacts is not None:
                connection.execute(unbound)
            row = connection.execute(query).one()
            return row.ledger, row.artifacts

        if artifacts is None:
            return self._transactions.read(work, self._patience)
        return self._transactions.write(work, self._patience, repeatable=True)

    def begin(self, first_run_id: str) -> None:
        """Note that this chain begins, in this ledger; once more changes nothing."""

        def work(connection: Connection) -> None:
            if not connection.execute(_chain(first_run_id)).first():
                connection.execute(CHAINS.insert().values(first_run_id=first_run_id))

        self._transactions.write(work, self._patience, repeatable=True)

    def knows(self, first_run_id: str) -> bool:
        """Whether this chain was begun in this ledger."""
        query = _chain(first_run_id)
        return bool(self._transactions.read(lambda connection: connection.execute(query).first(), self._patience))

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

    def _write(self, effect_id: str, fence: int, values: dict[str, Any]) -> None:
        def work(connection: Connection) -> None:
            claims.lock_chain_of(connection, effect_id)
            if claims.compare_and_set(connection, effect_id, fence, values) is None:
                raise claims.fenced(connection, effect_id, fence)

        # a note may be written twice; a claim that was given back is not given back again
        self._transactions.write(work, self._patience, repeatable="state" not in values)


def _chain(first_run_id: str) -> Select[Any]:
    return select(CHAINS.c.first_run_id).where(CHAINS.c.first_run_id == first_run_id)
