"""Both kinds of `MachineHealthCheck`: OpenShift's and Cluster API's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TypedDict

from policy.checks.health_check import EscalatingRemediation, HealthCheck, UnhealthyCondition, UnhealthyRange
from policy.dialects.common import Head, not_too_many, one_of, read_head, read_remediating, threshold
from policy.objects.machines import CLUSTER_NAME_LABEL
from policy.values.errors import shown
from policy.values.fields import Fields, Threshold
from policy.values.machine_apis import CLUSTER_API, OPENSHIFT
from policy.values.object_refs import Dialect, ObjectRef
from policy.values.selectors import Operator, Selector, parse_selector

# `MachineHealthCheck` of OpenShift (machine.openshift.io/v1beta1): judges the Machines of one namespace.
#
# As in the machine-api-operator: an empty selector takes every Machine of the namespace, percentages round down, a number may be
# written as text, and a negative number allows nothing.

OPENSHIFT_GROUP = OPENSHIFT.group
VERSIONS = tuple(f"{OPENSHIFT_GROUP}/{version}" for version in OPENSHIFT.versions)


STRATEGY_ANNOTATION = "machine.openshift.io/remediation-strategy"
EXTERNAL_STRATEGY = "external-baremetal"

FIELDS = ("selector", "unhealthyConditions", "maxUnhealthy", "nodeStartupTimeout", "remediationTemplate")


def parse_openshift_check(obj: Mapping[str, object]) -> HealthCheck:
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


# `MachineHealthCheck` of Cluster API (cluster.x-k8s.io, v1beta1 and v1beta2): judges the Machines of one workload cluster.
#
# Both versions say the same with other field names: durations as text or as seconds, `maxUnhealthy` or
# `remediation.triggerIf.unhealthyLessThanOrEqualTo`. What Cluster API's admission refuses is refused here too, since not every
# object has passed it.

CLUSTER_API_GROUP = CLUSTER_API.group
V1BETA2, V1BETA1 = (f"{CLUSTER_API_GROUP}/{version}" for version in CLUSTER_API.versions)
KIND = "MachineHealthCheck"

DEFAULT_MAX_UNHEALTHY = Threshold(value=100, percent=True)
DEFAULT_STARTUP_TIMEOUT = timedelta(minutes=10)
SHORTEST_STARTUP_TIMEOUT = timedelta(seconds=30)
LONGEST_SECONDS = 2**31 - 1


_STATUSES = ("True", "False", "Unknown")
_WRITTEN_BY_US = ("Ready", "Available", "HealthCheckSucceeded", "OwnerRemediated", "ExternallyRemediated")
"""Machine conditions that health checks write; a check that judged by them would feed itself."""

_RANGE = re.compile(r"\[([0-9]{1,9})-([0-9]{1,9})\]", re.ASCII)


def parse_cluster_api_check(obj: Mapping[str, object]) -> HealthCheck:
    """The whole check, or PolicyError naming object, field and what was expected."""
    head = read_head(obj, kind=KIND, versions=(V1BETA1, V1BETA2), namespaced=True)
    cluster = head.spec.name("clusterName")
    selector = _selector(head, cluster)
    parts = _old(head) if head.ref.api_version == V1BETA1 else _new(head)
    remediating = read_remediating(head)
    return HealthCheck(
        ref=head.ref,
        dialect=Dialect.CLUSTER_API,
        uid=head.uid,
        generation=head.generation,
        selector=selector,
        paused=head.paused,
        **parts,
        **remediating,
        cluster_name=cluster,
        warnings=tuple(head.warnings),
    )


class _Parts(TypedDict):
    """Fields of a `HealthCheck` that the two versions spell differently."""

    conditions: tuple[UnhealthyCondition, ...]
    machine_conditions: tuple[UnhealthyCondition, ...]
    max_unhealthy: Threshold
    unhealthy_range: UnhealthyRange | None
    startup_timeout: timedelta | None
    rungs: tuple[EscalatingRemediation, ...]


def _old(head: Head) -> _Parts:
    spec = head.spec
    spec.only(
        "clusterName",
        "selector",
        "unhealthyConditions",
        "unhealthyMachineConditions",
        "maxUnhealthy",
        "unhealthyRange",
        "nodeStartupTimeout",
        "remediationTemplate",
    )
    machine_conditions = timed_conditions(spec, "unhealthyMachineConditions")
    _check_machine_conditions(spec, "unhealthyMachineConditions")
    return _Parts(
        conditions=timed_conditions(spec, "unhealthyConditions"),
        machine_conditions=machine_conditions,
        max_unhealthy=threshold(spec, "maxUnhealthy", plain_text=False, negative=True) or DEFAULT_MAX_UNHEALTHY,
        unhealthy_range=_range(spec, "unhealthyRange"),
        startup_timeout=startup_timeout(spec, DEFAULT_STARTUP_TIMEOUT, shortest=SHORTEST_STARTUP_TIMEOUT),
        rungs=template_rung(spec, "remediationTemplate", head),
    )


def _new(head: Head) -> _Parts:
    spec = head.spec
    spec.only("clusterName", "selector", "checks", "remediation")
    checks, remediation = spec.within_or_empty("checks"), spec.within_or_empty("remediation")
    checks.only("nodeStartupTimeoutSeconds", "unhealthyNodeConditions", "unhealthyMachineConditions")
    remediation.only("templateRef", "triggerIf")
    trigger = remediation.within_or_empty("triggerIf")
    trigger.only("unhealthyInRange", "unhealthyLessThanOrEqualTo")
    machine_conditions = _second_conditions(checks, "unhealthyMachineConditions")
    _check_machine_conditions(checks, "unhealthyMachineConditions")
    return _Parts(
        conditions=_second_conditions(checks, "unhealthyNodeConditions"),
        machine_conditions=machine_conditions,
        max_unhealthy=threshold(trigger, "unhealthyLessThanOrEqualTo", plain_text=False, negative=True) or DEFAULT_MAX_UNHEALTHY,
        unhealthy_range=_range(trigger, "unhealthyInRange"),
        startup_timeout=_startup_seconds(checks),
        rungs=template_rung(remediation, "templateRef", head),
    )


def _selector(head: Head, cluster: str) -> Selector:
    selector = parse_selector(head.spec.within("selector"), head.warnings)
    if not selector.requirements:
        raise head.spec.refuse("selector", "expected matchLabels or matchExpressions; an empty selector is refused")
    for requirement in selector.requirements:
        if requirement.key != CLUSTER_NAME_LABEL or requirement.operator is not Operator.IN:
            continue
        if requirement.values != (cluster,):
            problem = f"expected spec.clusterName {cluster!r}, got {shown(', '.join(requirement.values))}"
            raise head.spec.refuse(f"selector.matchLabels.{CLUSTER_NAME_LABEL}", problem)
    return selector


def _second_conditions(checks: Fields, name: str) -> tuple[UnhealthyCondition, ...]:
    entries = checks.each(name)
    if checks.has(name) and not entries:
        raise checks.refuse(name, "expected at least one condition, or none of this field")
    not_too_many(entries, checks, name)
    for entry in entries:
        entry.only("type", "status", "timeoutSeconds")
    return tuple(
        UnhealthyCondition(
            type=entry.text("type"),
            status=entry.text("status"),
            duration=timedelta(seconds=entry.whole("timeoutSeconds", minimum=0, maximum=LONGEST_SECONDS)),
        )
        for entry in entries
    )


def _check_machine_conditions(fields: Fields, name: str) -> None:
    for entry in fields.each(name):
        one_of(entry, "status", _STATUSES)
        if (kind := entry.text("type")) in _WRITTEN_BY_US:
            raise entry.refuse("type", f"expected none of {', '.join(_WRITTEN_BY_US)}, got {kind!r}")


def _startup_seconds(checks: Fields) -> timedelta | None:
    name = "nodeStartupTimeoutSeconds"
    default = DEFAULT_STARTUP_TIMEOUT // timedelta(seconds=1)
    seconds = checks.whole(name, default, minimum=0, maximum=LONGEST_SECONDS)
    if 0 < seconds < SHORTEST_STARTUP_TIMEOUT // timedelta(seconds=1):
        raise checks.refuse(name, f"expected 0 or at least 30, got {seconds}")
    return timedelta(seconds=seconds) or None


def _range(fields: Fields, name: str) -> UnhealthyRange | None:
    if not fields.has(name):
        return None
    written = fields.text(name)
    matched = _RANGE.fullmatch(written)
    if matched is None or int(matched[1]) > int(matched[2]):
        raise fields.refuse(name, f"expected a range such as [3-5], the smaller number first, got {shown(written)}")
    return UnhealthyRange(least=int(matched[1]), most=int(matched[2]))
