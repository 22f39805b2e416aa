"""`MachineHealthCheck` of OpenShift (machine.openshift.io/v1beta1): judges the Machines of one namespace.

As in the machine-api-operator: an empty selector takes every Machine of the namespace, percentages round down, a number may be
written as text, and a negative number allows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from policy.checks.health_check import EscalatingRemediation, HealthCheck, UnhealthyCondition
from policy.dialects.common import Head, not_too_many, read_head, read_remediating, threshold
from policy.values.fields import Fields
from policy.values.machine_apis import OPENSHIFT
from policy.values.object_refs import Dialect, ObjectRef
from policy.values.selectors import parse_selector
from policy.values.thresholds import Threshold

GROUP = OPENSHIFT.group
VERSIONS = tuple(f"{GROUP}/{version}" for version in OPENSHIFT.versions)
KIND = "MachineHealthCheck"

DEFAULT_MAX_UNHEALTHY = Threshold(value=100, percent=True)
DEFAULT_STARTUP_TIMEOUT = timedelta(minutes=10)

STRATEGY_ANNOTATION = "machine.openshift.io/remediation-strategy"
EXTERNAL_STRATEGY = "external-baremetal"

FIELDS = ("selector", "unhealthyConditions", "maxUnhealthy", "nodeStartupTimeout", "remediationTemplate")


def parse_machine_health_check(obj: Mapping[str, object]) -> HealthCheck:
    """The whole check, or PolicyError naming object, field and what was expected."""
    head = read_head(obj, kind=KIND, versions=VERSIONS, namespaced=True)
    spec = head.spec
    spec.only(*FIELDS)
    remediating = read_remediating(head)
    return HealthCheck(
        ref=head.ref,
        dialect=Dialect.OPENSHIFT,
        uid=head.uid,
        generation=head.generation,
        selector=parse_selector(spec.within_or_empty("selector"), head.warnings),
        conditions=_conditions(spec),
        max_unhealthy=threshold(spec, "maxUnhealthy", negative=True) or DEFAULT_MAX_UNHEALTHY,
        rungs=template_rung(spec, "remediationTemplate", head),
        paused=head.paused,
        **remediating,
        startup_timeout=startup_timeout(spec, DEFAULT_STARTUP_TIMEOUT),
        external_strategy=head.annotations.get(STRATEGY_ANNOTATION) == EXTERNAL_STRATEGY,
        warnings=tuple(head.warnings),
    )


def _conditions(spec: Fields) -> tuple[UnhealthyCondition, ...]:
    found = timed_conditions(spec, "unhealthyConditions")
    if spec.has("unhealthyConditions") and not found:
        raise spec.refuse("unhealthyConditions", "expected at least one condition, or none of this field")
    return found


def timed_conditions(spec: Fields, name: str) -> tuple[UnhealthyCondition, ...]:
    """Conditions with durations as text, as OpenShift and Cluster API v1beta1 write them."""
    entries = spec.each(name)
    not_too_many(entries, spec, name)
    for entry in entries:
        entry.only("type", "status", "timeout")
    return tuple(
        UnhealthyCondition(type=entry.text("type"), status=entry.text("status"), duration=entry.duration("timeout"))
        for entry in entries
    )


def startup_timeout(spec: Fields, default: timedelta, *, shortest: timedelta = timedelta(0)) -> timedelta | None:
    """How long a Machine may be without a Node; None for 0, which turns the time-out off."""
    timeout = spec.duration("nodeStartupTimeout", default)
    if timeout and timeout < shortest:
        raise spec.refuse("nodeStartupTimeout", f"expected 0 or at least 30s, got {spec.value('nodeStartupTimeout')!r}")
    return timeout or None


def template_rung(spec: Fields, name: str, head: Head) -> tuple[EscalatingRemediation, ...]:
    """The one rung of a check with a template, none without. The template lives in the check's namespace."""
    if not spec.has(name):
        return ()
    template = spec.reference(name)
    if template.namespace and template.namespace != head.ref.namespace:
        raise spec.refuse(f"{name}.namespace", f"expected the check's own namespace, got {template.namespace!r}")
    return (
        EscalatingRemediation(
            template=ObjectRef(
                api_version=template.api_version, kind=template.kind, name=template.name, namespace=head.ref.namespace
            )
        ),
    )
