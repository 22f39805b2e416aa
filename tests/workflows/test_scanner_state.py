"""The permit state against what the server says of its holders (S14)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from activities.contracts.episodes import EpisodeDescription
from policy.episode.messages import Kind
from policy.episode.permits import Permit, PermitState
from workflows.scanner.state import ScannerState

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def line(node: str, holding: PermitState = PermitState.OPEN, incident: str = "mine") -> Permit:
    """A line granted a while ago."""
    return Permit(
        node=node,
        workflow_id=f"episode/c/{node}",
        incident=incident,
        kind=Kind.FENCING,
        holding=holding,
        granted_at=NOW - timedelta(minutes=5),
    )


def described(node: str, incident: str = "mine", **changes: object) -> EpisodeDescription:
    """An open episode that says it has its permit."""
    plain = EpisodeDescription(
        node=node, known=True, open=True, workflow_id=f"episode/c/{node}", incident=incident, permit=True, started=NOW
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def state_with(*lines: Permit) -> ScannerState:
    return ScannerState(started=NOW, permits={each.node: each for each in lines})


def holdings(state: ScannerState) -> dict[str, PermitState]:
    """Line by line."""
    return {permit.node: permit.holding for permit in state.permits.values()}


OPEN, PARKED, KEPT = PermitState.OPEN, PermitState.PARKED, {"kind": Kind.PRESERVATION}
MINE = line("node-1")

SAID: dict[str, tuple[tuple[Permit, ...], EpisodeDescription, dict[str, PermitState]]] = {
    "S14, S15, S17: an episode nobody granted, by hand or a late start, keeps its node and counts once the queue grants it": (
        (MINE,),
        described("node-2", "stranger", control_plane=True),
        {"node-1": OPEN, "node-2": PARKED},
    ),
    "a grant may be younger than its answer: the episode does not say yet that it has its permit": (
        (MINE,),
        described("node-1", permit=False),
        {"node-1": OPEN},
    ),
    "only the episode's own parking parks a line": ((MINE,), described("node-1", permit=False, parked=True), {"node-1": PARKED}),
    "a reservation whose episode is open is no reservation any more": (
        (replace(MINE, holding=PermitState.RESERVED),),
        described("node-1"),
        {"node-1": OPEN},
    ),
    "S14: only its own word takes a line out of where it was parked": (
        (line("node-1", PARKED),),
        described("node-1"),
        {"node-1": PARKED},
    ),
    "S14: unknown is not another one": ((MINE,), described("node-1", ""), {"node-1": OPEN}),
    "what was asked before a grant says nothing about it": (
        (replace(MINE, granted_at=NOW),),
        described("node-1", open=False),
        {"node-1": OPEN},
    ),
    "a preservation disrupts nothing, and its line would keep everybody else from the node once it has ended": (
        (),
        described("node-1", permit=False, **KEPT),
        {},
    ),
    "S14: one that cuts its machine off has a permit, and counts": ((MINE,), described("node-1", **KEPT), {"node-1": OPEN}),
    "a grant of a preservation may be younger than its answer, too": (
        (MINE,),
        described("node-1", permit=False, **KEPT),
        {"node-1": OPEN},
    ),
}


@pytest.mark.parametrize("said", SAID)
def test_a_state_follows_what_is_said_of_its_holders(said: str) -> None:
    lines, description, after = SAID[said]
    state = state_with(*lines)
    state.reconcile(description, NOW, room=not lines)
    assert holdings(state) == after
    assert all(permit.incident == "mine" for permit in state.permits.values() if permit.node == "node-1")
    assert [(asked.incident, asked.control_plane) for asked in state.queue] == [("stranger", True)] * ("node-2" in after)


def test_a_rebuilt_state_takes_holders_in_while_there_is_room() -> None:
    """S14: who was granted by a predecessor keeps it, with all that the guards need to know of it (S15)."""
    state = state_with()
    state.reconcile(described("cp-1", control_plane=True, node_uid="u", provider_id="p"), NOW, room=True)
    permit = state.permits["cp-1"]
    assert (permit.holding, permit.control_plane, permit.node_uid, permit.provider_id) == (PermitState.OPEN, True, "u", "p")


def test_a_state_built_anew_gives_no_permit_to_an_episode_that_says_it_has_none() -> None:
    """S14: it parked, and asked again, after the moment that a reset has gone back to; others may have its place by now. Asked as
    one that holds its permit already it would be let in beside them."""
    state = state_with(MINE)
    state.reconcile(described("node-1", permit=False), NOW, room=False, anew=True)
    assert holdings(state) == {"node-1": PARKED}


def test_a_closed_holder_goes_with_its_place_in_the_queue() -> None:
    """S14: proven gone."""
    state = state_with(line("node-1"))
    state.reconcile(described("node-2", "stranger"), NOW, room=False)
    state.reconcile(described("node-2", "stranger", open=False), NOW + timedelta(minutes=1), room=False)
    state.reconcile(described("node-1", open=False), NOW, room=False)
    assert holdings(state) == {}
    assert state.queue == []


def test_what_a_silent_holder_could_not_say_is_learnt_once_it_answers() -> None:
    """S15: until its episode says what its node is, it may be a member of the control plane."""
    state = state_with()
    state.reconcile(described("cp-1"), NOW, room=True)
    permit = state.permits["cp-1"]
    assert (permit.holding, permit.control_plane, permit.node_uid) == (PermitState.OPEN, None, "")
    later = NOW + timedelta(minutes=1)
    state.reconcile(described("cp-1", control_plane=False, node_uid="u", provider_id="p"), later, room=True)
    permit = state.permits["cp-1"]
    assert (permit.holding, permit.control_plane, permit.node_uid, permit.provider_id) == (PermitState.OPEN, False, "u", "p")


@pytest.mark.parametrize(("line_says", "episode_says", "after"), [(False, True, True), (True, False, True), (False, None, False)])
def test_whoever_once_said_that_a_node_is_of_the_control_plane_is_believed(
    line_says: bool, episode_says: bool | None, after: bool
) -> None:
    """S15: who asked before the node was pinned took it for a worker; a silent episode takes nothing back."""
    state = state_with(replace(line("cp-1"), control_plane=line_says))
    state.reconcile(described("cp-1", control_plane=episode_says), NOW, room=False)
    assert [permit.control_plane for permit in state.permits.values()] == [after]


def test_who_has_asked_for_a_person_since_the_server_was_asked_is_not_forgotten() -> None:
    """S44: the answer is older than the question to the person; another time it would be told as a new one."""
    state = state_with(MINE)
    state.park("node-1", "mine", asks=NOW)
    state.reconcile(described("node-1"), NOW - timedelta(seconds=1), room=False)
    assert [(each.node, each.since) for each in state.need_person.values()] == [("node-1", NOW)]
    state.reconcile(described("node-1"), NOW + timedelta(seconds=1), room=False)
    assert state.need_person == {}
