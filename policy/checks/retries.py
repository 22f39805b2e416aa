"""How often and how soon a remediation that did not last is tried again: what a health check says of it.

The meaning of `maxRetry`, `retryPeriod` and `minHealthyPeriod` is KubeadmControlPlane's, here for all machines; the exponential
pause is the one that the node health check's proposal only suggests. The schema of a health check knows hardly any of them, and
an API server prunes what its schema does not know: so there is an annotation for each. What follows for a machine that was
remediated before is `policy/remediation/memory.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from policy.values.durations import format_duration, parse_duration
from policy.values.errors import PolicyError, shown

MAX_RETRY_ANNOTATION = "nodewarden.io/max-retry"
RETRY_PERIOD_ANNOTATION = "nodewarden.io/retry-period"
MIN_HEALTHY_PERIOD_ANNOTATION = "nodewarden.io/min-healthy-period"
BACKOFF_ANNOTATION = "nodewarden.io/backoff"
BACKOFF_LIMIT_ANNOTATION = "nodewarden.io/backoff-limit"
"""On a health check."""

EXPONENTIAL, NONE = "exponential", "none"

DEFAULT_MIN_HEALTHY_PERIOD = timedelta(hours=1)

MAX_NODE_PROVISION_TIME = timedelta(minutes=15)
"""The cluster autoscaler's default: so long it waits for the Node of a machine before it calls the set unhealthy, scales it back
and tries another one. Whoever replaces the machine before starts its clock anew, for ever."""

AUTOSCALER_MARGIN = timedelta(minutes=1)
"""Its clock starts when it first *sees* the machine, some scans after the creation; then it still has to act."""

AUTOSCALER_PATIENCE = MAX_NODE_PROVISION_TIME + AUTOSCALER_MARGIN

LONGEST_PERIOD = timedelta(days=365)
MOST_RETRIES = 1_000_000

_LONGEST_DURATION = 64
_SECOND = timedelta(seconds=1)
_MOST_DOUBLINGS = 40
"""Of a pause; more would not change it: the limit has long been reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
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
    """max_retry None: without limit. retry_period: between two remediations of a sequence. min_healthy_period: whatever befalls a
    machine so long after the last remediation is a new story. backoff None: no pause beside the retry_period.
    """

    max_retry: int | None = None
    retry_period: timedelta = timedelta(0)
    min_healthy_period: timedelta = DEFAULT_MIN_HEALTHY_PERIOD
    backoff: Backoff | None = None


def strictest(rules: Iterable[RetryRules]) -> RetryRules:
    """Of overlapping checks: the longest wait and the smallest limit win, whichever check they are from."""
    found = tuple(rules)
    if not found:
        return RetryRules()
    limits = [each.max_retry for each in found if each.max_retry is not None]
    backoffs = [each.backoff for each in found if each.backoff is not None]
    return RetryRules(
        max_retry=min(limits, default=None),
        retry_period=max(each.retry_period for each in found),
        min_healthy_period=max(each.min_healthy_period for each in found),
        backoff=Backoff(base=max(each.base for each in backoffs), limit=max(each.limit for each in backoffs))
        if backoffs
        else None,
    )


def read_rules(annotations: Mapping[str, str], subject: str, defaults: RetryRules) -> RetryRules:
    """The rules of a health check's annotations; what none sets is as in the defaults. Raises PolicyError."""
    written_there = _Written(annotations, subject, "metadata.annotations")
    return RetryRules(
        max_retry=written_there.whole(MAX_RETRY_ANNOTATION, defaults.max_retry),
        retry_period=written_there.duration(RETRY_PERIOD_ANNOTATION, defaults.retry_period),
        min_healthy_period=written_there.duration(MIN_HEALTHY_PERIOD_ANNOTATION, defaults.min_healthy_period),
        backoff=written_there.backoff(BACKOFF_ANNOTATION, BACKOFF_LIMIT_ANNOTATION, defaults.backoff),
    )


def read_backoff(value: object, subject: str) -> Backoff | None:
    """`spec.backoff` of a health check as its proposal has it: `{type: exponential, limit: 10m}`. Raises PolicyError."""
    if value is None:
        return None
    field = "spec.backoff"
    if not isinstance(value, Mapping):
        raise PolicyError(subject, field, f"expected an object, got {shown(value)}")
    if unknown := sorted(str(key) for key in value if key not in {"type", "limit"}):
        raise PolicyError(subject, f"{field}.{unknown[0]}", "is not a known field; expected one of limit, type")
    return _Written(value, subject, field).backoff("type", "limit", Backoff())


class _Written:
    """What people wrote of the rules: texts, each under an annotation or a field of its own."""

    __slots__ = ("_path", "_subject", "_values")

    def __init__(self, values: Mapping[str, object], subject: str, path: str) -> None:
        self._values, self._subject, self._path = values, subject, path

    def whole(self, name: str, default: int | None) -> int | None:
        text = self._values.get(name)
        if text is None:
            return default
        if not isinstance(text, str) or not (text.isascii() and text.isdigit() and len(text) < len(str(MOST_RETRIES))):
            raise self._refuse(name, f'expected a whole number of at least 0, such as "5", got {shown(text)}')
        return int(text)

    def duration(self, name: str, default: timedelta, *, least: timedelta = timedelta(0)) -> timedelta:
        text = self._values.get(name)
        if text is None:
            return default
        expected = f'expected a duration such as "300s", of at least {format_duration(least)} and at most a year'
        if not isinstance(text, str) or len(text) > _LONGEST_DURATION:
            raise self._refuse(name, f"{expected}, got {shown(text)}")
        try:
            found = parse_duration(text)
        except ValueError as error:
            raise self._refuse(name, str(error)) from error
        if not least <= found <= LONGEST_PERIOD:
            raise self._refuse(name, f"{expected}, got {text!r}")
        return found

    def backoff(self, kind: str, limit: str, default: Backoff | None) -> Backoff | None:
        wanted = self._values.get(kind)
        if wanted is None:
            wanted = NONE if default is None else EXPONENTIAL
        if wanted not in (EXPONENTIAL, NONE):  # a list in its place is no member of a set
            raise self._refuse(kind, f"expected {EXPONENTIAL} or {NONE}, got {shown(wanted)}")
        if wanted == NONE:
            if self._values.get(limit) is not None:
                raise self._refuse(limit, f"expected none without a backoff; set {kind} to {EXPONENTIAL}")
            return None
        found = default or Backoff()
        return replace(found, limit=self.duration(limit, found.limit, least=_SECOND))

    def _refuse(self, name: str, problem: str) -> PolicyError:
        return PolicyError(self._subject, f"{self._path}.{name}", problem)
