"""What people and Temporal see of these activities: Events on the Node, and stable names."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest
from temporalio import activity
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.freeing import ClusterFreeing
from activities.cluster.acts.isolation import ClusterIsolation
from activities.cluster.acts.targets import ClusterTarget
from activities.contracts.news import News, OffNote, ToldEvent
from activities.contracts.target import FreeingActivities, IsolationActivities, TargetActivities, TellRequest
from simulator.api.control.faults import Accident, Fault
from simulator.resources import EVENTS
from tests.cluster.acts.world import NODE, NOW, World, our_mark

IMPLEMENTATIONS = [
    (ClusterTarget, TargetActivities),
    (ClusterIsolation, IsolationActivities),
    (ClusterFreeing, FreeingActivities),
]


async def events(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await world.others.list(EVENTS.path(namespace="default")))["items"]
    return found


async def told(world: World, *, warning: bool = False) -> TellRequest:
    event = ToldEvent(reason="PowerOffProven", message="off was read twice", warning=warning)
    return TellRequest(target=await world.pinned(), news=News(events=(event,)))


async def tell(world: World, request: TellRequest) -> None:
    await ActivityEnvironment().run(world.target.tell, request)


async def test_the_story_is_told_on_the_node(world: World) -> None:
    await tell(world, await told(world, warning=True))
    event = (await events(world))[0]
    assert event["involvedObject"]["kind"] == "Node"
    assert event["involvedObject"]["name"] == NODE
    assert event["involvedObject"]["uid"] == (await world.node())["metadata"]["uid"]
    assert (event["reason"], event["message"], event["type"]) == (
        "PowerOffProven",
        "incident incident-1: off was read twice",
        "Warning",
    )
    assert event["source"]["component"] == "nodewarden"


@pytest.mark.parametrize("accident", [Accident.REFUSE, Accident.STATUS, Accident.LOSE_ANSWER])
async def test_a_story_that_cannot_be_told_stops_nothing(world: World, accident: Accident) -> None:
    request = await told(world)
    world.server.faults.add(Fault(accident=accident, method="POST", path="/events"))
    await tell(world, request)
    assert world.writes == 1


async def test_news_that_cannot_be_told_stop_no_act_that_takes_them_along(world: World) -> None:
    """The mark stands, and is answered; what can be told is."""
    await world.put_mark(our_mark())
    world.server.faults.add(Fault(accident=Accident.STATUS, method="POST", status=500, path="/events"))
    news = News(events=(ToldEvent(reason="NodeIsolated", message="it is sick"),), off=OffNote(off_proven=NOW))
    result = await ActivityEnvironment().run(world.target.mark, await world.act(news=news))
    assert "marked" in result.detail
    mark = await world.mark()
    assert mark is not None
    assert mark.off_proven
    assert await events(world) == []


@pytest.mark.parametrize(("implementation", "contract"), IMPLEMENTATIONS)
def test_every_activity_keeps_the_name_and_the_types_of_its_contract(implementation: type, contract: type) -> None:
    """Histories name activities; a worker refuses an override that is not decorated again."""
    promised = {name: member for name, member in vars(contract).items() if _definition(member)}
    assert promised
    for name, member in promised.items():
        kept = vars(implementation)[name]
        assert _definition(kept) == _definition(member)
        assert get_type_hints(kept) == get_type_hints(member)


def _definition(member: object) -> str | None:
    definition = activity._Definition.from_callable(member) if callable(member) else None
    return definition.name if definition else None
