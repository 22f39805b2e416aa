"""`NodeHealthCheck` of medik8s (remediation.medik8s.io/v1alpha1): judges nodes, without Machines.

Where the proposal gives a default that the shipped operator no longer has (which nodes, `maxUnhealthy: 49%`), the default is
kept; where the operator refuses an object, so do we. The proposal's spellings are accepted with a warning, and so are fields
that nodewarden does not carry out yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from policy.checks.health_check import ACTIVE, COOLING_DOWN, EscalatingRemediation, HealthCheck, Storm, UnhealthyCondition
from policy.dialects.common import not_too_many, read_head, read_remediating, threshold
from policy.fence.template_reader import is_own_template
from policy.remediation.remediation_objects import SEVERAL_ANNOTATION
from policy.values.display_text import in_a_line
from policy.values.errors import PolicyError, shown
from policy.values.fields import EXPECTED, Fields, Threshold
from policy.values.object_refs import Dialect, ObjectRef
from policy.values.selectors import Operator, Requirement, Selector, parse_selector
from policy.values.times import moment_of

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
_OF_METAL3, MACHINES_NAMESPACE = "Metal3RemediationTemplate", "openshift-machine-api"


FIELDS = (
    "selector",
    "unhealthyConditions",
    "minHealthy",
    "maxUnhealthy",
    "remediationTemplate",
    "escalatingRemediations",
    "pauseRequests",
    "healthyDelay",
    "stormCooldownDuration",
    "backoff",
)

LONGEST_PAUSE = 300
"""Characters of all pause requests together: they go into each report."""
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_DELAY = timedelta(days=36500)


def parse_node_health_check(obj: Mapping[str, object]) -> HealthCheck:
    """The whole check, or PolicyError naming object, field and what was expected."""
    head = read_head(obj, kind=KIND, versions=(f"{GROUP}/{VERSION}",), namespaced=False)
    spec = head.spec
    spec.only(*FIELDS)
    selector, conditions = _selector(spec, head.warnings), _conditions(spec, head.warnings)
    rungs = _rungs(spec, head.warnings)
    min_healthy, max_unhealthy = _thresholds(spec, rungs)
    healthy_delay = spec.duration("healthyDelay", timedelta(0), minimum=-_LONGEST_DELAY, maximum=_LONGEST_DELAY)
    remediating = read_remediating(head, backoff=spec.value("backoff"))
    if healthy_delay and any(is_own_template(rung.template) for rung in rungs):
        head.warnings.append("spec.healthyDelay is not carried out for fencing: a node is given back as soon as it is healthy")
    pauses = (request or "a pause request without a reason" for request in spec.texts("pauseRequests"))
    return HealthCheck(
        ref=head.ref,
        dialect=Dialect.MEDIK8S,
        uid=head.uid,
        generation=head.generation,
        selector=selector,
        conditions=conditions,
        min_healthy=min_healthy,
        max_unhealthy=max_unhealthy,
        rungs=rungs,
        paused=in_a_line("; ".join(pauses), LONGEST_PAUSE),
        healthy_delay=healthy_delay,
        **remediating,
        storm_cooldown=spec.duration("stormCooldownDuration", timedelta(0)) or None,
        storm=_storm(head.fields),
        warnings=tuple(head.warnings),
    )


def refuse_update(before: HealthCheck, after: HealthCheck, obj: Mapping[str, object]) -> None:
    """Raise PolicyError for a change that the operator's admission refuses: the selector and the remediation of a check stay as
    they are while one of its remediations is under way. `obj`: the object before the change; its status says whether one is."""
    if not _remediating(obj):
        return
    for field, changed in (
        ("spec.selector", before.selector != after.selector),
        ("spec.remediationTemplate", before.rungs != after.rungs),
    ):
        if changed:
            raise PolicyError(after.ref.key, field, "is not allowed to change while remediating; expected it as it was")


def _remediating(obj: Mapping[str, object]) -> bool:
    status = obj.get("status")
    if not isinstance(status, Mapping):
        return False
    unhealthy = status.get("unhealthyNodes")
    listed = (
        any(isinstance(node, Mapping) and node.get("remediations") for node in unhealthy)
        if isinstance(unhealthy, list)
        else False
    )
    return listed or bool(status.get("inFlightRemediations"))


def _storm(fields: Fields) -> Storm:
    """How far the storm was when the status was last written.

    A status is no configuration: an unreadable field of it does not make the check unusable. A storm without a moment has been
    on for ever, a cooldown without one has not begun, which is the stricter reading of both.
    """
    status = fields.value("status")
    listed = status.get("conditions") if isinstance(status, Mapping) else None
    since: dict[object, datetime | None] = {}
    for condition in listed if isinstance(listed, list) else ():
        if isinstance(condition, Mapping) and condition.get("status") == "True" and isinstance(condition.get("type"), str):
            since[condition.get("type")] = moment_of(condition.get("lastTransitionTime"))
    if ACTIVE not in since:
        return Storm()
    return Storm(active=since[ACTIVE] or _LONG_AGO, cooling=since.get(COOLING_DOWN))


def _selector(spec: Fields, warnings: list[str]) -> Selector:
    if not spec.has("selector"):
        return DEFAULT_SELECTOR
    selector = parse_selector(spec.within("selector"), warnings, draft=True)
    if not selector.requirements:
        expected = "expected matchLabels or matchExpressions; an empty selector would take every node, the selector is mandatory"
        raise spec.refuse("selector", expected)
    return selector


def _conditions(spec: Fields, warnings: list[str]) -> tuple[UnhealthyCondition, ...]:
    if not spec.has("unhealthyConditions"):
        return DEFAULT_CONDITIONS
    entries = spec.each("unhealthyConditions")
    not_too_many(entries, spec, "unhealthyConditions")
    if not entries:
        # Nothing to look for would look like health for ever (S7).
        raise spec.refuse("unhealthyConditions", "expected at least one condition, or none of this field for the defaults")
    return tuple(_condition(entry, warnings) for entry in entries)


def _condition(entry: Fields, warnings: list[str]) -> UnhealthyCondition:
    entry.only("type", "status", "duration")
    kind = entry.text("type")
    if kind == "NotReady":
        # The proposal's own default has it; no node reports such a condition, so it would look like health for ever.
        warnings.append(f"{entry.at('type')} NotReady was read as Ready")
        kind = "Ready"
    return UnhealthyCondition(type=kind, status=entry.text("status"), duration=entry.duration("duration"))


def _thresholds(spec: Fields, rungs: tuple[EscalatingRemediation, ...]) -> tuple[Threshold | None, Threshold | None]:
    if spec.has("minHealthy") and spec.has("maxUnhealthy"):
        raise spec.refuse("maxUnhealthy", "expected only one of minHealthy and maxUnhealthy, got both")
    if spec.has("minHealthy"):
        return _threshold(spec, "minHealthy"), None
    if any(rung.template.kind == _DELETES_NODES for rung in rungs):
        # Deleting nodes shrinks the total that maxUnhealthy is counted from.
        raise spec.refuse("minHealthy", f"expected, because maxUnhealthy can't be used with {_DELETES_NODES}")
    return None, _threshold(spec, "maxUnhealthy") or DEFAULT_MAX_UNHEALTHY


def _threshold(spec: Fields, name: str) -> Threshold | None:
    written = spec.value(name)
    if (isinstance(written, int) and written < 0) or (isinstance(written, str) and written.startswith("-")):
        raise spec.refuse(name, f"{name} must not be negative: expected {EXPECTED}, got {shown(written)}")
    return threshold(spec, name)


def _rungs(spec: Fields, warnings: list[str]) -> tuple[EscalatingRemediation, ...]:
    single, ladder = spec.has("remediationTemplate"), spec.each("escalatingRemediations")
    if single and ladder:
        raise spec.refuse("escalatingRemediations", "expected only one of remediationTemplate and escalatingRemediations")
    if single:
        return (EscalatingRemediation(template=_template(spec)),)
    if not ladder:
        problem = "expected, or escalatingRemediations: one of template and escalating remediations is mandatory"
        raise spec.refuse("remediationTemplate", problem)
    rungs: dict[int, EscalatingRemediation] = {}
    kinds: dict[tuple[str, str], set[str]] = defaultdict(set)
    for entry in ladder:
        entry.only("order", "timeout", "remediationTemplate")
        order = entry.whole("order", minimum=-(2**31))
        if order in rungs:
            raise entry.refuse("order", f"expected a different order on every rung, got {order} twice")
        template = _template(entry)
        kind = (template.api_version.partition("/")[0], template.kind)
        if f"{template.namespace}/{template.name}" in kinds[kind]:
            expected = f"expected every kind once, or another template of it, got {template.kind} {template.name} twice"
            raise entry.refuse("remediationTemplate.kind", f"duplicate remediator kind: {expected}")
        if kinds[kind] and not is_own_template(template):
            warnings.append(f"several templates of the kind {template.kind}: each needs the annotation {SEVERAL_ANNOTATION}")
        kinds[kind].add(f"{template.namespace}/{template.name}")
        rungs[order] = EscalatingRemediation(
            template=template, order=order, timeout=entry.duration("timeout", minimum=SHORTEST_RUNG)
        )
    return tuple(rungs[order] for order in sorted(rungs))


def _template(fields: Fields) -> ObjectRef:
    template = fields.reference("remediationTemplate")
    if is_own_template(template) and not template.namespace:
        raise fields.refuse("remediationTemplate.namespace", f"expected the namespace of the {template.kind}")
    if template.kind == _OF_METAL3 and template.namespace != MACHINES_NAMESPACE:
        # Its objects are owned by Machines, and an owner lives in the namespace of what it owns.
        raise fields.refuse("remediationTemplate.namespace", f"expected {MACHINES_NAMESPACE} for a {_OF_METAL3}")
    return template
