"""Messages to a running task, and how each was received."""

from enum import StrEnum

from pydantic import Field

from schemas.base import Count, Frozen, Line


class SignalName(StrEnum):
    """Signals that a task understands; any other is a recorded refusal."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    STEER = "steer"


class Note(Frozen):
    """The one argument of every signal."""

    text: str = Field(default="", max_length=2000)
    """Reason; for ``steer`` the message that the next decision sees."""
    by: str = Field(default="", max_length=200)
    """Who sends it."""
    id: str = Field(default="", max_length=100)
    """Sender's own id; the same id is received once."""


class Received(Frozen):
    """A message as it was received."""

    id: str
    """As ``m12``: messages are numbered in the order of their arrival, over the whole chain."""
    name: str = Field(max_length=100)
    """Signal name as it came."""
    by: str = ""
    """Who sent it."""
    text: str = Field(default="", max_length=2000)
    """Reason or message."""
    at: str
    """ISO 8601, UTC, workflow time."""
    accepted: bool
    """Whether it changed anything."""
    answer: Line
    """What came of it, or why it was refused."""
    sender_id: str = ""
    """The sender's own id."""


class MessageCounts(Frozen):
    """How many messages a chain has received."""

    received: Count = 0
    """All."""
    refused: Count = 0
    """Those that changed nothing."""
