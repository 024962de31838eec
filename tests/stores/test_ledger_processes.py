"""Several processes at one ledger, and processes that die."""

import json
import signal
import time

from schemas.budget import Spend
from schemas.effects import EffectState, OpenedAs
from stores.ledger import Ledger
from tests.stores.intents import finish, intent, result, start, tell, wait_for_line

MODULE = "tests.stores.ledger_process"
PROCESSES = 4
PAIRS = 120


def test_four_processes_lose_no_row_and_each_shared_effect_is_claimed_by_one(database_url: str) -> None:
    processes = [start(MODULE, "pairs", database_url, str(number), str(PAIRS)) for number in range(PROCESSES)]
    assert [wait_for_line(process) for process in processes] == ["ready"] * PROCESSES
    for process in processes:  # all at once, none after another's end
        tell(process, "go")
    won = [int(finish(process)) for process in processes]
    assert sum(won) == PAIRS, "each shared effect is NEW exactly once"
    ledger = Ledger(database_url)
    rows = ledger.rows("run-1")
    assert len(rows) == PROCESSES * PAIRS + PAIRS
    totals = ledger.totals("run-1")
    closed = PROCESSES * PAIRS
    assert totals.spend == Spend(microusd=7 * closed, tokens=3 * closed, model_calls=closed)
    assert totals.open_effects == PAIRS


def test_processes_side_by_side_reach_a_limit_exactly_and_never_pass_it(database_url: str) -> None:
    each, allowed = 25, 40
    arguments = (str(each), str(100 * allowed))
    processes = [start(MODULE, "churn", database_url, str(number), *arguments) for number in range(PROCESSES)]
    assert [wait_for_line(process) for process in processes] == ["ready"] * PROCESSES
    for process in processes:
        tell(process, "go")
    assert sum(int(finish(process)) for process in processes) == allowed
    ledger = Ledger(database_url)
    rows = ledger.rows("run-1")
    totals = ledger.totals("run-1")
    assert sum(row.charged.microusd for row in rows) == totals.spend.microusd + totals.open.microusd == 100 * allowed
    assert totals.open_effects == sum(row.state is EffectState.INTENT for row in rows) > 0


def test_of_claims_in_the_same_instant_only_as_many_win_as_the_limit_leaves_room_for(database_url: str) -> None:
    rounds = 100
    processes = [start(MODULE, "race", database_url, str(number), str(rounds)) for number in range(PROCESSES)]
    assert [wait_for_line(process) for process in processes] == ["ready"] * PROCESSES
    begin = time.time() + 0.2
    for process in processes:
        tell(process, str(begin))
    won = [seq for process in processes for seq in json.loads(finish(process))]
    assert sorted(won) == list(range(rounds))


def test_a_process_killed_between_claim_and_result_leaves_a_claim_that_the_next_finds(database_url: str) -> None:
    process = start(MODULE, "die", database_url, "1")
    assert wait_for_line(process) == OpenedAs.NEW
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=10)
    ledger = Ledger(database_url)
    assert ledger.totals("run-1").open.microusd == 100, "its reservation still counts"
    opened = ledger.open(intent(1))
    assert opened.how is OpenedAs.DANGLING
    assert opened.marker_json == '{"before":"x"}'
    ledger.close(intent(1).key.effect_id, opened.fence, result(100))
    assert ledger.open(intent(1)).how is OpenedAs.SETTLED
