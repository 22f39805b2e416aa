"""Cordon and taint a node in an episode's name, and take back exactly what that episode had put on it (S28, S35).

The cordon and the note "this cordon is ours" go in one patch, and so do their removals: no crash can leave a cordon of unknown
origin behind; taints likewise. Evicting its pods is `drain.py`, freeing the workload of a node that is off `freeing.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime

from temporalio.exceptions import ApplicationError

from activities.cluster.acts.drain import Drain
from activities.cluster.api.refusals import ObjectNotFound
from activities.cluster.api.served_cluster import ClusterActivities, ServedCluster
from activities.cluster.live.claims import Identities
from activities.cluster.live.last_look import GrantedPermits, require_last_look
from activities.cluster.objects.live_machines import read_subject
from activities.cluster.objects.live_node import LiveNode, find_node, readable_mark
from activities.cluster.objects.marks import (
    claim,
    is_ours,
    owner,
    remove_mark,
    require_held,
    require_pinned,
    spelled,
    still_there,
    untainted,
    write_mark,
)
from activities.cluster.objects.node_edits import (
    Edit,
    append_taint,
    cordon,
    edit_node,
    remove_taints,
    uncordon,
)
from activities.cluster.objects.object_reader import reading_once
from activities.cluster.report.nodefences import EpisodePublisher, NodeFences
from activities.contracts.target import (
    ActResult,
    CordonRequest,
    DrainRequest,
    DrainResult,
    IsolationActivities,
    LookRequest,
    LookResult,
    LookVerdict,
    PathRequest,
    RestoreRequest,
    TaintRequest,
    Target,
)
from activities.errors import ErrorType, failure
from activities.licences import Licences
from activities.notification_sender import Notify, discard_notice
from policy.checks.verdict import MACHINE
from policy.episode.gate import By, Operation, Seen, objection
from policy.episode.proofs import same_machine
from policy.fence.config import EFFECTS
from policy.objects.machines import MachineView, may_be_its_node
from policy.objects.marks import Added, Mark, is_marked
from policy.objects.nodes import MARK_LABEL, OUR_TAINT


class ClusterIsolation(ClusterActivities, IsolationActivities):
    """Served by the workers of one cluster's queue. fences: where episodes are shown, None for nowhere."""

    def __init__(
        self,
        served: ServedCluster,
        look: Callable[[LookRequest], Awaitable[LookResult]],
        permits: GrantedPermits,
        licences: Licences,
        *,
        fences: NodeFences | None = None,
        identities: Identities | None = None,
        notify: Notify = discard_notice,
    ) -> None:
        """look: the last look at this cluster (`live/last_look.py`). licences: which know what we have added."""
        super().__init__(served)
        self._licences = licences
        self._identities = identities or Identities(served.connections)
        self._look = look
        self._drain = Drain(served, look, permits, licences)
        self._publisher = EpisodePublisher(served, fences, notify=notify)

    async def mark_unschedulable(self, request: CordonRequest) -> ActResult:
        """Cordon, unless another owner had."""
        target = request.target
        return await self._licensed(request.look, request.not_after, lambda node: cordon_edit(node, target, self._clock()))

    async def _licensed(self, request: LookRequest, not_after: datetime | None, decide: Callable[[LiveNode], Edit]) -> ActResult:
        """One edit of the Node, milliseconds after a look that says go (S20)."""
        require_last_look(request, request.target, Operation.CORDON)
        seen = await self._look(request)
        if seen.verdict is not LookVerdict.GO:
            return ActResult(changed=False, detail=seen.reason, look=seen)
        result = await edit_node(self._connection, request.target.pinned.node, decide, not_after=not_after)
        return replace(self._licences.sealed_result(request.target, result), look=seen)

    async def note_path(self, request: PathRequest) -> ActResult:
        """Before a path is cut, and after it was given back. A Node that is gone has no mark to keep."""
        target = request.target

        def decide(node: LiveNode) -> Edit:
            if request.cut:
                require_pinned(node, target)
            found = readable_mark(node.view)
            if found is None or not is_ours(found, target):
                if request.cut:
                    raise failure(ErrorType.VETOED, f"Node/{target.pinned.node} is held by {owner(found)}, no path of it is cut")
                return Edit(detail=f"left alone: the node is held by {owner(found)}")
            others = tuple(each for each in found.paths if each != request.endpoint)
            paths = (*others, request.endpoint) if request.cut else others
            return Edit(
                detail=f"paths cut: {', '.join(paths) or 'none'}", operations=write_mark(node, replace(found, paths=paths))
            )

        try:
            return await edit_node(self._connection, target.pinned.node, decide, not_after=request.not_after)
        except ObjectNotFound:
            if request.cut:
                raise
            return ActResult(changed=False, detail="the Node is gone, and our mark with it")

    async def taint(self, request: TaintRequest) -> ActResult:
        """The taint and the note that it is ours, in one patch. Of two taints with one key and effect the API takes only one."""
        target, taint = request.target, request.taint
        if taint.effect not in EFFECTS:
            raise failure(
                ErrorType.INVALID_CONFIG,
                f"taint {spelled(taint)}: expected the effect {' or '.join(EFFECTS)}; NoExecute deletes pods, for which off"
                " has to be proven first",
            )

        def decide(node: LiveNode) -> Edit:
            now = self._clock()
            found = require_held(node, target, "it is not tainted")
            if any((each.key, each.effect) == (taint.key, taint.effect) for each in node.taints):
                ours = taint in node.taints and spelled(taint) in found.taints
                return Edit(detail=f"tainted already {'by us' if ours else 'by another owner; left unchanged'}", mark=found)
            kept = (each for each in found.taints if each != spelled(taint))
            mark = replace(claim(found, target, now), taints=(*kept, spelled(taint)))
            operations = (*write_mark(node, mark), *append_taint(node, taint))
            return Edit(detail=f"tainted {spelled(taint)}", operations=operations, mark=mark)

        return await self._licensed(request.look, request.not_after, decide)

    async def drain(self, request: DrainRequest) -> DrainResult:
        return await self._drain.round(request)

    async def mark_schedulable(self, request: RestoreRequest) -> ActResult:
        """Remove our cordon, our taint and our mark in one patch; whatever else is on the node stays byte for byte.

        A node that is preserved stays cordoned (S21). Where its Machine can't be read,
        that is not known, and the node stays as it is until it can be.
        """
        target = request.target
        added = self._licences.believed(target, request.added)
        machines: tuple[MachineView, ...] = ()
        unread: ApplicationError | None = None
        once, found_node = reading_once(self._connections), None
        try:
            if not target.pinned.node.startswith(MACHINE):
                found_node = await find_node(once.nodes, target.pinned.node)
                named, view = await read_subject(once, None, target.pinned.node), found_node.view if found_node else None
                machines = (await self._identities.with_unnamed(once, named, view)).machines
        except ApplicationError as error:
            unread = error

        def decide(node: LiveNode) -> Edit:
            now = self._clock()
            if another_machine(node, target):
                return Edit(detail=f"left alone: it is another machine now ({node.view.provider_id})")
            tainted = request.tainted and may_untaint(node, added)
            found = readable_mark(node.view)
            # With a mark that we have taken away, or a person, its label went; not with one that a kubelet has changed, who can't
            # have us leave what we have added, nor take away what we have not (S28, S41).
            changed = found is None and MARK_LABEL in node.view.labels
            if not changed and (found is None or not is_ours(found, target)):
                return taint_beside_mark(node, found, ours=tainted)
            found = found or claim(None, target, now, still_there(node, added), boot_id=node.view.boot_id)
            ours = replace(found, out_of_service=found.out_of_service or tainted)
            ours = replace(ours, cordoned=False) if request.keep_cordon else ours
            if unread is not None and ours.cordoned and node.view.unschedulable:
                raise unread
            return _way_back(node, ours, machines, now)

        try:
            result = await edit_node(self._connection, target.pinned.node, decide, not_after=request.not_after, read=found_node)
        except ObjectNotFound:
            result = ActResult(changed=False, detail="the Node is gone, and our marks with it")
        await self._publisher.publish_beside(target, request.publication)
        return result


def cordon_edit(node: LiveNode, target: Target, now: datetime, mark: Mark | None = None) -> Edit:
    """Cordon a node that carries our mark, and note there that we did. mark: ours, where it is written with the cordon."""
    found = mark or require_held(node, target, "it is not cordoned")
    if node.view.unschedulable:
        by = "by us" if found.cordoned else "by another owner; left unchanged"
        return Edit(detail=f"cordoned already {by}", operations=write_mark(node, found) if mark else (), mark=found)
    mark = replace(claim(found, target, now), cordoned=True)
    return Edit(detail="cordoned", operations=(*write_mark(node, mark, cordons=True), *cordon()), mark=mark)


def another_machine(node: LiveNode, target: Target) -> bool:
    """Whether restoring must keep off this node: a restoring act compares the machine, not the Node object (S9)."""
    return node.view.uid != target.pinned.uid and not same_machine(target.pinned, node.view)


def may_untaint(node: LiveNode, added: Added) -> bool:
    """Whether the out-of-service taint may be called ours without our mark: where that is sealed, or none stands (yet)."""
    return added.out_of_service or OUR_TAINT not in node.taints


def taint_beside_mark(node: LiveNode, mark: Mark | None, *, ours: bool) -> Edit:
    """Of a node that does not carry our mark (any more) only the out-of-service taint is ours to remove, where the episode knows
    that it has set it: it must not stand on a machine that is switched on (S32). Raises Vetoed where the mark of another episode
    says that the taint is its own."""
    if not ours or OUR_TAINT not in node.taints:
        return Edit(detail=f"left alone: the node is held by {owner(mark)}")
    if mark is not None and mark.out_of_service:
        problem = f"Node/{node.view.name}: {owner(mark)} calls the out-of-service taint its own, so we can't remove it"
        raise failure(ErrorType.VETOED, problem)
    detail = f"removed our out-of-service taint; the node is held by {owner(mark)}"
    return Edit(detail=detail, operations=remove_taints(node, {OUR_TAINT}))


def _way_back(node: LiveNode, mark: Mark, machines: tuple[MachineView, ...], now: datetime) -> Edit:
    if mark.paths:
        # The next holder must know of them, and nothing is scheduled onto a node without its storage (S35).
        kept = replace(mark, off_proven="")
        operations = untainted(node, kept, now) if mark.out_of_service else write_mark(node, kept)
        return Edit(detail=f"our mark and our cordon stay: cut are {', '.join(mark.paths)}", operations=operations)
    removed = ["our mark"] if is_marked(node.view) else []
    operations = remove_mark(node)
    seen = Seen(node=node.view, machines=tuple(each for each in machines if may_be_its_node(each, node.view)))
    left = ""
    if mark.cordoned and node.view.unschedulable:
        if (preserved := objection(seen, Operation.UNCORDON, By.PERSON, now)) is not None:
            # From here on the cordon belongs to what preserves the node, as the mark that called it ours goes (S21).
            left = f"; left cordoned: {preserved.reason}"
        else:
            removed.append("our cordon")
            operations += uncordon()
    noted = [
        taint for taint in node.taints if spelled(taint) in mark.taints and taint.effect in EFFECTS
    ]  # NoExecute is no method's
    ours = [*noted, *([OUR_TAINT] if mark.out_of_service and OUR_TAINT in node.taints else [])]
    removed += ["our out-of-service taint" if taint == OUR_TAINT else f"our taint {spelled(taint)}" for taint in ours]
    operations += remove_taints(node, ours)
    return Edit(detail=f"removed {', '.join(removed) or 'nothing'}{left}", operations=operations)
