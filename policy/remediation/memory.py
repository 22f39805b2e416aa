"""The last remediation of a target, kept on its Node or Machine and copied to the machine that replaces it; and when the next
one may begin.

A replacement is a new Machine with a new Node. Without this memory a MachineSet with machines that fail as soon as they start
would be remediated in a hot loop. The memory holds when the target was remediated, the number of the try, and which steps
failed. `policy/checks/health_check.py` reads a health check's settings of retries and pauses.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from policy.checks.health_check import AUTOSCALER_PATIENCE, MOST_RETRIES, HealthCheck, RetryBackoff, RetryRules, strictest
from policy.checks.verdict import JudgedTarget
from policy.objects.machines import MachineView
from policy.values.errors import PolicyError, shown
from policy.values.times import format_duration, later, moment_of, written

LAST_REMEDIATION_ANNOTATION = "nodewarden.io/last-remediation"
"""On a Node or Machine: the last remediation of its lineage, JSON of `LastRemediation`."""

REMEDIATION_FOR_ANNOTATION = "controlplane.cluster.x-k8s.io/remediation-for"
"""KubeadmControlPlane's own memory, on the Machine that replaces another one."""


LONGEST_TEXT = 30_000
LONGEST_NAME = 500
MOST_FAILED = 50
"""Any writer of the annotation can put text there, which goes into histories, Events and reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRemediation:
    """The last remediation of a lineage, that is, a machine and its replacements. of: the machine or node that was remediated.
    retry: its number in this sequence, 0 for the first. failed: names of the steps that failed in this sequence. incident: of
    its episode."""

    of: str
    at: datetime
    retry: int = 0
    failed: tuple[str, ...] = ()
    incident: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRemediation:
    """The next remediation of a lineage.

    retry: its number in the sequence, 0 begins a new one; of an exhausted one the number of the last. not_before: None for at
    once. exhausted: why only a person may go on, in words; then there is no next date. failed: the steps that have failed in
    this sequence. why: the reason for the retry, the wait or the end, for people.
    """

    retry: int
    not_before: datetime | None = None
    exhausted: str = ""
    failed: tuple[str, ...] = ()
    why: str = ""


def next_turn(last: LastRemediation | None, rules: RetryRules, now: datetime) -> NextRemediation:
    """The next remediation after the last one.

    All comparisons are KubeadmControlPlane's: at exactly the end of a period it is over. A backoff is waited out even where
    min_healthy_period is shorter, or a short one would bring back the loop; a retry_period ends with the sequence, as it is
    about retries only.
    """
    if last is None:
        return NextRemediation(retry=0)
    over, retry = later(last.at, rules.min_healthy_period), last.retry + 1
    paused = later(last.at, rules.backoff.before(retry)) if rules.backoff is not None else last.at
    after = f"{last.of} was remediated at {written(last.at)}"
    if over <= now:
        if paused <= now:
            return NextRemediation(retry=0)
        pause = format_duration(paused - last.at)
        return NextRemediation(
            retry=0, not_before=paused, why=f"not before {written(paused)}: {after}, and the backoff is {pause}"
        )
    if rules.max_retry is not None and last.retry >= rules.max_retry:
        why = f"{after}; from {written(over)} on it would be a new story"
        times = "once" if last.retry == 0 else f"{last.retry + 1} times"
        period = format_duration(rules.min_healthy_period)
        exhausted = (
            f"it was remediated {times} and did not stay well for {period}: maxRetry is {rules.max_retry}, last was {last.of}"
        )
        return NextRemediation(retry=last.retry, exhausted=exhausted, failed=last.failed, why=why)
    counted = f"retry {retry}" + (f" of {rules.max_retry}" if rules.max_retry is not None else "")
    due, pause = max(
        (min(later(last.at, rules.retry_period), over), f"the retryPeriod is {format_duration(rules.retry_period)}"),
        (paused, f"the backoff is {format_duration(paused - last.at)}"),
        key=lambda wait: wait[0],
    )
    if due <= now:
        return NextRemediation(retry=retry, failed=last.failed, why=f"{counted}: {after}")
    return NextRemediation(
        retry=retry, not_before=due, failed=last.failed, why=f"{counted}, not before {written(due)}: {after}, and {pause}"
    )


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
    written them). Raises PolicyError naming object and annotation: a memory that can't be read never counts as absent."""
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
    """The memory in an object's annotations, None where there is none; the later one where KubeadmControlPlane has one, too."""
    found = [
        read_memory(annotations[annotation], subject=subject, annotation=annotation)
        for annotation in (LAST_REMEDIATION_ANNOTATION, REMEDIATION_FOR_ANNOTATION)
        if annotation in annotations
    ]
    return max(found, key=lambda last: last.at, default=None)


def _name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME


# The next remediation of one target: when it may begin, and whether it may at all.
#
# A Machine that never became a node is the case that loops: its set makes another one at once, which fails as well. It is left
# to the cluster autoscaler for as long as the autoscaler waits for a machine, and its remediation backs off in any case.

DEFAULT_RETRIES = RetryRules()
"""Cluster API's: without limit, and at once."""

NEVER_JOINED = RetryBackoff()
"""For a Machine that never had a Node, where no check sets a backoff."""

AUTOSCALED = "MachineSet"
"""The kind of owner that the cluster autoscaler scales."""

OWNERS_OWN = "KubeadmControlPlane"
"""This owner keeps its own memory: it alone carries out its remediationStrategy."""


def turn_of(
    target: JudgedTarget, checks: Iterable[HealthCheck], now: datetime, *, retries: RetryRules = DEFAULT_RETRIES
) -> NextRemediation:
    """The next remediation of a target that those checks would act on now. The longest delay of all checks wins."""
    checks, machine = tuple(checks), target.machine
    if machine is not None and machine.controller.partition("/")[0] == OWNERS_OWN:
        return NextRemediation(retry=0)
    try:
        last = last_of(target)
    except PolicyError as error:
        # A memory that can't be read never counts as absent: a person corrects or removes it.
        return NextRemediation(retry=0, exhausted=str(error))
    if last is None:
        return NextRemediation(retry=0)
    turn = next_turn(last, rules_for(target, checks, retries), now)
    never_joined = machine is not None and not machine.node_name
    return _left_to_autoscaler(turn, machine, checks, now) if machine is not None and never_joined else turn


def rules_for(target: JudgedTarget, checks: Iterable[HealthCheck], retries: RetryRules = DEFAULT_RETRIES) -> RetryRules:
    """The rules that delay the target's next remediation."""
    checks = tuple(checks)
    rules = strictest(each.retry or retries for each in checks) if checks else retries
    never_joined = target.machine is not None and not target.machine.node_name
    if never_joined and rules.backoff is None and not any(each.retry is not None for each in checks):
        return replace(rules, backoff=NEVER_JOINED)
    return rules


def last_of(target: JudgedTarget) -> LastRemediation | None:
    """The later memory of its Machine and its Node: a check of Nodes knows no Machines. Raises PolicyError."""
    found = []
    if (machine := target.machine) is not None:
        found.append(memory_of(machine.annotations, subject=f"Machine/{machine.namespace}/{machine.name}"))
    if (node := target.node) is not None:
        found.append(memory_of(node.annotations, subject=f"Node/{node.name}"))
    return max((each for each in found if each is not None), key=lambda last: last.at, default=None)


def _left_to_autoscaler(
    turn: NextRemediation, machine: MachineView, checks: tuple[HealthCheck, ...], now: datetime
) -> NextRemediation:
    """Wait longer with a replacement that failed before it had a Node: an autoscaler must be able to see that its set is
    broken."""
    if turn.exhausted or machine.controller.partition("/")[0] != AUTOSCALED:
        return turn
    patience = max((each.autoscaler_patience for each in checks), default=AUTOSCALER_PATIENCE)
    until = None if machine.created is None else later(machine.created, patience)
    if until is None or until <= now or (turn.not_before is not None and turn.not_before >= until):
        return turn
    given_time = (
        f"not before {written(until)}: it never had a Node, and the cluster autoscaler is given its time to try another set"
    )
    return replace(turn, not_before=until, why=f"{turn.why}; {given_time}" if turn.why else given_time)
