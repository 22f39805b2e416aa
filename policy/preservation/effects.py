"""What has to be written for a decision: the Machine's and the Node's annotations, the expiry, our taint, the condition.

Only differences, so a second write changes nothing, and a writer that stopped half-way can go on. What the user wrote stays as
it is, byte for byte (S28): a cordon is never touched, and `scale-down-disabled` is removed only where our mark shows that it is
ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.decision import PreservationAction, PreservationDecision
from policy.preservation.kept_machine import (
    BY_A_USER,
    BY_US,
    CONDITION,
    DRAINED,
    ENDED_ANNOTATION,
    FOUND_WELL,
    ISOLATION_ANNOTATION,
    NOT_DRAINED,
    SCALE_DOWN_BEFORE,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_OURS,
    STOPPED,
    Isolation,
    ranked,
)
from policy.preservation.requests import ISOLATE_ANNOTATION, LAST_APPLIED_ANNOTATION, PRESERVE_FOR_ANNOTATION, Intent
from policy.values.times import written


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservedCondition:
    """The condition `Preserved` of the Node, as it should read."""

    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The differences. Annotations: None removes one.

    The order of the writes matters after a crash: the annotations before the expiry, since only the expiry puts a preservation
    in force. One that begins has its reason on the objects first, and one that ends is over with the last write.
    """

    machine: Mapping[str, str | None] = field(default_factory=dict)
    node: Mapping[str, str | None] = field(default_factory=dict)
    expiry: datetime | None = None
    expiry_differs: bool = False
    taint: bool | None = None
    """True: our taint is to be set; False: removed; None: as it is."""
    drain: bool = False
    condition: PreservedCondition | None = None

    @property
    def nothing(self) -> bool:
        """Whether everything is as it should be."""
        return not (self.machine or self.node or self.expiry_differs or self.drain or self.condition) and self.taint is None


def effects(decision: PreservationDecision, *, drained: bool | None = None, isolation: Isolation = Isolation.NONE) -> Effects:
    """What has to be written. drained: the result of the drain that this decision asked for, None before it. isolation: how far
    the isolation has come, NONE where this is not known here."""
    held = decision.held
    if held.deleting:
        # Other controllers delete it: write only that it is kept no longer, and restore nothing on an object that goes.
        condition = _condition(decision, drained) if held.node is not None else None
        return Effects(condition=condition, expiry_differs=held.expiry is not None)
    last_to_go = ranked(held, preserved=decision.preserved, automatic=_automatic(decision))
    node = _on_node(decision, isolation)
    has_node = held.node is not None
    return Effects(
        machine=_differences(held.annotations, _on_machine(decision) | last_to_go) if held.machine else {},
        node=_differences(held.on_node, node) if has_node else {},
        expiry=decision.expiry,
        expiry_differs=decision.expiry != held.expiry,
        taint=_taint(decision) if has_node else None,
        drain=has_node and _drains(decision) and drained is None,
        condition=_condition(decision, drained) if has_node else None,
    )


def _drains(decision: PreservationDecision) -> bool:
    if decision.action is PreservationAction.PRESERVE:
        return bool(decision.held.failed)
    return decision.action is PreservationAction.DRAIN


def _on_machine(decision: PreservationDecision) -> dict[str, str | None]:
    """The Machine's annotations: where the Node decides, the Machine's own value is removed and the Node's is recorded."""
    held, request = decision.held, decision.request
    wanted: dict[str, str | None] = {}
    if request.unreadable and not decision.ended:
        return wanted
    if request.by_node:
        wanted[PRESERVE_ANNOTATION] = None
        gone = decision.withdraw or not held.annotated.node
        wanted[LAST_APPLIED_ANNOTATION] = None if gone else held.annotated.node
    elif decision.withdraw:
        wanted |= dict.fromkeys((PRESERVE_ANNOTATION, LAST_APPLIED_ANNOTATION, PRESERVE_FOR_ANNOTATION, ISOLATE_ANNOTATION))
    elif decision.preserved and decision.intent is Intent.AUTOMATIC:
        wanted[PRESERVE_ANNOTATION] = Intent.AUTOMATIC.value
    return wanted | _memory(decision)


def _automatic(decision: PreservationDecision) -> bool:
    """Whether the cap keeps it. An annotation that can't be read changes nothing, so the machine still counts in the cap
    (S23)."""
    as_it_was = bool(decision.request.unreadable) and decision.held.condition_reason == BY_US
    return decision.intent is Intent.AUTOMATIC or as_it_was


def _memory(decision: PreservationDecision) -> dict[str, str | None]:
    """One preservation for one failure (S25): remembered until the machine is well again."""
    held = decision.held
    if held.failed and decision.ended and held.expiry is not None:
        # Also where its Node is healthy and it runs on: its controller may call it failed for a while yet.
        well = FOUND_WELL if decision.action is PreservationAction.STOP else ""
        return {ENDED_ANNOTATION: f"{written(held.expiry)}{well}"}
    begins = decision.action is PreservationAction.PRESERVE
    if held.ended and not held.failed and (held.node is None or held.well) and not begins:
        # The end of the failed state is not enough: a check that is paused makes no machine well. An episode that begins to keep
        # it does not know the checks' verdicts: the scanner does, and asks for this write when it is still missing.
        return {ENDED_ANNOTATION: None}
    return {}


def _on_node(decision: PreservationDecision, isolation: Isolation) -> dict[str, str | None]:
    held = decision.held
    there = held.on_node
    wanted: dict[str, str | None] = {} if held.machine else _memory(decision)
    if decision.preserved:
        ours, value = SCALE_DOWN_DISABLED_OURS in there, there.get(SCALE_DOWN_DISABLED)
        if ours or value != "true":
            # Also where a user turned it off while the machine is kept: it is ours then, and is restored.
            wanted |= {SCALE_DOWN_DISABLED: "true", SCALE_DOWN_DISABLED_OURS: "true"}
        if not ours and value is not None and value != "true":
            wanted[SCALE_DOWN_BEFORE] = value
        if not held.machine and decision.intent is Intent.AUTOMATIC:
            wanted[PRESERVE_ANNOTATION] = Intent.AUTOMATIC.value
    elif SCALE_DOWN_DISABLED_OURS in there:
        wanted |= {SCALE_DOWN_DISABLED: there.get(SCALE_DOWN_BEFORE), SCALE_DOWN_DISABLED_OURS: None, SCALE_DOWN_BEFORE: None}
    if decision.withdraw:
        wanted |= dict.fromkeys((PRESERVE_ANNOTATION, PRESERVE_FOR_ANNOTATION, ISOLATE_ANNOTATION))
    return wanted | _isolation(decision, isolation)


def _isolation(decision: PreservationDecision, isolation: Isolation) -> dict[str, str | None]:
    """The scanner's look begins an isolation, and the episode continues it; a machine that is well again stays isolated until
    it is released."""
    if not decision.preserved:
        return {ISOLATION_ANNOTATION: None}
    if isolation is not Isolation.NONE:
        return {ISOLATION_ANNOTATION: isolation.value}
    asked = decision.isolate and ISOLATION_ANNOTATION not in decision.held.on_node
    return {ISOLATION_ANNOTATION: Isolation.ASKED.value} if asked else {}


def _taint(decision: PreservationDecision) -> bool | None:
    """Set while a failed machine is kept; removed when it is well again, or no longer kept."""
    held = decision.held
    wanted = decision.preserved and bool(held.failed)
    return None if wanted is held.tainted else wanted


def _condition(decision: PreservationDecision, drained: bool | None) -> PreservedCondition | None:
    """The Node's condition, where it has to change."""
    held = decision.held
    assert held.node is not None
    found = held.node.condition(CONDITION)
    if not decision.preserved:
        if (found is None and not decision.ended) or (found is not None and found.status == "False"):
            return None
        return PreservedCondition(status="False", reason=STOPPED, message=decision.reason)
    if _drains(decision) and drained is None:
        return None
    assert decision.expiry is not None
    reason = BY_US if _automatic(decision) else BY_A_USER
    words = f"Machine preserved until {written(decision.expiry)}."
    if held.failed:
        # The result of a drain is written once: of an earlier drain the Node's condition has it already.
        failed = drained is False or (drained is None and found is not None and found.message.startswith(NOT_DRAINED))
        words = f"{NOT_DRAINED if failed else DRAINED} {words}"
    wanted = PreservedCondition(status="True", reason=reason, message=words)
    same = found is not None and (found.status, found.reason, found.message) == (wanted.status, wanted.reason, wanted.message)
    return None if same else wanted


def _differences(there: Mapping[str, str], wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    return {key: value for key, value in wanted.items() if there.get(key) != value}
