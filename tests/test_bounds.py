"""A test that takes too long is cancelled, and nothing of it runs on beside the tests that follow."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import bounded


async def test_what_takes_too_long_is_cancelled_and_cleans_up_before_the_next_one() -> None:
    told: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append("cleaned up")

    with pytest.raises(TimeoutError):
        await bounded(endless, 0.01)()
    assert told == ["cleaned up"]


async def test_every_coroutine_of_this_run_is_bounded(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("timeout")
    assert marker is not None
    assert marker.args[0] > float(request.config.getini("timeout"))
