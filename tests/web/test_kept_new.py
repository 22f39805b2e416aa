"""An open page while things happen: its server dies and comes back, hundreds of episodes change at once, fleets are large."""

from __future__ import annotations

import dataclasses
import json
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import Browser

from policy.checks.verdict import Health
from policy.episode.messages import Kind, Phase
from policy.scan.scan_report import MAXIMUM_ROWS, ViewState
from starter.web import views
from starter.web.views import Views
from tests import report as told
from tests.starter.builders import check, report, row, scanner
from tests.unlocked import unlocked
from tests.web.looking import OVERFLOW, PHONE, opened
from tests.web.night import CLUSTER, FENCED, REBOOTED, NightWarden, night

TURNS = 9
LONGEST_FRAME = 80.0
"""Milliseconds. Sections that were exchanged whole took 110, half of them to lay out what was out of sight."""
TOUCHED = """window.touched = new Set();
for (const each of document.querySelectorAll("#under-way article")) each.stays = true;
new MutationObserver((list) => { for (const each of list) {
  const at = each.target.nodeType === 1 ? each.target : each.target.parentElement;
  const row = at?.closest("time") ? null : at?.closest("article");
  if (row) touched.add(row.dataset.key);
} }).observe(document.getElementById("under-way"), { subtree: true, childList: true, characterData: true, attributes: true });"""


async def test_a_page_whose_server_dies_says_so_and_comes_back_by_itself(browser: Browser, warden: NightWarden) -> None:
    """S44: what is old is called old."""
    async with AsyncExitStack() as servers:
        first = await servers.enter_async_context(unlocked(Views(warden, (CLUSTER,))))  # type: ignore[arg-type]
        port = int(first.rstrip("/").rpartition(":")[2])
        async with opened(browser, f"{first}c/{CLUSTER}") as (page, _):
            await page.locator("#link").wait_for(state="hidden")
            await servers.aclose()
            await page.locator("#link").wait_for(state="visible")
            assert "reach its server" in await page.locator("#link").inner_text()
            calm = scanner(report(row("node-77")))
            warden.answer = dataclasses.replace(night(), episodes=(), scanner=calm)
            async with unlocked(Views(warden, (CLUSTER,)), port=port):  # type: ignore[arg-type]
                await page.locator("#link").wait_for(state="hidden")
                await page.get_by_text("node-77").first.wait_for()


async def test_an_open_page_calls_its_rows_old_while_the_cluster_is_not_seen(
    browser: Browser, url: str, warden: NightWarden
) -> None:
    """S18, S44: and no longer once it is seen again. The rows were green all the time on a page that had been open before."""
    seen = report(row("node-77"), answered_at=datetime.now(UTC) + timedelta(minutes=20))
    blind = dataclasses.replace(seen, view=ViewState(synced=True, stale="nothing heard for 1m15s"))
    warden.answer = dataclasses.replace(night(), scanner=scanner(seen))
    async with opened(browser, f"{url}/c/{CLUSTER}") as (page, said):
        await page.locator("#nodes tr[data-key=node-77] a").focus()
        warden.answer = dataclasses.replace(night(), scanner=scanner(blind))
        await page.get_by_text("What follows is as it was seen").wait_for()
        await page.locator(".old #nodes").wait_for()
        warden.answer = dataclasses.replace(night(), scanner=scanner(seen))
        await page.get_by_text("What follows is as it was seen").wait_for(state="hidden")
        assert await page.locator(".old").count() == 0
        assert await page.evaluate("document.activeElement.innerText") == "node-77"
        assert said == []


async def test_an_open_page_of_a_node_gets_its_episode_when_one_begins(browser: Browser, url: str, warden: NightWarden) -> None:
    """S44: and loses it, with its buttons, when it is over; what a reader writes meanwhile is not taken away."""
    warden.answer = dataclasses.replace(night(), episodes=())
    async with opened(browser, f"{url}/c/{CLUSTER}/nodes/node-9") as (page, _):
        await page.get_by_label("At, in your zone, UTC").fill("2026-11-20T03:12:07")
        warden.answer = night()
        await page.locator("#episode").get_by_role("link", name="ack-off node-9").wait_for()
        warden.answer = dataclasses.replace(night(), episodes=())
        await page.locator("#episode").wait_for(state="detached")
        assert await page.get_by_label("At, in your zone, UTC").input_value() == "2026-11-20T03:12:07"


async def test_what_was_due_is_asked_for_anew_though_nothing_else_has_changed(
    browser: Browser, url: str, warden: NightWarden
) -> None:
    """S44: a countdown that has ended is not left to stand; sooner than a page is drawn anew anyway."""
    async with opened(browser, f"{url}/c/{CLUSTER}") as (page, _):
        due = row("node-16", Health.SOON, ready="False", due=datetime.now(UTC) + timedelta(seconds=5))
        warden.answer = dataclasses.replace(night(), scanner=scanner(report(due)))
        cell = page.locator("#nodes tr[data-key=node-16]")
        await cell.get_by_text("unhealthy in").wait_for()
        await cell.get_by_text("unhealthy in").wait_for(state="hidden")


async def test_a_section_that_is_exchanged_leaves_the_focus_where_it_was(browser: Browser, url: str, warden: NightWarden) -> None:
    """A reader who goes by the keyboard is not thrown back to the top by each change."""
    async with opened(browser, f"{url}/c/{CLUSTER}") as (page, _):
        link = page.locator("#under-way a").first
        await link.focus()
        where = await link.inner_text()
        doing = dataclasses.replace(REBOOTED, doing="commands power off")
        warden.answer = dataclasses.replace(night(), episodes=(FENCED, doing))
        await page.locator("#under-way").get_by_text("commands power off").wait_for()
        assert await page.evaluate("document.activeElement.closest('#under-way') !== null")
        assert await page.evaluate("document.activeElement.innerText") == where


async def test_what_has_not_changed_is_not_touched(browser: Browser, url: str, warden: NightWarden) -> None:
    """One of two hundred goes on: the others stay the elements that they were, with whatever the reader has selected in them."""
    many = tuple(dataclasses.replace(REBOOTED, node=f"node-{number}", incident=f"i-{number}") for number in range(200))
    warden.answer = dataclasses.replace(night(), episodes=many)
    async with opened(browser, f"{url}/c/{CLUSTER}") as (page, said):
        await page.evaluate(TOUCHED)
        goes_on = dataclasses.replace(many[150], doing="commands power off")
        warden.answer = dataclasses.replace(night(), episodes=(*many[:150], goes_on, *many[151:]))
        await page.locator("#under-way").get_by_text("commands power off").wait_for()
        assert await page.evaluate("[...touched]") == ["i-150"]
        # Another order moves elements, and makes none.
        warden.answer = dataclasses.replace(night(), episodes=(goes_on, *many[:150], *many[151:-1]))
        await page.locator("#under-way article:first-child[data-key=i-150]").wait_for()
        assert await page.evaluate("[...document.querySelectorAll('#under-way article')].every((each) => each.stays)")
        assert await page.locator("#under-way article").count() == 199
        assert said == []


async def test_a_link_never_becomes_another_under_the_keyboard(browser: Browser, url: str, warden: NightWarden) -> None:
    """A reader who is about to press Enter on one node does not get another one."""
    warden.answer = dataclasses.replace(night(), episodes=(REBOOTED,))
    async with opened(browser, f"{url}/c/{CLUSTER}") as (page, _):
        await page.locator("#under-way a").first.focus()
        warden.answer = dataclasses.replace(night(), episodes=(FENCED,))
        await page.locator("#under-way").get_by_text("node-7").first.wait_for()
        assert await page.evaluate("document.activeElement === document.body || document.activeElement.innerText === 'node-12'")


@pytest.mark.timeout(120)
async def test_a_storm_of_two_hundred_episodes_leaves_the_page_fluent(
    browser: Browser, url: str, warden: NightWarden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No task of the page works for as long as a frame may take; how long one lasts beside others is the machine's affair."""
    monkeypatch.setattr(views, "until_next", lambda _status: timedelta(milliseconds=200))
    steps = ("isolation", "power-management", "recovery")

    def storm(turn: int) -> None:
        warden.answer = dataclasses.replace(
            night(),
            episodes=tuple(
                dataclasses.replace(
                    REBOOTED, node=f"node-{number}", incident=f"i-{number}", step=steps[(number + turn) % 3], doing=f"turn {turn}"
                )
                for number in range(200)
            ),
        )

    storm(0)
    async with opened(browser, f"{url}/c/{CLUSTER}") as (page, said):
        await browser.start_tracing(page=page, categories=["toplevel", "disabled-by-default-devtools.timeline"])
        try:
            for turn in range(1, TURNS):
                storm(turn)
                await page.locator("#under-way").get_by_text(f"turn {turn}").first.wait_for()
        finally:
            traced = json.loads(await browser.stop_tracing())["traceEvents"]
        assert said == []
        assert await page.locator("#under-way article").count() >= 200
    worked, took = longest(traced)
    told.table(
        "A storm of 200 episodes on an open page",
        ("changes", "longest task, as worked", "as taken on this machine"),
        [(str(TURNS - 1), f"{worked:.0f} ms", f"{took:.0f} ms")],
    )
    assert 1 < worked < LONGEST_FRAME


def longest(traced: list[dict[str, Any]]) -> tuple[float, float]:
    """Of the tasks of the page's main thread, in milliseconds: what a processor has done for one, and how long one has lasted."""
    named = ((each["pid"], each["tid"], each["args"]["name"]) for each in traced if each.get("name") == "thread_name")
    (*_, main) = ((pid, tid) for pid, tid, name in named if name == "CrRendererMain")
    tasks = [
        each
        for each in traced
        if each.get("ph") == "X" and each["name"].endswith("RunTask") and (each["pid"], each["tid"]) == main
    ]
    return max(each.get("tdur", 0) for each in tasks) / 1000, max(each["dur"] for each in tasks) / 1000


@pytest.mark.parametrize("nodes", [2000, 5000])
async def test_a_large_fleet_stays_readable(browser: Browser, url: str, warden: NightWarden, nodes: int) -> None:
    """What is sick is named, and the rest counted: as the report that the scanner draws up."""
    rows = [row(f"node-{number}", Health.UNHEALTHY if number < 9 else Health.HEALTHY) for number in range(MAXIMUM_ROWS)]
    seen = report(*rows, inventory=nodes, checks=(check(total=nodes, healthy=nodes - 9, unhealthy=9),))
    warden.answer = dataclasses.replace(night(), scanner=scanner(seen))
    async with opened(browser, f"{url}/c/{CLUSTER}", width=PHONE) as (page, said):
        body = await page.locator("main").inner_text()
        assert f"{nodes - MAXIMUM_ROWS} more nodes" in body
        assert await page.evaluate(OVERFLOW) == []
        assert said == []


def test_the_kinds_and_phases_that_the_night_has() -> None:
    """The pages are looked at with each way in which an episode stands that people have to tell apart."""
    found = night().episodes
    assert {Kind.FENCING, Kind.REMEDIATION} <= {each.kind for each in found}
    assert {Phase.NEEDS_HUMAN, Phase.QUEUED, Phase.RUNNING, Phase.DONE} <= {each.phase for each in found}
