"""An open page of `nodewarden ui` while the only worker is killed, and goes on in another one: three processes and a browser."""

from __future__ import annotations

import re
import time

import pytest
from playwright.async_api import Browser, expect

from starter.handles.calls import ANSWER_WITHIN
from starter.output.display import IDLE
from tests import report
from tests.starter.process import nodewarden
from tests.system.fixtures import MakeSystem
from tests.web.looking import opened

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

NOBODY_ANSWERS = f"no answer within {ANSWER_WITHIN.total_seconds():.0f} s; does a worker run?"
BOUND = (IDLE + ANSWER_WITHIN).total_seconds()
"""Of a cluster without open episodes: until it is asked again, and until the answer is given up."""
BUSY_MACHINE = 15.0
"""And so many seconds more where others want the processors."""


async def test_a_page_says_that_no_worker_answers_and_goes_on_with_the_next_one(
    browser: Browser, make_system: MakeSystem
) -> None:
    """S44: whatever stops action is said first, wherever people look."""
    system = await make_system(nodes=2, demo_workloads=False)
    worker = await system.start_worker()
    await system.apply_policy()
    await system.start_scanner()
    async with nodewarden("--config", str(system.config), "ui", "--port", "0") as process:
        address = re.sub(r".*(http://\S+).*", r"\1", await process.says("the page is at"))
        async with opened(browser, f"{address}&then=/c/{system.cluster_name}") as (page, said):
            headline = page.locator("#safe .headline")
            await expect(headline).to_contain_text("Yes", timeout=20_000)
            await worker.kill()
            killed = time.monotonic()
            await expect(headline).to_contain_text(NOBODY_ANSWERS, timeout=60_000)
            silent = time.monotonic() - killed
            await expect(page.locator("#link")).to_be_hidden()  # the page itself is served all the while
            await system.start_worker()
            begun = time.monotonic()
            await expect(headline).to_contain_text("Yes", timeout=60_000)
            back = time.monotonic() - begun
            assert said == []
    rows = [(f"{silent:.1f} s", f"{back:.1f} s")]
    report.table("A worker that is killed under an open page", ("until it is said", "until another one has taken over"), rows)
    assert silent < BOUND + BUSY_MACHINE
