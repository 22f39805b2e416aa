"""`NodeHealthCheck` of medik8s (remediation.medik8s.io/v1alpha1): judges nodes, without Machines.

Where the proposal gives a default that the shipped operator no longer has (which nodes, `maxUnhealthy: 49%`), the default is
kept; where the operator refuses an object, so do we. Fields that would make us *more* careful and that we cannot carry out
are refused, never ignored; those that only delay the way back are taken with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from policy.dialects.selector import parse_selector
from policy.fields import Fields
from policy.healthcheck import Dialect, HealthCheck, ObjectRef, Rung, Threshold, UnhealthyCondition
from policy.selectors import Operator, Requirement, Selector
from policy.templates import is_fencing_template
from policy.thresholds import parse_threshold

GROUP = "remediation.medik8s.io"
VERSION = "v1alpha1"
KIND = "NodeHealthCheck"

DEFAULT_SELECTOR = Selector(requirements=(Requirement(key="node-role.kubernetes.io/worker", operator=Operator.EXISTS),))
DEFAULT_CONDITIONS = (
    UnhealthyCondition(type="Ready", status="False", duration=timedelta(seconds=300)),
    UnhealthyCondition(type="Ready", status="Unknown", duration=timedelta(seconds=300)),
)
DEFAULT_MAX_UNHEALTHY = Threshold(value=49, percent=True)

SHORTEST_RUNG = timedelta(seconds=60)
"""Below it two remediations of one node could run side by side."""

_DELETES_NODES = "MachineDeletionRemediationTemplate"


def parse_node_health_check(obj: Mapping[str, object]) -> HealthCheck:
    """The whole check, or PolicyError naming object, field and what was expected."""
    metadata = Fields(obj, subject=KIND).within("metadata")
    name = metadata.text("name")
    fields = Fields(obj, subject=f"{KIND}/{name}")
    version = fields.text("apiVersion")
    if version != f"{GROUP}/{VERSION}":
        raise fields.refuse("apiVersion", f"expected {GROUP}/{VERSION}, got {version!r}")
    if (kind := fields.text("kind")) != KIND:
        raise fields.refuse("kind", f"expected {KIND}, got {kind!r}")
    spec = fields.within("spec")
    _refuse_storm_cooldown(spec)
    rungs = _rungs(spec)
    min_healthy, max_unhealthy = _thresholds(spec, rungs)
    return HealthCheck(
        ref=ObjectRef(api_version=version, kind=KIND, name=name),
        dialect=Dialect.MEDIK8S,
        uid=metadata.text("uid", ""),
        generation=metadata.whole("generation", 0, minimum=0),
        selector=_selector(spec),
        conditions=_conditions(spec),
        min_healthy=min_healthy,
        max_unhealthy=max_unhealthy,
        rungs=rungs,
        paused=_paused(spec),
        warnings=_warnings(spec, rungs),
    )


def _selector(spec: Fields) -> Selector:
    if not spec.has("selector"):
        return DEFAULT_SELECTOR
    selector = parse_selector(spec.within("selector"))
    if not selector.requirements:
        raise spec.refuse("selector", "expected matchLabels or matchExpressions; an empty selector would take every node")
    return selector


def _conditions(spec: Fields) -> tuple[UnhealthyCondition, ...]:
    if not spec.has("unhealthyConditions"):
        return DEFAULT_CONDITIONS
    conditions = tuple(
        UnhealthyCondition(type=entry.text("type"), status=entry.text("status"), duration=entry.duration("duration"))
        for entry in spec.each("unhealthyConditions")
    )
    if not conditions:
        # Nothing to look for would look like health for ever (S7).
        raise spec.refuse("unhealthyConditions", "expected at least one condition, or none of this field for the defaults")
    return conditions


def _thresholds(spec: Fields, rungs: tuple[Rung, ...]) -> tuple[Threshold | None, Threshold | None]:
    if spec.has("minHealthy") and spec.has("maxUnhealthy"):
        raise spec.refuse("maxUnhealthy", "expected only one of minHealthy and maxUnhealthy, got both")
    if spec.has("minHealthy"):
        return _threshold(spec, "minHealthy"), None
    if any(rung.template.kind == _DELETES_NODES for rung in rungs):
        # Deleting nodes shrinks the total that maxUnhealthy is counted from.
        raise spec.refuse("minHealthy", f"expected, because maxUnhealthy can't be used with {_DELETES_NODES}")
    if spec.has("maxUnhealthy"):
        return None, _threshold(spec, "maxUnhealthy")
    return None, DEFAULT_MAX_UNHEALTHY


def _threshold(spec: Fields, name: str) -> Threshold:
    try:
        return parse_threshold(spec.value(name))
    except ValueError as error:
        raise spec.refuse(name, str(error)) from error


def _rungs(spec: Fields) -> tuple[Rung, ...]:
    single, ladder = spec.has("remediationTemplate"), spec.each("escalatingRemediations")
    if single and ladder:
        raise spec.refuse("escalatingRemediations", "expected only one of remediationTemplate and escalatingRemediations")
    if single:
        return (Rung(template=_template(spec)),)
    if not ladder:
        raise spec.refuse("remediationTemplate", "expected, or escalatingRemediations: there is nothing to do otherwise")
    rungs: dict[int, Rung] = {}
    kinds: set[tuple[str, str]] = set()
    for entry in ladder:
        order = entry.whole("order", minimum=-(2**31))
        if order in rungs:
            raise entry.refuse("order", f"expected a different order on every rung, got {order} twice")
        template = _template(entry)
        kind = (template.api_version.partition("/")[0], template.kind)
        if kind in kinds and not is_fencing_template(template):
            raise entry.refuse("remediationTemplate.kind", f"expected every kind once, got {template.kind} twice")
        kinds.add(kind)
        rungs[order] = Rung(template=template, order=order, timeout=entry.duration("timeout", minimum=SHORTEST_RUNG))
    return tuple(rungs[order] for order in sorted(rungs))


def _template(fields: Fields) -> ObjectRef:
    template = fields.reference("remediationTemplate")
    if is_fencing_template(template) and not template.namespace:
        raise fields.refuse("remediationTemplate.namespace", "expected the namespace of the FencingTemplate")
    return template


def _paused(spec: Fields) -> str:
    requests = spec.texts("pauseRequests")
    return "; ".join(request or "a pause request without a reason" for request in requests)


def _refuse_storm_cooldown(spec: Fields) -> None:
    """It keeps the brake closed for longer; a check that asks for it must not get a looser one instead."""
    if spec.has("stormCooldownDuration") and spec.duration("stormCooldownDuration"):
        raise spec.refuse("stormCooldownDuration", "is not carried out by this version: expected to be left out")


def _warnings(spec: Fields, rungs: tuple[Rung, ...]) -> tuple[str, ...]:
    warnings = []
    if spec.has("healthyDelay") and spec.duration("healthyDelay", minimum=-timedelta(days=36500)):
        warnings.append("spec.healthyDelay is not carried out by this version: a node is given back as soon as it is healthy")
    if len(rungs) > 1:
        warnings.append("only the first rung of spec.escalatingRemediations is carried out by this version")
    return tuple(warnings)
