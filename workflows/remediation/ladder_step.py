"""What every step of a ladder is: begun once, looked at until the target is well or replaced, and taken back at the end.

A step keeps nothing of its own between histories: whatever it must know later is a field of its state (`StepProgress`). What a
step may do about its target, and how, is `RemediationTarget`, which all steps share. Which class belongs to which strategy is
`workflows/remediation/steps.py`, in which order they come `workflows/remediation/story.py`. How to add one:
`docs/adding-a-strategy.md`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.remediation import (
    BeforeActing,
    FollowedMachine,
    FollowRequest,
    MachineRequest,
    RemediationActivities,
    RemediationPin,
    RememberRequest,
)
from activities.contracts.target import ActResult, LookRequest, LookVerdict
from activities.errors import ErrorType, error_type
from policy.episode.gate import Operation
from policy.episode.messages import NeedKind
from policy.episode.permits import PermitRequest
from policy.remediation.ladder import timed_out
from policy.remediation.memory import LastRemediation, written_memory
from policy.values.times import format_duration
from workflows.episode.episode import Episode
from workflows.episode.node_writes import NodeWriter
from workflows.episode.permit import permit_request
from workflows.episode.preflight import Preflight, Seeing, seen_with
from workflows.episode.state import End, LadderProgress, StepProgress
from workflows.kit import options
from workflows.kit.interrupts import Interrupt, NonRetryable, StepFailed, as_interrupt, interrupt_for, is_unclear

KCP = "KubeadmControlPlane"
FIRST_LOOK, LOOK_AGAIN = timedelta(seconds=2), timedelta(seconds=20)
"""How soon after an act it is looked at, and how seldom at last: what is awaited happens in minutes."""

UNDO_PAUSE = timedelta(seconds=10)

AT_ONCE = timedelta(seconds=2)
WAITS_TAKE_NO_TIME = "what-keeps-a-step-from-asking-others-to-act-takes-none-of-its-time"
"""Histories of builds in which it did go on as they began."""

Result = TypeVar("Result")


class OutOfTime(NonRetryable):
    """A step's time is over: the next one's turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationTarget:
    """One target, its episode, and what is known of both. Made after the pin, and again in each new history."""

    episode: Episode
    progress: LadderProgress
    preflight: Preflight
    node_writer: NodeWriter

    @property
    def pin(self) -> RemediationPin:
        return self.progress.pin

    @property
    def name(self) -> str:
        machine = self.pin.machine
        return self.episode.state.node if machine is None else f"{machine.name} ({self.episode.state.node})"

    @property
    def has_node(self) -> bool:
        """Whether a Node was pinned, on which a mark can stand."""
        return bool(self.pin.pinned.uid)

    @property
    def memory(self) -> str:
        """What the target and its successor are to remember. A control plane of Cluster API remembers by itself."""
        if self.pin.owner.startswith(KCP):
            return ""
        machine = self.pin.machine
        return written_memory(
            LastRemediation(
                of=machine.name if machine is not None else self.episode.state.node,
                at=workflow.now(),
                retry=self.progress.retry,
                failed=tuple(self.progress.failed),
                incident=self.episode.state.incident,
            )
        )

    def permit_request(self) -> PermitRequest:
        """What the scanner is asked for."""
        return permit_request(self.episode, self.pin.need)

    async def act(
        self,
        send: Callable[[BeforeActing], Awaitable[Seeing]],
        what: str,
        operation: Operation = Operation.DISRUPT,
        *,
        covered: bool = False,
    ) -> Seeing:
        """Have others begin something: one activity, in which the last look and a note on the target come first (S20).

        send: has it carried out. what: it is about, in people's words. operation: of the look. covered: by the node's lease.
        Raises the interrupt. That it was done is the caller's to say (`progress.tried`); here that it may have been, for all that
        its answer tells.
        """

        earlier, step = self.progress.noted, self.progress.steps[self.progress.at] if self.progress.at is not None else None
        if step is not None:
            step.waits_since = step.waits_since or workflow.now()

        async def noted(look: LookRequest) -> Seeing:
            remember = self._memory_request()
            self.progress.noted = remember.memory if remember is not None else earlier
            result = await send(BeforeActing(look=look, remember=remember))
            if seen_with(result).verdict is not LookVerdict.GO:
                self.progress.noted = earlier or self.progress.noted  # by a first attempt that was lost, perhaps
            return result

        try:
            result = await self.preflight.licensed(noted, what, operation, leased=covered and self.has_node)
        except Interrupt as interrupt:
            _end_wait(step)
            error = interrupt.__cause__
            self.progress.tried = self.progress.tried or (isinstance(error, ActivityError) and is_unclear(error))
            await self.forget()
            await self._remember_failures()
            raise
        _end_wait(step)
        return result

    async def remember(self) -> None:
        """By itself, where what begins is a story of its own."""
        if (request := self._memory_request()) is None:
            return
        result: ActResult = await self.call(
            RemediationActivities.remember, request, options.cluster_write, "notes on the target what is done about it"
        )
        self.progress.noted = request.memory
        self.episode.note("remember", "ok", result.detail)

    async def _remember_failures(self) -> None:
        """Of the steps before, where none has begun that would have noted them."""
        if not self.progress.tried or not self.progress.failed:
            return
        try:
            await self.remember()
        except Interrupt as interrupt:
            self.episode.note("remember", "failed", interrupt.reason)

    def _memory_request(self) -> RememberRequest | None:
        """What is noted before anything is done that could fail: a target that is lost from sight was remediated all the same."""
        if not (memory := self.memory) or not (self.has_node or self.pin.machine is not None):
            return None
        return RememberRequest(
            target=self.episode.target, memory=memory, machine=self.pin.machine, machine_uid=self.pin.machine_uid
        )

    async def forget(self) -> None:
        """Where nothing came of it: an attempt that never happened counts as no retry and is followed by no pause. What can't be
        written now stays as it is, which only has the next remediation wait for longer."""
        if self.progress.tried or not self.progress.noted:
            return
        machine, node = self.pin.remembers
        request = RememberRequest(
            target=self.episode.target,
            memory=machine,
            on_node=node,
            machine=self.pin.machine,
            machine_uid=self.pin.machine_uid,
            instead_of=self.progress.noted,
        )
        try:
            result: ActResult = await self.call(
                RemediationActivities.remember, request, options.cluster_write, "notes that nothing was done about it"
            )
        except Interrupt as interrupt:
            self.episode.note("forget", "failed", interrupt.reason)
            return
        self.progress.noted = ""
        self.episode.note("forget", "ok", result.detail)

    async def follow(self, state: StepProgress) -> FollowedMachine:
        """What has become of its Machine."""
        before = workflow.now()
        found = await self._look_at_machine(state)
        if found.deleting_since is not None:
            state.since = found.deleting_since
        elif not found.gone:
            state.seen = before
        elif state.since is None:  # it has gone between two looks, and it is not known since when
            state.since = (state.seen or state.asked or state.began) - options.IN_FLIGHT_MARGIN
            found = await self._look_at_machine(state)
        return found

    async def look_after(self, state: StepProgress) -> FollowedMachine | None:
        """The same for a step that waits: an API that does not answer is no failure of what is waited for. None: not known
        now."""
        try:
            found = await self.follow(state)
        except StepFailed as interrupt:
            if not self.progress.blind:
                self.episode.note("follow", "failed", interrupt.reason)
            self.progress.blind = True
            return None
        self.progress.blind = False
        return found

    async def is_well(self, *, succeeded: bool = False) -> bool:
        """Whether what others did about it was of use. A person's wish is never gone by itself: there a Ready node is well once
        its controller says that it has succeeded, which not all do, or once it has started anew."""
        if self.pin.need.kind is not NeedKind.PERSON:
            return await self.preflight.need_is_gone()
        before = self.pin.pinned.boot_id
        if not await self.preflight.refresh() or (seen := self.episode.state.last_look) is None or not seen.ready:
            return False
        return succeeded or bool(before and seen.boot_id and seen.boot_id != before)

    async def glance(self) -> FollowedMachine | None:
        """What has become of its Machine while no step does anything about it. None: not known now."""
        if self.pin.machine is None:
            return FollowedMachine()
        asked = StepProgress(step=self.pin.ladder[-1], index=-1, began=workflow.now())
        try:
            return await self._look_at_machine(asked)
        except Interrupt as interrupt:
            self.episode.note("look", "failed", interrupt.reason)
            return None

    async def _look_at_machine(self, state: StepProgress) -> FollowedMachine:
        assert self.pin.machine is not None
        request = FollowRequest(
            target=self.episode.target,
            machine=self.pin.machine,
            machine_uid=self.pin.machine_uid,
            owner=self.pin.owner,
            since=state.since,
            memory=self.memory,
            check=self.pin.need.check if self.pin.need.kind is NeedKind.CHECK else None,
        )
        return await self.call(
            RemediationActivities.follow, request, options.cluster_write, f"looks what has become of {self.pin.machine.name}"
        )

    def machine_request(self, before: BeforeActing | None = None) -> MachineRequest:
        """An act on its Machine that is to begin now, or not at all."""
        assert self.pin.machine is not None
        return MachineRequest(
            target=self.episode.target,
            machine=self.pin.machine,
            machine_uid=self.pin.machine_uid,
            not_after=workflow.now() + options.ACT_WINDOW,
            before=before,
        )

    async def take_back(self, what: str, by: Callable[..., Awaitable[ActResult]] = RemediationActivities.take_back) -> str:
        """What still stands on the Machine of what others were asked for goes, however often it takes; after a failure an abort
        leaves it. by: the activity that undoes it. Answers what is left, in words to end a sentence with."""

        async def undo() -> None:
            done = await self.call(by, self.machine_request(), options.cluster_write, f"takes back {what}")
            self.episode.note("take-back", "ok", done.detail)

        failing = f"{what} can't be taken back"
        gone = await self.node_writer.insist("take-back", undo, failing=failing, pause=UNDO_PAUSE, abort_ends=True)
        return "" if gone else f"; {failing}"

    async def call(
        self,
        activity: Callable[..., Awaitable[Result]],
        request: object,
        config: Callable[[str], workflow.ActivityConfig],
        summary: str,
    ) -> Result:
        """One activity of the cluster; a failed one is raised as the interrupt it means."""
        with as_interrupt(summary):
            return await self.episode.execute(activity, request, config, summary)

    async def wait(self, state: StepProgress, pause: timedelta, why: str) -> None:
        """Wait for news, not beyond the step's time. Raises OutOfTime once that is over."""
        self.show(state)
        timeout = state.step.timeout
        if timeout is not None and timed_out(state.began, timeout, workflow.now()):
            raise OutOfTime(f"not done after {format_duration(timeout)}: {why}")
        if state.step.timeout is not None:
            left = state.began + state.step.timeout - workflow.now() + timedelta(seconds=1)
            pause = min(pause, max(left, timedelta(seconds=1)))
        await self.episode.rest(pause, why)

    def show(self, state: StepProgress | None) -> None:
        """Which step it is at, for people; None: at none."""
        ladder, self.episode.state.rung, self.episode.state.rung_until = self.pin.ladder, "", None
        if state is not None:
            self.episode.state.rung = f"{state.index + 1} of {len(ladder)}: {state.step.name}"
            self.episode.state.rung_until = state.began + state.step.timeout if state.step.timeout is not None else None


def _end_wait(step: StepProgress | None) -> None:
    """A hold, a mode or the queue may have kept it from acting: that is no time of a step that has set nothing going (S20)."""
    if step is None or step.waits_since is None:
        return
    waited, step.waits_since = workflow.now() - step.waits_since, None
    if waited > AT_ONCE and step.asked is None and workflow.patched(WAITS_TAKE_NO_TIME):
        step.began += waited


async def withdraw_claim(node_writer: NodeWriter, withdraw: Callable[[], Awaitable[object]], pause: timedelta) -> str:
    """Our claim on the Node of a Machine that was to be deleted goes, however often it takes; after a failure an abort leaves it
    (S35). Where another Machine has the name by now there is nothing to keep. Answers what is left, in words to end a sentence
    with."""
    failing = "our claim on the Node can't be taken off"

    async def once() -> None:
        try:
            await withdraw()
        except ActivityError as error:
            if error_type(error) is not ErrorType.TARGET_CHANGED:
                raise interrupt_for(error, failing) from error

    gone = await node_writer.insist("withdraw", once, failing=failing, pause=pause, abort_ends=True)
    return "" if gone else f"; {failing}"


class LadderStep(ABC):
    """One step, as the story carries it out (`workflows/remediation/story.py`)."""

    begins_anew: ClassVar[bool] = False
    """Whether a person's `resume` finds nothing of it: it is taken back before the ladder begins with its first step again."""

    def __init__(self, target: RemediationTarget, state: StepProgress, left_before: tuple[str, ...] = ()) -> None:
        """left_before: the devices that earlier steps have left off."""
        self._target = target
        self._state = state
        self._episode = target.episode
        self._left_before = left_before

    @property
    def state(self) -> StepProgress:
        return self._state

    @property
    def deletes(self) -> bool:
        """Whether it has had the deletion of the Machine begun, which can't be taken back."""
        return False

    def put_off(self, duration: timedelta) -> None:
        """So much later its time is over: nothing could be done (S20). Others that were set to work went on."""
        if self._state.asked is None and self._state.waits_since is None:
            self._state.began += duration

    @abstractmethod
    async def carry_out(self) -> End:
        """Until the target is well or replaced. Raises what interrupts the story: NonRetryable, and the next step comes."""

    async def give_up(self, why: str) -> None:  # noqa: B027 - a step may have no controller to notify
        """It has failed, or its time is over: whatever it set going is told so. What it leaves stays until the end."""

    @abstractmethod
    async def take_back(self) -> str:
        """The episode ends: nothing of it may stay behind. Answers what does, in words to end a sentence with, "" for nothing."""


class WatchedStep(LadderStep):
    """One that has others begin something, once, and looks what comes of it: most are."""

    @abstractmethod
    async def begin(self) -> None:
        """Have it begun, by `RemediationTarget.act`. Raises the interrupt where it may not be."""

    @abstractmethod
    async def look(self) -> End | None:
        """Look once. Answers the end of the episode, None while it goes on; `Episode.doing` then says what is waited for."""

    async def carry_out(self) -> End:
        """Begin, then look, ever less often, until it is over or out of time."""
        if self._state.asked is None:
            await self.begin()
            self._state.began = self._state.asked = workflow.now()  # what was waited for until then is not its time
        pause = FIRST_LOOK
        while True:
            if (end := await self.look()) is not None:
                return end
            await self._target.wait(self._state, pause, self._episode.state.doing)
            pause = min(pause * 2, LOOK_AGAIN)
