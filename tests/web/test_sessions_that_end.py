"""An open page while its reader is not known any more, while no answer comes, or in more tabs than there are connections."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from starter.errors import RequestError, SilentError
from starter.web import app
from starter.web.app import serving
from starter.web.auth import Caller, UnknownCallerError
from starter.web.views import Views
from tests.unlocked import Unlocked
from tests.web.looking import opened
from tests.web.night import CLUSTER, NightWarden

CONNECTIONS = 6
"""To one server, by HTTP/1.1, for all tabs of a browser."""
HIDES = """() => {
  Object.defineProperty(document, "visibilityState", { get: () => "hidden" });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


class Keeper(Unlocked):
    """Lets everybody in until it says why not."""

    login = True
    why_not: RequestError | None = None

    async def caller(self, token: str, cluster: str, address: str = "") -> Caller:
        if self.why_not is not None:
            raise self.why_not
        return await super().caller(token, cluster)


@pytest.fixture
def keeper(warden: NightWarden) -> Keeper:
    return Keeper(warden, name="ann")  # type: ignore[arg-type]


@pytest.fixture
async def url(warden: NightWarden, keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    monkeypatch.setattr(app, "HEARTBEAT_SECONDS", 0.2)
    async with serving(Views(warden, (CLUSTER,)), host="127.0.0.1", port=0, keeper=keeper) as address:  # type: ignore[arg-type]
        yield f"{address}c/{CLUSTER}"


async def test_an_open_page_says_that_its_reader_has_to_log_in_again(browser: Browser, url: str, keeper: Keeper) -> None:
    """S44: what is old is called old, and with the way out. It goes on by itself once the reader has logged in elsewhere."""
    async with opened(browser, url) as (page, _):
        await page.locator("#link").wait_for(state="hidden")
        keeper.why_not = UnknownCallerError("the cluster does not know this token, or it has ended")
        await page.locator("#logged-out").wait_for(state="visible")
        assert await page.locator("#link").is_hidden()
        keeper.why_not = None
        await page.locator("#logged-out").wait_for(state="hidden")


async def test_an_open_page_comes_back_after_a_refusal_that_is_no_ones_fault(browser: Browser, url: str, keeper: Keeper) -> None:
    """As where a proxy answers for a page that is started anew: browsers never ask again by themselves after that."""
    async with opened(browser, url) as (page, _):
        await page.locator("#link").wait_for(state="hidden")
        keeper.why_not = SilentError("the cluster does not say who asks")
        async with page.expect_response(lambda answer: answer.url.endswith("/events") and answer.status == 503):
            await page.locator("#link").wait_for(state="visible")
        assert await page.locator("#logged-out").is_hidden()
        keeper.why_not = None
        await page.locator("#link").wait_for(state="hidden")


async def test_hidden_tabs_leave_the_others_a_connection(browser: Browser, url: str) -> None:
    context = await browser.new_context()
    try:
        for _ in range(CONNECTIONS):
            page = await context.new_page()
            async with page.expect_response("**/events"):
                await page.goto(url)
            await page.evaluate(HIDES)
        page = await context.new_page()
        page.set_default_timeout(10_000)
        await page.goto(url)
        await page.locator("#link").wait_for(state="hidden")
    finally:
        await context.close()
