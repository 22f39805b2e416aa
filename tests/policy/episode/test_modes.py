"""Which mode holds for a node under a check: the most cautious of three, and who may raise it (S52)."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta

import pytest

from policy.episode.modes import MOST_RULES, REPAIRS, ClusterModes, ModeRule, mode_of, mode_under
from policy.values.errors import PolicyError
from policy.values.mode import MODE_LABELS, Mode
from policy.values.selectors import read_selector
from policy.values.times import written
from tests.policy.builders import NOW

OBSERVES = ClusterModes(setting=Mode.OBSERVE)


def a_rule(mode: Mode, *nodes: str, selector: str = "", minutes: int = 0) -> ModeRule:
    at = NOW + timedelta(minutes=minutes)
    return ModeRule(mode=mode, by="ada, verified by Kubernetes", reason="rack 7 first", at=at, nodes=nodes, selector=selector)


def test_s52_a_label_or_an_annotation_never_raises_the_mode() -> None:
    """S52: a tenant writes the one, a kubelet the other."""
    order, words = [*Mode], (None, *Mode)
    for of_cluster, annotation, label, restricted in itertools.product(Mode, words, words, words):
        labels = {key: each.value for key, each in zip(MODE_LABELS, (label, restricted), strict=True) if each is not None}
        found = mode_of(ClusterModes(setting=of_cluster), "node-1", labels, annotation.value if annotation is not None else None)
        said = [each for each in (of_cluster, annotation, label, restricted) if each is not None]
        assert order.index(found.mode) == min(map(order.index, said)), (of_cluster, annotation, label, restricted)
        assert of_cluster.allows(found.mode)


@pytest.mark.parametrize(
    ("of_cluster", "checks", "expected"),
    [
        (Mode.REPAIR, {}, Mode.REPAIR),
        (Mode.CORDON, {}, Mode.CORDON),
        (Mode.REPAIR, {"a": "cordon", "b": None}, Mode.CORDON),
        (Mode.REPAIR, {"a": "observe", "b": None}, Mode.REPAIR),
        (Mode.REPAIR, {"a": "observe", "b": "drain", "c": "repair"}, Mode.DRAIN),
        (Mode.REPAIR, {"a": "observe", "b": "nonsense"}, Mode.OBSERVE),
        (Mode.OBSERVE, {"a": "drain", "b": None}, Mode.OBSERVE),
    ],
)
def test_s52_of_several_checks_the_most_cautious_holds_that_does_more_than_observe(
    of_cluster: Mode, checks: dict[str, str | None], expected: Mode
) -> None:
    assert mode_under(ClusterModes(setting=of_cluster), "node-1", {}, checks).mode is expected


@pytest.mark.parametrize("value", ["", "Repair", "on", "repair ", "x" * 3000, "\x1b[31mrepair"])
def test_s52_a_value_that_can_t_be_read_means_observe_and_says_so(value: str) -> None:
    labelled = [mode_of(REPAIRS, "n", {key: value}) for key in MODE_LABELS]
    for found in (*labelled, mode_of(REPAIRS, "n", {}, value, "NodeHealthCheck/workers")):
        assert found.mode is Mode.OBSERVE
        assert "expected observe, cordon, drain or repair, got" in found.problem
        assert found.problem in str(found)
        assert len(str(found)) < 300
        assert str(found).isprintable()


def test_the_newest_rule_that_covers_a_node_counts_and_the_default_holds_for_the_rest() -> None:
    modes = OBSERVES.ruled(a_rule(Mode.REPAIR, selector="rack=r7")).ruled(a_rule(Mode.DRAIN, "node-2"))
    assert mode_of(modes, "node-1", {"rack": "r7"}).mode is Mode.REPAIR
    assert mode_of(modes, "node-2", {"rack": "r7"}).mode is Mode.DRAIN
    assert mode_of(modes, "node-3", {}).mode is Mode.OBSERVE
    why = mode_of(modes, "node-1", {"rack": "r7"}).why
    assert why == f"set for nodes with rack=r7 by ada, verified by Kubernetes at {written(NOW)}: rack 7 first"


@pytest.mark.parametrize("own", [ClusterModes(setting=each) for each in Mode], ids=str)
@pytest.mark.parametrize("former", [ClusterModes(setting=each) for each in Mode], ids=str)
def test_s52_what_held_before_a_reset_only_lowers(own: ClusterModes, former: ClusterModes) -> None:
    """S52: for each node the more cautious of both; what a person sets afterwards counts again, for its nodes."""
    own = own.ruled(a_rule(Mode.DRAIN, "node-1"))
    former = former.ruled(a_rule(Mode.CORDON, selector="rack=r7")).ruled(a_rule(Mode.REPAIR, "node-1"))
    both = own.after_reset(former, NOW + timedelta(minutes=1))
    order = [*Mode]
    for name, labels in (
        ("node-1", {}),
        ("node-1", {"rack": "r7"}),
        ("node-2", {"rack": "r7"}),
        ("node-3", {}),
        ("node-4", None),
    ):
        said = [mode_of(each, name, labels).mode for each in (own, former)]
        assert order.index(mode_of(both, name, labels).mode) == min(map(order.index, said)), name
    again = both.ruled(a_rule(Mode.REPAIR, "node-3", minutes=2))
    assert mode_of(again, "node-3", {}).mode is Mode.REPAIR
    assert mode_of(again, "node-2", {"rack": "r7"}).mode is mode_of(both, "node-2", {"rack": "r7"}).mode
    assert "the scanner was reset" in both.limited
    assert both.ruled(a_rule(Mode.REPAIR, minutes=2)).before == ()
    assert both.unruled((), "") == replace(own, rules=())


def test_s52_after_two_resets_without_a_word_in_between_nodes_are_observed() -> None:
    former = OBSERVES.after_reset(REPAIRS.ruled(a_rule(Mode.DRAIN, "node-1")), NOW)
    modes = REPAIRS.after_reset(former, NOW)
    assert {mode_of(modes, name, {}).mode for name in ("node-1", "node-2")} == {Mode.OBSERVE}
    assert REPAIRS.after_reset(REPAIRS, NOW) == REPAIRS


def test_s52_a_node_that_is_gone_takes_no_rule_by_its_labels_along() -> None:
    """S52: else a Machine of an observed rack would be deleted as soon as its Node was."""
    observed = ClusterModes(setting=Mode.REPAIR).ruled(a_rule(Mode.OBSERVE, selector="rack=r7"))
    found = mode_of(observed, "node-1", None)
    assert found.mode is Mode.OBSERVE
    assert "it has no Node, so its labels are not known" in str(found)
    assert mode_of(observed, "node-1", {}).mode is Mode.REPAIR
    assert mode_of(observed.ruled(a_rule(Mode.REPAIR, "node-1")), "node-1", None).mode is Mode.REPAIR, "a person has named it"
    armed = OBSERVES.ruled(a_rule(Mode.REPAIR, selector="rack=r7"))
    assert mode_of(armed, "node-1", None).mode is Mode.OBSERVE


def test_one_command_takes_everything_back() -> None:
    """S52: in a hurry no person looks for the rules of others."""
    modes = ClusterModes(setting=Mode.REPAIR).ruled(a_rule(Mode.REPAIR, selector="rack=r7")).ruled(a_rule(Mode.OBSERVE))
    assert len(modes.rules) == 1
    assert mode_of(modes, "node-1", {"rack": "r7"}).mode is Mode.OBSERVE
    assert modes.unruled((), "").rules == ()


def test_a_rule_is_replaced_by_one_for_the_same_nodes_and_taken_back_by_naming_them() -> None:
    modes = OBSERVES.ruled(a_rule(Mode.REPAIR, "a", "b")).ruled(a_rule(Mode.CORDON, "b", "a"))
    assert [rule.mode for rule in modes.rules] == [Mode.CORDON]
    with pytest.raises(ValueError, match=r"^no rule is for exactly these nodes: there are rules for b, a$"):
        modes.unruled(("a",), "")
    with pytest.raises(ValueError, match=r"^there is no rule$"):
        OBSERVES.unruled((), "")
    assert modes.unruled(("a", "b"), "") == OBSERVES


def test_the_answer_to_a_command_says_what_else_is_set_and_after_unset_what_is_left() -> None:
    modes = OBSERVES.ruled(a_rule(Mode.REPAIR, "a")).ruled(a_rule(Mode.CORDON, "b"))
    assert modes.described(("b",), "") == "the mode of b is cordon; 1 other rule: see `nodewarden mode`"
    left = modes.unruled(("b",), "").described(("b",), "")
    assert left == "without a rule the mode is observe (the setting scan.mode is observe); 1 rule left: see `nodewarden mode`"
    everywhere = OBSERVES.ruled(a_rule(Mode.DRAIN)).ruled(a_rule(Mode.REPAIR, "a"))
    assert everywhere.unruled(("a",), "").described(("a",), "") == "the mode of all nodes is drain", "it holds for a, too"
    assert modes.unruled((), "").described((), "") == "without a rule the mode is observe (the setting scan.mode is observe)"


def test_rules_are_bounded() -> None:
    modes = OBSERVES
    for number in range(MOST_RULES):
        modes = modes.ruled(a_rule(Mode.REPAIR, f"node-{number}"))
    with pytest.raises(ValueError, match="expected at most 50 rules"):
        modes.ruled(a_rule(Mode.REPAIR, "one more"))
    assert modes.ruled(a_rule(Mode.DRAIN, "node-7")).rules[-1].mode is Mode.DRAIN
    with pytest.raises(ValueError, match="at most 200 names"):
        OBSERVES.ruled(a_rule(Mode.REPAIR, *map(str, range(201))))
    full = OBSERVES
    for rule in ("ab", "cd"):
        full = full.ruled(a_rule(Mode.REPAIR, *(f"{rule}-{number}" for number in range(200))))
    with pytest.raises(ValueError, match="at most 500 names in all rules"):
        full.ruled(a_rule(Mode.REPAIR, *map(str, range(101))))
    assert full.ruled(a_rule(Mode.REPAIR, *map(str, range(100))))
    assert len(OBSERVES.ruled(replace(a_rule(Mode.REPAIR, "a"), reason="r" * 2000)).rules[0].reason) == 300
    with pytest.raises(ValueError, match="names of nodes"):
        OBSERVES.ruled(a_rule(Mode.REPAIR, "node-1\x1b[2J"))
    with pytest.raises(ValueError, match="got both"):
        OBSERVES.ruled(a_rule(Mode.REPAIR, "a", selector="rack=r7"))


@pytest.mark.parametrize(
    ("repaired", "mode"), [(True, Mode.REPAIR), (False, Mode.OBSERVE)], ids=["was repaired before", "is new"]
)
def test_a_cluster_without_a_setting_begins_as_it_was(*, repaired: bool, mode: Mode) -> None:
    assert mode_of(REPAIRS.begun(repaired=repaired), "n", {}).mode is mode
    assert mode_of(ClusterModes(setting=Mode.DRAIN).begun(repaired=repaired), "n", {}).mode is Mode.DRAIN


@pytest.mark.parametrize(
    ("text", "labels", "selected"),
    [
        ("rack=r7", {"rack": "r7"}, True),
        ("rack==r7", {"rack": "r8"}, False),
        ("rack in (r7, r8),!gpu", {"rack": "r8"}, True),
        ("rack in (r7,r8),!gpu", {"rack": "r8", "gpu": ""}, False),
        ("rack!=r7", {}, True),
        ("rack notin (r7)", {"rack": "r7"}, False),
        ("node-role.kubernetes.io/worker", {"node-role.kubernetes.io/worker": ""}, True),
        ("empty=", {"empty": ""}, True),
    ],
)
def test_a_selector_is_read_as_kubectl_has_it(text: str, labels: dict[str, str], *, selected: bool) -> None:
    assert read_selector(text).matches(labels) is selected


@pytest.mark.parametrize(
    "text", ["", ",", "rack=r7,", "rack=r 7", "rack in r7", "!rack=r7", "a b", "rack in (r7", "rack=r7;x", "=x"]
)
def test_a_selector_that_could_mean_everything_is_refused(text: str) -> None:
    with pytest.raises(PolicyError, match="expected"):
        read_selector(text)
