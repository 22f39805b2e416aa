"""The steps of a ladder, one class for each strategy; what all of them are is `workflows/remediation/ladder_step.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.preservation import GiveUpRequest, GiveUpResult, PreservationActivities
from activities.contracts.remediation import (
    BeforeActing,
    External,
    ExternalActivities,
    ExternalRequest,
    FailedVolumes,
    FailedVolumesRequest,
    FollowedMachine,
    RemediationActivities,
    VolumeActivities,
)
from activities.contracts.target import ActResult
from activities.errors import ErrorType, error_message, error_type
from policy.episode.events import EventReason
from policy.episode.gate import Operation
from policy.episode.messages import FencingInput, Outcome, Phase
from policy.fence.config import FenceStep
from policy.fence.plan import CORDON, UNCORDON, FencingPlan, Freeing
from policy.fence.template_reader import VOLUME_DETACHMENT
from policy.remediation.failed_volumes import detaching
from policy.remediation.ladder import DEFAULT_TIMEOUT
from policy.remediation.remediation_objects import Progress, RemediationConditions, RemediationProgress, follow
from policy.remediation.strategy_rules import Strategy
from policy.values.errors import PolicyError
from policy.values.times import format_duration, later
from workflows.episode.state import End, StepProgress
from workflows.fencing.story import FencingStory
from workflows.kit import options
from workflows.kit.interrupts import (
    AbortAsked,
    Interrupt,
    NeedGone,
    NonRetryable,
    StepFailed,
    Vetoed,
    as_interrupt,
    is_unclear,
)
from workflows.remediation.ladder_step import (
    FIRST_LOOK,
    KCP,
    LOOK_AGAIN,
    UNDO_PAUSE,
    LadderStep,
    RemediationTarget,
    WatchedStep,
    withdraw_claim,
)

# Our own fencing as a step of a ladder: the very story of `workflows/fencing/story.py`, awaited under the same workflow id.
#
# `fence` is all of it; `reboot` leaves the workloads where they are: off and on, with the same proof of either, but nothing is
# freed meanwhile. Where a fencing by itself would ask for a person, the step has failed, and the ladder goes on. What was
# proven or cut stays as it is until the remediation ends: the next step may need it.


class FencingStep(LadderStep):
    reads_template: ClassVar[bool] = True
    """Whether the template of the ladder says how the node is fenced; else its own configuration does."""

    def __init__(self, target: RemediationTarget, state: StepProgress, left_before: tuple[str, ...] = ()) -> None:
        super().__init__(target, state, left_before)
        episode, pin = target.episode, target.pin
        self.story = FencingStory(
            FencingInput(
                cluster=episode.state.cluster,
                node=episode.state.node,
                reason=pin.need.reason,
                incident=episode.state.incident,
                need=pin.need,
                template=state.step.template if self.reads_template else None,
                permit_granted=True,
                node_uid=pin.pinned.uid,
                holder=episode.state.holder,
            ),
            episode,
            step=state,
            adjust=self.adjusted,
            left_before=left_before,
        )

    def adjusted(self, plan: FencingPlan) -> FencingPlan:
        """What is made of the node's plan. Raises NonRetryable where nothing can be."""
        return plan

    def doubt(self) -> str:
        """Why a node that is well is a person's case all the same, "" where it is none."""
        return self.story.doubt() if self._state.end is None else ""

    @property
    def was_aborted(self) -> bool:
        """Whether an abort has ended it: then it has switched on what it was to."""
        return self._state.end is not None and self._state.end.outcome is Outcome.ABORTED

    @property
    def comes_back(self) -> bool:
        """Whether its machine was switched on again, and is waited for."""
        return self._state.fencing is not None and self._state.fencing.switched_on

    def put_off(self, duration: timedelta) -> None:
        self.story.put_off(duration)

    async def carry_out(self) -> End:
        """Until the node is back, or left off on purpose."""
        if self._state.end is not None:
            return self._state.end
        self._target.episode.enter(phase=Phase.RUNNING, step=FenceStep.ISOLATION, doing="fences the node")
        if self._state.asked is None:
            await self._target.remember()
            self._state.asked, self._target.episode.state.restarts = workflow.now(), 0
        try:
            end = await self.story.as_a_step()
        except Interrupt:
            await self._remember_what_began()
            raise
        await self._remember_what_began()
        self._state.end = end
        if end.outcome is Outcome.REFUSED:
            raise NonRetryable(end.message)
        return end

    async def _remember_what_began(self) -> None:
        self._target.progress.tried = self._target.progress.tried or self.story.began
        await self._target.forget()

    async def take_back(self) -> str:
        """Paths are given back as far as the machine is still there. The marks go with the remediation's."""
        return "" if self._state.end is not None else await self.story.undo()  # else done by its own end


class RebootStep(FencingStep):
    reads_template = False

    def adjusted(self, plan: FencingPlan) -> FencingPlan:
        """Off and on, and nothing freed."""
        return rebooting(plan)


def rebooting(plan: FencingPlan) -> FencingPlan:
    """The same devices and proofs, and no consequence. Raises NonRetryable where there is nothing to switch."""
    if not plan.levels:
        raise NonRetryable(f"{plan.source} names no power device by which it could be rebooted")
    return replace(
        plan,
        source=f"{plan.source}, rebooting only",
        isolation=(CORDON,),
        recovery=(UNCORDON,),
        freeing=Freeing.NONE,
        power_on=True,
        delete_node=False,
        terminate_instance=False,
        kdump=None,
    )


# `detach-volumes`: the example of the node-fencing proposal as a step of a ladder, made safe.
#
# When volumes of a node can't be reached and applications crash because of it, the node is marked unschedulable, the pods that
# mount them and those that crash are evicted (never deleted: S30), the volumes leave the machine, and it is restarted and marked
# schedulable. It finds out once, before it touches anything, which volumes and pods those are, and keeps the answer; where that
# is not clear the step has failed, and nothing was done. Pods that mount them and did not go are freed while the machine is off,
# and only where all of their volumes are cut (S1); all others stay where they are until it is back. Everything else is our own
# fencing as a step.


class DetachingStep(FencingStep):
    """Finds the failed volumes, then carries out a fencing that is about them only."""

    reads_template = False

    def __init__(self, target: RemediationTarget, state: StepProgress, left_before: tuple[str, ...] = ()) -> None:
        super().__init__(target, state, left_before)
        rounds = [each for each in target.progress.steps if each.index == state.index and each is not state]
        self._only_restarts = bool(left_before) and any(each.found is not None for each in rounds)
        """An earlier round of this step has detached what it had found and left the machine off. Where nothing is found any more,
        the restart is what is left of it (S35)."""

    async def carry_out(self) -> End:
        if self._state.found is None and self._state.asked is None:
            self._state.found = await self._find()
        return await super().carry_out()

    async def _find(self) -> FailedVolumes | None:
        target, template = self._target, self._state.step.template
        target.episode.enter(doing="finds out which volumes have failed")
        request = FailedVolumesRequest(
            target=target.episode.target,
            need=target.pin.need,
            template=template if template is not None and template.kind == VOLUME_DETACHMENT else None,
        )
        found: FailedVolumes = await target.call(
            VolumeActivities.find_volumes, request, options.cluster_read, "finds the volumes that have failed"
        )
        if found.failure.refused and self._only_restarts:
            target.episode.note("find-volumes", "none left", found.failure.refused)
            return None
        if found.failure.refused:
            raise NonRetryable(found.failure.refused)
        target.episode.note("find-volumes", "ok", str(found.failure))
        return found

    def adjusted(self, plan: FencingPlan) -> FencingPlan:
        """About what was found, and nothing else."""
        if (found := self._state.found) is None:
            return rebooting(plan)  # nothing is left to be detached; or of an earlier history: only what stands is taken back
        failure = found.failure
        try:
            isolation = detaching(plan, failure, eviction_timeout=found.eviction_timeout)
        except PolicyError as error:
            raise NonRetryable(str(error)) from error
        volumes = ", ".join(volume.handle for volume in failure.volumes)
        return replace(rebooting(plan), source=f"{plan.source}, detaching {volumes}", isolation=isolation)


# Another machine in its place: the Machine is deleted, or its owner is asked to remediate it, and the successor seen to come.
#
# Until the deletion has begun there is a way back; from then on there is none, and what is left is to see it through: drain,
# instance and object go, the owner makes another Machine, and its Node becomes Ready. A deletion that was asked for twice is one
# deletion: it names the Machine by uid, and each request looks first (S33).

SUCCESSOR_PATIENCE = timedelta(minutes=20)
"""How long a successor is waited for: longer than any check gives a Machine to get its Node, so that whatever keeps it away is
told by its own verdict first."""

ANOTHER_WORKER = timedelta(seconds=10)
"""A worker never has its own node's machine deleted; the next try may be taken by another one (S16)."""

ANOTHER_TRY = timedelta(seconds=1)
"""After an answer that was lost, once it has been waited out. A server that never answers has the time of the step."""

FAILED_FOR_GOOD = ("RemediationFailed", "CannotBeRemediated")
"""Of the condition OwnerRemediated: its owner has given up. Deferred is no failure."""
OWNER_PATIENCE = timedelta(minutes=5)
"""So long a KubeadmControlPlane is not taken at that word: it says so of a quorum that may come back, too, and of an error after
which it tries again."""


class ReplacingStep(WatchedStep):
    """One such step: it begins with the deletion asked for."""

    _goes = False
    """Whether its deletion had begun when it was last seen."""

    async def give_up(self, why: str) -> None:
        """What was asked for stands: the next step may well be what lets it come to an end."""
        if self._state.asked is not None:
            self._target.node_writer.send_event(EventReason.REMEDIATION_TIMED_OUT, f"{self._state.step.name}: {why}")

    async def carry_out(self) -> End:
        """Ask once, then follow until it is gone and another machine stands in for it."""
        self._goes = False
        return await super().carry_out()

    async def look(self) -> End | None:
        """What has become of the machine."""
        found = await self._target.look_after(self._state)
        if found is not None and found.gone:
            # Its successor is a case of its own from here on: nothing of it is this one's failure.
            with self._episode.undertaking("sees the successor") as under:
                return await self._await_successor(found, under.began)
        self._goes = found.deleting if found is not None else self._goes
        if found is not None and not self._goes:
            await self._while_there_is_a_way_back(found)
        if (abort := self._episode.state.abort_asked) is not None:
            though = ", though its deletion has been asked for" if self._goes else ""
            raise AbortAsked(f"{abort}{though}")
        self._show_progress(found)
        return None

    async def goes(self) -> bool:
        """Whether the machine goes, or is gone, for any cause: then there is nothing left to ask for (S33)."""
        found = await self._target.follow(self._state)
        return found.gone or found.deleting

    @property
    def deletes(self) -> bool:
        """Whether it was seen to go."""
        return self._state.since is not None

    async def go_on(self) -> End:
        """See it through after all, with the time of a step from now on: what goes is not saved by what another step does."""
        self._state.began = workflow.now()
        return await self.carry_out()

    async def _while_there_is_a_way_back(self, found: FollowedMachine) -> None:
        await self._target.preflight.may_go_on()
        try:
            await self._target.preflight.before_others_act()
        except NeedGone as interrupt:
            raise NeedGone("it is well again, and its deletion has not begun") from interrupt
        except Vetoed:
            if await self.goes():
                return  # while we looked; there is nothing left to withdraw
            raise
        asked, passes = self._state.asked, self._target.pin.owner.startswith(KCP)
        waits = passes and asked is not None and workflow.now() < asked + OWNER_PATIENCE
        if found.owner_status == "False" and found.owner_reason in FAILED_FOR_GOOD and not waits:
            raise NonRetryable(
                f"its owner {self._target.pin.owner} does not remediate it: {found.owner_message or found.owner_reason}"
            )

    def _show_progress(self, found: FollowedMachine | None) -> None:
        if found is None:
            self._episode.enter(doing="waits until the machine can be looked at")
            return
        owner = self._target.pin.owner or "none"
        if found.deleting:
            self._episode.enter(phase=Phase.TERMINATING, doing=f"waits until the machine is gone: {found.waits or found.phase}")
        else:
            said = f": {found.owner_message or found.owner_reason}" if found.owner_reason else ""
            self._episode.enter(doing=f"waits for {owner} to remediate it{said}")

    async def _await_successor(self, found: FollowedMachine, gone_at: datetime) -> End:
        name, pause = self._target.name, FIRST_LOOK
        self._episode.note(self._state.step.strategy.value, "gone", f"{name} is gone")
        self._episode.state.rung_until = None  # the step has done what it is for: no other one follows
        while True:
            if found.scaled_down:
                return End(outcome=Outcome.REPLACED, message=f"{name} is gone, and {found.scaled_down}")
            successor = found.replacement
            if successor is not None and successor.ready:
                message = f"{name} is gone; {successor.machine} has taken its place, its Node {successor.node} is Ready"
                return End(outcome=Outcome.REPLACED, message=message)
            if successor is not None and successor.failed:
                message = f"{name} is gone; {successor.machine}, which was to take its place, has failed: {successor.failed}"
                self._target.node_writer.send_event(EventReason.REPLACEMENT_FAILED, message)
                return End(outcome=Outcome.REPLACED, message=message)
            stands_in = f"{successor.machine} is not Ready yet" if successor is not None else "no other Machine is there yet"
            if workflow.now() - gone_at >= SUCCESSOR_PATIENCE:
                message = f"{name} is gone; {stands_in} after {format_duration(SUCCESSOR_PATIENCE)}"
                self._target.node_writer.send_event(EventReason.REPLACEMENT_LATE, message)
                return End(outcome=Outcome.REPLACED, message=message)
            if (abort := self._episode.state.abort_asked) is not None:
                raise AbortAsked(f"{abort}; {name} is gone, and {stands_in}")
            self._episode.enter(step=FenceStep.RECOVERY, doing=f"waits for its replacement: {stands_in}")
            await self._episode.rest(pause, self._episode.state.doing)
            pause = min(pause * 2, LOOK_AGAIN)
            found = await self._target.look_after(self._state) or found


class DeleteMachine(ReplacingStep):
    """`delete-machine`: the Machine's deletion is asked for here."""

    async def begin(self) -> None:
        """What an earlier try has done is read first (S34); then a live look before each one."""
        target = self._target
        if target.pin.machine is None:
            raise NonRetryable(f"{self._episode.state.node} belongs to no Machine that could be deleted")
        if not target.pin.owner:
            raise NonRetryable(f"no controller owns {target.pin.machine.key}: nothing would replace it")
        self._episode.enter(phase=Phase.RUNNING, step=FenceStep.POWER_MANAGEMENT, doing="asks for the deletion of the machine")
        while not await self.goes():
            try:
                found = await target.act(self._ask, "the deletion can't be asked for", Operation.REMOVE, covered=True)
            except Interrupt as interrupt:
                if not isinstance(error := interrupt.__cause__, ActivityError):
                    raise
                self._episode.note("delete-machine", "failed", error_message(error))
                if is_unclear(error):
                    seen = await target.look_after(self._state)
                    if seen is None or not (seen.gone or seen.deleting):
                        await self._episode.settle(options.ACT_WINDOW + options.IN_FLIGHT_MARGIN)
                        await target.wait(self._state, ANOTHER_TRY, error_message(error))
                    continue
                if error_type(error) is ErrorType.OWN_NODE:
                    await target.wait(self._state, ANOTHER_WORKER, "until another worker may ask for the deletion")
                    continue
                if error_type(error) is ErrorType.TARGET_CHANGED and await self.goes():
                    return  # it is gone, and another one has its name: what is followed is the one that was pinned
                raise
            if found.kept:
                await target.forget()
                raise Vetoed(found.kept)
            target.progress.tried = True
            self._episode.note("delete-machine", "asked", found.detail)
            return
        self._episode.note("delete-machine", "found", "its deletion was asked for before")

    @property
    def deletes(self) -> bool:
        """From the request on."""
        return self._state.asked is not None or super().deletes

    async def take_back(self) -> str:
        """A claim on the Node that came to nothing goes; a deletion can't be taken back."""
        if self._state.asked is not None or self._target.pin.machine is None:
            return ""
        return await withdraw_claim(self._target.node_writer, self._give_up, UNDO_PAUSE)

    async def _ask(self, before: BeforeActing) -> GiveUpResult:
        self._state.asks = True
        try:
            result = await self._give_up(before)
        except ActivityError as error:
            self._state.asks = is_unclear(error)
            raise
        self._state.asks = False
        return result

    async def _give_up(self, before: BeforeActing | None = None) -> GiveUpResult:
        """before: None where it is not to be asked for any more."""
        pin, episode = self._target.pin, self._episode
        assert pin.machine is not None
        return await episode.execute(
            PreservationActivities.give_up,
            GiveUpRequest(
                cluster=episode.state.cluster,
                node=pin.pinned.node if pin.pinned.uid else "",
                machine=pin.machine,
                machine_uid=pin.machine_uid,
                node_uid=pin.pinned.uid,
                victim=episode.state.node,
                incident=episode.state.incident,
                unhealthy=pin.need.reason or "a person wants it replaced",
                withdraw=before is None,
                holder=episode.state.holder,
                not_after=workflow.now() + options.ACT_WINDOW,
                before=before,
                automatic=pin.need.kind.automatic,
            ),
            options.machine_deletion,
            f"asks for the deletion of {pin.machine.name}",
        )


class RequestOwner(ReplacingStep):
    """`request-owner`: Cluster API's owners remediate what is marked for them. They keep their own limits."""

    begins_anew = True

    async def begin(self) -> None:
        """A condition on the Machine, which repeats harmlessly."""
        target = self._target
        if target.pin.machine is None:
            raise NonRetryable(f"{self._episode.state.node} belongs to no Machine with an owner to ask")
        self._episode.enter(
            phase=Phase.RUNNING, step=FenceStep.POWER_MANAGEMENT, doing=f"asks {target.pin.owner} to remediate it"
        )
        if await self.goes():
            return
        asked = await target.act(self._request, self._summary, Operation.REMOVE)
        target.progress.tried = True
        self._episode.note("request-owner", "asked", asked.detail)

    @property
    def _summary(self) -> str:
        machine = self._target.pin.machine
        assert machine is not None
        return f"asks {self._target.pin.owner} to remediate {machine.name}"

    async def _request(self, before: BeforeActing) -> ActResult:
        self._state.may_stand = True
        request = self._target.machine_request(before)
        return await self._episode.execute(RemediationActivities.request_owner, request, options.cluster_write, self._summary)

    async def take_back(self) -> str:
        """The conditions are put right again where its owner has not begun."""
        if self._state.asked is None and not self._state.may_stand:
            return ""
        return await self._target.take_back("what its owner was asked for")


# A step that another controller carries out: we make an object for it, or annotate the Machine, and follow its work.
#
# The contracts are medik8s', OpenShift's and Cluster API's: the object is created once from its template, says by conditions how
# far it is, is told when its time is over, and is deleted once the node has been well for long enough. That a node was
# remediated is not believed of any controller: the node itself must be well.

ANNOTATES = "annotates the Machine for its bare-metal operator"

BY_ANOTHER_CLOCK = "an-object-of-ours-was-made-since-its-step-began-whatever-the-clock-of-the-api-server-says"
"""Histories of builds that believed that clock go on as they began."""

OF_AN_EARLIER_FAILURE = "an-object-of-an-earlier-failure-takes-no-time-of-a-step"
"""Histories of builds in which it did go on as they began."""

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
            shown = _progress(seen)
            if await self._target.preflight.refresh():
                if ended := await self._ended(seen, node_goes=shown.node_goes, succeeded=shown.progress is Progress.SUCCEEDED):
                    return ended
                if not seen.present:
                    raise NonRetryable(f"{self._called} was deleted by another party")
            if shown.progress is Progress.FAILED:
                raise NonRetryable(f"{self._called} has failed: {seen.message or shown.why}")
            await self._target.preflight.may_go_on()
            self._episode.enter(doing=self._lasts or f"waits for {self._called}: {seen.message or shown.why}")
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
        while (seen := await target.act(self._send, f"creates {self._called}", covered=True)).deleting or self._is_left(seen):
            if not seen.deleting:
                self._episode.note("external", "left", f"{self._called} of incident {seen.incident}, from before this failure")
                await self._call(ExternalActivities.delete, f"deletes an earlier {self._called}")
            self._episode.enter(doing=f"waits until an earlier {self._called} is gone")
            await self._target.wait(self._state, self._pause, self._episode.state.doing)
            self._pause = min(self._pause * 2, LOOK_AGAIN)
        self._pause = FIRST_LOOK
        target.progress.tried = True
        if seen.timed_out and seen.incident != self._episode.state.incident:
            raise NonRetryable(f"{self._called} of incident {seen.incident or 'of others'} has had its time already")
        self._state.asked = self._made_at(seen)
        self._state.began = self._state.asked  # as medik8s counts the time of a step
        self._state.name, self._state.uid = (seen.ref.name if seen.ref is not None else ""), seen.uid
        self._episode.note("external", "created", f"{self._called}/{self._state.name}")

    def _is_left(self, seen: External) -> bool:
        """Whether another episode of ours has made it, for an earlier failure: what came of it then is no answer to this one, and
        its controller does not begin anew for it. The node that it restarts falls silent, which looks like a failure of
        a later date: one that has not failed, made within the time of a step before that, is at work on this very failure, and
        another one would restart the node twice."""
        if seen.incident in {"", self._episode.state.incident} or not self._is_older_than_its_failure(seen):
            return False
        if seen.timed_out or _progress(seen).progress is Progress.FAILED or seen.created is None:
            return True
        return later(seen.created, self._state.step.timeout or DEFAULT_TIMEOUT) < self._failed_at

    @property
    def _failed_at(self) -> datetime:
        """Where the need has no date (a Machine's phase, a person's wish) it is no later than its step."""
        return self._target.pin.need.since or self._state.began

    def _is_older_than_its_failure(self, seen: External) -> bool:
        old = seen.created is not None and seen.created < self._failed_at
        return old and workflow.patched(OF_AN_EARLIER_FAILURE)

    def _made_at(self, seen: External) -> datetime:
        """When the object was made, by its API server's clock, but never in the future, and no earlier than its step if it is
        ours or of an earlier failure: else a clock that is behind, or an object that was left, ends the step's time at once, and
        the next step may delete the machine."""
        made = earliest = seen.created or workflow.now()
        if seen.incident == self._episode.state.incident or self._is_older_than_its_failure(seen):
            earliest = self._state.began - options.IN_FLIGHT_MARGIN
        true = min(max(made, earliest), workflow.now())
        return true if true != made and workflow.patched(BY_ANOTHER_CLOCK) else made

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
            goes, lost, node = node_goes, "", self._episode.state.last_look
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
        observed = self._episode.state.last_look
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
        return await self._episode.execute(activity, request, options.cluster_write, summary)  # type: ignore[arg-type]


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
        return await self._episode.execute(RemediationActivities.annotate_external, request, options.cluster_write, ANNOTATES)

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


def _progress(seen: External) -> RemediationProgress:
    conditions = RemediationConditions(
        processing=seen.processing,
        succeeded=seen.succeeded,
        permanent_node_deletion_expected=seen.node_deletion,
        phase=seen.phase,
    )
    return follow(conditions)


# Which class carries out which strategy. All that is said of a strategy is `policy/remediation/strategy_rules.py`.

STEPS: Mapping[Strategy, type[LadderStep]] = {
    Strategy.DELETE_MACHINE: DeleteMachine,
    Strategy.REQUEST_OWNER: RequestOwner,
    Strategy.EXTERNAL: ExternalRemediation,
    Strategy.ANNOTATE_EXTERNAL: AnnotateExternal,
    Strategy.FENCE: FencingStep,
    Strategy.REBOOT: RebootStep,
    Strategy.DETACH_VOLUMES: DetachingStep,
}
