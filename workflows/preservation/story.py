"""Preservation: keep a machine as it is, for analysis, until its time is over, somebody releases it, or it is well again.

The story is `PreservationStory.run`. What holds is on the objects (annotations, expiry, condition) and is asked anew at every
turn by one activity that looks live and writes the difference; the workflow waits in between, with one timer and no watch:

    look --not failed--> Running:Preserved --fails--> drained --> Failed:Preserved, and cut off where that is asked for
    either --expiry, release, removal--> Running: released        Failed: handed over to Remediation under the same workflow id

People change the objects with kubectl, too; the scanner tells us when something is not as we left it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.episodes import EpisodeActivities, NameRequest
from activities.contracts.preservation import NO_WISH, Hold, HoldRequest, PreservationActivities, Wish
from activities.contracts.target import DrainRequest, DrainResult, IsolationActivities, Target, TargetActivities
from activities.errors import error_message
from policy.episode.drain import DrainOptions
from policy.episode.events import EventReason
from policy.episode.messages import (
    EpisodeResult,
    Kind,
    Outcome,
    Phase,
    Pinned,
    PreservationInput,
    PreservationNews,
    PreservationState,
    RemediationInput,
)
from policy.values.moments import written
from policy.values.object_refs import ObjectRef
from workflows.episode.adopting import Adoption
from workflows.episode.bookkeeping import UNMARK_PAUSE, Bookkeeping
from workflows.episode.episode import Episode
from workflows.kit import handing_over, options
from workflows.kit.interrupts import Interrupt, Vetoed, interrupt_for
from workflows.kit.messages import ExtendRequest, PersonRequest
from workflows.preservation.evidence import Evidence
from workflows.preservation.keeping_apart import KeepingApart

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


class PreservationStory:
    """One preservation of one machine."""

    def __init__(self, request: PreservationInput) -> None:
        state = request.state
        incident = request.incident or workflow.uuid4().hex[:12]
        self._request = request
        self.episode = Episode(
            kind=Kind.PRESERVATION, cluster=request.cluster, node=request.node, incident=incident, reason=request.reason
        )
        self.episode.holder = request.holder
        self.episode.requester = request.requester
        if state is not None:
            self.episode.started = state.started
            self.episode.record += state.record
            self.episode.learns_of(state.added)
        first = Wish(keep=request.keep, automatic=request.automatic, duration=request.hold, isolate=request.isolate)
        self._wish = first if state is None else NO_WISH
        self._spoken = ""
        """What has been said, or seen, since the last look."""
        self._unhealthy = request.unhealthy
        self._drained = state.drained if state is not None else None
        self._machine = request.machine
        self._node_uid = state.node_uid if state is not None else ""
        self._machine_uid = state.machine_uid if state is not None else ""
        self._shown: Phase | None = None
        self._owner = state.owner if state is not None else ""
        self._marked = state.marked if state is not None else False
        self._adoption: Adoption | None = None
        """Of what a terminated episode has left, while that is not adopted yet."""
        self._not_ours = ""
        """The incident whose marks are not ours to adopt."""
        self._hold: Hold | None = None
        self._warned: tuple[str, ...] = ()
        self._desk = Bookkeeping(self.episode)
        self._ending = ""
        self._evidence = Evidence(self.episode, state)
        isolated = state.isolated if state is not None else None
        self._apart = KeepingApart(self.episode, self._desk, isolated, objection=self._why_look_again)

    # The story ------------------------------------------------------------------------------------------------------

    async def run(self) -> EpisodeResult | RemediationInput | PreservationInput:
        """From the first look to the end, or to what goes on under the same workflow id."""
        self.episode.introduce(zone="", reason=self.episode.reason)
        while True:
            hold = await self._look()
            if hold.gone:
                outcome = Outcome.REPLACED if hold.replaced else Outcome.RELEASED
                if hold.override:
                    self.episode.note("override", hold.override, hold.gone)
                return await self._end(outcome, hold.gone)
            self._evidence.begin(hold)
            await self._learn_our_name()
            if await self._adopt(hold):
                continue
            if hold.drain and self._adoption is None:
                await self._drain()
                continue
            if not hold.preserved:
                if self._wish.until is not None:
                    # Moved while we looked, and answered: what a person was told holds.
                    self._wish = replace(self._wish, keep=True)
                    continue
                if not hold.terminate or self._machine is None or self.episode.abort_asked is not None:
                    return await self._released(hold)
                if self.episode.held is not None:
                    await self.episode.wait_while_held()
                    continue
                return self._handed_over(hold, self._machine)
            await self._show(hold)
            if self._adoption is None and await self._apart.carry_out(hold):
                continue
            if self._heard():
                continue
            await self._show(hold)
            if handing_over.roll_is_due() and self._adoption is None and not self.unheard and self._evidence.may_be_left():
                return self._rolled()
            await self._wait(hold)

    async def _look(self) -> Hold:
        """Ask what holds now and have it written. A look that fails is repeated for ever: nothing is lost meanwhile."""
        pause = LOOK_PAUSE
        while True:
            wish = self._wishes()
            request = HoldRequest(
                cluster=self.episode.cluster,
                node=self.episode.node if not self.episode.node.startswith("machine/") else "",
                machine=self._machine,
                node_uid=self._node_uid,
                machine_uid=self._machine_uid,
                owner=self._owner,
                wish=wish,
                drained=self._drained,
                unhealthy=self._unhealthy,
                isolation=self._apart.progress,
            )
            self._spoken = ""
            try:
                hold: Hold = await workflow.execute_activity_method(
                    PreservationActivities.hold,
                    request,
                    **(options.cluster_write(self.episode.cluster) | {"summary": "looks whether the machine is to be kept"}),
                )
            except ActivityError as error:
                self.episode.problem = error_message(error)
                self.episode.note("look", "failed", self.episode.problem)
                self.episode.enter(doing="can't look at the machine")
                await self.episode.rest(pause, "before the machine is looked at again")
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            self._granted(wish)
            self._take(hold)
            return hold

    async def _learn_our_name(self) -> None:
        """How the cluster Lease names us: whoever started us with nothing but a node did not say, and no drain or deletion is
        licensed without (S38). Holding the machine needs no name, so that this is asked after the first look, and again later.
        """
        if self.episode.holder:
            return
        try:
            name = await workflow.execute_activity_method(
                EpisodeActivities.name_deployment,
                NameRequest(cluster=self.episode.cluster),
                **(options.temporal_call() | {"summary": "asks how the cluster Lease names us"}),
            )
        except ActivityError as error:
            self.episode.problem = f"our own name is not known: {error_message(error)}"
            return
        self.episode.holder = name.holder

    async def _adopt(self, hold: Hold) -> bool:
        """What a terminated episode has left on the Node. Where that can't be done now it is tried again after the next look
        while its mark is there, and the machine is neither drained nor cut off before. Whether the look is an old one by now."""
        if self._adoption is None and hold.left_by not in {"", self.episode.incident, self._not_ours}:
            self._aim(hold)
            self._adoption = Adoption(self.episode, self._desk, hold.left_by)
        if self._adoption is None:
            return False
        if not hold.left_by:
            self.episode.note("adopt", "nothing left", f"the Node does not carry the mark of incident {self._adoption.incident}")
            await self._adoption.settle()
            self._adoption = None
            return True
        self._aim(hold)
        try:
            await self._adoption.take_over()
        except Vetoed as interrupt:  # whoever left it may be open, under another id
            self._not_ours, self._adoption = self._adoption.incident, None
            self.episode.note("adopt", "left", interrupt.reason)
            return False
        except Interrupt as interrupt:
            self._marked = True  # for all that is known: an answer may have been lost
            self.episode.problem = f"what incident {self._adoption.incident} has left is not adopted yet: {interrupt.reason}"
            self.episode.note("adopt", "failed", interrupt.reason)
            return False
        self._marked = True
        await self._adoption.settle()
        self._adoption = None
        return True

    def _wishes(self) -> Wish:
        """What has been asked for and is not on the objects yet."""
        abort = self.episode.abort_asked
        if abort is not None and not self._wish.release:
            self._wish = replace(self._wish, keep=False, release=f"aborted by {abort.who}: {abort.reason}")
        return self._wish

    def _granted(self, wish: Wish) -> None:
        """It is on the objects now; what was said meanwhile is not."""
        if self._wish is wish:
            self._wish = NO_WISH
        else:
            keep = self._wish.keep and not wish.keep
            surplus = self._wish.surplus and not wish.surplus
            isolate = self._wish.isolate and not wish.isolate
            self._wish = replace(self._wish, keep=keep, automatic=False, surplus=surplus, duration=None, isolate=isolate)

    def _take(self, hold: Hold) -> None:
        self._hold, self.episode.problem = hold, self._apart.problem if hold.isolate else ""
        self.episode.preserved_until = hold.expiry if hold.preserved else None
        self._node_uid = self._node_uid or hold.node_uid
        self._machine_uid = self._machine_uid or hold.machine_uid
        self._machine = self._machine or hold.machine
        self._owner = hold.owner or self._owner
        if hold.changed:
            self.episode.note(hold.phase or "look", "written", "; ".join(hold.changed))
        for warning in hold.warnings:
            if warning not in self._warned:
                self.episode.note("request", "warning", warning)
        self._warned = hold.warnings
        if not hold.phase.startswith("Failed"):
            self._drained = None  # another failure has another drain

    # While it is kept -----------------------------------------------------------------------------------------------

    async def _show(self, hold: Hold) -> None:
        """Say what holds; an Event where that is another thing than before."""
        failed = hold.phase.startswith("Failed")
        phase = Phase.FAILED_PRESERVED if failed else Phase.RUNNING_PRESERVED
        changed, self._shown = self._shown is not phase, phase
        self.episode.enter(phase=phase, doing=hold.reason, until=hold.expiry)
        self._aim(hold)
        if self._marked and not failed and self._apart.boot is None:
            await self._unmark()
        if changed and hold.expiry is not None:
            self._desk.tell(EventReason.MACHINE_PRESERVED, f"{hold.phase} until {written(hold.expiry)}: {hold.reason}")

    async def _wait(self, hold: Hold) -> None:
        assert hold.expiry is not None
        remaining = hold.expiry - workflow.now()
        if (again := self._apart.next_try(hold)) is not None:
            remaining = min(remaining, again - workflow.now())
        if self._adoption is not None:
            remaining = min(remaining, LONGEST_PAUSE)
        await self.episode.rest(max(remaining, NOT_YET), f"{hold.phase} until {written(hold.expiry)}")

    def _heard(self) -> str:
        """What has been said since the last look, "" where nothing was."""
        abort = self.episode.abort_asked
        return f"aborted by {abort.who}: {abort.reason}" if abort is not None else self._spoken

    def _why_look_again(self) -> str:
        """Why what the last look said may not hold any more, "" while it does: nothing is done to the machine before another."""
        expiry = self._hold.expiry if self._hold is not None else None
        over = "its time is over" if expiry is not None and workflow.now() >= expiry else ""
        return self._heard() or over

    async def _drain(self) -> None:
        """Rounds of evictions under our mark, until nothing is left that may be asked for. No pod is ever deleted (S30, S36)."""
        assert self._hold is not None
        self._aim(self._hold)
        self.episode.enter(doing="drains the node of a machine that has failed and is kept")
        deadline, pause, evicted = workflow.now() + DRAIN_PATIENCE, DRAIN_PAUSE, 0
        problem = ""
        while self.episode.abort_asked is None and not self._wish.release:
            result: DrainResult | None = None
            if self.episode.is_held:
                await self._rest_while_held()
                if await self._needless(evicted):
                    return
                continue
            try:
                if not self._marked:
                    await self._desk.write(TargetActivities.mark, "marks the node, whose pods are moved")
                    self._marked = True
                result = await self._round(deadline)
                problem = "; ".join((*result.errors, *result.blocked, *result.withheld))
            except Interrupt as interrupt:
                problem = interrupt.reason
            evicted += result.evicted if result is not None else 0
            if result is not None and (result.done or result.errors):
                break
            if result is not None and self._waits_for_nobody(result):
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
            self.episode.note("drain", "stopped", f"somebody has ended it; {evicted} pods evicted")
            return
        self._drained = not problem
        left = f"; {problem}" if problem else ""
        self.episode.note("drain", "ok" if self._drained else "incomplete", f"{evicted} pods evicted{left}")
        if problem:
            what = "the machine is kept, powered, and its pods could not all be moved"
            self._desk.tell(EventReason.PRESERVED_NOT_FENCED, f"{what}: {problem}")

    def _waits_for_nobody(self, result: DrainResult) -> bool:
        """Whether all that may be asked for has been, and nobody is there who would carry it out: what is terminating on a node
        that does not answer is no evidence that it stopped (S31), and waiting changes nothing."""
        silent = self._hold is not None and not self._hold.ready
        return silent and not result.evicted and not result.blocked

    async def _rest_while_held(self) -> None:
        """Nothing is evicted meanwhile. The end of the hold stays exact, and every word about it is heard."""
        held, expiry = self.episode.held, self._hold.expiry if self._hold is not None else None
        self.episode.enter(doing=f"held by {held.who}: {held.reason}" if held is not None else "is held")
        remaining = max(expiry - workflow.now(), NOT_YET) if expiry is not None else None
        await self.episode.rest(remaining, "held by a person")

    async def _needless(self, evicted: int) -> bool:
        """Whether a fresh look says that nothing is to be drained any more, after so many pods."""
        hold = await self._look()
        if not hold.drain:
            self.episode.note("drain", "stopped", f"{hold.reason or hold.gone}; {evicted} pods evicted")
        return not hold.drain

    async def _round(self, deadline: datetime) -> DrainResult:
        request = DrainRequest(
            target=self.episode.target,
            options=DRAIN,
            not_after=min(deadline, workflow.now() + options.ACT_WINDOW),
            holder=self.episode.holder,
        )
        try:
            return await workflow.execute_activity_method(
                IsolationActivities.drain,
                request,
                **(options.consequence(self.episode.cluster) | {"summary": "asks for evictions"}),
            )
        except ActivityError as error:
            raise interrupt_for(error, "the node can't be drained") from error

    def _aim(self, hold: Hold) -> None:
        """Whom marks, evictions and Events are about."""
        info = workflow.info()
        self.episode.target = Target(
            cluster=self.episode.cluster,
            pinned=Pinned(node=self.episode.node, uid=hold.node_uid, provider_id=hold.provider_id, zone=hold.zone),
            incident=self.episode.incident,
            kind=self.episode.kind.value,
            workflow_id=info.workflow_id,
            run_id=info.run_id,
        )

    # Ends -----------------------------------------------------------------------------------------------------------

    async def _released(self, hold: Hold) -> EpisodeResult:
        outcome = Outcome.ABORTED if self.episode.abort_asked is not None else Outcome.RELEASED
        if hold.recovered:
            outcome = Outcome.RECOVERED
        return await self._end(outcome, hold.reason)

    async def _end(self, outcome: Outcome, message: str) -> EpisodeResult:
        self._ending = f"{outcome.value}: {message}"
        self._evidence.end()
        if self._hold is not None and self._hold.well:
            message += await self._apart.give_back()
        else:
            message += self._apart.left
        if self._marked or self._apart.marked:
            await self._unmark()
        if self._hold is not None and (uid := self._hold.node_uid or (self._node_uid if self._hold.override else "")):
            self._aim(replace(self._hold, node_uid=uid))
            self._desk.tell(EventReason.PRESERVATION_ENDED, f"{outcome.value}: {message}")
        return self.episode.ended(outcome, message)

    async def _unmark(self) -> None:
        assert self._hold is not None
        self._aim(self._hold)
        await self._desk.remove_marks(UNMARK_PAUSE)
        self._marked = False

    def _handed_over(self, hold: Hold, machine: ObjectRef) -> RemediationInput:
        """Failed and no longer kept: Remediation goes on under the same workflow id, which is never free in between. (A Node
        without a Machine has nobody who would replace it: it is let go as it is.)"""
        self._evidence.end()
        self.episode.note("hand-over", "begins", f"{hold.reason}{self._apart.left}")
        return RemediationInput(
            cluster=self.episode.cluster,
            node=self.episode.node,
            machine=machine,
            machine_uid=self._machine_uid,
            node_uid=self._node_uid,
            reason=hold.reason,
            requester=self._request.requester,
            incident=self.episode.incident,
            holder=self.episode.holder,
            marked=self._marked or self._apart.marked,
            isolated=self._apart.boot,
            unhealthy=self._unhealthy,
            started=self.episode.started,
            record=tuple(self.episode.record),
        )

    def _rolled(self) -> PreservationInput:
        state = PreservationState(
            started=self.episode.started,
            record=tuple(self.episode.record),
            drained=self._drained,
            node_uid=self._node_uid,
            machine_uid=self._machine_uid,
            owner=self._owner,
            marked=self._marked or self._apart.marked,
            isolated=self._apart.boot,
            evidence=self._evidence.begun,
            added=self.episode.added,
        )
        return replace(
            self._request,
            incident=self.episode.incident,
            machine=self._machine,
            unhealthy=self._unhealthy,
            holder=self.episode.holder,
            state=state,
        )

    # What is said to it ---------------------------------------------------------------------------------------------

    def take_news(self, news: PreservationNews) -> None:
        """The scanner saw that something is not as we left it."""
        self._unhealthy = news.unhealthy
        self._spoken = "something of it has changed"
        self._wish = replace(self._wish, surplus=bool(news.released))
        self.episode.hear()

    def take_release(self, request: PersonRequest) -> str:
        """A person ends it now."""
        self._spoken = f"released by {request.who}: {request.reason}"
        self._wish = replace(self._wish, keep=False, release=self._spoken)
        self.episode.note("release", "asked", f"by {request.who}: {request.reason}")
        self.episode.hear()
        return f"{self.episode.node} is released"

    def take_extension(self, request: ExtendRequest) -> str:
        """A person moves its end."""
        until = request.until or workflow.now() + (request.hold or timedelta(0))
        if until.microsecond:
            until = until.replace(microsecond=0) + timedelta(seconds=1)
        self._spoken = "its end has been moved"
        self._wish = replace(self._wish, until=until)
        self.episode.note("extend", "asked", f"by {request.who}, until {written(until)}: {request.reason}")
        self.episode.hear()
        return f"{self.episode.node} is preserved until {written(until)}"

    def take_isolation(self, request: PersonRequest) -> str:
        """A person wants it cut off once it has failed."""
        self._spoken = f"to be isolated, says {request.who}"
        self._wish = replace(self._wish, isolate=True)
        self._apart.try_now()
        self.episode.note("isolate", "asked", f"by {request.who}: {request.reason}")
        self.episode.hear()
        return f"{self.episode.node} is cut off while it is kept as failed"

    @property
    def ending(self) -> str:
        """Why it ends whatever is said from now on, "" while it may go on: what was cut off may take days to be given back."""
        abort = self.episode.abort_asked
        return self._ending or self._wish.release or (f"aborted by {abort.who}: {abort.reason}" if abort is not None else "")

    @property
    def unheard(self) -> bool:
        """Whether somebody has said what was not carried out yet: nothing is handed over before that."""
        return self._wish != NO_WISH or self.episode.abort_asked is not None or self.episode.held is not None
