"""The pictures of docs/page.md are of views that there are, small, and can be taken."""

from __future__ import annotations

import re
import struct

import pytest
from playwright.async_api import Browser

from tests.docs.reading import DOCS
from tests.web.looking import DESK
from tests.web.pictures import PICTURES, TALLEST, file_of, taken

MOST_BYTES = 130_000


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_the_page_about_the_page_shows_each_picture_and_no_other_is_left() -> None:
    shown = re.findall(r"!\[[^\]]+\]\(pictures/page-([a-z-]+)\.png\)", (DOCS / "page.md").read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(PICTURES)
    assert sorted(DOCS.glob("pictures/page-*.png")) == sorted(map(file_of, PICTURES))


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_wide_as_a_desk_and_small(name: str) -> None:
    png = file_of(name).read_bytes()
    width, height = size_of(png)
    assert (width, height <= TALLEST, len(png) <= MOST_BYTES) == (DESK, True, True), "take it anew: make pictures"


@pytest.mark.parametrize("name", PICTURES)
async def test_a_picture_can_be_taken_today(browser: Browser, name: str) -> None:
    assert size_of(await taken(browser, PICTURES[name]))[0] == DESK


async def test_no_picture_is_taken_of_a_problem(browser: Browser) -> None:
    with pytest.raises(RuntimeError, match="404"):
        await taken(browser, "/c/prod/nowhere")
