"""Freeing the workloads of a node that is proven off: the consequences, each right after the proof was read again (S1, S2).

What a consequence does to the API is `activities/cluster/acts/freeing.py`, which checks the proof a second time. `Pacing` keeps
freeing to so many pods a minute, here and behind cut paths (`workflows/fencing/isolation.py`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.episodes import AskPortion, EpisodeActivities
from activities.contracts.target import (
    ActResult,
    FreeCutRequest,
    FreeDumpingRequest,
    FreeingActivities,
    FreeRequest,
    FreeResult,
    LookRequest,
    Workload,
    WorkloadRequest,
)
from activities.errors import ErrorType, error_message, error_type
from policy.episode.messages import OffProof
from policy.episode.permits import PortionAnswer, PortionRequest
from policy.episode.proofs import freeing_choice
from policy.fence.config import FenceStep
from policy.fence.kdump import KernelDead
from policy.fence.plan import FencingPlan, Freeing
from policy.values.display_text import counted
from workflows.episode.episode import Episode
from workflows.episode.node_writes import NodeWriter
from workflows.episode.preflight import FIRST_PAUSE, LONGEST_PAUSE, SLOW_LOOKS, Preflight, SeenDown
from workflows.episode.state import FreeingProgress, PacingProgress, Undertaking
from workflows.fencing.device_commands import longer
from workflows.fencing.power_sequence import PowerSequence
from workflows.kit import options
from workflows.kit.interrupts import (
    Interrupt,
    NeedGone,
    StepFailed,
    TooSlow,
    Unlicensed,
    as_interrupt,
    failure_line,
    interrupt_for,
    never_began,
)

Request = TypeVar("Request", FreeRequest, FreeCutRequest, FreeDumpingRequest)


class Pacing:
    """The portions of one part of an episode: one is asked of the scanner right before pods are freed, and waited for where there
    is none.

    Only where the cluster has such a limit (`Workload.per_minute`); the activity that frees reads it live and frees none
    without a portion. The rule is `policy/episode/permits.py`; the portions are in `workflows/scanner/permits.py`.
    """

    def __init__(self, episode: Episode, part: str, progress: PacingProgress) -> None:
        self._episode = episode
        self._part = part
        self._progress = progress

    @property
    def waited(self) -> timedelta:
        """How long it has waited in all, for portions or a person, which is no fault of what it frees."""
        return self._progress.waited

    def waited_before(self, under: Undertaking) -> timedelta:
        """How long it had waited when that was begun: of an earlier try."""
        self.end_wait()
        earlier = under.waited.setdefault(EARLIER, self.waited)
        return earlier if earlier and workflow.patched(HOLDS_TAKE_NO_TIME) else timedelta(0)

    async def bounded(self, request: Request, left: Workload) -> Request | None:
        """The request, for no more pods than may go now. None: none may, and that has been waited out: look and read anew."""
        self.end_wait()
        limit, pods = left.per_minute, left.pods - left.forced
        if limit is None or pods <= 0:
            return request
        answer = await self._ask(pods, limit)
        if answer.until is not None:
            self._episode.note("portion", "ok", f"{answer.pods} of {pods} pods may be freed now, {limit} in a minute")
            return replace(request, at_most=answer.pods, not_after=min(request.not_after, answer.until))
        if answer.again is None:
            raise Unlicensed(f"how many pods may be freed now is not known: {answer.problem}")
        self._progress.waits_since = now = workflow.now()
        self._episode.enter(doing=f"waits: no more than {limit} pods may be freed in a minute", until=answer.again)
        await self._episode.rest(max(answer.again - now, timedelta(0)), "until more pods may be freed")
        self.end_wait()
        return None

    def begin_wait(self) -> None:
        """Of a person's hold, or for leave: none of the time for freeing either."""
        self._progress.waits_since = self._progress.waits_since or workflow.now()

    def end_wait(self) -> None:
        """A wait is over, which may have begun in an earlier history."""
        if self._progress.waits_since is not None:
            self._progress.waited += workflow.now() - self._progress.waits_since
            self._progress.waits_since = None

    async def _ask(self, pods: int, limit: int) -> PortionAnswer:
        self._progress.asked += 1
        request = PortionRequest(
            node=self._episode.state.node,
            incident=f"{self._episode.state.incident}/{self._part}",
            number=self._progress.asked,
            pods=pods,
            per_minute=limit,
        )
        try:
            answer: PortionAnswer = await options.execute(
                EpisodeActivities.ask_portion,
                AskPortion(cluster=self._episode.state.cluster, portion=request),
                options.temporal_call(),
                f"{self._part}: asks how many pods may be freed now",
            )
        except ActivityError as error:
            return PortionAnswer(problem=error_message(error))
        return answer


POLL_INTERVAL = timedelta(seconds=1)

CANT_UNTAINT = "the out-of-service taint can't be removed"
ABORT_BEFORE_FREEING = "an-abort-is-heard-right-before-pods-of-a-dead-kernel-are-freed"
"""Histories of builds that freed them all the same go on as they began."""
EARLIER = "before it began"
HOLDS_TAKE_NO_TIME = "what-a-person-holds-takes-no-time-of-a-drain-or-of-freeing"
"""Histories of builds in which a hold used that up go on as they began."""


class FreeingSequence:
    """Frees once per proof, whatever is restarted."""

    def __init__(
        self,
        episode: Episode,
        plan: FencingPlan,
        node_writer: NodeWriter,
        power: PowerSequence,
        preflight: Preflight,
        *,
        progress: FreeingProgress,
    ) -> None:
        self._episode = episode
        self._node_writer = node_writer
        self._plan = plan
        self._power = power
        self._preflight = preflight
        self._progress = progress
        self._seen: SeenDown | None = None
        self._pacing = Pacing(episode, FenceStep.POWER_MANAGEMENT, progress.pacing)

    @property
    def freed_pods(self) -> int:
        """How many, on whatever proof."""
        return self._progress.freed_off + self._progress.freed_dumping

    async def free_while_dumping(self, proof: KernelDead, not_after: datetime) -> bool:
        """One round on the word of a dying kernel, begun by `not_after` or not at all. Whether nothing is left."""
        left = self._progress.left_dumping or await self._left()
        self._episode.state.workloads = left.workloads or self._episode.state.workloads
        whole = FreeDumpingRequest(
            target=self._episode.target,
            proof=proof,
            not_after=min(not_after, workflow.now() + options.ACT_WINDOW),
            holder=self._episode.state.holder,
        )
        request = await self._pacing.bounded(whole, left)
        if request is None or self._episode.is_held:  # one that came while we looked is obeyed, too (S20)
            return False
        if self._episode.state.abort_asked is not None and workflow.patched(ABORT_BEFORE_FREEING):
            return False
        if self._episode.state.kernel_dead is None:
            self._episode.note("kernel-dead", "trusted", str(proof))
        self._episode.state.kernel_dead = proof
        self._episode.frees()
        with as_interrupt("workloads can't be freed while the node dumps"):
            result: FreeResult = await self._episode.execute(
                FreeingActivities.free_while_dumping,
                request,
                options.consequence,
                "power-management: frees the workloads of a dead kernel",
            )
        self._progress.freed_dumping += result.deleted_pods
        freed = f"{counted(result.deleted_pods, 'pod')}, {counted(result.deleted_attachments, 'volume attachment')}"
        self._episode.note("free-while-dumping", "ok", f"{freed}; {proof}")
        self._progress.left_dumping = result.left
        return (result.left.pods, result.left.attachments) == (0, 0)

    @property
    def left(self) -> str:
        """What still stands against the node, in words to end a sentence with."""
        return f"; {self._progress.left_over}" if self._progress.left_over else ""

    def take_look(self, seen: SeenDown | None) -> None:
        """What was just seen, so that the first round need not look again. Raises NeedGone before anything began (S6)."""
        began = self._progress.began or self._episode.state.kernel_dead is not None
        if seen is not None and seen.need_gone and not began:
            raise NeedGone("the need was gone before any consequence began")
        self._seen = seen

    def drop(self, why: str) -> None:
        """Free nothing: the licence ended before anything began (S6)."""
        self._progress.done = True
        self._episode.note("free-workloads", "dropped", why)

    async def free(self) -> None:
        """Free the node's workloads; a part that is left when its time is over is told to people, not waited for (S32)."""
        choice = freeing_choice(self._plan)
        if self._progress.done or choice is Freeing.NONE:
            self._progress.done = True
            return
        with self._episode.undertaking("frees the workloads") as under:
            deadline = under.began + self._plan.free_timeout
            self._episode.enter(doing="frees the workloads of the node that is off", until=deadline)
            try:
                await self._free(choice, deadline + self._pacing.waited_before(under))
            except Interrupt:
                # A machine that runs after all must not go on losing its pods, nor one that is not read until
                # the next try (S1, S2).
                await self.pause()
                raise

    async def _free(self, choice: Freeing, deadline: datetime) -> None:
        left = (self._seen.workload if self._seen is not None else None) or await self._left()
        if self._progress.pods_before is None:
            self._progress.pods_before = left.pods
        self._episode.state.workloads = left.workloads or self._episode.state.workloads
        if left.per_minute is not None and not self._progress.tainted:
            choice = Freeing.DELETION  # a taint frees all at once
        pause = POLL_INTERVAL
        while True:
            await self.wait_while_held()
            if choice is Freeing.DELETION:
                left = await self._delete(left)
            elif not self._progress.tainted:
                if (standing := await self._taint()) is None:
                    choice = Freeing.DELETION
                    continue
                left = standing
            else:
                left = await self._left(await self._require_still_off())
            self._progress.freed_off = max(self._progress.freed_off, self._progress.pods_before - left.pods)
            if left.pods == 0 and left.attachments == 0:
                break
            if workflow.now() - self._pacing.waited >= deadline:
                self._progress.left_over = f"still standing against the node: {', '.join(left.names) or 'unnamed objects'}"
                break
            await self._episode.pause(pause, "until the workloads are looked at again")
            pause = longer(pause)
        outcome = "incomplete" if self._progress.left_over else "ok"
        still = f"{counted(left.pods, 'pod')} and {counted(left.attachments, 'attachment')}"
        detail = f"{counted(self._progress.freed_off, 'pod')} freed; {still} left"
        counts: dict[str, float] = {"pods": self._progress.freed_off, "left": left.pods}
        self._episode.note("free-workloads", outcome, detail, numbers=counts)
        if self._plan.delete_node:
            await self._delete_node()
        self._progress.done = True

    async def _require_still_off(self) -> OffProof:
        """The taint goes on taking effect: so must the proof, which ends with another boot, whatever devices say, and whether or
        not the node is Ready (S6), and with other devices (S47)."""
        proof = await self._power.read_again()
        await self._look(proof)
        return proof

    async def _look(self, proof: OffProof) -> SeenDown:
        seen = await self._preflight.before_freeing(once=True)
        node, pinned = self._episode.state.last_look, self._episode.target.pinned
        if node is not None and node.present and node.uid == pinned.uid and node.boot_id not in {"", pinned.boot_id}:
            who = "a person said off" if proof.acknowledgement is not None else "its devices say off"
            self._power.lose(f"{self._episode.state.node} is back, although {who}: its boot id is {node.boot_id}")
        self._power.require_unrefuted()
        if seen is None:
            raise StepFailed(f"nothing more is freed: {self._episode.state.node} says Ready, although it was read as off")
        self.take_look(seen)
        return seen

    async def _delete_node(self) -> None:
        """The last consequence, if it is wanted at all: with the Node goes whatever still stood against it."""
        request = replace(await self._licence(), need=self._preflight.need)
        with as_interrupt("the Node can't be deleted"):
            result = await self._episode.execute(
                FreeingActivities.delete_node, request, options.consequence, "power-management: deletes the Node"
            )
        self._progress.tainted = self._progress.may_be_tainted = False
        self._episode.note("delete-node", "ok", result.detail)

    async def pause(self) -> None:
        """The proof is not read while a person is waited for, so nothing may go on taking effect on it (S1), nor may what has
        taken its effect stand on a machine that another party switches on (S32)."""
        if self._progress.may_be_tainted:
            try:
                await self.untaint()
            except ActivityError as error:
                failed = failure_line(CANT_UNTAINT, error)
                self._episode.note("untaint-out-of-service", "failed", failed)

    async def wait_while_held(self) -> None:
        """A hold is a person who is waited for. A taint that can't be removed then is tried again all the while; what was seen
        before is old afterwards (S47)."""
        pause, self._seen = FIRST_PAUSE, None if self._episode.is_held else self._seen
        doing, until = self._episode.state.doing, self._episode.state.until
        if self._episode.is_held and workflow.patched(HOLDS_TAKE_NO_TIME):
            self._pacing.begin_wait()
        while (held := self._episode.longest_hold) is not None and self._episode.is_held:
            await self.pause()
            if not self._progress.may_be_tainted:
                break
            self._episode.enter(doing=f"{self._episode.holds_line}; {CANT_UNTAINT} yet", until=held.until)
            await self._episode.rest(pause, "until the out-of-service taint is tried again")
            pause = min(pause * 2, LONGEST_PAUSE)
        await self._episode.wait_while_held()
        self._episode.go_on_with(doing, until)
        self._pacing.end_wait()

    async def leave(self) -> None:
        """The proof is not read from here on, or before long, and others may switch the machine on: a taint that may stand
        is removed first, however often that is tried (S1, S32)."""

        async def remove() -> None:
            with as_interrupt(CANT_UNTAINT):
                await self.untaint()

        if self._progress.may_be_tainted:
            pause = self._plan.retry_interval
            await self._node_writer.insist("untaint-out-of-service", remove, failing=CANT_UNTAINT, pause=pause, abort_ends=True)

    async def untaint(self, look: LookRequest | None = None) -> ActResult:
        """Remove our out-of-service taint, always before power-on (S32). Our mark says whether one stands, and so does what we
        have done ourselves: a mark may be removed by hand. look: made afterwards. Raises ActivityError."""
        self._episode.enter(doing="removes the out-of-service taint")
        result = await self._node_writer.untaint(ours=self._progress.may_be_tainted, look=look)
        self._progress.tainted = self._progress.may_be_tainted = False
        self._episode.note("untaint-out-of-service", "ok", result.detail, version=result.version)
        return result

    async def _taint(self) -> Workload | None:
        """Answers what is left. None: there is no Node to taint any more, only what is left of its workload (S9)."""
        request = await self._licence()
        self._episode.frees()
        before, self._progress.began = self._progress.began, True
        perhaps, self._progress.may_be_tainted = self._progress.may_be_tainted, True
        try:
            result = await self._episode.execute(
                FreeingActivities.taint_out_of_service,
                request,
                options.consequence,
                "power-management: taints the node out-of-service",
            )
        except ActivityError as error:
            self._progress.began = before or not never_began(error)
            if error_type(error) is ErrorType.NOT_FOUND:
                self._episode.note("taint-out-of-service", "not there", error_message(error))
                return None
            raise interrupt_for(error, "the out-of-service taint can't be set") from error
        self._progress.tainted = True
        self._episode.learns_of(result.added)
        self._progress.may_be_tainted = perhaps or result.changed  # else it is a person's, or one that our mark tells of
        self._episode.note("taint-out-of-service", "ok", result.detail, version=result.version)
        return result.left or await self._left()

    async def _delete(self, left: Workload) -> Workload:
        request = await self._pacing.bounded(await self._licence(), left)
        if request is None or self._episode.is_held or workflow.now() >= request.not_after:
            return left  # what was read is old by now
        self._episode.frees()
        before, self._progress.began = self._progress.began, True
        try:
            result = await self._episode.execute(
                FreeingActivities.delete_workload, request, options.consequence, "power-management: deletes the workload"
            )
        except ActivityError as error:
            self._progress.began = before or not never_began(error)
            raise interrupt_for(error, "workloads can't be deleted") from error
        detail = f"{counted(result.deleted_pods, 'pod')}, {counted(result.deleted_attachments, 'volume attachment')}"
        self._episode.note("delete-workload", "ok", detail)
        return result.left

    async def _licence(self) -> FreeRequest:
        proof, until = await self.look_anew()
        return FreeRequest(target=self._episode.target, proof=proof, not_after=until, holder=self._episode.state.holder)

    async def look_anew(self) -> tuple[OffProof, datetime]:
        """What each round of consequences needs, none of it from before a wait (S47): need, machine and devices as a look has
        them, power as it is read (S2). Answers the proof, and until when what needs it may begin. Devices may take long, so that
        they are read first."""
        slow = 0
        while slow < SLOW_LOOKS:
            await self.wait_while_held()
            proof = await self._power.read_again()
            seen, self._seen = self._seen, None
            if seen is None or workflow.now() >= seen.until:
                seen = await self._look(proof)
                self._seen = None
            until = min(self._power.licensed_until(proof), seen.until)
            if self._episode.is_held:
                continue  # one that came while we looked is obeyed, too, and then all is looked at again
            if workflow.now() < until:
                return proof, until
            slow += 1
        raise TooSlow("node and power were never read in time to act upon it")

    async def _left(self, proof: OffProof | None = None) -> Workload:
        """proof: under which our taint stands; all that setting it takes is looked at anew."""
        request = WorkloadRequest(target=self._episode.target)
        if proof is not None:
            request = replace(
                request, proof=proof, not_after=self._power.licensed_until(proof), holder=self._episode.state.holder
            )
        with as_interrupt("the node's workloads can't be read"):
            return await self._episode.execute(
                FreeingActivities.read_workload, request, options.cluster_read, "power-management: counts pods and attachments"
            )
