"""A worker that performs one action and dies where it is told: ``python -m tests.activities.workspace_process``.

Arguments: data folder, which holds ``request.json``, and kill point: never, after_intent, after_note, after_effect
or after_outcome. It prints the reply as JSON.
"""

import os
import signal
import sys
from pathlib import Path

from activities.workspace_activities import WorkspaceActivities
from schemas.effects import EffectResult, Intent, LedgerTotals, Opened, ProcessGroup
from schemas.workspace import ActionRequest
from stores.artifacts import ArtifactStore
from stores.ledger import Ledger
from tests.support.aio import run_activity


class DyingLedger(Ledger):
    """A ledger whose process is killed at one point."""

    kill_point = "never"

    def _reached(self, point: str) -> None:
        if point == self.kill_point:
            os.kill(os.getpid(), signal.SIGKILL)

    def open(self, intent: Intent) -> Opened:
        opened = super().open(intent)
        self._reached("after_intent")
        return opened

    def note(
        self, effect_id: str, fence: int, *, process: ProcessGroup | None = None, marker_json: str | None = None
    ) -> None:
        super().note(effect_id, fence, process=process, marker_json=marker_json)
        self._reached("after_note")

    def close(self, effect_id: str, fence: int, result: EffectResult) -> LedgerTotals:
        self._reached("after_effect")
        totals = super().close(effect_id, fence, result)
        self._reached("after_outcome")
        return totals


def main() -> None:
    home = Path(sys.argv[1])
    ledger = DyingLedger(f"sqlite:///{home}/surefoot.db")
    ledger.kill_point = sys.argv[2]
    activities = WorkspaceActivities(ledger, ArtifactStore(home / "artifacts"), home / "workspaces")
    request = ActionRequest.model_validate_json((home / "request.json").read_text())
    reply = run_activity(activities.perform_action, request)
    sys.stdout.write(reply.model_dump_json() + "\n")


if __name__ == "__main__":
    main()
