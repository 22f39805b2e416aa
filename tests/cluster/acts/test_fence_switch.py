"""The off switch and the policies of single hosts, seen live by whatever is about to act (S20)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from activities.cluster.acts.targets import ClusterTarget
from activities.cluster.api.paths import CONFIG_MAPS, EVENTS, LEASES
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.target import LookResult, LookVerdict
from policy.checks.fence_policies import FencePolicies, PolicySource
from policy.episode.messages import Need, NeedKind
from simulator.api.control.faults import Accident, Fault
from simulator.objects import micro_timestamp, timestamp
from tests.cluster.acts.world import CHECK_REF, NODE, NOW, World
from tests.licensing import LICENCES
from tests.policy.fencing_builders import a_cluster_config, a_policy

CHECK_NEED = Need(kind=NeedKind.CHECK, reason="ReadyUnknown", check=CHECK_REF)
PERSON_NEED = Need(kind=NeedKind.PERSON, reason="ada asks", requester="ada")


@pytest.fixture
async def licensed(world: World) -> World:
    """Everything is as it should be for a destructive act."""
    await world.install_kinds()
    await world.add_check(duration="60s")
    await world.hold_cluster_lease()
    return world


async def put(world: World, *maps: dict[str, Any]) -> None:
    for each in maps:
        await world.others.create(CONFIG_MAPS.path(namespace="nodewarden"), each)


async def look(world: World, **fields: Any) -> LookResult:
    fields.setdefault("need", CHECK_NEED)
    return await world.target.last_look(await world.look(**fields))


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
        ServedCluster("prod", licensed.connection, clock=licensed.clock, source=source), licensed.permits, LICENCES
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
