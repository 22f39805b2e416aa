"""What the scanner is told at once, and what may wait: all that somebody is admitted by, and nothing that we have written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from policy.checks.fence_policies import FencePolicies, StormRule
from policy.checks.inventory import ControlPlane
from policy.checks.verdicts import Health
from policy.episode.messages import Observation
from policy.objects.scopes import GroupCount
from policy.scan.report_builder import Urgency, urgency
from policy.scan.scan_report import AtRisk, ClusterLease, NodeAtRisk, TargetRow, ViewState
from tests.policy.builders import NOW, a_candidate, a_check_report, a_report, check_ref

CHECKED, SPARED = a_check_report(), a_check_report("others", healthy=12, unhealthy=0, remaining=2, at_once=2)


def row(node: str) -> TargetRow:
    """As people read of it."""
    return TargetRow(node=node, zone="z", ready="Unknown", health=Health.UNHEALTHY)


def at_risk(node: str) -> AtRisk:
    """The one node whose volumes are attached and that is not off."""
    return AtRisk(nodes=1, nearest=(NodeAtRisk(node=node, since=NOW, volumes=1),))


MINE = Observation(node="mine", uid="uid-mine", unhealthy=True, boot_id="b1")
STRAY = Observation(node="stray", uid="uid-stray", incident="terminated")
TOLD = a_report(
    a_candidate("mine"),
    a_candidate("waiting", healthy_under=(check_ref("others").key,)),
    checks=(SPARED, CHECKED),
    observations=(MINE, STRAY),
    policies=FencePolicies(storms=(StormRule(name="storm", percentage=40),)),
    groups=(GroupCount(group="cluster", nodes=10, unresponsive=2),),
)


def changed(**changes: object) -> Urgency:
    """Of a report that differs so from the one that was told; `mine` is in the hand of an episode."""
    return urgency(TOLD, replace(TOLD, digest="seen", **changes), ("mine", "held-off"), ("mine",))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"candidates": (*TOLD.candidates, a_candidate("new"))}, id="a deadline has come"),
        pytest.param({"candidates": TOLD.candidates[:1]}, id="one that waits is well again"),
        pytest.param({"candidates": (TOLD.candidates[0], a_candidate("waiting", refused="held"))}, id="one may not be acted on"),
        pytest.param(
            {"checks": (SPARED, replace(CHECKED, allowed=False, reason="Threshold"))}, id="a circuit breaker has opened"
        ),
        pytest.param({"checks": (SPARED, replace(CHECKED, paused="by hand"))}, id="a check is paused"),
        pytest.param({"checks": (SPARED,)}, id="a check is gone"),
        pytest.param({"checks": (replace(SPARED, at_once=3), CHECKED)}, id="more may be remediated at once"),
        pytest.param({"checks": (replace(SPARED, remaining=1), CHECKED)}, id="fewer can be spared of whom one waits"),
        pytest.param({"view": ViewState(synced=True, stale="silent")}, id="the view is stale"),
        pytest.param({"lease": ClusterLease(held=False, holder="others")}, id="the Lease is lost"),
        pytest.param({"control_plane": ControlPlane(members=3, ready=2)}, id="a member of the control plane is down"),
        pytest.param({"policies": FencePolicies(switched_off="by hand")}, id="fencing is switched off"),
        pytest.param({"groups": (GroupCount(group="cluster", nodes=10, unresponsive=4),)}, id="a storm"),
    ],
)
def test_whatever_somebody_is_admitted_by_is_told_at_once(changes: dict[str, object]) -> None:
    """S15, S17, S18, S38."""
    assert changed(**changes) is Urgency.NOW


@pytest.mark.parametrize(
    "changes",
    [
        {"ready": True},
        {"unhealthy": False, "soon": True},
        {"boot_id": "b2"},
        {"uid": "another"},
        {"present": False},
        {"preserved": True},
        {"asked_by": ("uid-of-a-request",)},
        {"others": "machine-1 Deleting"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_becomes_of_a_node_in_hand_is_told_soon(changes: dict[str, object]) -> None:
    """Its episode waits for it."""
    assert changed(observations=(replace(MINE, **changes), STRAY)) is Urgency.SOON  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"observations": (MINE,)}, id="a mark is gone"),
        pytest.param({"observations": (replace(MINE, groups=("rack/7",)), STRAY)}, id="a node in hand counts in another group"),
        pytest.param(
            {"observations": (MINE, STRAY, replace(MINE, node="held-off", incident="left"))}, id="a mark is left behind"
        ),
        pytest.param({"rows": (row("other"),)}, id="a node is ill"),
        pytest.param({"at_risk": at_risk("other")}, id="data is at risk of which no episode takes care"),
        pytest.param({"checks": (SPARED, replace(CHECKED, healthy=7, recovering=1, remaining=2))}, id="it counts as recovering"),
        pytest.param({"checks": (SPARED, replace(CHECKED, soon=1))}, id="a timeout has begun"),
        pytest.param({"groups": (GroupCount(group="cluster", nodes=10, unresponsive=3),)}, id="no storm yet"),
        pytest.param({"inventory": 11}, id="a node more"),
        pytest.param(
            {"observations": (replace(MINE, checks=(SPARED.ref.key,)), STRAY)}, id="a check with a limit counts it, too"
        ),
    ],
)
def test_by_what_nobody_decides_waits(changes: dict[str, object]) -> None:
    assert changed(**changes) is Urgency.LATER


@pytest.mark.parametrize("changes", [{"rows": (row("mine"),)}, {"at_risk": at_risk("mine")}], ids=["its row", "its data at risk"])
def test_what_people_read_of_a_node_in_hand_is_rarely_told(changes: dict[str, object]) -> None:
    """Its episode tells them more."""
    assert changed(**changes) is Urgency.RARELY


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"observations": (replace(MINE, incident="ours"), STRAY)}, id="our mark"),
        pytest.param({"observations": (replace(MINE, checks=(CHECKED.ref.key,)), STRAY)}, id="a check without a limit counts it"),
        pytest.param({"candidates": TOLD.candidates[1:]}, id="a node in hand is no candidate any more"),
        pytest.param({"rows": (replace(row("well"), health=Health.HEALTHY),)}, id="a row of a healthy node"),
    ],
)
def test_what_an_episode_writes_is_told_with_something_else(changes: dict[str, object]) -> None:
    assert changed(**changes) is Urgency.NONE


def test_a_node_that_has_just_been_taken_in_hand_is_no_news() -> None:
    """The scanner did that itself, and its next request for a report says so."""
    waiting = replace(MINE, node="waiting")
    seen = replace(TOLD, digest="seen", candidates=TOLD.candidates[:1], observations=(MINE, STRAY, waiting))
    in_hand = ("mine", "waiting")
    assert urgency(TOLD, seen, in_hand, in_hand) is Urgency.NONE
    for more in ({"unhealthy": False}, {"preserved": True}, {"asked_by": ("uid",)}, {"others": "machine-1"}):
        found = replace(seen, observations=(MINE, STRAY, replace(waiting, **more)))  # type: ignore[arg-type]
        assert urgency(TOLD, found, in_hand, in_hand) is Urgency.LATER, more
    for more in ({"ready": True, "unhealthy": False}, {"present": False}):
        found = replace(seen, observations=(MINE, STRAY, replace(waiting, **more)))  # type: ignore[arg-type]
        assert urgency(TOLD, found, in_hand, in_hand) is Urgency.SOON, "since it was taken in hand nothing else had to be told"


def test_a_node_that_is_given_back_is_told_of_by_the_mark_it_still_has() -> None:
    """S35: what the scanner knows of it was seen before its end."""
    assert urgency(TOLD, replace(TOLD, digest="seen", observations=(STRAY,)), (), ()) is Urgency.NONE
    marked = replace(TOLD, observations=(replace(MINE, incident="ended"), STRAY))
    assert urgency(marked, replace(marked, digest="seen", observations=(STRAY,)), (), ()) is Urgency.LATER


def test_how_many_can_be_spared_matters_to_those_who_wait_only() -> None:
    """S14: else our own marks, each of which spends one, would be told at once."""
    alone = replace(TOLD, candidates=TOLD.candidates[:1])
    spent = replace(alone, checks=(replace(SPARED, remaining=0), CHECKED))
    assert urgency(alone, spent, ("mine",), ("mine",)) is Urgency.LATER
    waits = replace(spent, candidates=TOLD.candidates)
    assert urgency(spent, waits, ("mine",), ("mine",)) is Urgency.NOW, (
        "whoever comes then is told of with the numbers of that moment"
    )
