"""How an activity is registered: under its reference's name, with errors sorted and replies bounded."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from functools import wraps
from typing import TypeVar

from pydantic import BaseModel
from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.telemetry import attempt
from schemas.base import clip
from schemas.contract import ActivityRef
from schemas.errors import ModelRateLimited, PayloadTooLarge, SurefootError
from stores.files import storage_problem

Service = TypeVar("Service")
Request = TypeVar("Request", bound=BaseModel)
Reply = TypeVar("Reply", bound=BaseModel)

MAX_REPLY_BYTES = 1_000_000  # Temporal retries an over-limit result for ever, with nothing in history
HEARTBEAT_EVERY_SECONDS = 1.0
MAX_MESSAGE = 2000  # a failure over 4 KiB is cut by the server


def implements(
    ref: ActivityRef[Request, Reply],
) -> Callable[[Callable[[Service, Request], Awaitable[Reply]]], Callable[[Service, Request], Awaitable[Reply]]]:
    """Register an async method as the activity of ``ref``; the type checker compares request and reply.

    A ``SurefootError`` becomes an ``ApplicationError`` of the same type name, and so does a disk that is full or
    read-only; anything else is a bug, which Temporal retries within the class's attempts. A reply over 1 MB is a final
    ``PayloadTooLarge``.
    """

    def decorate(
        method: Callable[[Service, Request], Awaitable[Reply]],
    ) -> Callable[[Service, Request], Awaitable[Reply]]:
        @wraps(method)
        async def run(self: Service, request: Request) -> Reply:
            with heartbeats(ref.cls.heartbeat_seconds is not None):
                try:
                    with attempt(ref.name):
                        return _bounded(ref.name, await method(self, request))
                except SurefootError as error:  # its causes' traces would make the server cut type and message away
                    raise to_application_error(error) from None
                except OSError as error:
                    problem = storage_problem(error)
                    if problem is None:
                        raise
                    raise to_application_error(problem) from None

        # wraps() leaves the method's annotations, from which Temporal takes the types of request and reply
        return activity.defn(name=ref.name)(run)

    return decorate


def to_application_error(error: SurefootError) -> ApplicationError:
    """Return the error as Temporal carries it: type name, retryable or not, the provider's wish for the delay."""
    delay = error.retry_after_seconds if isinstance(error, ModelRateLimited) else None
    return ApplicationError(
        clip(str(error), MAX_MESSAGE),
        type=type(error).__name__,
        non_retryable=not error.retryable,
        next_retry_delay=None if delay is None else timedelta(seconds=delay),
    )


def _bounded(name: str, reply: Reply) -> Reply:
    size = len(reply.model_dump_json())
    if size > MAX_REPLY_BYTES:
        raise PayloadTooLarge(f"the reply of {name} has {size:,} bytes, more than {MAX_REPLY_BYTES:,}")
    return reply


@contextlib.contextmanager
def heartbeats(wanted: bool) -> Iterator[None]:
    """Heartbeat while a block runs, from the event loop: a blocked one stops them, and then the attempt is stuck."""
    loop, timer = asyncio.get_running_loop(), None

    def wait() -> None:  # an attempt counts from its start: one that is over sooner needs no heartbeat
        nonlocal timer
        timer = loop.call_later(HEARTBEAT_EVERY_SECONDS, beat)

    def beat() -> None:
        wait()
        activity.heartbeat()

    if wanted:
        wait()
    try:
        yield
    finally:
        if timer:
            timer.cancel()
