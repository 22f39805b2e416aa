"""`detach-volumes`: the example of the node-fencing proposal as a step of a ladder, made safe.

When volumes of a node can't be reached and applications crash because of it, the node is marked unschedulable, the pods that
mount them and those that crash are evicted (never deleted: S30), the volumes leave the machine, and it is restarted and marked
schedulable. It finds out once, before it touches anything, which volumes and pods those are, and keeps the answer; where that
is not clear the step has failed, and nothing was done. Pods that mount them and did not go are freed while the machine is off,
and only those whose every volume is cut (S1); all others stay where they are until it is back. Everything else is our own
fencing as a step (`workflows/remediation/fencing_step.py`).
"""

from __future__ import annotations

from dataclasses import replace

from activities.contracts.remediation import FailedVolumes, FailedVolumesRequest, VolumeActivities
from policy.fence.plan import FencingPlan
from policy.fence.templates import VOLUME_DETACHMENT
from policy.remediation.volumes import detaching
from policy.values.errors import PolicyError
from workflows.episode.state import End, StepProgress
from workflows.kit import options
from workflows.kit.interrupts import Hopeless
from workflows.remediation.fencing_step import FencingStep, rebooting
from workflows.remediation.target import RemediationTarget


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
            raise Hopeless(found.failure.refused)
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
            raise Hopeless(str(error)) from error
        volumes = ", ".join(volume.handle for volume in failure.volumes)
        return replace(rebooting(plan), source=f"{plan.source}, detaching {volumes}", isolation=isolation)
