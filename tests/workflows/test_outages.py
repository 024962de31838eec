"""An outage that outlasts an activity's attempts: the task waits, visibly, and goes on; nothing is counted twice."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from schemas import contract
from schemas.base import rebuild
from schemas.budget import Spend
from schemas.calls import ModelRequest
from schemas.errors import (
    LedgerUnavailable,
    StorageUnavailable,
    SurefootError,
    WorkspaceLost,
    WorkspaceUnavailable,
)
from schemas.outcome import OutcomeKind, Status
from schemas.state import AgentState, Event, EventKind, Summary, TaskResult
from schemas.task import Bounds, Caps
from tests.support.running import Handle, Running, on_server, signal, until, working
from tests.support.scripted import World, plan_of, spec
from tests.support.server import DevServer, client_of
from workflows.control.patience import (
    FIRST_SECONDS,
    FULL_BYTES,
    LONGEST_SECONDS,
    OUTAGE_SECONDS,
    no_room,
    pause_seconds,
)

EVER = 1_000_000
WAITING = "waiting for the ledger: it does not answer"


class Away(Interceptor):
    """Lets activities fail as an outage lets them once their attempts are used up."""

    def __init__(self, failures: dict[str, int], error: type[SurefootError] = LedgerUnavailable) -> None:
        self.failures = Counter(failures)
        self.error = error
        self.tried: list[tuple[str, Any]] = []
        """What was asked for in vain."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _AwayInbound(next, self)


class _AwayInbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, away: Away) -> None:
        super().__init__(next)
        self._away = away

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        name, away = activity.info().activity_type, self._away
        if away.failures[name] > 0:
            away.failures[name] -= 1
            away.tried.append((name, input.args[0]))
            last = name == contract.PERFORM_ACTION.name  # it has one attempt, as an error that may be retried
            raise ApplicationError("it does not answer", type=away.error.__name__, non_retryable=not last)
        return await super().execute_activity(input)


def recorded(world: World) -> AgentState:
    """Return the state that was recorded at the end."""
    return AgentState.model_validate_json(world.recorded[-1].state_json)


def told(state: AgentState) -> list[str]:
    """Return the run's own records of waiting."""
    return [event.text for event in state.events if event.kind is EventKind.NOTE and event.text.startswith("wait")]


async def through(client: Client, error: type[SurefootError], *names: str) -> AgentState:
    """Run a task in which the first of these calls fails; see that it ends as it would have; return its state."""
    world = World(plan=plan_of("first", "second"), met=lambda world: len(world.performed) > 1)
    away = Away(dict.fromkeys(names, 1), error)
    world.lose_attempts = int(names == (contract.RECONCILE_ACTION.name,))
    async with working(client, world, interceptors=[away]) as running, asyncio.timeout(60):
        task = spec(running.queue)
        result = await running.run(rebuild(task, evaluator=(task.requirements[0].check,)))
    assert {name for name, _ in away.tried} == set(names)
    assert result.outcome.kind is OutcomeKind.FINISHED, names
    assert result.outcome.verified, names
    assert result.summary.spend == world.chain, names
    requests = [request for _, request in away.tried if isinstance(request, ModelRequest)]
    assert all(request in world.asked for request in requests), "asked again under the same effect"
    assert len(world.recorded) == 1
    state = recorded(world)
    assert state.reserved == Spend(), names
    return state


def test_every_call_waits_for_the_end_of_an_outage(server: DevServer) -> None:
    elsewhere = {contract.REPLAN, contract.ARCHIVE_RUN, contract.PERFORM_ACTION}
    names = [ref.name for ref in contract.all_refs() if ref not in elsewhere]

    async def go() -> None:
        client = await client_of(server.settings)
        states = await asyncio.gather(*(through(client, StorageUnavailable, name) for name in names))
        for name, state in zip(names, states, strict=True):
            if name != contract.RECORD_RUN.name:  # what it tells comes after what it has recorded
                begun, ended = told(state)
                assert begun == "waiting for the disk: it does not answer", name
                assert ended.startswith("waited "), name

    asyncio.run(go())


def test_an_action_that_an_outage_hits_is_found_out_about_after_it(server: DevServer) -> None:
    async def go() -> AgentState:
        client = await client_of(server.settings)
        return await through(client, LedgerUnavailable, contract.PERFORM_ACTION.name, contract.RECONCILE_ACTION.name)

    state = asyncio.run(go())
    assert told(state)[0] == WAITING
    assert state.counters.unknown_effects == 1


@pytest.mark.parametrize("error", [WorkspaceUnavailable, WorkspaceLost])
def test_a_workspace_that_is_away_is_waited_for_and_one_that_is_gone_ends_the_run(
    server: DevServer, error: type[SurefootError]
) -> None:
    world = World(lose_attempts=1, met=lambda world: len(world.performed) > 1)
    away = Away({contract.RECONCILE_ACTION.name: 1}, error)
    if error is WorkspaceLost:
        with pytest.raises(WorkflowFailureError):
            on_server(server.settings, world, lambda running: running.run(), interceptors=[away])
        assert world.recorded[-1].outcome.label == "FAILED(WorkspaceLost)"
        return
    result = on_server(server.settings, world, lambda running: running.run(), interceptors=[away])
    assert result.outcome.kind is OutcomeKind.FINISHED
    assert told(recorded(world))[0] == "waiting for the workspace: it does not answer"


def test_two_calls_side_by_side_tell_of_one_outage(server: DevServer) -> None:
    async def go() -> AgentState:
        client = await client_of(server.settings)
        both = contract.VALIDATE_PLAN_STEP.name, contract.SUMMARIZE_ACTIONS.name
        return await through(client, LedgerUnavailable, *both)

    begun, _ = told(asyncio.run(go()))
    assert begun == WAITING


def test_an_archive_that_is_away_is_waited_for(server: DevServer) -> None:
    world = World(met=lambda world: False, verdict=lambda request: False, actions=lambda request: ())
    away = Away({contract.ARCHIVE_RUN.name: 1})

    async def test(running: Running) -> None:
        task = spec(running.queue, bounds=Bounds(max_plan_versions=10))
        assert (await running.run(task)).outcome.kind is OutcomeKind.STOPPED_INCOMPLETE

    on_server(server.settings, world, test, interceptors=[away])
    assert [request for _, request in away.tried] == world.chunks[:1]
    archived = "".join(chunk.records_jsonl for chunk in world.chunks)
    assert archived.count(WAITING) + len([text for text in told(recorded(world)) if text == WAITING]) == 1


@pytest.mark.parametrize("name", ["open_run", "plan", "snapshot", "reconcile_action"])
@pytest.mark.parametrize("by_temporal", [True, False], ids=["through Temporal", "by a signal"])
def test_a_cancel_gets_through_during_an_outage(server: DevServer, name: str, by_temporal: bool) -> None:
    world, away = World(lose_attempts=1), Away({name: EVER})

    async def test(running: Running) -> None:
        handle = await running.start()
        await until(handle, lambda state: WAITING in told(state))
        if not by_temporal:
            await signal(handle, "cancel", by="ann")
            assert (await handle.result()).outcome.kind is OutcomeKind.CANCELLED
            return
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as ended:
            await handle.result()
        assert isinstance(ended.value.cause, CancelledError)

    on_server(server.settings, world, test, interceptors=[away])
    state = recorded(world)
    assert state.reserved == Spend()
    asked = [request for _, request in away.tried if isinstance(request, ModelRequest)]
    most = sum(request.reservation.microusd for request in {request.key: request for request in asked}.values())
    assert state.spend.microusd == world.chain.microusd + most, "nobody can say what it cost: at most what it reserved"


def test_a_pause_holds_a_run_that_waits_and_it_goes_on_after_it(server: DevServer) -> None:
    world, away = World(), Away({contract.PLAN.name: EVER})

    async def test(running: Running) -> None:
        handle = await running.start()
        await until(handle, lambda state: WAITING in told(state))
        summary = await handle.query(contract.SUMMARY_QUERY, result_type=Summary)
        assert summary.now == WAITING
        await signal(handle, "pause", by="ann")
        await until(handle, lambda state: state.status is Status.PAUSED)
        tried = len(away.tried)
        await asyncio.sleep(FIRST_SECONDS + 2)
        assert len(away.tried) == tried, "nothing is tried while the run stands still"
        away.failures.clear()
        await signal(handle, "resume", by="ann")
        assert (await handle.result()).outcome.kind is OutcomeKind.FINISHED

    on_server(server.settings, world, test, interceptors=[away])
    assert recorded(world).spend == world.chain


def test_a_run_that_is_over_waits_to_be_recorded_unless_it_is_cancelled(server: DevServer) -> None:
    world, away = World(), Away({contract.RECORD_RUN.name: EVER})

    async def test(running: Running) -> None:
        handle = await running.start()
        await until(handle, lambda state: WAITING in told(state))
        await handle.cancel()
        assert (await handle.result()).outcome.kind is OutcomeKind.FINISHED

    on_server(server.settings, world, test, interceptors=[away])
    assert world.recorded == []


FLOOD = 300
SMALL = Caps(events=100)  # below the least that an ordinary run needs to get anywhere


async def flood(handle: Handle, text: str = "again") -> None:
    """Send many messages, some side by side."""
    for first in range(0, FLOOD, 20):
        await asyncio.gather(*(signal(handle, "steer", text=f"{number} {text}") for number in range(first, first + 20)))


def all_messages(world: World, state: AgentState) -> list[str]:
    """Return the texts of all messages that were recorded, in the archive or in the state."""
    archived = [Event.model_validate_json(line) for chunk in world.chunks for line in chunk.records_jsonl.splitlines()]
    return [event.text for event in (*archived, *state.events) if event.kind is EventKind.MESSAGE]


@pytest.mark.parametrize("archive_too", [False, True], ids=["ledger", "ledger and archive"])
@pytest.mark.parametrize("held", [False, True], ids=["waiting", "paused"])
def test_a_run_that_waits_hands_over_before_messages_overfill_its_history(
    server: DevServer, archive_too: bool, held: bool
) -> None:
    names = [contract.PLAN.name, *([contract.ARCHIVE_RUN.name] if archive_too else [])]
    world, away = World(), Away(dict.fromkeys(names, EVER))

    async def test(running: Running) -> None:
        handle = await running.start(spec(running.queue, caps=SMALL))
        await until(handle, lambda state: WAITING in told(state))
        if held:
            await signal(handle, "pause", by="ann")
        await flood(handle)
        latest: Handle = running.client.get_workflow_handle(handle.id, result_type=TaskResult)
        await until(latest, lambda state: state.counters.runs > 1 and state.messages.received == FLOOD + held)
        away.failures.clear()
        if held:
            await signal(latest, "resume", by="ann")
        assert (await latest.result()).outcome.kind is OutcomeKind.FINISHED

    on_server(server.settings, world, test, interceptors=[away])
    state = recorded(world)
    numbers = [text.split()[3] for text in all_messages(world, state) if text.startswith("steer")]
    assert sorted(numbers, key=int) == [str(number) for number in range(FLOOD)], "each is recorded once"
    assert state.reserved == Spend()
    requests = [request for _, request in away.tried if isinstance(request, ModelRequest)]
    given_up = {request.key: request.reservation.microusd for request in requests if request not in world.asked}
    assert state.spend.microusd == world.chain.microusd + sum(given_up.values()), "at most what they had reserved"


def test_a_state_that_no_history_takes_waits_for_the_archive_before_it_is_handed_over(server: DevServer) -> None:
    world, away = World(), Away(dict.fromkeys([contract.PLAN.name, contract.ARCHIVE_RUN.name], EVER))

    async def test(running: Running) -> None:
        handle = await running.start(spec(running.queue, caps=SMALL))
        await until(handle, lambda state: WAITING in told(state))
        await flood(handle, "x" * 900)
        await until(handle, lambda state: state.messages.received == FLOOD)
        tried = len(away.tried)
        async with asyncio.timeout(30):
            while len(away.tried) == tried:  # noqa: ASYNC110 - an interceptor tells nobody
                await asyncio.sleep(0.1)
        latest: Handle = running.client.get_workflow_handle(handle.id, result_type=TaskResult)
        state = await until(latest, lambda state: True)
        assert state.counters.runs == 1
        away.failures.clear()
        assert (await latest.result()).outcome.kind is OutcomeKind.FINISHED

    on_server(server.settings, world, test, interceptors=[away])
    assert recorded(world).counters.runs > 1
    assert len([text for text in all_messages(world, recorded(world)) if text.startswith("steer")]) == FLOOD


@pytest.mark.slow
def test_a_run_that_is_over_waits_no_longer_where_its_history_is_almost_full(server: DevServer) -> None:
    world, away = World(), Away({contract.RECORD_RUN.name: EVER})

    async def test(running: Running) -> None:
        handle = await running.start()
        await until(handle, lambda state: WAITING in told(state))
        plain = await Client.connect(running.client.service_client.config.target_host)  # ours would not fill a history
        for _ in range(FULL_BYTES // 1_900_000 + 1):
            await plain.get_workflow_handle(handle.id).signal("steer", "x" * 1_900_000)
        assert (await handle.result()).outcome.kind is OutcomeKind.FINISHED

    on_server(server.settings, world, test, interceptors=[away])
    assert world.recorded == []


@given(st.integers(0, 60_000), st.integers(0, 60_000_000), st.booleans())
def test_a_history_has_no_room_well_before_temporal_ends_its_run(events: int, size: int, must_stay: bool) -> None:
    caps = Caps()
    answer = no_room(events, size, caps, must_stay=must_stay)
    if events >= 46_000 or size >= 43_000_000:
        assert answer
    if must_stay and events < 45_000 and size < 42_000_000:
        assert not answer
    assert must_stay or answer == (events >= 2 * caps.events or size >= 2 * caps.history_bytes)


@given(st.floats(0, 10 * OUTAGE_SECONDS))
def test_pauses_grow_with_the_outage_up_to_a_day(lasted: float) -> None:
    pause = pause_seconds(lasted)
    assert (pause is None) == (lasted >= OUTAGE_SECONDS)
    assert pause is None or FIRST_SECONDS <= pause <= LONGEST_SECONDS
    assert pause is None or pause >= min(lasted / 10, LONGEST_SECONDS)


def test_a_day_of_waiting_stays_far_below_what_a_history_may_hold() -> None:
    lasted, tries = 0.0, 0
    while (pause := pause_seconds(lasted)) is not None:
        lasted, tries = lasted + pause, tries + 1
    assert 8 * tries < 5000, "a try and its pause are eight events"
