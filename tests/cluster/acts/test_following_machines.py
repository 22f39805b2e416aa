"""What becomes of a Machine whose replacement was asked for: who succeeds it, and whether that one will ever work."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from activities.cluster.acts.remediating import ClusterRemediation
from activities.contracts.remediation import FollowRequest
from policy.values.object_refs import ObjectRef
from tests.cluster.acts.world import CLUSTER, World
from tests.cluster.machines import CLUSTER_API
from tests.cluster.skipping import now

OWNER = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "set", "uid": "u", "controller": True}


@pytest.mark.parametrize(
    "status",
    [{"phase": "Failed"}, {"deprecated": {"v1beta1": {"failureReason": "CreateError", "failureMessage": "no such image"}}}],
    ids=["phase", "failure of the older generation"],
)
async def test_a_successor_that_says_it_will_never_work_is_seen_to_have_failed(status: dict[str, Any], world: World) -> None:
    """As a scan and a preservation see it: else a remediation waits for it until its time is over."""
    await CLUSTER_API.install(world.others)
    await CLUSTER_API.add_machine(world.others, "w-2")
    await CLUSTER_API.set_status(world.others, "w-2", status)
    await world.others.patch(CLUSTER_API.path("machines", "w-2"), {"metadata": {"ownerReferences": [OWNER]}})
    remediation = ClusterRemediation(CLUSTER, world.connection, world.looks, clock=world.clock)
    gone = ObjectRef(api_version=CLUSTER_API.api_version, kind="Machine", name="w-1", namespace=CLUSTER_API.namespace)
    found = await remediation.follow(
        FollowRequest(
            target=await world.pinned(),
            machine=gone,
            machine_uid="uid-of-one-that-is-gone",
            owner="MachineSet/set",
            since=now() - timedelta(hours=1),
        )
    )
    assert found.replacement is not None
    assert (found.replacement.machine, bool(found.replacement.failed)) == ("w-2", True)
