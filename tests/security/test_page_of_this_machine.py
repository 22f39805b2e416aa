"""On the loopback the page is its owner's, although every user of the host and every web page can connect to it (S51).

The attacker is another user of the same host, or a page that the owner's browser shows.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest
from yarl import URL

from starter.client import Nodewarden
from starter.web.app import serving
from starter.web.auth import OwnHouse
from starter.web.views import Views
from tests.starter.conftest import client as client  # noqa: PLC0414 - fixtures
from tests.starter.conftest import cluster as cluster  # noqa: PLC0414
from tests.starter.conftest import server as server  # noqa: PLC0414
from tests.starter.conftest import unserved as unserved  # noqa: PLC0414
from tests.starter.conftest import warden as warden  # noqa: PLC0414
from tests.unlocked import no_way


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The page as its owner has begun it. printed: the address that the terminal shows. page: a stranger's browser."""

    printed: URL
    page: aiohttp.ClientSession
    acts: str

    @property
    def token(self) -> str:
        return self.printed.query["token"]

    async def says(self, **headers: str) -> int:
        said = {"verb": "abort", "node": "node-1", "reason": "enough"}
        async with self.page.post(self.acts, json=said, headers=headers) as answer:
            return answer.status

    async def asked(self, path: str, **headers: str) -> tuple[int, str, str]:
        """Status, where it leads, the text."""
        async with self.page.get(path, headers=headers, allow_redirects=False) as answer:
            return answer.status, answer.headers.get("Location", ""), await answer.text()


@pytest.fixture
async def stage(warden: Nodewarden, cluster: str) -> AsyncIterator[Stage]:
    keeper = OwnHouse(warden, no_way, name="ann")
    jar = aiohttp.DummyCookieJar()
    async with (
        serving(Views(warden, (cluster,)), host="127.0.0.1", port=0, keeper=keeper) as printed,
        aiohttp.ClientSession(URL(printed).origin(), cookie_jar=jar) as page,
    ):
        yield Stage(printed=URL(printed), page=page, acts=f"/api/v1/clusters/{cluster}/acts")


async def test_another_user_of_the_host_says_and_reads_nothing(stage: Stage, warden: Nodewarden, cluster: str) -> None:
    episode = await warden.fence(cluster, "node-1", reason="drill")
    for headers in ({}, {"Authorization": "Bearer guessed"}, {"Cookie": f"nodewarden-{stage.printed.port}=forged"}):
        assert await stage.says(**headers) == 401, headers
        for path in ("/api/v1/clusters", f"/api/v1/clusters/{cluster}", f"/api/v1/clusters/{cluster}/events"):
            assert (await stage.asked(path, **headers))[0] == 401, (path, headers)
    assert await episode.is_open()
    await episode.abort(who="ann", reason="enough")


async def test_a_program_bears_the_token_as_a_header(stage: Stage, warden: Nodewarden, cluster: str) -> None:
    episode = await warden.fence(cluster, "node-1", reason="drill")
    assert (await stage.asked(f"/api/v1/clusters/{cluster}", Authorization=f"Bearer {stage.token}"))[0] == 200
    assert await stage.says(Authorization=f"Bearer {stage.token}") == 200
    await episode.result()


async def test_the_printed_address_opens_the_page_once_and_for_this_browser(stage: Stage, cluster: str) -> None:
    """S12: the token is in no page, and in the address bar only until the page has answered."""
    status, where, _ = await stage.asked(f"/c/{cluster}/history")
    assert (status, where) == (303, f"/login?then=%2Fc%2F{cluster}%2Fhistory")
    async with stage.page.get(stage.printed, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie, "browsers keep such a one for TLS only"
    assert stage.token not in cookie
    assert cookie.startswith(f"nodewarden-{stage.printed.port}="), "the loopback's ports share their cookies"
    session = {"Cookie": cookie.partition(";")[0]}
    status, _, body = await stage.asked(f"/c/{cluster}/acts/pause", **session)
    assert (status, stage.token in body, 'action="/logout"' in body) == (200, False, False)
    form = re.search(r'name="form_token" value="(\w+)"', body)
    assert form is not None
    said = {"verb": "pause", "reason": "drill", "form_token": form[1]}
    async with stage.page.post(f"/c/{cluster}/acts", data=said, headers=session) as answer:
        assert answer.status != 403, "the form is its own"
    async with stage.page.post(f"/c/{cluster}/acts", data=said) as answer:
        assert answer.status == 401


async def test_a_browser_without_it_is_told_where_it_is(stage: Stage) -> None:
    status, _, body = await stage.asked("/login")
    assert (status, "The token of this page" in body, "create token" in body) == (200, True, False)
    status, _, body = await stage.asked("/login?token=guessed")
    assert (status, "expected the token of the address that" in body) == (401, True)


async def test_a_page_that_renames_itself_gets_nothing_even_with_the_token(stage: Stage, cluster: str) -> None:
    status, _, _ = await stage.asked(f"/c/{cluster}", Host="evil.example.com", Authorization=f"Bearer {stage.token}")
    assert status == 400


async def test_each_start_has_a_token_of_its_own(stage: Stage, warden: Nodewarden) -> None:
    assert OwnHouse(warden, no_way, name="ann").token != stage.token
    assert len(stage.token) >= 22
