"""What changed between two looks, one line each: for logs, pipes and terminals that cannot redraw.

Countdowns are no changes; a verdict, a breaker, a phase, a step, a problem and an end are.
"""

from __future__ import annotations

from collections.abc import Iterator

from policy.checks.verdicts import Health
from policy.episode.messages import EpisodeStatus
from policy.scan.report_builder import NOT_COVERED
from policy.scan.scan_report import TargetRow
from policy.values.display_text import counted
from policy.values.times import written
from starter import wording
from starter.handles.status import ClusterStatus


def changes(before: ClusterStatus | None, after: ClusterStatus) -> list[str]:
    """The lines to print. Before the first look everything but health is news."""
    return [*_scanner(before, after), *_nodes(before, after), *_checks(before, after), *_episodes(before, after)]


def _scanner(before: ClusterStatus | None, after: ClusterStatus) -> Iterator[str]:
    now_says = _condition(after)
    if before is None or _condition(before) != now_says:
        yield f"cluster {after.cluster}: {now_says}"


def _condition(status: ClusterStatus) -> str:
    if status.scanner is None:
        return status.problem or "no scanner"
    nodes = f"{counted(status.scanner.report.inventory, 'node')}, " if status.scanner.report else ""
    return nodes + wording.view(status.scanner, status.at)


def _nodes(before: ClusterStatus | None, after: ClusterStatus) -> Iterator[str]:
    known = _rows(before)
    left_out: list[str] = []
    covered: list[str] = []
    for name, row in _rows(after).items():
        former = known.get(name)
        was = former.health if former else Health.HEALTHY
        if former is not None and former.ready != row.ready:
            yield f"node {name}: Ready is {row.ready}"
        if row.reason == NOT_COVERED:
            left_out += [name] if former is None or former.reason != NOT_COVERED else []
        elif former is not None and former.reason == NOT_COVERED and row.health is Health.HEALTHY:
            covered.append(name)
        elif row.health is not was:
            yield f"node {name}: {wording.verdict(row, after.at)}"
        if former is not None and former.schedulable != row.schedulable:
            yield f"node {name}: {'schedulable again' if row.schedulable else 'cordoned'}"
    # One line each: without a check that is every node of the cluster.
    for names, what in ((left_out, "covered by no check"), (covered, "covered by a check now, and healthy")):
        if names:
            yield f"node {names[0]}: {what}" if len(names) == 1 else f"{counted(len(names), 'node')} are {what}"
    for name, former in known.items():
        if name not in _rows(after) and former.health is not Health.HEALTHY and _rows(after):
            yield f"node {name}: no longer {former.health.value}, or gone"


def _rows(status: ClusterStatus | None) -> dict[str, TargetRow]:
    report = status.scanner.report if status is not None and status.scanner is not None else None
    return {row.node: row for row in report.rows} if report else {}


def _checks(before: ClusterStatus | None, after: ClusterStatus) -> Iterator[str]:
    known = _breakers(before)
    current = _breakers(after)
    for key, (breaker, line) in current.items():
        if known.get(key, ("", ""))[0] != breaker:
            yield line
    for key in known:
        if key not in current and _rows(after):
            yield f"check {key}: gone"


def _breakers(status: ClusterStatus | None) -> dict[str, tuple[str, str]]:
    """By check: what must change to be news, and the line."""
    report = status.scanner.report if status is not None and status.scanner is not None else None
    if report is None:
        return {}
    return {
        check.ref.key: (
            f"{check.allowed} {check.paused} {check.error} {check.reason}",
            f"check {check.ref.key}: {check.healthy}/{check.total} healthy, {wording.may_act(check)}",
        )
        for check in report.checks
    }


def _episodes(before: ClusterStatus | None, after: ClusterStatus) -> Iterator[str]:
    known = {episode.incident: episode for episode in before.episodes} if before else {}
    for episode in after.episodes:
        yield from episode_changes(known.get(episode.incident), episode)
    quiet = {silent.node: silent.problem for silent in before.silent} if before else {}
    for silent in after.silent:
        if quiet.get(silent.node) != silent.problem:
            yield f"episode {silent.node}: {silent.problem}"
    told = {result.incident for result in before.ended} if before else set()
    for result in reversed(after.ended):
        if result.incident not in told:
            proof = wording.off_proof(result)
            yield f"episode {result.node}: {wording.ending(result)}{f' ({proof})' if proof else ''}"


def episode_changes(former: EpisodeStatus | None, episode: EpisodeStatus) -> Iterator[str]:
    """What is new of one episode."""
    name = f"episode {episode.node}"
    if former is None:
        yield f"{name}: {episode.kind.value} {episode.incident} open: {episode.reason or 'no reason given'}"
    # What is proven comes before what is done on that proof.
    if episode.off_proof is not None and (former is None or former.off_proof is None):
        yield f"{name}: {wording.off_proof(episode)}"
    if episode.restart_proof is not None and (former is None or former.restart_proof is None):
        yield f"{name}: restart proven, boot id {episode.restart_proof.boot_id}"
    doing = (episode.phase, episode.step, episode.doing)
    if former is None or (former.phase, former.step, former.doing) != doing:
        where = ", ".join(filter(None, (wording.phase(episode.phase), episode.step, wording.repeated(episode))))
        yield f"{name}: {where}: {episode.doing}"
    if episode.rung and (former is None or former.rung != episode.rung):
        yield f"{name}: step {episode.rung}{f', machine {episode.machine}' if episode.machine else ''}"
    if episode.preserved_until is not None and (former is None or former.preserved_until != episode.preserved_until):
        yield f"{name}: preserved until {written(episode.preserved_until)}"
    if episode.problem and (former is None or former.problem != episode.problem):
        yield f"{name}: problem: {episode.problem}"
    if episode.held != (former.held if former is not None else ""):
        yield f"{name}: {episode.held or 'held no more'}"
    if episode.advice and (former is None or former.advice != episode.advice):
        yield f"{name}: what to do: {episode.advice}"
