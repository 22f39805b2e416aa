"""The activities of a remediation: pin a machine or node, hand it to another controller, follow it, remember what was tried.

An activity that writes looks live and writes with preconditions, and names its object by uid; a repetition finds its own work
done. Only `preservation.give-up` asks for the deletion of a Machine.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio import activity

from activities.contracts import ActivityContract
from activities.contracts.target import ActResult, LookRequest, LookResult, Target
from policy.episode.messages import Need, Pinned, RemediationInput, SeenNode
from policy.history.offenders import NO_REPAIRS, FoundRepairs
from policy.remediation.failed_volumes import Failure, VolumeMessage
from policy.remediation.ladder import EscalationStep
from policy.values.object_refs import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationPin:
    """The target as it is at the start, and the ladder if the input named none.

    pinned: for a Machine without a Node the uid is "", and `node` is the victim's name (`machine/<namespace>/<name>`). machine:
    None for a Node that belongs to none. owner: kind and name of what controls the Machine, "" if nothing does.
    adopted_incident: from the mark of an earlier episode, or of another run of this one; adopted_paths: the paths that are cut
    by that mark. healthy_delay: how long the node must be well before the remediation is taken back; negative: until a person
    has confirmed it.
    """

    pinned: Pinned
    need: Need
    ladder: tuple[EscalationStep, ...]
    check_uid: str = ""
    machine: ObjectRef | None = None
    machine_uid: str = ""
    owner: str = ""
    control_plane: bool = False
    adopted_incident: str = ""
    adopted_paths: tuple[str, ...] = ()
    seen: SeenNode | None = None
    repairs: FoundRepairs = NO_REPAIRS
    healthy_delay: timedelta = timedelta(0)
    remembers: tuple[str, str] = ("", "")
    """The memory of earlier remediations on the Machine and on the Node, "" for none."""
    failed: tuple[str, ...] = ()
    """Of the steps that the input calls failed, those of which the target itself remembers it (S42)."""
    refused: str = ""
    """Why no step of the ladder can be carried out, "" if one can."""
    streams: bool | None = None
    """As in a PinResult."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberRequest:
    """Write the memory of the remediation to the target's Machine and Node.

    on_node: the Node's memory if it differs from the Machine's; "": none. instead_of: written only if this is the present
    memory; "": in any case.
    """

    target: Target
    memory: str
    on_node: str | None = None
    instead_of: str = ""
    machine: ObjectRef | None = None
    machine_uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeActing:
    """What an activity does first if it makes another controller begin something: the last look (S20), and the note on the
    target.

    If the look does not say go, nothing is noted and the act is not begun; the result has what was seen. remember: None if
    nothing is to be noted.
    """

    look: LookRequest
    remember: RememberRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRequest:
    """An act on the Machine of the target. `not_after`: after that moment it is not begun at all (S20). before: None if the act
    takes something back."""

    target: Target
    machine: ObjectRef
    machine_uid: str
    not_after: datetime
    before: BeforeActing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowRequest:
    """Read the state of the Machine and of its successor.

    since: when its deletion was asked for, None before that: no older Machine can be its successor. memory: what is written to
    the successor (`policy/remediation/memory.py`), "" for nothing. check: the health check that judges the successor.
    """

    target: Target
    machine: ObjectRef
    machine_uid: str
    owner: str
    since: datetime | None
    memory: str = ""
    check: ObjectRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The Machine that replaces one that was given up. failed: why it will not work either, "" while it may."""

    machine: str
    uid: str
    node: str = ""
    ready: bool = False
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedMachine:
    """The Machine as it is now. `gone`: there is none of that uid. deleting: its deletion has been asked for, by us or by
    others.

    waits: what its deletion waits for, as text. owner_status, owner_reason, owner_message: its condition OwnerRemediated.
    replacement: its successor, None while there is none. scaled_down: why its owner wants no successor, "" if it does.
    """

    gone: bool = False
    deleting: bool = False
    deleting_since: datetime | None = None
    phase: str = ""
    waits: str = ""
    owner_status: str = ""
    owner_reason: str = ""
    owner_message: str = ""
    replacement: Replacement | None = None
    scaled_down: str = ""


class RemediationActivities(ActivityContract):
    """Served on `cluster.<name>`."""

    @activity.defn(name="remediation.pin-target")
    @abstractmethod
    async def pin(self, request: RemediationInput) -> RemediationPin:
        """Read Node, Machine and health check live. Errors: InvalidConfig, TargetChanged, NotFound."""

    @activity.defn(name="remediation.follow-machine")
    @abstractmethod
    async def follow(self, request: FollowRequest) -> FollowedMachine:
        """Look live, and write the memory to the successor if there is one without a memory. Idempotent."""

    @activity.defn(name="remediation.request-owner")
    @abstractmethod
    async def request_owner(self, request: MachineRequest) -> ActResult:
        """Cluster API: set the conditions by which the Machine's owner remediates it. Errors: TargetChanged, NotSupported."""

    @activity.defn(name="remediation.annotate-external")
    @abstractmethod
    async def annotate_external(self, request: MachineRequest) -> ActResult:
        """OpenShift: annotate the Machine for its bare-metal operator."""

    @activity.defn(name="remediation.take-back")
    @abstractmethod
    async def take_back(self, request: MachineRequest) -> ActResult:
        """Undo `request_owner` and `annotate_external` if they still stand: the remediation is not wanted any more."""

    @activity.defn(name="remediation.remember")
    @abstractmethod
    async def remember(self, request: RememberRequest) -> ActResult:
        """Write the memory; an object that is gone is skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalRequest:
    """A remediation object of another controller, made from `template` for the target of `check`.

    check_uid: "" if it is not known; then it is read. machine: of the target, None if it has none; machine_uid: goes with it.
    several: other steps of the ladder make objects of the same kind, so that this one gets a name of its own. name, uid: of an
    object that exists already, "" before. well_since: since when its node has been well, None while it is not. before,
    not_after: of a `create`, which is not begun without them. adopted: an earlier episode left the object behind: it is not
    deleted while its check is a paused one of Machines, or its Cluster is paused.
    """

    target: Target
    template: ObjectRef
    check: ObjectRef | None
    check_uid: str = ""
    machine: ObjectRef | None = None
    machine_uid: str = ""
    several: bool = False
    name: str = ""
    uid: str = ""
    before: BeforeActing | None = None
    not_after: datetime | None = None
    well_since: datetime | None = None
    adopted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """A remediation object as it is now; `present` False: there is none of that name and origin, and `message` says why.

    incident: of the episode that made it, "" if another controller did. deleting: its deletion has been asked for, and a
    finalizer holds it. timed_out: an annotation tells its controller that its time is over, from us or from another.
    processing, succeeded, node_deletion: its conditions Processing, Succeeded and PermanentNodeDeletionExpected, "" if it has
    none. phase: from its status (Metal3). well_since: since when its node has been well, by its annotation. message: of its
    controller.
    """

    present: bool
    ref: ObjectRef | None = None
    uid: str = ""
    incident: str = ""
    created: datetime | None = None
    deleting: bool = False
    timed_out: bool = False
    processing: str = ""
    succeeded: str = ""
    node_deletion: str = ""
    phase: str = ""
    message: str = ""
    well_since: datetime | None = None
    look: LookResult | None = None


class ExternalActivities(ActivityContract):
    """Remediation objects of other controllers, as medik8s, OpenShift and Cluster API have them. Served on `cluster.<name>`."""

    @activity.defn(name="remediation.create-object")
    @abstractmethod
    async def create(self, request: ExternalRequest) -> External:
        """Create it once from its template; an existing one of ours is found, however old it is.

        Errors: InvalidConfig (no such template or kind, or a template that makes nothing), Vetoed (an object that is not ours
        is in the way, or a person or another system objects), TargetChanged, NotLicensed, Expired, OwnNode; Ambiguous: look
        again.
        """

    @activity.defn(name="remediation.read-object")
    @abstractmethod
    async def read(self, request: ExternalRequest) -> External:
        """Read it live: by its uid if the request has one, else by name and origin. An object that is two days old gets, once,
        the annotation that the operators' alerts select, so that people look at it."""

    @activity.defn(name="remediation.time-out-object")
    @abstractmethod
    async def time_out(self, request: ExternalRequest) -> External:
        """Annotate for its controller that its time is over, unless it has succeeded."""

    @activity.defn(name="remediation.note-well")
    @abstractmethod
    async def note_well(self, request: ExternalRequest) -> External:
        """Annotate it with the moment since which its node has been well, or remove that annotation if the node no longer
        is."""

    @activity.defn(name="remediation.delete-object")
    @abstractmethod
    async def delete(self, request: ExternalRequest) -> External:
        """Ask for its deletion; a gone one is deleted. One that a finalizer holds is still present, and deleting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedVolumesRequest:
    """Asks which volumes of the target have failed. template: the VolumeDetachmentTemplate that names the signs of failure;
    None: the conditions for which the need's own check finds the node unhealthy."""

    target: Target
    need: Need
    template: ObjectRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedVolumes:
    """The failure, and the time that its pods get for their eviction. messages: those that show the failure."""

    failure: Failure
    eviction_timeout: timedelta
    messages: tuple[VolumeMessage, ...] = ()


class VolumeActivities(ActivityContract):
    """Volumes that have failed. Served on `cluster.<name>`."""

    @activity.defn(name="remediation.find-volumes")
    @abstractmethod
    async def find_volumes(self, request: FailedVolumesRequest) -> FailedVolumes:
        """Read the node, its attachments and its pods live; nothing is written.

        Errors: InvalidConfig (no such template, or one that can't be read), TargetChanged, NotFound.
        """
