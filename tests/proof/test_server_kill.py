"""SIGKILL of the server in mid-run, twice: all tasks end typed, and no signal that it acknowledged is lost."""

import asyncio
import itertools
import sys
from collections import Counter
from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from schemas.contract import STATE_QUERY
from schemas.effects import EffectState
from schemas.messages import Note
from schemas.outcome import OutcomeKind
from schemas.state import AgentState, EventKind
from stores.settings import Settings
from tests.proof.bench import Ended, Handle, ended, events_of, lines_of, rows_of, start, with_client
from tests.proof.counting import FILE, counting_spec
from tests.support.judging import assert_bill_equation, tally
from tests.support.server import DevServer
from tests.support.tasks import rehearsed_bill, worker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TASKS = 5
WORDS = 30
COMMAND_SECONDS = 0.4
THINKING_SECONDS = 0.2
KILLS_AFTER_SECONDS = (4.0, 6.0)
DOWN_SECONDS = (0.5, 8.0)  # the second outage outlasts the heartbeats: what runs then is lost to the server


class Steering:
    """Steers a task all the time, and remembers what the server acknowledged."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self.acknowledged: list[str] = []
        self.unanswered = 0

    async def run(self) -> None:
        """Send one message after the other, through both outages and beyond, until cancelled."""
        for number in itertools.count(1):
            text = f"n{number}"
            try:
                await self.handle.signal("steer", Note(by="ann", text=text), rpc_timeout=timedelta(seconds=5))
            except RPCError:  # no answer, or the task has ended: it may have come through or not
                self.unanswered += 1
            else:
                self.acknowledged.append(text)
            await asyncio.sleep(0.1)


async def kill_and_restart(server: DevServer) -> None:
    """Kill the server in mid-run, and again."""
    for after, down in zip(KILLS_AFTER_SECONDS, DOWN_SECONDS, strict=True):
        await asyncio.sleep(after)
        server.kill()
        await asyncio.sleep(down)
        await asyncio.to_thread(server.start)


def test_sigkill_of_the_server(home: DevServer) -> None:
    settings = home.settings

    async def work(client: Client) -> None:
        spec = counting_spec(settings, WORDS, COMMAND_SECONDS, THINKING_SECONDS)
        handles = [await start(client, settings, spec) for _ in range(TASKS)]
        steering = [Steering(handle) for handle in handles]
        sending = [asyncio.create_task(steered.run()) for steered in steering]
        await kill_and_restart(home)
        ends = await asyncio.gather(*(ended(handle) for handle in handles))
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        for steered, end in zip(steering, ends, strict=True):
            await judge(settings, steered, end)
        unknown = sum(states_of(settings, end)[EffectState.UNKNOWN] for end in ends)
        messages = sum(len(steered.acknowledged) for steered in steering)
        sys.stdout.write(
            f"\nserver killed twice: {TASKS} tasks ended, {messages} acknowledged messages, {unknown} unknown effects\n"
        )

    with worker(settings) as serving:
        with_client(settings, work)
    assert serving.said_later == b""  # a pipe that nobody reads would fill up and stop it


async def judge(settings: Settings, steered: Steering, end: Ended) -> None:
    """Check one task from outside."""
    assert end.outcome.kind is OutcomeKind.FINISHED, end.outcome
    rows = rows_of(settings, end.first_run_id)
    assert not states_of(settings, end)[EffectState.INTENT]
    result = tally(rows, lines_of(end.root / FILE))
    assert (result.lost, result.doubled) == ((), ())
    assert_bill_equation(rows, rehearsed_bill(settings), end.spend_microusd)
    state: AgentState = await end.handle.query(STATE_QUERY, result_type=AgentState)
    texts = [event.text for event in events_of(settings, state) if event.kind is EventKind.MESSAGE]
    received = Counter(text.split(": ")[1].split(" ")[0] for text in texts)
    assert len(steered.acknowledged) > 20
    assert [text for text in steered.acknowledged if received[text] != 1] == []


def states_of(settings: Settings, end: Ended) -> Counter[EffectState]:
    """Count the chain's rows by state."""
    return Counter(row.state for row in rows_of(settings, end.first_run_id))
