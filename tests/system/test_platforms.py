"""The main job on every kind of power device, and what the devices of each do wrong: one whole system per platform.

All systems play at once, each with a worker of its own, for they mostly wait. In each, three nodes fall silent together: one
whose device does as it is told, one whose device ignores the off, one whose device loses its answers. When the worker has spoken
to the first, a fourth falls silent whose credentials are no longer good.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from demo.manifests import power_device
from policy.episode.messages import EpisodeResult, EpisodeStatus, Outcome, RecordEntry
from simulator.control import describe
from simulator.objects import is_ready, is_terminating, node_of
from simulator.platforms.aws import Aws
from simulator.platforms.contract import DeviceFault
from simulator.platforms.gce import Gce
from simulator.platforms.pdu import PowerStrip
from simulator.resources import SECRETS
from simulator.storage import WriteInterval
from tests.power.agents.scripted import needs
from tests.system.harness import TEMPLATE_NAMESPACE, System
from tests.system.nursery import Nursery
from tests.system.questions import CONSEQUENCES, acts, commands, parked, traces
from tests.system.temporal_server import TemporalServer
from tests.system.witness import Before, Consequence, judge, left_over
from workers.embedded.server import free_ports

pytestmark = [pytest.mark.system, pytest.mark.timeout(150)]

TRIES = 2
PLAN = {"tries": TRIES, "restarts": 0, "retryInterval": "200ms", "offTimeout": "2s", "actDeadline": "6s", "bootTimeout": "40s"}
OBEYS, IGNORES, LOSES, REFUSES = "obeys", "ignores off", "loses answers", "wrong credentials"
MEMBERS = {OBEYS: "database-0", IGNORES: "database-1", LOSES: "database-2"}
"""Whose volume is at stake on the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """One driver on its platform. refused: what it says of credentials that are not good, "" where it can't tell them from a
    device that fails. loses_answers: whether the platform can do that to commands alone."""

    platform: str
    endpoint: str
    refused: str = ""
    plan: Mapping[str, Any] = field(default_factory=dict)
    loses_answers: bool = True


AGENT_PLAN = {"actDeadline": "12s", "offTimeout": "2s"}
"""Each question and each command is a run of a program or two."""

STANDS = {
    "ipmi": Stand(platform="ipmi", endpoint="ipmi://", refused="refused the user, the password", loses_answers=False),
    "redfish": Stand(platform="redfish", endpoint="redfish://", refused="refused the user"),
    "ec2": Stand(platform="aws", endpoint="ec2://us-east-1/i-", refused="SignatureDoesNotMatch"),
    "gce": Stand(platform="gce", endpoint="gce://nodewarden-simulation/us-central1-", refused="refused the credentials"),
    "fence_apc_snmp": Stand(platform="pdu", endpoint="fence_apc_snmp://", refused="Authentication", plan=AGENT_PLAN),
}
PROGRAMS = {"fence_apc_snmp": needs("fence_apc_snmp", "snmpget")}


@dataclass(slots=True, kw_only=True)
class Case:
    """One node, what became of it, and what was seen meanwhile by those who cannot be fooled."""

    node: str
    before: Before
    parked: EpisodeStatus | None = None
    result: EpisodeResult | None = None
    problems: list[str] = field(default_factory=list)
    record: list[RecordEntry] = field(default_factory=list)
    acts: list[str] = field(default_factory=list)
    seen: list[Consequence] = field(default_factory=list)
    traces: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    """What took effect or was ignored at the machine."""
    arrived: list[str] = field(default_factory=list)
    """What reached the device, a repetition twice."""


@dataclass(slots=True, kw_only=True)
class Played:
    """All of one system, once it is over."""

    cases: dict[str, Case]
    violations: list[str]
    handover: tuple[WriteInterval, WriteInterval]
    secrets: list[str]


@pytest.fixture(scope="module")
async def playing(
    request: pytest.FixtureRequest,
    temporal: TemporalServer,
    free_namespaces: list[str],
    tmp_path_factory: pytest.TempPathFactory,
    nursery: Nursery,
) -> AsyncIterator[dict[str, asyncio.Task[Played]]]:
    """Begun together; each test waits for its own."""
    ours = [item for item in request.session.items if item.path == request.path and isinstance(item, pytest.Function)]
    chosen = {item.callspec.params["driver"] for item in ours}
    tasks: dict[str, asyncio.Task[Played]] = {}
    for driver, stand in STANDS.items():
        if driver in chosen and not (driver in PROGRAMS and PROGRAMS[driver].args[0]):
            namespace = free_namespaces.pop(0)
            metrics = f"127.0.0.1:{free_ports('127.0.0.1', 1)[0]}"
            options: dict[str, Any] = {"temporal": temporal, "nursery": nursery, "namespace": namespace, "nodes": 5, "zones": 3}
            options["settings"] = {"metrics": metrics}  # in which a driver's words could be: searched for secrets at the end
            system = System(tmp_path_factory.mktemp(namespace), platform=stand.platform, **options)
            tasks[driver] = asyncio.create_task(_play(driver, stand, system), name=driver)
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


async def _play(driver: str, stand: Stand, system: System) -> Played:
    async with system:
        await system.start_worker()
        nodes = _cast(system)
        secrets = await _apply(driver, stand, system, nodes[REFUSES])
        await system.start_scanner(cap=len(nodes))
        faults: dict[str, DeviceFault | None] = {OBEYS: None, IGNORES: DeviceFault.IGNORES_OFF}
        if stand.loses_answers:
            faults[LOSES] = DeviceFault.LOSES_ANSWERS
        cases = {what: Case(node=nodes[what], before=Before.of(system.cluster, nodes[what])) for what in faults}
        for what, fault in faults.items():
            if fault is not None:
                system.cluster.break_node(nodes[what], fault)
            system.break_node(nodes[what], "kubelet-stops")
        obeys = cases[OBEYS]
        await system.until(lambda: _runs_elsewhere(system, obeys.node), f"{MEMBERS[OBEYS]} runs elsewhere", seconds=60)
        if stand.refused:  # only now: its new home may be the very node that is broken next
            cases[REFUSES] = Case(node=nodes[REFUSES], before=Before.of(system.cluster, nodes[REFUSES]))
            system.break_node(nodes[REFUSES], "kubelet-stops")
        for what, case in cases.items():
            if what in {OBEYS, LOSES}:
                case.result = await system.ended(case.before)
            else:
                case.parked = await parked(system, case.node, seconds=60)
        for case in cases.values():
            await _gather(system, case)
        return Played(
            cases=cases,
            violations=[str(each) for each in system.cluster.storage.violations],
            handover=_handover(system, obeys.node),
            secrets=secrets,
        )


def _cast(system: System) -> dict[str, str]:
    """Who plays what: all but the last have a volume to lose."""
    hosts = {what: system.node_of_pod(f"demo/{pod}") for what, pod in MEMBERS.items()}
    assert len(set(hosts.values())) == len(MEMBERS)
    return {**hosts, REFUSES: next(name for name in system.cluster.nodes if name not in hosts.values())}


async def _apply(driver: str, stand: Stand, system: System, refused: str) -> list[str]:
    """Each node's credentials in a Secret of its own, one of them wrong. Answers all that is secret in them."""
    good, bad = system.cluster.platform.secret(), system.cluster.platform.wrong_secret()
    for node in system.cluster.nodes:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"power-{node}", "namespace": TEMPLATE_NAMESPACE},
            "stringData": dict(bad if node == refused else good),
        }
        await system.client.create(SECRETS.path(namespace=TEMPLATE_NAMESPACE), secret)
    plan = {**PLAN, **stand.plan}
    device = power_device(describe(system.cluster)) | {"driver": driver, "secretRef": {"name": "power-{{ .NodeName }}"}}
    device["timeout"] = plan["offTimeout"]  # nothing here needs the minutes that Compute Engine may take
    await system.apply_policy(plan={**plan, "power": [device]}, check={"minHealthy": 1})
    return [value for value in {*good.values(), *bad.values()} if len(value) > 8]


async def _gather(system: System, case: Case) -> None:
    """Everything that the tests ask, while the system stands."""
    case.record = list(await system.warden.episode(system.cluster_name, case.node).record())
    case.acts = await acts(system, case.node)
    case.seen = system.witness.of(case.node, case.before.at)
    case.traces = await traces(system, case.node)
    case.commands = [entry.command for entry in commands(system, case.node)]
    case.arrived = _arrived(system, case.node)
    if case.result is not None:
        case.problems = judge(system.cluster, system.witness, case.before, case.result)
        case.problems += await left_over(system.cluster, case.before)


def _arrived(system: System, node: str) -> list[str]:
    platform = system.cluster.platform
    if isinstance(platform, Aws):
        words = {"StopInstances": "off", "StartInstances": "on"}
        ours = [each for each in platform.cloud.log if platform.instances[node] in each.form.values()]
        return [words[each.action] for each in ours if each.is_command]
    if isinstance(platform, Gce):
        words = {"stop": "off", "start": "on"}
        return [words[each.verb] for each in platform.cloud.log if each.verb in words and f"/instances/{node}/" in each.path]
    if isinstance(platform, PowerStrip):
        return [power for outlet, power in platform.strip.sets if outlet == platform.outlets[node]]
    return [entry.command for entry in commands(system, node)]


def _runs_elsewhere(system: System, node: str) -> bool:
    pod = system.cluster.view.pods.get(f"demo/{MEMBERS[OBEYS]}")
    return pod is not None and is_ready(pod) and not is_terminating(pod) and node_of(pod) not in {"", node}


def _handover(system: System, node: str) -> tuple[WriteInterval, WriteInterval]:
    """The last writer of the member's volume on the node that died, and its successor."""
    ours = [each for each in system.cluster.storage.intervals if each.pod == f"demo/{MEMBERS[OBEYS]}"]
    last = max((each for each in ours if each.node == node), key=lambda each: each.begin)
    return last, min((each for each in ours if each.begin > last.begin), key=lambda each: each.begin)


def for_each(wanted: Callable[[Stand], bool] = lambda _: True) -> pytest.MarkDecorator:
    """Every driver whose stand is wanted; skipped where what it starts is not installed."""
    chosen = [driver for driver, stand in STANDS.items() if wanted(stand)]
    return pytest.mark.parametrize(
        "driver", [pytest.param(driver, marks=[PROGRAMS[driver]] if driver in PROGRAMS else []) for driver in chosen]
    )


async def _case(playing: dict[str, asyncio.Task[Played]], driver: str, what: str) -> tuple[Played, Case]:
    played = await asyncio.shield(playing[driver])
    return played, played.cases[what]


@for_each()
async def test_a_node_dies_and_its_work_goes_on_without_a_human(playing: dict[str, asyncio.Task[Played]], driver: str) -> None:
    """S1, S2, S5, S28, S35: proven off by its device, freed, back, uncordoned; its volume never has two writers."""
    played, case = await _case(playing, driver, OBEYS)
    result = case.result
    assert result is not None
    assert case.problems == []
    assert result.outcome is Outcome.RECOVERED
    assert result.freed_pods >= 1
    assert case.arrived == ["off", "on"]
    assert result.off_proof is not None
    assert [each.endpoint.startswith(STANDS[driver].endpoint) for each in result.off_proof.readings] == [True]
    last, following = played.handover
    assert last.end is not None
    assert following.begin > last.end
    assert following.node != case.node
    assert played.violations == []


@for_each()
async def test_an_off_that_is_accepted_and_ignored_frees_nothing(playing: dict[str, asyncio.Task[Played]], driver: str) -> None:
    """S1, S2, S3: a person is asked, in one line that names the device and what it says; nobody's pod was touched."""
    _, case = await _case(playing, driver, IGNORES)
    assert case.parked is not None
    assert "says on" in case.parked.problem
    assert STANDS[driver].endpoint in case.parked.problem
    assert "\n" not in case.parked.problem
    assert case.parked.off_proof is None
    assert case.commands == ["off"] * TRIES
    assert case.seen == []
    assert CONSEQUENCES.isdisjoint(case.acts)
    assert not [entry for entry in case.record if entry.act == "off-proven"]


@for_each(lambda stand: stand.refused != "")
async def test_wrong_credentials_are_noticed_before_any_command(playing: dict[str, asyncio.Task[Played]], driver: str) -> None:
    """S12: parked with a cordon and no command, by words in which no secret is."""
    played, case = await _case(playing, driver, REFUSES)
    assert case.parked is not None
    assert STANDS[driver].refused in case.parked.problem
    assert STANDS[driver].endpoint in case.parked.problem
    assert case.arrived == []
    assert case.seen == []
    assert case.traces == ["mark", "cordon"]
    assert CONSEQUENCES.isdisjoint(case.acts)
    assert "power-management.power-off" not in case.acts
    told = [case.parked.problem, *(entry.detail for entry in case.record)]
    assert not [text for text in told for secret in played.secrets if secret in text]


@for_each(lambda stand: stand.loses_answers)
async def test_a_lost_answer_is_waited_out_and_no_command_is_repeated(
    playing: dict[str, asyncio.Task[Played]], driver: str
) -> None:
    """S33, S34: one off and one on reach the device, whose answers never come; read, proven, recovered."""
    _, case = await _case(playing, driver, LOSES)
    assert case.result is not None
    assert case.problems == []
    assert case.result.outcome is Outcome.RECOVERED
    assert case.arrived == ["off", "on"]
    unclear = [entry.act for entry in case.record if entry.outcome == "unclear"]
    assert unclear == ["power-off", "power-on"]
