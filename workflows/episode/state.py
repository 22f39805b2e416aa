"""The state of an episode: one tree, which a new history of its workflow is given whole.

Data only. Whatever an episode has to know later, proofs, words of people, what was switched off or cut, stands here and nowhere
else: the parts that act on it (`workflows/episode`, `fencing`, `remediation`, `preservation`) are each given their branch and
keep nothing of their own. So nothing is copied by hand where a history ends, and nothing can be forgotten there.

It is written by one build and read by the next: fields are added with defaults, never renamed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from activities.contracts.preservation import NO_WISH, Hold, Wish
from activities.contracts.remediation import FailedVolumes, RemediationPin
from activities.contracts.target import OffNote, PinResult, PublishedEvent, Workload
from policy.episode.fencing_requests import Stage
from policy.episode.messages import (
    Acknowledgement,
    EpisodeStatus,
    FencingInput,
    Kind,
    OffProof,
    Outcome,
    PathProof,
    Phase,
    Pinned,
    PreservationInput,
    Reading,
    RecordEntry,
    RemediationInput,
    RestartProof,
    SeenNode,
)
from policy.episode.node_action import SealedCommand, Verified
from policy.fence.kdump import KernelDead
from policy.fence.plan import PowerDevice
from policy.fence.power import PowerState, Quarantine
from policy.history.offenders import FoundRepairs
from policy.objects.marks import NOTHING_ADDED, Added
from policy.preservation.machine_snapshot import Isolation
from policy.remediation.ladder import EscalationStep
from policy.values.object_refs import ObjectRef
from workflows.kit.messages import AbortRequest, HoldEpisodeRequest, PersonRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What came out, with its sentence for people. missing: there is no such target, and nothing was begun."""

    outcome: Outcome
    message: str
    missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """A wait for news in which a history was left. ends: None: not by itself."""

    ends: datetime | None
    why: str


@dataclass(slots=True, kw_only=True)
class Undertaking:
    """Something that is done until it succeeds or has had its time (`Episode.undertaking`): since when, how often it has failed,
    whether a person was asked about it, and for how long each kind of waiting has lasted, the one under way since `waits_since`.
    """

    began: datetime
    failures: int = 0
    asked: bool = False
    waited: dict[str, timedelta] = field(default_factory=dict)
    waits_for: str = ""
    waits_since: datetime | None = None
    pause: timedelta = timedelta(0)
    aborts: int | None = None
    """How often an abort had been asked for when it began, None where that is of no account."""
    stood_still: timedelta = timedelta(0)
    """How long the episode had stood still in all (`EpisodeState.stood_still`) when that was last taken off the waiting."""
    within: dict[str, Undertaking] = field(default_factory=dict)
    """What was undertaken within it."""

    def next_pause(self, first: timedelta, longest: timedelta) -> timedelta:
        """How long to wait before it is tried again: each time twice as long."""
        self.pause = min(self.pause * 2, longest) if self.pause else first
        return self.pause

    def begin_wait(self, kind: str, now: datetime) -> None:
        """Unless an earlier history has begun it."""
        self.waits_for, self.waits_since = kind, self.waits_since or now

    def end_wait(self, now: datetime) -> None:
        """It is counted; none may be under way."""
        if self.waits_since is not None:
            self.waited[self.waits_for] = self.waited.get(self.waits_for, timedelta(0)) + now - self.waits_since
            self.waits_since = None


@dataclass(slots=True, kw_only=True)
class PublisherState:
    """What people were told, and what they are still to be told. shows: whether the episode has a NodeFence."""

    shows: bool = False
    shown: EpisodeStatus | None = None
    entered: datetime | None = None
    """When the latest state was entered, as long as that is not published."""
    sequence: int = 0
    runs: dict[str, int] = field(default_factory=dict)
    jobs: list[str] = field(default_factory=list)
    events: list[PublishedEvent] = field(default_factory=list)
    off: OffNote | None = None
    entries: list[RecordEntry] = field(default_factory=list)
    """Lines of the record that no activity has taken to the decision stream yet."""
    streams: bool | None = None
    """Whether the cluster has a decision stream, as its latest worker answered; None: not known yet, and lines wait."""
    failure: str = ""
    outcome: str = ""
    message: str = ""


@dataclass(slots=True, kw_only=True)
class PacingProgress:
    """Portions of pods that may be freed. asked: the number of the latest question. waited: in all, also for people."""

    asked: int = 0
    waited: timedelta = timedelta(0)
    waits_since: datetime | None = None


@dataclass(slots=True, kw_only=True)
class PathsProgress:
    """cut: the paths that may be cut, with the end of our command; None where a predecessor cut it. quarantined: machines by
    their endpoint, with what is to be given back."""

    cut: dict[str, datetime | None] = field(default_factory=dict)
    quarantined: dict[str, Quarantine] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class VolumesProgress:
    """detached: every volume that was had detached, with the end of the latest command. tried: those commanded in this try."""

    detached: dict[str, datetime] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class IsolationProgress:
    """done: the methods carried out, by their place in the plan. pods_left: how many pods still stood behind the cut when the
    time for freeing them was over."""

    done: list[int] = field(default_factory=list)
    detached_from: PowerDevice | None = None
    freed: bool = False
    freed_pods: int = 0
    pods_left: int = 0
    paths: PathsProgress = field(default_factory=PathsProgress)
    volumes: VolumesProgress = field(default_factory=VolumesProgress)
    pacing: PacingProgress = field(default_factory=PacingProgress)


@dataclass(slots=True, kw_only=True)
class PowerProgress:
    """What is known of the devices of one node. They are named by their endpoints. commands_off: an off is under way;
    commands_on: on was commanded, and is tried until it is read."""

    commands_off: bool = False
    commands_on: bool = False
    off_ended: dict[str, datetime] = field(default_factory=dict)
    """Of the offs since anybody last switched the machine on: what a proof is made of."""
    obeyed: list[str] = field(default_factory=list)
    """Of these devices those that have said off since."""
    left_off: list[str] = field(default_factory=list)
    """Every device that was switched off by us, and is not read as on since we have asked for that, whatever others did."""
    left_before: list[str] = field(default_factory=list)
    """What earlier steps of the same episode have left off, of the devices that the plan names."""
    ours: list[str] = field(default_factory=list)
    """Every device that we have ever switched off: whether it is on again is for it to say."""
    read_before_question: dict[str, PowerState] = field(default_factory=dict)
    """What they had said before a person was asked."""
    devices_on: bool = False
    """Whether a device has said on after we commanded it."""
    tried_out: bool = False
    read_after: Reading | None = None
    """What the only device said right after it was commanded off, until that is weighed."""
    proven: tuple[PowerDevice, ...] = ()
    """The level that gave the latest proof."""
    proof: OffProof | None = None
    powered_on_at: datetime | None = None
    on_since: datetime | None = None
    """Since the offs that are known: when we last asked it on, or saw that another party had switched it on."""
    given_up: dict[str, str] = field(default_factory=dict)
    """The devices through which the machine was given up, with what distinguishes that machine from another of its name."""
    given_up_read: str = ""
    """What was last read of that."""
    kept: bool = False
    """Whether a machine that the plan gives up is to come back all the same."""


@dataclass(slots=True, kw_only=True)
class FreeingProgress:
    """began: whether a consequence may have been carried out. tainted: our out-of-service taint stands; may_be_tainted: it may,
    for all that is known, since an answer may have been lost."""

    began: bool = False
    done: bool = False
    pods_before: int | None = None
    freed_off: int = 0
    freed_dumping: int = 0
    left_dumping: Workload | None = None
    left_over: str = ""
    tainted: bool = False
    may_be_tainted: bool = False
    pacing: PacingProgress = field(default_factory=PacingProgress)


@dataclass(slots=True, kw_only=True)
class DumpProgress:
    """asked_first: when a crash dump was first listened for. due: when power-off was due for the first time: what delays it
    counts from there, whatever is restarted. freed: on the word of a dying kernel."""

    asked_first: datetime | None = None
    due: datetime | None = None
    freed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What interrupted the flow of a fencing, by the name of its class, and why: it is being answered."""

    interrupt: str
    reason: str


@dataclass(slots=True, kw_only=True)
class FencingProgress:
    """One fencing of one node, by itself or as a step of a ladder, from its pin on.

    begun: it has its permit and its mark. turn, parked, end: what the story is at, where it is not at its flow: what it answers,
    the problem with which it waits for a person, the end that it carries out. ended: that is done. switched_on: the machine
    was switched on again in this round of the flow, and its return is what is awaited. deadline: from then on nothing more is
    begun. held_since: a person, a mode or the lack of a licence keeps it from using that time.
    """

    pin: PinResult
    deadline: datetime | None = None
    held_since: datetime | None = None
    begun: bool = False
    turn: Turn | None = None
    parked: str = ""
    end: End | None = None
    ended: End | None = None
    switched_on: bool = False
    resumed_at: datetime | None = None
    """When a person last had the episode go on: the machine gets its time to come back anew."""
    boots_before: list[str] = field(default_factory=list)
    """The boot ids that were seen before power-on: none of them is a restart."""
    answered: Stage | None = None
    """What the object that asked for the fencing says by now."""
    power: PowerProgress = field(default_factory=PowerProgress)
    freeing: FreeingProgress = field(default_factory=FreeingProgress)
    isolation: IsolationProgress = field(default_factory=IsolationProgress)
    dump: DumpProgress = field(default_factory=DumpProgress)


@dataclass(slots=True, kw_only=True)
class StepProgress:
    """One step of a ladder: when it began, when what it does was set going, and by which name and uid that is found again.

    since: no Machine that is older can be the successor. seen: when the Machine was last known to stay. may_stand: something was
    begun and its answer never came. waits_since: when it first asked to begin, as long as that is not answered. asks: a deletion
    is being asked for, or its answer was lost. well_noted: its node's health was noted on the object. end: of a fencing that was
    carried out. taken_back: what it has left is taken back. adopted: an earlier episode has left it behind.
    """

    step: EscalationStep
    index: int
    began: datetime
    asked: datetime | None = None
    since: datetime | None = None
    name: str = ""
    uid: str = ""
    seen: datetime | None = None
    may_stand: bool = False
    waits_since: datetime | None = None
    asks: bool = False
    well_noted: bool = False
    taken_back: bool = False
    adopted: bool = False
    found: FailedVolumes | None = None
    end: End | None = None
    fencing: FencingProgress | None = None


@dataclass(slots=True, kw_only=True)
class LadderProgress:
    """A remediation, from its pin on.

    steps: those that may have left something that is to be taken back at the end, oldest first. at: the place there of the step
    that is under way, None where none is. reached: the last step of the ladder that was begun: one that brought the node back
    while a deletion goes on is not taken again. tried: whether anything was done about the target, for all that is known: from
    then on it is remembered as remediated; noted: what it was last told to remember. parked, end: as of a fencing.
    """

    pin: RemediationPin
    begun: bool = False
    failed: list[str] = field(default_factory=list)
    retry: int = 0
    steps: list[StepProgress] = field(default_factory=list)
    at: int | None = None
    reached: int = -1
    tried: bool = False
    noted: str = ""
    blind: bool = False
    """Whether the last look at the Machine was not answered."""
    parked: str = ""
    end: End | None = None


@dataclass(slots=True, kw_only=True)
class CuttingOffProgress:
    """The isolation of a machine that is kept.

    boot: during which it was cut off, None where that was not begun, "" where the Node did not say. freed_before: whether pods
    were freed before that. progress: how far it is, as the objects tell it. due: its next try; pause: until the one after that.
    """

    pin: PinResult | None = None
    boot: str | None = None
    freed_before: bool = False
    progress: Isolation = Isolation.NONE
    due: datetime | None = None
    pause: timedelta = timedelta(minutes=1)
    marked: bool = False
    problem: str = ""
    isolation: IsolationProgress = field(default_factory=IsolationProgress)


@dataclass(slots=True, kw_only=True)
class GivingUpProgress:
    """The deletion of a machine that is not kept any longer. asks: it is being asked for; asked: it was; unclear: it may have
    been, an answer was lost. failures: requests in a row that came to nothing. left: what stays cut of it, in words to end a
    sentence with."""

    asks: bool = False
    asked: bool = False
    unclear: bool = False
    failures: int = 0
    left: str = ""


@dataclass(slots=True, kw_only=True)
class PreservationProgress:
    """A preservation. What holds stands on the objects; here is what was asked for and is not there yet, and what was done."""

    wish: Wish = NO_WISH
    released: SealedCommand | None = None
    """The latest command by which a person has released it, where Kubernetes attests it."""
    moved: SealedCommand | None = None
    """The latest one by which a person has moved its end."""
    interruption: str = ""
    """What was commanded, or has changed, since the last look; "" for nothing."""
    unhealthy: str = ""
    drained: bool | None = None
    drain_ends: datetime | None = None
    machine: ObjectRef | None = None
    node_uid: str = ""
    machine_uid: str = ""
    owner: str = ""
    hold: Hold | None = None
    shown: Phase | None = None
    marked: bool = False
    not_ours: str = ""
    """The incident of marks that are not ours to adopt."""
    warned: tuple[str, ...] = ()
    end: End | None = None
    evidence: bool = False
    """Whether evidence has been fetched, or was tried to be."""
    cutting_off: CuttingOffProgress = field(default_factory=CuttingOffProgress)
    giving_up: GivingUpProgress | None = None


@dataclass(kw_only=True)
class EpisodeState:
    """The root: what every kind of episode has, and a branch for each thing that it does."""

    kind: Kind
    cluster: str
    node: str
    incident: str
    reason: str
    started: datetime
    run_id: str = ""
    """Of the run that it began with, by which our mark knows it."""
    requester: str = ""
    requester_verified: Verified = Verified.NO
    wish: SealedCommand | None = None
    """The requester's word, where Kubernetes attests it."""
    override: SealedCommand | None = None
    """The word by which a person overrides a circuit breaker for this episode (S17)."""
    cause: str = ""
    check: str = ""
    """The key of the health check that asked for it."""
    zone: str = ""
    workloads: tuple[str, ...] = ()
    """What was seen to stand against the node when it was to be freed."""
    machine: str = ""
    offends_since: datetime | None = None
    """When its node began to offend; None where that is not known."""
    owner: str = ""
    removes: bool = False
    """What controls its Machine, and whether that is replaced."""
    control_plane: bool | None = None
    """Of its node; None before that has been looked at."""
    pinned: Pinned | None = None
    sealed_devices: tuple[PowerDevice, ...] = ()
    """The node's devices with their newest seals: a device of the plan is asked under the seal that its equal has here (S49)."""
    last_seen: SeenNode | None = None
    """The node as last signalled or seen: a hint."""
    last_look: SeenNode | None = None
    """As the latest live look has seen it: only this proves anything (S42, S43)."""

    # What people see
    phase: Phase = Phase.NEW
    step: str = ""
    doing: str = "begins"
    until: datetime | None = None
    problem: str = ""
    try_number: int = 0
    tries: int = 0
    """How often the step in hand is tried at most, 0 while none is."""
    restarts: int = 0
    most_restarts: int = 0
    rung: str = ""
    """Which step of its ladder a remediation is at, for people; rung_until: when that has had its time."""
    rung_until: datetime | None = None
    preserved_until: datetime | None = None
    vetoed_until: datetime | None = None
    """When the last veto ends by itself: the lease of another party."""
    record: list[RecordEntry] = field(default_factory=list)
    noted: int = 0
    """How many lines the record has had, those that have gone too."""
    publisher_state: PublisherState = field(default_factory=PublisherState)

    # What is proven in this round (`Episode.begin_round`), and what was done
    off_proof: OffProof | None = None
    restart_proof: RestartProof | None = None
    path_proofs: dict[str, PathProof] = field(default_factory=dict)
    kernel_dead: KernelDead | None = None
    readings: dict[str, Reading] = field(default_factory=dict)
    """The latest of each power device, by its endpoint, since off was first commanded."""
    added: Added = NOTHING_ADDED
    """What it has added to its node, for a mark that is gone."""
    freed: bool = False
    """Whether pods may have been freed behind what stands cut: by a predecessor, or by an earlier step of a ladder."""
    found_cut: list[str] = field(default_factory=list)
    """The paths that were not seen open before our first cut: what was freed behind them is not known (S35)."""
    adopted: str = ""
    """The incident of the marks that were found; settled_at: from when on nothing of it can be in flight."""
    settled_at: datetime | None = None
    reset_at: datetime | None = None
    """When a reset last took back what it had done, which is not known any more (`Episode.outlive_reset`)."""
    taken_over: bool = True
    """Whether its marks are in our name."""

    # The permit
    permit: bool = False
    by_person: bool = False
    """Whether a person wanted that for which it last asked for its permit."""
    asks_anew: bool = False
    """It was let act, and the scanner knows no more of that. What it had begun counts until it is let go on, or gives that up: a
    scanner that finds it open would else begin others in its place (S14)."""
    queued: str = ""
    holder: str = ""

    # What people and the scanner have said
    abort_asked: AbortRequest | None = None
    aborts: int = 0
    """How often that was asked for: one that comes in a rest between two histories concerns what was under way before."""
    holds: tuple[HoldEpisodeRequest, ...] = ()
    """One of each person; the episode goes on when none is left."""
    resumed: PersonRequest | None = None
    acknowledgement: Acknowledgement | None = None
    acknowledged_boot: str = ""
    """The boot that the person who acknowledged off has seen off."""
    acknowledgement_void: str = ""
    """Why the latest acknowledgement does not hold any more, until a person is asked anew."""
    commands_given: int = 0
    """How often people have given it a command."""
    question: int = 0
    """The number of what people were last asked, a hold included: each word answers one (S48)."""
    path_asked: str = ""
    """What is left cut, where that is the question; path_command: the word that gives it back."""
    path_command: PersonRequest | None = None
    changes: int = 0
    """How often something came in that ends a rest; changes_seen: of these, those that a rest has ended by."""
    changes_seen: int = 0
    unseen: bool = False
    """Whether the node has changed since it was last looked at."""

    # Waiting
    stood_still: timedelta = timedelta(0)
    """How long in all this workflow was not carried out when it was due: no worker, no Temporal, or workers that are too busy."""
    stood_still_until: datetime | None = None
    held_since: datetime | None = None
    """Since when a hold is waited out that came after off, or where there is no way back."""
    latest_moment: datetime | None = None
    seals_tried: datetime | None = None
    """When new seals were asked for last, because the ones of `sealed_devices` end."""
    hardware: str = ""
    """Which machine was acted on, as `search.HARDWARE` names it; "" before that, and where it is not known."""
    repairs: FoundRepairs | None = None
    """Whether it is an offender, as the first pin found; None before that."""
    not_beyond: datetime | None = None
    """No rest lasts longer: at that moment the story has something else to do."""
    undertakings: dict[str, Undertaking] = field(default_factory=dict)
    left_in: Rest | None = None

    # What it does
    fencing: FencingProgress | None = None
    ladder: LadderProgress | None = None
    preservation: PreservationProgress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FencingHistory(FencingInput):
    """What a history of `Fencing` begins with. state: as an earlier history has left it, None in the first one."""

    state: EpisodeState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationHistory(RemediationInput):
    """What a history of `Remediation` begins with, as of `Fencing`."""

    state: EpisodeState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservationHistory(PreservationInput):
    """What a history of `Preservation` begins with, as of `Fencing`."""

    state: EpisodeState | None = None


History = FencingHistory | RemediationHistory | PreservationHistory
