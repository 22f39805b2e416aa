"""What each kind of object is to a ledger: one way in, for the watches of a live cluster and for files alike.

Health checks go through `policy/dialects`; a bad one is put as bad, never dropped. What tells of upgrades and of etcd is folded
into one `Surroundings`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from activities.cluster.connection import JsonObject
from activities.cluster.paths import (
    CLUSTER_VERSIONS,
    DISRUPTION_BUDGETS,
    MACHINE_CONFIG_POOLS,
    PODS,
    Resource,
)
from policy.dialects import parse, refuse_update
from policy.errors import PolicyError
from policy.healthcheck import HealthCheck, ObjectRef
from policy.ledger import Ledger
from policy.surroundings import ETCD_NAMESPACE, EtcdGuard, Surroundings

GUARD_LABEL = ("app", "guard")
GUARD_PREFIXES = ("etcd-guard-", "etcd-quorum-guard-")

SURROUNDING_KINDS: tuple[Resource, ...] = (CLUSTER_VERSIONS, MACHINE_CONFIG_POOLS)
"""What is watched to learn of upgrades."""


class Intake:
    """Feeds one ledger. `clock` is asked for the moment at which something was heard."""

    def __init__(self, ledger: Ledger, clock: Callable[[], datetime]) -> None:
        self.ledger = ledger
        self.objects: dict[str, JsonObject] = {}
        """The policy objects as last seen, by the key of their reference."""
        self.checks: dict[str, HealthCheck] = {}
        """Those of them that can be used."""
        self._clock = clock
        self._surroundings: dict[str, dict[str, JsonObject]] = {}

    def put_check(self, ref: ObjectRef, obj: JsonObject, *, update: bool = False) -> PolicyError | None:
        """A health check as written. update: judge it as a change of the one that is known. What is wrong with it, or None."""
        before, stood = self.checks.pop(ref.key, None), self.objects.get(ref.key)
        self.objects[ref.key] = obj
        try:
            check = parse(obj)
            if update and before is not None and stood is not None:
                refuse_update(before, check, stood)
        except PolicyError as error:
            self.ledger.put_bad_check(ref, str(error))
            return error
        self.checks[ref.key] = check
        self.ledger.put_check(check)
        return None

    def remove_check(self, key: str) -> None:
        """A health check that was deleted."""
        self.checks.pop(key, None)
        self.objects.pop(key, None)
        self.ledger.remove_check(key)

    def put_surrounding(self, kind: str, key: str, obj: JsonObject | None) -> None:
        """An object that tells of upgrades or of etcd, None for one that is gone."""
        known = self._surroundings.setdefault(kind, {})
        if obj is None:
            known.pop(key, None)
        else:
            known[key] = obj
        self.ledger.surround(self._surrounding())

    def _surrounding(self) -> Surroundings:
        upgrades = [f"ClusterVersion {key} is Progressing{why}" for key, why in self._conditions(CLUSTER_VERSIONS, "Progressing")]
        upgrades += [
            f"MachineConfigPool {key} is Updating{why}" for key, why in self._conditions(MACHINE_CONFIG_POOLS, "Updating")
        ]
        budgets = self._surroundings.get(DISRUPTION_BUDGETS.kind, {})
        guards = self._surroundings.get(PODS.kind, {})
        allowed = tuple(int((budget.get("status") or {}).get("disruptionsAllowed") or 0) for _, budget in sorted(budgets.items()))
        etcd = EtcdGuard(
            known=bool(budgets or guards),
            disruptions_allowed=allowed,
            guards={str((pod.get("spec") or {}).get("nodeName") or ""): _condition(pod, "Ready")[0] for pod in guards.values()},
        )
        return Surroundings(upgrade="; ".join(sorted(upgrades)), etcd=etcd)

    def _conditions(self, resource: Resource, kind: str) -> list[tuple[str, str]]:
        """The objects of a kind whose condition of that type is True, each with the condition's message."""
        found = []
        for key, obj in self._surroundings.get(resource.kind, {}).items():
            status, message = _condition(obj, kind)
            if status == "True":
                found.append((key, f": {message}" if message else ""))
        return found


def is_guard(pod: JsonObject) -> bool:
    """Whether a pod is one of OpenShift's guards of an etcd member."""
    metadata = pod.get("metadata") or {}
    label, value = GUARD_LABEL
    named = str(metadata.get("name", "")).startswith(GUARD_PREFIXES)
    return metadata.get("namespace") == ETCD_NAMESPACE and (named or (metadata.get("labels") or {}).get(label) == value)


def _condition(obj: JsonObject, kind: str) -> tuple[str, str]:
    conditions: list[Any] = (obj.get("status") or {}).get("conditions") or []
    for condition in conditions:
        if isinstance(condition, dict) and condition.get("type") == kind:
            return str(condition.get("status", "")), str(condition.get("message", ""))
    return "", ""
