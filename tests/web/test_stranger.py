"""Five questions of the night, answered by the page alone for a reader who has never seen it: from the start page, by at most
two clicks, in a sentence that can be read aloud."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import aiohttp
import pytest
from playwright.async_api import Browser, Page

from policy.scan.pauses import PastPause, Pause
from policy.values.times import as_of, written
from tests.starter.builders import scanner
from tests.web.looking import opened
from tests.web.night import CHANGES, CLUSTER, NightWarden, at_three_twelve, hence, night, unrepaired

PAUSE = Pause(
    who="ann@example.com",
    owner="ann@example.com",
    reason="storage move",
    since=datetime.now(UTC) - timedelta(minutes=20),
    until=hence(hours=2),
)


@pytest.fixture
def paused(warden: NightWarden) -> NightWarden:
    """That night, with a pause in force."""
    before = night()
    assert before.scanner is not None
    report = before.scanner.report
    assert report is not None
    carried = {field.name: getattr(before.scanner, field.name) for field in dataclasses.fields(before.scanner)}
    warden.answer = dataclasses.replace(before, scanner=scanner(report, **carried | {"pauses": (PAUSE,)}))
    warden.pauses = (PastPause(pause=PAUSE),)
    return warden


@pytest.fixture
async def start(browser: Browser, url: str, paused: NightWarden) -> AsyncIterator[Page]:
    async with opened(browser, url) as (page, said):
        yield page
        assert said == []


async def reads(page: Page, *sentences: str) -> None:
    body = " ".join((await page.locator("main").inner_text()).split())
    for each in sentences:
        assert each in body


async def test_is_anything_being_repaired(start: Page) -> None:
    """No click."""
    await reads(start, "Under way node-7 Fencing", "waits for the node to come back Ready", "off is proven")


async def test_what_waits_for_me_and_what_should_i_do(start: Page) -> None:
    """No click."""
    await reads(
        start,
        "Needs a person node-9",
        "has not answered for 10m: whether the machine is off is not known",
        "after you fixed the cause: it goes on from where it waits",
        "if you saw it off: your word is taken for the proof",
    )


async def test_why_is_node_9_not_touched(start: Page) -> None:
    """One click, on its name."""
    await start.get_by_role("link", name="node-9", exact=True).first.click()
    await reads(start, "Is anything done to it? Not now: its episode waits for a person", "paused by ann@example.com")
    assert await start.locator(".headline").first.is_visible()


async def test_what_happened_last_night_at_three_twelve(start: Page) -> None:
    """Two clicks: the history, and the episode that began then."""
    await start.get_by_role("link", name="History").click()
    row = start.get_by_role("row").filter(has_text=written(at_three_twelve().started))
    await row.get_by_role("link", name="node-4", exact=True).click()
    await reads(start, "of node-4", "the node is back Ready with a new boot id", "off-proven", "read off twice")


@pytest.mark.parametrize("zone", ["America/St_Johns", "Asia/Dubai"])
async def test_what_happened_everywhere_at_a_time_of_my_own_zone(
    browser: Browser, url: str, paused: NightWarden, zone: str
) -> None:
    """The time of the reader's own clock, written as the browser has it, and shown so."""
    moment = at_three_twelve().started + timedelta(seconds=40)
    mine = moment.astimezone(ZoneInfo(zone))
    async with opened(browser, url, zone=zone) as (page, said):
        await page.get_by_role("link", name="History").click()
        await page.get_by_label(f"At, in your zone, {zone}").fill(f"{mine:%Y-%m-%dT%H:%M:%S}")
        then = page.get_by_role("region", name="Everything at that moment")
        await then.get_by_role("button", name="Show").click()
        await reads(page, f"at {mine.isoformat(' ', 'seconds')} (", "node-4: Fencing since")
        await reads(page, "last, 31s earlier: power off: ", "next, 12s later: off proven: read off twice")
        assert await page.get_by_label(f"At, in your zone, {zone}").input_value() == f"{mine:%Y-%m-%dT%H:%M:%S}"
        address = page.url
        await then.get_by_role("link", name="node-4").click()
        await reads(page, "of node-4", "off-proven")
        assert said == []
    async with opened(browser, address, zone="Asia/Tokyo") as (page, said):
        await reads(page, f"at {mine.isoformat(' ', 'seconds')}")
        theirs = moment.astimezone(ZoneInfo("Asia/Tokyo"))
        assert await page.get_by_label("At, in your zone, Asia/Tokyo").input_value() == f"{theirs:%Y-%m-%dT%H:%M:%S}"
        assert said == []


async def test_why_a_node_was_not_touched_is_asked_for_at_a_time_of_my_own_zone(
    browser: Browser, url: str, paused: NightWarden
) -> None:
    moment = at_three_twelve().started + timedelta(seconds=40)
    mine = moment.astimezone(ZoneInfo("Asia/Dubai"))
    async with opened(browser, url, zone="Asia/Dubai") as (page, said):
        await page.goto(f"{url.rstrip('/')}/c/{CLUSTER}/nodes/node-4")
        await page.get_by_label("At, in your zone, Asia/Dubai").fill(f"{mine:%Y-%m-%dT%H:%M:%S}")
        await page.get_by_role("region", name="Why at that moment?").get_by_role("button", name="Show").click()
        await reads(page, f"At {as_of(mine, moment)} (UTC+04:00):", "Fencing was open")
        assert await page.get_by_label("At, in your zone, Asia/Dubai").input_value() == f"{mine:%Y-%m-%dT%H:%M:%S}"
        due = next(each.due for each in unrepaired() if each.node == "node-4")
        mine = (due + timedelta(minutes=1)).astimezone(ZoneInfo("Asia/Dubai"))
        await page.get_by_label("At, in your zone, Asia/Dubai").fill(f"{mine:%Y-%m-%dT%H:%M:%S}")
        await page.get_by_role("region", name="Why at that moment?").get_by_role("button", name="Show").click()
        await reads(page, f"it would have been repaired from {as_of(mine, due)} on", "mode holds it", "it came back by itself")
        assert said == []


async def test_who_set_this_to_observe_is_on_the_page_and_its_api(url: str) -> None:
    """S44: as `nodewarden mode` lists it, the newest first."""
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/c/{CLUSTER}/history") as answer:
            page = await answer.text()
        async with session.get(f"{url}/api/v1/clusters/{CLUSTER}/mode-changes") as answer:
            found = await answer.json()
    first, last = (f"{each.what}</td><td>{each.by}: {each.reason}" for each in reversed(CHANGES))
    assert 0 < page.index(first) < page.index(last)
    assert [each["reason"] for each in found["changes"]] == [each.reason for each in CHANGES]


@pytest.mark.parametrize("path", ["", "/record/at-night", "/nodes/node-4", "/history?since=168h", "/compare"])
async def test_every_moment_is_in_my_own_zone_and_stays_so(browser: Browser, url: str, paused: NightWarden, path: str) -> None:
    """As the head says; also once the page was made new by its script. Ids of workflows keep theirs."""
    async with opened(browser, f"{url}/c/{CLUSTER}{path}", zone="Asia/Dubai") as (page, said):
        assert "times in Asia/Dubai" in await page.locator("header").inner_text()
        main = page.locator("#main")
        for _ in range(2):
            shown = await main.inner_text()
            assert re.findall(r"\d{4}-\d\d-\d\dT[\d:]+Z", shown) == []
            assert re.search(r"\d{4}-\d\d-\d\d [\d:]{8}\+04:00", shown)
            await page.evaluate("renew()")
        if path == "/record/at-night":
            began = at_three_twelve().started.astimezone(ZoneInfo("Asia/Dubai"))
            assert as_of(began, began) in shown
        assert said == []


async def test_is_anything_paused_by_which_person_and_until_when(start: Page) -> None:
    """No click: it is the first sentence."""
    first = await start.locator(".headline").first.inner_text()
    assert first.startswith("No: paused by ann@example.com")
    assert written(PAUSE.until or PAUSE.since) in first
    assert "storage move" in first
