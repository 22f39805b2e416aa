"""The activities on the node over the Kubernetes API: pin it, look at it, mark it, cordon it, free its workloads, restore it.

An activity that writes looks and writes with uid and resourceVersion preconditions. A `Look` is a live read.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from temporalio import activity

from activities.contracts import ActivityContract
from policy.episode.drain import DrainOptions
from policy.episode.fencing_requests import RequestAnswer
from policy.episode.gate import DESTRUCTIVE, NEEDED, Operation
from policy.episode.messages import EpisodeStatus, FencingInput, Need, OffProof, PathProof, Pinned, RecordEntry, SeenNode
from policy.episode.node_action import SealedCommand
from policy.fence.kdump import KernelDead
from policy.fence.plan import Chosen, CutStorage, FencingPlan
from policy.fence.power import PowerAct
from policy.history.offenders import NO_REPAIRS, FoundRepairs
from policy.objects.marks import Added
from policy.objects.nodes import Taint
from policy.values.object_refs import ObjectRef

# What people with kubectl see of an episode: its NodeFence, Events, and whether the node is proven off. No decision depends on
# any of these writes, and each may fail. They travel with the act before or after which they are due, or by themselves while an
# episode waits.


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
    """A Kubernetes Event on the Node (for `kubectl describe node`), on its NodeFence, and on the Machine if `about` and its uid
    name one. outcome: of an episode that has ended. commands_given: how many people had given it by then: the same problem after
    another command is published again."""

    reason: str
    message: str
    warning: bool = False
    about: ObjectRef | None = None
    about_uid: str = ""
    outcome: str = ""
    commands_given: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffNote:
    """A note in our mark: since when the node is proven off, None once it no longer is. For people and for DataAtRisk (S36).

    `not_after`: it is not written after that moment; a late note would call a running machine off.
    """

    off_proven: datetime | None
    not_after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """All that was not published yet: the latest state for the NodeFence, Events in their order, the latest note, and lines of
    the record for the decision stream."""

    shown: EpisodeSnapshot | None = None
    events: tuple[PublishedEvent, ...] = ()
    off: OffNote | None = None
    entries: tuple[RecordEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PinResult:
    """The target and the plan as they are at the start; `need` is filled in if the input left it open.

    adopted_incident: from the mark of an earlier episode on the node, or of another run of this one; the workflow id is ours,
    so that neither is open. added: what our own mark says that we added, None if none was written.
    """

    pinned: Pinned
    plan: FencingPlan
    need: Need
    control_plane: bool = False
    adopted_incident: str = ""
    adopted_paths: tuple[str, ...] = ()
    """Paths that are cut by the mark; an earlier step of this same episode may have cut them."""
    seen: SeenNode | None = None
    added: Added | None = None
    repairs: FoundRepairs = NO_REPAIRS
    streams: bool | None = None
    """Whether the cluster has a decision stream, to which lines of the record are to go; None from an older worker."""
    cordoned: str = ""
    """What came of the cordon that its plan begins with, "" where none was made. version: of the Node that it was decided on."""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinRequest:
    """Pin the target of a fencing. run_id: of the episode, as its mark has it: any other mark is one to adopt; "": the run that
    asks. marks_as: the run that the node is marked for at once, unless there is a mark to adopt; "": nothing is written.
    cordons: a node that was marked is cordoned as well, where its plan begins with that, after a last look that says go (S20).
    `not_after`: as in an ActRequest."""

    wanted: FencingInput
    run_id: str = ""
    marks_as: str = ""
    cordons: bool = False
    not_after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of every later request: the pinned node, and the episode that holds the mark. override: the command by which a
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
        """The target for requests to devices: without the levels, which only freeing needs (S1), since each request stays in
        the history. A look has the whole: an act that brings one compares it with its own (S42)."""
        short = replace(self.pinned, levels=(), zone="", not_ready_since=None, addresses=())
        return replace(self, pinned=short, override=None)

    @property
    def without_devices(self) -> Target:
        """The target for acts on the Node alone: its identity (S9) without its devices."""
        short = self.without_levels
        return replace(short, pinned=replace(short.pinned, boot_id="", endpoints=()))


class LookVerdict(StrEnum):
    """The last look's answer. Only `go` lets the act happen.

    need-gone: take back what was done. vetoed: a person or another owner objects. target-changed: it is not the pinned node.
    not-licensed: the cluster Lease or the permit is not provably held, or something could not be read (look again later).
    """

    GO = "go"
    NEED_GONE = "need-gone"
    VETOED = "vetoed"
    TARGET_CHANGED = "target-changed"
    NOT_LICENSED = "not-licensed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """How the devices of a node were looked up. template: the one that the request named, None for none."""

    template: ObjectRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenceWanted:
    """The power act that comes next, and the latest moment at which it begins, if the look begins at once."""

    act: PowerAct
    not_after: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRequest:
    """Live last look before an act (S20). operation: what it may license. If that destroys nothing, only providerID is compared
    (S9). A look before power, a path or a network is given back checks that no annotation keeps the machine as it is (on its
    Machine, too, S21) and that no other episode or deployment has it by now (S38).

    configured: how the pinned devices were chosen, so that the devices configured now are compared with them, or returned if
    something is given back; None if no device is used. lease: the look takes or renews the node's lease for this long, to cover
    the present step; another holder's lease is a veto; None: it is only read. not_after: the lease is not taken after that
    moment. counts: the result also has what stands against the node. publication: published meanwhile. licenses: the power act
    that a go licenses (S42).
    """

    target: Target
    need: Need
    holder: str
    operation: Operation = Operation.DISRUPT
    configured: Configured | None = None
    lease: timedelta | None = None
    not_after: datetime | None = None
    counts: bool = False
    publication: Publication | None = None
    licenses: LicenceWanted | None = None

    @property
    def destructive(self) -> bool:
        """Whether the look is for a destructive act, for which everything is read."""
        return self.operation in DESTRUCTIVE

    @property
    def need_matters(self) -> bool:
        """Whether the end of the need is an objection."""
        return self.operation in NEEDED

    @property
    def restores(self) -> bool:
        """Whether the look comes before something is given back."""
        return self.operation is Operation.GIVE_BACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What still stands against the node: pods that count (no mirror, no DaemonSet pods) and volume attachments.

    workloads: the same pods by a name that survives restarts (the ReplicaSet or Job of a pod), bounded. forced: how many of the
    pods were force-deleted already and are held by a finalizer. per_minute: how many may be freed in this cluster in a minute,
    None: no limit.
    """

    pods: int
    attachments: int
    names: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    forced: int = 0
    per_minute: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LookResult:
    """What was seen, with the answer and its reason in one line. until: when a veto ends by itself, None if that is not known.
    permitted: False where the scanner says that the permit is none of ours, not where it says nothing. endpoints: of the devices
    that are configured for the node now, None if that was not asked or is not known. workload: what stands against the node, None
    if that was not asked. licence: for the power act in the request; "" if there was none, or the look does not say go.
    held_by_mode: the reason is the mode of the node. version: the resourceVersion of the Node, "" where there is none. queued:
    how long the look had waited for a worker before it began; the window of the act counts from then on, and so does `licence`
    (S20)."""

    verdict: LookVerdict
    reason: str
    at: datetime
    seen: SeenNode
    until: datetime | None = None
    permitted: bool = True
    endpoints: tuple[str, ...] | None = None
    workload: Workload | None = None
    licence: str = ""
    version: str = ""
    held_by_mode: bool = False
    queued: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRequest:
    """Write to the object that asks for the node how far its request has come."""

    target: Target
    answer: RequestAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerResult:
    """`withdrawn`: why the object does not ask any more, "" while it does."""

    withdrawn: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActRequest:
    """A write on the node in the episode's name. `not_after`: after that moment it is not begun at all (S20). `added`: for a
    mark that has to be written anew, because ours was removed (S35). `publication`: published once the write is done."""

    target: Target
    not_after: datetime | None = None
    added: Added = field(default_factory=Added)
    publication: Publication | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonRequest:
    """Cordon in the episode's name, right after a last look that says go (S20). `not_after`: as in an ActRequest."""

    look: LookRequest
    not_after: datetime | None = None

    @property
    def target(self) -> Target:
        return self.look.target


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRequest:
    """Note in our mark that a path is about to be cut, or has been given back."""

    target: Target
    endpoint: str
    cut: bool
    not_after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest(ActRequest):
    """Take our marks off a node. keep_cordon: the cordon stays, as a configuration without `mark-schedulable` wants it.
    tainted: as `ours` in an UntaintRequest. added: for a node without our mark, or with a changed one."""

    keep_cordon: bool = False
    tainted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UntaintRequest:
    """Take our out-of-service taint off. ours: the episode knows that it set the taint, even if our mark no longer says so,
    because anyone may remove the mark; it counts only if it is sealed in `added`. look: made once the taint is off, before
    power-on. `not_after`: as in an ActRequest."""

    target: Target
    ours: bool = False
    added: Added = field(default_factory=Added)
    look: LookRequest | None = None
    not_after: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActResult:
    """changed False: it was already so (a retry, or a person had done it); `detail` says what was seen. added: what our mark on
    the node says by now, None if it was not read. look: the look that was made with the act; if it does not say go, the
    licensed act was not begun. left: what stands against the node after a taint that evicts its pods. version: the
    resourceVersion of the Node on which the act was decided."""

    changed: bool
    detail: str
    added: Added | None = None
    look: LookResult | None = None
    left: Workload | None = None
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """What needs a proof. not_after bounds its freshness: the workflow sets it to shortly after the last reading. at_most: the
    portion of pods that the scanner allows; None: the scanner was not asked, and in a cluster with a limit per minute no pod is
    freed."""

    target: Target
    not_after: datetime
    holder: str
    at_most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeRequest(Consequence):
    """Refused unless `proof` is complete for every pinned endpoint and its readings are fresh (S1, S2). need: of the episode, for
    the last look before the Node is deleted."""

    proof: OffProof
    need: Need = field(default_factory=Need)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRequest:
    """Count what stands against the node. proof, not_after, holder: as in a FreeRequest, if our taint goes on freeing the node
    meanwhile; None if nothing does."""

    target: Target
    proof: OffProof | None = None
    not_after: datetime | None = None
    holder: str = ""

    @property
    def under(self) -> FreeRequest | None:
        """The consequence under which our taint stands, None if there is none."""
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
class FreeCutRequest(Consequence):
    """Under `path cut proven`: only for pods with all their volumes behind the cut (S1)."""

    proofs: tuple[PathProof, ...]
    storage: CutStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeDumpingRequest(Consequence):
    """Under `kernel dead`, which only a configuration that trusts the network allows. not_after: moments after the message."""

    proof: KernelDead


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest:
    """Give `medik8s-leases/node-<name>` back. adopted: the earlier incident of the adopted mark; its lease is released with our
    own. holder: as in a LookRequest. publication: as in an ActRequest."""

    target: Target
    adopted: str = ""
    holder: str = ""
    publication: Publication | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRequest:
    """Publish what is new if no act takes it along."""

    target: Target
    publication: Publication


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintRequest(CordonRequest):
    """Add one taint in the episode's name, as a CordonRequest cordons; it is removed with the other marks."""

    taint: Taint


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequest:
    """One round of evictions. `not_after`: none is asked for after it. at_most: how many in this round, None: no limit. only:
    the pods to evict, None: all. need: of the episode, looked at anew; without one only what is kept is drained."""

    target: Target
    options: DrainOptions
    not_after: datetime
    holder: str
    at_most: int | None = None
    only: Chosen | None = None
    need: Need | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainResult:
    """What a round did and what it left; a drain is over once it is `done`, and until then the round is repeated.

    evicted: in this round. left: pods that are to go and have not gone; `names` has the first of them. blocked: the pods left
    with an eviction that was refused for now, each with the reason. withheld: pods not evicted because the node is not Ready
    and a single-writer volume of theirs is attached (S36); they wait for the proof of off and are not among those left. errors:
    pods that a filter refuses; nothing was evicted (S29). mounting: the blocked pods that mount a chosen volume. The lists are
    bounded.
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
        """Whether nothing is left that a further round could evict or wait for."""
        return not self.errors and not self.left


class TargetActivities(ActivityContract):
    """Reading and the node's bookkeeping. Served on `cluster.<name>`."""

    @activity.defn(name="isolation.pin-target")
    @abstractmethod
    async def pin(self, request: PinRequest) -> PinResult:
        """Read the node live, resolve and validate its plan, and mark the node if the request says so.

        Errors: InvalidConfig, TargetChanged (not that uid), NotFound; those of `mark`.
        """

    @activity.defn(name="isolation.mark")
    @abstractmethod
    async def mark(self, request: ActRequest) -> ActResult:
        """Write our mark; adopt the mark of an episode that is not open, and keep what it says that we added."""

    @activity.defn(name="target.last-look")
    @abstractmethod
    async def last_look(self, request: LookRequest) -> LookResult:
        """Look live at identity, need, vetoes, cluster Lease and permit; take the medik8s node lease if the request says so."""

    @activity.defn(name="recovery.release-lease")
    @abstractmethod
    async def release_lease(self, request: ReleaseRequest) -> None:
        """Give the node lease back if it is ours; a missing or foreign one is left alone."""

    @activity.defn(name="target.publish")
    @abstractmethod
    async def publish(self, request: PublishRequest) -> None:
        """Write the NodeFence (if its kind is served), the note in our mark, and the Events. Idempotent: an older state never
        overwrites a newer one."""

    @activity.defn(name="target.answer-request")
    @abstractmethod
    async def answer_request(self, request: AnswerRequest) -> AnswerResult:
        """Write the conditions of the object that asks for the node. Idempotent: compares before it writes."""


class IsolationActivities(ActivityContract):
    """Isolation and its undoing. Served on `cluster.<name>`."""

    @activity.defn(name="isolation.mark-unschedulable")
    @abstractmethod
    async def mark_unschedulable(self, request: CordonRequest) -> ActResult:
        """Look, and cordon if the look says go; our mark notes whether the cordon is ours (a person's stays a person's)."""

    @activity.defn(name="isolation.note-path")
    @abstractmethod
    async def note_path(self, request: PathRequest) -> ActResult:
        """Keep the list of cut paths in our mark, so that a later episode knows of them."""

    @activity.defn(name="isolation.taint")
    @abstractmethod
    async def taint(self, request: TaintRequest) -> ActResult:
        """Look, and add a taint if the look says go; our mark notes that it is ours (a person's stays a person's).

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
        """Remove our mark, our taints, and our cordon unless the node is preserved (S21); the rest stays byte-equal.

        If no mark says what is ours, the request does. A gone Node: nothing.
        """


class FreeingActivities(ActivityContract):
    """Consequences (S1), and the count of what they left. Served on `cluster.<name>`."""

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

        Without a portion under a limit: only counts what is left.
        """

    @activity.defn(name="power-management.delete-node")
    @abstractmethod
    async def delete_node(self, request: FreeRequest) -> ActResult:
        """Delete the Node object itself, if the machine is never to come back under it. A gone Node: nothing.

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
        """As `delete_workload`, for a node with a dead kernel and power on.

        NotProven if its Node is gone: whether it has booted since can't be seen then (S6).
        """

    @activity.defn(name="power-management.read-workload")
    @abstractmethod
    async def read_workload(self, request: WorkloadRequest) -> Workload:
        """Count what still stands against the node (live). While our taint goes on freeing it: refused as a consequence is."""

    @activity.defn(name="power-management.untaint-out-of-service")
    @abstractmethod
    async def untaint_out_of_service(self, request: UntaintRequest) -> ActResult:
        """Remove the out-of-service taint if our mark, or the episode, says that it is ours; then look, if the request says so.

        Vetoed if the episode knows that it is ours and another episode's mark claims it.
        """
