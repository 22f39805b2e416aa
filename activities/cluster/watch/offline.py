"""A ledger from objects that were read from files: the same kinds, the same decoding and the same rules as for a live cluster.

Which kinds are read is the table of `kinds.py`. Nothing is asked of any server. An object that can't be decoded is one error and
holds up no other; kinds that have nothing to do with health are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from activities.cluster.api.lease_view import is_nodewarden, read_lease
from activities.cluster.api.paths import (
    Resource,
)
from activities.cluster.objects.decoding import OBJECT_DECODING, remediation_decoding
from activities.cluster.watch.intake import Intake
from activities.cluster.watch.kinds import Destination, Reader, ReadKind, read_by
from policy.checks.fence_policies import OF_FILES, PolicySource
from policy.checks.health_check import HealthCheck, Overlap, RetryRules
from policy.dialects import is_health_check
from policy.dialects.common import DEFAULT_NAMESPACE
from policy.remediation.control_plane import read_strategy
from policy.remediation.ladder import UNKNOWN, TemplateSeen
from policy.remediation.memory import DEFAULT_RETRIES
from policy.scan.explanation import OwnersRules
from policy.scan.ledger import Ledger
from policy.values.errors import PolicyError, shown
from policy.values.fields import Fields
from policy.values.object_refs import ObjectRef, is_object_name
from policy.values.times import moment_of, written

if TYPE_CHECKING:
    from activities.cluster.api.connection import JsonObject


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
        policies: PolicySource = OF_FILES,
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
        """What is known of the templates that each check names, by its key; nothing before they were looked at."""
        self._intake = Intake(self.ledger, lambda: now, source=policies)
        self._others: list[tuple[JsonObject, str]] = []
        self._machines = 0
        self._fencing_source = ""

    @property
    def checks(self) -> list[HealthCheck]:
        """Those that can be used."""
        return list(self._intake.checks.values())

    def judge_templates(self) -> None:
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
                decoding = remediation_decoding(str(obj.get("apiVersion")), str(obj.get("kind")))
                remediation = decoding.one(orjson.dumps(obj, option=orjson.OPT_NON_STR_KEYS)).value
            except (msgspec.DecodeError, TypeError) as error:
                kind = str(obj.get("kind"))
                if any(rung.template.kind.removesuffix("Template") == kind for check in checks for rung in check.rungs):
                    self.mistakes.append(
                        ManifestMistake(source=source, ref=_ref(obj), message=f"expected a {kind}: {str(error)[:200]}")
                    )
                continue
            if any(check.makes(remediation) for check in checks):
                self.ledger.put_remediation(remediation, self.now)

    def take(self, kind: ReadKind, key: str, view: Any) -> None:
        """One object that was decoded already."""
        self._intake.take(kind, key, view)

    def _put(self, obj: JsonObject, ref: ObjectRef, source: str) -> None:
        kind = _kind_of(ref, obj)
        if (kind is not None and kind.destination is Destination.CHECKS) or (kind is None and _is_misspelt_check(ref, obj)):
            self._put_check(ref, obj, source)
            return
        if not is_object_name(ref.name):  # it stands in commands that are shown to be copied (S41)
            raise ValueError(
                f"metadata.name: expected a name as an API server takes it, got {shown(ref.name) if ref.name else 'nothing'}"
            )
        match kind.destination if kind is not None else None:
            case None:
                self._others.append((obj, source))
            case Destination.FENCE_POLICIES:
                # Read together, once all are there: what names a policy may come before it.
                self._fencing_source = source
                self._intake.put_config_map(ref.name, obj)
            case Destination.OWNERS:
                self._put_owner(ref, obj, source)
            case Destination.NODE_LEASES:
                self._put_lease(ref, obj)
            case _:
                assert kind is not None
                item = kind.decoding.one(orjson.dumps(obj, option=orjson.OPT_NON_STR_KEYS))
                if kind.decoding is not OBJECT_DECODING:
                    _require_moments(obj)
                self._intake.take(kind, item.key, item.value)

    def _put_lease(self, ref: ObjectRef, obj: JsonObject) -> None:
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

    def _put_check(self, ref: ObjectRef, obj: JsonObject, source: str) -> None:
        """What only YAML can say is a mistake of its field, so it is written as something that no field takes."""
        try:
            plain = json.loads(json.dumps(obj, default=repr))
        except (TypeError, ValueError, RecursionError) as error:
            mistake: PolicyError | None = PolicyError(ref.key, "spec", f"expected what JSON can say: {error}")
            assert mistake is not None
            self._intake.refuse_check(ref, obj, mistake)
        else:
            mistake = self._intake.put_check(ref, plain, update=True)
        if mistake is not None:
            message = f"{mistake.field}: {mistake.problem}"
            self.mistakes.append(ManifestMistake(source=source, ref=ref, field=mistake.field, message=message))


def _require_moments(obj: JsonObject) -> None:
    """A scanner goes on without a moment that can't be read. In a file it is a mistake, which its author reads."""
    status = obj.get("status") or {}
    conditions = enumerate(status.get("conditions") or ())
    moments = {f"status.conditions[{index}].lastTransitionTime": each.get("lastTransitionTime") for index, each in conditions}
    moments["metadata.creationTimestamp"] = obj["metadata"].get("creationTimestamp")
    moments["status.lastUpdated"] = status.get("lastUpdated")
    for path, moment in moments.items():
        if moment is not None and not isinstance(moment, datetime) and moment_of(moment) is None:
            raise ValueError(f"$.{path}: expected a moment like 2026-01-31T12:00:00Z, got {shown(moment)}")


def _kind_of(ref: ObjectRef, obj: JsonObject) -> ReadKind | None:
    """The row of what is read from files, whatever its version: files outlive the one that was stored. None for all else."""
    found = (kind for kind in read_by(Reader.FILES) if _group_and_kind(kind.resource) == _group_and_kind(ref))
    return next((kind for kind in found if kind.about(obj)), None)


def _is_misspelt_check(ref: ObjectRef, obj: JsonObject) -> bool:
    """Whether its kind is that of a health check in other letters, which the reader of the check names as the mistake."""
    group, kind = _group_and_kind(ref)
    checks = (_group_and_kind(each.resource) for each in read_by(Reader.FILES) if each.destination is Destination.CHECKS)
    return any((group, kind.casefold()) == (named[0], named[1].casefold()) for named in checks) and is_health_check(obj)


def _group_and_kind(named: ObjectRef | Resource) -> tuple[str, str]:
    return named.api_version.rpartition("/")[0], named.kind


def _ref(obj: JsonObject) -> ObjectRef:
    metadata = obj.get("metadata")
    written = metadata if isinstance(metadata, dict) else {}
    kind = str(obj.get("kind"))
    cluster_scoped = any(each.resource.kind == kind and not each.resource.namespaced for each in read_by(Reader.FILES))
    namespace = "" if cluster_scoped else _text(written.get("namespace")) or DEFAULT_NAMESPACE
    return ObjectRef(api_version=str(obj.get("apiVersion")), kind=kind, name=_text(written.get("name")), namespace=namespace)


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else shown(value)
