"""Ask for the deletion of a Machine that has failed: after its preservation, or as a step of a remediation.

It begins with a claim on the Node, written only if the Node is as it was just read: an annotation before the claim keeps the
machine, a person who comes after it sees the claim (S27). The Machine is deleted by the uid and version that were read.
"""

from __future__ import annotations

from dataclasses import replace

from temporalio.exceptions import ApplicationError

from activities.cluster.acts.delegated_action import DelegatingActivities, Look
from activities.cluster.api.refusals import ObjectNotFound, edit
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.live.last_look import GrantedPermits, mode_now, require_go, require_leave, require_machine_of
from activities.cluster.live.preserved_machine import PreservedMachine, PreservedMachineReader
from activities.cluster.objects.live_machines import api_of, pause_of
from activities.cluster.objects.machines_decoding import read_machine
from activities.cluster.objects.marks import write_claim
from activities.cluster.objects.node_edits import patch_as_read
from activities.contracts.preservation import GiveUpRequest, GiveUpResult, HoldRequest
from activities.contracts.target import LookRequest, Target
from activities.errors import ErrorType, error_type, failure
from activities.licences import Licences
from activities.worker_clock import in_time
from policy.episode.gate import By, Operation, Seen
from policy.episode.messages import Kind, Need, NeedKind, Pinned
from policy.episode.node_action import Verb
from policy.objects.machines import of_control_plane
from policy.objects.marks import TERMINATING_ANNOTATION, claim_of
from policy.preservation.keep_or_release import keeps, not_given_up
from policy.values.mode import Mode


class MachineDeletion(DelegatingActivities):
    """What `preservation.give-up` does (`preservation.py`), for the Machines of one cluster."""

    def __init__(
        self,
        served: ServedCluster,
        look: Look,
        permits: GrantedPermits,
        keeping: PreservedMachineReader,
        *,
        licences: Licences | None,
    ) -> None:
        """keeping: reads the machine and whether it is kept. The others as in ClusterPreservation."""
        super().__init__(served, look)
        self._permits, self._keeping, self._licences = permits, keeping, licences

    async def ask(self, request: GiveUpRequest) -> GiveUpResult:
        """See the contract. What a remediation asks for begins with a look; a machine that is handed over is read before it."""
        if request.before is None:
            return await edit(request.machine.key, lambda: self._once(request))
        self._require_other_node(request.victim, " and never has it deleted itself")
        target = replace(request.before.look.target, cluster=request.cluster, incident=request.incident)
        return await self._delegate(
            request.before,
            f"deleting {request.machine.key}",
            request.not_after,
            target=target,
            write=lambda: edit(request.machine.key, lambda: self._once(request)),
            refused=lambda seen: GiveUpResult(detail=seen.reason, look=seen),
            operation=Operation.REMOVE,
        )

    async def _once(self, request: GiveUpRequest) -> GiveUpResult:
        sight, over = await self._unless_over(request)
        if over is not None:
            return over
        if not request.by_remediation:
            by_person = request.released and not release_problem(self._licences, sight, request)
            if not by_person and (words := await beyond_mode(self._served, self._permits, sight)):
                raise failure(ErrorType.NOT_LICENSED, words)
            try:
                await self._require_look(sight, request)
            except ApplicationError as error:
                if error_type(error) is ErrorType.VETOED:
                    # Perhaps by a person who has asked for it to be kept since we read it: that goes first (S27).
                    _, over = await self._unless_over(request)
                    if over is not None:
                        return over
                raise
        await self._claim(sight, request)
        return await self._delete(sight, request)

    async def _unless_over(self, request: GiveUpRequest) -> tuple[PreservedMachine, GiveUpResult | None]:
        """The machine as it is now, and the answer where it is not to be deleted, or need not be any more."""
        in_time(request.not_after, self._clock(), f"deleting {request.machine.key}")
        sight = await self._keeping.look(
            request.node, request.machine, unhealthy=request.unhealthy if request.by_remediation else ""
        )
        if request.unhealthy and not request.by_remediation:
            sight = await self._keeping.as_called(sight, self._served.judged_at())
        if sight.held is None or sight.machine is None:
            return sight, GiveUpResult(gone=True, detail="the Machine is gone")
        if sight.machine_uid != request.machine_uid:
            raise failure(ErrorType.TARGET_CHANGED, f"{request.machine.key}: another Machine has that name now")
        if sight.held.deleting:
            return sight, GiveUpResult(detail="its deletion was asked for before")
        if refusal := "it is not asked for any more" if request.withdraw else await self._why_not(sight, request):
            return sight, await self._keep(sight, refusal)
        return sight, None

    async def _require_look(self, sight: PreservedMachine, request: GiveUpRequest) -> None:
        """All that a destructive act needs but the need itself, in the activity that deletes (S20): by a hand-over no look
        came before. What was read before the look and is written by its version can't have changed since."""
        name = request.looked_at
        pinned = Pinned(node=name, uid=sight.node_uid if sight.node is not None and sight.node.view.name == name else "")
        kind = Kind.REMEDIATION.value
        target = Target(cluster=request.cluster, pinned=pinned, incident=request.incident, kind=kind, workflow_id="", run_id="")
        need = Need(kind=NeedKind.CHECK if request.automatic else NeedKind.PERSON)
        look = LookRequest(target=target, need=need, holder=request.holder, operation=Operation.HAND_OVER)
        require_go(await self._look(look), f"{request.machine.key} is not deleted")

    async def _why_not(self, sight: PreservedMachine, request: GiveUpRequest) -> str:
        """Why this machine is not deleted after all, as it stands now."""
        held = sight.held
        assert held is not None
        name = held.node_name
        self._require_other_node(name, " and never has it deleted itself")
        if request.node_uid and sight.node is not None and sight.node_uid != request.node_uid:
            raise failure(ErrorType.TARGET_CHANGED, f"Node/{name}: pinned {request.node_uid}, now {sight.node_uid}")
        if not sight.owner:
            raise failure(ErrorType.NOT_SUPPORTED, f"{request.machine.key}: no controller owns it, so nothing would replace it")
        if keeps(held, self._clock()):
            return "its preservation is still asked for" if held.failed else "it is well again"
        if held.well and request.unhealthy and not request.by_remediation:
            return "its Node says that it is well again"
        assert sight.machine is not None
        node, machine = sight.view, read_machine(sight.machine, api_of(request.machine))
        require_machine_of(request.looked_at, machine, node, request.machine.key)
        if of_control_plane(node, machine) and not request.by_remediation:
            # A member of a control plane, also one without a Node, is given up by a remediation only (S15).
            why = "it is a member of the control plane: only a remediation may ask for its deletion"
            raise failure(ErrorType.NOT_SUPPORTED, f"{request.machine.key}: {why}")
        # Of this very Machine, which no look at its Node need find. The Lease is the look's affair.
        seen = Seen(node=node, machines=(machine,), pause=await pause_of(self._connections, node, (machine,)), cluster_lease="")
        by = By.PROGRAM if request.automatic else By.PERSON
        require_leave(seen, Operation.ASK, self._clock(), by=by, about=request.machine.key)
        return ""

    async def _keep(self, sight: PreservedMachine, why: str) -> GiveUpResult:
        """A claim of an earlier try goes."""
        if sight.node is not None and TERMINATING_ANNOTATION in sight.node.annotations:
            await patch_as_read(self._connection, sight.node, write_claim(sight.node, None))
        return GiveUpResult(kept=why, detail=why, well=sight.held is not None and sight.held.well)

    async def _claim(self, sight: PreservedMachine, request: GiveUpRequest) -> None:
        """From here on the machine is being given up: written only while the Node is as we read it, over an older claim, too."""
        if sight.node is None:
            return
        claim = claim_of(self._clock(), request.incident)
        await patch_as_read(self._connection, sight.node, write_claim(sight.node, claim), not_after=request.not_after)

    async def _delete(self, sight: PreservedMachine, request: GiveUpRequest) -> GiveUpResult:
        assert sight.machine is not None
        metadata = sight.machine["metadata"]
        path = self._keeping.path_of(request.machine)
        try:
            await self._keeping.connection_of(request.machine).delete(
                path, uid=metadata["uid"], resource_version=metadata["resourceVersion"], not_after=request.not_after
            )
        except ObjectNotFound:
            return GiveUpResult(gone=True, detail="the Machine is gone")
        return GiveUpResult(detail=f"asked for the deletion of {request.machine.key}")


# What a hold asks as well -----------------------------------------------------------------------------------------------


def release_problem(licences: Licences | None, sight: PreservedMachine, request: HoldRequest | GiveUpRequest) -> str:
    """Why no person has ended its preservation, "" where one has: where words have to be verified, that a request says so is
    not believed (S21, S42)."""
    if licences is None:
        return ""
    return licences.preservation_problem(request, sight.view, sight.held, request.word, Verb.RELEASE, Verb.ABORT)


async def beyond_mode(served: ServedCluster, permits: GrantedPermits, sight: PreservedMachine) -> str:
    """Why no program may give the machine up, by its mode; "" where it may (S52). Raises NotLicensed where it is unread."""
    assert sight.held is not None
    name = sight.held.victim
    mode, unread = await mode_now(served, permits, name)
    if mode is None:
        raise failure(ErrorType.NOT_LICENSED, f"{name} is not given up: {unread}")
    return "" if mode.mode is Mode.REPAIR else not_given_up(str(mode))
