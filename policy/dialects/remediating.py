"""What a health check of any dialect may say by annotation of how its targets are remediated: no shipped schema has room for it.

An API server prunes fields that its schema does not know, so that even the back-off of the node health check's own proposal is
lost on the way into a cluster; annotations are not. What they mean is `policy/remediation/`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TypedDict

from policy.checks.retries import (
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
from policy.dialects.head import Head
from policy.remediation.in_flight import read_limit
from policy.remediation.ladder import ESCALATION_ANNOTATION, read_strategies
from policy.values.durations import parse_duration
from policy.values.errors import PolicyError, shown
from policy.values.thresholds import Threshold

AUTOSCALER_PATIENCE_ANNOTATION = "nodewarden.io/autoscaler-patience"
"""How old a Machine that never had a Node must be before it is replaced again; `0s` where no autoscaler is at work."""

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


def read_remediating(head: Head, *, backoff: object = None) -> Remediating:
    """All of it. backoff: `spec.backoff`, for the one dialect whose proposal has it. Raises PolicyError."""
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
    return Remediating(
        escalation=escalation,
        retry=retry,
        max_in_flight=read_limit(annotations, subject),
        autoscaler_patience=_patience(annotations.get(AUTOSCALER_PATIENCE_ANNOTATION), subject),
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
