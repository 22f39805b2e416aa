"""The page as a reader has it: served on the loopback, looked at with Debian's Chromium, which the tests start and end."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, async_playwright

from activities.contracts.episode_start import TemporalUi
from starter.web.views import Views
from tests.starter.conftest import client, cluster, server, unserved
from tests.unlocked import unlocked
from tests.web.looking import launched
from tests.web.night import CLUSTER, NightWarden
from tests.web.objects import NightCluster

__all__ = ["browser", "client", "cluster", "server", "unserved", "url", "warden"]

TEMPORAL = TemporalUi(address="https://temporal.example.com", namespace="default")
CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="package")
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs chromium (Debian: chromium)")
    async with async_playwright() as playwright:
        started = await launched(playwright, CHROMIUM)
        yield started
        await started.close()


@pytest.fixture
def warden() -> NightWarden:
    return NightWarden()


@pytest.fixture
async def url(warden: NightWarden) -> AsyncIterator[str]:
    views = Views(warden, (CLUSTER,), reading=NightCluster(), temporal=TEMPORAL)  # type: ignore[arg-type]
    async with unlocked(views) as address:
        yield address.rstrip("/")
