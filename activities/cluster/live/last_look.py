"""The last look: everything that must still be true in the instant before a destructive act, read live and all at once (S20).

What is read here is judged in `policy/episode`: the need by `policy/episode/need_now.py`, all in its way by
`policy/episode/gate.py`.

Never with a guess: what cannot be read is no leave to act. Never from the watch cache either, but for who else has the node's
identity or is named beside its devices, and which Machines are the node's that it does not name, which needs all objects and can
only say no (`claims.py`). Restoring acts (power on) look too, but only at the machine's identity, at who says "hands off", and at
who else has the node by now; they need no licence, since no limit of new episodes may keep a node down. A look does not act:
consequences look again themselves, in the activity that writes (`acts/freeing.py`). Where all says go, the rest of a control
plane is looked at as well before a member of it is taken (`control_plane.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from activities.cluster.api.connection import JsonObject
from activities.cluster.api.events import events_on_node
from activities.cluster.api.lease_view import LeaseView
from activities.cluster.api.paths import CONFIG_MAPS
from activities.cluster.api.served_cluster import ServedCluster
from activities.cluster.live.claims import CheckedDevices, Identities, claimed_by, publish_on_both
from activities.cluster.live.cluster_lease import cluster_lease_problem
from activities.cluster.live.control_plane import TakenMember, objection_now
from activities.cluster.live.node_leases import foreign_lease, take_node_lease
from activities.cluster.live.plans import lease_renewed, live_policies, plan_for, why_not_wanted
from activities.cluster.live.preserved_machine import called_unhealthy
from activities.cluster.objects.fencing_requests import find_request
from activities.cluster.objects.live_machines import Subject, find_check, machines_with, pause_of, read_subject
from activities.cluster.objects.live_node import LiveNode, find_node, seen_node
from activities.cluster.objects.marks import is_ours, owner
from activities.cluster.objects.object_reader import Readers, reading_once
from activities.contracts.target import LookRequest, LookResult, LookVerdict, Target
from activities.errors import ErrorType, error_message, error_type, failure
from activities.licences import Licences
from policy.checks.fence_policies import NO_POLICIES, FencePolicies, PolicySource
from policy.checks.verdict import MACHINE, JudgedTarget
from policy.episode.gate import (
    LOOKED_AT,
    MODE,
    REMOVING,
    By,
    Objection,
    Operation,
    Seen,
    Weight,
    isolated_by,
    objection,
    of_control_plane,
)
from policy.episode.messages import Kind, Need, NeedKind, SeenNode
from policy.episode.modes import ClusterModes, ModeAnswer, mode_under
from policy.episode.need_now import STANDS, NeedNow, NeedSeen, need_now
from policy.episode.node_action import REPAIRS
from policy.episode.proofs import compare_identity
from policy.fence.plan import FencingPlan
from policy.fence.power import PowerAct
from policy.objects.machines import MachineView, is_machine_of
from policy.objects.marks import Mark, is_deleted_by, mark_of
from policy.objects.nodes import NodeEvent, NodeView
from policy.preservation.machine_snapshot import Held
from policy.remediation.control_plane import (
    ControlPlaneObjection,
    taking_of,
)
from policy.values.errors import PolicyError, Unread, unread_text
from policy.values.mode import MODE_KEY

READ_SECONDS = 8.0
"""All reads run side by side, so this also bounds the look, well inside an activity's time. A control plane is read after them,
in what they have left."""
LEAST_SECONDS = 1.0
"""And so long at least."""

NOTHING = "nothing is in the way"

T = TypeVar("T")


class GrantedPermits(Protocol):
    """Who holds leave to disrupt which node, asked of the scanner that grants it."""

    async def holds(self, cluster: str, node: str, incident: str, override: str = "") -> tuple[bool, str]:
        """Whether that incident holds a permit for the node now, and the reason in words. override: see `PermitQuestion`. Raises
        where that is not known."""

    async def paused(self, cluster: str) -> str:
        """Why no episode may disrupt anything of the cluster now, "" where a permit decides. Raises where that is not known."""

    async def modes(self, cluster: str) -> ClusterModes:
        """What modes are set for its nodes. Raises where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Doubt:
    """A read that failed: nothing is known, which is not the same as "not there"."""

    what: str
    error: Exception

    @property
    def unread(self) -> Unread:
        late = isinstance(self.error, TimeoutError)
        return Unread(what=self.what, why="no answer in time" if late else error_message(self.error) or type(self.error).__name__)

    def __str__(self) -> str:
        return unread_text([self.unread])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sight:
    """What one look saw. `doubts`: reads that failed; their values mean nothing. A node that was read and is None is gone.

    asking: the health check, or the object of another system, that the need is about. lease: of the node, where another owner
    holds it. plan: by which it is to be fenced now; None where that is not asked, or where `unplanned` says why that is not
    known. permit: whether it is held, and why not; None where `unanswered` says why that is not known. mode: None where a person
    decides, or where `modeless` says why it can't be read.
    """

    node: LiveNode | None
    contested: str
    unread: _Doubt | None
    asking: JsonObject | None
    subject: Subject
    lease: LeaseView | None
    lease_problem: str
    permit: tuple[bool, str] | None
    unanswered: _Doubt | None
    mode: ModeAnswer | None
    modeless: _Doubt | None
    policies: FencePolicies
    events: tuple[NodeEvent, ...]
    renewed: datetime | None
    plan: FencingPlan | None
    unplanned: _Doubt | None
    doubts: tuple[_Doubt, ...]

    @property
    def machine_uids(self) -> tuple[str, ...] | None:
        """Of the Machines that belong to the Node. None where they could not be read or none was found: a Machine that is gone is
        no other target, and one that only a check knows of is not found without the check."""
        machines = self.subject.machines_of(self.node.view if self.node is not None else None)
        return tuple(each.uid for each in machines) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """objection: of the whole gate, None where all says go."""

    objection: Objection | None
    need: NeedNow

    @property
    def verdict(self) -> LookVerdict:
        return LookVerdict(self.objection.weight) if self.objection is not None else LookVerdict.GO


class LastLook:
    """Looks at one cluster. One instance per cluster and process; it keeps nothing between looks."""

    def __init__(
        self,
        served: ServedCluster,
        permits: GrantedPermits,
        *,
        identities: Identities | None = None,
        checked: CheckedDevices | None = None,
        licences: Licences | None = None,
    ) -> None:
        """licences: by which a person's word is known again, without them none overrides anything."""
        self._licences = licences
        self._checked, self._served = checked, served
        self._source = served.source
        self._identities = identities or Identities(served.connections)
        self._connection = served.connection
        self._connections = served.connections
        self._permits = permits
        self._clock = served.judged_at
        self._own_clock = served.clock

    async def look(self, request: LookRequest) -> LookResult:
        """Read everything, then judge. Where the node itself can't be read, a destructive act is not licensed and the
        seen repeats what was pinned; a restoring look raises, since the node is what it is for. Errors:
        InvalidConfig for an act that no look precedes: not all that the gate asks of it is read here (S20).
        """
        return (await self.look_at_node(request))[0]

    async def look_at_node(self, request: LookRequest) -> tuple[LookResult, LiveNode | None]:
        """The same with the Node that was looked at, None where it is gone or can't be read: an act on that very version of it
        need not read it anew."""
        if request.operation not in LOOKED_AT:
            raise failure(ErrorType.INVALID_CONFIG, f"operation: {request.operation} is no act that a last look precedes")
        began = asyncio.get_running_loop().time()
        sight = await self._see(request)
        answer = self._judge(request, sight)
        unneeded = not answer.need.unhealthy and answer.verdict in {LookVerdict.NEED_GONE, LookVerdict.VETOED}
        if unneeded and not sight.subject.whole:
            # A scan judges every Machine that refers to the node, and one of the others may be why we are here.
            sight = await self._see(request, whole=True)
            answer = self._judge(request, sight)
        if request.destructive and answer.verdict is LookVerdict.GO:
            left = READ_SECONDS - (asyncio.get_running_loop().time() - began)
            answer = await self._guarded(request, sight, answer, seconds=max(left, LEAST_SECONDS))
        if answer.verdict is LookVerdict.GO and (unwanted := _unwanted_act(request, sight)):
            answer = replace(answer, objection=Objection(rule="configuration", reason=unwanted, weight=Weight.NOT_LICENSED))
        if answer.verdict is LookVerdict.GO and (gone := _gone_for_good(request, sight)):
            answer = replace(answer, objection=Objection(rule="machine gone", reason=gone, weight=Weight.NEED_GONE))
        if sight.unread is not None and not request.destructive:
            kind = error_type(sight.unread.error) or ErrorType.UNREACHABLE
            raise failure(kind, str(sight.unread)) from sight.unread.error
        found = answer.objection
        need = answer.need
        result = LookResult(
            verdict=answer.verdict,
            reason=found.reason if found is not None else NOTHING,
            at=self._clock(),
            seen=replace(_seen_node(request, sight), unhealthy=need.unhealthy, soon=need.soon),
            until=found.until if found is not None else None,
            permitted=sight.permit is None or sight.permit[0],
            endpoints=sight.plan.endpoints if sight.plan is not None else None,
            version=sight.node.view.resource_version if sight.node is not None else "",
            held_by_mode=found is not None and found.rule == MODE,
        )
        return result, sight.node

    async def _guarded(self, request: LookRequest, sight: _Sight, answer: _Answer, *, seconds: float) -> _Answer:
        """A member of a control plane is only taken while the others can do without it (S15), for every kind of need. What may
        pass is waited for; that there is no other member is final."""
        node = sight.node.view if sight.node is not None else None
        machines = sight.subject.machines_of(node)
        if not any(each.control_plane for each in machines) and (node is None or not node.control_plane):
            return answer
        machine = next((each for each in machines if each.control_plane), next(iter(machines), None))
        taking = taking_of(machine.controller if machine is not None else "", removes=request.operation in REMOVING)
        member = TakenMember(node=node, machine=machine, cluster=sight.subject.cluster)
        doubts: list[_Doubt] = []
        asked = objection_now(self._connection, self._connections.machines, member, taking)
        needed: ControlPlaneObjection | None = await _read("the control plane", asked, None, doubts, seconds=seconds)
        unread = Objection(rule="control plane", reason=str(doubts[0]), weight=Weight.NOT_LICENSED) if doubts else None
        return self._judge(request, sight, unread or of_control_plane(needed))

    async def _see(self, request: LookRequest, *, whole: bool = False) -> _Sight:
        """All reads side by side. A licence is only asked for where it is needed. whole: see `read_subject`."""
        target, now = request.target, self._own_clock()
        once = reading_once(self._connections)
        name, blind, doubts = target.pinned.node, list[_Doubt](), list[_Doubt]()
        unplanned, unanswered, modeless = list[_Doubt](), list[_Doubt](), list[_Doubt]()
        need = request.need if request.need_matters and request.need.kind is NeedKind.CHECK else None
        (
            (node, contested, asking, subject),
            (lease, lease_problem, permit, mode),
            ((policies, events), renewed, plan, claimed),
        ) = await asyncio.gather(
            asyncio.gather(
                _read("the node", _node(once, name), None, blind),
                _read("who else has its identity", self._contested(once, request), "", doubts),
                self._asking(once, request, doubts),
                _read("its Machine", self._subject(once, request, need, whole=whole), Subject(pause=""), doubts),
            ),
            asyncio.gather(
                _read("the node's lease", self._foreign_lease(once, request, now), None, doubts),
                self._lease(once, request, doubts),
                _read("the permit", self._permit(once, request), None, unanswered),
                _read("the mode", self._mode(once, request), None, modeless),
            ),
            asyncio.gather(
                self._policies(request, doubts),
                _read("the node's own Lease", self._renewed(request), None, []),  # unread it is no objection to power fencing
                _read("its fence configuration", self._configured(once, request), None, unplanned),
                _read("which node the devices belong to", self._claimed(once, request), "", doubts),
            ),
        )
        return _Sight(
            node=node,
            contested=contested or claimed,
            unread=blind[0] if blind else None,
            asking=asking,
            subject=subject,
            # The system that asked us to act, and holds the lease for it, has delegated it.
            lease=lease if lease is not None and lease.holder != request.need.delegate else None,
            lease_problem=lease_problem,
            permit=permit,
            unanswered=unanswered[0] if unanswered else None,
            mode=mode,
            modeless=modeless[0] if modeless else None,
            policies=policies,
            events=events,
            renewed=renewed,
            plan=plan,
            unplanned=unplanned[0] if unplanned else None,
            doubts=(*blind, *doubts),
        )

    def _judge(self, request: LookRequest, sight: _Sight, of_control_plane: Objection | None = None) -> _Answer:
        """By the one table of what keeps acts from a node (`policy/episode/gate.py`)."""
        seen = _seen(request, sight)
        # Of another machine, or of a guess, nothing is said. Some acts ask for no need, but not every need licenses those.
        matters = request.need_matters or (request.destructive and request.need.kind is NeedKind.CLEAN_UP)
        judges = matters and not (seen.identity or seen.doubts)
        need = self._need(request, sight) if judges else STANDS
        seen = replace(seen, need=need.objection, control_plane=of_control_plane)
        return _Answer(objection=objection(seen, request.operation, _decided_by(request.need, seen), self._clock()), need=need)

    async def _contested(self, once: Readers, request: LookRequest) -> str:
        if not request.destructive or (node := await _node(once, request.target.pinned.node)) is None:
            return ""
        return await self._identities.contested(node.view, once)

    async def _claimed(self, once: Readers, request: LookRequest) -> str:
        """Who else is to be fenced by the node's devices (S39)."""
        if not request.destructive or request.configured is None:
            return ""
        claim = await claimed_by(self._served, request.target, self._identities, self._checked, once=once)
        if claim is not None:
            node = replace(claim.other.ref, name=request.target.pinned.node)
            await publish_on_both(self._connection, node, request.target.pinned.uid, claim)
        return claim.sentence if claim is not None else ""

    async def _foreign_lease(self, once: Readers, request: LookRequest, now: datetime) -> LeaseView | None:
        """The lease of another owner. Where the step in hand is to be covered, taking the lease tells that; a deployment that has
        lost the cluster takes and renews none, and the one that has it now takes over what the other has left (S38)."""
        target = request.target
        if target.pinned.node.startswith(MACHINE):
            return None
        holder, taken = request.holder, request.lease
        if taken is None or await cluster_lease_problem(once.nodes, holder, now, restores=request.restores):
            return await foreign_lease(self._connection, target.pinned.node, holder, now)
        until, clock = request.not_after, self._own_clock
        return await take_node_lease(self._connection, target, holder, taken, not_after=until, clock=clock)

    async def _policies(self, request: LookRequest, doubts: list[_Doubt]) -> tuple[FencePolicies, tuple[NodeEvent, ...]]:
        """With the Events on the node where a policy asks for them: unread they may have said that it is to be left alone."""
        if not request.destructive:
            return NO_POLICIES, ()
        policies = await _read("the fence policies", live_policies(self._connection, self._source), NO_POLICIES, doubts)
        if not policies.skip_lost_storage or not request.need.kind.automatic or request.target.pinned.node.startswith(MACHINE):
            return policies, ()
        events = events_on_node(self._connection, request.target.pinned.node)
        return policies, await _read("the Events on the node", events, (), doubts)

    async def _renewed(self, request: LookRequest) -> datetime | None:
        if not request.destructive or not request.need.kind.automatic or request.target.pinned.node.startswith(MACHINE):
            return None
        return await lease_renewed(self._connection, request.target.pinned.node)

    async def _configured(self, once: Readers, request: LookRequest) -> FencingPlan | None:
        """By which devices the node is to be fenced now. Without devices at the pin none is touched."""
        if request.configured is None or not request.target.pinned.endpoints:
            return None
        node = await _node(once, request.target.pinned.node)
        if node is None:
            return None
        template = request.configured.template
        return await plan_for(once, node.view, template, request.need, source=self._source)

    async def _subject(self, once: Readers, request: LookRequest, need: Need | None, *, whole: bool) -> Subject:
        node = request.target.pinned.node
        if need is None and not (request.destructive or request.restores):
            return Subject(pause="")
        live = await _node(once, node)
        view = live.view if live is not None else None
        if request.restores:
            named = await self._identities.with_unnamed(once, await read_subject(once, None, node), view)
            if not named.machines and request.need.kind is NeedKind.CHECK:
                named = await read_subject(once, request.need, node)
            if _may_be_gone(request) and view is None:
                left = await machines_with(once, request.target.pinned.machine_uids)
                named = replace(named, machines=(*left, *(each for each in named.machines if each not in left)))
            return named
        found = await self._identities.with_unnamed(once, await read_subject(once, need, node, whole=whole), view)
        return replace(found, pause=await pause_of(once, view, found.machines_of(view)))

    async def _asking(self, once: Readers, request: LookRequest, doubts: list[_Doubt]) -> JsonObject | None:
        need = request.need
        if not request.need_matters:
            return None
        what = "its health check" if need.kind is NeedKind.CHECK else "what asks for it"
        return await _read(what, _asking(once, need, self._source), None, doubts)

    async def _lease(self, once: Readers, request: LookRequest, doubts: list[_Doubt]) -> str:
        """What the cluster Lease says against the act, "" for nothing. A restoring one needs it only without our mark."""
        what = "the cluster Lease"
        if not (request.destructive or request.restores):
            return ""
        problem = cluster_lease_problem(once.nodes, request.holder, self._own_clock(), restores=request.restores)
        if request.restores:
            return await _read(what, problem, f"{what} could not be read", [])
        return await _read(what, problem, "", doubts)

    async def _permit(self, once: Readers, request: LookRequest) -> tuple[bool, str]:
        if not request.destructive:
            return True, ""
        target, overridden = request.target, ""
        if self._licences is not None and target.override is not None:
            node = await _node(once, target.pinned.node)
            overridden = self._licences.overridden(target, node.view if node is not None else None)
        return await self._permits.holds(target.cluster, target.pinned.node, target.incident, overridden)

    async def _mode(self, once: Readers, request: LookRequest) -> ModeAnswer | None:
        if not request.destructive or request.need.kind is NeedKind.PERSON:
            return None
        return await _live_mode(self._served, self._permits, once, request.target.pinned.node, request.need)

    def _need(self, request: LookRequest, sight: _Sight) -> NeedNow:
        node = sight.node.view if sight.node is not None else None
        seen = NeedSeen(
            node=node,
            asking=sight.asking,
            targets=sight.subject.targets(node),
            preserving=_preserves(request, sight),
            held_by=_held_by(sight),
            deletes_it=_deletes_it(request, sight),
            takeover=self._served.takeover,
            unattested=self._command_problem(request),
            incident=request.target.incident,
            destructive=request.destructive,
        )
        return need_now(request.need, seen, self._clock())

    def _command_problem(self, request: LookRequest) -> str:
        """That a person wants it can't be seen; where only verified commands count, it can be shown (S42). Whether it is of the
        machine as it is now is asked with the need."""
        if self._licences is None or not self._served.only_verified:
            return ""
        if not request.destructive or request.need.kind is not NeedKind.PERSON:
            return ""
        return self._licences.seal_problem(request.target, request.need.command, *REPAIRS)


def _seen_node(request: LookRequest, sight: _Sight) -> SeenNode:
    pinned = request.target.pinned
    if sight.unread is not None:
        return SeenNode(
            node=pinned.node,
            uid=pinned.uid,
            boot_id=pinned.boot_id,
            provider_id=pinned.provider_id,
            system_uuid=pinned.system_uuid,
            incident=request.target.incident,
        )
    return seen_node(pinned.node, sight.node.view if sight.node else None)


def _seen(request: LookRequest, sight: _Sight) -> Seen:
    """What was read, as the gate judges it. Where something is about to be freed on the word of the devices, they are part of the
    identity (S9). Before power-on the episode judges each for itself, since it knows which of them it has switched off."""
    seen, pinned, destructive = _seen_node(request, sight), request.target.pinned, request.destructive
    plan = sight.plan
    devices: dict[str, Any] = {"endpoints": plan.endpoints, "levels": plan.endpoints_of_levels} if plan is not None else {}
    early = {} if destructive or request.restores else devices
    # A Machine that was deleted, or the object that asked and named the devices, is the end of the need and no other target.
    late = {**devices, "machine_uids": sight.machine_uids} if destructive else {}
    node = sight.node.view if sight.node is not None else None
    held, why = sight.permit or (False, str(sight.unanswered))
    mark, problem = _mark(sight)
    ours = mark is not None and is_ours(mark, request.target)
    return Seen(
        node=node,
        machines=tuple(sight.subject.machines_of(node)),
        pause=sight.subject.pause,
        doubts=tuple(each.unread for each in sight.doubts),
        identity=compare_identity(pinned, seen, destructive=destructive, **early),
        devices=compare_identity(pinned, seen, destructive=True, **late) if late else "",
        devices_unread=str(sight.unplanned or ""),
        contested=sight.contested,
        lease=sight.lease.holder if sight.lease is not None else "",
        lease_until=sight.lease.until if sight.lease is not None else None,
        cluster_lease=sight.lease_problem,
        permit="" if held else why or "the permit is not held",
        policies=sight.policies,
        events=sight.events,
        renewed=sight.renewed,
        held_by="" if mark is None or ours else _held_by(sight),
        mark_unread=problem,
        marked=ours,
        preserving=_preserves(request, sight),
        deletes_it=_deletes_it(request, sight),
        mode=sight.mode,
        mode_unread=str(sight.modeless or ""),
    )


async def mode_now(
    served: ServedCluster, permits: GrantedPermits, name: str, need: Need | None = None
) -> tuple[ModeAnswer | None, str]:
    """The mode for an act that has no whole look right before it, and why it is not known, "" where it is. name: of the target.
    need: of the episode, None for a machine that is kept, or where it is not known."""
    doubts = list[_Doubt]()
    answer = await _read("the mode", _live_mode(served, permits, reading_once(served.connections), name, need), None, doubts)
    return answer, unread_text([each.unread for each in doubts])


async def _live_mode(served: ServedCluster, permits: GrantedPermits, once: Readers, name: str, need: Need | None) -> ModeAnswer:
    """Of the live Node under the live check that asks, or those that call a machine failed that is kept, by what the scanner says
    at this moment is set for the cluster (S52)."""
    modes, node = await asyncio.gather(permits.modes(served.name), _node(once, name))
    view = node.view if node is not None else None
    if need is None or need.check is None:
        checks = await _checks_of_kept(once, name, view, served.judged_at())
    else:
        asking = await _asking(once, need, served.source)
        annotation = (((asking or {}).get("metadata") or {}).get("annotations") or {}).get(MODE_KEY)
        checks = {need.check.key: str(annotation) if annotation is not None else None}
    return mode_under(modes, name, view.labels if view is not None else None, checks)


async def _checks_of_kept(once: Readers, name: str, node: NodeView | None, now: datetime) -> dict[str, str | None]:
    """Those that do not call it healthy, with their annotation; none where its own controller calls it failed."""
    machine = next(iter((await read_subject(once, None, name)).machines_of(node)), None)
    alone = Held.alone(node) if node is not None else Held(key=name, node_name=name)
    held = Held.of(machine, node) if machine is not None else alone
    if held.failed:
        return {}
    _, checks = await called_unhealthy(once, held, machine, now)
    return checks


async def _asking(once: Readers, need: Need | None, source: PolicySource) -> JsonObject | None:
    """The health check, or the object of another system, that the need is about; None where it is gone, or neither asks. A
    ConfigMap is a check in our own namespace alone: elsewhere others may write one of its name (S46)."""
    if need is None or not need.kind.automatic:
        return None
    if need.kind is not NeedKind.CHECK:
        return await find_request(once.nodes, need, source.requests)
    if need.check is not None and need.check.kind == CONFIG_MAPS.kind and need.check.namespace != source.namespace:
        return None
    return await find_check(once, need)


def _decided_by(need: Need, seen: Seen) -> By:
    if need.kind is NeedKind.PRESERVATION:
        return isolated_by(seen.node, seen.machines or ())
    return By.PROGRAM if need.kind.automatic else By.PERSON


def _preserves(request: LookRequest, sight: _Sight) -> bool:
    """Whether who asks is the preservation that holds the node: not because its need says so, which any client may give to an
    episode that switches off, but because its own mark does (S21). It cuts the machine off, and deletes nothing."""
    mark, _ = _mark(sight)
    if request.operation in REMOVING | {Operation.DELETE_NODE}:
        return False
    by_itself = request.need.kind is NeedKind.PRESERVATION and request.target.kind == Kind.PRESERVATION.value
    return by_itself and mark is not None and is_ours(mark, request.target) and mark.kind == Kind.PRESERVATION.value


def _mark(sight: _Sight) -> tuple[Mark | None, str]:
    """The mark on the Node, and why it can't be read."""
    try:
        return (mark_of(sight.node.view) if sight.node is not None else None), ""
    except PolicyError as error:
        return None, str(error)


def _held_by(sight: _Sight) -> str:
    return f"the node is held by {owner(_mark(sight)[0])}"


def _unwanted_act(request: LookRequest, sight: _Sight) -> str:
    """Why the power act that is to be licensed is not wanted by what says now how the node is fenced, "" where it is (S42)."""
    if request.licenses is None or not request.destructive or request.configured is None:
        return ""
    node = sight.node.view if sight.node is not None else None
    target = next(iter(sight.subject.targets(node)), JudgedTarget(request.target.pinned.node, node=node))
    return why_not_wanted(request.licenses.act, sight.plan, request.need, sight.asking, target)


def _may_be_gone(request: LookRequest) -> bool:
    """Whether it is asked if the machine is still ours to be switched on: it had a Machine. What else was cut is given back
    whatever has become of that."""
    of_power = request.licenses is None or request.licenses.act is PowerAct.ON
    return request.restores and of_power and bool(request.target.pinned.machine_uids)


def _gone_for_good(request: LookRequest, sight: _Sight) -> str:
    """Why a machine is not switched on any more, "" where it is: with its Node its Machine is gone, or goes, and by then the
    hardware may be another owner's. A Node that was deleted alone leaves no machine off (S9)."""
    if not _may_be_gone(request) or sight.node is not None:
        return ""
    left = [each for each in sight.subject.machines if each.uid in request.target.pinned.machine_uids]
    if any(not each.deleting for each in left):
        return ""
    goes = f"its Machine {left[0].name} is being deleted" if left else "its Machine is gone"
    return f"the Node was deleted, and {goes}: the machine is left off"


def _deletes_it(request: LookRequest, sight: _Sight) -> bool:
    return sight.node is not None and is_deleted_by(sight.node.view, request.target.incident)


async def _node(once: Readers, name: str) -> LiveNode | None:
    return None if name.startswith(MACHINE) else await find_node(once.nodes, name)


async def _read(
    what: str, reading: Coroutine[Any, Any, T], unread: T, doubts: list[_Doubt], *, seconds: float | None = None
) -> T:
    """One read within `seconds`, or READ_SECONDS; whatever goes wrong with it is a doubt and never a value."""
    try:
        async with asyncio.timeout(READ_SECONDS if seconds is None else seconds):
            return await reading
    except Exception as error:  # noqa: BLE001 - any failure to see means "not licensed", named in the answer
        doubts.append(_Doubt(what=what, error=error))
        return unread


# The gate's answer (`policy/episode/gate.py`) as the activities that write give it: an error of a type that each story knows.

_REFUSED = {
    LookVerdict.VETOED: ErrorType.VETOED,
    LookVerdict.TARGET_CHANGED: ErrorType.TARGET_CHANGED,
    LookVerdict.NOT_LICENSED: ErrorType.NOT_LICENSED,
    LookVerdict.NEED_GONE: ErrorType.VETOED,
}


def require_leave(seen: Seen, operation: Operation, now: datetime, *, by: By = By.PERSON, about: str = "") -> None:
    """Refuse what the gate objects to. by: who has decided on it; where that is not known here, the look before has asked what
    keeps programs only. about: what the sentence begins with.

    Raises Vetoed, NotLicensed or TargetChanged.
    """
    if (found := objection(seen, operation, by, now)) is not None:
        kind = _REFUSED[LookVerdict(found.weight)]
        raise failure(kind, f"{about}: {found.reason}" if about else found.reason)


def require_last_look(look: LookRequest, target: Target, operation: Operation = Operation.DISRUPT) -> None:
    """Refuse a look that comes with an act and would not license it: the caller may be any client that can schedule activities
    (S42). operation: what the act is; a look for one that needs more licenses it as well.

    Raises NotLicensed.
    """
    expected = {operation, Operation.REMOVE, *({Operation.DISRUPT} if operation is Operation.CORDON else ())}
    if look.target != target or look.operation not in expected:
        wanted = " or ".join(sorted(expected))
        wrong = f"expected a look at {target.pinned.node} for {wanted}, got one at {look.target.pinned.node} for {look.operation}"
        raise failure(ErrorType.NOT_LICENSED, f"look: {wrong}; nothing was done")


def require_machine_of(target: str, machine: MachineView, node: NodeView | None, about: str) -> None:
    """Refuse a Machine that is not the target's: a look at the one licenses nothing of the other (S9). node: as it is now, None
    where it is gone. Raises TargetChanged."""
    if not is_machine_of(machine, target, node if node is not None and node.name == target else None):
        raise failure(ErrorType.TARGET_CHANGED, f"{about}: expected the Machine of {target}; nothing was done")


def require_go(result: LookResult, otherwise: str) -> None:
    """Refuse what a last look in the same activity does not license. otherwise: what is not done, to begin the sentence with."""
    if result.verdict is not LookVerdict.GO:
        raise failure(_REFUSED[result.verdict], f"{otherwise}: {result.reason}")
