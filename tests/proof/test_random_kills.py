"""SIGKILL of the worker at random instants, again and again, under tasks side by side.

``CHAOS_SEED`` in the environment chooses other instants.
"""

import asyncio
import contextlib
import os
import random
import sys
from dataclasses import dataclass, field

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from schemas.effects import EffectKind, EffectState
from schemas.messages import Note
from schemas.outcome import OutcomeKind
from stores.settings import Settings
from tests.proof.bench import Ended, ended, lines_of, rows_of, start, with_client
from tests.proof.counting import ENOUGH, FILE, counting_spec
from tests.support.judging import assert_bill_equation, bill_of, tally
from tests.support.server import DevServer
from tests.support.tasks import WorkerProcess, rehearsed_bill, worker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TASKS = 6
KILLS = 15
WORDS = 200  # more than they come to: the tasks end when they are told to
COMMAND_SECONDS = 0.6
THINKING_SECONDS = 0.3
LONGEST_LIFE_SECONDS = 8.0
SEED = int(os.environ.get("CHAOS_SEED", "20260727"))


@dataclass
class Figures:
    """What the tasks have come to in all."""

    finished: int = 0
    done: int = 0
    unknown: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    calls: int = 0
    ambiguous: int = 0
    unexplained_microusd: int = 0

    def __str__(self) -> str:
        """Return them in one line."""
        return (
            f"seed {SEED}: {TASKS} tasks, {self.finished} finished, {KILLS} kills, {self.done} effects done, "
            f"{self.unknown} unknown, "
            f"{len(self.lost)} lost, {len(self.doubled)} doubled; {self.calls} model calls, {self.ambiguous} "
            f"ambiguous, {self.unexplained_microusd} micro-dollars unexplained"
        )


async def kill_again_and_again(settings: Settings) -> None:
    """Let one worker after the other live for a random time."""
    instants = random.Random(SEED)
    for _ in range(KILLS):
        doomed = await asyncio.to_thread(WorkerProcess, settings, "--without-litellm")
        await asyncio.sleep(instants.uniform(0.1, LONGEST_LIFE_SECONDS))
        assert doomed.alive
        doomed.kill()


def test_sigkill_at_random_instants(home: DevServer) -> None:
    settings = home.settings

    async def work(client: Client) -> None:
        spec = counting_spec(settings, WORDS, COMMAND_SECONDS, THINKING_SECONDS)
        handles = [await start(client, settings, spec) for _ in range(TASKS)]
        await kill_again_and_again(settings)
        for handle in handles:
            with contextlib.suppress(RPCError):  # it has ended: its outcome tells why
                await handle.signal("steer", Note(by="ann", text=ENOUGH))
        with worker(settings):
            ends = await asyncio.gather(*(ended(handle) for handle in handles))
        figures = Figures()
        for end in ends:
            count(settings, end, figures)
        sys.stdout.write(f"\n{figures}\n")
        assert (figures.lost, figures.doubled, figures.unexplained_microusd) == ([], [], 0)
        assert figures.done > TASKS * 5  # they have worked between the kills
        for end in ends:
            assert end.outcome.label == "FINISHED", end.outcome
            assert_bill_equation(rows_of(settings, end.first_run_id), rehearsed_bill(settings), end.spend_microusd)

    with_client(settings, work)


def count(settings: Settings, end: Ended, figures: Figures) -> None:
    """Add one task's figures."""
    rows = rows_of(settings, end.first_run_id)
    assert all(row.state is not EffectState.INTENT for row in rows)
    result = tally(rows, lines_of(end.root / FILE))
    figures.finished += end.outcome.kind is OutcomeKind.FINISHED
    figures.done += result.done
    figures.unknown += result.unknown
    figures.lost += result.lost
    figures.doubled += result.doubled
    calls = [row for row in rows if row.kind is EffectKind.MODEL]
    ambiguous = [row for row in calls if row.state is EffectState.AMBIGUOUS]
    figures.calls += len(calls)
    figures.ambiguous += len(ambiguous)
    billed = bill_of(rows, rehearsed_bill(settings))
    explained = sum(row.reserved.microusd - billed.get(row.effect_id, 0) for row in ambiguous)
    figures.unexplained_microusd += abs(end.spend_microusd - sum(billed.values()) - explained)
