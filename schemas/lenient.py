"""What another version has written, read as far as this one understands it, older and newer ones alike.

What a task is asked to do is read strictly; what is said of it is not: what is unknown here is left out and noted.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from schemas.outcome import StopReason

Model = TypeVar("Model", bound=BaseModel)
Location = tuple[str | int, ...]

MAX_LEFT_OUT = 1000
SHOWN_NOTES = 3


@dataclass(frozen=True)
class Read(Generic[Model]):
    """A reply as far as it is understood."""

    value: Model | None
    """The reply; None where what it lacks cannot be done without."""
    notes: tuple[str, ...] = ()
    """What was left out of it, or why there is none."""


def read_reply(kind: type[Model], data: bytes | str) -> Read[Model]:
    """Return the reply in the JSON text ``data``. Never raises on what another version may have sent."""
    try:
        return Read(kind.model_validate_json(data))
    except ValidationError:
        return _read_leniently(kind, data)


def in_a_line(notes: tuple[str, ...]) -> str:
    """Return the notes for a person; empty where there are none."""
    if not notes:
        return ""
    more = f" and {len(notes) - SHOWN_NOTES} more" if len(notes) > SHOWN_NOTES else ""
    return f"the worker is of another version; not understood: {', '.join(notes[:SHOWN_NOTES])}{more}"


def _read_leniently(kind: type[Model], data: bytes | str) -> Read[Model]:
    try:
        root = json.loads(data)
    except (ValueError, RecursionError):
        return Read(None, ("a reply that is not JSON",))
    notes = list(_name_reasons(root))
    while len(notes) <= MAX_LEFT_OUT:
        try:
            return Read(kind.model_validate_json(json.dumps(root)), tuple(notes))
        except ValidationError as error:
            for location in _offending(error):
                if not location:
                    return Read(None, (f"{kind.__name__} as a whole: {error.errors()[0]['msg']}",))
                if _leave_out(root, location):
                    notes.append(_named(location))
    return Read(None, (f"{kind.__name__} as a whole",))


def _offending(error: ValidationError) -> list[Location]:
    """Return what has to go (what lacks something goes as a whole), the last first, since lists shift."""
    found = {item["loc"][:-1] if item["type"] == "missing" else item["loc"] for item in error.errors()}
    return sorted(found, key=lambda location: [(isinstance(part, int), part) for part in location], reverse=True)


def _leave_out(root: Any, location: Location) -> bool:
    place = root
    for part in location[:-1]:
        try:
            place = place[part]
        except (KeyError, IndexError, TypeError):
            return False  # gone with what it was part of
    try:
        del place[location[-1]]
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _name_reasons(value: Any) -> Iterator[str]:
    """Keep an outcome whose reason is not known here: its kind still tells the exit code."""
    if isinstance(value, list):
        for item in value:
            yield from _name_reasons(item)
    if not isinstance(value, dict):
        return
    outcome = value.get("outcome")
    reason = outcome.get("reason") if isinstance(outcome, dict) else None
    if isinstance(outcome, dict) and reason is not None and reason not in tuple(StopReason):
        outcome["reason"] = StopReason.UNKNOWN.value
        outcome["detail"] = f"{reason}: {outcome.get('detail', '')}"[:500]
        yield f"outcome.reason {reason}"
    for item in value.values():
        yield from _name_reasons(item)


def _named(location: Location) -> str:
    return ".".join(str(part) for part in location)
