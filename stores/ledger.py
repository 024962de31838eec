"""The ledger of effects: what may happen is claimed here first, and what happened is written here once."""

import contextlib
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Engine, Select, func, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

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
from schemas.errors import LedgerUnavailable
from stores import claims, sums
from stores.database import READ_ONLY, migrate, open_database
from stores.records import EffectRow, RunRow, UnendedChain, UnsettledEffect
from stores.tables import EFFECTS, RUNS

ROWS_AT_ONCE = 500


class Ledger:
    """Claims, results and sums of effects, and the runs that ended; several processes may use one database at once.

    Every method raises LedgerUnavailable where the database does not answer; nothing is written then.
    """

    def __init__(self, engine_or_url: Engine | str) -> None:
        """Use an engine of ``open_database``, or open (and migrate) the database at a URL."""
        if isinstance(engine_or_url, str):
            migrate(engine_or_url)
            self._engine = open_database(engine_or_url)
        else:
            self._engine = engine_or_url

    def open(self, intent: Intent) -> Opened:
        """Claim an effect, or say why not; the reservation counts from here on.

        A new or released effect is NEW, or OVER_LIMIT (nothing is written). An effect that an earlier attempt
        claimed and did not end is DANGLING and now ours: the earlier attempt can write no more. Raises EffectMismatch.
        """
        with self._writing() as connection:
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

    def void(self, intent: Intent) -> Opened:
        """Say that an effect that was never claimed, or was released, never will happen; otherwise like ``open``.

        For a reconciler that finds no claim: a first attempt that comes late finds the effect VOID and does not act.
        The answer is never NEW and never OVER_LIMIT. Raises EffectMismatch.
        """
        with self._writing() as connection:
            row = claims.find(connection, intent)
            if row is not None and row.state != EffectState.RELEASED:
                return claims.pick_up(connection, row)
            fence = claims.claim(connection, intent, row, EffectState.VOID, Spend())
            result = EffectResult(state=EffectState.VOID, charged=Spend())
            return Opened(how=OpenedAs.SETTLED, fence=fence, result=result)

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
        """Make sure, immediately before acting, that the claim still holds. Raises Fenced."""
        held = select(EFFECTS.c.effect_id).where(*claims.claim_holds(effect_id, fence))
        with self._reading() as connection:
            if not connection.execute(held).first():
                raise claims.fenced(connection, effect_id, fence)

    def close(self, effect_id: str, fence: int, result: EffectResult) -> None:
        """Write the result, once. Raises Fenced where the claim is lost; the result is then kept as late."""
        if result.state not in SETTLED:
            raise ValueError(f"{result.state} does not end an effect")
        settled = {
            "state": result.state.value,
            **claims.spend_columns(result.charged),
            "outcome_json": result.outcome_json,
            "settled_at": claims.clock(),
        }
        with self._writing() as connection:
            lost = not claims.compare_and_set(connection, effect_id, fence, settled)
            if lost:
                claims.record_late(connection, effect_id, fence, result)
                problem = claims.fenced(connection, effect_id, fence)
        if lost:  # outside of the transaction, which has to keep the late result
            raise problem

    def release(self, effect_id: str, fence: int) -> None:
        """Give the claim and its reservation back: provably nothing happened and nothing was billed. Raises Fenced."""
        self._write(effect_id, fence, {"state": EffectState.RELEASED.value, **claims.spend_columns(Spend())})

    def totals(self, first_run_id: str) -> LedgerTotals:
        """Return the chain's sums; zero for a chain without effects."""
        with self._reading() as connection:
            return sums.totals(connection, first_run_id)

    def unsettled(self, first_run_id: str) -> list[UnsettledEffect]:
        """Return the chain's effects that were claimed and have no result."""
        query = claims.of_chain(first_run_id).where(EFFECTS.c.state == EffectState.INTENT)
        with self._reading() as connection:
            return [
                UnsettledEffect(effect_id=row.effect_id, name=row.name, process=claims.process_of(row))
                for row in connection.execute(query)
            ]

    def rows(self, first_run_id: str) -> list[EffectRow]:
        """Return all effects of the chain, in the order in which they were claimed."""
        with self._reading() as connection:
            return [claims.effect_row(row) for row in connection.execute(claims.of_chain(first_run_id))]

    def record_run(self, row: RunRow) -> None:
        """Write an ended run once; a second record of the same run id changes nothing."""
        known = select(RUNS.c.number).where(RUNS.c.run_id == row.run_id)
        identity = row.model_dump(include={"run_id", "first_run_id", "workflow_id"})
        with self._writing() as connection:
            if not connection.execute(known).first():
                connection.execute(RUNS.insert().values(**identity, record_json=row.model_dump_json()))

    def run(self, workflow_id: str) -> RunRow | None:
        """Return the run of that workflow id that was recorded last, or None."""
        found = self._runs(select(RUNS.c.record_json).where(RUNS.c.workflow_id == workflow_id), 1)
        return found[0] if found else None

    def last_chain(self, workflow_id: str) -> str | None:
        """Return the first run id of the latest chain of that workflow id that claimed an effect, or None."""
        query = select(EFFECTS.c.first_run_id).where(EFFECTS.c.workflow_id == workflow_id)
        with self._reading() as connection:
            row = connection.execute(query.order_by(EFFECTS.c.number.desc()).limit(1)).first()
        return None if row is None else str(row.first_run_id)

    def without_end(self) -> list[UnendedChain]:
        """Return the chains that claimed effects and of which no run is recorded as ended."""
        ended = select(RUNS.c.first_run_id)
        chain = (EFFECTS.c.workflow_id, EFFECTS.c.first_run_id)
        query = select(*chain, func.max(EFFECTS.c.created_at).label("last")).group_by(*chain)
        with self._reading() as connection:
            rows = connection.execute(query.where(EFFECTS.c.first_run_id.not_in(ended))).all()
        return [UnendedChain(workflow_id=row[0], first_run_id=row[1], last_effect_at=row[2]) for row in rows]

    def texts(self) -> Iterator[str]:
        """Yield every text in which an effect or an ended run may refer to artifacts."""
        columns = (EFFECTS.c.outcome_json, EFFECTS.c.marker_json, EFFECTS.c.late_json), (RUNS.c.record_json,)
        for query in (select(*names) for names in columns):
            with self._reading() as connection:
                for row in connection.execution_options(yield_per=ROWS_AT_ONCE).execute(query):
                    yield from row

    def runs(self, limit: int) -> list[RunRow]:
        """Return the ``limit`` runs that were recorded last, newest first."""
        return self._runs(select(RUNS.c.record_json), limit)

    def _runs(self, query: Select[Any], limit: int) -> list[RunRow]:
        newest = query.order_by(RUNS.c.number.desc()).limit(limit)
        with self._reading() as connection:
            return [RunRow.model_validate_json(row.record_json) for row in connection.execute(newest)]

    def _write(self, effect_id: str, fence: int, values: dict[str, Any]) -> None:
        with self._writing() as connection:
            if not claims.compare_and_set(connection, effect_id, fence, values):
                raise claims.fenced(connection, effect_id, fence)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Connection]:
        with _answering(), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Connection]:
        with _answering(), self._engine.connect() as connection:
            yield connection.execution_options(**READ_ONLY)


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except (OperationalError, PoolTimeout) as error:
        raise LedgerUnavailable(f"the ledger's database does not answer: {getattr(error, 'orig', error)}") from error
