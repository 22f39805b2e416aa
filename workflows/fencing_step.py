"""Our own fencing as a step of a ladder: the very story of `workflows/fencing.py`, awaited under the same workflow id.

`fence` is all of it; `reboot` leaves the workloads where they are: off and on, with the same proof of either, but nothing is
freed meanwhile. Where a fencing by itself would ask for a person, the step has failed, and the ladder goes on. What was proven or
cut stays as it is until the remediation ends.
"""

from __future__ import annotations

from dataclasses import replace

from policy.episodes import FencingInput, Outcome, Phase, Step
from policy.plan import CORDON, UNCORDON, FencingPlan, Freeing
from policy.remediation.escalation import Strategy
from workflows.endings import End
from workflows.fencing import FencingStory
from workflows.patient import Errand, Patient
from workflows.turns import Hopeless


class FencingStep:
    """`fence` or `reboot`."""

    def __init__(self, patient: Patient, errand: Errand) -> None:
        self._patient = patient
        self._errand = errand
        adjust = rebooting if errand.step.strategy is Strategy.REBOOT else None
        deadline = errand.began + errand.step.timeout if errand.step.timeout is not None else None
        episode, pin = patient.episode, patient.pin
        self._story = FencingStory(
            FencingInput(
                cluster=episode.cluster,
                node=episode.node,
                reason=pin.need.reason,
                incident=episode.incident,
                need=pin.need,
                template=errand.step.template if errand.step.strategy is Strategy.FENCE else None,
                permit_granted=True,
                node_uid=pin.pinned.uid,
                holder=episode.holder,
            ),
            episode=episode,
            adjust=adjust,
            deadline=deadline,
        )

    async def carry_out(self) -> End:
        """Until the node is back, or left off on purpose."""
        self._patient.episode.enter(phase=Phase.RUNNING, step=Step.ISOLATION, doing="fences the node")
        await self._patient.remember()
        self._errand.asked = self._patient.episode.started
        end = await self._story.as_a_step()
        if end.outcome is Outcome.REFUSED:
            raise Hopeless(end.message)
        return end

    async def give_up(self, why: str) -> None:
        """Nothing: what is proven stays so, and the next step may need it."""

    async def take_back(self) -> None:
        """Paths are given back and our marks go, as far as the machine is still there."""
        await self._story.undo()


def rebooting(plan: FencingPlan) -> FencingPlan:
    """The same devices and proofs, and no consequence."""
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
