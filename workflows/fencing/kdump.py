"""A node that writes its crash dump: power-off waits for it, and where its messages are trusted its pods need not.

`policy/fence/kdump.py` says how long, and what messages are worth; `activities/power/kdump_listener.py` receives them.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.evidence import EvidenceActivities, KdumpRequest
from activities.errors import error_message
from policy.episode.fencing import freeing_choice
from policy.fence.kdump import STILL_DEAD, KdumpReading, KdumpRule, KernelDead, kdump_wait, kernel_dead
from policy.fence.plan import Freeing
from workflows.fencing.case import Case
from workflows.kit import options
from workflows.kit.interrupts import StepFailed

HEARD_AGAIN = timedelta(seconds=10)
"""fence_kdump speaks every 10 seconds."""


class CrashDump:
    """What one node's messages say of its crash dump."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._episode = case.episode
        self._progress = case.progress.dump

    async def free_at_once(self) -> None:
        """The proposal's reading, only where the configuration says `trusted`: a kernel that dumps runs no pods, so they are
        freed now, each round right after a last look and a message that is moments old (S1, S20). Power-off follows all the same.

        It ends with the dump, with a new boot id, and with the first power command (S6). What goes wrong is noted and holds
        nothing up: the proof of off frees the rest.
        """
        case, rule = self._case, self._case.plan.kdump
        if rule is None or not rule.trusted or self._progress.freed or freeing_choice(case.plan) is Freeing.NONE:
            return
        self._progress.asked_first = asked_first = self._progress.asked_first or workflow.now()
        while case.plan.levels and case.power.untouched:
            reading = await self._reading()
            if self._is_dead(rule, reading) and await self._free(rule):
                self._progress.freed = True
                return
            since = case.pinned_node.pinned.not_ready_since
            answer = kdump_wait(rule, reading, not_ready_since=since, due=asked_first, now=workflow.now())
            if answer.wait <= timedelta(0):
                return
            self._episode.enter(doing=f"kdump: {answer.reason}", until=workflow.now() + answer.wait)
            await self._episode.rest(min(answer.wait, HEARD_AGAIN), "while a crash dump may begin")
            await case.look_while_waiting()

    def _is_dead(self, rule: KdumpRule, reading: KdumpReading | None) -> KernelDead | None:
        pinned, began = self._case.pinned_node.pinned, self._episode.state.started
        return kernel_dead(rule, reading, addresses=pinned.addresses, not_ready_since=pinned.not_ready_since, began=began)

    async def _free(self, rule: KdumpRule) -> bool:
        """Whether nothing is left to be freed."""
        case = self._case
        self._episode.enter(doing="frees the workloads of a kernel that is dead")
        await case.preflight.before_destruction(leased=True)
        asked_at = workflow.now()  # by our clock the message is no younger than it was then
        reading = await self._reading()
        await case.preflight.may_go_on()
        dead = self._is_dead(rule, reading)
        if dead is None or case.pinned_node.has_booted():
            return False
        try:
            return await case.freeing.free_while_dumping(dead, asked_at + STILL_DEAD - (dead.heard_at - dead.last))
        except StepFailed as failed:
            self._episode.note("free-while-dumping", "failed", failed.reason)
            return False

    async def wait(self) -> None:
        """While the node writes its crash dump power-off waits, bounded; messages that anybody can forge prove nothing (S2)."""
        case, rule = self._case, self._case.plan.kdump
        if rule is None or not case.plan.levels or not case.power.untouched:
            return
        self._progress.due = self._progress.due or workflow.now()
        since = case.pinned_node.pinned.not_ready_since
        while True:
            reading = await self._reading()
            answer = kdump_wait(rule, reading, not_ready_since=since, due=self._progress.due, now=workflow.now())
            self._episode.enter(doing=f"kdump: {answer.reason}", until=workflow.now() + answer.wait if answer.wait else None)
            if answer.wait <= timedelta(0):
                self._episode.note("kdump", answer.state.value, answer.reason)
                return
            await self._episode.rest(min(answer.wait, HEARD_AGAIN), "while a crash dump may be written")
            await case.look_while_waiting()

    async def _reading(self) -> KdumpReading | None:
        """What the listener of the node's site has received; None where none answers. Its moments are turned into ours: by its
        own clock it knows how long before our question a message came."""
        plan, asked_at = self._case.plan, workflow.now()
        try:
            reading = await workflow.execute_activity_method(
                EvidenceActivities.read_kdump,
                KdumpRequest(addresses=self._case.pinned_node.pinned.addresses),
                **(
                    options.power_read(plan.levels[0][0].site, plan)
                    | {"summary": "power-management: asks whether the node dumps"}
                ),
            )
        except ActivityError as error:
            self._episode.note("kdump", "failed", error_message(error))
            return None
        return reading.by_another_clock(asked_at)
