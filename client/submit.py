"""How a task is started."""

import os
from datetime import timedelta

from temporalio.client import Client, WorkflowHandle
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from schemas.base import clip
from schemas.contract import TASK_WORKFLOW, WORKFLOW_TASK_TIMEOUT_SECONDS, SearchAttribute
from schemas.ids import task_id
from schemas.outcome import Status
from schemas.state import TaskInput, TaskResult
from schemas.task import TaskSpec
from schemas.telemetry import Attribute, Operation
from stores.settings import Settings
from stores.temporal import register_search_attributes
from stores.tracing import span

SUMMARY_CHARACTERS = 200


async def start(client: Client, settings: Settings, spec: TaskSpec) -> WorkflowHandle[object, TaskResult]:
    """Start the task under a new id and return its handle. Raises RPCError where the server refuses."""
    await register_search_attributes(client)
    workflow_id = task_id(spec.name, os.urandom(7))
    attributes = {
        Attribute.OPERATION: Operation.INVOKE_AGENT.value,
        Attribute.AGENT_NAME: spec.name,
        Attribute.CONVERSATION: workflow_id,
    }
    with span(f"{Operation.INVOKE_AGENT.value} {spec.name}", attributes, client=True):
        return await _start(client, settings, spec, workflow_id)


async def _start(
    client: Client, settings: Settings, spec: TaskSpec, workflow_id: str
) -> WorkflowHandle[object, TaskResult]:
    return await client.start_workflow(
        TASK_WORKFLOW,
        TaskInput(spec=spec),
        id=workflow_id,
        task_queue=settings.queue_prefix,
        result_type=TaskResult,
        task_timeout=timedelta(seconds=WORKFLOW_TASK_TIMEOUT_SECONDS),
        static_summary=clip(f"{spec.name}: {' '.join(spec.goal.split())}", SUMMARY_CHARACTERS),
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(SearchAttributeKey.for_keyword(SearchAttribute.STATUS), Status.PLANNING.value),
                SearchAttributePair(SearchAttributeKey.for_keyword(SearchAttribute.TASK_TYPE), spec.task_type),
            ]
        ),
    )
