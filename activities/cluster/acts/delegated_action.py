"""The beginning of every act that sets another controller to work: the last look and the note on the target, in the same
activity.

The note is what a target that is lost from sight, and its replacement, remember of a remediation: on its Machine, which
outlives the Node, and on its Node, since a check of Nodes knows no Machines. So it is written before anything that could fail.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from temporalio import activity

from activities.cluster.api.refusals import ObjectNotFound, edit
from activities.cluster.api.served_cluster import ClusterActivities, ServedCluster
from activities.cluster.live.last_look import require_last_look
from activities.cluster.live.plans import require_replacing
from activities.cluster.objects.live_machines import find_machine, resource_of
from activities.cluster.objects.live_node import LiveNode
from activities.cluster.objects.node_edits import Edit, edit_node, set_annotations
from activities.contracts.preservation import GiveUpResult
from activities.contracts.remediation import BeforeActing, External, RememberRequest
from activities.contracts.target import ActResult, LookRequest, LookResult, LookVerdict, Target
from activities.worker_clock import in_time
from policy.episode.gate import Operation
from policy.objects.machines import MachineView
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION
from policy.values.object_refs import ObjectRef

Begun = TypeVar("Begun", ActResult, External, GiveUpResult)

Look = Callable[[LookRequest], Awaitable[LookResult]]
"""The last look at one cluster (`live/last_look.py`)."""


class DelegatingActivities(ClusterActivities):
    """What activities have in common that set another controller to work."""

    def __init__(self, served: ServedCluster, look: Look) -> None:
        """look: the last look at this cluster (`live/last_look.py`)."""
        super().__init__(served)
        self._look = look

    async def _delegate(
        self,
        before: BeforeActing,
        what: str,
        not_after: datetime,
        *,
        target: Target,
        write: Callable[[], Awaitable[Begun]],
        refused: Callable[[LookResult], Begun],
        found: Callable[[], Awaitable[Begun | None]] | None = None,
        operation: Operation = Operation.DISRUPT,
    ) -> Begun:
        """The last look, the note, then the write: begun by `not_after` or not at all. what: is written, to begin a
        sentence with. target: of the act; a look at another one licenses nothing of it. operation: as of a LookRequest.

        refused: the answer where the look does not say go. found: what stands already of an attempt at the same activity that was
        lost once it had written (S33). What that has set going is what a second look sees, and no reason to call it not begun;
        None where there is nothing, or only one attempt.
        """
        require_last_look(before.look, target, operation)
        seen = await self._look(before.look)
        again = activity.in_activity() and activity.info().attempt > 1
        if found is not None and again and (there := await found()) is not None:
            return replace(there, look=replace(seen, verdict=LookVerdict.GO, reason="done before; its answer was lost"))
        if seen.verdict is not LookVerdict.GO:
            return refused(seen)
        if operation is Operation.REMOVE:
            await require_replacing(self._connections, before.look.need, target.pinned.node)
        in_time(not_after, self._clock(), what)
        if before.remember is not None:
            await self._remember(before.remember)
        return replace(await write(), look=seen)

    async def _remember(self, request: RememberRequest) -> ActResult:
        """Write the memory, on the Machine and on the Node."""
        done: list[ActResult] = []
        if request.machine is not None:
            noted = {LAST_REMEDIATION_ANNOTATION: request.memory or None}
            done.append(await self._write_annotations(request.machine, request.machine_uid, noted, instead_of=request.instead_of))
        if (pinned := request.target.pinned).uid:
            memory = request.memory if request.on_node is None else request.on_node
            done.append(await self._remember_on_node(pinned.node, pinned.uid, memory, instead_of=request.instead_of))
        return ActResult(changed=any(each.changed for each in done), detail="; ".join(each.detail for each in done))

    async def _remember_on_node(
        self, name: str, uid: str, memory: str, *, only_if_absent: bool = False, instead_of: str = ""
    ) -> ActResult:
        def decide(node: LiveNode) -> Edit:
            if node.view.uid != uid:
                return Edit(detail="another Node has the name")
            there = node.annotations.get(LAST_REMEDIATION_ANNOTATION, "")
            if there == memory or (only_if_absent and there):
                return Edit(detail="noted already")
            if instead_of and there != instead_of:
                return Edit(detail="others have written it")
            operations = set_annotations(node.document, {LAST_REMEDIATION_ANNOTATION: memory or None})
            return Edit(detail="noted" if memory else "noted no longer", operations=operations)

        try:
            return await edit_node(self._connections.nodes, name, decide)
        except ObjectNotFound:
            return ActResult(changed=False, detail="the Node is gone")

    async def _write_annotations(
        self,
        ref: ObjectRef,
        uid: str,
        values: Mapping[str, str | None],
        *,
        only_if_absent: bool = False,
        unless: Callable[[MachineView], Awaitable[None]] | None = None,
        instead_of: str = "",
        not_after: datetime | None = None,
    ) -> ActResult:
        """Set annotations of that very Machine, None removes one; a gone Machine is left alone. instead_of: only where all of
        them say that now, "" for whatever they say. unless: raises where there is an objection, on the version that is
        written."""
        connection, path = self._connections.of(ref.api_version), resource_of(ref).path(ref.name, namespace=ref.namespace)

        async def once() -> ActResult:
            machine = await find_machine(self._connections, ref)
            if machine is None or machine.view.uid != uid:
                return ActResult(changed=False, detail=f"{ref.key} is gone")
            there = machine.view.annotations
            if (only_if_absent and any(key in there for key in values)) or (
                instead_of and any(there.get(key) != instead_of for key in values)
            ):
                return ActResult(changed=False, detail="others have written it")
            differing = {key: value for key, value in values.items() if there.get(key) != value}
            if not differing:
                return ActResult(changed=False, detail="so already")
            if unless is not None:
                await unless(machine.view)
            metadata = {"uid": uid, "resourceVersion": machine.view.resource_version, "annotations": differing}
            await connection.patch_merge(path, {"metadata": metadata}, not_after=not_after)
            said = ", ".join(f"{key} {'removed' if value is None else 'set'}" for key, value in sorted(differing.items()))
            return ActResult(changed=True, detail=said)

        return await edit(ref.key, once)
