"""What activities tell about themselves: bound log fields, spans by the GenAI conventions, counters.

Nothing here decides anything, and nothing here says what was asked or answered unless ``telemetry.content`` is set.
"""

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

from pydantic import BaseModel
from structlog.contextvars import bound_contextvars
from temporalio import activity

from activities.model.port import Completion, CompletionReply
from activities.tools.registry import TOOLS
from schemas.actions import Observation, ObservationStatus
from schemas.calls import ModelRequest
from schemas.effects import CallRecord
from schemas.models import ModelChoice, Node
from schemas.pricing import Usage
from schemas.telemetry import ACTIVITY_SPAN, UNKNOWN, Attribute, Label, LogField, Metric, Operation
from schemas.workspace import ActionRequest
from stores.tracing import Span, span

log = logging.getLogger("surefoot.activity")
Value = str | int | tuple[str, ...]
ADAPTER = "litellm"
"""Provider of a model whose name names none: the adapter finds it out by itself."""


@contextmanager
def attempt(name: str) -> Iterator[None]:
    """Bind the log fields of this attempt, trace it, and log its start and its end."""
    info = activity.info()
    fields = {
        LogField.WORKFLOW_ID.value: info.workflow_id,
        LogField.RUN_ID.value: info.workflow_run_id,
        LogField.ACTIVITY.value: name,
        LogField.ATTEMPT.value: info.attempt,
    }
    attributes: dict[Attribute, Value] = {
        Attribute.WORKFLOW_ID: info.workflow_id or "",
        Attribute.RUN_ID: info.workflow_run_id or "",
        Attribute.ACTIVITY_ID: info.activity_id,
        Attribute.ATTEMPT: info.attempt,
    }
    with bound_contextvars(**fields), span(f"{ACTIVITY_SPAN}:{name}", attributes):
        log.debug("activity started")
        try:
            yield
        except asyncio.CancelledError:
            log.info("activity cancelled")
            raise
        except Exception as error:
            # the type only: what the message quotes is masked on its way into the history, and stands there
            log.warning("activity failed", extra={"error_type": type(error).__name__})
            raise
        log.info("activity completed")


@contextmanager
def chat(request: ModelRequest, completion: Completion) -> Iterator["Chat"]:
    """Trace one request to a model, inside a span of its own for planning where that is what it is for."""
    provider, model = _named(completion.choice)
    attributes: dict[Attribute, Value] = {
        Attribute.OPERATION: Operation.CHAT.value,
        Attribute.PROVIDER: provider,
        Attribute.REQUEST_MODEL: model,
        Attribute.REQUEST_MAX_TOKENS: completion.max_output_tokens,
        Attribute.OUTPUT_TYPE: "text" if completion.schema is None else "json",
        Attribute.CONVERSATION: request.key.workflow_id,
        Attribute.NODE: request.node.value,
        Attribute.PLACE: request.place,
        Attribute.EFFECT_ID: completion.effect_id,
    }
    planning = {Attribute.OPERATION: Operation.PLAN.value, Attribute.CONVERSATION: request.key.workflow_id}
    plans = request.node in (Node.PLAN, Node.REPLAN)
    with (
        span(Operation.PLAN.value, planning) if plans else nullcontext(),
        span(f"{Operation.CHAT.value} {model}", attributes, client=True) as opened,
    ):
        opened.set_content(Attribute.SYSTEM_INSTRUCTIONS, lambda: json.dumps([_text(completion.system)]))
        opened.set_content(Attribute.INPUT_MESSAGES, lambda: json.dumps([_message("user", completion.user)]))
        yield Chat(opened)


class Chat:
    """The span of a request that is under way."""

    def __init__(self, opened: Span) -> None:
        """Write to the request's span."""
        self._span = opened

    def answered(self, reply: CompletionReply) -> None:
        """Note what came back."""
        attributes: dict[Attribute, Value] = {
            Attribute.RESPONSE_MODEL: reply.model,
            Attribute.FINISH_REASONS: (reply.finish_reason,),
        }
        if reply.usage is not None:
            attributes.update(_usage(reply.usage))
        self._span.set(attributes)
        message = {**_message("assistant", reply.text), "finish_reason": reply.finish_reason}
        self._span.set_content(Attribute.OUTPUT_MESSAGES, lambda: json.dumps([message]))


@contextmanager
def execute_tool(request: ActionRequest, arguments: BaseModel) -> Iterator["ToolCall"]:
    """Trace one action."""
    tool = _tool_label(request.action.tool)
    attributes: dict[Attribute, Value] = {
        Attribute.OPERATION: Operation.EXECUTE_TOOL.value,
        Attribute.TOOL_NAME: tool,
        Attribute.TOOL_TYPE: "function",
        Attribute.TOOL_CALL_ID: request.action_id,
        Attribute.CONVERSATION: request.key.workflow_id,
        Attribute.EFFECT_ID: request.key.effect_id,
    }
    with span(f"{Operation.EXECUTE_TOOL.value} {tool}", attributes) as opened:
        opened.set_content(Attribute.TOOL_ARGUMENTS, arguments.model_dump_json)
        yield ToolCall(opened)


class ToolCall:
    """The span of an action that is under way."""

    def __init__(self, opened: Span) -> None:
        """Write to the action's span."""
        self._span = opened

    def ended(self, status: ObservationStatus, text: str) -> None:
        """Note how it ended."""
        self._span.set({Attribute.STATUS: status.value})
        if status is not ObservationStatus.SUCCEEDED:
            self._span.fail(status.value)
        self._span.set_content(Attribute.TOOL_RESULT, lambda: text)


def count_call(request: ModelRequest, record: CallRecord) -> None:
    """Count a request that was settled, or that was not sent at all."""
    who = {Label.MODEL: request.choice.model, Label.NODE: request.node.value}
    status = {Label.STATUS: record.status.value}
    _count(Metric.MODEL_CALLS, 1, {**who, **status})
    _count(Metric.MODEL_MICROUSD, record.charged.microusd, {**who, **status})
    _count(Metric.MODEL_TOKENS, record.usage.input_tokens, {**who, Label.KIND: "input"})
    _count(Metric.MODEL_TOKENS, record.usage.output_tokens, {**who, Label.KIND: "output"})


def count_refused_call(request: ModelRequest, error: Exception) -> None:
    """Count a request that a provider refused, unbilled."""
    labels = {Label.MODEL: request.choice.model, Label.NODE: request.node.value, Label.STATUS: type(error).__name__}
    _count(Metric.MODEL_CALLS, 1, labels)


def count_action(observation: Observation) -> None:
    """Count an action that was settled, or that was not performed at all."""
    _count(Metric.ACTIONS, 1, {Label.TOOL: _tool_label(observation.tool), Label.STATUS: observation.status.value})


def _count(metric: Metric, by: int, labels: Mapping[Label, str]) -> None:
    if by and activity.in_activity():
        counter = activity.metric_meter().create_counter(metric.value)
        counter.add(by, {name.value: value for name, value in labels.items()})


def _named(choice: ModelChoice) -> tuple[str, str]:
    """Return provider and model of a LiteLLM name, as ``openai/gpt-5``."""
    provider, slash, model = choice.model.partition("/")
    if slash:
        return provider, model
    return choice.model if choice.rehearsed else ADAPTER, choice.model


def _tool_label(name: str) -> str:
    return name if name in TOOLS else UNKNOWN


def _usage(usage: Usage) -> dict[Attribute, Value]:
    return {
        Attribute.INPUT_TOKENS: usage.input_tokens,
        Attribute.OUTPUT_TOKENS: usage.output_tokens,
        Attribute.CACHE_READ_TOKENS: usage.cached_input_tokens,
        Attribute.CACHE_WRITE_TOKENS: usage.cache_write_tokens,
        Attribute.REASONING_TOKENS: usage.reasoning_tokens,
    }


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "content": text}


def _message(role: str, text: str) -> dict[str, object]:
    return {"role": role, "parts": [_text(text)]}
