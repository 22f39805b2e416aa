"""What an episode may have done to the played Node, each act as `activities/cluster/` does it: what it looks at, what it writes.

Whether it should have been asked at all is for the referee; whether it is answered, for the adversary.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from temporalio.exceptions import ApplicationError

from activities.cluster.objects.marks import claim
from activities.errors import ErrorType, failure
from policy.episode.fencing import paths_cut, proof_stands
from policy.episode.gate import Operation
from policy.episode.identity import compare_identity, same_machine
from policy.episode.messages import Need, NeedKind, Pinned
from policy.objects.marks import Mark
from tests.licensing import licence_of
from tests.workflows import contract
from tests.workflows.acting import Acting
from tests.workflows.contract import LookVerdict
from tests.workflows.machine import NODE, OURS
from tests.workflows.mishaps import Mishap


class NodeActs(Acting):
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
            observation=machine.observation(),
        )

    def mark(self, request: contract.ActRequest) -> contract.ActResult:
        self._require_pinned(request.target)
        before = self.machine.mark
        self.machine.mark = claim(before, request.target, self.now, request.added)
        return contract.ActResult(changed=before != self.machine.mark, detail="marked", added=self.machine.mark.added)

    def last_look(self, request: contract.LookRequest) -> contract.LookResult:
        machine, pinned, referee = self.machine, request.target.pinned, self.referee
        seen, configured = machine.observation(), self.configured or self.plan
        difference = compare_identity(pinned, seen, destructive=request.destructive)
        gone = request.need_matters and self._need_is_gone(request.need)
        verdict = LookVerdict.GO
        if difference:
            verdict = LookVerdict.TARGET_CHANGED
        elif request.restores and self._veto():
            verdict = LookVerdict.VETOED
        elif (request.not_after is not None and self.clock > request.not_after) or (
            self._mishap is Mishap.UNLICENSED and (request.destructive or request.need_matters)
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
        if self._mishap not in {Mishap.LOST_AFTER, Mishap.LATE}:
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
            observation=seen,
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
        """What people hear is the same whoever takes the news along (`Adversary.perform`)."""

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
        if self._mishap is Mishap.SLOW:
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
                raise failure(ErrorType.VETOED, "somebody says hands off")
            if self.unlicensed is not None or not self.referee.permit:
                raise failure(ErrorType.NOT_LICENSED, "nobody can show its licence")
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
        if difference := compare_identity(target.pinned, self.machine.observation(), destructive=True):
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
        seen = self.machine.observation()
        return seen.uid != target.pinned.uid and not same_machine(target.pinned, seen)
