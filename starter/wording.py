"""How moments, spans and judgements are put into words: the same in the table, the log lines and the messages."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from policy.checks.verdicts import Health
from policy.episode.messages import EpisodeResult, EpisodeStatus, Outcome, Phase
from policy.scan.report import CheckReport, NodeAtRisk, TargetRow
from policy.values.counting import counted
from policy.values.moments import in_utc, written
from workflows.kit.messages import ScannerStatus

GOOD_ENDS = frozenset({Outcome.RECOVERED, Outcome.REPLACED, Outcome.RELEASED})
"""The node works again, or works for someone else; everything else left something to do."""

REPAIRED = GOOD_ENDS - {Outcome.RELEASED}
"""Of what was to be repaired: one that was given up since somebody said "hands off" is not."""

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
    left = math.ceil((due - now).total_seconds())
    return span(timedelta(seconds=left)) if left > 0 else "now"


def clock(moment: datetime) -> str:
    """The local time of day, as the reader's own clock shows it."""
    return moment.astimezone().strftime("%H:%M:%S")


def moment(moment: datetime) -> str:
    """A day and a time of it, in UTC as the objects say it: what may be days away."""
    return f"{in_utc(moment):%m-%d %H:%M:%S}Z"


def verdict(row: TargetRow, now: datetime) -> str:
    """`healthy`, `unhealthy in 12s`, `unhealthy 1m02s`, `skipped`, with the reason."""
    reason = f" ({row.reason})" if row.reason else ""
    if row.health is Health.SOON and row.due is not None:
        return f"unhealthy in {countdown(row.due, now)}{reason}"
    if row.health is Health.UNHEALTHY:
        since = f" {span(now - row.since)}" if row.since else ""
        return f"unhealthy{since}{reason}"
    return f"{row.health.value}{reason}"


def brake(check: CheckReport) -> str:
    """Whether the check may act now, else why not."""
    if check.error:
        return f"not usable: {check.error}"
    if check.paused:
        return f"paused: {check.paused}"
    if not check.allowed:
        return f"may not act: {check.message or check.reason or 'no reason given'}"
    return check.no_targets or check.message or f"may act on {check.remaining} more"


def at_risk(row: NodeAtRisk, now: datetime) -> str:
    """When Kubernetes may be about to take the volumes of a node that is not proven off."""
    volumes = f"{counted(row.volumes, 'volume')} attached"
    if row.due is None:
        return f"{volumes}, not proven off: no forced detachment is in sight"
    if row.due > now:
        return f"{volumes}, not proven off: at risk of a forced detachment in {countdown(row.due, now)}"
    return f"{volumes}, not proven off: Kubernetes detaches by force, if it has not yet"


def proof_or_problem(episode: EpisodeStatus) -> str:
    """What is wrong, else the strongest thing that is proven."""
    if episode.problem:
        return episode.problem
    if episode.restart_proof is not None:
        return f"restarted, new boot id seen {clock(episode.restart_proof.seen_at)}"
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
    return f"off proven{devices}, read {clock(read)}" if read else ""


def standing(episode: EpisodeStatus | None) -> str:
    """How a request that was just made stands."""
    if episode is None:
        return "nobody has answered yet, it begins once a worker serves it"
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
    """How a preservation stands."""
    if episode.preserved_until is None:
        return f"not yet in force: {episode.problem}"
    problem = f"; {episode.problem}" if episode.problem else ""
    return f"{episode.phase.value}, until {written(episode.preserved_until)}{problem}"


def ending(result: EpisodeResult) -> str:
    """How an episode ended, in a sentence."""
    left = f", {how}" if (how := left_off(result)) else ""
    return f"{result.outcome.value} after {span(result.ended - result.started)}{left}: {result.message}"


def left_off(result: EpisodeResult) -> str:
    """That its machine was left powered off, "" where it was not."""
    if not result.left_off:
        return ""
    on_a_word = result.off_proof is not None and result.off_proof.acknowledgement is not None
    return "left as it is, off on a person's word" if on_a_word else "left powered off"


def halted(scanner: ScannerStatus) -> str:
    """What keeps everything from being begun by somebody's word, with who and until when (S44); "" where nothing does."""
    said = [str(scanner.pause)] if scanner.pause is not None else []
    off = scanner.report.policies.switched_off if scanner.report is not None else ()
    return "; ".join((*said, *(f"fencing is switched off: {why}" for why in off)))


def view(scanner: ScannerStatus) -> str:
    """The scanner's own condition in a phrase: whether it sees, and whether it may act."""
    if said := halted(scanner):
        return said
    if scanner.problem:
        return scanner.problem
    report = scanner.report
    if report is None:
        return "has not seen the cluster yet"
    if report.view.stale or not report.view.synced:
        return f"view not live: {report.view.stale or 'still reading the cluster'}"
    if report.lease.problem:
        return report.lease.problem
    sees = f"view live, but {report.view.notice}" if report.view.notice else "view live"
    if report.lease.held:
        return f"{sees}, cluster Lease held"
    return f"{sees}, cluster Lease not needed" if not report.lease.needed else f"{sees}, cluster Lease not held yet"
