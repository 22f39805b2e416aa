"""Creating objects and reading them back; what is refused, and how the refusal reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulator.api.client import NAMESPACES, NODES, PODS, Client, config_map, named, node, pod


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


async def test_nothing_is_created_in_a_namespace_that_is_not_there(client: Client) -> None:
    answer = await client.post(f"{NAMESPACES}/nowhere/configmaps", config_map("a"))
    assert (answer.status, answer.document["details"]["kind"]) == (404, "namespaces")


async def test_a_new_pod_is_pending_with_defaults_and_eviction_tolerations(client: Client) -> None:
    made = await client.made(PODS, {**pod("p1"), "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["terminationGracePeriodSeconds"] == 30
    seconds = {each["key"].rpartition("/")[2]: each["tolerationSeconds"] for each in made["spec"]["tolerations"]}
    assert seconds == {"not-ready": 300, "unreachable": 300}
