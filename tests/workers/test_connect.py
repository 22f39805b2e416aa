"""Reaching Temporal: patience while it is not up, and at once a reason for what patience cannot mend; and the SDK's runtime."""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from activities.contracts import metrics
from tests.test_metrics import HISTOGRAMS, TEMPORALS
from workers import connect as connecting
from workers import runtime as module
from workers.configuration.process_settings import TemporalSettings
from workers.connect import _silence_of, connect, connect_meanwhile, watch_temporal
from workers.embedded.server import free_ports
from workers.errors import NamespaceMissingError, SettingsError, TemporalUnreachableError
from workers.plugin import PLUGIN
from workers.runtime import runtime, start_runtime

SOON = timedelta(seconds=1)


def nowhere() -> TemporalSettings:
    (port,) = free_ports("127.0.0.1", 1)
    return TemporalSettings(address=f"127.0.0.1:{port}")


def port_of(settings: TemporalSettings) -> int:
    return int(settings.address.rpartition(":")[2])


async def test_a_client_comes_with_our_converter(server: str) -> None:
    client = await connect(TemporalSettings(address=server), patience=SOON)
    assert client.data_converter is PLUGIN.data_converter  # nothing is encrypted where no keys are named


async def test_patience_that_runs_out_names_the_address() -> None:
    settings = nowhere()
    with pytest.raises(TemporalUnreachableError, match=f"cannot reach Temporal at {settings.address}: Connection refused$"):
        await connect(settings, patience=timedelta(milliseconds=300))


async def test_a_service_that_takes_the_connection_and_says_nothing_is_named_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is frozen: the error has no text of its own."""
    monkeypatch.setattr(connecting, "ATTEMPT_TIMEOUT", timedelta(milliseconds=200))
    silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with silent:
        address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        with pytest.raises(TemporalUnreachableError, match=f"cannot reach Temporal at {address}: no answer within 0.2 s$"):
            await connect(TemporalSettings(address=address), patience=timedelta(milliseconds=1))


async def test_a_worker_waits_for_a_service_that_is_not_up_yet(server: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without patience given it waits for ever, and says so."""
    settings = nowhere()
    with caplog.at_level(logging.WARNING, logger="workers.connect"):
        waiting = asyncio.create_task(connect(settings))
        async with asyncio.timeout(20):
            while not caplog.records:
                await asyncio.sleep(0.02)
        async with Way(server, port_of(settings)), asyncio.timeout(30):
            client = await waiting
            assert client.namespace == "default"
    assert "waiting for Temporal at" in caplog.text


async def test_s36_what_goes_on_without_temporal_goes_on_before_a_worker_has_reached_it_once(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.connect.ASK_EVERY", timedelta(milliseconds=50))
    monkeypatch.setattr("workers.connect.ASK_TIMEOUT", timedelta(milliseconds=50))
    settings, begun, over = nowhere(), asyncio.Event(), asyncio.Event()

    async def goes_on() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()

    waiting = asyncio.create_task(connect_meanwhile(connect(settings), [goes_on]))
    async with asyncio.timeout(20):
        await begun.wait()
        assert not over.is_set()
        async with Way(server, port_of(settings)):
            assert (await waiting).namespace == "default"
    assert over.is_set()
    with pytest.raises(NamespaceMissingError):
        await connect_meanwhile(connect(TemporalSettings(address=server, namespace="elsewhere")), [goes_on])


async def test_a_worker_notices_that_its_temporal_is_away_and_that_it_is_back(
    server: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S37: what goes on meanwhile begins then and ends with it; an error of one is logged and ends no other."""
    monkeypatch.setattr("workers.connect.ASK_EVERY", timedelta(milliseconds=50))
    monkeypatch.setattr("workers.connect.ASK_TIMEOUT", timedelta(milliseconds=700))
    settings, events = nowhere(), list[str]()

    async def goes_on() -> None:
        events.append("begins")
        try:
            await asyncio.Event().wait()
        finally:
            events.append("ends")

    async def fails() -> None:
        raise RuntimeError("no view")

    async def logged(text: str) -> None:
        async with asyncio.timeout(20):
            while text not in caplog.text:
                await asyncio.sleep(0.02)

    caplog.set_level(logging.WARNING, logger="workers.connect")
    async with Way(server, port_of(settings)) as way:
        watching = asyncio.create_task(watch_temporal(await connect(settings), [fails, goes_on]))
        for _ in range(2):
            caplog.clear()
            events.clear()
            way.cut()
            await logged("Temporal does not answer, nothing is begun")
            await logged("no view")
            assert events == ["begins"]
            await way.mend()
            await logged("Temporal answers again")
            assert events == ["begins", "ends"]
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_a_service_that_refuses_us_is_not_away(server: str) -> None:
    """S37: what is refused was answered."""
    client = await connect(TemporalSettings(address=server))
    assert await _silence_of(client) == ""
    stranger = Client(client.service_client, namespace="elsewhere")
    assert await _silence_of(stranger) == ""


@pytest.mark.parametrize("named", ["api_key_file", "nothing"])
async def test_a_key_that_temporal_refuses_is_named_with_its_setting_and_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """S44: at once, as waiting mends nothing."""

    async def refused(*_: Any, **__: Any) -> Client:
        raise RPCError("Request unauthorized.", RPCStatusCode.UNAUTHENTICATED, b"")

    monkeypatch.setattr("workers.connect._connect_once", refused)
    path = tmp_path / "key" if named == "api_key_file" else None
    settings = TemporalSettings(address="prod.example:7233", insecure=True, api_key_file=path)
    with pytest.raises(SettingsError) as ended:
        await connect(settings)
    said = f"credentials of temporal.api_key_file ({path})" if path is not None else "credentials (none are set: temporal.api_"
    assert str(ended.value).startswith(said)
    assert str(ended.value).endswith("prod.example:7233 refuses them: Request unauthorized.")


class Way:
    """The way to a server, on another port; it may be cut and mended."""

    def __init__(self, server: str, port: int) -> None:
        host, _, there = server.rpartition(":")
        self._there = (host, int(there))
        self._port = port
        self._writers = set[asyncio.StreamWriter]()
        self._listener: asyncio.Server | None = None

    async def mend(self) -> None:
        self._listener = await asyncio.start_server(self._carry, "127.0.0.1", self._port)

    def cut(self) -> None:
        assert self._listener is not None
        self._listener.close()
        for writer in self._writers:
            writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._there)
        self._writers |= {writer, back}
        try:
            await asyncio.gather(self._pump(reader, back), self._pump(there, writer), return_exceptions=True)
        finally:
            self._writers -= {writer, back}

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def __aenter__(self) -> Self:
        await self.mend()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()


async def test_a_namespace_that_does_not_exist_is_no_reason_to_wait(server: str) -> None:
    with pytest.raises(NamespaceMissingError, match="has no namespace 'elsewhere'; create it"):
        await connect(TemporalSettings(address=server, namespace="elsewhere"))


async def test_a_certificate_that_cannot_be_read_names_its_key(tmp_path: Path) -> None:
    settings = TemporalSettings(address="127.0.0.1:1", tls_server_ca_file=tmp_path / "ca.pem")
    with pytest.raises(SettingsError, match=r"temporal\.tls_server_ca_file: expected a readable file"):
        await connect(settings)


async def test_a_key_file_is_read_without_its_line_end(tmp_path: Path, server: str) -> None:
    """A header must not contain a line end; editors add one to files."""
    key = tmp_path / "key"
    key.write_text("key-material\n", encoding="utf-8")
    client = await connect(TemporalSettings(address=server, api_key_file=key, tls=False), patience=SOON)
    assert client.service_client.config.api_key == "key-material"


# The runtime of Temporal's SDK, and the metrics that it serves.


def test_there_is_one_runtime_per_process() -> None:
    assert runtime() is runtime()
    with pytest.raises(RuntimeError, match="exists already"):
        start_runtime(metrics="127.0.0.1:0")


def test_metrics_that_cannot_be_served_name_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_runtimes", [])
    with pytest.raises(SettingsError, match=r"metrics: expected an address to serve Prometheus metrics on, got 'nowhere:1'"):
        start_runtime(metrics="nowhere:1")


async def test_our_metrics_are_served_as_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """By these names, kinds and labels; and with buckets in which a day and a minute are not the same."""
    monkeypatch.setattr(module, "_runtimes", [])
    (port,) = free_ports("127.0.0.1", 1)
    meter = start_runtime(metrics=f"127.0.0.1:{port}").metric_meter
    for each in metrics.TABLE:
        labels = dict.fromkeys(each.labels, "x")
        if isinstance(each, metrics.Counter):
            each.add(meter, **labels)
        elif isinstance(each, metrics.Histogram):
            each.record(meter, timedelta(hours=2), **labels)
        elif isinstance(each, metrics.Gauge):
            each.on(meter, **labels).set(1.5)
    async with aiohttp.ClientSession() as session, asyncio.timeout(10):
        page = await (await session.get(f"http://127.0.0.1:{port}/metrics")).text()
    served = dict(re.findall(r"^# TYPE (nodewarden_\w+) (\w+)$", page, flags=re.MULTILINE))
    assert served == {each.name: type(each).__name__.lower() for each in metrics.TABLE}
    for each in metrics.TABLE:
        sample = re.search(rf"^{each.name}(?:_count)?\{{(.*)}} ", page, flags=re.MULTILINE)
        assert sample is not None
        assert set(re.findall(r"(\w+)=", sample[1])) - {"service_name"} == set(each.labels)
        if isinstance(each, metrics.Histogram):
            filled = re.findall(rf'^{each.name}_bucket.*le="(\d+)"}} 1$', page, flags=re.MULTILINE)
            assert filled[0] == "10800"
    metrics.TIME_TO_DETECT.record(meter, timedelta(seconds=-1), cluster="c", kind="Fencing")  # clocks differ; it is no failure


@activity.defn
async def fails() -> None:
    raise ApplicationError("as it should", non_retryable=True)


@workflow.defn(sandboxed=False)
class Failing:
    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity(fails, start_to_close_timeout=timedelta(seconds=5))


async def test_temporal_s_sdk_serves_what_the_dashboard_shows(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_runtimes", [])
    (port,) = free_ports("127.0.0.1", 1)
    client = await Client.connect(server, runtime=start_runtime(metrics=f"127.0.0.1:{port}"))
    async with Worker(client, task_queue="measured", workflows=[Failing], activities=[fails]):
        with pytest.raises(WorkflowFailureError):
            await client.execute_workflow(Failing.run, id="measured", task_queue="measured")
        with pytest.raises(RPCError):
            await client.get_workflow_handle("nobody").describe()
        async with aiohttp.ClientSession() as session, asyncio.timeout(10):
            page = await (await session.get(f"http://127.0.0.1:{port}/metrics")).text()
    served = dict(re.findall(r"^# TYPE (temporal_\w+) (\w+)$", page, flags=re.MULTILINE))
    assert served.keys() >= TEMPORALS
    assert {name for name in TEMPORALS if served[name] == "histogram"} == TEMPORALS & HISTOGRAMS
