"""What several dialects share: the head of an object (kind, version, name), thresholds, and the annotations of remediation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypedDict

from policy.checks.health_check import (
    AUTOSCALER_PATIENCE,
    BACKOFF_ANNOTATION,
    BACKOFF_LIMIT_ANNOTATION,
    LONGEST_PERIOD,
    MAX_RETRY_ANNOTATION,
    MIN_HEALTHY_PERIOD_ANNOTATION,
    RETRY_PERIOD_ANNOTATION,
    RetryRules,
    read_backoff,
    read_rules,
)
from policy.objects.machines import PAUSED_ANNOTATION
from policy.remediation.ladder import ESCALATION_ANNOTATION, read_limit, read_strategies
from policy.values.errors import PolicyError, shown
from policy.values.fields import Fields, Threshold, parse_threshold
from policy.values.mode import MODE_KEY, read_mode
from policy.values.object_refs import ObjectRef
from policy.values.times import parse_duration

DEFAULT_NAMESPACE = "default"
"""The namespace of an object that names none, as with kubectl; objects from an API server always name theirs."""

MOST_CONDITIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The object's name and version, and its spec, which the dialect reads. `fields` is the whole object."""

    ref: ObjectRef
    uid: str
    generation: int
    annotations: Mapping[str, str]
    fields: Fields
    spec: Fields
    warnings: list[str]

    @property
    def paused(self) -> str:
        """Why it is paused by its annotation, "" if it is not; any value pauses."""
        return f"it carries the annotation {PAUSED_ANNOTATION}" if PAUSED_ANNOTATION in self.annotations else ""


def read_head(obj: Mapping[str, object], *, kind: str, versions: Collection[str], namespaced: bool) -> Head:
    """Head and spec of an object of that kind. Raises PolicyError naming what is wrong."""
    metadata = Fields(obj, subject=kind).within("metadata")
    name = metadata.text("name")
    namespace = metadata.text("namespace", DEFAULT_NAMESPACE) if namespaced else ""
    fields = Fields(obj, subject=f"{kind}/{namespace}/{name}" if namespaced else f"{kind}/{name}")
    version = fields.text("apiVersion")
    if version not in versions:
        raise fields.refuse("apiVersion", f"expected {' or '.join(sorted(versions))}, got {version!r}")
    if (found := fields.text("kind")) != kind:
        raise fields.refuse("kind", f"expected {kind}, got {found!r}")
    fields.only("apiVersion", "kind", "metadata", "spec", "status")
    metadata = fields.within("metadata")
    annotations = metadata.within_or_empty("annotations")
    return Head(
        ref=ObjectRef(api_version=version, kind=kind, name=name, namespace=namespace),
        uid=metadata.text("uid", ""),
        generation=metadata.whole("generation", 0, minimum=0),
        annotations={key: str(annotations.value(key) or "") for key in annotations.names()},
        fields=fields,
        spec=fields.within("spec"),
        warnings=[],
    )


def threshold(spec: Fields, name: str, *, plain_text: bool = True, negative: bool = False) -> Threshold | None:
    """An int-or-percentage, None where the field is absent."""
    if not spec.has(name):
        return None
    try:
        return parse_threshold(spec.value(name), plain_text=plain_text, negative=negative)
    except ValueError as error:
        raise spec.refuse(name, str(error)) from error


def one_of(fields: Fields, name: str, allowed: Collection[str]) -> str:
    """A text that must be one of a few."""
    value = fields.text(name)
    if value not in allowed:
        raise fields.refuse(name, f"expected one of {', '.join(allowed)}, got {value!r}")
    return value


def not_too_many(found: Collection[object], spec: Fields, name: str) -> None:
    """Refuse a list that no API server would take, and that would be walked for every target."""
    if len(found) > MOST_CONDITIONS:
        raise spec.refuse(name, f"expected at most {MOST_CONDITIONS} entries, got {len(found)}")


# Annotations with which a health check of any dialect configures remediation: no shipped schema has fields for it.
#
# An API server prunes fields that its schema does not know, so that even the back-off of the node health check's own proposal is
# lost on the way into a cluster; it keeps annotations. What they mean is `policy/remediation/`.

AUTOSCALER_PATIENCE_ANNOTATION = "nodewarden.io/autoscaler-patience"
"""How old a Machine that never had a Node must be before it is replaced again; `0s` without an autoscaler."""

_RETRIES = frozenset(
    {
        MAX_RETRY_ANNOTATION,
        RETRY_PERIOD_ANNOTATION,
        MIN_HEALTHY_PERIOD_ANNOTATION,
        BACKOFF_ANNOTATION,
        BACKOFF_LIMIT_ANNOTATION,
    }
)


class Remediating(TypedDict):
    """As the fields of a `HealthCheck`."""

    escalation: str
    retry: RetryRules | None
    max_in_flight: Threshold | None
    autoscaler_patience: timedelta
    mode: str | None


def read_remediating(head: Head, *, backoff: object = None) -> Remediating:
    """All of these annotations. backoff: `spec.backoff`, from the one dialect that has the field. Raises PolicyError."""
    annotations, subject = head.annotations, head.ref.key
    escalation = annotations.get(ESCALATION_ANNOTATION, "")
    if ESCALATION_ANNOTATION in annotations:
        read_strategies(escalation, subject=subject, field=f"metadata.annotations.{ESCALATION_ANNOTATION}")
    retry = None
    if backoff is not None or _RETRIES & annotations.keys():
        defaults = RetryRules()
        if backoff is not None:
            defaults = replace(defaults, backoff=read_backoff(backoff, subject))
        retry = read_rules(annotations, subject, defaults)
    mode = annotations.get(MODE_KEY)
    if mode is not None and (problem := read_mode(mode)[1]):
        head.warnings.append(f"the annotation {MODE_KEY} can't be read, and so means observe: {problem}")
    return Remediating(
        escalation=escalation,
        retry=retry,
        max_in_flight=read_limit(annotations, subject),
        autoscaler_patience=_patience(annotations.get(AUTOSCALER_PATIENCE_ANNOTATION), subject),
        mode=mode,
    )


def _patience(text: str | None, subject: str) -> timedelta:
    if text is None:
        return AUTOSCALER_PATIENCE
    field = f"metadata.annotations.{AUTOSCALER_PATIENCE_ANNOTATION}"
    try:
        patience = parse_duration(text)
    except ValueError as error:
        raise PolicyError(subject, field, f"expected a duration such as 20m, got {shown(text)}") from error
    if not timedelta(0) <= patience <= LONGEST_PERIOD:
        raise PolicyError(subject, field, f"expected a duration of at most a year, got {shown(text)}")
    return patience
