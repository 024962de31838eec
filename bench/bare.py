"""The yardstick: a bare Temporal workflow with the calls of a recorded task.

The same activities by name, in the same order and the same pairs, on as many queues, with payloads of the same size,
the same time-outs and the same cap of a run; and nothing else: no state, no ledger, no files, no prompts.
"""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta

from temporalio import workflow

QUEUE = "bare"
WORKSPACE_QUEUE = "bare.ws"


@dataclass(frozen=True)
class Shape:
    """What all calls of one name are like."""

    name: str
    """Name of the activity."""
    queue: str
    """Queue on which it runs."""
    request_bytes: int
    """Mean size of its payload."""
    reply_bytes: int
    """Mean size of its result."""
    seconds: float
    """Longest attempt."""
    heartbeat_seconds: float | None
    """Heartbeat time-out."""


@dataclass(frozen=True)
class BareTask:
    """The calls of a whole task."""

    shapes: list[Shape]
    """One for each name."""
    groups: list[list[int]]
    """Calls that run side by side, as indexes of their shapes."""
    cap_events: int
    """Events after which a run hands over to the next."""
    position: int = 0
    """Next group."""


@workflow.defn(name="Bare")
class Bare:
    """Runs the calls."""

    @workflow.run
    async def run(self, task: BareTask) -> int:
        """Run the groups one after the other, and return how many there were."""
        for position in range(task.position, len(task.groups)):
            if workflow.info().get_current_history_length() >= task.cap_events:
                workflow.continue_as_new(replace(task, position=position))
            await asyncio.gather(*(self._call(task.shapes[index]) for index in task.groups[position]))
        return len(task.groups)

    async def _call(self, shape: Shape) -> None:
        head = f"{shape.reply_bytes} "
        await workflow.execute_activity(
            shape.name,
            head + "x" * (shape.request_bytes - len(head) - 2),  # 2 for the quotes
            task_queue=shape.queue,
            result_type=str,
            start_to_close_timeout=timedelta(seconds=shape.seconds),
            heartbeat_timeout=timedelta(seconds=shape.heartbeat_seconds) if shape.heartbeat_seconds else None,
        )
