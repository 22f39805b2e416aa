"""Keep a machine, or release it: look live, decide by `policy/preservation`, write what differs.

Each write names the version that was read, so that nothing written in between is lost. A hold begins with the annotation that
asks for it and then its expiry, and ends with the expiry last: it alone says that one is in force, so a crash in between leaves
what the next look completes or ends. What is the user's is not touched (S28). The deletion of one that is kept no longer is
`machine_deletion.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from activities.cluster.acts.delegated_action import Look
from activities.cluster.acts.machine_deletion import MachineDeletion, beyond_mode, release_problem
from activities.cluster.api.connection import JsonObject
from activities.cluster.api.paths import NODES, ref_of
from activities.cluster.api.refusals import edit
from activities.cluster.api.served_cluster import ClusterActivities, ServedCluster
from activities.cluster.live.last_look import GrantedPermits, mode_now, require_machine_of
from activities.cluster.live.plans import live_policies
from activities.cluster.live.preserved_machine import PreservedMachine, PreservedMachineReader
from activities.cluster.objects.live_machines import api_of
from activities.cluster.objects.live_node import LiveNode, seen_node
from activities.cluster.objects.machines_decoding import read_machine
from activities.cluster.objects.node_edits import (
    Operations,
    append_taint,
    patch_as_read,
    remove_taints,
    set_annotations,
    unchanged_since_read,
)
from activities.contracts.preservation import GiveUpRequest, GiveUpResult, Hold, HoldRequest, PreservationActivities, Wish
from activities.errors import ErrorType, failure
from activities.licences import Licences
from policy.episode.gate import MODE, By, Operation, Seen, objection
from policy.episode.node_action import Verb
from policy.episode.proofs import CLOCK_TOLERANCE
from policy.objects.nodes import PRESERVE_ANNOTATION, Taint
from policy.preservation.keep_or_release import (
    NOT_OVERRIDDEN,
    Automatic,
    Effects,
    PreservationAction,
    PreservationDecision,
    PreservedCondition,
    decide,
    effects,
    left_alone,
    not_yet,
    within_mode,
)
from policy.preservation.machine_snapshot import CONDITION, EXPIRY_ANNOTATION, TAINT, Held, Isolation
from policy.preservation.pool_cap import ends_once_well
from policy.preservation.requests import ISOLATE_ANNOTATION, PRESERVE_FOR_ANNOTATION, Intent, Pool
from policy.values.display_text import visible
from policy.values.errors import no_such_target
from policy.values.machine_apis import MCM, machine_api
from policy.values.mode import Mode
from policy.values.object_refs import ObjectRef
from policy.values.times import RESOLUTION, format_duration, later, written

BEING_DELETED = "the machine is being deleted"


class ClusterPreservation(ClusterActivities, PreservationActivities):
    """Served by the workers of one cluster's queue. `machines`: where Cluster API's objects live, if elsewhere."""

    def __init__(
        self,
        served: ServedCluster,
        look: Look,
        permits: GrantedPermits,
        *,
        licences: Licences | None = None,
        pools: Iterable[Pool] = (),
    ) -> None:
        """look: the last look at this cluster (`live/last_look.py`). permits: know the modes. licences: by which a person's word
        is known again; None: words need not be verified. pools: those of the settings."""
        super().__init__(served)
        self._permits, self._licences = permits, licences
        self._keeping = PreservedMachineReader(self._connections, pools=pools)
        self._deletion = MachineDeletion(served, look, permits, self._keeping, licences=licences)

    async def hold(self, request: HoldRequest) -> Hold:
        """Judged by the server's clock where it is the earlier one: a hold never ends early."""

        async def once() -> Hold:
            sight = await self._keeping.look(request.node, request.machine)
            if request.unhealthy or (sight.held is not None and ends_once_well(sight.held)):  # any client may leave out why (S21)
                sight = await self._keeping.as_called(sight, self._served.judged_at())
            now = self._served.judged_at()
            if sight.held is None or (why := _another(sight, request)):
                gone = why if sight.held is not None else no_such_target(request.node)
                found = Hold(at=now, gone=gone, replaced=sight.held is not None, reason=gone, machine_uid=sight.machine_uid)
                return await self._gone(sight, request, found)
            if request.node and request.machine is not None and sight.machine is not None:
                machine = read_machine(sight.machine, api_of(request.machine))
                require_machine_of(request.node, machine, sight.view, request.machine.key)
            return await self._bring_about(sight, request, now)

        return replace(await edit(request.node, once), streams=self._served.record is not None)

    async def give_up(self, request: GiveUpRequest) -> GiveUpResult:
        return await self._deletion.ask(request)

    async def _attested(self, sight: PreservedMachine, request: HoldRequest, now: datetime) -> tuple[Wish, str]:
        """The wish without what would end the preservation, or end it earlier, and is neither a person's word nor what the cap of
        its pool says; and why not."""
        wish, refused = request.wish, list[str]()
        if wish.surplus and sight.held is not None and not await self._keeping.is_surplus(sight.held, now):
            wish = replace(wish, surplus=False)
            refused.append("it is not given up for its pool: no cap that has fallen releases it")
        if wish.release and (problem := release_problem(self._licences, sight, request)):
            wish = replace(wish, release="")
            refused.append(f"it is not released: {problem}")
        held = sight.held
        assert held is not None
        moved = self._move_problem(sight, request) if wish.until is not None else "no person has moved its end"
        if wish.until is not None and wish.until < (held.expiry or later(now, held.lasts(sight.timeout))) and moved:
            wish = replace(wish, until=None)
            refused.append(f"it does not end earlier: {moved}")
        if wish.keep and held.expiry is None and moved and held.kept_by_person:
            wish = replace(wish, keep=False, duration=None)
            if not held.failed and held.intent is Intent.WHEN_FAILED:
                refused.append(f"it is not kept yet: a person has annotated it with {PRESERVE_ANNOTATION}={held.intent.value}")
        return wish, "; ".join(refused)

    def _move_problem(self, sight: PreservedMachine, request: HoldRequest) -> str:
        """Why no person has said that it ends just then: a word for an earlier end has to say that it shortens."""
        until, said, held = request.wish.until, request.moved.spec if request.moved is not None else None, sight.held
        assert until is not None
        assert held is not None
        if self._licences is None:
            return ""
        if problem := self._licences.preservation_problem(request, sight.view, held, request.moved, Verb.EXTEND):
            return problem
        exact = said is not None and said.until is not None and timedelta(0) <= until - said.until < RESOLUTION
        if said is not None and exact and (said.shorten or held.expiry is None):
            return ""
        if request.moved is not None and request.moved.spec.hold is not None and held.expiry is None:
            lasts = until - self._licences.said_at(request.moved)  # there is no end to count from
            return "" if lasts >= request.moved.spec.hold - CLOCK_TOLERANCE else f"it was to last {format_duration(lasts)} then"
        return f"no person has said that it ends at {written(until)}"

    # Keeping ----------------------------------------------------------------------------------------------------------

    async def _bring_about(self, sight: PreservedMachine, request: HoldRequest, now: datetime) -> Hold:
        found_held = sight.held
        assert found_held is not None
        wish, refused = await self._attested(sight, request, now)
        held = _as_wished(found_held, wish)
        automatic = Automatic.NOTHING
        if wish.automatic:
            automatic = Automatic.SELECTED
        elif wish.surplus:
            automatic = Automatic.RELEASED
        decision = decide(held, now=now, timeout=sight.timeout, automatic=automatic, released=wish.release, until=wish.until)
        asks = automatic is not Automatic.NOTHING or decision.begins_for_pool
        if asks and not wish.release and not held.deleting:
            decision = await self._unless_off(decision, sight, now, until=wish.until)
        by = NOT_OVERRIDDEN
        if held.deleting:
            by = await self._keeping.overridden(request.machine or _machine_ref(sight), sight.owner)
            decision = replace(decision, reason=f"{BEING_DELETED}, {by.sentence}")
        gives_up = decision.action is PreservationAction.TERMINATE and not wish.release
        not_allowed = await beyond_mode(self._served, self._permits, sight) if gives_up else ""
        limited = await self._within_mode(decision, request)
        rests, decision = limited != decision, limited
        found = _with_wish(effects(decision, drained=request.drained, isolation=request.isolation), found_held, held)
        if decision.preserved and (decision.action is PreservationAction.PRESERVE or held.since is None):
            found = found.with_since(held, now)
        changed = await self._write(sight, decision, found)
        hold = _hold(sight, decision, found, now=now, changed=changed)
        hold = replace(hold, override=by.override.value, released=bool(wish.release), refused=refused, rests=rests)
        if sight.only_called and held.expiry is None and not held.ended:
            # Only a check calls it failed, and it was never kept: what becomes of it is for what acts on that check.
            return replace(hold, terminate=False)
        return replace(hold, terminate=False, reason=f"{hold.reason}; {not_allowed}") if not_allowed else hold

    async def _unless_off(
        self, decision: PreservationDecision, sight: PreservedMachine, now: datetime, *, until: datetime | None
    ) -> PreservationDecision:
        """Where fencing is switched off, or the mode is to observe, a pool begins nothing and gives no machine up; what a person
        asks for, and what ends, goes on (S52). Where only the pool would keep a machine that has failed, it is left as it is if
        its mode says so; else that raises NotLicensed: to let it go meanwhile is no answer. The annotation that a pool writes is
        no wish of a person: a kubelet may write it to its own Node. Below repair a cap that has fallen releases no machine."""
        node, victim = sight.view, decision.held.victim
        policies = await live_policies(self._connection, self._source)
        mode, unread = await mode_now(self._served, self._permits, victim)
        seen = Seen(node=node, policies=policies, mode=mode, mode_unread=unread)
        off = objection(seen, Operation.KEEP, By.POOL, now)
        stays = decision.automatic is Automatic.RELEASED and mode is not None and mode.mode is not Mode.REPAIR
        if off is None and not stays:
            return decision
        without = decide(decision.held, now=now, timeout=sight.timeout, until=until)
        let_go = decision.automatic is Automatic.SELECTED and without.action is PreservationAction.TERMINATE
        if off is not None and (let_go or decision.begins_for_pool):
            if off.rule == MODE:
                return left_alone(without, f"it is not kept for its pool: {off.reason}")
            raise failure(ErrorType.NOT_LICENSED, f"{decision.held.name} is not kept for its pool: {off.reason}")
        return without

    async def _within_mode(self, decision: PreservationDecision, request: HoldRequest) -> PreservationDecision:
        """What its pool alone wants done to it waits for its mode before anything of that is written (S52): also while that is
        unread, since no mode delays what a person asks for."""
        if request.isolation is Isolation.CUT or within_mode(decision, Mode.OBSERVE) == decision:
            return decision  # nothing of that kind is due
        mode, unread = await mode_now(self._served, self._permits, decision.held.victim)
        limited = within_mode(decision, mode.mode if mode is not None else Mode.OBSERVE)
        if limited == decision:
            return decision
        return replace(limited, reason=f"{limited.reason}; {not_yet(limited, str(mode or unread))}")

    async def _gone(self, sight: PreservedMachine, request: HoldRequest, hold: Hold) -> Hold:
        """The one that was kept is not there any more, and others have seen to that; a Node alone may be another by now."""
        if request.machine is not None and request.machine_uid and sight.machine_uid == request.machine_uid:
            return hold
        if not request.machine_uid and not request.node_uid:
            return hold  # there never was one
        by = await self._keeping.overridden(request.machine, request.owner)
        return replace(
            hold, gone=f"{hold.gone}, {by.sentence}", override=by.override.value, reason=f"{hold.reason}, {by.sentence}"
        )

    async def _write(self, sight: PreservedMachine, decision: PreservationDecision, found: Effects) -> tuple[str, ...]:
        """In the order that a crash may interrupt anywhere: see `Effects`."""
        changed: list[str] = []
        if found.condition is not None and not decision.preserved:
            changed += await self._write_condition(sight, found.condition)
        changed += await self._write_objects(sight, found)
        if found.expiry_differs:
            changed += await self._write_expiry(sight, found.expiry)
        goes_on = decision.action is PreservationAction.STOP
        if goes_on and decision.held.since is not None:  # last, as a word counts by that; also one for the machine's deletion
            changed += await self._write_objects(sight, Effects().with_since(decision.held, None))
        if found.condition is not None and decision.preserved:
            changed += await self._write_condition(sight, found.condition)
        return tuple(changed)

    async def _write_objects(self, sight: PreservedMachine, found: Effects) -> list[str]:
        changed = []
        if found.node or found.taint is not None:
            assert sight.node is not None
            annotations = set_annotations(sight.node.document, found.node)
            await patch_as_read(self._connection, sight.node, (*annotations, *_taint_operations(sight.node, found.taint)))
            changed += [f"Node: {_spelled(key, value)}" for key, value in found.node.items()]
            if found.taint is not None:
                changed.append(f"Node: {'tainted' if found.taint else 'our taint removed'}")
        if found.machine:
            changed += await self._annotate_machine(sight, found.machine)
        return changed

    async def _annotate_machine(self, sight: PreservedMachine, values: Mapping[str, str | None]) -> list[str]:
        assert sight.machine is not None
        ref = ref_of(sight.machine)
        operations = [*unchanged_since_read(sight.machine), *set_annotations(sight.machine, values)]
        answer = await self._keeping.connection_of(ref).patch_json(self._keeping.path_of(ref), operations)
        sight.machine["metadata"] = answer["metadata"]
        return [f"Machine: {_spelled(key, value)}" for key, value in values.items()]

    async def _write_expiry(self, sight: PreservedMachine, expiry: datetime | None) -> list[str]:
        value = written(expiry) if expiry is not None else None
        done = [f"preserved until {value}" if value else "no longer preserved"]
        if sight.machine is None:
            assert sight.node is not None
            await patch_as_read(self._connection, sight.node, set_annotations(sight.node.document, {EXPIRY_ANNOTATION: value}))
            return done
        ref = ref_of(sight.machine)
        if machine_api(ref.api_version) is not MCM:
            await self._annotate_machine(sight, {EXPIRY_ANNOTATION: value})
            return done
        metadata = {key: sight.machine["metadata"][key] for key in ("uid", "resourceVersion")}
        body = {"metadata": metadata, "status": {"currentStatus": {"preserveExpiryTime": value}}}
        path = self._keeping.path_of(ref, subresource="status")
        answer = await self._keeping.connection_of(ref).patch_merge(path, body)
        sight.machine["metadata"] = answer["metadata"]
        return done

    async def _write_condition(self, sight: PreservedMachine, condition: PreservedCondition) -> list[str]:
        """Kubelets write the same list every few seconds, so it is read again for this."""
        assert sight.node is not None
        path = NODES.path(sight.node.view.name)

        async def once() -> list[str]:
            document = await self._connection.get(path)
            await self._connection.patch_json(f"{path}/status", _condition_patch(document, condition, self._clock()))
            return [f"Node: condition {CONDITION} is {condition.status}: {condition.message}"]

        return await edit(f"the conditions of Node/{sight.node.view.name}", once)


# Small things ---------------------------------------------------------------------------------------------------------


def _another(sight: PreservedMachine, request: HoldRequest) -> str:
    """Why what was found is not what is kept (S9), "" where it is."""
    if request.machine is not None and sight.machine is None:
        return "the Machine is gone"
    if request.machine_uid and sight.machine_uid != request.machine_uid:
        return "another Machine has taken the name"
    if request.node_uid and sight.node is not None and sight.node_uid != request.node_uid:
        return "another Node has taken the name"
    return ""


def _as_wished(held: Held, wish: Wish) -> Held:
    """As if the wish stood on the objects already: on the Node where there is one, since its value beats."""
    values = dict[str, str]()
    if wish.keep:
        values[PRESERVE_ANNOTATION] = Intent.NOW.value
        if wish.duration is not None and PRESERVE_FOR_ANNOTATION not in {*held.on_node, *held.annotations}:
            values[PRESERVE_FOR_ANNOTATION] = format_duration(wish.duration)
    if wish.isolate:
        values[ISOLATE_ANNOTATION] = "true"
    if not values:
        return held
    if held.node is not None:
        return replace(held, node=replace(held.node, annotations={**held.node.annotations, **values}))
    return replace(held, annotations={**held.annotations, **values})


def _with_wish(found: Effects, before: Held, wished: Held) -> Effects:
    """What the wish adds to the objects is to be written like everything else, unless it goes again at once."""
    if wished.deleting:
        return found
    on_node = {key: value for key, value in wished.on_node.items() if before.on_node.get(key) != value}
    on_machine = {key: value for key, value in wished.annotations.items() if before.annotations.get(key) != value}
    return replace(found, node={**on_node, **found.node}, machine={**on_machine, **found.machine})


def _hold(
    sight: PreservedMachine, decision: PreservationDecision, found: Effects, *, now: datetime, changed: tuple[str, ...]
) -> Hold:
    held = decision.held
    return Hold(
        at=now,
        phase=decision.phase,
        preserved=decision.preserved,
        value=decision.intent.value,
        expiry=decision.expiry,
        drain=found.drain,
        isolate=decision.isolate,
        ended=decision.ended,
        terminate=decision.action is PreservationAction.TERMINATE,
        gone=decision.reason if held.deleting else "",
        owner=sight.owner,
        reason=decision.reason,
        changed=changed,
        warnings=(*decision.warnings, *((sight.problem,) if sight.problem else ())),
        node_uid=sight.node_uid,
        machine=_machine_ref(sight),
        machine_uid=sight.machine_uid,
        provider_id=sight.node.view.provider_id if sight.node is not None else "",
        zone=sight.node.view.zone if sight.node is not None else "",
        recovered=decision.recovered,
        ready=sight.node is not None and sight.node.view.ready,
        left_by=seen_node(held.node_name, sight.node.view).incident if sight.node is not None else "",
    )


def _machine_ref(sight: PreservedMachine) -> ObjectRef | None:
    return ref_of(sight.machine) if sight.machine is not None else None


def _taint_operations(node: LiveNode, wanted: bool | None) -> Operations:
    if wanted is None:
        return ()
    if wanted:
        return append_taint(node, Taint(key=TAINT, effect="NoSchedule"))
    return remove_taints(node, [taint for taint in node.taints if taint.key == TAINT])


def _condition_patch(document: JsonObject, condition: PreservedCondition, now: datetime) -> list[JsonObject]:
    conditions: Sequence[JsonObject] = (document.get("status") or {}).get("conditions") or ()
    stamp = written(now)
    place = next((index for index, each in enumerate(conditions) if each.get("type") == CONDITION), None)
    same = place is not None and conditions[place].get("status") == condition.status
    value = {
        "type": CONDITION,
        "status": condition.status,
        "reason": condition.reason,
        "message": visible(condition.message),
        "lastHeartbeatTime": stamp,
        "lastTransitionTime": conditions[place].get("lastTransitionTime", stamp) if same and place is not None else stamp,
    }
    uid = {"op": "test", "path": "/metadata/uid", "value": document["metadata"]["uid"]}
    if place is not None:
        path = f"/status/conditions/{place}"
        return [uid, {"op": "test", "path": f"{path}/type", "value": CONDITION}, {"op": "replace", "path": path, "value": value}]
    if conditions:
        return [uid, {"op": "add", "path": "/status/conditions/-", "value": value}]
    return [uid, {"op": "add", "path": "/status/conditions", "value": [value]}]


def _spelled(key: str, value: str | None) -> str:
    return f"{key}={value}" if value is not None else f"{key} removed"
