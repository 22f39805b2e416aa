"""Where the decision stream goes: the setting `stream`, and the extra `otel` that logs by OTLP need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path

from temporalio.client import Client

from activities.decision_stream import DecisionStream, FileSink, Line, RecordDecisions, Sink
from policy.episode.decisions import DecisionKind
from workers.configuration.process_settings import StreamSettings
from workers.errors import SettingsError
from workers.runtime import runtime
from workers.tracing import EXPORT_SECONDS, EXTRA, headers_of


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
