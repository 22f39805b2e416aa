"""Scans of a simulated cluster, asked as a scanner asks them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.scan import ClusterScan
from activities.cluster.watch.freshness import ViewLimits
from activities.cluster.watch.reflector import WatchLimits
from activities.contracts.scan import ScanRequest
from policy.scan.scan_report import ScanReport
from simulator.client import ApiClient
from tests.cluster.builders import CHECKS, DEFINITIONS, NODES, check, definition, node

LIVE = ViewLimits(
    silence=timedelta(seconds=5),
    broken=timedelta(milliseconds=200),
    grace=timedelta(0),
    shrunk=timedelta(milliseconds=400),
    probe=timedelta(milliseconds=300),
    probe_again=timedelta(milliseconds=50),
    catch_up=timedelta(milliseconds=100),
    first_list=timedelta(seconds=2),
)
WATCHES = WatchLimits(silence=4, first_pause=0.01, longest_pause=0.2, absence=30.0)
OURS = "nodewarden/"

Open = Callable[..., Any]


def asked(known: ScanReport | None = None, wait: float = 2.0, **changes: Any) -> ScanRequest:
    request: dict[str, Any] = {"cluster": "prod", "holder": "temporal-a/default", "wait": timedelta(seconds=wait)}
    if known is not None:
        request |= {
            "known_digest": known.digest,
            "resource_version": known.resource_version,
            "inventory": known.inventory,
            "check_versions": known.check_versions,
        }
    return ScanRequest(**(request | changes))


async def observe(scan: ClusterScan, request: ScanRequest, *, meter: Any = None) -> ScanReport:
    """meter: counts what is counted."""
    environment = ActivityEnvironment()
    if meter is not None:
        environment.metric_meter = meter
    report = await environment.run(scan.observe_cluster, request)
    assert isinstance(report, ScanReport)
    return report


async def observe_until(
    scan: ClusterScan, known: ScanReport | None, condition: Callable[[ScanReport], object], *, meter: Any = None, **changes: Any
) -> ScanReport:
    """Scan as the scanner does until a report is as wanted. How many come before depends on how busy the machine is."""
    known = known or await observe(scan, asked(**changes), meter=meter)
    try:
        async with asyncio.timeout(30):
            while not condition(known):
                known = await observe(scan, asked(known, **changes), meter=meter)
    except TimeoutError:
        raise AssertionError(known) from None
    return known


async def fleet(person: ApiClient, count: int = 4) -> None:
    for number in range(count):
        await person.create(NODES, node(f"node-{number}"))


async def with_policy(person: ApiClient, duration: str = "300s", **spec: Any) -> None:
    await person.create(DEFINITIONS, definition())
    await person.create(CHECKS, check(duration=duration, **spec))
