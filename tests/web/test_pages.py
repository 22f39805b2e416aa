"""Every view as a reader has it: at two widths, light and dark, by keyboard alone, through a screen reader's tree."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_FILE_PATH
from playwright.async_api import Browser, Page, expect

from tests.web.looking import DESK, OVERFLOW, PHONE, Scheme, opened, turned
from tests.web.night import CLUSTER

AT = f"/c/{CLUSTER}"
VIEWS = {
    "now": AT,
    "fleet": f"{AT}/fleet?by=rack",
    "checks": f"{AT}/checks",
    "kept": f"{AT}/kept",
    "devices": f"{AT}/devices",
    "history": f"{AT}/history?since=720h",
    "would-have": f"{AT}/compare",
    "node": f"{AT}/nodes/node-7?at=03:12",
    "node-that-waits-for-a-person": f"{AT}/nodes/node-9",
    "record": f"{AT}/record/inc-node-7",
    "not-found": f"{AT}/record/nobody",
}
AXE = Path(AXE_FILE_PATH).read_text(encoding="utf-8")
MOST_STOPS = 400
NARROW = 360
"""Of the narrowest phones that are common, in CSS pixels."""

FOCUSABLE = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility() && !each.disabled && each.type !== "hidden").length"""
FOCUSED = """() => {
  const found = document.activeElement, style = getComputedStyle(found), box = found.getBoundingClientRect();
  const marked = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0 || style.boxShadow !== "none";
  return { body: found === document.body, marked, seen: box.width > 0 && box.right > 0, what: found.outerHTML.slice(0, 120) };
}"""


async def accessibility(page: Page) -> list[str]:
    """What axe-core finds, of whatever weight."""
    # The file goes in through the debugger, as the page itself lets in no script but ours; half a megabyte, once for each page.
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE)
    found = await page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{each['id']} ({each['impact']}): {', '.join(_place(node) for node in each['nodes'][:2])}"
        for each in found["violations"]
    ]


def _place(node: dict[str, str]) -> str:
    return f"{node['html'][:160]} {node['failureSummary'][:160]}"


TWICE = """() => [...document.querySelectorAll("[id]")].map((each) => each.id).filter((id, at, all) => all.indexOf(id) !== at)"""
"""Names that two elements have."""


@pytest.mark.parametrize("view", VIEWS)
async def test_a_view_is_whole_at_each_width_light_and_dark(browser: Browser, url: str, view: str) -> None:
    """S40: not one style or script that the policy refuses; and nothing that sticks out of a phone."""
    schemes: tuple[Scheme, Scheme] = ("light", "dark")
    async with opened(browser, url + VIEWS[view]) as (page, said):
        for width, scheme in product((DESK, PHONE), schemes):
            await turned(page, width=width, scheme=scheme)
            await expect(page.locator("html")).to_have_attribute("data-bs-theme", scheme)
            assert await page.evaluate(OVERFLOW) == [], f"at {width}px"
            assert await page.evaluate(TWICE) == []  # a page that is kept new takes one for the other
            if (width == DESK) is (scheme == "light"):  # colours are the same at each width, and names in each scheme
                assert await accessibility(page) == [], f"{scheme} at {width}px"
        assert [each for each in said if view != "not-found" or "404" not in each] == []
        assert await page.evaluate("complaints") == []


@pytest.mark.parametrize(
    ("path", "within", "words"),
    [
        ("", "#person", "it goes on from where it waits"),
        ("/nodes/node-9", "#why, #episode", "it goes on from where it waits"),
        ("/nodes/node-9", "#why, #episode", "whether the machine is off is not known"),
        ("/nodes/node-15", "#why", "2 of 2 permits are in use"),
        ("/nodes/node-22", "#why", "1 of 4 nodes are healthy"),
        ("/nodes/node-22", "#checks", "1 of 4 nodes are healthy"),
        ("/nodes/node-22", "#why", "held back under NodeHealthCheck/gpu: its open circuit breaker (TooManyUnhealthy)"),
        ("/record/inc-node-7", "main > .headline", "returning: waits for the node to come back Ready"),
    ],
)
async def test_nothing_is_said_twice_in_one_place(browser: Browser, url: str, path: str, within: str, words: str) -> None:
    """At night the second time is taken for another thing."""
    async with opened(browser, f"{url}{AT}{path}", width=PHONE) as (page, _):
        said = " ".join("\n".join(await page.locator(within).all_inner_texts()).split())
        assert said.count(words) == 1, said


@pytest.mark.parametrize("view", ["now", "would-have"])
async def test_the_menu_is_one_line_on_a_phone(browser: Browser, url: str, view: str) -> None:
    """The name of the view that is open is in bold, the longest of them too."""
    async with opened(browser, url + VIEWS[view], width=NARROW) as (page, _):
        links = await page.locator("header nav a").all()
        assert len({box["y"] for each in links if (box := await each.bounding_box()) is not None}) == 1


@pytest.mark.parametrize("view", VIEWS)
async def test_a_keyboard_reaches_everything_and_sees_where_it_is(browser: Browser, url: str, view: str) -> None:
    async with opened(browser, url + VIEWS[view]) as (page, _):
        wanted = await page.evaluate(FOCUSABLE)
        assert wanted >= 4
        stops = []
        for _ in range(MOST_STOPS):
            await page.keyboard.press("Tab")
            at = await page.evaluate(FOCUSED)
            if at["body"] or (len(stops) > 1 and at["what"] == stops[0]):
                break  # once round: a window of its own may have a stop between the last and the first
            assert at["marked"], f"no mark of the focus: {at['what']}"
            assert at["seen"], f"the focus is out of sight: {at['what']}"
            if at["what"] not in stops[-1:]:  # a browser stops at each part of a moment, and at its calendar
                stops.append(at["what"])
        assert len(stops) == wanted
        assert "To the content" in stops[0]


async def test_the_way_past_the_menu_leads_past_it(browser: Browser, url: str) -> None:
    async with opened(browser, url + AT) as (page, _):
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.activeElement.id") == "main"
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.getElementById('main').contains(document.activeElement)")


async def test_the_browser_does_refuse_what_the_policy_forbids(browser: Browser, url: str) -> None:
    """Else the tests above would see no violation whatever happens."""
    async with opened(browser, url + AT) as (page, said):
        await page.evaluate("document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">')")
        await page.wait_for_function("complaints.length > 0")
        assert any("style" in each for each in said)
