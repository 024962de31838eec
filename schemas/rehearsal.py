"""The script of the rehearsed model: a scenario that runs without any model, and says so everywhere."""

import re
from typing import Annotated, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from schemas.base import Frozen
from schemas.models import Node
from schemas.pricing import Price

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


class Rehearsal(Frozen):
    """A script: the first reply that fits is given; where none fits the reply is empty, never invented."""

    replies: tuple[RehearsedReply, ...] = Field(min_length=1, max_length=500)
    """In the order in which they are tried."""
    price: Price | None = None
    """Pretended price, frozen into the run at submit, so that budgets and bills have something to count."""
    delay_seconds: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Pretended thinking time of every reply."""


def strings(value: JsonValue) -> list[str]:
    """Return every string inside ``value``, keys excepted."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings(item)]
    return [text for item in value for text in strings(item)] if isinstance(value, list) else []
