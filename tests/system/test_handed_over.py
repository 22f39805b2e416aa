"""An operator that goes on running hands its nodes over: it creates a FenceAgentsRemediation, reads its conditions, deletes it.

The operator is played by the test as medik8s' NodeHealthCheck controller acts: elected by its leader Lease, holding the node's
lease under its own name, the object owned by its NodeHealthCheck and named as the node. Two nodes fall silent together: one whose
outlet does as it is told, and one whose outlet ignores the off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from policy.checks.conflicts import LEADER_LEASES
from policy.episode.messages import EpisodeResult, EpisodeStatus, Outcome
from policy.values.object_refs import Dialect
from simulator.control import describe
from simulator.objects import JsonObject, is_ready, micro_timestamp
from simulator.platforms.contract import DeviceFault
from simulator.resources import LEASES, NAMESPACES, SECRETS, Resource
from tests.cluster.fencing_requests import NAMESPACE, conditions_of, remediation
from tests.power.agents.scripted import needs
from tests.system.harness import CHECK, CHECKS, System
from tests.system.questions import CONSEQUENCES, acts, commands, opened_at, parked, standing
from tests.system.temporal_server import TemporalServer
from tests.system.witness import NODE_LEASES, Before, judge, left_over

pytestmark = [pytest.mark.system, pytest.mark.timeout(120), needs("fence_apc_snmp", "snmpget")]

REMEDIATIONS = Resource(
    api_version="fence-agents-remediation.medik8s.io/v1alpha1", kind="FenceAgentsRemediation", plural="fenceagentsremediations"
)
TRIES = 1
OPERATOR = f"NodeHealthCheck-{CHECK}"
PROCESSING, ACTION, SUCCEEDED = "Processing", "FenceAgentActionSucceeded", "Succeeded"
STARTED = {PROCESSING: "True", ACTION: "Unknown", SUCCEEDED: "Unknown"}
FENCED = {PROCESSING: "True", ACTION: "True", SUCCEEDED: "Unknown"}
FINISHED = {PROCESSING: "False", ACTION: "True", SUCCEEDED: "True"}
FAILED = {PROCESSING: "False", ACTION: "False", SUCCEEDED: "False"}


@dataclass(slots=True, kw_only=True)
class Wish:
    """One object of the operator's: what it has read in it, in order, and how the episode ended that served it."""

    before: Before
    read: list[dict[str, str]] = field(default_factory=list)
    last: JsonObject = field(default_factory=dict)
    parked: EpisodeStatus | None = None
    result: EpisodeResult | None = None
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The two of them, once both are over. untouched: what we did about the nodes before anybody asked."""

    obeys: Wish
    ignores: Wish
    untouched: list[str]
    acts_of_ignored: list[str]


class Operator:
    """What medik8s' controller writes."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._client = system.client

    async def install(self) -> None:
        """It is elected, has a check that we can see, and credentials in its own namespace, spelt as an agent's arguments."""
        platform = self._system.cluster.platform
        for name in (NAMESPACE, NODE_LEASES):
            await self._client.create(NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        await self._lease(LEADER_LEASES[Dialect.MEDIK8S], NAMESPACE, "manager-0")
        secret = {f"--{key.replace('_', '-')}": value for key, value in platform.secret().items()}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "strip"}, "stringData": secret}
        await self._client.create(SECRETS.path(namespace=NAMESPACE), body)
        template = {"apiVersion": REMEDIATIONS.api_version, "kind": f"{REMEDIATIONS.kind}Template", "namespace": NAMESPACE}
        check = self._system.health_check({"minHealthy": 1, "remediationTemplate": {**template, "name": "strip"}})
        await self._client.create(CHECKS.path(), check)

    async def ask_for(self, node: str, *, retrycount: int, timeout: str) -> None:
        """The node's lease first, then the object."""
        await self._lease(f"node-{node}", NODE_LEASES, OPERATOR)
        facts = describe(self._system.cluster)
        strip = facts["platform"]
        spec = {
            "agent": "fence_apc_snmp",
            "sharedSecretName": "strip",
            "sharedparameters": {
                "--ip": strip["address"],
                "--ipport": str(strip["port"]),
                "--snmp-version": "3",
                "--snmp-auth-prot": "SHA",
                "--snmp-priv-prot": "AES",
            },
            "nodeparameters": {"--plug": {name: str(found["outlet"]) for name, found in facts["nodes"].items()}},
            "remediationStrategy": "ResourceDeletion",
            "retrycount": retrycount,
            "retryinterval": "1s",
            "timeout": timeout,
        }
        wish = remediation(node, spec=spec)
        [owner] = wish["metadata"]["ownerReferences"]
        owner = {**owner, "name": CHECK, "uid": (await self._client.get(CHECKS.path(CHECK)))["metadata"]["uid"]}
        wish["metadata"]["ownerReferences"] = [owner]
        await self._client.create(REMEDIATIONS.path(namespace=NAMESPACE), wish)

    async def reads(self, wish: Wish, until: dict[str, str]) -> None:
        """Look at the conditions again and again, as its reconciler does, until they are as wished."""
        path = REMEDIATIONS.path(wish.before.node, namespace=NAMESPACE)

        async def as_wished() -> bool:
            wish.last = await self._client.get(path)
            found = conditions_of(wish.last)
            if found and (not wish.read or wish.read[-1] != found):
                wish.read.append(found)
            return found == until

        await self._system.until(as_wished, f"the operator reads {until} of {wish.before.node}", seconds=60)

    async def is_done_with(self, node: str) -> None:
        """The object goes, then the lease."""
        await self._client.delete(REMEDIATIONS.path(node, namespace=NAMESPACE))
        await self._client.delete(LEASES.path(f"node-{node}", namespace=NODE_LEASES))

    async def _lease(self, name: str, namespace: str, holder: str) -> None:
        now = micro_timestamp()
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 600, "acquireTime": now, "renewTime": now}
        lease = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": {"name": name}, "spec": spec}
        await self._client.create(LEASES.path(namespace=namespace), lease)


@pytest.fixture(scope="module")
async def served(
    temporal: TemporalServer, free_namespaces: list[str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    async with standing(temporal, free_namespaces, tmp_path_factory, platform="pdu", nodes=4) as system:
        operator = Operator(system)
        await asyncio.gather(operator.install(), system.start_worker())
        await system.start_scanner(cap=2)
        names = [system.node_of_pod("demo/database-0"), system.node_of_pod("demo/database-1")]
        system.cluster.break_node(names[1], DeviceFault.IGNORES_OFF)
        befores = [system.break_node(name, "kubelet-stops") for name in names]

        async def seen_down() -> bool:
            return not any([is_ready(await system.live_node(name)) for name in names])

        await system.until(seen_down, "the API sees both down")
        untouched = [f"{name}: {command.command}" for name in names for command in commands(system, name)]
        untouched += [name for name in names if await opened_at(system, name) is not None]
        # Whoever obeys is given the time of an operator, for this machine may be busy; the other one is waited for.
        await asyncio.gather(
            operator.ask_for(names[0], retrycount=5, timeout="60s"), operator.ask_for(names[1], retrycount=TRIES, timeout="5s")
        )
        obeys, ignores = await asyncio.gather(_obeys(system, operator, befores[0]), _ignores(system, operator, befores[1]))
        yield Served(obeys=obeys, ignores=ignores, untouched=untouched, acts_of_ignored=await acts(system, names[1]))


async def _obeys(system: System, operator: Operator, before: Before) -> Wish:
    """The operator lets go as soon as the node is healthy again, whether or not we are through."""
    wish = Wish(before=before)
    await operator.reads(wish, FINISHED)

    async def healthy() -> bool:
        return is_ready(await system.live_node(before.node))

    await system.until(healthy, f"{before.node} is Ready again", seconds=60)
    await operator.is_done_with(before.node)
    wish.result = await system.ended(before)
    wish.problems = judge(system.cluster, system.witness, before, wish.result) + await left_over(system.cluster, before)
    return wish


async def _ignores(system: System, operator: Operator, before: Before) -> Wish:
    """The operator hears that it failed, gives up, and will try something else: that ends what waits for a person."""
    wish = Wish(before=before)
    await operator.reads(wish, FAILED)
    wish.parked = await parked(system, before.node)
    await operator.is_done_with(before.node)
    wish.result = await system.ended(before)
    system.cluster.heal_node(before.node)  # what the operator tries next

    async def nothing_is_left() -> bool:
        wish.problems = await left_over(system.cluster, before)
        return not wish.problems

    await system.until(nothing_is_left, f"nothing of ours is left on {before.node}")
    return wish


def reasons(found: JsonObject) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in found["status"]["conditions"]}


async def test_its_node_is_fenced_in_its_name_and_it_reads_how_that_goes_in_its_own_words(served: Served) -> None:
    """S1, S2, S13, S28, S35: its lease on the node is no veto; the conditions go through the operator's states, and the episode
    that ends after the object is gone leaves nothing behind."""
    wish = served.obeys
    assert wish.result is not None
    assert wish.result.outcome is Outcome.RECOVERED
    assert wish.problems == []
    assert wish.result.freed_pods >= 1
    assert wish.read == [each for each in (STARTED, FENCED, FINISHED) if each in wish.read]
    assert wish.read[-1] == FINISHED
    assert reasons(wish.last) == {
        PROCESSING: "RemediationFinishedSuccessfully",
        ACTION: "FenceAgentSucceeded",
        SUCCEEDED: "RemediationFinishedSuccessfully",
    }
    assert not wish.last["metadata"].get("finalizers"), "its deletion waits for nobody"


async def test_tries_that_are_used_up_are_told_and_its_deletion_ends_what_waits_for_a_person(served: Served) -> None:
    """S1, S3, S35: nothing is freed, and no person of ours is needed for what its operator has given up."""
    wish = served.ignores
    assert wish.parked is not None
    assert "says on" in wish.parked.problem
    assert wish.read[-1] == FAILED
    assert reasons(wish.last)[SUCCEEDED] == "FenceAgentFailed"
    assert wish.result is not None
    assert wish.result.outcome is Outcome.RECOVERED
    assert wish.result.message == "the need is gone"
    assert wish.result.off_proof is None
    assert wish.result.freed_pods == 0
    assert wish.problems == []
    assert CONSEQUENCES.isdisjoint(served.acts_of_ignored)
    assert served.acts_of_ignored.count("power-management.power-off") == TRIES


async def test_while_the_operator_is_at_work_its_checks_are_only_looked_at(served: Served) -> None:
    """S17: nothing was done about either node before it asked, though its check calls them unhealthy."""
    assert served.untouched == []
