"""The automata of episodes: every arrow has its reason, every phase is reached, and another change raises."""

from __future__ import annotations

import pytest

from policy.episode.messages import Kind, Phase
from policy.episode.phases import ARROWS, UnexpectedPhaseError, reason_for

BEGINNINGS = {
    Kind.FENCING: {Phase.NEW},
    Kind.REMEDIATION: {Phase.NEW, Phase.RUNNING_PRESERVED, Phase.FAILED_PRESERVED},
    Kind.PRESERVATION: {Phase.NEW, Phase.TERMINATING},
}
"""A preservation goes on as a remediation in the phase in which it was, and back."""


@pytest.mark.parametrize("kind", Kind)
def test_every_phase_is_reached_and_every_one_but_the_last_is_left(kind: Kind) -> None:
    arrows, seen = ARROWS[kind], set(BEGINNINGS[kind])
    reached = list(seen)
    while reached:
        new = set(arrows.get(reached.pop(), {})) - seen
        seen |= new
        reached += new
    assert set(arrows) == seen - {Phase.FINAL}


@pytest.mark.parametrize("kind", Kind)
def test_from_every_phase_an_episode_can_end_and_a_person_can_be_asked(kind: Kind) -> None:
    """S35: no phase is a dead end; S44: nor one of which no person would ever hear."""
    for before, following in ARROWS[kind].items():
        ways = {before, *following, *(after for each in following for after in ARROWS[kind].get(each, {}))}
        assert {Phase.FINAL, Phase.NEEDS_HUMAN} <= ways, before


@pytest.mark.parametrize("kind", Kind)
def test_an_arrow_has_its_reason_and_any_other_change_raises(kind: Kind) -> None:
    for before in Phase:
        for after in Phase:
            if after in ARROWS[kind].get(before, {}):
                assert reason_for(kind, before, after)
            else:
                with pytest.raises(UnexpectedPhaseError, match=f"after {before.value} expected"):
                    reason_for(kind, before, after)


@pytest.mark.parametrize("kind", Kind)
def test_nothing_follows_the_end(kind: Kind) -> None:
    assert Phase.FINAL not in ARROWS[kind]
