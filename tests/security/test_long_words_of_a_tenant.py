"""Who may create objects in a namespace of their own keeps no node from its repair, however long the words in them (S41, S46)."""

from __future__ import annotations

import pytest

from policy.episode.messages import Outcome
from simulator.resources import NAMESPACES, PODS
from tests.cluster.fencing_requests import remediation
from tests.system.fixtures import MakeSystem
from tests.system.test_handed_over import REMEDIATIONS

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


async def test_s41_long_words_of_a_tenant_keep_no_node_from_its_repair(make_system: MakeSystem) -> None:
    """In requests, which a report names, and in the owners of pods on a silent node. Temporal takes 2 MiB at once."""
    system = await make_system(nodes=4)
    await system.start_worker()
    await system.apply_policy()
    await system.start_scanner()
    await system.settled()
    await system.client.create(NAMESPACES.path(), {"metadata": {"name": "tenant"}})
    for number in range(5):
        wish = remediation(f"x-{number}", namespace="tenant", ownerReferences=[])
        wish["metadata"]["annotations"] = {"remediation.medik8s.io/node-name": f"{number}" + "x" * 250_000}
        await system.client.create(REMEDIATIONS.path(namespace="tenant"), wish)
    before = system.break_node(system.node_of_pod("demo/database-0"))
    for number in range(2):
        name = f"{number}" + "x" * 1_200_000
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "u", "controller": True}
        metadata = {"name": f"mine-{number}", "ownerReferences": [owner], "finalizers": ["example.io/keep"]}
        spec = {"nodeName": before.node, "containers": [{"name": "main", "image": "example"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        await system.client.create(PODS.path(namespace="tenant"), pod)
    result = await system.ended(before, seconds=60)
    assert result.outcome is Outcome.RECOVERED, result.message
