"""Fencing: isolate a node, switch it off, prove that it is off, free what ran there, switch it on, see it come back, restore.

The story is `FencingStory`, from top to bottom; `workflows/definitions/episodes.py` is the thin workflow round it (Remediation
awaits the same story). It is the automaton of the node-fencing proposal, made safe; its phases are `policy/episode/phases.py`.

The steps are `workflows/fencing/isolation.py` and `workflows/fencing/power_steps.py`; they share a `workflows/fencing/case.py`.
What all kinds of episode have is `workflows/episode/episode.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.target import Configured, PinRequest, PinResult, TargetActivities
from activities.errors import ErrorType, error_message, error_type
from policy.episode.events import EventReason
from policy.episode.fencing_requests import Stage
from policy.episode.messages import EpisodeResult, FencingInput, NeedKind, Outcome, Phase
from policy.episode.proofs import may_restore_path, power_due, same_machine
from policy.fence.config import FenceStep
from policy.fence.plan import UNCORDON, FencingPlan, keeping_plan
from policy.objects.marks import NOTHING_ADDED
from workflows.episode.commands import NEXT_ACT
from workflows.episode.end import close, not_begun, refusal
from workflows.episode.episode import Episode
from workflows.episode.node_writes import note_unseen_cuts
from workflows.episode.permit import obtain_permit
from workflows.episode.preflight import FIRST_PAUSE, LONGEST_PAUSE
from workflows.episode.state import End, EpisodeState, FencingProgress, PowerProgress, StepProgress, Turn
from workflows.fencing.case import Case, open_case
from workflows.fencing.paths import QUARANTINE
from workflows.fencing.power_steps import CrashDump, PowerManagement
from workflows.kit import options
from workflows.kit.interrupts import (
    INTERRUPTS,
    AbortAsked,
    Interrupt,
    LicenceMissing,
    MachineGone,
    NeedGone,
    NonRetryable,
    OffenderFound,
    ProofLost,
    StepFailed,
    TargetChanged,
    Vetoed,
    WordRefuted,
)
from workflows.kit.messages import AbortRequest

ONCE_BACK = "it ends once the node is back, or its time for that is over"
FREED_WHILE_DUMPING = "its pods may have been freed while its kernel dumped"

PendingEnd = Callable[[], Awaitable[End]]
"""An end that is still to be carried out."""


class FencingStory:
    """One fencing of one node: before its target is pinned nothing is known of it but what was asked for."""

    def __init__(
        self,
        request: FencingInput,
        episode: Episode,
        *,
        step: StepProgress | None = None,
        adjust: Callable[[FencingPlan], FencingPlan] | None = None,
        left_before: tuple[str, ...] = (),
    ) -> None:
        """step: of a ladder, which this is; None: an episode of its own. Once its time is over nothing more is begun while there
        is a way back, and the node's return is waited for no longer. adjust: what is made of the node's plan. left_before: the
        devices that earlier steps have left off."""
        self._request = request
        self._case: Case | None = None
        self._adjust = adjust
        self._is_a_step = step is not None
        self._left_before = left_before
        self._branch: EpisodeState | StepProgress = step or episode.state
        self.episode = episode
        if self._branch.fencing is not None:
            self._open(self._branch.fencing)

    def put_off(self, duration: timedelta) -> None:
        """So much longer it has: nothing could be done."""
        if isinstance(self._branch, StepProgress) and self._case is None:
            self._branch.began += duration
        elif self._case is not None and self.case.progress.deadline is not None and self.case.progress.held_since is None:
            self.case.progress.deadline += duration

    @property
    def case(self) -> Case:
        """Everything about the node, once the target is pinned."""
        assert self._case is not None
        return self._case

    @property
    def power_management(self) -> PowerManagement:
        """What is done about the power of the pinned machine."""
        return PowerManagement(self.case)

    # The story ------------------------------------------------------------------------------------------------------

    async def run(self) -> EpisodeResult:
        """From the first look to the end of the episode, whatever happens in between. Raises NewHistory: it goes on there."""
        if (refused := await self._begin()) is not None:
            return await close(self.episode, refused, None)
        end = self.case.progress.ended or await self._until_the_end()
        case = self.case
        case.progress.ended = end
        await case.answering.finish(end.outcome, end.message)
        return await close(
            self.episode,
            end,
            case.node_writer,
            powered_on_at=case.progress.power.powered_on_at,
            powered_off_at=case.power.off_commanded_at,
            left_off=case.leaves_off,
            freed_pods=case.freeing.freed_pods + case.progress.isolation.freed_pods,
        )

    async def as_a_step(self) -> End:
        """The same as one step of a remediation, which has the permit, goes on afterwards, and closes the episode.

        Raises NonRetryable where a fencing by itself would ask for a person, AbortAsked after what an abort asks for is done.
        """
        try:
            return await self._begin() or await self._until_the_end()
        finally:
            if self._case is not None:  # a path is one, whichever step has cut it and whichever has freed
                self.episode.state.freed = self._case.freed_something

    async def undo(self) -> str:
        """Give back what is still cut, as far as the pinned machine is there. Answers what is left cut, in words to end a
        sentence with."""
        if self._case is None or not self._case.isolation.paths.left:
            return ""
        case = self.case
        if await case.preflight.refresh() and case.pinned_node.is_replaced():
            return case.isolation.paths.left
        return await self._give_back_paths(patient=False)

    @property
    def left_off(self) -> tuple[str, ...]:
        """The devices by which the machine was switched off, and not on again for all that is known here."""
        return self._case.power.left_off if self._case is not None else ()

    def doubt(self) -> str:
        """Why a node that is well is a person's case all the same, "" where it is none."""
        return self._case.doubt() if self._case is not None else ""

    async def bring_back(self) -> str:
        """What this story has left off is switched on again, and its return is waited for. Answers why it does not come back, ""
        where it does."""
        try:
            if self._case is None:  # a reset took back that it had begun
                if (refused := await self._begin()) is not None:
                    return refused.message
                self.episode.enter(phase=Phase.RUNNING, doing="switches the machine on again")
            case = self.case
            await case.preflight.keep_sealed()
            case.progress.deadline = None  # the time of the step is over, that of the machine is not
            if problem := await self.power_management.switch_on_again():
                return problem
            await self.power_management.wait_for_return()
        except Interrupt as interrupt:
            if self._case is not None:
                self._case.progress.switched_on = False
            return interrupt.reason
        case.progress.switched_on = False
        return ""

    async def _until_the_end(self) -> End:
        """The flow as often as it takes, and a person where it can't go on. A new history goes on where this one stands."""
        if (end := self.case.progress.end) is not None:
            return await self._restored(end.outcome, end.message)
        if self.case.need.kind is NeedKind.CLEAN_UP:
            return await self._clean_up()
        while True:
            await self.case.preflight.keep_sealed()
            if (ended := await self._answered()) is not None:
                return ended
            await self.case.preflight.keep_sealed()  # a person may have taken days
            try:
                with self.episode.undertaking("the flow"):
                    return await self._flow()
            except Interrupt as interrupt:
                progress, kind = self.case.progress, type(interrupt)
                if kind is LicenceMissing and not self._is_a_step:
                    kind = NonRetryable  # which workers of earlier builds know, too: it may wait for a person under one
                progress.turn, progress.switched_on = Turn(interrupt=kind.__name__, reason=interrupt.reason), False

    async def _answered(self) -> End | None:
        """What follows from the latest interrupt of the flow. None: the flow again."""
        progress = self.case.progress
        if progress.turn is None:
            return None
        with self.episode.undertaking("the answer"):
            try:
                if progress.parked:
                    ended = await self._last_resort(progress.parked)
                else:
                    ended = await self._answer(progress.turn)
            except MachineGone as interrupt:
                ended = await self._restored(Outcome.REPLACED, interrupt.reason)
        self.case.progress.turn = None
        return ended

    async def _answer(self, turn: Turn) -> End | None:
        interrupt, reason = INTERRUPTS[turn.interrupt], turn.reason
        if issubclass(interrupt, MachineGone):
            raise MachineGone(reason)
        if issubclass(interrupt, NeedGone):
            return await self._way_back(Outcome.RECOVERED, f"nothing more to do: {reason}")
        if issubclass(interrupt, Vetoed):
            given_up = "given up" if self._is_a_step else "given up before power-off"  # an earlier step may have switched it off
            how_far = "can't be finished" if self.touched else given_up
            return await self._way_back(Outcome.RELEASED, f"{how_far}: {reason}")
        if issubclass(interrupt, AbortAsked):
            return await self._aborted(reason)
        if issubclass(interrupt, StepFailed):
            if issubclass(interrupt, ProofLost):
                self.case.node_writer.note_off(None)
                await self.case.freeing.leave()  # it runs, for all that is known, and the taint would go on taking effect
            if issubclass(interrupt, WordRefuted):
                return await self._last_resort(reason)
            return await self._start_over(reason)
        if issubclass(interrupt, TargetChanged):
            if await self._is_registered_anew():
                return None
            if gone := self.case.preflight.gone_for_good:
                raise MachineGone(gone)
            if self.case.pinned_node.is_gone() and not self._is_a_step:
                reason += self._not_given_up()  # no look before that could ever say go (S9)
        of_a_step = next((each for each in (OffenderFound, LicenceMissing) if issubclass(interrupt, each)), NonRetryable)
        return await self._last_resort(reason, of_a_step)

    async def _last_resort(self, problem: str, of_a_step: type[Interrupt] = NonRetryable) -> End | None:
        """A person is asked; where this is a step of a ladder, the next one goes first. of_a_step: how the ladder learns it."""
        if self._is_a_step:
            await self.case.freeing.leave()
            raise of_a_step(problem)
        while True:
            if (ended := await self._park(problem)) is not None:
                return ended
            problem = await self._look_up_anew()
            if not problem:
                return None

    async def _flow(self) -> End:
        """The three steps. A restart of the flow finds what is proven and does only the rest (S5)."""
        case, act, crash_dump = self.case, self.power_management, CrashDump(self.case)
        if self._request.seen_off and case.lacks_proof:
            raise NonRetryable("a person said off, which no longer stands; nothing was switched off on that word")
        if not case.plan.levels and case.power.proof is None:
            await self._isolate()  # the paths are cut and what lies behind them is freed: the restart is not ours
            await self._stop_at_an_offender(comes_back=False)
            await act.wait_for_return()
            return await self._returned()
        if not case.progress.freeing.done:
            if case.power.proof is None and not await act.was_switched_off():
                await self._isolate()
                await crash_dump.free_at_once()
                await self._wait_before_power()
                await crash_dump.wait()
                await case.tries.carry_out(FenceStep.POWER_MANAGEMENT, act.try_off)
            await case.tries.carry_out(FenceStep.POWER_MANAGEMENT, act.try_free)
        if case.leaves_off:
            return await self._leave_off()
        gives_up = case.power.is_to_be_given_up and case.power.proof is not None
        await self._stop_at_an_offender(comes_back=not gives_up and (case.plan.power_on or case.progress.power.kept))
        if case.power.is_to_be_given_up and case.power.proof is not None:
            await case.tries.carry_out(FenceStep.POWER_MANAGEMENT, act.try_give_up)
            given_up = case.progress.power.given_up_read
            message = f"off {case.power.proof.basis}, and the machine is given up for good ({given_up})"
            return await self._restored(Outcome.FENCED_OFF, message)
        if not case.plan.power_on and not case.progress.power.kept:
            if case.power.proof is None:
                raise NonRetryable("off no longer holds: the machine was to stay off, and it was switched on from elsewhere")
            off = f"off {case.power.proof.basis}"
            await act.report_finished(f"{off}, and the machine is left off")
            return await self._restored(Outcome.FENCED_OFF, f"{off}, and the plan leaves the machine off")
        proof = case.power.proof
        await act.switch_on()
        off = f"off {proof.former_basis if proof is not None else 'was proven'}"
        await act.report_finished(f"{off}, and the machine is switched on again")
        await act.wait_for_return()
        return await self._returned()

    async def _stop_at_an_offender(self, *, comes_back: bool) -> None:
        """Once a machine that a program has repaired again and again is isolated, a person is asked, and the answer holds.
        comes_back: whether it is switched on next; one that is to be kept goes no other way either (S53). Where it is not known
        whether it is one, that is asked anew for a minute."""
        episode, need, pause = self.episode, self.case.need, FIRST_PAUSE
        if self.case.progress.switched_on or not need.kind.automatic:
            return
        while episode.repairs.is_doubtful and (episode.repairs.keeps or comes_back) and pause < LONGEST_PAUSE:
            with suppress(ActivityError):
                pin = await self._pin()
                episode.note_repairs(pin.repairs, pin.need)
            if episode.repairs.is_doubtful:
                episode.enter(doing=f"waits to learn how often the machine was repaired: {episode.repairs.problem}")
                await episode.rest(pause, "until its repairs are counted again")
                pause *= 2
        if episode.repairs.keeps or (episode.repairs.asks and comes_back):
            raise OffenderFound(episode.repairs.question)

    # Beginning ------------------------------------------------------------------------------------------------------

    async def _begin(self) -> End | None:
        """Pin the target, get the permit, leave the mark. Returns the end of an episode that may not begin."""
        if self._case is None:
            self.episode.enter(step=FenceStep.ISOLATION, doing="looks at the node")
            self.episode.introduce(zone="", reason=self.episode.state.reason)
            try:
                pin = await self._pin()
            except ActivityError as error:
                return refusal(error_message(error), missing=error_type(error) is ErrorType.NOT_FOUND)
            self._begin_with(pin)
        if self.case.progress.begun:
            return None
        case, acts = self.case, self.case.need.kind is not NeedKind.CLEAN_UP
        if untrue := self._acknowledgement_refuted():
            return not_begun(self.episode, untrue)
        try:
            await case.tries.carry_out(FenceStep.ISOLATION, case.adoption.take_over)
            if not self.episode.state.permit and acts:
                refused = await obtain_permit(self.episode, case.permit_request())
                if refused:
                    return not_begun(self.episode, refused)
                await case.see_which_boot()
                if untrue := self._acknowledgement_refuted():
                    raise NonRetryable(untrue)
            self.episode.enter(phase=Phase.NEW, doing="marks the node as ours")
            if case.progress.pin.added is None:
                await case.tries.carry_out(FenceStep.ISOLATION, self._mark)
            await case.tries.carry_out(FenceStep.ISOLATION, case.answering.begin)
        except Interrupt as interrupt:
            await case.adoption.settle()  # once the marks are gone it is not known any more what may be in flight
            if not self._is_a_step:
                await case.node_writer.remove_marks(case.plan.retry_interval)  # an answer may have been lost
            return not_begun(self.episode, f"{interrupt.reason}{case.isolation.paths.left}")
        await case.adoption.settle()
        if self._request.seen_off:
            self.power_management.accept_acknowledgement()
        case.progress.begun = True
        return None

    def _acknowledgement_refuted(self) -> str:
        """Why the machine that a person said was off has run since, "" where nothing says so: the cluster may have been looked at
        hours after the word, and that is another fall than the one that the person saw (S8, S43)."""
        acknowledgement, node = self.episode.state.acknowledgement, f"Node/{self.episode.state.node}"
        since = self.case.pinned_node.pinned.not_ready_since
        if self._request.seen_off and self.case.pinned_node.says_ready():
            return f"{node} says Ready, so it is not off"
        if not self._request.seen_off or acknowledgement is None:
            return ""
        later = since is not None and since > acknowledgement.at
        return f"{node} was Ready after {acknowledgement.by} said off: look at it again, and say it again" if later else ""

    async def _look_up_anew(self) -> str:
        """A person has it go on. As long as no device was touched and no volume detached, the node and its configuration are
        looked up anew: what was fixed is what acts. Afterwards the devices that were begun with are those that finish (S9). A
        person's word that the machine is off stands for it, whichever device was named before. Answers why that can't be."""
        case, off_proven = self.case, self.case.power.proof is not None
        begun = not case.power.untouched or case.freed_something or case.progress.freeing.done
        begun = begun or bool(case.isolation.paths.left) or case.isolation.has_detached
        turn = case.progress.turn
        if begun and not (turn is not None and issubclass(INTERRUPTS[turn.interrupt], NonRetryable)):
            return ""  # else a device's seal may be what is not believed
        try:
            pin = await self._pin()
        except ActivityError as error:
            return "" if off_proven or begun else error_message(error)
        if begun:
            self.episode.seal_anew(pin.plan)  # the key that had sealed them may be lost
            return ""
        before = case.pinned_node.pinned
        if before.uid != pin.pinned.uid and (pin.seen is None or not same_machine(before, pin.seen)):
            return f"another machine has taken the name {before.node}"
        if off_proven and pin.pinned.boot_id not in {"", before.boot_id}:
            case.power.end_proof()
            return f"the acknowledgement is void: the node shows boot {pin.pinned.boot_id}, and {before.boot_id} was seen off"
        if off_proven and set(before.endpoints) == set(pin.pinned.endpoints):
            self.episode.seal_anew(pin.plan)
            return ""
        power, before_it = PowerProgress(), case.progress.power
        power.read_before_question, power.proof, power.kept = before_it.read_before_question, before_it.proof, before_it.kept
        self._begin_with(pin, case.progress, power)
        try:
            await self.case.adoption.take_over()
            await self._mark()
        except Interrupt as interrupt:
            return interrupt.reason
        return ""

    async def _is_registered_anew(self) -> bool:
        """Whether another Node object stands for the same machine. Before off it becomes the one that we are about. Afterwards
        what needs the old one is dropped, freeing its pods and giving the machine up, and the machine comes back as any other
        (S9). Where nothing is left to be dropped, a person says what is to become of it."""
        case = self.case
        if not await case.preflight.refresh() or not case.pinned_node.is_registered_anew():
            return False
        if case.power.proof is not None:
            why = "the Node was made anew since the machine was switched off"
            if not case.progress.freeing.done:
                case.freeing.drop(why)
                case.node_writer.send_event(EventReason.WORKLOADS_LEFT, f"{why}: nothing of it is freed")
                return True
            if case.progress.power.kept or not case.power.keep():
                return False
            case.node_writer.send_event(EventReason.MACHINE_KEPT, f"{why}: it is not given up")
            return True
        case.pinned_node.adopt_node()
        if not case.touched and not case.isolation.paths.left:
            case.pinned_node.follow_boot()
        case.isolation.begin_anew()
        self.episode.state.added = replace(self.episode.state.added, cordoned=False, taints=())  # of the Node that is gone
        try:
            await self._mark()
        except Interrupt as interrupt:
            self.episode.note("mark", "failed", interrupt.reason)
            return False
        return True

    async def _pin(self) -> PinResult:
        """Pin the node that it is about. An episode that has its permit marks the node with it, and cordons one that a check
        calls sick; a ladder has marked it before its steps."""
        first, need = self._case is None, self._request.need
        marks = (
            first and not self._is_a_step and self.episode.state.permit and (need is None or need.kind is not NeedKind.CLEAN_UP)
        )
        asked_for = self._request.node_uid if first else ""  # later the story judges
        return await self.episode.execute(
            TargetActivities.pin,
            PinRequest(
                wanted=replace(self._request, incident=self.episode.state.incident, node_uid=asked_for),
                run_id=self.episode.state.run_id,
                marks_as=self.episode.state.run_id if marks else "",
                # One that a check calls sick has waited already (`_wait_before_isolation`).
                cordons=marks and need is not None and need.kind is NeedKind.CHECK,
                not_after=workflow.now() + options.WRITE_WINDOW,
            ),
            options.cluster_read,
            f"isolation: pins {self.episode.state.node}",
        )

    def _begin_with(self, pin: PinResult, before: FencingProgress | None = None, power: PowerProgress | None = None) -> None:
        """What was pinned is what it is about. before: the fencing that goes on with it; isolation and freeing begin anew.
        power: what stays known of the machine."""
        if self._adjust is not None:
            pin = replace(pin, plan=self._adjust(pin.plan))
        episode = self.episode
        episode.state.cause, episode.state.check, episode.state.control_plane = (
            pin.need.cause,
            pin.need.check_key,
            pin.control_plane,
        )
        episode.see(pin.seen)
        episode.state.pinned = pin.pinned
        episode.state.acknowledged_boot = episode.state.acknowledged_boot or pin.pinned.boot_id
        episode.introduce(zone=pin.pinned.zone, reason=pin.need.reason, since=pin.need.since)
        episode.learns_of(pin.added)
        episode.note_repairs(pin.repairs, pin.need)
        if episode.repairs.keeps:
            pin = replace(pin, plan=keeping_plan(pin.plan))
        episode.publisher.learn_of_stream(pin.streams)
        episode.note("pin", "ok", f"uid {pin.pinned.uid}, boot id {pin.pinned.boot_id}, plan {pin.plan.source}")
        for warning in pin.plan.warnings:
            episode.note("plan", "warning", warning)
        episode.seal_anew(pin.plan)
        episode.begin_round()
        step = self._branch if isinstance(self._branch, StepProgress) else None
        deadline = step.began + step.step.timeout if step is not None and step.step.timeout is not None else None
        progress = FencingProgress(pin=pin, deadline=deadline, power=power or PowerProgress())
        episode.state.off_proof = progress.power.proof
        if before is not None:
            progress.begun, progress.turn, progress.answered = before.begun, before.turn, before.answered
            progress.deadline = before.deadline
        self._branch.fencing = progress
        self._open(progress)
        self.case.adoption.begin(pin.adopted_incident, pin.adopted_paths)
        self.case.isolation.paths.adopt(pin.adopted_paths)
        if pin.cordoned:
            self.case.isolation.take_cordon(pin.cordoned, pin.version)
        self.case.power.take_over_left_off(self._left_before)

    def _open(self, progress: FencingProgress) -> None:
        self._case = open_case(self.episode, progress, configured=Configured(template=self._request.template))

    async def _mark(self) -> None:
        await self.case.node_writer.write(TargetActivities.mark, "isolation: marks the node")

    async def _clean_up(self) -> End:
        """Marks without an open episode go from a node that is well; one that is not keeps them, and a person or a check
        decides."""
        reason = await self.case.preflight.why_not_clean_up()
        if reason:
            return End(outcome=Outcome.RELEASED, message=f"the marks of an earlier episode are left: {reason}")
        message = "the node is healthy; the marks of an earlier episode are gone"
        return await self._restored(Outcome.RECOVERED, message)

    # Isolation, and the waits before power-management ---------------------------------------------------------------

    async def _isolate(self) -> None:
        await self.case.preflight.may_go_on()
        self.episode.enter(phase=Phase.NEW, step=FenceStep.ISOLATION, doing="reads the power state")
        if (pin := self.case.progress.pin).cordoned:
            # Not with the pin: the Event of the cordon comes after that of the step, and NodeFence shows New before Running.
            self.case.isolation.publish_cordon()
            self.case.progress.pin = replace(pin, cordoned="")
        await self.case.power.try_out()
        await self._wait_before_isolation()
        await self.case.isolation.carry_out()
        self.episode.enter(phase=Phase.RUNNING, doing="is isolated")

    async def _wait_before_isolation(self) -> None:
        """A node that a check calls sick has waited already; one that a person named gets the plan's time to show itself well."""
        case = self.case
        due = self.episode.state.started + case.plan.wait_before_isolation
        while case.need.kind is not NeedKind.CHECK and not case.isolation.began and workflow.now() < due:
            self.episode.enter(doing="waits before isolation", until=due)
            await self.episode.rest(case.preflight.in_time(due - workflow.now()), "the wait before isolation")
            await case.preflight.may_go_on()

    async def _wait_before_power(self) -> None:
        """The seed's wait, counted from NotReady; a node that comes back meanwhile goes to recovery."""
        case = self.case
        # A check's node has been failing at the latest since we began; a person may ask for a node that is Ready.
        started = self.episode.state.started if case.need.kind is NeedKind.CHECK else None

        node = case.pinned_node
        while (remaining := power_due(node.pinned.not_ready_since, case.plan, workflow.now(), started=started)) > timedelta(0):
            self.episode.enter(doing="waits before power-management", until=workflow.now() + remaining)
            await self.episode.rest(case.preflight.in_time(remaining), "the wait before power-management")
            await case.look_while_waiting()

    # Turning back, and failing --------------------------------------------------------------------------------------

    async def _way_back(self, outcome: Outcome, message: str) -> End | None:
        """Nothing more may be done, or need be. A machine that we switched is switched on first; where off was proven a
        person decides what becomes of it."""
        case = self.case
        half_done = case.touched or self.episode.state.kernel_dead is not None
        if case.power.proof is not None or (half_done and outcome is not Outcome.RECOVERED):
            if outcome is Outcome.RECOVERED:
                message += self._not_given_up()
            return await self._last_resort(message)
        if problem := case.doubt() or await self.power_management.switch_on_again():
            return await self._last_resort(f"{message}; but {problem}")
        return await self._restored(outcome, message)

    def _not_given_up(self) -> str:
        """A machine that is off, and was to be given up, comes back with a person's word instead. Answers what people are told of
        that, "" where it can't be."""
        if self.case.power.proof is None or not self.case.power.keep(by_a_person=True):
            return ""
        return "; the machine is off and is not given up: `resume` switches it on, `abort` leaves it off"

    async def _start_over(self, reason: str) -> End | None:
        """A step used up its tries: the whole flow again, keeping what is proven, while restarts are left."""
        self.episode.enter(phase=Phase.ERROR, doing=reason)
        if self.episode.state.restarts >= self.case.plan.restarts:
            return await self._last_resort(reason)
        self.episode.state.restarts, self.episode.state.most_restarts = self.episode.state.restarts + 1, self.case.plan.restarts
        self.episode.note("restart", "begins", f"{self.episode.state.restarts} of {self.case.plan.restarts}: {reason}")
        return None

    # Parked: an open episode that does nothing more until a person decides, or until no person is needed any more --------

    async def _park(self, problem: str) -> End | None:
        """Wait until a person has it go on (None), or until it ends. Nothing is in flight meanwhile, the permit is given back, id
        and marks are kept. What a person may send is `workflows/episode/episode_workflow.py`."""
        case = self.case
        if case.progress.parked != problem and not self.episode.asks_no_person:
            case.progress.parked = problem
            case.power.remember_readings()
            await case.freeing.pause()
            await case.node_writer.ask_for_a_person(problem)
            await case.answering.report(Stage.FAILED, problem)
        ending = await self._wait_for_a_person(problem)
        case.progress.parked = ""
        return await ending() if ending is not None else None

    async def _wait_for_a_person(self, problem: str) -> PendingEnd | None:
        episode, case = self.episode, self.case
        pause = FIRST_PAUSE
        while True:
            wait: timedelta | None = None
            if (abort := episode.state.abort_asked) is not None:
                turn = Turn(interrupt=AbortAsked.__name__, reason=f"{abort}; {problem}")
                case.progress.turn = turn
                return partial(self._aborted, turn.reason)
            if case.progress.freeing.may_be_tainted:
                await case.freeing.pause()  # it could not be removed before, and the proof is not read
            if case.pinned_node.seems_changed() and (ending := await self._ended_by_itself()):
                return ending
            if void := episode.take_void():
                await case.node_writer.ask_for_a_person(f"{problem}; {void}")
            answer = episode.state.resumed or (episode.state.acknowledgement if case.lacks_proof else None)
            if answer is not None and not episode.is_held:
                if case.only_restoring_is_left:
                    break  # a circuit breaker holds up nothing that restores (S17)
                refused = await obtain_permit(episode, case.permit_request())
                if not refused and await self._stands():
                    break
                if not refused:
                    continue
                # What refuses it passes: a worker's view is young after its start, a scanner is stopped. A person's word is kept
                # until it is obeyed, or taken back by a hold or an abort (S44).
                wait, pause = pause, min(pause * 2, LONGEST_PAUSE)
                episode.state.problem = f"{problem}; the answer of {answer.by} is kept until there is a permit: {refused}"
                episode.enter(phase=Phase.NEEDS_HUMAN, doing="waits for a permit to go on")
            if wait is None and case.progress.freeing.may_be_tainted:
                wait, pause = pause, min(pause * 2, LONGEST_PAUSE)
            if episode.state.abort_asked is None:  # it may have come while we looked elsewhere
                await episode.rest(wait, "a permit" if wait else "a person's word")
        episode.state.restarts, episode.state.problem, case.progress.resumed_at = 0, "", workflow.now()
        if episode.state.resumed is not None:
            episode.let_offender_go(problem)
        self.power_management.accept_acknowledgement()
        episode.enter(phase=Phase.RUNNING, doing="goes on")
        return None

    async def _stands(self) -> bool:
        """Whether there is a word still, now that there is a permit: another boot, or a kubelet that reports, may be seen only by
        now and ends one for off (S6, S8)."""
        if not (self.case.touched or self.case.freed_something):
            await self.case.see_which_boot()
        return self.episode.state.resumed is not None or self.episode.state.acknowledgement is not None

    async def _ended_by_itself(self) -> PendingEnd | None:
        """A parked node that came back, or was replaced, needs no person any more. Believed only of what was read just now."""
        case = self.case
        if not await case.preflight.refresh():
            return None
        if gone := case.preflight.gone_for_good:
            return partial(self._restored, Outcome.REPLACED, gone)
        returned = case.pinned_node.is_replaced() or case.pinned_node.is_back()
        if self.episode.repairs.keeps and self.episode.repairs.is_asked_in(case.progress.parked):
            return self._returned if case.pinned_node.is_replaced() else None  # a person may have switched it on to look at it
        if returned:
            return self._returned
        if case.power.proof is None and await case.preflight.need_is_gone():
            outcome, message = Outcome.RECOVERED, "the node came back by itself"
            if case.pinned_node.is_gone():
                outcome, message = Outcome.RELEASED, "the Node is gone"
            elif not case.pinned_node.says_ready():
                message = "the need is gone"
            if not (problem := case.doubt() or await self.power_management.switch_on_again()):
                return partial(self._restored, outcome, message)
            self.episode.state.problem = f"{message}; but {problem}"  # and so it stays parked
            self.episode.enter(doing="needs a person")
        return None

    # Ending: every end gives back what carries our mark (S35); `workflows/episode/end.py` makes it the end of the episode --

    async def _returned(self) -> End:
        """The name is back: is it the same machine, and was an abort asked for meanwhile?"""
        if self.case.pinned_node.is_replaced():  # nothing of ours is on the other one
            message = f"another machine has taken the name {self.episode.state.node}{self.case.isolation.paths.left}"
            return End(outcome=Outcome.REPLACED, message=message)
        if (abort := self.episode.state.abort_asked) is not None:
            return await self._restored(Outcome.ABORTED, f"{abort}; the node is back")
        proof = self.episode.state.off_proof
        proven = f"off {proof.former_basis}; " if proof is not None else ""
        return await self._restored(Outcome.RECOVERED, f"{proven}the node is back Ready with a new boot id")

    async def _restored(self, outcome: Outcome, message: str) -> End:
        """Recovery: give the paths back and undo what carries our mark, however long the API is away; no circuit breaker holds it
        up (S17).

        After an abort, and where the machine is left off, a path stays cut where pods were freed behind it: that is a decision
        of its own (S35).
        """
        case = self.case
        if case.progress.end is None and not case.touched and case.plan.levels and case.need.kind is not NeedKind.CLEAN_UP:
            self.episode.note(FenceStep.POWER_MANAGEMENT.value, "skipped", message)
        case.progress.end = End(outcome=outcome, message=message)
        with self.episode.undertaking("the end", by_itself=True):
            await self._find_paths_of_before()
            left = await self._give_back_paths(patient=outcome not in {Outcome.ABORTED, Outcome.FENCED_OFF})
            keep_cordon = UNCORDON.act not in {method.act for method in case.plan.recovery}
            tainted = case.progress.freeing.may_be_tainted
            await case.node_writer.remove_marks(case.plan.retry_interval, keep_cordon=keep_cordon, tainted=tainted)
        return End(outcome=outcome, message=f"{message}{left}{case.freeing.left}")

    async def _find_paths_of_before(self) -> None:
        """What a reset took back may have cut paths, of which our mark tells, and freed pods behind any of them."""
        if not self.episode.was_reset:
            return
        with contextlib.suppress(Interrupt):  # without the mark, or the node, there is nothing that could tell
            found = await self.case.node_writer.write(TargetActivities.mark, "recovery: reads what our mark tells of")
            cut, paths = (found.added or NOTHING_ADDED).paths, self.case.isolation.paths
            paths.adopt(tuple(each for each in cut if paths.is_unknown(each)))
            note_unseen_cuts(self.episode, cut)

    async def _give_back_paths(self, *, patient: bool) -> str:
        """What was cut is connected again as far as it may be. Returns what is left cut, in words to end a sentence with.

        patient: however long it takes.
        """
        case = self.case
        if case.isolation.paths.left:
            await case.freeing.leave()  # giving paths back may take long
            if case.isolation.paths.found_cut and not self._may_restore_path(found_cut=True):
                await case.isolation.let_go_of_open_paths()
        return await case.isolation.undo(
            may_restore=lambda found_cut: self._may_restore_path(found_cut=found_cut), patient=patient
        )

    async def _aborted(self, reason: str) -> End:
        """Aborted while we waited or tried. An off that was commanded is waited out and read before anything is undone."""
        if not self.case.touched:
            but = f"; {FREED_WHILE_DUMPING}" if self.episode.state.kernel_dead is not None else ""
            return await self._restored(Outcome.ABORTED, f"{reason}{but}")
        abort, is_off, but = self.episode.state.abort_asked, await self.power_management.is_off_after_all(), ""
        if is_off:
            try:
                await self.power_management.try_free()
            except Interrupt as interrupt:
                but = f"; not all is freed: {interrupt.reason}"
            if self.case.leaves_off:
                return await self._leave_off(but)
        if is_off or (abort is not None and abort.power_on):
            try:
                await self.power_management.switch_on()
                await self.power_management.wait_for_return()
            except Interrupt as interrupt:
                but += f"; power on: {interrupt.reason}"
        elif self.case.progress.power.powered_on_at is None:
            on = [each.endpoint for each in self.episode.devices_on]
            but = f"; {' and '.join(on)} said on" if on else "; the power state is not known, it may be off"
        return await self._restored(Outcome.ABORTED, f"{reason}{but}")

    async def _leave_off(self, but: str = "") -> End:
        """Consequences are finished and power stays off: switching it on again is a decision of its own (S35)."""
        abort = self.episode.state.abort_asked
        who = f" by {abort.by}: {abort.reason}" if abort else ""
        proof = self.case.power.proof
        how = proof.former_basis if proof is not None else "was proven"
        return await self._restored(Outcome.ABORTED, f"aborted{who}; off {how}, and the machine is left off{but}")

    def _may_restore_path(self, *, found_cut: bool) -> bool:
        consequences = self.case.freed_something
        if (consequences or found_cut) and self.episode.state.restart_proof is None:
            self.case.pinned_node.is_back()  # keeps the proof of a restart, also of one that was not ours
        return may_restore_path(consequences=consequences, found_cut=found_cut, restart=self.episode.state.restart_proof)

    # What others ask of it ----------------------------------------------------------------------------------------------

    @property
    def touched(self) -> bool:
        """Whether anything has been done to the machine or its workloads."""
        return self._case is not None and self._case.touched

    @property
    def began(self) -> bool:
        """The same, and whether the node has been isolated in any way."""
        return self.touched or (self._case is not None and self._case.isolation.began)

    def what_abort_means(self, request: AbortRequest) -> str:
        """What comes of an abort now, for the person who asks for it."""
        if not self.began and self.episode.state.phase is Phase.QUEUED:
            return "the episode ends; it has no permit yet, and nothing was done to the node"
        if not (self.touched or self._commands_off):
            means, stays = "power has not been touched, our cordon and annotation are removed", self._stays_cut
            if stays:
                means += f"; but {', '.join(stays)} stays cut: pods may have been freed behind it"
            return f"{means}; {FREED_WHILE_DUMPING}" if self.episode.state.kernel_dead is not None else means
        if self.case.progress.switched_on:
            return f"the machine is switched on already; {ONCE_BACK}"
        if self.case.progress.power.commands_on:
            return f"the machine is being switched on; {ONCE_BACK}"
        return after_off(request, self.episode.state.node)

    @property
    def only_restores(self) -> bool:
        """Whether all that was to be destroyed is done."""
        return self._case is not None and self.case.only_restoring_is_left

    @property
    def what_hold_stops(self) -> str:
        """What comes next that a hold keeps it from, "" where nothing is left. Of a machine that is off it also keeps the pods
        from being freed and the power from being switched on."""
        if self._case is None:
            return NEXT_ACT
        power = self.case.progress.power
        if self.case.progress.switched_on or self.case.progress.end is not None:
            return ""
        if power.commands_on or power.devices_on:
            return "another try to switch the machine on"
        if power.proof is None:
            return NEXT_ACT
        comes_back = (self.case.plan.power_on or power.kept) and not self.case.leaves_off
        last = "giving it up" if self.case.power.is_to_be_given_up else "switching it on" if comes_back else ""
        frees = "" if self.case.progress.freeing.done else "freeing its pods"
        return f"{' and '.join(filter(None, (frees, last)))} (the machine is off)" if frees or last else ""

    @property
    def _commands_off(self) -> bool:
        """Whether an off is under way: what becomes of it is read, and the episode ends by that."""
        return self._case is not None and self._case.progress.power.commands_off

    @property
    def _stays_cut(self) -> list[str]:
        """What an abort leaves cut (S35); a quarantine is lifted."""
        if self._case is None or self.episode.state.restart_proof is not None:
            return []
        ports = [each for each in self._case.isolation.paths.cut_now if not each.endswith(QUARANTINE)]
        return [each for each in ports if self._case.freed_something or each in self.episode.state.found_cut]

    @property
    def stays_off(self) -> bool:
        """Whether its end is carried out, and leaves the machine off: by a device of ours, or by a person's word, or for all that
        is known after a reset."""
        if self._case is None or (end := self._case.progress.end) is None:
            return False
        on = self._case.progress.switched_on or self._case.progress.power.devices_on
        as_it_is = end.outcome in {Outcome.ABORTED, Outcome.FENCED_OFF} and self.touched and not on
        return as_it_is or bool(self.left_off)

    def wants_acknowledgement(self) -> bool:
        """Whether it waits for a person, and off has yet to be proven. Where only marks or paths can't be given back a person's
        word for off would change nothing."""
        case = self._case
        return (
            case is not None and bool(case.progress.parked) and self.episode.state.phase is Phase.NEEDS_HUMAN and case.lacks_proof
        )


def after_off(request: AbortRequest, node: str) -> str:
    """What comes of an abort where the machine may be off."""
    if request.power_on:
        return "what was begun is finished, then the machine is switched on"
    how = f"`nodewarden fence {node} --reason …` brings it back"
    return f"it ends once the power state is read; a machine that is off stays off, {how}"
