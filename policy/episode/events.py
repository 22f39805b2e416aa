"""The Events of an episode for people with kubectl: the one table of reasons, and which line of the record becomes which Event.

Alerts and scripts select by reason, so a published one is never renamed. The decision record has the whole story; an Event is
its headline on the Node and on the NodeFence (`policy/episode/nodefence.py`). `activities/cluster/api/events.py` writes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from policy.episode.messages import EpisodeStatus, Phase, RecordEntry
from policy.fence.config import FenceStep


class When(StrEnum):
    """The occasions of notifications outside Kubernetes (`activities/notification_sender.py`)."""

    NEEDS_HUMAN = "needs-human"
    ENDED = "ended"
    REPEATED = "repeated"
    DATA_AT_RISK = "data-at-risk"
    HALTED = "halted"
    CIRCUIT_BREAKER = "circuit-breaker"
    VIEW_STALE = "view-stale"
    NO_PERMIT = "no-permit"
    TEMPORAL_AWAY = "temporal-away"


class EventReason(StrEnum):
    """Every reason of an Event about an episode, or about an episode that was not opened."""

    STEP_STARTED = "StepStarted"
    STEP_RETRIED = "StepRetried"
    """Another try of the step begins; the message names the failure."""
    STEP_SUCCEEDED = "StepSucceeded"
    STEP_FAILED = "StepFailed"
    """The step has used up its tries."""
    STEP_SKIPPED = "StepSkipped"
    """The step was not carried out: the message names the policy, the veto or the return of the node that kept it back."""
    FLOW_RESTARTED = "FlowRestarted"
    NODE_ISOLATED = "NodeIsolated"
    PATH_CUT = "PathCut"
    VOLUMES_DETACHED = "VolumesDetached"
    QUARANTINED = "Quarantined"
    QUARANTINE_LIFTED = "QuarantineLifted"
    PATH_RESTORED = "PathRestored"
    NODE_POWERED_OFF = "NodePoweredOff"
    PARTLY_SWITCHED_ON = "PartlySwitchedOn"
    """The machine is on, but not all of its devices could be switched on."""
    MACHINE_KEPT = "MachineKept"
    """A machine that was to be given up is kept, because another Node object stands for it by now."""
    WORKLOADS_FREED = "WorkloadsFreed"
    WORKLOADS_NOT_FREED = "WorkloadsNotFreed"
    """The licence ended before any consequence began (S6)."""
    WORKLOADS_LEFT = "WorkloadsLeft"
    CIRCUIT_BREAKER_OVERRIDDEN = "CircuitBreakerOverridden"
    """A person overrides the open circuit breaker of a health check for this node."""
    NEEDS_HUMAN = "NeedsHuman"
    EPISODE_ENDED = "EpisodeEnded"
    FENCING_SKIPPED = "FencingSkipped"
    """No episode was opened for the node although a check asks for one: a budget, the quorum, a hold-off."""
    MACHINE_PRESERVED = "MachinePreserved"
    PRESERVED_NOT_FENCED = "PreservedNotFenced"
    """A machine is kept powered, and not all of its pods could be moved."""
    PRESERVED_ISOLATED = "PreservedIsolated"
    PRESERVED_NOT_ISOLATED = "PreservedNotIsolated"
    """A machine that is kept is to be cut off, and something is in the way."""
    PRESERVATION_ENDED = "PreservationEnded"
    REMEDIATION_STEP_FAILED = "RemediationStepFailed"
    REMEDIATION_TIMED_OUT = "RemediationTimedOut"
    """A requested deletion did not end in its time; the next step may well let it end."""
    REPLACEMENT_FAILED = "ReplacementFailed"
    REPLACEMENT_LATE = "ReplacementLate"
    REPEATED_FENCING = "RepeatedFencing"
    """The same node for the same reason again and again (`policy/scan/repeat_alarm.py`)."""
    REPEATED_REPAIRS = "RepeatedRepairs"
    """The same machine again and again, whatever its Node is called (`policy/history/offenders.py`)."""


WARNINGS = frozenset(
    {
        EventReason.STEP_RETRIED,
        EventReason.STEP_FAILED,
        EventReason.FLOW_RESTARTED,
        EventReason.PARTLY_SWITCHED_ON,
        EventReason.MACHINE_KEPT,
        EventReason.WORKLOADS_LEFT,
        EventReason.CIRCUIT_BREAKER_OVERRIDDEN,
        EventReason.NEEDS_HUMAN,
        EventReason.REMEDIATION_STEP_FAILED,
        EventReason.REMEDIATION_TIMED_OUT,
        EventReason.REPLACEMENT_FAILED,
        EventReason.REPLACEMENT_LATE,
        EventReason.MACHINE_KEPT,
        EventReason.PRESERVED_NOT_FENCED,
        EventReason.PRESERVED_NOT_ISOLATED,
        EventReason.REPEATED_FENCING,
        EventReason.REPEATED_REPAIRS,
    }
)
"""Always of type Warning. The end of an episode is a Warning unless the node recovered."""

_OF_RECORD = {
    ("restart", "begins"): EventReason.FLOW_RESTARTED,
    ("free-workloads", "ok"): EventReason.WORKLOADS_FREED,
    ("free-while-dumping", "ok"): EventReason.WORKLOADS_FREED,
    ("free-workloads", "dropped"): EventReason.WORKLOADS_NOT_FREED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeEvent:
    """One Event that is to be written."""

    reason: EventReason
    message: str

    @property
    def warning(self) -> bool:
        return self.reason in WARNINGS


def event_of(entry: RecordEntry) -> EpisodeEvent | None:
    """The Event for a line of the decision record; most lines have None."""
    if entry.outcome == "skipped" and entry.act in set(FenceStep):
        return EpisodeEvent(reason=EventReason.STEP_SKIPPED, message=f"{entry.act}: {entry.detail}")
    reason = _OF_RECORD.get((entry.act, entry.outcome))
    return EpisodeEvent(reason=reason, message=entry.detail) if reason is not None else None


class Headline(Protocol):
    """What people read of an Event."""

    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...


Line = TypeVar("Line", bound=Headline)

_TOLD_BY = {FenceStep.ISOLATION: EventReason.NODE_ISOLATED, FenceStep.RECOVERY: EventReason.EPISODE_ENDED}
"""What says how a step has succeeded says that it has."""


def without_repetition(events: Iterable[Line]) -> list[Line]:
    """Of the Events of one moment, in their order, those that tell more than the others: what has come of a step tells that it
    was begun."""
    kept = list[Line]()
    for event in events:
        succeeded = FenceStep(event.message) if event.reason == EventReason.STEP_SUCCEEDED else None
        step = FenceStep.POWER_MANAGEMENT if event.reason == EventReason.NODE_POWERED_OFF else succeeded
        if step is not None:
            began = f"{step}: "
            kept = [each for each in kept if each.reason != EventReason.STEP_STARTED or not each.message.startswith(began)]
        if succeeded is None or _TOLD_BY.get(succeeded) not in {each.reason for each in kept}:
            kept.append(event)
    return kept


def events_between(before: EpisodeStatus | None, after: EpisodeStatus, failure: str) -> Iterator[EpisodeEvent]:
    """The Events for a change of an episode's state. failure: how the latest try failed, "" if none did."""
    if not after.step or after.phase is Phase.QUEUED:
        return
    new_step = before is None or before.step != after.step
    if new_step:
        yield EpisodeEvent(reason=EventReason.STEP_STARTED, message=f"{after.step}: {after.reason}")
    elif before is not None and after.try_number > max(before.try_number, 1):
        why = f" after {failure}" if failure else ""
        yield EpisodeEvent(reason=EventReason.STEP_RETRIED, message=f"{after.step}: try {after.try_number}{why}")
    if before is None or before.phase is after.phase:
        return
    if after.phase is Phase.ERROR:
        yield EpisodeEvent(reason=EventReason.STEP_FAILED, message=f"{after.step}: {after.doing}")
    elif _ends_well(before.phase, after):
        yield EpisodeEvent(reason=EventReason.STEP_SUCCEEDED, message=after.step)


def _ends_well(before: Phase, after: EpisodeStatus) -> bool:
    """Whether the new phase says that the step has done its work. A step that a person resumed has not yet."""
    if after.step == FenceStep.ISOLATION:
        return (before, after.phase) == (Phase.NEW, Phase.RUNNING)
    return (after.step, after.phase) in {(FenceStep.POWER_MANAGEMENT, Phase.DONE), (FenceStep.RECOVERY, Phase.FINAL)}
