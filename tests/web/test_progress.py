"""How far an episode is, as the page shows it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from policy.episode.messages import EpisodeStatus, Kind, Outcome, Phase
from starter.web.now import Proof, progress
from tests.starter.builders import NOW, ago, episode, proof, result

POWER = "power-management"


@pytest.mark.parametrize(
    ("given", "steps", "proven"),
    [
        (episode(step="isolation"), "now to-come to-come", Proof.NOT_YET),
        (episode(step=POWER), "done now to-come", Proof.NOT_YET),
        (episode(step=POWER, off_proof=proof()), "done now to-come", Proof.PROVEN),
        (episode(step="recovery", off_proof=proof()), "done done now", Proof.PROVEN),
        (episode(step=POWER, phase=Phase.NEEDS_HUMAN), "done stuck to-come", Proof.AMBIGUOUS),
        (episode(step=POWER, phase=Phase.NEEDS_HUMAN, off_proof=proof()), "done stuck to-come", Proof.PROVEN),
        (episode(step="isolation", phase=Phase.NEEDS_HUMAN), "stuck to-come to-come", Proof.NOT_YET),
        (episode(step="isolation", phase=Phase.QUEUED), "to-come to-come to-come", None),
        (episode(step=""), "to-come to-come to-come", Proof.NOT_YET),
    ],
)
def test_the_bar_and_the_badge_say_how_far_it_is(given: EpisodeStatus, steps: str, proven: Proof | None) -> None:
    """S2: off counts as proven by its proof alone, never by the step."""
    found = progress(given, (), NOW)
    assert [state.value for _, state in found.steps] == steps.split()
    assert found.proof is proven


def test_a_preservation_has_no_bar_and_no_badge() -> None:
    found = progress(episode(kind=Kind.PRESERVATION), (), NOW)
    assert (found.steps, found.proof, found.colour) == ((), None, "")


def test_the_return_is_estimated_from_repairs_that_ended_well_and_only_from_enough_of_them() -> None:
    past = [result(f"node-{took}", started=ago(took), ended=NOW) for took in (100, 200, 300)]
    open_one = episode(started=ago(50))
    assert progress(open_one, past, NOW).back == NOW + timedelta(seconds=150)
    assert progress(open_one, past[:2], NOW).usual is None
    given_up = [result(f"node-{number}", outcome=Outcome.ABORTED) for number in range(3)]
    assert progress(open_one, given_up, NOW).usual is None


def test_one_that_takes_longer_than_usual_gets_no_promise() -> None:
    past = [result(f"node-{number}", started=ago(100), ended=NOW) for number in range(3)]
    found = progress(episode(started=ago(500)), past, NOW)
    assert (found.back, found.usual) == (None, timedelta(seconds=100))
    assert progress(episode(phase=Phase.NEEDS_HUMAN), past, NOW).usual is None
