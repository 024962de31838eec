"""The connection breaks after PostgreSQL has committed and before it could say so."""

from collections.abc import Iterator

import pytest

from schemas.effects import EffectState, OpenedAs
from schemas.errors import Fenced, LedgerUnavailable
from stores.database import migrate, open_database
from stores.ledger import Ledger
from tests.stores.intents import intent, result
from tests.support.cable import Cable, breaking_cable
from tests.support.postgres import PostgresServer

EFFECT = intent(1).key.effect_id


@pytest.fixture
def cable(postgres: PostgresServer) -> Iterator[Cable]:
    with breaking_cable(postgres.port) as laid:
        yield laid


@pytest.fixture
def lossy(postgres: PostgresServer, cable: Cable) -> Iterator[Ledger]:
    """A patient ledger at the end of the cable."""
    url = postgres.fresh().replace(f":{postgres.port}/", f":{cable.port}/")
    migrate(url)
    engine = open_database(url)
    yield Ledger(engine, patient=True)
    engine.dispose()


def test_a_result_whose_commit_was_kept_is_recognized_and_not_taken_for_a_late_one(lossy: Ledger, cable: Cable) -> None:
    opened = lossy.open(intent(1))
    cable.lose_next.set()
    lossy.close(EFFECT, opened.fence, result(40))
    assert not cable.lose_next.is_set()
    [row] = lossy.rows("run-1")
    assert (row.state, row.charged.microusd, row.late_json) == (EffectState.DONE, 40, "[]")
    assert lossy.totals("run-1").spend.microusd == 40
    with pytest.raises(Fenced):
        lossy.close(EFFECT, opened.fence, result(40))


def test_a_claim_whose_commit_may_have_been_kept_is_not_acted_on(lossy: Ledger, cable: Cable) -> None:
    cable.lose_next.set()
    with pytest.raises(LedgerUnavailable):
        lossy.open(intent(1))
    assert lossy.open(intent(1)).how is OpenedAs.DANGLING
    assert lossy.totals("run-1").open_effects == 1


def test_notes_and_voids_go_through_and_a_claim_is_given_back_once(lossy: Ledger, cable: Cable) -> None:
    opened = lossy.open(intent(1))
    cable.lose_next.set()
    lossy.note(EFFECT, opened.fence, marker_json='{"a":"b"}')
    cable.lose_next.set()
    with pytest.raises(LedgerUnavailable):
        lossy.release(EFFECT, opened.fence)
    assert lossy.open(intent(1)).how is OpenedAs.NEW, "it had been given back"
    cable.lose_next.set()
    voided = lossy.void(intent(2))
    assert voided.result is not None
    assert voided.result.state is EffectState.VOID
