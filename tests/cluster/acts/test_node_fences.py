"""What people see of an episode: Events on the Node, and an object of its own; who may overwrite it, and when it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, get_type_hints

import aiohttp
import pytest
from temporalio import activity
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.freeing import ClusterFreeing
from activities.cluster.acts.isolation import ClusterIsolation
from activities.cluster.acts.scan import ClusterScan
from activities.cluster.acts.targets import ClusterTarget
from activities.cluster.api.paths import PROPOSED_NODE_FENCES
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.report import nodefences
from activities.cluster.report.nodefences import ABANDONED_AFTER, KEPT_FOR, EpisodePublisher, NodeFences
from activities.cluster.watch.view import ClusterView
from activities.contracts.scan import RepetitionRequest, ScanRequest
from activities.contracts.target import (
    EpisodeSnapshot,
    FreeingActivities,
    IsolationActivities,
    OffNote,
    Publication,
    PublishedEvent,
    PublishRequest,
    TargetActivities,
)
from activities.errors import ErrorType
from activities.notification_sender import Notice
from policy.episode.events import WARNINGS, EventReason, When
from policy.episode.messages import Acknowledgement, EpisodeStatus, Kind, PathProof, Phase, RestartProof, VolumeReading
from policy.episode.nodefence import shown_status
from policy.fence.config import FenceStep
from policy.fence.power import VolumeState
from policy.scan.repeat_alarm import Repetition
from simulator.api.control.faults import Accident, Fault
from simulator.objects import JsonObject
from simulator.resources import CUSTOM_RESOURCE_DEFINITIONS, EVENTS, Resource
from starter.uninstall import node_fences
from tests.cluster.acts.world import CLUSTER, ENDPOINT, INCIDENT, NODE, NOW, World, off_proof, our_mark, refused
from tests.documents import document
from tests.licensing import LICENCES
from tests.patience import PATIENCE

IMPLEMENTATIONS = [
    (ClusterTarget, TargetActivities),
    (ClusterIsolation, IsolationActivities),
    (ClusterFreeing, FreeingActivities),
]


async def events(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await world.others.list(EVENTS.path(namespace="default")))["items"]
    return found


async def told(world: World, *, warning: bool = False) -> PublishRequest:
    event = PublishedEvent(reason="PowerOffProven", message="off was read twice", warning=warning)
    return PublishRequest(target=await world.pinned(), publication=Publication(events=(event,)))


async def tell(world: World, request: PublishRequest) -> None:
    await ActivityEnvironment().run(world.target.publish, request)


async def test_news_that_cannot_be_told_stop_no_act_that_takes_them_along(world: World) -> None:
    """The mark stands, and is answered; what can be told is."""
    await world.put_mark(our_mark())
    world.server.faults.add(Fault(accident=Accident.STATUS, method="POST", status=500, path="/events"))
    nodefences = Publication(events=(PublishedEvent(reason="NodeIsolated", message="it is sick"),), off=OffNote(off_proven=NOW))
    result = await ActivityEnvironment().run(world.target.mark, await world.act(publication=nodefences))
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


FENCES = Resource(api_version="nodewarden.io/v1alpha1", kind="NodeFence", plural="nodefences", namespaced=False)
NAME = f"node-fence-{NODE}"
DEFINITION: JsonObject = document("deploy/crds/nodefences.nodewarden.io.yaml")


@dataclass
class Mirrored:
    """The mirror of one cluster that has the kind, with an episode to be shown."""

    world: World
    fences: NodeFences
    target: ClusterTarget
    environment: ActivityEnvironment = field(default_factory=ActivityEnvironment)

    async def request(self, sequence: int = 1, phase: Phase = Phase.RUNNING, **fields: Any) -> PublishRequest:
        named = {name: fields.pop(name) for name in ("jobs", "outcome", "message", "events", "target", "at") if name in fields}
        status = EpisodeStatus(
            incident=INCIDENT,
            cluster=CLUSTER,
            node=NODE,
            kind=Kind.FENCING,
            phase=phase,
            step=FenceStep.POWER_MANAGEMENT.value,
            doing="commands power off",
            reason="NodeHealthCheck/workers: Ready is Unknown",
            started=NOW - timedelta(minutes=5),
            try_number=3,
        )
        target, events = named.pop("target", None) or await self.world.pinned(), named.pop("events", ())
        shown = EpisodeSnapshot(status=replace(status, **fields), sequence=sequence, at=NOW, jobs=("power-off-1",))
        return PublishRequest(target=target, publication=Publication(shown=replace(shown, **named), events=events))

    async def show(self, *args: Any, **fields: Any) -> None:
        await self.environment.run(self.target.publish, await self.request(*args, **fields))

    async def fence(self) -> JsonObject:
        return await self.world.others.get(FENCES.path(NAME))

    async def names(self) -> list[str]:
        return sorted(each["metadata"]["name"] for each in (await self.world.others.list(FENCES.path()))["items"])

    async def events(self) -> list[tuple[str, str, str]]:
        found = (await self.world.others.list(EVENTS.path(namespace="default")))["items"]
        return sorted((each["involvedObject"]["kind"], each["reason"], each["type"]) for each in found)


def shown_of(request: PublishRequest) -> EpisodeSnapshot:
    assert request.publication.shown is not None
    return request.publication.shown


def event(reason: EventReason, message: str) -> PublishedEvent:
    return PublishedEvent(reason=reason.value, message=message, warning=reason in WARNINGS)


@pytest.fixture
def without_kind(world: World) -> Mirrored:
    """A cluster whose owners have not installed NodeFence."""
    fences = NodeFences(world.connection, clock=world.clock)
    return Mirrored(
        world,
        fences,
        ClusterTarget(ServedCluster(CLUSTER, world.connection, clock=world.clock), world.permits, LICENCES, fences=fences),
    )


@pytest.fixture
async def mirrored(without_kind: Mirrored) -> Mirrored:
    """One whose owners have."""
    await without_kind.world.others.create(CUSTOM_RESOURCE_DEFINITIONS.path(), DEFINITION)
    return without_kind


async def test_it_has_the_seeds_fields_at_the_top(mirrored: Mirrored) -> None:
    await mirrored.show()
    fence = await mirrored.fence()
    seed = {field: fence[field] for field in ("apiVersion", "kind", "node", "step", "status", "retries", "jobs")}
    assert seed == {
        "apiVersion": "nodewarden.io/v1alpha1",
        "kind": "NodeFence",
        "node": NODE,
        "step": "Power-Management",
        "status": "Running",
        "retries": 2,
        "jobs": ["power-off-1"],
    }
    assert "namespace" not in fence["metadata"]
    assert "ownerReferences" not in fence["metadata"]
    assert (fence["phase"], fence["incident"], fence["workflowId"]) == ("running", INCIDENT, f"episode/{CLUSTER}/{NODE}")
    assert fence["startedAt"] == "2026-11-21T11:55:00.000000Z"


async def test_what_is_written_is_what_the_definition_describes(mirrored: Mirrored) -> None:
    """A server drops what its schema does not know, without a word."""
    proof = replace(off_proof(), acknowledgement=Acknowledgement(who="ada", why="saw it", at=NOW))
    restart = RestartProof(boot_id="boot-2", previous_boot_id="boot-1", seen_at=NOW)
    path = PathProof(commanded_at=NOW, readings=proof.readings)
    final = await mirrored.request(
        9,
        Phase.FINAL,
        off_proof=proof,
        path_proofs=(path,),
        restart_proof=restart,
        restarts=1,
        outcome="recovered",
        message="it is back",
    )
    await mirrored.environment.run(mirrored.target.publish, final)
    fence, written = await mirrored.fence(), mirrored.fences._document(NAME, final.target, shown_of(final))
    assert {key: fence[key] for key in written if key != "metadata"} == {
        key: value for key, value in written.items() if key != "metadata"
    }
    assert fence["proof"]["off"]["readings"] == [{"endpoint": ENDPOINT, "state": "off", "at": "2026-11-21T11:59:55.000000Z"}]
    schema = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    assert schema.keys() - written.keys() == {"problem"}  # it has ended: nothing is in the way any more


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.NEEDS_HUMAN, Phase.FINAL])
async def test_what_an_episode_tells_of_its_status_is_all_that_is_shown_of_it(mirrored: Mirrored, phase: Phase) -> None:
    """The rest stays out of its history, which tells each state."""
    word = Acknowledgement(who="ada", why="saw it", at=NOW)
    [read] = off_proof().readings
    read = replace(read, detail="unread", serves=("unread",), seal="unread")
    volume = VolumeReading(volume="vol-1", state=VolumeState.AVAILABLE, at=NOW, root=True, detail="unread", seal="unread")
    whole = shown_of(
        await mirrored.request(
            9,
            phase,
            off_proof=replace(off_proof(), readings=(read,), acknowledgement=word),
            path_proofs=(PathProof(commanded_at=NOW, readings=(read,), volumes=(volume,)),),
            restart_proof=RestartProof(boot_id="boot-2", previous_boot_id="boot-1", seen_at=NOW),
            restarts=1,
            problem="it says on",
        )
    )
    target, short = await mirrored.world.pinned(), replace(whole, status=shown_status(whole.status))
    document = mirrored.fences._document(NAME, target, whole)
    assert mirrored.fences._document(NAME, target, short) == document
    assert "unread" not in repr(short)
    assert document.keys() >= {"proof", "reason", "restarts", "startedAt"}


async def test_a_write_that_was_overtaken_changes_nothing(mirrored: Mirrored) -> None:
    """Its worker was lost for a while, and comes back with what was true then."""
    late = await mirrored.request(1, Phase.NEW)
    await mirrored.show(2, Phase.DONE)
    before = mirrored.world.writes
    await mirrored.environment.run(mirrored.target.publish, late)
    assert (await mirrored.fence())["status"] == "Done"
    assert mirrored.world.writes == before


async def test_what_it_has_written_itself_is_not_read_again_and_what_others_have_written_is(mirrored: Mirrored) -> None:
    requests = mirrored.world.server.requests
    for sequence in (1, 1, 2, 3):
        await mirrored.show(sequence)
    assert mirrored.world.writes == 3, "the same state is written once"
    assert requests.total("get", "nodefences") == 1, "whether there is one"
    await mirrored.world.others.patch(FENCES.path(NAME), {"metadata": {"labels": {"theirs": "yes"}}})
    await mirrored.show(4, doing="waits")
    assert requests.total("get", "nodefences") == 2
    assert (await mirrored.fence())["sequence"] == 4


async def test_two_writers_at_once_lose_nothing(mirrored: Mirrored) -> None:
    """What is written carries the version that was read."""
    await mirrored.show(1)
    newer = await mirrored.request(3, Phase.DONE)
    other = NodeFences(mirrored.world.connection)
    mirrored.world.connection.before_writes.append(lambda: other.show(newer.target, shown_of(newer)))
    await mirrored.show(2, Phase.ERROR)
    assert (await mirrored.fence())["status"] == "Done"


async def test_an_object_of_another_owner_is_left_as_it_is(mirrored: Mirrored) -> None:
    """The proposal's own controller may still be about."""
    theirs = {
        "apiVersion": "nodewarden.io/v1alpha1",
        "kind": "NodeFence",
        "metadata": {"name": NAME},
        "node": NODE,
        "status": "New",
    }
    await mirrored.world.others.create(FENCES.path(), theirs)
    before = await mirrored.fence()
    await mirrored.show()
    mirrored.world.now += timedelta(days=9)
    await mirrored.fences.sweep(())
    assert await mirrored.fence() == before


async def test_in_the_proposals_group_where_its_definition_is_and_a_setting_says_so(without_kind: Mirrored) -> None:
    group, version = PROPOSED_NODE_FENCES.api_version.split("/")
    definition = deepcopy(DEFINITION)
    definition["metadata"] = {
        "name": f"nodefences.{group}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for those who watch it"},
    }
    definition["spec"]["group"], definition["spec"]["versions"][0]["name"] = group, version
    await without_kind.world.others.create(CUSTOM_RESOURCE_DEFINITIONS.path(), definition)
    request = await without_kind.request()
    fences = NodeFences(without_kind.world.connection, kind=PROPOSED_NODE_FENCES, clock=without_kind.world.clock)
    assert await fences.show(request.target, shown_of(request))
    written = await without_kind.world.others.get(PROPOSED_NODE_FENCES.path(NAME))
    assert (written["apiVersion"], written["node"]) == ("ha.k8s.io/v1", NODE)
    found = await node_fences(without_kind.world.connection)
    assert [each.remove for each in found] == ["kubectl delete nodefences.ha.k8s.io -l app.kubernetes.io/managed-by=nodewarden"]


async def test_without_the_kind_nothing_is_written_and_not_asked_again_for_a_while(without_kind: Mirrored) -> None:
    request = await without_kind.request(events=(event(EventReason.STEP_STARTED, "isolation"),))
    await without_kind.environment.run(without_kind.target.publish, request)
    request_log = without_kind.world.server.requests
    target, asked = await without_kind.world.pinned(), request_log.counts.total()
    for number in range(2, 5):
        later = replace(request, publication=Publication(shown=replace(shown_of(request), sequence=number)), target=target)
        await without_kind.environment.run(without_kind.target.publish, later)
    assert await without_kind.fences.sweep(()) == 0
    assert request_log.counts.total() == asked
    assert await without_kind.events() == [("Node", "StepStarted", "Normal")]


async def test_without_the_right_the_node_is_told_all_the_same(mirrored: Mirrored) -> None:
    mirrored.world.server.faults.add(Fault(accident=Accident.STATUS, status=403, path="/nodefences"))
    await mirrored.show(events=(event(EventReason.STEP_FAILED, "power-management: no answer"),))
    assert await mirrored.events() == [("Node", "StepFailed", "Warning")]


async def test_each_event_stands_on_the_node_and_on_its_fence(mirrored: Mirrored) -> None:
    await mirrored.show(events=(event(EventReason.STEP_SKIPPED, "power-management: a veto"),))
    assert await mirrored.events() == [("Node", "StepSkipped", "Normal"), ("NodeFence", "StepSkipped", "Normal")]
    [on_fence] = [
        each
        for each in (await mirrored.world.others.list(EVENTS.path(namespace="default")))["items"]
        if each["involvedObject"]["kind"] == "NodeFence"
    ]
    assert on_fence["involvedObject"]["uid"] == (await mirrored.fence())["metadata"]["uid"]
    assert on_fence["message"] == f"incident {INCIDENT}: power-management: a veto"


async def test_a_repetition_is_told_on_both_with_what_was_there_each_time(mirrored: Mirrored) -> None:
    again = Repetition(
        node=NODE, cause="ReadyUnknown", count=3, window=timedelta(hours=24), incidents=("a", "b"), workloads=("default/db-0",)
    )
    await mirrored.show()
    notices = list[Notice]()
    served = ServedCluster(CLUSTER, mirrored.world.connection)
    target = ClusterTarget(served, mirrored.world.permits, LICENCES, fences=mirrored.fences, notify=notices.append)
    await mirrored.environment.run(target.publish_repetition, RepetitionRequest(cluster=CLUSTER, repetition=again))
    assert await mirrored.events() == [("Node", "RepeatedFencing", "Warning"), ("NodeFence", "RepeatedFencing", "Warning")]
    told = (await mirrored.world.others.list(EVENTS.path(namespace="default")))["items"][0]
    assert told["message"].endswith("there each time: default/db-0")
    assert [(each.when, each.node, each.text) for each in notices] == [(When.REPEATED, NODE, again.message)]


async def test_people_elsewhere_hear_at_once_who_needs_one_of_them_and_how_it_ended(mirrored: Mirrored) -> None:
    """Also while the API is away, and of nothing else."""
    notices = list[Notice]()
    publisher = EpisodePublisher(ServedCluster("prod", mirrored.world.connection), mirrored.fences, notify=notices.append)
    asks, goes_on = event(EventReason.NEEDS_HUMAN, "off is not proven"), event(EventReason.STEP_STARTED, "isolation")
    ended = PublishedEvent(reason=EventReason.EPISODE_ENDED, message="recovered: it is back", outcome="recovered")
    request = await mirrored.request(events=(goes_on, asks, ended))
    mirrored.world.server.faults.add(Fault(accident=Accident.STATUS, status=500))
    assert request.publication is not None
    await mirrored.environment.run(publisher.publish_beside, request.target, request.publication)
    assert [(each.when, each.outcome, each.subject, each.node, each.text) for each in notices] == [
        (When.NEEDS_HUMAN, "", INCIDENT, NODE, f"incident {INCIDENT}: off is not proven"),
        (When.ENDED, "recovered", INCIDENT, NODE, f"incident {INCIDENT}: recovered: it is back"),
    ]


async def test_an_api_that_is_away_is_asked_twice_and_then_given_up(mirrored: Mirrored) -> None:
    """The first attempt fails for the retry's sake; the second tells the Events that can be told."""
    world = mirrored.world
    request = await mirrored.request(events=(event(EventReason.STEP_STARTED, "isolation"),))
    world.server.faults.add(Fault(accident=Accident.STATUS, status=500, path="/nodefences"))
    with refused(ErrorType.TRANSIENT):
        await mirrored.environment.run(mirrored.target.publish, request)
    assert await mirrored.events() == []
    second = ActivityEnvironment()
    second.info = replace(second.info, attempt=2)
    await second.run(mirrored.target.publish, request)
    assert await mirrored.events() == [("Node", "StepStarted", "Normal")]


@pytest.mark.parametrize("accident", [Accident.STATUS, Accident.DELAY])
async def test_an_act_that_takes_a_state_along_waits_for_it_no_longer_than_a_moment(
    mirrored: Mirrored, accident: Accident, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S20: between a look and what follows from it nothing may take long, and nothing of what people are told may fail it."""
    monkeypatch.setattr(nodefences, "PATIENCE_SECONDS", 0.2)
    request = await mirrored.request()
    mirrored.world.server.faults.add(Fault(accident=accident, status=500, latency=timedelta(seconds=5), path="/nodefences"))
    act = replace(await mirrored.world.act(), publication=request.publication)
    async with asyncio.timeout(2):
        assert (await mirrored.environment.run(mirrored.target.mark, act)).changed


# Going --------------------------------------------------------------------------------------------------------------


async def swept(mirrored: Mirrored, at: datetime, *held: str) -> list[str]:
    """What is left after a look of another worker at that moment."""
    await NodeFences(mirrored.world.connection, clock=lambda: at).sweep(held)
    return await mirrored.names()


async def test_it_stays_its_time_after_the_end_and_then_goes(mirrored: Mirrored) -> None:
    kept_for = timedelta(minutes=2)
    final = await mirrored.request(9, Phase.FINAL, outcome="recovered")
    await NodeFences(mirrored.world.connection, kept_for=kept_for, clock=mirrored.world.clock).show(final.target, shown_of(final))
    assert await swept(mirrored, NOW + kept_for - timedelta(seconds=1)) == [NAME]
    assert await swept(mirrored, NOW + kept_for) == []


async def test_what_a_terminated_episode_has_left_goes_unless_one_holds_the_node(mirrored: Mirrored) -> None:
    """A parked episode may wait for its person for weeks."""
    await mirrored.show(3, Phase.NEEDS_HUMAN, problem="a person is needed")
    assert await swept(mirrored, NOW + ABANDONED_AFTER - timedelta(seconds=1)) == [NAME]
    assert await swept(mirrored, NOW + 30 * ABANDONED_AFTER, NODE) == [NAME]
    assert await swept(mirrored, NOW + ABANDONED_AFTER, "another-node") == []


async def test_one_that_begins_anew_while_it_is_looked_at_stays(mirrored: Mirrored) -> None:
    await mirrored.show(9, Phase.FINAL, outcome="recovered")
    new = await mirrored.request(1, Phase.NEW, incident="incident-2", started=NOW + KEPT_FOR)
    mirrored.world.connection.before_writes.append(lambda: mirrored.fences.show(new.target, shown_of(new)))
    assert await swept(mirrored, NOW + KEPT_FOR) == [NAME]
    assert (await mirrored.fence())["incident"] == "incident-2"


@pytest.mark.parametrize(("known_digest", "left"), [("", [NAME]), ("digest-of-the-first-report", [])])
async def test_scans_take_away_what_is_over(mirrored: Mirrored, known_digest: str, left: list[str]) -> None:
    """Not the first of a scanner that has no memory yet: it can't say who is open."""
    await mirrored.show(9, Phase.FINAL, outcome="recovered")
    clock: Callable[[], datetime] = lambda: NOW + KEPT_FOR  # noqa: E731 - shorter than a function
    fences = NodeFences(mirrored.world.connection, clock=clock)
    async with ClusterScan(CLUSTER, ClusterView(mirrored.world.connection), fences=fences) as scan:
        request = ScanRequest(cluster=CLUSTER, holder="us", known_digest=known_digest, wait=timedelta(milliseconds=300))
        await mirrored.environment.run(scan.observe_cluster, request)
        async with asyncio.timeout(5 * PATIENCE):
            while await mirrored.names() != left:
                await asyncio.sleep(0.01)
    assert await mirrored.names() == left


# The definition -----------------------------------------------------------------------------------------------------


async def test_it_reads_in_a_table(mirrored: Mirrored) -> None:
    await mirrored.show(1, Phase.NEEDS_HUMAN, problem="the BMC says on")
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io", "Authorization": "Bearer abc"}
    async with aiohttp.ClientSession() as session, session.get(mirrored.world.server.url + FENCES.path(), headers=headers) as got:
        table = await got.json()
    shown = {column["name"]: cell for column, cell in zip(table["columnDefinitions"], table["rows"][0]["cells"], strict=True)}
    assert shown.pop("Started")
    assert shown == {
        "Name": NAME,
        "Node": NODE,
        "Step": "Power-Management",
        "Status": "Error",
        "Phase": "needs-human",
        "Retries": 2,
        "Outcome": None,
        "Problem": "the BMC says on",
        "Incident": INCIDENT,
        "Reason": "NodeHealthCheck/workers: Ready is Unknown",
    }
