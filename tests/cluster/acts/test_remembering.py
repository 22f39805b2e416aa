"""What is remembered of a remediation: on both objects of a machine, and read from the one that the deciding check looks at."""

from __future__ import annotations

from dataclasses import replace

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.remediation import ClusterRemediation
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.remediation import RemediationPin, RememberRequest
from activities.contracts.target import Target
from policy.episode.messages import Need, NeedKind, RemediationInput
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION as MEMORY
from policy.values.object_refs import ObjectRef
from simulator.resources import NODES
from tests.cluster.acts.world import CLUSTER, NODE, World, our_mark
from tests.cluster.machines import CLUSTER_API, machine_of

MACHINE = CLUSTER_API.machine_ref(machine_of(NODE))
MACHINE_PATH = CLUSTER_API.path("machines", machine_of(NODE))

OLD = "an old record"
NEW = "a new record"


@pytest.fixture
async def remediation(world: World) -> ClusterRemediation:
    await CLUSTER_API.install(world.others)
    await world.hold_cluster_lease()
    await CLUSTER_API.add_machine(world.others, machine_of(NODE), node=NODE)
    names = {"cluster.x-k8s.io/machine": machine_of(NODE), "cluster.x-k8s.io/cluster-namespace": CLUSTER_API.namespace}
    await world.change_node({"metadata": {"annotations": names}})
    return ClusterRemediation(ServedCluster(CLUSTER, world.connection, own_node="node-1", clock=world.clock), world.looks)


async def remembered(world: World) -> tuple[str, str]:
    """What the Machine and the Node say, "" where one says nothing."""
    machine = await world.others.get(MACHINE_PATH)
    return tuple(each["metadata"].get("annotations", {}).get(MEMORY, "") for each in (machine, await world.node()))  # type: ignore[return-value]


async def asked(world: World, memory: str = NEW, target: Target | None = None) -> RememberRequest:
    uid = (await world.others.get(MACHINE_PATH))["metadata"]["uid"]
    return RememberRequest(target=target or await world.pinned(), memory=memory, machine=MACHINE, machine_uid=uid)


async def pinned(world: World, remediation: ClusterRemediation, memory: str, machine: ObjectRef | None) -> RemediationPin:
    """As the scanner starts an episode: for a check of Nodes without a Machine, for one of Machines with it."""
    request = RemediationInput(
        cluster=CLUSTER,
        node=NODE,
        machine=machine,
        need=Need(kind=NeedKind.PERSON, reason="a test asks"),
        strategies=("reboot=10m",),
        memory=memory,
    )
    pin: RemediationPin = await ActivityEnvironment().run(remediation.pin, request)
    assert pin.machine == MACHINE
    return pin


async def test_a_remediation_learns_what_a_terminated_episode_has_left(world: World, remediation: ClusterRemediation) -> None:
    """S34, S35: before its own mark stands, which would hide it from whoever pins later."""
    await world.put_mark(replace(our_mark(paths=("fence_brocade://switch-1/2",)), incident="incident-0"))
    found = await pinned(world, remediation, "", None)
    assert (found.adopted_incident, found.adopted_paths) == ("incident-0", ("fence_brocade://switch-1/2",))


@pytest.mark.parametrize(("skips", "steps"), [(False, []), (True, ["reboot"])])
async def test_a_person_who_names_a_step_that_cannot_be_is_told_before_any_is_begun(
    world: World, remediation: ClusterRemediation, *, skips: bool, steps: list[str]
) -> None:
    """S44: it is not dropped in silence, and the next one begun instead."""
    need, named = Need(kind=NeedKind.PERSON, reason="a test asks"), ("external", "reboot")
    wanted = RemediationInput(cluster=CLUSTER, node=NODE, need=need, strategies=named, skip_impossible=skips)
    pin: RemediationPin = await ActivityEnvironment().run(remediation.pin, wanted)
    assert [step.name.partition("=")[0] for step in pin.ladder] == steps
    assert ("not every step can be carried out: external" in pin.refused) is not skips


async def test_it_is_on_the_machine_and_on_the_node(world: World, remediation: ClusterRemediation) -> None:
    """A check of Nodes knows no Machines, and what is on the Node alone goes with it."""
    assert (await remediation.remember(await asked(world))).changed
    assert await remembered(world) == (NEW, NEW)
    assert not (await remediation.remember(await asked(world))).changed


@pytest.mark.parametrize("before", [("", ""), (OLD, ""), (OLD, "an older one")])
async def test_what_was_noted_of_an_attempt_that_never_happened_is_put_back(
    before: tuple[str, str], world: World, remediation: ClusterRemediation
) -> None:
    """S28: to what either object said when the target was pinned, or to nothing."""
    values = [{"metadata": {"annotations": {MEMORY: each or None}}} for each in before]
    await world.others.patch(MACHINE_PATH, values[0])
    await world.change_node(values[1])
    found = await pinned(world, remediation, before[1], None)
    assert found.remembers == before
    await remediation.remember(await asked(world))
    machine, node = found.remembers
    back = replace(await asked(world, memory=machine), on_node=node, instead_of=NEW)
    await remediation.remember(back)
    assert await remembered(world) == before
    assert not (await remediation.remember(back)).changed


async def test_what_others_have_written_since_is_not_put_back(world: World, remediation: ClusterRemediation) -> None:
    await remediation.remember(await asked(world))
    await world.change_node({"metadata": {"annotations": {MEMORY: "of others"}}})
    await remediation.remember(replace(await asked(world, memory=""), instead_of=NEW))
    assert await remembered(world) == ("", "of others")


async def test_a_check_of_nodes_goes_by_the_node_and_one_of_machines_by_the_machine(
    world: World, remediation: ClusterRemediation
) -> None:
    """The record of an earlier episode on the other object refuses nothing."""
    await world.others.patch(MACHINE_PATH, {"metadata": {"annotations": {MEMORY: OLD}}})
    assert not (await pinned(world, remediation, "", None)).refused
    assert not (await pinned(world, remediation, OLD, MACHINE)).refused
    await world.others.patch(NODES.path(NODE), {"metadata": {"annotations": {MEMORY: NEW}}})
    assert not (await pinned(world, remediation, NEW, None)).refused


@pytest.mark.parametrize("machine", [None, MACHINE], ids=["of-nodes", "of-machines"])
async def test_what_was_remembered_since_the_scan_is_decided_anew(
    machine: ObjectRef | None, world: World, remediation: ClusterRemediation
) -> None:
    await remediation.remember(await asked(world))
    refused = (await pinned(world, remediation, OLD, machine)).refused
    assert f"{MEMORY} has changed since the scan" in refused
