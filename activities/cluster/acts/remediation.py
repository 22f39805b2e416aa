"""Remediate: pin the target, ask the owner of a Machine or its operator, follow what becomes of it, remember.

Each act looks live and writes with the version it has read, so that a repetition finds its own work and another Machine of the
same name is never touched (S9). Asking for a deletion is `machine_deletion.py`, objects of other controllers are
`remediation_objects.py`, what one Machine says is `objects/machines_decoding.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from temporalio import activity

from activities.cluster.acts.delegated_action import DelegatingActivities
from activities.cluster.api.connection import JsonObject
from activities.cluster.api.paths import set_of
from activities.cluster.api.refusals import ObjectNotFound, edit, unless_gone
from activities.cluster.live.last_look import require_leave, require_machine_of
from activities.cluster.live.plans import OF_A_REMEDIATION, covers, readable_checks, require_kind
from activities.cluster.objects.check_statuses import V1BETA1, ConditionText, machine_conditions, status_of
from activities.cluster.objects.live_machines import (
    LiveMachine,
    api_of,
    cluster_of,
    find_check,
    find_machine,
    machine_named,
    machine_of,
    node_of,
    pause_of,
    require_counted,
    resource_of,
)
from activities.cluster.objects.live_node import LiveNode, all_names, find_node, pinned_of, readable_mark, seen_node
from activities.cluster.objects.machines_decoding import machine_decoding
from activities.cluster.report.status_writer import SUCCEEDED
from activities.contracts.remediation import (
    FollowedMachine,
    FollowRequest,
    MachineRequest,
    RemediationActivities,
    RemediationPin,
    RememberRequest,
    Replacement,
)
from activities.contracts.target import ActResult
from activities.errors import ErrorType, as_invalid_config, failure
from policy.checks.health_check import HealthCheck
from policy.checks.rules import rules_of
from policy.checks.verdict import MACHINE, Health, JudgedTarget
from policy.dialects import parse
from policy.dialects.machine_health_checks import EXTERNAL_STRATEGY, STRATEGY_ANNOTATION
from policy.episode.gate import Operation, Seen
from policy.episode.messages import Need, NeedKind, Pinned, RemediationInput
from policy.episode.proofs import CLOCK_TOLERANCE
from policy.objects.machines import EXTERNAL_REMEDIATION_ANNOTATION, MachineView, of_control_plane, taken_name
from policy.objects.nodes import Condition, NodeView
from policy.objects.remediations import kind_of
from policy.remediation.ladder import (
    OWNER_REMEDIATED,
    EscalationStep,
    body_of,
    name_the_node,
    possible,
    read_strategies,
    steps_not_known,
)
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION, REMEDIATION_FOR_ANNOTATION, last_of, read_memory, turn_of
from policy.remediation.strategy_rules import REPLACING_OWNERS, Strategy
from policy.values.errors import PolicyError, no_such_target
from policy.values.machine_apis import CLUSTER_API, machine_api
from policy.values.object_refs import Dialect

LONGEST_FAILURE = 300

LEAVES_BEHIND = frozenset({Strategy.EXTERNAL, Strategy.REQUEST_OWNER})
"""The steps that can leave what a scan sees and a later episode takes back."""

WAITING = "WaitingForRemediation"
"""The reason by which Cluster API's owners know that it is their turn."""

REQUESTED = "RemediationRequested"
"""Our own word that it is unhealthy, where no health check has said so."""

Conditions = dict[str, tuple[ConditionText, ConditionText] | None]
"""What a Machine is given, None takes one away; {} for nothing."""


class ClusterRemediation(DelegatingActivities, RemediationActivities):
    """Served by the workers of one cluster's queue."""

    # The target -----------------------------------------------------------------------------------------------------

    async def pin(self, request: RemediationInput) -> RemediationPin:
        """Everything an episode keeps of its target; nothing is written."""
        alone = request.node.startswith(MACHINE)
        node = None if alone else await find_node(self._connection, request.node)
        if node is not None and request.node_uid and request.node_uid != node.view.uid:
            detail = f"uid {node.view.uid}, asked for was {request.node_uid}"
            raise failure(ErrorType.TARGET_CHANGED, f"Node/{request.node} is another object now: {detail}")
        machine = await self._machine_for(request, node)
        if node is None and machine is None and not request.adopts:
            raise failure(ErrorType.NOT_FOUND, no_such_target(request.node, await all_names(self._connection)))
        need = request.need or Need(kind=NeedKind.PERSON, reason=request.reason, requester=request.requester)
        require_kind(need, OF_A_REMEDIATION)
        need = replace(need, delegate="")  # a remediation is asked for by no operator that holds the node's lease meanwhile
        named = bool(request.strategies) or request.ladder is not None
        view = machine.view if machine is not None else None
        check, repairs = await asyncio.gather(
            self._check(need, view, node.view if node is not None else None, named=named),
            self._served.repairs(request.node, node.view.system_uuid if node is not None else ""),
        )
        ladder, refused = self._ladder(request, check, node, view)
        refused = refused or _forgotten(request, node, view) or self._not_its_turn(request, check, node, view)
        mark = readable_mark(node.view) if node is not None else None
        adopted = mark is not None and (mark.incident, mark.run_id) != (request.incident, activity.info().workflow_run_id or "")
        return RemediationPin(
            pinned=pinned_of(node) if node is not None else Pinned(node=request.node, uid=""),
            need=need,
            ladder=ladder,
            failed=_failed_before(request, node, view),
            refused=refused,
            check_uid=check.uid if check is not None else "",
            machine=machine.ref if machine is not None else None,
            machine_uid=view.uid if view is not None else "",
            owner=view.controller if view is not None else "",
            control_plane=of_control_plane(node.view if node is not None else None, view),
            adopted_incident=mark.incident if mark is not None and adopted else "",
            adopted_paths=mark.paths if mark is not None else (),
            seen=seen_node(request.node, node.view if node is not None else None),
            repairs=repairs,
            streams=self._served.record is not None,
            healthy_delay=check.healthy_delay if check is not None else timedelta(0),
            remembers=(
                view.annotations.get(LAST_REMEDIATION_ANNOTATION, "") if view is not None else "",
                node.annotations.get(LAST_REMEDIATION_ANNOTATION, "") if node is not None else "",
            ),
        )

    async def _machine_for(self, request: RemediationInput, node: LiveNode | None) -> LiveMachine | None:
        """The Machine it is about: the one that was named, else the Node's own."""
        if request.machine is not None:
            found = await find_machine(self._connections, request.machine)
            if found is not None and not request.adopts:  # what we have left on it goes, whatever counts by now
                require_counted(found, node.view if node is not None else None)
        elif node is not None:
            found = await machine_of(self._connections, node.view)
        else:
            found = await machine_named(self._connections, request.node)
        alone = found is not None and node is None and request.by_a_person
        if found is not None and alone and (has := await node_of(self._connections, found.view)):
            # What the Node says, its lease and its part in the control plane would not be asked by the Machine's name (S15, S20).
            raise failure(ErrorType.INVALID_CONFIG, name_the_node(request.node, has))
        if found is not None and node is not None and (taken := taken_name(found.view, node.view)):
            raise failure(ErrorType.TARGET_CHANGED, taken)
        if found is not None and request.machine is not None:
            names = {found.view.node_name, f"{MACHINE}{found.ref.namespace}/{found.ref.name}"}
            # One that names no Node may be tied to it all the same, as the scan has done that began this.
            if request.node not in names and request.node != (has := await node_of(self._connections, found.view)):
                detail = f"machine: expected the Machine of {request.node}, {found.ref.key} has Node/{has or '-'}"
                raise failure(ErrorType.INVALID_CONFIG, detail)
        if found is not None and request.machine_uid and found.view.uid != request.machine_uid:
            raise failure(ErrorType.TARGET_CHANGED, f"{found.ref.key}: another Machine has that name now")
        return found

    async def _check(self, need: Need, machine: MachineView | None, node: NodeView | None, *, named: bool) -> HealthCheck | None:
        """The need's check; for a person's wish the first that covers the target, since it says by what to remediate. named: a
        person has named the steps."""
        if need.kind is NeedKind.CHECK:
            document = await find_check(self._connections, need)
            return _parsed(document) if document is not None else None
        if node is None:
            return None
        unusable: list[str] = []
        async for check in readable_checks(self._connections, unusable):
            if (machine is not None or not check.of_machines) and await covers(self._connections, check, node):
                return check
        if unusable and not named:
            # What covers it may be one of these: that its Machine is deleted instead is for a person to say.
            raise failure(ErrorType.INVALID_CONFIG, steps_not_known(unusable[0]))
        return None

    def _ladder(
        self, request: RemediationInput, check: HealthCheck | None, node: LiveNode | None, machine: MachineView | None
    ) -> tuple[tuple[EscalationStep, ...], str]:
        """What a person names, what the check says as it is now, or the deletion of its Machine. What a request says that a check
        wants is not believed (S42), but for the one step that an earlier episode has left; a check that is gone licenses none."""
        if request.adopts and (wrong := _not_left_behind(request.ladder or (), check, machine)):
            return (), wrong
        by_check = request.need is not None and request.need.kind is NeedKind.CHECK and check is not None
        if request.ladder is not None and (request.adopts or not by_check):
            return request.ladder, ""
        with as_invalid_config():
            words = "" if by_check else ", ".join(request.strategies)
            named = read_strategies(words, subject=request.node, field="strategies") if words else None
            body = body_of(JudgedTarget(request.node, node=node.view if node is not None else None, machine=machine))
            # A person who names a step is refused where it can't be taken, before any other is begun.
            return possible(check, body, named, live=True, whole=named is not None and not request.skip_impossible)

    def _not_its_turn(
        self, request: RemediationInput, check: HealthCheck | None, node: LiveNode | None, machine: MachineView | None
    ) -> str:
        """Why no further try may begin in the check's name, "" where one may. Any client may say of a target that it was never
        remediated, and would have its machines replaced for ever (S19, S42)."""
        if request.by_a_person or request.adopts or check is None:
            return ""
        view = node.view if node is not None else None
        target = JudgedTarget(request.node, node=view, machine=machine if check.of_machines else None)
        # The scan that decided may have gone by a clock that is ahead of ours.
        now = self._served.judged_at() + CLOCK_TOLERANCE
        turn = turn_of(target, (check,), now, retries=self._served.retries)
        if turn.exhausted:
            return "" if request.exhausted else turn.exhausted
        if turn.not_before is not None and turn.not_before > now:
            return turn.why
        return f"retry: expected {turn.retry} or more, got {request.retry}: {turn.why}" if request.retry < turn.retry else ""

    # Asking ---------------------------------------------------------------------------------------------------------

    async def request_owner(self, request: MachineRequest) -> ActResult:
        """Both conditions that Cluster API's owners look at: that it is unhealthy, and that it is their turn."""

        act = f"asking for the remediation of {request.machine.key}"

        async def compose(machine: MachineView) -> Conditions:
            owner = machine.controller
            if owner.partition("/")[0] not in REPLACING_OWNERS:
                expected = f"expected a {' or a '.join(REPLACING_OWNERS)}"
                raise failure(ErrorType.NOT_SUPPORTED, f"{request.machine.key}: its owner {owner or 'none'}: {expected}")
            if machine.deleting or _is_false(machine, OWNER_REMEDIATED):
                return {}
            await self._require_leave(request, machine)
            said = ConditionText(status="False", reason=WAITING, message="Waiting for remediation")
            wanted: Conditions = {OWNER_REMEDIATED: (said, said)}
            if not _is_false(machine, SUCCEEDED):
                sick = ConditionText(status="False", reason=REQUESTED, message=f"incident {request.target.incident}")
                wanted[SUCCEEDED] = (sick, sick)
            return wanted

        async def write() -> ActResult:
            return await self._write_conditions(request, compose, "its owner is asked to remediate it", request.not_after)

        def asked(machine: MachineView | None) -> bool:
            return machine is None or machine.deleting or _is_false(machine, OWNER_REMEDIATED)

        return await self._begin(request, act, write, asked, operation=Operation.REMOVE)

    async def annotate_external(self, request: MachineRequest) -> ActResult:
        """The shipped annotation, and the one of the proposal."""
        return await self._annotate(request, {EXTERNAL_REMEDIATION_ANNOTATION: "", STRATEGY_ANNOTATION: EXTERNAL_STRATEGY})

    async def take_back(self, request: MachineRequest) -> ActResult:
        """A request that was not taken up goes; a Machine that is going keeps what it says."""
        if machine_api(request.machine.api_version) is not CLUSTER_API:
            annotations = dict.fromkeys((EXTERNAL_REMEDIATION_ANNOTATION, STRATEGY_ANNOTATION))
            return await self._write_annotations(request.machine, request.machine_uid, annotations)

        async def compose(machine: MachineView) -> Conditions:
            if machine.deleting or not _is_false(machine, OWNER_REMEDIATED):
                return {}
            stands = machine.condition(SUCCEEDED)
            ours = stands is not None and stands.reason == REQUESTED
            return {OWNER_REMEDIATED: None, SUCCEEDED: None} if ours else {OWNER_REMEDIATED: None}

        return await self._write_conditions(request, compose, "its owner is asked no more")

    async def _annotate(self, request: MachineRequest, values: Mapping[str, str]) -> ActResult:
        """Have the controller that reads these annotations of a Machine begin."""
        ref = request.machine

        async def write() -> ActResult:
            unless = partial(self._require_leave, request)
            return await self._write_annotations(ref, request.machine_uid, values, unless=unless, not_after=request.not_after)

        def annotated(machine: MachineView | None) -> bool:
            return machine is not None and values.items() <= machine.annotations.items()

        return await self._begin(request, f"annotating {ref.key}", write, annotated)

    async def _begin(
        self,
        request: MachineRequest,
        act: str,
        write: Callable[[], Awaitable[ActResult]],
        stands: Callable[[MachineView | None], bool],
        *,
        operation: Operation = Operation.DISRUPT,
    ) -> ActResult:
        """Written only after a look that says go (S20). stands: whether a Machine says so already, None where it is gone.
        operation: as of a LookRequest."""
        self._require_other_node(request.target.pinned.node, " and never has it remediated itself")
        assert request.before is not None, "what begins something says what comes before"

        async def found() -> ActResult | None:
            machine = await find_machine(self._connections, request.machine)
            pinned = machine.view if machine is not None and machine.view.uid == request.machine_uid else None
            return ActResult(changed=False, detail="written already") if stands(pinned) else None

        return await self._delegate(
            request.before,
            act,
            request.not_after,
            target=request.target,
            write=write,
            refused=lambda seen: ActResult(changed=False, detail=seen.reason, look=seen),
            found=found,
            operation=operation,
        )

    async def _require_leave(self, request: MachineRequest, machine: MachineView) -> None:
        """On the very version of the Machine that is written, which no look at its Node need find, and with the Node as it is by
        then, which has the last word (S27). The Lease is the look's affair."""
        pinned = request.target.pinned
        node = await find_node(self._connection, pinned.node) if not pinned.node.startswith(MACHINE) else None
        if node is not None and pinned.uid and node.view.uid != pinned.uid:
            raise failure(ErrorType.TARGET_CHANGED, f"Node/{pinned.node} is another object now: uid {node.view.uid}")
        require_machine_of(pinned.node, machine, node.view if node is not None else None, request.machine.key)
        view = node.view if node is not None else None
        pause = await pause_of(self._connections, view, (machine,))
        seen = Seen(node=view, machines=(machine,), pause=pause, cluster_lease="")
        require_leave(seen, Operation.ASK, self._clock(), about=request.machine.key)

    async def _write_conditions(
        self,
        request: MachineRequest,
        compose: Callable[[MachineView], Awaitable[Conditions]],
        done: str,
        not_after: datetime | None = None,
    ) -> ActResult:
        ref = request.machine
        connection, path = self._connections.of(ref.api_version), resource_of(ref).path(ref.name, namespace=ref.namespace)

        async def once() -> ActResult:
            machine = await find_machine(self._connections, request.machine)
            if machine is None or machine.view.uid != request.machine_uid:
                return ActResult(changed=False, detail=f"{request.machine.key} is gone")
            wanted = await compose(machine.view)
            if not wanted:
                return ActResult(changed=False, detail=f"{done} already")
            older = request.machine.api_version.endswith(f"/{V1BETA1}")
            status = machine_conditions(status_of(machine.document), wanted, self._clock(), older=older)
            metadata = {"uid": machine.view.uid, "resourceVersion": machine.view.resource_version}
            body = {"metadata": metadata, "status": status}
            await connection.patch_merge(f"{path}/status", body, not_after=not_after)
            return ActResult(changed=True, detail=done)

        return await edit(request.machine.key, once)

    # Following ------------------------------------------------------------------------------------------------------

    async def follow(self, request: FollowRequest) -> FollowedMachine:
        """A Machine of that name with another uid is a successor, never the patient."""
        machine = await find_machine(self._connections, request.machine)
        patient = machine.view if machine is not None and machine.view.uid == request.machine_uid else None
        going = patient.deleting_since if patient is not None else request.since
        replacement = await self._successor(request, going) if going is not None else None
        if patient is None:
            scaled_down = await self._scaled_down(request) if replacement is None else ""
            return FollowedMachine(gone=True, replacement=replacement, scaled_down=scaled_down)
        asked = patient.condition(OWNER_REMEDIATED) or Condition(type=OWNER_REMEDIATED, status="")
        return FollowedMachine(
            deleting=patient.deleting,
            deleting_since=patient.deleting_since,
            phase=patient.phase,
            waits=patient.deletion_waits,
            owner_status=asked.status,
            owner_reason=asked.reason,
            owner_message=asked.message,
            replacement=replacement,
        )

    async def _successor(self, request: FollowRequest, since: datetime) -> Replacement | None:
        """The one that remembers this very remediation; else the oldest that was made since then and remembers nothing yet, which
        is told what to remember."""
        found = [
            machine
            for machine in await self._siblings(request)
            if machine.created is not None and machine.created >= since and machine.uid != request.machine_uid
        ]
        if (named := next((each for each in found if _remembers(each, request)), None)) is not None:
            return await self._as_replacement(request, named)
        blank = [
            each for each in found if not {LAST_REMEDIATION_ANNOTATION, REMEDIATION_FOR_ANNOTATION} & each.annotations.keys()
        ]
        blank.sort(key=lambda each: (each.created or since, each.name))
        for machine in blank:
            if request.memory:
                ref = replace(request.machine, name=machine.name)
                done = await self._write_annotations(
                    ref, machine.uid, {LAST_REMEDIATION_ANNOTATION: request.memory}, only_if_absent=True
                )
                if not done.changed:
                    continue
            return await self._as_replacement(request, machine)
        return None

    async def _siblings(self, request: FollowRequest) -> list[MachineView]:
        resource, decoding = resource_of(request.machine), machine_decoding(api_of(request.machine))
        connection = self._connections.of(request.machine.api_version)
        pages = connection.list_pages(resource.path(namespace=request.machine.namespace))
        try:
            listed = [item.value async for page in pages for item in decoding.items(page.body)]
        except ObjectNotFound:
            return []
        return [each for each in listed if request.owner and each.controller == request.owner and not each.deleting]

    async def _as_replacement(self, request: FollowRequest, machine: MachineView) -> Replacement:
        node = await find_node(self._connection, name) if (name := machine.node_name) else None
        if node is not None and request.memory and LAST_REMEDIATION_ANNOTATION not in node.annotations:
            await self._remember_on_node(name, node.view.uid, request.memory, only_if_absent=True)
        ready = node is not None and node.view.ready
        return Replacement(
            machine=machine.name,
            uid=machine.uid,
            node=name,
            ready=ready,
            failed=machine.failed[:LONGEST_FAILURE] or ("" if ready else await self._judged(request, machine, node)),
        )

    async def _judged(self, request: FollowRequest, machine: MachineView, node: LiveNode | None) -> str:
        """Why the check of its predecessor calls the successor unhealthy, "" where it does not (yet)."""
        found = await find_check(self._connections, Need(kind=NeedKind.CHECK, check=request.check)) if request.check else None
        check = _parsed(found) if found is not None else None
        if check is None:
            return ""
        view = node.view if node is not None else None
        if not check.of_machines:
            target = JudgedTarget(request.target.pinned.node, node=view)
        else:
            target = JudgedTarget(machine.key, node=view, machine=machine)
            target.cluster = await cluster_of(self._connections, check) if check.dialect is Dialect.CLUSTER_API else None
        if target.node is None and target.machine is None:
            return ""
        verdict = rules_of(check).judge(target, self._served.judged_at())
        return verdict.message or verdict.reason if verdict.health is Health.UNHEALTHY else ""

    async def _scaled_down(self, request: FollowRequest) -> str:
        found = set_of(request.machine, request.owner)
        if found is None:
            return ""
        resource, name = found
        connection = self._connections.of(request.machine.api_version)
        owner = await unless_gone(connection.get(resource.path(name, namespace=request.machine.namespace)))
        if owner is None:
            return f"its owner {request.owner} is gone, too"
        wanted, there = int((owner.get("spec") or {}).get("replicas", 1)), len(await self._siblings(request))
        return f"its owner {request.owner} wants no more than the {wanted} that there are" if there >= wanted else ""

    # Remembering ----------------------------------------------------------------------------------------------------

    async def remember(self, request: RememberRequest) -> ActResult:
        """What was noted before is noted no longer, where nothing came of it."""
        return await self._remember(request)


def _remembers(machine: MachineView, request: FollowRequest) -> bool:
    """Whether it was told of this remediation already, by us or by its owner."""
    there = machine.annotations
    for annotation in (LAST_REMEDIATION_ANNOTATION, REMEDIATION_FOR_ANNOTATION):
        if annotation not in there:
            continue
        try:
            memory = read_memory(there[annotation], subject=request.machine.key, annotation=annotation)
        except PolicyError:
            continue
        if annotation == REMEDIATION_FOR_ANNOTATION and memory.of == request.machine.name:
            return True
        if memory.incident and memory.incident == request.target.incident:
            return True
    return False


def _not_left_behind(ladder: tuple[EscalationStep, ...], check: HealthCheck | None, machine: MachineView | None) -> str:
    """Why no earlier episode can have left what these steps make, "" where one can. It is deleted without a look, and a Machine
    owns more than what a check has made for it: its instance, too. Of a Machine that a check of its own calls sick it is that
    check which asks its owner."""
    if any(each.strategy not in LEAVES_BEHIND for each in ladder):
        steps = ", ".join(each.name for each in ladder)
        return f"adopts: expected an object or a wish that an earlier episode has left, got {steps}"
    sick = machine.condition(SUCCEEDED) if machine is not None else None
    wishes = any(each.strategy is Strategy.REQUEST_OWNER for each in ladder)
    if wishes and sick is not None and sick.status == "False" and sick.reason != REQUESTED:
        return f"adopts: {SUCCEEDED} is False ({sick.reason}): its owner goes on being asked"
    makes = {kind_of(rung.template) for rung in (check.rungs if check is not None else ())}
    foreign = [kind_of(each.template) for each in ladder if each.template is not None and kind_of(each.template) not in makes]
    named = check.ref.key if check is not None else "its check, which is gone,"
    return f"adopts: {named} makes no {foreign[0][1]}" if foreign else ""


def _forgotten(request: RemediationInput, node: LiveNode | None, machine: MachineView | None) -> str:
    """Why what the scan made of its past does not hold any more, "" where it does. A check of Nodes goes by the Node's word."""
    there: Mapping[str, str] = {}
    if request.machine is not None and machine is not None:
        there = machine.annotations
    elif node is not None:
        there = node.view.annotations
    now = there.get(LAST_REMEDIATION_ANNOTATION, "")
    if request.memory is None or now == request.memory:
        return ""
    return f"its annotation {LAST_REMEDIATION_ANNOTATION} has changed since the scan that decided: the next one decides anew"


def _failed_before(request: RemediationInput, node: LiveNode | None, machine: MachineView | None) -> tuple[str, ...]:
    """The steps that have failed, by what the target remembers: any client may name others, and so begin with a harsher one."""
    target = JudgedTarget(request.node, node=node.view if node is not None else None, machine=machine)
    try:
        last = last_of(target)
    except PolicyError:  # a person is asked before anything is done
        return ()
    return tuple(each for each in request.failed if last is not None and each in last.failed)


def _parsed(document: JsonObject) -> HealthCheck | None:
    try:
        return parse(document)
    except PolicyError:
        return None


def _is_false(machine: MachineView, kind: str) -> bool:
    found = machine.condition(kind)
    return found is not None and found.status == "False"
