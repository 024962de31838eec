"""The wire contract, computed from the schemas: what a client needs to start, signal and query a task."""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from temporalio.api.enums.v1 import IndexedValueType

from schemas import contract as names
from schemas.errors import SurefootError, error_types
from schemas.messages import Note, SignalName
from schemas.outcome import (
    EXIT_BAD_INPUT,
    EXIT_CANCELLED,
    EXIT_FAILED,
    EXIT_NOT_VERIFIED,
    EXIT_PREREQUISITE,
    EXIT_STOPPED,
    EXIT_VERIFIED,
    OutcomeKind,
    Status,
    StopReason,
)
from schemas.state import AgentState, Summary, TaskInput, TaskResult
from stores.offload import THRESHOLD_BYTES
from stores.search_attributes import SEARCH_ATTRIBUTES
from stores.settings import Settings

DIALECT = "https://json-schema.org/draft/2020-12/schema"

SIGNALS = {
    SignalName.PAUSE: "Pauses the task; a command that runs is stopped with everything it started.",
    SignalName.RESUME: "Lets a paused task go on.",
    SignalName.CANCEL: "Ends the task as CANCELLED.",
    SignalName.STEER: "Tells planner and executor something; they see it from the next decision on.",
}
QUERIES: dict[str, tuple[type[BaseModel], str]] = {
    names.SUMMARY_QUERY: (Summary, "The state in a few lines; always small."),
    names.STATE_QUERY: (AgentState, "Everything that the task remembers."),
}
OUTCOMES = {
    OutcomeKind.FINISHED: (
        "Every mandatory requirement holds; `verified` says what the hidden evaluator found.",
        "Completed",
        (EXIT_VERIFIED, EXIT_NOT_VERIFIED),
    ),
    OutcomeKind.STOPPED_INCOMPLETE: (
        "A bound or a limit was reached; `reason` names it.",
        "Completed",
        (EXIT_STOPPED,),
    ),
    OutcomeKind.CANCELLED: (
        "Cancelled by the signal (Completed) or by Temporal's own cancel (Canceled).",
        "Completed or Canceled",
        (EXIT_CANCELLED,),
    ),
    OutcomeKind.FAILED: ("An error that nothing could be done about; `error_type` names it.", "Failed", (EXIT_FAILED,)),
}
EXIT_CODES = {
    EXIT_VERIFIED: "finished, and the evaluator agrees or there is none",
    EXIT_NOT_VERIFIED: "finished, but the evaluator says no",
    EXIT_BAD_INPUT: "bad input; nothing was started",
    EXIT_STOPPED: "stopped incomplete",
    EXIT_FAILED: "failed",
    EXIT_CANCELLED: "cancelled",
    EXIT_PREREQUISITE: "something is missing or does not run",
}
TYPES: dict[int, str] = {
    IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD: "Keyword",
    IndexedValueType.INDEXED_VALUE_TYPE_BOOL: "Bool",
    IndexedValueType.INDEXED_VALUE_TYPE_DOUBLE: "Double",
}
PUBLISHED: tuple[type[BaseModel], ...] = (TaskInput, TaskResult, AgentState, Summary, Note)


def contract() -> dict[str, Any]:
    """Return the contract as JSON values; the same in every process of one version."""
    return {
        "version": names.CONTRACT_VERSION,
        "payloads": {
            "encoding": "json/plain",
            "larger_than_bytes": THRESHOLD_BYTES,
            "then": "a reference to the artifact store takes its place, which only a client with that store can read; "
            f"query `{names.SUMMARY_QUERY}` is never that large",
        },
        "workflows": {names.TASK_WORKFLOW: _task_workflow()},
        "queues": _queues(),
        "outcomes": _outcomes(),
        "exit_codes": {str(code): meaning for code, meaning in EXIT_CODES.items()},
        "statuses": [status.value for status in Status],
        "errors": _errors(),
        "search_attributes": {key.name: TYPES[key.indexed_value_type] for key in SEARCH_ATTRIBUTES},
        "$schema": DIALECT,
        "$defs": schemas(),
    }


def schemas() -> dict[str, Any]:
    """Return the JSON Schemas of everything that crosses the wire, by name."""
    _, document = models_json_schema([(model, "validation") for model in PUBLISHED])
    found: dict[str, Any] = document["$defs"]
    # a value that only a reading client makes of what it does not know
    found["StopReason"]["enum"] = [reason.value for reason in StopReason if reason is not StopReason.UNKNOWN]
    return dict(sorted(found.items()))


def _task_workflow() -> dict[str, Any]:
    return {
        "meaning": "One agent task, from plan to verified result.",
        "queue": _default_prefix(),
        "id": "chosen by whoever starts it; ours are `task-<slug>-<10 base32>`",
        "workflow_task_timeout_seconds": names.WORKFLOW_TASK_TIMEOUT_SECONDS,
        "input": _ref(TaskInput),
        "result": _ref(TaskResult),
        "signals": {name.value: {"argument": _ref(Note), "meaning": SIGNALS[name]} for name in SignalName},
        "queries": {name: {"result": _ref(kind), "meaning": meaning} for name, (kind, meaning) in QUERIES.items()},
        "updates": {},
    }


def _queues() -> dict[str, str]:
    prefix = _default_prefix()
    return {
        prefix: "workflows, models, ledger: the queue to start a task on",
        names.workspace_queue(prefix, "<kind>", "<host>"): "workspaces of one kind (sandbox, local) on one host; "
        "named in the input as spec.workspace.queue",
    }


def _default_prefix() -> str:
    return str(Settings.model_fields["queue_prefix"].default)


def _outcomes() -> dict[str, Any]:
    return {
        kind.value: {
            "meaning": meaning,
            "temporal_status": status,
            "exit_codes": list(codes),
            **({"reasons": _reasons()} if kind is OutcomeKind.STOPPED_INCOMPLETE else {}),
        }
        for kind, (meaning, status, codes) in OUTCOMES.items()
    }


def _reasons() -> list[str]:
    return [reason.value for reason in StopReason if reason is not StopReason.UNKNOWN]


def _errors() -> dict[str, dict[str, str]]:
    """Return what FAILED may name; other names are a fault of Surefoot (`Fault`) or Temporal's own."""
    retried = {name: _first_line(error) for name, error in error_types().items() if error.retryable}
    final = {name: _first_line(error) for name, error in error_types().items() if not error.retryable}
    return {"retried_first": dict(sorted(retried.items())), "final": dict(sorted(final.items()))}


def _first_line(error: type[SurefootError]) -> str:
    return (error.__doc__ or "").split("\n")[0]


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/$defs/{model.__name__}"}
