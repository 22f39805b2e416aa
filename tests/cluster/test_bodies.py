"""What there is of a target that steps can be taken about, as a person who plans is told."""

from __future__ import annotations

import pytest

from activities.cluster.acts.bodies import body_of
from activities.cluster.api.connection import ClusterConnection
from policy.remediation.ladder import Body
from simulator.client import ApiClient
from tests.cluster.builders import NODES, node
from tests.cluster.machines import SYSTEMS, System, machine_of

pytestmark = pytest.mark.timeout(10)


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
async def test_a_node_is_read_with_its_machine_and_whoever_owns_that(
    system: System, person: ApiClient, connection: ClusterConnection
) -> None:
    await system.install(person)
    await system.fleet(person, 1)
    await system.add_machine(person, "never-came")
    owner = {"apiVersion": "x.io/v1", "kind": "MachineSet", "name": "set", "uid": "u", "controller": True}
    for machine in (machine_of("node-0"), "never-came"):
        await person.patch(system.path("machines", machine), {"metadata": {"ownerReferences": [owner]}})
    assert await body_of("node-0", connection, connection) == Body(has_node=True, phase="Running", owner="MachineSet/set")
    alone = await body_of(f"machine/{system.namespace}/never-came", connection, connection)
    assert alone == Body(has_node=False, phase="Provisioned", owner="MachineSet/set")


async def test_a_node_of_no_machine_has_only_itself_and_what_is_not_there_nothing(
    person: ApiClient, connection: ClusterConnection
) -> None:
    await person.create(NODES, node("node-0"))
    assert await body_of("node-0", connection, connection) == Body(has_node=True)
    for name in ("node-9", "machine/default/w-1", "machine/w-1"):
        assert await body_of(name, connection, connection) is None
