"""One line for each change, none for the passing of time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from policy.checks.verdict import Health
from policy.episode.messages import Kind, Outcome, Phase, RestartProof
from policy.scan.report_builder import NOT_COVERED
from starter.handles.episodes import SilentEpisode
from starter.handles.status import ClusterStatus
from starter.output.display import changes, episode_changes
from tests.starter.builders import NOW, ago, check, episode, proof, report, result, row, scanner, status


def sick(**changed: object) -> ClusterStatus:
    return status(row("node-3", Health.SOON, due=NOW + timedelta(seconds=9), reason="ReadyFalse", **changed), row("node-4"))


def test_the_first_look_says_how_things_stand_but_not_who_is_well() -> None:
    assert changes(None, sick()) == [
        "cluster prod: 2 nodes, view live, cluster Lease held",
        "node node-3: becomes unhealthy in 9s (ReadyFalse)",
        "check NodeHealthCheck/workers: 11/12 healthy, may act on 4 more",
    ]


def test_time_that_passes_is_no_change() -> None:
    later = replace(sick(), at=NOW + timedelta(seconds=5))
    assert changes(sick(), later) == []


def test_a_node_that_falls_ill_is_cordoned_and_gets_well_again() -> None:
    unhealthy = status(row("node-3", Health.UNHEALTHY, since=ago(4), ready="Unknown", schedulable=False), row("node-4"))
    well = status(row("node-3"), row("node-4"))
    assert changes(sick(), unhealthy) == [
        "node node-3: Ready is Unknown",
        "node node-3: unhealthy, sick for 4s",
        "node node-3: cordoned",
    ]
    assert changes(unhealthy, well) == ["node node-3: Ready is True", "node node-3: healthy", "node node-3: schedulable again"]


def test_nodes_that_no_check_covers_are_one_line_however_many_they_are() -> None:
    names = [f"node-{number}" for number in range(500)]
    bare = status(*(row(name, Health.SKIPPED, reason=NOT_COVERED) for name in names))
    judged = status(*(row(name) for name in names[1:]), row(names[0], Health.UNHEALTHY, since=ago(4)))
    assert [line for line in changes(None, bare) if "node" in line][1:] == ["500 nodes are covered by no check"]
    assert changes(bare, bare) == []
    assert changes(status(row("a")), status(row("a", Health.SKIPPED, reason=NOT_COVERED))) == ["node a: covered by no check"]
    assert changes(bare, judged) == ["node node-0: unhealthy, sick for 4s", "499 nodes are covered by a check now, and healthy"]


def test_a_sick_node_that_vanishes_from_the_list_is_not_passed_over() -> None:
    assert changes(sick(), status(row("node-4"))) == [
        "cluster prod: 1 node, view live, cluster Lease held",
        "node node-3: no longer soon, or gone",
    ]


def test_a_circuit_breaker_that_opens_is_one_line_and_mere_counts_are_none() -> None:
    closed = status(scanner=scanner(report(row("n"), checks=(check(allowed=False, message="only 3 healthy", reason="TooMany"),))))
    counted = status(scanner=scanner(report(row("n"), checks=(check(healthy=10),))))
    open_ = status(scanner=scanner(report(row("n"))))
    assert changes(open_, counted) == []
    assert changes(open_, closed) == ["check NodeHealthCheck/workers: 11/12 healthy, circuit breaker open: only 3 healthy"]
    gone = status(scanner=scanner(report(row("n"), checks=())))
    assert changes(open_, gone) == ["check NodeHealthCheck/workers: gone"]


def test_the_story_of_an_episode() -> None:
    base = status(row("n"))
    begun = replace(base, episodes=(episode(),))
    off = replace(base, episodes=(episode(off_proof=proof(), doing="frees its pods"),))
    restarted = RestartProof(boot_id="b2", previous_boot_id="b1", seen_at=NOW)
    back = replace(base, episodes=(episode(off_proof=proof(), restart_proof=restarted, doing="frees its pods"),))
    done = replace(base, ended=(result(),))
    assert changes(base, begun) == [
        "episode node-7: Fencing incident-node-7 open: NodeHealthCheck/workers: Ready is Unknown",
        "episode node-7: in progress, power-management: waits before power is touched",
    ]
    assert changes(begun, begun) == []
    assert [line.split(" read ")[0] for line in changes(begun, off)] == [
        "episode node-7: off proven,",
        "episode node-7: in progress, power-management: frees its pods",
    ]
    assert changes(off, back) == ["episode node-7: restart proven, boot id b2"]
    (end,) = changes(back, done)
    assert end.startswith("episode node-7: recovered after 2m07s: the node is back Ready with a new boot id (off proven, read ")


def test_an_episode_that_goes_on_is_not_called_done() -> None:
    """What the node-fencing proposal calls done is a machine that is on its way back."""
    returning = replace(status(row("n")), episodes=(episode(phase=Phase.DONE, doing="waits for the node to come back Ready"),))
    assert "episode node-7: returning, power-management: waits for the node to come back Ready" in changes(None, returning)


def test_a_further_try_is_told_with_what_it_does() -> None:
    begun = replace(status(row("n")), episodes=(episode(tries=3, doing="commands power off"),))
    fails = replace(begun, episodes=(replace(begun.episodes[0], doing="will try again: it says on", problem="it says on"),))
    again = replace(begun, episodes=(replace(fails.episodes[0], doing="commands power off", try_number=2),))
    assert changes(begun, fails)[0] == "episode node-7: in progress, power-management, try 1 of 3: will try again: it says on"
    assert changes(fails, again) == ["episode node-7: in progress, power-management, try 2 of 3: commands power off"]


def test_a_problem_is_said_once() -> None:
    parked = replace(status(row("n")), episodes=(episode(phase=Phase.NEEDS_HUMAN, doing="waits", problem="wrong password"),))
    assert "episode node-7: problem: wrong password" in changes(None, parked)
    assert changes(parked, parked) == []
    held = replace(parked, episodes=(replace(parked.episodes[0], held="held by ada: drill"),))
    assert changes(parked, held) == ["episode node-7: held by ada: drill"]
    assert changes(held, parked) == ["episode node-7: held no more"]


def test_two_incidents_of_one_node_are_two_stories() -> None:
    first = replace(status(row("n")), ended=(result(incident="a"),))
    second = replace(first, ended=(result(incident="b", outcome=Outcome.ABORTED, off_proof=None), result(incident="a")))
    assert len(changes(first, second)) == 1


def test_silence_is_said_once() -> None:
    silent = replace(status(row("n")), silent=(SilentEpisode(node="node-8", workflow_id="w", problem="no answer"),))
    assert changes(status(row("n")), silent) == ["episode node-8: no answer"]
    assert changes(silent, silent) == []


def test_a_scanner_that_goes_away_is_said() -> None:
    away = ClusterStatus(cluster="prod", at=NOW, problem="no open scanner of prod")
    assert "cluster prod: no open scanner of prod" in changes(status(row("n")), away)


def test_each_step_of_a_ladder_is_news_and_its_countdown_is_not() -> None:
    first = episode(kind=Kind.REMEDIATION, rung="1 of 2: reboot", rung_until=NOW, machine="default/w-1")
    assert "episode node-7: step 1 of 2: reboot, machine default/w-1" in list(episode_changes(None, first))
    assert list(episode_changes(first, replace(first, rung_until=NOW + timedelta(seconds=1)))) == []
    assert list(episode_changes(first, replace(first, rung="2 of 2: delete-machine"))) == [
        "episode node-7: step 2 of 2: delete-machine, machine default/w-1"
    ]
