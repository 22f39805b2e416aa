"""Everything that an episode may ask of the played machine and its Node, done as the activities do it; what is wrong just now."""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from temporalio.exceptions import ApplicationError

from activities.cluster.objects.marks import claim
from activities.errors import ErrorType, failure
from activities.licences import DeviceCommand
from policy.checks.fence_policies import NO_POLICIES
from policy.episode.fencing import compare_identity, paths_cut, proof_stands, same_machine
from policy.episode.gate import By, Objection, Operation, Seen, objection
from policy.episode.messages import GivenUpReading, Need, NeedKind, Pinned, Reading, RecordEntry, RemediationInput, VolumeReading
from policy.fence.kdump import KdumpReading
from policy.fence.plan import FencingPlan
from policy.fence.power import PowerAct, PowerState, Quarantine, VolumeState
from policy.objects.marks import Mark
from policy.remediation.failed_volumes import AttachedVolume, Failure, PodOnNode
from policy.values.object_refs import ObjectRef
from tests.licensing import is_licensed, licence_of
from tests.workflows import contract
from tests.workflows.attempts import START, Attempt
from tests.workflows.contract import LookVerdict
from tests.workflows.faults import Fault, PlacedFault
from tests.workflows.machine import MACHINE, MACHINE_UID, NODE, OURS, SUCCESSOR, Handed, Machine, MachineObject
from tests.workflows.referee import Referee


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
    paused: datetime | None = None
    """Since when its Cluster API Cluster is paused."""
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
    stuck: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    locked: set[str] = field(default_factory=set)
    asked_for_a_person: int = 0
    streamed: dict[tuple[str, int], RecordEntry] = field(default_factory=dict)
    """The lines of records that were written to the decision stream, by incident and number."""
    noted: set[str] = field(default_factory=set)
    """What the latest episode has noted as cut, or found noted when it began."""
    meddled: bool = False
    """Another one has switched the machine off last."""
    per_minute: int | None = None
    """How many pods may be freed in a minute."""
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
    _served: int = 0
    _fault: Fault = Fault.NOTHING
    _delay: float = 0.0
    _attempt: Attempt | None = None

    def __post_init__(self) -> None:
        self.machine = Machine(plan=self.plan, lingers=self.lingers)
        self.machine.hidden = self.runs_unseen
        self.referee = Referee(machine=self.machine, plan=self.plan)

    @property
    def skew(self) -> timedelta:
        """How much the clock of the worker that has taken the attempt is ahead."""
        return timedelta(seconds=Random(self._served).choice(self.skews))

    @property
    def clock(self) -> datetime:
        """What time it is for that worker."""
        return self.now + self.skew

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

    def begins(self, incident: str) -> None:
        """An episode's first look: it can't know what no source can say."""
        if incident in self.begun:
            return
        self.begun.add(incident)
        mark = self.machine.mark
        self.referee.unaware = set() if mark is not None else {each.incident for each in self.referee.commands}
        self.noted = set(mark.paths) if mark is not None else set()

    def runs_unseen(self) -> bool:
        """Whether the only devices that could tell that the machine runs are silent."""
        mute = self.silent | self.locked
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

    @property
    def broken(self) -> list[str]:
        """What the referee has found."""
        return self.referee.broken


# What an episode may have done to the played Node, each act as `activities/cluster/` does it: what it looks at, what it writes.
#
# Whether it should have been asked at all is for the referee; whether it is answered, for the adversary.


class NodeActs(Played):
    """Reading and marking it, isolating it, freeing what ran on it, and the way back."""

    def pin(self, request: contract.PinRequest) -> contract.PinResult:
        machine, wanted = self.machine, request.wanted
        assert self._attempt is not None
        if not machine.present or machine.holder != OURS:
            raise failure(ErrorType.NOT_FOUND, "there is no such Node, or nothing is planned for it")
        mark = machine.mark
        self.begins(wanted.incident)
        adopted = mark is not None and (mark.incident, mark.run_id) != (wanted.incident, self._attempt.run_id)
        pinned = Pinned(
            node=NODE,
            uid=machine.uid,
            provider_id=f"sim://{machine.holder}",
            system_uuid=f"sys-{machine.holder}",
            boot_id=machine.boot_id,
            not_ready_since=self.now if not machine.ready else None,
            endpoints=self.plan.endpoints,
            levels=tuple(tuple(device.endpoint for device in level) for level in self.plan.levels),
            addresses=("10.0.0.7",),
        )
        added = None
        if request.marks_as and not adopted:
            target = contract.Target(
                cluster=wanted.cluster,
                pinned=pinned,
                incident=wanted.incident,
                kind=self._attempt.kind,
                workflow_id=self._attempt.workflow_id,
                run_id=request.marks_as,
            )
            with contextlib.suppress(ApplicationError):  # told by the mark that follows
                added = self.mark(contract.ActRequest(target=target)).added
        return contract.PinResult(
            pinned=pinned,
            plan=self.plan,
            need=wanted.need or self.need,
            added=added,
            adopted_incident=mark.incident if mark is not None and adopted else "",
            adopted_paths=mark.paths if mark is not None else (),
            seen=machine.seen_node(),
            streams=True,
        )

    def mark(self, request: contract.ActRequest) -> contract.ActResult:
        self._require_pinned(request.target)
        before = self.machine.mark
        self.machine.mark = claim(before, request.target, self.now, request.added)
        return contract.ActResult(changed=before != self.machine.mark, detail="marked", added=self.machine.mark.added)

    def last_look(self, request: contract.LookRequest) -> contract.LookResult:
        machine, pinned, referee = self.machine, request.target.pinned, self.referee
        seen, configured = machine.seen_node(), self.configured or self.plan
        difference = compare_identity(pinned, seen, destructive=request.destructive)
        gone = request.need_matters and self._need_is_gone(request.need)
        verdict = LookVerdict.GO
        if difference:
            verdict = LookVerdict.TARGET_CHANGED
        elif request.restores and self._veto():
            verdict = LookVerdict.VETOED
        elif (request.not_after is not None and self.clock > request.not_after) or (
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
        elif request.need_matters and request.need.kind is NeedKind.CLEAN_UP and not machine.ready:
            verdict = LookVerdict.VETOED
        elif request.destructive and (not referee.permit or self.unlicensed is not None):
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
            if request.need_matters:
                referee.need_gone = verdict is LookVerdict.NEED_GONE
        asked = request.configured is not None and machine.present
        return contract.LookResult(
            verdict=verdict,
            reason=f"{verdict}: {difference}",
            at=self.now,
            seen=seen,
            endpoints=configured.endpoints if asked else None,
            workload=self.read_workload(request) if request.counts else None,
            licence=licence_of(request) if verdict is LookVerdict.GO else "",
        )

    def _in_other_hands(self, target: contract.Target) -> LookVerdict:
        mark, rival = self.machine.mark if self.machine.present else None, self.referee.rival
        if mark is not None:
            return LookVerdict.GO if self._is_ours(mark, target) else LookVerdict.VETOED
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

    def mark_unschedulable(self, request: contract.CordonRequest) -> contract.ActResult:
        if (seen := self.last_look(request.look)).verdict is not LookVerdict.GO:
            return contract.ActResult(changed=False, detail=seen.reason, look=seen)
        mark = self._require_ours(request.target)
        if not self.machine.unschedulable:
            mark = replace(mark, cordoned=True)
            self.machine.mark, self.machine.unschedulable = mark, True
        return contract.ActResult(changed=True, detail="cordoned", added=mark.added, look=seen)

    def taint(self, request: contract.TaintRequest) -> contract.ActResult:
        if (seen := self.last_look(request.look)).verdict is not LookVerdict.GO:
            return contract.ActResult(changed=False, detail=seen.reason, look=seen)
        mark = self._require_ours(request.target)
        self.machine.mark = replace(mark, taints=tuple(dict.fromkeys((*mark.taints, request.taint.key))))
        self.machine.taints.add(request.taint.key)
        return contract.ActResult(changed=True, detail="tainted", added=self.machine.mark.added, look=seen)

    def drain(self, request: contract.DrainRequest) -> contract.DrainResult:
        self._require_ours(request.target)
        if self._fault is Fault.SLOW:
            return contract.DrainResult(left=2, names=("a", "b"))
        return contract.DrainResult(errors=("pod without a controller",) if self.machine.stubborn else ())

    def note_path(self, request: contract.PathRequest) -> contract.ActResult:
        machine, mark = self.machine, self.machine.mark
        if request.cut:
            mark = self._require_ours(request.target)
        elif not machine.present or mark is None or not self._is_ours(mark, request.target):
            return contract.ActResult(changed=False, detail="left alone")
        others = tuple(each for each in mark.paths if each != request.endpoint)
        if request.cut:
            self.noted.add(request.endpoint)
        machine.mark = replace(mark, paths=(*others, request.endpoint) if request.cut else others)
        return contract.ActResult(changed=True, detail="noted")

    def mark_schedulable(self, request: contract.RestoreRequest) -> contract.ActResult:
        machine, mark = self.machine, self.machine.mark
        if not machine.present or self._is_another(request.target):
            return contract.ActResult(changed=False, detail="left alone")
        if mark is None or not self._is_ours(mark, request.target):
            machine.out_of_service = machine.out_of_service and (mark is not None or not request.tainted)
            return contract.ActResult(changed=False, detail="left alone")
        if mark.out_of_service or request.tainted:
            machine.out_of_service = False
        if mark.paths:
            machine.mark = replace(mark, out_of_service=False)
            return contract.ActResult(changed=True, detail="our mark stays")
        if mark.cordoned and not request.keep_cordon:
            machine.unschedulable = False
        machine.taints -= set(mark.taints)
        machine.mark = None
        return contract.ActResult(changed=True, detail="restored")

    def taint_out_of_service(self, request: contract.FreeRequest) -> contract.ActResult:
        self._require_proof(request)
        if self.per_minute is not None:
            raise failure(ErrorType.NOT_LICENSED, "a taint frees all at once")
        if not self.machine.present:
            raise failure(ErrorType.NOT_FOUND, "the Node is gone")
        mark = self._require_down(request.target)
        self.machine.mark, self.machine.out_of_service = replace(mark, out_of_service=True), True
        if not self.machine.stubborn:
            self.machine.pods = self.machine.cut_pods = 0
        self.referee.has_freed(request.target.incident, all_of_it=True)
        return contract.ActResult(changed=True, detail="tainted", left=self.read_workload(request))

    def delete_workload(self, request: contract.FreeRequest) -> contract.FreeResult:
        self._require_proof(request)
        if self.machine.present:
            self._require_down(request.target)
        deleted = 0 if self.machine.stubborn else self._portion(request.at_most, self.machine.pods)
        self.machine.pods -= deleted
        self.referee.has_freed(request.target.incident, all_of_it=True)
        return contract.FreeResult(deleted_pods=deleted, left=self.read_workload(request))

    def delete_node(self, request: contract.FreeRequest) -> contract.ActResult:
        self._require_proof(request)
        if self.machine.present:
            mark = self._require_down(request.target)
            if mark.paths:
                raise failure(ErrorType.INVALID_CONFIG, "its mark tells which paths are cut")
            if self._veto() or self.kept_out(Operation.DELETE_NODE) is not None:
                raise failure(ErrorType.VETOED, "a person says hands off")
            if self.unlicensed is not None or not self.referee.permit:
                raise failure(ErrorType.NOT_LICENSED, "its licence can't be shown")
            self.machine.lose_node()
        self.referee.has_freed(request.target.incident, all_of_it=False)
        return contract.ActResult(changed=True, detail="deleted")

    def _portion(self, at_most: int | None, pods: int) -> int:
        return pods if self.per_minute is None else min(at_most or 0, pods)

    def free_cut_pods(self, request: contract.FreeCutRequest) -> contract.FreeResult:
        if not paths_cut(request.proofs, request.target.pinned.endpoints):
            raise failure(ErrorType.NOT_PROVEN, "no path of it is proven cut")
        self._require_down(request.target)
        deleted = 0 if self.machine.stubborn else self._portion(request.at_most, self.machine.cut_pods)
        self.machine.cut_pods -= deleted
        self.referee.has_freed(request.target.incident, all_of_it=False)
        left = contract.Workload(pods=self.machine.cut_pods, attachments=0, per_minute=self.per_minute)
        return contract.FreeResult(deleted_pods=deleted, left=left)

    def free_while_dumping(self, request: contract.FreeDumpingRequest) -> contract.FreeResult:
        if not self.machine.present:
            raise failure(ErrorType.NOT_PROVEN, "the Node is gone")
        self._require_down(request.target)
        deleted = 0 if self.machine.stubborn else self._portion(request.at_most, self.machine.pods)
        self.machine.pods -= deleted
        self.referee.has_freed(request.target.incident, all_of_it=False)
        return contract.FreeResult(deleted_pods=deleted, left=self.read_workload(request))

    def read_workload(self, request: Any) -> contract.Workload:
        if isinstance(request, contract.WorkloadRequest) and request.under is not None:
            self._require_proof(request.under)
            if self.machine.present:
                self._require_down(request.target)
        return contract.Workload(pods=self.machine.pods, attachments=0, per_minute=self.per_minute)

    def untaint_out_of_service(self, request: contract.UntaintRequest) -> contract.ActResult:
        done = self._untaint(request)
        return done if request.look is None else replace(done, look=self.last_look(request.look))

    def _untaint(self, request: contract.UntaintRequest) -> contract.ActResult:
        machine, mark = self.machine, self.machine.mark
        if not machine.present or self._is_another(request.target):
            return contract.ActResult(changed=False, detail="left alone")
        if mark is not None and self._is_ours(mark, request.target):
            machine.out_of_service = machine.out_of_service and not (mark.out_of_service or request.ours)
            machine.mark = replace(mark, out_of_service=False)
        elif request.ours:
            machine.out_of_service = machine.out_of_service and mark is not None and mark.out_of_service
        return contract.ActResult(changed=True, detail="untainted")

    # What the real activities require --------------------------------------------------------------------------------

    def _require_present(self) -> None:
        if not self.machine.present:
            raise failure(ErrorType.NOT_FOUND, "the Node is gone")

    def _require_pinned(self, target: contract.Target) -> None:
        self._require_present()
        if difference := compare_identity(target.pinned, self.machine.seen_node(), destructive=True):
            raise failure(ErrorType.TARGET_CHANGED, difference)

    def _require_ours(self, target: contract.Target) -> Mark:
        """The pinned node, and our mark on it."""
        self._require_pinned(target)
        mark = self.machine.mark
        if mark is None or not self._is_ours(mark, target):
            raise failure(ErrorType.VETOED, "the node does not carry our mark")
        return mark

    def _require_proof(self, request: contract.FreeRequest) -> None:
        if not proof_stands(request.proof, request.target.pinned.levels):
            raise failure(ErrorType.NOT_PROVEN, "the node is not proven off")

    def _require_down(self, target: contract.Target) -> Mark:
        mark = self._require_ours(target)
        if self.machine.ready or self.machine.boot_id != target.pinned.boot_id:
            raise failure(ErrorType.NOT_PROVEN, "the node is up, or has booted")
        return mark

    def _is_ours(self, mark: Mark, target: contract.Target) -> bool:
        return (mark.incident, mark.workflow_id) == (target.incident, target.workflow_id)

    def _is_another(self, target: contract.Target) -> bool:
        seen = self.machine.seen_node()
        return seen.uid != target.pinned.uid and not same_machine(target.pinned, seen)


# What an episode may have done to the devices of the played machine, each act as `activities/power/` does it.

SPEAKS = timedelta(seconds=10)
"""How often fence_kdump does."""


class DeviceActs(Played):
    """Power, paths, volumes, quarantine, and what is heard of a crash."""

    def read_power(self, request: contract.PowerRequest) -> Reading:
        return self._read(request, self.machine.power)

    def read_path(self, request: contract.PowerRequest) -> Reading:
        return self._read(request, self.machine.paths)

    def power_off(self, request: contract.PowerRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.OFF)
        return self._command(request, PowerState.OFF, self._switch)

    def power_on(self, request: contract.PowerRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.ON)
        return self._command(request, PowerState.ON, self._switch)

    def cut_path(self, request: contract.PowerRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.CUT_PATH)
        if self._noted(request.device.endpoint) is False:
            self.referee.fault("S35", f"{request.device.endpoint} is cut without a note")
        return self._command(request, PowerState.OFF, self._set_path)

    def restore_path(self, request: contract.PowerRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.RESTORE_PATH)
        return self._command(request, PowerState.ON, self._set_path)

    def terminate(self, request: contract.PowerRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.TERMINATE)
        endpoint = request.device.endpoint
        self._require_voice(endpoint)
        if self.machine.power[endpoint] is not PowerState.OFF:
            raise failure(ErrorType.NOT_PROVEN, f"{endpoint} is not off")
        if endpoint not in self.stuck:
            at = self.now + timedelta(seconds=self._delay if self._fault in {Fault.SLOW, Fault.LATE} else 0)
            self.machine.later(at, lambda: self.machine.give_up(at))
        return contract.CommandResult(sent=True, before=PowerState.OFF)

    def read_given_up(self, request: contract.GivenUpRequest) -> GivenUpReading:
        self._require_voice(request.device.endpoint)
        return GivenUpReading(endpoint=request.device.endpoint, given_up=self.machine.terminated, at=self.now)

    def quarantine(self, request: contract.PowerRequest) -> Quarantine:
        self._require_licence(request, PowerAct.QUARANTINE)
        endpoint = request.device.endpoint
        self._require_voice(endpoint)
        if self._noted(f"{endpoint}#quarantine") is False:
            self.referee.fault("S35", f"{endpoint} is put into quarantine without a note")
        self.machine.quarantined = True
        return Quarantine(group="sg-quarantine", former=(), at=self.now)

    def lift_quarantine(self, request: contract.LiftRequest) -> contract.QuarantineLifted:
        self._require_licence(request, PowerAct.LIFT_QUARANTINE)
        self._require_voice(request.device.endpoint)
        self.machine.quarantined = False
        return contract.QuarantineLifted(groups=())

    def list_volumes(self, request: contract.PowerRequest) -> contract.VolumesResult:
        self._require_voice(request.device.endpoint)
        root = VolumeReading(volume="vol-root", state=VolumeState.ATTACHED, at=self.now, root=True)
        attached = [name for name, attached in self.machine.attached.items() if attached]
        readings = [VolumeReading(volume=name, state=VolumeState.ATTACHED, at=self.now) for name in attached]
        return contract.VolumesResult(volumes=(root, *readings))

    def detach_volume(self, request: contract.VolumeRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.DETACH_VOLUME)
        self._require_voice(request.device.endpoint)
        end = self.now + (request.deadline if self._fault in {Fault.LATE, Fault.SLOW} else timedelta(0))
        self.referee.detached[request.volume] = end if self._fault is Fault.LATE else self.now
        if request.device.endpoint not in self.stuck:
            self.machine.later(end, lambda: self.machine.attached.__setitem__(request.volume, False))
        return contract.CommandResult(sent=True, before=PowerState.UNKNOWN)

    def read_volume(self, request: contract.VolumeRequest) -> VolumeReading:
        self._require_voice(request.device.endpoint)
        state = VolumeState.ATTACHED if self.machine.attached.get(request.volume) else VolumeState.AVAILABLE
        return VolumeReading(volume=request.volume, state=state, at=self.now)

    def read_kdump(self, request: contract.KdumpRequest) -> KdumpReading:
        silent = KdumpReading(at=self.now, listening=START - timedelta(hours=1), address="10.0.0.7")
        if (dump := self.machine.dump) is None:
            return silent
        messages = int((min(self.now, dump[1]) - dump[0]) / SPEAKS)
        return replace(silent, first=dump[0], last=dump[0] + messages * SPEAKS, messages=messages + 1)

    def _require_licence(self, request: DeviceCommand, act: PowerAct) -> None:
        if not is_licensed(request, act):
            self.referee.fault("S42", f"{act} without a licence of a look, but {request.licence!r}")

    def _read(self, request: contract.PowerRequest, states: dict[str, PowerState]) -> Reading:
        endpoint = request.device.endpoint
        self._require_voice(endpoint)
        return Reading(endpoint=endpoint, state=states[endpoint], at=self.clock)

    def _command(
        self, request: contract.PowerRequest, state: PowerState, change: Callable[[str, PowerState, datetime], None]
    ) -> contract.CommandResult:
        endpoint, began, fault = request.device.endpoint, self.now, self._fault
        self._require_voice(endpoint)
        before = (self.machine.power | self.machine.paths)[endpoint]
        at = began
        if fault is Fault.LATE:  # its worker stands still for a while, and goes on as long as it may
            assert request.not_after is not None, "every command has an end to its time"
            at = min(began + timedelta(seconds=self._delay), request.not_after - self.skew) + request.deadline
        elif fault is Fault.UNSURE:
            at = began + timedelta(seconds=1)
        assert self._attempt is not None
        self.referee.commands_device(self._attempt, request.device, state, at, request.target.incident)
        if fault is Fault.SLOW:
            at = began + timedelta(seconds=self._delay)
        if state is PowerState.ON or endpoint not in self.stuck:
            if at > began:
                self.machine.later(at, lambda: change(endpoint, state, at))
            else:
                change(endpoint, state, began)
        after = Reading(endpoint=endpoint, state=self.machine.power[endpoint], at=self.clock) if request.read_back else None
        return contract.CommandResult(sent=True, before=before, after=after)

    def _switch(self, endpoint: str, state: PowerState, at: datetime) -> None:
        self.machine.switch(endpoint, state, at)

    def _set_path(self, endpoint: str, state: PowerState, at: datetime) -> None:
        self.machine.paths[endpoint] = state
        if state is PowerState.ON:
            self.referee.opened_by_others.pop(endpoint, None)

    def _require_voice(self, endpoint: str) -> None:
        if endpoint in self.locked:
            raise failure(ErrorType.UNAUTHORIZED, f"{endpoint} takes our password no more")
        if endpoint in self.silent:
            raise failure(ErrorType.UNREACHABLE, f"{endpoint}: no answer")

    def _noted(self, endpoint: str) -> bool | None:
        """Whether our mark tells of a path; None where others have meddled with the mark."""
        mark = self.machine.mark
        return None if mark is None or self.machine.holder != OURS else endpoint in mark.paths


# What a remediation may have done about the played machine, each act as `activities/cluster/` does it.
#
# Pinning it, its Machine's deletion, its owner and its operator, objects of other controllers, what it is to remember. Whether it
# should have been asked at all is for the referee.

SUCCESSOR_COMES = timedelta(minutes=3)
OWNER = "MachineSet/workers"
DELETION_ASKED = "asked for its deletion"


class LadderActs(Played):
    """The activities of a ladder's steps, but for those that are a fencing's own."""

    def last_look(self, request: contract.LookRequest) -> contract.LookResult:
        """Of the Node (`NodeActs`)."""
        raise NotImplementedError

    def pin_target(self, request: RemediationInput) -> contract.RemediationPin:
        machine, mark = self.machine, self.machine.mark if self.machine.present else None
        assert self._attempt is not None
        if not self.machine_object.present and not machine.present:
            raise failure(ErrorType.NOT_FOUND, "there is no such Node or Machine")
        if machine.present and machine.holder != OURS:
            raise failure(ErrorType.NOT_FOUND, "another machine has the name")
        self.begins(request.incident)
        seen, adopted = (
            machine.seen_node(),
            mark is not None and (mark.incident, mark.run_id) != (request.incident, self._attempt.run_id),
        )
        return contract.RemediationPin(
            pinned=Pinned(
                node=NODE,
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
            owner=OWNER,
            adopted_incident=mark.incident if mark is not None and adopted else "",
            adopted_paths=mark.paths if mark is not None else (),
            seen=seen,
            streams=True,
        )

    # The Machine ----------------------------------------------------------------------------------------------------

    def follow_machine(self, request: contract.FollowRequest) -> contract.FollowedMachine:
        machine_object = self.machine_object
        if request.machine_uid != MACHINE_UID:
            self.referee.fault("S9", f"{request.machine_uid} is followed")
        if machine_object.present:
            return contract.FollowedMachine(
                deleting=machine_object.deleting is not None,
                deleting_since=machine_object.deleting,
                owner_status="False" if machine_object.asked else "",
            )
        assert machine_object.gone is not None
        ready = self.now >= machine_object.gone + SUCCESSOR_COMES
        machine_object.successor_memory = machine_object.successor_memory or request.memory
        return contract.FollowedMachine(
            gone=True,
            replacement=contract.Replacement(
                machine=SUCCESSOR, uid=f"uid-{SUCCESSOR}", node="node-8" if ready else "", ready=ready
            ),
        )

    def give_up(self, request: contract.GiveUpRequest) -> contract.GiveUpResult:
        machine_object = self.machine_object
        if request.machine_uid != MACHINE_UID:
            self.referee.fault("S9", f"{request.machine_uid} is to be deleted")
        if not machine_object.present:
            return contract.GiveUpResult(gone=True, detail="the Machine is gone")
        if machine_object.deleting is not None:
            return contract.GiveUpResult(detail="its deletion was asked for before")
        if request.withdraw:
            machine_object.claimed_by = "" if machine_object.claimed_by == request.incident else machine_object.claimed_by
            return contract.GiveUpResult(kept="it is not asked for any more")
        if (seen := self._looked(request.before)).verdict is not contract.LookVerdict.GO:
            return contract.GiveUpResult(detail=seen.reason, look=seen)
        if kept := self._kept():
            return contract.GiveUpResult(kept=kept, look=seen)
        machine_object.claimed_by = request.incident
        machine_object.deleting = self.now
        return contract.GiveUpResult(detail=DELETION_ASKED, look=seen)

    def _looked(self, before: contract.BeforeActing | None) -> contract.LookResult:
        """The last look and the note, which come first."""
        assert before is not None
        seen = self.last_look(before.look)
        if seen.verdict is contract.LookVerdict.GO and before.remember is not None:
            self.remember(before.remember)
        return seen

    def request_owner(self, request: contract.MachineRequest) -> contract.ActResult:
        if (seen := self._looked(request.before)).verdict is not contract.LookVerdict.GO:
            return contract.ActResult(changed=False, detail=seen.reason, look=seen)
        self._require_not_kept(request.machine_uid)
        if self.machine_object.asked is None:
            self.machine_object.asked, self.machine_object.asked_by = self.now, request.target.incident
        return contract.ActResult(changed=True, detail="its owner is asked to remediate it", look=seen)

    def annotate_external(self, request: contract.MachineRequest) -> contract.ActResult:
        if (seen := self._looked(request.before)).verdict is not contract.LookVerdict.GO:
            return contract.ActResult(changed=False, detail=seen.reason, look=seen)
        self._require_not_kept(request.machine_uid)
        if self.machine_object.annotated is None:
            self.machine_object.annotated, self.machine_object.annotated_by = self.now, request.target.incident
            self._others_act(self.machine_object.operator_acts_after)
        return contract.ActResult(changed=True, detail="annotated", look=seen)

    def take_back(self, request: contract.MachineRequest) -> contract.ActResult:
        machine_object = self.machine_object
        machine_object.annotated = None
        machine_object.asked = machine_object.asked if machine_object.deleting is not None else None
        return contract.ActResult(changed=True, detail="its owner is asked no more")

    def remember(self, request: contract.RememberRequest) -> contract.ActResult:
        self.machine_object.memory = request.memory
        return contract.ActResult(changed=True, detail="noted")

    def find_volumes(self, request: contract.FailedVolumesRequest) -> contract.FailedVolumes:
        if not self.machine.attached.get("vol-a"):
            return contract.FailedVolumes(failure=Failure(refused="that names no volume"), eviction_timeout=timedelta(seconds=30))
        pod = PodOnNode(key="demo/database-0", uid="uid-db", volumes=("pvc-a",))
        found = Failure(volumes=(AttachedVolume(name="pvc-a", handle="vol-a"),), mounting=(pod,))
        return contract.FailedVolumes(failure=found, eviction_timeout=timedelta(seconds=30))

    # Objects of other controllers -----------------------------------------------------------------------------------

    def create_object(self, request: contract.ExternalRequest) -> contract.External:
        if (seen := self._looked(request.before)).verdict is not contract.LookVerdict.GO:
            return contract.External(present=False, look=seen)
        self._require_not_kept(request.machine_uid)
        objects, name = self.machine_object.objects, named(request)
        if name not in objects:
            objects[name] = made = Handed(by=request.target.incident, created=self.now)
            if (after := self.machine_object.operator_acts_after) is None:
                made.fails_at = self.now + timedelta(minutes=2)
            else:
                made.succeeds_at = self.now + after
            self._others_act(after, made)
        return replace(self._seen(request), look=seen)

    def read_object(self, request: contract.ExternalRequest) -> contract.External:
        return self._seen(request)

    def time_out_object(self, request: contract.ExternalRequest) -> contract.External:
        made = self.machine_object.objects.get(named(request))
        if made is not None and (made.succeeds_at is None or self.now < made.succeeds_at):
            made.timed_out = True
        return self._seen(request)

    def note_well(self, request: contract.ExternalRequest) -> contract.External:
        return self._seen(request)

    def delete_object(self, request: contract.ExternalRequest) -> contract.External:
        made = self.machine_object.objects.get(named(request))
        if made is not None and made.goes_at is None:
            made.goes_at = self.now + timedelta(seconds=5)
        return self._seen(request)

    # Inside ---------------------------------------------------------------------------------------------------------

    def _others_act(self, after: timedelta | None, made: Handed | None = None) -> None:
        """Another controller starts the machine anew, unless it was told to leave it meanwhile."""
        if after is None:
            return
        at = self.now + after

        def happens() -> None:
            stands = (
                not made.timed_out and made.goes_at is None if made is not None else self.machine_object.annotated is not None
            )
            if stands and self.machine_object.present:
                self.machine.reboot(at)

        self.machine.later(at, happens)

    def _seen(self, request: contract.ExternalRequest) -> contract.External:
        made = self.machine_object.objects.get(named(request))
        if made is None:
            return contract.External(present=False)
        succeeded = made.succeeds_at is not None and self.now >= made.succeeds_at and not made.timed_out
        failed = made.fails_at is not None and self.now >= made.fails_at
        return contract.External(
            present=True,
            ref=ObjectRef(
                api_version=request.template.api_version, kind=named(request), name=NODE, namespace=request.template.namespace
            ),
            uid=f"uid-{named(request)}",
            incident=made.by,
            created=made.created,
            timed_out=made.timed_out,
            processing="False" if succeeded or failed else "True",
            succeeded="True" if succeeded else "False" if failed else "Unknown",
            deleting=made.goes_at is not None,
        )

    def _kept(self) -> str:
        """What the deletion obeys on both objects; who writes on the Machine alone looks at no other."""
        return "the annotation preserve=now keeps it" if self.machine_object.preserved is not None else ""

    def _require_not_kept(self, machine_uid: str) -> None:
        if machine_uid and machine_uid != MACHINE_UID:
            self.referee.fault("S9", f"{machine_uid} is acted on")
        if not self.machine_object.present:
            raise failure(ErrorType.TARGET_CHANGED, "the Machine is gone")
        if kept := self._kept():
            raise failure(ErrorType.VETOED, kept)


def named(request: contract.ExternalRequest) -> str:
    """By the kind of its template, so that what a ladder does reads as it is meant."""
    return request.template.kind.removesuffix("Template")
