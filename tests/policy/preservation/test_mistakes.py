"""Words about keeping a machine that mean nothing: seen change by change, about the object that people look at."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.requests import ISOLATE_ANNOTATION, PRESERVE_FOR_ANNOTATION
from tests.policy.preservation.test_preservation_index import LATER, NOW, Fleet


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
