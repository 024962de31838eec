"""Tracing: off unless an OTLP endpoint is configured; OpenTelemetry is imported only where it is on.

``start_tracing`` makes this process trace, ``span`` opens a span (or nothing), ``stop_tracing`` sends what is left.
Spans are sent by a thread of their own: a receiver that is down costs spans, never a task.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from schemas.telemetry import GENAI_CONVENTIONS, TRACER, Attribute
from stores.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.trace import Span as OpenTelemetrySpan
    from opentelemetry.trace import Tracer
    from temporalio.contrib.opentelemetry import ReplaySafeTracerProvider
    from temporalio.plugin import SimplePlugin

EXPORT_TIMEOUT_SECONDS = 5.0
FLUSH_SECONDS = 2.0  # at the end of a process; what a slow receiver has not taken by then is lost
NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")

Value = str | int | tuple[str, ...]
Attributes = Mapping[Attribute, Value]
Mask = Callable[[str], str]


class TelemetryUnavailable(Exception):
    """What the settings ask for cannot be had here; the message names the setting and what to do."""


class Span:
    """An open span; one that goes nowhere where tracing is off."""

    def __init__(self, traced: "OpenTelemetrySpan | None" = None) -> None:
        """Write to ``traced``."""
        self._traced = traced

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""
        if self._traced is not None:
            self._traced.set_attributes({name.value: _masked(value) for name, value in attributes.items()})

    def set_content(self, name: Attribute, text: Callable[[], str]) -> None:
        """Add what was said, where ``telemetry.content`` asks for it: the one way in which content gets into a span."""
        if self._traced is not None and _tracing is not None and _tracing.content:
            self._traced.set_attribute(name.value, _tracing.mask(text()))

    def fail(self, error_type: str) -> None:
        """Mark the span as failed, by the error's type; messages may quote what must not leave."""
        if self._traced is not None:
            from opentelemetry.trace import StatusCode

            self._traced.set_status(StatusCode.ERROR)
            self._traced.set_attribute(Attribute.ERROR_TYPE.value, error_type)


@dataclass(frozen=True)
class _Tracing:
    tracer: "Tracer"
    provider: "ReplaySafeTracerProvider"
    content: bool
    mask: Mask


_tracing: _Tracing | None = None


def _masked(value: Value) -> Value:
    if _tracing is None or isinstance(value, int):
        return value
    return _tracing.mask(value) if isinstance(value, str) else tuple(_tracing.mask(item) for item in value)


def start_tracing(settings: Settings, mask: Mask) -> None:
    """Trace this process from now on, where an OTLP endpoint is configured; every text in a span is ``mask``-ed.

    Raises TelemetryUnavailable where OpenTelemetry is not installed.
    """
    global _tracing  # as global as OpenTelemetry's own provider, which can be set only once
    telemetry = settings.telemetry
    if telemetry.otlp_endpoint is None or _tracing is not None:
        return
    check_tracing(settings)
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from temporalio.contrib.opentelemetry import create_tracer_provider

    endpoint = f"{telemetry.otlp_endpoint.rstrip('/')}/v1/traces"
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_SECONDS)
    provider = create_tracer_provider(
        resource=Resource.create({SERVICE_NAME: telemetry.service_name}), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    # without a handler of its own Python would print the exporter's complaints among a command's results
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    tracer = provider.get_tracer(TRACER, attributes={Attribute.CONVENTIONS.value: GENAI_CONVENTIONS})
    _tracing = _Tracing(tracer, provider, telemetry.content, mask)


def check_tracing(settings: Settings) -> None:
    """Raise TelemetryUnavailable where the settings ask for traces and OpenTelemetry is not installed."""
    if settings.telemetry.otlp_endpoint is not None and not can_trace():
        raise TelemetryUnavailable(
            "telemetry.otlp_endpoint is set, but OpenTelemetry is not installed here; install it: make setup"
        )


def can_trace() -> bool:
    """Whether OpenTelemetry is installed here."""
    try:
        return all(find_spec(name) for name in NEEDED)
    except ModuleNotFoundError:  # of a parent package
        return False


def tracing_on() -> bool:
    """Whether this process traces."""
    return _tracing is not None


def tracing_plugins() -> "list[SimplePlugin]":
    """Return what carries a trace through Temporal: from client to workflow to activity, replay-safe."""
    if _tracing is None:
        return []
    from temporalio.contrib.opentelemetry import OpenTelemetryPlugin

    return [OpenTelemetryPlugin()]  # without spans of its own: each query of somebody who watches would be a trace


@contextmanager
def span(name: str, attributes: Attributes, *, client: bool = False) -> Iterator[Span]:
    """Open a span inside the current one; an exception marks it as failed and goes through. Not for workflow code.

    ``client`` is for requests to somebody else: a model's provider, a remote agent.
    """
    if _tracing is None:
        yield Span()
        return
    from opentelemetry.trace import SpanKind

    kind = SpanKind.CLIENT if client else SpanKind.INTERNAL
    with _tracing.tracer.start_as_current_span(
        name, kind=kind, record_exception=False, set_status_on_exception=False
    ) as traced:
        opened = Span(traced)
        opened.set(attributes)
        try:
            yield opened
        except BaseException as error:
            opened.fail(type(error).__name__)
            raise


def current_ids() -> tuple[str, str] | None:
    """Return the hexadecimal ids of the current trace and span, or None where there is none."""
    if _tracing is None:
        return None
    from opentelemetry.trace import format_span_id, format_trace_id, get_current_span

    context = get_current_span().get_span_context()
    return (format_trace_id(context.trace_id), format_span_id(context.span_id)) if context.is_valid else None


def stop_tracing() -> None:
    """Send the spans that are left, for at most ``FLUSH_SECONDS``; whoever is not there to take them does not get them.

    Called at the end of a process that ends at once afterwards: the thread may still be sending.
    """
    if _tracing is not None:
        sending = threading.Thread(target=_tracing.provider.shutdown, daemon=True)
        sending.start()
        sending.join(FLUSH_SECONDS)
