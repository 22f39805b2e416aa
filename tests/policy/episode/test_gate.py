"""The one table of what keeps acts from a node: each situation and act, a program's and a person's, as docs/semantics.md says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from policy.checks.fence_policies import FencePolicies
from policy.episode import gate
from policy.episode.gate import DESTRUCTIVE, RULES, By, Objection, Operation, Seen, Weight, objection
from policy.episode.modes import REPAIRS, mode_of
from policy.episode.proofs import licenses
from policy.fence.power import RESTORING, PowerAct
from policy.objects.machines import MachineView
from policy.objects.nodes import Condition, NodeEvent, NodeView, Taint
from policy.values.errors import Unread
from policy.values.machine_apis import CLUSTER_API
from tests.policy.builders import NOW, a_node, pinned, seen

ROOT = Path(__file__).parents[3]
NODE = a_node("node-1", "Unknown", age=3600)
MACHINE = MachineView(api=CLUSTER_API, namespace="default", name="w-1", node_name="node-1")
FREE = Seen(
    node=NODE,
    machines=(MACHINE,),
    pause="",
    lease="",
    cluster_lease="",
    permit="",
    policies=FencePolicies(),
    mode=mode_of(REPAIRS, "node-1", {}),
)
"""Everything was read, and nothing is in the way."""

PRESERVE = "node.machine.sapcloud.io/preserve"
KEPT = Condition(type="Preserved", status="True")
LOST = FencePolicies(skip_lost_storage=True)
RENEWING = FencePolicies(skip_renewed_lease=True)


def on_node(**words: str) -> NodeView:
    return replace(NODE, annotations={**NODE.annotations, **words})


def on_machine(**words: str) -> tuple[MachineView, ...]:
    return (replace(MACHINE, annotations=words),)


def labelled(**words: str) -> NodeView:
    return replace(NODE, labels={**NODE.labels, **words})


def tainted(key: str) -> NodeView:
    return replace(NODE, taints=(Taint(key=key, effect="NoSchedule"),))


def also(*conditions: Condition) -> NodeView:
    return replace(NODE, conditions=(*NODE.conditions, *conditions))


def says(weight: Weight) -> Objection:
    return Objection(rule="", reason="so it is", weight=weight)


HELD = on_node(**{PRESERVE: "now"})
SILENT = a_node("node-1", "Unknown", age=30)

SITUATIONS: dict[str, list[Seen]] = {
    "another machine than was pinned": [replace(FREE, identity="uid")],
    "other devices or power levels, or other Machines, than were pinned": [replace(FREE, devices="fence endpoints")],
    "the devices can't be told": [replace(FREE, devices_unread="no answer")],
    "another Node has the same providerID, system UUID, boot id or fence device": [
        replace(FREE, contested="Node/b has the same boot id")
    ],
    "something could not be read": [replace(FREE, doubts=(Unread(what="the node", why="no answer"),))],
    "its health check finds it healthy": [replace(FREE, need=says(Weight.NEED_GONE))],
    "its health check is paused, or its time runs anew": [replace(FREE, need=says(Weight.VETOED))],
    "its mode is `observe`, or is set by a value that can't be read": [
        *(replace(FREE, mode=mode_of(REPAIRS, "node-1", {"nodewarden.io/mode": word})) for word in ("observe", "Repair", "")),
        *(replace(FREE, mode=mode_of(REPAIRS, "node-1", {}, annotation=word)) for word in ("observe", "on")),
    ],
    "its mode is `cordon`": [replace(FREE, mode=mode_of(REPAIRS, "node-1", {"nodewarden.io/mode": "cordon"}))],
    "its mode is `drain`": [replace(FREE, mode=mode_of(REPAIRS, "node-1", {}, annotation="drain"))],
    "its mode could not be read": [replace(FREE, mode=None, mode_unread="the mode could not be read: no answer")],
    "the cluster Lease is not ours": [replace(FREE, cluster_lease="held by another")],
    "no permit": [replace(FREE, permit="the permit is not held")],
    "another operator holds its lease in `medik8s-leases`": [replace(FREE, lease="node-maintenance")],
    "`cluster.x-k8s.io/paused` or `skip-remediation` on its Machine": [
        replace(FREE, machines=on_machine(**{f"cluster.x-k8s.io/{word}": ""})) for word in ("paused", "skip-remediation")
    ],
    "the Cluster API Cluster of the Node or of its Machine is paused": [
        replace(FREE, pause="spec.paused of Cluster blue is true")
    ],
    f"`{PRESERVE}=now` on the Node": [
        replace(FREE, node=on_node(**{PRESERVE: word}), machines=machines)
        for word in ("now", "true", "when-failed", "auto-preserved")
        for machines in ((), on_machine(**{PRESERVE: "false"}))
    ],
    "the same on its Machine, and the Node says nothing": [
        replace(FREE, node=node, machines=on_machine(**{PRESERVE: "now"})) for node in (NODE, on_node(**{PRESERVE: ""}), None)
    ],
    "the same on its Machine, and the Node says `false`": [
        replace(FREE, node=on_node(**{PRESERVE: "false"}), machines=on_machine(**{PRESERVE: "now"}))
    ],
    "its condition `Preserved`": [replace(FREE, node=also(KEPT))],
    "its Machine is preserved until a moment to come; its Node may be gone, or made anew": [
        replace(FREE, node=node, machines=(replace(on_machine()[0], expiry=NOW + timedelta(hours=1)),)) for node in (NODE, None)
    ],
    "its condition `Preserved`, to the preservation that holds it": [
        replace(FREE, node=replace(HELD, conditions=also(KEPT).conditions), preserving=True)
    ],
    "the report's decision that it is kept": [replace(FREE, exempt="it is preserved")],
    "`remediation.medik8s.io/exclude-from-remediation=true` on the Node": [
        replace(FREE, node=labelled(**{"remediation.medik8s.io/exclude-from-remediation": "true"}))
    ],
    "`nodewarden.io/hold` on the Node": [
        replace(FREE, node=on_node(**{"nodewarden.io/hold": word})) for word in ("", "true", "ada looks at it")
    ],
    "`nodewarden.io/fencing=off` on the Node": [
        replace(FREE, node=labelled(**{"nodewarden.io/fencing": said})) for said in ("off", "OFF", "false", "")
    ],
    "fencing is switched off for the cluster, or for its group": [
        replace(FREE, policies=FencePolicies(switched_off=("ada",))),
        replace(FREE, node=None, policies=FencePolicies(switched_off=("ada",))),
        replace(FREE, node=labelled(rack="r1"), policies=FencePolicies(off_groups=("rack=r1",))),
    ],
    "a taint of the cluster autoscaler or karpenter": [
        replace(FREE, node=tainted(key))
        for key in ("ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption")
    ],
    "`node.machine.sapcloud.io/trigger-deletion-by-mcm=true` on the Node": [
        replace(FREE, node=on_node(**{"node.machine.sapcloud.io/trigger-deletion-by-mcm": "true"}))
    ],
    "its Machine is chosen to be scaled down": [
        replace(FREE, machines=on_machine(**word))
        for word in (
            {"cluster.x-k8s.io/delete-machine": ""},
            {"machine.openshift.io/delete-machine": "yes"},
            {"machinepriority.machine.sapcloud.io": "1"},
        )
    ],
    "the Node is being deleted": [replace(FREE, node=replace(NODE, deleting=True))],
    "its Machine is being deleted": [replace(FREE, machines=(MACHINE, replace(MACHINE, deleting=True)))],
    "its Machine is being deleted by the asking episode": [
        replace(FREE, machines=(replace(MACHINE, deleting=True),), deletes_it=True)
    ],
    "it says by a condition that it has lost its storage": [
        replace(FREE, node=also(Condition(type="StorageUnreachable", status="True")), policies=LOST)
    ],
    "it says by an Event that it has lost its storage": [
        replace(FREE, events=(NodeEvent(reason="IOError", source="kernel", at=NOW - timedelta(seconds=5)),), policies=LOST)
    ],
    "its kubelet renews its Lease": [replace(FREE, renewed=NOW - timedelta(seconds=5), policies=RENEWING)],
    "it just fell silent, and its Lease tells nothing yet": [
        replace(FREE, node=SILENT, renewed=NOW - timedelta(seconds=40), policies=RENEWING)
    ],
    "the only member of a control plane": [replace(FREE, control_plane=says(Weight.VETOED))],
    "a member that the control plane can't do without now": [replace(FREE, control_plane=says(Weight.NOT_LICENSED))],
    "the mark of another episode": [replace(FREE, held_by="the node is held by Fencing i-2")],
    "a mark that can't be read": [replace(FREE, mark_unread="expected the JSON of a mark")],
}

COLUMNS: dict[str, tuple[Operation, ...]] = {
    "offer": (Operation.OFFER,),
    "keep": (Operation.KEEP,),
    "cordon": (Operation.CORDON,),
    "drain": (Operation.DRAIN,),
    "disrupt": tuple(DESTRUCTIVE - {Operation.CORDON, Operation.DRAIN}),
    "evict": (Operation.EVICT,),
    "ask": (Operation.ASK,),
    "create": (Operation.CREATE,),
    "wait": (Operation.WAIT,),
    "free": (Operation.FREE,),
    "give back": (Operation.GIVE_BACK,),
    "uncordon": (Operation.UNCORDON,),
}
WORDS = {"no": Weight.VETOED, "later": Weight.NOT_LICENSED, "gone": Weight.NEED_GONE, "another": Weight.TARGET_CHANGED}


def documented() -> Iterator[tuple[str, str, str]]:
    """Situation, column and cell of the table in the docs."""
    text = (ROOT / "docs" / "semantics.md").read_text()
    table = text.partition("## What keeps an act from a node\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]
    assert rows[0][1:] == list(COLUMNS)
    for situation, *cells in rows[2:]:
        name = situation.rpartition(" (S")[0] or situation
        yield from ((name, column, cell) for column, cell in zip(COLUMNS, cells, strict=True))


def test_each_act_is_stopped_by_what_the_docs_say_and_by_nothing_else() -> None:
    """S9, S14, S15, S17, S20, S21, S27, S38."""
    for situation, column, cell in documented():
        word, _, only = cell.partition(": ")
        expected = dict.fromkeys(By, WORDS.get(word))
        if only.startswith("programs"):
            expected[By.PERSON] = None
            expected[By.POOL] = WORDS.get(word) if only.endswith("pools") else None
        for met in SITUATIONS[situation]:
            for operation in COLUMNS[column]:
                for by in By:
                    found = objection(met, operation, by, NOW)
                    assert (found.weight if found is not None else None) is expected[by], (situation, operation, by, met)
                if only == "without our mark":
                    assert objection(replace(met, marked=True), operation, By.PROGRAM, NOW) is None, situation


def test_the_docs_have_every_situation_and_each_row_of_the_table_has_one() -> None:
    assert {situation for situation, _, _ in documented()} == SITUATIONS.keys()
    everything = [seen for found in SITUATIONS.values() for seen in found]
    silent = [rule.name for rule in RULES if not any(rule.says(seen, NOW) for seen in everything)]
    assert silent == []
    assert len({rule.name for rule in RULES}) == len(RULES)  # by which `unblocks` and `explain` find them


def test_nothing_is_in_the_way_of_a_node_without_vetoes() -> None:
    assert [each for each in Operation if objection(FREE, each, By.PROGRAM, NOW)] == []
    plain = replace(FREE, node=None, machines=())
    assert [each for each in Operation if objection(plain, each, By.PROGRAM, NOW)] == []


@pytest.mark.parametrize(
    "node",
    [
        on_node(**{"nodewarden.io/hold": "false"}),
        labelled(**{"nodewarden.io/fencing": "on"}),
        labelled(**{"nodewarden.io/fencing": "On"}),
    ],
)
def test_a_veto_that_is_taken_back_stops_no_episode(node: NodeView) -> None:
    assert objection(replace(FREE, node=node), Operation.DISRUPT, By.PROGRAM, NOW) is None


@pytest.mark.parametrize("field", ["lease", "cluster_lease", "permit", "policies", "pause"])
def test_what_was_not_read_licenses_nothing_destructive(field: str) -> None:
    """S20: a caller who forgets to look is told so, and does not get leave."""
    for operation in DESTRUCTIVE:
        found = objection(replace(FREE, **{field: None}), operation, By.PERSON, NOW)
        assert found is not None
        assert found.weight is Weight.NOT_LICENSED
        assert "was not read" in found.reason


def test_an_unread_mode_licenses_no_program() -> None:
    """S20, S52."""
    for operation in DESTRUCTIVE | {Operation.OFFER, Operation.EVICT}:
        found = objection(replace(FREE, mode=None), operation, By.PROGRAM, NOW)
        assert found is not None
        assert (found.reason, found.weight) == ("the mode was not read", Weight.NOT_LICENSED)
        assert objection(replace(FREE, mode=None), operation, By.PERSON, NOW) is None


def test_no_limit_and_no_program_s_reason_keeps_a_machine_down() -> None:
    """S17: what restores is stopped by whoever wants the machine left as it is, and by who has it; S21 goes before that."""
    limited = replace(
        FREE,
        policies=FencePolicies(switched_off=("ada",)),
        permit="not held",
        node=tainted("karpenter.sh/disrupted"),
        exempt="kept",
    )
    assert objection(limited, Operation.GIVE_BACK, By.PROGRAM, NOW) is None
    assert objection(replace(FREE, cluster_lease="it has lapsed", marked=True), Operation.GIVE_BACK, By.PROGRAM, NOW) is None


def test_who_wants_it_left_off_is_heard_though_something_could_not_be_read() -> None:
    """S21 goes before S17."""
    seen = replace(FREE, node=HELD, doubts=(Unread(what="its Machine", why="no answer"),))
    found = objection(seen, Operation.GIVE_BACK, By.PROGRAM, NOW)
    assert found is not None
    assert found.rule == "preserved"


def test_the_end_of_another_holders_lease_is_reported() -> None:
    until = NOW + timedelta(minutes=3)
    found = objection(replace(FREE, lease="node-maintenance", lease_until=until), Operation.DISRUPT, By.PROGRAM, NOW)
    assert found is not None
    assert (found.until, found.reason) == (until, "the node's lease is held by 'node-maintenance'")


VETOES = {
    "HOLD_ANNOTATION",
    "EXCLUDE_LABEL",
    "FENCING_LABEL",
    "TAKEN_AWAY_BY",
    "DELETION_TRIGGER_ANNOTATION",
    "FIRST_TO_GO",
    "SKIP_ANNOTATION",
    "PAUSED_ANNOTATION",
    "PRESERVE_ANNOTATION",
}
"""By which people and other systems keep a node from others."""

ELSEWHERE = {
    "policy/objects/nodes.py": "what the label says, for verdicts as well",
    "policy/objects/machines.py": "what the annotations say, for verdicts as well",
    "policy/checks/rules/medik8s.py": "words of a verdict",
    "policy/checks/rules/machine_health_checks.py": "which of two reasons a verdict has",
    "policy/scan/evaluation.py": "words about a label that means nothing",
    "policy/scan/explanation.py": "of a paused check, not of a machine",
    "policy/dialects/common.py": "of a paused check, not of a machine",
    "activities/cluster/objects/machines_decoding.py": "of a paused Cluster, not of a machine",
    "activities/cluster/report/status_writer.py": "tells of a label that means nothing",
    "activities/cluster/acts/preservation.py": "writes what a person asks for",
    "policy/preservation/keep_or_release.py": "the request itself, which preservation carries out",
    "policy/preservation/preservation_index.py": "the request itself, which preservation carries out",
    "policy/preservation/machine_snapshot.py": "the request itself, which preservation carries out",
    "policy/preservation/requests.py": "the request itself, which preservation carries out",
    "starter/deploy/admission.py": "which of our fields the API server lets us write",
    "starter/uninstall.py": "what of ours is left where",
    "starter/handles/node_actions.py": "a person sets and ends it",
}
"""Who else may name them, and what for: nobody as a veto."""


MEANINGS = {"kept_by_annotation", "held", "excluded", "switched_off_node", "taken_away"}
"""What `policy/episode/gate.py` makes of them."""


def test_vetoes_are_read_in_one_module_and_only_the_gate_asks_what_they_mean() -> None:
    """A new one is a row of the table and no condition anywhere else. Whoever wants to know if he may act asks `objection`."""
    found: dict[str, set[str]] = {}
    asking = set()
    for room in ("policy", "activities", "workflows", "workers", "starter"):
        for file in sorted((ROOT / room).rglob("*.py")):
            name, text = file.relative_to(ROOT).as_posix(), file.read_text()
            if "policy.episode.gate" not in text and not any(veto in text for veto in VETOES):
                continue
            for each in ast.walk(ast.parse(text)):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each.id in VETOES:
                    found.setdefault(name, set()).add(each.id)
                elif isinstance(each, ast.ImportFrom) and each.module == "policy.episode.gate":
                    asking |= {name for imported in each.names if imported.name in MEANINGS}
    found.pop("policy/episode/gate.py")
    assert found.keys() == ELSEWHERE.keys(), found
    assert vars(gate).keys() >= MEANINGS
    assert asking == set()


def test_every_field_of_what_was_seen_is_asked_for_by_some_row() -> None:
    source = (ROOT / "policy" / "episode" / "gate.py").read_text()
    assert [each.name for each in fields(Seen) if f"seen.{each.name}" not in source] == []


def test_an_unread_machine_stops_what_depends_on_it() -> None:
    """S20: not read is not none."""
    unread = objection(replace(FREE, machines=None), Operation.OFFER, By.PROGRAM, NOW)
    assert unread is not None
    assert (unread.reason, unread.weight) == ("the Machine was not read", Weight.NOT_LICENSED)
    assert objection(replace(FREE, machines=()), Operation.OFFER, By.PROGRAM, NOW) is None


# What a look licenses is what it was made for, of a machine that is known (S42).


def test_an_act_is_licensed_by_a_look_for_it_and_by_no_other() -> None:
    """S15: one before a removal counts on a control plane that has a member fewer to wait for."""
    for act in PowerAct:
        wanted = Operation.GIVE_BACK if act in RESTORING else Operation.DISRUPT
        by_a_look = [each for each in Operation if licenses(each, act, pinned(), seen(), devices_compared=True)]
        uncompared = [each for each in Operation if licenses(each, act, pinned(), seen(), devices_compared=False)]
        assert (act, by_a_look, uncompared) == (act, [wanted], [wanted] if act in RESTORING else [])


@pytest.mark.parametrize(
    ("ours", "theirs", "off", "terminate"),
    [
        ({"uid": ""}, {}, False, False),
        ({"uid": "uid-2"}, {}, False, False),
        ({"provider_id": ""}, {}, False, False),
        ({"system_uuid": ""}, {}, False, False),
        ({"provider_id": "", "system_uuid": ""}, {"provider_id": "", "system_uuid": ""}, True, True),
        ({}, {"present": False}, False, True),
        ({"uid": ""}, {"present": False}, False, False),
    ],
)
def test_a_pin_without_an_identity_licenses_nothing_that_destroys(
    ours: dict[str, Any], theirs: dict[str, Any], off: bool, terminate: bool
) -> None:
    """S9, S39: what it does not say is compared with nothing. Only what is given up last may have lost its Node."""
    for act, licensed in ((PowerAct.OFF, off), (PowerAct.TERMINATE, terminate)):
        assert licenses(Operation.DISRUPT, act, pinned(**ours), seen(**theirs), devices_compared=True) is licensed
    assert licenses(Operation.GIVE_BACK, PowerAct.ON, pinned(**ours), seen(**theirs), devices_compared=True)
