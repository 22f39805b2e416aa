"""Objects as people and controllers write them, one of each kind that is read: what is right before it is made strange."""

from __future__ import annotations

from typing import Any

import yaml

from activities.cluster.api import paths
from activities.cluster.api.paths import MACHINE_DEPLOYMENTS, MACHINES, Resource
from policy.objects.marks import MARK_ANNOTATION, MARK_LABEL, Mark, digest_of
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.requests import ISOLATE_ANNOTATION, PRESERVE_FOR_ANNOTATION
from policy.values.machine_apis import CLUSTER_API, MCM, OPENSHIFT
from tests.cluster.fencing_requests import remediation
from tests.policy.builders import WORKER, a_cluster_config, a_policy, check_object, config_map
from tests.policy.dialects import test_bad_objects as dialects
from tests.policy.fence.test_own_objects import an_object
from tests.policy.fence.test_templates import template
from tests.vectors.objects import moment

Json = dict[str, Any]

NODE = "node-1"


def flow(text: str) -> Json:
    """From YAML. M: an hour ago."""
    found: Json = yaml.load(text.replace("M,", f"'{moment(3600)}',"), yaml.CSafeLoader)
    return found


OWNER = flow("{kind: NodeHealthCheck, name: workers, uid: uid-of-workers, controller: true}")
CONDITION = flow("{type: Ready, status: Unknown, lastTransitionTime: M, reason: r, message: m}")
STATUS = {
    "conditions": [CONDITION, CONDITION | {"type": "Disabled"}, CONDITION | {"type": "StormActive", "status": "True"}],
    "unhealthyNodes": [{"name": NODE, "remediations": [{"resource": OWNER, "started": moment(60)}]}],
    "inFlightRemediations": {NODE: moment(60)},
    "v1beta2": {"conditions": [CONDITION]},
    "deprecated": {"v1beta1": {"conditions": [CONDITION], "failureReason": "f", "failureMessage": "m"}},
}
OF_MACHINES = flow("{currentStatus: {phase: Failed, preserveExpiryTime: M, x: 1}, lastOperation: {description: d}, node: node-1}")
KEPT = {PRESERVE_ANNOTATION: "now", PRESERVE_FOR_ANNOTATION: "24h", ISOLATE_ANNOTATION: "true"}
MARK = Mark(incident="i", kind="Fencing", workflow_id="w", cordoned=True, taints=("k=v:NoSchedule",)).to_json()


def named(document: Json, status: Json | None = None, **metadata: Any) -> Json:
    """With what an API server adds, and with a status where one is given."""
    added = flow("{uid: u, resourceVersion: '7', generation: 1, creationTimestamp: M, x: y}")
    added["managedFields"] = [{"manager": "somebody", "subresource": "status", "time": moment(5)}]
    told = {"status": document.get("status", {}) | status} if status else {}
    return document | told | {"metadata": added | document["metadata"] | metadata}


def a_node(name: str = NODE) -> Json:
    node = flow("""
    {apiVersion: v1, kind: Node, spec: {providerID: p, unschedulable: true, taints: [{key: k, effect: NoSchedule, value: v}]},
     status: {nodeInfo: {bootID: b, systemUUID: s}, addresses: [{type: InternalIP, address: 10.0.0.7}]}}""")
    node["metadata"] = {"name": name, "labels": {WORKER: "", "x/rack": "r", MARK_LABEL: digest_of(MARK)}}
    return named(node, {"conditions": [CONDITION]}, annotations={MARK_ANNOTATION: MARK} | KEPT)


def a_machine(dialect: str) -> Json:
    hook = {"pre-drain.delete.hook.machine.cluster.x-k8s.io/x": "y"}
    machine = named(dialects.a_machine_object(dialect, NODE), STATUS | OF_MACHINES, annotations=KEPT | hook)
    hooks = flow("{providerID: p, lifecycleHooks: {preDrain: [{name: n, owner: o}]}, machinePreserveTimeout: 96h}")
    return machine | {"spec": machine.get("spec", {}) | hooks | {"providerSpec": {"value": {"x": 1}}}}


def tells(kind: str, condition: str) -> Json:
    return named({"kind": kind, "metadata": {"name": "x"}}, {"conditions": [CONDITION | {"type": condition, "status": "True"}]})


A_SET = named(
    flow("""
    {metadata: {name: set, namespace: machines, annotations: {deployment.kubernetes.io/revision: '3'}},
     spec: {replicas: 3, autoPreserveFailedMachineMax: 1,
            template: {metadata: {labels: {a: b}}, spec: {machinePreserveTimeout: 1h}}}}"""),
    ownerReferences=[OWNER],
)
A_LEASE = named(
    flow("""
    {metadata: {name: lease, namespace: medik8s},
     spec: {holderIdentity: m, leaseDurationSeconds: 15, renewTime: '2026-11-21T11:59:59.000000Z', leaseTransitions: 3}}""")
)
A_POOL = named(
    flow("""
    {metadata: {name: pool}, spec: {selector: {matchLabels: {a: b}}, zones: [z], settleTime: 5s, isolate: true,
                                    autoPreserveFailedMax: 2, machinePreserveTimeout: 72h}}""")
)
A_VOLUME = named(flow("{metadata: {name: v}, spec: {nodeName: node-1, attacher: a, source: {persistentVolumeName: pv}}}"))
A_POD = named(
    flow("{metadata: {name: p, namespace: n}, spec: {nodeName: node-1, volumes: [{persistentVolumeClaim: {claimName: c}}]}}")
)

METHOD = "agent_name=fence_ipmilan\nip=10.0.0.7\naction=off\nlogin=env:USER\npassword=file:nodewarden/bmc/password"
OF_NODE = config_map(
    f"fence-config-node-{NODE}",
    "isolation=cut\npower_management=off on\nrecovery=",
    **{"fence-method-off": METHOD, "fence-method-on": METHOD.replace("off", "on")},
    **{"fence-method-cut": "agent_name=fence_brocade\ntemplate=sw\nplug=3"},
)
SWITCH = config_map("fence-template-sw", None, **{"template.properties": "agent_name=fence_brocade\nipaddr=10.0.0.8"})
CLUSTER_CONFIG = a_cluster_config(grace_timeout=30, giveup_retries=2, policies="racks skip-if-host-lost-storage")
OWN_CONFIG = an_object(NODE, nodeName=NODE)
TEMPLATE = named(template())

WATCHED: list[tuple[Resource, Json]] = [
    (paths.NODES, a_node()),
    (paths.NODE_HEALTH_CHECKS, named(check_object("workers"), STATUS)),
    (paths.OPENSHIFT_MACHINE_HEALTH_CHECKS, named(dialects.a_machine_check(dialects.OPENSHIFT, "mhc"), STATUS)),
    (paths.CAPI_MACHINE_HEALTH_CHECKS, named(dialects.a_machine_check(dialects.SECOND, "mhc"), STATUS)),
    (paths.CAPI_MACHINE_HEALTH_CHECKS, named(dialects.a_machine_check(dialects.FIRST, "old"), STATUS)),
    (paths.CONFIG_MAPS, CLUSTER_CONFIG),
    (paths.CONFIG_MAPS, a_policy("racks", scope="x/rack", cap=1)),
    (paths.FENCE_AGENTS_REMEDIATIONS, named(remediation(NODE), STATUS)),
    (MACHINES[OPENSHIFT], a_machine(dialects.OPENSHIFT)),
    (MACHINES[CLUSTER_API], a_machine(dialects.SECOND)),
    (MACHINES[MCM], a_machine(dialects.OPENSHIFT)),
    (MACHINE_DEPLOYMENTS[MCM], A_SET),
    (paths.CAPI_CLUSTERS, named(dialects.a_cluster_object(dialects.SECOND))),
    (paths.PRESERVATION_POLICIES, A_POOL),
    (paths.CLUSTER_VERSIONS, tells("ClusterVersion", "Progressing")),
    (paths.MACHINE_CONFIG_POOLS, tells("MachineConfigPool", "Updating")),
    (paths.LEASES, A_LEASE),
    (paths.VOLUME_ATTACHMENTS, A_VOLUME),
]
"""What a scanner follows."""
