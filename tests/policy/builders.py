"""Small honest builders: complete objects with unremarkable values, so that a test says only what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from policy.checks.health_check import HealthCheck
from policy.checks.inventory import ControlPlane
from policy.checks.rules import rules_of
from policy.checks.verdict import JudgedTarget, Verdict
from policy.dialects import parse
from policy.episode.fencing_requests import FencingRequest
from policy.episode.gate import MODE
from policy.episode.messages import EpisodeResult, Kind, Outcome, Pinned, RestartProof, SeenNode
from policy.episode.permits import Permit, PermitState
from policy.fence.config import FenceConfig, Method
from policy.fence.configmap_methods import ConfigMap, Found, LookupKind, ObjectLookup, ObjectName
from policy.fence.configmaps import read_config_maps
from policy.fence.plan import FencingPlan
from policy.fence.plan_compiler import compile_config
from policy.fence.template_reader import read_fencing_template
from policy.history.comparison import RecordedSpell
from policy.history.spells import Ending, HeldSpan, NodeDays, Spell
from policy.objects.machines import MachineView, WorkloadCluster
from policy.objects.marks import digest_of
from policy.objects.nodes import MARK_ANNOTATION, MARK_LABEL, Condition, NodeView, Taint
from policy.objects.remediations import RemediationObject
from policy.preservation.keep_or_release import Effects
from policy.preservation.machine_snapshot import CONDITION, TAINT, Held
from policy.scan.ledger import Ledger
from policy.scan.scan_report import Candidate, CheckReport, ClusterLease, ReportParts, ScanReport, ViewState
from policy.values.machine_apis import named
from policy.values.mode import Mode
from policy.values.object_refs import FENCE_NAMESPACE, Dialect, ObjectRef

# Marks on nodes as we write them: an annotation, and the label that makes it ours.


def confirmed(annotations: Mapping[str, str]) -> dict[str, str]:
    """The label that makes the mark among these annotations ours; none where there is no mark."""
    return {MARK_LABEL: digest_of(annotations[MARK_ANNOTATION])} if MARK_ANNOTATION in annotations else {}


def mark_metadata(value: str) -> dict[str, Any]:
    """For a patch that puts this mark on a node."""
    annotations = {MARK_ANNOTATION: value}
    return {"annotations": annotations, "labels": confirmed(annotations)}


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WORKER = "node-role.kubernetes.io/worker"
TEMPLATE = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "FencingTemplate", "name": "bmc", "namespace": "nodewarden"}


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def check_object(name: str = "workers", **spec: object) -> dict[str, object]:
    """A NodeHealthCheck as decoded JSON; keywords replace fields of its spec, None removes one."""
    fields: dict[str, object] = {
        "selector": {"matchLabels": {WORKER: ""}},
        "minHealthy": "51%",
        "unhealthyConditions": [
            {"type": "Ready", "status": "False", "duration": "10s"},
            {"type": "Ready", "status": "Unknown", "duration": "10s"},
        ],
        "remediationTemplate": TEMPLATE,
    } | spec
    return {
        "apiVersion": "remediation.medik8s.io/v1alpha1",
        "kind": "NodeHealthCheck",
        "metadata": {"name": name, "uid": f"uid-of-{name}", "generation": 1},
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


def a_check(name: str = "workers", **spec: object) -> HealthCheck:
    return parse(check_object(name, **spec))


def a_node(
    name: str = "node-1",
    ready: str = "True",
    age: float = 3600,
    *,
    labels: Mapping[str, str] | None = None,
    mark: str = "",
    conditions: tuple[Condition, ...] | None = None,
    **fields: object,
) -> NodeView:
    """A worker that has said `ready` for `age` seconds; `mark` is the incident of an episode's mark."""
    values: dict[str, object] = {
        "uid": f"uid-of-{name}",
        "provider_id": f"sim:///{name}",
        "boot_id": f"boot-1-of-{name}",
        "system_uuid": f"SYSTEM-{name}",
        "annotations": {MARK_ANNOTATION: mark_text(mark)} if mark else {},
    } | fields
    annotations: Any = values["annotations"]
    return NodeView(
        name=name,
        labels={**({WORKER: ""} if labels is None else labels), **confirmed(annotations)},
        conditions=(Condition(type="Ready", status=ready, since=ago(age)),) if conditions is None else conditions,
        **values,  # type: ignore[arg-type]
    )


def judged(check: HealthCheck, node: NodeView, now: datetime = NOW) -> Verdict:
    """What the check thinks of a node that it covers."""
    return rules_of(check).judge(JudgedTarget(node.name, node=node), now)


Thing = NodeView | MachineView | WorkloadCluster | RemediationObject | FencingRequest | HealthCheck


def put(ledger: Ledger, thing: Thing, now: datetime = NOW) -> None:
    match thing:
        case NodeView():
            ledger.put_node(thing, now)
        case MachineView():
            ledger.put_machine(thing, now)
        case WorkloadCluster():
            ledger.put_cluster(thing, now)
        case RemediationObject():
            ledger.put_remediation(thing, now)
        case FencingRequest():
            ledger.put_request(thing)
        case HealthCheck():
            ledger.put_check(thing)


def ledger_of(*things: Thing, now: datetime = NOW) -> Ledger:
    """One that has been told these in this order."""
    ledger = Ledger()
    for thing in things:
        put(ledger, thing, now)
    return ledger


def mark_text(incident: str) -> str:
    return f'{{"incident": "{incident}", "kind": "Fencing", "workflow_id": "episode/c/n"}}'


def check_ref(name: str = "workers") -> ObjectRef:
    return ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name=name)


def a_candidate(node: str = "node-1", age: float = 60, check: str = "workers", **fields: object) -> Candidate:
    values: dict[str, object] = {
        "uid": f"uid-of-{node}",
        "provider_id": f"sim:///{node}",
        "since": ago(age),
        "reason": "ReadyUnknown",
        "message": "Ready is Unknown",
        "ready": False,
    } | fields
    return Candidate(node=node, check=check_ref(check), **values)  # type: ignore[arg-type]


def a_check_report(name: str = "workers", **fields: object) -> CheckReport:
    values: dict[str, object] = {"total": 12, "healthy": 10, "unhealthy": 2, "remaining": 3, "allowed": True} | fields
    return CheckReport(ref=check_ref(name), **values)  # type: ignore[arg-type]


def a_report(*candidates: Candidate, **fields: object) -> ScanReport:
    values: dict[str, object] = {
        "checks": (a_check_report(),),
        "view": ViewState(synced=True),
        "lease": ClusterLease(held=True),
        "control_plane": ControlPlane(members=3, ready=3),
    } | fields
    return ScanReport(digest="d", at=NOW, resource_version="1", inventory=12, candidates=candidates, **values)  # type: ignore[arg-type]


def a_permit(node: str, state: PermitState = PermitState.OPEN, **fields: object) -> Permit:
    values: dict[str, object] = {
        "workflow_id": f"episode/c/{node}",
        "incident": f"incident-{node}",
        "kind": Kind.FENCING,
        "granted_at": ago(30),
        "node_uid": f"uid-of-{node}",
        "provider_id": f"sim:///{node}",
    } | fields
    return Permit(node=node, state=state, **values)  # type: ignore[arg-type]


def pinned(**fields: object) -> Pinned:
    values: dict[str, object] = {
        "node": "node-1",
        "uid": "uid-1",
        "provider_id": "sim:///1",
        "system_uuid": "4C4C-AA",
        "boot_id": "boot-1",
        "endpoints": ("ipmi://10.0.0.1:623",),
    } | fields
    return Pinned(**values)  # type: ignore[arg-type]


def seen(**fields: object) -> SeenNode:
    values: dict[str, object] = {
        "node": "node-1",
        "uid": "uid-1",
        "provider_id": "sim:///1",
        "system_uuid": "4C4C-AA",
        "boot_id": "boot-1",
        "ready": True,
    } | fields
    return SeenNode(**values)  # type: ignore[arg-type]


# ConfigMaps as people write them, and the reader run on them.

NODE = "n1"

PDU = {"template.properties": "agent_name=fence_eaton_snmp\nip=10.0.0.9\nport=7\nsnmp_version=3"}
SWITCH = {"template.properties": "agent_name=fence_brocade\nipaddr=10.0.0.8"}
SECRETS: Mapping[str, tuple[str, ...]] = {}


def lines(**values: str) -> str:
    return "\n".join(f"{key}={value}" for key, value in values.items())


def node(name: str = NODE, *, provider_id: str = "", **labels: str) -> NodeView:
    return a_node(name, provider_id=provider_id, labels=labels)


def lookup(
    objects: Mapping[str, Mapping[str, object]], secrets: Mapping[str, tuple[str, ...]] = SECRETS, *, complete: bool = True
) -> ObjectLookup:
    """Every object of the namespace `default`, by name."""
    found: dict[ObjectName, Found] = {
        ObjectName(kind=LookupKind.CONFIG_MAP, name=name): ConfigMap(name=name, namespace="default", data=data)
        for name, data in objects.items()
    }
    found |= {ObjectName(kind=LookupKind.SECRET, name=name): keys for name, keys in secrets.items()}
    return ObjectLookup("default", found, complete=complete)


def read(
    objects: Mapping[str, Mapping[str, object]], secrets: Mapping[str, tuple[str, ...]] = SECRETS, *, of: NodeView | None = None
) -> FenceConfig:
    return read_config_maps(of or node(), lookup(objects, secrets))


def ipmi(**more: str) -> str:
    """A method that names a BMC of its own, with credentials that are elsewhere."""
    elsewhere = {"username": "env:NODEWARDEN_CREDENTIAL_USER", "password": "env:NODEWARDEN_CREDENTIAL_PASS"}
    return lines(**({"agent_name": "ipmi", "ip": "10.0.0.1", **elsewhere} | more))


def config(isolation: str = "", power: str = "off on", recovery: str = "", **methods: str) -> dict[str, object]:
    """The data of a fence-config ConfigMap; `off` and `on` switch the node's BMC unless they are given."""
    defined = {"off": ipmi(action="off"), "on": ipmi(action="on")} | methods
    listed = {*isolation.split(), *power.split(), *recovery.split()}
    text = lines(isolation=isolation, power_management=power, recovery=recovery)
    return {"config.properties": text, **{f"fence-method-{name}": text for name, text in defined.items() if name in listed}}


def of_node(*args: str, **methods: str) -> FenceConfig:
    """What is read from a node's own configuration."""
    return read({f"fence-config-node-{NODE}": config(*args, **methods)})


def only(methods: tuple[Method, ...]) -> Method:
    (method,) = methods
    return method


# Racks of nodes, and the ConfigMaps in which the node-fencing proposal writes policies.

RACK = "topology.example/rack"


def config_map(name: str, properties: str | None, *, namespace: str = FENCE_NAMESPACE, **data: str) -> dict[str, object]:
    """A ConfigMap as an API server answers it."""
    written = data if properties is None else {"config.properties": properties, **data}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": written}


def a_cluster_config(**keys: object) -> dict[str, object]:
    return config_map("fence-cluster-config", policy_lines(keys))


def a_policy(name: str, **keys: object) -> dict[str, object]:
    return config_map(f"fence-policy-{name}", policy_lines({"policy_name": name} | keys))


def policy_lines(keys: Mapping[str, object]) -> str:
    return "\n".join(f"{key}={value}" for key, value in keys.items())


def in_rack(name: str, rack: str | None, ready: str = "True", age: float = 3600, **labels: str) -> NodeView:
    """A worker in a rack; None: nobody said in which."""
    return a_node(name, ready, age, labels={WORKER: "", **({RACK: rack} if rack is not None else {}), **labels})


def racks(number: int, size: int) -> list[NodeView]:
    """Healthy racks r0, r1 and so on, with nodes r0-0, r0-1 and so on."""
    return [in_rack(f"r{rack}-{place}", f"r{rack}") for rack in range(number) for place in range(size)]


def tolerant_check() -> HealthCheck:
    """A check that has nothing against acting, so that only the policies can."""
    return a_check(minHealthy="0%")


def tolerant_ledger(nodes: Iterable[NodeView], *checks: HealthCheck) -> Ledger:
    return ledger_of(*(checks or (tolerant_check(),)), *nodes)


def report_of(parts: ReportParts) -> ScanReport:
    """What a live scan would make of the ledger's parts."""
    return ScanReport(
        digest="d",
        at=NOW,
        resource_version="1",
        inventory=parts.inventory,
        view=ViewState(synced=True),
        lease=ClusterLease(held=True),
        checks=parts.checks,
        candidates=parts.candidates,
        candidates_left_out=parts.candidates_left_out,
        seen_nodes=parts.seen_nodes,
        control_plane=parts.control_plane,
        policies=parts.policies,
        groups=parts.groups,
    )


def plan_of_template(obj: Mapping[str, object], node: NodeView, *, taint_honoured: bool = True) -> FencingPlan:
    """What an episode of that node carries out where this is its template."""
    return compile_config(read_fencing_template(obj).of(node), taint_honoured=taint_honoured)


# Machines, their Clusters, and the health checks over them, for tests of what only Machines have.

NAMESPACE = "machines"
FOREIGN = {"apiVersion": "self-node-remediation.medik8s.io/v1alpha1", "kind": "SelfNodeRemediationTemplate", "name": "snr"}


def openshift_object(name: str, **spec: object) -> dict[str, Any]:
    """A MachineHealthCheck as decoded JSON; keywords replace fields of its spec, None removes one."""
    fields: dict[str, object] = {
        "selector": {"matchLabels": {"pool": "a"}},
        "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "timeout": "40s"}],
        "nodeStartupTimeout": "1m",
        "maxUnhealthy": "60%",
    } | spec
    return {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineHealthCheck",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


def openshift(name: str, **spec: object) -> HealthCheck:
    """Of Machines that must be Ready for 40 s, and have a Node within a minute."""
    return parse(openshift_object(name, **spec))


def cluster_api(
    name: str, cluster: str = "prod", limit: object = "60%", template: object = None, **checks: object
) -> HealthCheck:
    """Of Machines whose Node must be Ready for 30 s, and that have one within a minute."""
    fields: dict[str, object] = {
        "unhealthyNodeConditions": [
            {"type": "Ready", "status": "Unknown", "timeoutSeconds": 30},
            {"type": "Ready", "status": "False", "timeoutSeconds": 30},
        ],
        "nodeStartupTimeoutSeconds": 60,
    } | checks
    remediation: dict[str, object] = {"triggerIf": {"unhealthyLessThanOrEqualTo": limit}}
    if template is not None:
        remediation["templateRef"] = template
    return parse(
        {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "MachineHealthCheck",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "clusterName": cluster,
                "selector": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
                "checks": {key: value for key, value in fields.items() if value is not None},
                "remediation": remediation,
            },
        }
    )


def a_machine(name: str = "m1", dialect: Dialect = Dialect.CLUSTER_API, **fields: object) -> MachineView:
    values: dict[str, object] = {
        "labels": {"pool": "a"},
        "created": ago(9999),
        "last_updated": ago(9999),
        "node_name": "n1",
        "cluster_name": "prod" if dialect is Dialect.CLUSTER_API else "",
        "controller": "MachineSet/set",
    } | fields
    return MachineView(api=named(dialect), namespace=NAMESPACE, name=name, **values)  # type: ignore[arg-type]


PROD = WorkloadCluster(namespace=NAMESPACE, name="prod", control_plane_initialized=True, infrastructure_ready=True)


# Spells, node-days and ended repairs, as a scanner and its episodes record them.

CHECK = "NodeHealthCheck/workers"
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
"""When spells of these tests are due, if they say nothing else."""
TIMEOUT = timedelta(minutes=5, seconds=1)


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def held(code: str, since: datetime, until: datetime | None = None) -> HeldSpan:
    return HeldSpan(code=code, message=f"{code} holds it", since=since, until=until)


def spell(
    node: str = "node-7", *, lasted: timedelta | None = timedelta(minutes=3), ending: Ending | None = None, **fields: Any
) -> Spell:
    """Observed, and back by itself so long after it was due; lasted None: it goes on."""
    due: datetime = fields.pop("due", NOON)
    ended = due + lasted if lasted is not None else None
    found = Spell(
        node=node,
        check=CHECK,
        cause="ReadyUnknown",
        since=due - TIMEOUT,
        due=due,
        mode=Mode.OBSERVE,
        held=(held(MODE, due, ended),),
        ended=ended,
        ending=(ending or Ending.CAME_BACK) if ended is not None else None,
    )
    return replace(found, **fields)


def recorded(*spells: Spell) -> tuple[RecordedSpell, ...]:
    return tuple(RecordedSpell(spell=each, workflow_id=f"observation/prod/{each.node}/{each.due.isoformat()}") for each in spells)


def node_days(days: float, day: str = "2026-11-28", mode: Mode = Mode.OBSERVE) -> NodeDays:
    return NodeDays(day=day, check=CHECK, mode=mode, seconds=days * 86400)


def repaired(node: str, ended: datetime, *, took: timedelta = timedelta(minutes=6), **fields: Any) -> EpisodeResult:
    """By a restart that a check had asked for."""
    found = EpisodeResult(
        outcome=Outcome.RECOVERED,
        incident=f"i-{node}-{ended:%d%H%M}",
        cluster="prod",
        node=node,
        message="",
        started=ended - took,
        ended=ended,
        restart_proof=RestartProof(boot_id="b2", previous_boot_id="b1", seen_at=ended),
        check=CHECK,
        cause="ReadyUnknown",
    )
    return replace(found, **fields)


# What a decision about a machine writes, carried out on the snapshot instead of on objects.


def carried_out(held: Held, found: Effects) -> Held:
    """The objects once that was written; a drain goes well."""
    annotations = {key: value for key, value in (dict(held.annotations) | dict(found.machine)).items() if value is not None}
    after = replace(held, annotations=annotations, expiry=found.expiry if found.expiry_differs else held.expiry)
    if held.node is None:
        assert not found.node
        assert found.taint is None
        assert found.condition is None
        return after
    there = {key: value for key, value in (dict(held.node.annotations) | dict(found.node)).items() if value is not None}
    taints = tuple(taint for taint in held.node.taints if taint.key != TAINT or found.taint is not False)
    if found.taint:
        taints = (*taints, Taint(key=TAINT, effect="NoSchedule"))
    conditions = held.node.conditions
    if found.condition is not None:
        said = Condition(type=CONDITION, **{field: getattr(found.condition, field) for field in ("status", "reason", "message")})
        conditions = (*(each for each in conditions if each.type != CONDITION), said)
    return replace(after, node=replace(held.node, annotations=there, taints=taints, conditions=conditions))
