"""Documents with something strange in them: one of `STRANGE` at a place drawn from all there are, a field too few, one too many.

`NODEWARDEN_FUZZ=20` tries twenty times as many as a usual run does.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from tests.power.raw_server import hanging_up, raw_server, saying

Json = dict[str, Any]
Path = tuple[str | int, ...]

DEEP, DEPTH = "@deep@", 3000
"""Stands for so many lists within each other, which no writer of JSON here would write."""

STRANGE: list[Any] = [
    *(None, True, False, 0, -1, 7, 1.5, 10**12, 2**63, -(2**63), 1e308),
    *("", " ", "7", "-1", "1e999", "9" * 5000, "٣", "²", "x" * 3000, "\x00", "\n\r\t", "a\nb=c", "é💥\u202e", "{{", "None"),
    *("-oProxyCommand=x", "../..", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "2026-11-21T10:00:00", "99999999h", "1h"),
    *([], {}, [None], [[]], [{}], ["x"], {"": None}, {"x": {"y": []}}, {"x": "\x00"}, [7] * 3000, DEEP, {"conditions": 7}),
]
NO_JSON: list[Any] = [10**400, -(10**4000), float("nan"), float("inf"), "\ud800"]
"""What no API server stores, and a device or a program may say all the same."""


TIMES = int(os.environ.get("NODEWARDEN_FUZZ", "1"))
PATIENCE = pytest.mark.timeout(120 * TIMES)


def examples(count: int) -> settings:
    """So many, or more where somebody has the time."""
    return settings(max_examples=count * TIMES)


def places(found: Any, path: Path = ()) -> Iterator[Path]:
    """Where something stands, the whole excepted."""
    inside = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for step, value in inside:
        yield (*path, step)
        yield from places(value, (*path, step))


def at(found: Any, path: Path) -> Any:
    """What stands there."""
    for step in path:
        found = found[step]
    return found


@st.composite
def changed(draw: st.DrawFn, document: Mapping[str, Any], *, keeps: frozenset[Path] = frozenset(), stored: bool = False) -> Json:
    """The document with one or two things strange. keeps: what stays as it is. stored: an API server has taken it."""
    found: Json = copy.deepcopy(dict(document))
    strange = st.sampled_from(STRANGE if stored else STRANGE + NO_JSON)
    for _ in range(draw(st.integers(1, 2))):
        where = [
            path for path in places(found) if not any(path == kept[: len(path)] or path[: len(kept)] == kept for kept in keeps)
        ]
        if not where:
            break
        path = draw(st.sampled_from(where))
        holder, step = at(found, path[:-1]), path[-1]
        match draw(st.sampled_from(("other", "other", "other", "gone", "more", "twin"))):
            case "other":
                holder[step] = copy.deepcopy(draw(strange))
            case "gone":
                del holder[step]
            case "more" if isinstance(holder, dict):
                holder[draw(st.sampled_from(("", "x", "é\x00", "-x")))] = copy.deepcopy(draw(strange))
            case _:
                holder[step] = [copy.deepcopy(holder[step])] * 2
    return found


def as_bytes(document: Any) -> bytes:
    """As somebody would send it."""
    deep = b"[" * DEPTH + b"]" * DEPTH
    return json.dumps(document).encode().replace(json.dumps(DEEP).encode(), deep)


def as_value(document: Any) -> Any:
    """As whoever has read it would have it: as deep as readers of JSON go, which here is not as deep."""
    if document == DEEP:
        nested: list[Any] = []
        for _ in range(900):
            nested = [nested]
        return nested
    if isinstance(document, dict):
        return {key: as_value(value) for key, value in document.items()}
    return [as_value(each) for each in document] if isinstance(document, list) else document


# A server that says whatever a test wants it to say, in the one loop in which the tests of a file ask it.


class Server:
    """`runner` is where it runs."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner, self.url, self._answer = runner, "", hanging_up

    def say(self, status: int, body: bytes, *headers: str) -> None:
        """From now on."""
        self._answer = saying(f"{status} Said", body, *headers, "Connection: close")

    async def answer(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        await self._answer(request, writer)
        writer.close()


@contextmanager
def served() -> Iterator[Server]:
    with asyncio.Runner() as runner:
        server = Server(runner)
        running = raw_server(server.answer)
        server.url = runner.run(running.__aenter__()).url
        yield server
        runner.run(running.__aexit__(None, None, None))
