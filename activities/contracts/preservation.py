"""A machine that is kept: its present state is written to its Machine and Node, and it is given up in the end.

An activity that writes looks live and writes with preconditions, and only what differs: it may be repeated freely.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio import activity

from activities.contracts import ActivityContract
from activities.contracts.episodes import Opened
from activities.contracts.remediation import BeforeActing
from activities.contracts.target import LookResult
from policy.checks.verdict import MACHINE
from policy.episode.node_action import SealedCommand
from policy.preservation.machine_snapshot import Isolation
from policy.preservation.preservation_index import PreservationNeed
from policy.values.object_refs import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A change that is to be written to the objects.

    keep: begin to preserve, as the annotation of a person would. automatic: because the pool's cap allows it. surplus: the
    pool's cap gives it up, if nothing else keeps it. until: a new expiry, which replaces any other. duration: the time to the
    first expiry, None for the pool's time-out. isolate: cut it off once it has failed. release: why a person releases it.
    """

    keep: bool = False
    automatic: bool = False
    surplus: bool = False
    until: datetime | None = None
    duration: timedelta | None = None
    isolate: bool = False
    release: str = ""


NO_WISH = Wish()


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRequest:
    """Bring Machine and Node to what holds now. node: "" for a Machine that never had one; machine: None for a Node alone.

    node_uid, machine_uid: as pinned, "" before the first look. drained: whether the drain that was due succeeded, None before
    it. unhealthy: what a covering health check says of it, which is checked anew before it counts; "" while none calls it
    unhealthy. isolation: how far it has come, NONE if this episode began none. incident: of the episode. word, moved: the
    commands by which a person releases it, and moves its end, as a cluster worker has verified them.
    """

    cluster: str
    node: str
    machine: ObjectRef | None = None
    node_uid: str = ""
    machine_uid: str = ""
    owner: str = ""
    """Kind and name of what controlled the Machine at the last look, for a Machine that is gone by now."""
    wish: Wish = NO_WISH
    drained: bool | None = None
    unhealthy: str = ""
    isolation: Isolation = Isolation.NONE
    incident: str = ""
    word: SealedCommand | None = None
    moved: SealedCommand | None = None

    @property
    def looked_at(self) -> str:
        """The name of the target in the id of its episode."""
        return self.node or (f"{MACHINE}{self.machine.namespace}/{self.machine.name}" if self.machine is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The state once that is written, and what is due.

    gone: why there is nothing (left) to preserve, "" while there is: the machine was deleted, is being deleted, or is another
    one. phase: as the proposal spells it, `Failed:Preserved`. expiry: None if it is not preserved. drain: its pods are to be
    evicted now. isolate: it has failed and is to be cut off while it is kept. ended: a preservation has ended with this look.
    terminate: the machine failed and is kept no longer. changed: what was written, for the record. at: the moment of the
    judgement. ready: of its Node.
    """

    at: datetime
    released: bool = False
    """A person has ended it, so that what becomes of the machine is no program's decision."""
    refused: str = ""
    """Why it is neither released nor ended earlier, as the wish has it; "" where that was done, or not asked for."""
    phase: str = ""
    preserved: bool = False
    value: str = ""
    expiry: datetime | None = None
    drain: bool = False
    isolate: bool = False
    ended: bool = False
    terminate: bool = False
    gone: str = ""
    override: str = ""
    """Why another program deletes the machine in spite of its preservation (`policy/preservation/keep_or_release.py`), "" if none
    does."""
    replaced: bool = False
    owner: str = ""
    """Kind and name of what controls the Machine."""
    reason: str = ""
    changed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    node_uid: str = ""
    machine: ObjectRef | None = None
    machine_uid: str = ""
    provider_id: str = ""
    zone: str = ""
    recovered: bool = False
    ready: bool = False
    left_by: str = ""
    """The incident in the mark on the Node, "" for none."""
    streams: bool | None = None
    """As in a PinResult."""
    rests: bool = False
    """What its pool wants done to it waits until its mode is raised."""

    @property
    def well(self) -> bool:
        """Whether the machine is there and has not failed."""
        return not self.gone and self.phase.partition(":")[0] not in {"Failed", "Terminating"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpRequest:
    """Ask for the deletion of a Machine that has failed and that is not kept (S27).

    victim: the scanner's name for it. incident: the one that has the claim on the Node, and the permit. unhealthy: as in a
    HoldRequest. withdraw: the deletion is no longer wanted, and the claim is removed. before: the look for a machine that was
    never kept, which a health check or a person wants replaced; it licenses the deletion, also of a member of the control
    plane. automatic: a program wants it, and leaves the machine to another controller that takes it away already. released: a
    person has ended its preservation; word: by that command, as in a HoldRequest.
    """

    cluster: str
    node: str
    machine: ObjectRef
    machine_uid: str
    holder: str
    not_after: datetime
    node_uid: str = ""
    victim: str = ""
    incident: str = ""
    unhealthy: str = ""
    withdraw: bool = False
    before: BeforeActing | None = None
    automatic: bool = False
    released: bool = False
    word: SealedCommand | None = None

    @property
    def by_remediation(self) -> bool:
        """Whether a remediation asks: it brings the look that licenses the deletion, a preservation that hands over brings
        none."""
        return self.before is not None

    @property
    def looked_at(self) -> str:
        """The name of the target to which the Machine must belong."""
        return self.before.look.target.pinned.node if self.before is not None else self.victim or self.node


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpResult:
    """kept: why the deletion was not asked for after all (the machine is preserved, or it is well), "" if it was, now or
    before.

    gone: the Machine is no longer there. well: its Node says that it is healthy. look: the one of `before`.
    """

    kept: str = ""
    gone: bool = False
    well: bool = False
    detail: str = ""
    look: LookResult | None = None


class PreservationActivities(ActivityContract):
    """Served on `cluster.<name>`."""

    @activity.defn(name="preservation.hold")
    @abstractmethod
    async def hold(self, request: HoldRequest) -> Hold:
        """Look live, decide, and write the difference. Errors: InvalidConfig, Unauthorized, Transient and the like."""

    @activity.defn(name="preservation.give-up")
    @abstractmethod
    async def give_up(self, request: GiveUpRequest) -> GiveUpResult:
        """Look live once more, and request the deletion of exactly that Machine. Idempotent.

        Errors: NotLicensed (no cluster Lease), Expired, TargetChanged, NotSupported (nothing would replace it).
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class PreserveRequest:
    """Begin these preservations, or have the open ones look again. holder: how the cluster Lease names us. decided: when; None by
    a scanner of an older version."""

    cluster: str
    holder: str
    needs: tuple[PreservationNeed, ...]
    decided: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreserveOutcome:
    """The outcome for one machine: started, joined (one is open, and was notified), or refused. holder: the episode that holds
    the node, "" if none does and the machine is being deleted anyway."""

    victim: str
    opened: Opened
    holder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreserveResult:
    """In the order of the request."""

    outcomes: tuple[PreserveOutcome, ...]


class PreservationStarts(ActivityContract):
    """Served on `nodewarden`; holds the Temporal client."""

    @activity.defn(name="episodes.preserve")
    @abstractmethod
    async def preserve(self, request: PreserveRequest) -> PreserveResult:
        """Start the preservations, or notify the open ones. At-least-once: a second notification changes nothing."""
