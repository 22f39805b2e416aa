"""A ledger from objects that were read from files: the same decoding and the same rules as for a live cluster.

Nothing is asked of any server. An object that can't be decoded is one error and holds up no other; kinds that have nothing to
do with health are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import orjson

from activities.cluster.api.leases import NODE_LEASE_NAMESPACE, is_nodewarden, read_lease
from activities.cluster.api.paths import (
    CAPI_CLUSTERS,
    CLUSTER_VERSIONS,
    DISRUPTION_BUDGETS,
    KUBEADM_CONTROL_PLANES,
    LEASES,
    MACHINE_CONFIG_POOLS,
    NODES,
    PODS,
    Resource,
)
from activities.cluster.objects.clusters_decoding import decode_cluster, decode_remediation
from activities.cluster.objects.decoding import decode_node
from activities.cluster.objects.machines_decoding import decode_machine
from activities.cluster.watch.intake import Intake
from policy.checks.fence_policies import DEFAULT_SOURCE, PolicySource
from policy.checks.health_check import HealthCheck, Overlap
from policy.checks.retries import RetryRules
from policy.dialects import is_health_check
from policy.dialects.common import DEFAULT_NAMESPACE
from policy.dialects.node_fencing import is_cluster_config, is_fence_policy
from policy.objects.surroundings import ETCD_NAMESPACE, is_guard
from policy.remediation.control_plane import read_strategy
from policy.remediation.memory import DEFAULT_RETRIES
from policy.remediation.templates import UNKNOWN, TemplateSeen
from policy.scan.ledger import Ledger
from policy.scan.outlook import OwnersRules
from policy.values.errors import PolicyError, shown
from policy.values.fields import Fields
from policy.values.machine_apis import CLUSTER_API, OPENSHIFT, machine_api
from policy.values.object_refs import ObjectRef
from policy.values.times import moment_of, written

if TYPE_CHECKING:
    from activities.cluster.api.connection import JsonObject

CLUSTER_SCOPED = frozenset({"NodeHealthCheck", "Node", "ClusterVersion", "MachineConfigPool"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestMistake:
    """One object, or one file, that can't be used. `field` "" where the whole of it is meant."""

    source: str
    message: str
    ref: ObjectRef | None = None
    field: str = ""


class ClusterSnapshot:
    """Objects of one cluster (or of a management cluster with its workload clusters) at one moment."""

    def __init__(
        self,
        now: datetime,
        *,
        overlap: Overlap = Overlap.STRICTEST,
        sees_all_nodes: bool = True,
        policies: PolicySource = DEFAULT_SOURCE,
        retries: RetryRules = DEFAULT_RETRIES,
    ) -> None:
        self.ledger = Ledger(sees_all_nodes=sees_all_nodes, overlap=overlap, retries=retries)
        self.mistakes: list[ManifestMistake] = []
        self.now = now
        """The moment by which everything is judged."""
        self.leased: dict[str, str] = {}
        """Which nodes others hold by their node lease now, each with who, and until when, in words; only to be explained."""
        self.owners: dict[str, OwnersRules] = {}
        """What KubeadmControlPlanes say of their own remediations, by namespace and name; only to be explained."""
        self.templates: dict[str, Mapping[ObjectRef, TemplateSeen]] = {}
        """What is known of the templates that each check names, by its key; nothing where nobody has looked."""
        self._intake = Intake(self.ledger, lambda: now, source=policies)
        self._others: list[tuple[JsonObject, str]] = []
        self._machines = 0
        self._fencing_source = ""

    @property
    def checks(self) -> list[HealthCheck]:
        """Those that can be used."""
        return list(self._intake.checks.values())

    def judge_templates(self) -> None:
        """Which checks can be used, by `templates`."""
        self._intake.judge_templates(lambda check, ref: self.templates.get(check.ref.key, {}).get(ref, UNKNOWN))

    def put(self, obj: JsonObject, source: str) -> None:
        """One object. A health check that was there already is taken as changed."""
        ref = _ref(obj)
        try:
            self._put(obj, ref, source)
        except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
            problem = error.problem if isinstance(error, PolicyError) else str(error)
            self.mistakes.append(ManifestMistake(source=source, ref=ref, message=f"expected a {ref.kind}: {problem[:200]}"))

    def finish(self) -> None:
        """Once everything was put: of all other objects those are remediations that some check's template makes."""
        if (mistake := self._intake.policy_mistake) is not None:
            where, _, name = mistake.subject.rpartition("/")
            ref = ObjectRef(api_version="v1", kind="ConfigMap", name=name, namespace=where.rpartition("/")[2])
            message = f"{mistake.field}: {mistake.problem}"
            self.mistakes.append(ManifestMistake(source=self._fencing_source, ref=ref, field=mistake.field, message=message))
        checks = self.checks
        for obj, source in self._others:
            try:
                remediation = decode_remediation(orjson.dumps(obj, option=orjson.OPT_NON_STR_KEYS))
            except (msgspec.DecodeError, TypeError) as error:
                kind = str(obj.get("kind"))
                if any(rung.template.kind.removesuffix("Template") == kind for check in checks for rung in check.rungs):
                    self.mistakes.append(
                        ManifestMistake(source=source, ref=_ref(obj), message=f"expected a {kind}: {str(error)[:200]}")
                    )
                continue
            if any(check.makes(remediation) for check in checks):
                self.ledger.put_remediation(remediation, self.now)

    def _put(self, obj: JsonObject, ref: ObjectRef, source: str) -> None:
        if is_cluster_config(obj) or is_fence_policy(obj):
            # Read together, once all are there: what names a policy may come before it.
            self._fencing_source = source
            self._intake.put_config_map(ref.name, obj)
            return
        if is_health_check(obj):
            mistake = self._put_check(ref, obj)
            if mistake is not None:
                self.mistakes.append(
                    ManifestMistake(source=source, ref=ref, field=mistake.field, message=f"{mistake.field}: {mistake.problem}")
                )
            return
        if not ref.name:
            raise ValueError("metadata.name: expected a name, got nothing")
        if _is(ref, KUBEADM_CONTROL_PLANES):
            self._put_owner(ref, obj, source)
            return
        if _is(ref, LEASES):
            self._put_lease(ref, obj)
            return
        reader = self._reader(ref)
        if reader is not None:
            put = reader(orjson.dumps(obj, option=orjson.OPT_NON_STR_KEYS))
            _require_moments(obj)
            put()
        elif _surrounds(ref, obj):
            self._intake.put_surrounding(ref.kind, ref.name, obj)
        else:
            self._others.append((obj, source))

    def _put_lease(self, ref: ObjectRef, obj: JsonObject) -> None:
        if ref.namespace != NODE_LEASE_NAMESPACE or not ref.name.startswith("node-"):
            return
        lease = read_lease(orjson.loads(orjson.dumps(obj, option=orjson.OPT_NON_STR_KEYS)))  # YAML has moments of its own
        if not is_nodewarden(lease.holder) and lease.live(self.now):
            until = f" until {written(lease.until)}" if lease.until is not None else ""
            self.leased[ref.name.removeprefix("node-")] = f"{lease.holder!r}{until}"

    def _put_owner(self, ref: ObjectRef, obj: JsonObject, source: str) -> None:
        try:
            rules = OwnersRules(rules=read_strategy(Fields(obj, subject=ref.key).within_or_empty("spec")))
        except PolicyError as error:
            rules = OwnersRules(problem=str(error))
            self.mistakes.append(
                ManifestMistake(source=source, ref=ref, field=error.field, message=f"{error.field}: {error.problem}")
            )
        self.owners[f"{ref.namespace}/{ref.name}"] = rules

    def _put_check(self, ref: ObjectRef, obj: JsonObject) -> PolicyError | None:
        """What only YAML can say is a mistake of its field, so it is written as something that no field takes."""
        try:
            plain = json.loads(json.dumps(obj, default=repr))
        except (TypeError, ValueError, RecursionError) as error:
            mistake = PolicyError(ref.key, "spec", f"expected what JSON can say: {error}")
            self._intake.refuse_check(ref, obj, mistake)
            return mistake
        return self._intake.put_check(ref, plain, update=True)

    def _reader(self, ref: ObjectRef) -> Callable[[bytes], Callable[[], None]] | None:
        """How such an object is decoded, and then put."""
        ledger, now = self.ledger, self.now
        if _is(ref, NODES):
            return lambda body: partial(ledger.put_node, decode_node(body), now)
        api = machine_api(ref.api_version)
        if ref.kind == "Machine" and (api is OPENSHIFT or api is CLUSTER_API):
            return lambda body: partial(ledger.put_machine, decode_machine(body, api), now)
        if _is(ref, CAPI_CLUSTERS):
            return lambda body: partial(ledger.put_cluster, decode_cluster(body), now)
        return None


def _require_moments(obj: JsonObject) -> None:
    """A scanner goes on without a moment that can't be read. In a file it is a mistake, and someone is there to be told."""
    status = obj.get("status") or {}
    conditions = enumerate(status.get("conditions") or ())
    moments = {f"status.conditions[{index}].lastTransitionTime": each.get("lastTransitionTime") for index, each in conditions}
    moments["metadata.creationTimestamp"] = obj["metadata"].get("creationTimestamp")
    moments["status.lastUpdated"] = status.get("lastUpdated")
    for path, moment in moments.items():
        if moment is not None and not isinstance(moment, datetime) and moment_of(moment) is None:
            raise ValueError(f"$.{path}: expected a moment like 2026-01-31T12:00:00Z, got {shown(moment)}")


def _surrounds(ref: ObjectRef, obj: JsonObject) -> bool:
    """Whether the object tells of an upgrade or of etcd."""
    if _is(ref, DISRUPTION_BUDGETS):
        return ref.namespace == ETCD_NAMESPACE
    return _is(ref, CLUSTER_VERSIONS) or _is(ref, MACHINE_CONFIG_POOLS) or (_is(ref, PODS) and is_guard(obj))


def _ref(obj: JsonObject) -> ObjectRef:
    metadata = obj.get("metadata")
    written = metadata if isinstance(metadata, dict) else {}
    kind = str(obj.get("kind"))
    namespace = "" if kind in CLUSTER_SCOPED else _text(written.get("namespace")) or DEFAULT_NAMESPACE
    return ObjectRef(api_version=str(obj.get("apiVersion")), kind=kind, name=_text(written.get("name")), namespace=namespace)


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else shown(value)


def _is(ref: ObjectRef, resource: Resource) -> bool:
    """Whatever the version: files outlive the one that was stored."""
    return (_group(ref.api_version), ref.kind) == (_group(resource.api_version), resource.kind)


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]
