"""Logs of background processes: one JSON object a line, on standard error.

A line that is logged inside an activity says which: workflow, run, activity, attempt, and trace and span while tracing
is on. One that workflow code logs says which workflow and run.
"""

import logging
import sys
from collections.abc import Callable
from types import TracebackType

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger
from temporalio import activity, workflow

from schemas.telemetry import LogField
from stores.settings import LogLevel
from stores.tracing import current_ids


def log_json(level: LogLevel, mask: Callable[[str], str] = lambda line: line) -> None:
    """Send everything that this process logs, libraries included, to standard error as JSON lines, each ``mask``-ed.

    Libraries say no more than INFO: below that they quote payloads, prompts and keys. An exception that ends the
    process is logged as well, instead of being printed as it is.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(), _name_the_workflow, _add_trace],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(default=str),
            lambda _logger, _method, line: mask(str(line)),  # the last one: what it gives is written as it is
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    number = logging.getLevelNamesMapping()[level.value.upper()]
    logging.basicConfig(level=max(number, logging.INFO), handlers=[handler], force=True)
    logging.getLogger("surefoot").setLevel(number)
    sys.excepthook = _log_end
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it names every plugin at every start
    workflow.logger.workflow_info_on_message = False  # it stands in fields, not once more inside the message
    activity.logger.activity_info_on_message = False


def _log_end(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    logging.getLogger("surefoot").critical("the process ends", exc_info=(kind, error, at))


def _name_the_workflow(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Lift what Temporal's own loggers say about workflow or activity into the fields that all lines have."""
    for name in ("temporal_workflow", "temporal_activity"):
        details = event.pop(name, None)
        if isinstance(details, dict):
            event.setdefault(LogField.WORKFLOW_ID.value, details.get("workflow_id"))
            event.setdefault(LogField.RUN_ID.value, details.get("run_id") or details.get("workflow_run_id"))
            event.setdefault(LogField.ATTEMPT.value, details.get("attempt"))
            if "activity_type" in details:
                event.setdefault(LogField.ACTIVITY.value, details["activity_type"])
    return event


def _add_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    ids = current_ids()
    if ids is not None:
        event[LogField.TRACE_ID.value], event[LogField.SPAN_ID.value] = ids
    return event
