"""A process that uses a ledger: ``python -m tests.stores.ledger_process <what> <database url> <arguments…>``."""

import json
import os
import sys
import time
from collections.abc import Callable

from schemas.budget import Limits
from schemas.effects import OpenedAs
from stores.ledger import Ledger
from tests.stores.intents import intent, result, say


def pairs(url: str, number: str, count: str) -> None:
    """Open and close ``count`` effects of its own, and claim as many that others claim as well."""
    ledger = Ledger(url)
    say("ready")
    sys.stdin.readline()
    won = 0
    for seq in range(int(count)):
        own = intent(seq, run_id=f"process-{number}")
        opened = ledger.open(own)
        assert opened.how is OpenedAs.NEW, opened
        ledger.confirm(own.key.effect_id, opened.fence)
        ledger.close(own.key.effect_id, opened.fence, result(7))
        won += ledger.open(intent(seq, run_id="shared")).how is OpenedAs.NEW
    say(won)


def churn(url: str, number: str, count: str, limit: str) -> None:
    """Claim, give back, claim again and settle, in one chain with others, under a limit that all reach together."""
    ledger = Ledger(url)
    limits = Limits(microusd=int(limit))
    say("ready")
    sys.stdin.readline()
    won = 0
    for seq in range(int(count)):
        own = intent(seq, run_id=f"process-{number}", limits=limits)
        effect_id = own.key.effect_id
        opened = ledger.open(own)
        if opened.how is OpenedAs.NEW and seq % 3 == 0:
            ledger.release(effect_id, opened.fence)
            opened = ledger.open(own)
        if opened.how is OpenedAs.NEW:
            won += 1
            if seq % 2:
                ledger.close(effect_id, opened.fence, result(own.reservation.microusd))
    say(won)


def race(url: str, number: str, rounds: str) -> None:
    """Claim in one chain after the other, in the same instants as others, where the limit leaves room for one."""
    ledger = Ledger(url)
    say("ready")
    begin = float(sys.stdin.readline())
    won = []
    for seq in range(int(rounds)):
        time.sleep(max(0.0, begin + 0.03 * seq - time.time()))
        own = intent(seq, run_id=f"process-{number}", first_run_id=f"race-{seq}", limits=Limits(model_calls=1))
        if ledger.open(own).how is OpenedAs.NEW:
            won.append(seq)
    say(json.dumps(won))


def die(url: str, seq: str) -> None:
    """Open an effect, note a marker, and wait to be killed."""
    ledger = Ledger(url)
    own = intent(int(seq))
    opened = ledger.open(own)
    ledger.note(own.key.effect_id, opened.fence, marker_json='{"before":"x"}')
    say(opened.how.value)
    sys.stdin.readline()
    os._exit(1)


if __name__ == "__main__":
    parts: dict[str, Callable[..., None]] = {"pairs": pairs, "churn": churn, "race": race, "die": die}
    parts[sys.argv[1]](*sys.argv[2:])
