"""How moments, spans and judgements are put into words: the same in the table, the log lines and the messages."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from policy.checks.verdict import Health
from policy.episode.advice import section_of
from policy.episode.messages import REPAIRED, EpisodeResult, EpisodeStatus, Outcome, Phase
from policy.episode.modes import only_some
from policy.episode.node_action import Verb
from policy.episode.permits import HoldOff, PermitState
from policy.scan import pauses
from policy.scan.obstacles import Obstacle, ObstacleCode, all_obstacles
from policy.scan.scan_report import AtRisk, CheckReport, NodeAtRisk, TargetRow
from policy.values.display_text import counted
from policy.values.times import written
from workflows.kit.messages import ScannerStatus


def end_style(outcome: str) -> str:
    """The colour of an end: green for a repair, yellow where the node was given up or given back as it was, else red."""
    return "green" if outcome in REPAIRED else "yellow" if outcome == Outcome.RELEASED else "red"


HEALTH_STYLE = {Health.HEALTHY: "green", Health.SOON: "yellow", Health.UNHEALTHY: "red", Health.SKIPPED: "dim"}


def span(duration: timedelta) -> str:
    """`42s`, `3m07s`, `2h05m`, `4d03h`; what is negative counts as nothing."""
    seconds = max(0, int(duration.total_seconds()))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    if seconds < 86400:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
    return f"{seconds // 86400}d{seconds % 86400 // 3600:02d}h"


def countdown(due: datetime, now: datetime) -> str:
    """Time left, rounded up: it reads 1s until the very moment, and `now` from then on."""
    return time_left(due - now)


def time_left(duration: timedelta) -> str:
    left = math.ceil(duration.total_seconds())
    return span(timedelta(seconds=left)) if left > 0 else "now"


def doing(episode: EpisodeStatus, now: datetime) -> str:
    """What an episode does, and until when, and how long at most until that is over where it is known; of one that is held, what
    ends that."""
    until = f", until {written(episode.preserved_until)}" if episode.preserved_until is not None else ""
    resume = next((way.command for way in episode.ways if way.verb is Verb.RESUME), "") if episode.held else ""
    ends = f"; `{resume}` ends it" if resume and episode.phase is not Phase.NEEDS_HUMAN else ""
    return f"{episode.doing}{until}{at_most(episode.waiting_until, now)}{ends}" if episode.doing else ""


def at_most(until: datetime | None, now: datetime) -> str:
    """How long something may still take, to end a sentence with; "" where that is not known."""
    if until is None:
        return ""
    return f", at most {countdown(until, now)}" if until > now else f", overdue by {span(now - until)}"


def verdict(row: TargetRow, now: datetime) -> str:
    """`healthy`, `becomes unhealthy in 12s`, `unhealthy, sick for 1m02s`, `skipped`, with the reason."""
    reason = f" ({row.reason})" if row.reason else ""
    if row.health is Health.SOON and row.due is not None:
        return f"becomes unhealthy in {countdown(row.due, now)}{reason}" if row.due > now else f"unhealthy by now{reason}"
    if row.health is Health.UNHEALTHY:
        since = f", sick for {span(now - row.since)}" if row.since else ""
        return f"unhealthy{since}{reason}"
    held = f"; if it fails nothing is begun: {row.held}" if row.held and row.health is Health.HEALTHY else ""
    return f"{row.health.value}{reason}{held}"


def besides(check: CheckReport) -> str:
    """Which targets do not count as healthy although the verdict shown of each may say so, to end a count with."""
    return f", {others}" if (others := check.others(shown=("unhealthy", "soon"))) else ""


def blocked(scanner: ScannerStatus | None, now: datetime) -> str:
    """Why no check may act now, whatever its own circuit breaker and modes say, in a few words; "" where they decide."""
    if scanner is None:
        return "no scanner answers"
    return next((each.brief for each in obstacles(scanner, now) if each.code is not ObstacleCode.MODE), "")


def may_act(check: CheckReport, blocked: str = "") -> str:
    """Whether the check may act now, else why not. blocked: what keeps every check from it, "" for nothing."""
    if check.error:
        return f"not usable: {check.error.removeprefix(f'{check.ref.key}: ')}"  # its name stands beside it
    if check.paused:
        return f"paused: {check.paused}"
    if not check.closed:
        return f"circuit breaker open: {check.message or check.reason or 'no reason given'}"
    if blocked:
        return f"not now: {blocked}"
    if not check.allowed:
        return f"only observed: {check.message}"
    limited = only_some(check.modes)
    return check.no_targets or limited + (f"may act: {check.message}" if check.message else f"may act on {check.remaining} more")


def at_risk(row: NodeAtRisk, now: datetime) -> str:
    """When Kubernetes may be about to take the volumes of a node that is not proven off."""
    volumes = f"{counted(row.volumes, 'volume')} attached"
    if row.due is None:
        return f"{volumes}, not proven off: no forced detachment is in sight"
    if row.due > now:
        return f"{volumes}, not proven off: at risk of a forced detachment in {countdown(row.due, now)}"
    return f"{volumes}, not proven off: Kubernetes detaches by force, if it has not yet"


PHASES = {
    Phase.NEW: "starting",
    Phase.RUNNING: "in progress",
    Phase.DONE: "returning",
    Phase.FINAL: "ended",
    Phase.ERROR: "retrying",
    Phase.NEEDS_HUMAN: "needs a person",
}
"""For people. The wire has the words of the node-fencing proposal, in which a machine that is on its way back is done."""


def phase(phase: str) -> str:
    return PHASES.get(Phase(phase), phase)


def repeated(episode: EpisodeStatus) -> str:
    """`try 2 of 3, restart 1 of 1`: how often the step in hand is tried, and how often all of them were begun again; "" where
    nothing is repeated."""
    fails = bool(episode.problem) and episode.phase is not Phase.NEEDS_HUMAN
    tries = f"try {episode.try_number} of {episode.tries}" if episode.tries and (fails or episode.try_number > 1) else ""
    restarts = f"restart {episode.restarts} of {episode.most_restarts}" if episode.restarts and episode.most_restarts else ""
    return ", ".join(filter(None, (tries, restarts)))


def failing(episodes: Iterable[EpisodeStatus]) -> dict[str, str]:
    """By node, what an open episode has tried in vain, and how often."""
    return {
        each.node: "; ".join(filter(None, (f"its open {each.kind.value.lower()}: {each.problem}", repeated(each))))
        for each in episodes
        if each.problem and (each.phase is Phase.NEEDS_HUMAN or each.try_number > 1 or each.restarts)
    }


def commanded(episode: EpisodeStatus) -> str:
    """What people have commanded an open episode: its holds, or the abort that ends them; "" where `doing` says it."""
    said = episode.aborted or episode.held
    return "" if said in episode.doing else said


def first_step(episode: EpisodeStatus) -> str:
    """The runbook's, for a person who is waited for; "" while none is."""
    step = section_of(episode.problem).step.replace("NODE", episode.node)
    return f"first step: {step}" if episode.phase is Phase.NEEDS_HUMAN else ""


def trouble(episode: EpisodeStatus) -> str:
    """What goes wrong at this moment and is tried again, and which try it is; "" where nothing does, or a person is asked."""
    if not episode.problem or episode.phase is Phase.NEEDS_HUMAN:
        return ""
    if episode.problem in episode.doing:
        return repeated(episode)  # it is said already
    return f"{said}; the last problem: {episode.problem}" if (said := repeated(episode)) else episode.problem


def held_off(held: HoldOff, now: datetime) -> str:
    """That a node gets no episode for now, how long, and why. Without an end the reason says what ends it."""
    left = f" for another {countdown(held.until, now)}" if held.until is not None else ""
    return f"held off{left}: {held.reason}"


def still_at_risk(found: AtRisk, episodes: Iterable[EpisodeStatus]) -> AtRisk:
    """Without the nodes that an episode has proven off since the scan: their volumes may be detached."""
    proven = {episode.node for episode in episodes if episode.off_proof is not None}
    nearest = tuple(row for row in found.nearest if row.node not in proven)
    return replace(found, nearest=nearest, nodes=found.nodes - (len(found.nearest) - len(nearest)))


def not_yet(stopped: str) -> str:
    """The answer to a person who has an episode go on that gets no permit for now."""
    return f"it goes on only once there is a permit for it: {stopped}"


def proof_or_problem(episode: EpisodeStatus) -> str:
    """What is wrong, else the strongest thing that is proven."""
    if episode.problem:
        return episode.problem
    if episode.restart_proof is not None:
        return f"restarted, new boot id seen at {written(episode.restart_proof.seen_at)}"
    return off_proof(episode)


def off_proof(episode: EpisodeStatus | EpisodeResult) -> str:
    """On what the claim rests that the machine was off; "" where nothing was proven."""
    proof = episode.off_proof
    if proof is None:
        return ""
    if proof.acknowledgement is not None:
        return f"off acknowledged by {proof.acknowledgement.by}"
    read = max((reading.at for reading in proof.readings), default=None)
    devices = f" on {len(proof.readings)} devices" if len(proof.readings) > 1 else ""
    return f"off proven{devices}, read at {written(read)}" if read else ""


def as_queued_now(episode: EpisodeStatus, scanner: ScannerStatus | None, *, unanswered: bool = False) -> EpisodeStatus:
    """With what it waits for by the scanner's queue of this moment, where it waits for a permit: it knows only what it was
    answered when it asked last, and asks again after minutes. scanner None: none runs, or it does not answer (unanswered)."""
    if not episode.queued or unanswered:
        return episode
    if scanner is None:
        why = "no scanner runs"
    elif (place := next((at for at, each in enumerate(scanner.queue) if each.incident == episode.incident), None)) is None:
        why = f"it has yet to ask the scanner, which was started at {written(scanner.started)}"
    else:
        why = (scanner.why_queued[place] if scanner.why_queued else episode.queued) or "its turn has come"
    return replace(episode, queued=why, doing=f"waits for a permit: {why}")


def permits_in_use(scanner: ScannerStatus) -> str:
    if not scanner.known:
        return "how many permits are in use is not known yet"
    holding = sum(permit.state is not PermitState.PARKED for permit in scanner.permits)
    return f"{holding} of {scanner.cap} permits in use"


def standing(episode: EpisodeStatus | None) -> str:
    """How a request that was just made stands."""
    if episode is None:
        return "no answer yet: it begins once a worker serves it"
    if episode.phase is Phase.NEEDS_HUMAN:
        return f"it waits for a person: {episode.problem or episode.doing}"
    if episode.permit or not episode.queued:
        return "it has its permit" if episode.permit else episode.doing
    return f"it waits for a permit: {episode.queued}"


def rung(episode: EpisodeStatus, now: datetime) -> str:
    """What a remediation is about and which step of its ladder it is at; "" of an episode that has neither."""
    about = f"machine {episode.machine}" if episode.machine and not episode.node.endswith(f"/{episode.machine}") else ""
    left = ""
    if episode.rung_until is not None:
        over = episode.rung_until <= now
        left = ", its time is over" if over else f", {countdown(episode.rung_until, now)} left"
    return "; ".join(words for words in (f"step {episode.rung}{left}" if episode.rung else "", about) if words)


def kept(episode: EpisodeStatus) -> str:
    if episode.preserved_until is None:
        return f"not yet in force: {episode.problem}"
    problem = f"; {episode.problem}" if episode.problem else ""
    return f"{episode.phase.value}, until {written(episode.preserved_until)}{problem}"


class Kept(Protocol):
    """A preservation, as it or a list of them tells of it."""

    @property
    def requester(self) -> str: ...
    @property
    def reason(self) -> str: ...


def kept_by(kept: Kept) -> str:
    return f"by {kept.requester or 'a person who gave no name'}: {kept.reason or 'no reason given'}"


def ending(result: EpisodeResult) -> str:
    left = f", {how}" if (how := left_off(result)) else ""
    return f"{result.outcome.value} after {span(result.ended - result.started)}{left}: {result.message}"


def left_off(result: EpisodeResult) -> str:
    """That its machine was left powered off, "" where it was not."""
    if not result.left_off:
        return ""
    on_a_word = result.off_proof is not None and result.off_proof.acknowledgement is not None
    return "left as it is, off on a person's word" if on_a_word else "left powered off"


def obstacles(scanner: ScannerStatus, now: datetime) -> tuple[Obstacle, ...]:
    """What keeps everything from being begun in its cluster, as of that moment."""
    paused = pauses.described(scanner.pauses)
    found = all_obstacles(scanner.report, paused=paused, problem=scanner.problem, wait=scanner.wait, now=now)
    mode = scanner.modes.limited
    return (*found, *([Obstacle(code=ObstacleCode.MODE, text=mode)] if mode else []))


def view(scanner: ScannerStatus, now: datetime) -> str:
    """The scanner's own condition in a phrase: whether it sees, and whether it may act."""
    return "; ".join(filter(None, (sees(scanner, now), *(each.text for each in obstacles(scanner, now)))))


def sees(scanner: ScannerStatus, now: datetime) -> str:
    """That it sees the cluster and may act, but for the mode; "" where it does not, which the obstacles say."""
    report = scanner.report
    if report is None or any(each.code is not ObstacleCode.MODE for each in obstacles(scanner, now)):
        return ""
    live = f"view live, but {report.view.notice}" if report.view.notice else "view live"
    lease = "held" if report.lease.held else "not held yet" if report.lease.needed else "not needed"
    return f"{live}, cluster Lease {lease}"
