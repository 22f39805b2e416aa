"""Words, failures and mistakes at the worst moment for a preservation: what a decision made before them may not undo."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from policy.objects.machines import MachineView
from policy.objects.nodes import PRESERVE_ANNOTATION, READY, Condition, NodeView
from policy.preservation.keep_or_release import Automatic, PreservationAction, decide, effects
from policy.preservation.machine_snapshot import ENDED_ANNOTATION, Held, MachinePhase
from policy.preservation.pool_cap import DeploymentPool, choose, survey
from policy.preservation.preservation_index import PreservationIndex
from policy.preservation.requests import ISOLATE_ANNOTATION, PRESERVE_FOR_ANNOTATION, read_policy
from policy.values.machine_apis import MCM
from policy.values.object_refs import ObjectRef
from tests.policy.builders import carried_out
from tests.policy.preservation.test_preservation_index import LATER, NOW, Fleet

HOURS = timedelta(hours=72)
PRESERVATION_POLICY = {
    "apiVersion": "nodewarden.io/v1alpha1",
    "kind": "PreservationPolicy",
    "metadata": {"name": "all"},
    "spec": {"selector": {}, "autoPreserveFailedMax": 5},
}


def held(ready: str = "Unknown", failed: bool = True, **annotations: str) -> Held:
    node = NodeView(name="n", uid="u", conditions=(Condition(type=READY, status=ready),))
    base = Held(key="s/w", machine="w", namespace="s", node_name="n", node=node, annotations=annotations)
    return replace(base, phase=MachinePhase.FAILED, failed="its phase is Failed") if failed else base


def test_s26_false_beats_a_selection_that_was_made_before_it() -> None:
    machine = held(**{PRESERVE_ANNOTATION: "false"})
    decision = decide(machine, now=NOW, timeout=HOURS, automatic=Automatic.SELECTED)
    after = carried_out(machine, effects(decision))
    assert (decision.preserved, after.annotations.get(PRESERVE_ANNOTATION)) == (False, "false")


@pytest.mark.parametrize("automatic", [Automatic.NOTHING, Automatic.SELECTED])
def test_s25_what_has_ended_is_not_preserved_by_the_word_of_an_old_selection(automatic: Automatic) -> None:
    """It stands on the object since then: a crash came between the two writes of the end."""
    machine = held(**{ENDED_ANNOTATION: "2026-11-21T11:00:00Z", PRESERVE_ANNOTATION: "auto-preserved"})
    assert not decide(machine, now=NOW, timeout=HOURS, automatic=automatic).preserved


ENDS = {
    "its time is over": {"now": NOW},
    "a person releases it": {"now": NOW - HOURS, "released": "released by ada: seen enough"},
    "the pool keeps fewer": {"now": NOW - HOURS, "automatic": Automatic.RELEASED},
}


@pytest.mark.parametrize("failed", [True, False])
@pytest.mark.parametrize("until", [NOW + HOURS, NOW - timedelta(minutes=1)], ids=["later", "over by now, too"])
def test_s22_an_end_that_was_moved_in_time_counts_though_the_old_one_is_over_when_it_is_written(
    failed: bool, until: datetime
) -> None:
    """The API was away in between: whoever moved it was told until when the machine is kept."""
    machine = replace(held(failed=failed, **{PRESERVE_ANNOTATION: "now"}), expiry=NOW - timedelta(minutes=5))
    decision = decide(machine, now=NOW, timeout=HOURS, until=until)
    assert (decision.preserved, decision.expiry) == ((True, until) if until > NOW else (False, None))
    assert carried_out(machine, effects(decision)).expiry == decision.expiry
    assert not decide(machine, now=NOW, timeout=HOURS, until=until, released="released by ada: seen enough").preserved


WORDS = ("now", "when-failed", "auto-preserved")


@pytest.mark.parametrize("ready", ["True", "Unknown"])
@pytest.mark.parametrize(
    ("end", "word"),
    [
        *(("its time is over", word) for word in WORDS),
        *(("a person releases it", word) for word in WORDS),
        ("the pool keeps fewer", "auto-preserved"),
    ],
)
def test_s25_a_preservation_that_has_ended_takes_the_word_along_that_began_it(end: str, word: str, ready: str) -> None:
    """S28: whoever looks next, and the machine is as sick as before, does not find itself asked to keep it once more."""
    machine = replace(held(ready, **{PRESERVE_ANNOTATION: word}), expiry=NOW)
    ended = carried_out(machine, effects(decide(machine, timeout=HOURS, **ENDS[end])))  # type: ignore[arg-type]
    assert (ended.expiry, ended.annotations.get(PRESERVE_ANNOTATION)) == (None, None)
    assert not decide(ended, now=NOW, timeout=HOURS).preserved


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("failed", [True, False])
def test_s26_a_release_that_comes_before_the_preservation_has_begun_takes_the_word_along(word: str, failed: bool) -> None:
    """Else the next look would begin what a person has just ended."""
    machine = held(failed=failed, **{PRESERVE_ANNOTATION: word})
    after = carried_out(machine, effects(decide(machine, now=NOW, timeout=HOURS, released="released by ada: seen enough")))
    assert PRESERVE_ANNOTATION not in after.annotations
    assert not decide(after, now=NOW, timeout=HOURS).preserved


def test_a_machine_found_healthy_at_its_expiry_runs_on_after_every_look() -> None:
    """The activity is repeated where its answer was lost (S33)."""
    machine = replace(held("True", **{PRESERVE_ANNOTATION: "auto-preserved"}), expiry=NOW)
    first = decide(machine, now=NOW, timeout=HOURS)
    assert first.action is PreservationAction.STOP
    after = carried_out(machine, effects(first))
    assert decide(after, now=NOW, timeout=HOURS).action is not PreservationAction.TERMINATE


def test_s25_a_machine_found_healthy_at_its_expiry_is_no_candidate_again() -> None:
    machine = replace(held("True", **{PRESERVE_ANNOTATION: "auto-preserved"}), expiry=NOW)
    after = carried_out(machine, effects(decide(machine, now=NOW, timeout=HOURS)))
    assert choose({"": [after]}, 1, now=NOW).selected == ()


def test_s25_a_check_that_is_paused_makes_no_machine_well() -> None:
    """`failed` is a health check's word here; without it the Node is as sick as before."""
    machine = held("Unknown", failed=False, **{ENDED_ANNOTATION: "2026-11-21T11:00:00Z"})
    after = carried_out(machine, effects(decide(machine, now=NOW, timeout=HOURS)))
    assert after.ended


def test_s25_a_preservation_begins_without_the_verdicts_of_the_checks() -> None:
    """A Node that is Ready, and that a check calls failed: a person's `preserve` forgets nothing; a later look may."""
    machine = held("True", failed=False, **{ENDED_ANNOTATION: "2026-11-21T11:00:00Z", PRESERVE_ANNOTATION: "now"})
    kept = carried_out(machine, effects(decide(machine, now=NOW, timeout=HOURS)))
    assert ENDED_ANNOTATION in kept.annotations
    called = replace(kept, failed="workers calls it unhealthy", phase=MachinePhase.FAILED)
    assert ENDED_ANNOTATION in carried_out(called, effects(decide(called, now=NOW, timeout=HOURS), drained=True)).annotations
    assert ENDED_ANNOTATION not in carried_out(kept, effects(decide(kept, now=NOW, timeout=HOURS))).annotations


def test_s24_a_mistake_in_a_pool_releases_nothing() -> None:
    """A PreservationPolicy is edited into one that can't be read (or can't be listed): its machines fall to their
    MachineDeployment, which says no cap of its own, and all of them are released and deleted."""
    kept = replace(held(**{PRESERVE_ANNOTATION: "auto-preserved"}), expiry=NOW + HOURS, deployment="d")
    pool, own = read_policy(PRESERVATION_POLICY), DeploymentPool(name="d", namespace="s")
    assert survey([kept], [pool], [own], now=NOW).decisions[0].preserved
    (decision,) = survey([kept], [], [own], now=NOW, blocked="PreservationPolicy/all: a typo").decisions
    assert (decision.action is PreservationAction.TERMINATE, decision.automatic) == (False, Automatic.NOTHING)


KEPT = MachineView(
    api=MCM,
    namespace="s",
    name="w",
    node_name="n",
    phase="Failed",
    annotations={PRESERVE_ANNOTATION: "auto-preserved"},
    expiry=NOW + HOURS,
    controller="MachineDeployment/d",
)


def test_s24_before_the_policies_have_been_listed_no_machine_is_released() -> None:
    """A worker that has just begun, or has no right to list them, knows the MachineDeployment's cap of 0 and no other."""
    index = PreservationIndex()
    ref = ObjectRef(api_version="machine.sapcloud.io/v1alpha1", kind="Machine", name="w", namespace="s")
    index.put_deployment("MachineDeployment/s/d", DeploymentPool(name="d", namespace="s"))
    index.put_node(NodeView(name="n", uid="u", conditions=(Condition(type=READY, status="Unknown"),)))
    index.put_machine(ref, KEPT, NOW - HOURS)
    assert [bool(need.released) for need in index.needs(NOW, lambda _: "")[0]] == [True]
    doubted, _ = index.needs(NOW, lambda _: "", doubt="PreservationPolicies can't be listed: forbidden")
    assert not any(need.released or need.action == "terminate" for need in doubted)


# Words about keeping a machine that mean nothing: seen change by change, about the object that people look at.


def seen(fleet: Fleet) -> list[tuple[str, str, int]]:
    """About which objects, and how many words each."""
    return [(mistake.about.kind, mistake.about.name, len(mistake.messages)) for mistake in fleet.index.mistakes]


@pytest.mark.parametrize("word", [{PRESERVE_ANNOTATION: "noww"}, {PRESERVE_FOR_ANNOTATION: "ever"}, {ISOLATE_ANNOTATION: "yes"}])
def test_a_word_on_a_node_that_means_nothing_is_seen_until_it_is_mended(word: dict[str, str]) -> None:
    fleet = Fleet()
    fleet.machine(1)
    fleet.node(1, **word)
    (mistake,) = fleet.index.mistakes
    assert (mistake.about.kind, mistake.about.name, mistake.uid) == ("Node", "n-1", "uid-1")
    assert next(iter(word)) in mistake.messages[0]
    assert fleet.index.asked, "somebody has to tell it"
    version = fleet.index.mistakes.version
    fleet.node(1, **word)
    fleet.node(1, **word, note="of somebody else")
    assert fleet.index.mistakes.version == version
    fleet.node(1)
    assert (seen(fleet), fleet.index.mistakes.version) == ([], version + 1)


def test_a_machine_without_a_node_is_told_of_itself_and_else_its_node_is() -> None:
    fleet = Fleet()
    fleet.machine(1, annotations={PRESERVE_ANNOTATION: "noww"}, uid="uid-m")
    (mistake,) = fleet.index.mistakes
    assert (mistake.about.kind, mistake.about.namespace, mistake.uid) == ("Machine", "shoot", "uid-m")
    fleet.node(1, **{PRESERVE_ANNOTATION: "now", PRESERVE_FOR_ANNOTATION: "-3h"})
    assert seen(fleet) == [("Node", "n-1", 2)]
    fleet.index.remove_node("n-1")
    fleet.index.remove_machine("shoot/m-1")
    assert seen(fleet) == []


def test_a_node_alone_is_one_until_its_machine_is_seen() -> None:
    """The same words, about the same object: nothing is told twice."""
    fleet = Fleet()
    fleet.node(1, **{PRESERVE_ANNOTATION: "noww"})
    (alone,) = fleet.index.mistakes
    fleet.machine(1)
    (with_machine,) = fleet.index.mistakes
    assert with_machine == alone
    fleet.index.remove_node("n-1")
    assert seen(fleet) == []


def test_what_means_something_is_no_mistake() -> None:
    fleet = Fleet()
    fleet.node(1, **{PRESERVE_ANNOTATION: "when-failed", PRESERVE_FOR_ANNOTATION: "24h"})
    fleet.machine(2, annotations={PRESERVE_ANNOTATION: "false"})
    fleet.kept(3)
    fleet.kept(3, expiry=LATER + timedelta(hours=1))
    assert seen(fleet) == []


def test_an_expiry_runs_on_under_a_word_that_means_nothing() -> None:
    """It changes nothing, and that is told; the hold ends when its time is over."""
    fleet = Fleet()
    fleet.kept(1)
    assert fleet.actions() == {}
    node = fleet.index._nodes["n-1"]
    fleet.index.put_node(replace(node, annotations={**node.annotations, PRESERVE_ANNOTATION: "noww"}))
    assert (fleet.actions(), seen(fleet)) == ({}, [("Node", "n-1", 1)])
    assert fleet.index.next_due(NOW) == LATER
    assert fleet.actions(LATER) == {"n-1": "stop"}
