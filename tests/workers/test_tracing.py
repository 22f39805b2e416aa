"""Traces of episodes, against a local receiver of OTLP: one for each, and histories replay with them and without."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, Worker

from tests.replay.recording import HISTORIES
from tests.replay.test_replay import load
from workers.configuration.process_settings import TracingSettings
from workers.configuration.settings import load as load_settings
from workers.errors import SettingsError
from workers.interceptors.tracing import GivenIds, Tracing
from workers.plugin import PLUGIN
from workers.telemetry import tracing
from workflows.definitions.device_check import DeviceCheck
from workflows.definitions.episodes import Fencing, Preservation, Remediation
from workflows.definitions.scanner import HealthScanner

pytestmark = pytest.mark.timeout(60)


@activity.defn(name="step.act")
async def act(works: bool) -> None:
    if not works:
        raise ApplicationError("the device is away", non_retryable=True)


class Story:
    """An activity, and the same once more in a new history."""

    async def tell(self, works: bool, again: bool) -> None:
        await workflow.execute_activity(act, works, start_to_close_timeout=timedelta(seconds=5))
        if again:
            workflow.continue_as_new(args=[works, False])


@workflow.defn(name="Fencing", sandboxed=False)
class Episode(Story):
    @workflow.run
    async def run(self, works: bool, again: bool) -> None:
        await self.tell(works, again)


@workflow.defn(name="HealthScanner", sandboxed=False)
class Scanner(Story):
    @workflow.run
    async def run(self, works: bool, again: bool) -> None:
        await self.tell(works, again)


@dataclass
class Receiver:
    """A collector. refuses: it takes nothing."""

    spans: list[Span] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    services: set[str] = field(default_factory=set)
    refuses: bool = False
    endpoint: str = ""

    async def take(self, request: web.Request) -> web.Response:
        if self.refuses:
            return web.Response(status=503)
        self.headers.append(request.headers.get("Authorization", ""))
        told = ExportTraceServiceRequest.FromString(await request.read())
        for each in told.resource_spans:
            self.services |= {item.value.string_value for item in each.resource.attributes if item.key == "service.name"}
            self.spans += [span for scope in each.scope_spans for span in scope.spans]
        return web.Response()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    collector = Receiver()
    app = web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
    yield collector
    await runner.cleanup()


@asynccontextmanager
async def serving(server: str, settings: TracingSettings | None) -> AsyncIterator[Client]:
    client = await Client.connect(server)
    async with (
        tracing(settings, identity="a-worker") as around,
        Worker(
            client,
            task_queue="traced",
            workflows=[Episode, Scanner],
            activities=[act],
            interceptors=around,
            workflow_runner=UnsandboxedWorkflowRunner(),
        ),
    ):
        yield client


async def run(client: Client, kind: str, workflow_id: str, *, works: bool = True, again: bool = False) -> None:
    await client.execute_workflow(kind, args=[works, again], id=workflow_id, task_queue="traced", memo={"incident": "i-1"})


async def test_each_episode_is_one_trace_under_one_root_and_a_scanner_is_none(
    server: str, receiver: Receiver, tmp_path: Path
) -> None:
    """Begun by a client that knows of no traces, and going on in a new history."""
    (tmp_path / "headers").write_text("Authorization: Bearer token\n\n", encoding="utf-8")
    settings = TracingSettings(endpoint=receiver.endpoint, headers_file=tmp_path / "headers")
    async with serving(server, settings) as client:
        await run(client, "Fencing", "episode/prod/a", again=True)
        with pytest.raises(WorkflowFailureError):
            await run(client, "Fencing", "episode/prod/b", works=False)
        await run(client, "HealthScanner", "scanner/prod")
    assert set(receiver.headers) == {"Bearer token"}
    assert receiver.services == {"nodewarden"}
    traces = {span.trace_id for span in receiver.spans}
    assert len(traces) == 2
    roots = {span.name: span for span in receiver.spans if not span.parent_span_id}
    assert sorted(roots) == ["Fencing episode/prod/a", "Fencing episode/prod/b"]
    for name, activities in (("Fencing episode/prod/a", 2), ("Fencing episode/prod/b", 1)):
        root = roots[name]
        mine = [span for span in receiver.spans if span.trace_id == root.trace_id]
        assert [span.name for span in mine].count("RunActivity:step.act") == activities
        assert {span.parent_span_id for span in mine} <= {b"", *(span.span_id for span in mine)}, "none hangs in the air"
        assert {item.value.string_value for item in root.attributes if item.key == "nodewarden.incident"} == {"i-1"}
        assert root.end_time_unix_nano > root.start_time_unix_nano
    assert [roots[name].status.message for name in sorted(roots)] == ["", "Activity task failed"]


async def test_a_collector_that_takes_nothing_holds_up_no_episode(server: str, receiver: Receiver) -> None:
    receiver.refuses = True
    loop = asyncio.get_running_loop()
    async with serving(server, TracingSettings(endpoint=receiver.endpoint)) as client:
        began = loop.time()
        await run(client, "Fencing", "episode/prod/refused")
        assert loop.time() - began < 5
        ending = loop.time()
    assert loop.time() - ending < 10


async def test_what_was_traced_replays_without_and_what_was_not_with(server: str, receiver: Receiver) -> None:
    """A worker may be given the setting, or lose it, while episodes are open; and a replay tells nothing again."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(id_generator=GivenIds(), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = TracingSettings(endpoint=receiver.endpoint)
    for given, replays_with in ((settings, ()), (None, (Tracing(provider),))):
        async with serving(server, given) as client:
            name = f"episode/prod/{'traced' if given else 'plain'}"
            await run(client, "Fencing", name)
            history = await client.get_workflow_handle(name).fetch_history()
        replayer = Replayer(workflows=[Episode], interceptors=replays_with, workflow_runner=UnsandboxedWorkflowRunner())
        await replayer.replay_workflow(history)
    assert exporter.get_finished_spans() == ()


@pytest.mark.parametrize(
    "kind", ["device-check-hourly", "fencing-recovered", "preservation-isolated", "remediation-ladder", "scanner-requests"]
)
async def test_a_stored_history_replays_with_traces(kind: str) -> None:
    """One of each kind of workflow."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(id_generator=GivenIds(), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    kinds = [DeviceCheck, Fencing, HealthScanner, Preservation, Remediation]
    await Replayer(workflows=kinds, plugins=[PLUGIN], interceptors=[Tracing(provider)]).replay_workflow(
        load((HISTORIES / f"{kind}.json").read_text())
    )
    assert exporter.get_finished_spans() == ()


async def test_without_the_extra_the_setting_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(
        SettingsError, match=r"tracing: expected the extra otel: in a checkout of nodewarden, pip install '\.\[otel\]'"
    ):
        async with tracing(TracingSettings(endpoint="http://127.0.0.1:4318/v1/traces"), identity="x"):
            pass
    async with tracing(None, identity="x") as around:
        assert around == ()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{endpoint: 'http://collector.example.org/v1/traces'}", "expected https"),
        ("{endpoint: 'collector:4318'}", "expected an endpoint such as"),
        ("{endpoint: 'https://collector.example.org'}", "expected an endpoint such as"),
    ],
)
def test_where_traces_go_is_checked_when_settings_are_read(clean: Path, written: str, expected: str) -> None:
    """Spans name clusters and nodes: who stands in between would read them."""
    (clean / "nodewarden.yaml").write_text(f"tracing: {written}\n", encoding="utf-8")
    with pytest.raises(SettingsError, match=expected):
        load_settings(config=clean / "nodewarden.yaml")


async def test_a_file_of_headers_that_is_none_names_its_line_and_nothing_of_it(tmp_path: Path) -> None:
    """S12."""
    (tmp_path / "headers").write_text("secret-token\n", encoding="utf-8")
    settings = TracingSettings(endpoint="http://127.0.0.1:4318/v1/traces", headers_file=tmp_path / "headers")
    with pytest.raises(SettingsError, match=r"^tracing\.headers_file: line 1: expected Name: value$"):
        async with tracing(settings, identity="x"):
            pass
