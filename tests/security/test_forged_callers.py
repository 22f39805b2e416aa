"""Who acts is read from Temporal, never from the request (S49): in the name of another workflow nothing is marked, told or freed.

The attacker may start workflows and schedule activities; ids of workflows are the server's to give.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from activities.contracts.attestation import VerifyRequest
from activities.contracts.device_check import PublishDeviceNoticesRequest
from activities.contracts.evidence import BundleName, CollectRequest, DeviceEvidenceRequest, SealRequest
from activities.contracts.preservation import GiveUpRequest, HoldRequest
from activities.contracts.remediation import BeforeActing
from activities.contracts.scan import RecordRequest, RepetitionRequest, ScanRequest
from activities.contracts.target import (
    ActRequest,
    PinRequest,
    Publication,
    PublishedEvent,
    PublishRequest,
    Target,
    UntaintRequest,
)
from activities.errors import ErrorType
from policy.episode.events import EventReason
from policy.episode.messages import FencingInput
from policy.episode.node_action import ActionName, NodeActionSpec, Verb
from policy.episode.notices import Notice
from policy.fence.plan import PowerDevice
from policy.scan.repeat_alarm import Repetition
from policy.values.object_refs import ObjectRef
from tests.cluster.acts.world import CLUSTER, INCIDENT, NODE, WORKFLOW, World, refused
from workers import worker as workers
from workers.configuration.process_settings import WorkerSettings
from workers.interceptors.activity_guards import CallerGuard, RunGuard
from workers.worker import Serving

ASKED = Publication(events=(PublishedEvent(reason=EventReason.NEEDS_HUMAN, message="call this number", warning=True),))


@dataclass(frozen=True, slots=True)
class Row:
    """info: what Temporal says of the caller. said: what its request says."""

    info: dict[str, Any]
    said: dict[str, Any]


FORGED: dict[str, Row] = {
    "another workflow speaks in the episode's name": Row({"workflow_id": "mine"}, {}),
    "a workflow that does not exist": Row({"workflow_id": "mine"}, {"workflow_id": "never-begun"}),
    "a workflow in its own name, which holds no node": Row({"workflow_id": "mine"}, {"workflow_id": "mine"}),
    "an episode of another node": Row({"workflow_id": "episode/prod/node-8"}, {"workflow_id": "episode/prod/node-8"}),
    "an episode, in another name": Row({}, {"workflow_id": "never-begun"}),
    "an episode that says that it is a preservation": Row({}, {"kind": "Preservation"}),
    "no workflow at all": Row({"workflow_id": None, "workflow_type": None}, {}),
}


class Act(ActivityInboundInterceptor):
    def __init__(self, act: Callable[[Any], Any]) -> None:
        self._act = act

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002 - the SDK's name
        return await self._act(*input.args)


async def ask(act: Callable[[Any], Any], request: Any, **info: Any) -> Any:
    """As a worker of ours is asked by a workflow of that id and type."""
    environment = ActivityEnvironment()
    environment.info = replace(environment.info, **{"workflow_id": WORKFLOW, "workflow_type": "Fencing", **info})

    async def run() -> Any:
        given = ExecuteActivityInput(fn=run, args=[request], executor=None, headers={})
        return await CallerGuard().intercept_activity(Act(act)).execute_activity(given)

    return await environment.run(run)


@pytest.mark.parametrize("row", FORGED.values(), ids=FORGED)
async def test_s49_nothing_is_done_in_another_name(row: Row, world: World) -> None:
    """A mark with an invented id would keep the node from every later episode, and a pager rings in our name."""
    pages: list[Notice] = []
    world.target._publisher._notify = pages.append
    target = replace(await world.pinned(), **row.said)
    for act, request in (
        (world.target.mark, ActRequest(target=target)),
        (world.target.publish, PublishRequest(target=target, publication=ASKED)),
        (world.freeing.delete_workload, await world.free(target)),
        (world.target.last_look, await world.look(target)),
    ):
        with refused(ErrorType.NOT_LICENSED, "nothing was done"):
            await ask(act, request, **row.info)
    assert (await world.mark(), pages, world.writes) == (None, [], 0)


@pytest.mark.parametrize("row", FORGED.values(), ids=FORGED)
async def test_s49_what_names_no_target_of_its_own_is_asked_for_by_its_episode_only(row: Row, world: World) -> None:
    """A Machine would be deleted on the permit of the node's true episode, a kept one given up, a node marked or leased."""
    target, did = replace(await world.pinned(), **row.said), list[object]()
    look = replace(await world.look(target), lease=timedelta(minutes=5))

    async def act(request: object) -> None:
        did.append(request)

    wanted = FencingInput(cluster=CLUSTER, node=NODE, incident=INCIDENT)
    machine = ObjectRef(api_version="machine.openshift.io/v1beta1", kind="Machine", name="m", namespace="n")
    up = GiveUpRequest(cluster=CLUSTER, node=NODE, machine=machine, machine_uid="u", holder="", not_after=world.now)
    other = replace(target, workflow_id=f"episode/{CLUSTER}/node-8", pinned=replace(target.pinned, node="node-8"))
    with refused(ErrorType.NOT_LICENSED, "nothing was done"):
        await ask(act, replace(up, before=BeforeActing(look=look)), **row.info)
    with refused(ErrorType.NOT_LICENSED, "nothing was done"):
        await ask(act, UntaintRequest(target=other, look=look), workflow_id=other.workflow_id)
    for request in (
        PinRequest(wanted=wanted, marks_as="run-1"),
        HoldRequest(cluster=CLUSTER, node=NODE),
        replace(up, victim=NODE),
    ):
        if row.info:
            with refused(ErrorType.NOT_LICENSED, "nothing was done"):
                await ask(act, request, **row.info)
        else:
            await ask(act, request)
            assert did.pop() == request
    nameless = HoldRequest(cluster=CLUSTER, node="", machine=machine)
    await ask(act, nameless, workflow_id=f"episode/{CLUSTER}/machine/n/m", workflow_type="Preservation")
    assert did == [nameless]


@pytest.mark.parametrize(
    "info",
    [{"workflow_id": "mine"}, {"workflow_type": "Fencing"}, {"workflow_id": "scanner/other"}, {"workflow_id": None}],
    ids=str,
)
async def test_s38_the_cluster_lease_is_its_scanners_to_take_and_to_give_back(info: dict[str, Any]) -> None:
    """A request says by which name the Lease is held. In another deployment's it was deleted while that one acted, and ours began
    beside it."""
    did = list[object]()

    async def act(request: object) -> None:
        did.append(request)

    scanner = {"workflow_id": f"scanner/{CLUSTER}", "workflow_type": "HealthScanner"}
    for asks in (ScanRequest(cluster=CLUSTER, holder="theirs"), RecordRequest(cluster=CLUSTER)):
        with refused(ErrorType.NOT_LICENSED, "nothing was done"):
            await ask(act, asks, **(scanner | info))
        await ask(act, asks, **scanner)
        assert did.pop() == asks


async def test_s49_the_alarm_of_a_repetition_is_its_scanners_to_raise(world: World) -> None:
    """Any client's workflow rang a pager with a text of its own, about any node, and wrote the Event."""
    pages: list[Notice] = []
    world.target._publisher._notify = pages.append
    repetition = Repetition(node=NODE, cause="call this number", count=3, window=timedelta(hours=1), incidents=("x",))
    request = RepetitionRequest(cluster=CLUSTER, repetition=repetition)
    for info in ({"workflow_id": "mine"}, {"workflow_id": f"scanner/{CLUSTER}"}, {}):
        with refused(ErrorType.NOT_LICENSED, "nothing was done"):
            await ask(world.target.publish_repetition, request, **info)
    assert (pages, world.writes) == ([], 0)
    await ask(world.target.publish_repetition, request, workflow_id=f"scanner/{CLUSTER}", workflow_type="HealthScanner")
    assert ["call this number" in each.text for each in pages] == [True]


BUNDLE = BundleName(cluster=CLUSTER, node=NODE, incident=INCIDENT)
KEPT = {"workflow_id": WORKFLOW, "workflow_type": "Preservation"}
CHECKING = {"workflow_id": f"device-check/{CLUSTER}", "workflow_type": "DeviceCheck"}


@pytest.mark.parametrize(
    ("asked", "caller"),
    [
        (CollectRequest(bundle=BUNDLE, node=NODE), KEPT),
        (SealRequest(bundle=BUNDLE, began=datetime(2026, 11, 30, tzinfo=UTC), files=(), missing=()), KEPT),
        (DeviceEvidenceRequest(bundle=BUNDLE, device=PowerDevice(driver="ipmi", endpoint="bmc"), room=10), KEPT),
        (PublishDeviceNoticesRequest(cluster=CLUSTER, notices=()), CHECKING),
    ],
    ids=lambda each: type(each).__name__,
)
async def test_s49_evidence_is_its_preservations_and_a_devices_notice_the_checks(asked: Any, caller: dict[str, Any]) -> None:
    """The manifest of a machine's evidence was written anew by whoever asked, with other hashes and with what was never missing;
    so were Events that a device answers again."""
    did = list[object]()

    async def act(request: object) -> None:
        did.append(request)

    for key, wrong in (("workflow_id", "mine"), ("workflow_id", f"episode/{CLUSTER}/node-8"), ("workflow_type", "Fencing")):
        with refused(ErrorType.NOT_LICENSED, "nothing was done"):
            await ask(act, asked, **caller | {key: wrong})
    await ask(act, asked, **caller)
    assert did == [asked]


@pytest.mark.parametrize(
    ("verb", "node", "caller"),
    [
        (Verb.ABORT, NODE, {"workflow_id": WORKFLOW, "workflow_type": "Remediation"}),
        (Verb.PAUSE, "", {"workflow_id": f"scanner/{CLUSTER}", "workflow_type": "HealthScanner"}),
    ],
)
async def test_s49_a_word_is_verified_for_the_workflow_that_it_is_said_to(verb: Verb, node: str, caller: dict[str, Any]) -> None:
    """Another workflow used the NodeAction up, so that its maker's word was refused as used before; and had it sealed as one that
    was said to an episode of its own choice."""
    did = list[object]()

    async def act(request: object) -> None:
        did.append(request)

    spec = NodeActionSpec(action=verb, node=node, reason="x")
    asked = VerifyRequest(cluster=CLUSTER, spec=spec, action=ActionName(name="abort-x", uid="u"), use="u", incident="theirs")
    for wrong in ({"workflow_id": "mine"}, {"workflow_id": f"episode/{CLUSTER}/node-8"}, {"workflow_type": "Mine"}):
        with refused(ErrorType.NOT_LICENSED, "nothing was done"):
            await ask(act, asked, **caller | wrong)
    await ask(act, asked, **caller)
    assert did == [asked]


async def test_s49_nothing_is_done_that_no_workflow_asks_for() -> None:
    """Temporal lets a client ask for an activity alone."""
    environment, client = ActivityEnvironment(), cast(Client, None)
    environment.info = replace(environment.info, workflow_id=None, workflow_run_id=None, workflow_type=None)
    with refused(ErrorType.NOT_LICENSED, "no workflow asks; nothing was done"):
        await environment.run(RunGuard(client).require, [])


async def test_the_episode_itself_is_heard(world: World) -> None:
    """Otherwise nothing above would say why it was refused."""
    pages: list[Notice] = []
    world.target._publisher._notify = pages.append
    target: Target = await world.pinned()
    await ask(world.target.mark, ActRequest(target=target))
    await ask(world.target.publish, PublishRequest(target=target, publication=ASKED))
    mark = await world.mark()
    assert mark is not None
    assert (mark.incident, mark.workflow_id, len(pages)) == (INCIDENT, f"episode/{CLUSTER}/{NODE}", 1)


def test_every_worker_that_acts_asks_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[dict[str, Any]] = []
    monkeypatch.setattr(workers, "Worker", lambda _client, **options: built.append(options))
    client: Client = object()  # type: ignore[assignment]
    workers.build(client, Serving(queue="cluster.prod", activities=[]), WorkerSettings())
    for guard in (CallerGuard, RunGuard):
        assert [each for each in built[0]["interceptors"] if isinstance(each, guard)]
