"""A run of hundreds of steps through forced continue-as-new: the state stays small and no record is lost."""

import sys

import pytest
from temporalio.client import Client

from schemas.effects import EffectKind
from schemas.messages import Note
from schemas.outcome import OutcomeKind, StopReason
from schemas.state import AgentState, EventKind, Ref
from schemas.task import Bounds, Caps, TaskSpec
from stores.settings import Settings
from tests.proof.bench import (
    Ended,
    chain_of,
    ended,
    events_of,
    final_state,
    one_step,
    rehearsed_spec,
    rows_of,
    start,
    with_client,
)
from tests.support.judging import assert_bill_equation
from tests.support.running import until
from tests.support.server import DevServer
from tests.support.tasks import WorkerProcess, commands, file_requirement, plan, rehearsed_bill, reply, verdict

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MAX_STATE_BYTES = 256_000
CAPS = Caps(events=400)
MOST_EVENTS = CAPS.events + 200  # a run hands over at the next iteration, and closing takes some more


async def judge(
    client: Client, settings: Settings, end: Ended, least_runs: int = 4, most_events: int = MOST_EVENTS
) -> AgentState:
    """Check the chain's size and its records, and return its final state."""
    state = final_state(settings, end)
    size = len(state.model_dump_json().encode())
    runs = await chain_of(client, end.handle.id)
    rows = rows_of(settings, end.first_run_id)
    events = events_of(settings, state)
    sys.stdout.write(
        f"\n{len(state.plans)} plan versions, {len(rows)} effects, {len(events)} events in {len(state.archive)} chunks "
        f"and the state, {len(runs)} runs of at most {max(run.events for run in runs):,} events and "
        f"{max(run.history_bytes for run in runs):,} bytes; final state {size:,} bytes\n"
    )
    assert size < MAX_STATE_BYTES
    assert len(runs) == state.counters.runs >= least_runs
    assert all(run.events < most_events for run in runs)
    numbers = [int(event.id[1:]) for event in events]
    assert numbers == sorted(set(numbers))  # each once, in order
    sequence = sorted(numbers + [int(row.effect_id.rsplit(":", 1)[1]) for row in rows])
    assert len(set(sequence)) == len(sequence)  # over all runs of the chain no number is given twice
    observed = [event.refs[Ref.EFFECT] for event in events if event.kind is EventKind.OBSERVATION]
    assert observed == [row.effect_id for row in rows if row.kind is EffectKind.ACTION]
    assert sum(event.kind is EventKind.PLAN_VERSION for event in events) == state.versions_used
    messages = [event.place for event in events if event.kind is EventKind.MESSAGE]
    assert messages == [f"m{number}" for number in range(1, state.messages.received + 1)]
    assert_bill_equation(rows, rehearsed_bill(settings), end.spend_microusd)
    return state


def spec_of(settings: Settings, script: list[dict[str, object]], **changes: object) -> TaskSpec:
    """Return a task that never meets its requirement."""
    return rehearsed_spec(settings, script, requirements=(file_requirement("never.txt"),), caps=CAPS, **changes)


def test_three_hundred_iterations(home: DevServer, serving: WorkerProcess) -> None:
    """A hundred plan versions of three iterations each, none of which gets anywhere."""
    again = reply("replan", plan("Try again"))
    script = one_step("Try", again, reply("propose_action", commands("date +%N > tried.txt")))
    bounds = Bounds(max_plan_versions=100, max_plan_step_iterations=3)

    async def work(client: Client) -> None:
        end = await ended(await start(client, home.settings, spec_of(home.settings, script, bounds=bounds)), 600)
        assert end.outcome.reason is StopReason.MAX_PLAN_VERSIONS
        state = await judge(client, home.settings, end)
        assert state.versions_used == 100
        tried = [row for row in rows_of(home.settings, end.first_run_id) if row.name == "run"]
        assert len(tried) == 300

    with_client(home.settings, work)


def test_three_hundred_done_steps(home: DevServer, serving: WorkerProcess) -> None:
    """Every step is done, yet the requirement is not: each plan version carries on after all steps before."""
    steps = plan(*(f"Look at the files, part {number} of twelve, and say what is there" for number in range(1, 13)))
    script = [
        reply("plan", steps),
        reply("replan", steps),
        reply(
            "is_step_done",
            verdict(True, "{{label}}", "in the workspace"),
            when=[r"^<<<DATA (?P<label>f\d+) [0-9a-f]+>>>\n.*files? in the workspace"],
        ),
        reply("summarize_plan_step", "Looked at the files."),
    ]

    async def work(client: Client) -> None:
        bounds = Bounds(max_plan_versions=25)
        end = await ended(await start(client, home.settings, spec_of(home.settings, script, bounds=bounds)), 600)
        assert end.outcome.reason is StopReason.MAX_PLAN_VERSIONS
        state = await judge(client, home.settings, end)
        done = [row for row in rows_of(home.settings, end.first_run_id) if row.name == "summarize_plan_step"]
        assert len(done) == 300
        assert state.plans[-1].version == 25

    with_client(home.settings, work)


def test_three_hundred_actions_in_one_step(home: DevServer, serving: WorkerProcess) -> None:
    script = one_step("Try", reply("propose_action", commands(*["date +%N | tee tried.txt"] * 15)))
    bounds = Bounds(max_plan_versions=1, max_plan_step_iterations=20, max_plan_step_actions=15)

    async def work(client: Client) -> None:
        end = await ended(await start(client, home.settings, spec_of(home.settings, script, bounds=bounds)), 600)
        assert end.outcome.reason is StopReason.MAX_PLAN_VERSIONS
        await judge(client, home.settings, end)
        tried = [row for row in rows_of(home.settings, end.first_run_id) if row.name == "run"]
        assert len(tried) == 300

    with_client(home.settings, work)


def test_hundreds_of_long_messages(home: DevServer, serving: WorkerProcess) -> None:
    """Messages as long as they may be, of characters of four bytes each, while nothing moves."""
    script = [reply("plan", plan("Wait"))]

    async def work(client: Client) -> None:
        handle = await start(client, home.settings, spec_of(home.settings, script))
        await handle.signal("pause", Note(by="ann"))
        for number in range(300):
            await handle.signal("steer", Note(by="ann", text=f"n{number} " + "🦶" * 1900, id=f"id-{number}"))
        state = await until(handle, lambda state: state.messages.received == 301 and state.counters.runs > 1, 120)
        assert len(state.model_dump_json().encode()) < MAX_STATE_BYTES
        await handle.signal("cancel", Note(by="ann"))
        end = await ended(handle)
        assert end.outcome.kind is OutcomeKind.CANCELLED
        # a run cannot hand over as long as one message after the other comes in
        await judge(client, home.settings, end, least_runs=2, most_events=2000)

    with_client(home.settings, work)
