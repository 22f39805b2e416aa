"""What the scanner remembers of episodes that have ended or parked: which nodes are left alone now, and until when (S19).

Learned from their releases, forgotten by time or once a live view sees the node well. Whether that keeps a node from a permit is
`policy/scan/permit_rules.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from temporalio import workflow

from activities.contracts.episodes import EpisodeDescription, Opened, OpenOutcome
from policy.checks.fence_policies import NO_POLICIES, Attempts, PowerMoment, left_alone_until
from policy.episode.advice import until_well_or_asked
from policy.episode.messages import NeedKind, Outcome, SeenNode
from policy.episode.permits import HoldOff, Permit, PermitState, Release, Replacing
from policy.scan.scan_report import ScanReport
from workflows.kit.options import OLDEST_REPORT
from workflows.scanner.state import ScannerState

AFTER_REFUSAL = timedelta(minutes=1)
"""How long a node gets no new episode after one that ended at once (bad template, a veto)."""
AFTER_VETO = timedelta(minutes=10)
"""How long at most it gets no new one while another owner holds its lease: that may be given back long before it would end."""
FAILURES_REMEMBERED = timedelta(days=1)
"""How long a failed attempt counts towards the next ones."""
UNJUDGED = timedelta(days=1)
"""How long a node that seems well is held off for what ailed it, while a check that counted it then is gone or was changed: it
may be replaced or corrected, and call the node as sick as before (S19)."""
CLOSING = timedelta(seconds=30)
"""How long an episode that has given its permit back for good may still be described as open, or its mark be reported: what was
asked before its end may arrive after it. It must not bring its permit back until the next description, nor have marks cleaned up
that it has removed itself."""

HELD_LONGER = "what-keeps-a-node-for-longer-outlives-a-refused-opening"
"""Histories of builds in which the refused opening took its place go on as they began."""


def against_candidates(state: ScannerState) -> tuple[HoldOff, ...]:
    """All that keeps a candidate of a report from a permit."""
    reason = "its episode has just ended; the next scan decides"
    return (*(HoldOff(node=node, reason=reason) for node in sorted(state.settling)), *state.held_off.values())


def against_requests(state: ScannerState) -> list[HoldOff]:
    """The same for an episode that asks. It has the node's workflow id: that it kept others from the node is no reason against
    it."""
    now = workflow.now()
    return [each for each in state.held_off.values() if not each.holder and (each.until is None or each.until > now)]


def is_left_alone(state: ScannerState, node: str) -> bool:
    """Whether the scanner begins nothing for the node by itself."""
    return node in state.settling or node in state.held_off


def note_refused_opening(state: ScannerState, permit: Permit, outcome: OpenOutcome) -> None:
    """The episode of that permit could not be opened. HELD_OFF: until a person's word ends, the last one of which is known; else
    for a moment. What the last scanner has said of the node meanwhile may hold for longer (S19)."""
    by_word = outcome.opened is Opened.HELD_OFF
    until = outcome.until if by_word else workflow.now() + AFTER_REFUSAL
    if until is not None and _is_held_longer(state, permit.node, until) and workflow.patched(HELD_LONGER):
        return
    state.held_off[permit.node] = HoldOff(
        node=permit.node,
        reason=outcome.reason or outcome.holder,
        until=until,
        holder=outcome.holder,
        judges=_judges(state, permit.node, permit) if by_word else (),
    )


def end_by_person(state: ScannerState, episode: EpisodeDescription) -> None:
    """A person wants the node to be acted upon, and the episode has got the permit. What asks is believed once Temporal shows
    such an episode: any client may send the request. That another episode is in the way ends by itself."""
    node, permit = episode.node, state.permits.get(episode.node)
    if permit is None or permit.state is PermitState.PARKED or permit.incident != episode.incident:
        return
    if not episode.open or not episode.by_person:
        return
    if (hold_off := state.held_off.get(node)) is not None and not hold_off.holder:
        del state.held_off[node]
    state.attempts.pop(node, None)


def just_ended(state: ScannerState) -> dict[str, datetime]:
    """The incidents that have just been released for good, and when."""
    return {incident: at for incident, at in state.released.items() if workflow.now() - at < CLOSING}


def note_release(state: ScannerState, release: Release) -> None:
    """An episode has ended or parked. Its node is left alone until a scan that is younger than its end."""
    permit = state.permits.get(release.node)
    known = permit if permit is not None and permit.incident == release.incident else None
    _note_power(state, release)
    _note_attempt(state, release, known)
    _note_replacement(state, release, known)
    if release.parked:
        return
    note_closed(state, release.node, release.incident)
    if release.outcome in {Outcome.ABORTED.value, Outcome.FENCED_OFF.value}:
        reason = f"{release.problem} (incident {release.incident}); {until_well_or_asked(release.node)}"
        state.held_off[release.node] = HoldOff(node=release.node, reason=reason, judges=_judges(state, release.node, known))
    elif release.problem and not release.missing and release.outcome in {Outcome.RELEASED.value, Outcome.REFUSED.value}:
        until = workflow.now() + AFTER_REFUSAL
        if release.vetoed_until is not None:
            until = max(until, min(release.vetoed_until, workflow.now() + AFTER_VETO))
        if not _is_held_longer(state, release.node, until):
            reason = f"its last episode ended {release.outcome} (incident {release.incident}): {release.problem}"
            state.held_off[release.node] = HoldOff(node=release.node, reason=reason, until=until)
    _hold_off_after_failures(state, release)


def note_closed(state: ScannerState, node: str, incident: str) -> None:
    """An episode has ended, by its release or as Temporal shows: the last report may be from before that."""
    state.settling.add(node)
    state.released = just_ended(state) | {incident: workflow.now()}


def _note_power(state: ScannerState, release: Release) -> None:
    """The later of the two commands is what the quiet time counts from."""
    moments = [(release.powered_on_at, True), (release.powered_off_at, False)]
    known = [PowerMoment(node=release.node, on=on, at=at) for at, on in moments if at is not None]
    if known:
        state.power[release.node] = max(known, key=lambda moment: moment.at)


def _note_attempt(state: ScannerState, release: Release, permit: Permit | None) -> None:
    """Count failures in a row (S19): an episode that could not begin, or that has parked. One that people stopped or vetoed has
    not failed, and one that was never granted was none; any other end is a success."""
    if permit is None or permit.state is PermitState.PARKED:
        return
    if release.parked or release.outcome == Outcome.REFUSED.value:
        before = state.attempts.get(release.node)
        failed = (before.failed if before is not None else 0) + 1
        state.attempts[release.node] = Attempts(node=release.node, failed=failed, at=workflow.now())
    elif release.outcome != Outcome.RELEASED.value:
        state.attempts.pop(release.node, None)


def _note_replacement(state: ScannerState, release: Release, permit: Permit | None) -> None:
    """The machine that its owner has made in its place learned a moment ago what to remember; reports may not know that yet."""
    now = workflow.now()
    state.replaced = [each for each in state.replaced if each.until is not None and each.until > now]
    if permit is not None and permit.owner and not release.parked:
        state.replaced.append(Replacing(owner=permit.owner, node=permit.node, since=permit.granted_at, until=now + OLDEST_REPORT))


def _hold_off_after_failures(state: ScannerState, release: Release) -> None:
    attempts = state.attempts.get(release.node)
    policies = state.report.policies if state.report is not None else NO_POLICIES
    until = left_alone_until(attempts, policies) if attempts is not None else None
    if attempts is None or until is None or until <= workflow.now():
        return
    if not _is_held_longer(state, release.node, until):
        reason = f"attempts failed in a row: {attempts.failed}, the last one with: {release.problem}"
        state.held_off[release.node] = HoldOff(node=release.node, reason=reason, until=until)


def _is_held_longer(state: ScannerState, node: str, until: datetime) -> bool:
    hold_off = state.held_off.get(node)
    return hold_off is not None and (hold_off.until is None or hold_off.until >= until)


def forget_what_is_over(state: ScannerState, report: ScanReport) -> None:
    """A held-off node is free again when its time is over, or once a live view sees it well, or gone.

    That it is no candidate says nothing: under an open circuit breaker, or without its check, the sickest node is none.
    """
    now = workflow.now()
    quiet = report.policies.quiet_time or timedelta(0)
    state.power = {node: moment for node, moment in state.power.items() if now - moment.at < quiet}
    remembered = max(FAILURES_REMEMBERED, 2 * report.policies.pause)
    state.attempts = {node: each for node, each in state.attempts.items() if now - each.at < remembered}
    seen = {each.node: each for each in report.seen_nodes} if not report.view.stale else {}
    asked_for = {each.node for each in report.candidates if each.need is NeedKind.FOREIGN_OBJECT}
    for node in state.settling | asked_for:
        seen.pop(node, None)  # what it was before its episode's end; or it is asked for although it is well
    found = (
        _still_held(hold_off, seen.get(node), report, now)
        for node, hold_off in state.held_off.items()
        if hold_off.until is None or hold_off.until > now
    )
    state.held_off = {hold_off.node: hold_off for hold_off in found if hold_off is not None}


def _still_held(hold_off: HoldOff, seen: SeenNode | None, report: ScanReport, now: datetime) -> HoldOff | None:
    """None: it is free again."""
    is_gone = seen is not None and not seen.present and not seen.others  # no node, no Machine of it: what comes is another one
    if seen is None or not (is_gone or (seen.ready and not seen.unhealthy and not seen.soon)):
        return hold_off
    versions = _versions_of(report)
    judged = set(hold_off.judges) <= {_version(key, versions) for key in seen.checks}
    if hold_off.until is None and any(each.error for each in report.checks):
        judged = False  # it is not known which nodes that check would count
    if judged or is_gone or (hold_off.looked_well is not None and now - hold_off.looked_well >= UNJUDGED):
        return None
    return hold_off if hold_off.looked_well is not None else replace(hold_off, looked_well=now)


def _judges(state: ScannerState, node: str, permit: Permit | None) -> tuple[str, ...]:
    """The checks that counted it when its permit was granted, or by the last report: an episode that was found has none (S19)."""
    if state.report is None:
        counted_by, versions = (), dict[str, str]()
    else:
        counted_by = next((each.checks for each in state.report.seen_nodes if each.node == node), ())
        versions = _versions_of(state.report)
    keys = {*(permit.checks if permit is not None else ()), *counted_by}
    return tuple(_version(key, versions) for key in sorted(keys))


def _versions_of(report: ScanReport) -> dict[str, str]:
    """Of the checks that can be used."""
    return {each.ref.key: f"{each.uid}/{each.generation}" for each in report.checks if not each.error}


def _version(key: str, versions: Mapping[str, str]) -> str:
    return f"{key} {versions.get(key, '')}"
