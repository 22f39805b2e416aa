"""A worker that stood still for a while goes on in the middle of what it did: whatever it would write then is not written (S45).

Its clock is moved while it reads, as SIGSTOP does it; the same on real processes is `tests/system/test_frozen.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from activities.cluster.acts.remediating import ClusterRemediation
from activities.contracts.news import News, OffNote
from activities.contracts.remediation import RememberRequest
from activities.contracts.target import TaintRequest, TellRequest
from activities.errors import ErrorType
from policy.objects.nodes import Taint
from tests.cluster.acts.world import CLUSTER, NODE, NOW, World, our_mark, refused
from workers.liveness import Liveness

LIMIT = timedelta(seconds=10)
"""How long Temporal waits for the attempt."""

Write = Callable[[World, datetime | None], Awaitable[Any]]


async def _marks(world: World, until: datetime | None) -> Any:
    return await world.target.mark(await world.act(not_after=until))


async def _takes_the_lease(world: World, until: datetime | None) -> Any:
    return await world.take_lease(not_after=until)


async def _notes_off(world: World, until: datetime | None) -> Any:
    news = News(off=OffNote(off_proven=NOW, not_after=until))
    await ActivityEnvironment().run(world.target.tell, TellRequest(target=await world.pinned(), news=news))


async def _cordons(world: World, until: datetime | None) -> Any:
    return await world.isolation.mark_unschedulable(await world.cordon(not_after=until))


async def _taints(world: World, until: datetime | None) -> Any:
    taint = Taint(key="team.example/sick", effect="NoSchedule")
    return await world.isolation.taint(TaintRequest(look=await world.look(), taint=taint, not_after=until))


async def _uncordons(world: World, until: datetime | None) -> Any:
    return await world.isolation.mark_schedulable(await world.restore(not_after=until))


async def _untaints(world: World, until: datetime | None) -> Any:
    return await world.freeing.untaint_out_of_service(await world.untaint(not_after=until))


async def _remembers(world: World, until: datetime | None) -> Any:
    remediation = ClusterRemediation(CLUSTER, world.connection, clock=world.clock)
    return await remediation.remember(RememberRequest(target=await world.pinned(), memory="{}"))


BY_MOMENT: list[Write] = [_marks, _takes_the_lease, _notes_off, _cordons, _taints, _uncordons, _untaints]


@pytest.fixture
async def begun(world: World) -> World:
    """A node whose mark leaves each of the acts something to write. Each of our reads takes 40 seconds."""
    await world.put_mark(replace(our_mark(cordoned=True, out_of_service=True), run_id="run-0"))
    world.connection.after_reads = lambda: setattr(world, "now", world.now + timedelta(seconds=40))
    return world


class OneAct(ActivityInboundInterceptor):
    """The innermost: the activity itself."""

    def __init__(self, act: Callable[[], Awaitable[Any]]) -> None:
        self._act = act

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        return await self._act()


async def as_an_attempt(act: Callable[[], Awaitable[Any]], *, began: datetime) -> Any:
    """Run it as a worker of ours does, in an attempt that Temporal has begun at that moment."""
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, started_time=began, start_to_close_timeout=LIMIT, heartbeat_timeout=None)

    async def run() -> Any:
        given = ExecuteActivityInput(fn=run, args=[], executor=None, headers={})
        return await Liveness().intercept_activity(OneAct(act)).execute_activity(given)

    return await environment.run(run)


@pytest.mark.parametrize("write", BY_MOMENT)
async def test_what_was_read_in_time_is_not_written_after_its_moment(begun: World, write: Write) -> None:
    """S20, S45: the lease of a node was taken 25 s after the node was back, and held for its 600 s."""
    with refused(ErrorType.EXPIRED, NODE):
        await write(begun, NOW + timedelta(seconds=30))
    assert begun.writes == 0


@pytest.mark.parametrize("write", [*BY_MOMENT, _remembers])
async def test_an_attempt_that_temporal_has_given_up_writes_nothing(begun: World, write: Write) -> None:
    """S34, S45: another worker has the act by then, and may have ended the episode."""
    with refused(ErrorType.EXPIRED, NODE):
        await as_an_attempt(lambda: write(begun, NOW + timedelta(minutes=5)), began=NOW)
    assert begun.writes == 0


@pytest.mark.parametrize("write", [*BY_MOMENT, _remembers])
async def test_an_attempt_that_is_waited_for_writes(begun: World, write: Write) -> None:
    """So that the refusals above say something."""
    begun.connection.after_reads = lambda: None
    await as_an_attempt(lambda: write(begun, NOW + timedelta(minutes=5)), began=NOW - timedelta(seconds=5))
    assert begun.writes
