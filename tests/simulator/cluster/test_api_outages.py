"""The cluster when its API server is away, restarts, or goes back in time: none of that may look like dead nodes."""

from __future__ import annotations

import asyncio

import pytest

from simulator.objects import is_ready
from tests.simulator.cluster.conftest import FAST, Observer

pytestmark = pytest.mark.timeout(60)


def all_renewed_since(observer: Observer, versions: dict[str, str]) -> bool:
    leases = observer.cluster.view.leases.objects
    return all(leases[key]["spec"]["renewTime"] != renewed for key, renewed in versions.items() if key in leases)


def renewals(observer: Observer) -> dict[str, str]:
    return {key: lease["spec"]["renewTime"] for key, lease in observer.cluster.view.leases.objects.items()}


async def test_an_api_server_that_was_away_for_longer_than_the_grace_makes_no_node_unknown(observer: Observer) -> None:
    api = observer.cluster.api
    assert api is not None
    unknown: list[str] = []

    def note(_before: object, after: dict[str, object] | None) -> None:
        if after is not None and not is_ready(after):
            unknown.append(str(after["metadata"]))

    observer.cluster.view.nodes.subscribe(note)
    before = renewals(observer)
    await api.stop()
    loop = asyncio.get_running_loop()
    end = loop.time() + FAST.node_monitor_grace * 1.5
    await observer.until(lambda: loop.time() >= end, "longer than the grace")
    await api.start()
    await observer.until(lambda: all_renewed_since(observer, before), "all leases are renewed again")
    assert unknown == []
