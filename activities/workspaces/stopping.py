"""Stopping on purpose: a cancelled activity asks its work to stop, and waits until it has."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

Result = TypeVar("Result")


class Stopped(Exception):
    """Work was asked to stop and did, without a result."""


async def to_the_end(work: Callable[[asyncio.Event], Awaitable[Result]]) -> Result:
    """Run ``work`` to its end whatever happens to the caller.

    A cancellation of the caller only sets the event that ``work`` was given; ``work`` looks at it, cleans up, and its
    result is returned all the same. So there is one place where cancellation is understood, and none where it can
    tear a row or a process in two.
    """
    stop = asyncio.Event()
    task = asyncio.ensure_future(work(stop))
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done():
                return task.result()
            stop.set()


async def or_cancelled(work: Callable[[asyncio.Event], Awaitable[Result]]) -> Result:
    """Like ``to_the_end``, for work whose result means nothing once it was asked to stop."""
    asked: list[asyncio.Event] = []

    def start(stop: asyncio.Event) -> Awaitable[Result]:
        asked.append(stop)
        return work(stop)

    try:
        result = await to_the_end(start)
    except Stopped:
        raise asyncio.CancelledError from None
    if asked[0].is_set():
        raise asyncio.CancelledError
    return result
