"""The read API: the same answers as the command line's, in the same spelling, and a document that says so."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import cache
from typing import Any

import aiohttp
import pytest

from policy.checks.verdict import Health
from policy.episode.messages import Phase
from policy.episode.permits import PermitRequest
from starter.client import Nodewarden
from starter.errors import SilentError
from starter.handles.episodes import NodeEpisodes
from starter.web import api, views
from starter.web.app import application
from starter.web.views import Views
from tests.docs.reference import DOCS
from tests.documents import validate
from tests.starter.builders import episode, report, result, row, scanner, status
from tests.starter.test_web import CLUSTER, PAUSE, ScriptedWarden
from tests.starter.test_web import page as page  # noqa: PLC0414 - a fixture
from tests.starter.test_web import scripted as scripted  # noqa: PLC0414 - a fixture
from tests.unlocked import Unlocked, unlocked

OF = f"/api/v1/clusters/{CLUSTER}"


@cache
def document() -> dict[str, Any]:
    return api.document(application(Views(ScriptedWarden(status()), ()), Unlocked(ScriptedWarden(status()))))  # type: ignore[arg-type]


def conforms(path: str, found: Any, *, code: int = 200) -> None:
    """It is what the document says of that path, and nothing else."""
    whole = document()
    (said,) = whole["paths"][path]["get"]["responses"][str(code)]["content"].values()
    schemas = {
        name: each | ({"additionalProperties": False} if each.get("properties") else {})
        for name, each in whole["components"]["schemas"].items()
    }
    validate(found, said["schema"] | {"components": {"schemas": schemas}})


async def asked(page: aiohttp.ClientSession, path: str, *, expected: int = 200) -> Any:
    async with page.get(path) as answer:
        assert answer.status == expected, await answer.text()
        assert answer.content_type == "application/json"
        return await answer.json()


@pytest.mark.parametrize("part", [each.path for each in api.PARTS])
async def test_each_part_of_a_status_is_as_the_document_says(
    page: aiohttp.ClientSession, scripted: ScriptedWarden, part: str
) -> None:
    asks = PermitRequest(node="node-3", workflow_id="w", incident="i")
    seen = scanner(report(row("node-1"), row("node-2", Health.UNHEALTHY)), queue=(asks,), pauses=(PAUSE,))
    waits = episode("node-2", phase=Phase.NEEDS_HUMAN, held="held by ann", problem="the BMC is silent")
    scripted.answer = replace(status(), scanner=seen, episodes=(waits,), ended=(result(),))
    found = await asked(page, OF + part)
    conforms("/api/v1/clusters/{cluster}" + part, found)
    assert found["cluster"] == CLUSTER


async def test_a_node_is_explained_and_what_was_not_read_is_said(page: aiohttp.ClientSession, scripted: ScriptedWarden) -> None:
    scripted.episodes = NodeEpisodes(episode=episode("node-2"), ended=(result("node-2"),))
    found = await asked(page, f"{OF}/nodes/node-2")
    conforms("/api/v1/clusters/{cluster}/nodes/{node}", found)
    assert found["episode"]["node"] == "node-2"
    assert "`nodewarden explain` reads them" in found["problems"][0]
    scripted.episodes = NodeEpisodes()
    assert (await asked(page, f"{OF}/nodes/node-77"))["found"] is None  # nobody here can say that there is none


async def test_clusters_are_named(page: aiohttp.ClientSession) -> None:
    found = await asked(page, "/api/v1/clusters")
    conforms("/api/v1/clusters", found)
    assert found == {"clusters": [CLUSTER]}


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("/api/v1/clusters/staging", 404, "there is no cluster 'staging' among those known here: prod"),
        ("/api/v1/clusters/staging/events", 404, "there is no cluster 'staging'"),
        ("/api/v1/clusters/staging/acts/pause", 404, "there is no cluster 'staging'"),
        (f"{OF}/history?since=soon", 422, "since: expected a duration above 0 and of at most 366d"),
        (f"{OF}/history?outcome=fine", 422, "outcome: expected some of recovered"),
        (f"{OF}/history?limit=0", 422, "limit: expected a number greater than or equal to 1, got '0'"),
        (f"{OF}/moment?at=2126-01-01", 422, "at: expected a moment of the past such as 03:12"),
        (f"{OF}/moment", 422, "at: "),
        ("/api/v1/nothing", 404, "Not Found"),
    ],
)
async def test_what_can_not_be_answered_is_said_in_json(page: aiohttp.ClientSession, path: str, code: int, said: str) -> None:
    found = await asked(page, path, expected=code)
    assert said in found["error"]
    conforms("/api/v1/clusters/{cluster}", found, code=code)


async def test_an_unreachable_source_is_another_thing_than_a_missing_one(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    async def silent(cluster: str) -> None:
        raise SilentError(f"preservations of {cluster}: Temporal is not available")

    scripted.preserved = silent  # type: ignore[attr-defined]
    assert "Temporal is not available" in (await asked(page, f"{OF}/preserved", expected=503))["error"]


async def test_an_answer_is_made_once_for_each_view_and_not_sent_again_to_who_has_it(
    page: aiohttp.ClientSession, scripted: ScriptedWarden, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    encode = views.to_json
    monkeypatch.setattr(views, "to_json", lambda found: made.append(found) or encode(found))
    async with page.get(OF) as answer:
        tag = answer.headers["ETag"]
    async with page.get(OF, headers={"If-None-Match": tag}) as answer:
        assert (answer.status, await answer.read(), len(made)) == (304, b"", 1)
    scripted.answer = status(row("node-9"))
    await asyncio.sleep(views.FRESH.total_seconds())
    async with page.get(OF, headers={"If-None-Match": tag}) as answer:
        assert (answer.status, len(made)) == (200, 2)


async def test_the_document_names_every_path_and_what_it_answers(page: aiohttp.ClientSession) -> None:
    """Types of the command line are those of its own schema, to the letter."""
    found = await asked(page, "/api/v1/openapi.json")
    assert found == json.loads(json.dumps(document()))
    told = json.loads((DOCS / "schemas" / "answers.json").read_text())["$defs"]
    shared = set(told) & set(found["components"]["schemas"])
    assert {"ClusterStatus", "ExplainAnswer", "HistoryAnswer", "EpisodeRecord", "PreservedNodes", "DeviceReport"} <= shared
    for name in shared:
        said = json.dumps(told[name]).replace("#/$defs/", "#/components/schemas/")
        assert said == json.dumps(found["components"]["schemas"][name])


async def test_the_whole_way_from_temporal_to_a_program(warden: Nodewarden, cluster: str) -> None:
    handle = await warden.fence(cluster, "node-1", reason="hold")
    of = f"/api/v1/clusters/{cluster}"
    async with unlocked(Views(warden, (cluster,))) as url, aiohttp.ClientSession(url) as page:
        assert (await asked(page, f"{of}/nodes/node-1"))["episode"]["reason"] == "hold"
        await handle.abort(who="ann", reason="enough")
        await handle.result()
        async with asyncio.timeout(10):
            while not (found := await asked(page, f"{of}/history"))["episodes"]:
                await asyncio.sleep(0.1)
        conforms("/api/v1/clusters/{cluster}/history", found)
        then = await asked(page, f"{of}/moment?at={found['episodes'][0]['ended']}")
        conforms("/api/v1/clusters/{cluster}/moment", then)
        assert [(each["node"], each["why"]) for each in then["episodes"]] == [("node-1", "hold")]
        told = await asked(page, f"{of}/record/node-1")
        conforms("/api/v1/clusters/{cluster}/record/{name}", told)
        assert told["outcome"] == "aborted"
        assert "no open" in (await asked(page, f"{of}/devices", expected=404))["error"]
        found = await asked(page, f"{of}/preserved")
        conforms("/api/v1/clusters/{cluster}/preserved", found)
        await warden.start_scanner(cluster)
        await warden.scanner(cluster).pause(who="ann", reason="storage")
        found = await asked(page, f"{of}/history")
        conforms("/api/v1/clusters/{cluster}/history", found)
        assert [(each["state"], each["by"], each["why"]) for each in found["pauses"]] == [("in-force", "ann", "storage")]
        assert (await asked(page, f"{of}/history?node=node-1"))["pauses"] == []
