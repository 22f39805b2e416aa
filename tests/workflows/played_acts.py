"""What an episode may ask of a machine, its Node and its Machine, done as the activities do it, in any played world.

Acts are thin: what is so is in `machine.py`. What goes wrong, and whether an act should have been asked for, each world adds: a
scripted one (`world.py`) or an adversary's (`adversary.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from temporalio.exceptions import ApplicationError

from activities.cluster.objects.marks import claim, spelled
from activities.errors import ErrorType, failure
from activities.licences import DeviceCommand
from policy.episode.gate import Operation
from policy.episode.messages import GivenUpReading, Need, Pinned, Reading, VolumeReading
from policy.episode.proofs import compare_identity, paths_cut, proof_stands, same_machine
from policy.fence.plan import PowerDevice, begins_with_cordon
from policy.fence.power import PowerAct, PowerState, Quarantine, VolumeState
from policy.objects.marks import Mark
from policy.values.object_refs import ObjectRef
from tests.licensing import is_licensed
from tests.workflows import contract
from tests.workflows.contract import LookVerdict
from tests.workflows.machine import MACHINE, MACHINE_UID, OURS, SUCCESSOR, Machine, MachineObject, RemediationObject


def at_once(answer: Any) -> Any:
    """What a played act answers that does not wait."""
    if not isinstance(answer, Coroutine):
        return answer
    try:
        answer.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("a played act waits")


class Acts:
    """What a world adds to the acts on its machine."""

    machine: Machine

    @property
    def moment(self) -> datetime:
        """When an act is asked for."""
        raise NotImplementedError

    @property
    def clock(self) -> datetime:
        """What time it is then for the worker that is asked."""
        return self.moment

    def fault(self, rule: str, what: str) -> None:
        """A rule is broken."""
        raise NotImplementedError

    async def act(self, name: str) -> None:
        """Note an act, before it changes anything; it may wait here, or fail."""

    def answered(self, act: str) -> None:
        """It was carried out; its answer may be lost."""

    async def last_look(self, request: contract.LookRequest) -> contract.LookResult:
        """What the gate says just now."""
        raise NotImplementedError


# What an episode may have done to a Node, each act as `activities/cluster/` does it: what it looks at, what it writes.


Freeing = contract.FreeRequest | contract.FreeCutRequest | contract.FreeDumpingRequest


class NodeActs(Acts):
    """Marking it, isolating it, freeing what ran on it, and the way back."""

    # What a world adds ----------------------------------------------------------------------------------------------

    need: Need

    def identity(self) -> tuple[str, str, str]:
        """Workflow id, run id and kind of the episode that asks."""
        raise NotImplementedError

    def begins(self, request: contract.PinRequest) -> None:
        """An episode's first look. Raises where it finds nothing to repair."""

    def is_ours(self, mark: Mark, target: contract.Target) -> bool:
        """Whether a mark is of the episode that asks."""
        return (mark.incident, mark.workflow_id) == (target.incident, target.workflow_id)

    def judge_freeing(self, request: Freeing, act: str) -> None:
        """Hold the rules against it, before anything of it is refused."""

    def require_leave(self, request: contract.FreeRequest) -> None:
        """Raises where the Node may not be deleted just now."""

    def freed(self, target: contract.Target, *, all_of_it: bool) -> None:
        """A consequence was carried out."""

    async def publish_along(self, publication: contract.Publication | None) -> None:
        """What an act takes along."""

    # Marks ----------------------------------------------------------------------------------------------------------

    async def pin(self, request: contract.PinRequest) -> contract.PinResult:
        machine, wanted = self.machine, request.wanted
        await self.act("pin")
        self.begins(request)
        mark, (workflow_id, run_id, kind) = machine.mark, self.identity()
        adopted = mark is not None and (mark.incident, mark.run_id) != (wanted.incident, request.run_id or run_id)
        pinned = Pinned(
            node=machine.name,
            uid=machine.uid,
            provider_id=machine.provider_id,
            system_uuid=machine.system_uuid,
            boot_id=machine.boot_id,
            zone="a",
            not_ready_since=(machine.not_ready_since or self.moment) if not machine.ready else None,
            endpoints=machine.plan.endpoints,
            levels=tuple(tuple(device.endpoint for device in level) for level in machine.plan.levels),
            addresses=("10.0.0.7",),
        )
        added, cordoned = None, ""
        if request.marks_as and not adopted:
            target = contract.Target(
                cluster=wanted.cluster,
                pinned=pinned,
                incident=wanted.incident,
                kind=kind,
                workflow_id=workflow_id,
                run_id=request.marks_as,
            )
            with contextlib.suppress(ApplicationError):  # told by the mark that follows
                added = (await self.mark(contract.ActRequest(target=target))).added
                if request.cordons and begins_with_cordon(machine.plan):
                    look = contract.LookRequest(
                        target=target, need=wanted.need or self.need, holder=wanted.holder, operation=Operation.CORDON
                    )
                    done = await self.mark_unschedulable(contract.CordonRequest(look=look))
                    added, cordoned = (
                        done.added or added,
                        done.detail if done.look is not None and done.look.verdict is LookVerdict.GO else "",
                    )
        return contract.PinResult(
            pinned=pinned,
            plan=machine.plan,
            need=wanted.need or self.need,
            added=added,
            adopted_incident=mark.incident if mark is not None and adopted else "",
            adopted_paths=mark.paths if mark is not None else (),
            seen=machine.seen_node(),
            streams=True,
            cordoned=cordoned,
        )

    async def mark(self, request: contract.ActRequest) -> contract.ActResult:
        self.require_pinned(request.target)
        await self.act("mark")
        before = self.machine.mark
        self.machine.mark = claim(before, request.target, self.moment, request.added)
        self.answered("mark")
        await self.publish_along(request.publication)
        return contract.ActResult(changed=before != self.machine.mark, detail="marked", added=self.machine.mark.added)

    async def note_path(self, request: contract.PathRequest) -> contract.ActResult:
        machine, mark = self.machine, self.machine.mark
        await self.act(f"note {'cut' if request.cut else 'back'}")
        if request.cut:
            mark = self.require_ours(request.target)
        elif not machine.present or mark is None or not self.is_ours(mark, request.target):
            return contract.ActResult(changed=False, detail="left alone")
        others = tuple(each for each in mark.paths if each != request.endpoint)
        machine.mark = replace(mark, paths=(*others, request.endpoint) if request.cut else others)
        return contract.ActResult(changed=True, detail="noted")

    # Isolation ------------------------------------------------------------------------------------------------------

    async def mark_unschedulable(self, request: contract.CordonRequest) -> contract.ActResult:
        if (seen := await self.last_look(request.look)).verdict is not LookVerdict.GO:
            return contract.ActResult(changed=False, detail=seen.reason, look=seen)
        await self.act("cordon")
        mark, changed = self.require_ours(request.target), not self.machine.unschedulable
        self.machine.mark, self.machine.unschedulable = replace(mark, cordoned=mark.cordoned or changed), True
        return contract.ActResult(changed=changed, detail="cordoned", added=self.machine.mark.added, look=seen)

    async def taint(self, request: contract.TaintRequest) -> contract.ActResult:
        if (seen := await self.last_look(request.look)).verdict is not LookVerdict.GO:
            return contract.ActResult(changed=False, detail=seen.reason, look=seen)
        await self.act(f"taint {request.taint.key}")
        mark, taint = self.require_ours(request.target), spelled(request.taint)
        changed = taint not in mark.taints
        self.machine.mark = replace(mark, taints=tuple(dict.fromkeys((*mark.taints, taint))))
        self.machine.taints.add(taint)
        return contract.ActResult(changed=changed, detail="tainted", added=self.machine.mark.added, look=seen)

    # Freeing --------------------------------------------------------------------------------------------------------

    async def taint_out_of_service(self, request: contract.FreeRequest) -> contract.ActResult:
        machine = self.machine
        if machine.per_minute is not None:
            raise failure(ErrorType.NOT_LICENSED, "a taint frees all at once")
        if not machine.present:
            raise failure(ErrorType.NOT_FOUND, "the Node is gone: delete what is left of its workload")
        await self._begin_freeing(request, "taint")
        machine.out_of_service = True
        if machine.mark is not None:
            machine.mark = replace(machine.mark, out_of_service=True)
        if not machine.stubborn:
            machine.pods = machine.cut_pods = 0
        self.freed(request.target, all_of_it=True)
        return contract.ActResult(changed=True, detail="tainted", left=self.standing())

    async def delete_workload(self, request: contract.FreeRequest) -> contract.FreeResult:
        await self._begin_freeing(request, "delete-workload")
        deleted = self._portion(request.at_most, self.machine.pods)
        self.machine.pods -= deleted
        self.freed(request.target, all_of_it=True)
        return contract.FreeResult(deleted_pods=deleted, left=self.standing())

    async def delete_node(self, request: contract.FreeRequest) -> contract.ActResult:
        await self._begin_freeing(request, "delete-node")
        if self.machine.present:
            if self.require_ours(request.target).paths:
                raise failure(ErrorType.INVALID_CONFIG, "its mark tells which paths are cut")
            self.require_leave(request)
            self.machine.lose_node()
        self.freed(request.target, all_of_it=False)
        return contract.ActResult(changed=True, detail="deleted")

    async def free_cut_pods(self, request: contract.FreeCutRequest) -> contract.FreeResult:
        machine = self.machine
        self.judge_freeing(request, "free-cut-pods")
        if not paths_cut(request.proofs, request.target.pinned.endpoints):
            raise failure(ErrorType.NOT_PROVEN, "no path of it is proven cut")
        self.require_down(request.target)
        await self.act("free-cut-pods")
        deleted = self._portion(request.at_most, machine.cut_pods)
        machine.cut_pods -= deleted
        machine.freed_storage = request.storage
        self.freed(request.target, all_of_it=False)
        return contract.FreeResult(
            deleted_pods=deleted, left=replace(self.standing(), pods=machine.cut_pods, names=(), workloads=())
        )

    async def free_while_dumping(self, request: contract.FreeDumpingRequest) -> contract.FreeResult:
        machine = self.machine
        self.judge_freeing(request, "free-while-dumping")
        if not machine.present:
            raise failure(ErrorType.NOT_PROVEN, "the Node is gone")
        self.require_down(request.target)
        await self.act("free-while-dumping")
        deleted = min(self._portion(request.at_most, machine.pods), machine.dumping_frees)
        machine.pods -= deleted
        self.freed(request.target, all_of_it=False)
        return contract.FreeResult(deleted_pods=deleted, left=self.standing())

    async def read_workload(self, request: contract.WorkloadRequest) -> contract.Workload:
        if request.under is not None:
            self._require_proof(request.under)
            if self.machine.present:
                self.require_down(request.target)
        return self.standing()

    def standing(self) -> contract.Workload:
        """What stands against the Node."""
        names = tuple(f"pod-{number}" for number in range(self.machine.pods))
        limit = self.machine.per_minute
        return contract.Workload(pods=self.machine.pods, attachments=0, names=names, workloads=names, per_minute=limit)

    async def _begin_freeing(self, request: contract.FreeRequest, act: str) -> None:
        self.judge_freeing(request, act)
        self._require_proof(request)
        if self.machine.present:
            self.require_down(request.target)
        await self.act(act)

    def _portion(self, at_most: int | None, pods: int) -> int:
        if self.machine.stubborn:
            return 0
        return pods if self.machine.per_minute is None else min(at_most or 0, pods)

    # The way back ---------------------------------------------------------------------------------------------------

    async def untaint_out_of_service(self, request: contract.UntaintRequest) -> contract.ActResult:
        await self.act("untaint")
        done = self._untaint(request)
        return done if request.look is None else replace(done, look=await self.last_look(request.look))

    def _untaint(self, request: contract.UntaintRequest) -> contract.ActResult:
        machine, mark = self.machine, self.machine.mark
        if not machine.present or self._is_another(request.target):
            return contract.ActResult(changed=False, detail="left alone")
        if mark is not None and self.is_ours(mark, request.target):
            machine.out_of_service = machine.out_of_service and not (mark.out_of_service or request.ours)
            machine.mark = replace(mark, out_of_service=False)
        elif request.ours:
            machine.out_of_service = machine.out_of_service and mark is not None and mark.out_of_service
        return contract.ActResult(changed=True, detail="untainted")

    async def mark_schedulable(self, request: contract.RestoreRequest) -> contract.ActResult:
        await self.act("unmark" if request.keep_cordon else "uncordon")
        done = self._restore(request)
        await self.publish_along(request.publication)
        return done

    def _restore(self, request: contract.RestoreRequest) -> contract.ActResult:
        machine, mark = self.machine, self.machine.mark
        if not machine.present or self._is_another(request.target):
            return contract.ActResult(changed=False, detail="left alone")
        if mark is None or not self.is_ours(mark, request.target):
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

    # What the real activities require --------------------------------------------------------------------------------

    def require_pinned(self, target: contract.Target) -> None:
        """The pinned Node."""
        if not self.machine.present:
            raise failure(ErrorType.NOT_FOUND, "the Node is gone")
        if difference := compare_identity(target.pinned, self.machine.seen_node(), destructive=True):
            raise failure(ErrorType.TARGET_CHANGED, difference)

    def require_ours(self, target: contract.Target) -> Mark:
        """The pinned Node, and our mark on it."""
        self.require_pinned(target)
        mark = self.machine.mark
        if mark is None or not self.is_ours(mark, target):
            raise failure(ErrorType.VETOED, "the node does not carry our mark")
        return mark

    def require_down(self, target: contract.Target) -> Mark:
        """The same, and it has not come back."""
        mark = self.require_ours(target)
        if self.machine.ready or self.machine.boot_id != target.pinned.boot_id:
            raise failure(ErrorType.NOT_PROVEN, "the node is up, or has booted")
        return mark

    def _require_proof(self, request: contract.FreeRequest) -> None:
        if not proof_stands(request.proof, request.target.pinned.levels):
            raise failure(ErrorType.NOT_PROVEN, "the node is not proven off")

    def _is_another(self, target: contract.Target) -> bool:
        seen = self.machine.seen_node()
        return seen.uid != target.pinned.uid and not same_machine(target.pinned, seen)


# What an episode may have done to the devices of a machine, each act as `activities/power/` does it.


class DeviceActs(Acts):
    """Power, paths, volumes and quarantine of one machine."""

    # What a world adds ----------------------------------------------------------------------------------------------

    def commanded(self, request: contract.PowerRequest | contract.VolumeRequest, act: PowerAct) -> datetime:
        """Judge a command. Answers when it takes effect."""
        raise NotImplementedError

    def obeys(self, device: str) -> bool:
        """Whether a device, or a volume, does what it accepts."""
        return device not in self.machine.stuck

    def is_noted(self, path: str) -> bool | None:
        """Whether our mark tells of a path; None where others have meddled with the mark."""
        mark = self.machine.mark
        return None if mark is None or self.machine.holder != OURS else path in mark.paths

    def require_seal(self, device: PowerDevice) -> None:
        """Raises where a worker would read no credential for it."""

    # Power ----------------------------------------------------------------------------------------------------------

    async def read_power(self, request: contract.PowerRequest) -> Reading:
        return await self._read(request, "read", self.machine.power)

    async def power_off(self, request: contract.PowerRequest) -> contract.CommandResult:
        return await self._command(request, PowerAct.OFF, "off")

    async def power_on(self, request: contract.PowerRequest) -> contract.CommandResult:
        return await self._command(request, PowerAct.ON, "on")

    async def terminate(self, request: contract.PowerRequest) -> contract.CommandResult:
        at = await self._begin_command(request, PowerAct.TERMINATE, "terminate")
        endpoint = request.device.endpoint
        if self.machine.power[endpoint] is not PowerState.OFF:
            raise failure(ErrorType.NOT_PROVEN, f"{endpoint} is not off")
        if self.obeys(endpoint):
            self.machine.later(at, lambda: self.machine.give_up(at))
        self.answered("terminate")
        return contract.CommandResult(sent=True, before=PowerState.OFF, machine="number-1")

    async def read_given_up(self, request: contract.GivenUpRequest) -> GivenUpReading:
        self.require_seal(request.device)
        await self.act("read-given-up")
        self.require_voice(request.device.endpoint)
        given_up = self.machine.terminated
        detail = f"{request.machine or 'one of that name'} is {'gone' if given_up else 'there'}"
        return GivenUpReading(endpoint=request.device.endpoint, given_up=given_up, at=self.moment, detail=detail)

    # Paths ----------------------------------------------------------------------------------------------------------

    async def read_path(self, request: contract.PowerRequest) -> Reading:
        return await self._read(request, "read-path", self.machine.paths)

    async def cut_path(self, request: contract.PowerRequest) -> contract.CommandResult:
        if self.is_noted(request.device.endpoint) is False:
            self.fault("S35", f"{request.device.endpoint} is cut without a note")
        return await self._command(request, PowerAct.CUT_PATH, "cut-path")

    async def restore_path(self, request: contract.PowerRequest) -> contract.CommandResult:
        return await self._command(request, PowerAct.RESTORE_PATH, "restore-path")

    async def quarantine(self, request: contract.PowerRequest) -> Quarantine:
        endpoint = request.device.endpoint
        await self._begin_command(request, PowerAct.QUARANTINE, "quarantine")
        if self.is_noted(f"{endpoint}#quarantine") is False:
            self.fault("S35", f"{endpoint} is put into quarantine without a note")
        self.machine.quarantined = True
        self.answered("quarantine")
        return Quarantine(group="sg-quarantine", former=(), at=self.moment)

    async def lift_quarantine(self, request: contract.LiftRequest) -> contract.QuarantineLifted:
        self._require_licence(request, PowerAct.LIFT_QUARANTINE)
        self.require_voice(request.device.endpoint)
        await self.act("lift-quarantine")
        self.machine.quarantined = False
        return contract.QuarantineLifted(groups=())

    # Volumes --------------------------------------------------------------------------------------------------------

    async def list_volumes(self, request: contract.PowerRequest) -> contract.VolumesResult:
        self.require_seal(request.device)
        await self.act("list-volumes")
        self.require_voice(request.device.endpoint)
        root = VolumeReading(volume="vol-root", state=VolumeState.ATTACHED, at=self.clock, root=True)
        attached = [name for name, state in self.machine.volumes.items() if state is VolumeState.ATTACHED]
        readings = [VolumeReading(volume=name, state=VolumeState.ATTACHED, at=self.clock) for name in attached]
        return contract.VolumesResult(volumes=(root, *readings))

    async def detach_volume(self, request: contract.VolumeRequest) -> contract.CommandResult:
        at = await self._begin_command(request, PowerAct.DETACH_VOLUME, f"detach {request.volume}")
        if self.obeys(request.device.endpoint) and self.obeys(request.volume):
            self.machine.later(at, lambda: self.machine.volumes.__setitem__(request.volume, VolumeState.AVAILABLE))
            self.machine.settle(self.moment)
        self.answered("detach")
        return contract.CommandResult(sent=True, before=PowerState.UNKNOWN)

    async def read_volume(self, request: contract.VolumeRequest) -> VolumeReading:
        self.require_seal(request.device)
        await self.act("read-volume")
        self.require_voice(request.device.endpoint)
        return VolumeReading(volume=request.volume, state=self.machine.volumes[request.volume], at=self.clock)

    # Inside ---------------------------------------------------------------------------------------------------------

    def require_voice(self, endpoint: str) -> None:
        """Not of a device that answers nothing."""
        if endpoint in self.machine.locked and not self.machine.has_secret:
            raise failure(ErrorType.INVALID_CONFIG, f"{endpoint}: its Secret is gone")
        if endpoint in self.machine.locked:
            raise failure(ErrorType.UNAUTHORIZED, f"{endpoint} takes our password no more")
        if endpoint in self.machine.silent:
            raise failure(ErrorType.UNREACHABLE, f"{endpoint}: no answer")

    def _require_licence(self, request: DeviceCommand, act: PowerAct) -> None:
        if not is_licensed(request, act):
            self.fault("S42", f"{act} without a licence of a look, but {request.licence!r}")
        self.require_seal(request.device)

    async def _read(self, request: contract.PowerRequest, act: str, states: dict[str, PowerState]) -> Reading:
        endpoint = request.device.endpoint
        self.require_seal(request.device)
        await self.act(act)
        self.require_voice(endpoint)
        return Reading(endpoint=endpoint, state=states[endpoint], at=self.clock)

    async def _begin_command(self, request: contract.PowerRequest | contract.VolumeRequest, act: PowerAct, name: str) -> datetime:
        self._require_licence(request, act)
        self.require_voice(request.device.endpoint)
        await self.act(name)
        return self.commanded(request, act)

    async def _command(self, request: contract.PowerRequest, act: PowerAct, name: str) -> contract.CommandResult:
        machine, endpoint = self.machine, request.device.endpoint
        at = await self._begin_command(request, act, name)
        of_path = act in {PowerAct.CUT_PATH, PowerAct.RESTORE_PATH}
        state = PowerState.OFF if act in {PowerAct.OFF, PowerAct.CUT_PATH} else PowerState.ON
        before = (machine.paths if of_path else machine.power)[endpoint]
        if state is PowerState.ON or self.obeys(endpoint):
            change = self.set_path if of_path else machine.switch
            machine.later(at, lambda: change(endpoint, state, at))
            machine.settle(self.moment)
        self.answered(name)
        after = None
        if request.read_back:
            with contextlib.suppress(ApplicationError):
                after = await self.read_power(request)
        return contract.CommandResult(sent=True, before=before, after=after)

    def set_path(self, endpoint: str, state: PowerState, _at: datetime) -> None:
        """A path is cut, or opened."""
        self.machine.paths[endpoint] = state


# What a remediation may have done about a machine, each act as `activities/cluster/` does it.
#
# Pinning it, its Machine's deletion, its owner and its operator, objects of other controllers, what it is to remember.

DELETION_ASKED = "asked for its deletion"
Begun = TypeVar("Begun", contract.ActResult, contract.External, contract.GiveUpResult)


class MachineActs(Acts):
    """Activities of a ladder's steps on one Machine, but for those that are a fencing's own."""

    machine_object: MachineObject

    # What a world adds ----------------------------------------------------------------------------------------------

    def holds_permit(self) -> bool:
        """Whether the scanner has granted one."""
        raise NotImplementedError

    def others_act(self, made: RemediationObject | None) -> None:
        """A controller sees an object, or with None the annotation on the Machine."""

    def by_its_clock(self, moment: datetime) -> datetime:
        """What the API server calls that moment."""
        return moment

    # The Machine ----------------------------------------------------------------------------------------------------

    async def follow_machine(self, request: contract.FollowRequest) -> contract.FollowedMachine:
        machine = self.machine_object
        await self.act("follow")
        if (request.machine, request.machine_uid) != (MACHINE, MACHINE_UID):
            self.fault("S9", f"{request.machine_uid} is followed")
        found = self._replacement(request.memory)
        if not machine.present:
            return contract.FollowedMachine(
                gone=True, replacement=found, scaled_down=machine.scaled_down if found is None else ""
            )
        reason, message = machine.owner_says if machine.owner_asked is not None else ("", "")
        return contract.FollowedMachine(
            deleting=machine.deleting is not None,
            deleting_since=machine.deleting,
            phase="Deleting" if machine.deleting else "Running",
            waits="its finalizers machine" if machine.deleting else "",
            owner_status="False" if machine.owner_asked is not None else "",
            owner_reason=reason,
            owner_message=message,
            replacement=found,
        )

    def _replacement(self, memory: str) -> contract.Replacement | None:
        if (came := self.machine_object.came) is None:
            return None
        came.memory = came.memory or memory
        ready = came.ready_at is not None and self.moment >= came.ready_at
        return contract.Replacement(
            machine=SUCCESSOR, uid=f"uid-{SUCCESSOR}", node="node-8" if ready else "", ready=ready, failed=came.failed
        )

    async def give_up(self, request: contract.GiveUpRequest) -> contract.GiveUpResult:
        return await self._begin(
            request, lambda: self._give_up(request), lambda seen: contract.GiveUpResult(detail=seen.reason, look=seen)
        )

    async def _give_up(self, request: contract.GiveUpRequest) -> contract.GiveUpResult:
        machine = self.machine_object
        await self.act("withdraw" if request.withdraw else "give-up")
        if (request.machine, request.machine_uid) != (MACHINE, MACHINE_UID):
            self.fault("S9", f"{request.machine_uid} is to be deleted")
        if not machine.present:
            return contract.GiveUpResult(gone=True, detail="the Machine is gone")
        if machine.deleting is not None:
            return contract.GiveUpResult(detail="its deletion was asked for before")
        if request.withdraw:
            machine.claimed_by = "" if machine.claimed_by == request.incident else machine.claimed_by
            return contract.GiveUpResult(kept="it is not asked for any more")
        if machine.why_kept:
            return contract.GiveUpResult(kept=machine.why_kept)
        machine.claimed_by, machine.deleting = request.incident, self.moment.replace(microsecond=0)
        machine.deletions.append(self.moment)
        return contract.GiveUpResult(detail=DELETION_ASKED)

    async def request_owner(self, request: contract.MachineRequest) -> contract.ActResult:
        async def ask() -> contract.ActResult:
            self._require_not_kept(request.machine_uid)
            await self.act("request-owner")
            if self.machine_object.owner_asked is None:
                self.machine_object.owner_asked, self.machine_object.owner_asked_by = self.moment, request.target.incident
            return contract.ActResult(changed=True, detail="its owner is asked to remediate it")

        return await self._begin(request, ask, _not_begun)

    async def annotate_external(self, request: contract.MachineRequest) -> contract.ActResult:
        async def annotate() -> contract.ActResult:
            self._require_not_kept(request.machine_uid)
            await self.act("annotate-external")
            if not self.machine_object.annotated:
                self.machine_object.annotated, self.machine_object.annotated_by = True, request.target.incident
                self.machine_object.annotated_at = self.moment
                self.others_act(None)
            return contract.ActResult(changed=True, detail="annotated")

        return await self._begin(request, annotate, _not_begun)

    async def take_back(self, request: contract.MachineRequest) -> contract.ActResult:
        machine = self.machine_object
        await self.act("take-back")
        machine.annotated = False
        machine.owner_asked = machine.owner_asked if machine.deleting is not None else None
        return contract.ActResult(changed=True, detail="its owner is asked no more")

    async def remember(self, request: contract.RememberRequest) -> contract.ActResult:
        machine = self.machine_object
        if request.instead_of:
            await self.act("forget")
            anew = (request.memory, request.memory if request.on_node is None else request.on_node)
            pairs = zip(machine.stands, anew, strict=True)
            machine.stands = tuple(new if there == request.instead_of else there for there, new in pairs)  # type: ignore[assignment]
            return contract.ActResult(changed=True, detail="noted no longer")
        await self.act("remember")
        machine.memories.append(request.memory)
        machine.stands = (request.memory, request.memory)
        return contract.ActResult(changed=True, detail="noted")

    async def _begin(
        self,
        request: contract.ExternalRequest | contract.GiveUpRequest | contract.MachineRequest,
        act: Callable[[], Awaitable[Begun]],
        refused: Callable[[contract.LookResult], Begun],
    ) -> Begun:
        """The last look and the note come first, in the same activity."""
        if request.before is None:
            return await act()
        seen = await self.last_look(request.before.look)
        if seen.verdict is not LookVerdict.GO:
            return refused(seen)
        if not self.holds_permit():
            self.fault("S14", "another controller is set to work without a permit")
        if request.before.remember is not None:
            await self.remember(request.before.remember)
        return replace(await act(), look=seen)

    def _require_not_kept(self, machine_uid: str) -> None:
        if machine_uid and machine_uid != MACHINE_UID:
            self.fault("S9", f"{machine_uid} is acted on")
        if not self.machine_object.present:
            raise failure(ErrorType.TARGET_CHANGED, "the Machine is gone")
        if self.machine_object.why_kept:
            raise failure(ErrorType.VETOED, self.machine_object.why_kept)

    # Objects of other controllers -----------------------------------------------------------------------------------

    async def create_object(self, request: contract.ExternalRequest) -> contract.External:
        async def create() -> contract.External:
            self._require_not_kept(request.machine_uid)
            objects, kind = self.machine_object.objects, kind_of(request)
            await self.act(f"create {kind}")
            if kind not in objects:
                objects[kind] = RemediationObject(created=self.moment.replace(microsecond=0), by=request.target.incident)
                self.others_act(objects[kind])
            return await self.read_object(request)

        return await self._begin(request, create, lambda seen: contract.External(present=False, message=seen.reason, look=seen))

    async def time_out_object(self, request: contract.ExternalRequest) -> contract.External:
        made = self.machine_object.objects.get(kind_of(request))
        if made is not None and made.succeeded != "True":
            await self.act(f"time-out {kind_of(request)}")
            made.timed_out = True
        return await self.read_object(request)

    async def note_well(self, request: contract.ExternalRequest) -> contract.External:
        await self.act("note-well" if request.well_since is not None else "note-sick")
        if (made := self.machine_object.objects.get(kind_of(request))) is not None:
            made.well_since = request.well_since
        return await self.read_object(request)

    async def delete_object(self, request: contract.ExternalRequest) -> contract.External:
        machine, kind = self.machine_object, kind_of(request)
        await self.act(f"delete {kind}")
        if machine.check_paused and request.adopted:
            raise failure(ErrorType.VETOED, "MachineHealthCheck/a/m is paused")
        if (made := machine.objects.get(kind)) is not None and made.goes_at is None:
            made.goes_at = self.moment + machine.objects_go_after
        if not machine.objects_go_after:
            machine.objects.pop(kind, None)
        return await self.read_object(request)

    async def read_object(self, request: contract.ExternalRequest) -> contract.External:
        kind, template = kind_of(request), request.template
        if (made := self.machine_object.objects.get(kind)) is None:
            return contract.External(present=False)
        return contract.External(
            present=True,
            ref=ObjectRef(api_version=template.api_version, kind=kind, name=self.machine.name, namespace=template.namespace),
            uid=f"uid-{kind}",
            incident=made.by,
            created=self.by_its_clock(made.created),
            timed_out=made.timed_out,
            processing=made.processing,
            succeeded=made.succeeded,
            node_deletion=made.node_deletion,
            phase=made.phase,
            message=made.message,
            deleting=made.goes_at is not None,
            well_since=made.well_since,
        )


def _not_begun(seen: contract.LookResult) -> contract.ActResult:
    return contract.ActResult(changed=False, detail=seen.reason, look=seen)


def kind_of(request: contract.ExternalRequest) -> str:
    """Of the object that a template makes."""
    return request.template.kind.removesuffix("Template")
