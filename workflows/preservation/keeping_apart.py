"""Isolation of a machine that has failed and is kept: cut off from its volumes and its network, powered, for analysis.

What is cut is what the node's fence configuration names (`policy/preservation/isolating.py`), by the sequence of a fencing and
under its proofs: pods are freed only where every volume of theirs is proven cut (S1), and nothing touches power (S21). It needs
a permit while it acts, and none while the machine stays cut. It is given back when a machine that is well again is released;
where pods were freed, only after a restart or on a person's word.

Nothing of it holds the preservation up: what fails is told and tried again later, and when the hold ends or something else is
said, it stops before its next act.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.preservation import Hold
from activities.contracts.target import Configured, PinResult, Target, TargetActivities
from policy.episode.events import EventReason
from policy.episode.messages import FencingInput, IsolatedBoot, Outcome, Phase
from policy.episode.needs import Need, NeedKind
from policy.episode.permits import Release
from policy.preservation.held import Isolation
from policy.preservation.isolating import isolation_plan
from workflows.episode.adopting import cut_unseen
from workflows.episode.bookkeeping import Bookkeeping
from workflows.episode.episode import Episode
from workflows.episode.preflight import Preflight
from workflows.episode.tries import Tries
from workflows.fencing.isolation import IsolationSequence
from workflows.kit import options
from workflows.kit.interrupts import AbortAsked, Hopeless, Interrupt, NeedGone, StepFailed, Vetoed, interrupt_for

NEED = Need(kind=NeedKind.PRESERVATION, reason="a machine that failed is kept, and is to be cut off")

PAUSE = timedelta(minutes=1)
LONGEST_PAUSE = timedelta(hours=1)
"""Between two tries of an isolation that can't be carried out: whatever is in the way is a person's to mend, who may say so."""

LOOK_FOR_RESTART = timedelta(minutes=1)
"""While a path may not be given back before the machine has booted anew, or a person has said so: at first, and ever more seldom,
since that may take weeks. The scanner, which sees our mark, tells of a restart."""


class KeepingApart:
    """The isolation of one machine that is kept. `progress`: how far this run of the story has brought it."""

    def __init__(self, episode: Episode, desk: Bookkeeping, boot: IsolatedBoot | None, *, objection: Callable[[], str]) -> None:
        """boot: of a predecessor in the same incident that has cut it off. objection: why it is not to go on, "" while it is."""
        self._episode = episode
        self._desk = desk
        self._objection = objection
        self._boot = boot
        self._preflight: Preflight | None = None
        self._sequence: IsolationSequence | None = None
        self._next = workflow.now()
        self._pause = PAUSE
        self._target: Target | None = None
        """Whom it is about, with the devices that are pinned; None before the first try."""
        self.marked = False
        self.problem = ""
        """Why it is not carried out, "" where nothing is in the way."""
        self.progress = Isolation.CUT if boot is not None and boot.cut else Isolation.NONE

    @property
    def boot(self) -> IsolatedBoot | None:
        """The boot during which it was cut off, None where nothing was begun: what whoever goes on has to know."""
        if self._boot is None or self._sequence is None:
            return self._boot
        cut = self.progress is Isolation.CUT
        freed = self._boot.freed or self._sequence.freed
        return replace(self._boot, freed=freed, cut=cut, left=self.left, volumes=self._sequence.detached)

    @property
    def left(self) -> str:
        """What is still cut, in words to end a sentence with."""
        if self._sequence is not None:
            return self._sequence.left
        return self._boot.left if self._boot is not None else ""

    def next_try(self, hold: Hold) -> datetime | None:
        """When it is due again, None where nothing of it is left to be done."""
        return self._next if hold.isolate and self.progress is not Isolation.CUT else None

    # Cutting off ----------------------------------------------------------------------------------------------------

    async def carry_out(self, hold: Hold) -> bool:
        """Once, and again after a while where something was in the way. Whether anything has come of it that is to be written."""
        if not hold.isolate or self.progress is Isolation.CUT or workflow.now() < self._next or self._objection():
            if self._episode.permit:
                await self._leave()  # granted when nobody waited for it any more: it would count for as long as the hold
            return False
        before, self._episode.not_beyond = self.progress, hold.expiry
        try:
            await self._cut_off()
        except (AbortAsked, NeedGone) as interrupt:
            self._episode.note("isolate", "stopped", interrupt.reason)
            if not self._objection():  # else the next look comes at once, and says what holds instead
                self._put_off()
        except Interrupt as interrupt:
            await self._say_incomplete(interrupt.reason)
        finally:
            self._episode.not_beyond = None
        await self._leave()
        return self.progress is not before

    async def _cut_off(self) -> None:
        sequence = await self._open()
        await self._obtain_permit()
        await self._pin_boot()
        assert self._target is not None
        freed = self._boot.freed if self._boot is not None else self._episode.freed
        self._boot = IsolatedBoot(boot_id=self._target.pinned.boot_id, freed=freed)
        self._episode.enter(doing="cuts the machine off")
        sequence.begin_anew()
        await sequence.carry_out()
        if sequence.pods_left:
            raise StepFailed(f"{sequence.pods_left} pods behind the cut are still there")
        self.progress, self.problem = Isolation.CUT, ""
        freed_pods = f"; {sequence.freed_pods} pods freed behind the cut" if sequence.freed else ""
        self._episode.note("isolate", "ok", f"the machine is cut off{freed_pods}")
        self._desk.tell(EventReason.PRESERVED_ISOLATED, f"the machine is kept, powered, and cut off{freed_pods}")

    async def _open(self) -> IsolationSequence:
        """Everything about the node and its devices. What a predecessor cut is adopted: what it freed is not known."""
        if self._sequence is not None and self._target is not None:
            self._episode.target = self._target
            return self._sequence
        try:
            pin: PinResult = await workflow.execute_activity_method(
                TargetActivities.pin,
                FencingInput(cluster=self._episode.cluster, node=self._episode.node, incident=self._episode.incident, need=NEED),
                **(options.cluster_read(self._episode.cluster) | {"summary": f"isolation: pins {self._episode.node}"}),
            )
        except ActivityError as error:
            raise interrupt_for(error, "the node can't be pinned") from error
        plan = isolation_plan(pin.plan)
        if not plan.isolation and not pin.adopted_paths:
            raise Hopeless(f"{plan.source} names no path to cut, no volumes to detach and no quarantine")
        info = workflow.info()
        self._episode.control_plane = pin.control_plane
        self._episode.observation = pin.observation
        self._target = self._episode.target = Target(
            cluster=self._episode.cluster,
            pinned=pin.pinned,
            incident=self._episode.incident,
            kind=self._episode.kind.value,
            workflow_id=info.workflow_id,
            run_id=info.run_id,
        )
        await self._desk.write(TargetActivities.mark, "isolation: marks the node")
        self.marked = True
        preflight = Preflight(self._episode, NEED, gone=self._objection, configured=Configured())
        tries = Tries(self._episode, plan, before_next=preflight.may_go_on)
        sequence = IsolationSequence(self._episode, plan, self._desk, preflight, tries)
        if pin.adopted_paths:
            sequence.adopt(pin.adopted_paths)
            if self._boot is None:  # else it tells of what was freed behind our own cut
                cut_unseen(self._episode, pin.adopted_paths)
        if self._boot is not None:
            sequence.adopt_detached(self._boot.volumes)
        self._preflight, self._sequence = preflight, sequence
        self._episode.note("isolate", "begins", f"uid {pin.pinned.uid}, boot id {pin.pinned.boot_id}, plan {plan.source}")
        return sequence

    async def _obtain_permit(self) -> None:
        """To be cut off disrupts what still runs there: the scanner lets so many at once (S14)."""
        request = self._episode.permit_request(NEED)
        phase = self._episode.phase  # it is kept all the while, and is to be seen so
        refused = await self._episode.obtain_permit(request, phase=phase, gone=self._objection)
        if refused:
            if reason := self._objection():
                raise NeedGone(reason)
            raise Vetoed(f"no permit: {refused}")

    async def _pin_boot(self) -> None:
        """The boot that is there now, whatever it was at an earlier try: nothing is freed of one that nobody has cut off."""
        assert self._preflight is not None
        assert self._target is not None
        seen = self._episode.observation if await self._preflight.refresh() else None
        pinned = self._target.pinned
        if seen is not None and seen.present and seen.uid == pinned.uid and seen.boot_id not in {"", pinned.boot_id}:
            self._target = self._episode.target = replace(self._target, pinned=replace(pinned, boot_id=seen.boot_id))

    async def _say_incomplete(self, problem: str) -> None:
        first, self.progress = self.progress is not Isolation.INCOMPLETE, Isolation.INCOMPLETE
        self.problem = self._episode.problem = f"not isolated: {problem}"
        self._episode.note("isolate", "incomplete", problem)
        self._put_off()
        if first:
            self._desk.tell(EventReason.PRESERVED_NOT_ISOLATED, f"{problem}; it is tried again")

    def try_now(self) -> None:
        """Somebody asks for it (again)."""
        self._next, self._pause = workflow.now(), PAUSE

    def _put_off(self) -> None:
        self._next = workflow.now() + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    async def _leave(self) -> None:
        """No permit, and no lease of the node, while nothing is done to it."""
        if self._episode.permit or self._episode.queued:
            release = Release(node=self._episode.node, incident=self._episode.incident, outcome=Outcome.RELEASED.value)
            await self._episode.give_back_permit(release)
        if self.marked:
            await self._desk.release_node_lease()

    # Giving back ----------------------------------------------------------------------------------------------------

    async def give_back(self) -> str:
        """Whatever was cut of a machine that is well again and released. Answers what is left cut, to end a sentence with: an
        abort leaves it, and our mark goes on telling of it."""
        if self.boot is None:
            return self.left  # of a predecessor, where it never came to an act of ours
        self._episode.resumed = None  # what was said earlier was about something else
        pause = LOOK_FOR_RESTART
        while True:
            try:
                sequence = await self._open()
            except Interrupt as interrupt:
                problem = f"what was cut off can't be given back: {interrupt.reason}"
            else:
                assert self._preflight is not None
                await self._preflight.refresh()
                # All of it or nothing: in quarantine, too, it has no peer that does not know of what was freed elsewhere.
                may = self._may_restore()
                left = await sequence.undo(may_restore=self._may_restore, patient=False) if may else sequence.left
                if not left:
                    await self._leave()
                    return ""
                problem = f"pods were freed, and no restart is proven; resume gives it back{left}"
            if self._episode.abort_asked is not None:
                return self.left
            if self._episode.phase is not Phase.NEEDS_HUMAN or self._episode.problem != problem:
                await self._desk.ask_for_a_person(problem)
            await self._episode.rest(pause, "a restart, or a person's word")
            pause = min(pause * 2, LONGEST_PAUSE)

    def _may_restore(self) -> bool:
        """Whether no pod was freed, or a person says so, or whoever wrote behind the cut has gone with its boot."""
        boot, seen = self.boot, self._episode.observation
        if self._episode.resumed is not None:
            return True
        if boot is None:
            return False
        if not boot.freed:
            return True
        if seen is None or not (seen.present and seen.ready):
            return False
        return bool(boot.boot_id) and seen.boot_id not in {"", boot.boot_id}
