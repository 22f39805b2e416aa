"""The site: it builds strictly (so every link and anchor leads somewhere), knows every page, and asks no other host."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.reading import DOCS, PARSER, ROOT, pages

CONFIG: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data", "link": "href", "use": "href"}
"""What a browser fetches by itself; an `a` is for the reader to follow."""


def built(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=50, check=False)


def copied(folder: Path) -> Path:
    shutil.copytree(DOCS, folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copied(tmp_path_factory.mktemp("site"))
    ran = built(folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder / str(CONFIG["site_dir"])


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    with (folder / "docs" / "use.md").open("a", encoding="utf-8") as page:
        page.write("\n[somewhere](nowhere.md)\n\n[else](start.md#nowhere)\n")
    ran = built(folder)
    assert ran.returncode != 0
    assert "2 issues found" in ran.stdout + ran.stderr


def _files(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        for content in entry.values():
            yield from _files(content) if isinstance(content, list) else [content]


def test_every_page_is_in_the_navigation_once() -> None:
    assert sorted(_files(CONFIG["nav"])) == sorted(page.removeprefix("docs/") for page in pages() if page.startswith("docs/"))


class _Fetched(HTMLParser):
    """Addresses that a page has its browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.addresses += filter(None, [given.get(LOADED.get(tag, ""), ""), given.get("srcset")])
        self.addresses += re.findall(r"url\(([^)]+)\)", given.get("style") or "")


def _fetched(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".html":
        return re.findall(r"(?:url\(|@import |xlink:href=|<image[^>]* href=)\s*[\"']?([^\"')\s]+)", text)
    parser = _Fetched()
    parser.feed(text)
    return parser.addresses


def test_nothing_of_it_comes_from_another_host(site: Path) -> None:
    files = [file for file in site.rglob("*") if file.suffix in {".html", ".css", ".svg"}]
    assert len(files) > 40
    foreign = {
        (str(file.relative_to(site)), address)
        for file in files
        for address in _fetched(file)
        if re.match(r"(https?:)?//", address)
    }
    assert foreign == set()


def test_a_foreign_host_would_be_found(tmp_path: Path) -> None:
    page, style = tmp_path / "a.html", tmp_path / "a.css"
    page.write_text('<a href="https://a.example">a</a><script src="https://b.example/x.js"></script>')
    style.write_text("@font-face {src: url('https://c.example/f.woff')} @import 'https://d.example/x.css';")
    assert [*_fetched(page), *_fetched(style)] == [
        "https://b.example/x.js",
        "https://c.example/f.woff",
        "https://d.example/x.css",
    ]


class _Counted(HTMLParser):
    """How many elements of some kinds a page's article has."""

    KINDS = ("table", "tr", "li", "pre", "blockquote")

    def __init__(self) -> None:
        super().__init__()
        self.counts = dict.fromkeys(self.KINDS, 0)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.counts:
            self.counts[tag] += 1


def _counts(html: str) -> dict[str, int]:
    counted = _Counted()
    counted.feed(html)
    return counted.counts


def test_a_page_reads_the_same_in_the_repository_and_on_the_site(site: Path) -> None:
    """Two kinds of Markdown differ about lists, tables and blocks inside them: here both see the same ones."""
    for page in (page for page in pages() if page.startswith("docs/")):
        html = (site / page.removeprefix("docs/")).with_suffix(".html").read_text(encoding="utf-8")
        article = re.search(r"<article[^>]*>(.*)</article>", html, flags=re.DOTALL)
        assert article is not None, page
        assert (page, _counts(article[1])) == (page, _counts(PARSER.render(pages()[page])))
