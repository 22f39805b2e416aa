"""Where traces go: the setting `tracing`, and the extra `otel` that it needs.

Nothing waits for a span and nothing fails by one: they are sent by a thread of the exporter's, in batches, and lost where no
collector takes them. What is left when the worker ends gets a moment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path

from temporalio.client import Client
from temporalio.worker import Interceptor

from activities.decision_stream import DecisionStream, FileSink, Line, RecordDecisions, Sink
from policy.episode.decisions import DecisionKind
from workers.configuration.process_settings import OtlpSettings, StreamSettings, TracingSettings
from workers.errors import SettingsError
from workers.runtime import runtime

EXTRA = "expected the extra otel: in a checkout of nodewarden, pip install '.[otel]'"
LAST_SPANS_SECONDS = 5.0
EXPORT_SECONDS = 4


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


# Where the decision stream goes: the setting `stream`, and the extra `otel` that logs by OTLP need.


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


class OtlpSink(Sink):
    """Log records by OTLP over HTTP. The body is the record, `log.record.uid` its id, by which collectors drop doubles."""

    name = "otlp"

    def __init__(self, endpoint: str, *, headers: Mapping[str, str], ca_file: Path | None, identity: str) -> None:
        """Raises ImportError without the extra `otel`."""
        from opentelemetry._logs import LogRecord, SeverityNumber
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.sdk._logs import ReadableLogRecord
        from opentelemetry.sdk._logs.export import LogRecordExportResult
        from opentelemetry.sdk.resources import Resource

        exporter = OTLPLogExporter(
            endpoint=endpoint, headers=headers, certificate_file=str(ca_file) if ca_file else None, timeout=EXPORT_SECONDS
        )
        resource = Resource.create({"service.name": "nodewarden", "service.instance.id": identity})

        def record(line: Line) -> ReadableLogRecord:
            at = int(datetime.fromisoformat(line["at"]).timestamp() * 1e6) * 1000
            severity = SeverityNumber.WARN if line["kind"] == DecisionKind.ASKED else SeverityNumber.INFO
            names = {"k8s.cluster.name": line["cluster"], "k8s.node.name": line["node"], "k8s.node.uid": line["uid"]}
            attributes = {"log.record.uid": line["id"], **{key: value for key, value in names.items() if value}}
            return ReadableLogRecord(
                LogRecord(  # pyrefly: ignore[direct-abstract-base-instantiation] - an ABC without an abstract method
                    timestamp=at,
                    observed_timestamp=at,
                    severity_number=severity,
                    severity_text=severity.name,
                    body=line,
                    attributes=attributes,
                    event_name="nodewarden.decision",
                ),
                resource,
            )

        def export(lines: Sequence[Line]) -> bool:
            return exporter.export([record(each) for each in lines]) is LogRecordExportResult.SUCCESS

        self._export = export

    def write(self, lines: Sequence[Line]) -> None:
        """The exporter itself tries again for a moment."""
        if not self._export(lines):
            raise OSError("the collector did not take them")
