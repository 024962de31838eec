"""Frames that a task's state keeps no more: Temporal's history has every one, as long as it has the run."""

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from client.views import TaskView
from schemas.contract import SNAPSHOT
from schemas.frames import Frame


async def frame_in_history(client: Client, view: TaskView, frame_id: str) -> Frame | None:
    """Return the frame of that id, from the last run of the chain back to its first; None where it is not found."""
    run_id = view.run_id
    while run_id:
        run_id, snapshots = await _snapshots(client, view.id, run_id)
        for event in snapshots:
            payloads = event.activity_task_completed_event_attributes.result.payloads
            (frame,) = await client.data_converter.decode(payloads, [Frame])
            if frame.id == frame_id:
                return frame  # type: ignore[no-any-return]
    return None


async def _snapshots(client: Client, task_id: str, run_id: str) -> tuple[str, list[HistoryEvent]]:
    """Return the run before, if any, and the events in which a frame came back."""
    before, scheduled, found = "", set(), []
    try:
        async for event in client.get_workflow_handle(task_id, run_id=run_id).fetch_history_events():
            if event.HasField("workflow_execution_started_event_attributes"):
                before = event.workflow_execution_started_event_attributes.continued_execution_run_id
            if event.activity_task_scheduled_event_attributes.activity_type.name == SNAPSHOT.name:
                scheduled.add(event.event_id)
            if event.activity_task_completed_event_attributes.scheduled_event_id in scheduled:
                found.append(event)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    return before, found
