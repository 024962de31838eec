"""Recorded histories replay with today's code, in a fresh process and without any cache."""

import json
import subprocess
import sys
from pathlib import Path

HISTORIES = Path(__file__).parent.parent / "histories"


def replayed(*flags: str) -> dict[str, str | None]:
    """Replay all recorded histories in a fresh process."""
    command = [sys.executable, "-m", "tests.support.replay", str(HISTORIES), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=HISTORIES.parent.parent)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]  # the core logs there too
    return {line["name"]: line["failure"] for line in lines}


def test_every_recorded_history_replays() -> None:
    results = replayed()
    assert set(results) >= {"finished", "stopped", "replanned", "cancelled", "handed-over-1", "handed-over-2", "failed"}
    assert {name: failure for name, failure in results.items() if failure} == {}


def test_a_careless_change_is_caught() -> None:
    results = replayed("--broken")
    assert results
    assert all(failure and "Nondeterminism" in failure for failure in results.values()), results
