"""`nodewarden up` on a simulated cluster: the embedded server, the worker, the scanner and the lines, as one process."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.lease_view import CLUSTER_LEASE
from activities.cluster.api.paths import CUSTOM_RESOURCE_DEFINITIONS, FENCING_TEMPLATES, NODE_HEALTH_CHECKS
from activities.cluster.api.refusals import ObjectNotFound
from tests.cluster.builders import TEMPLATE
from tests.documents import document
from tests.starter.process import nodewarden
from workers.embedded.server import free_ports, running_endpoint

pytestmark = [pytest.mark.timeout(180), pytest.mark.system]

CHECK = {
    "apiVersion": "remediation.medik8s.io/v1alpha1",
    "kind": "NodeHealthCheck",
    "metadata": {"name": "workers"},
    "spec": {
        "minHealthy": "51%",
        "selector": {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]},
        "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": "300s"}],
        "remediationTemplate": {
            "apiVersion": "nodewarden.io/v1alpha1",
            "kind": "FencingTemplate",
            "name": "ipmi",
            "namespace": "nodewarden",
        },
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A simulated cluster, and where our state goes."""

    kubeconfig: Path
    state: Path

    def environment(self, state: Path | None = None) -> dict[str, str]:
        port, ui_port = free_ports("127.0.0.1", 2)
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "NODEWARDEN_STATE": str(state or self.state),
            "NODEWARDEN_EMBEDDED__PORT": str(port),
            "NODEWARDEN_EMBEDDED__UI_PORT": str(ui_port),
            "NODEWARDEN_SCAN__START_UP_GRACE": "1s",
            "NODEWARDEN_SCAN__MODE": "repair",
        }


@pytest.fixture
async def place(keyboard: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Place]:
    monkeypatch.delenv("TEMPORAL_ADDRESS")
    directory = tmp_path / "simulator"
    directory.mkdir()
    options = ("--nodes", "3", "--bmc", "none", "--no-workloads", "--state-dir", str(directory))
    async with nodewarden("up", *options, module="simulator") as simulator:
        await simulator.says('"kubeconfig"')
        yield Place(kubeconfig=directory / "kubeconfig", state=tmp_path / "state")
        simulator.tell(signal.SIGTERM)
        await simulator.ended()


async def lease_holder(place: Place) -> str | None:
    async with await ClusterConnection.from_kubeconfig(place.kubeconfig) as connection:
        try:
            return str((await connection.get(CLUSTER_LEASE))["spec"]["holderIdentity"])
        except ObjectNotFound:
            return None


async def apply_check(place: Place) -> None:
    """And the template that it names."""
    async with await ClusterConnection.from_kubeconfig(place.kubeconfig) as connection:
        kind = document("deploy/crds/fencingtemplates.nodewarden.io.yaml")
        await connection.create(CUSTOM_RESOURCE_DEFINITIONS.path(), kind)
        with suppress(ApplicationError):
            await connection.create("/api/v1/namespaces", {"metadata": {"name": "nodewarden"}})
        await connection.create(FENCING_TEMPLATES.path(namespace="nodewarden"), {**TEMPLATE, "metadata": {"name": "ipmi"}})
        await connection.create(NODE_HEALTH_CHECKS.path(), CHECK)


def address(line: str) -> str:
    found = re.search(r"Temporal (127\.0\.0\.1:\d+), UI http://127\.[\d.]+:\d+, data in ", line)
    assert found, line
    return found[1]


async def test_it_watches_without_a_policy_acts_with_one_and_goes_on_after_a_kill_where_it_was(place: Place) -> None:
    """S33: and told to end, it leaves no process."""
    async with nodewarden("up", "--ui-port", "0", **place.environment()) as first:
        line = await first.says("Temporal 127.0.0.1")
        where = address(line)
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser,
            browser.get(line.rpartition(", page ")[2].strip()) as page,
        ):
            assert "simulator" in await page.text()
        await first.says("cluster simulator: 3 nodes, view live, cluster Lease not needed")
        assert await lease_holder(place) is None
        endpoint = running_endpoint(place.state)
        assert endpoint is not None
        assert endpoint.address == where
        await apply_check(place)
        await first.says("cluster simulator: 3 nodes, view live, cluster Lease held")
        await first.says("check NodeHealthCheck/workers: 3/3 healthy")
        holder = await lease_holder(place)
        assert holder is not None
        first.tell(signal.SIGKILL)
        await first.ended()
    assert running_endpoint(place.state) is not None
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with nodewarden("up", "--ui-port", str(port), **place.environment()) as second:
            line = await second.says("Temporal 127.0.0.1")
            assert (address(line), f"no page: port {port}: " in line) == (where, True)
            await second.says("view live, cluster Lease held")
            assert await lease_holder(place) == holder
            second.tell(signal.SIGINT)
            assert await second.ended() == 0
    assert running_endpoint(place.state) is None
    assert not [line for line in (*first.said, *second.said) if "Traceback" in line]
