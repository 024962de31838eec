"""Intents and results for tests, and processes that use the ledger."""

import os
import subprocess
import sys
from pathlib import Path

from schemas.budget import Limits, Reservation, Spend
from schemas.effects import EffectKind, EffectResult, EffectState, Intent
from schemas.ids import CallKey

ROOT = Path(__file__).parents[2]


def intent(
    seq: int,
    *,
    run_id: str = "run-1",
    first_run_id: str = "run-1",
    kind: EffectKind = EffectKind.MODEL,
    digest: str = "a" * 64,
    reserved: int = 100,
    limits: Limits | None = None,
) -> Intent:
    """Return an intent of task ``t`` that reserves ``reserved`` micro-dollars and 30 tokens."""
    return Intent(
        key=CallKey(workflow_id="t", run_id=run_id, first_run_id=first_run_id, seq=seq),
        kind=kind,
        name="plan" if kind is EffectKind.MODEL else "run",
        digest=digest,
        reservation=Reservation(microusd=reserved, input_tokens=20, output_tokens=10),
        limits=limits or Limits(),
    )


def result(microusd: int, state: EffectState = EffectState.DONE) -> EffectResult:
    """Return a result that charged ``microusd``, 3 tokens and a model call."""
    return EffectResult(state=state, charged=Spend(microusd=microusd, tokens=3, model_calls=1), outcome_json='{"a":1}')


def start(module: str, *arguments: str) -> subprocess.Popen[str]:
    """Start ``python -m module`` with pipes."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for the process to end well, and return what it still printed."""
    output, errors = process.communicate(timeout=90)
    assert process.returncode == 0, errors
    return output


def tell(process: subprocess.Popen[str], line: str) -> None:
    """Send a line to the process."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def wait_for_line(process: subprocess.Popen[str]) -> str:
    """Return the next line that the process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def say(word: object) -> None:
    """Print a line at once, for the process that waits for it."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()
