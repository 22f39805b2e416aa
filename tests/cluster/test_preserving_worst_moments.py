"""Vetoes, claims and words that come between a decision about a machine and what is written for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from activities.contracts.preservation import Wish
from activities.contracts.target import LookRequest, LookVerdict, Target
from policy.episode.messages import Pinned
from policy.episode.needs import Need, NeedKind
from policy.objects.marks import TERMINATING_ANNOTATION
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.held import CONDITION
from tests.cluster.test_preserving import MACHINES, Surroundings, leased, machine, node, world  # noqa: F401

NODE = "/api/v1/nodes/node-7"


async def there(world: Surroundings) -> int:  # noqa: F811
    return len((await world.person.list(MACHINES))["items"])


async def sick(world: Surroundings) -> None:  # noqa: F811
    found = await world.node()
    ready = {"type": "Ready", "status": "False", "reason": "x", "message": "x"}
    others = [each for each in found["status"]["conditions"] if each["type"] != "Ready"]
    await world.person.patch(f"{NODE}/status", {"status": {"conditions": [ready, *others]}})


async def test_s27_an_old_claim_hides_no_word(world: Surroundings) -> None:  # noqa: F811
    """An earlier remediation was aborted after its claim, which nobody has removed. Ada annotates between look and delete."""
    await world.has(node(), machine("Failed"))
    await leased(world)
    await world.annotate(NODE, **{TERMINATING_ANNOTATION: "2026-11-20T12:00:00Z"})
    claim = world.activities._claim

    async def late(*asked: Any) -> None:
        await world.annotate(NODE, **{PRESERVE_ANNOTATION: "now"})
        await claim(*asked)

    world.activities._claim = late  # type: ignore[method-assign]
    await world.give_up()
    assert await there(world) == 1


async def test_s23_the_cap_releases_no_machine_that_a_person_has_asked_for_meanwhile(world: Surroundings) -> None:  # noqa: F811
    """The scanner saw it as automatically preserved; the word comes before the release is carried out."""
    await world.has(node(), machine("Failed"))
    await world.hold(wish=Wish(automatic=True))
    await world.hold(drained=True)
    await sick(world)
    await world.annotate(NODE, **{PRESERVE_ANNOTATION: "now"})
    hold = await world.hold(wish=Wish(surplus=True))
    word = ((await world.node())["metadata"].get("annotations") or {}).get(PRESERVE_ANNOTATION)
    assert (hold.preserved, hold.terminate, word) == (True, False, "now")


@pytest.mark.parametrize("automatic", [True, False], ids=["by the cap", "by a word on the Machine"])
async def test_s21_no_preserved_machine_is_fenced(world: Surroundings, automatic: bool) -> None:  # noqa: F811
    """Its episode was terminated (or cannot be begun, since a fencing is open): the objects still say that it is preserved."""
    await world.has(node(), machine("Failed", **({} if automatic else {PRESERVE_ANNOTATION: "now"})))
    await leased(world)
    await sick(world)
    await world.hold(wish=Wish(automatic=automatic))
    hold = await world.hold(drained=True)
    found = await world.node()
    assert hold.preserved
    assert any(each["type"] == CONDITION and each["status"] == "True" for each in found["status"]["conditions"])
    pinned = Pinned(node="node-7", uid=found["metadata"]["uid"])
    target = Target(cluster="prod", pinned=pinned, incident="i", kind="Fencing", workflow_id="w", run_id="r")
    need = Need(kind=NeedKind.PERSON, reason="r")
    request = LookRequest(target=target, need=need, holder="us", destructive=True, need_matters=True)
    assert (await world.look(request)).verdict is LookVerdict.VETOED


async def test_a_repeated_hold_gives_no_machine_up_that_was_found_healthy(world: Surroundings) -> None:  # noqa: F811
    """Its answer was lost: the activity is repeated, and now says that the machine is to be terminated; and it is deleted."""
    await world.has(node(), machine("Failed"))
    await leased(world)
    await world.hold(wish=Wish(automatic=True))
    await world.hold(drained=True)
    world.now += timedelta(hours=72)
    assert not (await world.hold()).terminate
    if (await world.hold()).terminate:
        await leased(world)
        await world.give_up()
    assert await there(world) == 1
