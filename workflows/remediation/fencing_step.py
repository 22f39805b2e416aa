"""Our own fencing as a step of a ladder: the very story of `workflows/fencing/story.py`, awaited under the same workflow id.

`fence` is all of it; `reboot` leaves the workloads where they are: off and on, with the same proof of either, but nothing is
freed meanwhile. Where a fencing by itself would ask for a person, the step has failed, and the ladder goes on. What was proven or
cut stays as it is until the remediation ends: the next step may need it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from temporalio import workflow

from policy.episode.messages import FencingInput, Outcome, Phase
from policy.fence.config import FenceStep
from policy.fence.plan import CORDON, UNCORDON, FencingPlan, Freeing
from workflows.episode.state import End, StepProgress
from workflows.fencing.story import FencingStory
from workflows.kit.interrupts import Hopeless, Interrupt
from workflows.remediation.ladder_step import LadderStep
from workflows.remediation.target import RemediationTarget


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
                cluster=episode.cluster,
                node=episode.node,
                reason=pin.need.reason,
                incident=episode.incident,
                need=pin.need,
                template=state.step.template if self.reads_template else None,
                permit_granted=True,
                node_uid=pin.pinned.uid,
                holder=episode.holder,
            ),
            episode,
            step=state,
            adjust=self.adjusted,
            deadline=deadline,
            left_before=left_before,
        )

    def adjusted(self, plan: FencingPlan) -> FencingPlan:
        """What is made of the node's plan. Raises Hopeless where nothing can be."""
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
            self._state.asked, self._target.episode.restarts = workflow.now(), 0
        try:
            end = await self.story.as_a_step()
        except Interrupt:
            await self._remember_what_began()
            raise
        await self._remember_what_began()
        self._state.end = end
        if end.outcome is Outcome.REFUSED:
            raise Hopeless(end.message)
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
    """The same devices and proofs, and no consequence. Raises Hopeless where there is nothing to switch."""
    if not plan.levels:
        raise Hopeless(f"{plan.source} names no power device by which it could be rebooted")
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
