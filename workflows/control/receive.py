"""Messages: a pure function from state and message to state. It never waits and never fails."""

from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import ValidationError

from schemas.base import clip, json_bytes
from schemas.messages import MessageCounts, Note, Received, SignalName
from schemas.state import AgentState, EventKind, Ref
from workflows.control.records import fitting, note_event

Item = TypeVar("Item")

KEPT_STEERING = 20
EXPLAINED_FAULTS = 3
KEPT_SENDER_IDS = 500
KEPT_BYTES = 40_000  # of either


def receive(state: AgentState, name: str, note: Note | None, problem: str, now: str) -> AgentState:
    """Return the state after message ``name``; a message that changes nothing is a recorded refusal.

    ``note`` is None where the argument could not be understood; ``problem`` then says why. ``now`` is ISO 8601.
    """
    number = state.messages.received + 1
    known = note or Note()
    accepted, answer = _judge(state, name, note, problem)
    received = Received(
        id=f"m{number}",
        name=clip(name, 100),
        by=known.by,
        text=known.text,
        at=now,
        accepted=accepted,
        answer=clip(answer),
        sender_id=known.id,
    )
    refused = state.messages.refused + (not accepted)
    changes: dict[str, Any] = {"messages": MessageCounts(received=number, refused=refused)}
    if known.id:
        changes["seen_ids"] = _newest((*state.seen_ids, known.id), KEPT_SENDER_IDS, str)
    if accepted:
        changes |= _changes(state, SignalName(name), received)
    said = f"{received.name} from {received.by or 'unknown'}: {received.text}".rstrip(": ")
    text = f"{said} → {received.answer}"
    refs = {Ref.SENDER: known.id} if known.id else None
    steers = accepted and name == SignalName.STEER  # the others change what the run does, not what a model is told
    # one rebuild for all: thousands of messages may come at once
    return note_event(
        state, EventKind.MESSAGE, received.id, text, now, ok=accepted, visible=steers, refs=refs, **changes
    )


def explain(error: ValidationError) -> str:
    """Return the first faults of a validation error in one line."""
    faults = error.errors(include_input=False, include_url=False)[:EXPLAINED_FAULTS]
    parts = [f"{'.'.join(str(part) for part in item['loc']) or 'value'}: {item['msg']}" for item in faults]
    return clip("; ".join(parts), 300)


def _judge(state: AgentState, name: str, note: Note | None, problem: str) -> tuple[bool, str]:
    if name not in tuple(SignalName):
        return False, f"refused: unknown signal; known are {', '.join(SignalName)}"
    if note is None:
        return False, f"refused: {problem}"
    if note.id and note.id in state.seen_ids:
        return False, "refused: this message was received before"
    if state.outcome is not None:
        return False, f"refused: the task has ended as {state.outcome.label}"
    return _judge_known(state, SignalName(name), note)


def _judge_known(state: AgentState, name: SignalName, note: Note) -> tuple[bool, str]:
    match name:
        case SignalName.PAUSE:
            return (False, "refused: already paused") if state.paused_by else (True, "paused")
        case SignalName.RESUME:
            return (True, "resumed") if state.paused_by else (False, "refused: not paused")
        case SignalName.CANCEL:
            return (False, "refused: already being cancelled") if state.cancel else (True, "cancelling")
        case SignalName.STEER:
            return (
                (True, "the next decision sees it") if note.text.strip() else (False, "refused: the message is empty")
            )


def _changes(state: AgentState, name: SignalName, received: Received) -> dict[str, Any]:
    match name:
        case SignalName.PAUSE:
            who = received.by or "someone"
            return {"paused_by": clip(f"{who}: {received.text}" if received.text else who)}
        case SignalName.RESUME:
            return {"paused_by": None}
        case SignalName.CANCEL:
            return {"cancel": received}
        case SignalName.STEER:
            return {"steering": _newest((*state.steering, received), KEPT_STEERING, lambda item: item.text)}


def _newest(items: tuple[Item, ...], count: int, text: Callable[[Item], str]) -> tuple[Item, ...]:
    """Return the newest ``count`` items, fewer where their texts are long."""
    kept = fitting((json_bytes(text(item)) for item in reversed(items[-count:])), KEPT_BYTES)
    return items[len(items) - kept :]
