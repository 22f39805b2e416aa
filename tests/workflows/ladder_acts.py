"""What a remediation may have done about the played machine, each act as `activities/cluster/` does it.

Pinning it, its Machine's deletion, its owner and its operator, objects of other controllers, what it is to remember. Whether it
should have been asked at all is for the referee.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from activities.errors import ErrorType, failure
from policy.episode.messages import Pinned, RemediationInput
from policy.remediation.failed_volumes import AttachedVolume, Failure, PodOnNode
from policy.values.object_refs import ObjectRef
from tests.workflows import contract
from tests.workflows.acting import Acting
from tests.workflows.machine import NODE, OURS
from tests.workflows.owned import MACHINE, MACHINE_UID, SUCCESSOR, Handed

SUCCESSOR_COMES = timedelta(minutes=3)
OWNER = "MachineSet/workers"
DELETION_ASKED = "asked for its deletion"


class LadderActs(Acting):
    """The activities of a ladder's steps, but for those that are a fencing's own."""

    def last_look(self, request: contract.LookRequest) -> contract.LookResult:
        """Of the Node (`node_acts.py`)."""
        raise NotImplementedError

    def pin_target(self, request: RemediationInput) -> contract.RemediationPin:
        machine, mark = self.machine, self.machine.mark if self.machine.present else None
        assert self._attempt is not None
        if not self.owned.present and not machine.present:
            raise failure(ErrorType.NOT_FOUND, "there is no such Node or Machine")
        if machine.present and machine.holder != OURS:
            raise failure(ErrorType.NOT_FOUND, "another machine has the name")
        self.begins(request.incident)
        seen, adopted = (
            machine.observation(),
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
            machine=MACHINE if self.owned.present else None,
            machine_uid=MACHINE_UID if self.owned.present else "",
            owner=OWNER,
            adopted_incident=mark.incident if mark is not None and adopted else "",
            adopted_paths=mark.paths if mark is not None else (),
            observation=seen,
        )

    # The Machine ----------------------------------------------------------------------------------------------------

    def follow_machine(self, request: contract.FollowRequest) -> contract.FollowedMachine:
        owned = self.owned
        if request.machine_uid != MACHINE_UID:
            self.referee.fault("S9", f"{request.machine_uid} is followed")
        if owned.present:
            return contract.FollowedMachine(
                deleting=owned.deleting is not None, deleting_since=owned.deleting, owner_status="False" if owned.asked else ""
            )
        assert owned.gone is not None
        ready = self.now >= owned.gone + SUCCESSOR_COMES
        owned.successor_memory = owned.successor_memory or request.memory
        return contract.FollowedMachine(
            gone=True,
            replacement=contract.Replacement(
                machine=SUCCESSOR, uid=f"uid-{SUCCESSOR}", node="node-8" if ready else "", ready=ready
            ),
        )

    def give_up(self, request: contract.GiveUpRequest) -> contract.GiveUpResult:
        owned = self.owned
        if request.machine_uid != MACHINE_UID:
            self.referee.fault("S9", f"{request.machine_uid} is to be deleted")
        if not owned.present:
            return contract.GiveUpResult(gone=True, detail="the Machine is gone")
        if owned.deleting is not None:
            return contract.GiveUpResult(detail="its deletion was asked for before")
        if request.withdraw:
            owned.claimed_by = "" if owned.claimed_by == request.incident else owned.claimed_by
            return contract.GiveUpResult(kept="it is not asked for any more")
        if (seen := self._looked(request.before)).verdict is not contract.LookVerdict.GO:
            return contract.GiveUpResult(detail=seen.reason, look=seen)
        if kept := self._kept():
            return contract.GiveUpResult(kept=kept, look=seen)
        owned.claimed_by = request.incident
        owned.deleting = self.now
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
        if self.owned.asked is None:
            self.owned.asked, self.owned.asked_by = self.now, request.target.incident
        return contract.ActResult(changed=True, detail="its owner is asked to remediate it", look=seen)

    def annotate_external(self, request: contract.MachineRequest) -> contract.ActResult:
        if (seen := self._looked(request.before)).verdict is not contract.LookVerdict.GO:
            return contract.ActResult(changed=False, detail=seen.reason, look=seen)
        self._require_not_kept(request.machine_uid)
        if self.owned.annotated is None:
            self.owned.annotated, self.owned.annotated_by = self.now, request.target.incident
            self._others_act(self.owned.operator_acts_after)
        return contract.ActResult(changed=True, detail="annotated", look=seen)

    def take_back(self, request: contract.MachineRequest) -> contract.ActResult:
        owned = self.owned
        owned.annotated = None
        owned.asked = owned.asked if owned.deleting is not None else None
        return contract.ActResult(changed=True, detail="its owner is asked no more")

    def remember(self, request: contract.RememberRequest) -> contract.ActResult:
        self.owned.memory = request.memory
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
        objects, name = self.owned.objects, named(request)
        if name not in objects:
            objects[name] = made = Handed(by=request.target.incident, created=self.now)
            if (after := self.owned.operator_acts_after) is None:
                made.fails_at = self.now + timedelta(minutes=2)
            else:
                made.succeeds_at = self.now + after
            self._others_act(after, made)
        return replace(self._seen(request), look=seen)

    def read_object(self, request: contract.ExternalRequest) -> contract.External:
        return self._seen(request)

    def time_out_object(self, request: contract.ExternalRequest) -> contract.External:
        made = self.owned.objects.get(named(request))
        if made is not None and (made.succeeds_at is None or self.now < made.succeeds_at):
            made.timed_out = True
        return self._seen(request)

    def note_well(self, request: contract.ExternalRequest) -> contract.External:
        return self._seen(request)

    def delete_object(self, request: contract.ExternalRequest) -> contract.External:
        made = self.owned.objects.get(named(request))
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
            stands = not made.timed_out and made.goes_at is None if made is not None else self.owned.annotated is not None
            if stands and self.owned.present:
                self.machine.reboot(at)

        self.machine.later(at, happens)

    def _seen(self, request: contract.ExternalRequest) -> contract.External:
        made = self.owned.objects.get(named(request))
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
        return "the annotation preserve=now keeps it" if self.owned.preserved is not None else ""

    def _require_not_kept(self, machine_uid: str) -> None:
        if machine_uid and machine_uid != MACHINE_UID:
            self.referee.fault("S9", f"{machine_uid} is acted on")
        if not self.owned.present:
            raise failure(ErrorType.TARGET_CHANGED, "the Machine is gone")
        if kept := self._kept():
            raise failure(ErrorType.VETOED, kept)


def named(request: contract.ExternalRequest) -> str:
    """By the kind of its template, so that what a ladder does reads as it is meant."""
    return request.template.kind.removesuffix("Template")
