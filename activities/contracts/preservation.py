"""A machine that is kept: what holds for it now, written to its Machine and Node; giving it up; evidence of its failure.

Whatever writes looks live and writes in one activity, with preconditions, and only what differs: it may be repeated freely.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio import activity

from activities.contracts.episodes import Opened
from activities.contracts.remediation import BeforeActing
from activities.contracts.target import LookResult
from policy.checks.targets import MACHINE
from policy.preservation.kept_machine import Isolation
from policy.preservation.preservation_index import PreservationNeed
from policy.values.object_refs import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A word that is not on the objects yet, and is to be written there.

    keep: begin to preserve, as if somebody had annotated it. automatic: because the pool's cap allows it. surplus: the pool's cap
    gives it up, if nothing else keeps it. until: a new expiry, whatever it was. duration: how far the first expiry is away, None
    for the pool's time-out. isolate: cut it off once it has failed. release: why a person releases it.
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

    node_uid, machine_uid: as pinned, "" before the first look. drained: how the drain that was due has gone, None before it.
    unhealthy: what a covering health check says of it, seen anew before it is believed, "" while none calls it unhealthy.
    isolation: how far that has come, NONE where nothing of it has been begun here.
    """

    cluster: str
    node: str
    machine: ObjectRef | None = None
    node_uid: str = ""
    machine_uid: str = ""
    owner: str = ""
    """What controlled the Machine when it was last looked at, for one that is gone meanwhile."""
    wish: Wish = NO_WISH
    drained: bool | None = None
    unhealthy: str = ""
    isolation: Isolation = Isolation.NONE

    @property
    def looked_at(self) -> str:
        """The name that its episode has it by."""
        return self.node or (f"{MACHINE}{self.machine.namespace}/{self.machine.name}" if self.machine is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What holds once that is written, and what is due.

    gone: why there is nothing (left) to preserve, "" while there is: the machine was deleted, is being deleted, or is another
    one. phase: in the proposal's words, `Failed:Preserved`. expiry: None where it is not preserved. drain: whether its pods are
    to be evicted now. isolate: it has failed and is to be cut off while it is kept. ended: a preservation has ended with this
    look. terminate: the machine failed and nobody keeps it any longer. changed: what was written, for the record. at: the moment
    it was judged at. ready: of its Node.
    """

    at: datetime
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
    """What has beaten it where others delete the machine (`policy/preservation/overrides.py`), "" else."""
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
    """The incident whose mark the Node carries, "" for none."""

    @property
    def well(self) -> bool:
        """Whether the machine is there and has not failed."""
        return not self.gone and self.phase.partition(":")[0] not in {"Failed", "Terminating"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpRequest:
    """Ask for the deletion of a Machine that has failed and that nobody keeps (S27).

    victim: by which name the scanner knows it. incident: whose claim on the Node it is, and whose permit. unhealthy: as of a
    HoldRequest. withdraw: it is not to be asked for any more, and the claim goes. before: of a machine that was never kept; a
    health check or a person wants it replaced, which this look licenses, of a member of the control plane, too. automatic: a
    program wants it, who leaves it to whoever takes it away already.
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

    @property
    def by_remediation(self) -> bool:
        """Whether a remediation asks, which brings the look that licenses it. A preservation that hands over brings none."""
        return self.before is not None

    @property
    def looked_at(self) -> str:
        """By its name, whose Machine it must be."""
        return self.before.look.target.pinned.node if self.before is not None else self.victim or self.node


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpResult:
    """kept: why it was not asked for after all, "" where it was (now, or before): somebody preserves the machine, or it is well.

    gone: the Machine is no longer there. well: its Node says that it is healthy. look: the one of `before`.
    """

    kept: str = ""
    gone: bool = False
    well: bool = False
    detail: str = ""
    look: LookResult | None = None


class PreservationActivities(ABC):
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
    """Begin these preservations, or let those that are open look again. holder: how the cluster Lease names us."""

    cluster: str
    holder: str
    needs: tuple[PreservationNeed, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreserveOutcome:
    """One machine's: started, joined (one is open, and was told), or refused, with whoever holds the node: "" where nobody does,
    and the machine is going anyway."""

    victim: str
    opened: Opened
    holder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreserveResult:
    """In the order of the request."""

    outcomes: tuple[PreserveOutcome, ...]


class PreservationStarts(ABC):
    """Served on `nodewarden`; holds the Temporal client."""

    @activity.defn(name="episodes.preserve")
    @abstractmethod
    async def preserve(self, request: PreserveRequest) -> PreserveResult:
        """Start or tell the preservations. At-least-once: to be told again changes nothing."""
