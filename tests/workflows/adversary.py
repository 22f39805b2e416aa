"""An adversary for the property tests: it plays everything that an episode speaks to, and plays it as badly as the world can.

A script of faults is used up by one entry per attempt at an activity. What an activity does to the machine and its Node is that
of every played world (`played_acts.py`); whether it should have been asked at all is for the referee, which knows the truth.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from temporalio.common import MetricMeter
from temporalio.exceptions import ApplicationError

from activities.contracts.preservation import GiveUpResult
from activities.errors import ErrorType, failure
from activities.keyring import Keyring
from activities.licences import DeviceCommand, Licences
from activities.worker_clock import problem_of
from policy.checks.fence_policies import NO_POLICIES
from policy.episode.gate import MODE_NEEDED, By, Objection, Operation, Seen, objection
from policy.episode.messages import Kind, Need, NeedKind, Pinned, Reading, RecordEntry, RemediationInput, VolumeReading
from policy.episode.permits import PermitAnswer, PermitDecision, PortionAnswer, Release
from policy.episode.proofs import compare_identity
from policy.fence.kdump import KdumpReading
from policy.fence.plan import FencingPlan
from policy.fence.power import PowerAct, PowerState, VolumeState
from policy.objects.nodes import READY, Condition, NodeView
from policy.remediation.failed_volumes import AttachedVolume, Failure, PodOnNode
from policy.values.mode import Mode
from tests.workflows import contract
from tests.workflows.attempts import START, Attempt, Lost
from tests.workflows.contract import LookVerdict, act_of
from tests.workflows.faults import LASTING, SELF, SPOKEN, Fault, PlacedFault
from tests.workflows.machine import MACHINE, MACHINE_UID, OURS, Machine, MachineObject, RemediationObject
from tests.workflows.plans import ASKS
from tests.workflows.played_acts import DELETION_ASKED, DeviceActs, MachineActs, NodeActs, at_once, kind_of
from tests.workflows.referee import HEARD, Referee
from workflows.kit.options import WORKFLOW_QUEUE

CAPPED = 700
"""So many attempts and the adversary has had its fun: from then on the world works."""
AGAIN = "read_again"
"""A reading of power is one to be ambushed by that name once its device has said off since it was switched off."""
COUNTED = "read_workload"
"""A look that tells what stands against the node as well is one to be ambushed by that name."""
FORBIDDEN_NOW = "of an API server that has just started"
THEIRS = "theirs"
PASSES = timedelta(seconds=55)
"""What an API server refuses for so long may pass yet: a minute is promised, from the first try on."""
INSISTED = ("can't be removed", "can't be deleted", "can't be given back", "can't be taken", "can't be answered")
"""What is tried again however often it takes, also after a person was told."""
OTHERS_HEARD = timedelta(minutes=3)
"""So long before others act upon what they were asked for, an objection has come early enough for it to be taken back."""
RIVAL = timedelta(seconds=60)
"""How long another deployment's fencing takes, from its off to its on."""
DESTRUCTIVE = frozenset({"power_off", "cut_path", "quarantine", "detach_volume", "drain"})
ASKED_FOR = frozenset(ASKS.values())
"""What a ladder has others do, and can't be undone, or not by us."""
GUARDED = frozenset({"power_off", "cut_path", "quarantine", "detach_volume", "drain", "terminate", "taint_out_of_service"}) | {
    "give_up",
    "create_object",
    "delete_workload",
    "delete_node",
    "free_cut_pods",
    "free_while_dumping",
}
"""What a worker refuses on its own node (S16)."""
WRITES = (
    ASKED_FOR
    | {"mark", "mark_unschedulable", "taint", "note_path", "mark_schedulable", "taint_out_of_service"}
    | {"delete_workload", "delete_node", "free_cut_pods", "free_while_dumping", "untaint_out_of_service", "drain"}
)
FREEING = frozenset({"taint_out_of_service", "delete_workload"})
FREES = FREEING | {"delete_node", "terminate", "free_cut_pods", "free_while_dumping"}
KEEPS_BOOKS = frozenset({"remember", "release_lease"})
SWITCHES = frozenset({"power_off", "power_on", "cut_path", "restore_path"})
COMMANDS = SWITCHES | {"detach_volume", "quarantine", "terminate"}
BEGINS = ASKED_FOR | COMMANDS | DESTRUCTIVE | {"mark_unschedulable", "taint"}
"""By which a repair has begun, for whoever counts them (S19)."""


def look_of(request: Any) -> Any:
    """The look that is asked for, by itself or with an act."""
    before = getattr(request, "before", None)
    return before.look if before is not None else getattr(request, "look", request)


def mended(plan: FencingPlan) -> FencingPlan:
    """The same with other plugs."""
    levels = tuple(tuple(replace(device, endpoint=f"{device.endpoint}0") for device in level) for level in plan.levels)
    return replace(plan, levels=levels)


def regrouped(plan: FencingPlan) -> FencingPlan:
    """The same with one more supply in its first level."""
    first, *others = plan.levels
    return replace(plan, levels=((*first, replace(first[0], endpoint=f"{first[0].endpoint}1")), *others))


KEYS = Keyring([b"what the workers of this play sign with"])
SILENT = logging.getLogger("of the played workers")
SILENT.disabled = True
SPEAKS = timedelta(seconds=10)
"""How often fence_kdump does."""


@dataclass
class Played:
    """What the parts of an adversary share. say: hands what is said to the run of the episode, so many seconds later. grant:
    asks him for a permit that was queued for."""

    plan: FencingPlan
    need: Need
    script: deque[tuple[Fault, float]]
    machine: Machine = field(init=False)
    referee: Referee = field(init=False)
    placed_faults: list[PlacedFault] = field(default_factory=list)
    lingers: float = 0.0
    machine_object: MachineObject = field(default_factory=MachineObject)
    skews: tuple[float, ...] = (0.0,)
    """By how many seconds the clock of each worker is ahead."""
    vetoed: datetime | None = None
    leased: datetime | None = None
    """Since when a veto stands on the Node, or another one holds its lease."""
    unlicensed: datetime | None = None
    """Since when the cluster Lease or the permit can't be shown."""
    refusing: bool = False
    """A circuit breaker is open: no permit is granted."""
    busy_until: datetime = START
    """Until then the API server takes no writes that only keep books."""
    forbidding: tuple[datetime, datetime] = (START, START)
    """From when until when the API server refuses everything with 403."""
    waited_before: bool = False
    """What it refused last had waited for a worker before, which uses up the same minute."""
    begun: set[str] = field(default_factory=set)
    """The incidents that have looked at the machine."""
    mode: Mode = Mode.REPAIR
    lowered: datetime | None = None
    """How far a program may go with it, and since when that is less than it was."""
    paused: datetime | None = None
    """Since when its Cluster API Cluster is paused."""
    unanswered_until: datetime = START
    """Until then every write is carried out, and its answer is lost on the way."""
    climbs_without_freeing: bool = False
    """The episode is a ladder of which no step frees anything."""
    ready_last: datetime = START
    """When the node last said Ready."""
    gone_since: datetime | None = None
    """Since when the Machine is gone."""
    waits_in_vain: datetime | None = None
    """Since when a ladder reads an object of another incident, which had its time before."""
    pinned_at: datetime = START
    """When a ladder has last pinned its target."""
    deletion_underway: datetime = START
    """Until when a request for the Machine's deletion may still arrive."""
    permit_lost: datetime | None = None
    """Since when the scanner knows nothing of the permit, and has not been asked for another one."""
    done_by: set[str] = field(default_factory=set)
    """Incidents that have done something about the machine, for all that is known."""
    told_over: datetime = START - timedelta(seconds=1)
    """When others were last told, or were to be, that what they were asked for is over."""
    check_paused: datetime | None = None
    """Since when the check that asks for it is paused."""
    attests: bool = True
    """Whether Kubernetes attests who overrides a circuit breaker."""
    past_breaker: set[str] = field(default_factory=set)
    """The incidents that have their permit past an open circuit breaker."""
    unwanted: datetime | None = None
    """Since when it is not asked for any more."""
    dead: set[str] = field(default_factory=set)
    """Devices that never answer again."""
    heard_since: datetime = START
    """When devices that were silent began to speak again."""
    reconfigured: bool = False
    configured: FencingPlan | None = None
    """By which the node is to be fenced by now, since `changed`, where that is not the plan."""
    changed: datetime = START
    asked_for_a_person: int = 0
    streamed: dict[tuple[str, int], RecordEntry] = field(default_factory=dict)
    """The lines of records that were written to the decision stream, by run and number."""
    noted: set[str] = field(default_factory=set)
    """What the latest episode has noted as cut, or found noted when it began."""
    meddled: bool = False
    """Another one has switched the machine off last."""
    zombies: int = 0
    """How often a worker that was given up has written all the same."""
    switched_on: bool = False
    """Another one has switched the machine on."""
    acts: list[str] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    """How often each act was attempted."""
    answers: list[str] = field(default_factory=list)
    say: Callable[[Fault, float], None] = lambda _fault, _delay: None
    grant: Callable[[], None] = lambda: None
    now: datetime = START
    away: list[tuple[datetime, datetime]] = field(default_factory=list)
    """From when until when no worker was there, or no Temporal."""
    clock_of_api: timedelta = timedelta(0)
    """How far the API server's clock is ahead."""
    _served: int = 0
    _fault: Fault = Fault.NOTHING
    _delay: float = 0.0
    _attempt: Attempt | None = None
    workers: tuple[Licences, Licences] = field(default_factory=lambda: (Licences(KEYS), Licences(KEYS)))
    """The guards of two workers of its site: each knows of the licences that itself has seen used."""

    def __post_init__(self) -> None:
        self.machine = Machine(plan=self.plan, lingers=self.lingers)
        self.machine.hidden = self.runs_unseen
        self.referee = Referee(machine=self.machine, plan=self.plan)

    @property
    def skew(self) -> timedelta:
        """How much the clock of the worker that has taken the attempt is ahead."""
        return timedelta(seconds=Random(self._served).choice(self.skews))

    @property
    def wanted(self) -> bool:
        """Whether it is still asked for."""
        return self.unwanted is None

    @property
    def several(self) -> bool:
        """Whether the machine has several supplies in its first level."""
        return bool(self.plan.levels) and len(self.plan.levels[0]) > 1

    def vetoes(self) -> dict[str, datetime]:
        """Who says hands off, wherever he says it, and since when."""
        vetoes = {
            "a person says hands off": self.vetoed,
            "another one services it": self.leased,
            "it is kept": self.machine_object.preserved,
        }
        return {what: since for what, since in vetoes.items() if since is not None}

    def kept_out(self, operation: Operation) -> Objection | None:
        """What the gate itself makes of a Cluster that is paused; all else is played by other means."""
        why = "spec.paused is true" if self.paused is not None else ""
        seen = Seen(machines=(), pause=why, lease="", cluster_lease="", permit="", policies=NO_POLICIES)
        return objection(seen, operation, By.PERSON, self.now)

    def runs_unseen(self) -> bool:
        """Whether the only devices that could tell that the machine runs are silent."""
        mute = self.machine.silent | self.machine.locked
        return self.machine.miswired and all(each.endpoint in mute for each in self.plan.levels[0])

    def ran_unseen(self, moment: datetime | None) -> bool:
        """Whether no source could say that it runs: not at the end, or not at that moment, when its devices were last asked."""
        return self.runs_unseen() or (self.machine.miswired and moment is not None and self.heard_since >= moment)

    def is_off_by_others(self) -> bool:
        """Whether a level is dark that no episode has switched off of which the present one can know: where its Node is deleted,
        with the mark on it, a terminated one leaves its successor nothing to find or to pin."""
        unknown = set() if self.machine.present else self.referee.unaware
        offs = {each.endpoint for each in self.referee.commands if each.state is PowerState.OFF and each.incident not in unknown}
        return any(not offs & set(level) for level in self.machine.dark)

    def only_restores(self, incident: str) -> bool:
        """Whether all that an episode has left to do is to switch the machine on."""
        plan, referee = self.plan, self.referee
        if not plan.power_on or plan.terminate_instance or plan.delete_node or referee.all_freed_by != incident:
            return False
        return not (self.machine.pods or self.machine.runs or self.machine.cut_pods) and referee.off_by == incident

    def without_us(self, since: datetime) -> timedelta:
        """How long since then no worker was there."""
        return sum((until - max(begins, since) for begins, until in self.away if until > since), timedelta(0))

    @property
    def may_act(self) -> bool:
        """Whether anything is to be done just now, for all that people, the mode and the scanner say."""
        free = self.referee.permit and self.permit_lost is None and self.unlicensed is None and self.lowered is None
        return free and not self.referee.held_now

    @property
    def broken(self) -> list[str]:
        """What the referee has found."""
        return self.referee.broken


class PlayedActs(Played, NodeActs, DeviceActs, MachineActs):
    """The acts on this machine, with what its referee and its faults make of them."""

    @property
    def moment(self) -> datetime:
        return self.now

    @property
    def clock(self) -> datetime:
        return self.now + self.skew

    def fault(self, rule: str, what: str) -> None:
        self.referee.fault(rule, what)

    # The Node -------------------------------------------------------------------------------------------------------

    def identity(self) -> tuple[str, str, str]:
        assert self._attempt is not None
        return self._attempt.workflow_id, self._attempt.run_id, self._attempt.kind

    def begins(self, request: contract.PinRequest) -> None:
        if not self.machine.present or self.machine.holder != OURS:
            raise failure(ErrorType.NOT_FOUND, "there is no such Node, or nothing is planned for it")
        self._begins(request.wanted.incident)

    def _begins(self, incident: str) -> None:
        """An episode's first look: it can't know what no source can say."""
        if incident in self.begun:
            return
        self.begun.add(incident)
        mark = self.machine.mark
        self.referee.unaware = set() if mark is not None else {each.incident for each in self.referee.commands}
        self.noted = set(mark.paths) if mark is not None else set()

    def is_reset(self, since: datetime, *, whole: bool) -> None:
        """The episode knows nothing of what it did since. whole: nor anything else, as one that follows a terminated one."""
        self.referee.is_reset(self.now, since)
        if whole:
            kept = self.machine_object
            for made in kept.objects.values():  # the scanner's to find, as those of a terminated episode
                made.by += ", before its reset"
            kept.annotated_by = kept.owner_asked_by = kept.claimed_by = ""
            self.begun -= {each.incident for each in self.referee.commands}
            for each in self.referee.commands:
                each.incident += ", before its reset"

    async def pin(self, request: contract.PinRequest) -> contract.PinResult:
        pinned = await super().pin(request)
        if pinned.cordoned:
            self.acts.append("mark_unschedulable")
        return replace(pinned, plan=pinned.plan.with_levels)  # as it is sealed: a device of no level switches no machine off

    async def last_look(self, request: contract.LookRequest) -> contract.LookResult:
        machine, pinned, referee = self.machine, request.target.pinned, self.referee
        seen, configured = machine.seen_node(), self.configured or self.plan
        difference = compare_identity(pinned, seen, destructive=request.destructive)
        if not (pinned.uid or seen.present):
            difference = ""  # of a Machine without a Node there is nothing to compare
        gone = request.need_matters and self._need_is_gone(request.need)
        verdict = LookVerdict.GO
        if difference:
            verdict = LookVerdict.TARGET_CHANGED
        elif request.restores and self._veto():
            verdict = LookVerdict.VETOED
        elif (request.not_after is not None and self.now + self.skew > request.not_after) or (
            self._fault is Fault.UNLICENSED and (request.destructive or request.need_matters)
        ):
            verdict = LookVerdict.NOT_LICENSED
        elif gone:
            verdict = LookVerdict.NEED_GONE
        elif (
            request.configured is not None
            and not request.restores
            and machine.present
            and set(pinned.endpoints) - {""}
            and set(pinned.endpoints) != set(configured.endpoints)
        ):
            verdict = LookVerdict.TARGET_CHANGED
        elif self._is_not_to_be_done(request):
            verdict = LookVerdict.VETOED
        elif self._is_stopped_by_mode(request) or (request.destructive and not self._may_disrupt(request.target)):
            verdict = LookVerdict.NOT_LICENSED
        elif self._veto():
            verdict = LookVerdict.VETOED
        elif (kept_out := self.kept_out(request.operation)) is not None:
            verdict = LookVerdict(kept_out.weight)
        elif request.restores:
            verdict = self._in_other_hands(request.target)
        if self._fault not in {Fault.LOST_AFTER, Fault.LATE}:
            referee.looked_last = self.now
            if not request.need_matters:
                referee.looked_before_restoring = self.now
            if request.destructive:
                referee.looks(self.now, request.target, go=verdict is LookVerdict.GO)
                word, past = request.target.override, request.target.incident in self.past_breaker
                if verdict is LookVerdict.GO and past and word is not None and seen.ready and seen.boot_id != word.boot_id:
                    referee.fault("S17", "a circuit breaker is overridden by the word of a boot that is over")
            if request.need_matters:
                referee.need_gone = verdict is LookVerdict.NEED_GONE
        asked = request.configured is not None and machine.present
        by_mode = verdict is LookVerdict.NOT_LICENSED and self._is_stopped_by_mode(request)
        return contract.LookResult(
            verdict=verdict,
            reason=f"{verdict}: {difference}",
            at=self.now,
            seen=seen,
            endpoints=configured.endpoints if asked else None,
            workload=self.standing() if request.counts else None,
            held_by_mode=by_mode,
            permitted=self.holds_permit(),
            licence=self._licence(request) if verdict is LookVerdict.GO else "",
        )

    def _is_not_to_be_done(self, request: contract.LookRequest) -> bool:
        """By whoever asks for it: as yet, or while its check is paused."""
        as_yet = request.need.kind is NeedKind.CLEAN_UP and not self.machine.ready
        return request.need_matters and (as_yet or (request.need.kind is NeedKind.CHECK and self.check_paused is not None))

    def _may_disrupt(self, target: contract.Target) -> bool:
        """By the Lease and the permit. One past an open circuit breaker licenses nothing without the sealed word (S17)."""
        overridden = target.incident not in self.past_breaker or self._is_overridden(target)
        return self.holds_permit() and self.unlicensed is None and overridden

    def _is_overridden(self, target: contract.Target) -> bool:
        machine = self.machine
        ready = Condition(type=READY, status="True" if machine.ready else "Unknown")
        node = (
            NodeView(name=machine.name, uid=machine.uid, boot_id=machine.boot_id, conditions=(ready,))
            if machine.present
            else None
        )
        return bool(self.workers[0].overridden(target, node))

    def verify(self, request: contract.VerifyRequest) -> contract.Verification:
        if not self.attests:
            return contract.Verification(problem="there is no such NodeAction")
        machine = self.machine
        word = contract.SealedCommand(
            spec=request.spec, action=request.action.uid, speaker="ada", node_uid=machine.uid, boot_id=machine.boot_id
        )
        return contract.Verification(speaker="ada", sealed=self.workers[0].seal_command(request.cluster, request.incident, word))

    def _is_stopped_by_mode(self, request: contract.LookRequest) -> bool:
        asked = request.destructive and request.need.kind.automatic
        return asked and not self.mode.allows(MODE_NEEDED.get(request.operation, Mode.REPAIR))

    def _licence(self, request: contract.LookRequest) -> str:
        return self.workers[0].licence(request.target, request.licenses, self.clock) if request.licenses is not None else ""

    def _require_licence(self, request: DeviceCommand, act: PowerAct) -> None:
        Random(self._served).choice(self.workers).require_licence(request, act)
        assert self._attempt is not None
        self.referee.uses(self._attempt, f"{act.value} {request.device.endpoint}")

    def _in_other_hands(self, target: contract.Target) -> LookVerdict:
        mark, rival = self.machine.mark if self.machine.present else None, self.referee.rival
        if mark is not None:
            return LookVerdict.GO if self.is_ours(mark, target) else LookVerdict.VETOED
        taken = rival is not None and rival[0] <= self.now and self.unlicensed is not None
        return LookVerdict.NOT_LICENSED if taken else LookVerdict.GO

    def _veto(self) -> bool:
        return bool(self.vetoes())

    def _need_is_gone(self, need: Need) -> bool:
        return (not self.wanted and need.kind.automatic) or (need.kind is NeedKind.CHECK and self.machine.ready)

    def release_lease(self, request: contract.ReleaseRequest) -> None:
        pass

    def publish(self, request: contract.PublishRequest) -> None:
        """People hear the same, whichever act takes the news along (`Adversary.perform`)."""

    def answer_request(self, request: contract.AnswerRequest) -> contract.AnswerResult:
        if self.wanted:
            self.answers.append(request.answer.stage)
        return contract.AnswerResult(withdrawn="" if self.wanted else "it was deleted")

    async def drain(self, request: contract.DrainRequest) -> contract.DrainResult:
        self.require_ours(request.target)
        if self._fault is Fault.SLOW:
            return contract.DrainResult(left=2, names=("a", "b"))
        return contract.DrainResult(errors=("pod without a controller",) if self.machine.stubborn else ())

    async def note_path(self, request: contract.PathRequest) -> contract.ActResult:
        done = await super().note_path(request)
        if request.cut:
            self.noted.add(request.endpoint)
        return done

    def require_leave(self, request: contract.FreeRequest) -> None:
        if self._veto() or self.kept_out(Operation.DELETE_NODE) is not None:
            raise failure(ErrorType.VETOED, "a person says hands off")
        if self.unlicensed is not None or not self.holds_permit():
            raise failure(ErrorType.NOT_LICENSED, "its licence can't be shown")

    def freed(self, target: contract.Target, *, all_of_it: bool) -> None:
        self.referee.has_freed(target.incident, all_of_it=all_of_it)

    # Devices --------------------------------------------------------------------------------------------------------

    def commanded(self, request: contract.PowerRequest | contract.VolumeRequest, act: PowerAct) -> datetime:
        began, fault = self.now, self._fault
        delay = timedelta(seconds=self._delay)
        if isinstance(request, contract.VolumeRequest):
            end = began + (request.deadline if fault in {Fault.LATE, Fault.SLOW} else timedelta(0))
            self.referee.detached[request.volume] = end if fault is Fault.LATE else began
            return end
        if act is PowerAct.TERMINATE:
            return began + (delay if fault in {Fault.SLOW, Fault.LATE} else timedelta(0))
        if act is PowerAct.QUARANTINE:
            return began
        at = began
        if fault is Fault.LATE:  # its worker stands still for a while, and goes on as long as it may
            assert request.not_after is not None, "every command has an end to its time"
            at = min(began + delay, request.not_after - self.skew) + request.deadline
        elif fault is Fault.UNSURE:
            at = began + timedelta(seconds=1)
        assert self._attempt is not None
        state = PowerState.OFF if act in {PowerAct.OFF, PowerAct.CUT_PATH} else PowerState.ON
        self.referee.commands_device(self._attempt, request.device, state, at, request.target.incident)
        return began + delay if fault is Fault.SLOW else at

    async def _read(self, request: contract.PowerRequest, act: str, states: dict[str, PowerState]) -> Reading:
        return self.workers[0].sealed_reading(request.target, await super()._read(request, act, states), self.clock)

    def _require_proof(self, request: contract.FreeRequest) -> None:
        super()._require_proof(request)
        if not all(self.workers[0].has_read(request.target, each, self.clock) for each in request.proof.readings):
            raise failure(ErrorType.NOT_PROVEN, "no power worker of this deployment has read that lately")

    def set_path(self, endpoint: str, state: PowerState, at: datetime) -> None:
        super().set_path(endpoint, state, at)
        if state is PowerState.ON:
            self.referee.opened_by_others.pop(endpoint, None)

    async def read_kdump(self, request: contract.KdumpRequest) -> KdumpReading:
        silent = KdumpReading(at=self.now, listening=START - timedelta(hours=1), address="10.0.0.7")
        if (dump := self.machine.dump) is None:
            return silent
        messages = int((min(self.now, dump[1]) - dump[0]) / SPEAKS)
        return replace(silent, first=dump[0], last=dump[0] + messages * SPEAKS, messages=messages + 1)

    # The Machine ----------------------------------------------------------------------------------------------------

    def holds_permit(self) -> bool:
        return self.referee.permit and self.permit_lost is None

    def pin_target(self, request: RemediationInput) -> contract.RemediationPin:
        machine, mark = self.machine, self.machine.mark if self.machine.present else None
        assert self._attempt is not None
        if not self.machine_object.present and not machine.present:
            raise failure(ErrorType.NOT_FOUND, "there is no such Node or Machine")
        if machine.present and machine.holder != OURS:
            raise failure(ErrorType.NOT_FOUND, "another machine has the name")
        self._begins(request.incident)
        self.pinned_at = self.now
        seen = machine.seen_node()
        adopted = mark is not None and (mark.incident, mark.run_id) != (request.incident, self._attempt.run_id)
        return contract.RemediationPin(
            failed=request.failed,
            pinned=Pinned(
                node=machine.name,
                uid=seen.uid,
                provider_id=seen.provider_id if seen.present else "",
                system_uuid=seen.system_uuid if seen.present else "",
                boot_id=seen.boot_id if seen.present else "",
                not_ready_since=self.now if not machine.ready else None,
            ),
            need=request.need or self.need,
            ladder=request.ladder or (),
            machine=MACHINE if self.machine_object.present else None,
            machine_uid=MACHINE_UID if self.machine_object.present else "",
            owner=self.machine_object.owner,
            adopted_incident=mark.incident if mark is not None and adopted else "",
            adopted_paths=mark.paths if mark is not None else (),
            seen=seen,
            streams=True,
        )

    def by_its_clock(self, moment: datetime) -> datetime:
        return moment + self.clock_of_api

    def find_volumes(self, request: contract.FailedVolumesRequest) -> contract.FailedVolumes:
        if self.machine.volumes.get("vol-a") is not VolumeState.ATTACHED:
            return contract.FailedVolumes(failure=Failure(refused="that names no volume"), eviction_timeout=timedelta(seconds=30))
        pod = PodOnNode(key="demo/database-0", uid="uid-db", volumes=("pvc-a",))
        found = Failure(volumes=(AttachedVolume(name="pvc-a", handle="vol-a"),), mounting=(pod,))
        return contract.FailedVolumes(failure=found, eviction_timeout=timedelta(seconds=30))

    def others_act(self, made: RemediationObject | None) -> None:
        """The machine is started anew, unless its controller was told to leave it meanwhile, or only says so."""
        after = self.machine_object.operator_acts_after
        at = self.now + (after or timedelta(minutes=2))
        incident = made.by if made is not None else self.machine_object.annotated_by

        def happens() -> None:
            if made is None:
                stands = self.machine_object.annotated
            else:
                done = after is None or not made.timed_out
                made.processing, made.succeeded = ("False", "True" if after else "False") if done else ("True", "Unknown")
                stands = not made.timed_out and made.goes_at is None
            if after is not None and stands and self.machine_object.present and not self.machine_object.operator_lies:
                self._others_begin(incident, at, "its operator starts it anew")
                self.machine.reboot(at)

        if made is not None:
            made.processing, made.succeeded = "True", "Unknown"
        self.machine.later(at, happens)

    def _others_begin(self, incident: str, at: datetime, what: str) -> None:
        """What an episode has asked others for was to be taken back in time, where it was not wanted any more (S20, S6)."""
        if incident not in self.begun or self.referee.is_held(at - OTHERS_HEARD):
            return
        # Whether another controller has begun, it alone knows: a veto takes nothing away from it (docs/semantics.md).
        found = self.vetoes() if "owner" in what else {}
        well = self.machine.ready and self.machine.holder == OURS
        if self.need.kind is NeedKind.CHECK and well and self.machine.ready_since is not None:
            found["the node is well again"] = self.machine.ready_since
        if self.need.kind.automatic and self.unwanted is not None:
            found["nobody asks for it any more"] = self.unwanted
        if (aborted := self.referee.aborted_at) is not None:
            found["it was aborted"] = aborted
        since = max(self.referee.resumed_at, self.forbidding[1], self.busy_until)
        for why, moment in found.items():
            if at - max(moment, since) > OTHERS_HEARD:
                self.referee.fault("S20", f"{what} by our wish although {why}, for {at - moment} already")


class Adversary(PlayedActs):
    """See the module. `perform` carries out one attempt at an activity, or has something befall it."""

    def perform(self, attempt: Attempt) -> Any:
        """Carry one out, or don't. Raises what the worker would, or `Lost`."""
        with self._on_a_worker(attempt):
            return self._perform(attempt)

    @contextmanager
    def _on_a_worker(self, attempt: Attempt) -> Iterator[None]:
        info = SimpleNamespace(
            workflow_id=attempt.workflow_id,
            workflow_run_id=attempt.run_id,
            activity_id=attempt.activity_id,
            scheduled_time=attempt.scheduled,
        )
        worker = SimpleNamespace(info=lambda: info, metric_meter=lambda: MetricMeter.noop, logger=SILENT)
        clock = SimpleNamespace(now=lambda _zone: self.clock, fromtimestamp=datetime.fromtimestamp)
        with patch("activities.licences.activity", worker), patch("activities.licences.datetime", clock):
            yield

    def _replay(self, attempt: Attempt, served: int, at: datetime) -> None:
        """The same is asked for once more, of the same worker and within the time that it asks for; by another activity. That
        is refused, if it was done before (S42), or is freed by what a device said long ago (S45)."""
        method, request, before = act_of(attempt.call), attempt.request, (self.now, self._attempt, self._served, self._fault)
        licensed = getattr(request, "licence", "")
        if licensed and not any(used == licensed for used, _ in self.referee.used):
            return
        if method in FREEING:
            request = replace(request, not_after=at + timedelta(seconds=15))
        elif not licensed or at > request.not_after:
            return
        again = replace(attempt, request=request, activity_id="a stranger's", scheduled=at, now=at)
        self.now, self._attempt, self._served, self._fault = at, again, served, Fault.NOTHING
        with self._on_a_worker(again), suppress(ApplicationError):
            at_once(getattr(self, method)(request))
            if method in FREEING and request.proof.acknowledgement is None:
                self.referee.fault("S45", f"{method} by what a device has said long ago")
        self.now, self._attempt, self._served, self._fault = before

    def _perform(self, attempt: Attempt) -> Any:
        method = act_of(attempt.call)
        self.now, self._attempt, self._served = attempt.now, attempt, self._served + 1
        self._settle()

        def act(request: Any) -> Any:
            return at_once(getattr(self, method)(request))

        if attempt.queue != WORKFLOW_QUEUE and (wrong := problem_of(self.now, self.clock)):
            raise failure(ErrorType.WRONG_CLOCK, f"its clock is {wrong}", retry_after=timedelta(seconds=1))
        if method in {"pin", "pin_target", "request_permit"}:
            self.acts.append(method)
            self._require_answer(attempt, method)
            return act(attempt.request)
        endpoint = getattr(getattr(attempt.request, "device", None), "endpoint", "")
        self.acts.append(f"{method} {endpoint}".strip())
        again = method == "read_power" and self.referee.has_said_off(endpoint)
        fault = self._next(method, AGAIN if again else COUNTED if getattr(attempt.request, "counts", False) else method)
        self._require_answer(attempt, method)
        self._hear(attempt)
        self._judge(attempt, method)
        answer = self._befall(fault, attempt, act)
        self._stream(attempt)
        return answer

    def _settle(self) -> None:
        """What has come of itself until now."""
        before, machine_object = self.machine_object.deleting, self.machine_object
        self.machine.settle(self.now)
        if machine_object.settle(self.now):
            self.machine.give_up(self.now)
            self.machine.lose_node()
            self.gone_since = self.now
        if before is None and (at := machine_object.deleting) is not None and machine_object.owner_asked is not None:
            self._others_begin(machine_object.owner_asked_by, at, "its owner replaces it")
        if self.machine.ready:
            self.ready_last = self.now

    def _require_answer(self, attempt: Attempt, method: str) -> None:
        """An API server that has just started knows nobody's rights; one that is busy takes no bookkeeping."""
        since, until = self.forbidding
        if attempt.queue.startswith("cluster.") and since <= self.now < until:
            if method != "publish":
                self.waited_before = attempt.decided < since - timedelta(seconds=5)
            raise failure(ErrorType.FORBIDDEN, f"{method}: 403 {FORBIDDEN_NOW}")
        if method in KEEPS_BOOKS and self.now < self.busy_until:
            raise failure(ErrorType.TRANSIENT, f"{method}: etcdserver: request timed out")

    def _next(self, method: str, also: str) -> Fault:
        """also: what else the attempt may be ambushed as."""
        if len(self.acts) == CAPPED:
            self.calm()
        fault, delay = self.script.popleft() if self.script else (Fault.NOTHING, 0.0)
        self.counted.update({method, also})
        due = {(each, self.counted[each]) for each in (method, also)}
        for placed in [each for each in self.placed_faults if (each.method, each.number) in due]:
            self.placed_faults.remove(placed)
            for fault, delay in placed.faults:
                self._strike(fault, delay)
            return fault
        self._strike(fault, delay)
        return fault

    def _strike(self, fault: Fault, delay: float) -> None:
        self._delay = delay
        if fault is Fault.REPLAYED and (attempt := self._attempt) is not None:
            served, at = self._served, self.now + timedelta(seconds=max(delay, 1.0))
            self.machine.later(at, lambda: self._replay(attempt, served, at))
        elif fault in SPOKEN:
            self.say(fault, delay)
        elif fault in LASTING:
            self._lasts(fault, timedelta(seconds=delay))
        elif delay and fault not in SELF:
            at = self.now + timedelta(seconds=delay)
            self.machine.later(at, lambda: self._happens(fault, at))
        else:
            self._happens(fault, self.now)
        self.machine.settle(self.now)

    def _befall(self, fault: Fault, attempt: Attempt, act: Callable[[Any], Any]) -> Any:
        method, request = act_of(attempt.call), attempt.request
        self._fault = fault
        not_after: datetime | None = getattr(request, "not_after", None)
        if not_after is not None and self.clock > not_after and method != "last_look":
            raise failure(ErrorType.EXPIRED, f"{method} comes too late")
        if fault in {Fault.LOST_BEFORE, Fault.LATE} and method in BEGINS:
            self.done_by |= {look_of(request).target.incident}  # for all that is known
        match fault:
            case Fault.REFUSED:
                if method in ASKED_FOR and request.before is not None and request.before.remember is not None:
                    self.machine_object.stands = (request.before.remember.memory,) * 2  # the note, which comes first
                if method == "give_up" and request.before is not None:  # and so does our claim on the Node
                    self.machine_object.claimed_by = request.incident
                raise failure(ErrorType.TRANSIENT, f"{method} was refused")
            case Fault.UNREACHABLE:
                raise failure(ErrorType.UNREACHABLE, f"{method} reached nobody")
            case Fault.LOST_BEFORE:
                if method in SWITCHES:  # for all that anybody knows it was commanded
                    state = PowerState.ON if method in {"power_on", "restore_path"} else PowerState.OFF
                    self.referee.commands_device(attempt, request.device, state, self.now, request.target.incident)
                    self.referee.commands[-1].unclear = True
                raise Lost
            case Fault.OWN_NODE if method in GUARDED:
                raise failure(ErrorType.OWN_NODE, "this worker runs on that very node")
            case Fault.LATE if method in WRITES:
                self._later(act, request, not_after)
                raise Lost
            case Fault.UNSURE if method == "give_up" and request.before is not None:
                self._later(act, request, not_after)
                self.deletion_underway = not_after or self.now
                self.done_by |= {request.incident}  # for all that is known
                raise failure(ErrorType.AMBIGUOUS, "failed calling webhook: context deadline exceeded")
        objections = self._objections_to(method)
        counts = method in BEGINS and getattr(request, "before", self) is not None
        incident = look_of(request).target.incident if counts else ""
        try:
            answer = act(request)
        except ApplicationError:
            self.done_by |= {incident}
            raise
        if self._is_done(answer):
            self.done_by |= {incident}
            self.referee.heeds(self.acts[-1], self.now, objections)
        if method in SWITCHES and fault in {Fault.UNSURE, Fault.LOST_AFTER, Fault.LATE}:
            self.referee.commands[-1].unclear = True
        if fault is Fault.UNSURE and method in COMMANDS:
            raise failure(ErrorType.AMBIGUOUS, f"{method}: the answer was lost")
        if fault in {Fault.LOST_AFTER, Fault.LATE}:
            self.referee.all_freed_by = ""  # for all that the episode knows
            raise Lost
        if (fault is Fault.SAYS_BUSY or self.now < self.unanswered_until) and method in WRITES:
            self.referee.all_freed_by = ""
            said = Random(self._served).choice((ErrorType.TRANSIENT, ErrorType.RATE_LIMITED))
            raise failure(said, f"{method}: etcdserver: request timed out")
        if isinstance(answer, Reading):
            self.referee.tells(answer, attempt.decided)
        elif isinstance(answer, VolumeReading):
            self.referee.tells_of_volume(answer, attempt.decided)
        elif isinstance(answer, contract.CommandResult) and answer.after is not None:
            self.referee.reads_back(answer.after, self.now)
        return answer

    def _later(self, act: Callable[[Any], Any], request: Any, not_after: datetime | None) -> None:
        """Its worker is cut off from Temporal, and goes on all the same until its time is over."""
        at, attempt = self.now + timedelta(seconds=8), self._attempt
        assert attempt is not None

        def happens() -> None:
            self.now, self._fault = at, Fault.LATE
            if not_after is None or at <= not_after:
                self.zombies += 1
                try:
                    with self._on_a_worker(attempt):
                        act(request)
                except ApplicationError:  # nobody hears of it
                    return
                self.referee.all_freed_by = ""  # for all that the episode knows

        self.machine.later(at, happens)

    def _judge(self, attempt: Attempt, method: str) -> None:
        """What holds of the request itself, whatever becomes of it."""
        referee, request = self.referee, attempt.request
        if method in DESTRUCTIVE:
            referee.destructive(self.acts[-1], attempt)
        if method in ASKED_FOR and request.before is not None:
            referee.require_no_objection(self.acts[-1], attempt)
            self._require_note(method, request)
        if method == "read_object" and not request.adopted:
            self._waits_for(kind_of(request), request.target.incident)
        if method in {"time_out_object", "take_back", "delete_object"}:
            self.told_over = self.now
        if method in ASKED_FOR | {"power_off"} and getattr(request, "before", self) is not None:
            self._acts_alone(method, look_of(request).target.incident)
        if method in FREES and self.climbs_without_freeing:
            referee.fault("S1", f"{method} by a ladder that only restarts the machine, or has others act")
        if method == "power_off" and request.target.kind == Kind.REMEDIATION:
            noted = any(request.target.incident in each for each in self.machine_object.memories)
            if not noted and request.target.incident in self.begun:
                referee.fault("S19", "power off without a note on the target")
        if getattr(look_of(request), "need_matters", False):
            referee.asked_need = self.now
        if method in COMMANDS and method not in {"power_on", "restore_path", "terminate"} and request.not_after is None:
            referee.fault("S20", f"{method} with no end to its time")
        if method in COMMANDS and request.not_after is not None and attempt.decided >= request.not_after:
            referee.fault("S45", f"{self.acts[-1]} is asked for on a look whose window is over by then")
        if method == "read_power":
            referee.asked[request.device.endpoint] = self.now
        if method == "give_up" and request.before is not None and not attempt.repeats and self.now < self.deletion_underway:
            referee.fault("S34", "a deletion is asked for while the request before it may be under way")
        match method:
            case "power_on":
                aborted, gone = referee.aborted_at, self.gone_since
                climbs = request.target.kind == Kind.REMEDIATION
                if climbs and aborted is not None and gone is not None and min(aborted - gone, gone - self.pinned_at) > HEARD:
                    referee.fault("S9", f"power on of a machine that has gone {attempt.now - gone} ago")
                referee.powers_on(attempt, request.target.incident)
                referee.heeds(self.acts[-1], self.now, self.vetoes(), rule="S21")
            case "restore_path":
                referee.opens_path(request.device.endpoint)
            case "taint_out_of_service" | "delete_workload" | "delete_node":
                referee.heeds(self.acts[-1], self.now, self._outdated(request.target.incident), rule="S47")
                referee.consequence(method, attempt, request, devices_on=self._says_on_since())
            case "free_while_dumping":
                referee.dumping_consequence(attempt, request)
            case "free_cut_pods":
                referee.cut_consequence(attempt, request)
            case "terminate":
                referee.require_no_objection(method, attempt)
                referee.gives_up(attempt, request.target.incident)

    def _require_note(self, method: str, request: Any) -> None:
        """S19: what is done is noted on the target before. S44: a person's answer begins with nothing of the last round."""
        made = self.machine_object.objects.get(kind_of(request)) if method == "create_object" else None
        if request.before.remember is None:
            self.referee.fault("S19", f"{method} without a note on the target")
        incident = look_of(request).target.incident
        if made is not None and made.timed_out and made.goes_at is None and made.by == incident:
            self.referee.fault("S44", "the ladder begins anew with an object whose time is over")

    def _waits_for(self, kind: str, incident: str) -> None:
        """S19: what another incident has had its time for is not waited for again."""
        made = self.machine_object.objects.get(kind)
        over = made is not None and made.timed_out and made.goes_at is None and made.by != incident
        self.waits_in_vain = (self.waits_in_vain or self.now) if over else None
        if self.waits_in_vain is not None and self.now - self.waits_in_vain > OTHERS_HEARD:
            self.referee.fault("S19", f"waits for {kind}, of which the time was over before")

    def _acts_alone(self, method: str, incident: str) -> None:
        """S13: no other one that the episode has set to work is still at it, unless it could not be told."""
        machine = self.machine_object
        at_work = [
            f"the controller of {kind}"
            for kind, each in machine.objects.items()
            if method != "create_object" and each.by == incident and each.processing == "True" and each.goes_at is None
            if not each.timed_out and each.created > self.told_over
        ]
        if method != "annotate_external" and machine.annotated and machine.annotated_by == incident:
            at_work += ["its operator"] if machine.annotated_at is not None and machine.annotated_at > self.told_over else []
        if at_work:
            self.referee.fault("S13", f"{method} while {at_work[0]} is at it, which was not told that its time is over")

    def _hear(self, attempt: Attempt) -> None:
        """What people are told is so."""
        publication: contract.Publication | None = getattr(look_of(attempt.request), "publication", None)
        for event in publication.events if publication is not None else ():
            self.referee.tells_the_truth(event.message, look_of(attempt.request).target.incident)
            self.referee.warned = self.referee.warned or event.reason in {"WorkloadsLeft", "NeedsHuman"}
            self.asked_for_a_person += event.reason == "NeedsHuman"

    def _stream(self, attempt: Attempt) -> None:
        """Lines of the record, as an activity writes them to the decision stream: perhaps again, and always the same. An
        attempt that does not complete has written none, for all that can be relied on."""
        look = look_of(attempt.request)
        publication: contract.Publication | None = getattr(look, "publication", None)
        for entry in publication.entries if publication is not None else ():
            if self.streamed.setdefault((look.target.run_id, entry.number), entry) != entry:
                self.broken.append(f"a line of the record is another one than was written under its id: {entry}")

    def _is_done(self, answer: Any) -> bool:
        """Whether an act that a machine may be given up by was not refused at last."""
        looked = getattr(answer, "look", None)
        if looked is not None and looked.verdict is not contract.LookVerdict.GO:
            return False
        return not isinstance(answer, GiveUpResult) or answer.detail == DELETION_ASKED

    def _objections_to(self, method: str) -> dict[str, datetime]:
        """Whatever speaks against an act, and since when. What was proven off may be freed all the same, and be given back."""
        found = self.vetoes()
        if self.paused is not None:
            found["its Cluster is paused"] = self.paused
        if method == "delete_node":
            return found
        if method not in ASKED_FOR | COMMANDS - {"power_on", "restore_path"}:
            return {}
        if self.check_paused is not None and self.need.kind is NeedKind.CHECK:
            found["its check is paused"] = self.check_paused
        if self.unlicensed is not None:
            found["nobody can show its licence"] = self.unlicensed
        if self.permit_lost is not None:
            found["the scanner knows of no permit"] = self.permit_lost
        if self.need.kind.automatic and self.unwanted is not None:
            found["nobody asks for it any more"] = self.unwanted
        if self.need.kind.automatic and self.lowered is not None:
            found["its mode allows no more"] = self.lowered
        if self.need.kind is NeedKind.CHECK and self.machine.ready and self.machine.ready_since is not None:
            found["the node is well again"] = self.machine.ready_since
        return found

    def _outdated(self, incident: str) -> dict[str, datetime]:
        """What whoever looks before each round of freeing has seen by now, and since when. What was begun is finished without
        anybody's wish (S6)."""
        found = {} if self.configured is None else {"other devices are configured": self.changed}
        if self.need.kind.automatic and self.unwanted is not None and self.referee.tried_by != incident:
            found["nobody asks for it any more"] = self.unwanted
        return found

    def _says_on_since(self) -> datetime | None:
        """Since when any device would have said on to whoever had asked it; None: it would not."""
        mute = self.machine.silent | self.machine.locked
        speak = any(self.machine.power[each.endpoint] is PowerState.ON for each in self.plan.devices if each.endpoint not in mute)
        return self.heard_since if speak else None

    def _lasts(self, fault: Fault, duration: timedelta) -> None:
        if fault is Fault.BUSY:
            self.busy_until = self.now + duration
        elif fault is Fault.UNANSWERED:
            self.unanswered_until = self.now + duration
        elif self.now >= self.forbidding[1]:
            self.forbidding = (self.now, self.now + duration)

    def _happens(self, fault: Fault, now: datetime) -> None:
        """What merely happens beside an activity."""
        machine = self.machine
        match fault:
            case Fault.FLAP:
                machine.flap(now)
            case Fault.REBOOT:
                machine.reboot(now)
            case Fault.OTHERS_ON | Fault.OTHERS_OFF:
                state = PowerState.ON if fault is Fault.OTHERS_ON else PowerState.OFF
                self.meddled = fault is Fault.OTHERS_OFF
                self.switched_on = self.switched_on or fault is Fault.OTHERS_ON
                machine.switch_all(state, now)
            case Fault.PATH_OPENED:
                self.referee.opened_by_others |= dict.fromkeys(machine.open_paths(), now)
            case Fault.ATTACHED_AGAIN:
                machine.attach_all()
            case Fault.NODE_GONE:
                machine.lose_node()
            case Fault.NODE_ANEW | Fault.NODE_REPLACED:
                machine.register(now, another=fault is Fault.NODE_REPLACED)
            case Fault.NEED_GONE | Fault.NEED_BACK | Fault.CHECK_GONE:
                self.unwanted = None if fault is Fault.NEED_BACK else (self.unwanted or now)
            case Fault.CHECK_PAUSED:
                self.check_paused, self.machine_object.check_paused = self.check_paused or now, True
            case Fault.VETO:
                self.vetoed = self.vetoed or now
            case Fault.NO_VETO:
                self.vetoed = self.machine_object.preserved = self.paused = self.check_paused = None
                self.machine_object.check_paused = False
            case Fault.LEASED:
                self.leased = self.leased or now
            case Fault.PRESERVED:
                self.machine_object.preserved = self.machine_object.preserved or now
            case Fault.CLUSTER_PAUSED:
                self.paused = self.paused or now
            case Fault.UNLICENSED_LONG | Fault.LICENSED_AGAIN:
                self.unlicensed = (self.unlicensed or now) if fault is Fault.UNLICENSED_LONG else None
            case Fault.BREAKER:
                self.refusing = True
            case Fault.FORGOTTEN:
                self.permit_lost = self.permit_lost or now
            case Fault.TAKEN_OVER:
                self._is_taken_over(now)
            case Fault.BACKUP:
                machine.restore_backup()
            case Fault.RECONFIGURED:
                self.reconfigure()
            case Fault.CORRECTED | Fault.REGROUPED if self.plan.levels:
                self.configured, self.changed = (mended if fault is Fault.CORRECTED else regrouped)(self.plan), now
            case Fault.UNMARKED:
                machine.lose_mark()
            case Fault.STUBBORN:
                machine.stubborn = True
            case Fault.STUCK:
                self.machine.stuck = set(self.plan.endpoints)
            case Fault.ONE_STUCK:
                self.machine.stuck = {device.endpoint for device in self.plan.levels[0][-1:]} if self.plan.levels else set()
            case Fault.SILENT:
                self.machine.silent = set(self.plan.endpoints)
            case Fault.FIRST_SILENT:
                self.machine.silent = {device.endpoint for level in self.plan.levels[:1] for device in level}
            case Fault.SPEAKS:
                self.machine.silent, self.heard_since = set(self.dead), now
            case Fault.ONE_DEAD:
                self.dead = {device.endpoint for device in self.plan.levels[0][:1]} if self.several else set()
                self.machine.silent |= self.dead
            case Fault.LOCKED:
                self.machine.locked = set(self.plan.endpoints[:1])
            case Fault.NO_SECRET:
                self.machine.locked, self.machine.has_secret = set(self.plan.endpoints[:1]), False
            case Fault.FIRMWARE if self.plan.levels:
                self._starts_anew(self.plan.levels[0][0].endpoint, now)
            case Fault.ONE_ON | Fault.ONE_OFF if self.plan.levels:
                state = PowerState.ON if fault is Fault.ONE_ON else PowerState.OFF
                self.meddled = self.meddled or fault is Fault.ONE_OFF
                self.switched_on = self.switched_on or fault is Fault.ONE_ON
                machine.switch(self.plan.levels[0][-1].endpoint, state, now)
            case Fault.LOWERED:
                self.mode = Random(self._served).choice((Mode.OBSERVE, Mode.CORDON, Mode.DRAIN))
                self.lowered = self.lowered or now
                machine.later(now + timedelta(minutes=20), lambda: self._happens(Fault.RAISED, now))
            case Fault.RAISED:
                self.mode, self.lowered = Mode.REPAIR, None
            case Fault.ROLLED:
                self.machine_object.deleting = self.machine_object.deleting or now.replace(microsecond=0)
                self.meddled = True
            case Fault.DUMP:
                machine.crash(now)
            case Fault.CLOCK_BEHIND | Fault.CLOCK_AHEAD:
                self.clock_of_api = timedelta(minutes=10) * (1 if fault is Fault.CLOCK_AHEAD else -1)
            case Fault.HEAL:
                self.heal()

    def _starts_anew(self, endpoint: str, now: datetime) -> None:
        """The firmware of a device."""
        machine, at = self.machine, now + timedelta(seconds=25)
        machine.silent.add(endpoint)
        self.switched_on = True

        def answers() -> None:
            machine.silent -= {endpoint} - self.dead
            self.heard_since = at
            machine.switch(endpoint, PowerState.ON, at)

        machine.later(at, answers)

    def _is_taken_over(self, now: datetime) -> None:
        """Another deployment has the cluster Lease now, adopts our mark, and fences the node in its own time."""
        machine, power = self.machine, tuple(self.machine.power)
        if machine.mark is None or not machine.present or machine.holder != OURS or not self.plan.levels:
            return
        machine.mark = replace(machine.mark, incident=THEIRS)
        self.unlicensed, self.referee.rival = self.unlicensed or now, (now, now + RIVAL)
        off, on = now + timedelta(seconds=1), now + RIVAL
        self.meddled = self.switched_on = True

        def switch(at: datetime, state: PowerState) -> None:
            for endpoint in power:
                machine.switch(endpoint, state, at)

        def ends() -> None:
            switch(on, PowerState.ON)
            if machine.mark is not None and machine.mark.incident == THEIRS:
                machine.restore_backup()

        machine.later(off, lambda: switch(off, PowerState.OFF))
        machine.later(on, ends)

    def reconfigure(self) -> None:
        """The configuration named the plug of another machine until now."""
        if self.referee.commands or not self.plan.levels or self.reconfigured:
            return
        self.reconfigured = True
        old = self.plan.endpoints
        self.plan = mended(self.plan)
        self.machine.rewire(self.plan)
        self.referee.plan = self.plan
        self.referee.disowned = dict.fromkeys(set(old) - set(self.plan.endpoints), self.now)

    def heal(self) -> None:
        """Every device works again, and nobody objects any more."""
        self.machine.stuck, self.machine.silent, self.machine.locked, self.configured = set(), set(self.dead), set(), None
        self.vetoed = self.leased = self.unlicensed = self.paused = self.machine_object.preserved = None
        self.machine.stubborn = self.refusing = self.machine_object.check_paused = False
        self.check_paused = None
        self.machine.has_secret, self.mode, self.lowered = True, Mode.REPAIR, None
        self.busy_until, self.forbidding, self.unanswered_until = START, (START, START), START

    def calm(self) -> None:
        """No more faults."""
        self.script.clear()
        self.placed_faults.clear()
        self.heal()

    # Temporal -------------------------------------------------------------------------------------------------------

    def judge_request(self, request: contract.AskPermit) -> bool:
        """S17: what needs no permit asks for none, and only a person passes a circuit breaker. Whether it passes an open one."""
        incident = request.permit.incident
        if request.permit.kind is Kind.FENCING and self.only_restores(incident):
            self.referee.fault("S17", "a permit is asked for by an episode that has nothing left to do but to switch on")
        self.permit_lost = None
        off = self.referee.off_by == incident and not self.machine.runs and self.machine.plugged and not self.vetoes()
        if request.permit.kind is Kind.REMEDIATION and off and self.referee.need_gone and self.plan.power_on:
            self.referee.fault("S17", "a permit is asked for by a ladder that has nothing left to do but to switch on")
        past = self.refusing and bool(request.permit.override)
        if past and not self.attests:
            self.referee.fault("S17", "a circuit breaker is overridden by no person that Kubernetes attests")
        return past

    def request_permit(self, request: contract.AskPermit) -> PermitAnswer:
        fault, _ = self.script.popleft() if self.script else (Fault.NOTHING, 0.0)
        past, incident = self.judge_request(request), request.permit.incident
        if fault is Fault.NO_PERMIT or (self.refusing and not past):
            return PermitAnswer(decision=PermitDecision.REFUSED, reason="a circuit breaker is open")
        if fault is Fault.QUEUED:
            self.grant()
            return PermitAnswer(decision=PermitDecision.QUEUED, reason="the cap is reached")
        self.referee.permit = True
        self.past_breaker = (self.past_breaker - {incident}) | ({incident} if past else set())
        return PermitAnswer(decision=PermitDecision.GRANTED, holder="us")

    def ask_portion(self, request: contract.AskPortion) -> PortionAnswer:
        if self._fault is Fault.QUEUED:
            return PortionAnswer(again=self.now + timedelta(minutes=1))
        if self._fault is Fault.NO_PERMIT:
            return PortionAnswer(problem="no scanner runs")
        pods = min(request.portion.pods, request.portion.per_minute)
        return PortionAnswer(pods=pods, until=self.now + timedelta(seconds=30))

    def hears_release(self, release: Release) -> None:
        """The scanner's end of it. Nobody is asked for help with what passes by itself."""
        self.referee.permit = False
        since = self.now - self.forbidding[0] - self.without_us(self.forbidding[0])
        lost = self.now - self.permit_lost if self.permit_lost is not None else timedelta(0)
        if release.parked and lost > timedelta(minutes=20) and "not licensed" in release.problem and self.unlicensed is None:
            self.referee.fault("S14", f"a person is asked, and the scanner, which knows of no permit, is not: {release.problem}")
        off = self.referee.off_by == release.incident and not self.machine.runs
        off = off or any(self.machine.paths.get(each) is PowerState.OFF for each in self.noted)
        if release.held and off and not (self.meddled or any(each.what == "reset" for each in self.referee.said)):
            self.referee.fault("S52", "it rests with the machine switched off, and no person is asked")
        if release.parked and "comes too late" in release.problem and 0.0 in self.skews and any(self.skews):
            self.referee.fault("S18", f"a person is asked since one worker's clock is wrong: {release.problem}")
        if (
            release.parked
            and not self.waited_before
            and FORBIDDEN_NOW in release.problem
            and since < PASSES
            and not any(each in release.problem for each in INSISTED)
        ):
            self.referee.fault("S35", f"a person is asked for what has lasted for {since} and passes by itself")
