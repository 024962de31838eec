"""The port to models: one completion is one request to one provider."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from schemas.errors import ModelUnreachable
from schemas.models import ModelChoice, Node
from schemas.pricing import Usage

log = logging.getLogger("surefoot.model")


@dataclass(frozen=True)
class Completion:
    """One request, rendered."""

    effect_id: str
    """Sent as an idempotency key, for providers and gateways that know one."""
    node: Node
    system: str
    user: str
    choice: ModelChoice
    schema: Mapping[str, Any] | None
    """JSON Schema of the reply; None for free text."""
    max_output_tokens: int
    timeout_seconds: float


@dataclass(frozen=True)
class CompletionReply:
    """What came back; a reply that says nothing is an empty text."""

    text: str
    reasoning: str
    """Reasoning that the provider returned apart from the answer."""
    finish_reason: str
    model: str
    """Model that answered, as the provider names it."""
    usage: Usage | None
    """None where the provider did not say what it counted: nobody knows what was billed."""


class AmbiguousCall(Exception):
    """The request may have been billed and no usable reply came back: time-out, 5xx, reset, unreadable body."""


class Gateway(Protocol):
    """Something that answers completions."""

    async def complete(self, completion: Completion) -> CompletionReply:
        """Send one request, once, and return the reply.

        Raises ``AmbiguousCall`` where it may have been billed; every ``SurefootError`` means that nothing was.
        Cancelled, it stops waiting at once; the request may then have been billed.
        """
        ...


class Deferred:
    """An adapter that is made when the first request needs it, once for all that wait for it; that may take seconds."""

    def __init__(self, make: Callable[[], Gateway]) -> None:
        """Call ``make`` in a thread, so that heartbeats go on meanwhile."""
        self._make = make
        self._making: asyncio.Task[Gateway] | None = None

    async def get(self) -> Gateway:
        """Return the adapter. Raises what ``make`` raises; the next request tries again then."""
        if self._making is None or (self._making.done() and self._making.exception() is not None):
            self._making = asyncio.create_task(asyncio.to_thread(self._make))
        return await asyncio.shield(self._making)  # whoever gives up takes it from nobody else


@dataclass(frozen=True)
class Gateways:
    """The adapters of this worker."""

    rehearsed: Gateway
    models: Gateway | Deferred | None
    """None where the worker was set up without LiteLLM."""

    async def of(self, choice: ModelChoice) -> Gateway:
        """Return the adapter that answers for ``choice``, ready to send.

        Raises ModelUnreachable where there is none that works: another worker on the queue may have it.
        """
        if choice.rehearsed:
            return self.rehearsed
        if self.models is None:
            raise ModelUnreachable(f"{choice.model}: this worker has no model adapter; install it with `make setup`")
        if not isinstance(self.models, Deferred):
            return self.models
        try:
            return await self.models.get()
        except Exception as error:  # a broken installation may raise anything while it is imported
            log.exception("the model adapter does not load")
            raise ModelUnreachable(
                f"{choice.model}: the model adapter of this worker does not load "
                f"({type(error).__name__}: {error}); install it anew with `make setup`"
            ) from error
