"""How often and how soon a remediation that did not last is tried again: the settings of a health check.

`maxRetry`, `retryPeriod` and `minHealthyPeriod` mean what they mean for KubeadmControlPlane, here for all machines; the
exponential pause is the one that the node health check's proposal only suggests. The schema of a health check has hardly any of
them, and an API server prunes unknown fields: so there is an annotation for each. `policy/remediation/memory.py` applies them
to a machine that was remediated before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from policy.values.errors import PolicyError, shown
from policy.values.fields import Fields

MAX_RETRY_ANNOTATION = "nodewarden.io/max-retry"
RETRY_PERIOD_ANNOTATION = "nodewarden.io/retry-period"
MIN_HEALTHY_PERIOD_ANNOTATION = "nodewarden.io/min-healthy-period"
BACKOFF_ANNOTATION = "nodewarden.io/backoff"
BACKOFF_LIMIT_ANNOTATION = "nodewarden.io/backoff-limit"
"""On a health check."""

EXPONENTIAL, NONE = "exponential", "none"

DEFAULT_MIN_HEALTHY_PERIOD = timedelta(hours=1)

MAX_NODE_PROVISION_TIME = timedelta(minutes=15)
"""The cluster autoscaler's default: how long it waits for the Node of a machine before it calls the set unhealthy, scales it
back and tries another one. A machine that is replaced earlier starts its clock again, for ever."""

AUTOSCALER_MARGIN = timedelta(minutes=1)
"""Its clock starts when it first *sees* the machine, some scans after the creation; then it still has to act."""

AUTOSCALER_PATIENCE = MAX_NODE_PROVISION_TIME + AUTOSCALER_MARGIN

LONGEST_PERIOD = timedelta(days=365)
MOST_RETRIES = 1_000_000

_SECOND = timedelta(seconds=1)
_MOST_DOUBLINGS = 40
"""Of a pause; more would change nothing: the limit has long been reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBackoff:
    """The pause after a remediation that did not last, doubled with each retry up to the limit."""

    base: timedelta = timedelta(seconds=30)
    limit: timedelta = timedelta(minutes=10)

    def before(self, retry: int) -> timedelta:
        """The pause between the remediation before and that retry (1 is the first)."""
        doublings = min(max(retry - 1, 0), _MOST_DOUBLINGS)
        # First the limit is divided: doubling would leave what a timedelta holds.
        return self.limit if self.base > self.limit / 2**doublings else min(self.limit, self.base * 2**doublings)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """max_retry None: without limit. retry_period: between two remediations of a sequence. min_healthy_period: a failure that
    long after the last remediation begins a new sequence. backoff None: no pause besides the retry_period."""

    max_retry: int | None = None
    retry_period: timedelta = timedelta(0)
    min_healthy_period: timedelta = DEFAULT_MIN_HEALTHY_PERIOD
    backoff: RetryBackoff | None = None


def strictest(rules: Iterable[RetryRules]) -> RetryRules:
    """For overlapping checks: the longest wait and the smallest limit win, from whichever check."""
    found = tuple(rules)
    if not found:
        return RetryRules()
    limits = [each.max_retry for each in found if each.max_retry is not None]
    backoffs = [each.backoff for each in found if each.backoff is not None]
    return RetryRules(
        max_retry=min(limits, default=None),
        retry_period=max(each.retry_period for each in found),
        min_healthy_period=max(each.min_healthy_period for each in found),
        backoff=RetryBackoff(base=max(each.base for each in backoffs), limit=max(each.limit for each in backoffs))
        if backoffs
        else None,
    )


def read_rules(annotations: Mapping[str, str], subject: str, defaults: RetryRules) -> RetryRules:
    """The rules of a health check's annotations; what none sets is as in the defaults. Raises PolicyError."""
    fields = Fields(annotations, subject=subject, path="metadata.annotations")
    return RetryRules(
        max_retry=_whole(fields, MAX_RETRY_ANNOTATION, defaults.max_retry),
        retry_period=fields.duration(RETRY_PERIOD_ANNOTATION, defaults.retry_period, maximum=LONGEST_PERIOD),
        min_healthy_period=fields.duration(MIN_HEALTHY_PERIOD_ANNOTATION, defaults.min_healthy_period, maximum=LONGEST_PERIOD),
        backoff=_backoff(fields, BACKOFF_ANNOTATION, BACKOFF_LIMIT_ANNOTATION, defaults.backoff),
    )


def read_backoff(value: object, subject: str) -> RetryBackoff | None:
    """`spec.backoff` of a health check as its proposal has it: `{type: exponential, limit: 10m}`. Raises PolicyError."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise PolicyError(subject, "spec.backoff", f"expected an object, got {shown(value)}")
    fields = Fields(value, subject=subject, path="spec.backoff")
    fields.only("limit", "type")
    return _backoff(fields, "type", "limit", RetryBackoff())


def _whole(fields: Fields, name: str, default: int | None) -> int | None:
    """As text, which annotations are."""
    text = fields.value(name)
    if text is None:
        return default
    if not isinstance(text, str) or not (text.isascii() and text.isdigit() and len(text) < len(str(MOST_RETRIES))):
        raise fields.refuse(name, f'expected a whole number of at least 0, such as "5", got {shown(text)}')
    return int(text)


def _backoff(fields: Fields, kind: str, limit: str, default: RetryBackoff | None) -> RetryBackoff | None:
    wanted = fields.value(kind)
    if wanted is None:
        wanted = NONE if default is None else EXPONENTIAL
    if wanted not in (EXPONENTIAL, NONE):  # a list in its place is no member of a set
        raise fields.refuse(kind, f"expected {EXPONENTIAL} or {NONE}, got {shown(wanted)}")
    if wanted == NONE:
        if fields.has(limit):
            raise fields.refuse(limit, f"expected none without a backoff; set {kind} to {EXPONENTIAL}")
        return None
    found = default or RetryBackoff()
    return replace(found, limit=fields.duration(limit, found.limit, minimum=_SECOND, maximum=LONGEST_PERIOD))
