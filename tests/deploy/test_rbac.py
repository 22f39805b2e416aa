"""The shipped rights are exactly what is needed: a whole episode runs under them, and nothing is granted that it does not use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.cluster_lease import ScannerLease
from activities.cluster.acts.failed_volumes import ClusterFailedVolumes
from activities.cluster.acts.fence_devices import ClusterFenceDevices
from activities.cluster.acts.freeing import ClusterFreeing
from activities.cluster.acts.isolation import ClusterIsolation
from activities.cluster.acts.node_actions import ClusterAttestation, NodeActionHandler
from activities.cluster.acts.preservation import ClusterPreservation
from activities.cluster.acts.remediation_objects import ClusterRemediationObjects
from activities.cluster.acts.scan import ClusterScan
from activities.cluster.acts.targets import ClusterTarget
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.live.last_look import LastLook
from activities.cluster.report.nodefences import EpisodePublisher, NodeFences
from activities.cluster.watch.freshness import ViewLimits
from activities.cluster.watch.view import ClusterView
from activities.contracts.attestation import VerifyRequest
from activities.contracts.device_check import FenceDevicesRequest, NodeNamesRequest, PublishDeviceNoticesRequest
from activities.contracts.preservation import NO_WISH, GiveUpRequest, HoldRequest, Wish
from activities.contracts.remediation import BeforeActing, ExternalRequest, FailedVolumesRequest, RememberRequest
from activities.contracts.scan import ScanRequest
from activities.contracts.target import (
    ActRequest,
    AnswerRequest,
    CordonRequest,
    DrainRequest,
    EpisodeSnapshot,
    FreeCutRequest,
    FreeRequest,
    LookRequest,
    LookVerdict,
    PinRequest,
    Publication,
    PublishedEvent,
    PublishRequest,
    ReleaseRequest,
    RestoreRequest,
    Target,
    UntaintRequest,
    WorkloadRequest,
)
from policy.checks.fence_policies import FencePolicies, PolicySource
from policy.dialects.medik8s import MACHINES_NAMESPACE
from policy.episode.drain import DrainOptions
from policy.episode.fencing_requests import RequestAnswer, Stage
from policy.episode.messages import EpisodeStatus, FencingInput, Kind, Need, NeedKind, OffProof, PathProof, Phase, Pinned, Reading
from policy.episode.modes import REPAIRS, ClusterModes
from policy.episode.node_action import NAMESPACE as NAMESPACE_OF_WORDS
from policy.episode.node_action import ActionName, NodeActionSpec, Verb
from policy.fence.config import FenceStep
from policy.fence.device_check import DeviceEventReason, DeviceNotice
from policy.fence.plan import CredentialKind, CredentialRef, CutStorage, PowerDevice
from policy.fence.power import PowerState
from policy.remediation.remediation_objects import REMEDIATORS
from policy.scan.admission import Refused
from policy.scan.scan_report import ScanReport
from policy.values.errors import PolicyError
from policy.values.object_refs import ObjectRef
from simulator.api import errors
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient, ApiError
from starter.deploy.features import SHIPPED, Feature, Process, features_of, processes_of
from starter.deploy.manifests import to_yaml
from starter.deploy.rights import leases, rbac
from tests.cel import CelPython
from tests.cluster import test_preserving as kept
from tests.cluster.builders import CHECKS, NODES, check, definition, node, of_kind, templates, until
from tests.cluster.fencing_requests import NAMESPACE, OWNER, REMEDIATIONS, remediation, request_definition
from tests.cluster.machines import CLUSTER_API, COUNTING, OPENSHIFT, OPERATORS, System, machine_of
from tests.documents import ROOT, documents, every, path_of
from tests.licensing import LICENCES
from tests.system.real_api import simulated_only
from workers.configuration.credentials import ClusterObjects, WorkerCredentials
from workers.configuration.settings import Settings
from workers.deployment_keys import keyring_of

pytestmark = pytest.mark.timeout(30)

CLUSTER = "prod"
TRUSTED = PolicySource(requests=(NAMESPACE,), templates=("nodewarden", *COUNTING), machines=COUNTING)
HOLDER = "temporal-a/default"
SICK, UNSELECTED = "node-7", "database-0"
USERS = {f"system:serviceaccount:nodewarden:{process.account}": process for process in Process}
CRDS = (
    "deploy/crds/fencingtemplates.nodewarden.io.yaml",
    "deploy/crds/fenceconfigs.nodewarden.io.yaml",
    "deploy/crds/nodefences.nodewarden.io.yaml",
    "deploy/crds/preservationpolicies.nodewarden.io.yaml",
    "deploy/crds/volumedetachmenttemplates.nodewarden.io.yaml",
    "deploy/crds/machinedeletiontemplates.nodewarden.io.yaml",
    "deploy/crds/reboottemplates.nodewarden.io.yaml",
    "deploy/crds/nodeactions.nodewarden.io.yaml",
)
OTHERS = tuple((each.kind, each.group, "v1beta1" if each.kind.startswith("Metal3") else "v1alpha1") for each in REMEDIATORS)
"""Kinds of other controllers that health checks may have objects created of, with their groups and versions."""
VOLUME_DETACHMENT = ObjectRef(
    api_version="nodewarden.io/v1alpha1", kind="VolumeDetachmentTemplate", name="default", namespace="nodewarden"
)
CHECK = ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name="workers")


class Permits:
    """A permit book that always agrees: rights of Kubernetes are what is tried here."""

    async def holds(self, cluster: str, node: str, incident: str, override: str = "") -> tuple[bool, str]:
        return True, f"{cluster}/{node}/{incident}"

    async def paused(self, cluster: str) -> str:
        return ""

    async def modes(self, cluster: str) -> ClusterModes:
        assert cluster
        return REPAIRS


def _printed(**asked: Any) -> list[dict[str, Any]]:
    """What `nodewarden deploy rbac` prints, read as kubectl would."""
    return every(to_yaml(rbac(**asked)))


SPLIT = {"processes": (Process.CLUSTER, Process.POWER, Process.WORKFLOWS), "secrets": ("bmc",)}
"""Every process with an account of its own, and the Secrets named."""


@pytest.fixture
async def api(request: pytest.FixtureRequest) -> AsyncIterator[ApiServer]:
    """A cluster to which deploy/ was applied, with one sick node that holds a pod and its volume; with other rights as asked."""
    simulated_only("its request log says which of the rights were used")
    tokens = {"administrator": "admin"} | {process.value: user for user, process in USERS.items()}
    rights = _printed(**getattr(request, "param", {}))
    async with ApiServer(tokens=tokens) as server:
        server.admission.cel = CelPython()
        async with ApiClient(ApiAddress(url=server.url, token="administrator"), user_agent="administrator") as person:
            for document in [
                definition(),
                request_definition(),
                *(kept.definition(kind) for kind in ("Machine", "MachineSet", "MachineDeployment")),
                *documents(*CRDS),
                *documents("deploy/medik8s-leases.yaml"),
                *rights,
                *documents("deploy/people.yaml", "deploy/admission.yaml", "deploy/worker.yaml"),
            ]:
                await person.create(path_of(document), document)
            await _furnish(person)
        yield server


async def _furnish(person: ApiClient) -> None:
    for system in (OPENSHIFT, CLUSTER_API):
        await system.install(person)
        await system.add_cluster(person)
        await system.add_machine(person, machine_of(SICK), node=SICK)
        await person.create(system.path("machinehealthchecks"), system.check(timeout=1))
    for number in range(6):
        await person.create(NODES, node(f"node-{number}"))
    since = datetime.now(UTC) - timedelta(minutes=5)
    await person.create(NODES, node(SICK, "Unknown", since, **CLUSTER_API.ties(SICK), **OPENSHIFT.ties(SICK)))
    await person.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    await person.create(REMEDIATIONS, remediation(SICK))
    own = {"agent": "fence_ipmilan", "nodeparameters": {"--ip": {UNSELECTED: "10.0.0.8"}}}
    await person.create(REMEDIATIONS, remediation(UNSELECTED, spec=own))  # no check of ours covers it, and names its template
    unselected = node(UNSELECTED, "Unknown", since)
    del unselected["metadata"]["labels"]["node-role.kubernetes.io/worker"]
    await person.create(NODES, unselected)
    await person.create(CHECKS, check(duration="1s"))
    named = {"apiVersion": "nodewarden.io/v1alpha1", "namespace": "nodewarden", "name": "default"}
    ours = ("FencingTemplate", "VolumeDetachmentTemplate", "MachineDeletionTemplate", "RebootTemplate")
    rungs = [{"order": order, "timeout": "5m", "remediationTemplate": named | {"kind": kind}} for order, kind in enumerate(ours)]
    laddered = check("laddered", selector={"matchLabels": {"laddered": "true"}}, escalatingRemediations=rungs)
    del laddered["spec"]["remediationTemplate"]
    await person.create(CHECKS, laddered)
    power = {
        "driver": "ipmi",
        "nodeParameters": {SICK: {"ip": "10.0.0.7"}, UNSELECTED: {"ip": "10.0.0.8"}},
        "secretRef": {"name": "bmc"},
    }
    template = {
        "apiVersion": "nodewarden.io/v1alpha1",
        "kind": "FencingTemplate",
        "metadata": {"name": "default", "namespace": "nodewarden"},
        "spec": {"template": {"spec": {"power": [power]}}},
    }
    for namespace in ("nodewarden", OPENSHIFT.namespace, CLUSTER_API.namespace):
        await person.create(templates(namespace), template | {"metadata": {"name": "default"}})
    for kind in ours[2:]:
        made = {**template, "metadata": {"name": "default"}, "kind": kind, "spec": {"template": {"spec": {}}}}
        await person.create(templates(plural=f"{kind.lower()}s"), made)
    spec = {"template": {"spec": {"conditions": ["VolumeUnavailable"]}}}
    path = templates(plural="volumedetachmenttemplates")
    await person.create(path, {**template, "kind": "VolumeDetachmentTemplate", "spec": spec})
    secret = {"metadata": {"name": "bmc"}, "data": {"username": "YWRtaW4=", "password": "c2VjcmV0"}}
    for namespace in ("nodewarden", "default"):
        await person.create(f"/api/v1/namespaces/{namespace}/secrets", secret)
    member = _pod("member-0", claim="data")
    daemon, stateless = _pod("logs-x", claim="logs"), _pod("web-0", claim="")
    daemon["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "uid-logs", "controller": True}
    ]
    for pod in (member, daemon, stateless):
        await person.create("/api/v1/namespaces/default/pods", pod)
    await person.create("/apis/apps/v1/namespaces/default/daemonsets", _daemon_set("logs"))
    for name in ("data", "logs"):
        await person.create("/api/v1/namespaces/default/persistentvolumeclaims", _claim(name))
    attachment = {
        "metadata": {"name": "attached"},
        "spec": {"attacher": "csi.example", "nodeName": SICK, "source": {"persistentVolumeName": "pv-data"}},
    }
    await person.create("/apis/storage.k8s.io/v1/volumeattachments", attachment)


async def _add_others(person: ApiClient) -> None:
    """The kinds of other controllers, and a check that would have every node remediated by them that is called spare."""
    already, rungs = request_definition()["spec"]["names"]["kind"], []
    for order, (kind, group, version) in enumerate(OTHERS):
        for each in {kind, f"{kind}Template"} - {already}:
            await person.create(kept.DEFINITIONS, kept.definition(each, group=group, served=version))
        template = {"apiVersion": f"{group}/{version}", "kind": f"{kind}Template"}
        namespace = MACHINES_NAMESPACE if kind.startswith("Metal3") else NAMESPACE
        path = f"/apis/{group}/{version}/namespaces/{namespace}/{kind.lower()}templates"
        spec = {"template": {"spec": {"agent": "fence_ipmilan"}}}
        await person.create(path, {**template, "metadata": {"name": "default"}, "spec": spec})
        reference = {**template, "name": "default", "namespace": namespace}
        rungs.append({"order": order, "timeout": "5m", "remediationTemplate": reference})
    wanted = check("spares", selector={"matchLabels": {"spare": "true"}}, escalatingRemediations=rungs)
    del wanted["spec"]["remediationTemplate"]
    await person.create(CHECKS, wanted)


def _pod(name: str, *, claim: str) -> dict[str, Any]:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    spec = {"nodeName": SICK, "containers": [{"name": "main", "image": "example"}], "volumes": volumes}
    return {"metadata": {"name": name}, "spec": spec}


def _daemon_set(name: str) -> dict[str, Any]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "example"}]}}
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def _claim(name: str) -> dict[str, Any]:
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources, "volumeName": f"pv-{name}"}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def connections(api: ApiServer) -> AsyncIterator[dict[Process, ClusterConnection]]:
    """That of each process, by its ServiceAccount."""
    async with AsyncExitStack() as stack:
        yield {each: await stack.enter_async_context(ClusterConnection.to(api.url, token=each.value)) for each in Process}


async def _scan(worker: ClusterConnection, stack: AsyncExitStack) -> ScanReport:
    """Look until the sick node is a candidate and the cluster lease is held, tell about it, then look again (which renews)."""
    lease = ScannerLease(worker, duration=timedelta(seconds=3))
    limits = ViewLimits(grace=timedelta(0))
    scan = await stack.enter_async_context(ClusterScan(CLUSTER, ClusterView(worker, limits=limits, source=TRUSTED), lease=lease))
    scan.view.follow_claims()  # as the first last look does
    environment = ActivityEnvironment()
    report, known, renewals = None, "", 0
    for _ in range(8):
        request = ScanRequest(cluster=CLUSTER, holder=HOLDER, known_digest=known, wait=timedelta(milliseconds=300))
        report = await environment.run(scan.observe_cluster, request)
        known = report.digest
        renewals += report.lease.held
        if renewals > 1 and len(report.candidates) > 2:
            break
    assert report is not None
    await until(lambda: scan.view.fence_objects() is not None)
    assert report.view.stale == ""
    assert report.lease.held, report.lease
    assert {candidate.node for candidate in report.candidates} == {SICK, UNSELECTED}
    assert len({candidate.need for candidate in report.candidates}) == 2
    assert {check.ref.kind for check in report.checks} == {"NodeHealthCheck", "MachineHealthCheck"}
    refusals = (Refused(node=SICK, check=CHECK, reason="held", message="another has it"),)
    published = await scan.publishing.publish(report, refusals=refusals)
    assert published.written == 5
    assert published.failed == ()
    # Nobody scans while the rest of the story is told, however long a busy machine takes for it.
    assert (await ScannerLease(worker, duration=timedelta(minutes=10)).keep(HOLDER)).held
    return report


async def _pin(target: ClusterTarget, name: str, need: Need) -> Target:
    asked = FencingInput(cluster=CLUSTER, node=name, incident="incident-1", reason=need.reason, need=need)
    found = await ActivityEnvironment().run(target.pin, PinRequest(wanted=asked))
    return Target(
        cluster=CLUSTER,
        pinned=found.pinned,
        incident="incident-1",
        kind="Fencing",
        workflow_id=f"episode/{CLUSTER}/{name}",
        run_id="run-1",
    )


async def _episode(worker: ClusterConnection) -> None:
    """What the Fencing workflow asks of the cluster, in its order, on a node that is really down."""
    environment = ActivityEnvironment()
    source = replace(TRUSTED, templates=("nodewarden",), policies=FencePolicies(skip_lost_storage=True))
    target = ClusterTarget(
        ServedCluster(CLUSTER, worker, source=source),
        Permits(),
        LICENCES,
    )
    isolation, freeing = (
        ClusterIsolation(ServedCluster(CLUSTER, worker), target.last_look, Permits(), LICENCES),
        ClusterFreeing(ServedCluster(CLUSTER, worker, own_node="node-0"), target.last_look, LICENCES),
    )
    person = Need(kind=NeedKind.PERSON, reason="somebody asks", requester="ada")
    await _answer(target)
    await _pin(target, UNSELECTED, person)  # named by no check: found as the only template there is
    need = Need(kind=NeedKind.CHECK, reason="Ready is Unknown", check=CHECK)
    sick = await _pin(target, SICK, need)

    act = ActRequest(target=sick)
    assert (await environment.run(target.mark, act)).changed
    look = LookRequest(target=sick, need=need, holder=HOLDER, lease=timedelta(minutes=5), counts=True)
    for _ in range(2):  # the lease is taken, then renewed
        seen = await environment.run(target.last_look, look)
        assert seen.verdict is LookVerdict.GO, seen.reason
    assert (await environment.run(isolation.mark_unschedulable, CordonRequest(look=look))).changed

    drain = DrainRequest(
        target=sick,
        options=DrainOptions(ignore_daemon_sets=True, force=True, grace=timedelta(0)),
        not_after=datetime.now(UTC) + timedelta(seconds=20),
        holder=HOLDER,
        need=need,
    )
    drained = await environment.run(isolation.drain, drain)
    assert (drained.evicted, drained.withheld, drained.errors) == (1, ("default/member-0",), ())

    await _find_volumes(worker, sick, need)
    for system in (OPENSHIFT, CLUSTER_API):
        of_machine = Need(kind=NeedKind.CHECK, reason="Ready is Unknown", check=system.check_ref())
        unpinned = replace(sick, pinned=replace(sick.pinned, machine_uids=()))  # they were another check's
        seen = await environment.run(target.last_look, LookRequest(target=unpinned, need=of_machine, holder=HOLDER))
        assert seen.verdict is LookVerdict.GO, seen.reason

    at = datetime.now(UTC)
    said = [Reading(endpoint=endpoint, state=PowerState.OFF, at=at) for endpoint in sick.pinned.endpoints]
    readings = tuple(LICENCES.sealed_reading(sick, each, at) for each in said)
    off = tuple(LICENCES.sealed_reading(sick, each, at, sick.pinned.levels) for each in said)
    proof = OffProof(commanded_at=at - timedelta(seconds=1), readings=off)
    cut = FreeCutRequest(
        target=sick,
        proofs=(PathProof(commanded_at=at - timedelta(seconds=1), readings=readings),),
        storage=CutStorage(drivers=("csi.elsewhere",)),
        not_after=at + timedelta(seconds=30),
        holder=HOLDER,
    )
    assert (await environment.run(freeing.free_cut_pods, cut)).deleted_pods == 0
    free = FreeRequest(target=sick, proof=proof, not_after=at + timedelta(seconds=20), holder=HOLDER)
    freed_now = (await environment.run(freeing.taint_out_of_service, free)).detail
    assert freed_now.endswith("; 2 pods deleted"), "the one that the drain has asked to go is terminating, without a kubelet"
    freed = await environment.run(freeing.delete_workload, free)
    assert (freed.deleted_pods, freed.deleted_attachments) == (0, 1)
    assert (await environment.run(freeing.read_workload, WorkloadRequest(target=act.target))).pods == 0
    assert (await environment.run(freeing.untaint_out_of_service, UntaintRequest(target=act.target))).changed

    for _ in range(2):  # told, then counted
        event = PublishedEvent(reason="PowerOffProven", message="off was read twice")
        await environment.run(target.publish, PublishRequest(target=sick, publication=Publication(events=(event,))))
    assert (await environment.run(isolation.mark_schedulable, RestoreRequest(target=sick))).changed
    await environment.run(target.release_lease, ReleaseRequest(target=sick))
    await _mirror(worker, sick)
    await _check(worker)
    await _hand_over(worker, sick)


async def _find_volumes(worker: ClusterConnection, target: Target, need: Need) -> None:
    """Which of its volumes have failed: nobody says any."""
    volumes = ClusterFailedVolumes(ServedCluster(CLUSTER, worker))
    for template in (None, VOLUME_DETACHMENT):
        asked = FailedVolumesRequest(target=target, need=need, template=template)
        found = await ActivityEnvironment().run(volumes.find_volumes, asked)
        assert found.failure.refused


async def _hand_over(worker: ClusterConnection, target: Target) -> None:
    """The node is handed to each of the other controllers, whose time is over."""
    environment, objects = (
        ActivityEnvironment(),
        ClusterRemediationObjects(ServedCluster(CLUSTER, worker), LastLook(ServedCluster("prod", worker), Permits()).look),
    )
    for kind, group, version in OTHERS:
        asked = ExternalRequest(
            target=target,
            template=ObjectRef(
                api_version=f"{group}/{version}",
                kind=f"{kind}Template",
                name="default",
                namespace=MACHINES_NAMESPACE if kind.startswith("Metal3") else NAMESPACE,
            ),
            check=replace(CHECK, name="spares"),
            before=BeforeActing(
                look=LookRequest(target=target, need=Need(kind=NeedKind.PERSON), holder=HOLDER),
                remember=RememberRequest(target=target, memory=f"asked {kind}"),
            ),
            not_after=datetime.now(UTC) + timedelta(seconds=20),
        )
        if kind == "FenceAgentsRemediation":
            theirs = replace(asked, check=CHECK, check_uid=str(OWNER["uid"]))  # it has the node's name, and its node is well
            assert not (await environment.run(objects.delete, theirs)).present
        made = await environment.run(objects.create, asked)
        assert made.present, made.message
        assert (await environment.run(objects.time_out, replace(asked, uid=made.uid))).timed_out
        assert not (await environment.run(objects.delete, replace(asked, uid=made.uid))).present


async def _check(worker: ClusterConnection) -> None:
    """The fence devices are found, and people are told of one."""
    environment, devices = ActivityEnvironment(), ClusterFenceDevices(ServedCluster(CLUSTER, worker), LICENCES)
    names = (await environment.run(devices.list_nodes, NodeNamesRequest(cluster=CLUSTER))).names
    found = await environment.run(devices.find_devices, FenceDevicesRequest(cluster=CLUSTER, nodes=names))
    (node,) = [each for each in found.nodes if each.node == UNSELECTED]
    assert (len(node.devices), node.problem) == (1, "")
    silent = DeviceNotice(
        node=node.node, node_uid=node.uid, endpoint="ipmi://10.0.0.8:623", reason=DeviceEventReason.FENCE_DEVICE_SILENT
    )
    await environment.run(devices.publish_device_notices, PublishDeviceNoticesRequest(cluster=CLUSTER, notices=(silent,)))


async def _keep(worker: ClusterConnection, api: ApiServer) -> None:
    """A machine of each system is kept, released, and given up when it fails."""
    environment, preservation = (
        ActivityEnvironment(),
        ClusterPreservation(
            ServedCluster(CLUSTER, worker, source=OPERATORS), LastLook(ServedCluster("prod", worker), Permits()).look, Permits()
        ),
    )
    async with ApiClient(ApiAddress(url=api.url, token="administrator"), user_agent="administrator") as person:
        machines = [await _of_gardener(person)]
        for number, system in enumerate((OPENSHIFT, CLUSTER_API), start=1):
            machines.append(await _to_be_given_up(person, system, f"node-{number}"))
        folder = CLUSTER_API.path("").rstrip("/")
        reference = {"apiGroup": "example.io", "kind": "ExampleMachine", "name": "x"}
        template = {"spec": {"clusterName": "blue", "bootstrap": {"dataSecretName": "x"}, "infrastructureRef": reference}}
        of_set = {"clusterName": "blue", "selector": {"matchLabels": {"a": "b"}}, "template": template}
        await _sets_of(person, CLUSTER_API.group, folder, **of_set)
        path = OPENSHIFT.path("machinesets")
        await person.create(path, of_kind("MachineSet", path, name="set", spec={"replicas": 0}))
    for node_name, machine in machines:
        wish = Wish(keep=True)
        asked = HoldRequest(cluster=CLUSTER, node=node_name, machine=machine, wish=wish)
        begun = await environment.run(preservation.hold, asked)
        assert begun.phase == "Failed:Preserved"
        ended = await environment.run(preservation.hold, replace(asked, wish=Wish(release="seen enough")))
        assert ended.terminate
        give_up = GiveUpRequest(
            cluster=CLUSTER,
            node=node_name,
            machine=machine,
            machine_uid=ended.machine_uid,
            holder=HOLDER,
            not_after=datetime.now(UTC) + timedelta(seconds=20),
        )
        assert (await environment.run(preservation.give_up, give_up)).kept == ""
        going = replace(asked, wish=NO_WISH, machine_uid=ended.machine_uid, owner=begun.owner)
        assert (await environment.run(preservation.hold, going)).override == "hibernation"


async def _of_gardener(person: ApiClient) -> tuple[str, ObjectRef]:
    """Its pool's word is on the MachineDeployment above the MachineSet."""
    await person.create("/api/v1/namespaces", {"metadata": {"name": kept.REF.namespace}})
    group = f"/apis/{kept.GROUP}/v1alpha1/namespaces/{kept.REF.namespace}"
    await _sets_of(person, kept.GROUP, group)
    made = kept.machine("Failed")
    made["metadata"]["labels"] = {"node": "node-0"}
    await person.create(f"{group}/machines", made)
    await person.patch(f"{group}/machines/{kept.REF.name}/status", {"status": made["status"]})
    return "node-0", kept.REF


async def _sets_of(person: ApiClient, group: str, path: str, **spec: Any) -> None:
    """Scaled to nothing: a MachineSet, and a MachineDeployment above it."""
    for kind, owner in (("MachineDeployment", ""), ("MachineSet", "MachineDeployment")):
        owners = [{"apiVersion": f"{group}/v1alpha1", "kind": owner, "name": "set", "uid": "u", "controller": True}]
        its, place = {"replicas": 0, "template": {}} | spec, f"{path}/{kind.lower()}s"
        await person.create(place, of_kind(kind, place, name="set", spec=its, ownerReferences=owners if owner else []))


async def _to_be_given_up(person: ApiClient, system: System, name: str) -> tuple[str, ObjectRef]:
    """Failed, and somebody owns it who would replace it."""
    owner = {"apiVersion": system.api_version, "kind": "MachineSet", "name": "set", "uid": "u", "controller": True}
    machine = await system.add_machine(person, machine_of(name), node=name)
    path = system.path("machines", machine["metadata"]["name"])
    await person.patch(path, {"metadata": {"ownerReferences": [owner]}})
    await person.patch(f"{path}/status", {"status": {"phase": "Failed"}})
    ref = ObjectRef(api_version=system.api_version, kind="Machine", name=machine_of(name), namespace=system.namespace)
    return name, ref


async def _look_at_a_member(worker: ClusterConnection, api: ApiServer) -> None:
    """The last look before one of three control-plane members is fenced, of which everybody knows something."""
    name, owner = "member-0", "KubeadmControlPlane"
    async with ApiClient(ApiAddress(url=api.url, token="administrator"), user_agent="administrator") as person:
        for number in range(3):
            member = node(f"member-{number}", **(CLUSTER_API.ties(name) if number == 0 else {}))
            member["metadata"]["labels"] = {"node-role.kubernetes.io/control-plane": ""}
            await person.create(NODES, member)
        uid = (await person.get(f"{NODES}/{name}"))["metadata"]["uid"]
        version = "controlplane.cluster.x-k8s.io/v1beta2"
        reference = {"apiGroup": "example.io", "kind": "ExampleMachineTemplate", "name": "cp"}
        spec = {"replicas": 3, "version": "v1.34.0", "machineTemplate": {"spec": {"infrastructureRef": reference}}}
        path = f"/apis/{version}/namespaces/{CLUSTER_API.namespace}/kubeadmcontrolplanes"
        await person.create(path, of_kind(owner, path, name="cp", spec=spec))
        await CLUSTER_API.add_machine(person, machine_of(name), node=name)
        owned_by = {"apiVersion": version, "kind": owner, "name": "cp", "uid": "u", "controller": True}
        metadata = {"ownerReferences": [owned_by], "labels": {"cluster.x-k8s.io/control-plane": ""}}
        await person.patch(CLUSTER_API.path("machines", machine_of(name)), {"metadata": metadata})
        await person.create("/api/v1/namespaces", {"metadata": {"name": "openshift-etcd"}})
        await person.create("/api/v1/namespaces/openshift-etcd/pods", _pod("etcd", claim=""))
        budgets = "/apis/policy/v1/namespaces/openshift-etcd/poddisruptionbudgets"
        await person.create(budgets, {"metadata": {"name": "etcd"}, "spec": {"minAvailable": 2}})
        await person.patch(f"{budgets}/etcd/status", {"status": {"disruptionsAllowed": 1}})
    target = ClusterTarget(ServedCluster(CLUSTER, worker), Permits(), LICENCES)
    need = Need(kind=NeedKind.PERSON, reason="somebody asks", requester="ada")
    pinned = Pinned(node=name, uid=uid, provider_id=f"sim:///{name}", system_uuid=f"uuid-{name}")
    whom = Target(cluster=CLUSTER, pinned=pinned, incident="incident-2", kind="Fencing", workflow_id="w", run_id="run-1")
    look = await ActivityEnvironment().run(target.last_look, LookRequest(target=whom, need=need, holder=HOLDER))
    assert look.verdict is LookVerdict.GO, look.reason


async def _answer(target: ClusterTarget) -> None:
    """What an episode asks that an operator's object began."""
    ref = ObjectRef(
        api_version="fence-agents-remediation.medik8s.io/v1alpha1",
        kind="FenceAgentsRemediation",
        name=UNSELECTED,
        namespace=NAMESPACE,
    )
    need = Need(kind=NeedKind.FOREIGN_OBJECT, reason="its operator asks", check=ref)
    pinned = await _pin(target, UNSELECTED, need)
    look = await ActivityEnvironment().run(target.last_look, LookRequest(target=pinned, need=need, holder=HOLDER))
    assert look.verdict is LookVerdict.GO, look.reason
    word = RequestAnswer(about=ref, uid="", stage=Stage.STARTED, message="begins")
    answered = await ActivityEnvironment().run(target.answer_request, AnswerRequest(target=pinned, answer=word))
    assert answered.withdrawn == ""


async def _mirror(worker: ClusterConnection, target: Target) -> None:
    """The episode as people see it: written, written again, told, and taken away."""
    fences = NodeFences(worker, kept_for=timedelta(0))
    publisher = EpisodePublisher(ServedCluster("prod", worker), fences)
    for sequence, phase in enumerate((Phase.RUNNING, Phase.FINAL), start=1):
        status = EpisodeStatus(
            incident=target.incident,
            cluster=CLUSTER,
            node=SICK,
            kind=Kind.FENCING,
            phase=phase,
            step=FenceStep.RECOVERY.value,
            doing="",
            reason="Ready is Unknown",
            started=datetime.now(UTC),
        )
        event = PublishedEvent(reason="StepStarted", message=f"state {sequence}")
        shown = EpisodeSnapshot(status=status, sequence=sequence, at=datetime.now(UTC))
        await publisher.publish(target, Publication(shown=shown, events=(event,)), anyway=False)
    assert await fences.sweep(()) == 1


async def _refuse_to_dispatch(cluster: str, spec: NodeActionSpec, action: ActionName, who: str) -> str:
    raise AssertionError(f"{cluster}: {spec} of {action.name} by {who} is attested by no policy")


async def _hear(worker: ClusterConnection, api: ApiServer) -> None:
    """A person's word, which Kubernetes attests."""
    spec = NodeActionSpec(action=Verb.HOLD, node=SICK, reason="looks at it")
    async with ApiClient(ApiAddress(url=api.url, token="administrator"), user_agent="administrator") as person:
        path = f"/apis/nodewarden.io/v1alpha1/namespaces/{NAMESPACE_OF_WORDS}/nodeactions"
        made = await person.create(path, of_kind("NodeAction", path, name="hold", spec=spec.to_dict("admin")))
    action = ActionName(name="hold", uid=made["metadata"]["uid"])
    asked = VerifyRequest(cluster=CLUSTER, spec=spec, action=action, use="one")
    found = {"hold": made}
    ended = asyncio.Event()
    keeping = NodeActionHandler(CLUSTER, worker, found, _refuse_to_dispatch, on_change=ended.set)
    keeping.begin_due_work()
    await ended.wait()
    heard = await ActivityEnvironment().run(ClusterAttestation(ServedCluster(CLUSTER, worker), LICENCES).verify, asked)
    assert not heard.problem or "in force" in heard.problem  # since a moment only, unless the machine is slow
    ended.clear()
    keeping = NodeActionHandler(CLUSTER, worker, found, _refuse_to_dispatch, kept_for=timedelta(seconds=-60), on_change=ended.set)
    keeping.begin_due_work()
    await ended.wait()


def _shipped_settings() -> dict[str, str]:
    return next(each["data"] for each in documents("deploy/worker.yaml") if each["kind"] == "ConfigMap")


async def _whole_story(worker: ClusterConnection, power: ClusterConnection, api: ApiServer) -> None:
    async with ApiClient(ApiAddress(url=api.url, token="administrator"), user_agent="administrator") as person:
        await _add_others(person)
    async with AsyncExitStack() as stack:
        await _scan(worker, stack)
        await _episode(worker)
        await _look_at_a_member(worker, api)
        await _keep(worker, api)
    await _hear(worker, api)
    places = (CredentialRef(name="bmc", namespace="nodewarden"), _LINE)
    device = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623", parameters={"ip": "10.0.0.7"}, credentials=places)

    async def require_meant(_cluster: str) -> None:
        await power.cluster_uid()

    objects = ClusterObjects({CLUSTER: power}, require_meant=require_meant)
    credentials = await WorkerCredentials(objects).read(CLUSTER, device)
    assert credentials.username == "admin"
    settings = Settings.model_validate(yaml.safe_load(next(iter(_shipped_settings().values()))))
    assert settings.worker.signing_keys_secret
    clusters = settings.connections()
    for connection in (worker, power):
        keyring = await keyring_of(settings, clusters, dict.fromkeys(clusters, connection))
        assert keyring.accepts(keyring.sign("device", "a fact"), "device", "a fact")
    async with ClusterScan(CLUSTER, ClusterView(worker)) as scan:
        await ActivityEnvironment().run(scan.release_lease, ScanRequest(cluster=CLUSTER, holder=HOLDER))


_LINE = CredentialRef(kind=CredentialKind.CONFIG_MAP, name="nodewarden", namespace="nodewarden", keys={"note": "nodewarden.yaml"})
"""A credential in a ConfigMap: any that is there."""


def _granted(rights: list[dict[str, Any]]) -> Iterator[tuple[Process, str, str, str, str]]:
    """Who may do what: group, resource, verb, and the names to which that is limited."""
    roles = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each for each in rights}
    for binding in (each for each in rights if each["kind"].endswith("Binding")):
        role = roles[binding["roleRef"]["kind"], binding["metadata"].get("namespace"), binding["roleRef"]["name"]]
        [subject] = binding["subjects"]
        process = USERS[f"system:serviceaccount:{subject['namespace']}:{subject['name']}"]
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    names = ", ".join(rule.get("resourceNames", ()))
                    yield from ((process, group, resource, verb, names) for verb in rule["verbs"])


@pytest.mark.parametrize(
    ("api", "worker", "power", "workflows"),
    [({}, Process.ALL, Process.ALL, Process.ALL), (SPLIT, Process.CLUSTER, Process.POWER, Process.WORKFLOWS)],
    indirect=["api"],
    ids=["one worker", "a worker of each kind"],
)
async def test_a_whole_episode_runs_under_the_shipped_rights_and_uses_every_one(  # noqa: PLR0917 - pytest passes them by name
    api: ApiServer,
    connections: dict[Process, ClusterConnection],
    worker: Process,
    power: Process,
    workflows: Process,
    request: pytest.FixtureRequest,
) -> None:
    """No right is missing, none is too many, and the admission policies let through all that is written on Nodes. A request that
    is refused fails this, even where its failure is only logged."""
    refused: list[str] = []
    admit = api.registry.admit

    def remember_refusal(*write: Any) -> None:
        try:
            admit(*write)
        except errors.ApiError as error:
            refused.append(error.message)
            raise

    api.registry.admit = remember_refusal
    allows = api.authorization.allows

    def remember(user: str, access: Any) -> bool:
        allowed = allows(user, access)
        if not allowed:
            refused.append(access.refusal(user))
        elif user in USERS:
            used.add((USERS[user], access.group, access.subject, access.verb))
        return allowed

    used: set[tuple[Process, str, str, str]] = set()
    api.authorization.allows = remember  # type: ignore[method-assign]
    await _whole_story(connections[worker], connections[power], api)
    for process in (worker, power, workflows):
        await connections[process].get(f"{KEYS}/nodewarden-payload-keys")  # whatever encrypts or reads histories

    granted = {each[:-1] for each in _granted(_printed(**request.node.callspec.params["api"]))}
    assert refused == []
    assert sorted(granted - used) == []


def test_the_shipped_rights_are_what_the_command_prints() -> None:
    """With all features, for workers that serve everything: one table says it, and nobody edits the file."""
    assert to_yaml(rbac()) == Path(ROOT, "deploy/rbac.yaml").read_text(encoding="utf-8")
    assert to_yaml(leases()) == Path(ROOT, "deploy/medik8s-leases.yaml").read_text(encoding="utf-8")


def test_deleting_the_rights_deletes_no_namespace_of_others() -> None:
    """`kubectl delete -f deploy/rbac.yaml` takes each Namespace in it away, with all leases of medik8s' operators."""
    assert [each["metadata"]["name"] for each in documents("deploy/rbac.yaml") if each["kind"] == "Namespace"] == ["nodewarden"]


def test_each_feature_brings_rights_of_its_own_and_only_its_own_are_missing_without_it() -> None:
    """Reading is for all; what changes objects, and Secrets, goes with what it is for."""
    everything = set(_granted(_printed(features=frozenset(Feature))))
    least = set(_granted(_printed(features=())))
    writing = {(resource, verb) for _, _, resource, verb, _ in least if verb not in {"get", "list", "watch"}}
    assert writing == {
        ("nodes", "patch"),
        ("secrets", "update"),
        ("nodeactions", "delete"),
        ("nodeactions/status", "patch"),
        *(("events", verb) for verb in ("create", "patch")),
        *(("leases", verb) for verb in ("create", "update", "delete")),
    }
    for feature in Feature:
        alone = set(_granted(_printed(features={feature})))
        assert least < alone <= everything, feature
    assert everything - set(_granted(_printed())) == {
        (Process.ALL, "", "nodes", "delete", ""),
        (Process.ALL, "authentication.k8s.io", "tokenreviews", "create", ""),
        (Process.ALL, "authorization.k8s.io", "subjectaccessreviews", "create", ""),
        *((Process.ALL, "ha.k8s.io", "nodefences", verb, "") for verb in ("get", "list", "create", "update", "delete")),
    }


@pytest.mark.parametrize("words", ["fencing,everything", "All", "*"])
def test_a_feature_that_there_is_not_is_refused_by_its_name(words: str) -> None:
    with pytest.raises(PolicyError, match="expected all or some of health-checks, fencing"):
        features_of(words.split(","))


@pytest.mark.parametrize("words", ["", "scanner", "all,power"])
def test_a_process_that_there_is_not_is_refused(words: str) -> None:
    with pytest.raises(PolicyError, match="expected all, or some of cluster, power, workflows"):
        processes_of(words.split(",") if words else ())


def test_secrets_that_are_named_are_the_only_ones() -> None:
    """S40: also those of other namespaces, which get a Role each."""
    rights = _printed(processes=(Process.POWER,), secrets=("bmc", "pdu", "metal/bmc"))
    named = {
        (role["metadata"]["namespace"], tuple(rule["resourceNames"]), tuple(rule["verbs"]))
        for role in rights
        for rule in role.get("rules", ())
        if "secrets" in rule["resources"]
    }
    assert named == {
        ("nodewarden", ("bmc", "pdu"), ("get",)),
        ("metal", ("bmc",), ("get",)),
        ("nodewarden", ("nodewarden-signing-keys", "nodewarden-payload-keys"), ("get",)),
    }
    for strange in ("*", "a/b/c", "Ä", "metal/"):
        with pytest.raises(PolicyError, match="--secrets"):
            rbac(secrets=(strange,))


KEYS = "/api/v1/namespaces/nodewarden/secrets"


@pytest.mark.parametrize("api", [SPLIT | {"features": SHIPPED - {Feature.FENCE_CONFIGMAPS}}], indirect=True)
@pytest.mark.parametrize(
    ("process", "method", "path"),
    [
        (Process.CLUSTER, "get", f"{KEYS}/bmc"),
        (Process.POWER, "get", f"{KEYS}/another"),
        (Process.POWER, "get", f"{NODES}/{SICK}"),
        (Process.POWER, "patch", f"{NODES}/{SICK}"),
        (Process.POWER, "get", "/api/v1/namespaces/nodewarden/configmaps/nodewarden"),
        (Process.POWER, "get", templates()),
        (Process.WORKFLOWS, "get", f"{KEYS}/nodewarden-signing-keys"),
        (Process.WORKFLOWS, "get", NODES),
    ],
)
async def test_a_process_with_an_account_of_its_own_may_not(process: Process, method: str, path: str, api: ApiServer) -> None:
    """S12, S40: a worker beside the BMCs touches no node, one of the cluster reads no password, and workflows need nothing."""
    async with ApiClient(ApiAddress(url=api.url, token=process.value), user_agent="worker") as client:
        with pytest.raises(ApiError) as refusal:
            await (client.get(path) if method == "get" else client.patch(path, {"metadata": {}}))
    assert refusal.value.status == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "/api/v1/namespaces/default/secrets/bmc"),
        ("get", "/api/v1/namespaces/nodewarden/secrets"),
        ("get", "/api/v1/configmaps"),
        ("delete", "/api/v1/namespaces/nodewarden/secrets/nodewarden-signing-keys"),
        ("get", "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt"),
        ("delete", f"{NODES}/{SICK}"),
        ("get", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"),
        ("delete", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-0"),
        ("delete", templates() + "/default"),
        ("get", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
        ("delete", "/api/v1/namespaces/medik8s-leases"),
    ],
)
async def test_a_worker_may_not(method: str, path: str, api: ApiServer) -> None:
    """S12 and more: other namespaces' secrets, other components' leases, nodes and policies are out of reach."""
    async with ApiClient(ApiAddress(url=api.url, token=Process.ALL.value), user_agent="worker") as client:
        with pytest.raises(ApiError) as refusal:
            await (client.get(path) if method == "get" else client.delete(path))
    assert refusal.value.status == 403


def test_rights_name_everything_and_nothing_by_wildcard() -> None:
    """A star would grant what does not exist yet."""
    for document in documents("deploy/rbac.yaml"):
        for rule in document.get("rules", ()):
            assert not {"*"} & {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}, document["metadata"]["name"]
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])


@pytest.mark.parametrize("asked", [{}, SPLIT])
def test_every_binding_binds_a_printed_role_to_a_printed_account(asked: dict[str, Any]) -> None:
    printed = _printed(**asked)
    there = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in printed}
    assert len(there) == len(printed)
    for binding in (each for each in printed if each["kind"].endswith("Binding")):
        namespace = binding["metadata"].get("namespace")
        assert (binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"]) in there
        assert [("ServiceAccount", each["namespace"], each["name"]) in there for each in binding["subjects"]] == [True]
