"""What a decision about a machine writes, carried out on the snapshot instead of on objects."""

from __future__ import annotations

from dataclasses import replace

from policy.objects.nodes import Condition, Taint
from policy.preservation.decision import Effects
from policy.preservation.kept_machine import CONDITION, TAINT, Held


def carried_out(held: Held, found: Effects) -> Held:
    """The objects once that was written; a drain goes well."""
    annotations = {key: value for key, value in (dict(held.annotations) | dict(found.machine)).items() if value is not None}
    after = replace(held, annotations=annotations, expiry=found.expiry if found.expiry_differs else held.expiry)
    if held.node is None:
        assert not found.node
        assert found.taint is None
        assert found.condition is None
        return after
    there = {key: value for key, value in (dict(held.node.annotations) | dict(found.node)).items() if value is not None}
    taints = tuple(taint for taint in held.node.taints if taint.key != TAINT or found.taint is not False)
    if found.taint:
        taints = (*taints, Taint(key=TAINT, effect="NoSchedule"))
    conditions = held.node.conditions
    if found.condition is not None:
        said = Condition(type=CONDITION, **{field: getattr(found.condition, field) for field in ("status", "reason", "message")})
        conditions = (*(each for each in conditions if each.type != CONDITION), said)
    return replace(after, node=replace(held.node, annotations=there, taints=taints, conditions=conditions))
