"""The table as people see it, as plain text of a given width."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from policy.checks.circuit_breakers import OpenReason
from policy.checks.verdict import Health
from policy.episode.messages import Kind, Phase
from policy.episode.modes import ClusterModes
from policy.episode.permits import HoldOff, Permit, PermitRequest, PermitState
from policy.fence.device_check import DeviceRow
from policy.history.spells import Ending, HeldSpan, Spell
from policy.scan.admission import Refused
from policy.scan.pauses import Pause
from policy.scan.permit_rules import AdmissionRefusal
from policy.scan.scan_report import AtRisk, Candidate, NodeAtRisk
from policy.values.mode import Mode
from starter.handles.episodes import SilentEpisode
from starter.handles.status import ClusterStatus
from starter.output.status_table import render
from starter.wording import commanded
from tests.starter.builders import CHECK, NOW, ago, check, episode, proof, report, result, row, scanner, status
from tests.starter.builders import drawn as lines_of


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    """Times of day are the reader's own; here the reader sits in UTC."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def drawn(shown: ClusterStatus, *, width: int = 120, where: str = "", later: float = 0) -> list[str]:
    return lines_of(render(shown, now=NOW + timedelta(seconds=later), where=where), width=width)


def test_an_abort_is_shown_until_the_episode_says_it_itself() -> None:
    """S44: the table, the page's and the explanation's words are one."""
    aborted = episode(doing="waits for the node to come back Ready", aborted="aborted by ada: drill")
    assert "aborted by ada: drill" in " ".join(drawn(status(episodes=(aborted,))))
    assert commanded(replace(aborted, doing="aborted: aborted by ada: drill; the node is back")) == ""


def test_a_node_that_a_person_holds_waits_with_the_command_that_ends_it() -> None:
    why = "the annotation nodewarden.io/hold holds the node: by ada: disks"
    refused = Refused(check=CHECK, node="node-2", reason=AdmissionRefusal.HELD_OFF, message=why)
    held = Candidate(node="node-2", uid="u", reason="r", message=why, check=CHECK, since=ago(60), refused=why, vetoed_by="hold")
    shown = " ".join(drawn(status(scanner=scanner(report(row("node-2"), candidates=(held,)), refused=(refused,)))))
    assert f"{why}; `kubectl annotate node node-2 nodewarden.io/hold-` ends it" in " ".join(shown.split())


def test_a_hold_of_a_node_that_is_well_stands_in_its_row() -> None:
    """S20, S44: else a person forgets it until the node dies."""
    shown = " ".join(
        drawn(status(row("node-2", held="the annotation nodewarden.io/hold holds the node: by ada")), width=200)
    ).split()
    assert "healthy; if it fails nothing is begun: the annotation nodewarden.io/hold holds the node: by ada" in " ".join(shown)


def test_everything_in_its_place() -> None:
    shown = status(
        row("node-2", Health.UNHEALTHY, since=ago(62), reason="ReadyUnknown", ready="Unknown", schedulable=False),
        row("node-3", Health.SOON, due=NOW + timedelta(seconds=23), ready="False", reason="ReadyFalse", zone="zone-b"),
        row("node-10"),
        row("node-9"),
        episodes=(episode("node-2", waiting_until=NOW + timedelta(seconds=12), off_proof=proof()),),
        ended=(result("node-5"),),
    )
    assert drawn(shown, where="Temporal 127.0.0.1:7233") == [
        "nodewarden  cluster prod  4 nodes, view live, cluster Lease held, 0 of 1 permits in use  2026-11-21T12:00:00Z",
        "Temporal 127.0.0.1:7233",
        "EPISODE   KIND      PHASE         STEP               TRY   OPEN FOR   DOING",
        "node-2    Fencing   in progress   power-management   1     1m15s      waits before power is touched, at most 12s",
        "                                                                      off proven, read at 2026-11-21T11:59:00Z",
        "CHECK                     HEALTHY   MAY IT ACT",
        "NodeHealthCheck/workers   11/12     may act on 4 more",
        "NODE      ZONE     READY     VERDICT                                    SCHEDULABLE",
        "node-2    zone-a   Unknown   unhealthy, sick for 1m02s (ReadyUnknown)   cordoned",
        "node-3    zone-b   False     becomes unhealthy in 23s (ReadyFalse)      yes",
        "node-9    zone-a   True      healthy                                    yes",
        "node-10   zone-a   True      healthy                                    yes",
        "ENDED    AGE   HOW",
        "node-5   3s    recovered after 2m07s: the node is back Ready with a new boot id",
    ]


def test_a_count_of_the_healthy_says_which_others_look_healthy_below() -> None:
    """A node that is well again counts once its episode has ended, though its own line says that it is healthy."""
    seen = report(row("node-1"), checks=(check(healthy=9, unhealthy=1, recovering=1, starting=1),))
    assert "NodeHealthCheck/workers   9/12, 1 starting, 1 recovering   may act on 4 more" in drawn(status(scanner=scanner(seen)))


def test_countdowns_move_without_asking_anybody() -> None:
    shown = status(row("node-3", Health.SOON, due=NOW + timedelta(seconds=5), ready="False"))
    drawings = [drawn(shown, later=seconds) for seconds in (0, 3, 5, 9)]
    rows = [" ".join(next(line for line in lines if line.startswith("node-3")).split()[3:-1]) for lines in drawings]
    assert rows == ["becomes unhealthy in 5s", "becomes unhealthy in 2s", "unhealthy by now", "unhealthy by now"]


def test_how_old_the_rows_of_nodes_are_is_said() -> None:
    """Somebody has just cordoned a node: nothing ails it, so no scan was answered at once."""
    shown = status(row("node-3"))
    assert [drawn(shown, later=seconds)[-1] for seconds in (4, 23)] == [
        "node-3   zone-a   True    healthy   yes",
        "as the scanner saw them 23s ago",
    ]


def test_rows_are_as_old_as_what_was_heard_last_from_the_api_server() -> None:
    """S44: it has stood still for three minutes, and the scanner has answered a second ago."""
    seen = report(row("node-3"), answered_at=ago(1), seen_at=ago(185))
    assert drawn(status(scanner=scanner(seen)))[-1] == "as the scanner saw them 3m05s ago"
    assert "as the scanner saw it last, at 2026-11-21T11:56:55Z:" in drawn(status(scanner=None, last=scanner(seen)))


def test_only_the_sickest_are_listed_and_the_rest_is_counted() -> None:
    shown = status(scanner=scanner(report(row("node-1"), inventory=5000)))
    assert "… and 4999 more nodes, no sicker than these" in drawn(shown)


def test_a_narrow_terminal_folds_instead_of_hiding() -> None:
    shown = status(
        row("node-1"),
        scanner=scanner(report(row("node-1"), checks=(check(allowed=False, message="a reason of many words " * 4),))),
    )
    text = " ".join(" ".join(drawn(shown, width=60)).split())
    assert text.count("reason") == 4


def test_without_any_check_it_says_that_nothing_will_be_done() -> None:
    shown = status(scanner=scanner(report(row("node-1"), checks=())))
    assert "no health check in this cluster: nothing will be done to it" in drawn(shown)


def test_while_temporal_is_away_the_last_picture_stays_and_says_how_old_it_is() -> None:
    """S37."""
    shown = replace(status(row("node-1")), problem="Temporal is not available")
    lines = drawn(shown, later=30)
    assert lines[0].endswith("2026-11-21T12:00:30Z")
    assert lines[1] == "as of 2026-11-21T12:00:00Z: Temporal is not available"
    assert "node-1" in " ".join(lines)


def test_who_waits_and_why() -> None:
    waiting = scanner(
        report(row("node-1")),
        permits=(
            Permit(node="node-2", workflow_id="w", incident="i", kind=episode().kind, state=PermitState.OPEN, granted_at=NOW),
        ),
        queue=(PermitRequest(node="node-3", workflow_id="w", incident="i"),),
        held_off=(HoldOff(node="node-4", reason="aborted by amy", until=NOW + timedelta(seconds=40)),),
        refused=(Refused(check=CHECK, node="node-5", reason="Budget", message="1 of 1 permits are in use"),),
    )
    queued = replace(episode("node-3"), queued="1 of 1 permits are held: node-2")
    lines = drawn(status(scanner=waiting, episodes=(queued,)))
    assert "1 of 1 permits in use" in lines[0]
    first = lines.index("node-3    queued for a permit: 1 of 1 permits are held: node-2")
    assert lines[first + 1 : first + 3] == [
        "node-4    held off for another 40s: aborted by amy",
        "node-5    Budget: 1 of 1 permits are in use",
    ]


def test_what_would_have_been_repaired_is_shown_with_what_holds_it() -> None:
    held = HeldSpan(code="Paused", message="paused by ada: drill", since=ago(60))
    spell = Spell(node="node-2", check="c", cause="ReadyUnknown", since=ago(120), due=ago(60), held=(held,))
    over = replace(spell, node="node-3", ended=ago(60), ending=Ending.CAME_BACK)
    seen = scanner(report(row("node-1")), spells=(spell, over), open_spells=4)
    lines = drawn(status(scanner=seen))
    first = next(index for index, line in enumerate(lines) if line.startswith("WOULD HAVE"))
    assert [line.split(maxsplit=2) for line in lines[first + 1 : first + 3]] == [
        ["node-2", "2m00s", "paused by ada: drill"],
        ["node-3", "1m00s", "it came back by itself"],
    ]
    assert lines[first + 3] == "… and 3 more nodes"
    long = "its mode is observe: set for all nodes by ada, verified by Kubernetes at 2026-11-21T11:00:00Z: only look"
    waits = Refused(check=CHECK, node="node-2", reason="Mode", message=long)
    held = HeldSpan(code="mode", message=long[:90], since=ago(60))
    seen = scanner(report(row("node-1")), spells=(replace(spell, held=(held,)),), refused=(waits,))
    page = " ".join(" ".join(drawn(status(scanner=seen))).split())
    assert page.count("its mode is observe") == 1
    assert "node-2 2m00s mode, as above" in page


def test_what_would_have_been_repaired_contradicts_nothing_above_it() -> None:
    """Today's decision is that of the nodes that wait; and a node with an open episode is being repaired."""
    held = HeldSpan(code="CapReached", message="1 of 1 permits are held: node-3", since=ago(60))
    spell = Spell(node="node-2", check="c", cause="ReadyUnknown", since=ago(120), due=ago(60), held=(held,))
    for reason, expected in (
        ("Mode", "Mode, as above; in mode repair also CapReached: 1 of 1 permits are held: node-3"),
        ("Paused", "Paused, as above"),
    ):
        waits = Refused(node="node-2", check=CHECK, reason=reason, message="something else holds it")
        page = " ".join(
            " ".join(drawn(status(scanner=scanner(report(row("node-1")), spells=(spell,), refused=(waits,))))).split()
        )
        assert page.partition("WHAT HOLDS IT ")[2].startswith(f"node-2 2m00s {expected}")
    begins = drawn(status(scanner=scanner(report(row("node-1")), spells=(replace(spell, held=(replace(held, until=NOW),)),))))
    page = " ".join(" ".join(begins).split())
    assert ("node-2 2m00s its episode is under way" in page, "CapReached" in page) == (True, False)
    seen = scanner(report(row("node-1")), spells=(spell, replace(spell, node="node-4")), open_spells=2)
    at_work = drawn(status(scanner=seen, episodes=(episode(node="node-2"),)))
    first = next(index for index, line in enumerate(at_work) if line.startswith("WOULD HAVE"))
    assert at_work[first + 1].startswith("node-4")
    assert not any(line.startswith("node-2") or "more node" in line for line in at_work[first:])


def test_a_remediation_shows_its_step_its_time_and_its_machine() -> None:
    at_work = episode(
        kind=Kind.REMEDIATION,
        doing="waits for SelfNodeRemediation: Processing is True",
        rung="2 of 3: SelfNodeRemediationTemplate/medik8s/automatic",
        rung_until=NOW + timedelta(minutes=4),
        machine="openshift-machine-api/w-1",
    )
    words = "step 2 of 3: SelfNodeRemediationTemplate/medik8s/automatic, 4m00s left; machine openshift-machine-api/w-1"
    assert words in " ".join(" ".join(drawn(status(episodes=(at_work,)))).split())
    alone = replace(at_work, node="machine/openshift-machine-api/w-1", rung="", rung_until=None)
    assert "machine openshift" not in " ".join(drawn(status(episodes=(alone,))))
    late = " ".join(" ".join(drawn(status(episodes=(at_work,)), later=300)).split())
    assert "automatic, its time is over; machine" in late


@pytest.mark.parametrize(
    ("because", "message", "shown"),
    [
        (
            AdmissionRefusal.RETRY_LATER,
            "retry 2 of 3, not before 12:01:00",
            "RetryLater: retry 2 of 3, not before 12:01:00, due in 1m00s",
        ),
        (
            AdmissionRefusal.IN_FLIGHT,
            "NodeHealthCheck/a lets 2 be remediated at once: n1, n2",
            "InFlightLimit: NodeHealthCheck/a lets 2",
        ),
        (
            AdmissionRefusal.REPLACEMENT,
            "it may be what MachineSet/a has made",
            "ReplacementUnderWay: it may be what MachineSet/a has made",
        ),
    ],
)
def test_a_candidate_that_waits_says_for_what(because: AdmissionRefusal, message: str, shown: str) -> None:
    waiting = Candidate(
        node="node-5", uid="u", check=CHECK, since=NOW, reason="r", message="m", not_before=NOW + timedelta(minutes=1)
    )
    seen = report(row("node-1"), candidates=(waiting,))
    refused = (Refused(check=CHECK, node="node-5", reason=because.value, message=message),)
    assert shown in " ".join(" ".join(drawn(status(scanner=scanner(seen, refused=refused)))).split())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"tries": 3, "problem": "the BMC says on"}, "try 1 of 3"),
        ({"tries": 3, "try_number": 2}, "try 2 of 3"),
        ({"tries": 3, "try_number": 3, "restarts": 1, "most_restarts": 2, "problem": "p"}, "try 3 of 3, restart 1 of 2"),
        ({"try_number": 2, "problem": "p"}, ""),  # an older worker does not say of how many
        ({"restarts": 1, "most_restarts": 1}, "restart 1 of 1"),
        ({"phase": Phase.NEEDS_HUMAN, "tries": 3, "problem": "the Secret is missing"}, ""),  # no further try would help
    ],
)
def test_how_often_a_step_is_tried_is_said_where_it_is_repeated(changes: dict[str, Any], said: str) -> None:
    """Whoever is on call sees how near it is to asking him."""
    lines = drawn(status(episodes=(episode(**changes),)))
    assert [line.strip() for line in lines if "try " in line or "restart " in line] == ([said] if said else [])


def test_what_it_does_and_what_is_wrong_are_not_the_same_sentence_twice() -> None:
    again = episode(doing="will try again: ipmi://10.0.0.7:623 says on", problem="ipmi://10.0.0.7:623 says on")
    assert "\n".join(drawn(status(episodes=(again,)))).count("says on") == 1


@pytest.mark.parametrize("width", range(60, 150, 3))
def test_a_command_stays_on_one_line_to_be_copied(width: int) -> None:
    resume, ack = "`nodewarden resume node-7`", "`nodewarden ack-off node-7 --who … --reason …`"
    abort, later = "`nodewarden abort node-7`", "`ack-off`, of one word, is no part of the next"
    said = f"fix the cause, then {resume} tries again; {later}; if you saw it off, {ack}; or {abort}: ends every hold"
    parked = episode(phase=Phase.NEEDS_HUMAN, problem="p", advice=said)
    paused = scanner(
        report(row("node-1")), pauses=(Pause(who="ann", owner="ann", reason="the switch of rack 2 is replaced", since=NOW),)
    )
    lines = drawn(status(episodes=(parked,), scanner=paused), width=width)
    for command in (resume, ack, abort, "`nodewarden unpause --of ann`"):
        assert any(command in line for line in lines), lines
    assert all(len(line) <= width for line in lines)


def test_a_command_for_which_no_line_has_room_is_broken_at_its_spaces() -> None:
    parked = episode(phase=Phase.NEEDS_HUMAN, advice="`nodewarden ack-off node-7 --who … --reason …`")
    text = " ".join(line.strip() for line in drawn(status(episodes=(parked,)), width=40))
    assert parked.advice in text


def test_what_waits_for_a_person_does_not_answer_or_does_not_fit_is_not_left_out() -> None:
    parked = episode(phase=Phase.NEEDS_HUMAN, problem="the BMC refuses our password", doing="waits")
    silent = SilentEpisode(node="node-8", workflow_id="w", problem="no answer within 10 s")
    lines = drawn(status(row("node-1"), episodes=(parked,), silent=(silent,), left_out=7))
    assert "0 of 1 permits in use, 1 episode needs a person" in lines[0]
    assert any("needs a person" in line for line in lines[1:])
    assert any("the BMC refuses our password" in line for line in lines)
    assert "first step: `nodewarden fence check --node node-7` reads its devices" in " ".join(" ".join(lines).split())
    assert any(line.startswith("node-8") and "no answer within 10 s" in line for line in lines)
    assert "… and 7 more open episodes" in lines


def test_who_could_not_be_fenced_is_named_with_the_reason() -> None:
    """Before it is needed: as the last check of all devices has found it."""
    missing = DeviceRow(node="node-2", endpoint="ipmi://10.0.0.2:623", problem="Secret nodewarden/bmc does not exist")
    text = "\n".join(drawn(status(row("node-2"), devices=(missing,))))
    assert "CAN'T BE FENCED" in text
    assert "ipmi://10.0.0.2:623: Secret nodewarden/bmc does not exist" in text
    assert "CAN'T BE FENCED" not in "\n".join(drawn(status(row("node-2"))))


def test_data_at_risk_stands_above_the_checks_with_its_countdown() -> None:
    """S36."""
    nearest = (
        NodeAtRisk(node="node-2", since=ago(700), volumes=1, due=ago(1)),
        NodeAtRisk(node="node-3", since=ago(60), volumes=3, due=NOW + timedelta(seconds=65)),
        NodeAtRisk(node="node-4", since=ago(60), volumes=2),
    )
    found = AtRisk(nodes=4, nearest=nearest, problem="LIST /volumeattachments: 403")
    lines = drawn(status(scanner=scanner(report(row("node-1"), at_risk=found))), width=140)
    assert lines[1:7] == [
        "DATA AT RISK   WHY",
        "node-2         1 volume attached, not proven off: Kubernetes detaches by force, if it has not yet",
        "node-3         3 volumes attached, not proven off: at risk of a forced detachment in 1m05s",
        "node-4         2 volumes attached, not proven off: no forced detachment is in sight",
        "not known      what is attached can't be followed: LIST /volumeattachments: 403",
        "… and 1 more nodes, no nearer than these",
    ]


def test_what_holds_all_nodes_has_a_line_each_below_the_first() -> None:
    """S44: the sentence of a mode is long, and hid what stood behind it."""
    modes = ClusterModes(setting=Mode.OBSERVE)
    lines = drawn(status(scanner=scanner(report(row("node-1")), modes=modes)), width=200)
    assert lines[:2] == [
        "nodewarden  cluster prod  1 node, view live, cluster Lease held, 0 of 1 permits in use  2026-11-21T12:00:00Z",
        modes.limited,
    ]
    pauses = (Pause(who="ada", owner="ada", reason="drill", since=NOW),)
    lines = drawn(status(scanner=scanner(report(row("node-1")), modes=modes, pauses=pauses)), width=200)
    assert lines[0] == "nodewarden  cluster prod  1 node, 0 of 1 permits in use  2026-11-21T12:00:00Z"
    assert [each.split()[0] for each in lines[1:3]] == ["paused", "programs"]


def test_the_first_line_says_that_a_breaker_is_open_and_that_data_is_at_risk() -> None:
    """S17, S36, S44: beside "view live" neither was to be seen before the tables below."""
    closed = check(allowed=False, reason=OpenReason.TOO_MANY_UNHEALTHY, message="5 of 12 healthy", unhealthy=7)
    lost = AtRisk(nodes=2, nearest=tuple(NodeAtRisk(node=f"node-{each}", since=NOW, volumes=3) for each in (5, 6)))
    seen = scanner(report(checks=(closed,), at_risk=lost))
    assert "1 circuit breaker is open, data of 2 nodes is at risk" in drawn(replace(status(), scanner=seen), width=200)[0]
    proven = (episode("node-5", off_proof=proof()), episode("node-6", off_proof=proof()))
    assert "at risk" not in drawn(replace(status(), scanner=seen, episodes=proven), width=200)[0]
