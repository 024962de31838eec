"""Whatever order attempts come in: no limit is passed by reservations, and sums are the sums of the rows."""

import functools
import itertools
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from schemas.budget import Limits, Spend, add, exceeded
from schemas.effects import SETTLED, EffectKind, EffectResult, EffectState, Intent, Opened, OpenedAs
from schemas.errors import Fenced
from stores.ledger import Ledger
from tests.stores.intents import intent
from tests.support.postgres import PostgresServer

LIMITS = Limits(microusd=500, tokens=200, model_calls=5, tool_calls=4)
SEQS = st.integers(1, 8)
FENCES = st.integers(1, 4)
NUMBERS = itertools.count()


def plus(left: Spend, right: Spend) -> Spend:
    return add(left, right)


class AttemptsInAnyOrder(RuleBasedStateMachine):
    """A chain of two runs whose attempts open, settle, release and void in any order, with claims old and new."""

    ledger: ClassVar[Ledger]
    """One database for all examples; each has a chain of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.chain = f"chain-{next(NUMBERS)}"
        self.settled_before = Spend()
        self.all_before = Spend()
        self.may_shrink = False

    def intent(self, seq: int, reserved: int) -> Intent:
        kind = EffectKind.ACTION if seq % 3 == 0 else EffectKind.MODEL
        run = f"{self.chain}-{seq % 2}"
        return intent(seq, run_id=run, first_run_id=self.chain, kind=kind, reserved=reserved, limits=LIMITS)

    @rule(seq=SEQS, reserved=st.integers(0, 300))
    def open(self, seq: int, reserved: int) -> None:
        self.expect_kept(self.ledger.open(self.intent(seq, reserved)))

    @rule(seq=SEQS)
    def void(self, seq: int) -> None:
        assert self.ledger.void(self.intent(seq, 1)).how in (OpenedAs.SETTLED, OpenedAs.DANGLING)

    def expect_kept(self, opened: Opened) -> None:
        if opened.how is OpenedAs.OVER_LIMIT:
            assert opened.over is not None
            assert opened.fence == 0

    @rule(seq=SEQS, fence=FENCES, share=st.integers(0, 100), state=st.sampled_from(sorted(SETTLED)))
    def close(self, seq: int, fence: int, share: int, state: EffectState) -> None:
        key = self.intent(seq, 0).key
        row = next((row for row in self.ledger.rows(self.chain) if row.effect_id == key.effect_id), None)
        held = row is not None and row.state is EffectState.INTENT and row.fence == fence
        charged = Spend(**{name: count * share // 100 for name, count in row.charged}) if row else Spend()
        try:
            self.ledger.close(key.effect_id, fence, EffectResult(state=state, charged=charged))
        except Fenced:
            assert not held
        else:
            assert held
            self.may_shrink = True

    @rule(seq=SEQS, fence=FENCES)
    def release(self, seq: int, fence: int) -> None:
        try:
            self.ledger.release(self.intent(seq, 0).key.effect_id, fence)
            self.may_shrink = True
        except Fenced:
            pass

    @invariant()
    def sums_are_those_of_the_rows_within_the_limits_and_only_grow(self) -> None:
        rows = self.ledger.rows(self.chain)
        totals = self.ledger.totals(self.chain)
        is_open = [row.state is EffectState.INTENT for row in rows]
        charged = [row.charged for row in rows]
        assert totals.open == functools.reduce(plus, itertools.compress(charged, is_open), Spend())
        assert plus(totals.spend, totals.open) == functools.reduce(plus, charged, Spend())
        assert totals.open_effects == sum(is_open)
        everything = plus(totals.spend, totals.open)
        assert exceeded(everything, LIMITS) is None
        for name in Spend.model_fields:
            assert getattr(totals.spend, name) >= getattr(self.settled_before, name), "settled spend only grows"
            if not self.may_shrink:
                assert getattr(everything, name) >= getattr(self.all_before, name)
        self.settled_before, self.all_before, self.may_shrink = totals.spend, everything, False


@pytest.mark.parametrize(("kind", "examples"), [("sqlite", 60), ("postgresql", 25)])
def test_attempts_in_any_order(tmp_path: Path, postgres: PostgresServer, kind: str, examples: int) -> None:
    AttemptsInAnyOrder.ledger = Ledger(f"sqlite:///{tmp_path}/surefoot.db" if kind == "sqlite" else postgres.fresh())
    run_state_machine_as_test(
        AttemptsInAnyOrder,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
