"""Opens what the settings `tracing` and `stream` name: the sender of traces, and the sinks of `activities/decision_stream.py`.

OTLP needs the extra `otel`. Nothing waits for a span and nothing fails by one: they are sent by a thread of the exporter's, in
batches, and lost where no collector takes them. What is left when the worker ends gets a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from temporalio.client import Client
from temporalio.worker import Interceptor

from activities.decision_stream import EXPORT_SECONDS, DecisionStream, FileSink, OtlpSink, RecordDecisions, Sink
from workers.configuration.process_settings import OtlpSettings, StreamSettings, TracingSettings
from workers.errors import SettingsError
from workers.runtime import runtime

EXTRA = "expected the extra otel: in a checkout of nodewarden, pip install '.[otel]'"
LAST_SPANS_SECONDS = 5.0


@asynccontextmanager
async def tracing(settings: TracingSettings | None, *, identity: str) -> AsyncIterator[Sequence[Interceptor]]:
    """What a worker's interceptors begin with; nothing where nothing is set. identity: who we are among the workers.

    Raises SettingsError where the extra is not installed, or the file with headers can't be read.
    """
    if settings is None:
        yield ()
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from workers.interceptors.tracing import GivenIds, Tracing
    except ImportError as error:
        raise SettingsError(f"tracing: {EXTRA} ({error})") from error
    exporter = OTLPSpanExporter(
        endpoint=settings.endpoint,
        certificate_file=str(settings.ca_file) if settings.ca_file else None,
        headers=headers_of("tracing", settings),
        timeout=EXPORT_SECONDS,
    )
    resource = Resource.create({"service.name": "nodewarden", "service.instance.id": identity})
    provider = TracerProvider(resource=resource, id_generator=GivenIds(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield (Tracing(provider),)
    finally:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SPANS_SECONDS):
                await asyncio.to_thread(provider.shutdown)


def headers_of(setting: str, settings: OtlpSettings) -> dict[str, str]:
    """What the file of headers has: `Name: value`, one a line. setting: the name of `settings`, for SettingsError."""
    if settings.headers_file is None:
        return {}
    where = f"{setting}.headers_file"
    try:
        lines = settings.headers_file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SettingsError(f"{where}: expected a readable file: {error}") from error
    found = dict[str, str]()
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if line.strip() and not (colon and name.strip()):
            raise SettingsError(f"{where}: line {number}: expected Name: value")
        if line.strip():
            found[name.strip().lower()] = value.strip()
    return found


async def decision_stream(stack: AsyncExitStack, settings: StreamSettings, client: Client) -> RecordDecisions | None:
    """One for the process, None where none is configured. Raises SettingsError where a sink can't be opened."""
    sinks: list[Sink] = []
    if settings.file is not None:
        try:
            sinks.append(FileSink(settings.file if str(settings.file) != "-" else None))
        except OSError as error:
            raise SettingsError(f"stream.file: expected a file that can be written: {error}") from error
    if (otlp := settings.otlp) is not None:
        headers = headers_of("stream.otlp", otlp)
        identity = client.service_client.config.identity
        try:
            sinks.append(OtlpSink(otlp.endpoint, headers=headers, ca_file=otlp.ca_file, identity=identity))
        except ImportError as error:
            raise SettingsError(f"stream.otlp: {EXTRA} ({error})") from error
    if not sinks:
        return None
    return (await stack.enter_async_context(DecisionStream(sinks, meter=runtime().metric_meter))).record
