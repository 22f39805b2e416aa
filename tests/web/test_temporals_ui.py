"""Our links into Temporal's own UI, followed in the one that the embedded server brings: what is meant is what is shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser
from temporalio.client import Client

from activities.contracts import search_attributes
from activities.contracts.episode_start import TemporalUi, introduced, queries
from policy.episode.messages import Kind, Phase, episode_id
from tests.web.night import CLUSTER
from workers.embedded.server import EmbeddedTemporal
from workers.temporal_namespace import required_search_attributes

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

NODE = "node-7.rack-b"
WAITS_MS = 60_000


@pytest.fixture
async def ui(tmp_path: Path) -> AsyncIterator[tuple[TemporalUi, str]]:
    """Of a server on which one episode waits for a person; its run. No worker serves it: the UI shows it all the same."""
    attributes = dict.fromkeys(required_search_attributes(), "Keyword")
    async with EmbeddedTemporal(tmp_path / "state", search_attributes=attributes) as server:
        client = await Client.connect(server.endpoint.address)
        about = {"cluster": CLUSTER, "node": NODE, "reason": "its fan is dying"}
        handle = await client.start_workflow(
            Kind.FENCING.value,
            id=episode_id(CLUSTER, NODE),
            task_queue="nobody",
            search_attributes=search_attributes.of_episode(Kind.FENCING, **about, phase=Phase.NEEDS_HUMAN),
            **introduced(Kind.FENCING, **about, requester="ann", page="https://nodes.example.com"),
        )
        yield TemporalUi(address=server.endpoint.ui_url, namespace="default"), handle.first_execution_run_id or ""


async def test_a_link_opens_the_workflow_and_a_query_finds_it(browser: Browser, ui: tuple[TemporalUi, str]) -> None:
    temporal, run_id = ui
    id_ = episode_id(CLUSTER, NODE)
    page = await browser.new_page()
    page.set_default_timeout(WAITS_MS)
    try:
        for address in (temporal.of(id_), temporal.of(id_, run_id)):
            await page.goto(address)
            await page.get_by_text(id_).first.wait_for()
            assert run_id in page.url
        await page.goto(temporal.found(queries(CLUSTER)["Needs a person"]))
        await page.get_by_role("link", name=id_).first.wait_for()
        for name in ("Did not come back", "Ended without a result"):
            await page.goto(temporal.found(queries(CLUSTER)[name]))
            await page.get_by_text("No Workflows").first.wait_for()
            assert "error" not in (await page.locator("main").inner_text()).lower()
    finally:
        await page.close()
