"""The script of the rehearsed model: a scenario that runs without any model, and says so everywhere."""

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from schemas.base import Frozen
from schemas.models import Node
from schemas.scenario import UsdPrice

PLACE = re.compile(r"\{\{([a-z_][a-z0-9_]*)\}\}")


def _compiles(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return pattern


Pattern = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_compiles)]
"""A Python regular expression, searched in the prompt with ``^`` and ``$`` at every line."""


class RehearsedReply(Frozen):
    """One reply and when it is given."""

    node: Node
    """Node that asks."""
    when: tuple[Pattern, ...] = Field(default=(), max_length=20)
    """All must be found in the prompt (its user part: what is known, not our own standing instructions)."""
    unless: tuple[Pattern, ...] = Field(default=(), max_length=20)
    """None may be found in it."""
    reply: JsonValue
    """What is answered: a text, or a value that is answered as JSON. ``{{name}}`` is what the group ``(?P<name>…)``
    of a ``when`` pattern found."""

    @model_validator(mode="after")
    def _places_have_groups(self) -> Self:
        groups = {name for pattern in self.when for name in re.compile(pattern).groupindex}
        unknown = sorted({name for text in strings(self.reply) for name in PLACE.findall(text)} - groups)
        if unknown:
            raise ValueError(f"reply uses {{{{{unknown[0]}}}}}, but no pattern of `when` has a group of that name")
        return self


Replies = Annotated[tuple[RehearsedReply, ...], Field(min_length=1, max_length=500)]
Delay = Annotated[float, Field(ge=0, le=10)]


class StoredRehearsal(Frozen):
    """A script as a run refers to it; its price stands in the run itself."""

    file: str = "the script"
    """The file that it came from, as the scenario's author knows it."""
    replies: Replies
    """In the order in which they are tried."""
    delay_seconds: Delay = 0.0
    """Pretended thinking time of every reply."""


class Rehearsal(Frozen):
    """The rehearsed model's script: the first reply that fits is given, and where none fits the task fails."""

    replies: Replies
    """In the order in which they are tried."""
    price: UsdPrice | None = None
    """Pretended price, so that limits and bills have something to count; nothing is paid. Free where it is left out."""
    delay_seconds: Delay = 0.0
    """Pretended thinking time of every reply, in seconds."""

    def stored(self, file: str = "the script") -> StoredRehearsal:
        """Return what a run keeps of it; ``file`` is named where no reply fits."""
        return StoredRehearsal(file=file, replies=self.replies, delay_seconds=self.delay_seconds)


def strings(value: JsonValue) -> list[str]:
    """Return every string inside ``value``, keys excepted."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings(item)]
    return [text for item in value for text in strings(item)] if isinstance(value, list) else []
