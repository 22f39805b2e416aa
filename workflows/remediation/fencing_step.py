"""Our own fencing as a step of a ladder: the very story of `workflows/fencing/story.py`, awaited under the same workflow id.

`fence` is all of it; `reboot` leaves the workloads where they are: off and on, with the same proof of either, but nothing is
freed meanwhile. Where a fencing by itself would ask for a person, the step has failed, and the ladder goes on. What was proven or
cut stays as it is until the remediation ends: the next step may need it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from temporalio import workflow

from activities.contracts.remediation import FailedVolumes, FailedVolumesRequest, VolumeActivities
from policy.episode.messages import FencingInput, Outcome, Phase
from policy.fence.config import FenceStep
from policy.fence.plan import CORDON, UNCORDON, FencingPlan, Freeing
from policy.fence.templates import VOLUME_DETACHMENT
from policy.remediation.failed_volumes import detaching
from policy.values.errors import PolicyError
from workflows.episode.state import End, StepProgress
from workflows.fencing.story import FencingStory
from workflows.kit import options
from workflows.kit.interrupts import Interrupt, NonRetryable
from workflows.remediation.ladder_step import LadderStep, RemediationTarget


class FencingStep(LadderStep):
    """`fence`."""

    reads_template: ClassVar[bool] = True
    """Whether the template of the ladder says how the node is fenced; else its own configuration does."""

    def __init__(self, target: RemediationTarget, state: StepProgress, left_before: tuple[str, ...] = ()) -> None:
        super().__init__(target, state, left_before)
        deadline = state.began + state.step.timeout if state.step.timeout is not None else None
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
            deadline=deadline,
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
    """`reboot`."""

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
# fencing as a step (`workflows/remediation/fencing_step.py`).


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
        """Until the node is back."""
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
