"""Calls of a task that are tried again, as Temporal itself tells: no worker need answer for that."""

from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.exceptions import ApplicationError

from schemas.base import clip


async def retrying(client: Client, described: WorkflowExecutionDescription) -> tuple[str, ...]:
    """Return a line for each pending activity that has failed, as ``retrying 3 of 6: plan: no connection to …``."""
    pending = described.raw_description.pending_activities
    return tuple([await _line(client, call) for call in pending if call.HasField("last_failure")])


async def _line(client: Client, call: PendingActivityInfo) -> str:
    # a codec, where workers have one, has encoded the text of the failure
    error = await client.data_converter.decode_failure(call.last_failure)
    said = error.message if isinstance(error, ApplicationError) else str(error)
    of = f" of {call.maximum_attempts}" if call.maximum_attempts else ""
    return clip(f"retrying {call.attempt}{of}: {call.activity_type.name}: {' '.join(said.split())}")
