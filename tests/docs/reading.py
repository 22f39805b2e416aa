"""The pages that people read, taken apart: their blocks of code, what marks each, and the commands in them.

A block of commands (`sh` or `console`) is marked by the line above it: `<!-- run-by: tests/…::test -->` names the test that runs
it, and `<!-- needs: a cluster -->` says why none can.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
COMMANDS = ("sh", "console")
MARKER = re.compile(r"<!-- (?P<kind>run-by|needs): (?P<what>.+?) -->")
PARSER = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of code. line: counted from 1. language: "" where none is named; info: with what stands behind it. marker: kind and
    content of the comment right above it, ("", "") for none. fenced: False for one that is only indented."""

    page: str
    line: int
    language: str
    info: str
    text: str
    marker: tuple[str, str]
    fenced: bool

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A command. whole: as it would be typed; what is only mentioned in a sentence may lack its arguments."""

    page: str
    line: int
    text: str
    whole: bool

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {self.text}"


@cache
def pages() -> dict[str, str]:
    """The text of each page, by its path from the root of the repository."""
    files = (ROOT / "README.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md")))
    return {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}


@cache
def _tokens(page: str) -> tuple[Token, ...]:
    return tuple(PARSER.parse(pages()[page]))


@cache
def blocks(page: str) -> tuple[Block, ...]:
    """All blocks of code of that page, in their order."""
    found, above = [], ("", "")
    for token in _tokens(page):
        if token.type in {"fence", "code_block"}:
            assert token.map is not None
            language = token.info.split()[0] if token.info.strip() else ""
            line, fenced = token.map[0] + 1, token.type == "fence"
            block = Block(
                page=page, line=line, language=language, info=token.info, text=token.content, marker=above, fenced=fenced
            )
            found.append(block)
        if token.type != "html_block":
            above = ("", "")
        elif marked := MARKER.search(token.content):
            above = (marked["kind"], marked["what"])
    return tuple(found)


def shown(page: str, language: str) -> list[str]:
    """The texts of the page's fenced blocks of that language."""
    return [block.text for block in blocks(page) if block.fenced and block.language == language]


def typed(block: Block) -> Iterator[tuple[int, str]]:
    """The lines that a reader would type, each with its number: joined where one ends in a backslash, without prompts and
    comments, and without what is fed to a command (`<<END`)."""
    end, begun, number = "", "", 0
    first = block.line + (1 if block.fenced else 0)
    for offset, line in enumerate(block.text.splitlines()):
        if end:
            end = "" if line.strip() == end else end
            continue
        number = number if begun else first + offset
        begun += line.strip().removeprefix("$ ")
        if begun.endswith("\\"):
            begun = begun.removesuffix("\\")
            continue
        if here := re.search(r"<<\s*['\"]?(\w+)", begun):
            end = here[1]
        text, begun = re.sub(r"(^|\s+)#.*$", "", begun), ""
        if text:
            yield number, text


@cache
def lines_of(program: str) -> tuple[Line, ...]:
    """Every command line of that program in all pages: in blocks, and between backquotes."""
    found = []
    for page in pages():
        for block in blocks(page):
            if block.language in ("", *COMMANDS):
                found += [
                    Line(page=page, line=number, text=text, whole=True)
                    for number, text in typed(block)
                    if text.startswith(f"{program} ")
                ]
        for token in _tokens(page):
            line = token.map[0] + 1 if token.map else 0
            found += [
                Line(page=page, line=line, text=child.content, whole=False)
                for child in token.children or ()
                if child.type == "code_inline" and child.content.startswith(f"{program} ")
            ]
    return tuple(found)


def spelled_out(line: str) -> Iterator[str]:
    """`a|b` and `x / y` are several lines in one, `[…]` may be left out and may be written, a pipe ends the command."""
    words = re.sub(r"\s+(\||<|>|&&) .*$| <<.*$|;.*$", "", line)
    bare = words.replace("[", "").replace("]", "").split(" ")
    kept = [word for before, word in zip(["", *bare], bare, strict=False) if word != "…" or before.startswith("-")]
    head, *others = " ".join(kept).split(" / ")
    yield from _alternatives(head)
    for other in others:
        yield from _alternatives(f"{line.split(maxsplit=1)[0]} {other}")


def _alternatives(line: str) -> Iterator[str]:
    choice = re.search(r"\S+\|\S+", line)
    if choice is None:
        yield line
        return
    for word in choice[0].split("|"):
        yield from _alternatives(line.replace(choice[0], word, 1))


def words_of(line: str) -> list[str]:
    """Its words as a shell would have them, without the program's name."""
    return shlex.split(line)[1:]
