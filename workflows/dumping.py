"""Waiting for a node that writes its crash dump, before its power is switched off.

How long, and what messages are worth, is `policy/kdump.py`; hearing them is `activities/evidence/kdump.py`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.evidence import EvidenceActivities, KdumpRequest
from activities.errors import error_message
from policy.kdump import KdumpReading, kdump_wait
from workflows import options
from workflows.case import Case

HEARD_AGAIN = timedelta(seconds=10)
"""fence_kdump speaks every 10 seconds."""


class CrashDump:
    """What is heard of one node's crash dump."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._episode = case.episode
        self._due: datetime | None = None
        """When power-off was due for the first time: what delays it counts from there, whatever is restarted."""

    async def wait(self) -> None:
        """While the node writes its crash dump power-off waits, bounded; messages that anybody can forge prove nothing (S2)."""
        case, rule = self._case, self._case.plan.kdump
        if rule is None or not case.plan.levels or not case.power.untouched:
            return
        self._due = self._due or workflow.now()
        since = case.sighting.pinned.not_ready_since
        while True:
            reading = await self._reading()
            answer = kdump_wait(rule, reading, not_ready_since=since, due=self._due, now=workflow.now())
            self._episode.enter(doing=f"kdump: {answer.reason}", until=workflow.now() + answer.wait if answer.wait else None)
            if answer.wait <= timedelta(0):
                self._episode.note("kdump", answer.state.value, answer.reason)
                return
            await self._episode.rest(min(answer.wait, HEARD_AGAIN), "while a crash dump may be written")
            await case.look_while_waiting()

    async def _reading(self) -> KdumpReading | None:
        """What the listener of the node's site has heard; None where none answers."""
        plan = self._case.plan
        try:
            return await workflow.execute_activity_method(
                EvidenceActivities.read_kdump,
                KdumpRequest(addresses=self._case.sighting.pinned.addresses),
                **(
                    options.power_read(plan.levels[0][0].site, plan)
                    | {"summary": "power-management: asks whether the node dumps"}
                ),
            )
        except ActivityError as error:
            self._episode.note("kdump", "failed", error_message(error))
            return None
