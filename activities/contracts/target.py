"""The node itself, over the Kubernetes API: pin it, observe it, mark it, cordon it, free what ran on it, restore it.

Whatever writes does look and write in one activity, with uid and resourceVersion preconditions. A `Look` is a live read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from temporalio import activity

from policy.episode.drain import DrainOptions
from policy.episode.fencing_requests import RequestAnswer
from policy.episode.gate import DESTRUCTIVE, NEEDED, Operation
from policy.episode.messages import EpisodeStatus, FencingInput, Need, Observation, OffProof, PathProof, Pinned
from policy.episode.operator_commands import SealedCommand
from policy.fence.kdump import KernelDead
from policy.fence.plan import Chosen, CutStorage, FencingPlan
from policy.fence.power import PowerAct
from policy.objects.marks import Added
from policy.objects.nodes import Taint
from policy.values.object_refs import ObjectRef

# What people with kubectl see of an episode: its NodeFence, Events, and whether the node is proven off. Nothing follows from any
# of it, and each of these writes may fail. It travels with the act before or after which it is due, or by itself while an episode
# waits.


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSnapshot:
    """One state of an episode. `sequence` grows within a run, so that a write that was overtaken changes nothing.

    status: what a NodeFence shows of it (`policy/episode/nodefence.py`). at: when the state was entered. jobs: the methods that
    ran, the latest last. outcome, message: of an episode that has ended.
    """

    status: EpisodeStatus
    sequence: int
    at: datetime
    jobs: tuple[str, ...] = ()
    outcome: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEvent:
    """A Kubernetes Event on the Node, so that `kubectl describe node` tells the story, and on its NodeFence; and on its Machine,
    where `about` and its uid name one. outcome: of the episode that it says has ended. words: how often people had spoken to the
    episode by then: the same problem after another word is news."""

    reason: str
    message: str
    warning: bool = False
    about: ObjectRef | None = None
    about_uid: str = ""
    outcome: str = ""
    words: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffNote:
    """Since when the node is proven off, None once it no longer is: a note in our mark. For people and for DataAtRisk (S36).

    `not_after`: it is not written after that moment; a note that comes late would call a machine off that runs.
    """

    off_proven: datetime | None
    not_after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """All that is new since people were told last: the latest state where it is shown, Events in their order, the latest note."""

    shown: EpisodeSnapshot | None = None
    events: tuple[PublishedEvent, ...] = ()
    off: OffNote | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PinResult:
    """The target and the plan as they stand at the start; `need` is filled in where the input left it open.

    adopted_incident: a mark of an earlier episode was found on the node, or of another run of this one; the id is ours, so that
    neither is open. added: what our own mark tells of, None where none was written.
    """

    pinned: Pinned
    plan: FencingPlan
    need: Need
    control_plane: bool = False
    adopted_incident: str = ""
    adopted_paths: tuple[str, ...] = ()
    """Paths that the mark says are cut, whoever has cut them: an earlier step of this very episode may have."""
    observation: Observation | None = None
    added: Added | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PinRequest:
    """Pin what a fencing was wanted for. marks_as: the run in whose name the node is marked at once, unless there is a mark to be
    adopted; "": nothing is written. `not_after`: as of an ActRequest."""

    wanted: FencingInput
    marks_as: str = ""
    not_after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whom every later request is about, and in whose name: the pinned node and the holder of the mark. override: by which word a
    person overrides a circuit breaker (S17)."""

    cluster: str
    pinned: Pinned
    incident: str
    kind: str
    workflow_id: str
    run_id: str
    override: SealedCommand | None = None

    @property
    def without_levels(self) -> Target:
        """The same for devices, which conclude nothing from a proof: what only freeing goes by (S1) is left out, since each
        request stays in the history. A look has the whole: an act that brings one compares it with its own (S42)."""
        short = replace(self.pinned, levels=(), zone="", not_ready_since=None, addresses=())
        return replace(self, pinned=short, override=None)

    @property
    def without_devices(self) -> Target:
        """The same for what touches the Node alone and none of its devices: which machine it is (S9)."""
        short = self.without_levels
        return replace(short, pinned=replace(short.pinned, boot_id="", endpoints=()))


class LookVerdict(StrEnum):
    """The last look's answer. Only `go` lets the act happen.

    need-gone: do the way back. vetoed: a person or another owner says no. target-changed: not the pinned one.
    not-licensed: cluster Lease or permit not provably held, or something could not be read (look again later).
    """

    GO = "go"
    NEED_GONE = "need-gone"
    VETOED = "vetoed"
    TARGET_CHANGED = "target-changed"
    NOT_LICENSED = "not-licensed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """What was asked for when the devices of a node were looked up. template: the one that the request named, None for none."""

    template: ObjectRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenceWanted:
    """The power act that comes next, and by when it begins at the latest."""

    act: PowerAct
    not_after: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRequest:
    """Live last look before an act (S20). operation: what it is about to license. Where that destroys nothing, only providerID is
    compared (S9). A look before power, a path or a network is given back says that nobody wants the machine left as it is (on its
    Machine, too, S21) and that no other episode or deployment has it by now (S38).

    configured: how the pinned devices were chosen, so that those that are configured now are compared with them, or told where
    something is given back; None where they are not used.
    lease: for so long the node's lease is taken, or renewed, as part of the look, which then covers the step in hand: somebody
    else's is a veto as any that is seen; None: it is only read. not_after: it is not taken after that moment. counts: what stands
    against the node is told as well. news: told meanwhile. licenses: the power act that a go is to license (S42).
    """

    target: Target
    need: Need
    holder: str
    operation: Operation = Operation.DISRUPT
    configured: Configured | None = None
    lease: timedelta | None = None
    not_after: datetime | None = None
    counts: bool = False
    news: Publication | None = None
    licenses: LicenceWanted | None = None

    @property
    def destructive(self) -> bool:
        """Whether everything is read for it."""
        return self.operation in DESTRUCTIVE

    @property
    def need_matters(self) -> bool:
        """Whether the end of the need is an objection."""
        return self.operation in NEEDED

    @property
    def restores(self) -> bool:
        """Whether it is one before something is given back."""
        return self.operation is Operation.GIVE_BACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What still stands against the node: pods that count (no mirror, no DaemonSet pods) and volume attachments.

    workloads: the same pods by a name that is the same after each restart: those of a ReplicaSet or Job by that, bounded.
    forced: how many of the pods were told to go at once already and are held by somebody's finalizer. per_minute: how many may be
    freed in this cluster in a minute, None: as many as there are.
    """

    pods: int
    attachments: int
    names: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    forced: int = 0
    per_minute: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookResult:
    """What was seen, with the answer and its reason in one line. until: when a veto ends by itself, None where nobody says.
    permitted: whether the scanner knows of our permit, where that was asked. endpoints: of the devices that are configured for
    the node now, None where that was not asked or can't be told. workload: what stands against the node, where that was asked.
    licence: for the power act that was asked for; "" where none was, or the look does not say go."""

    verdict: LookVerdict
    reason: str
    at: datetime
    observation: Observation
    until: datetime | None = None
    permitted: bool = True
    endpoints: tuple[str, ...] | None = None
    workload: Workload | None = None
    licence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRequest:
    """Tell the object that asks for the node how far its wish has come."""

    target: Target
    answer: RequestAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerResult:
    """`withdrawn`: why nobody asks any more, "" while somebody does."""

    withdrawn: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActRequest:
    """A write on the node in the episode's name. `not_after`: not begun after that moment, it is not done at all (S20). `added`:
    for a mark that has to be written anew, since somebody has removed ours (S35). `news`: told once it is done."""

    target: Target
    not_after: datetime | None = None
    added: Added = field(default_factory=Added)
    news: Publication | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonRequest:
    """Cordon in the episode's name, right after a last look that says go (S20). `not_after`: as of an ActRequest."""

    look: LookRequest
    not_after: datetime | None = None

    @property
    def target(self) -> Target:
        """Whom it is about."""
        return self.look.target


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRequest:
    """Note in our mark that a path is about to be cut, or has been given back."""

    target: Target
    endpoint: str
    cut: bool
    not_after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """Take our marks off a node. keep_cordon: the cordon stays, as a configuration without `mark-schedulable` wants it. tainted:
    as `ours` of an UntaintRequest. added: for a node that does not carry our mark any more, or one that was changed. news: as of
    an ActRequest."""

    target: Target
    not_after: datetime | None = None
    keep_cordon: bool = False
    tainted: bool = False
    added: Added = field(default_factory=Added)
    news: Publication | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UntaintRequest:
    """Take our out-of-service taint off. ours: the episode knows that it has set it, whatever our mark says by now, which anybody
    may remove; believed where it is sealed in `added`. look: made once the taint is off, before power-on. `not_after`: as of an
    ActRequest."""

    target: Target
    ours: bool = False
    added: Added = field(default_factory=Added)
    look: LookRequest | None = None
    not_after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActResult:
    """changed False: it was already so (a retry, or a person had done it); `detail` says what was seen. added: what our mark on
    the node tells of by now, None where it was not looked at. look: the look that was made with it; one that does not say go has
    kept a licensed act from being begun. left: what stands against the node after a taint that drives its pods out."""

    changed: bool
    detail: str
    added: Added | None = None
    look: LookResult | None = None
    left: Workload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeRequest:
    """A consequence: refused unless `proof` is complete for every pinned endpoint and its readings are fresh (S1, S2).

    not_after bounds the freshness: set by the workflow to shortly after the last reading. at_most: the portion of pods that the
    scanner lets go; None: it was not asked for any, and where a cluster limits how many go in a minute none goes. need: of the
    episode, for the last look before the Node is deleted.
    """

    target: Target
    proof: OffProof
    not_after: datetime
    holder: str
    at_most: int | None = None
    need: Need = field(default_factory=Need)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRequest:
    """Count what stands against the node. proof, not_after, holder: as of a FreeRequest, where our taint goes on freeing it
    meanwhile; None where nothing does."""

    target: Target
    proof: OffProof | None = None
    not_after: datetime | None = None
    holder: str = ""

    @property
    def under(self) -> FreeRequest | None:
        """What our taint stands under, None where none does."""
        if self.proof is None or self.not_after is None:
            return None
        return FreeRequest(target=self.target, proof=self.proof, not_after=self.not_after, holder=self.holder)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeResult:
    """What a deletion round did."""

    deleted_pods: int = 0
    deleted_attachments: int = 0
    left: Workload = Workload(pods=0, attachments=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeCutRequest:
    """A consequence under `path cut proven`: only for pods whose every volume lies behind the cut (S1). at_most: as of a
    FreeRequest."""

    target: Target
    proofs: tuple[PathProof, ...]
    storage: CutStorage
    not_after: datetime
    holder: str
    at_most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeDumpingRequest:
    """A consequence under `kernel dead`, which only a configuration that trusts the network gives.

    not_after bounds its freshness: moments after the message on which it rests. at_most: as of a FreeRequest.
    """

    target: Target
    proof: KernelDead
    not_after: datetime
    holder: str
    at_most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest:
    """Give `medik8s-leases/node-<name>` back. adopted: the incident whose marks this one adopted; what that one had taken is
    released with our own. holder: as of a LookRequest. news: as of an ActRequest."""

    target: Target
    adopted: str = ""
    holder: str = ""
    news: Publication | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRequest:
    """Tell people what is new where no act takes it along."""

    target: Target
    news: Publication


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintRequest:
    """Add one taint in the episode's name, as a CordonRequest cordons; it goes with the other marks."""

    look: LookRequest
    taint: Taint
    not_after: datetime | None = None

    @property
    def target(self) -> Target:
        """Whom it is about."""
        return self.look.target


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequest:
    """One round of evictions. `not_after`: none is asked for after it. at_most: how many in this round, None: no limit. only: the
    pods that are meant, None: all."""

    target: Target
    options: DrainOptions
    not_after: datetime
    holder: str
    at_most: int | None = None
    only: Chosen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainResult:
    """What a round did and what it left; a drain is over once it is `done`, and until then the round is repeated.

    evicted: in this round. left: pods that are to go and have not gone; `names` has the first of them. blocked: of those, whose
    eviction was refused for now, each with the reason. withheld: pods not evicted because the node is not Ready and a
    single-writer volume of theirs is attached (S36); they wait for the proof of off and are not among those left. errors: pods
    that a filter refuses; nothing was evicted (S29). mounting: of those blocked, the ones that mount a chosen volume. The lists
    are bounded.
    """

    evicted: int = 0
    left: int = 0
    skipped: int = 0
    names: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    mounting: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Nothing is left that a further round could evict or wait for."""
        return not self.errors and not self.left


class TargetActivities(ABC):
    """Reading and the node's bookkeeping. Served on `cluster.<name>`."""

    @activity.defn(name="isolation.pin-target")
    @abstractmethod
    async def pin(self, request: PinRequest) -> PinResult:
        """Read the node live, resolve and validate its plan, and mark the node where the request says so.

        Errors: InvalidConfig, TargetChanged (not that uid), NotFound; as of `mark`.
        """

    @activity.defn(name="isolation.mark")
    @abstractmethod
    async def mark(self, request: ActRequest) -> ActResult:
        """Write our mark; adopt a mark whose episode is not open, keeping what it says we added."""

    @activity.defn(name="target.last-look")
    @abstractmethod
    async def last_look(self, request: LookRequest) -> LookResult:
        """Look live at identity, need, vetoes, cluster Lease and permit; take the medik8s node lease where that is asked."""

    @activity.defn(name="recovery.release-lease")
    @abstractmethod
    async def release_lease(self, request: ReleaseRequest) -> None:
        """Give the node lease back if it is ours; a missing or foreign one is left alone."""

    @activity.defn(name="target.tell")
    @abstractmethod
    async def tell(self, request: PublishRequest) -> None:
        """Write the NodeFence, where its kind is served, the note in our mark, and the Events. Idempotent: an older state never
        overwrites a newer one."""

    @activity.defn(name="target.answer-request")
    @abstractmethod
    async def answer_request(self, request: AnswerRequest) -> AnswerResult:
        """Write the conditions of the object that asks for the node. Idempotent: compares before it writes."""


class IsolationActivities(ABC):
    """Isolation and its undoing. Served on `cluster.<name>`."""

    @activity.defn(name="isolation.mark-unschedulable")
    @abstractmethod
    async def mark_unschedulable(self, request: CordonRequest) -> ActResult:
        """Look, and cordon where all says go, noting in our mark whether the cordon is ours (a person's stays a person's)."""

    @activity.defn(name="isolation.note-path")
    @abstractmethod
    async def note_path(self, request: PathRequest) -> ActResult:
        """Keep the list of cut paths in our mark, so that whoever takes the node over knows of them."""

    @activity.defn(name="isolation.taint")
    @abstractmethod
    async def taint(self, request: TaintRequest) -> ActResult:
        """Look, and add a taint where all says go, noting in our mark that it is ours (a person's stays a person's).

        InvalidConfig for one that deletes pods (NoExecute): that needs the proof of off.
        """

    @activity.defn(name="isolation.drain")
    @abstractmethod
    async def drain(self, request: DrainRequest) -> DrainResult:
        """One round: ask for the evictions that the filters and the node's state allow. Never a delete (S30).

        Errors: Vetoed, TargetChanged, OwnNode, NotLicensed, Expired before anything was asked for.
        """

    @activity.defn(name="recovery.mark-schedulable")
    @abstractmethod
    async def mark_schedulable(self, request: RestoreRequest) -> ActResult:
        """Remove our mark, our taints, and our cordon unless somebody preserves the node (S21); the rest stays byte-equal.

        Where no mark says what is ours, the episode does. A gone Node: nothing.
        """


class FreeingActivities(ABC):
    """Consequences (S1) and what they left. Served on `cluster.<name>`."""

    @activity.defn(name="power-management.taint-out-of-service")
    @abstractmethod
    async def taint_out_of_service(self, request: FreeRequest) -> ActResult:
        """Add the out-of-service taint beside the others (S32), noting it in our mark. NotLicensed under a limit of pods
        per minute: all of them would go at once.
        """

    @activity.defn(name="power-management.delete-workload")
    @abstractmethod
    async def delete_workload(self, request: FreeRequest) -> FreeResult:
        """Force-delete the node's pods, then remove VolumeAttachments of volumes no pod there uses any more.

        Without a portion under a limit: only tells what is left.
        """

    @activity.defn(name="power-management.delete-node")
    @abstractmethod
    async def delete_node(self, request: FreeRequest) -> ActResult:
        """Delete the Node object itself: for those who never want the machine back under it. A gone Node: nothing.

        It takes more than the workloads of a machine that is off, so that a whole last look comes right before it (S20, S21).
        Errors: Vetoed, TargetChanged, NotLicensed as of that look.
        """

    @activity.defn(name="isolation.free-cut-pods")
    @abstractmethod
    async def free_cut_pods(self, request: FreeCutRequest) -> FreeResult:
        """Force-delete the pods that use cut volumes and no others, then remove the attachments of those volumes.

        `left` counts what lies behind the cut and still stands.
        """

    @activity.defn(name="power-management.free-while-dumping")
    @abstractmethod
    async def free_while_dumping(self, request: FreeDumpingRequest) -> FreeResult:
        """As `delete_workload`, of a node whose kernel is dead and whose power is on.

        NotProven where its Node is gone: whether it has booted since can't be seen then (S6).
        """

    @activity.defn(name="power-management.read-workload")
    @abstractmethod
    async def read_workload(self, request: WorkloadRequest) -> Workload:
        """Count what still stands against the node (live). Where our taint goes on freeing it: refused as a consequence is."""

    @activity.defn(name="power-management.untaint-out-of-service")
    @abstractmethod
    async def untaint_out_of_service(self, request: UntaintRequest) -> ActResult:
        """Remove the out-of-service taint if our mark, or the episode, says that it is ours; then look, where that is asked.

        Vetoed where the episode knows that it is ours and another one's mark claims it.
        """
