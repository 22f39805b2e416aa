"""One round of a drain against the eviction API: budgets have their say, and nobody is deleted (S29, S30, S36)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from activities.cluster.acts.drain import Drain
from activities.cluster.api.paths import CONFIG_MAPS
from activities.contracts.target import DrainRequest, DrainResult
from activities.errors import ErrorType
from policy.episode.drain import DrainOptions
from policy.episode.messages import Need, NeedKind
from policy.episode.modes import ClusterModes
from policy.fence.plan import Chosen
from policy.values.mode import MODE_KEY, Mode
from simulator.api.control.faults import Accident, Fault
from simulator.resources import CLAIMS, DISRUPTION_BUDGETS, NAMESPACES, PODS, Resource
from tests.cluster.acts.world import CHECK_REF, CHECKS, World, our_mark, refused
from tests.policy.builders import a_cluster_config

pytestmark = pytest.mark.timeout(10)

DAEMON_SETS = Resource(api_version="apps/v1", kind="DaemonSet", plural="daemonsets")
SHORT = DrainOptions(ignore_daemon_sets=True)
LONG = "x" * 1_200_000
EVERYTHING = replace(SHORT, force=True, delete_empty_dir=True)


@pytest.fixture
async def ready(empty: World) -> World:
    """A node that answers, marked as ours, in a cluster that we hold."""
    await empty.add_node(ready="True")
    await empty.hold_cluster_lease()
    await empty.mark_as_ours()
    return empty


@pytest.fixture
async def dead(world: World) -> World:
    """The same with a node that is not Ready."""
    await world.hold_cluster_lease()
    await world.mark_as_ours()
    return world


async def drain(world: World, options: DrainOptions = SHORT, **changes: Any) -> DrainResult:
    soon, need = world.now + timedelta(seconds=10), Need(kind=NeedKind.CHECK, check=CHECK_REF)
    fields = {"target": await world.pinned(), "not_after": soon, "holder": HOLDER, "need": need} | changes
    try:
        return await world.isolation.drain(DrainRequest(options=options, **fields))
    finally:
        for pod in await terminating(world):  # as a kubelet does
            await world.others.delete(PODS.path(pod["metadata"]["name"], namespace="default"), grace_seconds=0)


async def terminating(world: World) -> list[dict[str, Any]]:
    """Those of which no kubelet has said yet that they have ended."""
    pods = (await world.others.get(PODS.path(namespace="default")))["items"]
    return [pod for pod in pods if "deletionTimestamp" in pod["metadata"] and "finalizers" not in pod["metadata"]]


HOLDER = "temporal.example:7233/default"


async def protect(world: World, *, allowed: int) -> None:
    """A disruption budget over every pod."""
    budget = {"metadata": {"name": "careful"}, "spec": {"minAvailable": 1, "selector": {}}}
    await world.others.create(DISRUPTION_BUDGETS.path(namespace="default"), budget)
    await allow(world, allowed)


async def allow(world: World, allowed: int) -> None:
    status = {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    await world.others.patch(DISRUPTION_BUDGETS.path("careful", namespace="default", subresource="status"), {"status": status})


async def make_ready(world: World, *names: str) -> None:
    for name in names:
        condition = {"type": "Ready", "status": "True"}
        path = PODS.path(name, namespace="default", subresource="status")
        await world.others.patch(path, {"status": {"phase": "Running", "conditions": [condition]}})


def deletes(world: World) -> list[str]:
    """Requests of ours that would delete a pod without asking."""
    return [
        each.path for each in world.server.requests.log if each.method == "DELETE" and each.user_agent.startswith("nodewarden/")
    ]


async def test_what_may_go_is_asked_to_go_and_what_belongs_to_the_node_stays(ready: World) -> None:
    """S29: mirror and DaemonSet pods are never touched."""
    await add_daemon_set(ready)
    await ready.add_pod("web", owner="ReplicaSet")
    await ready.add_pod("logs", owner="DaemonSet")
    await ready.add_pod("static", mirror=True)
    await ready.add_pod("elsewhere", owner="ReplicaSet", node="node-8")
    result = await drain(ready)
    assert (result.evicted, result.skipped, result.left) == (1, 2, 1)
    assert await ready.pods() == ["elsewhere", "logs", "static"]
    again = await drain(ready)
    assert (again.evicted, again.left) == (0, 0)
    assert again.done
    assert not result.done


async def add_daemon_set(world: World, name: str = "owner") -> None:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "example"}]}}
    body = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    await world.others.create(DAEMON_SETS.path(namespace="default"), body)


async def test_one_pod_that_a_filter_refuses_and_nothing_is_evicted(ready: World) -> None:
    """S29: a bare pod stops the drain of all others."""
    await ready.add_pod("web", owner="ReplicaSet")
    await ready.add_pod("bare")
    ready.server.requests.reset()
    result = await drain(ready)
    assert result.errors == ("default/bare: no controller would make it anew (force evicts it)",)
    assert not result.done
    assert await ready.pods() == ["bare", "web"]
    assert ready.writes == 0


async def test_an_orphaned_daemon_set_pod_goes_by_force_only(ready: World) -> None:
    """K05: and says so."""
    await ready.add_pod("logs", owner="DaemonSet")
    assert (await drain(ready)).errors
    result = await drain(ready, EVERYTHING)
    assert result.evicted == 1
    assert "does not exist" in result.warnings[0]


async def test_a_daemon_set_that_cannot_be_read_is_not_one_that_is_gone(ready: World) -> None:
    """S29: doubt stops the drain."""
    await ready.add_pod("logs", owner="DaemonSet")
    ready.server.faults.add(Fault(accident=Accident.STATUS, path="daemonsets", status=500))
    with refused(ErrorType.TRANSIENT, "daemonsets"):
        await drain(ready, EVERYTHING)
    assert await ready.pods() == ["logs"]


async def test_a_budget_s_no_is_waited_out_and_never_turned_into_a_delete(ready: World) -> None:
    """S30: refused round after round, evicted in the first that is allowed."""
    await ready.add_pod("web", owner="ReplicaSet")
    await make_ready(ready, "web")
    await protect(ready, allowed=0)
    for _ in range(3):
        result = await drain(ready, EVERYTHING)
        assert (result.evicted, result.left) == (0, 1)
        assert result.blocked[0].startswith("default/web: ")
        assert "careful" in result.blocked[0]
    assert await ready.pods() == ["web"]
    assert deletes(ready) == []
    await allow(ready, 1)
    assert (await drain(ready, EVERYTHING)).evicted == 1
    assert deletes(ready) == []


async def test_two_budgets_over_one_pod_are_a_refusal_like_any_other(ready: World) -> None:
    """S30, K04: the server answers 500."""
    await ready.add_pod("web", owner="ReplicaSet")
    await make_ready(ready, "web")
    await protect(ready, allowed=1)
    body = {"metadata": {"name": "second"}, "spec": {"minAvailable": 1, "selector": {}}}
    await ready.others.create(DISRUPTION_BUDGETS.path(namespace="default"), body)
    result = await drain(ready)
    assert "more than one" in result.blocked[0]
    assert await ready.pods() == ["web"]


async def test_a_pod_that_is_terminating_is_waited_for_and_not_asked_again(ready: World) -> None:
    """S31: terminating is not gone."""
    await ready.add_pod("web", owner="ReplicaSet", finalizers=("example.com/slow",))
    assert (await drain(ready)).evicted == 1
    ready.server.requests.reset()
    result = await drain(ready)
    assert (result.evicted, result.left, result.names) == (0, 1, ("default/web",))
    assert ready.writes == 0


async def test_a_pod_of_the_same_name_and_another_uid_is_left_alone(ready: World) -> None:
    """S30: gone means gone or another uid; the newcomer is the next round's."""
    await ready.add_pod("web", owner="ReplicaSet")

    async def replace_it() -> None:
        await ready.others.delete(PODS.path("web", namespace="default"), grace_seconds=0)
        await ready.add_pod("web", owner="ReplicaSet", node="node-8")

    ready.connection.before_writes.append(replace_it)
    result = await drain(ready)
    assert (result.evicted, result.left, result.blocked) == (0, 0, ())
    assert await ready.pods() == ["web"]


POD = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main", "image": "example"}]}}


async def test_a_namespace_that_is_being_terminated_takes_its_pods_along(ready: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubectl's rule: Forbidden for that reason is waited out, any other is not. The answer is that to a create there."""
    await ready.add_pod("web", owner="ReplicaSet")
    await ready.others.create(NAMESPACES.path(), {"metadata": {"name": "ending", "finalizers": ["example.com/slow"]}})
    await ready.others.delete(NAMESPACES.path("ending"))
    create = ready.connection.create

    async def as_there(path: str, body: Any, **_: Any) -> Any:
        return await create(path.replace("/default/pods/web/eviction", "/ending/pods"), POD)

    monkeypatch.setattr(ready.connection, "create", as_there)
    result = await drain(ready)
    assert (result.evicted, result.left) == (0, 1)
    assert "namespace is being terminated" in result.blocked[0]


async def test_a_right_that_is_missing_is_no_reason_to_wait(ready: World) -> None:
    await ready.add_pod("web", owner="ReplicaSet")
    ready.server.faults.add(Fault(accident=Accident.STATUS, method="POST", path="eviction", status=403))
    with refused(ErrorType.FORBIDDEN, "eviction"):
        await drain(ready)


async def test_a_lost_answer_is_looked_into_by_the_next_round(ready: World) -> None:
    """S33: it was carried out; nothing is asked twice of a pod that is gone."""
    await ready.add_pod("web", owner="ReplicaSet")
    ready.server.faults.add(Fault(accident=Accident.LOSE_ANSWER, method="POST", path="eviction", count=1))
    result = await drain(ready)
    assert (result.evicted, result.left) == (0, 1)
    assert (await drain(ready)).done


async def test_no_more_at_a_time_than_was_asked_for(ready: World) -> None:
    for number in range(5):
        await ready.add_pod(f"web-{number}", owner="ReplicaSet")
    result = await drain(ready, at_most=2)
    assert (result.evicted, result.left) == (2, 5)
    assert len(await ready.pods()) == 3


async def test_a_grace_period_of_our_own_goes_with_the_eviction(ready: World) -> None:
    await ready.add_pod("web", owner="ReplicaSet", finalizers=("example.com/slow",))
    await drain(ready, replace(SHORT, grace=timedelta(seconds=7)))
    pod = await ready.others.get(PODS.path("web", namespace="default"))
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 7


@pytest.mark.parametrize(("ours", "own"), [(0, None), (0, 30), (None, 0)])
async def test_no_pod_is_taken_away_without_its_kubelet(dead: World, ours: int | None, own: int | None) -> None:
    """S1, S30: with a grace period of 0 the API server removes it at once, and another one would run beside it."""
    await dead.add_pod("db-0", owner="StatefulSet", grace=own)
    options = replace(SHORT, grace=timedelta(seconds=ours) if ours is not None else None)
    soon, need = dead.now + timedelta(seconds=10), Need(kind=NeedKind.CHECK, check=CHECK_REF)
    request = DrainRequest(options=options, target=await dead.pinned(), not_after=soon, holder=HOLDER, need=need)
    assert (await dead.isolation.drain(request)).evicted == 1
    (pod,) = await terminating(dead)
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 1


async def _wait(world: World) -> None:
    world.now += timedelta(seconds=11)


Change = Callable[[World], Awaitable[Any]]
LAST_CHECKS: dict[str, tuple[Change, ErrorType, str]] = {
    "S13 another episode's mark": (
        lambda world: world.put_mark(replace(our_mark(), incident="incident-2")),
        ErrorType.VETOED,
        "incident-2",
    ),
    "S9 a node recreated since": (lambda world: world.recreate_node(ready="True"), ErrorType.TARGET_CHANGED, ""),
    "S38 another's cluster Lease": (lambda world: world.hold_cluster_lease("somebody-else"), ErrorType.NOT_LICENSED, ""),
    "S20 fencing is switched off, and no last look comes before the drain of a machine that is kept": (
        lambda world: world.others.create(CONFIG_MAPS.path(namespace="nodewarden"), a_cluster_config(fencing="off")),
        ErrorType.VETOED,
        "fencing is switched off",
    ),
    "S20 a person's hold": (
        lambda world: world.change_node({"metadata": {"annotations": {"nodewarden.io/hold": "not now"}}}),
        ErrorType.VETOED,
        "",
    ),
    "S20 its time is over": (_wait, ErrorType.EXPIRED, ""),
}


@pytest.mark.parametrize("check", LAST_CHECKS)
async def test_nothing_is_evicted_where_something_speaks_against_it(ready: World, check: str) -> None:
    change, kind, words = LAST_CHECKS[check]
    await ready.add_pod("web", owner="ReplicaSet")
    target, not_after = await ready.pinned(), ready.now + timedelta(seconds=10)
    await change(ready)
    with refused(kind, words):
        await drain(ready, target=target, not_after=not_after)
    assert await ready.pods() == ["web"]


async def test_a_worker_does_not_drain_the_node_it_runs_on(ready: World) -> None:
    """S16."""
    target = await ready.pinned()
    own = replace(target, pinned=replace(target.pinned, node="node-1"))
    with refused(ErrorType.OWN_NODE):
        await drain(ready, target=own)


async def test_a_mark_that_goes_between_two_rows_ends_the_round(ready: World) -> None:
    """S20: looked at again right before each row."""
    for number in range(12):
        await ready.add_pod(f"web-{number:02}", owner="ReplicaSet")
    ready.connection.before_writes.append(lambda: ready.put_mark(replace(our_mark(), incident="incident-2")))
    with refused(ErrorType.VETOED):
        await drain(ready)
    assert len(await ready.pods()) == 2


@pytest.mark.parametrize("where", ["rule", "label", "annotation"])
async def test_s52_a_mode_that_is_taken_back_between_two_rows_ends_the_round(where: str, ready: World) -> None:
    await ready.install_kinds()
    await ready.add_check(duration="60s")
    for number in range(12):
        await ready.add_pod(f"web-{number:02}", owner="ReplicaSet")

    async def take_back() -> None:
        observe = {"metadata": {"annotations" if where == "annotation" else "labels": {MODE_KEY: "observe"}}}
        if where == "rule":
            ready.permits.set = ClusterModes(setting=Mode.OBSERVE)
        elif where == "label":
            await ready.change_node(observe)
        else:
            await ready.others.patch(CHECKS.path("workers"), observe)

    ready.connection.before_writes.append(take_back)
    with refused(ErrorType.VETOED, "its mode is observe"):
        await drain(ready, need=Need(kind=NeedKind.CHECK, check=CHECK_REF))
    assert len(await ready.pods()) == 2
    assert (await drain(ready, need=Need(kind=NeedKind.PERSON))).evicted == 2  # no mode brakes a person


async def test_s52_where_the_mode_is_not_known_a_person_s_drain_goes_on(ready: World) -> None:
    await ready.add_pod("web", owner="ReplicaSet")
    ready.permits.modes_error = RuntimeError("an older scanner")
    with refused(ErrorType.NOT_LICENSED, "the mode could not be read: an older scanner"):
        await drain(ready)
    assert (await drain(ready, need=Need(kind=NeedKind.PERSON))).evicted == 1


async def test_s52_a_clean_up_is_no_word_of_a_person(ready: World) -> None:
    """Any client may call its need so."""
    await ready.add_pod("web", owner="ReplicaSet")
    ready.permits.set = ClusterModes(setting=Mode.OBSERVE)
    with refused(ErrorType.VETOED, "its mode is observe"):
        await drain(ready, need=Need(kind=NeedKind.CLEAN_UP))
    assert len(await ready.pods()) == 1


async def test_s20_what_is_said_while_the_volumes_of_a_silent_node_are_read_evicts_nothing(
    dead: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S20, S52: that may take seconds, and comes after the look."""
    await dead.add_pod("web-1", owner="ReplicaSet")

    async def meanwhile(*_: object) -> list[object]:
        dead.permits.set = ClusterModes(setting=Mode.OBSERVE)
        return []

    monkeypatch.setattr(Drain, "_held_by_volumes", meanwhile)
    with refused(ErrorType.VETOED, "its mode is observe"):
        await drain(dead)
    assert len(await dead.pods()) == 1


class TestNotReady:
    async def test_on_a_node_that_answers_it_goes(self, ready: World) -> None:
        await ready.add_volume("data")
        await ready.add_pod("db", owner="StatefulSet", claims=("data",))
        assert (await drain(ready)).evicted == 1

    @pytest.mark.parametrize(
        ("modes", "attached", "withheld"),
        [
            (["ReadWriteOnce"], True, True),
            (["ReadWriteMany"], True, False),
            (["ReadOnlyMany"], True, False),
            (["ReadWriteMany"], False, False),
            (["OfAReleaseToCome"], True, True),
        ],
    )
    async def test_only_what_one_machine_writes_holds_a_pod(
        self, dead: World, modes: list[str], attached: bool, withheld: bool
    ) -> None:
        """S36."""
        await add_claim(dead, modes, attached=attached)
        await dead.add_attachment("va-other", volume="pv-other")
        await dead.add_pod("db", owner="StatefulSet", claims=("data",))
        result = await drain(dead)
        assert bool(result.withheld) is withheld
        assert result.evicted == (0 if withheld else 1)

    @pytest.mark.parametrize(("phase", "withheld"), [("Running", True), ("Pending", False)])
    async def test_what_no_driver_attaches_is_in_use_where_its_pod_runs(self, dead: World, phase: str, withheld: bool) -> None:
        """S31, S36: of a share or a local disk there is no VolumeAttachment, and a ReplicaSet waits for nobody to end."""
        await add_claim(dead, ["ReadWriteOnce"], attached=False)
        await dead.add_pod("db", owner="ReplicaSet", claims=("data",), phase=phase)
        assert bool((await drain(dead)).withheld) is withheld

    @pytest.mark.parametrize("inline", [False, True], ids=["claim", "disk in its own spec"])
    async def test_what_is_attached_holds_its_pod_though_no_kubelet_has_said_that_it_runs(
        self, dead: World, inline: bool
    ) -> None:
        """S36: its last word may be older than its containers. A disk of the pod's own spec is attached without a name."""
        disk = {"name": "disk", "awsElasticBlockStore": {"volumeID": "vol-1"}}
        pods = {"volumes": (disk,)} if inline else {"claims": ("data",)}
        await dead.add_pod("db", owner="StatefulSet", phase="Pending", **pods)
        await add_claim(dead, ["ReadWriteOnce"], attached=not inline)
        if inline:
            await dead.add_attachment("va-inline", volume="")
        result = await drain(dead)
        assert (result.withheld, result.evicted) == (("default/db",), 0)

    async def test_a_claim_that_is_gone_may_be_of_any_volume(self, dead: World) -> None:
        """S36: doubt withholds."""
        await dead.add_attachment("va-other", volume="pv-other")
        await dead.add_pod("db", owner="StatefulSet", claims=("lost",))
        assert (await drain(dead)).withheld == ("default/db",)

    async def test_a_node_that_stops_answering_between_two_rows_ends_the_round(self, ready: World) -> None:
        """S36: what was planned for a node that answers is not carried out on one that does not."""
        for number in range(12):
            await ready.add_pod(f"web-{number:02}", owner="ReplicaSet")
        ready.connection.before_writes.append(lambda: ready.set_ready("Unknown"))
        result = await drain(ready)
        assert (result.evicted, result.left) == (10, 12)
        assert len(await ready.pods()) == 2


async def add_claim(world: World, modes: list[str], *, attached: bool) -> None:
    spec = {"accessModes": modes, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "pv-data"}
    await world.others.create(CLAIMS.path(namespace="default"), {"metadata": {"name": "data"}, "spec": spec})
    if attached:
        await world.add_attachment("va-data", volume="pv-data")


async def test_where_some_are_meant_no_other_is_asked_to_go(ready: World) -> None:
    """Those that mount the volumes now, whoever they are, and those that were named."""
    for claim in ("gold", "other"):
        await ready.add_volume(claim)
    named = await ready.add_pod("client", owner="ReplicaSet")
    await ready.add_pod("db-0", owner="StatefulSet", claims=("gold",))
    await ready.add_pod("db-1", owner="StatefulSet", claims=("other",))
    await ready.add_pod("web", owner="ReplicaSet")
    await ready.add_pod("bare")  # of no matter: it is not meant, so no filter asks about it
    await ready.add_claim("forged", "pv-gold")
    await ready.add_pod("forger", owner="ReplicaSet", claims=("forged",))  # a claim may name any volume (S41)
    only = Chosen(handles=("vol-1",), volumes=("pv-gold",), pods=(named["metadata"]["uid"],))
    result = await drain(ready, only=only)
    assert (result.evicted, result.skipped, result.errors) == (2, 0, ())
    assert await ready.pods() == ["bare", "db-1", "forger", "web"]
    assert (await drain(ready, only=only)).done


async def test_of_pods_that_a_budget_keeps_those_with_a_chosen_volume_are_named(ready: World) -> None:
    """S30."""
    await ready.add_volume("gold")
    named = await ready.add_pod("client", owner="ReplicaSet")
    await ready.add_pod("db-0", owner="StatefulSet", claims=("gold",))
    await make_ready(ready, "client", "db-0")
    await protect(ready, allowed=0)
    only = Chosen(handles=("vol-1",), volumes=("pv-gold",), pods=(named["metadata"]["uid"],))
    result = await drain(ready, only=only)
    assert len(result.blocked) == 2
    assert result.mounting == ("default/db-0",)
    assert deletes(ready) == []


@pytest.mark.parametrize(
    "mine", [{"owner": "ReplicaSet", "claims": (LONG,)}, {"owner": "DaemonSet", "owner_name": LONG}], ids=["claim", "DaemonSet"]
)
async def test_s41_a_name_that_no_object_has_keeps_no_other_pod_from_its_eviction(dead: World, mine: dict[str, Any]) -> None:
    """The API takes any text as the name of a pod's claim, or of its owner. A tenant's pod with such a one is held, or goes; the
    others go."""
    await dead.add_pod("web", owner="ReplicaSet")
    await dead.add_pod("mine", **mine)
    assert (await drain(dead, options=EVERYTHING)).evicted >= 1
