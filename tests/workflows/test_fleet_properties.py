"""Whatever happens to a cluster, its people, its servers and the scanner's own workflow: the scanner keeps the rules, and what it
says is so.

The moves are those of docs/adversary.md. `NODEWARDEN_TEST_FLEET_PLAYS` sets how many plays, `NODEWARDEN_TEST_SEED` from which
number on; a play that fails prints the fewest moves that it takes.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from activities.contracts.episodes import STOPPED_MEMO
from policy.checks.fence_policies import FencePolicies, ScopeCap
from policy.episode.messages import episode_id
from policy.episode.modes import MODES_MEMO, mode_of
from policy.episode.permits import PermitDecision, PermitRequest, PermitState, Release, ScannerQuestion
from policy.scan import report_builder
from policy.scan.pauses import PAUSES_MEMO
from policy.scan.scan_report import ClusterLease
from policy.values.mode import Mode
from tests.docs.reading import pages
from tests.workflows.clockwork import Perils
from tests.workflows.executions import Word
from tests.workflows.faults import Fault
from tests.workflows.fleet import SCANNER, Episode, Fleet
from tests.workflows.fleet_moves import MOVES, FleetPlay, least, story
from tests.workflows.guards import with_moves
from tests.workflows.pair import KINDS as PAIR
from tests.workflows.plays import read
from tests.workflows.preservation_moves import LATER as KEPT_LATER
from tests.workflows.preservation_moves import LATEST as KEPT_LATEST
from tests.workflows.preservation_moves import NODES as KEPT_NODES
from workflows.kit.messages import ModeRequest, PauseRequest, StopRequest, UnpauseRequest
from workflows.scanner import story as story_of_scanner

PLAYS = int(os.environ.get("NODEWARDEN_TEST_FLEET_PLAYS", "12"))
FIRST_SEED = int(os.environ.get("NODEWARDEN_TEST_SEED", "1"))


@pytest.fixture(autouse=True)
def _in_silence() -> Iterator[None]:
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    yield
    logging.getLogger("temporalio").setLevel(logging.NOTSET)


@pytest.mark.timeout(7200)
def test_whatever_happens_a_scanner_keeps_the_rules_and_says_what_is_so() -> None:
    """S6, S9, S13, S14, S17, S18, S19, S20, S35, S38, S44, S52."""
    acts = 0
    for seed in range(FIRST_SEED, FIRST_SEED + PLAYS):
        play = FleetPlay(seed)
        if play.run():
            pytest.fail(story(seed))
        acts += play.referee.acts
    assert acts > PLAYS / 2, "the plays are about nothing"


def _pass(fleet: Fleet, seconds: float) -> None:
    until = fleet.now + timedelta(seconds=seconds)
    while (due := fleet.clockwork.due()) is not None and due <= until:
        fleet.clockwork.turn()
    fleet.clockwork.now = until


def test_a_scanner_that_is_cancelled_in_the_very_task_that_answers_its_scan_ends_as_one_that_is_stopped() -> None:
    """S35: else it records nothing and gives no Lease back. Of seed 1102."""
    fleet = Fleet(1, nodes=4, cap=1, setting=Mode.REPAIR, perils=Perils())
    with fleet.clockwork as clockwork:
        fleet.start()
        _pass(fleet, 20)
        scanner, body = fleet.scanner, fleet.nodes["n1"]
        assert scanner is not None
        scanner.deaf_until = fleet.now + timedelta(seconds=5)
        scanner.cancel("drawn")
        body.ready, body.since = "Unknown", fleet.now
        fleet.put(body)
        _pass(fleet, 30)
        assert scanner.failure == ""
        assert scanner.result.stopped_by.startswith("Temporal")
        scanner.forget()
        scanner.query("status")
        assert clockwork.problems == [], "its replay goes the same way"


@pytest.mark.parametrize("kept", [0, -2])
def test_s44_a_command_in_the_very_task_of_a_reset_is_told_that_acts_may_be_under_way(kept: int) -> None:
    """An update is handled before what comes with it in one task: here the seed of the new run, or the first task itself. n2 has
    got its permit in what the reset took back; a history that has rolled knows the table from the one before."""
    fleet = Fleet(1, nodes=4, cap=2, setting=Mode.REPAIR, perils=Perils())
    with fleet.clockwork as clockwork:
        fleet.start()
        _pass(fleet, 20)
        assert fleet.scanner is not None
        fleet.scanner.suggests_rolling = True
        _pass(fleet, 120)
        former, body = fleet.scanner, fleet.nodes["n1"]
        body.ready, body.since = "Unknown", fleet.now
        fleet.put(body)
        while not fleet.open:
            clockwork.turn()
        anew = clockwork.reset(former, former.tasks + kept if kept else 0, reapplies=False)
        said = anew.update(*SAID["pause"])
        while said.answer is None:
            clockwork.turn()
        assert "of which nodes is not known yet" in said.answer


def test_what_a_reset_has_scheduled_anew_is_not_opened_long_after_it_was_decided() -> None:
    """S18: n7 had been well for a minute."""
    assert FleetPlay(1102).run() == []


FOUND = {
    "a queue that is full for ten seconds loses no spell of the last scanner": (93, """
        sickens(627897320), then 12 s  sickens_some(844926783), then 12 s  pauses(289979139), then 2 s
        rolls(750287167), then 31 s  sickens_some(607769176), then 2 s  is_terminated(1013719531), then 0 s
        sickens(187169745), then 31 s"""),
    "S44: a pause after a reset of a history that is seconds old outlives the next reset": (36, """
        sets_mode(939595635), then 0 s  rolls(84390064), then 0 s  sickens_some(432473), then 9.9 s
        is_reset(539575158), then 12 s  pauses(673224370), then 12 s  is_reset(189467686), then 31 s"""),
    "S44: a pause in the first seconds of a scanner that replaces one that failed is not undone": (7, """
        sickens(881836553), then 12 s  sets_mode(575398922), then 0 s  is_unreadable(101071364), then 2 s
        pauses(392655486), then 0 s  sickens(625763863), then 31 s"""),
    "S44: it is not either where that one fails as soon": (1, """
        sickens(531969374), then 12 s  is_unreadable(817077201), then 0 s  pauses(482637352), then 2 s
        is_unreadable(507069464), then 0 s  sickens(699642630), then 31 s"""),
    "S52: nor is a mode": (5, """
        sickens(853832589), then 12 s  is_unreadable(741361655), then 5 s  sets_mode(1011948282), then 5 s
        is_unreadable(903565516), then 2 s  sickens(794460042), then 31 s"""),
    "S44: what is not known yet is not taken back": (1, """
        sickens(531969374), then 12 s  pauses(817077201), then 5 s  is_unreadable(482637352), then 0 s
        unpauses(507069464), then 0 s  sickens(699642630), then 31 s"""),
    "S44: a pause between two resets outlives both": (3, """
        sickens(509011111), then 12 s  is_reset(671862057), then 0 s  pauses(623685183), then 2 s
        is_reset(70361078), then 31 s  sickens(650257551), then 31 s"""),
    "S52: a new history of a scanner that had not taken over what was set is not believed to know it": (34, """
        sickens(445520547), then 5 s  is_reset(125659647), then 0 s  rolls(212376268), then 5 s
        is_unreadable(1025951777), then 12 s"""),
    "S44: what people set after a reset is not undone by what was set before": (26, """
        sets_mode(461302751), then 0 s  sickens(313749391), then 31 s
        is_reset(1044232488), then 2 s  sets_mode(68731895), then 0 s"""),
    "S44: a scanner that does not know yet which acts are licensed says so": (75, """
        sickens(782541436), then 12 s  sets_mode(824233494), then 5 s  is_terminated(551962667), then 2 s
        unsets_mode(723117182), then 0 s  sickens(914746551), then 31 s"""),
    "S20: a played episode acts no more for a check that was deleted, as no last look lets a real one": (600, """
        sickens(916325799), then 0 s  aborts(162252706), then 12 s  replaces_check(106171502), then 0.3 s
        annotates_check(634067097), then 31 s"""),
}  # fmt: skip


@pytest.mark.parametrize("what", FOUND)
def test_what_a_play_has_found_is_mended(what: str) -> None:
    seed, printed = FOUND[what]
    assert FleetPlay(seed, read(printed)).run() == []


ADDED = {
    "is_unreadable": 3,
    "is_unreadable sets_mode is_unreadable pauses": 2,
    "sickens_some forges_release": 6,
    "sickens_some follows_policies": 4,
    "pool_rolls": 4,
    "clock_jumps": 3,
    "sickens_some limits_check": 4,
    "sickens_some is_renamed": 4,
}


@pytest.mark.parametrize(("added", "most"), ADDED.items())
def test_what_comes_at_any_moment_of_a_play_breaks_no_rule(added: str, most: int) -> None:
    """S13, S14, S17, S44, S52: a scanner that no code replays is replaced and forgets no rule; one that a stranger tells of a
    permit that was given back asks the episode; caps of fence policies hold, of all and of each rack, and those of a check; a
    machine under another name is the same one."""
    for seed in range(FIRST_SEED, FIRST_SEED + max(PLAYS // 3, 1)):
        moves = with_moves(seed, added, most=most)
        found = FleetPlay(seed, moves).run()
        assert not found, "\n".join(map(str, (seed, *least(moves, lambda few, seed=seed: FleetPlay(seed, few).run()), *found)))


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize("command", ["pause", "set_mode", "stop"])
def test_what_people_have_said_outlives_a_history_that_no_code_replays(command: str, *, rolls: bool) -> None:
    """S44, S52: whether or not that history had begun with what the one before it knew."""
    fleet = Fleet(1, nodes=4, cap=1, setting=Mode.REPAIR, perils=Perils())
    with fleet.clockwork as clockwork:
        fleet.start()
        _pass(fleet, 20)
        assert fleet.scanner is not None
        if rolls:
            fleet.scanner.suggests_rolling = True
            _pass(fleet, 120)
        fleet.scanner.update(*SAID[command])
        name = MEMOS[command]
        while fleet.scanner.memo.get(name) == fleet.scanner.first_memo.get(name):
            clockwork.turn()
        clockwork.retry(fleet.scanner)
        _pass(fleet, 60)
        if command == "stop":
            assert fleet.scanner is None, "a scanner that a person has stopped does not scan again"
            return
        body = fleet.nodes["n1"]
        body.ready, body.since = "Unknown", fleet.now
        fleet.put(body)
        _pass(fleet, 900)
        assert not fleet.open
        assert fleet.scanner is not None


@pytest.mark.parametrize(("done", "resets"), [(False, 1), (False, 2), (True, 1)])
def test_s44_a_stop_that_a_reset_takes_back_before_it_was_done_is_obeyed(*, done: bool, resets: int) -> None:
    """As where a worker resets a scanner of which Temporal refuses what it answers, perhaps twice within seconds: it went on, and
    its person had been told that it stops. Who resets one that has stopped, without what was said to it, has it scan again."""
    fleet = Fleet(1, nodes=4, cap=1, setting=Mode.REPAIR, perils=Perils())
    with fleet.clockwork as clockwork:
        fleet.start()
        _pass(fleet, 20)
        scanner = fleet.scanner
        assert scanner is not None
        tasks, said = scanner.tasks, scanner.update(*SAID["stop"])
        while said.answer is None or (done and not scanner.closed):
            clockwork.turn()
        assert scanner.closed is done
        for _ in range(resets):
            clockwork.reset(scanner, tasks, reapplies=False)
            _pass(fleet, 1)
            scanner = clockwork.executions[SCANNER]
        _pass(fleet, 60)
        assert (fleet.scanner is not None) is done


def test_a_scanner_that_replaces_one_that_failed_believes_no_state_that_it_is_given() -> None:
    """S42, S44: who wrote it is no more to be seen; it finds the open episodes anew, as one that replaces a terminated one."""
    fleet = Fleet(1, nodes=4, cap=1, setting=Mode.REPAIR, perils=Perils())
    with fleet.clockwork as clockwork:
        fleet.start()
        _pass(fleet, 20)
        assert fleet.scanner is not None
        fleet.scanner.suggests_rolling = True
        _pass(fleet, 120)
        assert clockwork.runs[0].next_is_replaced, "also where Temporal's own command has started it, without a retry policy"
        before = fleet.scanner.query("status").scans
        anew = clockwork.retry(fleet.scanner)
        _pass(fleet, 0.2)
        assert before > 2 > anew.query("status").scans
        assert anew.query("status").started > fleet.begun + timedelta(seconds=100)


def test_a_scanner_goes_on_in_a_new_history_while_episodes_go_on_asking_it() -> None:
    """S38: none of their questions can be answered without the cluster Lease, and one of them was always waited for. Nothing was
    scanned for as long as episodes asked."""
    fleet = Fleet(1, nodes=40, cap=2, setting=Mode.REPAIR, perils=Perils())

    def ask(number: int, times: int = 0) -> None:
        """An episode asks anew a minute after it had no answer."""
        assert fleet.scanner is not None
        node = f"n{number}"
        wanted = PermitRequest(node=node, workflow_id=episode_id("fleet", node), incident=f"i-{node}")
        fleet.scanner.signal("ask", ScannerQuestion(id=f"{node}-{times}", permit=wanted))
        clockwork.after(timedelta(seconds=75), lambda: ask(number, times + 1))

    with fleet.clockwork as clockwork:
        fleet.start()
        _pass(fleet, 60)
        assert fleet.scanner is not None
        first = fleet.scanner.run_id
        fleet.lease = ClusterLease(held=False, holder="others", problem="held by others")
        fleet.look()
        for number in range(10):
            clockwork.after(timedelta(seconds=7.5 * number), lambda number=number: ask(number))
        _pass(fleet, 120)
        fleet.scanner.suggests_rolling = True
        _pass(fleet, 20)
        assert fleet.scanner.run_id != first


def _told(fleet: Fleet, name: str, request: Any) -> Word:
    assert fleet.scanner is not None
    word = fleet.scanner.update(name, request)
    while word.answer is None and not word.refused:
        fleet.clockwork.turn()
    return word


def _reset_after_a_pause(fleet: Fleet, *, rests: float, reapplies: bool) -> None:
    """To the task before the one in which ada's pause came, that many seconds ago."""
    fleet.start()
    _pass(fleet, 60)
    assert fleet.scanner is not None
    before = fleet.scanner.tasks
    _told(fleet, "pause", PauseRequest(who="ada", reason="works on a rack"))
    _pass(fleet, rests)
    fleet.clockwork.reset(fleet.scanner, before, reapplies=reapplies)
    fleet.begun = fleet.now


def test_s44_a_scanner_at_rest_knows_moments_after_a_reset_what_people_had_set() -> None:
    """It went on waiting for a change of the cluster, for minutes in which nothing was begun and no pause was shown, and said
    that no worker answers its scans (S14)."""
    fleet = Fleet(1, nodes=4, cap=2, setting=Mode.REPAIR, perils=Perils())
    with fleet.clockwork:
        _reset_after_a_pause(fleet, rests=600, reapplies=False)
        assert fleet.scanner is not None
        _pass(fleet, 20)
        assert [each.reason for each in fleet.scanner.query("status").pauses] == ["works on a rack"]


@pytest.mark.parametrize("reapplies", [False, True], ids=["lost", "set again by Temporal"])
@pytest.mark.parametrize("word", ["unpause", "pause"])
def test_s44_what_people_say_of_their_own_pause_after_a_reset_counts_more_than_the_pause(word: str, *, reapplies: bool) -> None:
    """They were told that there was none, or that theirs had ended, or when it would, and the former one went on for ever."""
    fleet = Fleet(1, nodes=4, cap=2, setting=Mode.REPAIR, perils=Perils())
    with fleet.clockwork:
        _reset_after_a_pause(fleet, rests=60, reapplies=reapplies)
        assert fleet.scanner is not None
        _pass(fleet, 5)
        until = fleet.now + timedelta(minutes=15)
        said = {
            "unpause": UnpauseRequest(who="ada", reason="done"),
            "pause": PauseRequest(who="ada", reason="a bit more", until=until),
        }
        answer = _told(fleet, word, said[word])
        assert bool(answer.refused) is (word == "unpause" and not reapplies)
        _pass(fleet, 60)
        if answer.refused:
            assert "does not know yet which pauses were set before" in answer.refused
            assert "you have ended: paused by ada" in (_told(fleet, word, said[word]).answer or "")
        assert [each.until for each in fleet.scanner.query("status").pauses] == ([until] if word == "pause" else [])


@pytest.mark.parametrize("word", ["unpause", "set_mode"])
def test_s44_a_scanner_that_replaces_a_failed_one_takes_nothing_back_that_it_does_not_know_also_after_a_roll(word: str) -> None:
    """S52: it took the state of the failed run, which it does not believe, for what it knows."""
    fleet = Fleet(1, nodes=4, cap=1, setting=Mode.REPAIR, perils=Perils())
    with fleet.clockwork as clockwork:
        fleet.start()
        _pass(fleet, 20)
        assert fleet.scanner is not None
        _told(fleet, "pause", PauseRequest(who="ada", reason="drawn"))
        fleet.scanner.suggests_rolling = True
        _pass(fleet, 400)
        clockwork.retry(fleet.scanner)
        _pass(fleet, 2)
        said = {
            "unpause": UnpauseRequest(who="ada", reason="done"),
            "set_mode": ModeRequest(who="ada", reason="done", mode="repair", nodes=("n1",)),
        }
        assert "repeat the command in a few seconds" in _told(fleet, word, said[word]).refused


def test_s52_who_takes_one_rule_back_after_a_reset_takes_no_other_one_back() -> None:
    """Two rules by name of six nodes each that share the first five are the same in words."""
    fleet = Fleet(1, nodes=12, cap=1, setting=Mode.REPAIR, perils=Perils())
    first, second = ("n1", "n2", "n3", "n4", "n5", "n6"), ("n1", "n2", "n3", "n4", "n5", "n7")
    with fleet.clockwork as clockwork:
        fleet.start()
        _pass(fleet, 20)
        assert fleet.scanner is not None
        _told(fleet, "set_mode", ModeRequest(who="ada", reason="drawn", mode="drain", nodes=first))
        _pass(fleet, 20)
        before = fleet.scanner.tasks
        _told(fleet, "set_mode", ModeRequest(who="bob", reason="its disk is looked at", mode="observe", nodes=second))
        _pass(fleet, 20)
        clockwork.reset(fleet.scanner, before, reapplies=False)
        fleet.begun = fleet.now
        _pass(fleet, 5)
        assert not _told(fleet, "set_mode", ModeRequest(who="ada", reason="done", mode="unset", nodes=first)).refused
        _pass(fleet, 60)
        assert mode_of(fleet.scanner.query("status").modes, "n7", {}).mode is Mode.OBSERVE


FEW = 5
"""Nodes that a report shows at most, where there are no hundreds of them."""


def _shows_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_builder, "MAXIMUM_SEEN", FEW)
    monkeypatch.setattr(story_of_scanner, "MAXIMUM_SEEN", FEW)


def _sicken(fleet: Fleet, *names: str) -> None:
    for name in names:
        _becomes(fleet, name, "Unknown")


def _becomes(fleet: Fleet, name: str, ready: str) -> None:
    fleet.nodes[name].ready, fleet.nodes[name].since = ready, fleet.now
    fleet.put(fleet.nodes[name])
    _pass(fleet, 0.1)


def test_s44_an_episode_that_asks_is_answered_however_many_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a report shows, and a cap of a scope, for which the node has to be seen: a person who resumed one was never
    obeyed."""
    _shows_few(monkeypatch)
    fleet = Fleet(1, nodes=30, cap=20, setting=Mode.REPAIR, perils=Perils())
    with fleet.clockwork:
        fleet.follow(FencePolicies(caps=(ScopeCap(scope="rack", cap=20),)))
        fleet.start()
        _pass(fleet, 20)
        _sicken(fleet, *sorted(fleet.nodes)[: FEW + 3])
        _pass(fleet, 300)
        assert fleet.scanner is not None
        assert len(fleet.open) == FEW + 3
        held = fleet.open[max(fleet.open)]
        held.permit = False
        fleet.release(Release(node=held.node, incident=held.incident, held=True))
        _pass(fleet, 60)
        wanted = PermitRequest(
            node=held.node, workflow_id=episode_id("fleet", held.node), incident=held.incident, node_uid=held.uid, ready=False
        )
        question = ScannerQuestion(id="i", permit=replace(wanted, control_plane=False))
        fleet.scanner.signal("ask", question)
        _pass(fleet, 30)
        answer = fleet.scanner.query("answer", question).permit
        assert answer is not None
        assert answer.decision is PermitDecision.GRANTED, answer.reason


def test_s44_a_node_that_was_well_is_left_alone_no_longer_however_many_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """S19: their episodes were aborted, and one of them was well for a quarter of an hour. As the last of more than a report
    shows it was never looked at, and left alone for good."""
    _shows_few(monkeypatch)
    fleet = Fleet(1, nodes=30, cap=20, setting=Mode.REPAIR, perils=Perils())
    with fleet.clockwork:
        fleet.start()
        _pass(fleet, 20)
        names = sorted(fleet.nodes)[: FEW + 3]
        _sicken(fleet, *names)
        _pass(fleet, 300)
        for each in list(fleet.open.values()):
            fleet.ends(each, "aborted", "aborted by ada")
        _pass(fleet, 120)
        assert fleet.scanner is not None
        assert len(fleet.scanner.query("status").held_off) == len(names)
        _becomes(fleet, names[-1], "True")
        _pass(fleet, 900)
        _sicken(fleet, names[-1])
        _pass(fleet, 300)
        assert list(fleet.open) == [names[-1]]


def test_s14_an_episode_that_parks_waits_for_no_permit_any_more() -> None:
    """It was queued, and asks a person meanwhile: granted, it would keep every other node from repair until one comes (S44)."""
    fleet = Fleet(1, nodes=12, cap=1, setting=Mode.REPAIR, perils=Perils())
    with fleet.clockwork as clockwork:
        fleet.start()
        _pass(fleet, 20)
        assert fleet.scanner is not None
        _sicken(fleet, "n1")
        while "n1" not in fleet.open:
            clockwork.turn()
        _pass(fleet, 5)
        _sicken(fleet, "n2")
        body = fleet.nodes["n2"]
        queued = Episode("n2", "i-2", body.uid, body.view().provider_id, fleet.now, None, rack=body.rack)
        fleet.open["n2"] = queued
        wanted = PermitRequest(
            node="n2", workflow_id=episode_id("fleet", "n2"), incident="i-2", node_uid=body.uid, control_plane=False, ready=False
        )
        question = ScannerQuestion(id="i-2", permit=wanted)
        fleet.scanner.signal("ask", question)
        _pass(fleet, 5)
        answer = fleet.scanner.query("answer", question).permit
        assert answer is not None
        assert answer.decision is PermitDecision.QUEUED
        queued.parked = True
        fleet.release(Release(node="n2", incident="i-2", parked=True, problem="every step has failed"))
        _pass(fleet, 20)
        status = fleet.scanner.query("status")
        assert not status.queue
        assert [each.node for each in status.permits if each.state is not PermitState.PARKED] == ["n1"]


SAID: dict[str, tuple[str, Any]] = {
    "pause": ("pause", PauseRequest(who="ada", reason="drawn")),
    "set_mode": ("set_mode", ModeRequest(who="ada", reason="drawn", mode="observe")),
    "stop": ("stop", StopRequest(who="ada", reason="drawn")),
}
MEMOS = {"pause": PAUSES_MEMO, "set_mode": MODES_MEMO, "stop": STOPPED_MEMO}


def test_the_page_of_moves_names_each_move_and_no_other() -> None:
    page = pages()["docs/adversary.md"]
    named = {word for line in page.splitlines() if line.startswith("| ") for word in re.findall(r"`([A-Za-z_]+)`", line)}
    moves, faults = (
        {move for kind in (*MOVES, *KEPT_LATER.moves, *KEPT_LATEST.moves, *KEPT_NODES.moves, *PAIR) for move in kind},
        {each.name for each in Fault} - {"NOTHING"},
    )
    assert moves | faults <= named, "each is a row"
    assert {word for word in named if word.isupper()} <= faults
    beside = {"is_made_anew", "forges_ask"} | {move for each in ADDED for move in each.split()}
    assert {word for word in named if word.islower() and "_" in word and word.isidentifier()} <= moves | beside
