"""The cases of `health.json` on those who remediate: on the simulated operators, and on nodewarden's own reading of a
FenceAgentsRemediation.

The simulated ones must do what the real ones do, for system tests believe them. A case of both is held by both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from policy.episode.fencing_requests import GROUP, KIND, VERSION, Stage, conditions_of, plan_of
from policy.fence.plan import CredentialRef
from policy.values.errors import PolicyError
from simulator.cluster import SimulatedCluster
from simulator.objects import JsonObject, has_taint
from simulator.remediators import fence_agents, self_node
from simulator.remediators.contract import Remediator
from simulator.remediators.fence_agents import FenceAgentsRemediations
from simulator.remediators.machine_deletion import PERMANENT, MachineDeletionRemediations, permanent_deletion_expected
from simulator.remediators.metal3 import Metal3Remediations, limit_is_reached, time_to_remediate
from simulator.remediators.node_maintenance import LEASE_NAMESPACE, NodeMaintenances
from simulator.remediators.self_node import Agent, SelfNodeRemediations
from simulator.resources import LEASES, NODES
from tests.simulator.test_remediators import Asker, ask_for, cluster_with, events_about, reason, take_lease, told, until_hosted
from tests.vectors.objects import Json
from workers.configuration.credentials import Admission

pytestmark = pytest.mark.timeout(40)

KINDS = {"flow", "metal3_timer", "metal3_retry"}
ALL: list[Json] = json.loads(Path(__file__).with_name("health.json").read_text(encoding="utf-8"))
CASES: Mapping[str, Json] = {
    case["id"]: case for case in ALL if case["kind"] in KINDS or case["id"] == "x-metal3-lowered-retry-limit"
}

LEFT_OUT = {
    # An alert about an object that nobody ends is a health check's: held by test_remediation.py.
    "nhc-old-cr-alert",
    # How long an agent waits for its peers while it looks whether the API is away for all: the simulated agents ask nobody.
    "snr-peer-timeout-unsafe",
    # Devices named by a template, asked on the operator's behalf. We read every device that is configured, not a sample,
    # remember since when each is silent, and call one that says OFF no mistake: a node may be off
    # (tests/policy/fence/test_device_check.py).
    "far-status-mixed",
    # A request's Secrets are read by nobody: device and credentials are those of the operator's own configuration (S46).
    "far-node-secret-overrides-shared-secret",
}

FENCED = {"agent": "fence_ipmilan", "nodeparameters": {"--ip": {"node-1": "10.0.0.7"}}}
QUICK = {"retrycount": 1, "timeout": "200ms"}
"""A tenth of the two seconds that the case has."""


def given(name: str) -> tuple[Json, Json]:
    case = CASES[name]
    return case["given"], case["expect"]


def known(operator: Remediator, asker: Asker, name: str) -> JsonObject:
    """As the operator sees it."""
    key = f"{asker.namespace}/{name}" if asker.namespace else name
    return operator.objects.get(key) or {"metadata": {}}


def status_of(operator: Remediator, asker: Asker, name: str) -> JsonObject:
    status: JsonObject = known(operator, asker, name).get("status") or {}
    return status


# self-node-remediation


@pytest.mark.parametrize("name", ["snr-flow-not-reboot-capable", "snr-flow-no-agent"])
async def test_self_node_remediation_begins_nothing_on_a_node_that_can_not_reboot(name: str) -> None:
    facts, expect = given(name)
    async with cluster_with("self-node-remediation", nodes=1, demo_workloads=True) as cluster:
        operator, asker = cluster.remediator(SelfNodeRemediations), Asker(cluster, SelfNodeRemediations.remediations)
        operator.set_agent("node-1", Agent.NOT_CAPABLE if facts["agent_running"] else Agent.MISSING)
        for annotation, value in facts.get("annotations", {}).items():
            assert (annotation, value) == (self_node.CAPABLE, "false")

            def is_said() -> bool:
                node = cluster.view.nodes.get("node-1") or {"metadata": {}}
                return (node["metadata"].get("annotations") or {}).get(self_node.CAPABLE) == "false"

            await cluster.wait_until(is_said, what="the agent says so")
        pods = {pod["metadata"]["uid"] for pod in cluster.view.pods_by_node["node-1"]}
        await asker.ask("node-1", {"remediationStrategy": "ResourceDeletion"})
        await cluster.wait_until(lambda: bool(status_of(operator, asker, "node-1").get("lastError")), what="it says why not")
        finalizers = known(operator, asker, "node-1")["metadata"].get("finalizers") or ()
        assert (self_node.FINALIZER in finalizers) is expect["finalizer_set"]
        left = {pod["metadata"]["uid"] for pod in cluster.view.pods_by_node["node-1"]}
        assert (left != pods) is expect["resources_deleted"]


# fence-agents-remediation


def as_object(spec: Json) -> JsonObject:
    metadata = {"name": "node-1", "namespace": "medik8s", "uid": "uid-far"}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata, "spec": {**FENCED, **spec}}


class Secrets:
    """Secrets by name."""

    def __init__(self, **data: Mapping[str, str]) -> None:
        self._data = data

    async def data(self, cluster: str, reference: CredentialRef, admit: Admission) -> Mapping[str, str]:
        return self._data[reference.name]


CONDITIONS = {"Processing": "processing", "FenceAgentActionSucceeded": "fence_agent_action_succeeded", "Succeeded": "succeeded"}


async def test_an_agent_that_hangs_is_ended_and_the_object_says_so() -> None:
    """S7 of ours: no answer in time is no success."""
    facts, expect = given("far-timeout")
    wanted = {kind: expect[field] for kind, field in CONDITIONS.items()}
    plan = plan_of(as_object({"timeout": f"{facts['timeout_s']}s"}), "node-1")
    assert plan.act_deadline.total_seconds() == facts["timeout_s"]
    assert conditions_of(Stage.FAILED, {}) == wanted
    async with cluster_with("fence-agents-remediation", nodes=1) as cluster:
        operator, asker = cluster.remediator(FenceAgentsRemediations), Asker(cluster, FenceAgentsRemediations.remediations)
        operator.hanging.add("node-1")
        await asker.ask("node-1", FENCED | QUICK)
        await cluster.wait_until(lambda: reason(known(operator, asker, "node-1")) == "FenceAgentTimedOut", what="timed out")
        assert dict(zip(wanted, told(await asker.read("node-1"), *wanted), strict=True)) == wanted
        assert [each.ended == "timed-out" for each in operator.runs] == [expect["stopped"]]


async def test_off_leaves_the_machine_off() -> None:
    facts, expect = given("far-action-off")
    spec = {"sharedparameters": facts["params"]}
    assert plan_of(as_object(spec), "node-1").power_on is (expect["action"] != "off")
    async with cluster_with("fence-agents-remediation", nodes=1) as cluster:
        operator, asker = cluster.remediator(FenceAgentsRemediations), Asker(cluster, FenceAgentsRemediations.remediations)
        await asker.ask("node-1", FENCED | QUICK | spec)
        await cluster.wait_until(lambda: bool(operator.runs), what="it has run")
        assert operator.runs[0].action == expect["action"]
        assert not cluster.node("node-1").is_on


async def test_any_other_action_is_refused() -> None:
    """S9: an action that we do not know may do anything."""
    facts, expect = given("far-action-invalid")
    spec = {"sharedparameters": facts["params"]}
    with pytest.raises(PolicyError, match="expected the action reboot or off"):
        plan_of(as_object(spec), "node-1")
    async with cluster_with("fence-agents-remediation", nodes=1) as cluster:
        operator, asker = cluster.remediator(FenceAgentsRemediations), Asker(cluster, FenceAgentsRemediations.remediations)
        await asker.ask("node-1", FENCED | QUICK | spec)
        assert await events_about(cluster, "node-1") == [expect["event"]]
        assert bool(operator.runs) is expect["executed"]


def test_a_password_beside_the_secret_that_holds_it_is_refused() -> None:
    """S12: it may not even stand there alone."""
    facts, expect = given("far-secret-and-plain-duplicate")
    assert expect == {"executed": False}
    assert facts["shared_secret"].keys() == facts["shared"].keys()
    with pytest.raises(PolicyError, match="is a credential"):
        plan_of(as_object({"sharedSecretName": "shared", "sharedparameters": facts["shared"]}), "node-1")


async def test_an_object_about_no_node_does_nothing() -> None:
    facts, expect = given("far-node-not-found")
    name = facts["cr_name"]
    async with cluster_with("fence-agents-remediation", nodes=1, demo_workloads=True) as cluster:
        operator, asker = cluster.remediator(FenceAgentsRemediations), Asker(cluster, FenceAgentsRemediations.remediations)
        pods = {pod["metadata"]["uid"] for pod in cluster.view.pods_by_node["node-1"]}
        await asker.ask(name, FENCED)
        await cluster.wait_until(lambda: reason(known(operator, asker, name)) == "RemediationFinishedNodeNotFound", what="said")
        finalizers = known(operator, asker, name)["metadata"].get("finalizers") or ()
        assert (fence_agents.FINALIZER in finalizers) is expect["finalizer_set"]
        node = await cluster.client.get(NODES.path("node-1"))
        assert has_taint(node, fence_agents.TAINT["key"]) is expect["taint_set"]
        assert ({pod["metadata"]["uid"] for pod in cluster.view.pods_by_node["node-1"]} != pods) is expect["pods_deleted"]


# machine-deletion-remediation


async def machine_by_hand(cluster: SimulatedCluster, name: str, *, provider_id: str) -> JsonObject:
    """A Machine whose instance nobody has made."""
    system = cluster.machines.system
    metadata: JsonObject = {"name": name, "namespace": system.namespace}
    spec = {"providerID": provider_id} if provider_id else {}
    body = {"apiVersion": system.machines.api_version, "kind": "Machine", "metadata": metadata, "spec": spec}
    return await cluster.client.create(system.machines.path(namespace=system.namespace), body)


@pytest.mark.parametrize("name", ["mdr-baremetal", "mdr-no-provider"])
async def test_whether_a_node_of_that_name_will_come_back(name: str) -> None:
    facts, expect = given(name)
    wanted = expect["permanent_node_deletion_expected"]
    assert permanent_deletion_expected(facts["provider_id"]) == wanted
    async with cluster_with("machine-deletion-remediation", machines="openshift", nodes=1) as cluster:
        cluster.machines.instances.refuses = True
        operator = cluster.remediator(MachineDeletionRemediations)
        asker = Asker(cluster, MachineDeletionRemediations.remediations, namespace=cluster.machines.system.namespace)
        machine = await machine_by_hand(cluster, "by-hand", provider_id=facts["provider_id"] or "")
        await asker.ask("by-hand", owner=machine)

        def says() -> bool:
            remediation = known(operator, asker, "by-hand")
            return bool(reason(remediation, PERMANENT))

        await cluster.wait_until(says, what="it says what it expects")
        assert told(await asker.read("by-hand"), PERMANENT) == (wanted,)


# node-maintenance


def maintained(cluster: SimulatedCluster) -> tuple[NodeMaintenances, Asker]:
    return cluster.remediator(NodeMaintenances), Asker(cluster, NodeMaintenances.remediations)


@pytest.mark.parametrize("names", [("nmo-lease-held-before-start", "nmo-lease-released")])
async def test_maintenance_waits_for_a_lease_and_goes_on_once_it_is_free(names: Sequence[str]) -> None:
    (_, held), (_, released) = map(given, names)
    async with cluster_with("node-maintenance", nodes=1) as cluster:
        operator, asker = maintained(cluster)
        await take_lease(cluster, "node-1", "NodeHealthCheck-all")
        await asker.ask("service", {"nodeName": "node-1"})
        await cluster.wait_until(lambda: "held" in status_of(operator, asker, "service").get("lastError", ""), what="held")
        status = status_of(operator, asker, "service")
        assert (status["phase"], status["errorOnLeaseCount"]) == (held["phase"], held["error_on_lease_count"])
        await cluster.client.delete(LEASES.path("node-node-1", namespace=LEASE_NAMESPACE))
        ended = released["phase"]
        await cluster.wait_until(lambda: status_of(operator, asker, "service").get("phase") == ended, what="it has tried again")
        assert held["retries"] is True
        assert status_of(operator, asker, "service")["drainProgress"] == released["drain_progress"]
        assert (await cluster.client.get(NODES.path("node-1")))["spec"]["unschedulable"] is released["cordoned"]


async def test_maintenance_of_no_node_fails_and_one_that_is_going_is_not_begun_again() -> None:
    (_, missing), (going, untouched) = map(given, ("nmo-missing-node", "nmo-deleted-cr-not-reapplied"))
    async with cluster_with("node-maintenance", nodes=1) as cluster:
        operator, asker = maintained(cluster)
        await asker.ask("nowhere", {"nodeName": "no-such-node"})
        phase = missing["phase"]
        await cluster.wait_until(lambda: status_of(operator, asker, "nowhere").get("phase") == phase, what="failed")

        assert going == {"cr_deleted": True, "own_finalizer": False, "other_finalizer": True}
        # Kept from beginning by somebody's lease it is deleted, and then the lease is free.
        await take_lease(cluster, "node-1", "NodeHealthCheck-all")
        await asker.ask("service", {"nodeName": "node-1"}, finalizers=["example.com/other"])
        await cluster.wait_until(lambda: "held" in status_of(operator, asker, "service").get("lastError", ""), what="held")
        await asker.delete("service")

        def is_let_go() -> bool:
            finalizers: list[str] = known(operator, asker, "service")["metadata"].get("finalizers")
            return finalizers == ["example.com/other"]

        await cluster.wait_until(is_let_go, what="only the other finalizer is left")
        await cluster.client.delete(LEASES.path("node-node-1", namespace=LEASE_NAMESPACE))
        await asker.look_again_at("service", operator)
        await asker.ask("another", {"nodeName": "no-such-node"})
        await cluster.wait_until(lambda: status_of(operator, asker, "another").get("phase") == phase, what="through with both")
        node = await cluster.client.get(NODES.path("node-1"))
        assert bool(node["spec"].get("unschedulable")) is untouched["cordoned"]


# Metal3


@pytest.mark.parametrize("name", ["metal3-timer-due", "metal3-timer-now"])
def test_when_the_next_try_is_due(name: str) -> None:
    facts, expect = given(name)
    due, wait = time_to_remediate(age=facts["last_remediated_age_s"], timeout=facts["timeout_s"])
    assert (due, wait) == (expect["due"], expect["next_check_s"])


@pytest.mark.parametrize("name", ["metal3-retry-1-1", "metal3-retry-1-0", "x-metal3-lowered-retry-limit"])
def test_how_often_it_is_tried(name: str) -> None:
    """x-metal3-lowered-retry-limit: compared for equality, a limit lowered below the count would never be reached."""
    facts, expect = given(name)
    assert limit_is_reached(facts["retry_limit"], facts["retry_count"]) is expect["reached"]
    assert (facts["retry_limit"] > 0) is expect.get("limit_is_set", True)


async def test_a_host_that_is_to_be_off_is_never_switched_on() -> None:
    facts, expect = given("metal3-host-offline")
    async with cluster_with("metal3", machines="cluster-api", nodes=1) as cluster:
        await until_hosted(cluster)
        await cluster.hosts.set_online("node-1", facts["host_spec_online"])
        await cluster.wait_until(lambda: not cluster.node("node-1").is_on, what="off")
        boots = cluster.node("node-1").boots
        operator, asker = cluster.remediator(Metal3Remediations), await ask_for(cluster, "machine-1")
        phase = expect["phase"]
        await cluster.wait_until(lambda: status_of(operator, asker, "machine-1").get("phase") == phase, what="failed")
        assert (cluster.node("node-1").boots > boots) is expect["power_cycled"]


def test_every_case_is_held_or_said_to_be_left_out() -> None:
    text = Path(__file__).read_text(encoding="utf-8").partition("def test_every_case")[0]
    held = {name for name in CASES if name not in LEFT_OUT and f'"{name}"' in text}
    assert held | LEFT_OUT == set(CASES)
