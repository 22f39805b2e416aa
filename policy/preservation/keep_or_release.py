"""Whether one machine is kept, what follows, and what is written for it: the state machine of the proposal and of
machine-controller-manager.

    Running --now--> Running:Preserved --fails--> Failed:Preserved (drained)      Failed --kept--> Failed:Preserved
    Running:Preserved --false, removed, expiry--> Running                         Failed --not kept--> Terminating (drained first)
    Failed:Preserved --false, removed, expiry--> Terminating                      Failed:Preserved --well again--> by value

A machine has recovered when its phase is no longer Failed. Then `now` stays preserved, `when-failed` ends and is armed again, an
automatic preservation ends. At the expiry of a failed machine its Node is looked at once more: a healthy one goes on running.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.machine_snapshot import (
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
    SINCE_ANNOTATION,
    STOPPED,
    Held,
    Isolation,
    MachinePhase,
    first_to_go_mark,
    mistaken,
    ranked,
)
from policy.preservation.requests import (
    ISOLATE_ANNOTATION,
    LAST_APPLIED_ANNOTATION,
    PRESERVE_FOR_ANNOTATION,
    Intent,
    Request,
    isolation_asked,
)
from policy.values.mode import Mode
from policy.values.times import EARLIEST, RESOLUTION, format_duration, later, written


class PreservationAction(StrEnum):
    NONE = "none"
    PRESERVE = "preserve"
    """Begin to keep it; one that has failed is drained with it."""
    DRAIN = "drain"
    """It is kept already, and has failed since: no new pods, and the old ones are drained."""
    STOP = "stop"
    """No longer kept, and it goes on running."""
    TERMINATE = "terminate"
    """Drained and deleted: it has failed, and it is not kept (any longer)."""


class Automatic(StrEnum):
    """The cap's answer about a machine; see `policy/preservation/pool_cap.py`."""

    NOTHING = ""
    SELECTED = "selected"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservationDecision:
    """The decision about one machine at one moment.

    intent: the value in force. request: where it comes from. preserved: whether it is kept from now on. expiry: until when.
    ended: a preservation ends with this decision. recovered: it ends because the machine is well again. withdraw: its
    annotation is used up and will be removed. automatic: the cap's answer. isolate: it has failed, is kept, and is to be
    isolated meanwhile. drain_waits: the drain that is due waits for a higher mode.
    """

    held: Held
    intent: Intent
    request: Request
    action: PreservationAction
    reason: str
    preserved: bool = False
    expiry: datetime | None = None
    ended: bool = False
    recovered: bool = False
    withdraw: bool = False
    warnings: tuple[str, ...] = ()
    automatic: Automatic = Automatic.NOTHING
    isolate: bool = False
    drain_waits: bool = False

    @property
    def begins_for_pool(self) -> bool:
        """Whether no person asks for the preservation that begins, but a pool, or the annotation that a pool writes."""
        return self.action is PreservationAction.PRESERVE and self.intent is Intent.AUTOMATIC

    @property
    def phase(self) -> str:
        """The phase that results, with the proposal's sub-phase: `Failed:Preserved`."""
        if self.action is PreservationAction.TERMINATE or self.held.deleting:
            return MachinePhase.TERMINATING.value
        phase = self.held.phase
        if phase is MachinePhase.FAILED and self.action is PreservationAction.STOP and self.recovered:
            phase = MachinePhase.RUNNING
        return f"{phase.value}:Preserved" if self.preserved else phase.value


def decide(
    held: Held,
    *,
    now: datetime,
    timeout: timedelta,
    automatic: Automatic = Automatic.NOTHING,
    released: str = "",
    until: datetime | None = None,
) -> PreservationDecision:
    """The decision about this machine now. timeout: of its pool, for a preservation that begins. released: who ends one, and
    why. until: the new end that a person has set; it counts even if the former one is over by now."""
    return _Deciding(held, now, timeout, automatic, released=released, until=until).decide()


def keeps(held: Held, now: datetime) -> bool:
    """Whether the annotations keep the machine from being terminated for its failure (S27), begun or not.

    Asked live right before a deletion as well, with the same rules as everywhere, so that two looks can't contradict each
    other.
    """
    decision = decide(held, now=now, timeout=timedelta(hours=1))
    return decision.preserved or decision.action is PreservationAction.NONE


def within_mode(decision: PreservationDecision, mode: Mode) -> PreservationDecision:
    """What its pool alone wants done to a machine that is kept waits until its mode allows that (S52): evictions need `drain`,
    isolation `repair`. What a person asks for is done in every mode."""
    if mode is Mode.REPAIR:
        return decision
    held = decision.held
    if _drains(decision) and decision.intent not in {Intent.NOW, Intent.WHEN_FAILED} and not mode.allows(Mode.DRAIN):
        kept = PreservationAction.NONE if decision.action is PreservationAction.DRAIN else decision.action
        decision = replace(decision, action=kept, drain_waits=True)
    by_person, _ = isolation_asked(held.on_node, held.annotations if held.machine else {}, pool=False)
    return decision if by_person else replace(decision, isolate=False)


def for_its_pool(decision: PreservationDecision, mode: Mode, why: str, now: datetime) -> PreservationDecision:
    """What comes of it in this mode, where no person says more than the annotations (S52): in observe a pool begins to keep none,
    and only in repair a machine is let go since the cap has fallen, or given up. why: the mode, in words."""
    if mode is Mode.REPAIR:
        return decision
    if decision.begins_for_pool and mode is Mode.OBSERVE:
        return left_alone(decision, f"it is not kept for its pool: {why}")
    if decision.automatic is Automatic.RELEASED and decision.held.expiry is not None:
        stays = decide(decision.held, now=now, timeout=decision.held.expiry - now)
        decision = replace(stays, reason=f"{stays.reason}; {not_given_up(why)}")
    limited = within_mode(decision, mode)
    if limited != decision:
        limited = replace(limited, reason=f"{limited.reason}; {not_yet(limited, why)}")
    if limited.action is PreservationAction.TERMINATE and limited.ended:
        reason = f"{limited.reason}; {not_given_up(why)}"
        return replace(limited, action=PreservationAction.STOP, reason=reason)
    return limited


def not_yet(limited: PreservationDecision, why: str) -> str:
    """What its pool wants done to a kept machine, and waits for its mode."""
    return f"it is not {'drained' if limited.drain_waits else 'cut off'}: {why}"


def not_given_up(why: str) -> str:
    """Of a machine that has failed, and is kept no longer."""
    return f"its Machine is not given up: {why}"


def left_alone(decision: PreservationDecision, reason: str) -> PreservationDecision:
    """Of a machine that is not kept: nothing is written for it, and it is not given up."""
    alone = Request(intent=Intent.NONE)
    return replace(
        decision,
        intent=alone.intent,
        request=alone,
        action=PreservationAction.NONE,
        reason=reason,
        preserved=False,
        expiry=None,
        isolate=False,
    )


class _Deciding:
    def __init__(
        self, held: Held, now: datetime, timeout: timedelta, automatic: Automatic, *, released: str, until: datetime | None
    ) -> None:
        self._held = held
        self._until = until
        self._released = released
        self._now = now
        self._automatic = automatic
        self._request = held.request
        self._intent = self._request.intent
        on_machine = held.annotations if held.machine else {}
        self._isolate, _ = isolation_asked(held.on_node, on_machine, pool=held.pool_isolates)
        self._timeout = held.lasts(timeout)
        self._warnings = mistaken(held)

    def decide(self) -> PreservationDecision:
        held = self._held
        if held.deleting or held.phase is MachinePhase.TERMINATING:
            return self._decision(
                PreservationAction.NONE, "it is being deleted, which beats any preservation", ended=held.expiry is not None
            )
        if held.expiry is None:
            return self._free()
        return self._kept()

    def _free(self) -> PreservationDecision:
        """It is not kept so far."""
        held, intent = self._held, self._intent
        if self._released:
            action = PreservationAction.TERMINATE if held.failed else PreservationAction.NONE
            return self._decision(action, self._released, withdraw=True)
        if held.failed and held.ended_well and held.well:
            return self._decision(
                PreservationAction.NONE, "its Node was found healthy when its time was over, and still is: it runs on"
            )
        if self._automatic is Automatic.SELECTED and intent is Intent.NONE and held.failed and not held.ended:
            # The cap chose it a moment ago: annotations and changes since then take precedence.
            self._intent = Intent.AUTOMATIC
            return self._begin("it has failed, and the pool keeps failed machines")
        if intent is Intent.NOW:
            return self._begin("asked for by annotation")
        if intent is Intent.WHEN_FAILED and held.failed:
            return self._begin(f"asked for by annotation, and it has failed: {held.failed}")
        if intent is Intent.AUTOMATIC and held.failed and not held.ended and self._automatic is not Automatic.RELEASED:
            return self._begin(f"annotated as automatically preserved, and it has failed: {held.failed}")
        if held.failed:
            # The cap's own annotation is removed, or the look before the deletion would take it for a person's.
            return self._decision(
                PreservationAction.TERMINATE, f"{self._why_not()}: {held.failed}", withdraw=intent is Intent.AUTOMATIC
            )
        waiting = intent is Intent.WHEN_FAILED
        reason = "would be preserved once it fails" if waiting else "nothing keeps it, and it has not failed"
        return self._decision(PreservationAction.NONE, reason)

    def _why_not(self) -> str:
        if self._intent is Intent.FALSE:
            return "it has failed, and its annotation says that it is not to be preserved"
        if self._automatic is Automatic.RELEASED:
            return "it has failed, and the pool keeps no more"
        if self._held.ended:
            return "it has failed, and this failure has been preserved before"
        return "it has failed, and nothing keeps it"

    @property
    def _ends(self) -> datetime | None:
        return self._until or self._held.expiry

    def _kept(self) -> PreservationDecision:
        held, intent, expiry = self._held, self._intent, self._ends
        assert expiry is not None
        if expiry <= self._now:
            return self._expire(expiry)
        if self._released:
            return self._end(self._released, withdraw=True)
        if self._request.unreadable:
            return self._go_on("goes on as it was: the annotation of its Node can't be read")
        ours = intent is Intent.AUTOMATIC or (intent is Intent.NONE and held.condition_reason == BY_US)
        if self._automatic is Automatic.RELEASED and ours:
            return self._end("the pool keeps fewer machines, and this one expires first", withdraw=True)
        if intent is Intent.NONE and ours:
            self._intent = Intent.AUTOMATIC
            return self._automatically("an automatic preservation is not released by removing its annotation, which is put back")
        match intent:
            case Intent.NONE:
                return self._end("released: its annotation is gone")
            case Intent.FALSE:
                return self._end("released by annotation")
            case Intent.AUTOMATIC:
                return self._automatically("preserved automatically")
            case Intent.WHEN_FAILED if not held.failed:
                return self._end("it is well again; its annotation is armed for another failure", recovered=True)
            case _:
                return self._go_on("preserved on request")

    def _automatically(self, reason: str) -> PreservationDecision:
        if not self._held.failed:
            return self._end("it is well again", withdraw=True, recovered=True)
        return self._go_on(reason)

    def _expire(self, expiry: datetime) -> PreservationDecision:
        when = f"expired at {written(expiry)}"
        if self._held.failed and self._held.well:
            return self._decision(
                PreservationAction.STOP, f"{when}, and its Node is healthy", ended=True, withdraw=True, recovered=True
            )
        return self._end(when, withdraw=True)

    def _end(self, reason: str, *, withdraw: bool = False, recovered: bool = False) -> PreservationDecision:
        action = PreservationAction.TERMINATE if self._held.failed else PreservationAction.STOP
        return self._decision(action, reason, ended=True, withdraw=withdraw, recovered=recovered)

    def _begin(self, reason: str) -> PreservationDecision:
        expiry = self._until or later(self._now, self._timeout)
        if expiry.microsecond:
            expiry = later(expiry.replace(microsecond=0), RESOLUTION)  # as the API writes it, and never early
        words = f"{reason}; for {format_duration(self._timeout)}"
        return self._decision(PreservationAction.PRESERVE, words, preserved=True, expiry=expiry)

    def _go_on(self, reason: str) -> PreservationDecision:
        held = self._held
        due = bool(held.failed) and held.node is not None and not (held.drain_is_over and held.tainted)
        if due:
            return self._decision(
                PreservationAction.DRAIN, f"{reason}, and has failed: {held.failed}", preserved=True, expiry=self._ends
            )
        return self._decision(PreservationAction.NONE, reason, preserved=True, expiry=self._ends)

    def _decision(
        self,
        action: PreservationAction,
        reason: str,
        *,
        preserved: bool = False,
        expiry: datetime | None = None,
        ended: bool = False,
        recovered: bool = False,
        withdraw: bool = False,
    ) -> PreservationDecision:
        return PreservationDecision(
            held=self._held,
            intent=self._intent,
            request=self._request,
            action=action,
            reason=reason,
            preserved=preserved,
            expiry=expiry,
            ended=ended,
            recovered=recovered,
            withdraw=withdraw,
            warnings=(*self._warnings, *([first] if preserved and (first := first_to_go_mark(self._held)) else [])),
            automatic=self._automatic,
            isolate=self._isolate and preserved and bool(self._held.failed) and self._held.node is not None,
        )


# Why a preserved machine is deleted by another controller all the same: by the state of the sets above it (S21, S26).
#
# An API does not record who asked for a deletion. What can be read is whether the sets still want the machine. A
# MachineDeployment, or a MachineSet without one, that wants no machine is hibernated, or was scaled to zero by hand. A deployment
# with a newer MachineSet is being rolled. Else a person or a program has deleted the machine, or a set that is scaled down has
# chosen it.


class Override(StrEnum):
    """What takes precedence over a preservation."""

    NONE = ""
    HIBERNATION = "hibernation"
    ROLLING_UPDATE = "rolling update"
    DELETION = "deletion"
    """Requested by a person, a program, or a set that is scaled down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedReplicas:
    """A MachineSet, or the MachineDeployment above it: how many machines it wants. replicas: None where it does not say.

    revision: the newest set of a deployment has the highest; a roll-back gives an old set a new one. created: decides where
    there are no revisions.
    """

    kind: str
    name: str
    replicas: int | None = None
    deleting: bool = False
    revision: int = 0
    created: datetime | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overridden:
    """Which override it was, and the evidence for it, for people."""

    override: Override = Override.NONE
    why: str = ""

    @property
    def sentence(self) -> str:
        """Both; "" where nothing was overridden."""
        return f"{self.override.value}: {self.why}" if self.override else ""


NOT_OVERRIDDEN = Overridden()


def overridden_by(
    own: WantedReplicas | None, deployment: WantedReplicas | None = None, others: Iterable[WantedReplicas] = ()
) -> Overridden:
    """Which override the sets show. own: the MachineSet of the machine, None where it has none (any more); others: further
    MachineSets of its deployment."""
    if own is None:
        return Overridden(override=Override.DELETION, why="its deletion was asked for, and no MachineSet is known above it")
    top = deployment or own
    for each in (top, own):
        if each.deleting:
            return Overridden(override=Override.DELETION, why=f"{each} is being deleted with its machines")
    if top.replicas == 0:
        return Overridden(override=Override.HIBERNATION, why=f"{top} is scaled to 0")
    newest = max((each for each in others if each.replicas and not each.deleting), key=_age, default=None)
    if newest is not None and _age(newest) > _age(own):
        return Overridden(override=Override.ROLLING_UPDATE, why=f"{top} replaces the machines of {own} by those of {newest}")
    if own.replicas == 0:
        return Overridden(override=Override.HIBERNATION, why=f"{own} is scaled to 0")
    many = "" if own.replicas is None else f", which is to have {own.replicas}"
    return Overridden(override=Override.DELETION, why=f"asked for by a person or a program, or by {own}{many}")


def _age(each: WantedReplicas) -> tuple[int, datetime]:
    return each.revision, each.created or EARLIEST


# What has to be written for a decision: the Machine's and the Node's annotations, the expiry, our taint, the condition.
#
# Only differences, so a second write changes nothing, and a writer that stopped half-way can go on. What the user wrote stays as
# it is, byte for byte (S28): a cordon is never touched, and `scale-down-disabled` is removed only where our mark shows that it is
# ours.


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

    def with_since(self, held: Held, since: datetime | None) -> Effects:
        """With the moment at which its preservation began; None: to be removed."""
        value = {SINCE_ANNOTATION: written(since) if since is not None else None}
        if held.machine:
            return replace(self, machine={**self.machine, **value})
        return replace(self, node={**self.node, **value})


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
        drain=has_node and _drains(decision) and drained is None and not decision.drain_waits,
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
    elif request.recorded:
        wanted |= {PRESERVE_ANNOTATION: request.recorded, LAST_APPLIED_ANNOTATION: None}
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
        return {ENDED_ANNOTATION: None} if decision.preserved else {ENDED_ANNOTATION: None, SINCE_ANNOTATION: None}
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
    held = decision.held
    assert held.node is not None
    found = held.node.condition(CONDITION)
    if not decision.preserved:
        if (found is None and not decision.ended) or (found is not None and found.status == "False"):
            return None
        return PreservedCondition(status="False", reason=STOPPED, message=decision.reason)
    waits = decision.drain_waits and drained is None
    if _drains(decision) and drained is None and not waits:
        return None
    assert decision.expiry is not None
    reason = BY_US if _automatic(decision) else BY_A_USER
    words = f"Machine preserved until {written(decision.expiry)}."
    if held.failed and not waits:
        # The result of a drain is written once: of an earlier drain the Node's condition has it already.
        failed = drained is False or (drained is None and found is not None and found.message.startswith(NOT_DRAINED))
        words = f"{NOT_DRAINED if failed else DRAINED} {words}"
    wanted = PreservedCondition(status="True", reason=reason, message=words)
    same = found is not None and (found.status, found.reason, found.message) == (wanted.status, wanted.reason, wanted.message)
    return None if same else wanted


def _differences(there: Mapping[str, str], wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    return {key: value for key, value in wanted.items() if there.get(key) != value}
