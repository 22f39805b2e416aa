"""The runtime of Temporal's SDK, and the metrics that it serves."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

import aiohttp
import pytest
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.contracts import metrics
from tests.deploy.test_dashboard import HISTOGRAMS, TEMPORALS
from workers import runtime as module
from workers.embedded.server import free_ports
from workers.errors import SettingsError
from workers.runtime import runtime, start_runtime


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
