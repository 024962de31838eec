"""How long a run waits for what is away before it tries a call again."""

FIRST_SECONDS = 2
LONGEST_SECONDS = 300  # a day of them, with what the tries themselves add, is about 3,000 events of history
SHARE = 0.1  # of the outage so far: whoever mends it waits a tenth of its length more
OUTAGE_SECONDS = 24 * 3600


def pause_seconds(lasted_seconds: float) -> float | None:
    """Return how long to wait in an outage that has lasted so long; None where it has been waited for long enough."""
    if lasted_seconds >= OUTAGE_SECONDS:
        return None
    return min(max(FIRST_SECONDS, SHARE * lasted_seconds), LONGEST_SECONDS)
