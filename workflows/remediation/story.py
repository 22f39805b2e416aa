"""Remediation: a node or machine that has failed is repaired or replaced, by an ordered ladder of steps.

The story is `RemediationStory`, from top to bottom; `Remediation` at the end is the thin workflow round it. A step is tried until
the target is well or replaced, until it has failed, or until its time is over; then comes the next one, and after the last a
person, never silence. What a step is says `workflows/remediation/ladder_step.py`, and which class
it has `workflows/remediation/steps.py`. What has failed is noted on the target before each step and handed to its replacement
(`policy/remediation/memory.py`).

After its preservation a machine is handed over to the same workflow, and has its own story
(`workflows/remediation/after_preservation.py`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.remediation import RemediationActivities, RemediationPin
from activities.contracts.target import TargetActivities
from activities.errors import ErrorType, error_message, error_type
from policy.episode.events import EventReason
from policy.episode.messages import EpisodeResult, Outcome, Phase, RemediationInput
from policy.fence.config import FenceStep
from policy.remediation.ladder import keeping, next_step, removes, timed_out
from workflows.episode.end import close, not_begun, refusal
from workflows.episode.episode import Episode
from workflows.episode.node_writes import UNMARK_PAUSE, Adoption, NodeWriter
from workflows.episode.permit import obtain_permit
from workflows.episode.preflight import FIRST_PAUSE, LICENCE_PATIENCE, LONGEST_PAUSE, Preflight
from workflows.episode.state import End, LadderProgress, StepProgress
from workflows.episode.tries import Patience
from workflows.kit import options
from workflows.kit.interrupts import (
    AbortAsked,
    Interrupt,
    LicenceMissing,
    NeedGone,
    NonRetryable,
    OffenderFound,
    StepFailed,
    TargetChanged,
    Unlicensed,
    Vetoed,
)
from workflows.remediation.ladder_step import LadderStep, RemediationTarget
from workflows.remediation.steps import STEPS, FencingStep, ReplacingStep

TRY_AGAIN = timedelta(seconds=5)
"""Until a step that could not be begun is tried again."""

HELD_WITHOUT_A_PERMIT = "a-ladder-that-is-held-before-it-began-gives-its-permit-back"
"""Histories of builds that kept it go on as they began."""
NOT_ITS_TIME = "what-a-step-waited-for-before-it-began-is-not-its-time"
"""Histories of builds that counted it go on as they began."""
STANDSTILL_TAKES_NO_TIME = "time-in-which-no-worker-was-there-is-none-of-a-step"
"""Histories of builds that counted it go on as they began."""
ASKS_FOR_LICENCE = "a-ladder-without-a-licence-asks-a-person"
"""Histories of builds that went on with the next step go on as they began."""

MAY_BE_OFF = "; the machine may be off: an earlier step had switched it off"
DELETION_GOES_ON = "the deletion of its machine was asked for and goes on"
DELETION_MAY_GO_ON = "the deletion of its machine is being asked for, which can't be taken back"
TO_SWITCH_ON = "; an earlier step has left the machine off: `resume` switches it on"

LOOK_WHILE_PARKED = timedelta(minutes=5)
"""A parked one is told when its node changes; what has become of a Machine without one is looked at this seldom."""


class RemediationStory:
    """One remediation of one target. What is declared here without a value exists once the target is pinned."""

    target: RemediationTarget
    _adoption: Adoption
    _steps: list[LadderStep]
    """The steps that may have left something that is to be taken back at the end, oldest first."""

    def __init__(self, request: RemediationInput, episode: Episode) -> None:
        self._request = request
        self.episode = episode
        if episode.state.ladder is not None:
            self._open(episode.state.ladder)

    @property
    def _progress(self) -> LadderProgress:
        return self.target.progress

    # The story ------------------------------------------------------------------------------------------------------

    async def run(self) -> EpisodeResult:
        """From the first look to the end of the episode. Raises NewHistory where it goes on there."""
        refused = await self._begin()
        if refused is not None and not (self.episode.was_reset and self.episode.state.ladder is not None):
            return await close(self.episode, refused, None)
        if self._progress.end is None:
            self._progress.end = refused or await self._until_the_end()
        return await self._close(self._progress.end)

    async def _until_the_end(self) -> End:
        """The ladder as often as a person wants it, and what ends it in between."""
        problem = self._progress.parked or ("" if self._progress.steps else self._request.exhausted)
        while True:
            try:
                if problem and (ended := await self._park(problem)) is not None:
                    return ended
                end = await self._climb()
            except AbortAsked as interrupt:
                return End(outcome=Outcome.ABORTED, message=interrupt.reason)
            except TargetChanged as interrupt:
                return End(outcome=Outcome.REPLACED, message=interrupt.reason)
            except (OffenderFound, LicenceMissing) as interrupt:
                self._progress.at, problem = None, interrupt.reason
                continue
            if end is not None and not (but := self._speaks_against(end)):
                return end
            if end is not None:
                self._progress.at, problem = None, f"{end.message}{but}"
                continue
            if self._request.adopts:
                return End(outcome=Outcome.RELEASED, message=f"left behind and not needed: {self.episode.state.problem}")
            if ended := await self._over_by_itself():  # what has failed may have done it all the same, and late
                return ended
            problem = f"every step has failed: {self.episode.state.problem or ', '.join(self._progress.failed)}"

    async def _climb(self) -> End | None:
        """Step after step. None: the ladder is used up."""
        ladder, failed, progress = self.target.pin.ladder, self._progress.failed, self._progress
        index = next_step(ladder, progress.reached, failed) if self.at is None else self.at.state.index
        while index is not None:
            progress.reached = max(progress.reached, index)
            step = self.at or self._set_out(StepProgress(step=ladder[index], index=index, began=workflow.now()))
            state = step.state
            self.target.show(state)
            try:
                with self.episode.undertaking("the step"):
                    return await self._with_what_goes(step)
            except (NonRetryable, StepFailed, Vetoed) as interrupt:
                missing = isinstance(interrupt, LicenceMissing) or type(interrupt) is Unlicensed
                if missing and workflow.patched(ASKS_FOR_LICENCE):
                    raise LicenceMissing(interrupt.reason) from interrupt
                progress.at = None
                await self._fail(step, state, interrupt)
            index = next_step(ladder, progress.reached, failed)
        return None

    def _set_out(self, state: StepProgress) -> LadderStep:
        self._progress.steps.append(state)
        self._steps.append(self._made(state))
        self._progress.at = len(self._steps) - 1
        stage = "goes on" if state.asked is not None else "begins"
        self.episode.note("step", stage, f"{state.index + 1} of {len(self.target.pin.ladder)}: {state.step.name}")
        return self._steps[-1]

    async def _with_what_goes(self, step: LadderStep) -> End:
        """Carry it out. Where an earlier step has asked for the deletion of the machine, it goes whatever comes of this step:
        it is neither recovered nor left alone, and only its end is the end."""
        try:
            end = await self._carry_out(step)
        except NeedGone as interrupt:
            end = End(outcome=Outcome.RECOVERED, message=interrupt.reason)
        except TargetChanged as interrupt:  # its Node may go long before it
            end = End(outcome=Outcome.REPLACED, message=interrupt.reason)
        except Vetoed as interrupt:
            done = "before anything was done" if len(self._steps) == 1 else f"before {step.state.step.name}"
            done = f"before anything came of {step.state.step.name}" if step.state.asked is not None else done
            end = End(outcome=Outcome.RELEASED, message=f"given up {done}: {interrupt.reason}")
        if end.outcome is Outcome.ABORTED or (deletion := await self._deletion_beside(step)) is None:
            return end
        self.episode.note("step", "ok", f"{step.state.step.name}: {end.message}; its deletion goes on")
        self._progress.at = self._steps.index(deletion)
        return await deletion.go_on()

    async def _carry_out(self, step: LadderStep) -> End:
        """A step that could not be begun is begun again for a while: nothing of that speaks against it."""
        state = step.state
        with self.episode.undertaking("begins the step") as under:
            patience = Patience(self.episode, under)
            while True:
                try:
                    return await step.carry_out()
                except StepFailed as interrupt:
                    lasted = workflow.now() >= under.began + LICENCE_PATIENCE
                    over = patience.is_over(interrupt) if isinstance(interrupt, Unlicensed) else lasted
                    if over or timed_out(state.began, state.step.timeout, workflow.now()):
                        # A hold, the queue or a mode may have taken that time, which is none of a step that has not begun.
                        longest = min(LICENCE_PATIENCE, state.step.timeout or LICENCE_PATIENCE)
                        over = patience.waited >= longest or (isinstance(interrupt, Unlicensed) and over)
                        if over or state.asked is not None or not workflow.patched(NOT_ITS_TIME):
                            raise
                    self.episode.note("step", "tried again", interrupt.reason)
                    self.episode.enter(doing=f"will try again: {interrupt.reason}")
                    await patience.rest(interrupt, under.next_pause(TRY_AGAIN, LONGEST_PAUSE), "before the step is tried again")

    async def _deletion_beside(self, step: LadderStep) -> ReplacingStep | None:
        """The earlier step by which the machine goes, None where it stays. It waits until that is known, or an abort comes."""
        asked = [each for each in self._steps if isinstance(each, ReplacingStep) and each is not step]
        other = next((each for each in reversed(asked) if each.state.asked is not None), None)
        while other is not None:
            try:
                return other if await other.goes() else None
            except StepFailed as interrupt:
                self.episode.note("look", "failed", interrupt.reason)
                if self.episode.state.abort_asked is not None:
                    break
                self.episode.enter(doing=f"will look again whether the machine goes: {interrupt.reason}")
                await self.episode.rest(LONGEST_PAUSE, "before the machine is looked at again")
        return None

    async def _fail(self, step: LadderStep, state: StepProgress, interrupt: Interrupt) -> None:
        """Told, and remembered: the next one's turn."""
        self.episode.state.problem = f"{state.step.name}: {interrupt.reason}"
        self.episode.note("step", "failed", self.episode.state.problem)
        self._progress.failed.append(state.step.name)
        await step.give_up(interrupt.reason)
        self.target.node_writer.send_event(EventReason.REMEDIATION_STEP_FAILED, self.episode.state.problem)

    def _put_off(self, duration: timedelta) -> None:
        """Nothing could be done: the step under way has its time all the same (S20, S37)."""
        if self.at is not None and workflow.patched(STANDSTILL_TAKES_NO_TIME):
            self.at.put_off(duration)

    def _made(self, state: StepProgress) -> LadderStep:
        left_before = self.left_off.story.left_off if self.left_off is not None else ()
        return STEPS[state.step.strategy](self.target, state, left_before)

    # Beginning ------------------------------------------------------------------------------------------------------

    async def _begin(self) -> End | None:
        """Pin the target, get the permit, leave the mark. Returns the end of an episode that may not begin."""
        if self.episode.state.ladder is None and (end := await self._pin()) is not None:
            return end
        progress = self._progress
        if progress.begun:
            return None
        if self._request.adopts and not progress.pin.refused:
            step, now = progress.pin.ladder[0], workflow.now()
            self._set_out(StepProgress(step=step, index=0, began=now, asked=now, name=self._request.adopts, adopted=True))
            progress.begun = True
            return None  # nothing is disrupted, so that no permit is needed; marks are left to a clean-up
        try:
            await self._adoption.take_over()
        except Interrupt as interrupt:
            return refusal(await self._without_marks(interrupt))
        if progress.pin.refused:
            return refusal(progress.pin.refused)
        # Where the retries are used up it asks a person first, and for a permit only after the answer.
        refused = "" if self._request.exhausted else await self._get_leave()
        await self._adoption.settle()
        progress.begun = not refused
        return not_begun(self.episode, refused) if refused else None

    async def _pin(self) -> End | None:
        """Pin the target that it is about. Returns the end where that is not possible."""
        episode = self.episode
        episode.enter(step=FenceStep.ISOLATION, doing="looks at the target")
        episode.introduce(zone="", reason=episode.state.reason)
        try:
            pin: RemediationPin = await episode.execute(
                RemediationActivities.pin, self._request, options.cluster_read, f"isolation: pins {episode.state.node}"
            )
        except ActivityError as error:
            return refusal(error_message(error), missing=error_type(error) is ErrorType.NOT_FOUND)
        episode.state.cause, episode.state.check, episode.state.control_plane = (
            pin.need.cause,
            pin.need.check_key,
            pin.control_plane,
        )
        episode.note_repairs(pin.repairs, pin.need)
        episode.publisher.learn_of_stream(pin.streams)
        if episode.repairs.keeps and not self._request.adopts:
            pin = replace(pin, ladder=keeping(pin.ladder))
        episode.state.owner, episode.state.removes = pin.owner, removes(pin.ladder)
        episode.state.machine = f"{pin.machine.namespace}/{pin.machine.name}" if pin.machine is not None else ""
        episode.see(pin.seen)
        episode.state.pinned = pin.pinned
        episode.state.ladder = LadderProgress(pin=pin, failed=list(pin.failed), retry=self._request.retry)
        self._open(episode.state.ladder)
        self._adoption.begin(pin.adopted_incident, pin.adopted_paths)
        episode.introduce(zone=pin.pinned.zone, reason=pin.need.reason, since=pin.need.since)
        steps = ", ".join(step.name for step in pin.ladder)
        episode.note("pin", "ok", f"uid {pin.pinned.uid or pin.machine_uid}, owner {pin.owner or 'none'}, steps: {steps}")
        return None

    async def _get_leave(self) -> str:
        """The permit, and the mark on the Node."""
        if not self.episode.state.permit:
            refused = await obtain_permit(self.episode, self.target.permit_request())
            if refused:
                return refused
        self.episode.enter(phase=Phase.NEW, doing="marks the node as ours")
        try:
            if self.target.has_node:
                await self.target.node_writer.write(TargetActivities.mark, "isolation: marks the node")
        except Interrupt as interrupt:
            if isinstance(interrupt, TargetChanged) and self._progress.reached >= 0:
                raise  # a person's answer does not make it the one that was pinned; another episode is for the new one (S9)
            return await self._without_marks(interrupt)
        return ""

    async def _without_marks(self, interrupt: Interrupt) -> str:
        """Our mark could not be left, or its answer was lost. Once it is gone it is not known any more what may be in flight."""
        await self._adoption.settle()
        await self.target.node_writer.remove_marks(UNMARK_PAUSE)
        return interrupt.reason

    def _open(self, progress: LadderProgress) -> None:
        episode, pin = self.episode, progress.pin
        node_writer = NodeWriter(episode, machine=pin.machine, machine_uid=pin.machine_uid)
        self._adoption = Adoption(episode, node_writer)
        self.target = RemediationTarget(
            episode=episode,
            progress=progress,
            preflight=Preflight(
                episode,
                pin.need,
                idle=lambda: not progress.tried and workflow.patched(HELD_WITHOUT_A_PERMIT),
                may_rest=lambda: not progress.tried,
            ),
            node_writer=node_writer,
        )
        self._steps = []
        for state in progress.steps:
            self._steps.append(self._made(state))
        episode.lose_time = self._put_off

    # A person's turn ------------------------------------------------------------------------------------------------

    async def _park(self, problem: str) -> End | None:
        """Nothing more can be tried without a person. Returns None once one has it go on: from the first step, then."""
        episode, target = self.episode, self.target
        if self._progress.parked != problem and not episode.asks_no_person:
            self._progress.parked = problem
            target.show(None)
            await target.node_writer.ask_for_a_person(problem)
        pause = FIRST_PAUSE
        while True:
            if (abort := episode.state.abort_asked) is not None:
                return End(outcome=Outcome.ABORTED, message=f"{abort}; {problem}")
            if ended := await self._over_by_itself():
                return ended
            if off := next((step for step in self._steps if isinstance(step, FencingStep) and step.comes_back), None):
                await self._bring_back(off, problem)  # as an earlier history has begun to
                continue
            off = self.left_off if episode.state.resumed is not None else None
            if off is not None and (episode.repairs.is_asked_in(problem) or await target.preflight.need_is_gone()):
                episode.let_offender_go(problem)
                await self._bring_back(off, problem)
                continue
            wait = LOOK_WHILE_PARKED
            if (answer := episode.state.resumed) is not None and not episode.is_held:
                refused = await self._get_leave()
                if not refused:
                    break
                if episode.state.permit and self.left_off is not None and self._node_is_gone:
                    await self._bring_back(self.left_off, problem)  # no step has anything to begin with, and it registers anew
                    continue
                if episode.state.permit:  # it was the mark that could not be left, and that does not pass by itself
                    episode.state.resumed = None
                    await target.node_writer.ask_for_a_person(f"{problem}; {answer.by} answered, but {refused}")
                    continue
                wait, pause = pause, min(pause * 2, LONGEST_PAUSE)
                episode.state.problem = f"{problem}; the answer of {answer.by} is kept until there is a permit: {refused}"
                episode.enter(phase=Phase.NEEDS_HUMAN, doing="waits for a permit to go on")
            await episode.rest(wait, "a person's word")
        episode.let_offender_go(problem)
        self._progress.failed.clear()
        await self._forget_what_failed()
        self._progress.at, self._progress.reached, self._progress.parked, episode.state.problem = None, -1, "", ""
        episode.enter(phase=Phase.RUNNING, doing="goes on, from the first step")
        return None

    @property
    def only_restores(self) -> bool:
        """Whether all that waits for a person's answer is to switch on again the machine that a step has left off."""
        return self.left_off is not None and self.episode.repairs.is_asked_in(self._progress.parked)

    @property
    def _node_is_gone(self) -> bool:
        """Whether the latest look has found no Node of the name."""
        seen = self.episode.state.last_look
        return self.target.has_node and seen is not None and not seen.present

    async def _bring_back(self, off: FencingStep, problem: str) -> None:
        """All that is wanted, or can be done, is that the machine which a step has left off is switched on again: that needs no
        permit (S17). What becomes of the episode then is seen as ever."""
        episode = self.episode
        episode.enter(phase=Phase.RUNNING, doing="switches the machine on again")
        if but := await off.story.bring_back():
            episode.note("step", "not back", f"{off.state.step.name}: {but}")
        if off.story.left_off:
            await self.target.node_writer.ask_for_a_person(f"{problem}; a person answered, but {but}")

    async def _over_by_itself(self) -> End | None:
        """A target that is well again, or was replaced by others, needs no person any more."""
        found = await self.target.glance()
        if found is not None and found.gone:
            return await self._gone_after_all()
        if found is not None and not found.deleting and await self.target.preflight.need_is_gone():
            end = End(outcome=Outcome.RECOVERED, message="it is well again")
            kept = self.episode.repairs.keeps and self.episode.repairs.is_asked_in(self._progress.parked)
            return None if self._speaks_against(end) or kept else end
        return None

    async def _gone_after_all(self) -> End:
        """Where a step had its deletion asked for, its successor is seen as ever, and told what to remember."""
        gone = End(outcome=Outcome.REPLACED, message=f"{self.target.name} is gone")
        asked = [each for each in self._steps if isinstance(each, ReplacingStep) and each.state.asked is not None]
        if not asked:
            return gone
        self.episode.enter(phase=Phase.TERMINATING, doing=gone.message)
        try:
            return await asked[-1].go_on()
        except AbortAsked as interrupt:
            return End(outcome=Outcome.ABORTED, message=interrupt.reason)
        except Interrupt as interrupt:
            self.episode.note("look", "failed", interrupt.reason)
            return gone

    async def _forget_what_failed(self) -> None:
        """Before the first step is tried anew: an object that its controller has given up for good would be found again, and so
        would an owner's word. What was cut or has begun to go stays so."""
        for step in [each for each in self._steps if each.begins_anew]:
            if not await step.take_back() and not isinstance(step, ReplacingStep):
                at = self._steps.index(step)
                del self._steps[at], self._progress.steps[at]

    # Ending ---------------------------------------------------------------------------------------------------------

    async def _close(self, end: End) -> EpisodeResult:
        """Whatever may still stand is taken back; the mark, the lease and the permit are given back."""
        if end.outcome is not Outcome.REFUSED or self.episode.was_reset:
            self.target.show(None)
            self._recall_steps()
            self.episode.enter(step=FenceStep.RECOVERY, doing="takes back what is not needed any more")
            if end.outcome is Outcome.ABORTED:
                end = self._end_with(end, await self._switched_on_after_an_abort())
            for step in reversed([each for each in self._steps if not each.state.taken_back]):
                try:
                    left = await step.take_back()
                except Interrupt as interrupt:
                    self.episode.note("take-back", "left", interrupt.reason)
                    left = f"; {interrupt.reason}"
                step.state.taken_back = True
                end = self._end_with(end, left)
            if end.outcome is not Outcome.FENCED_OFF and self.left_off is not None and await self._is_there():
                end = replace(end, message=f"{end.message}{MAY_BE_OFF}")
            # What our mark says is cut, and no step has given back or named: a predecessor's.
            if paths := [path for path in self.episode.state.added.paths if path not in end.message]:
                end = replace(end, message=f"{end.message}; left cut: {', '.join(paths)}")
            said = any(each in end.message for each in ("deletion", "is gone"))
            if self.deletes and end.outcome is not Outcome.REPLACED and not said:
                end = replace(end, message=f"{end.message}; {DELETION_GOES_ON}")
            if self.target.has_node:
                await self.target.node_writer.remove_marks(UNMARK_PAUSE)
        return await close(self.episode, end, self.target.node_writer, leased=self.target.has_node)

    def _recall_steps(self) -> None:
        """Where a reset took back what was done, each step of the ladder may have been carried out and have left something."""
        if not self.episode.was_reset or self._request.adopts:
            return
        known = {state.index for state in self._progress.steps}
        for index, step in enumerate(self.target.pin.ladder):
            if index not in known:
                self._progress.steps.append(StepProgress(step=step, index=index, began=workflow.now()))
                self._steps.append(self._made(self._progress.steps[-1]))
        for state in self._progress.steps:
            state.may_stand = True

    def _end_with(self, end: End, more: str) -> End:
        """What is found out on the way out is kept for a new history, too."""
        self._progress.end = end = replace(end, message=f"{end.message}{more}")
        return end

    async def _switched_on_after_an_abort(self) -> str:
        """An abort with power-on brings back what an earlier step has left off. Answers what came of it, in words to end a
        sentence with."""
        abort, off = self.episode.state.abort_asked, self.left_off
        if abort is None or not abort.power_on or off is None or off.was_aborted or not await self._is_there():
            return ""
        problem = await off.story.bring_back()
        return f"; power on: {problem}" if problem else "; the machine is switched on again, and the node is back"

    def _speaks_against(self, end: End) -> str:
        """What speaks against a recovery, in words to end a sentence with, "" for nothing: the node is not asked for any more,
        and a step has left its machine off; or it is well, and a step has freed its pods when it was perhaps not off (S2)."""
        if end.outcome is not Outcome.RECOVERED:
            return ""
        if doubt := next(filter(None, (step.doubt() for step in self._steps if isinstance(step, FencingStep))), ""):
            return f"; but {doubt}"
        return TO_SWITCH_ON if self.left_off is not None and not self._is_back else ""

    @property
    def _is_back(self) -> bool:
        seen = self.episode.state.last_look
        return seen is not None and seen.present and seen.ready

    async def _is_there(self) -> bool:
        """Whether the machine has not gone for good, for all that is known."""
        found = await self.target.glance()
        return found is None or not found.gone

    @property
    def at(self) -> LadderStep | None:
        """The step that is under way, None where none is."""
        at = self.episode.state.ladder.at if self.episode.state.ladder is not None else None
        return self._steps[at] if at is not None else None

    @property
    def deletes(self) -> bool:
        """Whether a step has had the deletion of the Machine begun."""
        return self.episode.state.ladder is not None and any(step.deletes for step in self._steps)

    @property
    def may_delete(self) -> bool:
        """Whether a request for that is under way, or its answer was lost."""
        return self.episode.state.ladder is not None and any(step.state.asks for step in self._steps)

    @property
    def stays_off(self) -> bool:
        """Whether its end is carried out, and leaves the machine off."""
        return self.episode.state.ladder is not None and self._progress.end is not None and self.left_off is not None

    @property
    def left_off(self) -> FencingStep | None:
        """The last step that switched power, where it has left the machine off, for all that is known."""
        if self.episode.state.ladder is None:
            return None
        steps = [each for each in reversed(self._steps) if isinstance(each, FencingStep)]
        last = next((step for step in steps if step.story.touched), None)
        if last is None and self.episode.was_reset and not self._is_back:
            return steps[0] if steps else None  # which has switched it off perhaps, and does not know of it
        return last if last is not None and last.story.left_off else None
