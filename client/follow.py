"""Following a task: new records as they come, until its end."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from temporalio.service import RPCError, RPCStatusCode

from client.tasks import Tasks
from client.views import TaskView
from schemas.state import Event
from stores.archive import number_of

POLL_SECONDS = 0.3
UNREACHABLE = frozenset({RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.UNKNOWN})
GIVE_UP_SECONDS = 60.0


@dataclass(frozen=True)
class Look:
    """One look at a task that is being followed."""

    view: TaskView | None
    """What was seen; None where the server did not answer."""
    events: tuple[Event, ...] = ()
    """Records that no earlier look had, oldest first."""
    gap: bool = False
    """Whether records between the last look and these have moved to the archive unseen."""
    trouble: str = ""
    """Why there is nothing new, where a server or a worker does not answer."""


async def follow(tasks: Tasks, task_id: str) -> AsyncIterator[Look]:
    """Yield looks until the one that shows the end. Raises UnknownTask; RPCError where the server stays away.

    Where the embedded server does not run, PrerequisiteError for a task that had not ended.
    """
    loop = asyncio.get_running_loop()
    seen, answered = 0, loop.time()
    while True:
        try:
            view = await tasks.look(task_id)
        except RPCError as error:
            if error.status not in UNREACHABLE or loop.time() - answered > GIVE_UP_SECONDS:
                raise
            yield Look(None, trouble="the server does not answer; waiting for it")
            await asyncio.sleep(POLL_SECONDS)
            continue
        if not view.ended:
            tasks.need_server()
        answered = loop.time()
        events = view.state.events if view.state else ()
        fresh = tuple(event for event in events if number_of(event) > seen)
        yield Look(view, fresh, gap=bool(seen and fresh and len(fresh) == len(events)), trouble=view.why_not)
        if view.ended:
            return
        seen = max([seen, *map(number_of, fresh)])
        await asyncio.sleep(POLL_SECONDS)
