"""Creating objects and reading them back; what is refused, and how the refusal reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulator.api.client import NODES, PODS, Client, named, node, pod


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
