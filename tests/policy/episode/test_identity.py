"""Whether what is seen is still what was pinned (S9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.contracts.target import Target
from policy.episode.proofs import compare_identity, same_machine
from tests.policy.builders import a_node, pinned, seen


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ({}, {}, True),
        ({}, {"uid": "new"}, True),
        ({}, {"uid": "new", "system_uuid": "4c4c-aa"}, True),
        ({}, {"uid": "new", "provider_id": "sim:///2"}, False),
        ({}, {"uid": "new", "system_uuid": "other"}, False),
        ({}, {"provider_id": "sim:///2"}, False),
        ({"system_uuid": ""}, {"uid": "new", "system_uuid": "any"}, True),
        ({}, {"uid": "new", "system_uuid": ""}, True),
        ({"provider_id": "", "system_uuid": ""}, {"uid": "new"}, False),
        ({"provider_id": "", "system_uuid": ""}, {}, True),
        ({}, {"uid": "new", "provider_id": "", "system_uuid": ""}, False),
        ({"uid": "", "provider_id": "", "system_uuid": ""}, {"uid": ""}, False),
    ],
)
def test_the_same_machine_is_known_by_provider_id_and_system_uuid(
    ours: Mapping[str, str], theirs: Mapping[str, str], same: bool
) -> None:
    """S9: a new Node object with the same providerID and system UUID is the same machine."""
    assert same_machine(pinned(**ours), seen(**theirs)) is same


def test_a_node_as_read_live_is_compared_like_an_observation() -> None:
    assert same_machine(pinned(), a_node(provider_id="sim:///1", system_uuid="4C4C-AA"))
    assert not same_machine(pinned(), a_node(provider_id="sim:///1", system_uuid="5D5D-BB"))


@pytest.mark.parametrize(
    ("ours", "now", "destructive", "restoring"),
    [
        ({}, {}, "", ""),
        ({}, {"system_uuid": "4c4c-aa"}, "", ""),
        ({}, {"uid": "uid-2"}, "uid: pinned uid-1, now uid-2", ""),
        (
            {},
            {"provider_id": "sim:///2"},
            "providerID: pinned sim:///1, now sim:///2",
            "providerID: pinned sim:///1, now sim:///2",
        ),
        ({}, {"provider_id": ""}, "providerID: pinned sim:///1, now none", ""),
        ({}, {"system_uuid": "BB"}, "systemUUID: pinned 4c4c-aa, now bb", ""),
        ({}, {"present": False}, "the Node object is gone: pinned uid uid-1", ""),
        ({"provider_id": ""}, {"provider_id": "sim:///9"}, "", ""),
        ({"system_uuid": ""}, {"system_uuid": "CC"}, "", ""),
    ],
)
def test_a_destructive_act_compares_all_and_a_restoring_one_only_the_machine(
    ours: Mapping[str, object], now: Mapping[str, object], destructive: str, restoring: str
) -> None:
    """S9: a Node object that was deleted meanwhile strands no machine that is off."""
    assert compare_identity(pinned(**ours), seen(**now), destructive=True) == destructive
    assert compare_identity(pinned(**ours), seen(**now), destructive=False) == restoring


@pytest.mark.parametrize("destructive", [True, False])
def test_other_fence_endpoints_are_a_difference_for_every_act(destructive: bool) -> None:
    """S9."""
    found = compare_identity(pinned(), seen(), destructive=destructive, endpoints=["ipmi://10.0.0.2:623"])
    assert found == "fence endpoints: pinned ipmi://10.0.0.1:623, now ipmi://10.0.0.2:623"
    assert compare_identity(pinned(), seen(), destructive=destructive, endpoints=["ipmi://10.0.0.1:623"]) == ""


@pytest.mark.parametrize("destructive", [True, False])
def test_other_power_levels_of_the_same_devices_are_a_difference(destructive: bool) -> None:
    """S4, S9: one supply instead of the other proves what both together would have to; a pin that tells of no levels compares
    none, and their order proves nothing else."""
    alone = pinned(endpoints=("a", "b"), levels=(("a",), ("b",)))
    words = "power levels: pinned a; b, now a and b"
    assert compare_identity(alone, seen(), destructive=destructive, levels=[("a", "b")]) == words
    assert compare_identity(alone, seen(), destructive=destructive, levels=[("b",), ("a",)]) == ""
    assert compare_identity(replace(alone, levels=()), seen(), destructive=destructive, levels=[("a", "b")]) == ""


NAMED = st.sampled_from(["", "one", "other"])


@given(ours=st.tuples(NAMED, NAMED, NAMED), theirs=st.tuples(NAMED, NAMED, NAMED), destructive=st.booleans(), machine=NAMED)
def test_a_target_that_is_told_in_part_is_compared_as_the_whole_one_is(
    ours: tuple[str, str, str], theirs: tuple[str, str, str], destructive: bool, machine: str
) -> None:
    """S9: what needs no devices, or no levels, is told of none, and keeps off any other machine all the same."""
    uid, provider_id, system_uuid = ours
    whole = pinned(
        uid=uid, provider_id=provider_id, system_uuid=system_uuid, machine_uids=("one",), instance_id="1", levels=(("a",),)
    )
    target = Target(cluster="prod", pinned=whole, incident="abc", kind="Fencing", workflow_id="episode/prod/node-1", run_id="1")
    there = seen(uid=theirs[0], provider_id=theirs[1], system_uuid=theirs[2])
    machines = (machine,) if machine else None
    for short in (target.without_devices.pinned, target.without_levels.pinned):
        assert same_machine(short, there) is same_machine(whole, there)
        found = [compare_identity(each, there, destructive=destructive, machine_uids=machines) for each in (short, whole)]
        assert found[0] == found[1]
        assert (short.node, short.instance_id, short.machine_uids) == (whole.node, whole.instance_id, whole.machine_uids)
    looked_at, node = target.without_levels.pinned, target.without_devices.pinned
    assert (looked_at.endpoints, looked_at.boot_id, looked_at.levels) == (whole.endpoints, whole.boot_id, ())
    assert (node.endpoints, node.boot_id, node.levels) == ((), "", ())
