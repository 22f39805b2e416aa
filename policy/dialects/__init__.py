"""The spellings of health checks. Each ends in one `HealthCheck`; nothing downstream knows which it was written in.

One module per dialect, chosen here by group and kind. An object that cannot be used is a PolicyError as a whole: there are no
half-read checks and no fallbacks (`policy/ledger.py` then shows the error and admits nothing under it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from policy.dialects import medik8s
from policy.errors import PolicyError
from policy.healthcheck import HealthCheck

_DIALECTS: dict[tuple[str, str], Callable[[Mapping[str, object]], HealthCheck]] = {
    (medik8s.GROUP, medik8s.KIND): medik8s.parse_node_health_check,
}


def parse(obj: Mapping[str, object]) -> HealthCheck:
    """The health check in a decoded JSON object. Raises PolicyError for an unknown kind and for an unusable object."""
    version, kind = obj.get("apiVersion"), obj.get("kind")
    group = version.partition("/")[0] if isinstance(version, str) else ""
    reader = _DIALECTS.get((group, kind)) if isinstance(kind, str) else None
    if reader is None:
        known = ", ".join(f"{kind} of {group}" for group, kind in sorted(_DIALECTS))
        raise PolicyError(f"{kind or 'object'}", "apiVersion, kind", f"expected {known}, got {kind!r} of {version!r}")
    return reader(obj)
