"""A page of several clusters shows a person's token to that cluster alone which it is for (S51).

The attacker runs one of the clusters, and reads each token that its API server is asked about; or reaches the page's port and
invents tokens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from policy.checks.fence_policies import PolicySource
from starter.client import Nodewarden
from starter.errors import SilentError
from starter.web import auth
from starter.web.app import serving
from starter.web.auth import ALL_STRANGERS, COOKIE, FRESH, STRANGERS, STRANGERS_WITHIN, Reviewed, UnknownCallerError
from starter.web.views import Views

NORTH, SOUTH = "north", "south"
KNOWN = {NORTH: {"anns-of-north": "ann", "of-all": "oidc:ann"}, SOUTH: {"anns-of-south": "ann", "of-all": "oidc:ann"}}


@dataclass
class Cluster:
    """Its API server, as far as a page asks it who somebody is. seen: tokens that it was shown."""

    users: dict[str, str]
    seen: list[str] = field(default_factory=list)

    async def create(self, path: str, review: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/subjectaccessreviews"):
            return {"status": {"allowed": True}}
        token = review["spec"]["token"]
        self.seen.append(token)
        user = self.users.get(token)
        return {"status": {"authenticated": user is not None, "user": {"username": user}}}


@dataclass
class Stage:
    """A page of both clusters. late: how much later its clock says it is."""

    clusters: dict[str, Cluster]
    page: aiohttp.ClientSession
    late: list[timedelta]

    async def asked(self, path: str, token: str = "", **headers: str) -> tuple[int, str]:
        bearing = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.page.get(path, headers=bearing | headers, allow_redirects=False) as answer:
            return answer.status, await answer.text()

    async def logs_in(self, token: str, cluster: str) -> tuple[int, str]:
        """Status, and the cookie."""
        form = {"token": token, "cluster": cluster, "then": f"/c/{cluster}"}
        async with self.page.post("/login", data=form, allow_redirects=False) as answer:
            return answer.status, answer.headers.get("Set-Cookie", "").partition(";")[0]

    @property
    def seen(self) -> list[list[str]]:
        return [each.seen for each in self.clusters.values()]


@asynccontextmanager
async def staged(warden: Nodewarden, *, shared: bool = False) -> AsyncIterator[Stage]:
    clusters, late = {name: Cluster(users) for name, users in KNOWN.items()}, [timedelta(0)]

    @asynccontextmanager
    async def opening(name: str) -> AsyncIterator[Any]:
        yield clusters[name]

    keeper = Reviewed(warden, opening, shared=shared, clock=lambda: datetime.now(UTC) + late[0])
    views = Views(warden, tuple(clusters), source=PolicySource())
    async with (
        serving(views, host="127.0.0.1", port=0, keeper=keeper) as url,
        aiohttp.ClientSession(url, cookie_jar=aiohttp.DummyCookieJar()) as page,
    ):
        yield Stage(clusters, page, late)


@pytest.fixture
async def stage(warden: Nodewarden) -> AsyncIterator[Stage]:
    async with staged(warden) as stage:
        yield stage


async def test_a_programs_token_goes_to_the_cluster_that_it_asks_about(stage: Stage) -> None:
    assert (await stage.asked(f"/api/v1/clusters/{NORTH}/acts/pause", "anns-of-north"))[0] != 401
    assert stage.seen == [["anns-of-north"], []]
    for path in ("/api/v1/clusters", "/", "/api/v1/openapi.json", "/c/elsewhere", "/api/v1/clusters/elsewhere"):
        code, said = await stage.asked(path, "anns-of-north")
        assert (code, "expected the cluster that the token is for in the path" in said) == (403, True), path
    assert stage.seen == [["anns-of-north"], []]


async def test_a_browser_says_which_cluster_its_token_is_for(stage: Stage) -> None:
    async with stage.page.get(f"/login?then=/c/{SOUTH}") as answer:
        form = await answer.text()
    assert f'name="cluster" value="{SOUTH}"' in form
    assert NORTH not in form, "who has not said who they are hears of no cluster"
    code, of_north = await stage.logs_in("anns-of-north", NORTH)
    assert (code, of_north.startswith(f"{COOKIE}-{NORTH}=")) == (303, True)
    code, body = await stage.asked("/api/v1/clusters", Cookie=of_north)
    assert (code, SOUTH in body) == (200, False)
    assert (await stage.asked(f"/c/{SOUTH}", Cookie=of_north))[0] == 303
    assert stage.seen == [["anns-of-north"], []]
    code, of_south = await stage.logs_in("anns-of-south", SOUTH)
    assert code == 303
    code, body = await stage.asked("/api/v1/clusters", Cookie=f"{of_north}; {of_south}")
    assert (code, NORTH in body, SOUTH in body) == (200, True, True)
    assert stage.seen == [["anns-of-north"], ["anns-of-south"]]


async def test_a_token_for_no_cluster_of_this_page_is_shown_to_none(stage: Stage) -> None:
    for cluster in ("", "elsewhere"):
        async with stage.page.post("/login", data={"token": "anns-of-north", "cluster": cluster}) as answer:
            assert answer.status == 401
            assert "expected the name of a cluster of this page" in await answer.text()
    assert stage.seen == [[], []]


async def test_logging_out_ends_the_session_of_each_cluster(stage: Stage) -> None:
    _, of_north = await stage.logs_in("anns-of-north", NORTH)
    async with stage.page.post("/logout", headers={"Cookie": of_north}, allow_redirects=False) as answer:
        ended = [each.partition("=")[0] for each in answer.headers.getall("Set-Cookie")]
    assert ended == [COOKIE, f"{COOKIE}-{NORTH}", f"{COOKIE}-{SOUTH}"]


async def test_where_all_trust_one_identity_provider_one_token_is_enough(warden: Nodewarden) -> None:
    async with staged(warden, shared=True) as stage:
        code, body = await stage.asked("/api/v1/clusters", "of-all")
        assert (code, NORTH in body, SOUTH in body) == (200, True, True)
        async with stage.page.get("/login") as answer:
            assert 'name="cluster"' not in await answer.text()


async def test_invented_tokens_cost_a_cluster_no_more_than_a_few_reviews(stage: Stage) -> None:
    """And those whom it knows go on, also when their half minute is over."""
    path = f"/api/v1/clusters/{NORTH}/acts/pause"
    assert (await stage.asked(path, "anns-of-north"))[0] not in {401, 503}
    codes = [(await stage.asked(path, f"invented-{number}"))[0] for number in range(STRANGERS + 20)]
    assert (codes.count(401), codes.count(503)) == (STRANGERS - 1, 21)
    assert len(stage.clusters[NORTH].seen) == STRANGERS
    for _ in range(5):
        assert (await stage.asked(path, "invented-0"))[0] == 401, "what is known to be none is not asked again"
    assert (await stage.asked(path))[0] == 401
    assert len(stage.clusters[NORTH].seen) == STRANGERS
    stage.late[0] = FRESH
    code, _ = await stage.asked(path, "anns-of-north")
    assert code not in {401, 503}
    stage.late[0] += STRANGERS_WITHIN
    assert (await stage.asked(path, "of-all"))[0] not in {401, 503}


async def test_s51_invented_tokens_of_one_address_keep_out_no_visitor_of_another(stage: Stage) -> None:
    """Thirty of them kept each new visitor of the page out, for as long as they came."""
    path = f"/api/v1/clusters/{NORTH}/acts/pause"
    elsewhere = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
    async with aiohttp.ClientSession(stage.page._base_url, connector=elsewhere, cookie_jar=aiohttp.DummyCookieJar()) as stranger:
        codes = list[int]()
        for number in range(STRANGERS + 5):
            async with stranger.get(path, headers={"Authorization": f"Bearer invented-{number}"}) as answer:
                codes.append(answer.status)
    assert (codes.count(401), codes.count(503)) == (STRANGERS, 5)
    assert (await stage.asked(path, "anns-of-north"))[0] not in {401, 503}


async def test_invented_tokens_of_many_addresses_are_bounded_and_displace_none_that_is_known(
    warden: Nodewarden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network of IPv6 is one stranger, and where all of them are many, who is known goes on."""
    monkeypatch.setattr(auth, "KNOWN", 20)
    cluster = Cluster(KNOWN[NORTH])

    @asynccontextmanager
    async def opening(_: str) -> AsyncIterator[Any]:
        yield cluster

    keeper = Reviewed(warden, opening)
    await keeper.caller("anns-of-north", NORTH, "192.0.2.1")

    async def shown(number: int, address: str) -> bool:
        """Whether the cluster was asked."""
        before = len(cluster.seen)
        with pytest.raises((UnknownCallerError, SilentError)):
            await keeper.caller(f"invented-{number}-{address}", NORTH, address)
        return len(cluster.seen) > before

    assert sum([await shown(number, f"2001:db8::{number:x}") for number in range(40)]) == STRANGERS
    mapped = [await shown(number, f"::ffff:192.0.2.{number}") for number in range(40)]
    assert all(mapped), "these are forty networks of IPv4"
    asked = [await shown(number, f"198.51.{number}.1") for number in range(255)]
    assert sum(asked) == ALL_STRANGERS - STRANGERS - 40 - 1
    seen = len(cluster.seen)
    assert (await keeper.caller("anns-of-north", NORTH, "192.0.2.1")).name == "ann"
    assert len(cluster.seen) == seen, "it is known still"
