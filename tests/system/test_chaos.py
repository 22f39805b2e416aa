"""Two minutes of chaos, and its judge: each thing that must never happen is done to a cluster, and found.

The first round is written down: the kills in the middle of a power command, which no draw is to leave out.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from policy.episode.messages import EpisodeResult, EpisodeStatus, Kind, OffProof, Outcome, Phase, Reading, RecordEntry
from policy.fence.power import PowerState
from simulator.client import PatchType
from simulator.cluster import SimulatedCluster
from simulator.resources import EVENTS, LEASES, NODES
from tests import report
from tests.system.chaos.__main__ import run, table
from tests.system.chaos.arena import Breakdown, Round, Strike, drawn
from tests.system.chaos.faults import FAULTS
from tests.system.chaos.recorder import ACT_WINDOW, Recorder, Silence, Span, Wrong, most_at_once
from tests.system.nursery import Nursery
from tests.system.real_api import simulated_only
from tests.system.test_wrong_clocks import LIBRARIES
from tests.system.worker_process import ROOT

pytestmark = [pytest.mark.system, pytest.mark.timeout(400)]

SECONDS = 45.0
SEED = int(os.environ.get("NODEWARDEN_TEST_SEED", "3"))
TITLE = "chaos"
MID_POWER = Round(
    number=1,
    broken=tuple(
        Breakdown(node=f"node-{number}", how=how)
        for number, how in enumerate(("kernel-hangs", "kubelet-stops", "kernel-hangs"), start=1)
    ),
    strikes=tuple(
        Strike(fault=fault, node=f"node-{number}", after=0, lasts=0)
        for number, fault in enumerate((each for each in FAULTS if "in mid power" in each.name), start=1)
    ),
    storm=False,
)


async def test_chaos_finds_nothing(nursery: Nursery, tmp_path: Path) -> None:
    """S1, S2, S14, S17, S33, S34, S35, S44: nothing lost, double, early, left over, above budget or untrue, after every fault."""
    simulated_only("a recorder at its store")
    figures: dict[str, object] = {"seed": SEED}
    arena = await run(seed=SEED, seconds=SECONDS, workers=2, folder=tmp_path, report=figures, first=MID_POWER, nursery=nursery)
    for line in table(figures).splitlines():
        report.say(TITLE, line)
    assert [(str(found), arena.before(found)) for found in arena.recorder.findings] == []
    assert arena.episodes.total() > 3
    assert any("in mid power" in name for name in arena.faults)  # each that has come about: one may keep another from its moment
    assert arena.recorder.words > 20


def test_a_seed_draws_the_same_rounds_and_each_has_a_kill() -> None:
    nodes = [f"node-{number}" for number in range(1, 13)]
    rounds = [drawn(7, number, nodes, 7, tuple(FAULTS)) for number in range(1, 400)]
    assert [str(each) for each in rounds] == [str(drawn(7, number, nodes, 7, tuple(FAULTS))) for number in range(1, 400)]
    assert all(any(strike.fault.kills for strike in each.strikes) for each in rounds)
    assert {strike.fault.name for each in rounds for strike in each.strikes} == {fault.name for fault in FAULTS}


def test_rounds_are_drawn_for_a_cluster_of_any_size() -> None:
    """A storm, in which no power is commanded, has fewer faults that kill than a large cluster would have."""
    for size in (12, 96, 160, 500):
        nodes = [f"node-{number}" for number in range(1, size + 1)]
        rounds = [drawn(2036, number, nodes, ceil(size * 0.51), tuple(FAULTS)) for number in range(1, 100)]
        assert any(each.storm for each in rounds)


def test_the_page_shows_each_fault() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    rows = [f"| {fault.name} | {fault.in_life} | {fault.how} | {fault.undone} |" for fault in FAULTS]
    assert [row for row in rows if row not in page] == []


def test_what_a_machine_can_not_do_is_said() -> None:
    """Where libfaketime is missing, the table says so."""
    assert {fault.name for fault in FAULTS if fault.left_out} == (set() if LIBRARIES else {"clock jumps"})


@pytest.mark.parametrize(
    ("spans", "most"),
    [
        ([(0, 5), (6, 9)], 1),
        ([(0, 5), (5, 9)], 2),
        ([(0, 9), (1, 3), (2, 4), (5, 6)], 3),
    ],
)
def test_permits_are_counted_by_spans_that_overlap(spans: list[tuple[int, int]], most: int) -> None:
    began = datetime(2026, 11, 29, tzinfo=UTC)
    moments = [Span(began=began + timedelta(seconds=one), ended=began + timedelta(seconds=other)) for one, other in spans]
    assert most_at_once(moments) == most


# The judge --------------------------------------------------------------------------------------------------------------


class Judged:
    """A small cluster and a recorder that has one permit; `found` is what it finds after an act."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.recorder = Recorder(cluster, cap=1, workers_needed=2)

    @property
    def found(self) -> set[Wrong]:
        self.recorder.audit()
        return {each.wrong for each in self.recorder.findings}

    async def command(self, node: str, power: str) -> None:
        """Through its device."""
        await self.cluster.chassis.machine(node).set_power(power, "bmc")  # type: ignore[arg-type]

    def result(self, node: str, **changes: object) -> EpisodeResult:
        now = datetime.now(UTC)
        told = {"outcome": Outcome.RECOVERED, "incident": "i", "cluster": "sim", "message": "", "started": now, "ended": now}
        return EpisodeResult(node=node, **(told | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
async def cluster() -> AsyncIterator[SimulatedCluster]:
    simulated_only("a recorder at its store")
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(
            SimulatedCluster(nodes=3, zones=1, grace_seconds=60.0, platform="ipmi", demo_workloads=True)
        )


@pytest.fixture
async def judged(cluster: SimulatedCluster) -> Judged:
    for name in cluster.nodes:
        await cluster.chassis.machine(name).set_power("on")
        cluster.heal_node(name)
    return Judged(cluster)


async def _frees_too_early(judged: Judged) -> None:
    pod = next(iter(judged.cluster.view.pods))
    judged.recorder.breaks(pod["spec"]["nodeName"], "kernel-hangs")
    await judged.cluster.client.delete(f"/api/v1/namespaces/demo/pods/{pod['metadata']['name']}")


async def _taints_too_early(judged: Judged) -> None:
    judged.recorder.breaks("node-1", "kernel-hangs")
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    await judged.cluster.client.patch(NODES.path("node-1"), {"spec": {"taints": [taint]}}, patch_type=PatchType.STRATEGIC_MERGE)


async def _switches_a_well_machine_off(judged: Judged) -> None:
    await judged.command("node-2", "off")


async def _switches_off_twice(judged: Judged) -> None:
    judged.recorder.breaks("node-2", "kernel-hangs")
    await judged.command("node-2", "off")
    await judged.command("node-2", "off")


async def _switches_on_before_it_was_off(judged: Judged) -> None:
    await judged.command("node-2", "on")


async def _takes_the_cluster_lease(judged: Judged) -> None:
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 30}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "nodewarden"}, "spec": spec}
    await judged.cluster.client.create(LEASES.path(namespace="kube-system"), lease)
    path = LEASES.path("nodewarden", namespace="kube-system")
    await judged.cluster.client.patch(path, {"spec": {"holderIdentity": "other"}})


async def _switches_off_more_than_it_may(judged: Judged) -> None:
    for node in ("node-1", "node-2"):
        judged.recorder.breaks(node, "kernel-hangs")
        await judged.command(node, "off")


async def _switches_off_in_a_pause(judged: Judged) -> None:
    judged.recorder.silences.append(Silence(node="", began=datetime.now(UTC) - 2 * ACT_WINDOW))
    judged.recorder.breaks("node-1", "kernel-hangs")
    await judged.command("node-1", "off")


def _event(reason: str, message: str) -> Callable[[Judged], Awaitable[None]]:
    async def say(judged: Judged) -> None:
        event = {
            "metadata": {"generateName": "node-1."},
            "involvedObject": {"kind": "Node", "name": "node-1"},
            "reason": reason,
            "message": message,
            "source": {"component": "nodewarden"},
            "type": "Normal",
        }
        judged.recorder.nodes["node-1"].not_ready.put("not Ready", datetime.now(UTC) - timedelta(minutes=1))
        await judged.cluster.client.create(EVENTS.path(namespace="default"), event)

    return say


def _status(**changes: Any) -> Callable[[Judged], Awaitable[None]]:
    async def say(judged: Judged) -> None:
        told: dict[str, Any] = {
            "incident": "i",
            "cluster": "sim",
            "node": "node-3",
            "kind": Kind.FENCING,
            "step": "",
            "doing": "",
        }
        told |= {"phase": Phase.RUNNING, "reason": "", "started": datetime.now(UTC)}
        judged.recorder.audit_status(EpisodeStatus(**(told | changes)))

    return say


def _explanation(incident: str, conclusion: str, *, marked: str = "") -> Callable[[Judged], Awaitable[None]]:
    async def say(judged: Judged) -> None:
        judged.recorder.nodes["node-3"].marks.put(marked, datetime.now(UTC))
        episode = {"incident": incident} if incident else None
        told = {"episode": episode, "silent": None, "problems": [], "conclusion": conclusion}
        judged.recorder.audit_explanation("node-3", told)

    return say


async def _lets_two_write(judged: Judged) -> None:
    for node in ("node-1", "node-2"):
        judged.cluster.storage.begin(volume="v", pod="p", pod_uid=f"u-{node}", node=node, boot_id="b", exclusive=True)
    for node in ("node-1", "node-2"):
        judged.cluster.storage.end(volume="v", pod_uid=f"u-{node}")


async def _records_a_proof_of_what_was_on(judged: Judged) -> None:
    entry = RecordEntry(at=datetime.now(UTC), step="power-management", act="off-proven", outcome="ok")
    judged.recorder.audit_result(judged.result("node-3", record=(entry,)))


async def _says_that_a_node_recovered(judged: Judged) -> None:
    judged.recorder.nodes["node-3"].not_ready.put("not Ready", datetime.now(UTC) - timedelta(minutes=1))
    judged.recorder.audit_result(judged.result("node-3"))


async def _says_that_it_was_left_off(judged: Judged) -> None:
    judged.recorder.audit_result(judged.result("node-3", outcome=Outcome.ABORTED, left_off=True))


async def _opens_in_a_storm(judged: Judged) -> None:
    moment = datetime.now(UTC)
    for node in ("node-1", "node-2"):
        judged.recorder.nodes[node].not_ready.put("not Ready", moment - timedelta(seconds=60))
    judged.recorder.audit_opening("node-1", moment)


async def _takes_a_node_from_an_open_episode(judged: Judged) -> None:
    now = datetime.now(UTC)
    judged.recorder.nodes["node-1"].marks.put("one", now)
    judged.recorder.nodes["node-1"].marks.put("other", now + timedelta(seconds=1))
    judged.recorder.audit_owners([judged.result("node-1", incident="one", ended=now + timedelta(minutes=1))])


PROOF = OffProof(
    commanded_at=None, readings=(Reading(endpoint="e", state=PowerState.OFF, at=datetime(2026, 11, 29, tzinfo=UTC)),)
)
Wrongdoing = Callable[[Judged], Awaitable[None]]


@pytest.mark.parametrize(
    ("wrongdoing", "wrong"),
    [
        (_frees_too_early, Wrong.EARLY),
        (_taints_too_early, Wrong.EARLY),
        (_lets_two_write, Wrong.EARLY),
        (_switches_a_well_machine_off, Wrong.EARLY),
        (_switches_off_twice, Wrong.DOUBLE),
        (_switches_on_before_it_was_off, Wrong.DOUBLE),
        (_takes_a_node_from_an_open_episode, Wrong.DOUBLE),
        (_takes_the_cluster_lease, Wrong.DOUBLE),
        (_switches_off_more_than_it_may, Wrong.ABOVE_BUDGET),
        (_opens_in_a_storm, Wrong.ABOVE_BUDGET),
        (_switches_off_in_a_pause, Wrong.UNTRUE),
        (_event("NodePoweredOff", "off is proven"), Wrong.UNTRUE),
        (_event("NodeIsolated", "cordoned"), Wrong.UNTRUE),
        (_event("EpisodeEnded", "recovered: Ready"), Wrong.UNTRUE),
        (_status(off_proof=PROOF), Wrong.UNTRUE),
        (_explanation("", "fenced now", marked="incident"), Wrong.UNTRUE),
        (_explanation("", "fenced now"), Wrong.UNTRUE),
        (_status(phase=Phase.NEEDS_HUMAN), Wrong.UNTRUE),
        (_records_a_proof_of_what_was_on, Wrong.UNTRUE),
        (_says_that_it_was_left_off, Wrong.UNTRUE),
        (_says_that_a_node_recovered, Wrong.UNTRUE),
    ],
)
async def test_the_judge_finds(judged: Judged, wrongdoing: Wrongdoing, wrong: Wrong) -> None:
    assert judged.found == set()
    await wrongdoing(judged)
    assert judged.found == {wrong}


async def test_the_judge_finds_nothing_in_a_fencing_as_it_should_be(judged: Judged) -> None:
    judged.recorder.breaks("node-1", "kernel-hangs")
    await judged.command("node-1", "off")
    for pod in list(judged.cluster.view.pods_by_node["node-1"]):
        await judged.cluster.client.delete(f"/api/v1/namespaces/demo/pods/{pod['metadata']['name']}")
    await judged.command("node-1", "on")
    assert judged.found == set()
