"""The `temporal` command alone is enough: every line of docs/temporal.md is run, as it is written there, on a system.

Each node of a small cluster has an episode in another state, so that each line finds one for which it makes sense.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from policy.episode.messages import EpisodeResult, EpisodeStatus, Kind, Outcome, Phase
from simulator.objects import is_ready
from simulator.resources import LEASES
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.questions import commands, episode, in_phase, is_open, opened_at, parked, traces
from tests.system.witness import Before
from tests.system.worker_process import OURS, ROOT
from workers.embedded.server import find_binary

pytestmark = [pytest.mark.system, pytest.mark.timeout(90)]

REMEDIATION_PAGE = ROOT / "docs" / "remediation.md"
PAGE, HEAD = ROOT / "docs" / "temporal.md", "| tctl | temporal | what for |"
ROW = re.compile(r"^\| (?P<tctl>–.*|`tctl [^`]+`) \| `(?P<temporal>temporal [^`]+)` \| (?P<purpose>.+) \|$")
PLAN = {"waitBeforePower": "10m", "tries": 1, "restarts": 0}
"""The check's episodes stay in their wait; those that a person starts have none."""

IDLE, HELD, ABORTED, CANCELLED, TERMINATED, UNPLUGGED = (f"node-{number}" for number in range(1, 7))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of the table."""

    tctl: str
    temporal: str
    purpose: str

    @property
    def subject(self) -> str:
        """What it is about, in a few words: the subcommand, and the name of what is queried, sent or started."""
        words = shlex.split(self.temporal)[1:]
        options = dict(itertools.pairwise(words))
        names = [options[option] for option in ("--type", "--name", "--query") if option in options]
        place = " of the scanner" if "scanner/" in self.temporal and names != ["HealthScanner"] else ""
        return (
            " ".join([*words[: next((i for i, word in enumerate(words) if word.startswith("--")), len(words))], *names]) + place
        )

    def filled(self, *, cluster: str, node: str) -> list[str]:
        return [word.replace("<cluster>", cluster).replace("<node>", node) for word in shlex.split(self.temporal)]


def read_page() -> list[Line]:
    """All rows; a row that can't be read is a mistake in the page."""
    lines = PAGE.read_text().splitlines()
    rows = list(itertools.takewhile(lambda line: line.startswith("|"), lines[lines.index(HEAD) + 2 :]))
    found = [ROW.match(row) for row in rows]
    assert all(found), f"unreadable: {[row for row, match in zip(rows, found, strict=True) if not match]}"
    return [Line(**match.groupdict()) for match in found if match]


LINES = {line.subject: line for line in read_page()}

EXPECTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "workflow start Fencing": (IDLE, ("episode/{cluster}/{node}", "RunId")),
    "workflow list Node = '<node>'": (HELD, ("episode/{cluster}/{node}", "Fencing", "Running")),
    "workflow list Phase = 'needs-human' AND ExecutionStatus = 'Running'": (UNPLUGGED, ("episode/{cluster}/{node}",)),
    "workflow list Kind = 'Fencing' AND Cluster = '<cluster>' AND ExecutionStatus = 'Running'": (
        HELD,
        ("episode/{cluster}/{node}", f"episode/{{cluster}}/{UNPLUGGED}"),
    ),
    "workflow count Kind = 'Fencing' AND ExecutionStatus = 'Running'": (HELD, ("Total:",)),
    "workflow describe": (HELD, ("SearchAttributes", "Cluster:", "Node:", "Phase:", "{node}")),
    "workflow show": (HELD, ("WorkflowExecutionStarted", "ActivityTaskScheduled")),
    "workflow query status": (HELD, ('"phase":"running"', '"node":"{node}"', '"step":')),
    "workflow query record": (HELD, ('"act":"pin"', '"act":"mark-unschedulable"')),
    "workflow metadata": (HELD, ("Current Details", "Fencing of `{node}`", "waits before power-management")),
    "workflow signal node_changed": (HELD, ("succeeded",)),
    "workflow update execute hold": (HELD, ("is held before its next destructive act",)),
    "workflow update execute resume": (HELD, ("goes on",)),
    "workflow update execute acknowledge_off": (UNPLUGGED, ("off of {node} acknowledged by ada",)),
    "workflow update execute abort": (ABORTED, ("abort of incident",)),
    "workflow cancel": (CANCELLED, ("cancel",)),
    "workflow terminate": (TERMINATED, ("terminated",)),
    "workflow result": (ABORTED, ('"outcome":"aborted"', "wrong rack")),
    "workflow query status of the scanner": (HELD, ('"cluster":"{cluster}"', '"lease"', '"permits"')),
    "workflow update execute stop of the scanner": (HELD, ("the scanner of {cluster} stops",)),
    "workflow start HealthScanner": (HELD, ("scanner/{cluster}", "RunId")),
    "task-queue describe": (HELD, ("Pollers:", "UNVERSIONED", "@")),
    "operator search-attribute list": (HELD, ("Cluster", "Node", "Zone", "Kind", "Phase", "Reason", "Keyword")),
    "operator cluster health": (HELD, ("SERVING",)),
}
"""For each line: the node to fill in, and what its output must contain at least."""


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    """node-1 is well; the check's episodes of four more wait; node-6, whose BMC is dead, needs a person."""
    async with standing(nodes=6, demo_workloads=False, settings={"worker": {"commands": "any"}}) as running:
        await running.start_worker()
        await running.apply_policy(plan=PLAN, check={"minHealthy": 1})
        await running.start_scanner(cap=6)
        running.cluster.break_node(UNPLUGGED, "bmc-dead")
        await running.warden.fence(running.cluster_name, UNPLUGGED, reason="its fan is dying")
        for node in (HELD, ABORTED, CANCELLED, TERMINATED):
            running.cluster.break_node(node, "kubelet-stops")
        for node in (HELD, ABORTED, CANCELLED, TERMINATED):
            await in_phase(running, node, Phase.RUNNING, doing="waits before power-management")
        await parked(running, UNPLUGGED)
        yield running


async def run_temporal(system: System, *words: str, seconds: float = 20) -> tuple[int, str]:
    """The `temporal` beside our interpreter, finding the service by its environment alone."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(OURS)}
    where = {"TEMPORAL_ADDRESS": system.temporal.address, "TEMPORAL_NAMESPACE": system.namespace}
    process = await asyncio.create_subprocess_exec(
        str(find_binary()), *words, env={**inherited, **where, "NO_COLOR": "1"},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), seconds)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, printed.decode()


async def run_line(system: System, subject: str) -> str:
    """Run it and check its exit code and what it says; the answer is what it printed."""
    node, words = EXPECTED[subject]
    command = LINES[subject].filled(cluster=system.cluster_name, node=node)
    expected = [word.format(cluster=system.cluster_name, node=node) for word in words]

    async def visible() -> bool:
        nonlocal code, printed
        code, printed = await run_temporal(system, *command[1:])
        return code != 0 or all(_squeezed(word) in _squeezed(printed) for word in expected)

    code, printed = 0, ""
    if "list" in command or "count" in command or "describe" in command:
        await system.until(visible, f"{shlex.join(command)} shows {expected}")  # visibility lags by some moments
    else:
        await visible()
    assert code == 0, f"{shlex.join(command)} ended with {code}: {printed}"
    missing = [word for word in expected if _squeezed(word) not in _squeezed(printed)]
    assert missing == [], printed
    return printed


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text).casefold()


def test_every_line_of_the_page_is_run_by_a_test() -> None:
    """And every expectation belongs to a line."""
    assert LINES.keys() == EXPECTED.keys()
    assert len(LINES) == len(read_page())


QUIET = [
    subject for subject in EXPECTED if subject.split()[1] not in {"start", "update", "cancel", "terminate", "result", "signal"}
]


@pytest.mark.parametrize("subject", QUIET)
async def test_a_line_that_asks_answers_plausibly(system: System, subject: str) -> None:
    await run_line(system, subject)


async def test_fencing_started_by_the_temporal_command_fences_a_node_end_to_end(system: System) -> None:
    """S1, S13: the plainest input there is, and the whole job; under another workflow id it fails at once."""
    before = Before.of(system.cluster, IDLE)
    await run_line(system, "workflow start Fencing")
    result = await system.ended(before)
    assert result.outcome is Outcome.RECOVERED
    assert result.off_proof is not None
    assert result.off_proof.readings
    assert [each.command for each in commands(system, IDLE)] == ["off", "on"]
    assert await traces(system, IDLE) == []

    line = LINES["workflow start Fencing"].filled(cluster=system.cluster_name, node=IDLE)
    foreign = ["my-own-id" if word.startswith("episode/") else word for word in line]
    code, printed = await run_temporal(system, *foreign[1:])
    assert code == 0, printed
    code, printed = await run_temporal(system, "workflow", "result", "--workflow-id", "my-own-id")
    assert code != 0
    assert f"episode/{system.cluster_name}/{IDLE}" in printed


async def test_remediation_started_by_the_temporal_command_goes_up_its_ladder(system: System) -> None:
    """The line that docs/remediation.md shows: `reboot` repairs the node, and nothing is freed meanwhile. Of its two steps the
    other is left out here, as is said, where the node belongs to no Machine."""
    shown = next(line for line in REMEDIATION_PAGE.read_text().splitlines() if line.strip().startswith("temporal workflow start"))
    skips = shown.replace('"reason"', '"skip_impossible": true, "reason"')
    words = shlex.split(skips.replace("prod", system.cluster_name).replace("node-7", IDLE))
    code, printed = await run_temporal(system, *words[1:])
    assert code == 0, printed
    handle = episode(system, IDLE)
    assert (await handle.describe()).workflow_type == Kind.REMEDIATION

    async def at_its_step() -> bool:
        found: EpisodeStatus = await handle.query("status", result_type=EpisodeStatus)
        return found.rung == "1 of 1: reboot" and found.rung_until is not None

    await system.until(at_its_step, "the episode says which step of its ladder it is at")
    result: EpisodeResult = await asyncio.wait_for(handle.result(), 40)
    assert (result.outcome, result.freed_pods) == (Outcome.RECOVERED, 0), result.message
    assert [each.command for each in commands(system, IDLE)][-2:] == ["off", "on"]
    assert any((entry.act, entry.detail) == ("step", "1 of 1: reboot") for entry in result.record)


async def test_hold_signal_and_resume(system: System) -> None:
    await run_line(system, "workflow update execute hold")
    await in_phase(system, HELD, Phase.RUNNING, doing="held by ada (identity not verified): we look at it first")
    await run_line(system, "workflow signal node_changed")
    await run_line(system, "workflow update execute resume")
    await in_phase(system, HELD, Phase.RUNNING, doing="waits before power-management")


async def test_a_refused_update_exits_with_an_error_and_its_reason(system: System) -> None:
    words = LINES["workflow update execute acknowledge_off"].filled(cluster=system.cluster_name, node=HELD)
    code, printed = await run_temporal(system, *words[1:])
    assert code != 0
    assert "expected an episode that needs a person" in printed


async def test_abort_and_result(system: System) -> None:
    """S35: our marks are gone, and the result says who stopped it."""
    await run_line(system, "workflow update execute abort")
    await run_line(system, "workflow result")
    assert await traces(system, ABORTED) == []


async def test_acknowledge_off_lets_a_parked_episode_go_on(system: System) -> None:
    """S8: who and why are on record, also when they come through Temporal's own command."""
    await system.cluster.chassis.machine(UNPLUGGED).set_power("off")
    while is_ready(await system.live_node(UNPLUGGED)):  # a word for off of a node that says Ready is void
        await asyncio.sleep(0.2)
    system.cluster.bmc_endpoint(UNPLUGGED).thaw()
    await run_line(system, "workflow update execute acknowledge_off")
    result: EpisodeResult = await asyncio.wait_for(episode(system, UNPLUGGED).result(), 40)
    assert result.outcome is Outcome.RECOVERED
    assert result.off_proof is not None
    assert result.off_proof.acknowledgement is not None
    assert (result.off_proof.acknowledgement.who, result.off_proof.acknowledgement.why) == ("ada", "pulled both plugs")


async def test_cancel_undoes_and_terminate_does_not(system: System) -> None:
    """S35: the difference between the two that the page tells."""
    await run_line(system, "workflow cancel")

    async def closed() -> bool:
        return not await is_open(system, CANCELLED)

    await system.until(closed, "the cancelled episode ends")
    assert await traces(system, CANCELLED) == []
    await run_line(system, "workflow terminate")
    assert await traces(system, TERMINATED) == ["mark", "cordon"]


async def test_a_scanner_stopped_and_started_by_the_temporal_command_keeps_our_name(system: System) -> None:
    """S38: its Lease says the same as that of a scanner which `nodewarden` started: one deployment, and no other."""
    scanner = await system.scanner()
    assert scanner is not None
    await run_line(system, "workflow update execute stop of the scanner")
    assert await system.warden.scanner(system.cluster_name).ended()
    await run_line(system, "workflow start HealthScanner")

    async def has_the_lease() -> bool:
        now = await system.scanner()
        return now is not None and now.report is not None and now.report.lease.held

    await system.until(has_the_lease, "the new scanner sees the cluster and holds its Lease", seconds=40)
    lease = await system.client.get(LEASES.path("nodewarden", namespace="kube-system"))
    assert lease["spec"]["holderIdentity"] == scanner.holder
    assert await opened_at(system, IDLE) is not None
