"""Statements on the effects table; each runs inside a transaction of the ledger."""

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, literal_column, select, update

from schemas.budget import Reservation, Spend
from schemas.effects import (
    EffectKind,
    EffectResult,
    EffectState,
    Intent,
    Opened,
    OpenedAs,
    ProcessGroup,
)
from schemas.errors import EffectMismatch, Fenced
from stores.records import EffectRow
from stores.statements import Statement
from stores.sums import METERS, move, spend_of
from stores.tables import EFFECTS

_E = EFFECTS.c

# what an update or an insert writes are the names of its parameters
_ITS_ID, _ITS_FENCE, _OPEN = "its_id", "its_fence", "open"
_OF_ID = select(EFFECTS).where(_E.effect_id == bindparam(_ITS_ID))
_OF_CLAIM = _OF_ID.where(_E.fence == bindparam(_ITS_FENCE))
_ROW, _ROW_OF_CLAIM = Statement(_OF_ID), Statement(_OF_CLAIM)
_ROW_OF_OPEN_CLAIM = Statement(_OF_CLAIM.where(_E.state == bindparam(_OPEN)))
_UPDATE = Statement(update(EFFECTS).where(_E.effect_id == bindparam(_ITS_ID)))
_INSERT = Statement(EFFECTS.insert().inline())
_LOCKED = func.pg_advisory_xact_lock(func.hashtextextended(bindparam(_ITS_ID), literal_column("0")))
_LOCKED_OF_EFFECT = func.pg_advisory_xact_lock(func.hashtextextended(_E.first_run_id, literal_column("0")))
_LOCK = Statement(select(_LOCKED.label("locked")))
_LOCK_OF_EFFECT = Statement(select(_LOCKED_OF_EFFECT.label("locked")).where(_E.effect_id == bindparam(_ITS_ID)))


def lock_chain(connection: Connection, first_run_id: str) -> None:
    """Let no other transaction write to this chain until this one ends.

    Everything that is decided by what a chain has spent is decided under this lock. SQLite has one writer anyway.
    """
    if connection.dialect.name == "postgresql":
        _LOCK.run(connection, {_ITS_ID: first_run_id})


def lock_chain_of(connection: Connection, effect_id: str) -> None:
    """Likewise for the chain of an effect that has a row; nothing where it has none."""
    if connection.dialect.name == "postgresql":
        _LOCK_OF_EFFECT.run(connection, {_ITS_ID: effect_id})


def find(connection: Connection, intent: Intent) -> Any | None:
    """Return the effect's row, or None. Raises EffectMismatch where it was recorded for another request."""
    row = _row(connection, intent.key.effect_id)
    if row is not None and row.digest != intent.digest:
        raise EffectMismatch(row.effect_id, row.digest, intent.digest)
    return row


def pick_up(connection: Connection, row: Any) -> Opened:
    """Return the result of a settled effect, or take over the claim that an earlier attempt left open."""
    if row.state == EffectState.INTENT:
        fence = row.fence + 1
        _update(connection, row.effect_id, fence=fence)
        return Opened(how=OpenedAs.DANGLING, fence=fence, process=process_of(row), marker_json=row.marker_json)
    result = EffectResult(state=EffectState(row.state), charged=spend_of(row), outcome_json=row.outcome_json)
    return Opened(how=OpenedAs.SETTLED, fence=row.fence, result=result)


def claim(connection: Connection, intent: Intent, released: Any | None, state: EffectState, spend: Spend) -> int:
    """Write the effect in ``state``, over the row of a released one where there is one, and return its fence."""
    fence = 1 if released is None else released.fence + 1
    values = {
        "state": state.value,
        "fence": fence,
        "reserved_microusd": intent.reservation.microusd,
        "reserved_input_tokens": intent.reservation.input_tokens,
        "reserved_output_tokens": intent.reservation.output_tokens,
        **spend_columns(spend),
        "process_json": None,
        "marker_json": "{}",
        "settled_at": None if state is EffectState.INTENT else clock(),
    }
    move(connection, intent.key.first_run_id, None if released is None else released._asdict(), values)
    if released is not None:
        _update(connection, released.effect_id, **values)
        return fence
    identity = {
        **intent.key.model_dump(),
        "effect_id": intent.key.effect_id,
        "kind": intent.kind.value,
        "name": intent.name,
        "digest": intent.digest,
    }
    history = {"outcome_json": "{}", "late_json": "[]", "created_at": clock()}
    _INSERT.run(connection, {**identity, **values, **history})
    return fence


def of_open_claim(connection: Connection, effect_id: str, fence: int) -> Any | None:
    """Return the effect's row if this claim is its latest and it has no result, None where the claim is lost."""
    its = {_ITS_ID: effect_id, _ITS_FENCE: fence, _OPEN: EffectState.INTENT.value}
    return _first(_ROW_OF_OPEN_CLAIM.run(connection, its))


def compare_and_set(connection: Connection, effect_id: str, fence: int, values: dict[str, Any]) -> str | None:
    """Write ``values`` if the claim still holds, and return the effect's chain; None where the claim is lost."""
    row = of_open_claim(connection, effect_id, fence)
    if row is None:
        return None
    # naming the fence keeps an update without other values a valid one
    _update(connection, effect_id, fence=fence, **values)
    if "state" in values:
        move(connection, row.first_run_id, row._asdict(), {**row._asdict(), **values})
    return str(row.first_run_id)


def settled_as(connection: Connection, effect_id: str, fence: int, result: EffectResult) -> str | None:
    """Return the effect's chain if this very result of this claim stands in the row, None for any other.

    That is the answer to a commit whose answer was lost.
    """
    row = _first(_ROW_OF_CLAIM.run(connection, {_ITS_ID: effect_id, _ITS_FENCE: fence}))
    if row is None or spend_of(row) != result.charged:
        return None
    same = (row.state, row.outcome_json) == (result.state.value, result.outcome_json)
    return str(row.first_run_id) if same else None


def record_late(connection: Connection, effect_id: str, fence: int, result: EffectResult) -> None:
    """Keep a result that came too late beside the one that counts."""
    row = _row(connection, effect_id)
    if row is not None:
        late = {"fence": fence, "at": clock(), "result": result.model_dump(mode="json")}
        text = json.dumps([*json.loads(row.late_json), late])
        _update(connection, effect_id, late_json=text)


def fenced(connection: Connection, effect_id: str, fence: int) -> Fenced:
    """Return the error of a claim that does not hold, saying why."""
    row = _row(connection, effect_id)
    if row is None:
        return Fenced(f"effect {effect_id} was never claimed")
    return Fenced(f"claim {fence} on effect {effect_id} is lost: it is {row.state} under claim {row.fence}")


def _row(connection: Connection, effect_id: str) -> Any | None:
    return _first(_ROW.run(connection, {_ITS_ID: effect_id}))


def _first(rows: list[Any]) -> Any | None:
    return rows[0] if rows else None


def _update(connection: Connection, effect_id: str, **values: Any) -> None:
    _UPDATE.run(connection, {_ITS_ID: effect_id, **values})


def reserved_spend(intent: Intent) -> Spend:
    """Return what the effect counts while it is open: its reservation, and itself."""
    model = intent.kind is EffectKind.MODEL
    return Spend(
        microusd=intent.reservation.microusd,
        tokens=intent.reservation.tokens,
        model_calls=1 if model else 0,
        tool_calls=0 if model else 1,
    )


def of_chain(first_run_id: str) -> Select[Any]:
    """Return the query for all effects of a chain, in the order in which they were claimed."""
    return select(EFFECTS).where(_E.first_run_id == first_run_id).order_by(_E.number)


def effect_row(row: Any) -> EffectRow:
    """Return a row as people and judges see it."""
    return EffectRow(
        effect_id=row.effect_id,
        kind=EffectKind(row.kind),
        name=row.name,
        state=EffectState(row.state),
        fence=row.fence,
        reserved=Reservation(
            microusd=row.reserved_microusd,
            input_tokens=row.reserved_input_tokens,
            output_tokens=row.reserved_output_tokens,
        ),
        charged=spend_of(row),
        outcome_json=row.outcome_json,
        late_json=row.late_json,
        created_at=row.created_at,
        settled_at=row.settled_at,
    )


def process_of(row: Any) -> ProcessGroup | None:
    """Return the process that the row's claim noted, or None."""
    return None if row.process_json is None else ProcessGroup.model_validate_json(row.process_json)


def spend_columns(spend: Spend) -> dict[str, int]:
    """Return the columns of what an effect counts."""
    return {f"spend_{meter}": getattr(spend, meter) for meter in METERS}


def clock() -> str:
    """Return the time of this process, for people: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
