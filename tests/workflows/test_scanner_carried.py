"""Nothing that a scanner remembers is lost when its history begins anew."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import MISSING, fields, replace
from datetime import timedelta

import pytest
from temporalio import workflow

from policy.checks.fence_policies import Attempts, PowerMoment
from policy.episode.decisions import Decision, DecisionKind
from policy.episode.messages import Kind
from policy.episode.modes import ClusterModes, ModeChange, ModeRule
from policy.episode.permits import (
    HoldOff,
    NeedsPerson,
    Permit,
    PermitAnswer,
    PermitDecision,
    PermitRequest,
    PermitState,
    Portion,
    Release,
    Replacing,
    ScannerAnswer,
)
from policy.history.spells import Ending, HeldSpan, NodeDays, ObservationRecord, Spell
from policy.scan.pauses import PastPause, Pause
from policy.scan.repeat_alarm import PastIncident, Repetition
from policy.values.mode import Mode
from tests.workflows.scanner_run import NOW, carried_over, report
from workflows.definitions.scanner import HealthScanner
from workflows.kit.messages import StopRequest
from workflows.scanner.state import PreservationNotice, ScannerInput, ScannerState, UnconfirmedRelease

LATER = NOW + timedelta(minutes=1)


def line(node: str) -> Permit:
    return Permit(node=node, workflow_id="w", incident=f"of-{node}", kind=Kind.FENCING, state=PermitState.OPEN, granted_at=NOW)


def spell(node: str) -> Spell:
    held = HeldSpan(code="CapReached", message="1 of 1 permits are held: a", since=NOW)
    return Spell(node=node, check="NodeHealthCheck//workers", cause="ReadyUnknown", since=NOW, due=NOW, held=(held,))


FULL = ScannerState(
    started=NOW,
    holder="us",
    build="0.1.0",
    permits={"z": line("z"), "a": line("a")},
    queue=[PermitRequest(node="y", workflow_id="w", incident="j"), PermitRequest(node="b", workflow_id="w", incident="h")],
    held_off={"c": HoldOff(node="c", reason="aborted by ada")},
    settling={"f"},
    report=report("a"),
    notified={"a": "stamp"},
    described_at=NOW,
    described={"i-9": False},
    polls=5,
    scans=4,
    opened=3,
    known=True,
    incidents=(PastIncident(node="a", cause="Ready", incident="i", at=NOW),),
    unpublished=[Repetition(node="a", cause="Ready", count=2, window=timedelta(hours=1), incidents=("h", "i"))],
    power={"a": PowerMoment(node="a", on=False, at=NOW)},
    attempts={"a": Attempts(node="a", failed=1, at=NOW)},
    replaced=[Replacing(owner="MachineSet/m", node="a", since=NOW, until=LATER)],
    released={"h": NOW},
    releases=[UnconfirmedRelease(release=Release(node="a", incident="of-a", held=True), at=NOW)],
    portions=(Portion(incident="i", number=1, pods=2, until=LATER),),
    answers={"q": ScannerAnswer(permit=PermitAnswer(decision=PermitDecision.REFUSED, reason="r"))},
    preservations={"a": PreservationNotice(victim="a", stamp="s", at=NOW)},
    pauses=(PastPause(pause=Pause(who="ada", owner="ada", reason="drill", since=NOW)),),
    need_person={"d": NeedsPerson(node="d", incident="k", reminded=NOW)},
    modes=ClusterModes(found=Mode.OBSERVE, rules=(ModeRule(mode=Mode.REPAIR, by="ada", reason="r", at=NOW, nodes=("a",)),)),
    mode_changes=(ModeChange(at=NOW, by="ada", mode="repair", scope="a", reason="r"),),
    halted="paused by ada",
    cluster_uid="uid-of-kube-system",
    decided=6,
    decisions=[Decision(id="run/6", at=NOW, cluster="prod", kind=DecisionKind.REFUSED, node="d")],
    refused={"d": "CapReached"},
    spells={"s": spell("s")},
    spells_left_out=3,
    spells_ended=[replace(spell("t"), ended=LATER, ending=Ending.CAME_BACK)],
    spells_of_storms=[replace(spell("u"), ended=LATER, ending=Ending.OURS, storm="1")],
    node_days=(NodeDays(day="2026-11-01", check="NodeHealthCheck//workers", mode=Mode.REPAIR, seconds=720.0),),
    unrecorded=(
        ObservationRecord(
            cluster="prod", days=(NodeDays(day="2026-10-31", check="c", mode=Mode.OBSERVE, seconds=1.0),), until=NOW
        ),
    ),
    days_counted_at=NOW,
    former_run="run-1",
    former_until=LATER,
)
EMPTY = ScannerState(started=NOW)


def a_scanner(state: ScannerState) -> HealthScanner:
    return HealthScanner(ScannerInput(cluster="prod", state=deepcopy(state)))


@pytest.mark.parametrize("name", [each.name for each in fields(ScannerState) if each.name != "started"])
def test_each_thing_that_is_remembered_is_carried_over(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S13, S14, S19, S33: a line that is lost is a second permit for one node. A field that is added has to be added here."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    assert getattr(FULL, name) != getattr(EMPTY, name), "the state here has something of everything"
    carried = getattr(carried_over(a_scanner(FULL)), name)
    assert (carried, type(carried)) == (getattr(FULL, name), type(getattr(FULL, name)))


def test_who_waits_and_who_was_granted_keep_their_order_over_a_new_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """S14: first come, first served, also where the names would sort another way."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    carried = carried_over(a_scanner(FULL))
    assert ([*carried.permits], [each.node for each in carried.queue]) == (["z", "a"], ["y", "b"])


def test_every_step_changes_the_state_that_is_carried_over_and_none_a_copy_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field is emptied behind the scanner's back, so that what it shows, asks for and decides by has to come from there."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    scanner = a_scanner(FULL)
    kept = [
        scanner._story.permits._state,
        scanner._story.queue._state,
        scanner._story._holders._state,
        scanner._commands._state,
        scanner._carried().state,
    ]
    assert all(each is scanner._state for each in kept)
    for each in fields(ScannerState):
        assert each.name == "started" or (each.default, each.default_factory) != (MISSING, MISSING)
        setattr(scanner._state, each.name, deepcopy(getattr(EMPTY, each.name)))
    fresh = a_scanner(EMPTY)
    assert (scanner.status(), scanner._story._scan_request(), scanner._carried()) == (
        fresh.status(),
        fresh._story._scan_request(),
        fresh._carried(),
    )


@pytest.mark.parametrize("stopped", [True, False])
async def test_who_has_waited_for_an_answer_while_the_scanner_was_stopped_gets_no_permit(
    stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S38, S44: the Lease is given back a moment later."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    scanner = a_scanner(FULL)

    async def meanwhile(*_: object, **__: object) -> None:
        if stopped:
            scanner._underway.stop = StopRequest(who="ada", reason="maintenance")

    monkeypatch.setattr(workflow, "wait_condition", meanwhile)
    answer = await scanner._story.queue.ask(PermitRequest(node="x", workflow_id="episode/prod/x", incident="x"))
    assert (answer.decision is PermitDecision.REFUSED, "being stopped" in answer.reason) == (stopped, stopped)
    assert ("x" in scanner._state.nodes_in_hand()) is not stopped
