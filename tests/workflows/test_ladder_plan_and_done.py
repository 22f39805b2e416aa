"""What `nodewarden remediate plan` shows of a node is what its remediation does, by hand and by the scanner: tried on random
clusters.

A plan is drawn up of each, the real activity pins the target in the same objects, and the ladder that it answers is played on the
clockwork where no step helps. `NODEWARDEN_TEST_PLANS` says how many clusters, `NODEWARDEN_TEST_SEED` from which number on.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, cast

from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.remediation import ClusterRemediation
from activities.cluster.api.connection import ClusterConnection, Page
from activities.cluster.api.served_cluster import Connections, ServedCluster
from activities.cluster.objects.live_machines import find_target
from activities.cluster.objects.object_reader import FileObjects
from activities.contracts.remediation import FailedVolumes, RemediationPin
from policy.checks.fence_policies import PolicySource
from policy.checks.verdict import MACHINE
from policy.episode.messages import Need, NeedKind, Phase, RemediationInput
from policy.fence.power import VolumeState
from policy.objects.machines import CAPI_MACHINE_ANNOTATION, CLUSTER_NAMESPACE_ANNOTATION, OPENSHIFT_MACHINE_ANNOTATION
from policy.remediation.failed_volumes import AttachedVolume, Failure, PodOnNode
from policy.remediation.ladder import Body, body_of, impossible, read_strategies
from policy.remediation.strategy_rules import Strategy
from policy.scan.explanation import Outlook, PlannedStep
from policy.scan.scan_report import Candidate
from starter.output.outlooks import planned
from tests.cases.decisions import PlayedWorld, played
from tests.cases.drawn_worlds import drawn, once_in
from tests.cases.worlds import NOW, Json
from tests.workflows.plans import CLOUD, MINUTE, plan
from tests.workflows.remediation_run import Play, Remediated, RemediationObject
from tests.workflows.world import World

PLANS = int(os.environ.get("NODEWARDEN_TEST_PLANS", "20"))
FIRST_SEED = int(os.environ.get("NODEWARDEN_TEST_SEED", "1"))
FOUND = (1, 5, 14, 31, 80, 118)
"""Clusters in which the two have differed."""
CLUSTER = "prod"
BROKEN: Json = {"NodeHealthCheck": "broken", "spec": {"selector": "pool", "minHealthy": "many", "unhealthyConditions": []}}

BARE = plan(levels=((CLOUD,),), tries=1, restarts=0)

Shown = tuple[PlannedStep, ...] | str
"""The steps in their order, or why nothing is begun."""


class Files(FileObjects):
    """As a worker reads the API."""

    def list_pages(self, path: str, *, metadata_only: bool = False) -> AsyncGenerator[Page, None]:
        return super().list_pages(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One remediation that is wanted. named: the steps that a person names. candidate: of a scan, None where a person asks."""

    name: str
    named: tuple[str, ...] = ()
    skips: bool = False
    candidate: Candidate | None = None

    def request(self) -> RemediationInput:
        if (found := self.candidate) is None:
            said = {"strategies": self.named, "skip_impossible": self.skips}
            return RemediationInput(cluster=CLUSTER, node=self.name, reason="drill", requester="ada", incident="i-1", **said)
        return RemediationInput(
            cluster=CLUSTER,
            node=self.name,
            incident="i-1",
            need=Need(kind=NeedKind.CHECK, reason=found.reason, check=found.check),
            ladder=found.ladder,
            failed=found.failed,
            memory=found.memory,
            machine=found.machine_ref,
            machine_uid=found.machine_uid,
            node_uid=found.uid,
        )


def world_of(seed: int) -> PlayedWorld:
    """Beside what is drawn most Nodes name their Machine, and one cluster in eight has a health check that can't be read."""
    case, chance = drawn(seed), Random(f"plans of {seed}")
    machines = {each["Machine"].removeprefix("m"): each for each in case["given"] if "Machine" in each}
    for node in (each for each in case["given"] if "Node" in each):
        machine = machines.get(node["Node"].removeprefix("n"))
        if machine is None or once_in(chance, 3):
            continue
        its = {OPENSHIFT_MACHINE_ANNOTATION: f"machines/{machine['Machine']}"}
        if machine["api"] == "capi":
            its = {CAPI_MACHINE_ANNOTATION: machine["Machine"], CLUSTER_NAMESPACE_ANNOTATION: "machines"}
        node["annotations"] = node.get("annotations", {}) | its
    case["given"] += [BROKEN] if once_in(chance, 8) else []
    return played(case)


def wishes(world: PlayedWorld, chance: Random) -> Iterator[Asked]:
    """What people and the scanner may want of each Node and Machine."""
    machines = [each["metadata"]["name"] for each in world.objects if each["kind"] == "Machine"]
    for name in [*world.known.nodes, "n7", *(f"{MACHINE}machines/{each}" for each in machines)]:
        yield Asked(name=name)
        named = chance.sample([each.value for each in Strategy], chance.randint(1, 3))
        yield Asked(name=name, named=tuple(named), skips=once_in(chance, 2))
    for each in world.report.candidates:
        if each.ladder and not each.refused and not each.exhausted and each.need is NeedKind.CHECK:
            yield Asked(name=each.node, candidate=each)


async def shown(world: PlayedWorld, reader: Files, asked: Asked) -> Shown:
    """What the plan says, of a cluster that was read as the command reads it."""
    found = await find_target(Connections(nodes=reader, machines=reader, machine_namespaces=COUNTING.machines), asked.name)
    named = read_strategies(", ".join(asked.named), subject="", field="") if asked.named else None
    body = body_of(found) if found is not None else None
    drawn_up = planned(world.cluster, asked.name, named, body, whole=not asked.skips)
    outlook = drawn_up.by_hand if asked.candidate is None else drawn_up.by_scanner
    if outlook is None:
        return "there is no such Node or Machine"
    return outlook.problem or taken(outlook, body or Body(has_node=False))


def taken(outlook: Outlook, body: Body) -> Shown:
    """Of a step that the plan of a scan makes depend on the Machine, which a check of Nodes does not know, it is looked up."""
    first = next(at for at, each in enumerate(outlook.steps) if each.next)
    found = [each for each in outlook.steps[first:] if not each.impossible and not each.failed]
    unmet = {each.step.name: impossible(each.step, body, live=True) for each in found if each.doubtful}
    left = tuple(each for each in found if not unmet.get(each.step.name))
    return left or unmet[found[0].step.name]


COUNTING = PolicySource(machines=("machines",))


async def pinned(reader: Files, asked: Asked) -> RemediationPin | str:
    """What the episode begins with, by the real activity; or why it does not begin."""
    served = ServedCluster(
        CLUSTER, cast("ClusterConnection", reader), clock=lambda: NOW, source=PolicySource(machines=("machines",))
    )
    activities = ClusterRemediation(served, cast("Any", None))
    try:
        pin: RemediationPin = await ActivityEnvironment().run(activities.pin, asked.request())
    except ApplicationError as error:
        return error.message
    return pin.refused or pin


def fails(made: RemediationObject) -> None:
    """As either kind of controller says it."""
    made.succeeded, made.phase = "False", "Failed"


def done(pin: RemediationPin, asked: Asked) -> tuple[tuple[str, ...], list[str]]:
    """Which steps the workflow takes where none helps, and what it does: until a person is asked, or a step has no end."""
    failure = Failure(volumes=(AttachedVolume(name="pvc-1", handle="vol-1"),), mounting=(PodOnNode(key="d/b", uid="u"),))
    world = Remediated(
        ladder=pin.ladder,
        node=World(plan=BARE, volumes={"vol-1": VolumeState.ATTACHED}, boot_seconds=None),
        need=pin.need,
        has_machine=pin.machine is not None,
        owner=pin.owner,
        goes_after=None,
        on_create=fails,
        found=FailedVolumes(failure=failure, eviction_timeout=MINUTE),
    )
    with Play(world, need=pin.need, failed=pin.failed, node=asked.name) as play:
        play.until(lambda status: status.phase is Phase.NEEDS_HUMAN or (status.rung_until is None and world.annotated))
        begun = [each.detail.partition(": ")[2] for each in play.record() if (each.act, each.outcome) == ("step", "begins")]
    return tuple(begun), world.acts


DOES = {
    Strategy.DELETE_MACHINE: "give-up",
    Strategy.REQUEST_OWNER: "request-owner",
    Strategy.EXTERNAL: "create ",
    Strategy.ANNOTATE_EXTERNAL: "annotate-external",
    Strategy.FENCE: "off",
    Strategy.REBOOT: "off",
    Strategy.DETACH_VOLUMES: "detach",
}


async def difference(world: PlayedWorld, reader: Files, asked: Asked, counted: Counter[str]) -> str:
    said, pin = await shown(world, reader, asked), await pinned(reader, asked)
    if isinstance(said, str) or isinstance(pin, str):
        counted["refused"] += 1
        same_words = said == pin or ("there is no" in str(said) and "there is no such Node" in str(pin))
        return "" if same_words else f"shown {said}\n done  {pin if isinstance(pin, str) else [each.name for each in pin.ladder]}"
    steps, ladder = tuple(each.step for each in said), tuple(each for each in pin.ladder if each.name not in pin.failed)
    if steps != ladder:
        return f"shown {steps}\n pinned {ladder}"
    last = next((at for at, each in enumerate(said) if "no step comes after it" in each.endless), len(said))
    begun, acts = await asyncio.to_thread(done, pin, asked)
    counted.update(each.strategy.value for each in steps[: last + 1])
    # A machine of which the deletion was asked for goes, and its owner is not asked as well (S33).
    idle = [each.name for each in steps[: last + 1] if not any(act.startswith(DOES[each.strategy]) for act in acts)]
    idle = [each for each in idle if each != Strategy.REQUEST_OWNER or Strategy.DELETE_MACHINE not in begun]
    same = begun == tuple(each.name for each in steps[: last + 1])
    return "" if same and not idle else f"shown {[each.name for each in steps]}\n done  {begun}, without {idle}"


async def test_a_remediation_takes_the_steps_that_its_plan_shows() -> None:
    """S13, S15, S44: the same steps, in the same order, each with its time-out; and nothing is begun of which the plan says that
    it can't be, in its words. By the name of a Machine nothing is done that its Node has a say in."""
    counted, differs = Counter[str](), list[str]()
    for seed in (*FOUND, *range(FIRST_SEED, FIRST_SEED + PLANS)):
        world, chance = world_of(seed), Random(f"wishes of {seed}")
        reader, wanted = Files(world.objects), list(wishes(world, chance))
        for asked in wanted if seed in FOUND else chance.sample(wanted, min(len(wanted), 3)):
            if found := await difference(world, reader, asked, counted):
                who = "scan" if asked.candidate is not None else f"hand {asked.named} skips={asked.skips}"
                differs.append(f"{seed}: {asked.name} by {who}:\n {found}")
    assert not differs, f"{len(differs)}\n" + "\n".join(differs[:8])
    if PLANS >= 30:
        assert set(counted) == {"refused", *(each.value for each in Strategy)}, counted
