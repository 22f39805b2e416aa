"""The kinds of objects that health checks have made."""

from __future__ import annotations

from activities.cluster.api.paths import Resource
from policy.checks.health_check import HealthCheck
from policy.fence.templates import is_own_template
from policy.objects.remediations import kind_of, plurals_of


def made_for(check: HealthCheck) -> dict[tuple[str, str], list[Resource]]:
    """What the check's templates make, by group and kind: the resources that it may be, the likeliest first. Ours make none."""
    found = {}
    for template in (rung.template for rung in check.rungs if not is_own_template(rung.template)):
        group, kind = kind_of(template)
        if group and kind != template.kind:
            likely = [Resource(api_version=template.api_version, kind=kind, plural=plural) for plural in plurals_of(kind)]
            found[group, kind] = likely
    return found
