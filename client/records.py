"""A task's figures from the records of others: the model's own, and the ledger's."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field

from client.session import Session
from schemas.effects import EffectKind, EffectState


@dataclass(frozen=True)
class Figures:
    """What the records say at one moment. Money in micro-dollars."""

    answered: int
    """Requests in the model's record."""
    answered_twice: int
    """Effects that are there more than once."""
    billed: int
    """Sum of the model's record."""
    spent: int
    """Sum of the ledger's charges for settled effects."""
    unexplained: int
    """Spend − bill − Σ over ambiguous calls of (reserved − billed): zero, or money is lost."""
    states: Counter[str] = field(default_factory=Counter)
    """Actions by their state in the ledger; ``intent`` counts every open effect."""


async def figures(session: Session, task_id: str) -> Figures:
    """Return the figures of a task that a rehearsed model serves."""
    return await asyncio.to_thread(_figures, session, (await session.tasks.look(task_id)).first_run_id)


def _figures(session: Session, first_run_id: str) -> Figures:
    rows = session.tasks.effects(first_run_id)
    ids = {row.effect_id for row in rows}
    record = session.settings.rehearsed_record
    lines = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    bill = [line for line in lines if line["effect_id"] in ids]
    times = Counter(line["effect_id"] for line in bill)
    billed: Counter[str] = Counter()
    for line in bill:
        billed[line["effect_id"]] += line["microusd"]
    settled = [row for row in rows if row.state is not EffectState.INTENT]
    spent = sum(row.charged.microusd for row in settled)
    ambiguous = [row for row in settled if row.state is EffectState.AMBIGUOUS]
    explained = sum(row.reserved.microusd - billed[row.effect_id] for row in ambiguous)
    states = Counter(row.state.value for row in settled if row.kind is EffectKind.ACTION)
    states["intent"] = len(rows) - len(settled)
    return Figures(
        answered=len(times),
        answered_twice=sum(count > 1 for count in times.values()),
        billed=sum(billed.values()),
        spent=spent,
        unexplained=spent - sum(billed.values()) - explained,
        states=states,
    )
