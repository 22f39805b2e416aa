"""Quarantine of a cloud machine: one security group instead of its own, and back. It proves nothing and licenses nothing.

Both acts may be repeated: the cloud itself remembers what there was before (`activities/power/`), so that an answer that is
lost loses nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from temporalio.exceptions import ActivityError

from activities.contracts.power import LiftRequest, PowerActivities, PowerRequest
from policy.fence.plan import FencingPlan, PowerDevice
from policy.fence.power import Quarantine
from workflows.episode.episode import Episode
from workflows.episode.preflight import Licence
from workflows.fencing.devices import command_licensed
from workflows.kit import options
from workflows.kit.interrupts import Interrupt, StepFailed, interrupt_for, told_of

Request = TypeVar("Request", PowerRequest, LiftRequest)
Result = TypeVar("Result")


class Quarantines:
    """Which machines this episode has put behind which group."""

    def __init__(self, episode: Episode, plan: FencingPlan, known: dict[str, Quarantine]) -> None:
        self._episode = episode
        self._plan = plan
        self._known = known

    async def apply(self, device: PowerDevice, licence: Licence) -> None:
        """Put the machine behind its group; StepFailed where that is not known to be so, and may be tried again."""
        self._episode.enter(doing=f"puts {device.endpoint} into quarantine")
        request = PowerRequest(
            target=self._episode.target,
            device=self._episode.sealed(device),
            deadline=self._plan.act_deadline,
            not_after=licence.until,
            licence=licence.signed,
        )
        try:
            summary = f"isolation: quarantine of {device.endpoint}"
            found = await self._command(PowerActivities.quarantine, request, licence, summary)
        except ActivityError as error:
            raise await self._after("quarantine", device, error) from error
        self._known[device.endpoint] = found
        self._episode.note("quarantine", "ok", f"{device.endpoint} is behind {found.group}")

    async def lift(self, device: PowerDevice, licence: Licence) -> None:
        """Give its groups back, as far as nobody else has changed them meanwhile."""
        request = LiftRequest(
            target=self._episode.target,
            device=self._episode.sealed(device),
            quarantine=self._known.get(device.endpoint),
            deadline=self._plan.act_deadline,
            not_after=licence.until,
            licence=licence.signed,
        )
        summary = f"recovery: lifts the quarantine of {device.endpoint}"
        try:
            await self._command(PowerActivities.lift_quarantine, request, licence, summary)
        except ActivityError as error:
            raise await self._after("lift-quarantine", device, error) from error
        self._known.pop(device.endpoint, None)
        self._episode.note("lift-quarantine", "ok", device.endpoint)

    async def _command(
        self, command: Callable[[PowerActivities, Request], Awaitable[Result]], request: Request, licence: Licence, summary: str
    ) -> Result:
        config = options.power_command(request.device.site, self._plan)
        config["summary"] = summary
        return await command_licensed(self._episode, command, request, licence, config)

    async def _after(self, act: str, device: PowerDevice, error: ActivityError) -> Interrupt:
        """The turn to take. An unclear act is asked for again, once nothing of it is under way."""
        if await self._episode.wait_out(act, device.endpoint, error):
            return StepFailed(told_of(device.endpoint, error))
        return interrupt_for(error, device.endpoint)
