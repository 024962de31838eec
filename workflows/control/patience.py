"""How long a run waits for what is away before it tries a call again, and how far its history may grow meanwhile."""

from schemas.state import AgentState
from schemas.task import Caps

FIRST_SECONDS = 2
LONGEST_SECONDS = 300  # a day of them, with what the tries themselves add, is about 3,000 events of history
SHARE = 0.1  # of the outage so far: whoever mends it waits a tenth of its length more
OUTAGE_SECONDS = 24 * 3600


def pause_seconds(lasted_seconds: float) -> float | None:
    """Return how long to wait in an outage that has lasted so long; None where it has been waited for long enough."""
    if lasted_seconds >= OUTAGE_SECONDS:
        return None
    return min(max(FIRST_SECONDS, SHARE * lasted_seconds), LONGEST_SECONDS)


FULL_EVENTS = 45_000  # Temporal ends a run at 51,200 events or 50 MiB; a signal is up to 2 MB
FULL_BYTES = 42_000_000
CARRIED_BYTES = 150_000  # of events: with everything else the state then goes into a history without any store


def no_room(events: int, history_bytes: int, caps: Caps, *, must_stay: bool) -> bool:
    """Return whether a history has grown so far that its run cannot wait on in it.

    Twice its caps are far enough, except for a run that ``must_stay``: that one waits until Temporal's limits are near.
    """
    full = events >= FULL_EVENTS or history_bytes >= FULL_BYTES
    return full or (not must_stay and (events >= 2 * caps.events or history_bytes >= 2 * caps.history_bytes))


def can_be_carried(state: AgentState) -> bool:
    """Return whether the next run can be given ``state`` while nothing of it can be archived or stored."""
    return sum(event.size_bytes for event in state.events) <= CARRIED_BYTES
