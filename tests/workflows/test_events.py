"""What a run records of itself: typed events, whole, and for every action exactly one observation."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from activities.registration import implements
from schemas import contract
from schemas.actions import ObservationStatus
from schemas.budget import Limits
from schemas.effects import CallStatus
from schemas.errors import Fenced
from schemas.models import Node
from schemas.outcome import OutcomeKind
from schemas.state import Event, EventKind, Ref, Source
from schemas.task import Bounds
from schemas.workspace import ActionReply, ActionRequest
from tests.support.events import assert_each_action_has_one_observation, of_kind, recorded_events
from tests.support.running import Handle, Running, on_server, signal, until
from tests.support.scripted import World, action, plan_of, spec
from tests.support.server import DevServer

LIMITS = Bounds(max_plan_versions=2, max_plan_step_iterations=2, max_plan_step_actions=2)


class FencedWorld(World):
    """A world in which another attempt has taken every action over."""

    @implements(contract.PERFORM_ACTION)
    async def on_perform_action(self, request: ActionRequest) -> ActionReply:
        raise Fenced("scripted: another attempt holds the claim")


class UnreconcilableWorld(World):
    """A world that loses actions and whose reconciler fails as well."""

    @implements(contract.RECONCILE_ACTION)
    async def on_reconcile_action(self, request: ActionRequest) -> ActionReply:
        raise Fenced("scripted: another attempt holds the claim")


def events_of_run(server: DevServer, world: World, **changes: Any) -> tuple[Event, ...]:
    """Run a task to whatever end and return its events."""

    async def test(running: Running) -> None:
        handle = await running.start(spec(running.queue, **{"bounds": LIMITS, **changes}))
        with contextlib.suppress(WorkflowFailureError):
            await handle.result()

    on_server(server.settings, world, test)
    return recorded_events(world)


def never(world: World) -> bool:
    """Meet no requirement."""
    return False


WORLDS: dict[str, Callable[[], World]] = {
    "performed": lambda: World(met=never),
    "unknown": lambda: World(lose_attempts=1, met=never),
    "void": lambda: World(
        lose_attempts=1, reconciles_as=ObservationStatus.VOID, met=lambda world: len(world.performed) > 1
    ),
    "always void": lambda: World(lose_attempts=9, reconciles_as=ObservationStatus.VOID, met=never),
    "refused": lambda: World(met=never, actions=lambda request: (action(irreversible=True),)),
    "invalid": lambda: World(met=never, actions=lambda request: (action(invalid="no such argument"), action())),
    "fenced": lambda: FencedWorld(met=never),
    "not reconciled": lambda: UnreconcilableWorld(lose_attempts=1, met=never),
}


@pytest.mark.parametrize("name", WORLDS)
def test_every_action_has_exactly_one_observation(server: DevServer, name: str) -> None:
    events = events_of_run(server, WORLDS[name]())
    assert_each_action_has_one_observation(events)
    assert of_kind(events, EventKind.ACTION)


def test_an_action_that_the_budget_forbids_is_none(server: DevServer) -> None:
    world = World(met=never, actions=lambda request: (action("a"), action("b")))
    events = events_of_run(server, world, limits=Limits(tool_calls=1))
    assert_each_action_has_one_observation(events)
    assert [event.text for event in of_kind(events, EventKind.ACTION)] == ["run a"]


async def pause_and_cancel(handle: Handle) -> None:
    """Pause in the middle of an action, go on, and cancel in the middle of the next."""
    await signal(handle, "pause", by="ann")
    await until(handle, lambda state: any(event.kind is EventKind.PAUSE for event in state.events))
    await signal(handle, "resume", by="ann")
    await signal(handle, "steer", by="ann", text="another way", id="s1")
    await asyncio.sleep(0.3)
    await signal(handle, "cancel", by="ann")


async def cancel_through_temporal(handle: Handle) -> None:
    """Cancel as Temporal's own page would."""
    await handle.cancel()


@pytest.mark.parametrize("interfere", [pause_and_cancel, cancel_through_temporal])
def test_an_interrupted_action_has_its_observation_too(
    server: DevServer, interfere: Callable[[Handle], Coroutine[Any, Any, None]]
) -> None:
    world = World(seconds=60, met=never)

    async def test(running: Running) -> None:
        handle = await running.start()
        await until(handle, lambda state: len(world.performed) == 1)
        await interfere(handle)
        with contextlib.suppress(WorkflowFailureError):
            await handle.result()

    on_server(server.settings, world, test)
    events = recorded_events(world)
    assert_each_action_has_one_observation(events)
    assert "interrupted" in of_kind(events, EventKind.OBSERVATION)[0].text
    assert world.recorded[0].outcome.kind is OutcomeKind.CANCELLED  # either way there is a row
    assert events[-1].text.startswith("CANCELLED")


def test_each_event_says_who_it_comes_from_and_whether_a_model_sees_it(server: DevServer) -> None:
    world = World(
        plan=plan_of("first", "second"),
        met=lambda world: len(world.performed) > 3,
        status=lambda world, request: CallStatus.AMBIGUOUS if len(world.asked) == 2 else CallStatus.ANSWERED,
        usable=lambda request: request.node is not Node.PLAN or request.repair is not None,
    )
    events = events_of_run(server, world)
    said = {(event.kind, event.source, event.visible) for event in events}
    assert said == {
        (EventKind.SYSTEM_PROMPT, Source.CONTROLLER, True),
        (EventKind.STATE_CHANGE, Source.CONTROLLER, False),
        (EventKind.STATE_CHANGE, Source.CONTROLLER, True),  # a step is done: its summary is told
        (EventKind.CHECKS, Source.ENVIRONMENT, True),
        (EventKind.DECISION, Source.CONTROLLER, False),
        (EventKind.DECISION, Source.CONTROLLER, True),  # why a new version is due
        (EventKind.AGENT_ERROR, Source.AGENT, True),  # it is told what was wrong
        (EventKind.CALL, Source.ENVIRONMENT, False),
        (EventKind.PLAN_VERSION, Source.AGENT, True),
        (EventKind.PROPOSAL, Source.AGENT, False),
        (EventKind.ACTION, Source.AGENT, True),
        (EventKind.OBSERVATION, Source.ENVIRONMENT, True),
        (EventKind.VERDICT, Source.JUDGE, True),
        (EventKind.VERDICT, Source.JUDGE, False),
    }
    numbers = [int(event.id[1:]) for event in events]
    assert numbers == sorted(set(numbers))
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert events[0].refs[Ref.GOAL].startswith("sha256:")
    plans = [event.plan for event in events if event.plan]
    assert [step.id for step in plans[1].steps] == ["v2.s3", "v2.s4"], "what it carried is with the first"


def test_what_the_gate_refused_comes_from_the_controller(server: DevServer) -> None:
    events = events_of_run(server, WORLDS["refused"]())
    assert {event.source for event in of_kind(events, EventKind.OBSERVATION)} == {Source.CONTROLLER}
