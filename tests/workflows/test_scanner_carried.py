"""Nothing that a scanner remembers is lost when its history begins anew."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta

import pytest
from temporalio import workflow

from policy.checks.fence_policies import Attempts, PowerMoment
from policy.episode.messages import Kind
from policy.episode.permits import NeedsPerson, Permit, PermitDecision, PermitRequest, PermitState, Portion, Replacing
from policy.scan.pauses import PastPause, Pause
from policy.scan.repeat_alarm import PastIncident, Repetition
from tests.workflows.scanned import NOW, report
from workflows.definitions.scanner import HealthScanner
from workflows.kit.messages import Backoff, PreservationNotice, ScannerInput, ScannerState, StopRequest

LATER = NOW + timedelta(minutes=1)
PERMIT = Permit(node="a", workflow_id="w", incident="i", kind=Kind.FENCING, holding=PermitState.OPEN, granted_at=NOW)
FULL = ScannerState(
    started=NOW,
    permits=(PERMIT,),
    queue=(PermitRequest(node="b", workflow_id="w", incident="j"),),
    held_off=(Backoff(node="c", reason="aborted by ada"),),
    report=report("a"),
    told=(("a", "stamp"),),
    described_at=NOW,
    polls=5,
    scans=4,
    opened=3,
    known=True,
    incidents=(PastIncident(node="a", cause="Ready", incident="i", at=NOW),),
    untold=(Repetition(node="a", cause="Ready", count=2, window=timedelta(hours=1), incidents=("h", "i")),),
    power=(PowerMoment(node="a", on=False, at=NOW),),
    attempts=(Attempts(node="a", failed=1, at=NOW),),
    replaced=(Replacing(owner="MachineSet/m", node="a", since=NOW, until=LATER),),
    released={"h": NOW},
    portions=(Portion(incident="i", number=1, pods=2, until=LATER),),
    preservations=(PreservationNotice(victim="a", stamp="s", at=NOW),),
    pauses=(PastPause(pause=Pause(who="ada", owner="ada", reason="drill", since=NOW)),),
    need_person=(NeedsPerson(node="d", incident="k", told=NOW),),
    halted="paused by ada",
    cluster_uid="uid-of-kube-system",
)


def test_the_state_here_has_something_of_everything() -> None:
    empty = ScannerState(started=NOW)
    assert [each.name for each in fields(FULL) if getattr(FULL, each.name) == getattr(empty, each.name)] == ["started"]


def test_all_of_it_is_carried_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """S13, S14, S19, S33: a line that is lost is a second permit for one node."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    carried = HealthScanner(ScannerInput(cluster="prod", holder="us", state=FULL))._carried()
    assert carried.state == FULL
    assert (carried.cluster, carried.holder, carried.state is FULL) == ("prod", "us", False)


@pytest.mark.parametrize("stopped", [True, False])
async def test_who_has_waited_for_an_answer_while_the_scanner_was_stopped_gets_no_permit(
    stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S38, S44: the Lease is given back a moment later."""
    monkeypatch.setattr(workflow, "now", lambda: NOW)
    scanner = HealthScanner(ScannerInput(cluster="prod", holder="us", state=FULL))

    async def meanwhile(*_: object, **__: object) -> None:
        if stopped:
            scanner._stop = StopRequest(who="ada", reason="maintenance")

    monkeypatch.setattr(workflow, "wait_condition", meanwhile)
    answer = await scanner.request_permit(PermitRequest(node="z", workflow_id="episode/prod/z", incident="z"))
    assert (answer.decision is PermitDecision.REFUSED, "being stopped" in answer.reason) == (stopped, stopped)
    assert ("z" in scanner._granting.table.nodes()) is not stopped
