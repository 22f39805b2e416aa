"""What the spectator takes home: what happened, when, on what proof, and how long it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console, RenderableType
from rich.text import Text

from demo.simulation import Gap
from policy.episode.messages import EpisodeResult, Outcome
from starter.output.record_table import Moment, moments_of, story

STAGES = ("mark-unschedulable", "off-proven", "free-workloads", "power-on", "mark-schedulable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accident:
    """What was broken, how and when."""

    node: str
    how: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the demo may end with 0. `problems` says why not, in sentences."""

    problems: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 only if everything that was broken has been repaired and nothing was written twice."""
        return 1 if self.problems else 0


def judge(
    accidents: Sequence[Accident],
    results: Mapping[str, EpisodeResult],
    hardware: Mapping[str, Mapping[str, object]],
    violations: Sequence[Mapping[str, object]],
) -> Verdict:
    """Hold the outcome against what was broken; the hardware's own log counts, not what we believe we did."""
    problems: list[str] = []
    for accident in accidents:
        result = results.get(accident.node)
        if result is None:
            problems.append(f"{accident.node}: its episode did not end in time")
        elif result.outcome is not Outcome.RECOVERED:
            problems.append(f"{accident.node}: ended {result.outcome.value}: {result.message}")
        elif result.off_proof is None or not result.off_proof.readings:
            problems.append(f"{accident.node}: recovered without a proof of off")
        if hardware[accident.node]["boots"] != 2:
            problems.append(f"{accident.node}: expected one restart, it has booted {hardware[accident.node]['boots']} times")
    problems += [f"two writers: {violation['message']}" for violation in violations]
    return Verdict(problems=tuple(problems))


def show(
    console: Console,
    accidents: Sequence[Accident],
    results: Mapping[str, EpisodeResult],
    gaps: Sequence[Gap],
    verdict: Verdict,
) -> None:
    """Print the summary."""
    console.print()
    console.rule("[bold]What happened")
    for accident in accidents:
        result = results.get(accident.node)
        console.print(_story(accident, result) if result else Text(f"{accident.node}: not repaired", style="bold red"))
        console.print()
    for gap in gaps:
        console.print(
            f"Volume [bold]{gap.volume}[/]: its writer moved from {gap.from_node} to {gap.to_node}, "
            f"{gap.seconds:.1f} s without one, never two."
        )
    console.print()
    if verdict.problems:
        for problem in verdict.problems:
            console.print(f"[bold red]✗[/] {problem}")
    else:
        console.print(
            f"[bold green]✓[/] {len(accidents)} nodes broken, {len(accidents)} recovered on proof of off, "
            "no volume ever had two writers."
        )


def _story(accident: Accident, result: EpisodeResult) -> RenderableType:
    moments = (
        Moment(at=accident.at, what="broken", detail=accident.how),
        Moment(at=result.started, what="episode opened", detail=f"incident {result.incident}"),
        *moments_of(entry for entry in result.record if entry.act in STAGES),
        Moment(at=result.ended, what=result.outcome.value, detail=result.message),
    )
    title = Text.assemble(
        (accident.node, "bold"), f": {(result.ended - accident.at).total_seconds():.1f} s from accident to recovery"
    )
    return story(title, accident.at, moments)
