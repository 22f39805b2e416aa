"""The dialects of health checks. Each is read into one `HealthCheck`; nothing downstream knows the dialect.

A module for each dialect (both kinds of MachineHealthCheck share one), chosen here by group and kind. An object that cannot
be used is a PolicyError as a whole: there are no half-read checks and no fallbacks (`policy/scan/ledger.py` then shows the
error and admits nothing under it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from policy.checks.health_check import HealthCheck
from policy.dialects import machine_health_checks, medik8s, node_fencing
from policy.values.errors import PolicyError, shown
from policy.values.object_refs import Dialect

_DIALECTS: dict[tuple[str, str], Callable[[Mapping[str, object]], HealthCheck]] = {
    (medik8s.GROUP, medik8s.KIND): medik8s.parse_node_health_check,
    (machine_health_checks.OPENSHIFT_GROUP, machine_health_checks.KIND): machine_health_checks.parse_openshift_check,
    (machine_health_checks.CLUSTER_API_GROUP, machine_health_checks.KIND): machine_health_checks.parse_cluster_api_check,
}

_READERS = {(group, kind.lower()): reader for (group, kind), reader in _DIALECTS.items()}


def is_health_check(obj: Mapping[str, object]) -> bool:
    """Whether the object is of a kind that `parse` reads, in any version and shape."""
    return _reader(obj) is not None


def parse(obj: Mapping[str, object]) -> HealthCheck:
    """The health check in a decoded JSON object. Raises PolicyError for an unknown kind and for an unusable object."""
    reader = _reader(obj)
    if reader is None:
        known = ", ".join([*(f"{kind} of {group}" for group, kind in sorted(_DIALECTS)), node_fencing.CLUSTER_CONFIG])
        kind, version = obj.get("kind"), obj.get("apiVersion")
        raise PolicyError(f"{kind or 'object'}", "apiVersion, kind", f"expected {known}, got {shown(kind)} of {shown(version)}")
    return reader(obj)


def refuse_update(before: HealthCheck, after: HealthCheck, obj: Mapping[str, object]) -> None:
    """Raise PolicyError where an object may not be changed like that. `obj`: the object as it stood before."""
    if before.dialect is after.dialect is Dialect.MEDIK8S:
        medik8s.refuse_update(before, after, obj)


def _reader(obj: Mapping[str, object]) -> Callable[[Mapping[str, object]], HealthCheck] | None:
    if node_fencing.is_cluster_config(obj):
        return node_fencing.parse_node_fencing
    version, kind = obj.get("apiVersion"), obj.get("kind")
    group = version.partition("/")[0] if isinstance(version, str) else ""
    # A kind in the wrong case is a typing error that its reader names; without this it would not count as a check at all.
    return _READERS.get((group, kind.lower())) if isinstance(kind, str) else None
