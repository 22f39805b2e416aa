"""What holds for every evaluation, whatever the objects: tried on worlds of all three dialects.

What one check thinks of one target is told by example in `tests/policy/checks/test_verdict.py` and `tests/cases/`; here is
what no example may break: neither the order nor the history of the objects matters, a verdict holds for as long as it says, no
percentage is ever exceeded, and an open circuit breaker holds. Checks with a storm are left out: what they remember is history
by nature.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st

from policy.checks.circuit_breakers import Circumstances, Counts, circuit_breaker
from policy.checks.health_check import HealthCheck, Overlap, UnhealthyRange
from policy.checks.verdict import Standing
from policy.objects.machines import (
    EXTERNAL_REMEDIATION_ANNOTATION,
    FAILED,
    PAUSED_ANNOTATION,
    REMEDIATE_ANNOTATION,
    SKIP_ANNOTATION,
    MachineView,
    WorkloadCluster,
    machine_key,
)
from policy.objects.nodes import (
    CONTROL_PLANE_LABELS,
    DESIRED_CONFIG_ANNOTATION,
    EXCLUDE_LABEL,
    Condition,
    EtcdGuard,
    NodeView,
    Surroundings,
)
from policy.objects.remediations import Owner, RemediationObject
from policy.remediation.ladder import RESTORING
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION, LastRemediation, written_memory
from policy.remediation.strategy_rules import Action
from policy.scan.evaluation import ORPHANED, CheckEvaluation, TargetEvaluation, evaluate
from policy.scan.ledger import Ledger
from policy.scan.scan_report import ReportParts
from policy.values.machine_apis import named
from policy.values.object_refs import Dialect, ObjectRef
from tests.policy.builders import (
    FOREIGN,
    NAMESPACE,
    NOW,
    PROD,
    TEMPLATE,
    WORKER,
    a_check,
    a_machine,
    a_node,
    ago,
    cluster_api,
    openshift,
    put,
)

pytestmark = pytest.mark.timeout(300)  # an example that fails is made small before it is shown

MICROSECOND = timedelta(microseconds=1)

BUSY = settings(derandomize=True, phases=[Phase.explicit, Phase.generate, Phase.shrink])
"""The same worlds in every run. No explanations: they would take longer than the search."""

Thing = NodeView | MachineView | WorkloadCluster | RemediationObject | HealthCheck


OF_MACHINES_ALONE = {
    "unhealthyNodeConditions": None,
    "unhealthyMachineConditions": [{"type": "DrainFailed", "status": "True", "timeoutSeconds": 20}],
    "nodeStartupTimeoutSeconds": 0,
}

TWO_CLOCKS: list[HealthCheck] = [
    a_check(
        "workers",
        unhealthyConditions=[
            {"type": "DiskPressure", "status": "True", "duration": "40s"},
            {"type": "Ready", "status": "Unknown", "duration": "10s"},
        ],
    ),
    cluster_api("prod", unhealthyMachineConditions=OF_MACHINES_ALONE["unhealthyMachineConditions"]),
]

CHECKS: list[HealthCheck] = [
    a_check("workers"),
    a_check("workers", minHealthy=1, remediationTemplate=FOREIGN, healthyDelay="60s"),
    a_check("workers", minHealthy=None, maxUnhealthy="100%", remediationTemplate=FOREIGN),
    a_check("workers", pauseRequests=["me"]),
    a_check(
        "disks",
        selector={"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
        minHealthy="20%",
        unhealthyConditions=[{"type": "DiskPressure", "status": "True", "duration": "20s"}],
    ),
    a_check("disks", selector={"matchLabels": {"pool": "b"}}, minHealthy=None, maxUnhealthy=1, remediationTemplate=FOREIGN),
    openshift("pool"),
    openshift("pool", selector={}, maxUnhealthy=1, remediationTemplate=FOREIGN),
    openshift("slow", selector={}, nodeStartupTimeout="2h", unhealthyConditions=None, maxUnhealthy=None),
    openshift("slow", unhealthyConditions=[{"type": "Ready", "status": "False", "timeout": "3h"}], nodeStartupTimeout="0"),
    cluster_api("prod"),
    cluster_api("prod", limit=2, template=TEMPLATE | {"namespace": NAMESPACE}),
    cluster_api("test", cluster="test", limit="100%"),
    cluster_api("drains", limit="40%", **OF_MACHINES_ALONE),
    *TWO_CLOCKS,
]


NODES = ["n1", "n2", "n3", "n4"]
MACHINES = ["m1", "m2", "m3"]
OF_MACHINES = [Dialect.OPENSHIFT, Dialect.CLUSTER_API]

moments = st.sampled_from([None, ago(7200), ago(60), ago(31), ago(11), ago(10), ago(5), NOW, NOW + timedelta(seconds=15)])
ready = st.builds(Condition, type=st.just("Ready"), status=st.sampled_from(["True", "True", "False", "Unknown"]), since=moments)
disk = st.builds(Condition, type=st.just("DiskPressure"), status=st.sampled_from(["True", "False", "False"]), since=moments)
drain = st.builds(Condition, type=st.just("DrainFailed"), status=st.sampled_from(["True", "False"]), since=moments)


def once_in(draw: st.DrawFn, times: int) -> bool:
    return draw(st.integers(1, times)) == times


def rarely(draw: st.DrawFn, *names: str, value: str = "") -> dict[str, str]:
    """Some of these labels or annotations."""
    return {name: value for name in names if once_in(draw, 8)}


@st.composite
def nodes(draw: st.DrawFn, name: str) -> NodeView:
    labels = {"pool": draw(st.sampled_from(["a", "b"]))} | draw(st.sampled_from([{WORKER: ""}, {WORKER: ""}, {}]))
    node = a_node(
        name,
        conditions=(draw(ready), draw(disk)),
        labels=labels | rarely(draw, EXCLUDE_LABEL, value="true") | rarely(draw, CONTROL_PLANE_LABELS[0]),
        mark="incident-1" if once_in(draw, 8) else "",
        deleting=once_in(draw, 12),
    )
    cluster = draw(st.sampled_from(["", "prod", "test"]))
    says = {"cluster.x-k8s.io/cluster-name": cluster, "cluster.x-k8s.io/cluster-namespace": NAMESPACE} if cluster else {}
    says |= rarely(draw, "machine.openshift.io/machine", value=f"{NAMESPACE}/m1") | rarely(
        draw, "cluster.x-k8s.io/machine", value="m2"
    )
    says |= rarely(draw, DESIRED_CONFIG_ANNOTATION, value="next")
    provider = "sim:///n1" if once_in(draw, 8) else node.provider_id
    return replace(node, provider_id=provider, annotations={**node.annotations, **says})


@st.composite
def machines(draw: st.DrawFn, dialect: Dialect, name: str) -> MachineView:
    """One that is being deleted has failed: no clock of it runs any more."""
    deleting, of_cluster_api = once_in(draw, 8), dialect is Dialect.CLUSTER_API
    annotations = rarely(draw, EXTERNAL_REMEDIATION_ANNOTATION)
    conditions: tuple[Condition, ...] = ()
    if of_cluster_api:
        annotations |= rarely(draw, PAUSED_ANNOTATION, SKIP_ANNOTATION, REMEDIATE_ANNOTATION)
        annotations |= {REMEDIATE_ANNOTATION: ""} if deleting else {}
        conditions = (draw(drain),)
        if draw(st.booleans()):
            conditions = (*conditions, Condition(type="InfrastructureReady", status="True", since=draw(moments)))
    return MachineView(
        api=named(dialect),  # type: ignore[arg-type]
        namespace="elsewhere" if once_in(draw, 12) else NAMESPACE,
        name=name,
        labels={"pool": draw(st.sampled_from(["a", "b"]))},
        annotations=annotations,
        conditions=conditions,
        phase=FAILED if not of_cluster_api and (deleting or once_in(draw, 8)) else "Running",
        deleting=deleting,
        created=draw(moments) if of_cluster_api else ago(9999),
        last_updated=draw(moments),
        provider_id=f"sim:///n{name[1:]}" if once_in(draw, 3) else "",
        node_name=draw(st.sampled_from(["", f"n{name[1:]}", f"n{name[1:]}", f"n{name[1:]}", "n4", "gone"])),
        cluster_name="" if not of_cluster_api else "test" if once_in(draw, 5) else "prod",
        controller="" if once_in(draw, 6) else "MachineSet/set",
        control_plane=name == MACHINES[-1],
    )


@st.composite
def clusters(draw: st.DrawFn, name: str) -> WorkloadCluster:
    initialized, provisioned = not once_in(draw, 6), not once_in(draw, 6)
    return WorkloadCluster(
        namespace=NAMESPACE,
        name=name,
        paused=f"spec.paused of Cluster {name} is true" if once_in(draw, 8) else "",
        control_plane_initialized=initialized,
        control_plane_initialized_since=draw(moments) if initialized else None,
        infrastructure_ready=provisioned,
        infrastructure_ready_since=draw(moments) if provisioned else None,
    )


@st.composite
def remediations(draw: st.DrawFn, target: str) -> RemediationObject:
    name, uid = draw(st.sampled_from([("workers", "uid-of-workers"), ("workers", "another"), ("disks", "uid-of-disks")]))
    return RemediationObject(
        ref=ObjectRef(api_version=FOREIGN["apiVersion"], kind="SelfNodeRemediation", name=target, namespace=NAMESPACE),
        target=target,
        owners=(Owner(kind="NodeHealthCheck", name=name, uid=uid),),
        deleting=draw(st.sampled_from([False, False, True])),
        succeeded=draw(st.sampled_from(["", "True", "False"])),
        permanent_node_deletion_expected=draw(st.sampled_from(["", "True"])),
        well_since=draw(st.sampled_from([None, ago(7200), ago(50), NOW, NOW + timedelta(hours=2)])),
    )


some_nodes = st.sampled_from(NODES).flatmap(nodes)
some_machines = st.tuples(st.sampled_from(OF_MACHINES), st.sampled_from(MACHINES)).flatmap(lambda found: machines(*found))
some_clusters = st.sampled_from(["prod", "test"]).flatmap(clusters)
some_remediations = st.sampled_from(["n1", "n2", "m1", "gone"]).flatmap(remediations)
checks = st.sampled_from(CHECKS)
things = st.one_of(some_nodes, some_nodes, some_machines, some_machines, some_clusters, some_remediations, checks, checks)
surroundings = st.sampled_from(
    [
        Surroundings(),
        Surroundings(upgrade="ClusterVersion version is Progressing"),
        Surroundings(etcd=EtcdGuard(known=True, disruptions_allowed=(1,))),
        Surroundings(etcd=EtcdGuard(known=True, disruptions_allowed=(0,), guards={"n1": "True"})),
    ]
)
overlaps = st.sampled_from(Overlap)


def key_of(thing: Thing) -> str:
    match thing:
        case NodeView():
            return f"Node/{thing.name}"
        case HealthCheck() | RemediationObject():
            return thing.ref.key
        case WorkloadCluster():
            return f"Cluster/{thing.key}"
        case _:
            return thing.key


def remove(ledger: Ledger, thing: Thing) -> None:
    match thing:
        case NodeView():
            ledger.remove_node(thing.name)
        case MachineView():
            ledger.remove_machine(thing.key)
        case WorkloadCluster():
            ledger.remove_cluster(thing.key)
        case RemediationObject():
            ledger.remove_remediation(thing.ref.key)
        case HealthCheck():
            ledger.remove_check(thing.ref.key)


@dataclass
class World:
    """What there is at one moment, by key, and how it is looked at."""

    things: dict[str, Thing] = field(default_factory=dict)
    bad: dict[str, ObjectRef] = field(default_factory=dict)
    surroundings: Surroundings = Surroundings()
    sees_all_nodes: bool = True
    overlap: Overlap = Overlap.STRICTEST

    def empty_ledger(self) -> Ledger:
        return Ledger(sees_all_nodes=self.sees_all_nodes, overlap=self.overlap)

    def ledger(self, now: datetime, order: Iterable[str] | None = None) -> Ledger:
        """A ledger that has been told each object once, and nothing else."""
        ledger = self.empty_ledger()
        ledger.surround(self.surroundings)
        for key in order or sorted(self.things):
            put(ledger, self.things[key], now)
        for ref in self.bad.values():
            ledger.put_bad_check(ref, "bad")
        return ledger

    def evaluated(self, now: datetime) -> tuple[CheckEvaluation, ...]:
        return evaluate(self.ledger(now).known(now))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A small but busy one: most of what could be there is."""
    found: list[Thing] = [draw(nodes(name)) for name in NODES if not once_in(draw, 6)]
    found += [draw(machines(dialect, name)) for dialect in OF_MACHINES for name in MACHINES if not once_in(draw, 3)]
    found += [draw(clusters(name)) for name in ("prod", "test") if not once_in(draw, 6)]
    found += [draw(remediations(name)) for name in ("n1", "n2", "m1", "gone") if once_in(draw, 4)]
    found += draw(st.lists(checks, min_size=3, max_size=7))
    return World(
        things={key_of(thing): thing for thing in found},
        surroundings=draw(surroundings) if once_in(draw, 8) else Surroundings(),
        sees_all_nodes=draw(st.booleans()),
        overlap=draw(overlaps),
    )


Said = tuple[tuple[CheckEvaluation, ...], ReportParts]

WATCHED = ("n1", "gone")
"""Nodes of open episodes, one of which may not be there."""


def said(ledger: Ledger, now: datetime) -> Said:
    """All that anybody gets to know."""
    return evaluate(ledger.known(now)), ledger.report_parts(now, WATCHED)


Step = tuple[str, object]
steps: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("put"), things),
    st.tuples(st.just("put"), things),
    st.tuples(st.just("put"), things),
    st.tuples(st.just("remove"), things),
    st.tuples(st.just("bad"), checks),
    st.tuples(st.just("surround"), surroundings),
    st.tuples(st.just("time"), st.sampled_from([5, 20, 31, -7, -45])),
    st.tuples(st.just("unnoticed time"), st.sampled_from([5, 20, -7])),
)


class History:
    """A ledger that is kept up to date, and beside it what there is."""

    def __init__(self, *, sees_all_nodes: bool, overlap: Overlap) -> None:
        self.world = World(sees_all_nodes=sees_all_nodes, overlap=overlap)
        self.ledger = self.world.empty_ledger()
        self.now = NOW

    def apply(self, step: Step) -> None:
        match step:
            case ("put", HealthCheck() as check):
                self.world.bad.pop(check.ref.key, None)
                self._put(check)
            case ("put", NodeView() | MachineView() | WorkloadCluster() | RemediationObject() as thing):
                self._put(thing)
            case ("remove", NodeView() | MachineView() | WorkloadCluster() | RemediationObject() | HealthCheck() as thing):
                self.world.things.pop(key_of(thing), None)
                self.world.bad.pop(key_of(thing), None)
                remove(self.ledger, thing)
            case ("bad", HealthCheck() as check):
                self.world.things.pop(check.ref.key, None)
                self.world.bad[check.ref.key] = check.ref
                self.ledger.put_bad_check(check.ref, "bad")
            case ("surround", Surroundings() as around):
                self.world.surroundings = around
                self.ledger.surround(around)
            case ("time", int() as seconds):
                self.now += timedelta(seconds=seconds)
                self.ledger.advance(self.now)
            case ("unnoticed time", int() as seconds):
                self.now += timedelta(seconds=seconds)
            case _:
                raise AssertionError(step)

    def _put(self, thing: Thing) -> None:
        self.world.things[key_of(thing)] = thing
        put(self.ledger, thing, self.now)

    def assert_it_says_what_a_fresh_one_says(self) -> None:
        fresh = said(self.world.ledger(self.now), self.now)
        kept = said(self.ledger, self.now)
        assert kept[0] == fresh[0]
        assert kept[1] == fresh[1]


@settings(BUSY, max_examples=60)
@given(worlds(), st.lists(steps, min_size=3, max_size=25))
def test_after_any_history_an_evaluation_is_that_of_the_objects_as_they_are(world: World, history: list[Step]) -> None:
    """What a ledger says depends on the objects and the moment, never on the way there: any worker may take over."""
    kept = History(sees_all_nodes=world.sees_all_nodes, overlap=world.overlap)
    for thing in world.things.values():
        kept.apply(("put", thing))
    for number, step in enumerate(history):
        kept.apply(step)
        if number % 6 == 0:
            kept.assert_it_says_what_a_fresh_one_says()
    kept.assert_it_says_what_a_fresh_one_says()


@settings(BUSY, max_examples=50)
@given(worlds(), st.lists(steps, min_size=3, max_size=12))
def test_whatever_changes_a_report_changes_the_version(world: World, history: list[Step]) -> None:
    """By the version a waiting scan learns that there is something new. Checks come first and stay, and all Nodes are seen; see
    below for others."""
    kept = History(sees_all_nodes=True, overlap=world.overlap)
    for thing in sorted(world.things.values(), key=lambda thing: not isinstance(thing, HealthCheck)):
        kept.apply(("put", thing))
    for step in history:
        if step[0] == "bad" or isinstance(step[1], HealthCheck):
            continue
        version, now, before = kept.ledger.version, kept.now, kept.ledger.report_parts(kept.now, WATCHED)
        kept.apply(step)
        if (kept.ledger.version, kept.now) == (version, now):
            assert kept.ledger.report_parts(now, WATCHED) == before, step


def after(*history: Step) -> History:
    kept = History(sees_all_nodes=True, overlap=Overlap.STRICTEST)
    for step in history:
        kept.apply(step)
    return kept


def sick(disk_age: float | None = None, ready_age: float = 60) -> NodeView:
    """Ready is Unknown for so long, and the disk, where it has an age, under pressure."""
    conditions = [Condition(type="Ready", status="Unknown", since=ago(ready_age))]
    if disk_age is not None:
        conditions.append(Condition(type="DiskPressure", status="True", since=ago(disk_age)))
    return a_node("n1", conditions=tuple(conditions))


MACHINE_CHECK = cluster_api("prod", limit="100%")
MEMORY = written_memory(LastRemediation(of="m0", at=NOW))
IN_PROD = {"cluster.x-k8s.io/cluster-name": "prod", "cluster.x-k8s.io/cluster-namespace": NAMESPACE}

UNSHOWN: dict[str, tuple[list[Thing], Thing]] = {
    "a Machine that is of the control plane now": (
        [MACHINE_CHECK, PROD, a_machine("m1", node_name=""), a_machine("m2", node_name="")],
        a_machine("m2", node_name="", control_plane=True),
    ),
    "a successor that was told what to remember": (
        [MACHINE_CHECK, PROD, sick(), a_machine()],
        a_machine(annotations={LAST_REMEDIATION_ANNOTATION: MEMORY}),
    ),
    "a target that leaves a check which came after it": ([a_node("n1"), a_check()], a_node("n1", labels={})),
    "a Node that says to which Cluster it belongs": (
        [MACHINE_CHECK, PROD, a_node("n1")],
        replace(a_node("n1"), annotations=IN_PROD),
    ),
}


@pytest.mark.parametrize("case", UNSHOWN)
def test_whatever_else_a_report_shows_changes_the_version(case: str) -> None:
    found, change = UNSHOWN[case]
    kept = History(sees_all_nodes=case != "a Node that says to which Cluster it belongs", overlap=Overlap.STRICTEST)
    for thing in found:
        kept.apply(("put", thing))
    version, before = kept.ledger.version, kept.ledger.report_parts(NOW)
    kept.apply(("put", change))
    assert kept.ledger.report_parts(NOW) != before, "else there would be nothing to be noticed"
    assert kept.ledger.version != version


def a_remediation(target: str = "n1", namespace: str = NAMESPACE, **fields: object) -> RemediationObject:
    values: dict[str, object] = {"well_since": ago(7200)} | fields
    return RemediationObject(
        ref=ObjectRef(api_version=FOREIGN["apiVersion"], kind="SelfNodeRemediation", name="made", namespace=namespace),
        target=target,
        owners=(Owner(kind="NodeHealthCheck", name="workers", uid="uid-of-workers"),),
        **values,  # type: ignore[arg-type]
    )


DRAINED = (Condition(type="DrainFailed", status="True", since=NOW),)
EXTERNAL = a_check(remediationTemplate=FOREIGN)
DELAYED = a_check(remediationTemplate=FOREIGN, healthyDelay="20s")
PROD_POOL, OPENSHIFT_POOL = cluster_api("prod"), openshift("pool")
ELSEWHERE = a_machine(cluster_name="test")
FELL_SILENT = sick(ready_age=0)

HISTORIES: dict[str, list[Thing | int]] = {
    "a second condition of a node": [TWO_CLOCKS[0], sick(disk_age=0, ready_age=60), 31, 31],
    "a machine's condition after its node's": [PROD, TWO_CLOCKS[1], sick(), a_machine(conditions=DRAINED), 31, 31],
    "a condition after a failure": [PROD, PROD_POOL, FELL_SILENT, a_machine(failure="Broken"), 31, 31],
    "a machine of OpenShift that goes": [
        OPENSHIFT_POOL, FELL_SILENT, a_machine(dialect=Dialect.OPENSHIFT, deleting=True), 31, 31,
    ],
    "a machine of Cluster API that goes": [PROD, PROD_POOL, FELL_SILENT, a_machine(deleting=True), 31, 31],
    # Its remediation object would be deleted too early by a worker whose clock once ran ahead.
    "a clock that steps back in a healthy delay": [DELAYED, a_node("n1"), a_remediation(well_since=NOW), 31, -45],
    "a healthy delay without a mark, looked at twice": [DELAYED, a_node("n1"), a_remediation(well_since=None), 5],
    "a remediation object that is about another node now": [
        EXTERNAL, sick(), a_node("n2"), a_node("n3"), a_remediation("n1"), a_remediation("n2"),
    ],
    "two remediation objects of a node that is gone": [
        EXTERNAL, a_remediation("gone", "b"), a_remediation("gone", "a", deleting=True),
    ],
    "a machine that moves to another cluster": [
        PROD, replace(PROD, name="test"), cluster_api("test", cluster="test"), sick(), a_machine(), ELSEWHERE,
        replace(PROD, control_plane_initialized=False),
    ],
}  # fmt: skip
"""Objects as they come, and seconds that pass."""


@pytest.mark.parametrize("case", HISTORIES)
def test_what_once_was_overlooked_is_noticed(case: str) -> None:
    """Which deadline expired first decides under which check a node is remediated: it must be the same for every worker."""
    steps = [("time", each) if isinstance(each, int) else ("put", each) for each in HISTORIES[case]]
    after(*steps).assert_it_says_what_a_fresh_one_says()


CLOCKLESS = Condition(type="DrainFailed", status="True", since=ago(60))

CHANGES: dict[str, tuple[HealthCheck, HealthCheck]] = {
    "selector": (a_check(), a_check(selector={"matchLabels": {"pool": "a"}})),
    "conditions": (a_check(), a_check(unhealthyConditions=[{"type": "Ready", "status": "Unknown", "duration": "5m"}])),
    "template": (a_check(), a_check(remediationTemplate=FOREIGN)),
    "healthyDelay": (a_check(remediationTemplate=FOREIGN), a_check(remediationTemplate=FOREIGN, healthyDelay="3h")),
    "threshold": (a_check(), a_check(minHealthy="100%")),
    "startup": (openshift("pool"), openshift("pool", nodeStartupTimeout="10m")),
    "strategy": (openshift("pool", maxUnhealthy=9), replace(openshift("pool", maxUnhealthy=9), external_strategy=True)),
    "cluster": (cluster_api("prod"), cluster_api("prod", cluster="test")),
    "machine conditions": (cluster_api("prod"), TWO_CLOCKS[1]),
    "uid": (a_check(remediationTemplate=FOREIGN), replace(a_check(remediationTemplate=FOREIGN), uid="another")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_check_is_followed_by_all_that_it_covers(change: str) -> None:
    """Whatever a verdict was found by: nobody keeps one that the check as it is now would not give."""
    before, changed = CHANGES[change]
    found: list[Thing] = [
        PROD,
        replace(PROD, name="test"),
        a_node("n1", "Unknown", 60),
        a_node("n2", labels={WORKER: "", "pool": "a"}),
        a_node("n3"),
        replace(a_remediation("n3"), ref=replace(a_remediation().ref, name="n3")),
        a_machine("m1", Dialect.OPENSHIFT, node_name="", last_updated=ago(70)),
        a_machine("m2", Dialect.OPENSHIFT),
        a_machine("m1", node_name="n2", conditions=(CLOCKLESS,)),
        a_machine("m2", node_name="n3", cluster_name="test"),
    ]
    kept = after(*(("put", thing) for thing in found), ("put", before))
    first = said(kept.ledger, NOW)
    kept.apply(("put", changed))
    kept.assert_it_says_what_a_fresh_one_says()
    assert said(kept.ledger, NOW)[0][0].verdicts != first[0][0].verdicts


def verdicts(found: Iterable[CheckEvaluation]) -> dict[tuple[str, str, str], TargetEvaluation]:
    return {(each.check.ref.key, row.target, row.machine): row for each in found for row in each.verdicts}


def critical(world: World) -> list[datetime]:
    """The moments at which anything could happen, by whichever timeout: the verdicts' own word is not taken for it."""
    starts: set[datetime] = set()
    for thing in world.things.values():
        match thing:
            case NodeView() | MachineView():
                starts |= {condition.since for condition in thing.conditions if condition.since is not None}
        match thing:
            case MachineView():
                starts |= {moment for moment in (thing.created, thing.last_updated) if moment is not None}
            case WorkloadCluster():
                since = (thing.control_plane_initialized_since, thing.infrastructure_ready_since)
                starts |= {moment for moment in since if moment is not None}
            case RemediationObject():
                starts |= {thing.well_since} if thing.well_since is not None else set()
    timeouts = [timedelta(seconds=seconds) for seconds in (10, 20, 30, 40, 60, 300, 600, 7200, 10800)]
    return sorted(
        start + timeout + late for start in starts for timeout in timeouts for late in (timedelta(0), timedelta(seconds=1))
    )


@settings(BUSY, max_examples=60)
@given(worlds(), st.data())
def test_a_verdict_holds_until_it_is_due_and_then_changes(world: World, data: st.DataObject) -> None:
    """Somebody who looks again when told to misses nothing, and never looks in vain but for what says that no clock runs."""
    now = NOW + timedelta(seconds=data.draw(st.sampled_from([0, 3, 17, -8])))
    found = world.evaluated(now)
    rows = verdicts(found)
    ahead = [moment for moment in critical(world) if moment > now]
    for each in found:
        for row in each.verdicts:
            assert row.due_in is None or (each.next_look is not None and each.next_look <= row.due_in)
            assert row.due_in is None or row.due_in > timedelta(0) or row.verdict.due is None

    def unchanged(until: datetime, key: tuple[str, str, str]) -> None:
        last = until - MICROSECOND
        tried = [moment for moment in ahead if moment < until][-2:]
        for moment in {*tried, last} if last > now else set(tried):
            later = world.evaluated(moment)
            assert verdicts(later)[key].verdict == rows[key].verdict, (moment, key)
            for was, each in zip(found, later, strict=True):
                if was.next_look is None or moment < now + was.next_look:
                    assert (each.counts, each.breaker.allowed) == (was.counts, was.breaker.allowed)

    chosen = data.draw(st.sampled_from(sorted(rows))) if rows else None
    assume(chosen is not None)
    assert chosen is not None
    row = rows[chosen]
    if row.verdict.due is None:
        unchanged(max(ahead, default=now) + timedelta(days=1), chosen)
        return
    (checked,) = [each for each in found if each.check.ref.key == chosen[0]]
    look = checked.next_look if row.verdict.standing is Standing.UNHEALTHY else row.due_in
    assert look is not None
    assert now + look <= row.verdict.due
    unchanged(row.verdict.due, chosen)
    assert verdicts(world.evaluated(row.verdict.due))[chosen].verdict != row.verdict


def test_of_two_clocks_that_run_the_verdict_has_the_first_to_run_out() -> None:
    """Of a Machine without a Node: its own condition is over after 20 s, the wait for its Node after a minute."""
    drained = a_machine(node_name="", created=NOW, conditions=(Condition(type="DrainFailed", status="True", since=NOW),))
    world = World(things={key_of(thing): thing for thing in (PROD, TWO_CLOCKS[1], drained)})
    dues = []
    for seconds in (0, 20):
        (row,) = world.evaluated(NOW + timedelta(seconds=seconds))[0].verdicts
        dues.append(row.verdict.due)
    assert dues == [NOW + timedelta(seconds=21)] * 2
    (row,) = world.evaluated(NOW + timedelta(seconds=21))[0].verdicts
    assert row.verdict.reason == "UnhealthyMachine"


def test_a_long_timeout_of_openshifts_is_looked_at_every_hour() -> None:
    """The one case in which somebody looks before anything is due: the shipped controller does."""
    world = World(things={key_of(thing): thing for thing in (
        openshift("slow", nodeStartupTimeout="2h"), a_machine(dialect=Dialect.OPENSHIFT, node_name="", last_updated=NOW),
    )})  # fmt: skip
    ((found,),) = [each.verdicts for each in world.evaluated(NOW)]
    assert (found.due_in, found.verdict.due) == (timedelta(hours=1), NOW + timedelta(hours=2, seconds=1))


counted = st.builds(
    Counts,
    **{
        name: st.integers(0, 40)
        for name in ("healthy", "soon", "starting", "unhealthy", "deleting", "excluded", "recovering", "left_out")
    },
)
percents = st.integers(0, 100)


@settings(BUSY, max_examples=100)
@given(counted, percents)
@example(Counts(healthy=15, unhealthy=10), 40)
@example(Counts(healthy=14, unhealthy=11), 40)
@example(Counts(healthy=4, unhealthy=2), 40)
@example(Counts(healthy=3, unhealthy=3), 40)
def test_a_machine_health_check_never_exceeds_the_exact_fraction(counts: Counts, percent: int) -> None:
    """S17. Rounded down: of 6 Machines 40 % are 2, not 3."""
    total = counts.total
    for check in (openshift("pool", maxUnhealthy=f"{percent}%"), cluster_api("prod", limit=f"{percent}%")):
        found = circuit_breaker(check, counts, Circumstances(cluster=PROD))
        assert found.allowed is (counts.unwell * 100 <= percent * total)
        assert found.breached is not found.allowed
        if found.allowed:
            most = counts.unwell + found.remaining
            assert most * 100 <= percent * total < (most + 1) * 100
        else:
            assert found.remaining == 0


@settings(BUSY, max_examples=100)
@given(counted, percents)
@example(Counts(healthy=2, unhealthy=1), 51)
@example(Counts(healthy=1, unhealthy=2), 51)
@example(Counts(unhealthy=1), 51)
@example(Counts(healthy=8, unhealthy=2), 75)
def test_a_node_health_check_rounds_up_whichever_knob_it_has(counts: Counts, percent: int) -> None:
    """S17. Both knobs, as the shipped operator: `maxUnhealthy` is therefore the looser of the two, by less than one node."""
    share = math.ceil(Fraction(percent * counts.total, 100))
    for check, needed in (
        (a_check(minHealthy=f"{percent}%"), share),
        (a_check(minHealthy=None, maxUnhealthy=f"{percent}%"), counts.total - share),
    ):
        found = circuit_breaker(check, counts)
        assert found.allowed is (counts.healthy >= needed)
        assert found.remaining == (counts.healthy - needed if found.allowed else 0)


@settings(BUSY, max_examples=100)
@given(counted, st.integers(0, 30), st.integers(0, 30))
def test_plain_numbers_and_ranges_are_taken_as_they_are(counts: Counts, first: int, second: int) -> None:
    least, most = sorted((first, second))
    for check in (openshift("pool", maxUnhealthy=most), cluster_api("prod", limit=most)):
        assert circuit_breaker(check, counts, Circumstances(cluster=PROD)).allowed is (counts.unwell <= most)
    ranged = replace(cluster_api("prod", limit=0), unhealthy_range=UnhealthyRange(least=least, most=most))
    assert circuit_breaker(ranged, counts, Circumstances(cluster=PROD)).allowed is (least <= counts.unwell <= most)
    assert circuit_breaker(a_check(minHealthy=most), counts).allowed is (counts.healthy >= most)
    allowed = circuit_breaker(a_check(minHealthy=None, maxUnhealthy=most), counts).allowed
    assert allowed is (most <= counts.total and counts.healthy >= counts.total - most)


ACTS = frozenset(Action) - {Action.NONE, Action.SKIP_NO_OWNER} - RESTORING
"""What happens to a target; giving a remediation object back is none of them."""


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """One check's row about one victim."""

    evaluation: CheckEvaluation
    row: TargetEvaluation

    @property
    def key(self) -> str:
        return self.evaluation.check.ref.key

    @property
    def acts(self) -> bool:
        return self.row.action in ACTS and not self.row.held_by

    @property
    def offended(self) -> bool:
        return self.row.verdict.standing is Standing.UNHEALTHY


def opinions(found: Iterable[CheckEvaluation]) -> dict[str, list[Opinion]]:
    """Who covers whom: what a check leaves out of its total it does not cover."""
    by_victim: defaultdict[str, list[Opinion]] = defaultdict(list)
    for each in found:
        for row in each.verdicts:
            if row.verdict.standing is not Standing.LEFT_OUT:
                victim = row.node or machine_key(each.check.dialect, each.check.ref.namespace, row.machine)
                by_victim[victim].append(Opinion(evaluation=each, row=row))
    return dict(by_victim)


@settings(BUSY, max_examples=100)
@given(worlds())
def test_no_node_is_acted_on_while_a_check_that_covers_it_may_not_act(world: World) -> None:
    """S17, in the strictest mode: of all checks that cover a target, also of those that think it healthy, every circuit breaker
    is closed."""
    world.overlap = Overlap.STRICTEST
    ledger = world.ledger(NOW)
    candidates = {found.node: found.check.key for found in ledger.report_parts(NOW).candidates}
    for victim, said_of_it in opinions(evaluate(ledger.known(NOW))).items():
        acting = {each.key for each in said_of_it if each.acts}
        assert len(acting) <= 1
        if acting:
            assert all(each.evaluation.breaker.allowed for each in said_of_it)
            assert victim not in candidates or {candidates[victim]} == acting, "a report and an evaluation can't disagree"


@settings(BUSY, max_examples=60)
@given(worlds())
def test_independent_checks_act_by_their_own_circuit_breaker_alone(world: World) -> None:
    """A check whose target nobody else wants to remediate says the same as if it were alone in the cluster."""
    world.overlap = Overlap.INDEPENDENT
    for said_of_it in opinions(world.evaluated(NOW)).values():
        for each in said_of_it:
            assert not each.acts or each.evaluation.breaker.allowed
            assert "covers it too, and its circuit breaker is open" not in each.row.held_by
        offended = [each for each in said_of_it if each.offended]
        closed = [each for each in offended if not each.evaluation.breaker.allowed]
        if not closed:  # else see below
            assert len({each.key for each in offended if each.acts}) <= 1
        if len({each.key for each in offended}) == 1 and not any("ControlPlaneGuard" in each.row.held_by for each in offended):
            alone = replace(
                world,
                things={
                    key: thing
                    for key, thing in world.things.items()
                    if not isinstance(thing, HealthCheck) or key == offended[0].key
                },
            )
            lonely = verdicts(alone.evaluated(NOW))
            for each in offended:
                row = lonely[each.key, each.row.target, each.row.machine]
                if "ControlPlaneGuard" not in row.held_by:
                    assert row == each.row


def test_of_several_independent_checks_one_gives_the_remedy_also_where_the_first_may_not_act() -> None:
    """Two remediations of one node side by side are what an overlap must never come to."""
    closed = a_check("a", minHealthy="100%", remediationTemplate=FOREIGN)
    others = [a_check(name, minHealthy="0%", remediationTemplate=FOREIGN) for name in ("b", "c")]
    found = [closed, *others, sick(), a_node("n2")]
    world = World(things={key_of(thing): thing for thing in found}, overlap=Overlap.INDEPENDENT)
    rows = opinions(world.evaluated(NOW))["n1"]
    assert [(each.key, each.acts) for each in rows] == [
        ("NodeHealthCheck/a", False),
        ("NodeHealthCheck/b", True),
        ("NodeHealthCheck/c", False),
    ]


@settings(BUSY, max_examples=40)
@given(worlds())
def test_the_numbers_of_a_check_are_those_of_its_verdicts(world: World) -> None:
    for each in world.evaluated(NOW):
        standings = [row.verdict.standing for row in each.verdicts if row.verdict.reason != ORPHANED]
        counts = each.counts
        told = (counts.healthy, counts.soon, counts.starting, counts.unhealthy, counts.deleting, counts.excluded)
        told += (counts.recovering, counts.left_out)
        order = (Standing.HEALTHY, Standing.SOON, Standing.STARTING, Standing.UNHEALTHY, Standing.DELETING, Standing.EXCLUDED)
        assert told == tuple(standings.count(standing) for standing in (*order, Standing.RECOVERING, Standing.LEFT_OUT))
        assert counts.total == counts.healthy + counts.unwell == sum(told) - counts.left_out
