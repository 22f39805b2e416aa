"""A proof of off is data in a request, and so whoever schedules a consequence can make one up: nothing is freed by it (S1, S42).

The attacker has marked a node that runs and is not Ready, which needs no look, and knows all that histories tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from activities.contracts.target import FreeCutRequest, FreeDumpingRequest, Target
from activities.errors import ErrorType
from activities.keyring import Keyring
from activities.licences import READ_LATELY, Licences
from policy.episode.messages import OffProof, PathProof, Reading, VolumeReading
from policy.fence.kdump import KdumpReading, KernelDead
from policy.fence.plan import CutStorage
from policy.fence.power import PowerState, VolumeState
from policy.objects.marks import Added
from tests.cluster.acts.world import (
    ENDPOINT,
    HOLDER,
    NOW,
    OUT_OF_SERVICE,
    SICK_SINCE,
    WHOSE,
    World,
    off_proof,
    our_mark,
    read,
    refused,
)
from tests.licensing import LICENCES

ADDRESS = "10.0.0.7"
MADE_UP = Reading(endpoint=ENDPOINT, state=PowerState.OFF, at=NOW)
STRANGER = Licences(Keyring([b"a key of somebody else, long enough for one"]))
OF_ANOTHER = replace(WHOSE, pinned=replace(WHOSE.pinned, node="node-8"))

FORGED: dict[str, Callable[[], Reading]] = {
    "without a seal": lambda: MADE_UP,
    "signed by a stranger": lambda: STRANGER.sealed_reading(WHOSE, MADE_UP, NOW),
    "said on": lambda: replace(read(ENDPOINT, PowerState.ON, at=NOW), state=PowerState.OFF),
    "of another device": lambda: replace(read("ipmi://10.0.0.8:623", PowerState.OFF, at=NOW), endpoint=ENDPOINT),
    "of another node": lambda: LICENCES.sealed_reading(OF_ANOTHER, MADE_UP, NOW),
    "of another incident": lambda: LICENCES.sealed_reading(replace(WHOSE, incident="incident-0"), MADE_UP, NOW),
    "of another cluster": lambda: LICENCES.sealed_reading(replace(WHOSE, cluster="test"), MADE_UP, NOW),
    "read long ago": lambda: read(ENDPOINT, PowerState.OFF, at=NOW - READ_LATELY - timedelta(seconds=2)),
    "made to last": lambda: replace(MADE_UP, seal=later(read(ENDPOINT, PowerState.OFF, at=NOW - timedelta(hours=1)).seal)),
    "of a volume": lambda: replace(MADE_UP, seal=LICENCES.sealed_reading(WHOSE, volume(), NOW).seal),
}


def later(seal: str) -> str:
    return f"{int(NOW.timestamp()):x}.{seal.partition('.')[2]}"


def volume() -> VolumeReading:
    return VolumeReading(volume="vol-1", state=VolumeState.AVAILABLE, at=NOW)


@pytest.fixture
async def marked(world: World) -> World:
    """With a pod that runs."""
    await world.hold_cluster_lease()
    await world.mark_as_ours()
    await world.add_pod("runs")
    return world


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
async def test_s1_a_proof_that_a_caller_has_made_up_frees_nothing(forged: Callable[[], Reading], marked: World) -> None:
    proof = OffProof(commanded_at=NOW - timedelta(hours=2), readings=(replace(forged(), at=NOW - timedelta(seconds=1)),))
    writes, request = marked.writes, await marked.free(proof=proof)
    for act in (marked.freeing.delete_workload, marked.freeing.taint_out_of_service, marked.freeing.delete_node):
        with refused(ErrorType.NOT_PROVEN, "no power worker of this deployment has read that lately"):
            await act(request)
        assert marked.writes == writes, act


async def test_s4_one_true_reading_does_not_stand_for_the_others(marked: World) -> None:
    other = "ipmi://10.0.0.7:624"
    target = await marked.pinned()
    target = replace(target, pinned=replace(target.pinned, levels=((ENDPOINT, other),)))
    both = off_proof(endpoints=(ENDPOINT, other))
    proof = replace(both, readings=(both.readings[0], replace(MADE_UP, endpoint=other)))
    with refused(ErrorType.NOT_PROVEN, f"{other} said off: no power worker"):
        await marked.freeing.delete_workload(await marked.free(target, proof=proof))


OF_ANOTHER_QUESTION: dict[str, tuple[tuple[str, ...], ...]] = {
    "a switch port": (),
    "one supply of two": ((ENDPOINT, "ipmi://10.0.0.7:624"),),
    "of a level that is tried later": ((ENDPOINT,), (ENDPOINT, "ipmi://10.0.0.7:624")),
}


@pytest.mark.parametrize("levels", OF_ANOTHER_QUESTION.values(), ids=OF_ANOTHER_QUESTION)
async def test_s1_s4_s49_a_true_off_proves_only_what_was_asked(levels: tuple[tuple[str, ...], ...], marked: World) -> None:
    """Which levels there are is what a caller says, too; a port that is cut is no machine that is off."""
    said = read(ENDPOINT, PowerState.OFF, at=NOW - timedelta(seconds=1), levels=levels)
    request = await marked.free(proof=OffProof(commanded_at=NOW - timedelta(seconds=9), readings=(said,)))
    with refused(ErrorType.NOT_PROVEN, "no power worker of this deployment has read that lately, of such a device"):
        await marked.freeing.delete_workload(request)


async def test_s1_s49_a_supply_that_is_off_is_no_path_that_is_cut(marked: World) -> None:
    """Nor the other way round: behind the cut of a device that cuts nothing there are no volumes."""
    request = FreeCutRequest(
        target=await marked.pinned(),
        proofs=(PathProof(commanded_at=NOW - timedelta(seconds=9), readings=(read(ENDPOINT, PowerState.OFF, at=NOW),)),),
        storage=CutStorage(handles=("vol-1",)),
        not_after=NOW + timedelta(seconds=9),
        holder=HOLDER,
    )
    with refused(ErrorType.NOT_PROVEN, "no power worker of this deployment has read that lately, of such a device"):
        await marked.freeing.free_cut_pods(request)


@pytest.mark.parametrize("what", ["path", "volume"])
async def test_s1_a_cut_that_a_caller_has_made_up_frees_nothing(what: str, marked: World) -> None:
    said: dict[str, Any] = {"readings": (MADE_UP,)} if what == "path" else {"volumes": (volume(),)}
    request = FreeCutRequest(
        target=await marked.pinned(),
        proofs=(PathProof(commanded_at=NOW - timedelta(seconds=9), **said),),
        storage=CutStorage(handles=("vol-1",)),
        not_after=NOW + timedelta(seconds=9),
        holder=HOLDER,
    )
    writes = marked.writes
    with refused(ErrorType.NOT_PROVEN, "no power worker of this deployment has read that lately"):
        await marked.freeing.free_cut_pods(request)
    assert marked.writes == writes


@pytest.mark.parametrize("true", [False, True])
async def test_s1_a_dump_that_no_listener_of_ours_has_heard_frees_nothing(true: bool, marked: World) -> None:
    last = NOW - timedelta(seconds=2)
    heard = LICENCES.sealed_dump(KdumpReading(at=NOW, listening=SICK_SINCE, address=ADDRESS if true else "10.0.0.8", last=last))
    proof = KernelDead(address=ADDRESS, messages=1, last=last, read_at=NOW, after=SICK_SINCE, seal=heard.seal)
    target = await marked.pinned()
    target = replace(target, pinned=replace(target.pinned, addresses=(ADDRESS,)))
    request = FreeDumpingRequest(target=target, proof=proof, not_after=NOW + timedelta(seconds=9), holder=HOLDER)
    writes = marked.writes
    words = "no longer has the address" if true else "no power worker of this deployment has read that lately"
    with refused(ErrorType.NOT_PROVEN, words):  # the sick node has no addresses
        await marked.freeing.free_while_dumping(request)
    assert marked.writes == writes


async def test_s2_what_was_truly_read_frees(marked: World) -> None:
    """Otherwise nothing above would say why it was refused."""
    assert (await marked.freeing.delete_workload(await marked.free())).deleted_pods == 1


# What an episode has added is data in a request, and whoever schedules the way back can make it up: nothing goes by it.
#
# S49: we remove only taints and cordons that our own sealed or server-side record names. The attacker knows what histories tell.

THEIRS = {"key": "example.com/broken", "value": "yes", "effect": "NoExecute"}
GPU = {"key": "team.example/gpu", "value": "a100", "effect": "NoSchedule"}
INVENTED = Added(
    cordoned=True, taints=("example.com/broken=yes:NoExecute", "team.example/gpu=a100:NoSchedule"), out_of_service=True
)

FORGED_ADDITIONS: dict[str, Callable[[Target], Added]] = {
    "without a seal": lambda _: INVENTED,
    "signed by a stranger": lambda target: STRANGER.sealed_added(target, INVENTED),
    "of another incident": lambda target: LICENCES.sealed_added(replace(target, incident="incident-0"), INVENTED),
    "of another workflow": lambda target: LICENCES.sealed_added(replace(target, workflow_id="episode/prod/node-8"), INVENTED),
    "of another Node": lambda target: LICENCES.sealed_added(
        replace(target, pinned=replace(target.pinned, uid="uid-of-a-former-one")), INVENTED
    ),
    "of the paths alone": lambda target: replace(INVENTED, seals=LICENCES.sealed_added(target, Added(paths=("pdu-1/3",))).seals),
    "of something else": lambda target: replace(
        INVENTED, seals=dict.fromkeys(("cordoned", "out_of_service", *INVENTED.taints), _another(target))
    ),
}


def _another(target: Target) -> str:
    return LICENCES.sealed_added(target, Added(taints=("a=b:NoSchedule",))).seals["a=b:NoSchedule"]


@pytest.fixture
async def servers(world: World) -> dict[str, Any]:
    """Cordoned and tainted by people."""
    await world.change_node({"spec": {"unschedulable": True, "taints": [THEIRS, GPU, OUT_OF_SERVICE]}})
    return (await world.node())["spec"]


@pytest.mark.parametrize("forged", FORGED_ADDITIONS.values(), ids=FORGED_ADDITIONS)
async def test_s28_s49_what_people_have_added_is_never_taken_off(
    forged: Callable[[Target], Added], world: World, servers: dict[str, Any]
) -> None:
    """Marked by the attacker, then restored; untainted; and once more with the label of a mark alone, which is no mark."""
    target = await world.pinned()
    added = forged(target)
    for changes in range(2):
        await world.target.mark(await world.act(target, added=added))
        await world.freeing.untaint_out_of_service(await world.untaint(target, ours=True, added=added))
        if changes:
            await world.change_node({"metadata": {"annotations": {"nodewarden.io/episode": None}}})
        await world.isolation.mark_schedulable(await world.restore(target, tainted=True, added=added))
        assert (await world.node())["spec"] == servers


async def test_s49_a_taint_that_deletes_pods_is_of_no_method_of_ours_whatever_a_mark_says(
    world: World, servers: dict[str, Any]
) -> None:
    await world.put_mark(replace(our_mark(), taints=INVENTED.taints))
    await world.isolation.mark_schedulable(await world.restore())
    assert (await world.node())["spec"] == servers | {"taints": [THEIRS, OUT_OF_SERVICE]}


async def test_what_is_sealed_for_the_episode_goes(world: World, servers: dict[str, Any]) -> None:
    """Otherwise nothing above would say why it stays."""
    target = await world.pinned()
    await world.target.mark(await world.act(target, added=LICENCES.sealed_added(target, INVENTED)))
    await world.isolation.mark_schedulable(await world.restore(target))
    assert (await world.node())["spec"] == {key: servers[key] for key in servers if key not in {"unschedulable", "taints"}} | {
        "taints": [THEIRS, OUT_OF_SERVICE]
    }
