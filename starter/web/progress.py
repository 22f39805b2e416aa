"""How far an episode is, for the eye: which of the three steps, whether off is proven, what comes next, when it may be back.

For display only. The steps are the node-fencing proposal's; that nothing is freed before off is proven is S2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median

from policy.episode.messages import EpisodeResult, EpisodeStatus, Kind, Phase
from policy.fence.config import FenceStep
from starter import wording

NAMES = {FenceStep.ISOLATION: "isolate", FenceStep.POWER_MANAGEMENT: "power", FenceStep.RECOVERY: "recover"}
ENOUGH = 3
"""Repairs that have to be known before anything is said of the next one."""


class StepState(StrEnum):
    """As the bar shows it: stuck is where a person is waited for."""

    DONE = "done"
    NOW = "now"
    STUCK = "stuck"
    TO_COME = "to-come"


class Proof(StrEnum):
    """Whether the machine is known to be off. ambiguous: the devices did not say, and a person is asked for it."""

    PROVEN = "off is proven"
    NOT_YET = "off is not proven yet"
    AMBIGUOUS = "ambiguous: whether it is off is not known"


COLOURS = {Proof.PROVEN: "green", Proof.NOT_YET: "yellow", Proof.AMBIGUOUS: "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeProgress:
    """steps: none of a preservation. proof: None where nothing is to be proven, or not yet. next: "" where it is not known.
    usual: how long such repairs took, None where too few are known. back: when it should then be back, None once that has
    passed."""

    steps: tuple[tuple[str, StepState], ...] = ()
    proof: Proof | None = None
    next: str = ""
    usual: timedelta | None = None
    back: datetime | None = None

    @property
    def colour(self) -> str:
        """Of the badge that says what is proven."""
        return COLOURS[self.proof] if self.proof is not None else ""


def progress(episode: EpisodeStatus, ended: Sequence[EpisodeResult], now: datetime) -> EpisodeProgress:
    """ended: how the last episodes ended, by which the return is estimated."""
    if episode.kind is Kind.PRESERVATION:
        return EpisodeProgress()
    usual = _usual(ended) if episode.phase not in {Phase.NEEDS_HUMAN, Phase.QUEUED} and not episode.held else None
    back = episode.started + usual if usual is not None else None
    return EpisodeProgress(
        steps=tuple(_steps(episode)),
        proof=_proof(episode),
        next=_next(episode),
        usual=usual,
        back=back if back is not None and back > now else None,
    )


def _steps(episode: EpisodeStatus) -> list[tuple[str, StepState]]:
    order = list(FenceStep)
    at = order.index(FenceStep(episode.step)) if episode.step in set(FenceStep) else -1
    here = StepState.STUCK if episode.phase is Phase.NEEDS_HUMAN else StepState.NOW
    if episode.phase is Phase.QUEUED:
        here = StepState.TO_COME
    states = {-1: StepState.DONE, 0: here, 1: StepState.TO_COME}
    return [(NAMES[step], states[(index > at) - (index < at)]) for index, step in enumerate(order)]


def _proof(episode: EpisodeStatus) -> Proof | None:
    if episode.phase is Phase.QUEUED:
        return None  # nothing has been begun
    if episode.off_proof is not None:
        return Proof.PROVEN
    asked = episode.phase is Phase.NEEDS_HUMAN and episode.step == FenceStep.POWER_MANAGEMENT
    return Proof.AMBIGUOUS if asked else Proof.NOT_YET


def _next(episode: EpisodeStatus) -> str:
    """After what it does now. A remediation's ladder is only known to itself."""
    if episode.phase is Phase.NEEDS_HUMAN:
        return "whatever a person says"
    if episode.phase is Phase.QUEUED:
        return "it begins as soon as it has a permit"
    if episode.kind is not Kind.FENCING:
        return ""
    if episode.step == FenceStep.ISOLATION:
        return "power off"
    if episode.step == FenceStep.POWER_MANAGEMENT and episode.off_proof is None:
        return "read the power state until off is proven; then free the pods"
    return "let the node work again once it is Ready"


def _usual(ended: Sequence[EpisodeResult]) -> timedelta | None:
    """The median of the last repairs, waiting and all."""
    took = [(each.ended - each.started).total_seconds() for each in ended if each.outcome in wording.REPAIRED]
    return timedelta(seconds=round(median(took))) if len(took) >= ENOUGH else None
