"""The data of an episode: why it exists, what it holds, what it has proven, how it ended, and the ids of its workflow.

All of it travels in workflow inputs, signals and results, so a class only ever grows by fields with defaults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar

from policy.checks.verdict import Health, Verdict
from policy.episode.node_action import (
    AcceptedCommand,
    ActionName,
    CommandAuthor,
    NodeActionSpec,
    SealedCommand,
    Verb,
    Verified,
)
from policy.fence.kdump import KernelDead
from policy.fence.power import PowerState, VolumeState
from policy.remediation.ladder import EscalationStep
from policy.values.object_refs import ObjectRef


class NeedKind(StrEnum):
    """What asks for the episode, and so when that ends. check: gone when the verdict is healthy. person: gone on abort. clean-up:
    the node is healthy and only carries the marks of an episode that is no longer open. foreign-object: an object of another
    system asks, as `policy/episode/fencing_requests.py` reads it; gone when that object is deleted or its operator has given it
    up. preservation: a failed machine that is kept is to be cut off; gone when its Node no longer says that it is kept as
    failed."""

    CHECK = "check"
    PERSON = "person"
    CLEAN_UP = "clean-up"
    FOREIGN_OBJECT = "foreign-object"
    PRESERVATION = "preservation"

    @property
    def automatic(self) -> bool:
        """Whether a program has decided, and not a person: rules that keep programs from a node stop this need."""
        return self in {NeedKind.CHECK, NeedKind.FOREIGN_OBJECT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Why an episode exists. since: when the node became unhealthy; None if not known. cause: what is wrong with the node, as one
    stable word (`ReadyUnknown`); "" if a person asks. check: the health check or object that asks; object_uid: its uid, because
    another object of the same name is another need. delegate: the controller that asked us to act and may therefore hold the
    node's lease. command: the person's request, if Kubernetes attests it."""

    kind: NeedKind = NeedKind.PERSON
    reason: str = ""
    check: ObjectRef | None = None
    requester: str = ""
    since: datetime | None = None
    cause: str = ""
    object_uid: str = ""
    delegate: str = ""
    command: SealedCommand | None = None

    @property
    def check_key(self) -> str:
        """Of the health check that asks, "" where none does."""
        return self.check.key if self.kind is NeedKind.CHECK and self.check is not None else ""


def need_gone(need: Need, verdict: Verdict | None) -> bool:
    """Whether the reason for an episode is gone. verdict: of the need's check, None if the check no longer covers the node.

    A verdict of soon or skipped keeps the need: the conditions still offend, only their time starts again or a person objects.
    """
    if need.kind is not NeedKind.CHECK:
        return False
    return verdict is None or verdict.health is Health.HEALTHY


class Kind(StrEnum):
    """The kinds of episode; the value is the workflow type."""

    FENCING = "Fencing"
    REMEDIATION = "Remediation"
    PRESERVATION = "Preservation"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeInput(ABC):
    """What every kind of episode is begun with. holder: how the cluster Lease names us; "" until the scanner's permit says so."""

    cluster: str = ""  # both have defaults so that an input without them fails the workflow clearly, instead of wedging it
    node: str = ""
    reason: str = ""
    requester: str = ""
    incident: str = ""
    holder: str = ""
    action: ActionName | None = None
    """The object by which Kubernetes attests the requester; None: the name is not verified."""

    attested_fields: ClassVar[tuple[str, ...]] = ()
    """The fields of its kind that `node_action` covers."""

    @property
    @abstractmethod
    def by_a_person(self) -> bool:
        """Whether a person wants it: the need of a program can be checked live, the need of a person can't."""

    @abstractmethod
    def node_action(self) -> NodeActionSpec:
        """The NodeAction that attests this request."""

    def unattested_field(self) -> str:
        """The field by which it asks for more than its NodeAction says, "" if none does: a person who attested "remediate node-7"
        did not attest the machine that another caller names beside it (S42)."""
        wish = Need(kind=NeedKind.PERSON, reason=self.reason, requester=self.requester)
        for each in fields(self):
            found = getattr(self, each.name)
            attested = each.name in _OF_EVERY_EPISODE or each.name in self.attested_fields
            if not attested and found != each.default and not (each.name == "need" and found == wish):
                return each.name
        return ""


_OF_EVERY_EPISODE = tuple(each.name for each in fields(EpisodeInput))


@dataclass(frozen=True, slots=True, kw_only=True)
class FencingInput(EpisodeInput):
    """Input of the `Fencing` workflow; only `cluster` and `node` are needed: `{"cluster": "prod", "node": "node-7"}`.

    permit_granted: the scanner reserved the permit before it started this episode. template: which FencingTemplate to carry out;
    None: the one that a health check of the node names, else the only one in the cluster. override: see `NodeActionSpec`.
    seen_off: the requester vouches that the machine is off (S8): its pods are freed because of that, and nothing is switched off.
    """

    need: Need | None = None
    template: ObjectRef | None = None
    override: str = ""
    seen_off: bool = False
    permit_granted: bool = False
    node_uid: str = ""

    attested_fields = ("template", "override", "seen_off")

    @property
    def by_a_person(self) -> bool:
        """Also if no need is given, and always if the requester vouches for off (S8)."""
        return self.seen_off or self.need is None or self.need.kind is NeedKind.PERSON

    def node_action(self) -> NodeActionSpec:
        """With the template, if one is named."""
        template = f"{self.template.namespace}/{self.template.name}" if self.template is not None else ""
        action = Verb.ACK_OFF if self.seen_off else Verb.FENCE
        return NodeActionSpec(action=action, node=self.node, reason=self.reason, template=template, override=self.override)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservationInput(EpisodeInput):
    """Input of the `Preservation` workflow; only `cluster` and `node` are needed: `{"cluster": "prod", "node": "node-7"}`.

    machine: the Machine of the node; None: a Node alone. keep: preserve it from now on, as the annotation does; False if the
    annotation is there already. automatic: the pool's cap allows it. hold: for how long, None for the pool's time-out.
    isolate: cut it off once it has failed. unhealthy: what a health check says about it, "" while none finds it unhealthy. held:
    what a person had said to the last episode, which did not end by itself: this one begins held, "" where it does not.
    held_until: None: until a person ends that.
    """

    machine: ObjectRef | None = None
    keep: bool = True
    automatic: bool = False
    hold: timedelta | None = None
    isolate: bool = False
    unhealthy: str = ""
    held: str = ""
    held_until: datetime | None = None

    attested_fields = ("hold", "isolate")

    @property
    def by_a_person(self) -> bool:
        """Not if its objects ask for it already, or a pool has room; but neither sets `hold` or `isolate`."""
        return self.keep or self.isolate or self.hold is not None

    def node_action(self) -> NodeActionSpec:
        """With its duration, and whether it is cut off."""
        return NodeActionSpec(action=Verb.PRESERVE, node=self.node, reason=self.reason, hold=self.hold, isolate=self.isolate)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservationUpdate:
    """The scanner notifies a preservation of a change. Only the latest message counts. unhealthy: what a health check says about
    the machine, "" while none finds it unhealthy. released: why the pool's cap gives it up."""

    unhealthy: str = ""
    released: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationInput(EpisodeInput):
    """Input of the `Remediation` workflow; only `cluster` and `node` are needed: `{"cluster": "prod", "node": "node-7"}`.

    ladder: the steps, in their order, where no health check asks: then they are those of the check. None: those of
    `strategies` (`["reboot=10m", "delete-machine"]`), else those of a check that covers the node, else the deletion of its
    Machine. skip_impossible: leave out named steps that are impossible; False: begin none if one is. failed: steps that have
    failed on the target, or on those it replaces. retry: the number of this remediation in its row. memory: the target's
    memory as the scan read it, None without a scan. adopts: the name of an object that an earlier episode has left; this
    episode follows it, takes it back, and does nothing else. exhausted: why a person is asked before anything is done.
    permit_granted: the scanner reserved the permit before it started us. override: see `NodeActionSpec`.
    """

    machine: ObjectRef | None = None
    machine_uid: str = ""
    node_uid: str = ""
    need: Need | None = None
    ladder: tuple[EscalationStep, ...] | None = None
    strategies: tuple[str, ...] = ()
    skip_impossible: bool = False
    override: str = ""
    failed: tuple[str, ...] = ()
    retry: int = 0
    exhausted: str = ""
    memory: str | None = None
    adopts: str = ""
    permit_granted: bool = False

    attested_fields = ("strategies", "skip_impossible", "override")

    @property
    def by_a_person(self) -> bool:
        """Also if no need is given."""
        return self.need is None or self.need.kind is NeedKind.PERSON

    def node_action(self) -> NodeActionSpec:
        """With the steps, if some are named."""
        return NodeActionSpec(
            action=Verb.REMEDIATE,
            node=self.node,
            reason=self.reason,
            strategies=self.strategies,
            skip_impossible=self.skip_impossible,
            override=self.override,
        )


class Phase(StrEnum):
    """The states of the node-fencing automaton, and our own for waiting on people and permits."""

    NEW = "new"
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FINAL = "final"
    ERROR = "error"
    NEEDS_HUMAN = "needs-human"
    RUNNING_PRESERVED = "Running:Preserved"
    FAILED_PRESERVED = "Failed:Preserved"
    """As the preservation proposal writes these two."""
    TERMINATING = "Terminating"


class Outcome(StrEnum):
    """How an episode ended (S35). needs-human is not an outcome: the episode is still open, and parked."""

    RECOVERED = "recovered"
    REPLACED = "replaced"
    FENCED_OFF = "fenced-off"
    RELEASED = "released"
    ABORTED = "aborted"
    REFUSED = "refused"
    """It did not begin, because it got no permit. Nothing was touched."""


REPAIRED = frozenset({Outcome.RECOVERED, Outcome.REPLACED})
"""Of what was to be repaired: one that was given up because a person said "hands off" is not."""
GOOD_ENDS = REPAIRED | {Outcome.RELEASED}
"""The node works again, or works for someone else; everything else left something to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """The target as it was when the episode began; every destructive act compares all of it (S9)."""

    node: str
    uid: str
    provider_id: str = ""
    system_uuid: str = ""
    boot_id: str = ""
    zone: str = ""
    not_ready_since: datetime | None = None
    endpoints: tuple[str, ...] = ()
    """Every device that this episode may touch, of power and of paths."""
    levels: tuple[tuple[str, ...], ...] = ()
    """The endpoints by level: OFF from all endpoints of one level is the proof (S4); empty if no power device is configured."""
    machine_uids: tuple[str, ...] = ()
    """Of the Machines that belong to the Node."""
    addresses: tuple[str, ...] = ()
    """Its IP addresses, from which kdump messages may come; they identify no machine and are never compared."""
    instance_id: str = ""
    """Its cloud's own number for it, if the Node has one (GKE). Compared with what the cloud says (S39)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One read of one device: its answer and the moment of the answer (worker's clock). serves: the machine that it says it
    serves, in the form of `policy/fence/power.py`; empty if it does not say. seal: shows a cluster worker that a power worker of
    ours has read it, and when by that worker's clock (S1, S42)."""

    endpoint: str
    state: PowerState
    at: datetime
    detail: str = ""
    serves: tuple[str, ...] = ()
    seal: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUpReading:
    """One read of a cloud machine that was given up: whether its cloud says so at that moment."""

    endpoint: str
    given_up: bool
    at: datetime
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement(CommandAuthor):
    """A person vouches that the machine is off: the only substitute for reading it (S8). Who, why and when are required. despite:
    the reading that the person overrides, as the end of a sentence; "" for none."""

    why: str
    at: datetime
    despite: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffProof:
    """`off proven`: OFF read from every device after the off command had ended (S2, S4), or a person's acknowledgement (S8)."""

    commanded_at: datetime | None
    readings: tuple[Reading, ...] = ()
    acknowledgement: Acknowledgement | None = None

    @property
    def basis(self) -> str:
        """Why the machine counts as off, to follow "off" in a sentence: a reading of its devices, or a person's
        acknowledgement."""
        by_person = self.acknowledgement
        return "is proven" if by_person is None else f"is what {by_person.by} says{by_person.despite}"

    @property
    def former_basis(self) -> str:
        """The same for a machine that is on again."""
        return "was proven" if self.acknowledgement is None else f"was acknowledged by {self.acknowledgement.by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeReading:
    """One read of one cloud volume: where it is at that moment. root: the machine boots from it, or takes it along when it ends.
    seal: as in `Reading`."""

    volume: str
    state: VolumeState
    at: datetime
    root: bool = False
    detail: str = ""
    seal: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathProof:
    """`path cut proven`: a switch port read as off, or a volume read as available, after the command to cut it had ended. It
    licenses consequences for pods that use only what is cut."""

    commanded_at: datetime
    readings: tuple[Reading, ...] = ()
    volumes: tuple[VolumeReading, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartProof:
    """`restart proven`: a boot id other than the pinned one, first seen after our power-on. It never licenses consequences."""

    boot_id: str
    previous_boot_id: str
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEntry:
    """One line of the decision record: what was seen, decided or done, when, and how it ended.

    number: counts the lines of an episode from 1, those that have gone too. who: the person who acted, "" for a program. rule:
    by which rule of the scanner something was refused. version: the resourceVersion of the Node that was looked at or written.
    numbers: what can be counted, by name.
    """

    at: datetime
    step: str
    act: str
    outcome: str
    detail: str = ""
    number: int = 0
    who: str = ""
    rule: str = ""
    version: str = ""
    numbers: dict[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeStatus:
    """Answer of the `status` query: what the CLI and the live table show. queued: why it waits for a permit, else "".

    requester: who asked for it, and how a person was verified; "" if that is not known. preserved_until: when the hold ends,
    None if none is in force. rung: the step of a remediation's ladder, as `2 of 3: reboot`; rung_until: when that step has had
    its time. machine: namespace and name of the Machine that it is about. control_plane: None before the node has been looked
    at. advice: what a person can do and what follows from it, "" while it waits for none. held: the holds that keep it from its
    next destructive act, each with its owner, end and reason. aborted: by which person, and why; "" where none has. ways: the
    commands that it accepts now. try_number of tries: of the current step, tries 0 while there is none; restarts of
    most_restarts: of all its steps, since a person last let it go on. readings: of power devices, the latest since the first
    off. override: who overrides a circuit breaker for it, and why; "" for none. by_person: whether a person wanted that for which
    it last asked for its permit. asks_anew: it was let act, of which the scanner knows no more, and waits to be let go on.
    """

    incident: str
    cluster: str
    node: str
    kind: Kind
    phase: Phase
    step: str
    doing: str
    reason: str
    started: datetime
    zone: str = ""
    try_number: int = 0
    restarts: int = 0
    problem: str = ""
    off_proof: OffProof | None = None
    restart_proof: RestartProof | None = None
    path_proofs: tuple[PathProof, ...] = ()
    permit: bool = False
    queued: str = ""
    waiting_until: datetime | None = None
    control_plane: bool | None = None
    node_uid: str = ""
    provider_id: str = ""
    kernel_dead: KernelDead | None = None
    requester: str = ""
    requester_verified: Verified = Verified.NO
    preserved_until: datetime | None = None
    rung: str = ""
    rung_until: datetime | None = None
    machine: str = ""
    advice: str = ""
    held: str = ""
    held_by: tuple[str, ...] = ()
    """The owner of each hold (`CommandAuthor.owner`), as `resume --of` names it."""
    held_until: datetime | None = None
    """When the last of them ends; None where it is not held, or has no end."""
    question: int = 0
    """The number of the latest question to people; an answer has to name it (S48)."""
    ways: tuple[AcceptedCommand, ...] = ()
    tries: int = 0
    most_restarts: int = 0
    readings: tuple[Reading, ...] = ()
    override: str = ""
    by_person: bool = False
    aborted: str = ""
    asks_anew: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """How an episode ended, and on what proof. left_off: the machine was left powered off, on purpose. missing: there is no such
    target, and nothing was begun. check: the key of the health check that asked for it, cause: what was wrong, as its need has
    it; "" where no check asked, and of an episode before these were recorded."""

    outcome: Outcome
    incident: str
    cluster: str
    node: str
    message: str
    started: datetime
    ended: datetime
    off_proof: OffProof | None = None
    restart_proof: RestartProof | None = None
    left_off: bool = False
    freed_pods: int = 0
    record: tuple[RecordEntry, ...] = ()
    kernel_dead: KernelDead | None = None
    """The latest proof on which pods were freed before off was proven; None if none were."""
    missing: bool = False
    check: str = ""
    cause: str = ""


WORD_MEMO = "word"
"""Of an episode: the `StandingWord` in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingWord:
    """What a person has said to an episode that keeps its node from acts, as its status has it; "" where nothing does."""

    incident: str = ""
    aborted: str = ""
    held: str = ""
    held_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenNode:
    """The node of an episode, as a scan or a live look has seen it. present False: the Node object is gone.

    incident: of the mark that it carries ("" for none), so that a mark without an open episode is noticed. unhealthy: a check
    says so now, whether or not we may act on it. soon: no check does, but a timeout runs; that does not end a running episode (a
    node that goes from Unknown to False starts its time again). Identity fields are "" if unknown. groups: as a candidate's;
    empty for a Node that is gone. confirmed_well: a person has confirmed by annotation that it is well.

    Only a scan fills these in: asked_by: uids of the objects of other systems that ask for the node, or have their answer and
    still exist. preserved: the Node says that it is kept now. others: a summary of what its Machines and the remediation objects
    about it say, so that a change of them is a change of this. checks: the keys of the health checks that count it, or its
    Machine, among their targets.
    """

    node: str
    present: bool = True
    uid: str = ""
    ready: bool = False
    ready_since: datetime | None = None
    boot_id: str = ""
    provider_id: str = ""
    system_uuid: str = ""
    unhealthy: bool = False
    incident: str = ""
    mark_problem: str = ""
    soon: bool = False
    groups: tuple[str, ...] = ()
    asked_by: tuple[str, ...] = ()
    preserved: bool = False
    confirmed_well: bool = False
    others: str = ""
    checks: tuple[str, ...] = ()


# Workflow ids: by these names the server keeps one episode per node and one scanner per cluster (S13, S38). The check of fence
# devices is one per cluster, too, because it remembers when each device last answered.


def episode_id(cluster: str, node: str) -> str:
    """The one id of any kind of episode of that node; while it is taken, a second one is impossible."""
    return f"episode/{cluster}/{node}"


def scanner_id(cluster: str) -> str:
    """The one scanner of a cluster."""
    return f"scanner/{cluster}"


def device_check_id(cluster: str) -> str:
    """The one check of a cluster's fence devices."""
    return f"device-check/{cluster}"
