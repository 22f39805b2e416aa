"""A step that another controller carries out: we make an object for it, or annotate the Machine, and follow its work.

The contracts are medik8s', OpenShift's and Cluster API's: the object is created once from its template, says by conditions how
far it is, is told when its time is over, and is deleted once the node has been well for long enough. That a node was
remediated is not believed of any controller: the node itself must be well.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

from activities.contracts.remediation import (
    BeforeActing,
    External,
    ExternalActivities,
    ExternalRequest,
    RemediationActivities,
)
from activities.contracts.target import ActResult
from policy.episode.messages import Outcome, Phase
from policy.fence.config import FenceStep
from policy.remediation.remediation_objects import Progress, RemediationConditions, follow
from policy.values.times import format_duration
from workflows.episode.state import End, StepProgress
from workflows.kit import options
from workflows.kit.interrupts import Interrupt, NonRetryable, StepFailed, Vetoed, as_interrupt
from workflows.remediation.ladder_step import FIRST_LOOK, LOOK_AGAIN, UNDO_PAUSE, LadderStep, RemediationTarget, WatchedStep

ANNOTATES = "annotates the Machine for its bare-metal operator"

GOING_PATIENCE = timedelta(minutes=2)
"""How long the object's end is waited for: its controller may have something to put right first."""


class ExternalRemediation(LadderStep):
    """`external`: one remediation object."""

    begins_anew = True

    def __init__(self, target: RemediationTarget, state: StepProgress, left_before: tuple[str, ...] = ()) -> None:
        super().__init__(target, state, left_before)
        self._pause = FIRST_LOOK
        self._lasts = ""
        """What the health of a node that is well must still wait for."""

    async def carry_out(self) -> End:
        """Until the node is well or gone for good; its controller's failure is the next step's turn."""
        if self._state.asked is None:
            await self._create()
        while True:
            seen = await self._read()
            told = follow(_conditions_of(seen))
            if await self._target.preflight.refresh():
                if ended := await self._ended(seen, node_goes=told.node_goes, succeeded=told.progress is Progress.SUCCEEDED):
                    return ended
                if not seen.present:
                    raise NonRetryable(f"{self._called} was deleted by another party")
            if told.progress is Progress.FAILED:
                raise NonRetryable(f"{self._called} has failed: {seen.message or told.why}")
            await self._target.preflight.may_go_on()
            self._episode.enter(doing=self._lasts or f"waits for {self._called}: {seen.message or told.why}")
            await self._target.wait(self._state, self._pause, self._episode.state.doing)
            self._pause = min(self._pause * 2, LOOK_AGAIN)

    async def give_up(self, why: str) -> None:
        """Its controller is told, unless it says that it has succeeded; the object stays, as others look for it."""
        if self._state.asked is None and not self._state.may_stand:
            return
        try:
            seen = await self._call(ExternalActivities.time_out, "tells its controller that its time is over")
        except Interrupt as interrupt:
            self._episode.note("external", "not told", interrupt.reason)
            return
        self._episode.note("external", "timed out" if seen.timed_out else "left", f"{self._called}: {why}")

    async def take_back(self) -> str:
        """Delete it, however often it takes, and see it go."""
        if self._state.asked is None and not self._state.may_stand:
            return ""

        kept = ""

        async def delete() -> None:
            nonlocal kept
            try:
                await self._call(ExternalActivities.delete, f"deletes {self._called}")
            except Vetoed as interrupt:  # the next scan that finds it unpaused finds it again
                kept = interrupt.reason

        failing = f"{self._called} can't be deleted"
        if not await self._target.node_writer.insist("delete-object", delete, failing=failing, pause=UNDO_PAUSE, abort_ends=True):
            return f"; {failing}"
        if kept:
            self._episode.note("external", "left", kept)
            return f"; left as it is: {kept}"
        self._episode.note("external", "deleted", self._called)
        pause = FIRST_LOOK
        with self._episode.undertaking(f"sees {self._called} go") as under:
            while (await self._read()).present and workflow.now() < under.began + GOING_PATIENCE:
                self._episode.enter(step=FenceStep.RECOVERY, doing=f"waits until {self._called} is gone")
                await self._episode.rest(pause, self._episode.state.doing)
                pause = min(pause * 2, LOOK_AGAIN)
        return ""

    # Inside

    async def _create(self) -> None:
        target = self._target
        self._episode.enter(phase=Phase.RUNNING, step=FenceStep.POWER_MANAGEMENT, doing=f"hands it over to {self._called}")
        while (seen := await target.act(self._send, f"creates {self._called}", covered=True)).deleting:
            self._episode.enter(doing=f"waits until an earlier {self._called} is gone")
            await self._target.wait(self._state, self._pause, self._episode.state.doing)
            self._pause = min(self._pause * 2, LOOK_AGAIN)
        self._pause = FIRST_LOOK
        target.progress.tried = True
        if seen.timed_out and seen.incident != self._episode.state.incident:
            raise NonRetryable(f"{self._called} of incident {seen.incident or 'of others'} has had its time already")
        self._state.asked = seen.created or workflow.now()
        self._state.began = self._state.asked  # as medik8s counts the time of a step
        self._state.name, self._state.uid = (seen.ref.name if seen.ref is not None else ""), seen.uid
        self._episode.note("external", "created", f"{self._called}/{self._state.name}")

    async def _send(self, before: BeforeActing) -> External:
        self._state.may_stand = True
        return await self._execute(ExternalActivities.create, f"creates {self._called}", before=before)

    async def _ended(self, seen: External, *, node_goes: bool, succeeded: bool) -> End | None:
        """Whether the node is well for long enough, or gone."""
        target = self._target
        if target.pin.machine is not None:
            # Metal3's goes with its Machine, and never says that it has succeeded.
            found = await target.look_after(self._state)
            goes, lost = seen.node_deletion == "True", f"{target.name} is gone" if found is not None and found.gone else ""
        else:
            goes, lost, node = node_goes, "", self._episode.state.looked
            if target.has_node and node is not None and not (node.present and node.uid == target.pin.pinned.uid):
                lost = "the Node is another object now" if node.present else "the Node was deleted"
        if lost:
            if seen.present and goes and not succeeded:
                return None  # it was to go, and its successor is still to come
            return End(outcome=Outcome.REPLACED, message=f"{lost}; {self._called} is over")
        if not await target.is_well(succeeded=succeeded):
            if seen.well_since is not None or self._state.well_noted:
                await self._note("notes that the node is not well any more", well=False)
            self._lasts = ""
            return None
        if left := await self._delay(seen):
            self._lasts = f"the node is well; {left}"
            return None
        return End(outcome=Outcome.RECOVERED, message=f"the node is well again after {self._called}")

    async def _delay(self, seen: External) -> str:
        """What the node's health must still wait for, "" for nothing (healthyDelay of medik8s)."""
        delay = self._target.pin.healthy_delay
        observed = self._episode.state.looked
        if not delay or (observed is not None and observed.confirmed_well):
            return ""
        since = seen.well_since
        if since is None:
            since = workflow.now()
            await self._note("notes since when the node is well", well=True)
        if delay < timedelta(0):
            return "a person has to confirm it"
        left = since + delay - workflow.now()
        if left <= timedelta(0):
            return ""
        self._pause = min(self._pause, left + timedelta(milliseconds=100))
        return f"that must last for another {format_duration(timedelta(seconds=-(-left // timedelta(seconds=1))))}"

    async def _note(self, summary: str, *, well: bool) -> None:
        try:
            await self._call(ExternalActivities.note_well, summary, well=well)
        except StepFailed as interrupt:
            self._episode.note("external", "not noted", interrupt.reason)
        else:
            self._state.well_noted = well

    @property
    def _called(self) -> str:
        template = self._state.step.template
        assert template is not None, "the step was found possible"
        return template.kind.removesuffix("Template")

    async def _read(self) -> External:
        try:
            return await self._call(ExternalActivities.read, f"looks at {self._called}")
        except StepFailed as failed:
            self._episode.note("external", "not read", failed.reason)
            return External(present=True)

    async def _call(self, activity: object, summary: str, *, well: bool = False) -> External:
        with as_interrupt(summary):
            return await self._execute(activity, summary, well=well)

    async def _execute(
        self, activity: object, summary: str, *, well: bool = False, before: BeforeActing | None = None
    ) -> External:
        pin, state = self._target.pin, self._state
        assert state.step.template is not None
        own = [step for step in pin.ladder if step.template is not None and step.template.kind == state.step.template.kind]
        request = ExternalRequest(
            target=self._episode.target,
            template=state.step.template,
            check=pin.need.check,
            check_uid=pin.check_uid,
            machine=pin.machine,
            machine_uid=pin.machine_uid,
            several=len(own) > 1,
            name=state.name,
            uid=state.uid,
            adopted=state.adopted,
            before=before,
            not_after=workflow.now() + options.ACT_WINDOW,
            well_since=workflow.now() if well else None,
        )
        return await self._target.execute(activity, request, options.cluster_write, summary)  # type: ignore[arg-type]


class AnnotateExternal(WatchedStep):
    """`annotate-external`: OpenShift's bare-metal operator remediates the Machines that carry its annotation."""

    begins_anew = True

    async def begin(self) -> None:
        """Annotated once."""
        target = self._target
        if target.pin.machine is None:
            raise NonRetryable(f"{self._episode.state.node} belongs to no Machine that could be annotated")
        self._episode.enter(phase=Phase.RUNNING, step=FenceStep.POWER_MANAGEMENT, doing="annotates the Machine for its operator")
        done = await target.act(self._annotate, ANNOTATES)
        target.progress.tried = True
        self._episode.note("annotate-external", "ok", done.detail)

    async def look(self) -> End | None:
        """Until the node is well."""
        target = self._target
        found = await target.look_after(self._state)
        if found is not None and found.gone:
            return End(outcome=Outcome.REPLACED, message=f"{target.name} is gone")
        await target.preflight.may_go_on()
        if await target.is_well():
            return End(outcome=Outcome.RECOVERED, message="the node is well again after its operator has seen to it")
        self._episode.enter(doing="waits for the bare-metal operator")
        return None

    async def _annotate(self, before: BeforeActing) -> ActResult:
        self._state.may_stand = True
        request = self._target.machine_request(before)
        return await self._target.execute(RemediationActivities.annotate_external, request, options.cluster_write, ANNOTATES)

    async def give_up(self, why: str) -> None:
        """The annotation goes, or its operator would act beside the next step."""
        self._episode.note("annotate-external", "given up", why)
        await self.take_back()

    async def take_back(self) -> str:
        """Both annotations go."""
        if self._state.asked is None and not self._state.may_stand:
            return ""
        left = await self._target.take_back("the annotations of the Machine")
        if not left:
            self._state.asked, self._state.may_stand = None, False
        return left


def _conditions_of(seen: External) -> RemediationConditions:
    return RemediationConditions(
        processing=seen.processing,
        succeeded=seen.succeeded,
        permanent_node_deletion_expected=seen.node_deletion,
        phase=seen.phase,
    )
