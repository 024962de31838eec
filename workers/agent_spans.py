"""The span of an agent's run, opened inside the workflow: imported only where tracing is on.

It is sent when the run ends; until then its activities' spans show where a long task stands. The provider is
replay-safe: ids come from the workflow's own randomness, and nothing is sent twice however often a run is replayed.
"""

import asyncio
from typing import Any

from opentelemetry.trace import Span, StatusCode, get_tracer
from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from schemas.budget import Spend
from schemas.state import TaskInput, TaskResult
from schemas.telemetry import GENAI_CONVENTIONS, TRACER, Attribute, Operation


class AgentSpans(Interceptor):
    """Opens an ``invoke_agent`` span around each run of a workflow."""

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """Return the part that works inside the workflow."""
        return _AgentSpan


class _AgentSpan(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        """Run the workflow inside its span. A failed workflow task ends nothing: the run goes on in the next one."""
        info, name = workflow.info(), _agent(input)
        tracer = get_tracer(TRACER, attributes={Attribute.CONVENTIONS.value: GENAI_CONVENTIONS})
        attributes = {
            Attribute.OPERATION.value: Operation.INVOKE_AGENT.value,
            Attribute.AGENT_NAME.value: name,
            Attribute.CONVERSATION.value: info.workflow_id,
            Attribute.WORKFLOW_ID.value: info.workflow_id,
            Attribute.RUN_ID.value: info.run_id,
        }
        with tracer.start_as_current_span(
            f"{Operation.INVOKE_AGENT.value} {name}",
            attributes=attributes,
            record_exception=False,  # messages may quote what must not leave
            set_status_on_exception=False,
            end_on_exit=False,
        ) as span:
            try:
                result = await super().execute_workflow(input)
            except (workflow.ContinueAsNewError, asyncio.CancelledError) as end:
                _end(span, "" if isinstance(end, workflow.ContinueAsNewError) else "cancelled")
                raise
            except Exception as error:
                if workflow.is_failure_exception(error):
                    _end(span, _error_type(error))
                raise
            if isinstance(result, TaskResult):
                span.set_attributes(_ended(result))
            _end(span, "")
            return result


def _end(span: Span, error_type: str) -> None:
    if error_type:
        span.set_status(StatusCode.ERROR)
        span.set_attribute(Attribute.ERROR_TYPE.value, error_type)
    span.end()


def _agent(input: ExecuteWorkflowInput) -> str:
    first = input.args[0] if input.args else None
    return first.spec.name if isinstance(first, TaskInput) else workflow.info().workflow_type


def _error_type(error: Exception) -> str:
    return (error.type if isinstance(error, ApplicationError) else None) or type(error).__name__


def _ended(result: TaskResult) -> dict[str, str | int]:
    spend: Spend = result.summary.spend
    return {
        Attribute.OUTCOME.value: result.outcome.label,
        Attribute.SPEND_MICROUSD.value: spend.microusd,
        Attribute.SPEND_TOKENS.value: spend.tokens,
        Attribute.SPEND_MODEL_CALLS.value: spend.model_calls,
    }
