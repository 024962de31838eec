"""What a run's histories say: every call with its time, its sizes, and what ran side by side."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from tests.proof.bench import RunOfChain, chain_of


@dataclass
class Call:
    """One activity as history has it."""

    name: str
    """Name of the activity."""
    queue: str
    """Task queue on which it was scheduled."""
    group: tuple[str, int]
    """Run and workflow task that scheduled it: calls of one group run side by side."""
    at: float
    """When it was scheduled, seconds since the epoch, by the server's clock."""
    request: bytes
    """Its payload."""
    reply_bytes: int = 0
    """Size of its result; 0 where there is none."""

    @property
    def place(self) -> str:
        """Plan, step or iteration that a model was asked for; empty for other calls."""
        return str(json.loads(self.request).get("place", ""))


@dataclass(frozen=True)
class Chain:
    """All runs of one task."""

    runs: list[RunOfChain]
    """Sizes of the runs, oldest first."""
    calls: list[Call]
    """All calls, in the order in which they were scheduled."""

    @property
    def events_per_call(self) -> float:
        """History events, everything included, for each call."""
        return sum(run.events for run in self.runs) / len(self.calls)

    @property
    def bytes_per_call(self) -> float:
        """History bytes, everything included, for each call."""
        return sum(run.history_bytes for run in self.runs) / len(self.calls)

    def groups(self) -> list[list[Call]]:
        """Return the calls, those that ran side by side together."""
        found: dict[tuple[str, int], list[Call]] = {}
        for call in self.calls:
            found.setdefault(call.group, []).append(call)
        return list(found.values())


async def read_chain(client: Client, workflow_id: str) -> Chain:
    """Read everything that the server has of a task."""
    runs = await chain_of(client, workflow_id)
    calls: list[Call] = []
    for run in runs:
        history = await client.get_workflow_handle(workflow_id, run_id=run.run_id).fetch_history()
        calls += _calls(run.run_id, history.events)
    return Chain(runs, calls)


def _calls(run_id: str, events: Sequence[HistoryEvent]) -> list[Call]:
    calls: dict[int, Call] = {}
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled = event.activity_task_scheduled_event_attributes
            calls[event.event_id] = Call(
                name=scheduled.activity_type.name,
                queue=scheduled.task_queue.name,
                group=(run_id, scheduled.workflow_task_completed_event_id),
                at=event.event_time.ToNanoseconds() / 1e9,
                request=scheduled.input.payloads[0].data,
            )
        elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            completed = event.activity_task_completed_event_attributes
            calls[completed.scheduled_event_id].reply_bytes = sum(len(item.data) for item in completed.result.payloads)
    return list(calls.values())
