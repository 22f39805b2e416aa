"""Remediation: a node or machine that has failed is repaired or replaced, by an ordered ladder of steps.

The story is `RemediationStory`, from top to bottom; `Remediation` at the end is the thin workflow round it. A step is tried until
the patient is well or replaced, until it has failed, or until its time is over; then comes the next one, and after the last a
person, never silence. What a step is are `workflows/replacing.py` (another machine), `workflows/handing_out.py` (another
controller) and `workflows/fencing_step.py` (our own fencing). What has failed is noted on the patient before each step and handed
to whoever replaces it (`policy/remediation/memory.py`).

A machine whose preservation has ended is handed over to the same workflow, and has its own story (`workflows/giving_up.py`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.remediation import RemediationActivities, RemediationPin
from activities.contracts.target import Target, TargetActivities
from activities.errors import error_message
from policy.episodes import (
    EpisodeResult,
    Kind,
    Need,
    NeedKind,
    Outcome,
    Phase,
    PreservationInput,
    RemediationInput,
    RemediationProgress,
    Step,
    StepTaken,
)
from policy.permits import Release
from policy.remediation.escalation import Strategy, first_step, next_step, timed_out
from policy.remediation.ladder import removes
from workflows import handing_over, options
from workflows.adopting import Adoption
from workflows.bookkeeping import UNMARK_PAUSE, Bookkeeping
from workflows.conversation import EpisodeConversation
from workflows.detaching import DetachingStep
from workflows.endings import End, worth_a_warning
from workflows.episode import Episode
from workflows.fencing_step import FencingStep
from workflows.giving_up import GivingUpStory
from workflows.handing_out import Annotating, HandingOut
from workflows.looks import LICENCE_PATIENCE, Looks
from workflows.messages import AbortRequest
from workflows.patient import Errand, NewHistory, Patient, StepOfLadder
from workflows.replacing import Deletion, OwnersTurn, Replacing
from workflows.turns import AbortAsked, Hopeless, NeedGone, StepFailed, TargetChanged, Turn, Unlicensed, Vetoed

TRY_AGAIN, LONGEST_PAUSE = timedelta(seconds=5), timedelta(minutes=1)
"""Until a step that could not be begun is tried again."""

MAY_BE_OFF = "; the machine may be off: an earlier step had switched it off"

LOOK_WHILE_PARKED = timedelta(minutes=5)
"""A parked one is told when its node changes; what has become of a Machine without one is looked at this seldom."""


class RemediationStory:
    """One remediation of one target."""

    patient: Patient
    _adoption: Adoption

    def __init__(self, request: RemediationInput) -> None:
        self._request = request
        incident = request.incident or workflow.uuid4().hex[:12]
        reason = request.need.reason if request.need is not None else request.reason
        self.episode = Episode(
            kind=Kind.REMEDIATION, cluster=request.cluster, node=request.node, incident=incident, reason=reason
        )
        self.episode.started = request.started or workflow.now()
        self.episode.record += request.record
        self.episode.permit = request.permit_granted
        self.episode.holder = request.holder
        self._set_going: list[StepOfLadder] = []
        """The steps that may have left something that is to be taken back at the end, oldest first."""
        self._errand: Errand | None = None
        self._reached = request.progress.reached if request.progress is not None else -1
        """The last step that was begun: one that brought the node back while a deletion goes on is not taken again."""
        self._left_off = False
        """Whether a step of an earlier history has left the machine off, for all that is known."""

    # The story ------------------------------------------------------------------------------------------------------

    async def run(self) -> EpisodeResult | RemediationInput:
        """From the first look to the end of the episode, or to where it goes on in a new history."""
        refused = await self._begin()
        if refused:
            return await self._close(End(outcome=Outcome.REFUSED, message=refused))
        try:
            end = await self._until_the_end()
        except NewHistory:
            return self._rolled()
        return await self._close(end)

    async def _until_the_end(self) -> End:
        """The ladder as often as a person wants it, and what ends it in between."""
        problem = self._request.exhausted
        while True:
            try:
                if problem and (ended := await self._park(problem)) is not None:
                    return ended
                end = await self._climb()
            except AbortAsked as turn:
                return End(outcome=Outcome.ABORTED, message=turn.reason)
            except TargetChanged as turn:
                return End(outcome=Outcome.REPLACED, message=turn.reason)
            if end is not None and (off := self._left_off_by(end)):
                self._errand, problem = None, f"{end.message}{off}"
                continue
            if end is not None:
                return end
            if self._request.adopts:
                return End(outcome=Outcome.RELEASED, message=f"left behind and not needed: {self.episode.problem}")
            if ended := await self._over_by_itself():  # what has failed may have done it all the same, and late
                return ended
            problem = f"every step has failed: {self.episode.problem or ', '.join(self.patient.failed)}"

    async def _climb(self) -> End | None:
        """Step after step. None: the ladder is used up."""
        ladder, failed = self.patient.pin.ladder, self.patient.failed
        index = self._errand.index if self._errand is not None else first_step(ladder, failed)
        if self._errand is None:
            self._reached = -1
        while index is not None:
            self._reached = max(self._reached, index)
            errand = self._errand or Errand(step=ladder[index], index=index, began=workflow.now())
            self._errand = errand
            self.patient.show(errand)
            step = self._made(errand)
            self._set_going.append(step)
            stage = "goes on" if errand.asked is not None else "begins"
            self.episode.note("step", stage, f"{index + 1} of {len(ladder)}: {errand.step.name}")
            try:
                return await self._with_what_goes(step)
            except (Hopeless, StepFailed, Vetoed) as turn:
                self._errand = None
                await self._fail(step, errand, turn)
            index = next_step(ladder, self._reached, failed)
        return None

    async def _with_what_goes(self, step: StepOfLadder) -> End:
        """Carry it out. A machine whose deletion was asked for by an earlier step goes whatever comes of this one: it is neither
        recovered nor left alone, and only its end is the end."""
        try:
            end = await self._carry_out(step)
        except NeedGone as turn:
            end = End(outcome=Outcome.RECOVERED, message=turn.reason)
        except TargetChanged as turn:  # its Node may go long before it
            end = End(outcome=Outcome.REPLACED, message=turn.reason)
        except Vetoed as turn:
            done = "before anything was done" if len(self._set_going) == 1 else f"before {step.errand.step.name}"
            done = f"before anything came of {step.errand.step.name}" if step.errand.asked is not None else done
            end = End(outcome=Outcome.RELEASED, message=f"given up {done}: {turn.reason}")
        if end.outcome is Outcome.ABORTED or (deletion := await self._deletion_beside(step)) is None:
            return end
        self.episode.note("step", "ok", f"{step.errand.step.name}: {end.message}; its deletion goes on")
        self._errand = deletion.errand
        return await deletion.go_on()

    async def _carry_out(self, step: StepOfLadder) -> End:
        """A step that could not be begun is begun again for a while: nothing of that speaks against it."""
        ends, pause, errand = workflow.now() + LICENCE_PATIENCE, TRY_AGAIN, step.errand
        waited: defaultdict[type[StepFailed], timedelta] = defaultdict(timedelta)  # each kind of waiting has its own patience
        while True:
            try:
                return await step.carry_out()
            except StepFailed as turn:
                over = waited[type(turn)] >= turn.patience if isinstance(turn, Unlicensed) else workflow.now() >= ends
                if over or timed_out(errand.began, errand.step.timeout, workflow.now()):
                    raise
                self.episode.note("step", "tried again", turn.reason)
                self.episode.enter(doing=f"will try again: {turn.reason}")
                began = workflow.now()
                await self.episode.rest(pause, "before the step is tried again")
                waited[type(turn)] += workflow.now() - began
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _deletion_beside(self, step: StepOfLadder) -> Replacing | None:
        """The earlier step by which the machine goes, None where it stays. Unless somebody aborts, that is waited to be known."""
        asked = [each for each in self._set_going if isinstance(each, Replacing) and each is not step]
        other = next((each for each in reversed(asked) if each.errand.asked is not None), None)
        while other is not None:
            try:
                return other if await other.goes() else None
            except StepFailed as turn:
                self.episode.note("look", "failed", turn.reason)
                if self.episode.abort_asked is not None:
                    break
                self.episode.enter(doing=f"will look again whether the machine goes: {turn.reason}")
                await self.episode.rest(LONGEST_PAUSE, "before the machine is looked at again")
        return None

    async def _fail(self, step: StepOfLadder, errand: Errand, turn: Turn) -> None:
        """Told, and remembered: the next one's turn."""
        self.episode.problem = f"{errand.step.name}: {turn.reason}"
        self.episode.note("step", "failed", self.episode.problem)
        self.patient.failed.append(errand.step.name)
        await step.give_up(turn.reason)
        await self.patient.desk.tell("RemediationStepFailed", self.episode.problem, warning=True)

    def _made(self, errand: Errand) -> StepOfLadder:
        match errand.step.strategy:
            case Strategy.DELETE_MACHINE:
                return Deletion(self.patient, errand)
            case Strategy.REQUEST_OWNER:
                return OwnersTurn(self.patient, errand)
            case Strategy.EXTERNAL:
                return HandingOut(self.patient, errand)
            case Strategy.ANNOTATE_EXTERNAL:
                return Annotating(self.patient, errand)
            case Strategy.DETACH_VOLUMES:
                return DetachingStep(self.patient, errand)
            case Strategy.FENCE | Strategy.REBOOT:
                return FencingStep(self.patient, errand)

    # Beginning ------------------------------------------------------------------------------------------------------

    async def _begin(self) -> str:
        """Pin the target, get the permit, leave the mark. Returns why the episode may not begin, "" when it may."""
        if (progress := self._request.progress) is not None:
            self._go_on_from(progress)
            return ""
        self.episode.enter(step=Step.ISOLATION, doing="looks at the target")
        self.episode.introduce(zone="", reason=self.episode.reason)
        try:
            pin: RemediationPin = await workflow.execute_activity_method(
                RemediationActivities.pin,
                self._request,
                **(options.cluster_read(self.episode.cluster) | {"summary": f"isolation: pins {self.episode.node}"}),
            )
        except ActivityError as error:
            return error_message(error)
        self._open(pin)
        if self._request.adopts and not pin.refused:
            step, now = pin.ladder[0], workflow.now()
            self._errand = Errand(step=step, index=0, began=now, asked=now, name=self._request.adopts)
            return ""  # nothing is disrupted, so that no permit is needed; marks are left to a clean-up
        try:
            await self._adoption.take_over()
        except Turn as turn:
            return await self._without_marks(turn)
        if pin.refused:
            return pin.refused
        # Who is exhausted asks a person first, and only with his word for a permit.
        refused = "" if self._request.exhausted else await self._get_leave()
        await self._adoption.settle()
        return refused

    async def _get_leave(self) -> str:
        """The permit, and the mark on the Node."""
        if not self.episode.permit:
            refused = await self.episode.obtain_permit(self.patient.permit_request())
            if refused:
                return refused
        self.episode.enter(phase=Phase.NEW, doing="marks the node as ours")
        try:
            if self.patient.has_node:
                await self.patient.desk.write(TargetActivities.mark, "isolation: marks the node")
        except Turn as turn:
            if isinstance(turn, TargetChanged) and self._reached >= 0:
                raise  # no word of a person's makes it the one that was pinned: whoever finds the new one sick begins anew (S9)
            return await self._without_marks(turn)
        return ""

    async def _without_marks(self, turn: Turn) -> str:
        """Our mark could not be left, or its answer was lost. Once it is gone nobody knows any more what may be in flight."""
        await self._adoption.settle()
        await self.patient.desk.remove_marks(UNMARK_PAUSE)
        return turn.reason

    def _open(self, pin: RemediationPin) -> None:
        episode, info = self.episode, workflow.info()
        episode.cause = pin.need.cause
        episode.control_plane = pin.control_plane
        episode.owner, episode.removes = pin.owner, removes(pin.ladder)
        episode.machine = f"{pin.machine.namespace}/{pin.machine.name}" if pin.machine is not None else ""
        episode.observation = pin.observation
        episode.target = Target(
            cluster=episode.cluster,
            pinned=pin.pinned,
            incident=episode.incident,
            kind=episode.kind.value,
            workflow_id=info.workflow_id,
            run_id=info.run_id,
        )
        desk = Bookkeeping(episode, delegate=pin.need.delegate)
        goes_on = self._request.progress is not None
        self._adoption = Adoption(episode, desk, "" if goes_on else pin.adopted_incident, pin.adopted_paths)
        desk.adopted = pin.adopted_incident
        if pin.machine is not None:
            desk.machine = pin.machine, pin.machine_uid
        self.patient = Patient(
            episode=episode,
            pin=pin,
            looks=Looks(episode, pin.need),
            desk=desk,
            retry=self._request.retry,
            failed=list(self._request.failed),
            goes_on=goes_on,
            tried=goes_on,  # for all that is known
        )
        episode.introduce(zone=pin.pinned.zone, reason=pin.need.reason)
        steps = ", ".join(step.name for step in pin.ladder)
        episode.note("pin", "ok", f"uid {pin.pinned.uid or pin.machine_uid}, owner {pin.owner or 'none'}, steps: {steps}")

    # A person's turn ------------------------------------------------------------------------------------------------

    async def _park(self, problem: str) -> End | None:
        """Nothing more can be tried without a person. Returns None once one has it go on: from the first step, then."""
        episode, patient = self.episode, self.patient
        episode.resumed = None
        patient.show(None)
        await patient.desk.ask_for_a_person(problem)
        while True:
            if (abort := episode.abort_asked) is not None:
                return End(outcome=Outcome.ABORTED, message=f"aborted by {abort.who} ({abort.reason}): {problem}")
            if ended := await self._over_by_itself():
                return ended
            if episode.resumed is not None:
                refused = await self._get_leave()
                if not refused:
                    break
                episode.resumed = None
                if episode.permit:  # it was the mark that could not be left
                    await patient.desk.ask_for_a_person(f"{problem}; a person's word came, but {refused}")
                episode.problem = f"{problem}; a person's word came, but {refused}"
                episode.enter(phase=Phase.NEEDS_HUMAN, doing="needs a person")
            if patient.may_roll:
                raise NewHistory
            await episode.rest(LOOK_WHILE_PARKED, "a person's word")
        patient.failed.clear()
        await self._forget_what_failed()
        self._errand, episode.problem = None, ""
        episode.enter(phase=Phase.RUNNING, doing="goes on, from the first step")
        return None

    async def _over_by_itself(self) -> End | None:
        """A patient that is well again, or was replaced by others, needs nobody any more."""
        found = await self.patient.glance()
        if found is not None and found.gone:
            return await self._gone_after_all()
        if found is not None and not found.deleting and await self.patient.looks.need_is_gone():
            end = End(outcome=Outcome.RECOVERED, message="it is well again")
            return None if self._left_off_by(end) else end
        return None

    async def _gone_after_all(self) -> End:
        """Where a step had its deletion asked for, its successor is seen as ever, and told what to remember."""
        gone = End(outcome=Outcome.REPLACED, message=f"{self.patient.name} is gone")
        asked = [each for each in self._set_going if isinstance(each, Replacing) and each.errand.asked is not None]
        if not asked:
            return gone
        self.episode.enter(phase=Phase.TERMINATING, doing=gone.message)
        try:
            return await asked[-1].go_on()
        except AbortAsked as turn:
            return End(outcome=Outcome.ABORTED, message=turn.reason)
        except Turn as turn:
            self.episode.note("look", "failed", turn.reason)
            return gone

    async def _forget_what_failed(self) -> None:
        """Before the first step is tried anew: an object that its controller has given up for good would be found again, and so
        would an owner's word. What was cut or has begun to go stays so."""
        for step in [each for each in self._set_going if isinstance(each, HandingOut | Annotating | OwnersTurn)]:
            if not await step.take_back() and not isinstance(step, OwnersTurn):
                self._set_going.remove(step)

    # Ending ---------------------------------------------------------------------------------------------------------

    async def _close(self, end: End) -> EpisodeResult:
        """Whatever may still stand is taken back; the mark, the lease and the permit are given back."""
        if end.outcome is not Outcome.REFUSED:
            self.patient.show(None)
            self.episode.enter(step=Step.RECOVERY, doing="takes back what is not needed any more")
            for step in reversed(self._set_going):
                try:
                    left = await step.take_back()
                except Turn as turn:
                    self.episode.note("take-back", "left", turn.reason)
                    left = f"; {turn.reason}"
                end = replace(end, message=f"{end.message}{left}")
            untold = end.outcome is not Outcome.FENCED_OFF and MAY_BE_OFF not in end.message
            if untold and self._may_be_off and await self._is_there():
                end = replace(end, message=f"{end.message}{MAY_BE_OFF}")
            end = replace(end, message=f"{end.message}{self._left_cut}")
            if self.patient.has_node:
                await self.patient.desk.remove_marks(UNMARK_PAUSE)
                await self.patient.desk.release_node_lease()
            told = f"{end.outcome.value}: {end.message}"
            await self.patient.desk.tell("EpisodeEnded", told, warning=worth_a_warning(end.outcome))
        await self.episode.give_back_permit(
            Release(node=self.episode.node, incident=self.episode.incident, outcome=end.outcome.value, problem=end.message)
        )
        return self.episode.ended(end.outcome, end.message)

    def _left_off_by(self, end: End) -> str:
        """What speaks against a recovery: nobody asks for the node any more, and a step has left its machine off."""
        seen = self.episode.observation
        back = seen is not None and seen.present and seen.ready
        return MAY_BE_OFF if end.outcome is Outcome.RECOVERED and self._may_be_off and not back else ""

    async def _is_there(self) -> bool:
        """Whether the machine has not gone for good, for all that is known."""
        found = await self.patient.glance()
        return found is None or not found.gone

    @property
    def _left_cut(self) -> str:
        """What a predecessor had cut where no step of this ladder gives it back: the mark stays, and tells of it."""
        paths = self.patient.pin.adopted_paths
        given_back = not paths or any(isinstance(each, FencingStep) and each.began for each in self._set_going)
        return "" if given_back else f"; left cut: {', '.join(paths)}"

    @property
    def at(self) -> StepOfLadder | None:
        """The step that is under way, None where none is."""
        return self._set_going[-1] if self._errand is not None and self._set_going else None

    @property
    def _may_be_off(self) -> bool:
        """Whether the last step that switched power has left the machine off, for all that is known."""
        steps = [each for each in reversed(self._set_going) if isinstance(each, FencingStep)]
        return next((step.may_have_left_it_off for step in steps if step.touched), self._left_off)

    # A new history --------------------------------------------------------------------------------------------------

    def _rolled(self) -> RemediationInput:
        pin, errand = self.patient.pin, self._errand
        earlier = [each for each in self._set_going if each.errand is not errand]
        return replace(
            self._request,
            incident=self.episode.incident,
            holder=self.episode.holder,
            machine=pin.machine,
            machine_uid=pin.machine_uid,
            need=pin.need,
            ladder=pin.ladder,
            failed=tuple(self.patient.failed),
            exhausted=self.episode.problem if errand is None else "",
            permit_granted=self.episode.permit,
            started=self.episode.started,
            record=tuple(self.episode.record),
            progress=RemediationProgress(
                pinned=pin.pinned,
                step=errand.index if errand is not None else -1,
                began=errand.began if errand is not None else workflow.now(),
                owner=pin.owner,
                check_uid=pin.check_uid,
                control_plane=pin.control_plane,
                healthy_delay=pin.healthy_delay,
                asked=errand.asked if errand is not None else None,
                since=errand.since if errand is not None else None,
                name=errand.name if errand is not None else "",
                uid=errand.uid if errand is not None else "",
                adopted_incident=pin.adopted_incident,
                earlier=tuple(_taken(each.errand) for each in earlier),
                left_off=self._may_be_off,
                reached=self._reached,
            ),
        )

    def _go_on_from(self, progress: RemediationProgress) -> None:
        request = self._request
        self._open(
            RemediationPin(
                pinned=progress.pinned,
                need=request.need or Need(kind=NeedKind.PERSON, reason=request.reason, requester=request.requester),
                ladder=request.ladder or (),
                check_uid=progress.check_uid,
                machine=request.machine,
                machine_uid=request.machine_uid,
                owner=progress.owner,
                control_plane=progress.control_plane,
                healthy_delay=progress.healthy_delay,
                adopted_incident=progress.adopted_incident,
            )
        )
        self.episode.enter(phase=Phase.RUNNING, doing="goes on in a new history")
        self._left_off = progress.left_off
        self._set_going += [self._made(self._errand_of(taken)) for taken in progress.earlier]
        if 0 <= progress.step < len(self.patient.pin.ladder):
            self._errand = self._errand_of(progress)

    def _errand_of(self, known: RemediationProgress | StepTaken) -> Errand:
        return Errand(
            step=self.patient.pin.ladder[known.step],
            index=known.step,
            began=known.began,
            asked=known.asked,
            since=known.since,
            name=known.name,
            uid=known.uid,
        )


def _taken(errand: Errand) -> StepTaken:
    return StepTaken(
        step=errand.index, began=errand.began, asked=errand.asked, since=errand.since, name=errand.name, uid=errand.uid
    )


@workflow.defn(name="Remediation")
class Remediation(EpisodeConversation):
    """The workflow round the story. Cancelling it is an abort."""

    @workflow.init
    def __init__(self, request: RemediationInput) -> None:
        handed_over = bool(request.machine_uid) and request.ladder is None and request.need is None
        self._story = GivingUpStory(request, request.machine_uid) if handed_over else RemediationStory(request)
        super().__init__(self._story.episode)

    @workflow.run
    async def run(self, request: RemediationInput) -> EpisodeResult:
        self.check_identity(request.cluster, request.node)
        result = await self._to_the_end()
        if isinstance(result, EpisodeResult):
            return result
        kind = Kind.REMEDIATION if isinstance(result, RemediationInput) else Kind.PRESERVATION
        raise handing_over.go_on_as(kind, result, incident=self.episode.incident)

    def what_abort_means(self, request: AbortRequest) -> str:
        """Of a step that switches power it is what it is of a fencing."""
        step = self._story.at if isinstance(self._story, RemediationStory) else None
        return step.what_abort_means(request) if isinstance(step, FencingStep) else super().what_abort_means(request)

    async def _to_the_end(self) -> EpisodeResult | PreservationInput | RemediationInput:
        story = asyncio.create_task(self._until_all_is_said())
        while not story.done():
            try:
                await asyncio.shield(story)
            except asyncio.CancelledError:  # however often it comes: what was set going is taken back before the end (S35)
                self.episode.take_abort(AbortRequest(who="Temporal", reason="the workflow was cancelled"))
        return story.result()

    async def _until_all_is_said(self) -> EpisodeResult | PreservationInput | RemediationInput:
        result = await self._story.run()
        await workflow.wait_condition(workflow.all_handlers_finished)
        return result
