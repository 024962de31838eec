"""Runs coroutines and activities in tests, which are all synchronous functions."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from temporalio.testing import ActivityEnvironment

Value = TypeVar("Value")
Request = TypeVar("Request")

# One loop for all, as in a worker: LiteLLM keeps its HTTP clients by the loop's identity, which Python uses again
# for a later loop, and then finds a client whose loop is closed.
_RUNNER = asyncio.Runner()


def run(work: Coroutine[Any, Any, Value]) -> Value:
    """Return what ``work`` returns; in a thread of a test's own, in a loop of its own."""
    if threading.current_thread() is threading.main_thread():
        return _RUNNER.run(work)
    return asyncio.run(work)


def run_activity(activity: Callable[[Request], Awaitable[Value]], request: Request) -> Value:
    """Return what an activity returns for ``request``, run as Temporal would, heartbeats included."""

    async def inside() -> Value:
        return await ActivityEnvironment().run(activity, request)

    return run(inside())
