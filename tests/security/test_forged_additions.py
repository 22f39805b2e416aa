"""What an episode has added is data in a request, and whoever schedules the way back can make it up: nothing goes by it.

S49: we remove only taints and cordons that our own sealed or server-side record names. The attacker knows what histories tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from activities.contracts.target import Target
from activities.keyring import Keyring
from activities.licences import Licences
from policy.objects.marks import Added
from tests.cluster.acts.world import OUT_OF_SERVICE, World, our_mark
from tests.licensing import LICENCES

THEIRS = {"key": "example.com/broken", "value": "yes", "effect": "NoExecute"}
GPU = {"key": "team.example/gpu", "value": "a100", "effect": "NoSchedule"}
STRANGER = Licences(Keyring([b"a key of somebody else, long enough for one"]))
MADE_UP = Added(
    cordoned=True, taints=("example.com/broken=yes:NoExecute", "team.example/gpu=a100:NoSchedule"), out_of_service=True
)

FORGED: dict[str, Callable[[Target], Added]] = {
    "without a seal": lambda _: MADE_UP,
    "signed by a stranger": lambda target: STRANGER.sealed_added(target, MADE_UP),
    "of another incident": lambda target: LICENCES.sealed_added(replace(target, incident="incident-0"), MADE_UP),
    "of another workflow": lambda target: LICENCES.sealed_added(replace(target, workflow_id="episode/prod/node-8"), MADE_UP),
    "of another Node": lambda target: LICENCES.sealed_added(
        replace(target, pinned=replace(target.pinned, uid="uid-of-a-former-one")), MADE_UP
    ),
    "of the paths alone": lambda target: replace(MADE_UP, seals=LICENCES.sealed_added(target, Added(paths=("pdu-1/3",))).seals),
    "of something else": lambda target: replace(
        MADE_UP, seals=dict.fromkeys(("cordoned", "out_of_service", *MADE_UP.taints), _another(target))
    ),
}


def _another(target: Target) -> str:
    return LICENCES.sealed_added(target, Added(taints=("a=b:NoSchedule",))).seals["a=b:NoSchedule"]


@pytest.fixture
async def servers(world: World) -> dict[str, Any]:
    """Cordoned and tainted by people."""
    await world.change_node({"spec": {"unschedulable": True, "taints": [THEIRS, GPU, OUT_OF_SERVICE]}})
    return (await world.node())["spec"]


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
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
    await world.put_mark(replace(our_mark(), taints=MADE_UP.taints))
    await world.isolation.mark_schedulable(await world.restore())
    assert (await world.node())["spec"] == servers | {"taints": [THEIRS, OUT_OF_SERVICE]}


async def test_what_is_sealed_for_the_episode_goes(world: World, servers: dict[str, Any]) -> None:
    """Otherwise nothing above would say why it stays."""
    target = await world.pinned()
    await world.target.mark(await world.act(target, added=LICENCES.sealed_added(target, MADE_UP)))
    await world.isolation.mark_schedulable(await world.restore(target))
    assert (await world.node())["spec"] == {key: servers[key] for key in servers if key not in {"unschedulable", "taints"}} | {
        "taints": [THEIRS, OUT_OF_SERVICE]
    }
