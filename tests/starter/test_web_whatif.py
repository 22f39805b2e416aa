"""Health checks on the page: how near they are to their thresholds, and what a changed one would say."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
import yaml

from activities.cluster.watch.offline import ClusterSnapshot
from policy.scan.evaluation import evaluate
from policy.values.object_refs import Dialect
from starter.errors import SilentError
from starter.output.evaluation import as_model
from starter.output.models import CheckAnswer
from starter.web import checks, views
from starter.web.checks import LONGEST, needed
from starter.web.views import Views
from tests.cluster.builders import until
from tests.documents import validate
from tests.starter.builders import check
from tests.starter.test_manifests import long_bomb
from tests.starter.test_web import CLUSTER, text
from tests.starter.test_web import scripted as scripted  # noqa: PLC0414 - a fixture
from tests.starter.test_web_api import document
from tests.starter.test_web_fleet import cluster as cluster  # noqa: PLC0414 - a fixture
from tests.starter.test_web_fleet import page as page  # noqa: PLC0414 - a fixture
from tests.web.objects import NightCluster, health_check, node

API = f"/api/v1/clusters/{CLUSTER}/what-if"
PAGE = f"/c/{CLUSTER}/checks"
YAML = {"Content-Type": "application/yaml"}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two readings of one person."""
    monkeypatch.setattr(views, "TRY_PAUSE", timedelta(0))
    monkeypatch.setattr(views, "TRY_REST", 0)


async def asked(page: aiohttp.ClientSession, *objects: Any, expected: int = 200) -> Any:
    async with page.post(API, data=yaml.safe_dump_all(objects), headers=YAML) as answer:
        found = await answer.json()
        assert answer.status == expected, found
    return found


async def evaluated(cluster: NightCluster, **changes: str) -> list[CheckAnswer]:
    """As the command line has it."""
    found = await cluster(CLUSTER)
    if changes:
        found.put(health_check("gpu", **changes), "file")
    return list(as_model(evaluate(found.ledger.known(found.now)), ()).checks)


async def test_a_changed_check_is_evaluated_beside_todays(page: aiohttp.ClientSession, cluster: NightCluster) -> None:
    """node-16 has been sick for two minutes: a check that waits for one calls it unhealthy. node-22 is held back today."""
    found = await asked(page, health_check("gpu", minimum="0%", wait="1m"))
    said = document()["paths"]["/api/v1/clusters/{cluster}/what-if"]["post"]["responses"]["200"]["content"]
    validate(found, said["application/json"]["schema"] | {"components": document()["components"]})
    (gpu,) = (each for each in found["checks"] if each["check"] == "NodeHealthCheck/gpu")
    today, then = await evaluated(cluster), await evaluated(cluster, minimum="0%", wait="1m")
    assert (gpu["today"]["allowed"], gpu["then"]["allowed"]) == (today[0].allowed, then[0].allowed) == (False, True)
    assert (gpu["today"]["message"], gpu["then"]["message"]) == (today[0].message, then[0].message)
    changed = {each["target"]: (each["today"], each["then"]) for each in found["verdicts"] if each["check"] == gpu["check"]}
    assert changed["node-16"] == ("soon", "unhealthy: create-remediation")
    assert set(changed) == {"node-16", "node-22"}


async def test_nothing_is_kept(page: aiohttp.ClientSession) -> None:
    """Today's stays today's, whoever has tried what before."""
    before = await asked(page, health_check("gpu"))
    assert before["verdicts"] == []
    await asked(page, health_check("gpu", minimum="0%", wait="1m"))
    after = await asked(page, health_check("gpu"))
    assert after["checks"] == before["checks"]
    assert "unhealthy soon" in await text(page, f"/c/{CLUSTER}/nodes/node-16")


async def test_s41_tries_of_one_person_wait_for_one_another(
    page: aiohttp.ClientSession, cluster: NightCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a reading of a whole cluster: a reader of the page could have as many made as there was time for."""
    monkeypatch.setattr(views, "TRY_PAUSE", timedelta(seconds=30))
    cluster.opens = asyncio.Event()
    first = asyncio.create_task(asked(page, health_check("gpu")))
    await until(lambda: cluster.asked == 1)
    over = await asked(page, health_check("gpu"), expected=503)
    assert "the last one of yours is not over yet" in over["error"]
    cluster.opens.set()
    assert (await first)["checks"]
    again = await asked(page, health_check("gpu"), expected=503)
    assert re.search(r"try again in (29|30) s", again["error"]), again
    assert cluster.asked == 1


async def test_s41_tries_of_several_persons_are_made_one_after_the_other_and_a_failed_one_ends() -> None:
    reading, cluster = asyncio.Event(), list[str]()

    async def read(name: str) -> ClusterSnapshot:
        cluster.append(name)
        await reading.wait()
        raise SilentError("the cluster does not answer")

    found = Views(Mock(), (CLUSTER,), reading=read)

    async def tried(who: str) -> None:
        async with found.read_anew(CLUSTER, who):
            raise AssertionError("it is not read")

    tries = [asyncio.create_task(tried(who)) for who in ("ann", "bob")]
    await until(lambda: cluster)
    await asyncio.sleep(0.05)
    assert cluster == [CLUSTER]
    reading.set()
    assert [str(each) for each in await asyncio.gather(*tries, return_exceptions=True)] == ["the cluster does not answer"] * 2
    assert len(cluster) == 2
    await asyncio.gather(tried("ann"), return_exceptions=True)
    assert len(cluster) == 3, "and it may be tried again"


async def test_a_check_that_is_new_has_no_today(page: aiohttp.ClientSession) -> None:
    found = await asked(page, health_check("spare", of="workers", wait="1m"))
    assert [each["today"] for each in found["checks"] if each["check"] == "NodeHealthCheck/spare"] == [None]
    assert {each["today"] for each in found["verdicts"] if each["check"] == "NodeHealthCheck/spare"} == {None}


@pytest.mark.parametrize(
    ("pasted", "said"),
    [
        ("", "expected a health check as YAML or JSON, got nothing"),
        ("a: [", "expected YAML"),
        (yaml.safe_dump(node(1)), "expected a health check, got v1 Node"),
        (yaml.safe_dump(health_check("gpu", minimum="lots")), "spec.minHealthy"),
        ("x" * (LONGEST + 1), f"expected at most {LONGEST} characters"),
        ("x" * (checks.MOST_BYTES + 1), f"expected at most {LONGEST} characters"),
        ("a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\n" * 2 + "c: [*b, *b]", "expected"),
        (long_bomb(), "its aliases expand to more than"),
    ],
)
async def test_what_can_not_be_evaluated_is_refused_with_its_place(page: aiohttp.ClientSession, pasted: str, said: str) -> None:
    """S41: a reader of the page could end its process by what expands in its memory."""
    async with page.post(API, data=pasted, headers=YAML) as answer:
        assert answer.status == 422
        assert said in (await answer.json())["error"]


async def test_it_is_asked_by_this_page_alone(page: aiohttp.ClientSession, cluster: NightCluster) -> None:
    """S42: each answer is a reading of a whole cluster."""
    pasted = yaml.safe_dump(health_check("gpu", minimum="0%", wait="1m"))
    token = re.search(r'name="form_token" value="(\w+)"', await text(page, PAGE))
    assert token is not None
    for form, headers in (
        ({"check": pasted, "form_token": "0" * 64}, {}),
        ({"check": pasted}, {}),
        ({"check": pasted, "form_token": token[1]}, {"Origin": "https://evil.example.com"}),
        ({"check": pasted, "form_token": token[1]}, {"Sec-Fetch-Site": "cross-site"}),
    ):
        async with page.post(PAGE, data=form, headers=headers) as answer:
            assert answer.status == 403
    async with page.post(API, data=pasted, headers={"Content-Type": "text/plain"}) as answer:
        assert answer.status == 422
    assert cluster.asked == 0
    async with page.post(PAGE, data={"check": pasted, "form_token": token[1]}) as answer:
        body = await answer.text()
    assert answer.status == 200
    assert "verdicts would change" in body
    assert "minHealthy: 0%" in body  # what was pasted is there to be changed again
    async with page.post(PAGE, data={"check": "kind: <b>", "form_token": token[1]}) as answer:
        body = await answer.text()
    assert answer.status == 422
    assert "<b>" not in body


@pytest.mark.parametrize(
    ("changes", "least"),
    [
        ({"healthy": 11, "remaining": 4}, 7),
        ({"healthy": 3, "remaining": 0}, 3),
        ({"healthy": 1, "remaining": 0, "allowed": False}, None),
        ({"healthy": 1, "remaining": 12, "dialect": Dialect.NODE_FENCING}, None),
    ],
)
def test_the_threshold_is_shown_where_the_report_says_it(changes: dict[str, Any], least: int | None) -> None:
    assert needed(check(**changes)) == least
