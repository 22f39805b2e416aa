"""Random clusters as cases: a few nodes, most of them sick, with Machines of one system or none, under some health checks.

A seed draws the same one in every run. What is found by one becomes a stored case (`write.py`), or fails
`tests/policy/scan/test_offline_and_live.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from random import Random

from activities.cluster.api.lease_view import NODE_LEASE_NAMESPACE
from policy.checks.health_check import BACKOFF_ANNOTATION, MAX_RETRY_ANNOTATION, RETRY_PERIOD_ANNOTATION
from policy.dialects.machine_health_checks import STRATEGY_ANNOTATION
from policy.episode.gate import FENCING_LABEL, HOLD_ANNOTATION, TAKEN_AWAY_BY
from policy.objects.machines import EXTERNAL_REMEDIATION_ANNOTATION, PAUSED_ANNOTATION, REMEDIATE_ANNOTATION, SKIP_ANNOTATION
from policy.objects.nodes import CONTROL_PLANE_LABELS, ETCD_NAMESPACE, EXCLUDE_LABEL, ZONE_LABEL
from policy.remediation.ladder import ESCALATION_ANNOTATION, MAX_IN_FLIGHT_ANNOTATION
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION
from policy.remediation.remediation_objects import TEMPLATE_NAME_ANNOTATION, TIMED_OUT_ANNOTATION
from policy.values.mode import MODE_KEY, Mode
from tests.cases.worlds import Json, moment

MEMBER, WORKER = CONTROL_PLANE_LABELS[0], "node-role.kubernetes.io/worker"
MOSTLY_WELL, MOSTLY_SICK = ["True", "True", "True", "False", "Unknown"], ["True", "False", "Unknown", "Unknown"]
FENCES = "nodewarden.io/v1alpha1 FencingTemplate nodewarden/bmc"
DELETES = "nodewarden.io/v1alpha1 MachineDeletionTemplate nodewarden/md"
REBOOTS = "nodewarden.io/v1alpha1 RebootTemplate nodewarden/bmc"
FOREIGN = "self-node-remediation.medik8s.io/v1alpha1 SelfNodeRemediationTemplate medik8s/snr"
METAL = "infrastructure.cluster.x-k8s.io/v1beta1 Metal3RemediationTemplate machines/m3"
ASKING = {"SelfNodeRemediationTemplate", "Metal3RemediationTemplate"}
NOT_READY, DISKS = ["Ready False 10s", "Ready Unknown 10s"], ["DiskPressure True 20s"]
ANY = "pool"

OPENSHIFT = {"selector": {}, "unhealthyConditions": ["Ready Unknown 40s"], "nodeStartupTimeout": "1m", "maxUnhealthy": "100%"}
MEDIK8S = {"selector": ANY, "unhealthyConditions": NOT_READY, "minHealthy": 1, "remediationTemplate": FENCES}


def _openshift(name: str, annotations: Json | None = None, **spec: object) -> Json:
    return {"MachineHealthCheck": name, "api": "openshift", "annotations": annotations or {}, "spec": OPENSHIFT | spec}


def _cluster_api(name: str, limit: object, template: str = "", annotations: Json | None = None) -> Json:
    checks = {"unhealthyNodeConditions": ["Ready Unknown 30s", "Ready False 30s"], "nodeStartupTimeoutSeconds": 60}
    remediation = {"triggerIf": {"unhealthyLessThanOrEqualTo": limit}} | ({"templateRef": template} if template else {})
    spec = {"clusterName": "prod", "selector": ANY, "checks": checks, "remediation": remediation}
    return {"MachineHealthCheck": name, "api": "capi", "annotations": annotations or {}, "spec": spec}


def _medik8s(name: str, annotations: Json | None = None, **spec: object) -> Json:
    fields = {key: value for key, value in (MEDIK8S | spec).items() if value is not None}
    return {"NodeHealthCheck": name, "annotations": annotations or {}, "spec": fields}


OF_MACHINES = {
    "openshift": [
        _openshift("pool", selector="pool=a"),
        _openshift("fences", remediationTemplate=FENCES.replace("nodewarden/", "machines/")),
        _openshift("deletes", maxUnhealthy="60%", remediationTemplate=DELETES.replace("nodewarden/", "machines/")),
        _openshift("asks", remediationTemplate=FOREIGN.replace("medik8s/", "machines/")),
        _openshift("climbs", {ESCALATION_ANNOTATION: "fence=5m, delete-machine"}),
        _openshift("annotates", {STRATEGY_ANNOTATION: "external-baremetal"}),
    ],
    "capi": [
        _cluster_api("prod", "100%"),
        _cluster_api("prod-fences", "100%", FENCES.replace("nodewarden/", "machines/")),
        _cluster_api("prod-deletes", "80%", DELETES.replace("nodewarden/", "machines/")),
        _cluster_api("prod-climbs", "100%", annotations={ESCALATION_ANNOTATION: "reboot, request-owner"}),
        _cluster_api("prod-few", 1),
        _cluster_api("prod-asks", "100%", METAL),
    ],
}
OF_NODES = [
    _medik8s("workers", selector=f"{WORKER}=", minHealthy=None, maxUnhealthy="100%"),
    _medik8s("members", selector=f"{MEMBER}=", minHealthy=None, maxUnhealthy="100%"),
    _medik8s("anybody", minHealthy="34%", remediationTemplate=DELETES),
    _medik8s("disks", unhealthyConditions=DISKS),
    _medik8s("asks", unhealthyConditions=DISKS, remediationTemplate=FOREIGN),
    _medik8s("reboots", remediationTemplate=REBOOTS),
    _medik8s("climbs", {ESCALATION_ANNOTATION: "detach-volumes, delete-machine"}, minHealthy=None, maxUnhealthy="100%"),
    _medik8s(
        "escalates",
        minHealthy=None,
        maxUnhealthy="100%",
        remediationTemplate=None,
        escalatingRemediations=[
            {"remediationTemplate": FOREIGN, "order": 1, "timeout": "5m"},
            {"remediationTemplate": FENCES, "order": 2, "timeout": "10m"},
        ],
    ),
]
LIMITS = [
    {MODE_KEY: "observe"},
    {MODE_KEY: "drain"},
    {MAX_IN_FLIGHT_ANNOTATION: "1"},
    {MAX_RETRY_ANNOTATION: "1"},
    {BACKOFF_ANNOTATION: "exponential"},
    {RETRY_PERIOD_ANNOTATION: "10m"},
]
"""Annotations that any check may have."""
POLICIES = [
    ["name=limit percentage=60"],
    ["name=zones percentage=75 scope=zone", "name=one cap=1 scope=zone"],
    ["fencing_off=zone=b"],
    ["fencing=off"],
    ["name=limit percentage=no-number"],
    ["name=quiet quiet_time=10m max_attempts=1 attempts_pause=1h"],
    ["name=storage storage_percentage=40 storage_conditions=DiskPressure"],
    ["name=racks percentage=50 scope=pool", "name=two cap=2"],
    ["policies=skip-if-host-lost-storage"],
    ["fencing=off", "fencing_off=zone=a", "name=zones percentage=75 scope=zone"],
    ["policies=absent"],
]


def once_in(chance: Random, times: int) -> bool:
    return chance.randrange(times) == 0


def _node(chance: Random, name: str, *, member: bool) -> Json:
    labels = {"pool": chance.choice("ab"), ZONE_LABEL: chance.choice("ab")} | ({MEMBER: ""} if member else {WORKER: ""})
    labels |= {EXCLUDE_LABEL: "true"} if once_in(chance, 12) else {}
    labels |= {MODE_KEY: chance.choice([*Mode]).value} if once_in(chance, 20) else {}
    labels |= {FENCING_LABEL: chance.choice(["off", "on"])} if once_in(chance, 30) else {}
    ready = chance.choice(MOSTLY_WELL if member else MOSTLY_SICK)
    disk = chance.choice(["True", "False", "False"])
    says = {kind: f"{status} {chance.choice([5, 60, 90, 7200])}s" for kind, status in (("Ready", ready), ("DiskPressure", disk))}
    found: Json = {"Node": name, "labels": labels, "says": says, "providerID": f"sim:///{name}"}
    annotations = {HOLD_ANNOTATION: "true"} if once_in(chance, 30) else {}
    if once_in(chance, 8):
        annotations[LAST_REMEDIATION_ANNOTATION] = _memory(chance, name)
    found |= {"annotations": annotations} if annotations else {}
    found |= {"mark": "i-1"} if once_in(chance, 15) else {}
    found |= {"deleting": "1s"} if once_in(chance, 20) else {}
    return found | ({"taints": [min(TAKEN_AWAY_BY)]} if once_in(chance, 15) else {})


def _memory(chance: Random, of: str) -> str:
    failed = chance.choice([[], [], ["fence"], ["reboot"], ["delete-machine"], ["FencingTemplate/nodewarden/bmc"]])
    said = {
        "machine": of,
        "timestamp": moment(chance.choice([20, 400, 9000])),
        "retryCount": chance.choice([0, 1, 2]),
        "failed": failed,
    }
    return json.dumps(said | {"incident": "old"}) if not once_in(chance, 12) else "once upon a time"


def _machine(chance: Random, number: int, api: str, *, node: str, member: bool) -> Json:
    owner = "KubeadmControlPlane/kcp" if member and api == "capi" else "MachineSet/set"
    says = [EXTERNAL_REMEDIATION_ANNOTATION, PAUSED_ANNOTATION, SKIP_ANNOTATION, REMEDIATE_ANNOTATION]
    annotations = {each: "" for each in says if once_in(chance, 15)}
    found: Json = {"Machine": f"m{number}", "api": api, "labels": {"pool": chance.choice("ab")}, "age": f"{9999 + number}s"}
    if member:
        role = {
            "openshift": {"machine.openshift.io/cluster-api-machine-role": "master"},
            "capi": {"cluster.x-k8s.io/control-plane": ""},
        }
        found["labels"] |= role[api]
    found |= {"cluster": "prod"} if api == "capi" else {"updated": f"{chance.choice([30, 90, 9999])}s"}
    found |= {"annotations": annotations} if annotations else {}
    found |= {"phase": "Failed"} if once_in(chance, 3 if member else 6) else {"phase": "Running"}
    found |= {"deleting": "1s"} if once_in(chance, 15) else {}
    found |= {"providerID": f"sim:///{node}"} if once_in(chance, 2) else {}
    found |= {} if once_in(chance, 15 if member else 5) else {"node": node}
    controller = chance.choice([owner, owner, owner, "", "Strange/owner"])
    return found | ({"owner": controller} if controller else {})


def _fence_policies(chance: Random) -> list[Json]:
    """A cluster's configuration that only holds fencing back, and the policies that it names."""
    own, policies = list[str](), list[Json]()
    for line in chance.choice(POLICIES):
        if not line.startswith("name="):
            own.append(line)
            continue
        name, *rest = line.removeprefix("name=").split()
        policies.append({"ConfigMap": f"fence-policy-{name}", "data": {"config.properties": [f"policy_name={name}", *rest]}})
    own += [f"policies={' '.join(each['ConfigMap'].removeprefix('fence-policy-') for each in policies)}"] if policies else []
    return [{"ConfigMap": "fence-cluster-config", "data": {"config.properties": own}}, *policies]


def _remediations(chance: Random, checks: Iterable[Json], names: Sequence[str]) -> Iterator[Json]:
    """Remediation objects in flight: of these checks, of another one, of nothing; followed, failed, given up or left over."""
    templates = {
        template
        for check in checks
        for rung in [check["spec"], check["spec"].get("remediation", {}), *check["spec"].get("escalatingRemediations", ())]
        for template in [rung.get("remediationTemplate"), rung.get("templateRef")]
        if template and template.split()[1] in ASKING
    }
    for template in sorted(templates):
        version, kind, where = template.split()
        namespace, made_by = where.split("/")
        for name in chance.sample(names, min(len(names), chance.choice([0, 1, 1, 2]))):
            found: Json = {kind.removesuffix("Template"): name, "api": version, "namespace": namespace}
            found["age"] = f"{chance.choice([30, 400, 9000])}s"
            maker = chance.choice([*checks, *checks, *checks, {"NodeHealthCheck": "other"}, {}])
            if maker:
                [(its_kind, its_name), *_] = maker.items()
                found["owners"] = [{"kind": its_kind, "name": its_name, "uid": f"uid-of-{its_name}"}]
            if api := maker.get("api"):
                found["owners"].append({"kind": "Machine", "name": name, "uid": f"uid-of-{name}", "api": api})
            annotations = {TEMPLATE_NAME_ANNOTATION: made_by} if once_in(chance, 2) else {}
            annotations |= {TIMED_OUT_ANNOTATION: moment(chance.choice([5, 900]))} if once_in(chance, 5) else {}
            found |= {"annotations": annotations} if annotations else {}
            found |= {"deleting": "1s"} if once_in(chance, 8) else {}
            says = chance.choice([{}, {}, {"Processing": "True"}, {"Succeeded": "True 20s"}, {"Succeeded": "False 20s"}])
            yield found | ({"says": says} if says else {})


def _leases(chance: Random, names: Iterable[str]) -> Iterator[Json]:
    """Node leases of ours and of others, held, lapsed, or without an end."""
    for name in names:
        if once_in(chance, 5):
            holder = chance.choice(["node-maintenance", "node-maintenance", "other-nhc", "nodewarden/a"])
            spec = {"holderIdentity": holder, "renewTime": chance.choice(["10s ago", "9000s ago"]), "leaseDurationSeconds": 600}
            spec.pop(chance.choice(["leaseDurationSeconds", "none", "none"]), None)
            yield {"Lease": f"node-{name}", "namespace": NODE_LEASE_NAMESPACE, "spec": spec}


def _etcd(chance: Random, members: Iterable[str]) -> Iterator[Json]:
    """OpenShift's guard of etcd: the budget that its operator keeps, and a pod on each member."""
    for number in range(chance.choice([0, 1, 1, 1, 1, 2])):
        allowed = {"disruptionsAllowed": chance.choice([0, 0, 1])}
        yield {"PodDisruptionBudget": f"etcd-guard-{number}", "namespace": ETCD_NAMESPACE, "status": allowed}
    for name in members:
        if not once_in(chance, 5):
            says = {"Ready": chance.choice(["True", "True", "False", "Unknown"])}
            yield {"Pod": f"etcd-guard-{name}", "namespace": ETCD_NAMESPACE, "spec": {"nodeName": name}, "says": says}


def drawn(seed: int, *, scanner: bool = False) -> Json:
    """The case without its decisions. scanner: with permits, a pause or a stale view now and then."""
    chance, more = Random(seed), Random(f"objects of {seed}")
    scan: Json = {"overlap": "independent"} if once_in(chance, 6) else {}
    api = chance.choice([None, "openshift", "capi"])
    members = chance.choice([0, 1, 2, 3, 3, 5])
    given = list[Json]()
    numbers = members + chance.randint(1, 4)
    for number in range(numbers):
        member, name = number < members, f"n{number}"
        if not once_in(chance, 25 if member else 7):
            given.append(_node(chance, name, member=member))
        if api is not None and not once_in(chance, 6):
            given.append(_machine(chance, number, api, node=name, member=member))
    if api == "capi":
        began = "False" if once_in(chance, 10) else "True"
        paused = {"spec": {"paused": True}} if once_in(chance, 25) else {}
        given.append({"Cluster": "prod", "says": {"ControlPlaneInitialized": began, "InfrastructureReady": "True"}} | paused)
    mine = OF_MACHINES.get(api or "", [])
    for check in (*chance.sample(mine, min(len(mine), chance.randint(0, 2))), *chance.sample(OF_NODES, chance.randint(1, 3))):
        annotations = check["annotations"] | (chance.choice(LIMITS) if once_in(chance, 6) else {})
        given.append(
            check | {"annotations": annotations} if annotations else {k: v for k, v in check.items() if k != "annotations"}
        )
    checks = [each for each in given if any(key.endswith("HealthCheck") for key in each)]
    names = [f"n{number}" for number in range(numbers)]
    on_machines = [each["Machine"] for each in given if "Machine" in each]
    given += _fence_policies(chance) if once_in(chance, 4) else []
    given += _remediations(more, checks, [*names, *on_machines]) if once_in(more, 2) else []
    given += _leases(more, names) if once_in(more, 4) else []
    given += _etcd(more, names[:members]) if api != "capi" and members and once_in(more, 4) else []
    if once_in(chance, 25):
        given.append({"ClusterVersion": "version", "says": {"Progressing": "True"}})
    if once_in(more, 20):
        scan["missing"] = ["medik8s/snr"]  # a template that its checks name
    if once_in(chance, 8):
        scan["modes"] = chance.choice(
            [{"all": "observe"}, {"all": "observe", "pool=a": "repair"}, {"n0": "cordon", "pool=b": "drain"}]
        )
    if scanner:
        scan |= chance.choice([{}, {}, {}, {"cap": 1}, {"cap": 2, "permits": {"n1": "open"}}, {"permits": {"n2": "parked"}}])
        scan |= {chance.choice(["paused", "stale"]): "ada: at work"} if once_in(chance, 15) else {}
    return {"given": given} | ({"scan": scan} if scan else {})
