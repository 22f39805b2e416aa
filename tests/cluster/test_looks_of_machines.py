"""Looks of an episode at Machines: the check's, the Node's and its Cluster's are read live, before off and before on (S20, S21).

What holds for every look, whatever called for it, is in `acts/test_last_look.py`. Each test here speaks for OpenShift and for
Cluster API, unless only one of them has the thing; that Cluster API's older version is read alike, `test_snapshot.py` says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.isolation import ClusterIsolation
from activities.cluster.acts.targets import ClusterTarget
from activities.cluster.api.paths import MACHINES as MACHINE_KINDS
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.live.claims import Identities
from activities.cluster.watch.view import ClusterView
from activities.contracts.target import LicenceWanted, LookResult, LookVerdict, PinRequest, PinResult, Target
from activities.errors import ErrorType
from policy.episode.gate import Operation
from policy.episode.messages import FencingInput, Need, NeedKind, Pinned
from policy.fence.power import PowerAct
from policy.objects.marks import TERMINATING_ANNOTATION, TERMINATING_LABEL, claim_of, digest_of
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.values.machine_apis import MCM
from policy.values.object_refs import ObjectRef
from simulator.api.control.faults import Accident, Fault
from tests.cluster.acts.world import CLUSTER, NODE, NOW, World, empty_world, refused
from tests.cluster.builders import until
from tests.cluster.machines import (
    CLUSTER_API,
    CLUSTER_NAME,
    OPENSHIFT,
    OPERATORS,
    PAUSED,
    SKIP,
    System,
    machine_of,
    management_cluster,
)
from tests.cluster.scans import LIVE, OURS, WATCHES
from tests.cluster.test_preserving import DEFINITIONS, MACHINES, definition, machine
from tests.cluster.test_preserving import MACHINES as MCM_MACHINES
from tests.cluster.test_preserving import machine as mcm_machine
from tests.licensing import LICENCES

pytestmark = pytest.mark.timeout(10)

MACHINE = machine_of(NODE)
OF_NODES = Need(
    kind=NeedKind.CHECK,
    reason="ReadyUnknown",
    check=ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name="workers"),
)
PERSON = Need(kind=NeedKind.PERSON, reason="asked by ada")
RESTORES: dict[str, Any] = {"operation": Operation.GIVE_BACK}

GO, GONE, VETOED = LookVerdict.GO, LookVerdict.NEED_GONE, LookVerdict.VETOED
UNLICENSED = LookVerdict.NOT_LICENSED

Change = Callable[[World, System], Awaitable[Any]]

SYSTEMS = (OPENSHIFT, CLUSTER_API)
FAILED = {"failureReason": "Burnt", "failureMessage": "it burnt", "deprecated": {"v1beta1": {"failureMessage": "it burnt"}}}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """The sick node; its Machine and the check come with `licensed`."""
    async with empty_world() as opened:
        yield opened


async def licensed(world: World, system: System, *, said_by_the_node: bool = True, **check: Any) -> World:
    """Everything is as it should be for a destructive act: sick node, its Machine, check, cluster Lease, permit."""
    await system.install(world.others)
    await system.add_cluster(world.others)
    await world.add_node(annotations=system.ties(NODE) if said_by_the_node else None)
    await system.add_machine(world.others, MACHINE, node=NODE)
    await world.others.create(system.path("machinehealthchecks"), system.check(timeout=60, **check))
    await world.hold_cluster_lease()
    return world


def need_of(system: System) -> Need:
    return Need(kind=NeedKind.CHECK, reason="ReadyUnknown", check=system.check_ref())


async def look(world: World, system: System, **fields: Any) -> LookResult:
    return await world.target.last_look(await world.look(**({"need": need_of(system)} | fields)))


# One change each -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Since the target was pinned `change` has happened; the look gives that verdict, and says those words.

    said: whether the Node names its Machine; found: what the check finds of it, None for no matter.
    """

    title: str
    change: Change
    verdict: LookVerdict
    words: str = ""
    said: Sequence[bool] = (True,)
    systems: Sequence[System] = SYSTEMS
    fields: Mapping[str, Any] = field(default_factory=dict)
    found: bool | None = None

    def __str__(self) -> str:
        return self.title


def annotated(key: str, value: str = "", plural: str = "machines", name: str = MACHINE) -> Change:
    return lambda world, system: system.annotate(world.others, plural, name, {key: value})


def unread(path: str) -> Change:
    async def change(world: World, _: System) -> None:
        world.server.faults.add(Fault(accident=Accident.STATUS, path=path, user_agent=OURS))

    return change


def deleted(plural: str, name: str) -> Change:
    return lambda world, system: world.others.delete(system.path(plural, name))


async def _nothing(_: World, __: System) -> None:
    pass


async def _refers_elsewhere(world: World, system: System) -> None:
    await system.set_status(world.others, MACHINE, {"nodeRef": {"name": "another-node"}})


async def _a_lie(world: World, system: System) -> None:
    await system.add_machine(world.others, "the-real-one", node=NODE)
    await _refers_elsewhere(world, system)


async def _its_name_has_another(world: World, system: System) -> None:
    """server-1 has failed for good; the Node of its name is another machine's, which `new` stands for."""
    await system.add_machine(world.others, "new", node=NODE)
    await world.set_ready("True")
    await world.others.patch(system.path("machines", MACHINE), {"spec": {"providerID": "metal://server-1"}})
    await system.set_status(world.others, MACHINE, {"phase": "Failed", **FAILED})


async def _one_of_another_cluster(world: World, system: System) -> None:
    await system.add_machine(world.others, "a-machine-of-green", node=NODE, cluster="green")


async def _says_it_is_of_another_cluster(world: World, system: System) -> None:
    says = {"cluster.x-k8s.io/cluster-name": "green", "cluster.x-k8s.io/cluster-namespace": system.namespace}
    await world.change_node({"metadata": {"annotations": says}})


async def _a_second_is_selected(world: World, system: System) -> None:
    await system.add_machine(world.others, "a-second", node=NODE)
    await world.others.patch(system.path("machines", MACHINE), {"metadata": {"labels": {"role": "other"}}})


async def _a_second_has_failed(world: World, system: System) -> None:
    await world.set_ready("True")
    await system.add_machine(world.others, "a-second", node=NODE)
    await system.set_status(world.others, "a-second", {"phase": "Failed"})


async def _by_provider_id(world: World, system: System) -> None:
    """Nothing but the providerID ties Machine and Node."""
    await world.others.delete(system.path("machines", MACHINE))
    machine = system.machine("of-that-provider-id")
    machine["spec"]["providerID"] = str((await world.node())["spec"]["providerID"])
    await world.others.create(system.path("machines"), machine)


async def _twins(world: World, system: System) -> None:
    await _by_provider_id(world, system)
    spec = {"providerID": (await world.node())["spec"]["providerID"]}
    twin = {"metadata": {"name": "twin", "annotations": system.ties("twin")}, "spec": spec}
    await world.others.create("/api/v1/nodes", twin)


async def _cluster_paused(world: World, system: System) -> None:
    await world.others.patch(system.path("clusters", CLUSTER_NAME), {"spec": {"paused": True}})


async def _going(world: World, system: System) -> None:
    machine = system.path("machines", MACHINE)
    await world.others.patch(machine, {"metadata": {"finalizers": ["example.io/drain"]}})
    await world.others.delete(machine)


async def _preserved_but_for_the_node(world: World, system: System) -> None:
    await annotated(PRESERVE_ANNOTATION, "now")(world, system)
    await world.change_node({"metadata": {"annotations": {PRESERVE_ANNOTATION: "false"}}})


async def _no_selector(world: World, system: System) -> None:
    spec = system.bad_check()["spec"] | {"selector": {"matchLabels": None}}
    await world.others.patch(system.path("machinehealthchecks", "workers"), {"spec": spec})


BOTH, UNSAID = (True, False), (False,)
KEPT = annotated(PRESERVE_ANNOTATION, "now")
ON_ITS_MACHINE = f"{PRESERVE_ANNOTATION}=now on Machine {MACHINE}"
UNREAD = "its Machine"
THE_CLUSTER = f"/clusters/{CLUSTER_NAME}: 503"
CLUSTER_UNREAD = unread(f"/clusters/{CLUSTER_NAME}")
"""And nothing else: its Machines are in a namespace of that name."""
ON_FOR_PERSON = {**RESTORES, "need": PERSON}

WHOSE = [
    # S9: the Machine's own nodeRef has the last word; else a mistaken annotation would fence for another's need. And a scan goes
    # by it alone, and judges every Machine that refers to the Node: were a look to disagree, episodes would repeat without end.
    Case("all is as it should be", _nothing, GO, "nothing is in the way", said=BOTH, found=True),
    Case("S9 an annotation that names another's machine", _refers_elsewhere, GONE, "no longer selects"),
    Case("an annotation that lies hides no machine", _a_lie, GO),
    Case("S9 a namesake of another Cluster", _one_of_another_cluster, GO, said=UNSAID, systems=(CLUSTER_API,)),
    Case("S9 a node of another Cluster", _says_it_is_of_another_cluster, GONE, "no longer selects", UNSAID, (CLUSTER_API,)),
    Case("of two machines the one that is selected counts", _a_second_is_selected, GO),
    Case("of two machines one that has failed is enough", _a_second_has_failed, GO, systems=(OPENSHIFT,), found=True),
    Case("S9 a failed machine whose name another one has", _its_name_has_another, GONE, said=BOTH),
    Case("a machine that is found by its providerID", _by_provider_id, GO),
    Case("S9 of two nodes with one providerID neither", _twins, GONE, "no longer selects"),
]
NEEDS = [
    Case("a machine that is gone", deleted("machines", MACHINE), GONE, said=BOTH),
    Case("a check that was deleted", deleted("machinehealthchecks", "workers"), GONE, "deleted"),
]
VETOES = [
    # Whoever says "hands off" is obeyed in the instant before the act, however long ago the scan was.
    Case("a paused check", annotated(PAUSED, "", "machinehealthchecks", "workers"), VETOED, PAUSED, found=True),
    Case("a paused Cluster", _cluster_paused, VETOED, f"Cluster {CLUSTER_NAME}", systems=(CLUSTER_API,)),
    # As a scan admits nothing then: its Machines are on their way out, or the check is of another cluster now.
    Case("a Cluster that is gone", deleted("clusters", CLUSTER_NAME), VETOED, "there is no Cluster blue", systems=(CLUSTER_API,)),
    Case("a paused machine", annotated(PAUSED), VETOED, PAUSED, systems=(CLUSTER_API,), found=False),
    Case("a machine that is to be skipped", annotated(SKIP), VETOED, SKIP, systems=(CLUSTER_API,), found=False),
    Case("S27 preserved on the machine alone", KEPT, VETOED, ON_ITS_MACHINE),
    Case("S26 the node's word beats its machine's", _preserved_but_for_the_node, GO),
    Case("a machine that others delete", _going, VETOED, "the Machine is being deleted", systems=(OPENSHIFT,)),
    Case("a machine that others delete, to Cluster API", _going, VETOED, "Health check failed", systems=(CLUSTER_API,)),
]
DOUBTS = [
    Case("S20 a machine that cannot be read", unread("/machines"), UNLICENSED, UNREAD, said=BOTH),
    Case("S20 a Cluster that cannot be read", CLUSTER_UNREAD, UNLICENSED, THE_CLUSTER, systems=(CLUSTER_API,)),
    Case("S7 a check that cannot be read as written", _no_selector, UNLICENSED, "can no longer be read"),
]
BEFORE_ON = [
    Case("S21 it stays off", KEPT, VETOED, ON_ITS_MACHINE, fields=RESTORES),
    Case("S21 only its check knows of it", KEPT, VETOED, said=UNSAID, fields=RESTORES),
    Case("S21 goes before S17 where it cannot be read", unread("/machines"), UNLICENSED, UNREAD, fields=RESTORES),
    Case("S17 out of remediation is not down", annotated(SKIP), GO, systems=(CLUSTER_API,), fields=ON_FOR_PERSON),
]
CASES = [*WHOSE, *NEEDS, *VETOES, *DOUBTS, *BEFORE_ON]


@pytest.mark.parametrize(
    ("case", "system", "said"),
    [
        pytest.param(case, system, said, id=f"{case}-{system}{'' if said else '-unsaid'}")
        for case in CASES
        for system in case.systems
        for said in case.said
    ],
)
async def test_what_has_become_of_its_machine_is_seen_live(case: Case, system: System, said: bool, world: World) -> None:
    await licensed(world, system, said_by_the_node=said)
    if case.fields == RESTORES:
        await world.mark_as_ours(cordoned=True)
    target = await world.pinned()
    await case.change(world, system)
    result = await look(world, system, target=target, **case.fields)
    assert result.verdict is case.verdict, result.reason
    assert case.words in result.reason
    assert case.found in {None, result.seen.unhealthy}
    assert world.writes == 0


async def test_a_machine_of_that_name_that_was_made_anew_is_another_target(world: World) -> None:
    """S9: the uid of the Machine is pinned, too."""
    system = CLUSTER_API
    await licensed(world, system, template=False)
    await world.install_kinds()
    await world.add_template()
    request = FencingInput(cluster=CLUSTER, node=NODE, need=need_of(system))
    pinned: PinResult = await ActivityEnvironment().run(world.target.pin, PinRequest(wanted=request))
    target = replace(await world.pinned(), pinned=pinned.pinned)
    assert (await look(world, system, target=target)).verdict is GO
    await world.others.delete(system.path("machines", MACHINE))
    await system.add_machine(world.others, MACHINE, node=NODE)
    result = await look(world, system, target=target)
    assert result.verdict is LookVerdict.TARGET_CHANGED
    assert "Machine uid" in result.reason


async def test_a_machine_that_this_episode_deletes_is_left_to_no_other(world: World) -> None:
    """It has got stuck, and the next step of the ladder may be what ends it. The claim on the Node says who asked, and its label
    that it was us: a kubelet writes annotations (S41)."""
    system = OPENSHIFT
    await licensed(world, system)
    await _going(world, system)
    request = await world.look(need=need_of(system))
    ours, others = claim_of(NOW, request.target.incident), claim_of(NOW, "another")
    for said, confirmed, verdict in ((others, others, VETOED), (ours, others, VETOED), (ours, "", VETOED), (ours, ours, GO)):
        labels = {TERMINATING_LABEL: digest_of(confirmed) if confirmed else None}
        await world.change_node({"metadata": {"annotations": {TERMINATING_ANNOTATION: said}, "labels": labels}})
        assert (await world.target.last_look(request)).verdict is verdict
    await world.set_ready("True")
    assert (await world.target.last_look(request)).verdict is GONE


async def _starts_to_go(world: World, system: System) -> None:
    path = system.path("machines", MACHINE)
    await world.others.patch(path, {"metadata": {"finalizers": ["example.com/drain"]}})
    await world.others.delete(path)


async def _goes(world: World, system: System) -> None:
    await world.others.delete(system.path("machines", MACHINE))


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
@pytest.mark.parametrize(
    ("change", "node_goes", "verdict"),
    [
        (None, True, GO),
        (_starts_to_go, True, GONE),
        (_goes, True, GONE),
        (unread("/machines"), True, UNLICENSED),
        (KEPT, True, VETOED),
        (_starts_to_go, False, GO),
    ],
    ids=["the Node alone", "its Machine goes", "its Machine is gone", "unread", "its Machine is kept", "its Node stays"],
)
async def test_s9_what_was_switched_off_is_switched_on_as_long_as_its_machine_is_there(
    change: Change | None, node_goes: bool, verdict: LookVerdict, system: System, world: World
) -> None:
    """S9, S21: by its uid, since a Node that is gone names no Machine. A path is given back all the same."""
    await licensed(world, system)
    uid = (await world.others.get(system.path("machines", MACHINE)))["metadata"]["uid"]
    pinned = await world.pinned()
    target = replace(pinned, pinned=replace(pinned.pinned, machine_uids=(uid,)))
    if change is not None:
        await change(world, system)
    if node_goes:
        await world.others.delete(f"/api/v1/nodes/{NODE}")

    async def seen(act: PowerAct) -> LookResult:
        wanted = LicenceWanted(act=act, not_after=NOW)
        request = await world.look(target, need=OF_NODES, licenses=wanted, **RESTORES)
        found: LookResult = await ActivityEnvironment().run(world.target.last_look, request)
        return found

    found = await seen(PowerAct.ON)
    assert found.verdict is verdict, found.reason
    if verdict is GONE:
        assert "the Node was deleted, and its Machine" in found.reason
        assert (await seen(PowerAct.RESTORE_PATH)).verdict is GO


class TestUncordon:
    """S21: nobody uncordons what somebody wants kept, also where that stands on its Machine alone."""

    async def cordoned(self, world: World, system: System, *, said: bool = True, **mark: bool) -> None:
        await licensed(world, system, said_by_the_node=said)
        await world.change_node({"spec": {"unschedulable": True}})
        await world.mark_as_ours(**mark)

    @pytest.mark.parametrize("said", BOTH, ids=["its Node names it", "its Node does not"])
    @pytest.mark.parametrize(("change", "left"), [(KEPT, True), (_preserved_but_for_the_node, False)], ids=["kept", "not kept"])
    async def test_it_stays_cordoned_and_our_mark_goes(self, change: Change, left: bool, said: bool, world: World) -> None:
        system = CLUSTER_API
        await self.cordoned(world, system, said=said, cordoned=True)
        await change(world, system)
        result = await world.isolation.mark_schedulable(await world.restore())
        assert (f"left cordoned: the annotation {ON_ITS_MACHINE}" in result.detail) is left
        assert (await world.node())["spec"].get("unschedulable", False) is left
        assert await world.mark() is None

    @pytest.mark.parametrize(("provider_id", "left"), [("metal://rack-3/7", True), ("metal://rack-3/8", False)])
    async def test_what_is_said_on_a_machine_of_another_provider_id_leaves_no_cordon_of_ours(
        self, provider_id: str, left: bool, world: World
    ) -> None:
        """S9: it is found by its label alone. The name is another machine's by now, and that one is kept by nobody."""
        await world.add_node(unschedulable=True)
        await world.mark_as_ours(cordoned=True)
        await world.others.create(DEFINITIONS, definition())
        await world.others.create("/api/v1/namespaces", {"metadata": {"name": "shoot"}})
        await world.others.create(MACHINES, machine(**{PRESERVE_ANNOTATION: "now"}) | {"spec": {"providerID": provider_id}})
        result = await world.isolation.mark_schedulable(await world.restore())
        assert ("left cordoned" in result.detail) is left, result.detail
        assert (await world.node())["spec"].get("unschedulable", False) is left

    @pytest.mark.parametrize("ours", [True, False])
    async def test_a_machine_that_cannot_be_read_is_waited_for_where_a_cordon_is_ours(self, ours: bool, world: World) -> None:
        """S21 goes before S17: it is asked again until it can be."""
        await self.cordoned(world, OPENSHIFT, cordoned=ours)
        world.server.faults.add(Fault(accident=Accident.REFUSE, path="/machines", count=1))
        if ours:
            with refused(ErrorType.UNREACHABLE):
                await world.isolation.mark_schedulable(await world.restore())
            assert (await world.node())["spec"]["unschedulable"] is True
        assert (await world.isolation.mark_schedulable(await world.restore())).changed
        assert (("unschedulable" in (await world.node())["spec"]), await world.mark()) == (not ours, None)

    async def test_cluster_api_s_machines_are_read_where_they_are(self, world: World) -> None:
        system = CLUSTER_API
        async with management_cluster() as (_, manager, machines):
            await system.install(manager)
            await system.add_cluster(manager)
            await system.add_machine(manager, MACHINE, node=NODE)
            await system.annotate(manager, "machines", MACHINE, {PRESERVE_ANNOTATION: "now"})
            await world.add_node(annotations=system.ties(NODE), unschedulable=True)
            await world.mark_as_ours(cordoned=True)
            isolation = ClusterIsolation(
                ServedCluster(CLUSTER, world.connection, machines=machines, clock=world.clock, source=OPERATORS),
                world.looks,
                world.permits,
                LICENCES,
            )
            await isolation.mark_schedulable(await world.restore())
            assert (await world.node())["spec"]["unschedulable"] is True


# Under a check of Nodes ----------------------------------------------------------------------------------------------------


async def under_a_check_of_nodes(world: World, annotations: Mapping[str, str] | None = None) -> None:
    await world.install_kinds()
    await world.add_node(annotations=annotations)
    await world.add_check()
    await world.hold_cluster_lease()


async def test_a_machine_that_people_keep_out_is_a_veto(world: World) -> None:
    """S20: the annotations are Cluster API's, but whoever sets them means the machine, whatever calls for the act."""
    system, annotation = CLUSTER_API, SKIP
    await under_a_check_of_nodes(world, system.ties(NODE))
    assert (await look(world, system, need=OF_NODES)).verdict is GO, "no Machines are known"
    await system.install(world.others)
    await system.add_machine(world.others, MACHINE, node="another-node", annotations={annotation: ""})
    assert (await look(world, system, need=OF_NODES)).verdict is GO, "it is another node's"
    await system.set_status(world.others, MACHINE, {"nodeRef": {"name": NODE}})
    result = await look(world, system, need=OF_NODES)
    assert result.verdict is VETOED
    assert annotation in result.reason


@pytest.mark.parametrize("names_its_machine", [True, False], ids=["with its Machine", "with its Cluster alone"])
@pytest.mark.parametrize("need", [OF_NODES, PERSON], ids=["a check of nodes", "a person"])
@pytest.mark.parametrize(
    "change", [_cluster_paused, annotated(PAUSED, "", "clusters", CLUSTER_NAME)], ids=["field", "annotation"]
)
async def test_a_paused_cluster_is_a_veto_whatever_calls_for_the_act(
    change: Change, need: Need, names_its_machine: bool, world: World
) -> None:
    """S20: `clusterctl move` pauses it, and copies its Machines meanwhile. What restores is not stopped by it (S17)."""
    system = CLUSTER_API
    ties = (
        system.ties(NODE) if names_its_machine else {key: word for key, word in system.ties(NODE).items() if "machine" not in key}
    )
    await under_a_check_of_nodes(world, ties)
    await system.install(world.others)
    await system.add_cluster(world.others)
    if names_its_machine:
        await system.add_machine(world.others, MACHINE, node=NODE)
    assert (await look(world, system, need=need, operation=Operation.REMOVE)).verdict is GO
    await change(world, system)
    for operation in (Operation.REMOVE, Operation.DISRUPT, Operation.HAND_OVER, Operation.DELETE_NODE):
        result = await look(world, system, need=need, operation=operation)
        assert result.verdict is VETOED, operation
        assert f"Cluster {CLUSTER_NAME}" in result.reason
    await world.mark_as_ours(cordoned=True)
    assert (await look(world, system, need=need, **RESTORES)).verdict is GO


async def test_a_cluster_that_cannot_be_read_licenses_nothing_under_a_check_of_nodes(world: World) -> None:
    """S20."""
    system = CLUSTER_API
    await under_a_check_of_nodes(world, system.ties(NODE))
    await system.install(world.others)
    await system.add_cluster(world.others)
    await system.add_machine(world.others, MACHINE, node=NODE)
    await CLUSTER_UNREAD(world, system)
    result = await look(world, system, need=OF_NODES, operation=Operation.REMOVE)
    assert (result.verdict, THE_CLUSTER in result.reason) == (UNLICENSED, True), result.reason


async def test_the_cluster_of_a_machine_without_a_node_is_asked_as_well(world: World) -> None:
    """S20: a person names the Machine."""
    system, name = CLUSTER_API, f"machine/{CLUSTER_API.namespace}/{MACHINE}"
    await under_a_check_of_nodes(world)
    await system.install(world.others)
    await system.add_cluster(world.others)
    await system.add_machine(world.others, MACHINE)
    target = replace(await world.pinned(), pinned=Pinned(node=name, uid=""))
    assert (await look(world, system, need=PERSON, target=target, operation=Operation.REMOVE)).verdict is GO
    await _cluster_paused(world, system)
    result = await look(world, system, need=PERSON, target=target, operation=Operation.REMOVE)
    assert (result.verdict, f"Cluster {CLUSTER_NAME}" in result.reason) == (VETOED, True)


@pytest.mark.parametrize("system", [OPENSHIFT, CLUSTER_API], ids=str)
async def test_s20_a_machine_is_not_acted_on_behind_the_back_of_the_node_that_a_scan_ties_to_it(
    system: System, world: World
) -> None:
    """It names no Node, and one has its providerID: what people say on that Node is asked by its name alone, and any client of
    Temporal may begin an episode by the Machine's."""
    await under_a_check_of_nodes(world)
    await world.change_node({"metadata": {"annotations": {"nodewarden.io/hold": "ada"}}})
    await system.install(world.others)
    await system.add_cluster(world.others)
    await system.add_machine(world.others, MACHINE)
    await world.others.patch(
        system.path("machines", MACHINE), {"spec": {"providerID": (await world.node())["spec"]["providerID"]}}
    )
    await system.set_status(world.others, MACHINE, {"phase": "Failed", **FAILED})
    await world.others.create(system.path("machinehealthchecks"), system.check(timeout=60))
    need = Need(kind=NeedKind.CHECK, reason="Failed", check=system.check_ref())
    pinned = Pinned(node=f"machine/{system.namespace}/{MACHINE}", uid="")
    target = replace(await world.pinned(), pinned=pinned)
    seen = await look(world, system, need=need, target=target, operation=Operation.REMOVE)
    assert seen.verdict is GONE, seen.reason


BEHIND_ITS_BACK = [
    Case("kept", KEPT, VETOED, ON_ITS_MACHINE),
    Case("skipped", annotated(SKIP), VETOED, SKIP, systems=(CLUSTER_API,)),
    Case("its Cluster is paused", _cluster_paused, VETOED, f"Cluster {CLUSTER_NAME}", systems=(CLUSTER_API,)),
    Case("being deleted", _going, VETOED, f"Machine {MACHINE} is being deleted"),
    Case("unread", unread("/machines"), UNLICENSED, UNREAD),
]


@pytest.mark.parametrize("watched", [True, False], ids=["a worker that watches", "a young one"])
@pytest.mark.parametrize("need", [OF_NODES, PERSON], ids=["check of nodes", "person"])
@pytest.mark.parametrize(
    ("case", "system"),
    [pytest.param(case, system, id=f"{case}-{system}") for case in BEHIND_ITS_BACK for system in case.systems],
)
async def test_s20_s21_a_node_that_does_not_name_its_machine_is_not_acted_on_behind_its_back(
    case: Case, system: System, need: Need, watched: bool, world: World
) -> None:
    """It was made anew a moment ago, or its kubelet removed the annotation. The machine is repaired as long as nothing is against
    it: pin and look have one answer which Machines are the Node's. A person may act on one that is being deleted."""
    await under_a_check_of_nodes(world)
    await world.add_template()
    await system.install(world.others)
    await system.add_cluster(world.others)
    await system.add_machine(world.others, MACHINE, node=NODE)
    async with looking(world, watched=watched) as target:
        wanted = FencingInput(cluster=CLUSTER, node=NODE, need=need)
        pinned: PinResult = await ActivityEnvironment().run(target.pin, PinRequest(wanted=wanted))
        uid = (await world.others.get(system.path("machines", MACHINE)))["metadata"]["uid"]
        assert pinned.pinned.machine_uids == (uid,)
        request = await world.look(replace(await world.pinned(), pinned=pinned.pinned), need=need, operation=Operation.REMOVE)
        found = await target.last_look(request)
        assert found.verdict is GO, found.reason
        await case.change(world, system)
        found = await target.last_look(request)
        may = need is PERSON and case.change is _going
        assert found.verdict is (GO if may else case.verdict), found.reason
        assert may or case.words in found.reason


@pytest.mark.parametrize("watched", [True, False], ids=["a worker that watches", "a young one"])
@pytest.mark.parametrize("system", SYSTEMS, ids=str)
async def test_s21_nor_is_a_node_that_names_a_machine_which_has_no_node_yet(system: System, watched: bool, world: World) -> None:
    """Its kubelet may write any name."""
    await under_a_check_of_nodes(world, system.ties("node-9"))
    await system.install(world.others)
    await system.add_machine(world.others, machine_of("node-9"))
    async with looking(world, watched=watched) as target:
        assert (await target.last_look(await world.look(need=OF_NODES))).verdict is GO
    await system.add_machine(world.others, MACHINE, node=NODE, annotations={PRESERVE_ANNOTATION: "now"})
    async with looking(world, watched=watched) as target:
        assert (await target.last_look(await world.look(need=OF_NODES))).verdict is VETOED


@pytest.mark.parametrize(("change", "verdict"), [(_nothing, GO), (KEPT, VETOED), (unread("/machines"), UNLICENSED)])
@pytest.mark.parametrize("watched", [True, False], ids=["a worker that watches", "a young one"])
@pytest.mark.parametrize("system", SYSTEMS, ids=str)
async def test_s21_nor_is_it_switched_on(
    system: System, watched: bool, change: Change, verdict: LookVerdict, world: World
) -> None:
    await under_a_check_of_nodes(world)
    await world.mark_as_ours(cordoned=True)
    await system.install(world.others)
    await system.add_machine(world.others, MACHINE, node=NODE)
    async with looking(world, watched=watched) as target:
        await change(world, system)
        assert (await target.last_look(await world.look(need=OF_NODES, **RESTORES))).verdict is verdict


@pytest.mark.parametrize("says", [True, False], ids=["its Node names it", "its Node does not"])
@pytest.mark.parametrize("system", [None, *SYSTEMS], ids=str)
async def test_what_the_watch_knows_is_read_anew_and_nothing_else(system: System | None, says: bool, world: World) -> None:
    """Without Machine APIs no request is made, where the Node names its Machine none more."""
    await under_a_check_of_nodes(world, system.ties(NODE) if system is not None and says else None)
    if system is not None:
        await system.install(world.others)
        await system.add_machine(world.others, MACHINE, node=NODE)
    async with looking(world, watched=True) as target:
        paths = list[str]()
        world.server.requests.listeners.append(lambda _method, path, _agent, _status: paths.append(path))
        assert (await target.last_look(await world.look(need=PERSON))).verdict is GO
    asked = [each for each in paths if "/machines" in each]
    assert asked == ([system.path("machines", MACHINE)] if system is not None else [])


@asynccontextmanager
async def looking(world: World, *, watched: bool) -> AsyncIterator[ClusterTarget]:
    """A worker that has seen all Nodes and Machines, or one that has no watch yet."""
    served = ServedCluster(CLUSTER, world.connection, own_node="node-1", clock=world.clock, source=OPERATORS)
    if not watched:
        yield ClusterTarget(served, world.permits, LICENCES)
        return
    view = ClusterView(world.connection, limits=LIVE, watch_limits=WATCHES, source=OPERATORS)
    view.watches.start()
    try:
        await until(lambda: view.follow_claims() and world.connection.lacks(MACHINE_KINDS[MCM]))
        yield ClusterTarget(served, world.permits, LICENCES, identities=Identities(served.connections, view))
    finally:
        await view.close()


class TestAMachineOfMachineControllerManager:
    """S21, S27: no Node names it, so that it is found by the label that it bears."""

    @pytest.fixture
    async def licensed(self, world: World) -> World:
        await world.others.create(DEFINITIONS, definition())
        await world.others.create("/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "shoot"}})
        await world.others.create(MCM_MACHINES, mcm_machine())
        await under_a_check_of_nodes(world)
        return world

    async def look(self, world: World, **changes: Any) -> LookResult:
        return await world.target.last_look(await world.look(**({"need": OF_NODES} | changes)))

    async def change(self, world: World, **metadata: Any) -> None:
        await world.others.patch(f"{MCM_MACHINES}/w-7", {"metadata": metadata})

    async def test_a_word_on_it_alone_is_heard(self, licensed: World) -> None:
        assert (await self.look(licensed)).verdict is GO
        await self.change(licensed, annotations={PRESERVE_ANNOTATION: "now"})
        assert (await self.look(licensed, **RESTORES)).verdict is VETOED
        result = await self.look(licensed)
        assert result.verdict is VETOED
        assert result.reason == f"the annotation {PRESERVE_ANNOTATION}=now on Machine w-7 preserves the node"
        await self.change(licensed, labels={"node": "another-node"})
        assert (await self.look(licensed)).verdict is GO, "it is another node's"
        await self.change(licensed, labels={"node": NODE})
        await licensed.change_node({"metadata": {"annotations": {PRESERVE_ANNOTATION: "false"}}})
        assert (await self.look(licensed)).verdict is GO, "the word on the node beats it"

    async def test_a_server_without_the_kind_is_asked_for_none_until_it_comes(self, world: World) -> None:
        """S21: which kinds there are is watched, and while that is out of reach they are asked for."""
        await under_a_check_of_nodes(world)

        paths = list[str]()
        world.server.requests.listeners.append(lambda _method, path, _agent, _status: paths.append(path))

        async def asked() -> int:
            paths.clear()
            assert (await self.look(world)).verdict is GO
            return sum("/machine.sapcloud.io/" in each for each in paths)

        assert await asked() == 1
        view = ClusterView(world.connection)
        view.watches.start()
        try:
            await until(lambda: world.connection.lacks(MACHINE_KINDS[MCM]))
            assert await asked() == 0
            await world.others.create(DEFINITIONS, definition())
            await world.others.create("/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "shoot"}})
            await world.others.create(MCM_MACHINES, mcm_machine())
            await self.change(world, annotations={PRESERVE_ANNOTATION: "now"})
            assert (await self.look(world)).verdict is VETOED
            await world.others.delete(f"{DEFINITIONS}/machines.machine.sapcloud.io")
            await until(lambda: world.connection.lacks(MACHINE_KINDS[MCM]))
        finally:
            await view.watches.stop()
        assert await asked() == 1

    async def test_s46_a_word_on_one_that_does_not_count_is_none(self, licensed: World) -> None:
        """A tenant's Machine with that label: else it would keep each node from each repair."""
        await self.change(licensed, annotations={PRESERVE_ANNOTATION: "now"})
        served = ServedCluster(CLUSTER, licensed.connection, clock=licensed.clock)
        target = ClusterTarget(served, licensed.permits, LICENCES)
        request = await licensed.look(need=OF_NODES, **RESTORES)
        assert (await target.last_look(await licensed.look(need=OF_NODES))).verdict is GO
        await licensed.others.delete(f"/api/v1/nodes/{NODE}")
        assert PRESERVE_ANNOTATION not in (await target.last_look(request)).reason, "nor once the Node is gone"
        assert PRESERVE_ANNOTATION in (await licensed.target.last_look(request)).reason, "else this test would see nothing"

    async def test_where_it_cannot_be_read_nothing_is_done(self, licensed: World) -> None:
        licensed.server.faults.add(Fault(accident=Accident.STATUS, path="/machines", user_agent=OURS))
        result = await self.look(licensed)
        assert (result.verdict, UNREAD in result.reason) == (UNLICENSED, True)


# Elsewhere -----------------------------------------------------------------------------------------------------------------


async def test_the_check_and_the_machine_are_read_in_the_management_cluster(world: World) -> None:
    """The Node and the licence are read from its own."""
    system = CLUSTER_API
    async with management_cluster() as (management, manager, machines):
        await system.install(manager)
        await system.add_cluster(manager)
        await system.add_machine(manager, MACHINE, node=NODE)
        await manager.create(system.path("machinehealthchecks"), system.check(timeout=60))
        await world.add_node(annotations=system.ties(NODE))
        await world.hold_cluster_lease()
        target = ClusterTarget(
            ServedCluster(
                CLUSTER,
                world.connection,
                machines=machines,
                clock=world.clock,
                source=OPERATORS,
            ),
            world.permits,
            LICENCES,
        )
        request = await world.look(need=need_of(system))
        assert (await target.last_look(request)).verdict is GO
        await system.annotate(manager, "machines", MACHINE, {SKIP: ""})
        assert (await target.last_look(request)).verdict is VETOED
        await management.stop()
        result = await target.last_look(request)
        assert result.verdict is UNLICENSED
        assert "could not be read" in result.reason
        assert "its health check" in result.reason


@pytest.mark.parametrize(
    ("node", "annotations", "expected"),
    [("", {}, (GO, "")), ("", {PRESERVE_ANNOTATION: "now"}, (VETOED, "preserve")), (NODE, {}, (UNLICENSED, f"has Node/{NODE}"))],
    ids=["alone", "preserved", "it has got a Node"],
)
async def test_a_machine_that_a_person_names_by_itself_is_looked_at(
    node: str, annotations: dict[str, str], expected: tuple[LookVerdict, str], world: World
) -> None:
    """S15, S20, S21: its own words hold, and one that has a Node is not acted on behind that Node's back."""
    system = CLUSTER_API
    await system.install(world.others)
    await system.add_cluster(world.others)
    await system.add_machine(world.others, MACHINE, node=node, annotations=annotations)
    await world.hold_cluster_lease()
    pinned = Pinned(node=f"machine/{system.namespace}/{MACHINE}", uid="")
    target = Target(cluster=CLUSTER, pinned=pinned, incident="i", kind="Remediation", workflow_id="w", run_id="r")
    seen = await world.target.last_look(await world.look(target, need=PERSON, operation=Operation.REMOVE))
    verdict, words = expected
    assert (seen.verdict, words in seen.reason) == (verdict, True), seen.reason
