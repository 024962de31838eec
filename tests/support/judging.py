"""Judges a run from the outside: from the model's own record and the ledger's rows, never from the workflow's word."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from schemas.effects import EffectKind, EffectState
from stores.records import EffectRow

Bill = Iterable[dict[str, Any]]


def bill_of(rows: list[EffectRow], bill: Bill) -> dict[str, int]:
    """Return what was billed for each effect of ``rows``, in micro-dollars; raise where one was billed twice."""
    ids = {row.effect_id for row in rows}
    lines = [line for line in bill if line["effect_id"] in ids]
    twice = [effect for effect, times in Counter(line["effect_id"] for line in lines).items() if times > 1]
    assert not twice, f"billed more than once: {twice}"
    return {line["effect_id"]: line["microusd"] for line in lines}


def assert_bill_equation(rows: list[EffectRow], bill: Bill, spend_microusd: int) -> None:
    """Check: spend − bill = Σ over ambiguous calls of (what was reserved − what was billed for it)."""
    billed = bill_of(rows, bill)
    ambiguous = [row for row in rows if row.state is EffectState.AMBIGUOUS]
    explained = sum(row.reserved.microusd - billed.get(row.effect_id, 0) for row in ambiguous)
    assert spend_microusd - sum(billed.values()) == explained, json.dumps(billed)
    known = {row.effect_id for row in rows if row.kind is EffectKind.MODEL}
    assert set(billed) <= known
    for row in rows:
        if row.kind is EffectKind.MODEL and row.state in (EffectState.DONE, EffectState.AMBIGUOUS):
            _assert_charged_what_is_known(row, billed)


def _assert_charged_what_is_known(row: EffectRow, billed: dict[str, int]) -> None:
    """Check one ended call: charged what was billed where the usage is known, and its reservation where it is not."""
    known = json.loads(row.outcome_json)["usage_known"]
    assert known == (row.state is EffectState.DONE), f"{row.effect_id} is {row.state}, usage known: {known}"
    right = billed[row.effect_id] if known else row.reserved.microusd
    assert row.charged.microusd == right, f"{row.effect_id} was charged another amount"


@dataclass(frozen=True)
class Tally:
    """What became of commands of which each appends one word of its own to a file."""

    done: int
    """Rows that say done."""
    unknown: int
    """Rows that say unknown."""
    lost: tuple[str, ...]
    """Words of commands that are said to be done and are not in the file."""
    doubled: tuple[str, ...]
    """Words that stand in the file more often than their commands can explain."""


def tally(rows: list[EffectRow], lines: list[str]) -> Tally:
    """Compare the rows of ``echo WORD >> …`` commands with the lines that are in the file."""
    done, unknown = Counter[str](), Counter[str]()
    for row in rows:
        word = re.search(r"echo (\w+) >>", row.outcome_json)
        if word and row.kind is EffectKind.ACTION:
            done[word[1]] += row.state is EffectState.DONE
            unknown[word[1]] += row.state is EffectState.UNKNOWN
    found = Counter(lines)
    words = sorted({*done, *found})
    return Tally(
        done=done.total(),
        unknown=unknown.total(),
        lost=tuple(word for word in words if found[word] < done[word]),
        doubled=tuple(word for word in words if found[word] > done[word] + unknown[word]),
    )
