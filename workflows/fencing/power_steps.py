"""The step power-management, act by act: off and proven, workloads freed, given up or on again, seen to come back.

In which order, and what follows, is the story's (`workflows/fencing/story.py`). How off is commanded and proven is
`workflows/fencing/power_sequence.py`, what a consequence is `workflows/fencing/consequences.py`. A crash dump is waited for
before (`CrashDump`), and how often it is tried is `workflows/episode/tries.py`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.evidence import EvidenceActivities, KdumpRequest
from activities.errors import error_message
from policy.episode.events import EventReason
from policy.episode.fencing_requests import Stage
from policy.episode.messages import OffProof, Phase
from policy.episode.proofs import freeing_choice
from policy.fence.config import FenceStep
from policy.fence.kdump import STILL_DEAD, KdumpReading, KdumpRule, KernelDead, kdump_wait, kernel_dead
from policy.fence.plan import Freeing
from policy.fence.power import PowerAct
from policy.values.times import format_duration
from workflows.episode.preflight import Licence, SeenDown
from workflows.fencing.case import Case
from workflows.kit import options
from workflows.kit.interrupts import AbortAsked, Interrupt, MachineGone, NeedGone, NonRetryable, StepFailed, Vetoed

LOOK_AGAIN = timedelta(seconds=20)
"""While waiting for a node: a live look this often, in case no scanner tells us of the change."""
SEEN_DOWN_AGAIN = timedelta(seconds=5)


class PowerManagement:
    """What is done about the power of one node. Each act is one try; how often it is tried is the plan's."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._episode = case.episode
        self._plan = case.plan
        self._power = case.power
        self._freeing = case.freeing
        self._preflight = case.preflight
        self._node_writer = case.node_writer
        self._pinned_node = case.pinned_node
        self._progress = case.progress

    async def try_off(self) -> None:
        """Whatever an earlier try may have done is waited out and read before anything is sent."""
        if not await self._power.already_off() and not self.accept_acknowledgement():
            await self._power.switch_off(self._last_look_before_off)
            self._node_writer.send_event(EventReason.NODE_POWERED_OFF, "off is proven")
        self._node_writer.note_off(workflow.now())
        await self._case.answering.report(Stage.FENCED, "off is proven")

    async def try_free(self) -> None:
        """The consequences: none starts once the need is gone (S6), and none without the proof (S1)."""
        if self._progress.freeing.done:
            return
        seen = await self._seen_down()
        try:
            await self._consequences(seen)
        except Vetoed:
            # Another hand has taken our mark away, or the API has lost it with a backup that was restored.
            if not await self._node_writer.mark_again():
                raise
            await self._consequences(None)
        if self._progress.freeing.left_over:
            self._node_writer.send_event(EventReason.WORKLOADS_LEFT, self._progress.freeing.left_over)

    async def _consequences(self, seen: SeenDown | None) -> None:
        try:
            self._freeing.take_look(seen)
            await self._case.isolation.free_left_over(self._require_still_off)
            await self._freeing.free()
        except NeedGone as interrupt:
            self._freeing.drop(interrupt.reason)

    async def try_give_up(self) -> None:
        """There is no way back from this one: a last look with all that a destructive act needs (S20), and no abort since. It is
        done once it is read."""
        if await self._power.is_given_up():  # an earlier try's answer was lost, or its cloud is slow
            return
        await self._freeing.pause()  # its licence may be waited for, and the proof is not read meanwhile (S1, S6)
        await self._freeing.wait_while_held()
        self._heed_an_abort()
        await self._power.terminate(partial(self._preflight.before_destruction, PowerAct.TERMINATE))
        if not await self._power.is_given_up():
            raise StepFailed(f"whether the machine is given up is not known: {self._progress.power.given_up_read}")

    async def try_on(self) -> None:
        """Nothing of ours that frees pods may stand any more (S32), and the machine must still be the one that is off (S9)."""
        await self._freeing.wait_while_held()
        self._heed_an_abort()
        self._node_writer.note_off(None)
        await self._power.turn_on(self._last_look_before_on)

    async def switch_on(self) -> None:
        """On, as often as the plan tries. Where only some of its devices could be switched on, the node's return decides: a
        person is asked where none could be, and gets an Event about the others."""
        if self._progress.switched_on:
            return  # in this round of the flow, before a new history
        try:
            await self._case.tries.carry_out(FenceStep.POWER_MANAGEMENT, self.try_on, restores=True)
        except (StepFailed, NonRetryable, AbortAsked) as interrupt:
            if not self._progress.power.devices_on:
                raise
            self._node_writer.send_event(
                EventReason.PARTLY_SWITCHED_ON, f"the machine is on, but not all that feeds it: {interrupt.reason}"
            )
        finally:
            self._progress.power.commands_on = False
        self._progress.switched_on = True

    async def report_finished(self, message: str) -> None:
        """The system that asked is answered now, as it is used to; the node's return it sees itself."""
        await self._case.answering.report(Stage.FINISHED, f"{message}{self._freeing.left}")

    async def switch_on_again(self) -> str:
        """Why a machine that we touched can't be switched on; "" where it is on, or was never touched. Raises MachineGone."""
        if self._case.touched:
            try:
                await self.switch_on()
            except MachineGone:
                raise
            except Interrupt as interrupt:
                return interrupt.reason
        return ""

    async def wait_for_return(self) -> None:
        """Until the node is Ready with a new boot id. A machine that is merely slow is a person's case, not fenced again."""
        with self._episode.undertaking("the node's return") as under:
            began = [moment for moment in (self._progress.power.powered_on_at, self._progress.resumed_at) if moment is not None]
            await self._until_it_is_back(max(began, default=under.began))

    async def _until_it_is_back(self, began: datetime) -> None:
        deadline = began + self._plan.boot_timeout
        if (step_ends := self._preflight.deadline) is not None:
            deadline = min(deadline, step_ends)
        self._episode.enter(phase=Phase.DONE, doing="waits for the node to come back Ready", until=deadline)
        on_since = self._progress.power.powered_on_at
        just_on = on_since is not None and workflow.now() < on_since + LOOK_AGAIN  # whatever was seen is from before
        while just_on or not (await self._preflight.refresh() and self._pinned_node.is_back()):
            if not just_on and self._preflight.gone_for_good:
                raise MachineGone(self._preflight.gone_for_good)
            if not just_on and not self._plan.levels and await self._preflight.need_is_gone():
                raise NeedGone("the node is well again without a restart")
            remaining = deadline - workflow.now()
            if remaining <= timedelta(0):
                gone = "; its Node is gone" if self._pinned_node.is_gone() else ""
                if deadline == step_ends:
                    raise NonRetryable(f"its time is over, and the node is not back Ready with a new boot id{gone}")
                since = "power-on" if self._plan.levels else "its paths were cut"
                waited = format_duration(self._plan.boot_timeout)
                raise NonRetryable(f"the node is not back Ready with a new boot id {waited} after {since}{gone}")
            await self._episode.rest(min(LOOK_AGAIN, remaining), "the node's return")
            just_on = False

    async def was_switched_off(self) -> bool:
        """Whether an off of an earlier round of the flow turns out to be proven: then only the rest is to be done (S5)."""
        return self._power.off_commanded_at is not None and await self._power.already_off()

    async def is_off_after_all(self) -> bool:
        """Whether the machine is proven off when an abort comes. Not being able to say is no proof."""
        try:
            return self._power.proof is not None or await self._power.already_off()
        except Interrupt as interrupt:
            self._episode.note("abort", "power state unknown", interrupt.reason)
            return False

    def accept_acknowledgement(self) -> bool:
        """Let a person's word stand for the proof (S8), where it lacks one; once taken it is used up."""
        acknowledgement = self._episode.state.acknowledgement
        if acknowledgement is None or not self._case.lacks_proof:
            return False
        self._power.accept(OffProof(commanded_at=None, acknowledgement=acknowledgement))
        self._episode.state.acknowledgement = None
        self._episode.note("off-proven", "acknowledged", f"by {acknowledgement.by}: {acknowledgement.why}")
        return True

    async def _last_look_before_off(self) -> Licence:
        licence = await self._preflight.before_destruction(PowerAct.OFF, leased=True)
        self._pinned_node.pin_boot()
        return licence

    async def _last_look_before_on(self) -> Licence:
        licence = await self._preflight.before_power_on(self._freeing.untaint)
        if self._progress.power.powered_on_at is None:
            self._pinned_node.remember_boot()
        self._heed_an_abort()
        return licence

    async def _seen_down(self) -> SeenDown:
        """Wait until the API server has noticed the power-off too: a node that goes on saying Ready is another machine than
        the one we switched off, and nothing of it is freed."""
        with self._episode.undertaking("sees the node down") as under:
            deadline = under.began + self._plan.free_timeout
            while (seen := await self._preflight.before_freeing()) is None:
                self._power.require_unrefuted()
                if workflow.now() >= deadline:
                    if not self._pinned_node.says_ready():
                        raise StepFailed("the node can't be looked at")
                    raise NonRetryable("the node still says Ready although its devices say off: is it the right machine?")
                self._episode.enter(doing="waits until the API server sees the node down", until=deadline)
                await self._episode.rest(SEEN_DOWN_AGAIN, "until the node is seen down")
        return seen

    async def _require_still_off(self) -> datetime:
        """Answers until when what needs the proof may begin."""
        await self._freeing.wait_while_held()
        self._heed_an_abort()
        _, until = await self._freeing.look_anew()
        return until

    def _heed_an_abort(self) -> None:
        """An abort that came while we waited or tried: after off it means that the machine is left as it is (S35)."""
        abort = self._episode.state.abort_asked
        if abort is not None and self._case.leaves_off:
            raise AbortAsked(str(abort))


# A node that writes its crash dump: power-off waits for it, and where its messages are trusted its pods need not.
#
# `policy/fence/kdump.py` says how long, and what messages are worth; `activities/power/kdump_listener.py` receives them.

READ_AGAIN = timedelta(seconds=10)
"""fence_kdump speaks every 10 seconds."""


class CrashDump:
    """What one node's messages say of its crash dump."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._episode = case.episode
        self._progress = case.progress.dump

    async def free_at_once(self) -> None:
        """The proposal's reading, only where the configuration says `trusted`: a kernel that dumps runs no pods, so they are
        freed now, each round right after a last look and a message that is moments old (S1, S20). Power-off follows all the same.

        It ends with the dump, with a new boot id, and with the first power command (S6). What goes wrong is noted and holds
        nothing up: the proof of off frees the rest.
        """
        case, rule = self._case, self._case.plan.kdump
        if rule is None or not rule.trusted or self._progress.freed or freeing_choice(case.plan) is Freeing.NONE:
            return
        self._progress.asked_first = asked_first = self._progress.asked_first or workflow.now()
        while case.plan.levels and case.power.untouched:
            reading = await self._reading()
            if self._is_dead(rule, reading) and await self._free(rule):
                self._progress.freed = True
                return
            since = case.pinned_node.pinned.not_ready_since
            answer = kdump_wait(rule, reading, not_ready_since=since, due=asked_first, now=workflow.now())
            if answer.wait <= timedelta(0):
                return
            self._episode.enter(doing=f"kdump: {answer.reason}", until=workflow.now() + answer.wait)
            await self._episode.rest(min(answer.wait, READ_AGAIN), "while a crash dump may begin")
            await case.look_while_waiting()

    def _is_dead(self, rule: KdumpRule, reading: KdumpReading | None) -> KernelDead | None:
        pinned, began = self._case.pinned_node.pinned, self._episode.state.started
        return kernel_dead(rule, reading, addresses=pinned.addresses, not_ready_since=pinned.not_ready_since, began=began)

    async def _free(self, rule: KdumpRule) -> bool:
        """Whether nothing is left to be freed."""
        case = self._case
        self._episode.enter(doing="frees the workloads of a kernel that is dead")
        await case.preflight.before_destruction(leased=True)
        asked_at = workflow.now()  # by our clock the message is no younger than it was then
        reading = await self._reading()
        await case.preflight.may_go_on()
        dead = self._is_dead(rule, reading)
        if dead is None or case.pinned_node.has_booted():
            return False
        try:
            return await case.freeing.free_while_dumping(dead, asked_at + STILL_DEAD - (dead.read_at - dead.last))
        except StepFailed as failed:
            self._episode.note("free-while-dumping", "failed", failed.reason)
            return False

    async def wait(self) -> None:
        """While the node writes its crash dump power-off waits, bounded; messages that anybody can forge prove nothing (S2)."""
        case, rule = self._case, self._case.plan.kdump
        if rule is None or not case.plan.levels or not case.power.untouched:
            return
        self._progress.due = self._progress.due or workflow.now()
        since = case.pinned_node.pinned.not_ready_since
        while True:
            reading = await self._reading()
            answer = kdump_wait(rule, reading, not_ready_since=since, due=self._progress.due, now=workflow.now())
            self._episode.enter(doing=f"kdump: {answer.reason}", until=workflow.now() + answer.wait if answer.wait else None)
            if answer.wait <= timedelta(0):
                self._episode.note("kdump", answer.state.value, answer.reason)
                return
            await self._episode.rest(min(answer.wait, READ_AGAIN), "while a crash dump may be written")
            await case.look_while_waiting()

    async def _reading(self) -> KdumpReading | None:
        """What the listener of the node's site has received; None where none answers. Its moments are turned into ours: by its
        own clock it knows how long before our question a message came."""
        plan, asked_at = self._case.plan, workflow.now()
        try:
            reading = await options.execute(
                EvidenceActivities.read_kdump,
                KdumpRequest(addresses=self._case.pinned_node.pinned.addresses),
                options.power_read(plan.levels[0][0].site, plan),
                "power-management: asks whether the node dumps",
            )
        except ActivityError as error:
            self._episode.note("kdump", "failed", error_message(error))
            return None
        return reading.by_another_clock(asked_at)
