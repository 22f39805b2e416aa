"""Remediation objects of other controllers: created once, looked at, told that their time is over, taken back.

`policy/remediation/remediation_objects.py` decides what an object says, and which target it is about. Creating one sets a
remediation going, so only that is licensed and looked at first (S20); all else ends something or notes something. An object is
created under a name that follows from its target and template, so that a lost answer is settled by asking again: a second try
finds the first (S33).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from activities.cluster.acts.delegated_action import DelegatingActivities
from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import NODE_HEALTH_CHECKS, Resource, in_management_cluster, ref_of
from activities.cluster.api.refusals import ObjectNotFound, edit, unless_gone
from activities.cluster.api.served_cluster import Discovery
from activities.cluster.live.last_look import require_leave, require_machine_of
from activities.cluster.objects.live_machines import cluster_of, find_check, find_machine, pause_of
from activities.cluster.objects.live_node import find_node
from activities.cluster.objects.marks import require_pinned
from activities.contracts.remediation import External, ExternalActivities, ExternalRequest
from activities.contracts.target import Target
from activities.errors import ErrorType, as_invalid_config, failure
from policy.dialects import parse
from policy.episode.gate import Operation, Seen
from policy.episode.messages import Need, NeedKind
from policy.objects.machines import MachineView
from policy.objects.remediations import GIVEN_UP_ANNOTATION, HEALTHY_DELAY_ANNOTATION
from policy.remediation.ladder import OLD_ANNOTATION, OLD_VALUE, to_be_flagged
from policy.remediation.remediation_objects import (
    INCIDENT_ANNOTATION,
    OF_MACHINES,
    SEVERAL_ANNOTATION,
    RemediationConditions,
    WantedObject,
    made,
    not_ours,
    phase_of,
    progress_message,
    remediator_of,
    statuses_of,
    to_be_given_up,
)
from policy.values.times import moment_of, written


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where the objects of that kind are, and which one is meant."""

    connection: ClusterConnection
    resource: Resource
    wanted: WantedObject
    name: str

    def path(self, name: str = "") -> str:
        return self.resource.path(name or self.name, namespace=self.wanted.namespace if self.resource.namespaced else "")

    @property
    def collection(self) -> str:
        return self.resource.path(namespace=self.wanted.namespace if self.resource.namespaced else "")

    @property
    def called(self) -> str:
        return f"{self.resource.kind}/{self.wanted.namespace}/{self.name}"


class ClusterRemediationObjects(DelegatingActivities, ExternalActivities):
    """Served by the workers of one cluster's queue."""

    @cached_property
    def _kinds(self) -> dict[ClusterConnection, Discovery]:
        return {each: Discovery(each) for each in (self._connections.nodes, self._connections.machines)}

    async def create(self, request: ExternalRequest) -> External:
        """See the module. One that an earlier attempt has made is found, whatever has become of the target since."""
        self._require_other_node(request.target.pinned.node, " and never has it remediated itself")
        assert request.before is not None, "what begins something says what comes before"
        assert request.not_after is not None, "and until when"

        async def found() -> External | None:
            _, there, _ = await self._locate(request)
            theirs = self._external(there) if there is not None else None
            return theirs if theirs is not None and theirs.incident == request.target.incident and not theirs.deleting else None

        return await self._delegate(
            request.before,
            f"creating the object of {request.template.key}",
            request.not_after,
            write=lambda: self._create(request),
            target=request.target,
            refused=lambda seen: External(present=False, message=seen.reason, look=seen),
            found=found,
        )

    async def _create(self, request: ExternalRequest) -> External:
        wanted = await self._with_check(self._wanted(request))
        template, place = await self._template(wanted, request)
        widely = wanted.several or SEVERAL_ANNOTATION in (template["metadata"].get("annotations") or {})

        async def once() -> External:
            return self._external(await self._in_the_way(place, widely=widely) or await self._post(place, template, request))

        return await edit(place.called, once, look_again=True)

    async def read(self, request: ExternalRequest) -> External:

        def annotations(document: JsonObject) -> Mapping[str, str | None]:
            created = moment_of(document["metadata"].get("creationTimestamp"))
            if created is None or _is_deleting(document):
                return {}
            flagged = OLD_ANNOTATION in _annotations(document)
            return {OLD_ANNOTATION: OLD_VALUE} if to_be_flagged(created, self._clock(), flagged=flagged) else {}

        return await self._annotate(request, annotations)

    async def time_out(self, request: ExternalRequest) -> External:
        """The moment of the first time stays: it is when its controller was told."""

        def annotations(document: JsonObject) -> Mapping[str, str | None]:
            succeeded = RemediationConditions(succeeded=self._external(document).succeeded)
            over = GIVEN_UP_ANNOTATION in _annotations(document) or not to_be_given_up(succeeded)
            return {} if over or _is_deleting(document) else {GIVEN_UP_ANNOTATION: written(self._clock())}

        return await self._annotate(request, annotations)

    async def note_well(self, request: ExternalRequest) -> External:
        """A node that is sick again begins anew: its delay counts from when it was well for good, not from the first time."""
        wanted = written(request.well_since) if request.well_since is not None else None

        def annotations(document: JsonObject) -> Mapping[str, str | None]:
            if _is_deleting(document) or _annotations(document).get(HEALTHY_DELAY_ANNOTATION) == wanted:
                return {}
            return {HEALTHY_DELAY_ANNOTATION: wanted}

        return await self._annotate(request, annotations)

    async def delete(self, request: ExternalRequest) -> External:
        """By the uid that was read: another one that takes the name is not ours to delete."""

        async def once() -> External:
            place, found, why = await self._locate(request)
            if found is not None and place is not None and not _is_deleting(found):
                await self._require_not_paused(request)
                await place.connection.delete(place.path(found["metadata"]["name"]), uid=found["metadata"]["uid"])
                place, found, why = await self._locate(request)  # finalizers may keep it
            return self._external(found) if found is not None else External(present=False, message=why)

        return await edit(f"the object of {request.template.key}", once, may_vanish=True, look_again=True)

    async def _require_not_paused(self, request: ExternalRequest) -> None:
        """A MachineHealthCheck that is paused, itself or by its Cluster, touches nothing, not even to give back."""
        if not request.adopted or request.check is None or request.check.kind != OF_MACHINES:
            return
        document = await find_check(self._connections, Need(kind=NeedKind.CHECK, check=request.check))
        with as_invalid_config():
            check = parse(document) if document is not None else None
        cluster = await cluster_of(self._connections, check) if check is not None and check.cluster_name else None
        if pause := (check.paused if check is not None else "") or (cluster.paused if cluster is not None else ""):
            raise failure(ErrorType.VETOED, f"{request.check.key} is paused: {pause}")

    # Finding --------------------------------------------------------------------------------------------------------

    def _connection_for(self, request: ExternalRequest) -> ClusterConnection:
        """Where the check lives, its templates and their objects do; without a check, where the Machine does."""
        target = request.check or request.machine
        return self._connections.of(target.api_version) if target is not None else self._connection

    def _wanted(self, request: ExternalRequest) -> WantedObject:
        machine = request.machine if request.machine_uid else None
        if request.check is not None and request.check.kind not in {NODE_HEALTH_CHECKS.kind, OF_MACHINES}:
            raise failure(ErrorType.INVALID_CONFIG, f"{request.check.key}: expected a NodeHealthCheck or a MachineHealthCheck")
        if machine is None and request.check is not None and request.check.kind == OF_MACHINES:
            raise failure(ErrorType.INVALID_CONFIG, f"{request.check.key}: expected the Machine that it is about, with its uid")
        of_capi = machine is not None and in_management_cluster(machine.api_version)
        if of_capi and self._connection_for(request) is not self._connections.machines:
            machine = None  # it lives in another cluster than the object, and can't own it
        pinned = request.target.pinned
        return WantedObject(
            template=request.template,
            node=pinned.node,
            node_uid=pinned.uid,
            incident=request.target.incident,
            check=request.check,
            check_uid=request.check_uid,
            machine=machine,
            machine_uid=request.machine_uid if machine is not None else "",
            several=request.several,
        )

    async def _place(self, wanted: WantedObject, request: ExternalRequest) -> tuple[_Place | None, str]:
        """Where the object is or would be; None and why where the server does not know its kind."""
        connection, template = self._connection_for(request), wanted.template
        with as_invalid_config():
            kind = wanted.kind
        resource = await self._kinds[connection].find(template.api_version, kind)
        if resource is None:
            return None, f"the API server knows no {kind} of {template.api_version}"
        if resource.namespaced and not wanted.namespace:
            raise failure(ErrorType.INVALID_CONFIG, f"{template.key}: namespace: expected one, {kind} is a namespaced kind")
        return _Place(connection=connection, resource=resource, wanted=wanted, name=request.name or wanted.name), ""

    async def _locate(self, request: ExternalRequest) -> tuple[_Place | None, JsonObject | None, str]:
        wanted = self._wanted(request)
        place, why = await self._place(wanted, request)
        if place is None:
            return None, None, why
        found = await unless_gone(place.connection.get(place.path()))
        if found is None and wanted.several and not request.name:
            found = await self._among(place)
        if found is None:
            return place, None, f"there is no {place.called}"
        if request.uid and found["metadata"].get("uid") != request.uid:
            return place, None, f"another object is called {place.called} now"
        if why := not_ours(found, wanted):
            return place, None, f"there is a {place.called}, but {why}"
        return place, found, ""

    async def _in_the_way(self, place: _Place, *, widely: bool) -> JsonObject | None:
        """The object that there is already, None where it can be created. Vetoed where it is about another target."""
        found = await unless_gone(place.connection.get(place.path()))
        if found is None:
            return await self._among(place) if widely else None
        if why := not_ours(found, place.wanted):
            raise failure(ErrorType.VETOED, f"there is a {place.called} already, but {why}")
        return found

    async def _among(self, place: _Place) -> JsonObject | None:
        """One that the shipped operator has made under a name of the server's, before us."""
        for found in await place.connection.list_objects(place.collection):
            if not not_ours(found, place.wanted):
                return place.resource.whole(found)
        return None

    async def _template(self, wanted: WantedObject, request: ExternalRequest) -> tuple[JsonObject, _Place]:
        """The template as it is now, and where what it makes goes to."""
        reference, connection = wanted.template, self._connection_for(request)
        place, why = await self._place(wanted, request)
        if place is None:
            raise failure(ErrorType.INVALID_CONFIG, f"{reference.key}: {why}")
        resource = await self._kinds[connection].find(reference.api_version, reference.kind)
        if resource is None:
            why = f"the API server knows no {reference.kind} of {reference.api_version}"
            raise failure(ErrorType.INVALID_CONFIG, f"{reference.key}: {why}")
        path = resource.path(reference.name, namespace=reference.namespace or wanted.namespace if resource.namespaced else "")
        try:
            template = await connection.get(path)
        except ObjectNotFound as error:
            raise failure(ErrorType.INVALID_CONFIG, f"{reference.key}: there is no such template") from error
        if wanted.several and SEVERAL_ANNOTATION not in (template["metadata"].get("annotations") or {}):
            expected = (
                f"expected the annotation {SEVERAL_ANNOTATION}: its controller knows objects by the name of their node only"
            )
            raise failure(ErrorType.INVALID_CONFIG, f"{reference.key}: {expected}, and another step makes some of its kind")
        return template, place

    async def _with_check(self, wanted: WantedObject) -> WantedObject:
        """With the uid of the check that is to own the object: an owner without one is refused."""
        check = wanted.check
        if wanted.of_machine or check is None or wanted.check_uid:
            return wanted
        resource = replace(NODE_HEALTH_CHECKS, api_version=check.api_version)
        try:
            document = await self._connection.get(resource.path(check.name))
        except ObjectNotFound as error:
            raise failure(ErrorType.VETOED, f"{check.key} is gone: the object that it would own is not needed") from error
        return replace(wanted, check_uid=document["metadata"]["uid"])

    async def _post(self, place: _Place, template: JsonObject, request: ExternalRequest) -> JsonObject:
        body = await self._body(template, place.wanted, request.target)
        try:
            return await place.connection.create(place.collection, body, not_after=request.not_after)
        except ObjectNotFound as error:
            raise failure(ErrorType.INVALID_CONFIG, f"{place.called} can't be created: {error.message}") from error

    async def _body(self, template: JsonObject, wanted: WantedObject, target: Target) -> JsonObject:
        """What is created, for the very target that is there now (S9); one that is being deleted is none."""
        machine = await self._machine(wanted) if wanted.of_machine else None
        node = await find_node(self._connection, target.pinned.node) if target.pinned.uid else None
        if node is None and machine is None:
            raise failure(ErrorType.TARGET_CHANGED, f"Node/{target.pinned.node} is gone")
        if node is not None:
            require_pinned(node, target)
        view = node.view if node is not None else None
        if machine is not None:
            require_machine_of(target.pinned.node, machine, view, f"Machine/{machine.namespace}/{machine.name}")
        # Of this very Machine, which no look at its Node need find. Leases are the look's affair.
        machines = (machine,) if machine is not None else ()
        pause = await pause_of(self._connections, view, machines)
        seen = Seen(node=view, machines=machines, pause=pause, lease="", cluster_lease="")
        require_leave(seen, Operation.CREATE, self._clock())
        member, cluster_name = view is not None and view.control_plane, machine.cluster_name if machine is not None else ""
        with as_invalid_config():
            return made(template, wanted, control_plane=member, cluster_name=cluster_name)

    async def _machine(self, wanted: WantedObject) -> MachineView:
        assert wanted.machine is not None
        ref = wanted.machine
        read = await find_machine(self._connections, ref)
        if read is None:
            raise failure(ErrorType.TARGET_CHANGED, f"{ref.key} is gone")
        machine = read.view
        if machine.uid != wanted.machine_uid:
            raise failure(ErrorType.TARGET_CHANGED, f"{ref.key}: another Machine has that name now")
        return machine

    # Writing --------------------------------------------------------------------------------------------------------

    async def _annotate(self, request: ExternalRequest, wanted: Callable[[JsonObject], Mapping[str, str | None]]) -> External:
        """Write what differs, in the version that was read."""

        async def once() -> External:
            place, found, why = await self._locate(request)
            if found is None or place is None:
                return External(present=False, message=why)
            if not (annotations := wanted(found)):
                return self._external(found)
            metadata = {key: found["metadata"][key] for key in ("uid", "resourceVersion")}
            path = place.path(found["metadata"]["name"])
            body = {"metadata": {**metadata, "annotations": annotations}}
            return self._external(await place.connection.patch_merge(path, body, not_after=request.not_after))

        return await edit(f"the object of {request.template.key}", once, may_vanish=True, look_again=True)

    def _external(self, document: JsonObject) -> External:
        metadata, annotations, statuses = document["metadata"], _annotations(document), statuses_of(document)
        says = remediator_of(document["apiVersion"], document["kind"], self._served.remediators)
        return External(
            present=True,
            ref=ref_of(document),
            uid=metadata["uid"],
            incident=annotations.get(INCIDENT_ANNOTATION, ""),
            created=moment_of(metadata.get("creationTimestamp")),
            deleting=_is_deleting(document),
            timed_out=GIVEN_UP_ANNOTATION in annotations,
            processing=statuses.get(says.working, ""),
            succeeded=says.has_succeeded(statuses),
            node_deletion=statuses.get(says.node_goes, ""),
            phase=phase_of(document),
            message=progress_message(document, says.progress_conditions),
            well_since=moment_of(annotations.get(HEALTHY_DELAY_ANNOTATION)),
        )


def _annotations(document: JsonObject) -> Mapping[str, str]:
    return document["metadata"].get("annotations") or {}


def _is_deleting(document: JsonObject) -> bool:
    return bool(document["metadata"].get("deletionTimestamp"))
