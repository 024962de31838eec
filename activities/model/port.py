"""The port to models: one completion is one request to one provider."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from schemas.errors import ModelUnreachable
from schemas.models import ModelChoice, Node
from schemas.pricing import Usage


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


@dataclass(frozen=True)
class Gateways:
    """The adapters of this worker."""

    rehearsed: Gateway
    models: Gateway | None
    """None where the worker was set up without LiteLLM."""

    def of(self, choice: ModelChoice) -> Gateway:
        """Return the adapter that answers for ``choice``.

        Raises ModelUnreachable where there is none: another worker on the queue may have it.
        """
        if choice.rehearsed:
            return self.rehearsed
        if self.models is None:
            raise ModelUnreachable(f"{choice.model}: this worker has no model adapter; install it with `make setup`")
        return self.models
