"""A Temporal server, and a worker that serves the scripted workflows under their real names."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollActivityTaskQueueRequest
from temporalio.client import Client
from temporalio.worker import Worker

from activities.contracts import search_attributes
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient
from starter.client import Nodewarden
from tests.starter.standins import DeviceCheckStandIn, FencingStandIn, PreservationStandIn, RemediationStandIn, ScannerStandIn
from tests.workers.server import SILENT, development_server
from workers.configuration.process_settings import TemporalSettings
from workers.connect import connect
from workflows.definitions.episodes import RecordedObservation
from workflows.kit.options import WORKFLOW_QUEUE, cluster_queue


@pytest.fixture(scope="package")
def server() -> Iterator[str]:
    """Its address. Its namespace `silent` has no worker. It ends with the last test of a folder: standing idle for as long as all
    the others last takes more of a processor than to start it."""
    with development_server(namespaces=(SILENT,), search_attributes=tuple(key.name for key in search_attributes.ALL)) as address:
        yield address


@pytest.fixture(scope="package")
async def client(server: str) -> AsyncIterator[Client]:
    """Connected, with a worker for the stand-ins beside it."""
    connected = await connect(TemporalSettings(address=server), patience=timedelta(seconds=20))
    kinds = [DeviceCheckStandIn, FencingStandIn, RecordedObservation, PreservationStandIn, RemediationStandIn, ScannerStandIn]
    async with Worker(connected, task_queue=WORKFLOW_QUEUE, workflows=kinds):
        yield connected
    await asyncio.sleep(0.2)


SETTINGS = Path(".config/nodewarden/nodewarden.yaml")
"""The user's, below their home."""


@pytest.fixture
def warden(client: Client) -> Nodewarden:
    return Nodewarden(client)


@pytest.fixture
def unserved() -> str:
    """A cluster name that no other test uses, and no worker serves."""
    return f"c-{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def cluster(server: str, unserved: str) -> str:
    """The same, but a worker has lately asked for its work."""
    asking = await Client.connect(server)
    queue = TaskQueue(name=cluster_queue(unserved))
    poll = PollActivityTaskQueueRequest(namespace=asking.namespace, task_queue=queue, identity="a worker of before")
    asked = asyncio.create_task(asking.workflow_service.poll_activity_task_queue(poll, timeout=timedelta(seconds=60)))
    while not await Nodewarden(asking).serves(unserved):
        await asyncio.sleep(0.01)
    asked.cancel()
    return unserved


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: str, request: pytest.FixtureRequest) -> Path:
    """An environment of a person with no settings but TEMPORAL_ADDRESS, and the test's cluster if it has one; an empty working
    directory."""
    for name in list(os.environ):
        if name.startswith(("NODEWARDEN_", "TEMPORAL_", "KUBE", "XDG_")) or name == "NODE_NAME":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TEMPORAL_ADDRESS", server)
    monkeypatch.setenv("NODEWARDEN_STATE", str(tmp_path / "state"))
    (tmp_path / SETTINGS).parent.mkdir(parents=True)
    if "cluster" in request.fixturenames:
        known = f"clusters: {{{request.getfixturevalue('cluster')}: {{context: test}}}}"
        (tmp_path / SETTINGS).write_text(known, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    """The cluster of the test."""
    async with ApiServer(tokens={"administrator": "admin"}) as server:
        yield server


@pytest.fixture
async def person(api: ApiServer) -> AsyncIterator[ApiClient]:
    """An administrator of the cluster of the test."""
    async with ApiClient(ApiAddress(url=api.url, token="administrator"), user_agent="administrator") as client:
        yield client
