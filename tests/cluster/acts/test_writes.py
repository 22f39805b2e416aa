"""What every write of ours is asked: conflicts, stale pins, marks of others, lost answers, deadlines, and being asked twice.

One row for each write, one test for each question. What a write is for, and what it puts where, stands beside its act.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import aiohttp
import pytest
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from activities.cluster.acts.remediation import ClusterRemediation
from activities.cluster.api.credentials import ExplicitCredentials
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.objects.live_node import LiveNode, read_node
from activities.cluster.objects.node_edits import Edit, cordon, edit_node, uncordon
from activities.contracts.remediation import RememberRequest
from activities.contracts.target import AnswerRequest, OffNote, PathRequest, Publication, PublishRequest, TaintRequest, Target
from activities.errors import ErrorType
from policy.episode.fencing_requests import RequestAnswer, Stage
from policy.objects.nodes import MARK_ANNOTATION, MARK_LABEL, Taint
from simulator.api.control.faults import Accident, Fault
from simulator.client import ApiError
from simulator.objects import JsonObject
from simulator.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES, NAMESPACES, NODES
from tests.cluster import fencing_requests
from tests.cluster.acts.world import CLUSTER, NODE, NODE_LEASES, NOW, World, our_mark, refused
from tests.cluster.machines import OPERATORS
from workers.interceptors.activity_guards import Liveness

LIMIT = timedelta(seconds=10)
"""How long Temporal waits for the attempt."""

CUT, GIVEN_BACK = "fence_brocade://switch-1/2", "fence_brocade://switch-1/3"

Act = Callable[[World, Target, datetime | None], Awaitable[Any]]


async def _marks(world: World, target: Target, until: datetime | None) -> Any:
    return await world.target.mark(await world.act(target, not_after=until))


async def _notes_off(world: World, target: Target, until: datetime | None) -> Any:
    publication = Publication(off=OffNote(off_proven=NOW, not_after=until))
    await ActivityEnvironment().run(world.target.publish, PublishRequest(target=target, publication=publication))


async def _cordons(world: World, target: Target, until: datetime | None) -> Any:
    return await world.isolation.mark_unschedulable(await world.cordon(target, not_after=until))


async def _taints(world: World, target: Target, until: datetime | None) -> Any:
    taint = Taint(key="team.example/sick", effect="NoSchedule")
    return await world.isolation.taint(TaintRequest(look=await world.look(target), taint=taint, not_after=until))


async def _cuts(world: World, target: Target, until: datetime | None) -> Any:
    return await world.isolation.note_path(PathRequest(target=target, endpoint=CUT, cut=True, not_after=until))


async def _taints_out_of_service(world: World, target: Target, until: datetime | None) -> Any:
    return await world.freeing.taint_out_of_service(await world.free(target, not_after=until))


async def _gives_back(world: World, target: Target, until: datetime | None) -> Any:
    return await world.isolation.note_path(PathRequest(target=target, endpoint=GIVEN_BACK, cut=False, not_after=until))


async def _uncordons(world: World, target: Target, until: datetime | None) -> Any:
    return await world.isolation.mark_schedulable(await world.restore(target, not_after=until))


async def _untaints(world: World, target: Target, until: datetime | None) -> Any:
    return await world.freeing.untaint_out_of_service(await world.untaint(target, not_after=until))


async def _takes_the_lease(world: World, target: Target, until: datetime | None) -> Any:
    return await world.take_lease(target, not_after=until)


async def _releases_the_lease(world: World, target: Target, _: datetime | None) -> Any:
    return await world.target.release_lease(await world.release(target))


async def _remembers(world: World, target: Target, _: datetime | None) -> Any:
    remediation = ClusterRemediation(ServedCluster(CLUSTER, world.connection, clock=world.clock, source=OPERATORS), world.looks)
    return await remediation.remember(RememberRequest(target=target, memory="{}"))


async def _answers(world: World, target: Target, _: datetime | None) -> Any:
    word = RequestAnswer(about=fencing_requests.reference(NODE), uid="", stage=Stage.STARTED, message="")
    return await world.target.answer_request(AnswerRequest(target=target, answer=word))


LEASE = LEASES.path(f"node-{NODE}", namespace=NODE_LEASES)


@dataclass(frozen=True, kw_only=True)
class Write:
    """One row. path: of the object that is written."""

    act: Act
    path: str = NODES.path(NODE)
    method: str = "PATCH"
    restores: bool = False
    """What is not ours any more is left alone, and no error."""
    held: bool = True
    """It needs our mark on the pinned Node."""
    by_moment: bool = True
    """It is told until when it may be begun."""

    def __str__(self) -> str:
        return self.act.__name__.strip("_").replace("_", " ")

    async def is_asked(self, world: World, target: Target, until: datetime | None = None) -> Any:
        return await self.act(world, target, until)

    async def written(self, world: World) -> JsonObject | None:
        """The object as it is now, but for its version and for what `meddle` writes; None where it is gone."""
        try:
            found = await world.others.get(self.path)
        except ApiError:
            return None
        found["metadata"] = {key: value for key, value in found["metadata"].items() if key not in {"resourceVersion", "labels"}}
        return found

    async def meddle(self, world: World) -> None:
        """Somebody else writes the same object."""
        found = await world.others.get(self.path)
        number = int((found["metadata"].get("labels") or {}).get("others", "0"))
        await world.others.patch(self.path, {"metadata": {"labels": {"others": str(number + 1)}}})


BEGINS = [Write(act=act) for act in (_marks, _cordons, _taints, _cuts, _taints_out_of_service)]
RESTORES = [Write(act=act, restores=True) for act in (_notes_off, _gives_back, _uncordons, _untaints)]
REMEMBERS = Write(act=_remembers, restores=True, held=False, by_moment=False)
TAKES = Write(act=_takes_the_lease, path=LEASE, method="PUT", held=False)
RELEASES = Write(act=_releases_the_lease, path=LEASE, method="DELETE", held=False, by_moment=False)
ANSWERS = Write(act=_answers, path=f"{fencing_requests.REMEDIATIONS}/{NODE}", held=False, by_moment=False, restores=True)
ON_THE_NODE = [*BEGINS, *RESTORES, REMEMBERS]
ALL = [*ON_THE_NODE, TAKES, RELEASES, ANSWERS]


def each(*writes: Write) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("write", writes, ids=str)


@pytest.fixture
async def begun(world: World, request: pytest.FixtureRequest) -> World:
    """Each write has something to do: a mark of an earlier run, a Lease of the node that has lapsed or is ours, a request."""
    write: Write = request.getfixturevalue("write")
    await world.hold_cluster_lease()
    noted = our_mark(cordoned=True, out_of_service=True)
    paths = (GIVEN_BACK,) if write.act is _gives_back else ()
    out_of_service = write.act is not _taints_out_of_service
    await world.put_mark(replace(noted, run_id="run-0", paths=paths, out_of_service=out_of_service))
    if write is TAKES:
        await world.hold_node_lease("early", renewed=NOW - timedelta(hours=1))
    elif write is RELEASES:
        await world.take_lease()
    elif write is ANSWERS:
        await world.others.create(NAMESPACES.path(), {"metadata": {"name": fencing_requests.NAMESPACE}})
        await world.others.create(CUSTOM_RESOURCE_DEFINITIONS.path(), fencing_requests.request_definition())
        await world.others.create(fencing_requests.REMEDIATIONS, fencing_requests.remediation(NODE))
    world.server.requests.reset()
    return world


# Others who write ---------------------------------------------------------------------------------------------------------


@each(*ALL)
async def test_what_others_write_between_our_read_and_our_write_is_read_again_and_stays(begun: World, write: Write) -> None:
    """S28: and asked again it finds its own work (S33)."""
    target = await begun.pinned()
    before = await write.written(begun)
    begun.connection.before_writes.append(lambda: write.meddle(begun))
    await write.is_asked(begun, target)
    done = await write.written(begun)
    assert done != before
    assert done is None or (await begun.others.get(write.path))["metadata"]["labels"]["others"] == "1"
    writes = begun.writes
    await write.is_asked(begun, target)
    assert begun.writes == writes


@each(*ALL)
async def test_what_others_never_stop_writing_is_given_up(begun: World, write: Write) -> None:
    target, before = await begun.pinned(), await write.written(begun)
    begun.connection.before_writes.extend([lambda: write.meddle(begun)] * 20)
    with refused(ErrorType.TRANSIENT, "by others"):
        await write.is_asked(begun, target)
    begun.connection.before_writes.clear()
    assert await write.written(begun) == before


# Answers ------------------------------------------------------------------------------------------------------------------


@each(*ALL)
async def test_a_refusal_is_said_and_a_lost_answer_is_ambiguous_and_found_again_as_ours(begun: World, write: Write) -> None:
    """S33, S34: that one is not repeated blindly within the act; the next one finds what it has done, and calls it its own."""
    target, before = await begun.pinned(), await write.written(begun)
    begun.server.faults.add(Fault(accident=Accident.STATUS, method=write.method, status=403, count=1))
    with refused(ErrorType.FORBIDDEN):
        await write.is_asked(begun, target)
    assert await write.written(begun) == before
    begun.server.requests.reset()
    begun.server.faults.add(Fault(accident=Accident.LOSE_ANSWER, method=write.method, count=1))
    with refused(ErrorType.AMBIGUOUS):
        await write.is_asked(begun, target)
    done, writes = await write.written(begun), begun.writes
    assert writes == 1
    again = await write.is_asked(begun, target)
    assert "another owner" not in getattr(again, "detail", "")
    assert (begun.writes, await write.written(begun)) == (writes, done)


# The pinned node ----------------------------------------------------------------------------------------------------------


async def assert_left_alone(write: Write, world: World, kind: ErrorType, change: Callable[[], Awaitable[Any]]) -> None:
    """The change comes between our read and our write: look and write are one, and what restores finds nothing to do."""
    target = await world.pinned()
    world.connection.before_writes.append(change)
    if write.restores:
        result = await write.is_asked(world, target)
        assert result is None or not result.changed
    else:
        with refused(kind, NODE):
            await write.is_asked(world, target)
    assert world.writes == 1


@each(*ON_THE_NODE)
async def test_another_machine_under_the_name_is_left_as_it_is(begun: World, write: Write) -> None:
    """S9."""

    async def another() -> None:
        await begun.recreate_node(provider_id="metal://rack-3/8", system_uuid="4c4c4544-0008", boot_id="boot-8")

    await assert_left_alone(write, begun, ErrorType.TARGET_CHANGED, another)
    node = await begun.node()
    assert ("annotations" in node["metadata"], "unschedulable" in node["spec"]) == (False, False)


@each(*ON_THE_NODE)
async def test_a_node_that_is_gone_is_restored_and_begun_with_no_more(begun: World, write: Write) -> None:
    """S9: a deleted Node strands no episode."""
    await assert_left_alone(write, begun, ErrorType.NOT_FOUND, begun.delete_node)


# Our mark -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("holder", ["another episode", "nobody"])
@each(*(write for write in ON_THE_NODE if write.held))
async def test_a_node_that_is_not_ours_any_more_is_left_as_it_is(begun: World, write: Write, holder: str) -> None:
    """S13, S28, S33: whoever was frozen in the middle meets the mark of the next episode, or none, and puts none back."""
    if holder == "nobody":
        await begun.change_node({"metadata": {"annotations": {MARK_ANNOTATION: None}, "labels": {MARK_LABEL: None}}})
    else:
        await begun.put_mark(replace(our_mark(cordoned=True), incident="incident-2", workflow_id="episode/other/node-7"))
    if write.act is _marks and holder == "nobody":
        return  # to mark it is what begins an episode
    before = await write.written(begun)
    if write.restores:
        await write.is_asked(begun, await begun.pinned())
    else:
        with refused(ErrorType.VETOED, "no episode" if holder == "nobody" else "incident-2"):
            await write.is_asked(begun, await begun.pinned())
    assert (await write.written(begun), begun.writes) == (before, 0)


@each(*(write for write in ON_THE_NODE if write.held and write.act is not _notes_off))
async def test_a_mark_that_cannot_be_read_is_never_taken_for_absent(begun: World, write: Write) -> None:
    await begun.put_mark("{}")
    with refused(ErrorType.INVALID_CONFIG, "nodewarden.io/episode"):
        await write.is_asked(begun, await begun.pinned())
    assert begun.writes == 0


# Time: a worker that stood still goes on in the middle; the same on real processes is `tests/system/test_frozen.py` --------


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


def stand_still(world: World) -> None:
    """As SIGSTOP does it: each of our reads takes 40 seconds."""
    world.connection.after_reads = lambda: setattr(world, "now", world.now + timedelta(seconds=40))


BY_MOMENT = [write for write in ALL if write.by_moment]


@each(*BY_MOMENT)
async def test_what_was_read_in_time_is_not_written_after_its_moment(begun: World, write: Write) -> None:
    """S20, S45: the lease of a node was taken 25 s after the node was back, and held for its 600 s. Nor where the time runs out
    while others write: each new look asks the clock again."""
    target = await begun.pinned()
    stand_still(begun)
    with refused(ErrorType.EXPIRED, NODE):
        await write.is_asked(begun, target, NOW + timedelta(seconds=30))
    assert begun.writes == 0
    begun.connection.after_reads, begun.now = lambda: None, NOW
    before = await write.written(begun)

    async def another_client_writes() -> None:
        await write.meddle(begun)
        begun.now += timedelta(seconds=31)

    begun.connection.before_writes.append(another_client_writes)
    with refused(ErrorType.EXPIRED):
        await write.is_asked(begun, target, NOW + timedelta(seconds=30))
    assert await write.written(begun) == before


@each(*BY_MOMENT, REMEMBERS)
async def test_an_attempt_that_temporal_has_given_up_writes_nothing(begun: World, write: Write) -> None:
    """S34, S45: another worker has the act by then, and may have ended the episode. One that is waited for writes."""
    target = await begun.pinned()

    async def act() -> Any:
        return await write.is_asked(begun, target, NOW + timedelta(minutes=5))

    stand_still(begun)
    with refused(ErrorType.EXPIRED, NODE):
        await as_an_attempt(act, began=NOW)
    assert begun.writes == 0
    begun.connection.after_reads, begun.now = lambda: None, NOW
    await as_an_attempt(act, began=NOW - timedelta(seconds=5))
    assert begun.writes


SLOW_PARTS = {
    "its credentials": (ExplicitCredentials, "authorization"),
    "its connection": (aiohttp.TCPConnector, "connect"),
}


@pytest.mark.parametrize(("owner", "name"), SLOW_PARTS.values(), ids=SLOW_PARTS)
@each(*ALL)
async def test_what_waits_for_its_connection_is_not_sent_after_its_moment(
    begun: World, write: Write, owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S20, S45: an exec plugin may take 30 s. A pod was deleted 10 s after its licence, and 16 s after Temporal had given the
    attempt up."""
    target, truly = await begun.pinned(), getattr(owner, name)
    writing = False

    async def slowly(*arguments: Any, **named: Any) -> Any:
        had = await truly(*arguments, **named)
        if writing:
            begun.now += timedelta(seconds=40)
        return had

    async def about_to_write() -> None:
        nonlocal writing
        writing = True

    async def act(until: datetime) -> Any:
        begun.now = NOW
        begun.connection.before_writes.append(about_to_write)
        return await write.is_asked(begun, target, until)

    monkeypatch.setattr(owner, name, slowly)
    if write.by_moment:
        with refused(ErrorType.EXPIRED):
            await act(NOW + timedelta(seconds=30))
    writing = False
    with refused(ErrorType.EXPIRED):
        await as_an_attempt(lambda: act(NOW + timedelta(minutes=5)), began=NOW)
    assert begun.writes == 0
    monkeypatch.setattr(owner, name, truly)
    await as_an_attempt(lambda: act(NOW + timedelta(minutes=5)), began=NOW)
    assert begun.writes


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (422, ErrorType.INVALID_CONFIG, 'admission webhook "labels.example.com" denied the request: no team label'),
        (422, ErrorType.INVALID_CONFIG, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no team label"),
        (403, ErrorType.FORBIDDEN, 'admission webhook "labels.example.com" denied the request: no team label'),
    ],
    ids=["a webhook", "a policy", "a webhook that answers 403"],
)
async def test_what_admission_denies_is_told_in_its_words_and_not_tried_again(
    world: World, status: int, kind: ErrorType, message: str
) -> None:
    """S44: nobody else has changed the Node, so another reading would end in the same answer."""
    fault = Fault(accident=Accident.STATUS, method="PATCH", path=f"nodes/{NODE}$", status=status, message=message)
    world.server.faults.add(fault)
    with refused(kind, message):
        await world.target.mark(await world.act())
    assert world.writes == 1


@pytest.mark.parametrize("beforehand", [{"metadata": {"labels": {"team": "a"}}}, {"spec": {"unschedulable": True}}])
async def test_s28_what_was_read_before_is_written_to_in_that_version_and_no_other(
    world: World, beforehand: dict[str, Any]
) -> None:
    """Others have written meanwhile: it is decided anew on what they have written, also that there is nothing to write."""
    read, decided = await read_node(world.connection, NODE), list[str]()
    await world.change_node(beforehand)

    def decide(node: LiveNode) -> Edit:
        decided.append(node.view.resource_version)
        return Edit(detail="cordoned already") if node.view.unschedulable else Edit(detail="cordoned", operations=cordon())

    result, there = await edit_node(world.connection, NODE, decide, read=read), await world.node()
    assert len(set(decided)) == 2
    assert decided[0] == read.view.resource_version
    assert result.version == decided[1]
    assert there["spec"]["unschedulable"] is True


async def test_that_there_is_nothing_to_write_is_decided_on_what_is_there_now(world: World) -> None:
    """S35: else a cordon of ours, of which the answer was lost, could be taken for one that never was."""
    read = await read_node(world.connection, NODE)
    await world.change_node({"spec": {"unschedulable": True}})

    def decide(node: LiveNode) -> Edit:
        ours = node.view.unschedulable
        return Edit(detail="uncordoned", operations=uncordon()) if ours else Edit(detail="nothing to take away")

    assert (await edit_node(world.connection, NODE, decide, read=read)).detail == "uncordoned"
    assert "unschedulable" not in (await world.node())["spec"]
