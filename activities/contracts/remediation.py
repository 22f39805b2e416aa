"""A machine or node that is remediated: pinned, asked for, handed to another controller, followed, remembered.

Whatever writes looks live and writes in one activity, with preconditions, and names what it is about by uid; repeated it finds
its own work done. The deletion of a Machine is asked for by `preservation.give-up`, which alone may end one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio import activity

from activities.contracts.target import ActResult, LookRequest, LookResult, Target
from policy.episode.messages import Need, Observation, Pinned, RemediationInput
from policy.remediation.ladder import EscalationStep
from policy.remediation.volumes import Failure, VolumeMessage
from policy.values.object_refs import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationPin:
    """The target as it stands at the start, and the ladder where the input named none.

    pinned: of a Machine without a Node the uid is "", and `node` the victim's name (`machine/<namespace>/<name>`). machine: None
    for a Node that belongs to none. owner: kind and name of what controls the Machine, "" for nobody. adopted_incident: of the
    mark of an earlier episode, or of another run of this one; adopted_paths: those that it says are cut. healthy_delay: how long
    the node must be well before what was set going for it is taken back; negative: until a person has confirmed it.
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
    observation: Observation | None = None
    healthy_delay: timedelta = timedelta(0)
    remembers: tuple[str, str] = ("", "")
    """What the Machine and the Node remember of earlier remediations, "" for nothing."""
    refused: str = ""
    """Why no step of the ladder can be carried out, "" where one can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberRequest:
    """Put what has been done about it on the target itself: on its Machine, and on its Node.

    on_node: where the Node is to remember another thing than the Machine. "": nothing. instead_of: only where that stands now,
    "" for whatever does.
    """

    target: Target
    memory: str
    on_node: str | None = None
    instead_of: str = ""
    machine: ObjectRef | None = None
    machine_uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeActing:
    """What comes first in an activity that has others begin something: the last look (S20), and the note of it on the target.

    Where the look does not say go nothing is noted, and the act is not begun; its result tells what was seen. remember: None
    where nothing is noted.
    """

    look: LookRequest
    remember: RememberRequest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRequest:
    """An act on the Machine of the target. `not_after`: not begun after that moment, it is not done at all (S20). before: None
    where nothing begins: something is taken back."""

    target: Target
    machine: ObjectRef
    machine_uid: str
    not_after: datetime
    before: BeforeActing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowRequest:
    """Look what has become of the Machine, and of its successor.

    since: when its deletion was asked for, None before that: no Machine that is older can be its successor. memory: what the
    successor is to remember (`policy/remediation/memory.py`), "" for nothing. check: the health check that judges the successor.
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
    """The Machine that stands in for one that was given up. failed: why it will not work either, "" while it may."""

    machine: str
    uid: str
    node: str = ""
    ready: bool = False
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedMachine:
    """The Machine as it is now. `gone`: there is none of that uid. deleting: its deletion has been asked for, by whomever.

    waits: what holds its deletion up, in words. owner_status, owner_reason, owner_message: its condition OwnerRemediated.
    replacement: its successor, None while there is none. scaled_down: why its owner wants no successor, "" where it does.
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


class RemediationActivities(ABC):
    """Served on `cluster.<name>`."""

    @activity.defn(name="remediation.pin-target")
    @abstractmethod
    async def pin(self, request: RemediationInput) -> RemediationPin:
        """Read Node, Machine and health check live. Errors: InvalidConfig, TargetChanged, NotFound."""

    @activity.defn(name="remediation.follow-machine")
    @abstractmethod
    async def follow(self, request: FollowRequest) -> FollowedMachine:
        """Look live, and put the memory on the successor where there is one and it has none yet. Idempotent."""

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
        """Undo `request_owner` and `annotate_external` where they still stand: nobody wants it any more."""

    @activity.defn(name="remediation.remember")
    @abstractmethod
    async def remember(self, request: RememberRequest) -> ActResult:
        """Write the memory; a gone object remembers nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalRequest:
    """A remediation object of another controller, made from `template` for the target of `check`.

    check_uid: "" where it is not known; it is read then. machine: of the target, None where it has none; machine_uid: to be given
    with it. several: other steps of the ladder make objects of the same kind, so that this one gets a name of its own. name,
    uid: of an object that there is already, "" before. well_since: since when its node has been well, None
    while it is not. before, not_after: of a `create`, which is not begun without them. adopted: an earlier episode has left
    it behind: it is not deleted while its check is a paused one of Machines, or its Cluster is paused.
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

    incident: of the episode that made it, "" where another controller did. deleting: its deletion has been asked for, and
    somebody's finalizer holds it. timed_out: its controller was told that its time is over, by whomever. processing, succeeded,
    node_deletion: its conditions Processing, Succeeded and PermanentNodeDeletionExpected, "" where it does not say. phase: that
    its status names (Metal3). well_since: since when its node has been well, by its annotation. message: of its controller.
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


class ExternalActivities(ABC):
    """Remediation objects of other controllers, as medik8s, OpenShift and Cluster API have them. Served on `cluster.<name>`."""

    @activity.defn(name="remediation.create-object")
    @abstractmethod
    async def create(self, request: ExternalRequest) -> External:
        """Create it once from its template; one that there is and that is ours is found, however old it is.

        Errors: InvalidConfig (no such template or kind, or a template that makes nothing), Vetoed (an object that is not ours is
        in the way, or somebody says no), TargetChanged, NotLicensed, Expired, OwnNode; Ambiguous: look again.
        """

    @activity.defn(name="remediation.read-object")
    @abstractmethod
    async def read(self, request: ExternalRequest) -> External:
        """Look at it live: by its uid where the request has one, else by name and origin. One that is two days old is flagged,
        once, with the annotation that the operators' alerts select: whatever it waits for, people should look."""

    @activity.defn(name="remediation.time-out-object")
    @abstractmethod
    async def time_out(self, request: ExternalRequest) -> External:
        """Tell its controller that its time is over, unless it says that it has succeeded."""

    @activity.defn(name="remediation.note-well")
    @abstractmethod
    async def note_well(self, request: ExternalRequest) -> External:
        """Note on it since when its node has been well, or take the note away: it no longer is."""

    @activity.defn(name="remediation.delete-object")
    @abstractmethod
    async def delete(self, request: ExternalRequest) -> External:
        """Ask for its deletion; a gone one is deleted. One that a finalizer holds is still present, and deleting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedVolumesRequest:
    """Which volumes of the target have failed: by what a VolumeDetachmentTemplate names, None: by the conditions for which the
    need's own check calls the node unhealthy."""

    target: Target
    need: Need
    template: ObjectRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedVolumes:
    """What was found, and how long the pods that go because of it get for that. said: the words that it was found by."""

    failure: Failure
    eviction_timeout: timedelta
    said: tuple[VolumeMessage, ...] = ()


class VolumeActivities(ABC):
    """Volumes that have failed. Served on `cluster.<name>`."""

    @activity.defn(name="remediation.find-volumes")
    @abstractmethod
    async def find_volumes(self, request: FailedVolumesRequest) -> FailedVolumes:
        """Read what is said of the node, its attachments and its pods live; nothing is written.

        Errors: InvalidConfig (no such template, or one that can't be read), TargetChanged, NotFound.
        """
