"""The nouns of an episode: why it exists, whom it holds, what it has proven, how it ended.

All of them travel in workflow inputs, signals and results, so they only ever grow by fields with defaults.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar

from policy.episode.needs import Need, NeedKind
from policy.episode.operator_commands import ActionName, Said, Spoken, Verb, Verified, Way
from policy.fence.kdump import KernelDead
from policy.fence.power import PowerState, VolumeState
from policy.remediation.ladder import EscalationStep as Rung
from policy.values.object_refs import ObjectRef


class Kind(StrEnum):
    """The kinds of episode; the value is the workflow type."""

    FENCING = "Fencing"
    REMEDIATION = "Remediation"
    PRESERVATION = "Preservation"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeInput:
    """What every kind of episode is begun with. holder: how the cluster Lease names us; "" until the scanner's permit says so."""

    cluster: str = ""  # both have defaults so that an input without them fails the workflow clearly, instead of wedging it
    node: str = ""
    reason: str = ""
    requester: str = ""
    incident: str = ""
    holder: str = ""
    action: ActionName | None = None
    """The object by which Kubernetes attests the requester; None: he only says so himself."""

    in_its_word: ClassVar[tuple[str, ...]] = ()
    """The fields of its kind that `spoken` says."""

    @property
    def by_a_person(self) -> bool:
        """Whether it says that a person wants it: a need that a program has is looked at live, and a person's can't be."""
        raise NotImplementedError

    def spoken(self) -> Spoken:
        """What a NodeAction has to say, to be the requester's word."""
        raise NotImplementedError

    def beyond_its_word(self) -> str:
        """The field by which it asks for something that its word does not say, "" where none does: whoever has attested
        "remediate node-7" has said nothing of a machine that somebody else names beside it (S42)."""
        wish = Need(kind=NeedKind.PERSON, reason=self.reason, requester=self.requester)
        for each in fields(self):
            found = getattr(self, each.name)
            said = each.name in _OF_EVERY_EPISODE or each.name in self.in_its_word
            if not said and found != each.default and not (each.name == "need" and found == wish):
                return each.name
        return ""


_OF_EVERY_EPISODE = tuple(each.name for each in fields(EpisodeInput))


@dataclass(frozen=True, slots=True, kw_only=True)
class FencingInput(EpisodeInput):
    """Input of the `Fencing` workflow; only `cluster` and `node` are needed: `{"cluster": "prod", "node": "node-7"}`.

    permit_granted: the scanner reserved the permit before it started us. template: which FencingTemplate to carry out;
    None: the one that a health check covering the node names, else the only one in the cluster. override: see `Spoken`.
    seen_off: the requester vouches that the machine is off (S8): its pods are freed on that word, and nothing is switched off.
    """

    need: Need | None = None
    template: ObjectRef | None = None
    override: str = ""
    seen_off: bool = False
    permit_granted: bool = False
    node_uid: str = ""

    in_its_word = ("template", "override", "seen_off")

    @property
    def by_a_person(self) -> bool:
        """Also where no need is given, and always where it vouches for off (S8)."""
        return self.seen_off or self.need is None or self.need.kind is NeedKind.PERSON

    def spoken(self) -> Spoken:
        """With the template, where one is named."""
        template = f"{self.template.namespace}/{self.template.name}" if self.template is not None else ""
        action = Verb.ACK_OFF if self.seen_off else Verb.FENCE
        return Spoken(action=action, node=self.node, reason=self.reason, template=template, override=self.override)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservationInput(EpisodeInput):
    """Input of the `Preservation` workflow; only `cluster` and `node` are needed: `{"cluster": "prod", "node": "node-7"}`.

    machine: the Machine of the node; None: a Node alone. keep: preserve it from now on, as the annotation does; False if the
    annotation is there already. automatic: the pool's cap allows it. hold: for how long, None for the pool's time-out.
    isolate: cut it off once it has failed. unhealthy: what a health check says about it, "" while none calls it unhealthy.
    """

    machine: ObjectRef | None = None
    keep: bool = True
    automatic: bool = False
    hold: timedelta | None = None
    isolate: bool = False
    unhealthy: str = ""

    in_its_word = ("hold", "isolate")

    @property
    def by_a_person(self) -> bool:
        """Not where the objects say so already, or a pool has room."""
        return self.keep and not self.automatic

    def spoken(self) -> Spoken:
        """With how long, and how."""
        return Spoken(action=Verb.PRESERVE, node=self.node, reason=self.reason, hold=self.hold, isolate=self.isolate)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservationNews:
    """The scanner tells a preservation that something changed. The latest message is all that counts. unhealthy: what a health
    check says about the machine, "" while none calls it unhealthy. released: why the pool's cap gives it up."""

    unhealthy: str = ""
    released: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationInput(EpisodeInput):
    """Input of the `Remediation` workflow; only `cluster` and `node` are needed: `{"cluster": "prod", "node": "node-7"}`.

    ladder: the steps, in their order; None: those of `strategies` (`["reboot=10m", "delete-machine"]`), else those of a health
    check that covers the node, else the deletion of its Machine. skip_impossible: leave out named steps that are impossible;
    False: begin none if one is. failed: steps that have failed on the target, or on those it replaces. retry: the number of this
    remediation in its row. memory: the target's memory as the scan read it, None without a scan. adopts: the name of an object
    that an earlier episode has left; this episode follows it, takes it back, and does nothing else. exhausted: why a person is
    asked before anything is done. permit_granted: the scanner reserved the permit before it started us.
    override: see `Spoken`.
    """

    machine: ObjectRef | None = None
    machine_uid: str = ""
    node_uid: str = ""
    need: Need | None = None
    ladder: tuple[Rung, ...] | None = None
    strategies: tuple[str, ...] = ()
    skip_impossible: bool = False
    override: str = ""
    failed: tuple[str, ...] = ()
    retry: int = 0
    exhausted: str = ""
    memory: str | None = None
    adopts: str = ""
    permit_granted: bool = False

    in_its_word = ("strategies", "skip_impossible", "override")

    @property
    def by_a_person(self) -> bool:
        """Also where no need is given."""
        return self.need is None or self.need.kind is NeedKind.PERSON

    def spoken(self) -> Spoken:
        """With the steps, where some are named."""
        return Spoken(
            action=Verb.REMEDIATE,
            node=self.node,
            reason=self.reason,
            strategies=self.strategies,
            skip_impossible=self.skip_impossible,
            override=self.override,
        )


class Phase(StrEnum):
    """The states of the node-fencing automaton, and ours for waiting on people and permits."""

    NEW = "new"
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FINAL = "final"
    ERROR = "error"
    NEEDS_HUMAN = "needs-human"
    RUNNING_PRESERVED = "Running:Preserved"
    FAILED_PRESERVED = "Failed:Preserved"
    """As the preservation proposal writes them."""
    TERMINATING = "Terminating"


class Outcome(StrEnum):
    """How an episode ended (S35). needs-human is not among them: that is a parked, open state."""

    RECOVERED = "recovered"
    REPLACED = "replaced"
    FENCED_OFF = "fenced-off"
    RELEASED = "released"
    ABORTED = "aborted"
    REFUSED = "refused"
    """Never began: no permit was to be had. Nothing was touched."""


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
    """The endpoints whose OFF, all of one level, is the proof (S4); none where nothing of power is configured."""
    machine_uids: tuple[str, ...] = ()
    """Of the Machines that belong to the Node; none where it has none."""
    addresses: tuple[str, ...] = ()
    """Its IP addresses, by which it may be heard of; they identify nobody and are never compared."""
    instance_id: str = ""
    """Its cloud's own number for it, where the Node says one (GKE). Compared with what the cloud says (S39)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One read of one device: its answer and the moment of the answer (worker's clock). serves: the machine that it says it
    serves, in the form of `policy/fence/power.py`; empty if it does not say. seal: shows a cluster worker that a power
    worker of ours has read it, and when by that worker's clock (S1, S42)."""

    endpoint: str
    state: PowerState
    at: datetime
    detail: str = ""
    serves: tuple[str, ...] = ()
    seal: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUpReading:
    """One read of a cloud machine that was given up: whether that is what its cloud says, asked at that moment."""

    endpoint: str
    given_up: bool
    at: datetime
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement(Said):
    """A person's word that the machine is off: the only substitute for reading it (S8). Who, why and when are required. despite:
    the reading that the person overrides, to end a sentence with; "" for none."""

    why: str
    at: datetime
    despite: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffProof:
    """`off proven`: OFF read from every device after the off command had ended (S2, S4), or a person's word (S8)."""

    commanded_at: datetime | None
    readings: tuple[Reading, ...] = ()
    acknowledgement: Acknowledgement | None = None

    @property
    def basis(self) -> str:
        """On what it rests that the machine is off, to go after "off": a reading of its devices, or a person's word."""
        word = self.acknowledgement
        return "is proven" if word is None else f"is what {word.by} says{word.despite}"

    @property
    def former_basis(self) -> str:
        """The same of a machine that is on again."""
        return "was proven" if self.acknowledgement is None else f"was acknowledged by {self.acknowledgement.by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeReading:
    """One read of one cloud volume: where it is, asked at that moment. `root`: it is the machine's own, which boots from
    it or takes it along when it ends.

    seal: as of a Reading.
    """

    volume: str
    state: VolumeState
    at: datetime
    root: bool = False
    detail: str = ""
    seal: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathProof:
    """`path cut proven`: a switch port read as off, or a volume read as available, after the command to cut it had ended.

    Licenses consequences for pods using only what is cut.
    """

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
    """One line of the decision record: what was seen, decided or done, when, and how it ended."""

    at: datetime
    step: str
    act: str
    outcome: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeStatus:
    """Answer of the `status` query: what the CLI and the live table show. `queued`: why it waits for a permit, else "".

    requester: who asked for it, and of a person how that was
    verified; "" where nobody said. preserved_until: when the hold ends, None where none is in force. rung: of
    a remediation the step of its ladder, as `2 of 3: reboot`; rung_until: when that has had its time. machine: namespace and name
    of the Machine that it is about. control_plane: None before the node has been looked at. advice: what a person can do and what
    comes of it, "" while none is waited for. held: by whom, until when and why a hold keeps it from its next destructive act.
    ways: the words that it hears now. try_number of tries: of the step in hand, tries 0 while none is under way; restarts of
    most_restarts: of all its steps, since a person had it go on last. readings: of power devices, the latest since the first off.
    override: who overrides a circuit breaker for it, and why; "" for none.
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
    """To whom each hold belongs (`Said.owner`), as `resume --of` names it."""
    question: int = 0
    """The number of what people were last asked, which a word that answers it has to name (S48)."""
    ways: tuple[Way, ...] = ()
    tries: int = 0
    most_restarts: int = 0
    readings: tuple[Reading, ...] = ()
    override: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeResult:
    """How an episode ended, and on what proof. `left_off`: the machine was left powered off, on purpose. missing: there is no
    such target, and nothing was begun."""

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
    """The proof on which pods were freed before off was proven, the latest one; None where none were."""
    missing: bool = False


# What an episode is told of the node that it holds: as a scan or a live look has seen it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A node that an episode cares about, as it is now. `present` False: the Node object is gone.

    `incident` is that of the mark it carries ("" for none), so that a mark without an open episode is noticed.
    `unhealthy`: some check says so now, whether or not we may act on it. `soon`: none does, but a timeout runs; a running
    episode is not over by that (a node that goes from Unknown to False starts its time anew). Identity fields are "" where
    unknown. groups: as a candidate's; none for a Node that is gone. asked_by: uids of the objects of other systems that ask for
    the node, or have their answer and still stand; only a scan says so. preserved: the Node says that it is kept now; also only
    of a scan. confirmed_well: a person has confirmed by annotation that it is well. others: in brief, what its Machines and the
    remediation objects about it say, so that a change of these is one; also only of a scan. checks: the keys of the health checks
    that count it, or its Machine, among their targets; also only of a scan.
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
