"""Several processes at one ledger, and processes that die."""

import signal

from schemas.budget import Spend
from schemas.effects import OpenedAs
from stores.ledger import Ledger
from tests.stores.intents import finish, intent, result, start, tell, wait_for_line

MODULE = "tests.stores.ledger_process"
PROCESSES = 4
PAIRS = 120


def test_four_processes_lose_no_row_and_each_shared_effect_is_claimed_by_one(url: str) -> None:
    processes = [start(MODULE, "pairs", url, str(number), str(PAIRS)) for number in range(PROCESSES)]
    assert [wait_for_line(process) for process in processes] == ["ready"] * PROCESSES
    for process in processes:  # all at once, none after another's end
        tell(process, "go")
    won = [int(finish(process)) for process in processes]
    assert sum(won) == PAIRS, "each shared effect is NEW exactly once"
    ledger = Ledger(url)
    rows = ledger.rows("run-1")
    assert len(rows) == PROCESSES * PAIRS + PAIRS
    totals = ledger.totals("run-1")
    closed = PROCESSES * PAIRS
    assert totals.spend == Spend(microusd=7 * closed, tokens=3 * closed, model_calls=closed)
    assert totals.open_effects == PAIRS


def test_a_process_killed_between_claim_and_result_leaves_a_claim_that_the_next_finds(url: str) -> None:
    process = start(MODULE, "die", url, "1")
    assert wait_for_line(process) == OpenedAs.NEW
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    ledger = Ledger(url)
    assert ledger.totals("run-1").open.microusd == 100, "its reservation still counts"
    opened = ledger.open(intent(1))
    assert opened.how is OpenedAs.DANGLING
    assert opened.marker_json == '{"before":"x"}'
    ledger.close(intent(1).key.effect_id, opened.fence, result(100))
    assert ledger.open(intent(1)).how is OpenedAs.SETTLED
