"""What a machine inherits from those that it replaces: when that was, the how-manieth time, and which steps failed.

A replacement is a new Machine with a new Node, and knows of nothing: without a memory a MachineSet whose machines fail as soon as
they are there would be remediated in a hot loop. So the last remediation is written on the Node or Machine, and handed on to its
successor. The meaning of `maxRetry`, `retryPeriod` and `minHealthyPeriod` is KubeadmControlPlane's, here for all machines; the
exponential pause is the one that the node health check's proposal only suggests. The schema of a health check knows hardly any
of them, and an API server prunes what its schema does not know: so there is an annotation for each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from policy.durations import format_duration, parse_duration
from policy.errors import PolicyError, shown
from policy.moments import later, moment_of, written

LAST_REMEDIATION_ANNOTATION = "nodewarden.io/last-remediation"
"""On a Node or Machine: the last remediation of its lineage, JSON of `LastRemediation`."""

REMEDIATION_FOR_ANNOTATION = "controlplane.cluster.x-k8s.io/remediation-for"
"""KubeadmControlPlane's own memory, on the Machine that replaces another one."""

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
LONGEST_TEXT = 30_000
LONGEST_NAME = 500
MOST_FAILED = 50
MOST_RETRIES = 1_000_000
"""Whoever may write the annotation chooses what stands in it; it goes into histories, Events and reports."""

_LONGEST_DURATION = 64
_SECOND = timedelta(seconds=1)
_MOST_DOUBLINGS = 40
"""Of a pause; more would not change it: the limit has long been reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRemediation:
    """The last remediation of a lineage. of: the machine or node that was remediated. retry: the how-manieth time of this
    sequence, 0 for its first. failed: names of the steps that failed in this sequence. incident: whose it was.
    """

    of: str
    at: datetime
    retry: int = 0
    failed: tuple[str, ...] = ()
    incident: str = ""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRemediation:
    """The next remediation of a lineage.

    retry: its number in the sequence, 0 begins a new one; of an exhausted one the number of the last. not_before: None for at
    once. exhausted: why only a person may go on, in words; then nothing is waited for. failed: the steps that this sequence has
    seen fail. why: what the retry, the wait or the end follows from, for people.
    """

    retry: int
    not_before: datetime | None = None
    exhausted: str = ""
    failed: tuple[str, ...] = ()
    why: str = ""


def next_turn(last: LastRemediation | None, rules: RetryRules, now: datetime) -> NextRemediation:
    """What follows after the last remediation.

    All comparisons are KubeadmControlPlane's: at exactly the end of a period it is over. A backoff is waited out even where
    min_healthy_period is shorter, or a short one would bring back the loop; a retry_period ends with the sequence, as it is
    about retries only.
    """
    if last is None:
        return NextRemediation(retry=0)
    over, retry = later(last.at, rules.min_healthy_period), last.retry + 1
    paused = later(last.at, rules.backoff.before(retry)) if rules.backoff is not None else last.at
    after = f"{last.of} was remediated at {_clock(last.at, now)}"
    if over <= now:
        if paused <= now:
            return NextRemediation(retry=0)
        pause = format_duration(paused - last.at)
        return NextRemediation(
            retry=0, not_before=paused, why=f"not before {_clock(paused, now)}: {after}, and the backoff is {pause}"
        )
    if rules.max_retry is not None and last.retry >= rules.max_retry:
        why = f"{after}; from {_clock(over, now)} on it would be a new story"
        return NextRemediation(retry=last.retry, exhausted=_exhausted(last, rules), failed=last.failed, why=why)
    counted = f"retry {retry}" + (f" of {rules.max_retry}" if rules.max_retry is not None else "")
    due, pause = max(
        (min(later(last.at, rules.retry_period), over), f"the retryPeriod is {format_duration(rules.retry_period)}"),
        (paused, f"the backoff is {format_duration(paused - last.at)}"),
        key=lambda wait: wait[0],
    )
    if due <= now:
        return NextRemediation(retry=retry, failed=last.failed, why=f"{counted}: {after}")
    return NextRemediation(
        retry=retry, not_before=due, failed=last.failed, why=f"{counted}, not before {_clock(due, now)}: {after}, and {pause}"
    )


def _exhausted(last: LastRemediation, rules: RetryRules) -> str:
    times = "once" if last.retry == 0 else f"{last.retry + 1} times"
    period = format_duration(rules.min_healthy_period)
    return f"it was remediated {times} and did not stay well for {period}: maxRetry is {rules.max_retry}, last was {last.of}"


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


def leave_to_autoscaler(created: datetime | None, patience: timedelta = AUTOSCALER_PATIENCE) -> datetime | None:
    """Until when a Machine that never had a Node is the autoscaler's, whose node group its set is; None: no moment is known."""
    return None if created is None else later(created, patience)


def written_memory(last: LastRemediation) -> str:
    """The annotation's value; keys sorted, so that equal memories are equal strings. Moments are whole seconds, as the API's."""
    values = {
        "machine": last.of,
        "timestamp": written(last.at),
        "retryCount": last.retry,
        "failed": list(last.failed[-MOST_FAILED:]),
        "incident": last.incident,
    }
    return json.dumps(values, sort_keys=True)


def read_memory(text: str, *, subject: str = "its object", annotation: str = LAST_REMEDIATION_ANNOTATION) -> LastRemediation:
    """The memory in an annotation's value, ours or KubeadmControlPlane's. Unknown keys are ignored (a newer nodewarden may have
    written them). Raises PolicyError naming object and annotation: what can't be read is never taken for absent.
    """
    field = f"metadata.annotations[{annotation}]"
    try:
        raw = json.loads(text) if len(text) <= LONGEST_TEXT else None
    except (ValueError, RecursionError) as error:  # also for a number too long and for brackets too deep
        raise PolicyError(subject, field, f"expected the JSON of the last remediation, got {shown(text)} ({error})") from error
    if not isinstance(raw, dict):
        raise PolicyError(subject, field, f"expected an object with machine, timestamp and retryCount, got {shown(text)}")
    machine, at = raw.get("machine"), moment_of(raw.get("timestamp"))
    retry, failed, incident = raw.get("retryCount", 0), raw.get("failed") or [], raw.get("incident") or ""
    if not _name(machine):
        problem = f"expected machine to be a name of at most {LONGEST_NAME} characters, got {shown(machine)}"
    elif at is None:
        problem = f"expected timestamp to be a moment such as 2026-01-31T12:00:00Z, got {shown(raw.get('timestamp'))}"
    elif not isinstance(retry, int) or isinstance(retry, bool) or not 0 <= retry <= MOST_RETRIES:
        problem = f"expected retryCount to be a whole number of at least 0, got {shown(retry)}"
    elif not isinstance(failed, list) or len(failed) > MOST_FAILED or not all(map(_name, failed)):
        problem = f"expected failed to be a list of at most {MOST_FAILED} steps, got {shown(failed)}"
    elif not isinstance(incident, str) or len(incident) > LONGEST_NAME:
        problem = f"expected incident to be a name of at most {LONGEST_NAME} characters, got {shown(incident)}"
    else:
        return LastRemediation(of=str(machine), at=at, retry=retry, failed=tuple(failed), incident=incident)
    raise PolicyError(subject, field, problem)


def memory_of(annotations: Mapping[str, str], *, subject: str) -> LastRemediation | None:
    """What an object remembers, None where nothing: the later one where KubeadmControlPlane remembers something, too."""
    found = [
        read_memory(annotations[annotation], subject=subject, annotation=annotation)
        for annotation in (LAST_REMEDIATION_ANNOTATION, REMEDIATION_FOR_ANNOTATION)
        if annotation in annotations
    ]
    return max(found, key=lambda last: last.at, default=None)


class _Written:
    """What people wrote of the rules. Not `policy/fields.py`: that one knows health checks, and they know these rules."""

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


def _name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME


def _clock(moment: datetime, now: datetime) -> str:
    """A moment of today as people read it, any other one in full."""
    return f"{moment:%H:%M:%S}" if moment.date() == now.date() else written(moment)
