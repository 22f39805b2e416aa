"""The pictures of docs/page.md: views in the bad night of night.py, at a desk. `make pictures` takes them anew."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from starter.web.views import Views
from tests.docs.reading import DOCS
from tests.unlocked import unlocked
from tests.web.looking import DESK, launched, opened
from tests.web.night import CLUSTER, NightWarden
from tests.web.objects import NightCluster

AT = f"/c/{CLUSTER}"
PICTURES = {
    "now": AT,
    "fleet": f"{AT}/fleet?by=rack",
    "node": f"{AT}/nodes/node-9",
    "record": f"{AT}/record/inc-node-7",
    "checks": f"{AT}/checks",
    "kept": f"{AT}/kept",
    "devices": f"{AT}/devices",
    "history": f"{AT}/history?since=168h",
    "would-have": f"{AT}/compare",
}
"""By name: docs/pictures/page-NAME.png."""
TALLEST = 740
"""Pixels; what is further down is cut off."""


def file_of(name: str) -> Path:
    return DOCS / "pictures" / f"page-{name}.png"


async def taken(browser: Browser, path: str) -> bytes:
    """A PNG of that view."""
    views = Views(NightWarden(), (CLUSTER,), reading=NightCluster())  # type: ignore[arg-type]
    async with unlocked(views) as url, opened(browser, url.rstrip("/") + path) as (page, said):
        if said:
            raise RuntimeError(f"{path}: {said}")
        height = min(TALLEST, await page.evaluate("Math.ceil(document.body.getBoundingClientRect().height)"))
        return await page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": DESK, "height": height})


async def main() -> None:
    """Into docs/pictures."""
    async with async_playwright() as playwright:
        browser = await launched(playwright, "/usr/bin/chromium")
        for name, path in PICTURES.items():
            await asyncio.to_thread(file_of(name).write_bytes, await taken(browser, path))
        await browser.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
