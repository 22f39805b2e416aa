"""What a call to a cloud never does, whatever the client in its thread tries."""

from __future__ import annotations

import asyncio
import threading

import pytest

from activities.power.cloud_call import CloudCall, HttpRequest, NotSentError
from activities.power.driver import PowerError
from tests.power.conftest import within
from tests.power.raw_server import raw_server, saying


async def test_a_client_that_asks_twice_in_one_call_is_not_heard() -> None:
    """S33: a repetition that nobody decided on would be a second command."""
    async with raw_server(saying("200 OK", "{}")) as server:
        call, request = (
            CloudCall("gce://p/z/i", "off", within(10), command=True),
            HttpRequest(method="POST", url=server.url, headers={}),
        )

        def work() -> int:
            first = call.send(request, tls=None, proxy=None).status
            with pytest.raises(NotSentError):
                call.send(request, tls=None, proxy=None)
            return first

        assert await call.run(work) == 200
        assert len(server.requests) == 1


async def test_a_thread_that_comes_late_sends_nothing() -> None:
    """S34: a name or a token that took too long; nobody waits for what follows."""
    refused, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    async with raw_server(saying("200 OK", "{}")) as server:
        call, request = (
            CloudCall("gce://p/z/i", "off", within(0.1), command=True),
            HttpRequest(method="POST", url=server.url, headers={}),
        )

        def work() -> None:
            go_on.wait(10)
            with pytest.raises(NotSentError):
                call.send(request, tls=None, proxy=None)
            loop.call_soon_threadsafe(refused.set)

        with pytest.raises(PowerError, match="nothing was sent"):
            await call.run(work)
        go_on.set()
        await asyncio.wait_for(refused.wait(), 10)
        assert server.requests == []
