"""Events of runs in tests: where they are read from, and what must hold of them."""

from collections import Counter
from collections.abc import Iterable

from schemas.state import AgentState, Event, EventKind, Ref
from stores.archive import in_order
from tests.support.scripted import World


def recorded_events(world: World) -> tuple[Event, ...]:
    """Return what a run in a scripted world has left: its chunks and its recorded state."""
    lines = [line for chunk in world.chunks for line in chunk.records_jsonl.splitlines()]
    events = [Event.model_validate_json(line) for line in lines]
    for request in world.recorded:
        events += AgentState.model_validate_json(request.state_json).events
    return in_order({event.id: event for event in events}.values())


def of_kind(events: Iterable[Event], kind: EventKind) -> list[Event]:
    """Return the events of one kind."""
    return [event for event in events if event.kind is kind]


def assert_each_action_has_one_observation(events: Iterable[Event]) -> None:
    """Every action is answered by exactly one later observation of the same place, and every one answers an action."""
    found = list(events)
    actions = {event.id: event for event in found if event.kind is EventKind.ACTION}
    observations = of_kind(found, EventKind.OBSERVATION)
    answered = Counter(event.refs[Ref.ACTION] for event in observations)
    assert answered == Counter(actions.keys())
    for event in observations:
        action = actions[event.refs[Ref.ACTION]]
        assert event.place == action.place
        assert event.refs[Ref.OBSERVATION] == action.refs[Ref.OBSERVATION]
        assert event.refs.get(Ref.EFFECT) in (None, action.refs.get(Ref.EFFECT))
        assert found.index(event) > found.index(action)
