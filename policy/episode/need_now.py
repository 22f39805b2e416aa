"""Whether the reason for an episode still stands, by what a last look has read anew (S20).

Each kind of need has its own rule. All other objections are in `gate.py`, which gets this one as an input;
`activities/cluster/live/last_look.py` reads. `need_gone` (`messages.py`) says when a scan's own verdict ends a need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from policy.checks.health_check import HealthCheck
from policy.checks.rules import Rules, rules_of
from policy.checks.verdict import Health, JudgedTarget
from policy.dialects import parse
from policy.episode.fencing_requests import is_another, is_taken_up, why_withdrawn
from policy.episode.gate import Objection, Weight, preserved_as_failed
from policy.episode.messages import Need, NeedKind, need_gone
from policy.objects.nodes import NodeView
from policy.values.errors import PolicyError

_FIRST: Mapping[Weight | None, int] = {None: 0, Weight.VETOED: 1, Weight.NEED_GONE: 2}
"""The order of answers about one node: the first holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedSeen:
    """What was read for one need. node: None if there is none. asking: the health check, or the object of another system, that
    asks; None if it is gone. targets: the check's targets as they are now.

    preserving: the caller is the preservation that holds the node. held_by: what holds the node, as text. deletes_it: the
    calling episode itself deletes the Machine. takeover: a request that another controller has taken up is carried out all the
    same. unattested: why a person's request does not count, "" if it does. incident: of the caller. destructive: what is looked
    at for would disrupt.
    """

    node: NodeView | None = None
    asking: Mapping[str, Any] | None = None
    targets: Iterable[JudgedTarget] = ()
    preserving: bool = False
    held_by: str = ""
    deletes_it: bool = False
    takeover: bool = False
    unattested: str = ""
    incident: str = ""
    destructive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedNow:
    """objection: None if the need stands. unhealthy, soon: what its health check finds."""

    objection: Objection | None = None
    unhealthy: bool = False
    soon: bool = False


STANDS = NeedNow()


def need_now(need: Need, seen: NeedSeen, now: datetime) -> NeedNow:
    match need.kind:
        case NeedKind.PERSON:
            if seen.unattested:
                return _against(Weight.NOT_LICENSED, seen.unattested)
            command = need.command if seen.destructive else None
            outlived = command.outlived_by(seen.node, seen.incident) if command is not None else ""
            return _against(Weight.NEED_GONE, outlived) if outlived else STANDS
        case NeedKind.CLEAN_UP:
            if seen.destructive:
                return _against(Weight.NOT_LICENSED, "what cleans up marks that were left disrupts nothing")
            if seen.node is not None and not seen.node.ready:
                return _against(Weight.VETOED, "the node is not Ready: its marks are no mere left-overs")
            return STANDS
        case NeedKind.PRESERVATION:
            if seen.node is None or not preserved_as_failed(seen.node):
                return _against(Weight.NEED_GONE, "its Node does not say that it is kept as failed")
            if not seen.preserving:
                return _against(Weight.VETOED, f"the machine is kept, and only its preservation may cut it off; {seen.held_by}")
            return STANDS
        case NeedKind.CHECK:
            return _of_check(need, seen, now)
        case NeedKind.FOREIGN_OBJECT:
            return _of_request(need, seen)


def _against(weight: Weight, reason: str) -> NeedNow:
    return NeedNow(objection=Objection(rule="need", reason=reason, weight=weight))


def _of_request(need: Need, seen: NeedSeen) -> NeedNow:
    key = need.check.key if need.check else "the object"
    if seen.asking is None or is_another(seen.asking, need.object_uid):
        return _against(Weight.NEED_GONE, f"{key} was deleted")
    if withdrawn := why_withdrawn(seen.asking):
        return _against(Weight.NEED_GONE, f"{key}: {withdrawn}")
    if is_taken_up(seen.asking) and not seen.takeover:
        return _against(Weight.VETOED, f"{key} is in the hands of the controller that it is made for")
    return NeedNow(unhealthy=True)


def _of_check(need: Need, seen: NeedSeen, now: datetime) -> NeedNow:
    key = need.check.key if need.check else "the health check"
    if seen.asking is None or seen.asking["metadata"].get("deletionTimestamp"):
        return _against(Weight.NEED_GONE, f"{key} was deleted")
    try:
        check = parse(seen.asking)
    except PolicyError as error:
        return _against(Weight.NOT_LICENSED, f"{key} can no longer be read: {error}")
    rules = rules_of(check)
    targets = [each for each in seen.targets if rules.covers(each)]
    for each in targets if seen.deletes_it else ():
        # An earlier step of this episode asked for the deletion, which got stuck: that is no reason against the next step.
        each.machine = replace(each.machine, deleting=False) if each.machine is not None else None
    if not targets:
        return _against(Weight.NEED_GONE, f"{key} no longer selects the node")
    # As for a scan, one Machine that needs it is enough.
    found = (_of_target(need, check, rules, each, now) for each in targets)
    return min(found, key=lambda each: _FIRST[each.objection.weight if each.objection is not None else None])


def _of_target(need: Need, check: HealthCheck, rules: Rules, target: JudgedTarget, now: datetime) -> NeedNow:
    key = check.ref.key
    if check.cluster_name and target.cluster is None:
        return _against(Weight.VETOED, f"{key}: there is no Cluster {check.cluster_name}")
    verdict = rules.judge(target, now)
    if need_gone(need, verdict):
        return _against(Weight.NEED_GONE, f"{key} finds the node healthy")
    found = NeedNow(unhealthy=verdict.calls_for_action, soon=verdict.health is Health.SOON)
    paused = check.paused or (target.cluster.paused if target.cluster is not None else "")
    if paused:
        return replace(found, objection=Objection(rule="need", reason=f"{key} is paused: {paused}"))
    if not verdict.calls_for_action or verdict.health is not Health.UNHEALTHY:
        # Its time runs anew, or a person objects: the need is not gone, but the act has to wait.
        return replace(found, objection=Objection(rule="need", reason=f"{key}: {verdict.message or verdict.reason}"))
    return found
