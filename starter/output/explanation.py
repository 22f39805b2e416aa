"""Prints the answer of `nodewarden explain`, as text or JSON: what every check thinks of one node, and what its episodes did.

Three sources, each of which may be missing and then says so: the cluster's objects (live or from files), the scanner, and the
episodes. Nothing is decided here: that is `policy/scan/explanation.py`. The command is `starter/commands/explain.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from activities.cluster.watch.offline import ManifestMistake
from policy.checks.verdict import Health
from policy.episode.messages import EpisodeStatus, Kind, Phase
from policy.episode.permits import PermitState
from policy.history.spells import Spell, dated
from policy.scan.evaluation import TargetEvaluation
from policy.scan.explanation import CheckOpinion, Explanation, Outlook, conclude
from policy.scan.permit_rules import AdmissionRefusal
from policy.values.mode import Mode
from policy.values.times import written
from starter import wording
from starter.output import outlooks
from starter.output.evaluation import described, in_one_line, mistake_of, opinion_of
from starter.output.models import EndedAnswer, ExplainAnswer, Silent
from starter.output.record_table import NOT_REPAIRED
from workflows.kit.messages import ScannerStatus

if TYPE_CHECKING:
    from starter.handles.episodes import NodeEpisodes
    from starter.handles.observations import SpellsThen

_STABLE_REASON = re.compile(r"^[^:]*\([A-Z][A-Za-z]+\): ")
"""How a sentence about a node begins that names what programs call the reason."""
_PERMITS = {
    PermitState.RESERVED: "a permit is reserved for incident {}",
    PermitState.OPEN: "a permit is held by incident {}",
    PermitState.PARKED: "incident {} holds no permit while it waits",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeExplanation:
    """All that is known of one node. cluster, scanner, episodes: None where it was not asked; `problems`: what did not answer."""

    node: str
    at: datetime
    explanation: Explanation | None = None
    scanner: ScannerStatus | None = None
    episodes: NodeEpisodes | None = None
    observed: SpellsThen | None = None
    """Its last spells of sickness; None where they were not asked for."""
    mistakes: Sequence[ManifestMistake] = ()
    problems: Sequence[str] = ()
    halted: str = ""
    """What keeps everything from being begun, "" where nothing does: a pause, the off switch, no scanner."""
    scanner_silent: bool = False
    """Whether a scanner runs that gave no answer, so that neither modes nor what people have said to it are known."""
    unread: bool = False
    """Whether the cluster's objects could not be read, so that it is not known whether there is such a node."""

    @property
    def episode(self) -> EpisodeStatus | None:
        """Its open episode, None where there is none, or it does not answer."""
        found = self.episodes.episode if self.episodes is not None else None
        return wording.as_queued_now(found, self.scanner, unanswered=self.scanner_silent) if found is not None else None

    @property
    def last_spell(self) -> Spell | None:
        """The last one in which it was sick and not repaired; it may last."""
        return self.observed.spells[-1] if self.observed is not None and self.observed.spells else None

    @property
    def known(self) -> bool:
        """Whether there is such a node, or an episode of it."""
        found = self.explanation is not None and self.explanation.found
        episodes = self.episodes is not None and (self.episodes.episode or self.episodes.silent or self.episodes.ended)
        return found or bool(episodes)


def scanner_lines(answer: NodeExplanation, scanner: ScannerStatus) -> list[str]:
    """What the scanner knows of the node, in sentences; what keeps every node from being acted on goes first."""
    node, now = answer.node, answer.at
    episodes = [answer.episode] if answer.episode is not None else []
    said = [each.text for each in wording.obstacles(scanner, now)]
    report = scanner.report
    if report is not None and report.view.notice:
        said.append(f"the scanner does not see everything: {report.view.notice}")
    if report is not None:
        nearest = wording.still_at_risk(report.at_risk, episodes).nearest
        said += [f"data at risk: {wording.at_risk(row, now)}" for row in nearest if row.node == node]
    said += [
        _PERMITS[permit.state].format(permit.incident) + (f" (asked for: {permit.reason})" if permit.reason else "")
        for permit in scanner.permits
        if permit.node == node
    ]
    said += [f"a request of incident {each.incident} waits for a permit" for each in scanner.queue if each.node == node]
    said += kept_from(answer)
    return [*said, wording.permits_in_use(scanner)]


def as_model(answer: NodeExplanation) -> ExplainAnswer:
    """The whole answer; the checks and verdicts are spelled as in `nodewarden evaluate`."""
    explanation, episodes, silent = answer.explanation, answer.episodes, None
    if episodes is not None and episodes.silent is not None:
        silent = Silent(workflow_id=episodes.silent.workflow_id, problem=episodes.silent.problem)
    return ExplainAnswer(
        node=answer.node,
        found=None if answer.unread and not answer.known else answer.known,
        conclusion=conclusion(answer) if answer.known else "",
        ready=(explanation.ready if explanation is not None else "") or None,
        checks=tuple(opinion_of(each.check, each.target, each.unblock) for each in _opinions(answer)),
        not_covering=explanation.bystanders if explanation is not None else (),
        scanner=tuple(scanner_lines(answer, answer.scanner)) if answer.scanner is not None else None,
        episode=answer.episode,
        silent=silent,
        ended=tuple(
            EndedAnswer(
                incident=result.incident,
                outcome=result.outcome.value,
                message=result.message,
                started=result.started,
                ended=result.ended,
            )
            for result in (episodes.ended if episodes is not None else ())
        ),
        last_spell=answer.last_spell,
        remediation=explanation.outlook if explanation is not None else None,
        errors=tuple(mistake_of(mistake) for mistake in answer.mistakes),
        problems=tuple(answer.problems),
    )


# For people -----------------------------------------------------------------------------------------------------------


def as_text(answer: NodeExplanation) -> RenderableType:
    """A page: the conclusion first, then check by check, then the scanner and the episodes."""
    parts: list[RenderableType] = [_head(answer)]
    explanation = answer.explanation
    if explanation is not None:
        asked = answer.scanner is not None or answer.halted  # of files no scanner is asked
        blocked = wording.blocked(answer.scanner, answer.at) if asked else ""
        blocked = blocked or next(iter(kept_from(answer)), "")
        parts += [_opinion(opinion, blocked=blocked, asked=answer.scanner is not None) for opinion in explanation.opinions]
        if explanation.bystanders:
            parts.append(Text("\nNot covered by", style="bold"))
            parts += [Text(f"  {each.check}: {each.why}", style="dim") for each in explanation.bystanders]
        if explanation.outlook is not None:
            parts.append(_outlook(explanation.outlook, answer))
    concluded = conclusion(answer) if answer.known else ""
    if answer.scanner is not None:
        parts.append(Text("\nThe scanner", style="bold"))
        lines = [line for line in scanner_lines(answer, answer.scanner) if not covers(concluded, line)]
        parts += [Padding(Text(line), (0, 0, 0, 2)) for line in lines]
    if answer.episodes is not None:
        parts.append(Text("\nEpisodes", style="bold"))
        parts += [Padding(Text(line), (0, 0, 0, 2)) for line in _episode_lines(answer, answer.episodes)]
    if answer.last_spell is not None:
        parts.append(Text(f"\n{NOT_REPAIRED}", style="bold"))
        parts.append(Padding(Text(dated(answer.last_spell)), (0, 0, 0, 2)))
    parts += [Text(f"error: {described(mistake)}", style="red") for mistake in answer.mistakes]
    parts += [Text(f"note: {problem}", style="yellow") for problem in answer.problems]
    return Group(*parts)


def _head(answer: NodeExplanation) -> Text:
    head = Text.assemble((answer.node, "bold"))
    explanation = answer.explanation
    if explanation is not None and not explanation.found:
        unreadable = any(mistake.ref is not None and mistake.ref.name == answer.node for mistake in answer.mistakes)
        head.append("  can't be read" if unreadable else "  has neither a Node nor a Machine", style="red")
    elif explanation is None and answer.known:
        head.append(f"  {conclusion(answer)}", style="bold")
    elif explanation is None:
        head.append("  it is not known whether there is such a node: the cluster can't be read", style="red")
    elif explanation is not None:
        head.append(f"  Ready is {explanation.ready}" if explanation.ready else "  does not say whether it is Ready")
        head.append(f"; {conclusion(answer)}", style="bold")
    return head


def conclusion(answer: NodeExplanation) -> str:
    """The one sentence that most people want: what its open episode does, else what `policy/scan/explanation.py` concludes."""
    if answer.episode is not None:
        return _of_episode(answer.episode, answer.at)
    return in_one_line(conclude(answer.explanation, halted=answer.halted, kept_from=kept_from(answer)))


def covers(concluded: str, sentence: str) -> bool:
    """Whether the conclusion has said all of the sentence, but for the word that programs have for it."""
    return all(part in concluded for part in _STABLE_REASON.sub("", sentence).split(": ", 1))


def _of_episode(episode: EpisodeStatus, now: datetime) -> str:
    if episode.phase is Phase.NEEDS_HUMAN:
        return f"its episode waits for a person: {episode.problem or episode.doing}"
    if episode.kind is Kind.PRESERVATION and episode.preserved_until is not None:
        return f"preserved until {written(episode.preserved_until)} {wording.kept_by(episode)}"
    rung = f", step {episode.rung}" if episode.rung else ""
    trouble = f"; {said}" if (said := wording.trouble(episode)) else ""
    doing = wording.doing(episode, now) or episode.step or episode.reason
    return f"an episode is {wording.phase(episode.phase)}{rung}: {doing}{trouble}"


def kept_from(answer: NodeExplanation) -> list[str]:
    """Why the scanner begins nothing for the node by itself, though a check wants it to."""
    scanner, node = answer.scanner, answer.node
    if scanner is None:
        return ["how far programs may go is not known: the scanner does not answer"] if answer.scanner_silent else []
    held = [wording.held_off(each, answer.at) for each in scanner.held_off if each.node == node]
    refused = [each for each in scanner.refused if each.node == node and not (held and each.reason == AdmissionRefusal.HELD_OFF)]
    return [*held, *(f"not begun ({each.reason}): {each.message}" for each in refused)]


def _opinion(opinion: CheckOpinion, *, blocked: str, asked: bool) -> RenderableType:
    check, target = opinion.check, opinion.target
    verdict, breaker = target.verdict, check.breaker
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    judged = Text(verdict.health.value, style=wording.HEALTH_STYLE[verdict.health])
    judged.append(_when(target), style="")
    said = in_one_line(target.message) or verdict.reason
    judged.append(f": {said}" if said else "", style="default")
    table.add_row("  verdict", judged)
    set_by = str(opinion.mode)
    blocked = (
        "its mode is observe" if opinion.mode.mode is Mode.OBSERVE and (not blocked or blocked.endswith(set_by)) else blocked
    )
    if breaker.allowed and blocked:
        may = Text("not now", style="red").append(f": {blocked}", style="default")
    else:
        said = "yes" if breaker.allowed else f"no, circuit breaker open ({breaker.reason})"
        may = Text(said, style="green" if breaker.allowed else "red")
        may.append(f": {breaker.message}", style="default")
    table.add_row("  may act", may)
    if asked:
        table.add_row("  mode", f"{opinion.mode.mode}: {opinion.mode.why}")
    table.add_row("  action", opinion.act(kept_from=blocked if breaker.allowed else ""))
    if target.held_by and not opinion.is_held_by_own_breaker and not (asked and target.held_by == set_by):
        table.add_row("  held", Text(in_one_line(target.held_by), style="red"))
    for line in opinion.unblock:
        table.add_row("  unblock", Text(line, style="yellow"))
    for warning in check.warnings:
        table.add_row("  warning", Text(warning, style="yellow"))
    head = Text.assemble("\n", (check.check.ref.key, "bold"), f"  {check.check.dialect.value}")
    return Group(head, table)


def _when(target: TargetEvaluation) -> str:
    """When its verdict becomes another one by time alone, or it is looked at again; "" where neither is known."""
    if target.due_in is None:
        return ""
    verdict, left = target.verdict, wording.time_left(target.due_in)
    what = "becomes unhealthy" if verdict.health is Health.SOON else "changes" if verdict.due is not None else "is judged again"
    return f", {what} {left if left == 'now' else f'in {left}'}"


def _outlook(found: Outlook, answer: NodeExplanation) -> RenderableType:
    head = (
        "\nRemediation" if any(row.target.verdict.health is Health.UNHEALTHY for row in _opinions(answer)) else "\nIf it failed"
    )
    return Group(
        Text(f"{head}, by {found.check}", style="bold"),
        outlooks.outlook_table(found, answer.scanner.permits if answer.scanner is not None else ()),
    )


def _opinions(answer: NodeExplanation) -> tuple[CheckOpinion, ...]:
    return answer.explanation.opinions if answer.explanation is not None else ()


def _episode_lines(answer: NodeExplanation, episodes: NodeEpisodes) -> list[str]:
    lines = _open_episode_lines(answer, answer.episode) if answer.episode is not None else []
    if episodes.silent is not None:
        lines.append(f"open, and silent: {episodes.silent.problem}")
    lines += [
        f"{written(result.started)} to {written(result.ended)}  {result.incident}: {wording.ending(result)}"
        for result in episodes.ended
    ]
    return lines or ["none, as far as Temporal remembers"]


def _open_episode_lines(answer: NodeExplanation, episode: EpisodeStatus) -> list[str]:
    from starter.handles.status import still_stopped_by  # with Temporal's client, which judging files does without

    standing = wording.kept(episode) if episode.kind is Kind.PRESERVATION else wording.standing(episode)
    lines = [f"open: {episode.kind.value} {episode.incident}, {wording.phase(episode.phase)}, {standing}"]
    if episode.kind is Kind.PRESERVATION:
        lines.append(wording.kept_by(episode))
    elif episode.permit and standing != episode.doing:
        lines.append(f"it does: {wording.doing(episode, answer.at)}")
    trouble, rung = wording.trouble(episode), wording.rung(episode, answer.at)
    lines += [said for said in (trouble, rung, wording.commanded(episode), wording.first_step(episode)) if said]
    if episode.advice:
        lines.append(f"what to do: {episode.advice}")
    if stopped := still_stopped_by(answer.scanner, episode, answer.at):
        lines.append(wording.not_yet(stopped))
    return lines
