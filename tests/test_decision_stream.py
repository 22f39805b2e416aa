"""The decision stream: what is written, once or more often under one id, and that no act ever waits for who takes it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from temporalio.client import Client

from activities import decision_stream
from activities.decision_stream import PATIENCE, DecisionStream, FileSink, Line, RefusedRecordsError, Sink
from policy.episode.decisions import Decision, DecisionKind, decision_of, kind_of
from policy.episode.messages import RecordEntry
from tests.documents import ROOT
from workers.configuration.process_settings import LogsSettings, StreamSettings
from workers.errors import SettingsError
from workers.telemetry import decision_stream as stream_of

pytestmark = pytest.mark.timeout(60)

NOW = datetime(2026, 11, 28, 3, 12, 0, 250_000, tzinfo=UTC)
REFUSED = Decision(
    id="run/1",
    at=NOW,
    cluster="prod",
    kind=DecisionKind.REFUSED,
    node="node-7",
    uid="uid-7",
    rule="CapReached",
    versions={"Node": "4711"},
    numbers={"permits": 2},
    message="2 of 2 permits are held",
)
SCHEMA = json.loads((ROOT / "docs/reference/decisions.schema.json").read_text(encoding="utf-8"))


def several(count: int) -> list[Decision]:
    return [replace(REFUSED, id=f"run/{number}") for number in range(1, count + 1)]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@dataclass
class Slow(Sink):
    """Takes what it is given once it is let, and as often as it does not fail."""

    name = "slow"

    got: list[str] = field(default_factory=list)
    failures: int = 0
    most: int = 1000
    error: type[OSError] = OSError
    sizes: list[int] = field(default_factory=list)
    may_write: threading.Event = field(default_factory=threading.Event)

    def write(self, lines: Sequence[Line]) -> None:
        self.may_write.wait(30)
        if self.failures:
            self.failures -= 1
            raise OSError("no space left on device")
        self.sizes.append(len(lines))
        if len(lines) > self.most or (lines[0]["message"] == "too large" and len(lines) == 1):
            raise self.error("a limit")
        self.got += [each["id"] for each in lines]


@dataclass
class Collector:
    """A receiver of OTLP over HTTP."""

    records: list[LogRecord] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    services: set[str] = field(default_factory=set)
    endpoint: str = ""

    async def take(self, request: web.Request) -> web.Response:
        self.tokens.add(request.headers.get("Authorization", ""))
        for each in ExportLogsServiceRequest.FromString(await request.read()).resource_logs:
            self.services |= {item.value.string_value for item in each.resource.attributes if item.key == "service.name"}
            self.records += [record for scope in each.scope_logs for record in scope.log_records]
        return web.Response()


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    found = Collector()
    app = web.Application()
    app.router.add_post("/v1/logs", found.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/logs"
    yield found
    await runner.cleanup()


@asynccontextmanager
async def composed(settings: StreamSettings) -> AsyncIterator[decision_stream.RecordDecisions | None]:
    """As a worker makes it of its settings."""
    client = await Client.connect("127.0.0.1:1", lazy=True)
    async with AsyncExitStack() as stack:
        yield await stream_of(stack, settings, client)


# What is written -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (("phase", "needs-human"), DecisionKind.ASKED),
        (("phase", "running"), DecisionKind.ENTERED),
        (("permit", "granted"), DecisionKind.ADMITTED),
        (("permit", "queued"), DecisionKind.REFUSED),
        (("permit", "refused"), DecisionKind.REFUSED),
        (("last-look", "go"), DecisionKind.LOOKED),
        (("power-off", "sent"), DecisionKind.ACTED),
        (("read-power", "off"), DecisionKind.READ_BACK),
        (("off-proven", "ok"), DecisionKind.READ_BACK),
        (("end", "recovered"), DecisionKind.ENDED),
    ],
)
def test_each_line_of_a_record_is_of_one_kind(entry: tuple[str, str], kind: DecisionKind) -> None:
    act, outcome = entry
    assert kind_of(RecordEntry(at=NOW, step="recovery", act=act, outcome=outcome)) is kind


def test_what_a_person_did_is_an_answer_and_names_them() -> None:
    entry = RecordEntry(at=NOW, step="", act="hold", outcome="asked", detail="by amy: drill", number=3, who="amy (verified)")
    known = decision_of(entry, cluster="prod", node="n", uid="u", workflow_id="w", run_id="run", incident="i")
    assert (known.kind, known.who, known.id) == (DecisionKind.ANSWERED, "amy (verified)", "run/3")


async def test_a_record_is_a_line_that_the_schema_describes(tmp_path: Path) -> None:
    async with composed(StreamSettings(file=tmp_path / "decisions")) as record:
        await record([REFUSED])
        (line,) = lines_of(tmp_path / "decisions")  # it is there when an act completes, and not later
    jsonschema.validate(line, SCHEMA)
    assert line["version"] == 1
    assert line["at"] == "2026-11-28T03:12:00.250000+00:00"
    assert line["kind"] == "refused"
    assert line["versions"] == {"Node": "4711"}
    assert oct((tmp_path / "decisions").stat().st_mode & 0o777) == "0o640"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(line | {"kind": "guessed"}, SCHEMA)


async def test_texts_of_others_can_neither_forge_a_line_nor_hide_in_one(tmp_path: Path) -> None:
    """S50."""
    forged = 'bad\n{"id": "forged"}\x1b[2J\u202e'
    async with composed(StreamSettings(file=tmp_path / "decisions")) as record:
        await record([replace(REFUSED, message=forged, who=forged, node=forged, versions={forged: forged})])
    (written,) = (tmp_path / "decisions").read_text(encoding="utf-8").splitlines()
    assert not set("\x1b\u202e") & set(written)
    (line,) = lines_of(tmp_path / "decisions")
    assert line["message"] == 'bad {"id": "forged"}\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}'


async def test_standard_output_takes_lines(capfd: pytest.CaptureFixture[str]) -> None:
    async with composed(StreamSettings(file=Path("-"))) as record:
        await record(several(2))
    assert [json.loads(line)["id"] for line in capfd.readouterr().out.splitlines()] == ["run/1", "run/2"]


async def test_a_file_that_is_rotated_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "decisions"
    async with composed(StreamSettings(file=path)) as record:
        await record([REFUSED])
        path.rename(tmp_path / "decisions.1")
        await record([replace(REFUSED, id="run/2")])
    assert [each["id"] for each in lines_of(tmp_path / "decisions.1") + lines_of(path)] == ["run/1", "run/2"]


async def test_a_line_that_a_full_disk_has_torn_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, write, fails = FileSink(tmp_path / "decisions"), os.write, [True]

    def torn(file: int, data: bytes) -> int:
        if not fails:
            return write(file, data)
        write(file, data[:10])
        fails.clear()
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "write", torn)
    line: Line = {"id": "run/1"}
    with pytest.raises(OSError, match="no space"):
        sink.write([line])
    sink.write([line])
    assert (tmp_path / "decisions").read_text(encoding="utf-8").splitlines()[-1] == '{"id":"run/1"}'


# Nothing waits for it --------------------------------------------------------------------------------------------------


async def test_a_sink_that_hangs_holds_up_one_act_for_a_moment_and_the_next_not_at_all() -> None:
    sink, loop = Slow(), asyncio.get_running_loop()
    async with DecisionStream([sink]) as stream:
        began = loop.time()
        await stream.record(several(1))
        assert PATIENCE <= loop.time() - began < PATIENCE + 2
        began = loop.time()
        await stream.record([replace(REFUSED, id="run/2")])
        assert loop.time() - began < PATIENCE / 2
        sink.may_write.set()
    assert sink.got == ["run/1", "run/2"]


async def test_what_a_sink_did_not_take_is_tried_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(decision_stream, "FIRST_PAUSE", 0.01)
    sink = Slow(failures=3)
    sink.may_write.set()
    async with DecisionStream([sink]) as stream:
        await stream.record(several(2))
        assert sink.got == ["run/1", "run/2"]
    warned = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warned == ["decision stream, slow: records are not taken, and are tried again: no space left on device"]


async def test_a_full_queue_drops_counts_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(decision_stream, "MOST_WAITING", 3)
    monkeypatch.setattr(decision_stream, "PATIENCE", 0.01)
    counting = Counting()
    monkeypatch.setattr(decision_stream.metrics, "DECISIONS", counting)
    sink = Slow()
    async with DecisionStream([sink]) as stream:
        for number in range(1, 6):
            await stream.record([replace(REFUSED, id=f"run/{number}")])
        sink.may_write.set()
    assert sink.got == ["run/1", "run/2", "run/3"]
    assert counting.counts == {"written": 3, "lost": 2}
    assert len([each for each in caplog.records if "are lost" in each.getMessage()]) == 1


@pytest.mark.parametrize("error", [OSError, RefusedRecordsError], ids=["without a word of it", "as it says"])
async def test_a_sink_that_takes_a_few_at_once_gets_all_and_many_again_once_it_takes_them(
    monkeypatch: pytest.MonkeyPatch, error: type[OSError]
) -> None:
    """A proxy may cut the connection where a request is too large, and a slow line takes too long for it."""
    monkeypatch.setattr(decision_stream, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(decision_stream, "PATIENCE", 20)
    sink = Slow(most=7, error=error)
    async with DecisionStream([sink]) as stream:
        recording = asyncio.create_task(stream.record(several(60)))
        sink.may_write.set()
        await recording
        assert sink.got == [f"run/{number}" for number in range(1, 61)]
        sink.most = 1000
        sink.sizes.clear()
        for _ in range(2):
            await stream.record(several(40))
    assert sink.sizes[-1] == 40


async def test_a_record_that_is_refused_alone_is_lost_counted_and_said_once_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(decision_stream, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(decision_stream, "PATIENCE", 20)
    counting = Counting()
    monkeypatch.setattr(decision_stream.metrics, "DECISIONS", counting)
    records = several(9)
    for number in (3, 4):
        records[number - 1] = replace(records[number - 1], message="too large")
    sink = Slow(most=1, error=RefusedRecordsError)
    sink.may_write.set()
    async with DecisionStream([sink]) as stream:
        async with asyncio.timeout(15):  # an act waits no longer for it than for others
            await stream.record(records)
    assert sink.got == [each.id for each in records if each.message != "too large"]
    assert counting.counts == {"written": 7, "lost": 2}
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR] == [
        "decision stream, slow: 1 records are lost: a limit"
    ]


@dataclass
class Counting:
    """In the metric's place."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, _meter: object, amount: int = 1, *, sink: str, result: str) -> None:
        assert sink == "slow"
        self.counts[result] = self.counts.get(result, 0) + amount


# OTLP ------------------------------------------------------------------------------------------------------------------


async def test_a_collector_gets_the_same_as_logs(collector: Collector, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text("Authorization: Bearer token\n", encoding="utf-8")
    asked = replace(REFUSED, id="run/2", kind=DecisionKind.ASKED)
    settings = StreamSettings(
        file=tmp_path / "decisions", otlp=LogsSettings(endpoint=collector.endpoint, headers_file=tmp_path / "headers")
    )
    async with composed(settings) as record:
        await record([REFUSED, asked])
        assert len(collector.records) == 2, "an act completes once it is taken"
    assert collector.tokens == {"Bearer token"}
    assert collector.services == {"nodewarden"}
    first, second = collector.records
    assert first.event_name == "nodewarden.decision"
    assert first.time_unix_nano == int(NOW.timestamp() * 1000) * 1_000_000
    assert (first.severity_text, second.severity_text) == ("INFO", "WARN")
    attributes = {item.key: item.value.string_value for item in first.attributes}
    assert attributes == {
        "log.record.uid": "run/1",
        "k8s.cluster.name": "prod",
        "k8s.node.name": "node-7",
        "k8s.node.uid": "uid-7",
    }
    (line, _) = lines_of(tmp_path / "decisions")
    body = {item.key: item.value for item in first.body.kvlist_value.values}
    assert set(body) == set(line)
    assert body["message"].string_value == line["message"]


async def test_a_collector_that_is_away_holds_up_no_act() -> None:
    loop = asyncio.get_running_loop()
    async with composed(StreamSettings(otlp=LogsSettings(endpoint="http://127.0.0.1:9/v1/logs"))) as record:
        began = loop.time()
        for number in range(20):
            await record([replace(REFUSED, id=f"run/{number}")])
        assert loop.time() - began < PATIENCE + 2
        ending = loop.time()
    assert loop.time() - ending < decision_stream.LAST_SECONDS + 2


async def test_what_has_waited_for_a_collector_gets_through_a_proxy_that_limits_the_size_of_requests(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As nginx or an ingress before it, and `aiohttp` here, take 1 MiB. Alone each record is a thousandth of that."""
    monkeypatch.setattr(decision_stream, "FIRST_PAUSE", 0.01)
    detail = "what a fencing has read of its devices; " * 60
    async with composed(StreamSettings(otlp=LogsSettings(endpoint=collector.endpoint))) as record:
        await record([replace(each, message=detail) for each in several(700)])
        versions = {str(number): detail for number in range(500)}
        await record([replace(REFUSED, id="run/701", versions=versions), replace(REFUSED, id="run/702")])
        async with asyncio.timeout(20):
            while len(collector.records) < 701:
                await asyncio.sleep(0.05)
    ids = {item.value.string_value for each in collector.records for item in each.attributes if item.key == "log.record.uid"}
    assert ids == {f"run/{number}" for number in range(1, 703)} - {"run/701"}


async def test_without_the_extra_the_setting_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http._log_exporter", None)
    expected = re.escape("stream.otlp: expected the extra otel: in a checkout of nodewarden, pip install '.[otel]'")
    with pytest.raises(SettingsError, match=expected):
        async with composed(StreamSettings(otlp=LogsSettings(endpoint="http://127.0.0.1:4318/v1/logs"))):
            pass


async def test_a_file_that_can_not_be_written_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^stream\.file: expected a file that can be written: .*decisions"):
        async with composed(StreamSettings(file=tmp_path / "missing" / "decisions")):
            pass


def test_logs_go_to_another_machine_by_tls_only() -> None:
    """They name clusters, nodes and people."""
    with pytest.raises(ValueError, match="expected https"):
        LogsSettings(endpoint="http://collector.example.org/v1/logs")
    assert LogsSettings(endpoint="http://collector.example.org/v1/logs", insecure=True)


# The example of the page -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("vector") is None, reason="needs Vector")
async def test_vector_takes_the_example_and_drops_doubles(tmp_path: Path) -> None:
    page = (ROOT / "docs/stream.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(# vector\.yaml.*?)```", page, flags=re.DOTALL)
    source, taken = tmp_path / "decisions.jsonl", tmp_path / "taken.jsonl"
    example = example.replace("/var/log/nodewarden/decisions.jsonl", str(source)).replace(
        "/var/lib/siem/nodewarden.jsonl", str(taken)
    )
    (tmp_path / "vector.yaml").write_text(f"data_dir: {tmp_path}\n{example}", encoding="utf-8")
    async with composed(StreamSettings(file=source)) as record:
        await record([*several(3), *several(3)])
    arguments = ["vector", "--config", str(tmp_path / "vector.yaml")]
    running = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(30):
            while not taken.exists() or len(lines_of(taken)) < 3:
                await asyncio.sleep(0.2)
    finally:
        running.terminate()
        await asyncio.wait_for(running.wait(), 20)
    assert [each["id"] for each in lines_of(taken)] == ["run/1", "run/2", "run/3"]
