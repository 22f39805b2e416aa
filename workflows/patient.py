"""The patient: who is remediated, and whatever every step of the ladder does about it.

Made once, after the pin, and shared by the steps (`workflows/replacing.py`, `workflows/handing_out.py`,
`workflows/fencing_step.py`). In which order they come is the story's (`workflows/remediation.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.remediation import (
    Followed,
    FollowRequest,
    MachineRequest,
    RemediationActivities,
    RemediationPin,
    RememberRequest,
)
from activities.contracts.target import ActResult
from policy.episodes import NeedKind
from policy.permits import PermitRequest
from policy.remediation.escalation import Step, timed_out
from policy.remediation.ladder import removes
from policy.remediation.memory import LastRemediation, written_memory
from workflows import handing_over, options
from workflows.bookkeeping import Bookkeeping
from workflows.endings import End
from workflows.episode import Episode
from workflows.looks import Looks
from workflows.turns import Hopeless, turn_for

KCP = "KubeadmControlPlane"
FIRST_LOOK, LOOK_AGAIN = timedelta(seconds=2), timedelta(seconds=20)
"""How soon after an act it is looked at, and how seldom at last: what is awaited happens in minutes."""

Result = TypeVar("Result")


class OutOfTime(Hopeless):
    """A step's time is over: the next one's turn."""


class NewHistory(Exception):  # noqa: N818 - no error, a change of paper
    """This history has grown long while nothing was done: the episode goes on in a new one, where it stands."""


@dataclass(slots=True, kw_only=True)
class Errand:
    """One step under way: when it began, when what it does was set going, and by which name that is found again."""

    step: Step
    index: int
    began: datetime
    asked: datetime | None = None
    since: datetime | None = None
    name: str = ""


class StepOfLadder(Protocol):
    """What every step can do."""

    async def carry_out(self) -> End:
        """Until the patient is well or replaced. Raises the turn that the story must take: Hopeless, the next step's turn."""

    async def give_up(self, why: str) -> None:
        """It has failed, or its time is over: whatever it set going is told so."""

    async def take_back(self) -> None:
        """The episode ends: nothing of it may stay behind."""


@dataclass(slots=True, kw_only=True)
class Patient:
    """One target, its episode, and what is known of both."""

    episode: Episode
    pin: RemediationPin
    looks: Looks
    desk: Bookkeeping
    retry: int = 0
    failed: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """How people call it."""
        machine = self.pin.machine
        return self.episode.node if machine is None else f"{machine.name} ({self.episode.node})"

    @property
    def has_node(self) -> bool:
        """Whether a Node was pinned, on which a mark can stand."""
        return bool(self.pin.pinned.uid)

    @property
    def memory(self) -> str:
        """What the patient, and whoever replaces it, is to remember. A control plane of Cluster API remembers by itself."""
        if self.pin.owner.startswith(KCP):
            return ""
        machine = self.pin.machine
        return written_memory(
            LastRemediation(
                of=machine.name if machine is not None else self.episode.node,
                at=workflow.now(),
                retry=self.retry,
                failed=tuple(self.failed),
                incident=self.episode.incident,
            )
        )

    def permit_request(self) -> PermitRequest:
        """What the scanner is asked for."""
        pinned, seen = self.pin.pinned, self.episode.observation
        return PermitRequest(
            node=self.episode.node,
            workflow_id=workflow.info().workflow_id,
            incident=self.episode.incident,
            kind=self.episode.kind,
            reason=self.pin.need.reason,
            provider_id=pinned.provider_id,
            zone=pinned.zone,
            control_plane=self.pin.control_plane,
            node_uid=pinned.uid,
            owner=self.pin.owner,
            removes=removes(self.pin.ladder),
            ready=seen is not None and seen.ready,
        )

    async def remember(self) -> None:
        """Before anything is done that could fail: a patient that is lost from sight was remediated all the same."""
        if not (memory := self.memory) or not (self.has_node or self.pin.machine is not None):
            return
        request = RememberRequest(
            target=self.episode.target, memory=memory, machine=self.pin.machine, machine_uid=self.pin.machine_uid
        )
        result: ActResult = await self.call(
            RemediationActivities.remember, request, options.cluster_write, "notes on the target what is done about it"
        )
        self.episode.note("remember", "ok", result.detail)

    async def follow(self, errand: Errand) -> Followed:
        """What has become of its Machine."""
        assert self.pin.machine is not None
        request = FollowRequest(
            target=self.episode.target,
            machine=self.pin.machine,
            machine_uid=self.pin.machine_uid,
            owner=self.pin.owner,
            since=errand.since,
            memory=self.memory,
            check=self.pin.need.check if self.pin.need.kind is NeedKind.CHECK else None,
        )
        found: Followed = await self.call(
            RemediationActivities.follow, request, options.cluster_write, f"looks what has become of {self.pin.machine.name}"
        )
        errand.since = found.deleting_since or errand.since
        return found

    def machine_request(self) -> MachineRequest:
        """An act on its Machine that is to begin now or not at all."""
        assert self.pin.machine is not None
        return MachineRequest(
            target=self.episode.target,
            machine=self.pin.machine,
            machine_uid=self.pin.machine_uid,
            holder=self.episode.holder,
            not_after=workflow.now() + options.ACT_WINDOW,
            check=self.pin.need.check,
        )

    async def call(
        self,
        activity: Callable[..., Awaitable[Result]],
        request: object,
        config: Callable[[str], workflow.ActivityConfig],
        summary: str,
    ) -> Result:
        """One activity of the cluster; a failed one is raised as the turn it means."""
        try:
            result: Result = await workflow.execute_activity_method(
                activity, request, **(config(self.episode.cluster) | {"summary": summary})
            )
        except ActivityError as error:
            raise turn_for(error, summary) from error
        return result

    async def wait(self, errand: Errand, pause: timedelta, why: str) -> None:
        """Wait for news, not beyond the step's time. Raises OutOfTime once that is over, NewHistory where this one is long."""
        if timed_out(errand.began, errand.step.timeout, workflow.now()):
            raise OutOfTime(f"not done after {errand.step.timeout}: {why}")
        if handing_over.roll_is_due():
            raise NewHistory
        if errand.step.timeout is not None:
            left = errand.began + errand.step.timeout - workflow.now() + timedelta(seconds=1)
            pause = min(pause, max(left, timedelta(seconds=1)))
        await self.episode.rest(pause, why)

    def repinned(self, pin: RemediationPin) -> None:
        """Another look at whom it is about, by the same names."""
        self.pin = replace(pin, ladder=self.pin.ladder)
