"""Looking before acting: the live last look (S20), and the milder looks of waiting and restoring.

What is looked at is `activities/cluster/live/last_look.py`; here the answer becomes what interrupts the story.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.target import (
    ActResult,
    Configured,
    LicenceWanted,
    LookRequest,
    LookResult,
    LookVerdict,
    PinRequest,
    Publication,
    TargetActivities,
    Workload,
)
from activities.errors import error_message
from policy.episode.gate import DESTRUCTIVE, MAY_NOT_ACT, Operation
from policy.episode.messages import FencingInput, Need, NeedKind
from policy.fence.plan import FencingPlan
from policy.fence.power import PowerAct
from policy.remediation.ladder import DEFAULT_TIMEOUT, lease_duration
from workflows.episode.episode import Episode
from workflows.episode.permit import give_back_permit, obtain_permit, permit_request
from workflows.episode.state import FencingProgress, Undertaking
from workflows.kit import options
from workflows.kit.interrupts import (
    AbortAsked,
    Interrupt,
    LicenceMissing,
    MachineGone,
    NeedGone,
    NonRetryable,
    OffenderFound,
    TargetChanged,
    TooSlow,
    Unlicensed,
    Vetoed,
    as_interrupt,
)

LICENCE_PATIENCE = Unlicensed.patience
"""How long a last look may say "not licensed" (no Lease, no permit, no live view) before a person is asked."""

SLOW_LOOKS = 3
"""So many in a row that are answered too late to act upon, and it is told, and waited, before there is another one."""

GONE_MEANWHILE = "what-ends-the-need-while-a-look-is-taken-is-heard"
HEARD_AFTER_RESET = "what-is-said-while-a-reset-is-waited-out-is-heard-before-the-look"
"""Histories of builds that heard of either with the next look go on as they began."""
WAITS_TAKE_NO_TIME = "what-a-fencing-waits-for-before-it-may-act-is-not-the-time-of-its-step"
"""Histories of builds in which a pause or the queue used that up go on as they began."""
ALSO_OF_FORMER = "nor-is-that-time-the-look-s-where-another-history-goes-on"
"""Histories of builds in which it was go on as they began."""

ALSO_A_HOLD = "nor-is-the-time-of-a-hold"
PERMIT, MODE, HOLD, STANDSTILL = "the permit", "the mode", "a hold", "standstill"
MODE_AGAIN = timedelta(hours=1)
"""An episode that rests because of its mode is told by the scanner when that changes; it also looks by itself, this seldom."""
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=2), timedelta(minutes=1)
SEALED_AGAIN_AFTER = timedelta(hours=1)
CLEAN_UP_LOOKS = 5
CLEAN_UP_PAUSE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Licence:
    """What a look that says go licenses: an act that begins by `until`. signed: for the power act that was named, as the cluster
    worker has signed it (S42). endpoints: the devices that are configured for the node now; None: that is not known."""

    until: datetime
    signed: str = ""
    endpoints: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenDown:
    """Whether the need is provably gone, and what stands against the node. until: what follows from it begins by then (S45)."""

    need_gone: bool
    workload: Workload | None
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAndWrite:
    """One activity that looks and, where all says go, writes. what: it is about, in people's words."""

    carry_out: Callable[[LookRequest], Awaitable[LookResult]]
    what: str


class LooksFirst(Protocol):
    """What an act answers that looks before it writes."""

    @property
    def look(self) -> LookResult | None:
        """What was seen; one that does not say go has kept the act from being begun."""


Seeing = TypeVar("Seeing", bound=LooksFirst)


class Preflight:
    """An episode's eyes on its target."""

    def __init__(
        self,
        episode: Episode,
        need: Need,
        *,
        gone: Callable[[], str] = str,
        fencing: FencingProgress | None = None,
        configured: Configured | None = None,
        plan: FencingPlan | None = None,
        idle: Callable[[], bool] = lambda: False,
        may_rest: Callable[[], bool] = lambda: False,
    ) -> None:
        """gone: why the need is gone, for all that the episode itself knows; "" while it stands. fencing: its deadline is
        kept. configured: see LookRequest. plan: its devices are kept sealed. idle: whether nothing has been done for which the
        permit would have to be kept: an episode that is held then gives it back, and asks anew. may_rest: whether nothing is half
        done, so that it may rest for as long as its mode allows no more."""
        self._episode = episode
        self.need = need
        self._gone = gone
        self._configured = configured
        self._fencing = fencing
        self._plan = plan
        self._idle = idle
        self._may_rest = may_rest
        self.gone_for_good = ""
        """Why the machine is not to be switched on any more, as the latest `refresh` has seen; "" where it is."""

    @property
    def deadline(self) -> datetime | None:
        """From then on nothing more is begun; None: there is none."""
        return self._fencing.deadline if self._fencing is not None else None

    @property
    def is_over(self) -> bool:
        """Whether the need is gone, for all that the episode itself knows."""
        return bool(self._gone())

    @property
    def need_seen(self) -> Need:
        """The need, as activities look at it: without what is for people."""
        return replace(self.need, command=self._episode.state.wish, reason="", requester="")

    def in_time(self, duration: timedelta) -> timedelta:
        """As long a wait as there is time for: where that ends, there is something else to do."""
        if self.deadline is None:
            return duration
        return min(duration, max(self.deadline - workflow.now(), timedelta(0)) + timedelta(milliseconds=100))

    async def may_go_on(self) -> None:
        """Before off an abort wins at any moment, and a hold stops us before the next act. A permit that was given back meanwhile
        is asked for again; the next look asks where that was refused, or another history has given it back."""
        given_back = False
        while True:
            if (abort := self._episode.state.abort_asked) is not None:
                raise AbortAsked(str(abort))
            if gone := self._gone():
                raise NeedGone(gone)
            self._give_time_back()
            if self.deadline is not None and workflow.now() > self.deadline:
                raise NonRetryable("its time is over")
            if (held := self._episode.longest_hold) is None:
                if not given_back:
                    return
                given_back = False
                if workflow.patched(WAITS_TAKE_NO_TIME):
                    self._take_no_time()
                await self._obtain_permit()
                continue  # what was said meanwhile is heard first (S20)
            self._episode.enter(doing=self._episode.holds_line, until=held.until)
            self._take_no_time()
            if self._idle():
                self._episode.state.asks_anew = False
            if self._episode.state.permit and self._idle():
                given_back = True
                await give_back_permit(self._episode, held=True)
            await self._episode.rest(None, "held by a person")

    def _take_no_time(self) -> None:
        """What is waited for from here on, a hold, a mode, a permit under a pause, takes no time of the step: nothing can be done
        meanwhile, and the next step may be the deletion of the machine. Until the next look is due, also in a later history."""
        if self._fencing is not None and self._fencing.held_since is None:
            self._fencing.held_since = workflow.now()

    def _give_time_back(self) -> None:
        if (fencing := self._fencing) is None or fencing.held_since is None:
            return
        if fencing.deadline is not None:
            fencing.deadline += workflow.now() - fencing.held_since
        fencing.held_since = None

    async def before_destruction(
        self, licenses: PowerAct | None = None, operation: Operation = Operation.DISRUPT, *, leased: bool = False
    ) -> Licence:
        """The last look: returns only when everything says go; else raises the interrupt. An unlicensed act is waited with.

        Nothing that may take long comes between it and the act: it is the caller's last await before that one. Answers until when
        the act may begin, counted from before the look: all of us may stand still in between (S20, S45).
        licenses: the power act that comes next. leased: the node's lease is taken for the step in hand.
        """
        with self._episode.undertaking("the last look") as under:
            return await self._look_until_go(under, operation, licenses=licenses, leased=leased)

    async def licensed(
        self,
        act: Callable[[LookRequest], Awaitable[Seeing]],
        what: str,
        operation: Operation = Operation.DISRUPT,
        *,
        leased: bool = False,
    ) -> Seeing:
        """The last look and, where all says go, a write of our own moments after it: one activity, which `act` has carried out.
        what: it is about, in people's words. leased: see `before_destruction`. Raises the interrupt."""
        done: list[Seeing] = []

        async def carry_out(request: LookRequest) -> LookResult:
            done[:] = [await act(request)]
            return seen_with(done[0])

        with self._episode.undertaking("the last look") as under:
            write = LookAndWrite(carry_out=carry_out, what=what)
            await self._look_until_go(under, operation, leased=leased, write=write)
        return done[0]

    async def _look_until_go(
        self,
        under: Undertaking,
        operation: Operation = Operation.DISRUPT,
        *,
        licenses: PowerAct | None = None,
        leased: bool = False,
        write: LookAndWrite | None = None,
    ) -> Licence:
        self._end_former_waits(under)
        while True:
            if self._episode.was_reset and workflow.patched(HEARD_AFTER_RESET):
                await self._episode.outlive_reset()  # what is said meanwhile is heard: a look that writes has nothing after it
            under.begin_wait(HOLD, began := workflow.now())
            await self.may_go_on()
            under.end_wait(workflow.now())
            if workflow.now() > began:
                self._episode.new_standstill(under)  # within that time
            until = workflow.now() + options.ACT_WINDOW
            wanted = LicenceWanted(act=licenses, not_after=until) if licenses is not None else None
            result = await self._look(operation, leased=leased, write=write, licenses=wanted)
            until += result.queued
            licence = Licence(until=until, signed=result.licence, endpoints=result.endpoints)
            self._episode.note(
                "last-look", result.verdict.value, result.reason, rule=MODE if result.held_by_mode else "", version=result.version
            )
            under.waited[STANDSTILL] = under.waited.get(STANDSTILL, timedelta(0)) + self._episode.new_standstill(under)
            waited = sum((under.waited.get(each, timedelta(0)) for each in (PERMIT, MODE, STANDSTILL)), timedelta(0))
            if (held := under.waited.get(HOLD)) and workflow.patched(ALSO_A_HOLD):
                waited += held
            patience_is_over = workflow.now() - under.began - waited >= LICENCE_PATIENCE
            match result.verdict:
                case LookVerdict.GO if write is not None:
                    return licence  # and the write is done
                case LookVerdict.GO:
                    interrupted = self._episode.state.abort_asked is not None or self._episode.longest_hold is not None
                    interrupted = interrupted or (bool(self._gone()) and workflow.patched(GONE_MEANWHILE))
                    if not interrupted and workflow.now() < until:
                        return licence
                    # Else what was seen is old by now: a person spoke while we looked, or the answer took long.
                    if not interrupted and patience_is_over:
                        raise NonRetryable("no look was answered in time to act upon it")
                case LookVerdict.NEED_GONE:
                    raise NeedGone(result.reason)
                case LookVerdict.VETOED:
                    self._episode.state.vetoed_until = result.until
                    raise Vetoed(result.reason)
                case LookVerdict.TARGET_CHANGED:
                    raise TargetChanged(result.reason)
                case LookVerdict.NOT_LICENSED if result.held_by_mode:
                    await self._rest_in_mode(under, result.reason)
                case LookVerdict.NOT_LICENSED:
                    if patience_is_over:
                        raise LicenceMissing(f"not licensed to act: {result.reason}")
                    if workflow.patched(WAITS_TAKE_NO_TIME):
                        self._take_no_time()
                    if not result.permitted:
                        await self._ask_for_permit(under)
                    self._episode.enter(doing=f"{MAY_NOT_ACT}: {result.reason}")
                    await self._episode.rest(under.next_pause(FIRST_PAUSE, LONGEST_PAUSE), "until the licence is looked at again")

    async def _rest_in_mode(self, look: Undertaking, reason: str) -> None:
        """The mode allows no more: without a permit, until the node is well or the mode is raised (S52). What was begun is not
        left half done: there a person is asked. The time is none of the look's, nor of the step's."""
        episode, fencing, takes_none = self._episode, self._fencing, workflow.patched(WAITS_TAKE_NO_TIME)
        if not self._may_rest():
            raise LicenceMissing(f"what was begun may not be finished: {reason}")
        if episode.repairs.keeps:
            raise OffenderFound(f"{episode.repairs.question}; {reason}")  # when it is well it would be given back
        with episode.undertaking(MODE) as resting:
            episode.enter(doing=f"{MAY_NOT_ACT}: {reason}")
            episode.state.asks_anew = False
            if episode.state.permit:
                await give_back_permit(episode, held=True)
            began = workflow.now()
            if takes_none:
                self._take_no_time()
            await episode.rest(MODE_AGAIN, "until its mode is raised, or the node is well")
            await self.before_others_act()
            if fencing is not None and fencing.deadline is not None and not takes_none:
                fencing.deadline += workflow.now() - began
            self._episode.new_standstill(look)  # within that time
            look.waited[MODE] = look.waited.get(MODE, timedelta(0)) + workflow.now() - resting.began

    def _end_former_waits(self, look: Undertaking) -> None:
        """What an earlier history was left in, waiting for a mode or a permit, is none of the look's time either."""
        for each in (MODE, PERMIT):
            if each in look.within and workflow.patched(ALSO_OF_FORMER):
                look.waited[each] = look.waited.get(each, timedelta(0)) + workflow.now() - look.within.pop(each).began
                self._episode.new_standstill(look)  # within that time

    async def _ask_for_permit(self, look: Undertaking) -> None:
        """The scanner knows of no permit of ours: what we were told of one does not count (S14, S20). The time that it takes,
        which may be long where it is queued for, is none of the look's. One that was given back, and is refused since, is none
        that a scanner has forgotten."""
        state = self._episode.state
        state.permit, state.asks_anew = False, state.permit or state.asks_anew
        with self._episode.undertaking(PERMIT) as asking:
            await self._obtain_permit()
            self._episode.new_standstill(look)  # within that time
            look.waited[PERMIT] = look.waited.get(PERMIT, timedelta(0)) + workflow.now() - asking.began

    async def _obtain_permit(self) -> None:
        """Wait for it where it is queued for; a refusal is the next look's to deal with."""

        def why_not_wait() -> str:
            waits = self._fencing is not None and self._fencing.held_since is not None
            late = self.deadline is not None and workflow.now() > self.deadline and not waits
            seen = self._episode.state.last_seen
            # The way back needs no permit; a person's need does not pass with the node's return.
            passed = seen is not None and (not seen.present or (seen.ready and not seen.unhealthy))
            passed = passed and self.need.kind is not NeedKind.PERSON
            return self._gone() or ("its time is over" if late else "the node may need it no more" if passed else "")

        request, phase = permit_request(self._episode, self.need), self._episode.state.phase
        await obtain_permit(self._episode, request, phase=phase, gone=why_not_wait)

    async def before_restoring(self, licenses: PowerAct, write: LookAndWrite | None = None) -> Licence:
        """Same machine? Only what identifies the device counts: a vanished Node object strands no machine that is off (S9).

        Who preserves, holds or services a machine that is off wants it off, and who has taken the node over may have switched it
        off: it stays so until a person resumes (S21, S38). What can't be seen is looked at again. Answers until when the act may
        begin, as `before_destruction` does. Raises TooSlow where looks take longer than that. write: of `before_power_on`.
        """
        on = write is not None
        for _ in range(SLOW_LOOKS):
            until = workflow.now() + options.ACT_WINDOW
            wanted = LicenceWanted(act=licenses, not_after=until)
            result = await self._look(Operation.GIVE_BACK, devices=on, leased=on, write=write, licenses=wanted)
            until += result.queued
            if result.verdict is LookVerdict.TARGET_CHANGED:
                raise TargetChanged(result.reason)
            if result.verdict is LookVerdict.NEED_GONE:
                raise MachineGone(result.reason)
            if result.verdict is LookVerdict.VETOED:
                raise NonRetryable(f"the machine is left off: {result.reason}")
            if result.verdict is not LookVerdict.GO:
                unseen = f"whether the machine is to be left off can't be read: {result.reason}"
                self._episode.note("last-look", result.verdict.value, unseen, version=result.version)
                raise Unlicensed(unseen)
            if workflow.now() < until:
                return Licence(until=until, signed=result.licence, endpoints=result.endpoints)
        raise TooSlow("no look was answered in time to act upon it")

    async def before_power_on(self, untaint: Callable[[LookRequest], Awaitable[ActResult]]) -> Licence:
        """The same, the node's lease being taken, and which devices are configured now: one that is not may feed another machine
        (S9). untaint: has the look carried out by the activity that takes our out-of-service taint off before (S32)."""

        async def carry_out(request: LookRequest) -> LookResult:
            return seen_with(await untaint(request))

        write = LookAndWrite(carry_out=carry_out, what="the out-of-service taint can't be removed")
        return await self.before_restoring(PowerAct.ON, write)

    async def before_others_act(self) -> None:
        """What other controllers were asked for, and have not begun, ends with the need, and with a veto. That the node can't be
        looked at, or that the check's time runs anew, is neither."""
        try:
            result = await self._look(Operation.WAIT)
        except Interrupt as interrupt:
            self._episode.note("look", "failed", interrupt.reason)
            return
        if result.verdict is LookVerdict.NEED_GONE:
            raise NeedGone(result.reason)
        if result.verdict is LookVerdict.VETOED and not result.seen.soon:
            raise Vetoed(result.reason)

    async def need_is_gone(self) -> bool:
        """Whether the need is provably gone. Not being able to look is not being gone."""
        try:
            result = await self._look(Operation.WAIT)
        except Interrupt as interrupt:
            self._episode.note("look", "failed", interrupt.reason)
            return False
        return result.verdict is LookVerdict.NEED_GONE

    async def before_freeing(self, *, once: bool = False) -> SeenDown | None:
        """What is seen before what ran on the machine is freed. None: that says nothing yet, since the node is seen up, or could
        not be looked at. once: the latter is raised.

        Raises TargetChanged where it is another machine by now, or where another device is configured for it: what the pinned one
        says is no proof then (S9); Unlicensed where that can't be seen.
        """
        until = workflow.now() + options.ACT_WINDOW
        try:
            result = await self._look(Operation.WAIT, counts=True)
        except Interrupt as interrupt:
            if once:
                raise
            self._episode.note("look", "failed", interrupt.reason)
            return None
        if result.seen.present and result.seen.ready:
            return None
        if result.verdict is LookVerdict.TARGET_CHANGED:
            raise TargetChanged(result.reason)
        if result.verdict is LookVerdict.NOT_LICENSED:
            raise Unlicensed(f"it can't be seen which machine's power state was read: {result.reason}")
        gone = result.verdict is LookVerdict.NEED_GONE
        return SeenDown(need_gone=gone, workload=result.workload, until=until + result.queued)

    async def refresh(self) -> bool:
        """See the node as it is now. False: it could not be read, and what is known of it is hearsay."""
        try:
            result = await self._look(Operation.GIVE_BACK)
        except Interrupt as interrupt:
            self._episode.note("look", "failed", interrupt.reason)
            return False
        self.gone_for_good = result.reason if result.verdict is LookVerdict.NEED_GONE else ""
        return True

    async def keep_sealed(self) -> None:
        """A seal ends (S49): devices that are configured as they were pinned get another one, whatever was waited for. What could
        not be sealed is tried again after a while."""
        episode, now = self._episode, workflow.now()
        waits = episode.state.seals_tried is not None and now < episode.state.seals_tried + SEALED_AGAIN_AFTER
        if self._plan is None or waits or not self._plan.sealed_anew(episode.state.sealed_devices).is_to_be_sealed_anew(now):
            return
        episode.state.seals_tried = now
        wanted = FencingInput(
            cluster=episode.state.cluster,
            node=episode.state.node,
            incident=episode.state.incident,
            need=self.need,
            template=self._configured.template if self._configured is not None else None,
        )
        summary = f"{episode.state.step}: has the devices sealed anew"
        try:
            pin = await episode.execute(TargetActivities.pin, PinRequest(wanted=wanted), options.cluster_read, summary)
        except ActivityError as error:
            episode.note("seal", "failed", error_message(error))
        else:
            episode.seal_anew(pin.plan)

    async def why_not_clean_up(self) -> str:
        """Whether marks without an owner are mere left-overs, as a look at the node tells; "" where they are."""
        with self._episode.undertaking("a look before the clean-up") as under:
            while True:
                try:
                    result = await self._look(Operation.WAIT)
                except Interrupt as interrupt:
                    reason = interrupt.reason
                else:
                    if result.verdict is LookVerdict.GO:
                        return ""
                    reason = result.reason
                    if result.verdict is not LookVerdict.NOT_LICENSED:
                        return reason
                under.failures += 1
                if under.failures == CLEAN_UP_LOOKS:
                    return reason
                await self._episode.rest(CLEAN_UP_PAUSE, "until the node can be looked at")

    async def _look(
        self,
        operation: Operation,
        *,
        counts: bool = False,
        devices: bool = False,
        leased: bool = False,
        write: LookAndWrite | None = None,
        licenses: LicenceWanted | None = None,
    ) -> LookResult:
        await self.keep_sealed()
        # For as long as the step in hand has left, and not for less than one without a time-out.
        ends = self._episode.state.rung_until
        lease = lease_duration(max(ends - workflow.now(), DEFAULT_TIMEOUT) if ends is not None else None)
        request = LookRequest(
            target=self._episode.target,
            need=self.need_seen,
            holder=self._episode.state.holder,
            operation=operation,
            configured=self._configured if operation in DESTRUCTIVE or counts or devices else None,
            lease=lease if leased else None,
            not_after=workflow.now() + options.WRITE_WINDOW if leased else None,
            counts=counts,
            licenses=licenses,
        )

        async def look(publication: Publication | None) -> LookResult:
            publishing = replace(request, publication=publication)
            if write is not None:
                return await write.carry_out(publishing)
            summary = f"{self._episode.state.step}: looks at the node"
            return await self._episode.execute(TargetActivities.last_look, publishing, options.cluster_read, summary)

        with as_interrupt(write.what if write is not None else "the node can't be looked at"):
            return await self._episode.look(lambda: self._episode.publisher.publish_with(look))


def seen_with(result: LooksFirst) -> LookResult:
    """What an act has seen that looks before it writes."""
    if result.look is None:
        raise RuntimeError(f"expected an act that looks first, got {result}")
    return result.look
