"""The masking seam between activities and history: replies, failures with their causes, heartbeats."""

import asyncio
import json
from typing import Any

from pydantic import BaseModel
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, CancelledError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivityOutboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
)

from schemas.base import clip
from stores.secrets import Secrets

MAX_CAUSES = 10


class MaskingInterceptor(Interceptor):
    """Masks what leaves an activity, whichever it is. What it stores or logs by itself is masked where that happens."""

    def __init__(self, secrets: Secrets) -> None:
        """Mask what ``secrets`` knows at that moment."""
        self._secrets = secrets

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Stand around every activity."""
        return _Inbound(next, self._secrets)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, secrets: Secrets) -> None:
        super().__init__(next)
        self._secrets = secrets

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        super().init(_Outbound(outbound, self._secrets))

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        try:
            reply = await super().execute_activity(input)
        except (asyncio.CancelledError, CancelledError):
            raise
        except BaseException as error:
            if not _says_a_secret(error, self._secrets):
                raise
            masked = masked_error(error, self._secrets)
        else:
            return masked_value(reply, self._secrets)
        raise masked from masked.__cause__  # outside of the handler: the original must not become its context


class _Outbound(ActivityOutboundInterceptor):
    def __init__(self, next: ActivityOutboundInterceptor, secrets: Secrets) -> None:
        super().__init__(next)
        self._secrets = secrets

    def heartbeat(self, *details: Any) -> None:
        super().heartbeat(*(masked_value(detail, self._secrets) for detail in details))


def masked_value(value: Any, secrets: Secrets) -> Any:
    """Return ``value``, a model or plain JSON data, with every text in it masked.

    A text never grows, since its length may be bounded: what a longer mask pushes out at its end is cut. Raises
    ValidationError, without a value, where a masked text is none that the model may hold.
    """
    if not isinstance(value, BaseModel):
        return _masked_data(value, secrets)
    text = value.model_dump_json()
    if secrets.mask(text) == text:
        return value
    return type(value).model_validate_json(json.dumps(_masked_data(json.loads(text), secrets)))


def masked_error(error: BaseException, secrets: Secrets, depth: int = 0) -> ApplicationError:
    """Return ``error`` as Temporal carries it, with every text in it and in its causes masked."""
    given = error if isinstance(error, ApplicationError) else None
    masked = ApplicationError(
        _bounded(given.message if given else str(error), secrets),
        *(masked_value(detail, secrets) for detail in (given.details if given else ())),
        type=given.type if given else type(error).__name__,
        non_retryable=given is not None and given.non_retryable,
        next_retry_delay=given.next_retry_delay if given else None,
        category=given.category if given else ApplicationErrorCategory.UNSPECIFIED,
    )
    masked.__traceback__ = error.__traceback__
    cause = _cause(error)
    if cause is not None and depth < MAX_CAUSES:
        masked.__cause__ = masked_error(cause, secrets, depth + 1)
    return masked


def _says_a_secret(error: BaseException, secrets: Secrets) -> bool:
    link: BaseException | None = error
    for _ in range(MAX_CAUSES):
        if link is None:
            return False
        text = str(link)
        details = link.details if isinstance(link, ApplicationError) else ()
        if secrets.mask(text) != text or any(masked_value(item, secrets) != item for item in details):
            return True
        link = _cause(link)
    return link is not None  # nobody knows what the rest says


def _cause(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _masked_data(data: Any, secrets: Secrets) -> Any:
    if isinstance(data, str):
        return _bounded(data, secrets)
    if isinstance(data, dict):
        return {secrets.mask(key): _masked_data(value, secrets) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_masked_data(item, secrets) for item in data]
    return data


def _bounded(text: str, secrets: Secrets) -> str:
    masked = secrets.mask(text)
    return masked if masked == text else clip(masked, len(text))
