"""Groups of nodes: to which a node belongs, and counts that stay right whatever happens to it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.objects.nodes import ZONE_LABEL, Condition, NodeView
from policy.objects.scopes import CLUSTER, GroupCount, GroupTally, group_of, group_phrase, is_scope
from tests.policy.builders import RACK, a_node, in_rack


@pytest.mark.parametrize(
    ("scope", "labels", "group"),
    [
        ("cluster", {}, "cluster"),
        ("zone", {ZONE_LABEL: "b"}, "zone=b"),
        ("zone", {}, "zone="),
        ("pool", {"eks.amazonaws.com/nodegroup": "big"}, "pool=big"),
        ("pool", {}, "pool="),
        (RACK, {RACK: "r1"}, f"{RACK}=r1"),
        (RACK, {"rack": "r1"}, f"{RACK}="),
    ],
)
def test_a_node_belongs_to_one_group_of_every_scope(scope: str, labels: dict[str, str], group: str) -> None:
    """Nodes without the label are one group: a misspelt key holds back too much, never too little."""
    assert group_of(scope, a_node(labels=labels)) == group


def test_a_scope_is_a_word_or_the_key_of_a_label() -> None:
    assert all(map(is_scope, ("rack", RACK, "zone")))
    assert not any(map(is_scope, ("", "a b", "rack=1", "/rack", "-r")))


def test_groups_are_called_as_people_would() -> None:
    assert [group_phrase(group) for group in (CLUSTER, "zone=a", "rack=")] == ["the cluster", "zone=a", "the nodes without rack"]


LOST = Condition(type="StorageUnreachable", status="True")
states = st.builds(
    in_rack, st.sampled_from(["a", "b", "c"]), st.sampled_from([None, "r1", "r2"]), st.sampled_from(["True", "False", "Unknown"])
)
changes = st.lists(st.tuples(states, st.booleans(), st.booleans()), max_size=20)


@settings(max_examples=150, deadline=None)
@given(changes=changes, recount_at=st.integers(0, 20))
def test_the_counts_are_always_those_of_a_recount(changes: list[tuple[NodeView, bool, bool]], recount_at: int) -> None:
    tally, nodes = GroupTally(), dict[str, NodeView]()
    for step, (state, gone, lost) in enumerate(changes):
        before = nodes.pop(state.name, None)
        after = None
        if not gone:
            conditions = (*state.conditions, LOST) if lost else state.conditions
            after = nodes[state.name] = a_node(state.name, labels=state.labels, conditions=conditions)
        tally.move(before, after)
        if step == recount_at:
            tally.count_by([RACK], ["StorageUnreachable"], nodes.values())
    tally.count_by([RACK], ["StorageUnreachable"], nodes.values())
    fresh = GroupTally()
    fresh.count_by([RACK], ["StorageUnreachable"], nodes.values())
    assert tally.all() == fresh.all()
    assert tally.of(CLUSTER).nodes == len(nodes)
    for group in {group_of(RACK, node) for node in nodes.values()}:
        mine = [node for node in nodes.values() if group_of(RACK, node) == group]
        assert tally.of(group) == GroupCount(
            group=group,
            nodes=len(mine),
            unresponsive=sum(not node.ready for node in mine),
            without_storage=sum(LOST in node.conditions for node in mine),
        )


def test_a_change_that_moves_no_count_is_no_news() -> None:
    tally = GroupTally()
    node = in_rack("a", "r1")
    tally.move(None, node)
    version = tally.version
    tally.move(node, in_rack("a", "r1", age=7))
    assert tally.version == version
    tally.move(node, in_rack("a", "r1", "Unknown"))
    assert tally.version > version
    assert tally.of(CLUSTER).percent == 100
