"""What the effects of a chain add up to, by state."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from sqlalchemy import Connection, bindparam, select

from schemas.budget import Spend, add
from schemas.effects import EffectState, LedgerTotals
from stores.statements import Statement
from stores.tables import CHAIN_SUMS

METERS = tuple(Spend.model_fields)
_SUMMED = ("reserved_microusd", *(f"spend_{meter}" for meter in METERS))


@cache  # building it costs several times as much as running it
def _counting(dialect: str) -> Statement:
    """Return the statement that counts; of the dialects only the database's own is imported, which is loaded anyway."""
    new = import_module(f"sqlalchemy.dialects.{dialect}").insert(CHAIN_SUMS).inline()
    counted = {name: CHAIN_SUMS.c[name] + new.excluded[name] for name in ("effects", *_SUMMED)}
    return Statement(new.on_conflict_do_update(index_elements=["first_run_id", "state"], set_=counted))


_CHAIN = "chain"
_TOTALS = Statement(select(CHAIN_SUMS).where(CHAIN_SUMS.c.first_run_id == bindparam(_CHAIN)))


def spend_of(row: Any) -> Spend:
    """Return what a row of effects or of their sums counts."""
    return Spend(**{meter: getattr(row, f"spend_{meter}") for meter in METERS})


def move(connection: Connection, first_run_id: str, before: Mapping[Any, Any] | None, after: Mapping[Any, Any]) -> None:
    """Count an effect as ``after`` and no longer as ``before``; both name state, reservation and spend."""
    counted = [(after, 1)] if before is None else [(before, -1), (after, 1)]
    counting = _counting(connection.dialect.name)
    counting.run(connection, *(_counted(first_run_id, effect, sign) for effect, sign in counted))


def totals(connection: Connection, first_run_id: str) -> LedgerTotals:
    """Return the chain's figures; zero for a chain without effects."""
    by_state = {EffectState(row.state): row for row in _TOTALS.run(connection, {_CHAIN: first_run_id})}
    settled = Spend()
    for state, row in by_state.items():
        if state is not EffectState.INTENT:
            settled = add(settled, spend_of(row))
    intents, ambiguous, unknown = (
        by_state.get(state) for state in (EffectState.INTENT, EffectState.AMBIGUOUS, EffectState.UNKNOWN)
    )
    return LedgerTotals(
        spend=settled,
        open=spend_of(intents) if intents else Spend(),
        reserved_ambiguous_microusd=ambiguous.reserved_microusd if ambiguous else 0,
        open_effects=intents.effects if intents else 0,
        unknown_effects=unknown.effects if unknown else 0,
    )


def _counted(first_run_id: str, effect: Mapping[Any, Any], sign: int) -> dict[str, Any]:
    identity = {"first_run_id": first_run_id, "state": effect["state"], "effects": sign}
    return {**identity, **{name: sign * effect[name] for name in _SUMMED}}
