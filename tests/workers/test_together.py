"""Companions: any failure ends all, as the one plain reason."""

from __future__ import annotations

import asyncio

import pytest

from workers.runtime import alongside


async def forever(log: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        log.append("ended")


async def fail(error: Exception) -> None:
    await asyncio.sleep(0)
    raise error


async def test_companions_end_with_the_main_thing() -> None:
    ended: list[str] = []
    assert await alongside(asyncio.sleep(0, "answer"), forever(ended)) == "answer"
    assert ended == ["ended"]


async def test_a_failing_companion_ends_the_main_thing_and_is_raised_itself() -> None:
    ended: list[str] = []
    with pytest.raises(ValueError, match="reason"):
        await alongside(forever(ended), fail(ValueError("reason")))
    assert ended == ["ended"]


async def test_a_failing_main_thing_ends_the_companions_and_is_raised_itself() -> None:
    ended: list[str] = []
    with pytest.raises(LookupError, match="reason"):
        await alongside(fail(LookupError("reason")), forever(ended), forever(ended))
    assert ended == ["ended", "ended"]
