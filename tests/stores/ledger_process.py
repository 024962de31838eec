"""A process that uses a ledger: ``python -m tests.stores.ledger_process <what> <database url> <arguments…>``."""

import os
import sys

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
    if sys.argv[1] == "pairs":
        pairs(*sys.argv[2:])
    else:
        die(*sys.argv[2:])
