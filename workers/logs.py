"""Logs of background processes: one JSON object a line, on standard error."""

import logging
import sys
from collections.abc import Callable
from types import TracebackType

import structlog
from structlog.typing import Processor
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from stores.settings import LogLevel


def log_json(level: LogLevel, mask: Callable[[str], str] = lambda line: line) -> None:
    """Send everything that this process logs, libraries included, to standard error as JSON lines, each ``mask``-ed.

    An exception that ends the process is logged as well, instead of being printed as it is.
    """
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(default=str),
            lambda _logger, _method, line: mask(str(line)),  # the last one: what it gives is written as it is
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.value.upper(), handlers=[handler], force=True)
    sys.excepthook = _log_end
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it names every plugin at every start


def _log_end(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    logging.getLogger("surefoot").critical("the process ends", exc_info=(kind, error, at))


def forward_core_logs() -> None:
    """Let Temporal's core log through this process's logging; else it writes to standard output, which is not its.

    Called before the first connection. Standard output holds one line, and whoever reads that line may read no more:
    a full pipe would then stop the worker.
    """
    logging_config = LoggingConfig(
        filter=TelemetryFilter(core_level="WARN", other_level="ERROR"),
        forwarding=LogForwardingConfig(logger=logging.getLogger("temporalio.core")),
    )
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=logging_config)), error_if_already_set=False)
