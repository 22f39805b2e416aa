"""What the scanner remembers of episodes that have ended or parked: whose node is left alone now, and until when (S19).

Heard from their releases, forgotten by time or once a live view sees the node well. Whether that keeps somebody from a permit is
`policy/scan/admission.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from temporalio import workflow

from policy.checks.fence_policies import NO_POLICIES, Attempts, PowerMoment, left_alone_until
from policy.episode.advice import until_well_or_asked
from policy.episode.messages import NeedKind, Observation, Outcome
from policy.episode.permits import Permit, PermitState, Release, Replacing
from policy.scan.scan_report import ScanReport
from workflows.kit.messages import Backoff, ScannerState
from workflows.kit.options import TOLD_LATELY

AFTER_REFUSAL = timedelta(minutes=1)
"""How long a node whose episode ended at once (bad template, a veto) gets no new one."""
AFTER_VETO = timedelta(minutes=10)
"""How long at most it gets no new one while somebody holds its lease: he may give it back long before it would end."""
FAILURES_REMEMBERED = timedelta(days=1)
"""How long a failed attempt counts towards the next ones."""
UNJUDGED = timedelta(days=1)
"""How long a node that seems well is held off for what ailed it, while a check that counted it then is gone or was changed: it
may be replaced or corrected, and call the node as sick as before (S19)."""
CLOSING = timedelta(seconds=30)
"""How long an episode that has given its permit back for good may still be described as open, or its mark be reported: what was
asked before its end may be heard after it. It must not bring its line back until the next description, nor have marks cleaned up
that it has removed itself."""


class HoldingOff:
    """One per scanner; what is not derived is carried over by it."""

    def __init__(self, state: ScannerState) -> None:
        self._held_off = {held.node: held for held in state.held_off}
        self._policies = state.report.policies if state.report is not None else NO_POLICIES
        self._versions = _versions_of(state.report) if state.report is not None else {}
        self._counted_by = _counted_by(state.report) if state.report is not None else {}
        self._unreadable = False
        self._power = {moment.node: moment for moment in state.power}
        self._attempts = {each.node: each for each in state.attempts}
        self._replaced = list(state.replaced)
        self._released_at = dict(state.released)
        self.settling: set[str] = set()
        """Nodes whose episode has ended since the last report was made: that still shows them as they were."""

    @property
    def held_off(self) -> tuple[Backoff, ...]:
        """Nodes that get no new episode for now, and why."""
        return tuple(self._held_off.values())

    @property
    def power(self) -> tuple[PowerMoment, ...]:
        """The last power commands that may still be too young for the opposite one."""
        return tuple(self._power.values())

    @property
    def attempts(self) -> tuple[Attempts, ...]:
        """Nodes on which the last attempts have failed."""
        return tuple(self._attempts.values())

    @property
    def replaced(self) -> tuple[Replacing, ...]:
        """Remediations that have ended lately, and brought a machine that reports may not know enough of yet."""
        return tuple(self._replaced)

    def against_candidates(self) -> tuple[Backoff, ...]:
        """All that keeps a candidate of a report from a permit."""
        reason = "its episode has just ended; the next scan decides"
        return (*(Backoff(node=node, reason=reason) for node in sorted(self.settling)), *self.held_off)

    def against_requests(self) -> list[Backoff]:
        """The same for who asks. He holds the node's workflow id: that this kept others from it is no reason against him."""
        now = workflow.now()
        return [held for held in self._held_off.values() if not held.holder and (held.until is None or held.until > now)]

    def leaves_alone(self, node: str) -> bool:
        """Whether nothing is begun for the node by ourselves."""
        return node in self.settling or node in self._held_off

    def refused_to_open(self, line: Permit, reason: str, *, holder: str, until_well: bool) -> None:
        """The episode of that line could not be opened. until_well: else for a moment."""
        until = None if until_well else workflow.now() + AFTER_REFUSAL
        judges = self._judges(line.node, line) if until_well else ()
        self._held_off[line.node] = Backoff(node=line.node, reason=reason, until=until, holder=holder, judges=judges)

    def hear_person(self, node: str) -> None:
        """A person wants the node to be acted upon."""
        self._held_off.pop(node, None)
        self._attempts.pop(node, None)

    def hear_report(self) -> None:
        """A scan has come in after every release heard so far: what it says of their nodes may be believed again. It may be older
        than the latest by a moment, and the worker's view a little older still; for marks that is what `CLOSING` is for."""
        self.settling.clear()

    def released_at(self, incident: str) -> datetime | None:
        """When it was released for good, None where it has not been lately."""
        return self._released_at.get(incident)

    def closing(self) -> dict[str, datetime]:
        """The incidents that have just been released for good, and when."""
        return {incident: at for incident, at in self._released_at.items() if workflow.now() - at < CLOSING}

    def hear_release(self, release: Release, permit: Permit | None) -> None:
        """permit: the line of the node. Its node is left alone until a scan that is younger than its end."""
        known = permit if permit is not None and permit.incident == release.incident else None
        self._note_power(release)
        self._note_attempt(release, known)
        self._note_replacement(release, known)
        if release.parked:
            return
        self.settling.add(release.node)
        self._released_at = self.closing() | {release.incident: workflow.now()}
        if release.outcome in {Outcome.ABORTED.value, Outcome.FENCED_OFF.value}:
            reason = f"{release.problem} (incident {release.incident}); {until_well_or_asked(release.node)}"
            self._held_off[release.node] = Backoff(node=release.node, reason=reason, judges=self._judges(release.node, known))
        elif release.problem and not release.missing and release.outcome in {Outcome.RELEASED.value, Outcome.REFUSED.value}:
            until = workflow.now() + AFTER_REFUSAL
            if release.vetoed_until is not None:
                until = max(until, min(release.vetoed_until, workflow.now() + AFTER_VETO))
            self._held_off[release.node] = Backoff(node=release.node, reason=release.problem, until=until)
        self._hold_off_after_failures(release)

    def forget(self, report: ScanReport) -> None:
        """A held-off node is free again when its time is over, or once a live view sees it well, or gone.

        That it is no candidate says nothing: under an open circuit breaker, or without its check, the sickest node is none.
        """
        self._policies, self._versions, self._counted_by = report.policies, _versions_of(report), _counted_by(report)
        self._unreadable = any(each.error for each in report.checks)
        quiet = report.policies.quiet_time or timedelta(0)
        self._power = {node: moment for node, moment in self._power.items() if workflow.now() - moment.at < quiet}
        remembered = max(FAILURES_REMEMBERED, 2 * report.policies.pause)
        self._attempts = {node: each for node, each in self._attempts.items() if workflow.now() - each.at < remembered}
        now, seen = workflow.now(), {each.node: each for each in report.observations} if not report.view.stale else {}
        asked_for = {each.node for each in report.candidates if each.need is NeedKind.FOREIGN_OBJECT}
        for node in self.settling | asked_for:
            seen.pop(node, None)  # what it was before its episode's end; or it is asked for although it is well
        found = (
            self._still_held(held, seen.get(node), now)
            for node, held in self._held_off.items()
            if held.until is None or held.until > now
        )
        self._held_off = {held.node: held for held in found if held is not None}

    def _still_held(self, held: Backoff, seen: Observation | None, now: datetime) -> Backoff | None:
        """None: it is free again."""
        if seen is None or not _well_or_gone(seen):
            return held
        judged = set(held.judges) <= {_version(key, self._versions) for key in seen.checks}
        if held.until is None and self._unreadable:
            judged = False  # it is not known which nodes that check would count
        if judged or _is_gone(seen) or (held.looked_well is not None and now - held.looked_well >= UNJUDGED):
            return None
        return held if held.looked_well is not None else replace(held, looked_well=now)

    def _judges(self, node: str, permit: Permit | None) -> tuple[str, ...]:
        """Those that counted it when its permit was granted, or by the last report: a line that was found knows none (S19)."""
        keys = {*(permit.checks if permit is not None else ()), *self._counted_by.get(node, ())}
        return tuple(_version(key, self._versions) for key in sorted(keys))

    def _note_power(self, release: Release) -> None:
        """The later of the two commands is what the quiet time counts from."""
        moments = [(release.powered_on_at, True), (release.powered_off_at, False)]
        known = [PowerMoment(node=release.node, on=on, at=at) for at, on in moments if at is not None]
        if known:
            self._power[release.node] = max(known, key=lambda moment: moment.at)

    def _note_attempt(self, release: Release, permit: Permit | None) -> None:
        """Count failures in a row (S19): an episode that could not begin, or that has parked. One that people stopped or vetoed
        has not failed, and one that was never granted was none; any other end is a success."""
        if permit is None or permit.holding is PermitState.PARKED:
            return
        if release.parked or release.outcome == Outcome.REFUSED.value:
            before = self._attempts.get(release.node)
            failed = (before.failed if before is not None else 0) + 1
            self._attempts[release.node] = Attempts(node=release.node, failed=failed, at=workflow.now())
        elif release.outcome != Outcome.RELEASED.value:
            self._attempts.pop(release.node, None)

    def _note_replacement(self, release: Release, permit: Permit | None) -> None:
        """What its owner has made in its place was told what to remember a moment ago; reports may not know that yet."""
        now = workflow.now()
        self._replaced = [each for each in self._replaced if each.until is not None and each.until > now]
        if permit is not None and permit.owner and not release.parked:
            self._replaced.append(
                Replacing(owner=permit.owner, node=permit.node, since=permit.granted_at, until=now + TOLD_LATELY)
            )

    def _hold_off_after_failures(self, release: Release) -> None:
        attempts, held = self._attempts.get(release.node), self._held_off.get(release.node)
        until = left_alone_until(attempts, self._policies) if attempts is not None else None
        if attempts is None or until is None or until <= workflow.now():
            return
        if held is None or (held.until is not None and held.until < until):
            reason = f"attempts failed in a row: {attempts.failed}, the last one with: {release.problem}"
            self._held_off[release.node] = Backoff(node=release.node, reason=reason, until=until)


def _well_or_gone(seen: Observation) -> bool:
    """Whether nothing ails the node any more, or there is neither a node nor a Machine of it: what comes is another one."""
    return _is_gone(seen) or (seen.ready and not seen.unhealthy and not seen.soon)


def _is_gone(seen: Observation) -> bool:
    return not seen.present and not seen.others


def _versions_of(report: ScanReport) -> dict[str, str]:
    """Of the checks that can be used."""
    return {each.ref.key: f"{each.uid}/{each.generation}" for each in report.checks if not each.error}


def _counted_by(report: ScanReport) -> dict[str, tuple[str, ...]]:
    return {each.node: tuple(each.checks) for each in report.observations}


def _version(key: str, versions: Mapping[str, str]) -> str:
    return f"{key} {versions.get(key, '')}"
