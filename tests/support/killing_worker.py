"""A worker that kills itself with SIGKILL at one named boundary of one effect, once.

Test-only: the kill is wrapped around the ledger at the composition root; the product has no such switch.
``KILL`` in the environment is JSON: {"point", "name", "nth", "flag"}; ``flag`` is a file that says it has happened.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from schemas.effects import EffectResult, Intent, LedgerTotals, Opened, OpenedAs
from stores.ledger import Ledger
from stores.settings import load_settings
from workers.logs import log_json
from workers.main import Serves, make_parts, model_gateway, serve
from workers.roles import Parts
from workers.telemetry import start_runtime

POINTS = ("before_intent", "after_intent", "after_effect", "after_outcome", "between_activities")


class Killer:
    """Kills this process once, at the ``nth`` time that ``name`` comes to ``point``."""

    def __init__(self, point: str, name: str, nth: int, flag: str) -> None:
        assert point in POINTS, point
        self.point, self.name, self.nth, self.flag = point, name, nth, Path(flag)
        self.seen = 0

    def at(self, point: str, name: str) -> None:
        """Kill if this is the place and it has not happened yet."""
        if point != self.point or name != self.name or self.flag.exists():
            return
        self.seen += 1
        if self.seen == self.nth:
            self.flag.write_text(str(time.time()))
            if point == "between_activities":
                threading.Timer(0.05, _die).start()  # the result is on its way to the server meanwhile
            else:
                _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KillingLedger(Ledger):
    """The real ledger with a killer at its boundaries."""

    def __init__(self, url: str, killer: Killer) -> None:
        super().__init__(url)
        self.killer = killer
        self.names: dict[str, str] = {}

    def open(self, intent: Intent) -> Opened:
        self.names[intent.key.effect_id] = intent.name
        self.killer.at("before_intent", intent.name)
        opened = super().open(intent)
        if opened.how is OpenedAs.NEW:
            self.killer.at("after_intent", intent.name)
        return opened

    def close(self, effect_id: str, fence: int, result: EffectResult) -> LedgerTotals:
        name = self.names.get(effect_id, "")
        self.killer.at("after_effect", name)
        totals = super().close(effect_id, fence, result)
        self.killer.at("after_outcome", name)
        self.killer.at("between_activities", name)
        return totals


def main() -> None:
    settings = load_settings()
    log_json(settings.log_level)
    start_runtime(settings)
    model = None if "--without-litellm" in sys.argv else model_gateway()
    parts = make_parts(settings, model)
    killer = Killer(**json.loads(os.environ["KILL"]))
    parts = Parts(
        ledger=KillingLedger(settings.database_url, killer), artifacts=parts.artifacts, gateways=parts.gateways
    )
    asyncio.run(serve(settings, parts, Serves.ALL))


if __name__ == "__main__":
    main()
