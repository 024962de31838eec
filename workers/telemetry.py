"""Telemetry of a worker process: Temporal's runtime with its metrics, and the span of an agent's run."""

import logging
from collections.abc import Sequence

from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)
from temporalio.worker import Interceptor

from stores.settings import Settings
from stores.tracing import TelemetryUnavailable, tracing_on


def start_runtime(settings: Settings) -> None:
    """Start Temporal's core with its logs in this process's logging, and its metrics where they are asked for.

    Called before the first connection. By itself the core would log to standard output, which holds one line: whoever
    reads that line may read no more, and a full pipe would then stop the worker. Raises TelemetryUnavailable where
    the address of the metrics cannot be taken.
    """
    logging_config = LoggingConfig(
        filter=TelemetryFilter(core_level="WARN", other_level="ERROR"),
        forwarding=LogForwardingConfig(logger=logging.getLogger("temporalio.core")),
    )
    address = settings.telemetry.prometheus
    metrics = None
    if address is not None:
        metrics = PrometheusConfig(
            bind_address=address, counters_total_suffix=True, unit_suffix=True, durations_as_seconds=True
        )
    try:
        runtime = Runtime(
            telemetry=TelemetryConfig(
                logging=logging_config,
                metrics=metrics,
                attach_service_name=False,  # it would be the core's own name
                global_tags={"service_name": settings.telemetry.service_name},
            )
        )
    except (RuntimeError, ValueError) as error:
        raise TelemetryUnavailable(
            f"telemetry.prometheus: metrics cannot be shown on {address}: {error}. Each worker needs an address of "
            "its own: set SUREFOOT_TELEMETRY__PROMETHEUS for this one"
        ) from error
    Runtime.set_default(runtime, error_if_already_set=False)


def agent_spans() -> Sequence[Interceptor]:
    """Return what traces the runs of agents, where this process traces."""
    if not tracing_on():
        return ()
    from workers.agent_spans import AgentSpans

    return (AgentSpans(),)
