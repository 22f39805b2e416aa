"""How the tests look at a page: at a width, in light or dark, and whatever its browser complains of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from playwright.async_api import Browser, ConsoleMessage, Error, Page, Playwright

Scheme = Literal["light", "dark"]
PHONE, DESK = 400, 1400
TALL = 900

# A container's root has no user namespace to put Chromium's sandbox into, and nothing but our own page is ever opened. There is
# no graphics card either: a process that would draw in its stead costs more than the page.
CHROMIUM_OPTIONS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--in-process-gpu",
    "--renderer-process-limit=1",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
)

OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  const contained = (each) => each.closest(".table-responsive, .scrolls");
  const wide = [...document.body.querySelectorAll("*")].filter((each) => !contained(each))
    .filter((each) => each.getBoundingClientRect().right > width + 1 && getComputedStyle(each).position !== "absolute");
  return document.documentElement.scrollWidth > width ? wide.slice(0, 5).map((each) => each.outerHTML.slice(0, 120)) : [];
}"""
"""What sticks out to the right of a page that can be scrolled sideways. A table that scrolls within its card does not."""

COMPLAINTS = """
window.complaints = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.complaints.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`);
});
"""


async def launched(playwright: Playwright, executable: str) -> Browser:
    """Chromium; who asks closes it."""
    return await playwright.chromium.launch(executable_path=executable, args=CHROMIUM_OPTIONS)


async def turned(page: Page, *, width: int, scheme: Scheme) -> None:
    """The same page at another width and in other colours, as a reader turns a phone or the evening comes."""
    await page.emulate_media(color_scheme=scheme)
    await page.set_viewport_size({"width": width, "height": TALL})


_KEPT: dict[Browser, Page] = {}
"""A page that no test looks at now, in a context for UTC. To go from one address to the next costs a quarter of a new context,
which has a process of its own that compiles every script anew."""


async def _fresh(browser: Browser, zone: str) -> Page:
    context = await browser.new_context(reduced_motion="reduce", timezone_id=zone)
    page = await context.new_page()
    page.set_default_timeout(10_000)
    await page.add_init_script(COMPLAINTS)
    return page


@asynccontextmanager
async def opened(
    browser: Browser, address: str, *, width: int = DESK, scheme: Scheme = "light", zone: str = "UTC"
) -> AsyncIterator[tuple[Page, list[str]]]:
    """The page there, without a cookie, and what its console says against it."""
    said = list[str]()

    def hears(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            said.append(message.text)

    def fails(error: Error) -> None:
        said.append(str(error))

    kept = _KEPT.pop(browser, None) if zone == "UTC" else None
    page = kept if kept is not None else await _fresh(browser, zone)
    page.on("console", hears)
    page.on("pageerror", fails)
    try:
        await turned(page, width=width, scheme=scheme)
        await page.goto(address, wait_until="load")
        yield page, said
        page.remove_listener("console", hears)
        page.remove_listener("pageerror", fails)
        if zone == "UTC" and browser not in _KEPT:
            await page.goto("about:blank")
            await page.context.clear_cookies()
            _KEPT[browser] = page
    finally:
        if _KEPT.get(browser) is not page:
            await page.context.close()
