"""BMCs that mislead: nothing is freed, a person is told why in one line, others go on.

Four nodes fail in four different ways under a cap of two, so that the later ones are served only if the earlier ones have given
their permits back.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from policy.episode.messages import EpisodeResult, EpisodeStatus, Outcome, Phase
from policy.episode.permits import PermitState
from simulator.resources import SECRETS
from starter.errors import RefusedError
from tests import report
from tests.system.harness import System
from tests.system.login_tap import LoginTap
from tests.system.nursery import Nursery
from tests.system.questions import (
    CONSEQUENCES,
    acts,
    commands,
    in_phase,
    is_open,
    parked,
    permit,
    standing,
    status,
    traces,
)
from tests.system.temporal_server import TemporalServer
from tests.system.witness import Before, Consequence, judge, left_over

pytestmark = [pytest.mark.system, pytest.mark.timeout(150)]

TRIES, CAP = 2, 2
PLAN = {
    "waitBeforePower": "8s",
    "tries": TRIES,
    "restarts": 0,
    "retryInterval": "200ms",
    "offTimeout": "1s",
    "bootTimeout": "15s",
}
WHO, WHY = "ada@rack-7", "pulled both plugs and saw the fans stop"

IGNORING, LYING, SILENT, REFUSED = "ignores off", "says on", "never answers", "wrong password"
EXPECTED_OFFS = {IGNORING: TRIES, LYING: TRIES, SILENT: 0, REFUSED: 0}
"""Commands that may reach the chassis until the episode parks: the tries of one step, no restart of the flow."""

EXPECTED_WORDS = {
    IGNORING: "says on",
    LYING: "says on",
    SILENT: "no answer from the BMC",
    REFUSED: "refused the user, the password",
}
TITLE = "BMCs that mislead"
HEAD = ("what", "parked because", "offs sent", "pods freed", "then", "ended")


@dataclass(slots=True, kw_only=True)
class Case:
    """One node and how it fails."""

    what: str
    node: str
    before: Before
    parked: EpisodeStatus
    offs: int = 0
    freed: int = 0
    then: str = ""
    ended: str = "open"

    def cells(self) -> tuple[str, ...]:
        return (self.what, self.parked.problem, str(self.offs), str(self.freed), self.then, self.ended)


@dataclass(slots=True, kw_only=True)
class Stage:
    """The system once all four have parked. `spare`: nodes that nothing has happened to yet."""

    system: System
    tap: LoginTap
    spare: list[str]
    cases: dict[str, Case] = field(default_factory=dict)
    silent: asyncio.Task[Silent] | None = None
    """The longest of the ways on: it goes beside the other tests."""

    def tell(self) -> None:
        report.table(TITLE, HEAD, [case.cells() for case in self.cases.values()])


@pytest.fixture(scope="module")
async def stage(
    temporal: TemporalServer, free_namespaces: list[str], tmp_path_factory: pytest.TempPathFactory, nursery: Nursery
) -> AsyncIterator[Stage]:
    async with standing(temporal, free_namespaces, tmp_path_factory, nodes=9, zones=3) as system:
        await system.start_worker(killable_from=nursery)
        nodes = _cast(system)
        async with LoginTap(system.cluster.bmc_endpoint(nodes[REFUSED]).port) as tap:
            await _apply(system, nodes[REFUSED], tap)
            await system.start_scanner(cap=CAP)
            stage = Stage(system=system, tap=tap, spare=[name for name in system.cluster.nodes if name not in nodes.values()])
            befores = {what: Before.of(system.cluster, node) for what, node in nodes.items()}
            for what, fault in ((IGNORING, "bmc-ignores-off"), (LYING, "bmc-lies"), (SILENT, "bmc-dead"), (REFUSED, "")):
                system.cluster.break_node(nodes[what], "kubelet-stops")
                if fault:
                    system.cluster.break_node(nodes[what], fault)
            for what, node in nodes.items():
                found = await parked(system, node, seconds=60)
                stage.cases[what] = Case(
                    what=what, node=node, before=befores[what], parked=found, offs=len(commands(system, node))
                )
            stage.tell()
            stage.silent = asyncio.create_task(_acknowledge_the_silent(stage))
            yield stage
            stage.silent.cancel()
            await asyncio.gather(stage.silent, return_exceptions=True)


def _cast(system: System) -> dict[str, str]:
    """Who plays what: those whose workloads will be freed by a person's word have a volume to free."""
    hosts = list(dict.fromkeys(system.node_of_pod(f"demo/database-{number}") for number in range(3)))
    others = [name for name in system.cluster.nodes if name not in hosts]
    order = [*hosts, *others]
    return {what: order[index] for index, what in enumerate((IGNORING, SILENT, LYING, REFUSED))}


async def _apply(system: System, refused: str, tap: LoginTap) -> None:
    """Each node's credentials in a Secret of its own, one of them wrong, with the tap before that BMC."""
    namespace, name = system.cluster.bmc_secret
    right = (await system.client.get(SECRETS.path(name, namespace=namespace)))["data"]
    for node in system.cluster.nodes:
        values = {"data": right} if node != refused else {"stringData": dict(system.cluster.platform.wrong_secret())}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"bmc-{node}", "namespace": namespace}, **values}
        await system.client.create(SECRETS.path(namespace=namespace), secret)
    device: dict[str, Any] = copy.deepcopy(system.fencing_template()["spec"]["template"]["spec"]["power"][0])
    device["secretRef"] = {"name": "bmc-{{ .NodeName }}"}
    device["nodeParameters"][refused]["ipport"] = str(tap.port)
    await system.apply_policy(plan={**PLAN, "power": [device]}, check={"minHealthy": 1})


async def _ended(stage: Stage, what: str) -> EpisodeResult:
    case = stage.cases[what]
    result = await stage.system.ended(case.before)
    case.ended = result.outcome.value
    case.freed = result.freed_pods
    stage.tell()
    return result


@pytest.mark.parametrize("what", EXPECTED_OFFS)
async def test_a_doubtful_power_state_frees_nothing_and_parks_with_one_line(stage: Stage, what: str) -> None:
    """S1, S3: no consequence in any episode whose off is not proven."""
    case = stage.cases[what]
    problem = case.parked.problem
    assert EXPECTED_WORDS[what] in problem
    assert "\n" not in problem
    assert len(problem) < 200
    assert problem.count("ipmi://") <= 1, f"says it twice: {problem}"
    assert case.offs == EXPECTED_OFFS[what]
    assert case.parked.off_proof is None
    record = await stage.system.warden.episode(stage.system.cluster_name, case.node).record()
    assert sum(entry.outcome == "failed" and entry.act == "power-management" for entry in record) <= TRIES


async def test_no_consequence_was_even_asked_for(stage: Stage) -> None:
    """S1: neither the histories nor the watches know of any, for any of the four, up to the moment they parked."""
    for case in stage.cases.values():
        parked_at = next(
            entry.at
            for entry in await stage.system.warden.episode(stage.system.cluster_name, case.node).record()
            if entry.detail == "" and entry.outcome == "needs-human"
        )
        seen = [each for each in stage.system.witness.of(case.node, case.before.at) if each.at <= parked_at]
        assert seen == [], case.what
        if case.ended == "open" and not case.then:
            assert CONSEQUENCES.isdisjoint(await acts(stage.system, case.node)), case.what


async def test_a_wrong_password_is_tried_exactly_once(stage: Stage) -> None:
    """A second login with a password that was refused only locks the account: one attempt, then a person."""
    assert stage.tap.logins == 1


async def test_the_permits_are_free_again_and_the_next_sick_node_is_served(stage: Stage) -> None:
    """S14: four parked episodes hold their nodes and none of the two permits."""
    system, node = stage.system, stage.spare[0]
    for case in stage.cases.values():
        if await is_open(system, case.node) and not case.then:
            line = await permit(system, case.node)
            assert line is not None
            assert line.holding is PermitState.PARKED, case.what
    before = system.break_node(node)
    result = await system.ended(before)
    assert judge(system.cluster, system.witness, before, result) == []
    assert await left_over(system.cluster, before) == []


async def test_a_persons_word_stands_for_the_proof_and_is_on_record(stage: Stage) -> None:
    """S8: the machine that ignored its BMC is unplugged by hand; then its pods are freed, and it is known on whose word."""
    system, case = stage.system, stage.cases[IGNORING]
    machine = system.cluster.chassis.machine(case.node)
    await machine.set_power("off")
    await system.warden.ack_off(system.cluster_name, case.node, who=WHO, reason=WHY)
    case.then = f"ack-off by {WHO}"
    result = await _ended(stage, IGNORING)
    assert result.outcome is Outcome.RECOVERED
    assert result.off_proof is not None
    assert (result.off_proof.acknowledgement.who, result.off_proof.acknowledgement.why) == (WHO, WHY)
    told = [entry for entry in result.record if entry.act == "off-proven"]
    assert [(entry.outcome, entry.detail) for entry in told] == [("acknowledged", f"by {WHO}: {WHY}")]
    assert result.freed_pods > 0
    freed = system.witness.of(case.node, case.before.at)
    assert {each.power for each in freed} == {"off"}
    assert any("demo/database" in each.name for each in freed)
    assert [each.command for each in commands(system, case.node)[TRIES:]] == ["on"]
    assert system.cluster.storage.violations == []


@pytest.mark.parametrize("what", [LYING, REFUSED])
async def test_an_abort_reaches_a_parked_episode_and_takes_our_marks_away(stage: Stage, what: str) -> None:
    """S35: aborted, nothing freed, nothing of ours left on the node, and it is left alone afterwards."""
    system, case = stage.system, stage.cases[what]
    await system.warden.abort(system.cluster_name, case.node, who=WHO, reason="we replace the board")
    case.then = f"abort by {WHO}"
    result = await _ended(stage, what)
    assert result.outcome is Outcome.ABORTED
    assert WHO in result.message
    assert result.freed_pods == 0
    assert CONSEQUENCES.isdisjoint(await acts(system, case.node))
    assert await traces(system, case.node) == []
    assert len(commands(system, case.node)) == EXPECTED_OFFS[what]

    async def left_alone() -> bool:
        scanner = await system.scanner()
        return scanner is not None and any(held.node == case.node and WHO in held.reason for held in scanner.held_off)

    await system.until(left_alone, "the scanner leaves it alone and says why")
    assert not await is_open(system, case.node)


async def test_an_acknowledgement_is_refused_where_none_is_asked_for(stage: Stage) -> None:
    """S8: only an episode that needs a person takes a person's word, and never an anonymous one."""
    system, node = stage.system, stage.spare[1]
    system.break_node(node)
    await in_phase(system, node, Phase.RUNNING)
    with pytest.raises(RefusedError, match="expected an episode that needs a person"):
        await system.warden.ack_off(system.cluster_name, node, who=WHO, reason=WHY)
    with pytest.raises(RefusedError, match="who: expected a name"):
        await system.warden.ack_off(system.cluster_name, node, who=" ", reason=WHY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """What came of a person's word about a machine whose BMC answers nothing."""

    freed: list[Consequence]
    traces: list[str]
    problem: str
    result: EpisodeResult


async def _acknowledge_the_silent(stage: Stage) -> Silent:
    system, case = stage.system, stage.cases[SILENT]
    await system.cluster.chassis.machine(case.node).set_power("off")
    await system.warden.ack_off(system.cluster_name, case.node, who=WHO, reason=WHY)
    case.then = f"ack-off by {WHO}, parked again, resume"

    async def parked_again() -> bool:
        now = await status(system, case.node)
        return now is not None and now.phase is Phase.NEEDS_HUMAN and "free-workloads" in await _acts_on_record(system, case.node)

    await system.until(parked_again, "it has freed and parks again", seconds=60)
    now = await parked(system, case.node)
    freed, left = system.witness.of(case.node, case.before.at), await traces(system, case.node)
    system.cluster.bmc_endpoint(case.node).thaw()
    await system.warden.resume(system.cluster_name, case.node, who=WHO, reason="the BMC's cable is in again")
    return Silent(freed=freed, traces=left, problem=now.problem, result=await _ended(stage, SILENT))


async def test_an_acknowledgement_frees_also_where_the_bmc_stays_silent(stage: Stage) -> None:
    """S8, S5: what is freed stays freed; the on that the silent BMC does not take is a person's case of its own."""
    assert stage.silent is not None
    system, case, silent = stage.system, stage.cases[SILENT], await stage.silent
    assert any("demo/database" in each.name for each in silent.freed)
    assert {each.power for each in silent.freed} == {"off"}
    assert silent.traces == ["mark", "cordon"]
    assert "no answer from the BMC" in silent.problem
    assert silent.result.outcome is Outcome.RECOVERED
    assert [each.command for each in commands(system, case.node)] == ["on"]
    assert await left_over(system.cluster, case.before) == []


async def _acts_on_record(system: System, node: str) -> set[str]:
    return {entry.act for entry in await system.warden.episode(system.cluster_name, node).record()}
