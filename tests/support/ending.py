"""Ends of workflows that come from outside, and what Temporal forgets after them."""

import asyncio
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from stores.settings import Settings
from tests.support.server import client_of


async def forget(client: Client, task_id: str) -> None:
    """Let Temporal forget a workflow, as the end of its retention does."""
    execution = WorkflowExecution(workflow_id=task_id)
    request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
    await client.workflow_service.delete_workflow_execution(request)
    async with asyncio.timeout(200):
        while True:
            try:
                await client.get_workflow_handle(task_id).describe()
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                return
            await asyncio.sleep(0.05)


def with_client(settings: Settings, task_id: str, work: Any) -> None:
    """Do something to a workflow on the embedded server."""

    async def go() -> None:
        await work(await client_of(settings), task_id)

    asyncio.run(go())


async def terminate(client: Client, task_id: str) -> None:
    """Terminate a workflow from outside."""
    await client.get_workflow_handle(task_id).terminate(reason="by hand")
