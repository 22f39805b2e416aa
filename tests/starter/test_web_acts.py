"""What is said on the page: the words of the command line, after a preview, and by nobody else's page."""

from __future__ import annotations

import asyncio
import html
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from fastapi import Request
from temporalio.client import Client
from yarl import URL

from activities.cluster.api.connection import ClusterConnection
from policy.checks.fence_policies import PolicySource
from policy.fence.device_check import DeviceReport
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient
from starter.client import Nodewarden
from starter.errors import MissingError
from starter.handles.node_actions import Speaker
from starter.output.models import CommandAnswer
from starter.web import acts
from starter.web.acts import CommandRequest
from starter.web.app import MOST_BYTES, serving
from starter.web.auth import COOKIE, LASTS, Sessions, TokenTooLongError
from starter.web.views import Views
from tests.starter.test_web_api import conforms
from tests.unlocked import Unlocked, no_way, unlocked

ME = "ann@laptop"


@pytest.fixture
async def mine(client: Client) -> Nodewarden:
    return Nodewarden(client, speaker=Speaker(no_way, otherwise=ME, complain=lambda _: None))


@pytest.fixture
async def page(mine: Nodewarden, cluster: str) -> AsyncIterator[aiohttp.ClientSession]:
    views = Views(mine, (cluster,))
    async with unlocked(views) as url, aiohttp.ClientSession(url) as session:
        yield session


async def form_token(page: aiohttp.ClientSession, cluster: str, word: str, node: str) -> str:
    async with page.get(f"/c/{cluster}/acts/{word}", params={"node": node}) as answer:
        assert answer.status == 200
        found = re.search(r'name="form_token" value="(\w+)"', await answer.text())
    assert found is not None
    return found[1]


async def sent(page: aiohttp.ClientSession, cluster: str, form: dict[str, str], *, expected: int, **headers: str) -> str:
    async with page.post(f"/c/{cluster}/acts", data=form, headers=headers) as answer:
        assert answer.status == expected
        return await answer.text()


async def act(page: aiohttp.ClientSession, cluster: str, *, expected: int = 200, **said: Any) -> Any:
    async with page.post(f"/api/v1/clusters/{cluster}/acts", json=said) as answer:
        assert answer.status == expected, await answer.text()
        return await answer.json()


async def test_a_word_is_previewed_then_said_and_its_answer_shown(
    page: aiohttp.ClientSession, mine: Nodewarden, cluster: str
) -> None:
    episode = await mine.fence(cluster, "sick-1", reason="drill")
    async with page.get(f"/c/{cluster}/nodes/sick-1") as answer:
        assert f'href="/c/{cluster}/acts/resume?node=sick-1"' in await answer.text()
    token = await form_token(page, cluster, "resume", "sick-1")
    form = {"verb": "resume", "node": "sick-1", "reason": "the cable is in", "form_token": token}
    assert "asked now is 7" in await sent(page, cluster, form, expected=409)
    async with page.get(f"/c/{cluster}/acts/resume?node=sick-1") as answer:
        assert '<input type="hidden" name="question" value="7">' in await answer.text()
    body = await sent(page, cluster, form | {"question": "7"}, expected=200)
    assert f"goes on for {ME}" in body
    assert (await episode.status()).problem == ""
    await episode.abort(who="ann", reason="enough")


@pytest.mark.parametrize(
    ("word", "answer"),
    [("ack-off", "off acknowledged"), ("return-path", f"given back for {ME}"), ("resume", f"goes on for {ME}")],
)
async def test_a_word_that_answers_carries_the_number_of_the_question_that_was_seen(
    word: str, answer: str, page: aiohttp.ClientSession, mine: Nodewarden, cluster: str
) -> None:
    """S48."""
    episode = await mine.fence(cluster, "sick-1", reason="drill")
    said = {"verb": word, "node": "sick-1", "nodeName": "sick-1", "reason": "seen at the rack"}
    for question in ({}, {"question": 6}):
        refused = await act(page, cluster, **said, **question, expected=409)
        assert f"{word}: asked now is 7" in refused["error"]
    assert answer in (await act(page, cluster, **said, question=7))["answer"]
    if word != "ack-off":
        await episode.abort(who="ann", reason="enough")


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("history?node=%24(id)&since=24h", "history --since 24h --node '$(id)'"),
        ("compare?check=%24(id)&since=24h", "compare '$(id)' --since 24h"),
        ("nodes/%24(id)", "explain '$(id)'"),
        ("acts/fence?node=%24(id)", "fence '$(id)'"),
    ],
)
async def test_s41_what_a_link_says_is_one_word_of_the_command_that_is_shown(
    page: aiohttp.ClientSession, cluster: str, path: str, command: str
) -> None:
    """Whoever followed such a link and copied the command ran what the link's author had put into it."""
    async with page.get(URL(f"/c/{cluster}/{path}", encoded=True)) as answer:
        shown = html.unescape(await answer.text())
    assert (answer.status, f"nodewarden {command}" in shown) == (200, True)


async def test_a_body_that_is_too_long_is_not_held_in_memory(page: aiohttp.ClientSession, cluster: str) -> None:
    """S41: of one with 300 MB, which a reader of the page may send, the process held 600; it ended by one that was longer. It is
    refused before the whole of it was sent."""
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 64 * MOST_BYTES:
            sent += MOST_BYTES // 16
            yield b" " * (MOST_BYTES // 16)

    json, path = {"Content-Type": "application/json"}, f"/api/v1/clusters/{cluster}/acts"
    async with page.post(path, data=endless(), headers=json) as answer:
        assert (answer.status, await answer.json()) == (413, {"error": f"expected a body of at most {MOST_BYTES} bytes"})
    assert sent < 64 * MOST_BYTES


async def test_looking_reads_the_devices_of_a_node_once_however_many_look(
    page: aiohttp.ClientSession, mine: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S41: each preview of `ack-off`, which a person with no right but to look may ask for, was a login to the BMC."""
    episode, read = await mine.fence(cluster, "sick-on", reason="drill"), list[str]()

    async def counted(_: Nodewarden, __: str, node: str) -> DeviceReport:
        read.append(node)
        raise MissingError("none here")

    monkeypatch.setattr(Nodewarden, "check_devices", counted)
    looked = await asyncio.gather(*(page.get(f"/c/{cluster}/acts/ack-off?node=sick-on") for _ in range(8)))
    assert {each.status for each in looked} == {200}
    assert read == ["sick-on"]
    await episode.abort(who="ann", reason="enough")


async def test_to_vouch_for_off_the_name_of_the_node_is_typed(
    page: aiohttp.ClientSession, mine: Nodewarden, cluster: str
) -> None:
    """S8: and it is shown what each device says now, and what it has last said to the episode, with its age."""
    episode = await mine.fence(cluster, "sick-on", reason="drill")
    async with page.get(f"/c/{cluster}/acts/ack-off?node=sick-on") as answer:
        shown = await answer.text()
    assert 'name="node_name"' in shown
    assert 'name="override" value="device-reads-on"' in shown
    assert "ipmi://10.0.0.9:623 does not answer now" in shown
    assert re.search(r"ipmi://10.0.0.9:623 said on \d+s ago", shown)
    token = await form_token(page, cluster, "ack-off", "sick-on")
    form = {"verb": "ack-off", "node": "sick-on", "reason": "seen", "form_token": token, "question": "7"}
    for typed in ({}, {"node_name": "sick-1"}):
        assert "nodeName: expected sick-on, typed once more" in await sent(page, cluster, form | typed, expected=422)
    again = await sent(page, cluster, form | {"node_name": "sick-1", "override": "device-reads-on"}, expected=422)
    assert all(each in again for each in ('value="sick-1"', 'value="device-reads-on" checked', 'value="seen"')), "it is kept"
    assert await episode.is_open(), "nothing was said"
    typed = {"node_name": "sick-on", "override": "device-reads-on"}
    assert "off acknowledged" in await sent(page, cluster, form | typed, expected=200)
    assert (await episode.result()).message.endswith("seen (device-reads-on)")


async def test_a_command_without_effect_is_not_offered_and_is_refused_with_its_reason(
    page: aiohttp.ClientSession, mine: Nodewarden, cluster: str
) -> None:
    """S44: a person's word is obeyed or refused to that person."""
    episode = await mine.fence(cluster, "node-1", reason="drill")
    async with page.get(f"/api/v1/clusters/{cluster}/acts/resume?node=node-1") as answer:
        found = await answer.json()
    conforms("/api/v1/clusters/{cluster}/acts/{verb}", found)
    assert not found["accepted"]
    assert "does not accept resume now, but hold, abort" in found["whyNot"]
    async with page.get(f"/c/{cluster}/acts/resume?node=node-1") as answer:
        assert "<form" not in await answer.text()
    token = await form_token(page, cluster, "abort", "node-1")
    form = {"verb": "resume", "node": "node-1", "reason": "x", "form_token": token}
    assert "this one goes on by itself" in await sent(page, cluster, form, expected=409)
    refused = await act(page, cluster, verb="resume", node="node-1", reason="x", expected=409)
    assert "this one goes on by itself" in refused["error"]
    await episode.abort(who="ann", reason="enough")


async def test_a_program_pauses_for_a_while_and_begins_an_episode(
    page: aiohttp.ClientSession, mine: Nodewarden, cluster: str
) -> None:
    await mine.start_scanner(cluster, check_every=None)
    stops = f"/api/v1/clusters/{cluster}/stops"
    async with page.get(stops) as before:
        assert "storage" not in await before.text()
    told = await act(page, cluster, verb="pause", reason="storage", **{"for": "2h"})
    assert f"paused by {ME}, until " in told["answer"]
    async with page.get(stops) as after:
        assert "storage" in await after.text(), "S44: who has just paused it does not read that it is not paused"
    (pause,) = (await mine.scanner_status(cluster)).pauses
    assert pause.until is not None
    assert f"says {ME}" in (await act(page, cluster, verb="unpause", reason="done"))["answer"]
    begun = await act(page, cluster, verb="fence", node="node-7", reason="drill")
    assert (begun["node"], begun["joined"], begun["permit"]) == ("node-7", False, True)
    assert (await mine.episode(cluster, "node-7").status()).reason == "drill"
    ended = await act(page, cluster, verb="abort", node="node-7", reason="enough", powerOn=True)
    assert ended["workflowId"].endswith("node-7")
    assert "power on" in (await mine.episode(cluster, "node-7").result()).message
    refused = await act(page, cluster, verb="fence", node="refused-1", reason="drill", expected=409)
    assert refused["error"] == "no permit was to be had"
    await mine.stop_scanner(cluster, who="ann", reason="done")


async def test_the_form_says_which_hold_ends(
    page: aiohttp.ClientSession, mine: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S44: another person's, by name, and not one's own in its place."""
    asked = list[CommandRequest]()

    async def noted(_caller: object, known: str, act: CommandRequest) -> CommandAnswer:
        asked.append(act.checked())
        return CommandAnswer(cluster=known, answer="ended")

    monkeypatch.setattr(acts, "carry_out", noted)
    await mine.fence(cluster, "sick-1", reason="drill")
    token = await form_token(page, cluster, "resume", "sick-1")
    form = {"verb": "resume", "node": "sick-1", "reason": "done", "question": "7", "of": "ann", "form_token": token}
    await sent(page, cluster, form, expected=200)
    assert [each.of for each in asked] == ["ann"]


@pytest.mark.parametrize("word", ["fence", "remediate", "ack-off"])
async def test_an_override_wants_the_name_of_the_node_typed(
    word: str, page: aiohttp.ClientSession, mine: Nodewarden, cluster: str
) -> None:
    """S17: on the page and by its API; and nothing else is overridden."""
    if word == "ack-off":
        await mine.fence(cluster, "sick-1", reason="drill")
    said = {"verb": word, "node": "sick-1", "reason": "data at risk", "question": 7, "override": "circuit-breaker"}
    for wrong in ({}, {"nodeName": ""}, {"nodeName": "sick-2"}):
        assert "nodeName: expected sick-1" in str(await act(page, cluster, expected=422, **said, **wrong))
    named = {"nodeName": "sick-1"}
    assert "override: expected circuit-breaker" in str(
        await act(page, cluster, expected=422, **said | named | {"override": "cap"})
    )
    refused = said | named | {"verb": "hold"}
    assert "override: expected nothing with hold" in str(await act(page, cluster, expected=422, **refused))
    token = await form_token(page, cluster, "fence", "node-9")
    form = {key: str(value) for key, value in said.items()} | {"form_token": token}
    assert "nodeName: expected sick-1" in await sent(page, cluster, form, expected=422)
    assert await mine.episode(cluster, "sick-1").is_open() is (word == "ack-off")
    await sent(page, cluster, form | {"node_name": "sick-1"}, expected=200)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"verb": "abort", "node": "n", "reason": " "}, "reason: expected a name or a sentence"),
        ({"verb": "abort", "node": "n", "reason": "two\nlines"}, "reason: expected one line"),
        ({"verb": "abort", "reason": "x"}, "node: expected a node with abort"),
        ({"verb": "pause", "node": "n", "reason": "x"}, "node: expected none with pause"),
        ({"verb": "extend", "node": "n", "reason": "x"}, "for: expected a duration such as 24h with extend"),
        ({"verb": "abort", "node": "n", "reason": "x", "for": "2h"}, "for: expected nothing with abort"),
        ({"verb": "pause", "reason": "x", "for": "soon"}, "for: expected a duration above 0"),
        ({"verb": "stop-scan", "reason": "x"}, "on the command line"),
        ({"verb": "shout", "reason": "x"}, "verb: expected 'abort', 'ack-off', "),
        ({"verb": "pause"}, "reason: expected a value, got none"),
        ({"verb": "ack-off", "node": "n", "reason": "x"}, "nodeName: expected n, typed once more, got ''"),
        ({"verb": "ack-off", "node": "n", "nodeName": "m", "reason": "x"}, "nodeName: expected n, typed once more, got 'm'"),
        (
            {"verb": "abort", "node": "n", "reason": "x", "override": "device-reads-on"},
            "override: expected nothing with abort, got 'device-reads-on'",
        ),
        (
            {"verb": "ack-off", "node": "n", "nodeName": "n", "reason": "x", "override": "all"},
            "override: expected circuit-breaker or device-reads-on with ack-off, got 'all'",
        ),
        ({"verb": "pause", "reason": "x", "who": "somebody else"}, "who: unknown key"),
    ],
)
async def test_what_can_not_be_said_is_refused_by_its_field(
    page: aiohttp.ClientSession, cluster: str, said: dict[str, str], why: str
) -> None:
    assert why in (await act(page, cluster, expected=422, **said))["error"]


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example.com"}]
)
async def test_another_page_says_nothing(
    page: aiohttp.ClientSession, mine: Nodewarden, cluster: str, headers: dict[str, str]
) -> None:
    """S42: a browser carries what it has to whatever page it is told to; that page can't read ours, and may still send."""
    episode = await mine.fence(cluster, "node-1", reason="drill")
    form = {"verb": "abort", "node": "node-1", "reason": "x", "form_token": await form_token(page, cluster, "abort", "node-1")}
    await sent(page, cluster, form, expected=403, **headers)
    async with page.post(f"/api/v1/clusters/{cluster}/acts", json=form | {}, headers=headers) as answer:
        assert answer.status == 403
    assert await episode.is_open()
    await episode.abort(who="ann", reason="enough")


async def test_a_form_of_another_page_and_a_link_say_nothing(page: aiohttp.ClientSession, mine: Nodewarden, cluster: str) -> None:
    """S42."""
    episode = await mine.fence(cluster, "node-1", reason="drill")
    form = {"verb": "abort", "node": "node-1", "reason": "x"}
    await sent(page, cluster, form, expected=403)
    await sent(page, cluster, form | {"form_token": "0" * 64}, expected=403)
    async with page.get(f"/c/{cluster}/acts", params=form) as answer:
        assert answer.status == 405
    text = '{"verb": "abort", "node": "node-1", "reason": "x"}'
    async with page.post(f"/api/v1/clusters/{cluster}/acts", data=text, headers={"Content-Type": "text/plain"}) as answer:
        assert answer.status == 422
    assert await episode.is_open()
    await episode.abort(who="ann", reason="enough")


async def test_before_a_fencing_it_is_shown_what_runs_there_and_what_would_be_done(mine: Nodewarden, cluster: str) -> None:
    async with (
        ApiServer(tokens={"anns": "admin"}) as server,
        ApiClient(ApiAddress(url=server.url, token="anns"), user_agent="test") as api,
    ):
        await api.create("/api/v1/nodes", {"metadata": {"name": "node-1"}})
        claims = [{"name": f"d{each}", "persistentVolumeClaim": {"claimName": f"d{each}"}} for each in range(7)]
        spec = {"nodeName": "node-1", "volumes": claims, "containers": [{"name": "c", "image": "i"}]}
        await api.create("/api/v1/namespaces/default/pods", {"metadata": {"name": "db-0"}, "spec": spec})

        @asynccontextmanager
        async def opening(_: str) -> AsyncIterator[ClusterConnection]:
            async with ClusterConnection.to(server.url, token="anns") as connection:
                yield connection

        views = Views(mine, (cluster,), source=PolicySource())
        keeper = Unlocked(mine, opening, name=ME)
        async with serving(views, host="127.0.0.1", port=0, keeper=keeper) as url, aiohttp.ClientSession(url) as page:
            async with page.get(f"/api/v1/clusters/{cluster}/acts/fence?node=node-1") as answer:
                found = await answer.json()
            conforms("/api/v1/clusters/{cluster}/acts/{verb}", found)
            assert found["known"][-1] == (
                "1 pod on it, with 7 persistent volumes: default/d0, default/d1, default/d2, default/d3, default/d4 and 2 more"
            )
            assert found["plan"]["node"] == "node-1"
            assert found["plan"]["errors"]
            async with page.get(f"/c/{cluster}/acts/fence?node=node-1") as answer:
                shown = await answer.text()
            assert found["plan"]["errors"][0][:20] in shown
            assert "Said by admin, if Kubernetes verifies it." in shown
    with pytest.raises(MissingError):
        await mine.episode(cluster, "node-1").status()


async def test_while_the_api_server_is_away_the_rights_of_a_person_are_not_blamed(mine: Nodewarden, cluster: str) -> None:
    """S44: nor is another name promised than the person's own."""

    @asynccontextmanager
    async def opening(_: str) -> AsyncIterator[ClusterConnection]:
        async with ClusterConnection.to("http://127.0.0.1:1", token="anns") as connection:
            yield connection

    keeper = Unlocked(mine, opening, name=ME)
    serve = serving(Views(mine, (cluster,), source=PolicySource()), host="127.0.0.1", port=0, keeper=keeper)
    async with serve as url, aiohttp.ClientSession(url) as page:
        async with page.get(f"/api/v1/clusters/{cluster}/acts/fence?node=node-1") as answer:
            pods, plan = (await answer.json())["known"][-2:]
        assert pods.startswith("what runs on it can't be read now: GET /api/v1/pods: no connection")
        assert plan.startswith("what would be done can't be read now: GET /api/v1/nodes/node-1: no connection")
        async with page.get(f"/c/{cluster}/acts/fence?node=node-1") as answer:
            assert f"Said by {ME} (identity not verified)." in await answer.text()


# A browser's session is in its cookie, sealed: any process with the same keys knows it, and no other does.

FIRST, SECOND = (secrets.token_hex(32).encode() for _ in range(2))


def request(cookie: str = "", **headers: str) -> Request:
    sent = {**headers, **({"cookie": f"{COOKIE}={cookie}"} if cookie else {})}
    return Request({"type": "http", "headers": [(name.encode(), text.encode("latin-1")) for name, text in sent.items()]})


def test_a_browser_is_known_wherever_the_keys_are() -> None:
    """S12: and nobody else reads its token, or makes a form of it."""
    one, other, stranger = Sessions([FIRST]), Sessions([FIRST]), Sessions()
    sealed = request(one.begin("anns-token"))
    assert "anns-token" not in sealed.headers["cookie"]
    assert (other.token_of(sealed), stranger.token_of(sealed)) == ("anns-token", "")
    form = one.form_token(sealed)
    assert (other.is_ours(sealed, form), stranger.is_ours(sealed, form)) == (True, False)
    assert not other.is_ours(request(one.begin("anns-token")), form)  # another session of hers


def test_keys_are_changed_without_logging_anybody_out() -> None:
    """The new one last, then first, then the old one goes."""
    before, between, after = Sessions([FIRST]), Sessions([SECOND, FIRST]), Sessions([SECOND])
    sealed = request(before.begin("anns-token"))
    assert (between.token_of(sealed), between.is_ours(sealed, before.form_token(sealed))) == ("anns-token", True)
    assert after.token_of(request(between.begin("anns-token"))) == "anns-token"
    assert after.token_of(sealed) == ""


def test_a_session_ends_after_eight_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions([FIRST])
    now = 0.0
    monkeypatch.setattr("cryptography.fernet.time", SimpleNamespace(time=lambda: now))
    sealed = request(sessions.begin("anns-token"))
    now = LASTS.total_seconds()
    assert sessions.token_of(sealed) == "anns-token"
    now += 2.0
    assert sessions.token_of(sealed) == ""


def test_a_token_that_no_browser_would_keep_is_refused() -> None:
    """It drops such a cookie without a word, and people would be asked again and again."""
    sessions = Sessions()
    assert len(sessions.begin(secrets.token_urlsafe(2700))) <= 4096 - len(COOKIE) - 1
    with pytest.raises(TokenTooLongError, match="expected a token that fits into a cookie, got one of 6"):
        sessions.begin(secrets.token_urlsafe(4500))


@pytest.mark.parametrize("cookie", ["", "x", "é", "gAAAAA=="])
def test_an_unsealed_name_is_no_user(cookie: str) -> None:
    assert Sessions().token_of(request(cookie)) == ""
    assert not Sessions().is_ours(request(cookie), "é")


def test_a_token_needs_no_cookie() -> None:
    assert Sessions().token_of(request(Sessions().begin("anns-token"), authorization="Bearer bobs-token")) == "bobs-token"


@pytest.mark.parametrize("keys", [[], [b"short"], [FIRST, b"short"]])
def test_no_key_and_a_short_one_are_refused(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="expected at least one key, each of at least 32 bytes"):
        Sessions(keys)
