"""Limits of a run, and what a chain of runs has spent."""

from typing import Annotated

from pydantic import Field

from schemas.base import Count, Frozen, MicroUsd, Row

LimitCount = Annotated[int, Field(ge=1, le=10**12)]


class Limits(Frozen):
    """Hard limits; reaching one exactly is exhausting it. None means no limit of that kind."""

    microusd: LimitCount | None = None
    """Money for model calls, in micro-dollars."""
    tokens: LimitCount | None = None
    """Input and output tokens of all model calls."""
    model_calls: LimitCount | None = None
    """Requests to models, repairs included."""
    tool_calls: LimitCount | None = None
    """Actions performed."""


class Spend(Row):
    """What a chain of runs has spent: it only grows."""

    microusd: MicroUsd = 0
    """Settled charges plus the reservations of calls that are open or ended ambiguous, in micro-dollars."""
    tokens: Count = 0
    """Tokens, counted the same way."""
    model_calls: Count = 0
    """Model requests that were or may have been sent."""
    tool_calls: Count = 0
    """Actions that were or may have been performed."""


class Reservation(Row):
    """What one effect may cost at most; claimed before it starts."""

    microusd: MicroUsd = 0
    """Money in micro-dollars; 0 for an action, or where the price is unknown and no money limit is set."""
    input_tokens: Count = 0
    """Input tokens of the prompt that the workflow means to send."""
    output_tokens: Count = 0
    """The output cap."""

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


def add(left: Spend, right: Spend) -> Spend:
    """Return the sum, meter by meter."""
    return Spend(**{name: getattr(left, name) + getattr(right, name) for name in Spend.model_fields})


def greater(left: Spend, right: Spend) -> Spend:
    """Return the greater of both, meter by meter: no source of truth can take spend back."""
    return Spend(**{name: max(getattr(left, name), getattr(right, name)) for name in Spend.model_fields})


def exceeded(spend: Spend, limits: Limits) -> str | None:
    """Return the name of the first limit that ``spend`` is over, or None. A reservation may reach a limit exactly."""
    for name in Spend.model_fields:
        limit = getattr(limits, name)
        if limit is not None and getattr(spend, name) > limit:
            return name
    return None
