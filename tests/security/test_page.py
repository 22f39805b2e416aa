"""Who reads the page and acts by it: elsewhere than on the loopback the users of the cluster, in their own name (S42); behind a
proxy that logs people in, the user of its header; on the loopback its owner (S51).

The attacker reaches the page's port, and may have a token of that cluster: with other rights than he would like to have.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from yarl import URL

from activities.cluster.api.connection import ClusterConnection
from policy.checks.fence_policies import PolicySource
from policy.episode.node_action import NAMESPACE
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient
from starter.client import Nodewarden
from starter.web.app import serving
from starter.web.auth import COOKIE, FRESH, OwnHouse, Reviewed
from starter.web.views import Views
from tests.documents import documents, path_of
from tests.system.real_api import simulated_only
from tests.unlocked import no_way

TOKENS = {"administrator": "admin", "pages": "page", "anns": "ann", "anns-renewed": "ann", "bobs": "bob", "eves": "eve"}
LOOKS = {"apiGroups": ["nodewarden.io"], "resources": ["nodes"], "verbs": ["get"]}
SPEAKS = {"apiGroups": ["nodewarden.io"], "resources": ["nodeactions"], "verbs": ["create"]}
ASKS = [
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
]
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Late:
    """A clock that may be put on."""

    by = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.by


class Stage:
    """The page of a cluster that knows ann, who may speak, bob, who may look, and eve, who may nothing."""

    def __init__(self, api: ApiServer, admin: ApiClient, page: aiohttp.ClientSession, of: str, late: Late) -> None:
        self.api, self.admin, self.page, self.of, self.late = api, admin, page, of, late

    async def asked(self, path: str, token: str = "", **headers: str) -> tuple[int, Any]:
        bearing = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.page.get(path, headers=bearing | headers, allow_redirects=False) as answer:
            return answer.status, await answer.text()

    async def says(self, token: str, **said: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.page.post(f"{self.of}/acts", json=said, headers=headers) as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def stage(warden: Nodewarden, cluster: str) -> AsyncIterator[Stage]:
    simulated_only("its request log says in which name each request came")
    async with (
        ApiServer(tokens=TOKENS) as api,
        ApiClient(ApiAddress(url=api.url, token="administrator"), user_agent="administrator") as admin,
    ):
        await admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for document in documents("deploy/crds/nodeactions.nodewarden.io.yaml"):
            await admin.create(path_of(document), document)
        for user, rules in (("page", ASKS), ("ann", [LOOKS, SPEAKS]), ("bob", [LOOKS])):
            await admin.create(f"{RBAC}/clusterroles", {"metadata": {"name": user}, "rules": rules})
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
            await admin.create(
                f"{RBAC}/clusterrolebindings", {"metadata": {"name": user}, "roleRef": role, "subjects": [subject]}
            )

        @asynccontextmanager
        async def opening(_: str) -> AsyncIterator[ClusterConnection]:
            async with ClusterConnection.to(api.url, token="pages") as connection:
                yield connection

        late = Late()
        keeper = Reviewed(warden, opening, clock=late.now)
        jar = aiohttp.DummyCookieJar()
        async with (
            serving(Views(warden, (cluster,), source=PolicySource()), host="127.0.0.1", port=0, keeper=keeper) as url,
            aiohttp.ClientSession(url, cookie_jar=jar) as page,
        ):
            yield Stage(api, admin, page, f"/api/v1/clusters/{cluster}", late)


def spoken(stage: Stage) -> list[str]:
    """Who has made NodeActions."""
    return [each.user for each in stage.api.requests.log if each.path.endswith("/nodeactions") and each.status == 201]


async def test_a_reader_needs_a_token_that_the_cluster_knows_and_lets_look(stage: Stage, cluster: str) -> None:
    for path in (stage.of, f"{stage.of}/events", f"{stage.of}/history", "/api/v1/clusters", "/api/v1/openapi.json"):
        assert (await stage.asked(path))[0] == 401, path
        assert (await stage.asked(path, "forged"))[0] == 401, path
        code, said = await stage.asked(path, "eves")
        assert (code, "eve may not look: that is the verb get on nodes.nodewarden.io" in said) == (403, True), path
    for token in ("bobs", "anns"):
        assert (await stage.asked(stage.of, token))[0] == 200
        assert cluster in (await stage.asked("/api/v1/clusters", token))[1]


async def test_names_that_a_proxy_might_hand_on_are_not_believed(stage: Stage) -> None:
    forged = {"X-Forwarded-User": "admin", "X-Remote-User": "admin", "Impersonate-User": "admin", "X-Auth-Request-User": "admin"}
    assert (await stage.asked(stage.of, **forged))[0] == 401
    assert (await stage.asked(stage.of, "eves", **forged))[0] == 403


async def test_what_is_said_is_said_with_the_speakers_own_token(stage: Stage, warden: Nodewarden, cluster: str) -> None:
    """The page's own account has no part in it: Kubernetes' rules and its audit have the person."""
    episode = await warden.fence(cluster, "node-1", reason="drill")
    code, told = await stage.says("anns", verb="abort", node="node-1", reason="enough")
    assert (code, spoken(stage)) == (200, ["ann"]), told
    assert "by ann: enough" in (await episode.result()).message


async def test_a_reader_without_the_right_to_act_commands_nothing(stage: Stage, warden: Nodewarden, cluster: str) -> None:
    """Not even in his own name, unverified, as a command line would."""
    episode = await warden.fence(cluster, "node-1", reason="drill")
    code, told = await stage.says("bobs", verb="abort", node="node-1", reason="enough")
    assert code == 403
    assert "Kubernetes does not attest who you are" in told["error"]
    for token in ("", "forged", "eves"):
        assert (await stage.says(token, verb="abort", node="node-1", reason="x"))[0] in {401, 403}
    assert (await stage.says("bobs", verb="fence", node="node-9", reason="x"))[0] == 403
    assert spoken(stage) == []
    assert await episode.is_open()
    assert not await warden.episode(cluster, "node-9").is_open()
    await episode.abort(who="ann", reason="enough")


async def test_without_node_actions_nothing_is_said_there(stage: Stage, warden: Nodewarden, cluster: str) -> None:
    await stage.admin.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodeactions.nodewarden.io")
    episode = await warden.fence(cluster, "node-1", reason="drill")
    code, told = await stage.says("anns", verb="abort", node="node-1", reason="enough")
    assert (code, "nodewarden deploy people" in told["error"]) == (409, True), told
    await episode.abort(who="ann", reason="enough")


async def test_a_right_that_is_taken_away_is_gone_within_half_a_minute(stage: Stage) -> None:
    assert (await stage.asked(stage.of, "bobs"))[0] == 200
    await stage.admin.delete(f"{RBAC}/clusterrolebindings/bob")
    stage.late.by = FRESH
    assert (await stage.asked(stage.of, "bobs"))[0] == 403


async def test_a_token_is_looked_at_once_for_many_requests(stage: Stage) -> None:
    for _ in range(5):
        assert (await stage.asked(stage.of, "anns"))[0] == 200
    assert sum(count for (_, _, resource), count in stage.api.requests.counts.items() if resource == "tokenreviews") == 1


async def test_a_browser_says_its_token_once_and_keeps_none(stage: Stage, cluster: str) -> None:
    """S12: it is in no URL and no page, and the cookie is sealed."""
    async with stage.page.get(f"/c/{cluster}", allow_redirects=False) as answer:
        where = answer.headers["Location"]
        assert (answer.status, where) == (303, f"/login?then=%2Fc%2F{cluster}")
    async with stage.page.post("/login", data={"token": "forged", "then": "/"}) as answer:
        assert (answer.status, answer.cookies.get(COOKIE)) == (401, None)
    async with stage.page.post("/login", data={"token": "anns", "then": f"/c/{cluster}"}, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, f"/c/{cluster}")
        cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "Secure", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "anns" not in cookie
    session = {"Cookie": cookie.partition(";")[0]}
    code, body = await stage.asked(f"/c/{cluster}/acts/pause", **session)
    assert (code, "Said by ann" in body, "anns" in body) == (200, True, False)
    found = re.search(r'name="form_token" value="(\w+)"', body)
    assert found is not None
    async with stage.page.post("/logout", headers=session, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/login")
        ended = answer.headers["Set-Cookie"]
    assert ended.startswith(f'{COOKIE}=""; expires=')
    assert {"HttpOnly", "Secure", "SameSite=strict", "Path=/"} <= set(ended.split("; ")), "else a browser keeps what it has"
    altered = {"Cookie": session["Cookie"][:-9] + "AAAAAAAAA"}
    assert (await stage.asked(f"/c/{cluster}", **altered))[0] == 303


async def test_a_probe_needs_no_token_and_hears_nothing(stage: Stage) -> None:
    assert await stage.asked("/healthz") == (200, "ok\n")


async def test_a_browser_comes_back_by_tls_only(stage: Stage) -> None:
    async with stage.page.get("/healthz") as answer:
        assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"


@pytest.mark.parametrize(
    "then", ["https://evil.example.com/", "//evil.example.com", "/\\evil.example.com", "javascript:alert(1)", ""]
)
async def test_a_login_leads_to_no_other_page(stage: Stage, then: str) -> None:
    async with stage.page.post("/login", data={"token": "anns", "then": then}, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/")


async def test_another_page_can_not_log_a_user_in(stage: Stage) -> None:
    """Else he would act as somebody that he is not, and not know it."""
    headers = {"Sec-Fetch-Site": "cross-site"}
    async with stage.page.post("/login", data={"token": "eves"}, headers=headers, allow_redirects=False) as answer:
        assert answer.status == 403


async def test_where_the_cluster_is_silent_no_user_is_let_in(stage: Stage) -> None:
    await stage.api.stop()
    code, said = await stage.asked(stage.of, "anns")
    assert (code, "does not say who asks" in said) == (503, True)


# The page behind a proxy that logs people in: their token comes in a header, and no form of ours can give another one (S42).


async def test_a_token_of_the_header_that_has_ended_is_said_and_no_other_is_asked_for(stage: Stage, cluster: str) -> None:
    """One that is pasted would be kept, and the header's would go before it again and again."""
    code, said = await stage.asked(f"/c/{cluster}", "ended")
    assert (code, "log out there, and in again" in said, 'type="password"' in said) == (401, True, False), said
    code, said = await stage.asked(stage.of, "ended")
    assert (code, "log out there, and in again" in said) == (401, True), said


async def test_a_form_is_taken_only_from_the_user_it_was_shown_to(stage: Stage, cluster: str) -> None:
    """Without a cookie as well, and with a token that was renewed meanwhile."""

    async def form_of(token: str) -> str:
        _, body = await stage.asked(f"/c/{cluster}/acts/pause", token)
        found = re.search(r'name="form_token" value="(\w+)"', body)
        assert found is not None, body
        return found[1]

    async def sent(token: str, form_token: str) -> int:
        form = {"verb": "pause", "reason": "drill", "form_token": form_token}
        async with stage.page.post(f"/c/{cluster}/acts", data=form, headers={"Authorization": f"Bearer {token}"}) as answer:
            return answer.status

    assert await sent("anns", await form_of("bobs")) == 403
    assert await sent("anns-renewed", await form_of("anns")) != 403


async def test_a_reader_sees_the_own_name_and_logs_out_where_the_session_is(stage: Stage, cluster: str) -> None:
    async with stage.page.post("/login", data={"token": "anns", "then": "/"}, allow_redirects=False) as answer:
        session = answer.headers["Set-Cookie"].partition(";")[0]
    _, with_a_cookie = await stage.asked(f"/c/{cluster}", Cookie=session)
    _, with_a_header = await stage.asked(f"/c/{cluster}", "bobs")
    assert ("ann</span>" in with_a_cookie, 'action="/logout"' in with_a_cookie) == (True, True)
    assert ("bob</span>" in with_a_header, 'action="/logout"' in with_a_header) == (True, False)


async def test_a_stream_asks_proxies_to_keep_nothing_back(stage: Stage) -> None:
    async with stage.page.get(f"{stage.of}/events", headers={"Authorization": "Bearer anns"}) as answer:
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert answer.headers["Cache-Control"] == "no-store, no-transform"
        assert await answer.content.readline() == b"event: changed\n"


async def test_a_preview_names_what_its_readers_own_rights_do_not_show(stage: Stage) -> None:
    """S42: those who may speak need not be those who may list pods: the word can be said all the same. The page asks as them."""
    code, told = await stage.asked(f"{stage.of}/acts/fence?node=node-1", "anns")
    assert code == 200
    [seen] = [each for each in json.loads(told)["known"] if "what runs on it" in each]
    assert seen.startswith("what runs on it can't be read with your rights: GET /api/v1/pods: 403 Forbidden")
    [plan] = [each for each in json.loads(told)["known"] if "what would be done" in each]
    assert plan.startswith("what would be done can't be read with your rights: GET /api/v1/nodes/node-1: 403 Forbidden")
    assert ('User "ann"' in seen, 'User "ann"' in plan) == (True, True), (seen, plan)


# On the loopback the page is its owner's, although every user of the host and every web page can connect to it (S51).
#
# The attacker is another user of the same host, or a page that the owner's browser shows.


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPage:
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

    async def asked(self, path: str | URL, **headers: str) -> tuple[int, str, str]:
        """Status, where it leads, the text."""
        async with self.page.get(path, headers=headers, allow_redirects=False) as answer:
            return answer.status, answer.headers.get("Location", ""), await answer.text()


@pytest.fixture
async def own_page(warden: Nodewarden, cluster: str) -> AsyncIterator[OwnPage]:
    keeper = OwnHouse(warden, no_way, name="ann")
    jar = aiohttp.DummyCookieJar()
    async with (
        serving(Views(warden, (cluster,)), host="127.0.0.1", port=0, keeper=keeper) as printed,
        aiohttp.ClientSession(URL(printed).origin(), cookie_jar=jar) as page,
    ):
        yield OwnPage(printed=URL(printed), page=page, acts=f"/api/v1/clusters/{cluster}/acts")


async def test_another_user_of_the_host_says_and_reads_nothing(own_page: OwnPage, warden: Nodewarden, cluster: str) -> None:
    episode = await warden.fence(cluster, "node-1", reason="drill")
    for headers in ({}, {"Authorization": "Bearer guessed"}, {"Cookie": f"nodewarden-{own_page.printed.port}=forged"}):
        assert await own_page.says(**headers) == 401, headers
        for path in ("/api/v1/clusters", f"/api/v1/clusters/{cluster}", f"/api/v1/clusters/{cluster}/events"):
            assert (await own_page.asked(path, **headers))[0] == 401, (path, headers)
    assert await episode.is_open()
    await episode.abort(who="ann", reason="enough")


async def test_a_program_bears_the_token_as_a_header(own_page: OwnPage, warden: Nodewarden, cluster: str) -> None:
    episode = await warden.fence(cluster, "node-1", reason="drill")
    assert (await own_page.asked(f"/api/v1/clusters/{cluster}", Authorization=f"Bearer {own_page.token}"))[0] == 200
    assert await own_page.says(Authorization=f"Bearer {own_page.token}") == 200
    await episode.result()


async def test_the_printed_address_opens_the_page_once_and_for_this_browser(own_page: OwnPage, cluster: str) -> None:
    """S12: the token is in no page, and in the address bar only until the page has answered."""
    status, where, _ = await own_page.asked(f"/c/{cluster}/history")
    assert (status, where) == (303, f"/login?then=%2Fc%2F{cluster}%2Fhistory")
    async with own_page.page.get(own_page.printed, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        cookie = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie, "browsers keep such a one for TLS only"
    assert own_page.token not in cookie
    assert cookie.startswith(f"nodewarden-{own_page.printed.port}="), "the loopback's ports share their cookies"
    session = {"Cookie": cookie.partition(";")[0]}
    status, _, body = await own_page.asked(f"/c/{cluster}/acts/pause", **session)
    assert (status, own_page.token in body, 'action="/logout"' in body) == (200, False, False)
    form = re.search(r'name="form_token" value="(\w+)"', body)
    assert form is not None
    said = {"verb": "pause", "reason": "drill", "form_token": form[1]}
    async with own_page.page.post(f"/c/{cluster}/acts", data=said, headers=session) as answer:
        assert answer.status != 403, "the form is its own"
    async with own_page.page.post(f"/c/{cluster}/acts", data=said) as answer:
        assert answer.status == 401


async def test_a_browser_without_it_is_told_where_it_is(own_page: OwnPage) -> None:
    status, _, body = await own_page.asked("/login")
    assert (status, "The token of this page" in body, "create token" in body) == (200, True, False)
    status, _, body = await own_page.asked("/login?token=guessed")
    assert (status, "expected the token of the address that" in body) == (401, True)


@pytest.mark.parametrize("strange", ["'", "\\", "\0"], ids=repr)
async def test_s41_no_name_in_an_address_becomes_a_part_of_a_query(
    own_page: OwnPage, warden: Nodewarden, cluster: str, strange: str
) -> None:
    """A backslash left the literal open, so that Temporal refused the query; and behind a quote another node was shown."""
    episode = await warden.fence(cluster, "node-1", reason="drill")
    await episode.abort(who="ann", reason="enough")
    await episode.result()
    record, bearing = f"/api/v1/clusters/{cluster}/record/", {"Authorization": f"Bearer {own_page.token}"}
    async with asyncio.timeout(10):
        while (await own_page.asked(f"{record}node-1", **bearing))[0] != 200:  # visibility lags
            await asyncio.sleep(0.05)
    name = quote(f"node-1{strange}", safe="")
    status, _, said = await own_page.asked(URL(f"{record}{name}", encoded=True), **bearing)
    assert (status, "no episode of" in said) == (404, True), said
    status, _, said = await own_page.asked(URL(f"/api/v1/clusters/{cluster}/history?node={name}", encoded=True), **bearing)
    assert (status, json.loads(said)["episodes"]) == (200, [])


async def test_a_page_that_renames_itself_gets_nothing_even_with_the_token(own_page: OwnPage, cluster: str) -> None:
    status, _, _ = await own_page.asked(f"/c/{cluster}", Host="evil.example.com", Authorization=f"Bearer {own_page.token}")
    assert status == 400


async def test_each_start_has_a_token_of_its_own(own_page: OwnPage, warden: Nodewarden) -> None:
    assert OwnHouse(warden, no_way, name="ann").token != own_page.token
    assert len(own_page.token) >= 22
