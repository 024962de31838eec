"""The ledger lets an effect happen once, and forgets no spend."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.budget import Limits, Spend
from schemas.effects import EffectKind, EffectState, OpenedAs, ProcessGroup
from schemas.errors import EffectMismatch, Fenced, LedgerUnavailable
from schemas.outcome import Outcome, OutcomeKind
from schemas.texts import BlobRef
from stores.database import open_database
from stores.ledger import Ledger
from stores.records import RunRow
from tests.stores.intents import intent, result

EFFECT = intent(1).key.effect_id


def test_an_effect_is_claimed_once_and_its_result_returned_ever_after(ledger: Ledger) -> None:
    opened = ledger.open(intent(1))
    assert opened.how is OpenedAs.NEW
    ledger.confirm(EFFECT, opened.fence)
    totals = ledger.close(EFFECT, opened.fence, result(40))
    assert totals == ledger.totals("run-1")
    again = ledger.open(intent(1))
    assert again.how is OpenedAs.SETTLED
    assert again.result == result(40)
    assert ledger.totals("run-1").spend == Spend(microusd=40, tokens=3, model_calls=1)


def test_the_same_id_with_another_request_is_an_error_in_every_state(ledger: Ledger) -> None:
    other = intent(1, digest="b" * 64)
    opened = ledger.open(intent(1))
    for act in (ledger.open, ledger.void):
        with pytest.raises(EffectMismatch, match=r"aaaaaaaaaaaa.*bbbbbbbbbbbb"):
            act(other)
    ledger.release(EFFECT, opened.fence)
    with pytest.raises(EffectMismatch):
        ledger.open(other)
    ledger.close(EFFECT, ledger.open(intent(1)).fence, result(1))
    with pytest.raises(EffectMismatch):
        ledger.open(other)


def test_an_effect_left_open_is_dangling_with_what_was_noted_and_the_first_attempt_can_write_no_more(
    ledger: Ledger,
) -> None:
    process = ProcessGroup(host="here", pid=12, started_ticks=34)
    first = ledger.open(intent(1))
    ledger.note(EFFECT, first.fence, marker_json='{"sha":"x"}')
    ledger.note(EFFECT, first.fence, process=process)
    second = ledger.open(intent(1))
    assert second.how is OpenedAs.DANGLING
    assert second.fence > first.fence
    assert second.process == process
    assert second.marker_json == '{"sha":"x"}'
    with pytest.raises(Fenced, match="is lost"):
        ledger.confirm(EFFECT, first.fence)
    with pytest.raises(Fenced):
        ledger.note(EFFECT, first.fence, marker_json="{}")
    with pytest.raises(Fenced):
        ledger.release(EFFECT, first.fence)
    ledger.confirm(EFFECT, second.fence)
    assert ledger.open(intent(1)).marker_json == '{"sha":"x"}'


def test_a_late_result_is_recorded_as_late_and_changes_nothing(ledger: Ledger) -> None:
    first = ledger.open(intent(1))
    second = ledger.open(intent(1))
    ledger.close(EFFECT, second.fence, result(100, EffectState.AMBIGUOUS))
    with pytest.raises(Fenced):
        ledger.close(EFFECT, first.fence, result(60))
    with pytest.raises(Fenced):
        ledger.close(EFFECT, second.fence, result(50))
    [row] = ledger.rows("run-1")
    assert (row.state, row.charged.microusd) == (EffectState.AMBIGUOUS, 100)
    late = json.loads(row.late_json)
    assert [(entry["fence"], entry["result"]["charged"]["microusd"]) for entry in late] == [(1, 60), (2, 50)]
    assert ledger.totals("run-1").spend.microusd == 100


def test_a_claim_that_was_never_made_is_fenced(ledger: Ledger) -> None:
    acts: list[Callable[[], object]] = [
        lambda: ledger.confirm("nobody", 1),
        lambda: ledger.note("nobody", 1, marker_json="{}"),
        lambda: ledger.close("nobody", 1, result(1)),
        lambda: ledger.release("nobody", 1),
    ]
    for act in acts:
        with pytest.raises(Fenced, match="never claimed"):
            act()


def test_only_a_settled_state_ends_an_effect(ledger: Ledger) -> None:
    opened = ledger.open(intent(1))
    for state in (EffectState.INTENT, EffectState.RELEASED):
        with pytest.raises(ValueError, match="does not end"):
            ledger.close(EFFECT, opened.fence, result(1, state))


def test_a_released_effect_counts_nothing_and_may_be_tried_again(ledger: Ledger) -> None:
    first = ledger.open(intent(1))
    ledger.note(EFFECT, first.fence, marker_json='{"old":1}')
    ledger.release(EFFECT, first.fence)
    assert ledger.totals("run-1").spend == ledger.totals("run-1").open == Spend()
    second = ledger.open(intent(1, reserved=70))
    assert second.how is OpenedAs.NEW
    assert second.fence > first.fence
    assert ledger.totals("run-1").open.microusd == 70
    with pytest.raises(Fenced):
        ledger.close(EFFECT, first.fence, result(1))
    assert ledger.open(intent(1)).marker_json == "{}"


def test_voiding_what_was_never_claimed_makes_a_late_first_attempt_lose(ledger: Ledger) -> None:
    voided = ledger.void(intent(1))
    assert voided.how is OpenedAs.SETTLED
    assert voided.result is not None
    assert voided.result.state is EffectState.VOID
    late = ledger.open(intent(1))
    assert late.how is OpenedAs.SETTLED
    assert late.result == voided.result
    assert ledger.void(intent(1)).result == voided.result
    assert ledger.totals("run-1").spend == Spend()


def test_voiding_a_claim_takes_it_over_and_a_result_is_returned(ledger: Ledger) -> None:
    first = ledger.open(intent(1))
    taken = ledger.void(intent(1))
    assert taken.how is OpenedAs.DANGLING
    with pytest.raises(Fenced):
        ledger.confirm(EFFECT, first.fence)
    ledger.close(EFFECT, taken.fence, result(5))
    assert ledger.void(intent(1)).result == result(5)


def test_voiding_a_released_effect_ends_it(ledger: Ledger) -> None:
    ledger.release(EFFECT, ledger.open(intent(1)).fence)
    ledger.void(intent(1))
    again = ledger.open(intent(1))
    assert again.result is not None
    assert again.result.state is EffectState.VOID


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Limits(microusd=199), "microusd"),
        (Limits(tokens=59), "tokens"),
        (Limits(model_calls=1), "model_calls"),
    ],
)
def test_an_intent_over_a_limit_is_not_claimed_and_one_that_reaches_it_is(
    ledger: Ledger, limits: Limits, name: str
) -> None:
    assert ledger.open(intent(1, limits=limits)).how is OpenedAs.NEW
    refused = ledger.open(intent(2, limits=limits))
    assert (refused.how, refused.over) == (OpenedAs.OVER_LIMIT, name)
    assert len(ledger.rows("run-1")) == 1
    exact = Limits(**{name: getattr(limits, name) + 1})
    assert ledger.open(intent(2, limits=exact)).how is OpenedAs.NEW


def test_actions_count_as_tool_calls_and_settling_lower_makes_room(ledger: Ledger) -> None:
    limits = Limits(tool_calls=2, microusd=150)
    for seq in (1, 2):
        action = intent(seq, kind=EffectKind.ACTION, reserved=0, limits=limits)
        assert ledger.open(action).how is OpenedAs.NEW
    third = ledger.open(intent(3, kind=EffectKind.ACTION, reserved=0, limits=limits))
    assert third.over == "tool_calls"
    model = ledger.open(intent(4, limits=limits))
    assert ledger.open(intent(5, limits=limits)).over == "microusd"
    ledger.close(intent(4).key.effect_id, model.fence, result(50))
    assert ledger.open(intent(5, limits=limits)).how is OpenedAs.NEW


def test_what_an_effect_was_opened_for_is_found_even_over_the_limit(ledger: Ledger) -> None:
    opened = ledger.open(intent(1, limits=Limits(microusd=100)))
    assert ledger.open(intent(1, limits=Limits(microusd=1))).how is OpenedAs.DANGLING
    ledger.close(EFFECT, opened.fence + 1, result(100))
    assert ledger.open(intent(1, limits=Limits(microusd=1))).how is OpenedAs.SETTLED


def test_a_reset_forgets_no_spend_and_another_chain_shares_none(ledger: Ledger) -> None:
    for run_id, charged in (("run-1", 40), ("run-after-reset", 2)):
        own = intent(1, run_id=run_id)
        ledger.close(own.key.effect_id, ledger.open(own).fence, result(charged))
    other = intent(1, run_id="run-2", first_run_id="run-2")
    assert ledger.open(other).how is OpenedAs.NEW
    assert ledger.totals("run-1").spend.microusd == 42
    assert [row.effect_id for row in ledger.rows("run-1")] == ["t:run-1:1", "t:run-after-reset:1"]
    limited = intent(2, run_id="run-after-reset", limits=Limits(microusd=141))
    assert ledger.open(limited).over == "microusd"


def test_totals_tell_settled_open_ambiguous_and_unknown_apart(ledger: Ledger) -> None:
    ends = {1: EffectState.DONE, 2: EffectState.AMBIGUOUS, 3: EffectState.UNKNOWN, 4: EffectState.AMBIGUOUS}
    for seq, state in ends.items():
        kind = EffectKind.ACTION if state is EffectState.UNKNOWN else EffectKind.MODEL
        own = intent(seq, kind=kind)
        ledger.close(own.key.effect_id, ledger.open(own).fence, result(10, state))
    ledger.open(intent(5))
    totals = ledger.totals("run-1")
    assert totals.spend == Spend(microusd=40, tokens=12, model_calls=4)
    assert totals.open == Spend(microusd=100, tokens=30, model_calls=1)
    assert (totals.reserved_ambiguous_microusd, totals.open_effects, totals.unknown_effects) == (200, 1, 1)
    assert [effect.effect_id for effect in ledger.unsettled("run-1")] == [intent(5).key.effect_id]
    assert ledger.totals("nobody").spend == Spend()


def test_a_run_is_recorded_once_and_the_newest_comes_first(ledger: Ledger) -> None:
    def row(workflow_id: str, run_id: str, microusd: int = 1) -> RunRow:
        return RunRow(
            workflow_id=workflow_id,
            run_id=run_id,
            first_run_id=run_id,
            name="task",
            outcome=Outcome(kind=OutcomeKind.FINISHED),
            spend=Spend(microusd=microusd),
            started_at="2026-01-01T00:00:00Z",
            ended_at="2026-01-01T00:01:00Z",
            state=BlobRef(sha256="c" * 64, size_bytes=2),
        )

    for recorded in (row("t", "r1"), row("u", "r2"), row("t", "r3"), row("t", "r3", microusd=9)):
        ledger.record_run(recorded)
    assert ledger.run("t") == row("t", "r3")
    assert ledger.run("nobody") is None
    assert [found.run_id for found in ledger.runs(2)] == ["r3", "r2"]


def test_a_file_that_others_hold_too_long_is_unavailable_and_unchanged(tmp_path: Path, sqlite_url: str) -> None:
    ledger = Ledger(sqlite_url)
    engine = open_database(sqlite_url, busy_timeout_ms=50)
    holder = sqlite3.connect(tmp_path / "surefoot.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerUnavailable, match="locked"):
        Ledger(engine).open(intent(1))
    assert ledger.totals("run-1").open_effects == 0, "reading does not wait for writers"
    holder.execute("ROLLBACK")
    holder.close()
    engine.dispose()
    assert ledger.open(intent(1)).how is OpenedAs.NEW
