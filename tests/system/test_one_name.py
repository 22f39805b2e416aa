"""Two clusters whose workers are told one name, on one Temporal: as the chart does it that is installed twice as it is."""

from __future__ import annotations

from policy.episode.messages import Outcome
from simulator.resources import LEASES, NODES
from tests.system.fixtures import MakeSystem


async def test_a_fencing_goes_through_in_the_cluster_that_the_scanner_knows(make_system: MakeSystem) -> None:
    """S9, S32, S38, S44: Nodes have the same names in both. A worker of the other one does nothing, and says why."""
    ours = await make_system(nodes=3)
    await ours.start_worker()
    await ours.apply_policy()
    await ours.start_scanner()
    theirs = await make_system(nodes=3, namespace=ours.namespace)
    stranger = await theirs.start_worker()
    await theirs.until(lambda: stranger.log.exists() and "serving task queue cluster." in stranger.tail(), "it polls")
    before = ours.break_node("node-2")
    result = await ours.ended(before)
    assert result.outcome is Outcome.RECOVERED, result
    assert await ours.judge(before, result) == []
    assert "two clusters need two names" in stranger.tail()
    nodes = (await theirs.client.list(NODES.path()))["items"]
    assert [node for node in nodes if "nodewarden.io/episode" in node["metadata"].get("annotations", {})] == []
    assert "nodewarden" not in {lease["metadata"]["name"] for lease in (await theirs.client.list(LEASES.path()))["items"]}
