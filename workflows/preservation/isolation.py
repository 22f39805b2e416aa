"""Isolation of a machine that has failed and is kept: cut off from its volumes and its network, powered, for analysis.

What is cut is what the node's fence configuration names (`policy/fence/plan.py`), by the sequence of a fencing
and under its proofs: pods are freed only where every volume of theirs is proven cut (S1), and nothing touches power (S21). It
needs a permit while it acts, and none while the machine stays cut. It is given back when a machine that is well again is
released; where pods were freed, only after a restart or on a person's word.

Nothing of it holds the preservation up: what fails is told and tried again later, and when the hold ends or something else is
said, it stops before its next act.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta

from temporalio import workflow

from activities.contracts.preservation import Hold
from activities.contracts.target import Configured, PinRequest, PinResult, TargetActivities
from policy.episode.events import EventReason
from policy.episode.messages import FencingInput, Need, NeedKind, Outcome, Phase
from policy.fence.plan import isolation_plan
from policy.preservation.machine_snapshot import Isolation
from workflows.episode.episode import Episode
from workflows.episode.node_writes import NodeWriter, note_unseen_cuts
from workflows.episode.permit import give_back_permit, obtain_permit, permit_request
from workflows.episode.preflight import Preflight
from workflows.episode.state import CuttingOffProgress
from workflows.episode.tries import Tries
from workflows.fencing.isolation import IsolationSequence
from workflows.kit import options
from workflows.kit.interrupts import AbortAsked, Interrupt, NeedGone, NonRetryable, StepFailed, Vetoed, as_interrupt

NEED = Need(kind=NeedKind.PRESERVATION, reason="a machine that failed is kept, and is to be cut off")

PAUSE = timedelta(minutes=1)
LONGEST_PAUSE = timedelta(hours=1)
"""Between two tries of an isolation that can't be carried out: whatever is in the way is a person's to mend, who may say so."""

LOOK_FOR_RESTART = timedelta(minutes=1)
"""While a path may not be given back before the machine has booted anew, or a person has said so: at first, and ever more seldom,
since that may take weeks. The scanner, which sees our mark, tells of a restart."""

LOOKS_AFTER_WAIT = "a-machine-is-looked-at-after-the-wait-for-the-permit-to-cut-it-off"
"""Histories of builds that did not go on as they began."""


class KeptMachineIsolation:
    """The isolation of one machine that is kept."""

    def __init__(
        self,
        episode: Episode,
        node_writer: NodeWriter,
        progress: CuttingOffProgress,
        *,
        objection: Callable[[], str],
        look_again: Callable[[], Awaitable[str]],
    ) -> None:
        """objection: why it is not to go on, "" while it is. look_again: the same as the machine stands now."""
        self._episode = episode
        self._node_writer = node_writer
        self._objection = objection
        self._look_again = look_again
        self._known = progress
        self._preflight: Preflight | None = None
        self._sequence: IsolationSequence | None = None

    @property
    def begun(self) -> bool:
        """Whether anything may have been cut."""
        return self._known.boot is not None

    @property
    def left(self) -> str:
        """What is still cut, in words to end a sentence with."""
        if self._known.pin is None:
            return ""
        return self._made(self._known.pin)[1].paths.left

    def next_try(self, hold: Hold) -> datetime | None:
        """When it is due again, None where nothing of it is left to be done."""
        return self._known.due or workflow.now() if hold.isolate and self._known.progress is not Isolation.CUT else None

    # Cutting off ----------------------------------------------------------------------------------------------------

    async def carry_out(self, hold: Hold) -> bool:
        """Once, and again after a while where something was in the way. Whether anything has come of it that is to be written."""
        waits = self._known.due is not None and workflow.now() < self._known.due
        if not hold.isolate or self._known.progress is Isolation.CUT or waits or self._objection():
            if self._episode.state.permit:
                await self._leave()  # granted when it was not wanted any more: it would count for as long as the hold
            return False
        before, self._episode.state.not_beyond = self._known.progress, hold.expiry
        try:
            await self._cut_off()
        except (AbortAsked, NeedGone) as interrupt:
            self._episode.note("isolate", "stopped", interrupt.reason)
            if not self._objection():  # else the next look comes at once, and says what holds instead
                self._put_off()
        except Interrupt as interrupt:
            await self._report_incomplete(interrupt.reason)
        finally:
            self._episode.state.not_beyond = None
        await self._leave()
        return self._known.progress is not before

    async def _cut_off(self) -> None:
        looked = workflow.now()
        sequence = await self._open()
        await self._obtain_permit()
        # A last look sees what our own look has written of it: whether it has failed, and is kept, is as old as that.
        waited = workflow.now() - looked > options.ACT_WINDOW
        if waited and workflow.patched(LOOKS_AFTER_WAIT) and (reason := await self._look_again()):
            raise NeedGone(reason)
        await self._pin_boot()
        self._known.freed_before = self._freed or (not self.begun and self._episode.state.freed)
        self._known.boot = self._episode.target.pinned.boot_id
        self._episode.enter(doing="cuts the machine off")
        sequence.begin_anew()
        await sequence.carry_out()
        if self._known.isolation.pods_left:
            raise StepFailed(f"{self._known.isolation.pods_left} pods behind the cut are still there")
        self._known.progress, self._known.problem = Isolation.CUT, ""
        freed_pods = f"; {self._known.isolation.freed_pods} pods freed behind the cut" if self._known.isolation.freed else ""
        self._episode.note("isolate", "ok", f"the machine is cut off{freed_pods}")
        self._node_writer.send_event(EventReason.PRESERVED_ISOLATED, f"the machine is kept, powered, and cut off{freed_pods}")

    async def _open(self) -> IsolationSequence:
        """Everything about the node and its devices. What a predecessor cut is adopted: what it freed is not known."""
        pin = self._known.pin
        if pin is None:
            pin = await self._pin()
            self._episode.state.pinned = pin.pinned
            await self._node_writer.write(TargetActivities.mark, "isolation: marks the node")
            self._known.marked, self._known.pin = True, pin
            plan = isolation_plan(pin.plan)
            self._episode.note("isolate", "begins", f"uid {pin.pinned.uid}, boot id {pin.pinned.boot_id}, plan {plan.source}")
            if pin.adopted_paths:
                self._made(pin)[1].paths.adopt(pin.adopted_paths)
                note_unseen_cuts(self._episode, pin.adopted_paths)
        self._episode.state.pinned = pin.pinned
        return self._made(pin)[1]

    async def _pin(self) -> PinResult:
        with as_interrupt("the node can't be pinned"):
            pin: PinResult = await self._episode.execute(
                TargetActivities.pin,
                PinRequest(
                    wanted=FencingInput(
                        cluster=self._episode.state.cluster,
                        node=self._episode.state.node,
                        incident=self._episode.state.incident,
                        need=NEED,
                    )
                ),
                options.cluster_read,
                f"isolation: pins {self._episode.state.node}",
            )
        plan = isolation_plan(pin.plan)
        if not plan.isolation and not pin.adopted_paths:
            raise NonRetryable(f"{plan.source} names no path to cut, no volumes to detach and no quarantine")
        self._episode.state.control_plane = pin.control_plane
        self._episode.see(pin.seen)
        return pin

    def _made(self, pin: PinResult) -> tuple[Preflight, IsolationSequence]:
        """The parts over what is known of the pinned node."""
        if self._preflight is None or self._sequence is None:
            plan = isolation_plan(pin.plan)
            self._preflight = Preflight(self._episode, NEED, gone=self._objection, configured=Configured(), plan=plan)
            tries = Tries(self._episode, plan, before_next=self._preflight.may_go_on)
            known = self._known.isolation
            self._sequence = IsolationSequence(self._episode, plan, self._node_writer, self._preflight, tries, progress=known)
        return self._preflight, self._sequence

    async def _obtain_permit(self) -> None:
        """To be cut off disrupts what still runs there: the scanner lets so many at once (S14)."""
        request = permit_request(self._episode, NEED)
        phase = self._episode.state.phase  # it is kept all the while, and is to be seen so
        refused = await obtain_permit(self._episode, request, phase=phase, gone=self._objection)
        if refused:
            if reason := self._objection():
                raise NeedGone(reason)
            raise Vetoed(f"no permit: {refused}")

    async def _pin_boot(self) -> None:
        """The boot that is there now, whatever it was at an earlier try: nothing is freed of a boot that was not cut off."""
        pin = self._known.pin
        assert pin is not None
        seen = self._episode.state.last_look if await self._made(pin)[0].refresh() else None
        if seen is not None and seen.present and seen.uid == pin.pinned.uid and seen.boot_id not in {"", pin.pinned.boot_id}:
            self._episode.state.pinned = replace(pin.pinned, boot_id=seen.boot_id)
            self._known.pin = replace(pin, pinned=self._episode.state.pinned)

    @property
    def _freed(self) -> bool:
        return self._known.freed_before or self._known.isolation.freed

    async def _report_incomplete(self, problem: str) -> None:
        first, self._known.progress = self._known.progress is not Isolation.INCOMPLETE, Isolation.INCOMPLETE
        self._known.problem = self._episode.state.problem = f"not isolated: {problem}"
        self._episode.note("isolate", "incomplete", problem)
        self._put_off()
        if first:
            self._node_writer.send_event(EventReason.PRESERVED_NOT_ISOLATED, f"{problem}; it is tried again")

    def try_now(self) -> None:
        """A person asks for it (again)."""
        self._known.due, self._known.pause = workflow.now(), PAUSE

    def _put_off(self) -> None:
        self._known.due = workflow.now() + self._known.pause
        self._known.pause = min(self._known.pause * 2, LONGEST_PAUSE)

    async def _leave(self) -> None:
        """No permit, and no lease of the node, while nothing is done to it."""
        if self._episode.state.permit or self._episode.state.queued:
            await give_back_permit(self._episode, outcome=Outcome.RELEASED.value)
        if self._known.marked:
            await self._node_writer.release_node_lease()

    # Giving back ----------------------------------------------------------------------------------------------------

    async def find_adopted(self) -> str:
        """What a predecessor has left cut stands on the mark alone until the node is pinned. Answers why that can't be seen, in
        words to end a sentence with."""
        if self._known.pin is None and self._episode.state.adopted:
            try:
                await self._open()
            except NonRetryable:
                return ""  # the node has nothing that could be cut
            except Interrupt as interrupt:
                return f"; whether anything is left cut is not known: {interrupt.reason}"
        return ""

    async def give_back(self) -> str:
        """Whatever was cut of a machine that is well again and released. Answers what is left cut, to end a sentence with: an
        abort leaves it, and our mark goes on telling of it."""
        if not self.begun:
            return self.left  # of a predecessor, where it never came to an act of ours
        pause = LOOK_FOR_RESTART
        while True:
            try:
                sequence = await self._open()
            except Interrupt as interrupt:
                problem, asked = f"what was cut off can't be given back: {interrupt.reason}", ""
            else:
                if self._preflight is not None:
                    await self._preflight.refresh()
                await sequence.let_go_of_open_paths()
                # All of it or nothing: in quarantine, too, it has no peer that does not know of what was freed elsewhere.
                if self._may_restore():
                    await sequence.undo(may_restore=lambda _found_cut: self._may_restore(), patient=False)
                if not (left := sequence.paths.left):
                    self._episode.state.problem = self._episode.state.path_asked = ""
                    await self._leave()
                    return ""
                freed = "a path may have been cut before this episode" if sequence.paths.found_cut else "pods were freed"
                problem = f"{freed}, and no restart is proven; return-path gives it back{left}"
                asked = ", ".join(sequence.paths.cut_now)
            if self._episode.state.abort_asked is not None:
                return self.left
            if self._episode.state.phase is not Phase.NEEDS_HUMAN or self._episode.state.problem != problem:
                await self._node_writer.ask_for_a_person(problem, path=asked)
            await self._episode.rest(pause, "a restart, or a person's word")
            pause = min(pause * 2, LONGEST_PAUSE)

    def _may_restore(self) -> bool:
        """Whether no pod was freed behind our own cut, or a person says so, or the boot that could write behind it is over."""
        boot, seen = self._known.boot, self._episode.state.last_look
        if self._episode.state.path_command is not None:
            return True
        if not (self._freed or self._episode.state.found_cut):
            return True
        if seen is None or not (seen.present and seen.ready):
            return False
        return bool(boot) and seen.boot_id not in {"", boot}
