"""A simulated API server, a person with a client, and nodewarden's own connection to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from temporalio.common import MetricMeter

from activities.cluster.acts.cluster_lease import ScannerLease
from activities.cluster.acts.node_actions import Dispatch
from activities.cluster.acts.scan import ClusterScan
from activities.cluster.api.connection import ClusterConnection, Timeouts
from activities.cluster.watch.freshness import ViewLimits
from activities.cluster.watch.reflector import WatchLimits
from activities.cluster.watch.view import ClusterView
from activities.notification_sender import Notify, discard_notice
from policy.checks.fence_policies import PolicySource
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient
from tests.certificates import one_authority
from tests.cluster.builders import with_templates
from tests.cluster.machines import COUNTING
from tests.cluster.scans import LIVE, WATCHES, Open
from tests.cluster.skipping import skipping
from tests.licensing import LICENCES

__all__ = ["one_authority"]


@pytest.fixture(autouse=True)
async def no_waiting(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Time passes as fast as all that happens in it."""
    with skipping(monkeypatch):
        yield


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        yield server


@pytest.fixture
async def person(api: ApiServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(ApiAddress(url=api.url, token="abc"), user_agent="a-person") as client:
        yield client


@pytest.fixture
async def connection(api: ApiServer) -> AsyncIterator[ClusterConnection]:
    timeouts = Timeouts(connect=0.5, read=0.5, write=0.5, page=1.0)
    async with ClusterConnection.to(api.url, token="abc", timeouts=timeouts) as opened:
        yield opened


@pytest.fixture
async def open_scan(api: ApiServer) -> AsyncIterator[Open]:
    """Opens scans as so many workers would, each with a connection and a view of its own; `machines` is the API server of a
    management cluster. The templates that these tests' checks name are there."""
    async with AsyncExitStack() as stack:
        furnisher = ApiClient(ApiAddress(url=api.url, token="abc"), user_agent="furnisher")
        await with_templates(await stack.enter_async_context(furnisher), "nodewarden", *COUNTING)

        async def opened(
            limits: ViewLimits = LIVE,
            watches: WatchLimits = WATCHES,
            *,
            machines: ApiServer | None = None,
            meter: Any = MetricMeter.noop,
            notify: Notify = discard_notice,
            dispatch: Dispatch | None = None,
            notify_device_check: Callable[[str], Awaitable[None]] | None = None,
            report_lost_scan: Callable[[], Awaitable[None]] | None = None,
            look_after_scanner: Callable[[], Awaitable[int]] | None = None,
            lease_lasts: timedelta = timedelta(seconds=3),
            **options: Any,
        ) -> ClusterScan:
            connection = await stack.enter_async_context(ClusterConnection.to(api.url, token="abc"))
            others = await stack.enter_async_context(ClusterConnection.to(machines.url, token="abc")) if machines else None
            lease = ScannerLease(connection, duration=lease_lasts, monotonic=asyncio.get_running_loop().time)
            options.setdefault("source", PolicySource(templates=("nodewarden", *COUNTING), machines=COUNTING))
            view = ClusterView(connection, machines=others, limits=limits, watch_limits=watches, **options)
            scan = ClusterScan(
                "prod",
                view,
                lease=lease,
                meter=meter,
                notify=notify,
                dispatch=dispatch,
                notify_device_check=notify_device_check,
                report_lost_scan=report_lost_scan,
                look_after_scanner=look_after_scanner,
                licences=LICENCES,
            )
            return await stack.enter_async_context(scan)

        yield opened
