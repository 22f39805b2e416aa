"""The last look: every reason not to act, each seen live, and no act on a guess (S20).

What each reason weighs for which act is `tests/policy/episode/test_gate.py`; here, that it is read, and read live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.freeing import ClusterFreeing
from activities.cluster.acts.targets import ClusterTarget
from activities.cluster.api.paths import CONFIG_MAPS, FENCING_TEMPLATES, NAMESPACES
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.live import claims, last_look
from activities.cluster.live.claims import MOST_ASKED, MOST_READ, Identities, claimed_by
from activities.cluster.live.last_look import LastLook
from activities.cluster.live.plans import why_not_wanted
from activities.cluster.watch.view import ClusterView
from activities.contracts.power import PowerRequest
from activities.contracts.target import Configured, LicenceWanted, LookResult, LookVerdict
from activities.errors import ErrorType
from policy.checks.fence_policies import FencePolicies, PolicySource
from policy.checks.verdict import JudgedTarget
from policy.episode.gate import LOOKED_AT, Operation
from policy.episode.messages import Kind, Need, NeedKind, Pinned
from policy.episode.modes import ClusterModes
from policy.episode.node_action import NodeActionSpec, SealedCommand, Verb
from policy.fence.plan import PowerDevice
from policy.fence.power import RESTORING, PowerAct
from policy.objects.machines import MachineView
from policy.objects.nodes import PRESERVE_ANNOTATION, NodeView
from policy.preservation.machine_snapshot import CONDITION, TAINT
from policy.preservation.requests import ISOLATE_ANNOTATION
from policy.remediation.ladder import ESCALATION_ANNOTATION
from policy.values.mode import MODE_KEY, MODE_LABELS, Mode
from policy.values.object_refs import ObjectRef
from simulator.api.control.faults import Accident, Fault
from simulator.client import ApiError
from simulator.objects import micro_timestamp, timestamp
from simulator.resources import EVENTS, LEASES, NODES
from tests.cluster.acts.world import (
    CHECK_REF,
    CHECKS,
    CLUSTER,
    ENDPOINT,
    HOLDER,
    INCIDENT,
    NODE,
    NOW,
    TEMPLATE_NAMESPACE,
    TEMPLATES,
    World,
    our_mark,
    refused,
)
from tests.cluster.builders import until
from tests.cluster.machines import CLUSTER_API, OPENSHIFT, OPERATORS, System
from tests.cluster.scans import LIVE, WATCHES
from tests.licensing import LICENCES as KEPT_LICENCES
from tests.policy.builders import a_cluster_config, a_policy
from tests.policy.builders import node as a_view

CHECK_NEED = Need(kind=NeedKind.CHECK, reason="ReadyUnknown", check=CHECK_REF)
HOLD = "nodewarden.io/hold"
OURS = "nodewarden/"
ANOTHER = "temporal.other:7233/default"
RESTORES: dict[str, Any] = {"operation": Operation.GIVE_BACK}

GO, GONE, VETOED = LookVerdict.GO, LookVerdict.NEED_GONE, LookVerdict.VETOED
UNLICENSED, CHANGED = LookVerdict.NOT_LICENSED, LookVerdict.TARGET_CHANGED

Change = Callable[[World], Awaitable[Any]]

INSTANCE = {"region": "us-east-1", "instance": "i-0123abcd"}
EC2: dict[str, Any] = {"driver": "ec2", "nodeParameters": {NODE: INSTANCE}}
OF_A_CLOUD: dict[str, Any] = {
    "power": [EC2],
    "isolation": [
        EC2 | {"method": "detach-volumes"},
        EC2 | {"method": "quarantine", "parameters": {"quarantine-group": "sg-0123"}},
    ],
    "recovery": [EC2 | {"method": "lift-quarantine"}],
}


def of_a_cloud(pinned: Pinned) -> Pinned:
    """With the device of that template."""
    endpoint = f"ec2://{INSTANCE['region']}/{INSTANCE['instance']}"
    return replace(pinned, endpoints=(endpoint,), levels=((endpoint,),))


RECREATED: Change = lambda world: world.recreate_node()  # noqa: E731
CHECK_GOES: Change = lambda world: world.others.delete(CHECKS.path("workers"))  # noqa: E731


@pytest.fixture
async def licensed(world: World) -> World:
    """Everything is as it should be for a destructive act: sick node, check, cluster Lease, permit."""
    await world.install_kinds()
    await world.add_check(duration="60s")
    await world.hold_cluster_lease()
    return world


async def look(world: World, **fields: Any) -> LookResult:
    fields.setdefault("need", CHECK_NEED)
    return await world.target.last_look(await world.look(**fields))


async def test_go_when_all_is_as_it_should_be(licensed: World) -> None:
    result = await look(licensed)
    assert result.verdict is LookVerdict.GO
    assert result.at == NOW
    assert result.seen.unhealthy
    assert result.seen.boot_id == "boot-1"
    assert licensed.permits.asked == [(CLUSTER, NODE, INCIDENT)]
    assert licensed.writes == 0


async def test_everything_is_read_side_by_side(licensed: World) -> None:
    """The look must be short: what it saw first must still be true when it saw the last."""
    request = await licensed.look(need=CHECK_NEED)
    waiting = 0
    together = asyncio.Event()
    read = licensed.connection.get_bytes

    async def once_all_wait(path: str, **options: Any) -> bytes:
        nonlocal waiting
        waiting += 1
        if waiting == 4:  # node, check, node lease, cluster Lease
            together.set()
        await asyncio.wait_for(together.wait(), timeout=5)
        return await read(path, **options)

    licensed.connection.get_bytes = once_all_wait  # type: ignore[method-assign]
    assert (await licensed.target.last_look(request)).verdict is LookVerdict.GO


@pytest.mark.parametrize("operation", sorted(set(Operation) - LOOKED_AT))
async def test_s20_a_look_is_refused_about_what_it_does_not_read_for(operation: Operation, licensed: World) -> None:
    """The gate takes what nobody has read for what does not stand against it."""
    with refused(ErrorType.INVALID_CONFIG, f"operation: {operation}"):
        await look(licensed, operation=operation)


# What has become of it since it was pinned ---------------------------------------------------------------------------------


def annotated(**words: str | None) -> Change:
    return lambda world: world.change_node({"metadata": {"annotations": words}})


def of_the_check(spec: dict[str, Any]) -> Change:
    return lambda world: world.others.patch(CHECKS.path("workers"), {"spec": spec})


def refusing(path: str, before: Change | None = None) -> Change:
    async def change(world: World) -> None:
        if before is not None:
            await before(world)
        world.server.faults.add(Fault(accident=Accident.REFUSE, path=path))

    return change


def unconfirmed(before: Change | None = None) -> Change:
    """Nobody answers who has a permit."""

    async def change(world: World) -> None:
        if before is not None:
            await before(world)
        world.permits.error = RuntimeError("connection refused")

    return change


async def _nothing(_: World) -> None:
    pass


async def _twin(world: World) -> None:
    twin = await world.add_node("twin")
    await world.others.delete(NODES.path("twin"))
    twin["metadata"] = {"name": "twin"}
    await world.others.create(NODES.path(), {**twin, "spec": {"providerID": "metal://rack-3/7"}})


async def _check_is_going(world: World) -> None:
    await world.others.patch(CHECKS.path("workers"), {"metadata": {"finalizers": ["example.io/keep"]}})
    await CHECK_GOES(world)


async def _without_permit(world: World) -> None:
    world.permits.answer = (False, "the permit was given back")


async def _well_without_licence(world: World) -> None:
    await world.set_ready("True")
    await world.hold_cluster_lease(ANOTHER)
    await _without_permit(world)


async def _ours_under_anothers_lease(world: World) -> None:
    await world.mark_as_ours()
    await world.hold_cluster_lease(ANOTHER)


async def _nothing_but_our_mark(world: World) -> None:
    await refusing("kube-system/leases/|nodehealthchecks/", unconfirmed(lambda w: w.mark_as_ours()))(world)


WELL: Change = lambda world: world.set_ready("True")  # noqa: E731 - as the rows below have them
NO_LEASE: Change = lambda world: world.others.delete(LEASES.path("nodewarden", namespace="kube-system"))  # noqa: E731


@dataclass(frozen=True)
class Case:
    """Since the target was pinned `change` has happened; the look with those fields gives that verdict, and says those words."""

    title: str
    change: Change
    verdict: LookVerdict
    words: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    observed: Mapping[str, bool] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.title


def lease(holder: str = HOLDER, *, age: int = 0) -> Change:
    return lambda world: world.hold_cluster_lease(holder, renewed=NOW - timedelta(seconds=age))


def marked(**fields: Any) -> Change:
    return lambda world: world.put_mark(replace(our_mark(), **fields))


UNSELECTED: Change = lambda world: world.change_node({"metadata": {"labels": {"node-role.kubernetes.io/worker": None}}})  # noqa: E731
ANEW: Change = lambda world: world.set_ready("Unknown", since=NOW - timedelta(seconds=20))  # noqa: E731
GOES: Change = lambda world: world.delete_node()  # noqa: E731
MAINTAINED: Change = lambda world: world.hold_node_lease("maintenance")  # noqa: E731
LAPSED: Change = lambda world: world.hold_node_lease("maintenance", renewed=NOW - timedelta(hours=1))  # noqa: E731
KEPT = annotated(**{PRESERVE_ANNOTATION: "now"})
NO_CHECK = replace(CHECK_NEED, check=None)
UNKNOWN_KIND = replace(CHECK_NEED, check=ObjectRef(api_version="example.io/v1", kind="Other", name="workers"))
TO_CUT_OFF = Need(kind=NeedKind.PRESERVATION, reason="kept, to be cut off")
PERSON = {"need": Need(kind=NeedKind.PERSON)}
CLEAN_UP = {"need": Need(kind=NeedKind.CLEAN_UP), "operation": Operation.WAIT}

IDENTITY = [
    Case("S9 a new object under the name", RECREATED, CHANGED, "uid"),
    Case("S9 a node that is gone", GOES, CHANGED, observed={"present": False}),
    Case("S9 restoring goes on without the Node object", GOES, GO, fields=RESTORES),
    Case("S9 restoring keeps off another machine", lambda w: w.recreate_node(provider_id="metal://8"), CHANGED, fields=RESTORES),
    Case("S39 another node has its providerID", _twin, VETOED, "the same providerID metal://rack-3/7 as twin"),
]
NEEDS = [
    Case("a node that recovered", WELL, GONE, observed={"ready": True, "unhealthy": False}),
    Case("a check that was deleted", CHECK_GOES, GONE, "deleted"),
    Case("a check that is being deleted", _check_is_going, GONE, "deleted"),
    Case("a node that is no longer selected", UNSELECTED, GONE, "selects"),
    Case("a paused check", of_the_check({"pauseRequests": ["upgrade"]}), VETOED, "upgrade", observed={"unhealthy": True}),
    Case("acting on a new failure would be too early", ANEW, VETOED, observed={"soon": True, "unhealthy": False}),
    Case("a check that cannot be read", of_the_check({"unhealthyConditions": []}), UNLICENSED, "unhealthyConditions"),
    Case("no check", _nothing, UNLICENSED, fields={"need": NO_CHECK}),
    Case("a check of an unknown kind", _nothing, UNLICENSED, fields={"need": UNKNOWN_KIND}),
    Case("the way back needs no licence", _well_without_licence, GONE),
    Case("a person's need is gone only on abort", WELL, GO, fields=PERSON),
    Case("a clean-up of a sick node, which may have got as far as off", _nothing, VETOED, fields=CLEAN_UP),
    Case("a clean-up of a healthy node", WELL, GO, fields=CLEAN_UP),
    Case("what is not kept as failed needs no cutting off", _nothing, GONE, "does not say that it is kept", {"need": TO_CUT_OFF}),
]
VETOES = [
    Case("S21 preserved, before off", KEPT, VETOED, "=now"),
    Case("a node lease of others", MAINTAINED, VETOED, "maintenance"),
    Case("a lapsed node lease", LAPSED, GO),
    Case("our own node lease", lambda world: world.take_lease(), GO),
]
LICENCES = [
    Case("S38 no cluster Lease", NO_LEASE, UNLICENSED, "does not exist"),
    Case("S38 another's", lease(ANOTHER), UNLICENSED, ANOTHER),
    Case("S38 one that was long silent", lease(age=61), UNLICENSED, "61 s ago"),
    Case("S38 one from the future", lease(age=-61), UNLICENSED, "-61 s"),
    Case("clocks differ by seconds, and a renewal may be on its way", lease(age=60), GO),
    Case("S38 nobody's", lease(""), UNLICENSED),
    Case("S14 no permit", _without_permit, UNLICENSED, "given back"),
    Case("S37 a permit that nobody can confirm", unconfirmed(), UNLICENSED, "connection refused"),
]
OTHER_HANDS = [
    Case("another incident's mark", marked(incident="incident-2"), VETOED, "incident-2", fields=RESTORES),
    Case("S17 ours serves though another holds the cluster", _ours_under_anothers_lease, GO, fields=RESTORES),
    Case("S3 a mark that cannot be read", lambda world: world.put_mark("x"), UNLICENSED, fields=RESTORES),
    Case("S3 no mark, and a Lease that cannot be read", refusing("kube-system/leases/"), UNLICENSED, fields=RESTORES),
]
"""S5, S38: an on that comes after another deployment's off undoes its proof. Whoever takes a node over writes his mark first, and
then waits until nothing of his predecessor can be in flight."""

DOUBTS = [
    Case("gone is gone", refusing("medik8s-leases/", GOES), UNLICENSED, fields=RESTORES, observed={"present": False}),
    Case("restoring does not depend on what it does not need", _nothing_but_our_mark, GO, fields=RESTORES),
]


@pytest.mark.parametrize("case", [*IDENTITY, *NEEDS, *VETOES, *LICENCES, *OTHER_HANDS, *DOUBTS], ids=str)
async def test_what_has_become_of_it_since_it_was_pinned_is_seen_live(case: Case, licensed: World) -> None:
    target = await licensed.pinned()
    await case.change(licensed)
    result = await look(licensed, target=target, **case.fields)
    assert result.verdict is case.verdict, result.reason
    assert case.words in result.reason
    assert {name: getattr(result.seen, name) for name in case.observed} == case.observed


@pytest.mark.parametrize(("whole", "verdict"), [(True, GO), (False, VETOED)])
async def test_a_watch_that_is_whole_is_asked_who_else_has_its_identity_instead_of_the_server(
    licensed: World, *, whole: bool, verdict: LookVerdict
) -> None:
    """S39: where nothing can be said by what he has seen, all Nodes are listed."""
    await _twin(licensed)
    watched = Watched(whole=whole)
    served = ServedCluster("prod", licensed.connection, clock=licensed.clock, source=OPERATORS)
    look_itself = LastLook(served, licensed.permits, identities=Identities(served.connections, watched))
    licensed.server.requests.reset()
    assert (await look_itself.look(await licensed.look(need=CHECK_NEED))).verdict is verdict
    assert licensed.server.requests.total("list", "nodes", OURS) == (0 if whole else 1)
    watched.words, watched.whole = "Node/node-7 has the same boot id as b", True
    result = await look_itself.look(await licensed.look(need=CHECK_NEED))
    assert (result.verdict, result.reason) == (VETOED, watched.words)


@pytest.mark.parametrize("system", [OPENSHIFT, CLUSTER_API], ids=str)
@pytest.mark.parametrize(
    ("watched", "lists"),
    [({"whole": True}, False), ({"whole": False}, True), (None, True)],
    ids=["all was seen", "a young view", "nobody watches"],
)
async def test_another_nodes_machine_with_its_provider_id_keeps_it_in_every_view(
    licensed: World, watched: dict[str, bool] | None, lists: bool, system: System
) -> None:
    """S39: with a health check of Nodes alone, and on a worker that has just begun, too."""
    await system.install(licensed.others)
    machine = system.machine("claims")
    machine["spec"]["providerID"] = (await licensed.node())["spec"]["providerID"]
    await licensed.others.create(system.path("machines"), machine)
    await system.set_status(licensed.others, "claims", {"nodeRef": {"name": "another-node"}})
    served = ServedCluster("prod", licensed.connection, clock=licensed.clock, source=OPERATORS)
    identities = Identities(served.connections, Watched(**watched) if watched is not None else None)
    result = await LastLook(served, licensed.permits, identities=identities).look(await licensed.look(need=CHECK_NEED))
    assert result.verdict is (VETOED if lists else GO), result.reason
    assert (f"Machine/{system.namespace}/claims of Node/another-node" in result.reason) is lists


EVERYTHING = ("nodes", "machines", "fencingtemplates", "fenceconfigs")


def _lists(world: World) -> dict[str, int]:
    return {each: world.server.requests.total("list", each, OURS) for each in EVERYTHING}


async def test_without_a_policy_only_the_first_look_lists_the_cluster(world: World) -> None:
    """S39: a person fences by hand. All that can claim the machine or its devices is watched from the first look on; each later
    look and each round of freeing asks the watch, and sees what has come since."""
    await world.install_kinds()
    await OPENSHIFT.install(world.others)
    await world.hold_cluster_lease()
    template = await world.add_template()
    view = ClusterView(world.connection, limits=LIVE, watch_limits=WATCHES)
    served = ServedCluster("prod", world.connection, own_node="node-1", clock=world.clock, source=OPERATORS)
    identities = Identities(served.connections, view)
    looks_itself = LastLook(served, world.permits, identities=identities)
    freeing = ClusterFreeing(served, looks_itself.look, KEPT_LICENCES, identities=identities)
    view.watches.start()
    try:
        await until(lambda: view.synced)
        asked = await world.look(configured=Configured(template=template))
        assert (await looks_itself.look(asked)).verdict is GO
        await until(lambda: view.synced and view.fence_objects() is not None)
        theirs = await world.others.get(FENCING_TEMPLATES.path(template.name, namespace=template.namespace))
        stranger = FENCING_TEMPLATES.whole({"metadata": {"name": "theirs"}, "spec": theirs["spec"]})
        await world.others.create(NAMESPACES.path(), NAMESPACES.whole({"metadata": {"name": "tenants"}}))
        await world.others.create(FENCING_TEMPLATES.path(namespace="tenants"), stranger)
        await world.mark_as_ours()
        world.server.requests.reset()
        for _ in range(3):
            assert (await looks_itself.look(asked)).verdict is GO
            await ActivityEnvironment().run(freeing.delete_workload, await world.free())
            assert await identities.at_address(NODE, "10.0.0.7") == ""
        assert _lists(world) == dict.fromkeys(EVERYTHING, 0)
        await world.add_node("node-8", provider_id="metal://rack-3/8")
        await world.configure("node-8", "10.0.0.7")
        await until(lambda: len(view.fence_objects() or ()) == 2)
        assert "tenants" not in {each["metadata"].get("namespace") for each in view.fence_objects() or ()}, "S41"
        assert "and of Node/node-8" in (await looks_itself.look(asked)).reason
        address = {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.7"}]}}
        await world.change_node(address, subresource="status", name="node-8")
        await until(lambda: any(each.addresses for each in view.nodes()))
        assert await identities.at_address(NODE, "10.0.0.7") == "node-8"
        await _twin(world)
        await until(lambda: "twin" in view.ledger)
        assert "as twin" in (await looks_itself.look(asked)).reason
    finally:
        await view.close()


@dataclass(kw_only=True)
class Watched:
    """Whoever watches, and what he says."""

    whole: bool
    words: str = ""

    def follow_claims(self) -> bool:
        return self.whole

    def nodes(self) -> list[NodeView]:
        return []

    def machines_claiming(self, node: NodeView) -> list[MachineView]:
        assert node.name == NODE
        return []

    def fence_objects(self) -> None:
        """Nothing is known of them."""

    def contested(self, node: NodeView) -> str:
        assert node.name == NODE
        return self.words


class TestKeptMachines:
    """S20, S21: the need is that it is kept as failed, and only its own preservation may say so."""

    @pytest.fixture
    async def kept(self, licensed: World) -> World:
        condition = {"type": CONDITION, "status": "True", "reason": "Preserved by user.", "message": "x"}
        await annotated(**{PRESERVE_ANNOTATION: "now"})(licensed)
        await licensed.change_node({"status": {"conditions": [condition]}}, subresource="status")
        await licensed.change_node({"spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}})
        return licensed

    async def test_its_own_preservation_does_not_stop_its_isolation(self, kept: World) -> None:
        """Whoever else says "hands off" is heard as ever."""
        await kept.put_mark(replace(our_mark(), kind=Kind.PRESERVATION.value))
        ours = {"target": await kept.pinned(kind=Kind.PRESERVATION.value), "need": TO_CUT_OFF}
        assert (await look(kept, **ours)).verdict is GO
        assert (await look(kept)).verdict is not GO  # nobody fences it
        assert (await look(kept, **ours, **RESTORES)).verdict is GO
        await annotated(**{HOLD: "true"})(kept)
        assert (await look(kept, **ours)).verdict is VETOED
        await _without_permit(kept)
        assert (await look(kept, **ours)).verdict is UNLICENSED

    async def test_s52_in_observe_no_pool_cuts_off_what_it_keeps_and_a_person_does(self, kept: World) -> None:
        await kept.put_mark(replace(our_mark(), kind=Kind.PRESERVATION.value))
        ours = {"target": await kept.pinned(kind=Kind.PRESERVATION.value), "need": TO_CUT_OFF}
        kept.permits.set = OBSERVES
        found = await look(kept, **ours)
        assert (found.verdict, found.held_by_mode) == (VETOED, True)
        assert (await look(kept, **ours, **RESTORES)).verdict is GO
        await annotated(**{ISOLATE_ANNOTATION: "true"})(kept)
        assert (await look(kept, **ours)).verdict is GO

    @pytest.mark.parametrize("act", PowerAct)
    async def test_s21_a_preservation_is_licensed_to_cut_off_and_to_give_back(self, kept: World, act: PowerAct) -> None:
        """S21: any client of Temporal may run a workflow of that type, which asks for more than ours does."""
        await kept.add_template(**OF_A_CLOUD)
        await kept.put_mark(replace(our_mark(), kind=Kind.PRESERVATION.value))
        ours = {"target": await kept.pinned(kind=Kind.PRESERVATION.value), "need": TO_CUT_OFF}
        ours["target"] = replace(ours["target"], pinned=of_a_cloud(ours["target"].pinned))
        wanted = LicenceWanted(act=act, not_after=NOW + timedelta(seconds=10))
        asked = RESTORES if act in RESTORING else {"configured": Configured()}
        request = await kept.look(**ours, **asked, licenses=wanted)
        found: LookResult = await ActivityEnvironment().run(kept.target.last_look, request)
        assert bool(found.licence) is (act not in {PowerAct.OFF, PowerAct.ON, PowerAct.TERMINATE, PowerAct.CUT_PATH})

    @pytest.mark.parametrize("operation", [Operation.REMOVE, Operation.HAND_OVER, Operation.DELETE_NODE])
    async def test_s21_its_own_preservation_deletes_nothing(self, kept: World, operation: Operation) -> None:
        await kept.put_mark(replace(our_mark(), kind=Kind.PRESERVATION.value))
        ours = {"target": await kept.pinned(kind=Kind.PRESERVATION.value), "need": TO_CUT_OFF}
        assert (await look(kept, **ours, operation=operation)).verdict is VETOED

    @pytest.mark.parametrize("holds", ["nobody", "a fencing", "another preservation"])
    async def test_who_only_says_that_he_preserves_it_is_no_preservation(self, kept: World, holds: str) -> None:
        """A fencing with that need, given from outside, would switch off a machine that is kept."""
        if holds == "a fencing":
            await kept.mark_as_ours()
        elif holds == "another preservation":
            await kept.put_mark(replace(our_mark(), kind=Kind.PRESERVATION.value, incident="incident-2"))
        for kind in (Kind.FENCING, Kind.REMEDIATION, Kind.PRESERVATION):
            said = {"target": await kept.pinned(kind=kind.value), "need": TO_CUT_OFF}
            assert (await look(kept, **said)).verdict is VETOED
            back = await look(kept, **said, **RESTORES)
            assert back.verdict is VETOED
            assert PRESERVE_ANNOTATION in back.reason


class TestTheLeaseOfTheNode:
    """A look that covers a step takes it (S13)."""

    @pytest.mark.parametrize("fields", [{}, RESTORES], ids=["destroys", "restores"])
    async def test_a_later_taker_finds_it_and_the_look_itself_is_none_of_those(
        self, licensed: World, fields: dict[str, Any]
    ) -> None:
        await licensed.mark_as_ours()
        for _ in range(2):  # taken, then renewed
            assert (await look(licensed, lease=timedelta(seconds=90), **fields)).verdict is GO
        lease = (await licensed.node_lease())["spec"]
        assert (lease["holderIdentity"], lease["leaseDurationSeconds"]) == (f"nodewarden/{HOLDER}", 90)

    async def test_a_lease_that_others_hold_or_that_comes_too_late_licenses_nothing(self, licensed: World) -> None:
        """S20, S33: a worker that stood still would hold it for its whole duration with nobody to give it back."""
        result = await look(licensed, lease=timedelta(seconds=90), not_after=NOW - timedelta(seconds=1))
        assert result.verdict is UNLICENSED
        with pytest.raises(ApiError, match="NotFound"):
            await licensed.node_lease()
        before = await licensed.hold_node_lease("node-maintenance", seconds=600)
        result = await look(licensed, lease=timedelta(seconds=90))
        assert (result.verdict, result.until) == (VETOED, NOW + timedelta(seconds=600))
        assert await licensed.node_lease() == before


async def test_without_our_mark_another_s_lease_is_waited_for(licensed: World) -> None:
    request = await licensed.look(need=CHECK_NEED, **RESTORES)
    for renewed, verdict in (
        (NOW, UNLICENSED),
        (NOW - timedelta(minutes=5), GO),  # S17: it has lapsed
        (NOW + timedelta(minutes=5), UNLICENSED),  # S38: a clock is wrong, and may be ours
    ):
        await licensed.hold_cluster_lease(ANOTHER, renewed=renewed)
        result = await licensed.target.last_look(request)
        assert result.verdict is verdict
        assert (ANOTHER in result.reason) is (verdict is UNLICENSED)


class TestDoubt:
    """S20, S37: what cannot be read is never taken for leave to act."""

    @pytest.mark.parametrize(
        ("path", "what"),
        [
            (f"nodes/{NODE}$", "the node"),
            ("nodehealthchecks/", "its health check"),
            ("medik8s-leases/", "the node's lease"),
            ("kube-system/leases/", "the cluster Lease"),
        ],
    )
    async def test_a_read_that_fails_licenses_nothing(self, licensed: World, path: str, what: str) -> None:
        request = await licensed.look(need=CHECK_NEED)
        licensed.server.faults.add(Fault(accident=Accident.STATUS, path=path))
        result = await licensed.target.last_look(request)
        assert result.verdict is UNLICENSED
        assert "could not be read" in result.reason
        assert what in result.reason

    async def test_a_read_that_hangs_licenses_nothing(self, licensed: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(last_look, "READ_SECONDS", 0.05)
        request = await licensed.look(need=CHECK_NEED)
        licensed.server.faults.add(Fault(accident=Accident.DELAY, path="kube-system/leases/", latency=timedelta(seconds=30)))
        result = await licensed.target.last_look(request)
        assert result.verdict is UNLICENSED
        assert all(words in result.reason for words in ("the cluster Lease", "could not be read", "no answer in time"))

    async def test_a_node_that_cannot_be_read_is_not_taken_for_gone(self, licensed: World) -> None:
        """S3, S18: the observation is what an episode goes on with."""
        request = await licensed.look(need=CHECK_NEED)
        licensed.server.faults.add(Fault(accident=Accident.REFUSE, path=f"nodes/{NODE}$"))
        seen = (await licensed.target.last_look(request)).seen
        assert seen.present
        assert (seen.uid, seen.boot_id) == (request.target.pinned.uid, "boot-1")
        assert not seen.ready
        with refused(ErrorType.UNREACHABLE, "the node could not be read"):
            await licensed.target.last_look(replace(request, **RESTORES))


# The devices that are configured for it now (S9) ---------------------------------------------------------------------------

BLADES = TEMPLATES.path("blades", namespace=TEMPLATE_NAMESPACE)
TEMPLATE_GOES: Change = lambda world: world.others.delete(BLADES)  # noqa: E731


async def _another_device(world: World) -> None:
    power = [{"driver": "ipmi", "nodeParameters": {NODE: {"ip": "10.0.0.8"}}, "secretRef": {"name": "bmc-credentials"}}]
    await world.others.patch(BLADES, {"spec": {"template": {"spec": {"power": power}}}})


async def _well_without_template(world: World) -> None:
    await TEMPLATE_GOES(world)
    await WELL(world)


PAUSED_CHECK = of_the_check({"pauseRequests": ["upgrade to 1.37"]})


DEVICES = [
    ("10.0.0.7:623", Case("as it was pinned", _nothing, GO)),
    ("10.0.0.7:623", Case("configured anew", _another_device, CHANGED, "pinned ipmi://10.0.0.7:623, now ipmi://10.0.0.8:623")),
    ("10.0.0.7:624", Case("the whole endpoint is compared", _nothing, CHANGED)),
    ("10.0.0.9:623", Case("before a paused check is heard", PAUSED_CHECK, CHANGED, fields={"operation": Operation.WAIT})),
    ("10.0.0.7:623", Case("S20 whether it is still the node's can't be seen", TEMPLATE_GOES, UNLICENSED, "fence configuration")),
    ("10.0.0.7:623", Case("S20 the way back needs no licence", _well_without_template, GONE)),
]


@pytest.mark.parametrize(("pinned", "case"), DEVICES, ids=str)
async def test_a_device_that_is_configured_anew_is_another_target(pinned: str, case: Case, licensed: World) -> None:
    """The plug that was pinned is no longer the node's, whatever else is as it was."""
    await licensed.add_template()
    target = await licensed.pinned()
    target = replace(target, pinned=replace(target.pinned, endpoints=(f"ipmi://{pinned}",)))
    await case.change(licensed)
    result = await look(licensed, target=target, configured=Configured(), **case.fields)
    assert result.verdict is case.verdict, result.reason
    assert case.words in result.reason


@pytest.mark.parametrize("operation", [Operation.DISRUPT, Operation.WAIT], ids=["before an act", "before anything is freed"])
@pytest.mark.parametrize(
    ("pinned", "verdict"),
    [([["a"], ["b"]], CHANGED), ([["a", "b"]], GO), ([["b", "a"]], GO)],
    ids=["one instead of the other", "both, as now", "the same in another order"],
)
async def test_the_same_devices_that_prove_off_otherwise_are_another_target(
    operation: Operation, pinned: list[list[str]], verdict: LookVerdict, licensed: World
) -> None:
    """S4, S9: the operator has found out that the second supply is no other way, but the other half, and has written it so."""
    both = [
        {"driver": "ipmi", "nodeParameters": {NODE: {"ip": f"10.0.0.{last}"}}, "secretRef": {"name": "bmc-credentials"}}
        for last in (7, 8)
    ]
    await licensed.add_template(power=both)
    endpoints = {"a": "ipmi://10.0.0.7:623", "b": "ipmi://10.0.0.8:623"}
    levels = tuple(tuple(endpoints[each] for each in level) for level in pinned)
    target = await licensed.pinned()
    target = replace(target, pinned=replace(target.pinned, endpoints=tuple(endpoints.values()), levels=levels))
    result = await look(licensed, target=target, configured=Configured(), operation=operation)
    assert result.verdict is verdict, result.reason
    assert ("power levels: pinned" in result.reason) is (verdict is CHANGED)


@pytest.mark.parametrize("operation", [Operation.DISRUPT, Operation.REMOVE])
async def test_a_go_licenses_the_act_that_it_was_made_for(operation: Operation, licensed: World) -> None:
    """S42, S15: one before a removal says less of a control plane (tests/policy/episode/test_gate.py)."""
    await licensed.add_template()
    wanted = LicenceWanted(act=PowerAct.OFF, not_after=NOW + timedelta(seconds=15))
    asked = await licensed.look(need=CHECK_NEED, configured=Configured(), licenses=wanted, operation=operation)
    result: LookResult = await ActivityEnvironment().run(licensed.target.last_look, asked)
    assert (result.verdict, bool(result.licence)) == (GO, operation is Operation.DISRUPT)


GIVEN_UP = {**OF_A_CLOUD, "terminateInstance": True}
ALL = {PowerAct.OFF, PowerAct.TERMINATE, PowerAct.QUARANTINE, PowerAct.DETACH_VOLUME}


@pytest.mark.parametrize(
    ("template", "steps", "licensed_acts"),
    [
        ({}, "", {PowerAct.OFF}),
        (OF_A_CLOUD, "", ALL - {PowerAct.TERMINATE}),
        (GIVEN_UP, "", ALL),
        (GIVEN_UP, "reboot", ALL - {PowerAct.TERMINATE}),
        ({}, "detach-volumes", {PowerAct.OFF, PowerAct.DETACH_VOLUME}),
    ],
    ids=["power alone", "with ways to cut it off", "given up", "to be rebooted", "volumes to be detached"],
)
async def test_s42_only_acts_are_licensed_that_template_and_check_want_now(
    template: dict[str, Any], steps: str, licensed_acts: set[PowerAct], licensed: World
) -> None:
    """Any client may ask for a look before any act, with a node that is sick and the permit that it holds (S11)."""
    await licensed.add_template(**template)
    await licensed.others.patch(CHECKS.path("workers"), {"metadata": {"annotations": {ESCALATION_ANNOTATION: steps or None}}})
    target = await licensed.pinned()
    target = replace(target, pinned=of_a_cloud(target.pinned)) if template else target
    found = {}
    for act in set(PowerAct) - RESTORING:
        wanted = LicenceWanted(act=act, not_after=NOW + timedelta(seconds=15))
        asked = await licensed.look(target, need=CHECK_NEED, configured=Configured(), licenses=wanted)
        found[act] = await ActivityEnvironment().run(licensed.target.last_look, asked)
    assert {act for act, each in found.items() if each.licence} == licensed_acts
    assert {act for act, each in found.items() if each.verdict is UNLICENSED} == set(PowerAct) - RESTORING - licensed_acts


@pytest.mark.parametrize(
    ("words", "wanted"), [(("fence=3s",), {PowerAct.TERMINATE}), (("reboot", "detach-volumes=5m"), {PowerAct.DETACH_VOLUME})]
)
def test_s42_what_a_person_names_with_a_time_out_is_the_step(words: tuple[str, ...], wanted: set[PowerAct]) -> None:
    spec = NodeActionSpec(action=Verb.REMEDIATE, node=NODE, reason="drill", strategies=words)
    need = Need(command=SealedCommand(spec=spec, action="uid-1", speaker="ada"))
    target = JudgedTarget(NODE, node=a_view(NODE))
    asked = {act: why_not_wanted(act, None, need, None, target) for act in (PowerAct.TERMINATE, PowerAct.DETACH_VOLUME)}
    assert ("names no step" in asked[PowerAct.TERMINATE]) is (PowerAct.TERMINATE not in wanted)
    assert (asked[PowerAct.DETACH_VOLUME] == "") is (PowerAct.DETACH_VOLUME in wanted)


@pytest.mark.parametrize(
    ("ip", "driver", "there", "verdict"),
    [
        ("10.0.0.7", "ipmi", True, VETOED),
        ("10.0.0.7", "redfish", True, VETOED),
        ("10.0.0.8", "ipmi", True, GO),
        ("10.0.0.7", "ipmi", False, GO),
    ],
    ids=["the same device", "the same device by another driver", "a device of its own", "a node that is no more"],
)
async def test_a_device_that_another_nodes_configuration_names_is_used_for_neither(
    licensed: World, ip: str, driver: str, there: bool, verdict: LookVerdict
) -> None:
    """S39: a copying mistake, or an attack; whose it is a person finds out."""
    await licensed.add_template()
    await licensed.configure("node-8", ip, driver=driver)
    if there:
        await licensed.add_node("node-8", provider_id="metal://rack-3/8")
    result = await look(licensed, configured=Configured())
    assert result.verdict is verdict, result.reason
    assert (f"{ENDPOINT} is configured as the device of Node/{NODE} and of Node/node-8" in result.reason) is (verdict is VETOED)
    told = [each for each in (await licensed.others.list(EVENTS.path()))["items"] if each["reason"] == "FenceDeviceShared"]
    about = {(each["involvedObject"]["name"], each["message"]) for each in told}
    assert about == ({(NODE, result.reason), ("node-8", result.reason)} if verdict is VETOED else set())


async def test_a_device_that_one_template_gives_two_nodes_by_two_drivers_is_used_for_neither(licensed: World) -> None:
    """S39: it is the only object there is, and each of its entries names each device once."""
    secret = {"name": "bmc-credentials"}
    ipmi = {"driver": "ipmi", "nodeParameters": {NODE: {"ip": "10.0.0.7"}, "node-8": {"ip": "10.0.0.8"}}, "secretRef": secret}
    other = {"driver": "redfish", "nodeParameters": {NODE: {"ip": "10.0.1.7"}, "node-8": {"ip": "10.0.0.7"}}, "secretRef": secret}
    await licensed.add_template(power=[ipmi, other])
    await licensed.add_node("node-8", provider_id="metal://rack-3/8")
    target, both = await licensed.pinned(), (ENDPOINT, "redfish://10.0.1.7:443")
    target = replace(target, pinned=replace(target.pinned, endpoints=both, levels=(both,)))
    result = await look(licensed, target=target, configured=Configured())
    assert result.verdict is VETOED, result.reason
    assert f"{ENDPOINT} is configured as the device of Node/{NODE} and of Node/node-8" in result.reason


async def test_a_device_that_the_only_object_gives_another_node_is_used_for_neither(licensed: World) -> None:
    """S39: our node's own configuration need be none of the objects that name nodes."""
    await licensed.configure("node-8", "10.0.0.7")
    await licensed.add_node("node-8", provider_id="metal://rack-3/8")
    result = await look(licensed, configured=Configured())
    assert f"{ENDPOINT} is configured as the device of Node/{NODE} and of Node/node-8" in result.reason


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        (MOST_ASKED, f"{ENDPOINT} is configured as the device of Node/{NODE} and of Node/node-8"),
        (MOST_READ, f"got {MOST_READ + 1}"),
    ],
    ids=["after some that are gone", "more than are looked for"],
)
async def test_a_device_that_many_configurations_name_is_not_taken_for_ours_unseen(
    licensed: World, gone: int, words: str
) -> None:
    """S39: whoever is not looked at any more is not nobody."""
    await licensed.add_template()
    for number in range(gone):
        await licensed.configure(f"gone-{number}", "10.0.0.7", called=f"gone-{number}")
    await licensed.configure("node-8", "10.0.0.7")
    await licensed.add_node("node-8", provider_id="metal://rack-3/8")
    result = await look(licensed, configured=Configured())
    assert result.verdict is not GO
    assert words in result.reason


async def test_a_device_that_is_named_beside_more_nodes_than_are_looked_into_is_used_for_none(
    licensed: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S39: also where each that was looked into has another one after all."""

    async def has_another(*_: object) -> bool:
        return False

    monkeypatch.setattr(claims, "_claims", has_another)
    await licensed.add_template()
    for number in range(20, 20 + MOST_ASKED):
        await licensed.add_node(f"node-{number}", provider_id=f"metal://rack-3/{number}")
        await licensed.configure(f"node-{number}", "10.0.0.7", called=f"node-{number}")
    assert (await look(licensed, configured=Configured())).verdict is GO
    await licensed.add_node("node-8", provider_id="metal://rack-3/8")
    await licensed.configure("node-8", "10.0.0.7")
    result = await look(licensed, configured=Configured())
    assert (result.verdict, f"and {MOST_ASKED} more" in result.reason) == (VETOED, True)


@pytest.mark.parametrize(
    ("ip", "verdict"), [("{{ .NodeName }}", VETOED), ("bmc-{{ .NodeName }}", GO)], ids=["as was found", "mended since"]
)
async def test_a_device_that_names_no_node_is_used_for_neither_once_the_check_of_all_has_found_it(
    licensed: World, ip: str, verdict: LookVerdict
) -> None:
    """S39: a selector and a node's name within a value are resolved for those whom the check of all devices has found."""
    await licensed.add_node("node-8", labels={"rack": "8"}, provider_id="metal://rack-3/8")
    no_worker = {"metadata": {"labels": {"node-role.kubernetes.io/worker": None}}}  # the check's template would go first
    await licensed.others.patch(NODES.path("node-8"), no_worker)
    secret = {"name": "bmc-credentials", "namespace": "nodewarden"}
    spec = {
        "nodeSelector": {"matchLabels": {"rack": "8"}},
        "power": [{"driver": "ipmi", "parameters": {"ip": ip}, "secretRef": secret}],
    }
    body = {"apiVersion": TEMPLATES.api_version, "kind": "FenceConfig", "metadata": {"name": "rack-8"}, "spec": spec}
    await licensed.others.create("/apis/nodewarden.io/v1alpha1/fenceconfigs", body)
    await licensed.add_template()
    power = [{"driver": "ipmi", "nodeParameters": {NODE: {"ip": "node-8"}}, "secretRef": {"name": "bmc-credentials"}}]
    await licensed.others.patch(BLADES, {"spec": {"template": {"spec": {"power": power}}}})
    target = await licensed.pinned()
    target = replace(target, pinned=replace(target.pinned, endpoints=(OF_BOTH,), levels=((OF_BOTH,),)))
    looks_itself = LastLook(
        ServedCluster(
            "prod",
            licensed.connection,
            clock=licensed.clock,
            source=OPERATORS,
        ),
        licensed.permits,
        checked=Checked(),
    )
    result = await looks_itself.look(await licensed.look(target, need=CHECK_NEED, configured=Configured()))
    assert result.verdict is verdict, result.reason
    assert ("and of Node/node-8: find out" in result.reason) is (verdict is VETOED)


async def test_shared_devices_are_compared_by_one_reading(licensed: World) -> None:
    """S39: else each node that is named costs the API another list of everything, in each round of a freeing."""

    class Found(Checked):
        async def shared(self, cluster: str) -> Mapping[str, Collection[str]]:
            return {ENDPOINT: {NODE, "node-8"}}

    await licensed.add_template()
    await licensed.add_node("node-8", provider_id="metal://rack-3/8")
    no_worker = {"metadata": {"labels": {"node-role.kubernetes.io/worker": None}}}  # the check's template would go first
    await licensed.others.patch(NODES.path("node-8"), no_worker)
    await licensed.configure("node-8", "10.0.0.8")
    target, served = await licensed.pinned(), ServedCluster("prod", licensed.connection, clock=licensed.clock, source=OPERATORS)
    licensed.server.requests.reset()
    await claimed_by(served, target, Identities(served.connections), Found())
    counts = {each: licensed.server.requests.total("list", each) for each in ("fenceconfigs", "fencingtemplates")}
    assert counts == {"fenceconfigs": 1, "fencingtemplates": 1}


OF_BOTH = "ipmi://node-8:623"


class Checked:
    """What the check of fence devices has found."""

    async def shared(self, cluster: str) -> Mapping[str, Collection[str]]:
        assert cluster == CLUSTER
        return {OF_BOTH: {NODE, "node-8", "node-that-is-no-more"}}


async def test_a_look_before_power_on_tells_which_devices_are_configured_now(licensed: World) -> None:
    """S17: whoever switches on compares each device. A configuration that is gone holds up nothing that restores."""
    await licensed.add_template()
    target = await licensed.pinned()
    await licensed.mark_as_ours()
    for pinned in (target.pinned, replace(target.pinned, endpoints=("ipmi://10.0.0.9:623",))):
        result = await look(licensed, target=replace(target, pinned=pinned), configured=Configured(), **RESTORES)
        assert (result.verdict, result.endpoints) == (GO, ("ipmi://10.0.0.7:623",))
    await TEMPLATE_GOES(licensed)
    result = await look(licensed, target=target, configured=Configured(), **RESTORES)
    assert (result.verdict, result.endpoints) == (GO, None)


# How far a program may go ------------------------------------------------------------------------------------------------

OBSERVES = ClusterModes(setting=Mode.OBSERVE)


async def labelled_mode(world: World) -> None:
    await world.change_node({"metadata": {"labels": {MODE_KEY: "observe"}}})


async def restricted_mode(world: World) -> None:
    await world.change_node({"metadata": {"labels": {MODE_LABELS[1]: "observe"}}})


async def annotated_check(world: World) -> None:
    await world.others.patch(CHECKS.path("workers"), {"metadata": {"annotations": {MODE_KEY: "observe"}}})


async def set_for_the_cluster(world: World) -> None:
    world.permits.set = OBSERVES


async def test_s20_the_window_of_an_act_counts_from_the_look_and_not_from_when_it_was_asked_for(licensed: World) -> None:
    """S20: in a storm looks wait for a worker as long as an act may wait after one. Counted from its request, each act would come
    too late, and all nodes be looked at again and again."""
    await licensed.add_template()
    wanted, queued = LicenceWanted(act=PowerAct.OFF, not_after=NOW + timedelta(seconds=10)), timedelta(seconds=12)
    request = await licensed.look(need=CHECK_NEED, configured=Configured(), licenses=wanted)
    worker = ActivityEnvironment()
    worker.info = replace(worker.info, scheduled_time=NOW - queued, started_time=NOW)
    found: LookResult = await worker.run(licensed.target.last_look, request)
    assert found.queued == queued
    device = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623", levels=(("ipmi://10.0.0.7:623",),))
    command = PowerRequest(target=request.target, device=device, deadline=timedelta(seconds=5), licence=found.licence)
    worker.run(KEPT_LICENCES.require_licence, replace(command, not_after=wanted.not_after + queued), PowerAct.OFF)
    with refused(ErrorType.NOT_LICENSED, "no last look of this deployment has licensed it"):
        worker.run(KEPT_LICENCES.require_licence, replace(command, not_after=wanted.not_after + 2 * queued), PowerAct.OFF)


@pytest.mark.parametrize("take_back", [labelled_mode, restricted_mode, annotated_check, set_for_the_cluster])
async def test_s52_a_mode_that_is_taken_back_a_second_before_the_off_licenses_none(take_back: Change, licensed: World) -> None:
    """S52: label, annotation and what the scanner says are each read in the look that would license the command."""
    await licensed.add_template()
    wanted = LicenceWanted(act=PowerAct.OFF, not_after=NOW + timedelta(seconds=10))
    asked = await licensed.look(need=CHECK_NEED, configured=Configured(), licenses=wanted)
    before: LookResult = await ActivityEnvironment().run(licensed.target.last_look, asked)
    assert before.verdict is LookVerdict.GO
    assert before.licence
    await take_back(licensed)
    after: LookResult = await ActivityEnvironment().run(licensed.target.last_look, asked)
    assert (after.verdict, after.licence, after.held_by_mode) == (VETOED, "", True)
    assert "its mode is observe" in after.reason


@pytest.mark.parametrize("take_back", [labelled_mode, restricted_mode, annotated_check, set_for_the_cluster])
async def test_s52_a_mode_that_is_taken_back_after_the_off_deletes_no_node(take_back: Change, licensed: World) -> None:
    """S52: the need does not matter any more then, but the check that asks still says how far a program may go."""
    assert (await look(licensed, operation=Operation.DELETE_NODE)).verdict is LookVerdict.GO
    await take_back(licensed)
    after = await look(licensed, operation=Operation.DELETE_NODE)
    assert (after.verdict, after.held_by_mode) == (VETOED, True)
    assert "its mode is observe" in after.reason


@pytest.mark.parametrize(
    ("mode", "goes"),
    [
        (Mode.OBSERVE, set()),
        (Mode.CORDON, {Operation.CORDON}),
        (Mode.DRAIN, {Operation.CORDON, Operation.DRAIN}),
        (Mode.REPAIR, {Operation.CORDON, Operation.DRAIN, Operation.DISRUPT, Operation.REMOVE}),
    ],
)
async def test_a_mode_licenses_what_it_is_named_after(mode: Mode, goes: set[Operation], licensed: World) -> None:
    """S52: and what restores is licensed in every mode (S17)."""
    licensed.permits.set = ClusterModes(setting=mode)
    for operation in (Operation.CORDON, Operation.DRAIN, Operation.DISRUPT, Operation.REMOVE):
        result = await look(licensed, operation=operation)
        assert (result.verdict is LookVerdict.GO) is (operation in goes), (operation, result.reason)
        assert result.held_by_mode is (operation not in goes)
        expected = VETOED if mode is Mode.OBSERVE else UNLICENSED
        assert operation in goes or result.verdict is expected
    assert (await look(licensed, **RESTORES)).verdict is LookVerdict.GO
    assert (await look(licensed, operation=Operation.WAIT)).verdict is LookVerdict.GO


async def test_a_person_s_wish_is_not_braked_by_a_mode(licensed: World) -> None:
    licensed.permits.set = OBSERVES
    await labelled_mode(licensed)
    assert (await look(licensed, need=Need(kind=NeedKind.PERSON, reason="by hand"))).verdict is LookVerdict.GO


async def test_s52_a_kubelet_s_label_arms_nothing(licensed: World) -> None:
    licensed.permits.set = OBSERVES
    await licensed.change_node({"metadata": {"labels": dict.fromkeys(MODE_LABELS, "repair")}})
    await licensed.others.patch(CHECKS.path("workers"), {"metadata": {"annotations": {MODE_KEY: "repair"}}})
    assert (await look(licensed)).verdict is VETOED


async def test_s52_a_scanner_that_can_t_be_asked_licenses_nothing(licensed: World) -> None:
    """S20: that nobody has set anything is not known then."""
    licensed.permits.error = RuntimeError("Temporal is away")
    result = await look(licensed)
    assert (result.verdict, result.held_by_mode) == (UNLICENSED, False)
    licensed.permits.error, licensed.permits.modes_error = None, RuntimeError("an older scanner")
    result = await look(licensed)
    assert (result.verdict, result.held_by_mode) == (UNLICENSED, False)
    assert result.reason == "the mode could not be read: an older scanner"


async def test_s14_a_scanner_that_gives_no_answer_has_not_said_that_the_permit_is_gone(licensed: World) -> None:
    """S20: it licenses nothing. But hundreds of episodes that asked for the permit they have would keep it from answering."""
    licensed.permits.error = RuntimeError("it is busy")
    result = await look(licensed)
    assert (result.verdict, result.permitted, result.reason) == (UNLICENSED, True, "the permit could not be read: it is busy")
    await WELL(licensed)
    assert (await look(licensed)).verdict is GONE
    licensed.permits.error, licensed.permits.answer = None, (False, "another episode has it")
    assert not (await look(licensed)).permitted


async def test_a_stopped_scanner_keeps_no_episode_from_seeing_that_its_need_is_gone(licensed: World) -> None:
    """S20, S52: that no mode is known is no reason not to judge the need; and what is missing is named first, the permit."""
    licensed.permits.answer = (False, "the scanner of sim has been stopped")
    licensed.permits.modes_error = RuntimeError("the scanner of sim has been stopped")
    result = await look(licensed)
    assert (result.verdict, result.reason) == (UNLICENSED, "the scanner of sim has been stopped")
    await WELL(licensed)
    assert (await look(licensed)).verdict is GONE


# The off switch and the policies of single hosts, seen live by whatever is about to act (S20).

PERSON_NEED = Need(kind=NeedKind.PERSON, reason="ada asks", requester="ada")


async def put(world: World, *maps: dict[str, Any]) -> None:
    for each in maps:
        await world.others.create(CONFIG_MAPS.path(namespace="nodewarden"), each)


@contextmanager
def unchanged(world: World) -> Iterator[None]:
    before = world.writes
    yield
    assert world.writes == before


@pytest.mark.parametrize("need", [CHECK_NEED, PERSON_NEED], ids=["a check", "a person"])
async def test_fencing_that_is_switched_off_stops_before_its_next_act(licensed: World, need: Need) -> None:
    """S20: whoever asked for it. Switched on again it goes."""
    await put(licensed, a_cluster_config(fencing="off"))
    result = await look(licensed, need=need)
    assert (result.verdict, result.reason) == (
        LookVerdict.VETOED,
        "fencing is switched off: fencing=off in ConfigMap/nodewarden/fence-cluster-config",
    )
    path = CONFIG_MAPS.path("fence-cluster-config", namespace="nodewarden")
    await licensed.others.patch(path, {"data": a_cluster_config(fencing="on")["data"]})
    assert (await look(licensed, need=need)).verdict is LookVerdict.GO


async def test_the_workers_own_setting_is_heard(licensed: World) -> None:
    source = PolicySource(policies=FencePolicies(switched_off=("the setting fencing.enabled is false",)))
    target = ClusterTarget(
        ServedCluster("prod", licensed.connection, clock=licensed.clock, source=source), licensed.permits, KEPT_LICENCES
    )
    request = await licensed.look(need=CHECK_NEED)
    result = await target.last_look(request)
    assert (result.verdict, "fencing.enabled" in result.reason) == (LookVerdict.VETOED, True)


@pytest.mark.parametrize(
    ("maps", "problem"),
    [
        ([a_cluster_config(fencing="of")], "fencing: expected on or off"),
        ([a_cluster_config(policies="one")], "there is no ConfigMap fence-policy-one"),
    ],
)
async def test_policies_that_cannot_be_used_license_nothing(licensed: World, maps: list[dict[str, Any]], problem: str) -> None:
    """S20: what was meant to say off may have been misspelt."""
    await put(licensed, *maps)
    result = await look(licensed)
    assert result.verdict is LookVerdict.NOT_LICENSED
    assert problem in result.reason


@pytest.mark.parametrize(
    ("path", "words"),
    [("configmaps", "the fence policies could not be read"), ("/events", "the Events on the node could not be read")],
)
async def test_what_may_have_said_that_it_is_to_be_left_alone_and_cannot_be_read_licenses_nothing(
    licensed: World, path: str, words: str
) -> None:
    """S20."""
    await put(licensed, a_cluster_config(policies="skip-if-host-lost-storage"))
    request = await licensed.look(need=CHECK_NEED)
    licensed.server.faults.add(Fault(accident=Accident.REFUSE, path=path))
    result = await licensed.target.last_look(request)
    assert (result.verdict, result.reason.startswith(words)) == (LookVerdict.NOT_LICENSED, True)


class TestHosts:
    """What keeps one host for its own sake keeps it from checks, not from people."""

    @pytest.mark.parametrize(
        ("fields", "seconds_ago", "verdict"),
        [
            ({"reason": "IOError", "source": {"component": "kernel-monitor"}}, 30, LookVerdict.VETOED),
            ({"reason": "IOError", "reportingComponent": "kernel-monitor"}, 299, LookVerdict.VETOED),
            ({"reason": "IOError"}, 301, LookVerdict.GO),
            ({"reason": "IOError", "involvedObject": {"kind": "Node", "name": "node-8"}}, 30, LookVerdict.GO),
            ({"reason": "IOError", "involvedObject": {"kind": "Pod", "name": NODE}}, 30, LookVerdict.GO),
        ],
        ids=["lately", "the new way", "long ago", "on another node", "on a namesake"],
    )
    async def test_a_host_of_which_an_event_says_that_it_lost_its_storage(
        self, licensed: World, fields: dict[str, Any], seconds_ago: int, verdict: LookVerdict
    ) -> None:
        """S17, S20: read live, and only where the policy asks; a person is not held up."""
        await add_event(licensed, seconds_ago, **fields)
        assert (await look(licensed)).verdict is LookVerdict.GO, "nobody asks"
        await put(licensed, a_cluster_config(policies="skip-if-host-lost-storage"))
        result = await look(licensed)
        assert result.verdict is verdict
        assert ("IOError reported it" in result.reason) is (verdict is LookVerdict.VETOED)
        assert (await look(licensed, need=PERSON_NEED)).verdict is LookVerdict.GO

    async def test_which_events_and_how_long_is_the_policys(self, licensed: World) -> None:
        await put(
            licensed,
            a_cluster_config(policies="storage"),
            a_policy("storage", skip_if_host_lost_storage="true", storage_events="multipathd/PathsLost", storage_event_age="30m"),
        )
        await add_event(licensed, 30, reason="IOError")
        await add_event(licensed, 1000, reason="PathsLost", source={"component": "somebody-else"})
        assert (await look(licensed)).verdict is LookVerdict.GO
        await add_event(licensed, 1700, reason="PathsLost", source={"component": "multipathd"})
        result = await look(licensed)
        assert (result.verdict, "multipathd/PathsLost reported it 1700 s ago" in result.reason) == (LookVerdict.VETOED, True)

    @pytest.mark.parametrize(
        ("seconds_ago", "policies", "verdict"),
        [(10, "skip-if-host-renews-lease", LookVerdict.VETOED), (10, "", LookVerdict.GO)],
    )
    async def test_a_host_whose_kubelet_renews_its_lease(
        self, licensed: World, seconds_ago: int, policies: str, verdict: LookVerdict
    ) -> None:
        """O02."""
        await put(licensed, a_cluster_config(policies=policies) if policies else a_cluster_config(grace_timeout=5))
        await renew(licensed, seconds_ago)
        assert (await look(licensed)).verdict is verdict
        assert (await look(licensed, need=PERSON_NEED)).verdict is LookVerdict.GO

    async def test_an_unreadable_lease_does_not_stop_power_fencing(self, licensed: World) -> None:
        """O02: it can't prove that the host is idle; that it is off is proven by reading its devices."""
        await put(licensed, a_cluster_config(policies="skip-if-host-renews-lease"))
        await renew(licensed, 10)
        request = await licensed.look(need=CHECK_NEED)
        licensed.server.faults.add(Fault(accident=Accident.REFUSE, path="kube-node-lease/"))
        assert (await licensed.target.last_look(request)).verdict is LookVerdict.GO


async def add_event(world: World, seconds_ago: int, **fields: Any) -> None:
    """As a problem detector on the node writes it, which gives the node's name for its uid."""
    at = timestamp(NOW - timedelta(seconds=seconds_ago))
    event = {
        "metadata": {"generateName": "said-"},
        "involvedObject": {"kind": "Node", "name": NODE, "uid": NODE},
        "message": "Buffer I/O error",
        "firstTimestamp": timestamp(NOW - timedelta(hours=1)),
        "lastTimestamp": at,
        **fields,
    }
    await world.others.create(EVENTS.path(namespace="default"), event)


async def renew(world: World, seconds_ago: int) -> None:
    """The kubelet says that it lives."""
    spec = {
        "holderIdentity": NODE,
        "leaseDurationSeconds": 40,
        "renewTime": micro_timestamp(NOW - timedelta(seconds=seconds_ago)),
    }
    await world.others.create(
        LEASES.path(namespace="kube-node-lease"), {"metadata": {"name": NODE, "namespace": "kube-node-lease"}, "spec": spec}
    )
