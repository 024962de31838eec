"""The run's own record: numbered events, the newest in the state, the rest in the archive's chunks."""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any

from schemas.actions import Observation, ObservationStatus, ProposedAction, headline
from schemas.base import clip, rebuild
from schemas.plan import PlanVersion
from schemas.state import AgentState, Event, EventKind, Ref, Source
from schemas.texts import BlobRef

KEPT_EVENTS = 40
KEPT_BYTES = 40_000
ARCHIVE_ABOVE_EVENTS = 120
ARCHIVE_ABOVE_BYTES = 80_000
CHUNK_EVENTS = 400
CHUNK_BYTES = 500_000  # with everything around the texts it stays below the archive request's limit
EVENT_TEXT = 2500

SOURCE_OF_KIND = {
    EventKind.SYSTEM_PROMPT: Source.CONTROLLER,
    EventKind.MESSAGE: Source.USER,
    EventKind.PROPOSAL: Source.AGENT,
    EventKind.ACTION: Source.AGENT,
    EventKind.OBSERVATION: Source.ENVIRONMENT,
    EventKind.AGENT_ERROR: Source.AGENT,
    EventKind.PLAN_VERSION: Source.AGENT,
    EventKind.VERDICT: Source.JUDGE,
    EventKind.CHECKS: Source.ENVIRONMENT,
    EventKind.DECISION: Source.CONTROLLER,
    EventKind.CALL: Source.ENVIRONMENT,
    EventKind.PAUSE: Source.USER,
    EventKind.STATE_CHANGE: Source.CONTROLLER,
    EventKind.NOTE: Source.CONTROLLER,
}
_SIZE = attrgetter("size_bytes")
UNPERFORMED = frozenset({ObservationStatus.REFUSED, ObservationStatus.INVALID})


def next_seq(state: AgentState) -> tuple[AgentState, int]:
    """Return the state with its counter moved on, and the new number."""
    number = state.counters.seq + 1
    return rebuild(state, counters=rebuild(state.counters, seq=number)), number


def note_event(
    state: AgentState,
    kind: EventKind,
    place: str,
    text: str,
    now: str,
    *,
    ok: bool | None = None,
    visible: bool = False,
    source: Source | None = None,
    refs: Mapping[Ref, str] | None = None,
    plan: PlanVersion | None = None,
    **changes: Any,
) -> AgentState:
    """Return the state with one more event, and with other ``changes`` that come along.

    ``source`` is the one of the kind unless it is given.
    """
    number = state.counters.seq + 1
    event = Event(
        id=f"e{number}",
        kind=kind,
        source=source or SOURCE_OF_KIND[kind],
        visible=visible,
        place=clip(place, 60),
        at=now,
        text=clip(text, EVENT_TEXT),
        ok=ok,
        refs=dict(refs or {}),
        plan=plan,
    )
    counters = rebuild(state.counters, seq=number)
    return rebuild(state, counters=counters, events=(*state.events, event), **changes)


def note_action(
    state: AgentState, action: ProposedAction, place: str, observation_id: str, effect_id: str | None, now: str
) -> tuple[AgentState, str]:
    """Return the state with the event of an action, and the event's id: its observation refers to that."""
    refs = {Ref.OBSERVATION: observation_id} | ({Ref.EFFECT: effect_id} if effect_id else {})
    text = f"{action.tool} {action.preview}"
    state = note_event(state, EventKind.ACTION, place, text, now, visible=True, refs=refs)
    return state, state.events[-1].id


def note_observation(state: AgentState, action_event: str, seen: Observation, now: str) -> AgentState:
    """Return the state with the one observation of an action; a void one is decided anew and enters no prompt."""
    refs = {Ref.ACTION: action_event, Ref.OBSERVATION: seen.id}
    if seen.effect_id:
        refs[Ref.EFFECT] = seen.effect_id
    return note_event(
        state,
        EventKind.OBSERVATION,
        seen.action_id,
        headline(seen),
        now,
        ok=seen.status is ObservationStatus.SUCCEEDED,
        visible=seen.status is not ObservationStatus.VOID,
        source=Source.CONTROLLER if seen.status in UNPERFORMED else None,
        refs=refs,
    )


def archive_due(state: AgentState) -> bool:
    """Return whether events should move to the archive: there are many, or they are long."""
    many = len(state.events) > ARCHIVE_ABOVE_EVENTS
    return many or sum(map(_SIZE, state.events)) > ARCHIVE_ABOVE_BYTES


def chunk_to_archive(state: AgentState, keep: int = KEPT_EVENTS) -> tuple[Event, ...]:
    """Return the oldest events beyond the ``keep`` newest (fewer where these are long), at most one chunk's worth."""
    newest = state.events[-keep:] if keep else ()
    kept = fitting(map(_SIZE, reversed(newest)), KEPT_BYTES)
    older = state.events[: len(state.events) - kept]
    return older[: fitting(map(_SIZE, older), CHUNK_BYTES)][:CHUNK_EVENTS]


def fitting(sizes: Iterable[int], most: int) -> int:
    """Return how many of the first ``sizes`` add up to at most ``most``."""
    total, count = 0, 0
    for size in sizes:
        total += size
        if total > most:
            break
        count += 1
    return count


def chunk_lines(events: Iterable[Event]) -> str:
    """Return events as lines of JSON, without what they do not say."""
    return "".join(f"{event.model_dump_json(exclude_defaults=True)}\n" for event in events)


def archived(state: AgentState, count: int, chunk: BlobRef) -> AgentState:
    """Return the state without its ``count`` oldest events, which ``chunk`` holds now."""
    counters = rebuild(state.counters, chunks=state.counters.chunks + 1)
    return rebuild(state, events=state.events[count:], archive=(*state.archive, chunk), counters=counters)
