"""Objects: created, read back, listed, replaced, deleted; what is refused, and how the refusal reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest

from tests.simulator.api.client import (
    BUDGETS,
    CONFIG_MAPS,
    LEASES,
    NODES,
    PODS,
    STRATEGIC,
    Client,
    budget,
    config_map,
    lease,
    named,
    node,
    pod,
)


async def test_a_new_node_is_tainted_as_not_ready_by_admission_and_a_second_one_of_its_name_refused(client: Client) -> None:
    made = await client.made(NODES, node("n1"))
    assert made["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert made["status"]["conditions"][0]["type"] == "Ready"
    answer = await client.post(NODES, node("n1"))
    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert answer.document["details"] == {"name": "n1", "kind": "nodes"}
    assert (await client.post(f"{NODES}?dryRun=All", node("dry"))).status == 201
    assert (await client.get(f"{NODES}/dry")).status == 404


@pytest.mark.parametrize(
    ("document", "status"),
    [
        (named("Node", ""), 422),
        (named("Node", "Not_A_Name!"), 422),
        (node("n1", labels={"a b": "c"}), 422),
        (node("n1", labels={"a": "not a value"}), 422),
        (node("n1", labels={"a": 5}), 400),
        (node("n1", finalizers=["not a name"]), 422),
        ({**node("n1"), "kind": "Pod"}, 400),
        ({**node("n1"), "apiVersion": "v2"}, 400),
        ({**node("n1"), "spec": {"unschedulable": "yes"}}, 400),
        ({**node("n1"), "spec": {"taints": [{"key": "a", "effect": "Nonsense"}]}}, 422),
        ({**node("n1"), "spec": {"taints": [{"effect": "NoSchedule"}]}}, 422),
        ([], 400),
    ],
)
async def test_a_bad_node_is_refused(client: Client, document: Any, status: int) -> None:
    answer = await client.post(NODES, document)
    assert answer.status == status, answer.raw
    assert answer.reason == ("Invalid" if status == 422 else "BadRequest")
    assert (await client.get(f"{NODES}/n1")).status == 404


async def test_a_new_pod_is_pending_with_defaults_and_eviction_tolerations(client: Client) -> None:
    made = await client.made(PODS, {**pod("p1"), "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["terminationGracePeriodSeconds"] == 30
    seconds = {each["key"].rpartition("/")[2]: each["tolerationSeconds"] for each in made["spec"]["tolerations"]}
    assert seconds == {"not-ready": 300, "unreachable": 300}


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_without_a_known_token_nothing_is_shown(client: Client, token: str) -> None:
    stranger = Client(client.url, client.session, token)
    for path in (NODES, "/api/v1", "/version"):
        answer = await stranger.get(path)
        assert (answer.status, answer.reason) == (401, "Unauthorized")
    assert (await stranger.get("/livez")).status == 200


async def test_others_than_the_admin_have_what_a_role_grants(client: Client) -> None:
    """How roles are bound to accounts and namespaces is asked with the shipped ones, in `tests/deploy`."""
    low, group = Client(client.url, client.session, "low"), "rbac.authorization.k8s.io"
    refused = await low.get(NODES)
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert 'User "lowuser" cannot list resource "nodes"' in refused.document["message"]
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    await client.made(f"/apis/{group}/v1/clusterroles", {**named("ClusterRole", "r", f"{group}/v1"), "rules": rules})
    subjects = [{"kind": "User", "name": "lowuser", "apiGroup": group}]
    bound = {"roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "r"}, "subjects": subjects}
    await client.made(f"/apis/{group}/v1/clusterrolebindings", {**named("ClusterRoleBinding", "r", f"{group}/v1"), **bound})
    assert ((await low.get(NODES)).status, (await low.get(f"{NODES}/n1")).status) == (200, 403)


# Replacing objects: optimistic locking, what a client may not change, and that whoever writes a status keeps to it.


async def test_an_update_from_a_stale_version_conflicts(client: Client) -> None:
    old = await client.made(NODES, node("n1"))
    new = {**old, "spec": {"unschedulable": True}}
    first = await client.put(f"{NODES}/n1", new)
    assert (first.status, int(first.version) > int(old["metadata"]["resourceVersion"])) == (200, True)
    second = await client.put(f"{NODES}/n1", new)
    assert (second.status, second.reason) == (409, "Conflict")
    assert (await client.put(f"{NODES}/n1", {**first.document, "metadata": {**first.metadata, "uid": "another"}})).status == 409


async def test_without_a_version_core_kinds_are_replaced_and_leases_refused(client: Client) -> None:
    await client.made(CONFIG_MAPS, config_map("a", {"x": "1"}))
    assert (await client.put(f"{CONFIG_MAPS}/a", config_map("a", {"y": "2"}))).document["data"] == {"y": "2"}
    await client.made(LEASES, lease("l", "me"))
    assert (await client.put(f"{LEASES}/l", lease("l", "you"))).status == 422


async def test_a_lease_that_is_gone_is_made_anew_by_an_update_unless_that_names_its_uid(client: Client) -> None:
    made = await client.made(LEASES, lease("l", "me"))
    await client.delete(f"{LEASES}/l")
    assert (await client.put(f"{LEASES}/l", made)).status == 409
    assert (await client.put(f"{LEASES}/l", lease("l", "you"))).status == 201


async def test_a_patch_of_the_status_leaves_the_spec(client: Client) -> None:
    await client.made(NODES, node("n1"))
    conditions = [{"type": "Ready", "status": "Unknown"}]
    patch = {"spec": {"unschedulable": True}, "status": {"conditions": conditions}}
    changed = await client.patch(f"{NODES}/n1/status", patch, STRATEGIC)
    assert "unschedulable" not in changed.document["spec"]
    states = {each["type"]: each["status"] for each in changed.document["status"]["conditions"]}
    assert states == {"Ready": "Unknown", "DiskPressure": "False"}


async def test_generations_count_changes_of_the_spec_only(client: Client) -> None:
    await client.made(BUDGETS, budget("b", {"app": "a"}, minAvailable=1))

    async def generation() -> int:
        return int((await client.get(f"{BUDGETS}/b")).metadata["generation"])

    first = await generation()
    await client.patch(f"{BUDGETS}/b", {"spec": {"minAvailable": 2}})
    assert await generation() == first + 1
    await client.patch(f"{BUDGETS}/b", {"metadata": {"labels": {"a": "b"}}})
    await client.patch(f"{BUDGETS}/b/status", {"status": {"disruptionsAllowed": 1}})
    assert await generation() == first + 1


# Deleting: preconditions, finalizers, grace, dependents, namespaces.


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what the housekeeping does shortly after a write."""
    async with asyncio.timeout(5):
        while not await true():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("preconditions", [{"uid": "another"}, {"resourceVersion": "1"}])
async def test_a_delete_with_a_wrong_precondition_conflicts(client: Client, preconditions: dict[str, str]) -> None:
    """S20: a deletion names the object that was looked at."""
    metadata = (await client.made(NODES, node("n1")))["metadata"]
    answer = await client.delete(f"{NODES}/n1", {"preconditions": preconditions})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert (await client.delete(f"{NODES}/n1?dryRun=All")).status == 200
    right = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    assert (await client.delete(f"{NODES}/n1", {"preconditions": right})).status == 200


async def test_finalizers_hold_a_deleted_object(client: Client) -> None:
    path = f"{CONFIG_MAPS}/held"
    await client.made(CONFIG_MAPS, config_map("held", finalizers=["example.org/hold"]))
    assert (await client.delete(path)).document["kind"] == "ConfigMap"
    assert "deletionTimestamp" in (await client.get(path)).metadata
    assert (await client.delete(path)).status == 200
    assert (await client.post(CONFIG_MAPS, config_map("held"))).status == 409
    more = {"metadata": {"finalizers": ["example.org/hold", "example.org/more"]}}
    assert (await client.patch(path, more)).status == 422
    assert (await client.patch(path, {"metadata": {"finalizers": None}})).status == 200
    assert (await client.get(path)).status == 404


async def test_a_pod_on_a_node_terminates_until_off_is_confirmed(client: Client) -> None:
    await client.made(PODS, pod("p1", "n1"))
    terminating = (await client.delete(f"{PODS}/p1")).metadata
    assert terminating["deletionGracePeriodSeconds"] == 30
    sooner = (await client.delete(f"{PODS}/p1", {"gracePeriodSeconds": 5})).metadata
    assert sooner["deletionGracePeriodSeconds"] == 5
    assert sooner["deletionTimestamp"] < terminating["deletionTimestamp"]
    later = (await client.delete(f"{PODS}/p1?gracePeriodSeconds=60")).metadata
    assert later["deletionGracePeriodSeconds"] == 5
    assert (await client.delete(f"{PODS}/p1?gracePeriodSeconds=0")).status == 200
    assert (await client.get(f"{PODS}/p1")).status == 404


def _owned(name: str, *owners: dict[str, Any]) -> dict[str, Any]:
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        for owner in owners
    ]
    return config_map(name, ownerReferences=references)


async def test_dependents_go_with_their_last_owner(client: Client) -> None:
    first, second = [await client.made(CONFIG_MAPS, config_map(name)) for name in ("first", "second")]
    await client.made(CONFIG_MAPS, _owned("one", first))
    await client.made(CONFIG_MAPS, _owned("both", first, second))
    await client.delete(f"{CONFIG_MAPS}/first")

    async def only_second_owns() -> bool:
        names = (await client.get(CONFIG_MAPS)).names
        owners = (await client.get(f"{CONFIG_MAPS}/both")).metadata.get("ownerReferences", [])
        return names == ["both", "second"] and [owner["name"] for owner in owners] == ["second"]

    await until(only_second_owns)


# Lists: selectors, pages, snapshots, shapes.


@pytest.fixture
async def nodes(client: Client) -> None:
    await client.made(NODES, node("c", labels={"zone": "z"}))
    await client.made(NODES, node("a", labels={"zone": "x", "pool": "p", "size": "5"}))
    await client.made(NODES, {**node("b", "False", labels={"zone": "y"}), "spec": {"unschedulable": True}})


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("zone=x", ["a"]),
        ("zone!=x", ["b", "c"]),
        ("zone in (x, z)", ["a", "c"]),
        ("zone notin (x,z)", ["b"]),
        ("pool", ["a"]),
        ("zone in (x,y),!pool", ["b"]),
        ("size>4", ["a"]),
        ("size<4", []),
        ("metadata.name=b", ["b"]),
        ("metadata.name!=b", ["a", "c"]),
        ("spec.unschedulable=true", ["b"]),
        ("spec.unschedulable=false", ["a", "c"]),
        ("metadata.name=b,spec.unschedulable=false", []),
    ],
)
async def test_selectors_of_labels_and_fields(client: Client, selector: str, expected: list[str]) -> None:
    which = "field" if "." in selector else "label"
    assert (await client.get(f"{NODES}?{which}Selector={quote(selector)}")).names == expected


async def test_pods_are_found_by_node_and_phase(client: Client) -> None:
    for name, on in (("p1", "a"), ("p2", "b"), ("p3", None)):
        await client.made(PODS, pod(name, on))
    assert (await client.get("/api/v1/pods?fieldSelector=spec.nodeName=a")).names == ["p1"]
    assert (await client.get(f"{PODS}?fieldSelector=spec.nodeName=")).names == ["p3"]
    assert (await client.get(f"{PODS}?fieldSelector=spec.nodeName!=a")).names == ["p2", "p3"]
    await client.patch(f"{PODS}/p1/status", {"status": {"phase": "Running"}})
    assert (await client.get(f"{PODS}?fieldSelector=spec.nodeName=a,status.phase!=Running")).names == []
    await client.delete(f"{PODS}/p1?gracePeriodSeconds=0")
    assert (await client.get("/api/v1/pods?fieldSelector=spec.nodeName=a")).names == []


async def test_pages_show_one_snapshot(client: Client) -> None:
    for name in "abcde":
        await client.made(CONFIG_MAPS, config_map(name))
    first = await client.get(f"{CONFIG_MAPS}?limit=2")
    assert (first.names, first.metadata["remainingItemCount"]) == (["a", "b"], 3)
    await client.delete(f"{CONFIG_MAPS}/c")
    await client.patch(f"{CONFIG_MAPS}/d", {"data": {"key": "later"}})
    await client.made(CONFIG_MAPS, config_map("cc"))
    second = await client.get(f"{CONFIG_MAPS}?limit=2&continue={first.metadata['continue']}")
    assert second.names == ["c", "d"]
    assert second.document["items"][1]["data"] == {"key": "value"}
    assert second.version == first.version
    third = await client.get(f"{CONFIG_MAPS}?limit=2&continue={second.metadata['continue']}")
    assert third.names == ["e"]
    assert "continue" not in third.metadata


# Evictions spend the budget that a PodDisruptionBudget's status allows, and binding happens once.


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
