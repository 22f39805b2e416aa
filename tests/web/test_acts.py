"""A person says a word with a browser: as it sends forms, at the width of a phone, with nothing that our own policy refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import Browser, Page
from temporalio.client import Client

from policy.episode.modes import ClusterModes
from policy.episode.node_action import Verb
from policy.scan.obstacles import ObstacleCode
from policy.values.mode import Mode
from starter import wording
from starter.client import Nodewarden
from starter.handles.node_actions import Speaker
from starter.web.acts import _in_the_way
from starter.web.now import overview_of
from starter.web.views import Views
from tests.unlocked import no_way, unlocked
from tests.web.looking import OVERFLOW, PHONE, Scheme, opened
from tests.web.night import CLUSTER, night
from tests.web.test_pages import accessibility


@pytest.fixture
async def mine(client: Client) -> Nodewarden:
    return Nodewarden(client, speaker=Speaker(no_way, otherwise="ann@laptop", complain=lambda _: None))


@pytest.fixture
async def served(mine: Nodewarden, cluster: str) -> AsyncIterator[str]:
    async with unlocked(Views(mine, (cluster,))) as address:
        yield f"{address}c/{cluster}"


async def whole(page: Page) -> None:
    assert await page.evaluate("complaints") == []
    assert await page.evaluate(OVERFLOW) == []
    assert await accessibility(page) == []


async def test_a_word_goes_from_the_node_by_its_preview_to_its_answer(
    browser: Browser, mine: Nodewarden, served: str, cluster: str
) -> None:
    episode = await mine.fence(cluster, "sick-1", reason="drill")
    async with opened(browser, f"{served}/nodes/sick-1", width=PHONE) as (page, said):
        await whole(page)
        await page.get_by_role("link", name="resume sick-1").click()
        await whole(page)
        await page.get_by_role("button", name="resume sick-1").click()
        assert "/acts/resume" in page.url  # the reason is required: nothing was sent
        await page.get_by_label("Why, for the record").fill("the cable is in")
        await page.keyboard.press("Enter")
        await page.get_by_role("status").wait_for()
        assert "goes on for ann@laptop" in await page.get_by_role("status").inner_text()
        await whole(page)
        assert said == []
    assert (await episode.status()).problem == ""
    await episode.abort(who="ann", reason="enough")


async def test_vouching_for_off_wants_the_name_of_the_node(browser: Browser, mine: Nodewarden, served: str) -> None:
    """S8: typed, after what each device says."""
    episode = await mine.fence(served.rpartition("/")[2], "sick-on", reason="drill")
    async with opened(browser, f"{served}/acts/ack-off?node=sick-on", width=PHONE) as (page, said):
        await whole(page)
        assert "ipmi://10.0.0.9:623 does not answer now" in await page.locator("main").inner_text()
        await page.get_by_label("Why, for the record").fill("its plug is out")
        await page.get_by_role("button", name="ack-off sick-on").click()
        assert "/acts/ack-off" in page.url  # the name is required: nothing was sent
        await page.get_by_label("Type the name of the node that you saw off").fill("sick-1")
        await page.get_by_role("button", name="ack-off sick-on").click()
        await page.get_by_role("alert").filter(has_text="nodeName: expected sick-on").wait_for()
        await page.get_by_label("Type the name of the node that you saw off").fill("sick-on")
        await page.get_by_label("Override the device that says on").check()
        await page.get_by_role("button", name="ack-off sick-on").click()
        await page.get_by_role("status").filter(has_text="off acknowledged").wait_for()
        assert [each for each in said if "422" not in each] == []
    await episode.result()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pausing_and_its_refusal_are_whole(browser: Browser, served: str, scheme: Scheme) -> None:
    """No scanner runs there that would answer."""
    async with opened(browser, f"{served}/acts/pause", width=PHONE, scheme=scheme) as (page, _):
        await whole(page)
        await page.get_by_label("Why, for the record").fill("storage")
        await page.get_by_label("For how long").fill("5m")
        await page.get_by_role("button", name="pause").click()
        await page.get_by_role("alert").filter(has_text="Refused").wait_for()
        await whole(page)
        assert await page.get_by_label("Why, for the record").input_value() == "storage"
        assert await page.get_by_label("For how long").input_value() == "5m", "else pressing again pauses for ever"
        parts = "getComputedStyle(document.querySelector('main > [role=alert]:not([hidden])')).display"
        assert await page.evaluate(parts) == "block", "its commands stand in its line"


@pytest.mark.parametrize(("word", "asked"), [("fence", True), ("remediate", True), ("preserve", False)])
async def test_before_a_word_it_is_said_which_check_refuses_it_and_why_that_counts(url: str, word: str, asked: bool) -> None:
    """S17, S44: node-2 is a worker; the open circuit breaker is that of the GPU pool. A preservation asks none."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}/api/v1/clusters/{CLUSTER}/acts/{word}?node=node-2") as answer,
    ):
        found = await answer.json()
    known = "\n".join((found["refused"], *found["known"]))
    assert ("NodeHealthCheck/gpu" in known) is asked
    assert ("no request begins, not even on nodes that this check does not cover" in known) is asked


@pytest.mark.parametrize("verb", [Verb.FENCE, Verb.REMEDIATE, Verb.PRESERVE])
def test_s52_a_mode_is_not_said_to_hold_back_what_a_person_asks_for(verb: Verb) -> None:
    status = night()
    assert status.scanner is not None
    observes = ClusterModes(setting=Mode.OBSERVE)
    scanner = replace(status.scanner, modes=observes)
    overview = overview_of(replace(status, scanner=scanner))
    said = [each.text for each in wording.obstacles(scanner, status.at) if each.code is ObstacleCode.MODE]
    assert set(said) <= set(overview.stops)
    assert said
    assert not set(said) & set(_in_the_way(overview, verb))


@pytest.mark.parametrize(("word", "offered"), [("fence", True), ("remediate", True), ("preserve", False)])
async def test_an_open_circuit_breaker_may_be_overridden_behind_the_name_of_the_node(url: str, word: str, offered: bool) -> None:
    """S17: a preservation asks no circuit breaker."""
    async with aiohttp.ClientSession() as session, session.get(f"{url}/c/{CLUSTER}/acts/{word}?node=node-2") as answer:
        form = await answer.text()
    assert ('name="override" value="circuit-breaker"' in form, 'name="node_name"' in form) == (offered, offered)


async def test_the_command_of_a_preview_has_its_reason_once(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/c/{CLUSTER}/acts/ack-off?node=node-9") as answer:
        assert (await answer.text()).count("--reason") == 1


async def test_another_pages_form_is_refused(
    browser: Browser, mine: Nodewarden, served: str, cluster: str, tmp_path: Path
) -> None:
    """S42: as a browser sends it, from a file that a person was made to open."""
    episode = await mine.fence(cluster, "node-1", reason="drill")
    fields = {"verb": "abort", "node": "node-1", "reason": "x"}
    inputs = "".join(f"<input name={name} value={value}>" for name, value in fields.items())
    (tmp_path / "evil.html").write_text(f"<form method=post action={served}/acts>{inputs}<button>x</button></form>")
    async with opened(browser, (tmp_path / "evil.html").as_uri()) as (page, _):
        async with page.expect_response(lambda answer: answer.request.method == "POST") as sent:
            await page.get_by_role("button").click()
        assert (await sent.value).status == 403
    assert await episode.is_open()
    await episode.abort(who="ann", reason="enough")
