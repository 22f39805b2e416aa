"""Preservation: keep a machine as it is, for analysis, until its time is over, a person releases it, or it is well again.

The story is `PreservationStory.run`. What holds is on the objects (annotations, expiry, condition) and is asked anew at every
turn by one activity that looks live and writes the difference; the workflow waits in between, with one timer and no watch;
its phases are `policy/episode/phases.py`. A machine that has failed and is kept no longer is handed over to Remediation under the
same workflow id.

People change the objects with kubectl, too; the scanner tells us when something is not as we left it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NoReturn

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.episodes import EpisodeActivities, NameRequest
from activities.contracts.evidence import (
    BundleName,
    Collected,
    CollectRequest,
    DeviceEvidenceActivities,
    DeviceEvidenceRequest,
    EvidenceCollection,
    EvidenceFile,
    NotFetched,
    Sealed,
    SealRequest,
)
from activities.contracts.preservation import NO_WISH, Hold, HoldRequest, PreservationActivities, Wish
from activities.contracts.target import DrainRequest, DrainResult, IsolationActivities, TargetActivities
from activities.errors import ErrorType, error_message, error_type
from policy.episode.drain import DrainOptions
from policy.episode.events import EventReason
from policy.episode.messages import EpisodeResult, Kind, Outcome, Phase, Pinned, PreservationInput, PreservationUpdate
from policy.fence.plan import PowerDevice
from policy.values.display_text import counted
from policy.values.object_refs import ObjectRef
from policy.values.times import written
from workflows.episode.commands import take_hold
from workflows.episode.end import close, refusal
from workflows.episode.episode import Episode
from workflows.episode.node_writes import UNMARK_PAUSE, Adoption, NodeWriter
from workflows.episode.preflight import MODE_AGAIN
from workflows.episode.state import End, GivingUpProgress, PreservationProgress, RemediationHistory
from workflows.kit import options
from workflows.kit.continuation import NewHistory
from workflows.kit.interrupts import Interrupt, Vetoed, as_interrupt
from workflows.kit.messages import ExtendRequest, HoldEpisodeRequest, PersonRequest
from workflows.preservation.isolation import NEED, KeptMachineIsolation

LOOK_PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(minutes=5)
"""Between two tries of a look that fails: the hold itself is on the objects meanwhile."""
NOT_YET = timedelta(seconds=1)
"""The server's clock may say that the time is not over when ours says it is."""

DRAIN_PATIENCE = timedelta(hours=2)
"""As in the shipped system; the machine is kept whether or not its pods could be moved."""
DRAIN_PAUSE = timedelta(seconds=5)
DRAIN_PAUSE_MAXIMUM = timedelta(seconds=60)
DRAIN = DrainOptions(force=True, ignore_daemon_sets=True, delete_empty_dir=True)

FOUND_MARKED = "a-mark-of-which-the-answer-was-lost-is-removed"
"""Histories of builds that left it go on as they began."""
HELD_AT_ITS_END = "a-preservation-that-a-person-holds-ends-by-no-end-of-its-time"
"""Histories of builds that ended it, and forgot the hold, go on as they began."""
HELD_WITHOUT_ITS_NODE = "a-preservation-that-a-person-holds-ends-by-no-end-of-its-node"
"""Histories of builds that ended it with its Node, and forgot the hold, go on as they began."""


class PreservationStory:
    def __init__(self, request: PreservationInput, episode: Episode) -> None:
        self._request = request
        self.episode = episode
        if episode.state.preservation is None:
            wish = Wish(keep=request.keep, automatic=request.automatic, duration=request.hold, isolate=request.isolate)
            episode.state.preservation = PreservationProgress(wish=wish, unhealthy=request.unhealthy, machine=request.machine)
            if request.held:  # the machine is kept, and no pod or path of it is touched before a person ends that (S44)
                hold = HoldEpisodeRequest(who=request.requester, reason=request.held, until=request.held_until)
                take_hold(episode, hold)
        self._progress = episode.state.preservation
        self._node_writer = NodeWriter(episode)
        self._adoption = Adoption(episode, self._node_writer)
        self._evidence = Evidence(episode, self._progress)
        self._apart = KeptMachineIsolation(
            episode,
            self._node_writer,
            self._progress.cutting_off,
            objection=self._why_look_again,
            look_again=self._why_not_isolate,
        )
        episode.may_leave = self._evidence.may_be_left

    # The story ------------------------------------------------------------------------------------------------------

    async def run(self) -> EpisodeResult:
        """From the first look to the end. Raises NewHistory where it goes on there, as what gives its machine up, too."""
        if self._progress.end is not None:
            return await self._end(self._progress.end.outcome, self._progress.end.message)
        self.episode.introduce(zone="", reason=self.episode.state.reason)
        while True:
            hold = await self._look()
            if hold.gone and not (hold.replaced or self._progress.node_uid or self._progress.machine_uid):
                return await close(self.episode, refusal(hold.gone, missing=True), None)
            if hold.gone:
                same_machine = hold.replaced and hold.machine_uid == self._progress.machine_uid
                if same_machine and self.episode.is_held and workflow.patched(HELD_WITHOUT_ITS_NODE):
                    await self.episode.wait_while_held()  # the next one would know of no hold (S44)
                    continue
                outcome = Outcome.REPLACED if hold.replaced else Outcome.RELEASED
                if hold.override:
                    self.episode.note("override", hold.override, hold.gone)
                return await self._end(outcome, hold.gone)
            self._evidence.begin(hold)
            await self._learn_our_name()
            if await self._adopt(hold):
                continue
            if hold.drain and not self._adopts:
                await self._drain()
                continue
            if not hold.preserved:
                if self._progress.wish.until is not None:
                    # Moved while we looked, and answered: what a person was told holds.
                    self._progress.wish = replace(self._progress.wish, keep=True)
                    continue
                if not hold.terminate or self._progress.machine is None or self.episode.state.abort_asked is not None:
                    if self.episode.is_held and not hold.well and workflow.patched(HELD_AT_ITS_END):
                        await self.episode.wait_while_held()  # a health check may have the machine, and the person has it in hand
                        continue
                    return await self._released(hold)
                if self.episode.longest_hold is not None:
                    await self.episode.wait_while_held()
                    continue
                await self._apart.find_adopted()
                await self.episode.publish_the_rest(last=False)
                if not self.has_pending_command:
                    self._hand_over(hold, self._progress.machine)
                said = self._progress.wish  # an extension that came while the rest was told was answered, and holds
                self._progress.wish = replace(said, keep=said.keep or said.until is not None)
                continue
            await self._show(hold)
            if not self._adopts and await self._apart.carry_out(hold):
                continue
            if self._interruption():
                continue
            await self._show(hold)
            await self._wait(hold)

    async def _look(self) -> Hold:
        """Ask what holds now and have it written. A look that fails is repeated for ever: nothing is lost meanwhile."""
        pause = LOOK_PAUSE
        while True:
            wish, abort = self._wishes(), self.episode.state.abort_asked
            request = HoldRequest(
                cluster=self.episode.state.cluster,
                node=self.episode.state.node if not self.episode.state.node.startswith("machine/") else "",
                machine=self._progress.machine,
                node_uid=self._progress.node_uid,
                machine_uid=self._progress.machine_uid,
                owner=self._progress.owner,
                wish=wish,
                drained=self._progress.drained,
                unhealthy=self._progress.unhealthy,
                isolation=self._progress.cutting_off.progress,
                incident=self.episode.state.incident,
                word=self._progress.released if wish.release else None,
                moved=self._progress.moved if wish.until is not None else None,
            )
            self._progress.interruption = ""
            try:
                hold: Hold = await self.episode.execute(
                    PreservationActivities.hold, request, options.cluster_write, "looks whether the machine is to be kept"
                )
            except ActivityError as error:
                self.episode.state.problem = error_message(error)
                self.episode.note("look", "failed", self.episode.state.problem)
                self.episode.enter(doing="can't look at the machine")
                await self.episode.rest(pause, "before the machine is looked at again")
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            self._granted(wish)
            if wish.until is not None and not (hold.preserved or hold.gone or wish.keep or wish.release):
                # What kept it had ended, and a person was told that it is kept until then: it is, by that word (S44).
                said = self._progress.wish
                self._progress.wish = replace(said, until=said.until or wish.until)
            if hold.refused and wish.release and not hold.released and self.episode.state.abort_asked is abort:
                self.episode.state.abort_asked = None
                self.episode.keep_word()
            self._take(hold)
            return hold

    async def _learn_our_name(self) -> None:
        """How the cluster Lease names us: a start with nothing but a node does not say, and no drain or deletion is licensed
        without (S38). Holding the machine needs no name, so that this is asked after the first look, and again later.
        """
        if self.episode.state.holder:
            return
        try:
            name = await options.execute(
                EpisodeActivities.name_deployment,
                NameRequest(cluster=self.episode.state.cluster),
                options.temporal_call(),
                "asks how the cluster Lease names us",
            )
        except ActivityError as error:
            self.episode.state.problem = f"our own name is not known: {error_message(error)}"
            return
        self.episode.state.holder = name.holder

    async def _adopt(self, hold: Hold) -> bool:
        """What a terminated episode has left on the Node. Where that can't be done now it is tried again after the next look
        while its mark is there, and the machine is neither drained nor cut off before. Whether the look is an old one by now."""
        episode = self.episode
        if not self._adopts and hold.left_by not in {"", episode.state.incident, self._progress.not_ours}:
            self._aim(hold)
            self._adoption.begin(hold.left_by)
        if not self._adopts:
            return False
        if not hold.left_by:
            episode.note("adopt", "nothing left", f"the Node does not carry the mark of incident {episode.state.adopted}")
            await self._adoption.settle()
            episode.state.taken_over = True
            return True
        self._aim(hold)
        try:
            await self._adoption.take_over()
        except Vetoed as interrupt:  # the episode that left it may be open, under another id
            self._progress.not_ours, episode.state.taken_over = episode.state.adopted, True
            episode.note("adopt", "left", interrupt.reason)
            return False
        except Interrupt as interrupt:
            self._progress.marked = True  # for all that is known: an answer may have been lost
            episode.state.problem = f"what incident {episode.state.adopted} has left is not adopted yet: {interrupt.reason}"
            episode.note("adopt", "failed", interrupt.reason)
            return False
        self._progress.marked = True
        await self._adoption.settle()
        return True

    @property
    def _adopts(self) -> bool:
        """Whether what a terminated episode has left is still to be adopted."""
        return not self.episode.state.taken_over

    def _wishes(self) -> Wish:
        """What has been asked for and is not on the objects yet."""
        abort = self.episode.state.abort_asked
        if abort is not None and not self._progress.wish.release:
            self._progress.wish = replace(self._progress.wish, keep=False, release=str(abort))
            self._progress.released = abort.sealed
        return self._progress.wish

    def _granted(self, wish: Wish) -> None:
        """It is on the objects now; what was said meanwhile is not."""
        if self._progress.wish is wish:
            self._progress.wish = NO_WISH
        else:
            keep = self._progress.wish.keep and not wish.keep
            surplus = self._progress.wish.surplus and not wish.surplus
            isolate = self._progress.wish.isolate and not wish.isolate
            self._progress.wish = replace(
                self._progress.wish, keep=keep, automatic=False, surplus=surplus, duration=None, isolate=isolate
            )

    def _take(self, hold: Hold) -> None:
        self.episode.publisher.learn_of_stream(hold.streams)
        self._progress.hold, self.episode.state.problem = hold, self._progress.cutting_off.problem if hold.isolate else ""
        if not (hold.gone and hold.replaced):  # of another Node it says nothing (S44)
            self.episode.state.preserved_until = hold.expiry if hold.preserved else None
        self._progress.node_uid = self._progress.node_uid or hold.node_uid
        self._progress.machine_uid = self._progress.machine_uid or hold.machine_uid
        self._progress.machine = self._progress.machine or hold.machine
        self._progress.owner = hold.owner or self._progress.owner
        if hold.refused:  # by the worker that keeps it: it goes on as it was, and a person may say it again
            self.episode.note("release", "refused", hold.refused)
            self.episode.state.problem = hold.refused
        if hold.changed:
            self.episode.note(hold.phase or "look", "written", "; ".join(hold.changed))
        for warning in hold.warnings:
            if warning not in self._progress.warned:
                self.episode.note("request", "warning", warning)
        self._progress.warned = hold.warnings
        if not hold.phase.startswith("Failed"):
            self._progress.drained = None  # another failure has another drain
        if hold.rests or not hold.phase.startswith("Failed"):
            self._progress.drain_ends = None

    # While it is kept -----------------------------------------------------------------------------------------------

    async def _show(self, hold: Hold) -> None:
        """Say what holds; an Event where that is another thing than before."""
        failed = hold.phase.startswith("Failed")
        phase = Phase.FAILED_PRESERVED if failed else Phase.RUNNING_PRESERVED
        changed, self._progress.shown = self._progress.shown is not phase, phase
        self.episode.enter(phase=phase, doing=hold.reason, until=hold.expiry)
        self._aim(hold)
        if not failed and not self._apart.begun and self._is_marked:
            await self._unmark()
        if changed and hold.expiry is not None:
            self._node_writer.send_event(
                EventReason.MACHINE_PRESERVED, f"{hold.phase} until {written(hold.expiry)}: {hold.reason}"
            )

    async def _wait(self, hold: Hold) -> None:
        assert hold.expiry is not None
        remaining = hold.expiry - workflow.now()
        if self._adopts:  # and is not cut off before
            remaining = min(remaining, LONGEST_PAUSE)
        elif (again := self._apart.next_try(hold)) is not None:
            remaining = min(remaining, again - workflow.now())
        if hold.rests:
            remaining = min(remaining, MODE_AGAIN)
        await self.episode.rest(max(remaining, NOT_YET), f"{hold.phase} until {written(hold.expiry)}")

    def _interruption(self) -> str:
        """What has been said since the last look, "" where nothing was."""
        abort = self.episode.state.abort_asked
        return str(abort) if abort is not None else self._progress.interruption

    def _why_look_again(self) -> str:
        """Why what the last look said may not hold any more, "" while it does: nothing is done to the machine before another."""
        expiry = self._progress.hold.expiry if self._progress.hold is not None else None
        over = "its time is over" if expiry is not None and workflow.now() >= expiry else ""
        return self._interruption() or over

    async def _why_not_isolate(self) -> str:
        """Why a fresh look says that the machine is not to be cut off any more, "" where it is. The story looks anew then."""
        hold = await self._look()
        if not hold.isolate and not self._progress.interruption:
            self._progress.interruption = hold.reason or hold.gone or "it is not to be cut off"
        return self._why_look_again()

    async def _drain(self) -> None:
        """Rounds of evictions under our mark, until nothing is left that may be asked for. No pod is ever deleted (S30, S36)."""
        assert self._progress.hold is not None
        self._aim(self._progress.hold)
        self.episode.enter(doing="drains the node of a machine that has failed and is kept")
        self._progress.drain_ends = deadline = self._progress.drain_ends or workflow.now() + DRAIN_PATIENCE
        pause, evicted = DRAIN_PAUSE, 0
        problem = ""
        while self.episode.state.abort_asked is None and not self._progress.wish.release:
            result: DrainResult | None = None
            if self.episode.is_held:
                await self._rest_while_held()
                if await self._needless(evicted):
                    return
                continue
            try:
                if not self._progress.marked:
                    await self._node_writer.write(TargetActivities.mark, "marks the node; its pods are moved")
                    self._progress.marked = True
                    continue  # what was said meanwhile is heard first (S20)
                result = await self._round(deadline)
                problem = "; ".join((*result.errors, *result.blocked, *result.withheld))
            except Interrupt as interrupt:
                problem = interrupt.reason
            evicted += result.evicted if result is not None else 0
            if result is not None and (result.done or result.errors):
                break
            # All that may be asked for has been, and no kubelet is there that would carry it out: what is terminating on a silent
            # node is no evidence that it stopped (S31), and waiting changes nothing.
            silent = self._progress.hold is not None and not self._progress.hold.ready
            if result is not None and silent and not result.evicted and not result.blocked:
                problem = problem or f"they end only with their kubelet, which is silent: {', '.join(result.names)}"
                break
            if workflow.now() >= deadline:
                break
            self.episode.enter(doing=f"drains the node{f': {problem}' if problem else ''}", until=deadline)
            await self.episode.rest(pause, "before the next round of evictions")
            pause = min(pause * 2, DRAIN_PAUSE_MAXIMUM)
            if await self._needless(evicted):
                return
        else:
            self.episode.note("drain", "stopped", f"ended from elsewhere; {counted(evicted, 'pod')} evicted")
            return
        self._progress.drained = not problem
        left = f"; {problem}" if problem else ""
        self.episode.note("drain", "ok" if self._progress.drained else "incomplete", f"{counted(evicted, 'pod')} evicted{left}")
        if problem:
            what = "the machine is kept, powered, and its pods could not all be moved"
            self._node_writer.send_event(EventReason.PRESERVED_NOT_FENCED, f"{what}: {problem}")

    async def _rest_while_held(self) -> None:
        """Nothing is evicted meanwhile. The end of the hold stays exact, and every word about it is heard."""
        expiry = self._progress.hold.expiry if self._progress.hold is not None else None
        self.episode.enter(doing=self.episode.holds_line or "is held")
        remaining = max(expiry - workflow.now(), NOT_YET) if expiry is not None else None
        await self.episode.rest(remaining, "held by a person")

    async def _needless(self, evicted: int) -> bool:
        """Whether a fresh look says that nothing is to be drained any more, after so many pods."""
        hold = await self._look()
        if not hold.drain:
            self.episode.note("drain", "stopped", f"{hold.reason or hold.gone}; {counted(evicted, 'pod')} evicted")
        return not hold.drain

    async def _round(self, deadline: datetime) -> DrainResult:
        now = workflow.now()
        request = DrainRequest(
            target=self.episode.target,
            options=DRAIN,
            not_after=min(deadline, now + options.ACT_WINDOW) if deadline > now else now + options.ACT_WINDOW,
            holder=self.episode.state.holder,
            need=NEED,
        )
        with as_interrupt("the node can't be drained"):
            return await self.episode.execute(IsolationActivities.drain, request, options.consequence, "asks for evictions")

    def _aim(self, hold: Hold) -> None:
        """Set what marks, evictions and Events are about."""
        self.episode.state.pinned = Pinned(
            node=self.episode.state.node, uid=hold.node_uid, provider_id=hold.provider_id, zone=hold.zone
        )

    # Ends -----------------------------------------------------------------------------------------------------------

    async def _released(self, hold: Hold) -> EpisodeResult:
        outcome = Outcome.ABORTED if self.episode.state.abort_asked is not None else Outcome.RELEASED
        if hold.recovered:
            outcome = Outcome.RECOVERED
        return await self._end(outcome, hold.reason)

    async def _end(self, outcome: Outcome, message: str) -> EpisodeResult:
        hold, self._progress.end = self._progress.hold, End(outcome=outcome, message=message)
        self._evidence.end()
        if hold is not None and not hold.gone:
            message += await self._apart.find_adopted()
        elif self._progress.cutting_off.pin is None and (noted := self.episode.state.added.paths):
            message += f"; left cut: {', '.join(noted)}"  # by a predecessor, as the mark says that is ours by now
        if hold is not None and hold.well:
            message += await self._apart.give_back()
        else:
            message += self._apart.left
        if self._progress.cutting_off.marked or self._is_marked:
            await self._unmark()
        uid = (hold.node_uid or (self._progress.node_uid if hold.override else "")) if hold is not None else ""
        if hold is not None and uid:
            self._aim(replace(hold, node_uid=uid))
        node_writer = self._node_writer if uid else None
        end = End(outcome=outcome, message=message)
        return await close(self.episode, end, node_writer, about=EventReason.PRESERVATION_ENDED, leased=False)

    async def _unmark(self) -> None:
        hold = self._progress.hold
        assert hold is not None
        self._aim(replace(hold, node_uid=hold.node_uid or self._progress.node_uid))  # a Node may outlive its Machine
        await self._node_writer.remove_marks(UNMARK_PAUSE)
        self._progress.marked, self._progress.hold = False, replace(hold, left_by="")

    @property
    def _is_marked(self) -> bool:
        """Whether our mark stands, for all that is known: the answer to it may have been lost (S35)."""
        progress = self._progress
        found = progress.hold is not None and progress.hold.left_by == self.episode.state.incident
        return progress.marked or (found and not progress.cutting_off.marked and workflow.patched(FOUND_MARKED))

    def _hand_over(self, hold: Hold, machine: ObjectRef) -> NoReturn:
        """Failed and no longer kept: Remediation goes on under the same workflow id, which is never free in between. (A Node
        without a Machine has no owner that would replace it: it is let go as it is.)"""
        self._evidence.end()
        self.episode.note("hand-over", "begins", f"{hold.reason}{self._apart.left}")
        self.episode.state.kind, self.episode.state.reason = Kind.REMEDIATION, hold.reason
        self._progress.giving_up, self._progress.marked = GivingUpProgress(left=self._apart.left), self._is_marked
        raise NewHistory(
            RemediationHistory(
                cluster=self.episode.state.cluster,
                node=self.episode.state.node,
                machine=machine,
                machine_uid=self._progress.machine_uid,
                node_uid=self._progress.node_uid,
                reason=hold.reason,
                requester=self._request.requester,
                holder=self.episode.state.holder,
            )
        )

    # What is said to it ---------------------------------------------------------------------------------------------

    def take_update(self, update: PreservationUpdate) -> None:
        """The scanner saw that something is not as we left it."""
        self._progress.unhealthy = update.unhealthy
        self._progress.interruption = "something of it has changed"
        self._progress.wish = replace(self._progress.wish, surplus=bool(update.released))
        self.episode.wake()

    def take_release(self, request: PersonRequest) -> str:
        self._progress.interruption = f"released by {request.by}: {request.reason}"
        self._progress.wish = replace(self._progress.wish, keep=False, release=self._progress.interruption)
        self._progress.released = request.sealed
        self.episode.note("release", "asked", f"by {request.by}: {request.reason}", who=request.by)
        self.episode.wake()
        return f"{self.episode.state.node} is released"

    @property
    def ends(self) -> datetime | None:
        """When it ends as people were told last: an extension may not be written yet. None while it is not known."""
        return self._progress.wish.until or self.episode.state.preserved_until

    def why_not_extended(self, request: ExtendRequest) -> str:
        """Why no look would write that end, "" where one does: one before the end that stands on the objects, or that people were
        told, needs a word that says just that moment (S22)."""
        if request.shorten and request.until is not None:
            return ""
        if self._progress.hold is None:
            return "expected a preservation that was looked at, and it is not known yet until when this one is; say it again soon"
        until, ends = self.extended_to(request), max(filter(None, (self.ends, self.episode.state.preserved_until)), default=None)
        if ends is None or until >= ends:
            return ""
        return (
            f"expected a moment after {written(ends)}, when it ends unless another end is written, got {written(until)}; "
            "to end it earlier say so, with the moment (shorten, --until MOMENT --shorten)"
        )

    def extended_to(self, request: ExtendRequest) -> datetime:
        """When it ends then, in whole seconds: a duration is added to the end that it has, and so never shortens it."""
        until = request.until or (self.ends or workflow.now()) + (request.hold or timedelta(0))
        return until.replace(microsecond=0) + timedelta(seconds=1) if until.microsecond else until

    def take_extension(self, request: ExtendRequest) -> str:
        until = self.extended_to(request)
        self._progress.interruption = "its end has been moved"
        hold = self._progress.hold  # where nothing keeps it any more, or yet, what the person is told does (S44)
        keep = self._progress.wish.keep or hold is None or not hold.preserved
        self._progress.wish = replace(self._progress.wish, until=until, keep=keep)
        self._progress.moved = request.sealed
        self.episode.note("extend", "asked", f"by {request.by}, until {written(until)}: {request.reason}", who=request.by)
        self.episode.wake()
        return f"{self.episode.state.node} is preserved until {written(until)}"

    def take_isolation(self, request: PersonRequest) -> str:
        """A person wants it cut off once it has failed."""
        self._progress.interruption = f"to be isolated, says {request.by}"
        self._progress.wish = replace(self._progress.wish, isolate=True)
        self._apart.try_now()
        self.episode.note("isolate", "asked", f"by {request.by}: {request.reason}", who=request.by)
        self.episode.wake()
        return f"{self.episode.state.node} is cut off while it is kept as failed"

    @property
    def ending(self) -> str:
        """Why it ends whatever is said from now on, "" while it may go on: what was cut off may take days to be given back, and
        the next history, which gives the machine up, begins once every update has its answer."""
        abort, end = self.episode.state.abort_asked, self._progress.end
        if self.episode.state.kind is not Kind.PRESERVATION:
            return f"its machine is given up: {self.episode.state.reason}"
        if end is not None:
            return f"{end.outcome.value}: {end.message}"
        return self._progress.wish.release or (str(abort) if abort is not None else "")

    @property
    def has_pending_command(self) -> bool:
        """Whether a command was not carried out yet: nothing is handed over before that."""
        return self._progress.wish != NO_WISH or self.episode.state.abort_asked is not None or bool(self.episode.state.holds)


# Evidence of a machine that is kept, fetched once beside the story of its preservation: nothing waits for it or fails by it.
#
# First what the API says, because Events expire and conditions change; then each device at its site, one after the other; the
# manifest last. Its path and digest go into the record. What is fetched and how it is bounded is the activities'.

ACT = "evidence"
MISSING_SHOWN = 5


class Evidence:
    """Of one incident. What a predecessor in the same incident has begun is not begun again."""

    def __init__(self, episode: Episode, progress: PreservationProgress) -> None:
        self._episode = episode
        self._progress = progress
        self._fetching: asyncio.Task[None] | None = None
        self._awaited = False

    def may_be_left(self) -> bool:
        """Whether nothing is being fetched any more. The story is told once that is so, if it was not when it asked."""
        self._awaited = self._under_way
        return not self._awaited

    @property
    def _under_way(self) -> bool:
        return self._fetching is not None and not self._fetching.done()

    def begin(self, hold: Hold) -> None:
        """Begin to fetch it, unless that was done."""
        if self._progress.evidence or not hold.preserved:
            return
        self._progress.evidence = True
        self._fetching = asyncio.create_task(self._fetch(hold))
        self._fetching.add_done_callback(self._wake_episode)

    def end(self) -> None:
        """The preservation is over: what has not been fetched by now is not fetched any more."""
        if self._fetching is not None and self._under_way:
            self._fetching.cancel()
            self._fetching, self._awaited = None, False
            self._episode.note(ACT, "incomplete", "the preservation was over before all was fetched")

    def _wake_episode(self, _: asyncio.Task[None]) -> None:
        if self._awaited:
            self._episode.wake()

    async def _fetch(self, hold: Hold) -> None:
        bundle = BundleName(
            cluster=self._episode.state.cluster, node=self._episode.state.node, incident=self._episode.state.incident
        )
        began = workflow.now()
        try:
            collected = await self._collect(bundle, hold)
            files, missing, room = list(collected.files), list(collected.missing), collected.room
            for device in collected.devices:
                file = await self._read(bundle, device, room)
                if isinstance(file, EvidenceFile):
                    files.append(file)
                    room -= file.size
                else:
                    missing.append(file)
            sealed = await self._seal(bundle, began, files, missing)
        except ActivityError as error:
            if self._fetching is not None:
                unset = error_type(error) is ErrorType.NOT_SUPPORTED
                self._episode.note(ACT, "not kept" if unset else "failed", error_message(error))
            return
        if self._fetching is None:
            return  # its end has been noted
        kept = f"{sealed.path}: {sealed.files} files, {sealed.size} bytes; sha256 of the manifest {sealed.sha256}"
        self._episode.note(ACT, "kept", kept + _missing(sealed))

    async def _collect(self, bundle: BundleName, hold: Hold) -> Collected:
        node = "" if self._episode.state.node.startswith("machine/") else self._episode.state.node
        return await options.execute(
            EvidenceCollection.collect,
            CollectRequest(bundle=bundle, node=node, machine=hold.machine, node_uid=hold.node_uid, machine_uid=hold.machine_uid),
            options.evidence(options.cluster_queue(bundle.cluster)),
            "keeps what the API says of the machine",
        )

    async def _read(self, bundle: BundleName, device: PowerDevice, room: int) -> EvidenceFile | NotFetched:
        try:
            return await options.execute(
                DeviceEvidenceActivities.read_device,
                DeviceEvidenceRequest(bundle=bundle, device=device, room=room),
                options.evidence(options.power_queue(device.site)),
                f"keeps what {device.endpoint} has seen",
            )
        except ActivityError as error:
            if self._fetching is None:
                raise  # it was ended, and nothing more is to be asked
            return NotFetched(of=device.endpoint, why=error_message(error))

    async def _seal(self, bundle: BundleName, began: datetime, files: list[EvidenceFile], missing: list[NotFetched]) -> Sealed:
        return await options.execute(
            EvidenceCollection.seal,
            SealRequest(bundle=bundle, began=began, files=tuple(files), missing=tuple(missing)),
            options.evidence(options.cluster_queue(bundle.cluster)),
            "writes the manifest of the evidence",
        )


def _missing(sealed: Sealed) -> str:
    listed = [f"{each.of} ({each.why})" for each in sealed.missing[:MISSING_SHOWN]]
    more = f" and {len(sealed.missing) - MISSING_SHOWN} more" if len(sealed.missing) > MISSING_SHOWN else ""
    return f"; not fetched: {'; '.join(listed)}{more}" if listed else ""
