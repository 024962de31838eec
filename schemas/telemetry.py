"""Every name that leaves in spans, metrics and log lines: the one place where they stand.

The GenAI conventions moved to a repository of their own in 2026 and are still "development": names change between
its releases. ``GENAI_CONVENTIONS`` says which release these are; whoever raises it compares every name below.
"""

from enum import StrEnum

GENAI_CONVENTIONS = "0.1.0"
"""Release of open-telemetry/semantic-conventions-genai that the ``gen_ai.*`` names are taken from."""
TRACER = "surefoot"
"""Name of the instrumentation scope of our own spans."""
UNKNOWN = "unknown"
"""Label of what somebody else named and we do not know: a label must not grow with a model's imagination."""


class Operation(StrEnum):
    """Values of ``gen_ai.operation.name``; a span is named after its operation and what it works on."""

    CHAT = "chat"
    """One request to a model."""
    PLAN = "plan"
    """Writing a plan, or its next version; holds the request to the model."""
    EXECUTE_TOOL = "execute_tool"
    """One action."""
    INVOKE_AGENT = "invoke_agent"
    """A task: from outside (client), and one run of it (inside the workflow)."""


ACTIVITY_SPAN = "RunActivity"
"""Beginning of the name of an attempt's span, as Temporal's own integration calls it."""


class Attribute(StrEnum):
    """Attributes of spans."""

    ERROR_TYPE = "error.type"
    OPERATION = "gen_ai.operation.name"
    PROVIDER = "gen_ai.provider.name"
    AGENT_NAME = "gen_ai.agent.name"
    CONVERSATION = "gen_ai.conversation.id"
    """The workflow id: all runs of a chain are one conversation."""
    OUTPUT_TYPE = "gen_ai.output.type"
    REQUEST_MODEL = "gen_ai.request.model"
    REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
    RESPONSE_MODEL = "gen_ai.response.model"
    FINISH_REASONS = "gen_ai.response.finish_reasons"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
    CACHE_WRITE_TOKENS = "gen_ai.usage.cache_write.input_tokens"
    REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
    TOOL_NAME = "gen_ai.tool.name"
    TOOL_TYPE = "gen_ai.tool.type"
    TOOL_CALL_ID = "gen_ai.tool.call.id"
    # content: only where `telemetry.content` asks for it
    SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
    INPUT_MESSAGES = "gen_ai.input.messages"
    OUTPUT_MESSAGES = "gen_ai.output.messages"
    TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
    TOOL_RESULT = "gen_ai.tool.call.result"
    # Temporal's own
    WORKFLOW_ID = "temporalWorkflowID"
    RUN_ID = "temporalRunID"
    ACTIVITY_ID = "temporalActivityID"
    # ours
    CONVENTIONS = "surefoot.genai_conventions"
    NODE = "surefoot.node"
    PLACE = "surefoot.place"
    """Plan, step, iteration or action, as ``v2.s3.i1``."""
    EFFECT_ID = "surefoot.effect_id"
    """Key in the ledger."""
    ATTEMPT = "surefoot.attempt"
    STATUS = "surefoot.status"
    """How an action ended."""
    OUTCOME = "surefoot.outcome"
    SPEND_MICROUSD = "surefoot.spend.microusd"
    SPEND_TOKENS = "surefoot.spend.tokens"
    SPEND_MODEL_CALLS = "surefoot.spend.model_calls"


class Metric(StrEnum):
    """Counters of our own; Prometheus shows them with ``_total`` behind."""

    MODEL_CALLS = "surefoot_model_calls"
    """Requests to models, by model, node and status: a call's status, or the name of the error that ended it."""
    MODEL_TOKENS = "surefoot_model_tokens"
    """Tokens as the provider counted them, by model, node and kind (input, output)."""
    MODEL_MICROUSD = "surefoot_model_microusd"
    """What requests were charged, in micro-dollars, by model, node and status."""
    ACTIONS = "surefoot_actions"
    """Actions, by tool and status; ``unknown`` is an effect of which nobody knows whether it happened."""
    OUTCOMES = "surefoot_outcomes"
    """Ended tasks, by kind and reason."""


class Label(StrEnum):
    """Labels of our counters."""

    MODEL = "model"
    NODE = "node"
    STATUS = "status"
    KIND = "kind"
    TOOL = "tool"
    REASON = "reason"


class LogField(StrEnum):
    """Fields that every line has which is logged inside an activity."""

    WORKFLOW_ID = "workflow_id"
    RUN_ID = "run_id"
    ACTIVITY = "activity"
    """Name of the activity: a model node's name is its activity's."""
    ATTEMPT = "attempt"
    TRACE_ID = "trace_id"
    """Only while tracing is on."""
    SPAN_ID = "span_id"
    """Only while tracing is on."""
