"""Another machine in its place: the Machine is deleted, or its owner is asked to remediate it, and the successor seen to come.

Until the deletion has begun there is a way back; from then on there is none, and what is left is to see it through: drain,
instance and object go, the owner makes another Machine, and its Node becomes Ready. A deletion that was asked for twice is one
deletion: it names the Machine by uid, and each request looks first (S33).
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.preservation import GiveUpRequest, GiveUpResult, PreservationActivities
from activities.contracts.remediation import BeforeActing, FollowedMachine, RemediationActivities
from activities.contracts.target import ActResult
from activities.errors import ErrorType, error_message, error_type
from policy.episode.events import EventReason
from policy.episode.gate import Operation
from policy.episode.messages import Outcome, Phase
from policy.fence.config import FenceStep
from policy.values.times import format_duration
from workflows.episode.state import End, Undertaking
from workflows.kit import options
from workflows.kit.interrupts import AbortAsked, Interrupt, NeedGone, NonRetryable, Vetoed, interrupt_for, is_unclear
from workflows.remediation.ladder_step import FIRST_LOOK, KCP, LOOK_AGAIN, UNDO_PAUSE, WatchedStep

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
            return await self._see_the_successor(found)
        self._goes = found.deleting if found is not None else self._goes
        if found is not None and not self._goes:
            await self._while_there_is_a_way_back(found)
        if (abort := self._episode.state.abort_asked) is not None:
            though = ", though its deletion has been asked for" if self._goes else ""
            raise AbortAsked(f"aborted by {abort.by}: {abort.reason}{though}")
        self._show_progress(found)
        return None

    async def goes(self) -> bool:
        """Whether the machine goes, or is gone, for any cause: then there is nothing left to ask for (S33)."""
        found = await self._target.follow(self._state)
        return found.gone or found.deleting

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

    async def _see_the_successor(self, found: FollowedMachine) -> End:
        """The target is gone. Its successor is a case of its own from here on: nothing of it is this one's failure."""
        with self._episode.undertaking("sees the successor") as under:
            return await self._until_it_is_there(found, under)

    async def _until_it_is_there(self, found: FollowedMachine, under: Undertaking) -> End:
        name, gone_at, pause = self._target.name, under.began, FIRST_LOOK
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
                raise AbortAsked(f"aborted by {abort.by}: {abort.reason}; {name} is gone, and {stands_in}")
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
                found = await target.act(self._give_up, "the deletion can't be asked for", Operation.REMOVE, covered=True)
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
        return self._state.asked is not None

    async def take_back(self) -> str:
        """A claim on the Node that came to nothing goes; a deletion can't be taken back."""
        if self._state.asked is not None or self._target.pin.machine is None:
            return ""
        failing = "our claim on the Node can't be taken off"

        async def withdraw() -> None:
            try:
                await self._give_up()
            except ActivityError as error:
                if error_type(error) is not ErrorType.TARGET_CHANGED:  # another Machine has its name: there is nothing to keep
                    raise interrupt_for(error, failing) from error

        gone = await self._target.node_writer.insist("withdraw", withdraw, failing=failing, pause=UNDO_PAUSE, abort_ends=True)
        return "" if gone else f"; {failing}"

    async def _give_up(self, before: BeforeActing | None = None) -> GiveUpResult:
        """before: None where it is not to be asked for any more."""
        pin, episode = self._target.pin, self._episode
        assert pin.machine is not None
        return await workflow.execute_activity_method(
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
            **(options.remediation(episode.state.cluster) | {"summary": f"asks for the deletion of {pin.machine.name}"}),
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
        return await self._target.execute(RemediationActivities.request_owner, request, options.cluster_write, self._summary)

    async def take_back(self) -> str:
        """The conditions are put right again where its owner has not begun."""
        if self._state.asked is None and not self._state.may_stand:
            return ""
        return await self._target.take_back("what its owner was asked for")
