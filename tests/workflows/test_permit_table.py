"""The permit table against what the server says of its holders (S14)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from activities.contracts.episodes import EpisodeDescription
from policy.episode.messages import Kind
from policy.episode.permits import Permit, PermitState
from workflows.scanner.permit_table import PermitTable

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


def holdings(table: PermitTable) -> dict[str, PermitState]:
    """Line by line."""
    return {permit.node: permit.holding for permit in table.permits()}


def test_a_stranger_keeps_its_node_and_must_ask_like_anybody() -> None:
    """S14, S15, S17: an episode nobody granted (by hand, or a late start) counts only once the queue grants it."""
    table = PermitTable((line("node-1"),))
    table.reconcile(described("node-2", "stranger", control_plane=True), NOW, room=False)
    assert holdings(table) == {"node-1": PermitState.OPEN, "node-2": PermitState.PARKED}
    assert [(asked.incident, asked.control_plane) for asked in table.queue()] == [("stranger", True)]


def test_a_rebuilt_table_takes_holders_in_while_there_is_room() -> None:
    """S14: who was granted by a predecessor keeps it, with all that the guards need to know of it (S15)."""
    table = PermitTable()
    table.reconcile(described("cp-1", control_plane=True, node_uid="u", provider_id="p"), NOW, room=True)
    permit = table.of("cp-1")
    assert permit is not None
    assert (permit.holding, permit.control_plane, permit.node_uid, permit.provider_id) == (PermitState.OPEN, True, "u", "p")


@pytest.mark.parametrize(("parked", "after"), [(False, PermitState.OPEN), (True, PermitState.PARKED)])
def test_only_the_episodes_own_parking_parks_a_line(parked: bool, after: PermitState) -> None:
    """A grant may be younger than its answer: the episode does not say yet that it has its permit."""
    table = PermitTable((line("node-1"),))
    table.reconcile(described("node-1", permit=False, parked=parked), NOW, room=False)
    assert holdings(table) == {"node-1": after}


def test_an_episode_that_does_not_say_who_it_is_changes_nothing() -> None:
    """S14: unknown is not another one."""
    table = PermitTable((line("node-1"),))
    table.reconcile(described("node-1", ""), NOW, room=False)
    assert [permit.incident for permit in table.permits()] == ["mine"]


def test_a_preservation_is_no_line_unless_it_has_a_permit() -> None:
    """It disrupts nothing and gives nothing back: once it has ended, its line would keep everybody else from the node. One that
    cuts its machine off has a permit, and counts (S14)."""
    table = PermitTable()
    table.reconcile(described("node-1", permit=False, kind=Kind.PRESERVATION), NOW, room=True)
    assert holdings(table) == {}
    table.reconcile(described("node-1", permit=True, kind=Kind.PRESERVATION), NOW, room=True)
    assert holdings(table) == {"node-1": PermitState.OPEN}
    table.reconcile(described("node-1", permit=False, kind=Kind.PRESERVATION), NOW, room=True)
    assert holdings(table) == {"node-1": PermitState.OPEN}, "a grant may be younger than its answer"


def test_a_line_younger_than_the_answer_is_left_alone() -> None:
    """What was asked before a grant says nothing about it."""
    table = PermitTable((replace(line("node-1"), granted_at=NOW),))
    table.reconcile(described("node-1", open=False), NOW, room=False)
    assert holdings(table) == {"node-1": PermitState.OPEN}


def test_a_closed_holder_goes_with_its_place_in_the_queue() -> None:
    """S14: proven gone."""
    table = PermitTable((line("node-1"),))
    table.reconcile(described("node-2", "stranger"), NOW, room=False)
    table.reconcile(described("node-2", "stranger", open=False), NOW + timedelta(minutes=1), room=False)
    table.reconcile(described("node-1", open=False), NOW, room=False)
    assert holdings(table) == {}
    assert table.queue() == ()


def test_what_a_silent_holder_could_not_say_is_learnt_once_it_answers() -> None:
    """S15: until its episode says what its node is, it may be a member of the control plane."""
    table = PermitTable()
    table.reconcile(described("cp-1"), NOW, room=True)
    permit = table.of("cp-1")
    assert permit is not None
    assert (permit.holding, permit.control_plane, permit.node_uid) == (PermitState.OPEN, None, "")
    later = NOW + timedelta(minutes=1)
    table.reconcile(described("cp-1", control_plane=False, node_uid="u", provider_id="p"), later, room=True)
    permit = table.of("cp-1")
    assert permit is not None
    assert (permit.holding, permit.control_plane, permit.node_uid, permit.provider_id) == (PermitState.OPEN, False, "u", "p")


@pytest.mark.parametrize(("line_says", "episode_says", "after"), [(False, True, True), (True, False, True), (False, None, False)])
def test_whoever_once_said_that_a_node_is_of_the_control_plane_is_believed(
    line_says: bool, episode_says: bool | None, after: bool
) -> None:
    """S15: who asked before the node was pinned took it for a worker; a silent episode takes nothing back."""
    table = PermitTable((replace(line("cp-1"), control_plane=line_says),))
    table.reconcile(described("cp-1", control_plane=episode_says), NOW, room=False)
    assert [permit.control_plane for permit in table.permits()] == [after]
