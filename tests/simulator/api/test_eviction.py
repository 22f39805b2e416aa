"""Evictions spend the budget that a PodDisruptionBudget's status allows, and binding happens once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulator.api.client import BUDGETS, PODS, Client, budget, named, pod


def _eviction(name: str, **options: Any) -> dict[str, Any]:
    eviction = named("Eviction", name, "policy/v1", namespace="default")
    return {**eviction, "deleteOptions": options} if options else eviction


async def _running(client: Client, name: str, app: str = "a", *, ready: str = "True") -> None:
    await client.made(PODS, pod(name, "n1", labels={"app": app}))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    await client.patch(f"{PODS}/{name}/status", {"status": status})


async def _allow(client: Client, name: str, allowed: int, *, healthy: int = 1, desired: int = 1) -> None:
    """Write what the disruption controller would."""
    generation = (await client.get(f"{BUDGETS}/{name}")).metadata["generation"]
    status = {"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired}
    patch = {"status": {**status, "observedGeneration": generation}}
    assert (await client.patch(f"{BUDGETS}/{name}/status", patch)).status == 200


async def test_an_exhausted_budget_answers_too_many_requests(client: Client) -> None:
    """S30: 429 means wait, and the pod is untouched."""
    await _running(client, "p1")
    await client.made(BUDGETS, budget("b", {"app": "a"}, minAvailable=1))
    await _allow(client, "b", 0)
    answer = await client.post(f"{PODS}/p1/eviction", _eviction("p1"))
    assert (answer.status, answer.reason) == (429, "TooManyRequests")
    assert answer.document["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert "deletionTimestamp" not in (await client.get(f"{PODS}/p1")).metadata


async def test_a_budget_that_is_not_counted_yet_says_when_to_return(client: Client) -> None:
    await _running(client, "p1")
    await client.made(BUDGETS, budget("b", {"app": "a"}, minAvailable=0))
    answer = await client.post(f"{PODS}/p1/eviction", _eviction("p1"))
    assert (answer.status, answer.headers["Retry-After"]) == (429, "10")


async def test_each_eviction_takes_one_from_the_budget(client: Client) -> None:
    for name in ("p1", "p2"):
        await _running(client, name)
    await client.made(BUDGETS, budget("b", {"app": "a"}, maxUnavailable=1))
    await _allow(client, "b", 1, healthy=2)
    assert (await client.post(f"{PODS}/p1/eviction", _eviction("p1"))).status == 201
    status = (await client.get(f"{BUDGETS}/b")).document["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["p1"]
    assert (await client.post(f"{PODS}/p2/eviction", _eviction("p2"))).status == 429
    assert (await client.post(f"{PODS}/p1/eviction", _eviction("p1"))).status == 201


async def test_a_pod_that_is_not_ready_may_go_while_enough_others_are(client: Client) -> None:
    await _running(client, "p1", ready="False")
    await client.made(BUDGETS, budget("b", {"app": "a"}, minAvailable=1))
    await _allow(client, "b", 0, healthy=1, desired=1)
    assert (await client.post(f"{PODS}/p1/eviction", _eviction("p1"))).status == 201


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Pending"])
async def test_pods_that_no_budget_counts_go_freely(client: Client, phase: str) -> None:
    await client.made(PODS, pod("p1", "n1", labels={"app": "a"}))
    await client.patch(f"{PODS}/p1/status", {"status": {"phase": phase}})
    await client.made(BUDGETS, budget("b", {"app": "a"}, minAvailable=1))
    assert (await client.post(f"{PODS}/p1/eviction", _eviction("p1"))).status == 201


async def test_an_eviction_with_a_wrong_uid_conflicts(client: Client) -> None:
    """S9: the pod that was looked at is the pod that goes."""
    await _running(client, "p1")
    answer = await client.post(f"{PODS}/p1/eviction", _eviction("p1", preconditions={"uid": "another"}))
    assert answer.status == 409
