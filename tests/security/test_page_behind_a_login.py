"""The page behind a proxy that logs people in: their token comes in a header, and no form of ours can give another one (S42)."""

from __future__ import annotations

import json
import re

from tests.security.test_who_looks_at_the_page import Stage
from tests.security.test_who_looks_at_the_page import client as client  # noqa: PLC0414 - fixtures
from tests.security.test_who_looks_at_the_page import cluster as cluster  # noqa: PLC0414
from tests.security.test_who_looks_at_the_page import server as server  # noqa: PLC0414
from tests.security.test_who_looks_at_the_page import stage as stage  # noqa: PLC0414
from tests.security.test_who_looks_at_the_page import unserved as unserved  # noqa: PLC0414
from tests.security.test_who_looks_at_the_page import warden as warden  # noqa: PLC0414


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
