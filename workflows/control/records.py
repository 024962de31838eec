"""The run's own record: numbered events, the newest in the state, the rest in the archive's chunks."""

import json
from collections.abc import Iterable
from typing import Any

from schemas.base import clip, rebuild
from schemas.state import AgentState, Event, EventKind
from schemas.texts import BlobRef

KEPT_EVENTS = 40
KEPT_BYTES = 40_000
ARCHIVE_ABOVE_EVENTS = 120
ARCHIVE_ABOVE_BYTES = 80_000
CHUNK_EVENTS = 400
CHUNK_BYTES = 500_000  # with everything around the texts it stays below the archive request's limit
EVENT_TEXT = 2500


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
    refs: tuple[str, ...] = (),
    **changes: Any,
) -> AgentState:
    """Return the state with one more event, and with other ``changes`` that come along."""
    number = state.counters.seq + 1
    event = Event(
        id=f"e{number}", kind=kind, place=clip(place, 60), at=now, text=clip(text, EVENT_TEXT), ok=ok, refs=refs
    )
    counters = rebuild(state.counters, seq=number)
    return rebuild(state, counters=counters, events=(*state.events, event), **changes)


def archive_due(state: AgentState) -> bool:
    """Return whether events should move to the archive: there are many, or they are long."""
    many = len(state.events) > ARCHIVE_ABOVE_EVENTS
    return many or sum(json_bytes(event.text) for event in state.events) > ARCHIVE_ABOVE_BYTES


def chunk_to_archive(state: AgentState, keep: int = KEPT_EVENTS) -> tuple[Event, ...]:
    """Return the oldest events beyond the ``keep`` newest (fewer where these are long), at most one chunk's worth."""
    newest = state.events[-keep:] if keep else ()
    kept = fitting((json_bytes(event.text) for event in reversed(newest)), KEPT_BYTES)
    older = state.events[: len(state.events) - kept]
    return older[: fitting((json_bytes(event.text) for event in older), CHUNK_BYTES)][:CHUNK_EVENTS]


def fitting(sizes: Iterable[int], most: int) -> int:
    """Return how many of the first ``sizes`` add up to at most ``most``."""
    total, count = 0, 0
    for size in sizes:
        total += size
        if total > most:
            break
        count += 1
    return count


def json_bytes(text: str) -> int:
    """Return the length of ``text`` in JSON: up to six times its own where it holds control characters."""
    return len(json.dumps(text, ensure_ascii=False).encode())


def chunk_json(events: tuple[Event, ...]) -> str:
    """Return events as a JSON array."""
    return json.dumps([event.model_dump(mode="json") for event in events], ensure_ascii=False)


def archived(state: AgentState, count: int, chunk: BlobRef) -> AgentState:
    """Return the state without its ``count`` oldest events, which ``chunk`` holds now."""
    counters = rebuild(state.counters, chunks=state.counters.chunks + 1)
    return rebuild(state, events=state.events[count:], archive=(*state.archive, chunk), counters=counters)
