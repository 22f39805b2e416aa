"""Words for spans, moments and judgements."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

from policy.checks.verdict import Health
from policy.episode.messages import Acknowledgement, OffProof, Outcome, Phase, RestartProof
from policy.episode.node_action import AcceptedCommand, Verb, Verified
from policy.episode.permits import PermitRequest
from policy.scan.scan_report import ClusterLease, ViewState
from policy.values.times import written
from starter import wording
from starter.web.now import overview_of
from tests.starter.builders import NOW, ago, check, drawn, episode, proof, report, result, row, scanner, status


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m00s"), (3599, "59m59s"), (3600, "1h00m"), (86399, "23h59m"), (90000, "1d01h")],
)
def test_spans(seconds: float, words: str) -> None:
    assert wording.span(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize(("left", "words"), [(10, "10s"), (9.2, "10s"), (0.1, "1s"), (0, "now"), (-3, "now"), (61, "1m01s")])
def test_a_countdown_never_says_that_time_is_over_before_it_is(left: float, words: str) -> None:
    assert wording.countdown(NOW + timedelta(seconds=left), NOW) == words


def test_verdicts_say_when_and_why() -> None:
    soon = row("n", Health.SOON, due=NOW + timedelta(seconds=12), reason="ReadyUnknown")
    assert wording.verdict(soon, NOW) == "becomes unhealthy in 12s (ReadyUnknown)"
    sick = row("n", Health.UNHEALTHY, since=ago(62), reason="ReadyFalse")
    assert wording.verdict(sick, NOW) == "unhealthy, sick for 1m02s (ReadyFalse)", "since its condition changed, not its verdict"
    assert wording.verdict(row("n", Health.SKIPPED, reason="NotCovered"), NOW) == "skipped (NotCovered)"
    assert wording.verdict(row("n"), NOW) == "healthy"


def test_a_check_says_whether_it_may_act_and_why_not() -> None:
    """S17: the reason is in `status`. What keeps every check from acting stands there in a few words, and not "may act"."""
    assert wording.may_act(check()) == "may act on 4 more"
    assert wording.may_act(check(), "the cluster is paused") == "not now: the cluster is paused"
    assert wording.may_act(check(allowed=False, message="3 of 12"), "the cluster is paused") == "circuit breaker open: 3 of 12"
    assert wording.may_act(check(allowed=False, message="3 of 12 healthy")) == "circuit breaker open: 3 of 12 healthy"
    assert wording.may_act(check(allowed=False, reason="Storm")) == "circuit breaker open: Storm"
    assert wording.may_act(check(paused="maintenance")) == "paused: maintenance"
    assert wording.may_act(check(allowed=True, error="spec.minHealthy: expected")) == "not usable: spec.minHealthy: expected"
    named = check(allowed=True, error="NodeHealthCheck/workers: it names a template that is not there")
    assert wording.may_act(named) == "not usable: it names a template that is not there", "its row has its name"


def test_the_scanners_own_condition_comes_before_everything_else() -> None:
    """S18, S38: whoever looks must see that nothing is acted on."""
    said = {
        "the scanner has not seen the cluster yet": scanner(None),
        "the cluster can't be scanned": scanner(report(), problem="the cluster can't be scanned"),
        "view not live: no event for 90s": scanner(report(view=ViewState(synced=True, stale="no event for 90s"))),
        "view not live since 2026-11-21T11:56:00Z: the API server does not answer": scanner(
            report(view=ViewState(synced=True, stale="the API server does not answer"), answered_at=ago(1), seen_at=ago(240))
        ),
        "view not live: the inventory fell": scanner(
            report(view=ViewState(synced=True, stale="the inventory fell"), answered_at=ago(1), seen_at=ago(9))
        ),
        "view not live: still reading the cluster": scanner(report(view=ViewState(synced=False))),
        "the cluster Lease is not held: Lease is held by 'them'": scanner(
            report(lease=ClusterLease(held=False, holder="them", problem="Lease is held by 'them'"))
        ),
        "view live, cluster Lease not needed": scanner(report(lease=ClusterLease(held=False, needed=False))),
        "view live, cluster Lease not held yet": scanner(report(lease=ClusterLease(held=False))),
        "view not live: the last report is 4m36s old": scanner(report(answered_at=ago(276))),
        "view not live: no event for 90s; the cluster Lease is not held: Lease is held by 'them'": scanner(
            report(
                view=ViewState(synced=True, stale="no event for 90s"),
                lease=ClusterLease(held=False, holder="them", problem="Lease is held by 'them'"),
            )
        ),
        "view live, cluster Lease held": scanner(report(at=ago(276), answered_at=ago(276)), wait=timedelta(minutes=5)),
    }
    assert {words: wording.view(each, NOW) for words, each in said.items()} == {words: words for words in said}


def test_a_problem_hides_no_proof_and_a_proof_hides_no_problem() -> None:
    restarted = RestartProof(boot_id="b2", previous_boot_id="b1", seen_at=ago(5))
    assert wording.proof_or_problem(episode()) == ""
    assert wording.proof_or_problem(episode(off_proof=proof())).startswith("off proven, read ")
    assert wording.proof_or_problem(episode(off_proof=proof(), restart_proof=restarted)).startswith("restarted, new boot id")
    assert wording.proof_or_problem(episode(off_proof=proof(), problem="will not boot")) == "will not boot"


def test_a_persons_word_is_not_shown_as_a_reading() -> None:
    """S8."""
    said = OffProof(commanded_at=None, acknowledgement=Acknowledgement(who="amy", why="pulled the plug", at=ago(9)))
    assert wording.off_proof(episode(off_proof=said)) == "off acknowledged by amy (identity not verified)"
    assert said.acknowledgement is not None
    attested = replace(said.acknowledgement, verified=Verified.KUBERNETES, speaker="amy@example.com")
    known = "off acknowledged by amy@example.com, verified by Kubernetes (for amy)"
    assert wording.off_proof(episode(off_proof=replace(said, acknowledgement=attested))) == known
    assert wording.off_proof(episode(off_proof=proof(2))).startswith("off proven on 2 devices, read ")


def test_an_ending_says_when_a_machine_was_left_off() -> None:
    assert wording.ending(result()) == "recovered after 2m07s: the node is back Ready with a new boot id"
    aborted = result(outcome=Outcome.ABORTED, left_off=True, message="by amy")
    assert wording.ending(aborted) == "aborted after 2m07s, left powered off: by amy"


# How lines are broken on a narrow terminal.

PATH = "/apis/nodewarden.io/v1alpha1/namespaces/nodewarden/fencingtemplates"


def test_what_is_longer_than_a_line_is_broken_where_it_has_a_joint() -> None:
    assert drawn(Text(f"it waits: GET {PATH}: no answer in time"), width=44) == [
        "it waits: GET",
        "/apis/nodewarden.io/v1alpha1/namespaces/",
        "nodewarden/fencingtemplates: no answer in",
        "time",
    ]


def test_so_are_the_cells_of_a_table_whatever_they_are_made_of() -> None:
    table = Table.grid()
    table.add_column(overflow="fold")
    table.add_row(f"GET {PATH}")
    table.add_row(Text(f"run `nodewarden explain node-7` for {PATH}"))
    assert drawn(table, width=44) == [
        "GET /apis/nodewarden.io/v1alpha1/namespaces/",
        "nodewarden/fencingtemplates",
        "run `nodewarden explain node-7` for",
        "/apis/nodewarden.io/v1alpha1/namespaces/",
        "nodewarden/fencingtemplates",
    ]


def test_a_word_without_a_joint_is_not_lost() -> None:
    assert "".join(drawn(Text("x" * 50), width=20)) == "x" * 50


def test_what_was_given_up_is_not_shown_as_repaired() -> None:
    """The node is as sick as before: green is for what works again."""
    styles = [wording.end_style(each) for each in ("recovered", "replaced", "released", "aborted")]
    assert styles == ["green", "green", "yellow", "red"]


def test_of_a_held_episode_it_is_said_what_ends_the_hold() -> None:
    way = AcceptedCommand(verb=Verb.RESUME, command="nodewarden resume node-7 --question 1", consequence="the hold ends")
    held = episode(doing="held by ada: look", held="held by ada: look", ways=(way,))
    assert wording.doing(held, NOW) == "held by ada: look; `nodewarden resume node-7 --question 1` ends it"
    assert wording.doing(replace(held, held=""), NOW) == "held by ada: look", "it stands for something else then"


def test_what_is_waited_for_is_what_the_scanner_says_now() -> None:
    """An episode that is queued asks again after minutes, and named a pause that had ended, or no scanner where one ran."""
    told = episode("node-3", phase=Phase.QUEUED, queued="paused by amy: drill", doing="waits for a permit: paused by amy: drill")
    asks = PermitRequest(node="node-3", workflow_id="w", incident=told.incident)

    def now(why: str = "", **known: Any) -> str:
        found = wording.as_queued_now(told, scanner(report(), why_queued=(why,), **{"queue": (asks,)} | known))
        assert found.doing == f"waits for a permit: {found.queued}"
        return found.queued

    assert now("1 of 1 permits are held: node-2") == "1 of 1 permits are held: node-2"
    assert now() == "its turn has come"
    assert now(queue=()) == f"it has yet to ask the scanner, which was started at {written(ago(3600))}"
    assert wording.as_queued_now(told, None).queued == "no scanner runs"
    assert wording.as_queued_now(told, None, unanswered=True) == told, "nothing answers"
    assert wording.as_queued_now(episode(), scanner(report())) == episode(), "it has its permit"


def test_permits_are_counted_once_all_open_episodes_are_known() -> None:
    """A scanner that was just started said "0 of 1 permits in use", while an episode held one."""
    assert wording.permits_in_use(scanner(report())) == "0 of 1 permits in use"
    assert wording.permits_in_use(scanner(report(), known=False)) == "how many permits are in use is not known yet"
    page = overview_of(status(scanner=scanner(report(), known=False)))
    assert not page.permits_of, "which the page shows as not known"
