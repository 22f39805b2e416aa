"""What every kind of episode has: its record, its phase as people see it, its waits.

The story of a kind (`workflows/fencing/story.py`) owns one `Episode` and tells it what it does; nothing here decides what to do
next. How it comes by a permit is `permit.py`, what people command it `commands.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts import metrics, search_attributes
from activities.contracts.target import ActRequest, LookResult, PublishedEvent, ReleaseRequest, RestoreRequest, Target
from activities.errors import ErrorType, error_type
from policy.episode import phases
from policy.episode.events import EventReason
from policy.episode.messages import (
    REPAIRED,
    WORD_MEMO,
    EpisodeStatus,
    Need,
    Outcome,
    Phase,
    Pinned,
    Reading,
    RecordEntry,
    SeenNode,
    StandingWord,
)
from policy.episode.node_action import VERIFIED, one_line
from policy.fence.config import FenceStep
from policy.fence.device_check import devices_of
from policy.fence.plan import FencingPlan, PowerDevice, sealed_anew
from policy.fence.power import PowerState
from policy.history.offenders import NO_REPAIRS, FoundRepairs, hardware_of
from policy.objects.marks import NOTHING_ADDED, Added
from policy.values.display_text import without_calls
from policy.values.times import LATEST, written
from workflows.episode.publisher import Publisher
from workflows.episode.state import EpisodeState, Rest, Undertaking
from workflows.kit import continuation, options
from workflows.kit.continuation import NewHistory
from workflows.kit.interrupts import failure_line, is_unclear
from workflows.kit.messages import HoldEpisodeRequest

ABORT_ASKS_NO_PERSON = "an aborted episode asks no person"
WORD_IN_MEMO = "what-people-have-said-is-in-the-memo"
"""Histories of builds that kept it in their state alone go on so."""
STOOD_STILL = "time-in-which-no-worker-carried-it-out-uses-up-no-patience"
"""Histories of builds that counted it go on so."""
STOOD_STILL_TOO = "nor-does-that-time-in-a-pause-that-nothing-ends-or-while-a-device-is-asked"
HOLD_TAKES_NO_TIME = "nor-does-a-hold-after-off-use-up-the-time-of-a-step"
"""Histories of builds in which these did go on so."""
LATE = timedelta(seconds=2)
"""So much later than it was due a workflow may go on without that being called a standstill."""
MAXIMUM_RECORD = 500

Request = TypeVar("Request")
Publishing = TypeVar("Publishing", ActRequest, ReleaseRequest, RestoreRequest)
Result = TypeVar("Result")


_OF_STATE = {each.name: each.type for each in fields(EpisodeState)}
_SHOWN = tuple(each.name for each in fields(EpisodeStatus) if _OF_STATE.get(each.name) == each.type)
"""What a status has as the state has it: each field of the same name and type. Episode.status gives all others."""


class Episode:
    """An episode under way: its state, which the parts of the story change in place, and what all of them do with it."""

    def __init__(self, state: EpisodeState) -> None:
        self.state = state
        """What a new history is given, whole. What is kept beside it here is of this history only."""
        self.publisher = Publisher(self.state.incident, self.state.publisher_state)
        self.may_leave: Callable[[], bool] = lambda: True
        """Whether this history may be left: no answer is awaited beside the story, which would be lost."""
        self.advise: Callable[[], str] = str
        """What a person who is waited for can do; set by `EpisodeWorkflow`, which knows what each verb would mean."""
        self.outcome: Outcome | None = None
        """Once it has ended."""
        self.lose_time: Callable[[timedelta], None] = lambda _duration: None
        """Puts off what ends after a while by as long as nothing could be done; set by a story that has steps of that kind."""
        self.insists = False
        """Whether what must be done in the end has failed: it is tried again, also after an abort."""
        self._around = self.state.undertakings
        info = workflow.info()
        if not self.state.run_id or info.run_id != info.original_execution_run_id:  # a run that was reset is another one
            self.state.run_id = info.run_id
        self._seed = workflow.random_seed()

    @property
    def was_reset(self) -> bool:
        """Whether it has done more than its history tells: a reset took that back. Where a run goes on after one, Temporal gives
        it another seed."""
        return self.state.reset_at is not None or workflow.random_seed() != self._seed

    def note_reset(self) -> None:
        """Have the state tell of a reset, if there was one."""
        if workflow.random_seed() != self._seed:
            self._seed, self.state.reset_at = workflow.random_seed(), workflow.now()
            self.note("reset", "ok", "what it had done after the lines before this one is not known")

    async def outlive_reset(self) -> bool:
        """Before every act: what a reset took back is waited out (S34). Answers whether that was so: what was seen before it
        licenses nothing then (S45)."""
        self.note_reset()
        at = self.state.reset_at
        left = at + options.LONGEST_IN_FLIGHT - workflow.now() if at is not None else timedelta(0)
        await self.settle(left)
        return left > timedelta(0)

    @property
    def target(self) -> Target:
        """The node that every act is about. Raises RuntimeError before the target is pinned."""
        if self.state.pinned is None:
            raise RuntimeError("the target has not been pinned yet")
        return self._target(self.state.pinned)

    def _target(self, pinned: Pinned) -> Target:
        return Target(
            cluster=self.state.cluster,
            pinned=pinned,
            incident=self.state.incident,
            kind=self.state.kind.value,
            workflow_id=workflow.info().workflow_id,
            run_id=self.state.run_id,
            override=self.state.override,
        )

    async def execute(
        self,
        activity: Callable[[Any, Request], Awaitable[Result]],
        request: Request,
        how: Callable[[str], workflow.ActivityConfig],
        summary: str,
    ) -> Result:
        """Have an activity carried out in the episode's cluster. how: its options, of `workflows/kit/options.py`. One that is
        repeated for a while is so once more where no worker was there for that while (S37). Raises ActivityError."""
        await self.outlive_reset()
        config = how(self.state.cluster)
        while True:
            ends = workflow.now() + options.longest(config)
            try:
                result = await options.execute(activity, request, config, summary)
            except ActivityError:
                if not self._add_standstill(since=ends) or not options.is_repeated(config):
                    raise
            else:
                self._add_standstill(since=ends)
                return result

    async def execute_publishing(
        self,
        activity: Callable[[Any, Publishing], Awaitable[Result]],
        request: Publishing,
        how: Callable[[str], workflow.ActivityConfig],
        summary: str,
    ) -> Result:
        """The same of a request with a field `publication`: what is new for people goes along."""
        return await self.publisher.publish_with(
            lambda publication: self.execute(activity, replace(request, publication=publication), how, summary)
        )

    def learns_of(self, added: Added | None) -> None:
        """What our mark tells of: it may be gone later, and what was added before us is ours to take away by now."""
        self.state.added |= added or NOTHING_ADDED

    def moment(self) -> datetime:
        """Now, and later than every moment handed out before. What was asked and answered is ordered by these: the clocks of the
        workers that did it may differ by minutes."""
        moment = max(workflow.now(), (self.state.latest_moment or self.state.started) + timedelta(microseconds=1))
        self.state.latest_moment = moment
        return moment

    def sealed(self, device: PowerDevice) -> PowerDevice:
        """The device as a power worker is asked for it: under the newest seal that there is for it (S42)."""
        return sealed_anew(device, self.state.sealed_devices)

    def seal_anew(self, plan: FencingPlan) -> None:
        """What has just been configured for the node, and sealed. A device that is pinned otherwise keeps its seal (S9)."""
        fresh = tuple(each.device for each in devices_of(plan))
        self.state.sealed_devices = (*fresh, *(each for each in self.state.sealed_devices if each not in fresh))

    def begin_round(self) -> None:
        """Another boot, or another step of a ladder, is fenced from here on: what was proven of the one before proves nothing of
        it (S1, S2). Pods that were freed stay freed, unless a restart since is proven (S35)."""
        self.state.freed = (self.state.freed or self.state.kernel_dead is not None) and self.state.restart_proof is None
        self.state.off_proof = self.state.restart_proof = self.state.kernel_dead = None
        self.state.readings.clear()

    def frees(self) -> None:
        """Pods may run elsewhere from here on: a restart that was proven before says nothing of those (S35)."""
        self.state.restart_proof = None

    def note_repairs(self, found: FoundRepairs, need: Need) -> None:
        """What a pin says of its machine's repairs. The first that knows counts: a person may have answered by a later one. Only
        what a program repairs is kept until a person answers (S53)."""
        if self.state.repairs is None or self.repairs.is_doubtful:
            self.state.repairs = replace(found, keeps=found.keeps and need.kind.automatic)

    @property
    def repairs(self) -> FoundRepairs:
        """What is known of its machine's repairs."""
        return self.state.repairs or NO_REPAIRS

    def let_offender_go(self, problem: str) -> None:
        """A person has it go on with what it was asked about: about an offender it is not asked again."""
        if self.repairs.is_asked_in(problem):
            self.state.repairs = replace(self.repairs, asks=False, keeps=False)

    def _begin_repair(self, system_uuid: str) -> None:
        """From here on something is done to the machine, which counts as a repair of it; people are told of an offender."""
        self.state.hardware, found = hardware_of(system_uuid), self.repairs
        if found.problem:
            self.note("repairs", "not known", found.problem)
        if found.offence:
            self.note("repairs", "offender", found.offence)
            offender = PublishedEvent(reason=EventReason.REPEATED_REPAIRS, message=found.offence, warning=True)
            self.publisher.add_event(offender)

    @property
    def _labels(self) -> dict[str, str]:
        """Of its metrics: no name of a node, of which there may be any number."""
        return {"cluster": self.state.cluster, "kind": self.state.kind.value}

    def count_off(self) -> None:
        """Its node is proven off: how long that took, where it is known when it began to offend."""
        if (since := self.state.offends_since) is not None:
            metrics.TIME_TO_OFF.record(workflow.metric_meter(), workflow.now() - since, **self._labels)

    def count_end(self, outcome: Outcome, at: datetime) -> None:
        """It is over: how long it was open, and how long its node was of no use."""
        lasted, since = at - self.state.started, self.state.offends_since
        metrics.EPISODES_ENDED.record(workflow.metric_meter(), lasted, **self._labels, outcome=outcome.value)
        if since is not None and outcome in REPAIRED:
            metrics.TIME_TO_SERVICE.record(workflow.metric_meter(), workflow.now() - since, **self._labels)

    # What people see ------------------------------------------------------------------------------------------------

    def note(
        self,
        act: str,
        outcome: str,
        detail: str = "",
        *,
        who: str = "",
        rule: str = "",
        version: str = "",
        numbers: dict[str, float] | None = None,
    ) -> None:
        """Add a line to the decision record, as RecordEntry has it; the oldest go when it is full."""
        if len(self.state.record) >= MAXIMUM_RECORD:
            del self.state.record[1 : len(self.state.record) - MAXIMUM_RECORD + 2]
        self.state.noted += 1
        entry = RecordEntry(
            at=workflow.now(),
            step=self.state.step,
            act=act,
            outcome=outcome,
            detail=detail,
            number=self.state.noted,
            who=who,
            rule=rule,
            version=version,
            numbers=numbers,
        )
        self.state.record.append(entry)
        self.publisher.add_entry(entry)

    def enter(
        self, *, phase: Phase | None = None, step: FenceStep | None = None, doing: str, until: datetime | None = None
    ) -> None:
        """Say what the episode does now; kept true in the search attributes and on the workflow's page."""
        if phase is not None and phase is not self.state.phase:
            try:
                phases.reason_for(self.state.kind, self.state.phase, phase)
            except phases.UnexpectedPhaseError as error:  # an exception would have this task tried again for ever, also after off
                workflow.logger.error("%s", error)
                self.note("phase", "unexpected", str(error))
                changed = {"before": self.state.phase.value, "after": phase.value}
                metrics.UNEXPECTED_PHASES.add(workflow.metric_meter(), **self._labels, **changed)
            self.state.phase = phase
            if phase is Phase.RUNNING and self.state.pinned is not None and not self.state.hardware:
                self._begin_repair(self.state.pinned.system_uuid)
            self.note("phase", phase.value)
            metrics.EPISODE_PHASES.add(workflow.metric_meter(), **self._labels, phase=phase.value)
            self._tag()
        if step is not None and step.value != self.state.step:
            self.state.step, self.state.try_number, self.state.tries = step.value, 1, 0
        self.state.doing = doing
        self.state.until = until
        self._show()
        if self.state.pinned is not None:
            self.publisher.show(self.status())

    def introduce(self, *, zone: str, reason: str, since: datetime | None = None) -> None:
        """Have this episode be found by its search attributes, however it was started. since: when its node began to offend, as
        far as that is known by now."""
        self.state.zone, self.state.reason = zone, one_line(reason)
        if self.state.offends_since is None and since is not None:
            self.state.offends_since = since
            metrics.TIME_TO_DETECT.record(workflow.metric_meter(), workflow.now() - since, **self._labels)
        if workflow.info().typed_search_attributes.get(search_attributes.NODE) is None:
            self._tag()
        self._show()

    def _tag(self) -> None:
        """Set those search attributes that are not as they should be."""
        wanted = search_attributes.of_episode(
            self.state.kind,
            cluster=self.state.cluster,
            node=self.state.node,
            reason=self.state.reason,
            zone=self.state.zone,
            phase=self.state.phase,
            outcome=self.outcome,
            hardware=self.state.hardware,
        )
        found = workflow.info().typed_search_attributes  # as the last upsert has left them
        if changed := [each.key.value_set(each.value) for each in wanted if found.get(each.key) != each.value]:
            workflow.upsert_search_attributes(changed)

    @property
    def advice(self) -> str:
        """What a person can do now and what comes of it, "" while none is waited for (S44)."""
        return self.advise() if self.state.phase is Phase.NEEDS_HUMAN else ""

    def status(self) -> EpisodeStatus:
        """Answer of the `status` query."""
        state, pinned, word = self.state, self.state.pinned, self.word
        return EpisodeStatus(
            **{name: getattr(state, name) for name in _SHOWN},
            path_proofs=tuple(state.path_proofs.values()),
            readings=tuple(state.readings.values()),
            waiting_until=state.until,
            node_uid=pinned.uid if pinned else "",
            provider_id=pinned.provider_id if pinned else "",
            advice=self.advice,
            held=word.held,
            held_by=self.hold_owners,
            held_until=word.held_until,
            override=self.overridden_by,
            aborted=word.aborted,
        )

    @property
    def word(self) -> StandingWord:
        """What people have said that keeps it from acts."""
        return StandingWord(
            incident=self.state.incident,
            aborted=str(self.state.abort_asked or ""),
            held=self.holds_line if self.is_held else "",
            held_until=self.longest_hold.until if self.longest_hold is not None and self.is_held else None,
        )

    @property
    def devices_on(self) -> tuple[Reading, ...]:
        """What power devices have last said against a person's word for off (S8)."""
        return tuple(each for each in self.state.readings.values() if each.state is PowerState.ON)

    def _show(self) -> None:
        """What matters first: whether it waits for a person, and what a person can do."""
        lines = [f"**{self.state.doing}**"]
        if self.state.phase is Phase.NEEDS_HUMAN:
            lines = [f"**needs a person: {self.state.problem or self.state.doing}**", "", self.advice]
        lines += [
            "",
            f"* {self.state.kind.value} of `{self.state.node}` ({self.state.cluster}, incident `{self.state.incident}`)",
            f"* phase {self.state.phase.value}, step {self.state.step or '-'}",
            f"* reason: {self.state.reason or '-'}",
        ]
        if self.state.rung:
            lines.append(f"* step {self.state.rung} of its ladder")
        if self.state.until:
            lines.append(f"* until {written(self.state.until)}")
        if self.state.off_proof:
            lines.append(f"* off {self.state.off_proof.basis}")
        if self.state.problem and self.state.phase is not Phase.NEEDS_HUMAN:
            lines.append(f"* **problem: {self.state.problem}**")
        workflow.set_current_details("\n".join(map(without_calls, lines)))  # it is shown as Markdown (S50)

    # What it is asked and answered ----------------------------------------------------------------------------------

    def node_changed(self, seen: SeenNode) -> None:
        """The scanner's signal. A level: the latest is all that counts. It is a hint, and proves nothing: anybody who can signal
        may have sent it (S42)."""
        self.state.last_seen = seen
        self._end_refuted_acknowledgement(seen)
        self.state.unseen = True

    def _end_refuted_acknowledgement(self, seen: SeenNode) -> None:
        """A person saw one boot of the machine off. That says nothing of another boot, and is not true where its kubelet
        reports, also where the node falls silent again (S6, S8). Once it stands for a proof, the story ends that with the reason
        left here, and looks for another boot by itself."""
        state = self.state
        given = state.acknowledgement or (state.off_proof.acknowledgement if state.off_proof is not None else None)
        if given is None or state.pinned is None or not seen.present:
            return
        if seen.boot_id not in {"", state.acknowledged_boot}:
            if state.acknowledgement is None:
                return
            shown = f"the node shows another boot than the one seen off: {seen.boot_id}, and not {state.acknowledged_boot}"
        elif seen.ready:
            shown = "the node says Ready. Look at it, and say it again once it is off and not Ready"
        else:
            return
        if state.acknowledgement is None and state.acknowledgement_void:
            return
        state.acknowledgement, state.acknowledgement_void = None, f"the acknowledgement by {given.by} is void: {shown}"
        self.note("acknowledge-off", "void", state.acknowledgement_void)

    def take_void(self) -> str:
        """Why an acknowledgement does not hold any more, said once; "" where none has ended."""
        void, self.state.acknowledgement_void = self.state.acknowledgement_void, ""
        return void

    @property
    def overridden_by(self) -> str:
        """Who overrides a circuit breaker for it, and why; "" where none is overridden."""
        return (
            f"{self.state.override.speaker}{VERIFIED}: {one_line(self.state.override.spec.reason)}"
            if self.state.override is not None
            else ""
        )

    def ask(self, problem: str, path: str) -> None:
        """A person is asked a new question: earlier answers do not count for it. path: see `EpisodeState.path_asked`."""
        self.state.problem, self.state.question, self.state.path_asked = problem, self.state.question + 1, path
        self.state.resumed, self.state.path_command = None, None if path else self.state.path_command

    @property
    def was_answered(self) -> bool:
        """Whether it waits for a person, and one has it go on."""
        asked = self.state.phase is Phase.NEEDS_HUMAN
        return asked and (self.state.resumed is not None or self.state.acknowledgement is not None)

    def keep_word(self) -> None:
        """What people have said, in the memo as well: there it is found where the episode is terminated and no worker can replay
        its history any more (S44)."""
        if workflow.patched(WORD_IN_MEMO):
            workflow.upsert_memo({WORD_MEMO: self.word})

    def wake(self) -> None:
        """Something was said to the story itself: a rest ends, and it looks again."""
        self.state.changes += 1

    def take_grant(self) -> None:
        """The scanner grants the permit that was queued for."""
        self.state.permit, self.state.asks_anew = True, False
        self.state.changes += 1

    async def look(self, look: Callable[[], Awaitable[LookResult]]) -> LookResult:
        """A live look at the node: what the scanner has told of it before is no news any more."""
        self.state.unseen, unseen = False, self.state.unseen
        try:
            result = await look()
        except ActivityError:
            self.state.unseen = self.state.unseen or unseen
            raise
        self.see(result.seen)
        self._end_refuted_acknowledgement(result.seen)
        return result

    def see(self, seen: SeenNode | None) -> None:
        self.state.last_seen = self.state.last_look = seen

    # Waiting --------------------------------------------------------------------------------------------------------

    async def rest(self, duration: timedelta | None, why: str) -> None:
        """A durable wait that any news (a person's word, a change of the node, a grant) ends early. None: without limit.

        News that came since the last rest ends this one at once: what is said while the story looks elsewhere is not lost.
        Raises NewHistory where this history is long and nothing is new: the next one begins with this rest, and then with the
        story, which finds what is done.
        """
        self._tag()
        self.publish()
        for end in (self.state.not_beyond, *(each.until for each in self.state.holds)):
            if end is not None:
                left = max(end - workflow.now(), timedelta(0))
                duration = left if duration is None else min(duration, left)
        if continuation.roll_is_due(may_move=continuation.is_long(duration)) and not self._has_changes and self.may_leave():
            self._leave_in(workflow.now() + duration if duration is not None else None, why)
        ends = workflow.now() + duration if duration is not None else None
        await self._wait_for_change(duration, why, may_move=continuation.is_long(duration))
        self._add_standstill(since=ends)
        self.state.changes_seen, self.state.unseen = self.state.changes, False
        for over in [each for each in self.state.holds if each.until is not None and each.until <= workflow.now()]:
            self.state.holds = tuple(each for each in self.state.holds if each is not over)
            self.state.question += 1  # a `resume` of the hold answers nothing that is asked now (S48)
            self.note("hold", "over", str(over))

    async def finish_rest(self) -> None:
        """The rest in which the last history was left, before the story goes on. News are left for the next rest of the story,
        which knows what to do about them."""
        self._show()
        rest, self.state.left_in = self.state.left_in, None
        if rest is not None:
            left = max(rest.ends - workflow.now(), timedelta(0)) if rest.ends is not None else None
            await self._wait_for_change(left, rest.why, may_move=True)
            self._add_standstill(since=rest.ends)

    def _add_standstill(self, *, since: datetime | None) -> bool:
        """Add up for how long no worker has carried this workflow out since it was to go on, at the latest (S37). Returns whether
        there was such a time."""
        now = workflow.now()
        if since is None or now <= since + LATE or not workflow.patched(STOOD_STILL):
            return False
        since = max(since, self.state.stood_still_until or since)  # a story beside this one may have noted it already
        self.state.stood_still, self.state.stood_still_until = self.state.stood_still + now - since, now
        if self.state.held_since is None:
            self.lose_time(now - since)
        return True

    def _note_standstill(self, ends: datetime) -> None:
        if workflow.now() > ends + LATE and workflow.patched(STOOD_STILL_TOO):
            self._add_standstill(since=ends)

    @contextlib.contextmanager
    def over_in_time(self, config: workflow.ActivityConfig) -> Iterator[None]:
        """What an activity takes that is asked for by itself: where no worker was there meanwhile, that is noted."""
        ends = workflow.now() + options.longest(config)
        try:
            yield
        except ActivityError:
            self._note_standstill(ends)
            raise
        self._note_standstill(ends)

    def new_standstill(self, under: Undertaking) -> timedelta:
        """How long no worker has carried this workflow out since this was last asked for that undertaking, or since it began:
        each such time is answered once."""
        before, under.stood_still = under.stood_still, self.state.stood_still
        return under.stood_still - before

    @property
    def _has_changes(self) -> bool:
        return self.state.unseen or self.state.changes != self.state.changes_seen

    async def _wait_for_change(self, duration: timedelta | None, why: str, *, may_move: bool) -> None:
        """Raises NewHistory where it goes on resting under another build."""
        ends = workflow.now() + duration if duration is not None else None

        def moves() -> bool:
            return may_move and continuation.is_another_build_current() and self.may_leave()

        with contextlib.suppress(asyncio.TimeoutError):
            await workflow.wait_condition(lambda: self._has_changes or moves(), timeout=duration, timeout_summary=why)
            if not self._has_changes:
                self._leave_in(ends, why)

    def _leave_in(self, ends: datetime | None, why: str) -> NoReturn:
        self.state.left_in = Rest(ends=ends, why=why)
        raise NewHistory

    async def pause(self, duration: timedelta, why: str) -> None:
        """A durable wait that nothing ends early."""
        self.publish()
        ends = workflow.now() + duration
        await workflow.sleep(duration, summary=why)
        self._note_standstill(ends)

    def publish(self) -> None:
        """Have people told what is new, beside the story, instead of with its next act on the cluster."""
        if self.state.pinned is not None:
            self.publisher.publish(self.target)

    async def publish_the_rest(self, *, last: bool) -> None:
        """Return once people are told all that is new, or can't be. last: no other history goes on. An episode that has
        pinned nothing has a record all the same."""
        if self.state.pinned is not None:
            await self.publisher.finish(self.target)
        if last:
            await self.publisher.finish_record(self._target(self.state.pinned or Pinned(node=self.state.node, uid="")))

    async def delay(self, duration: timedelta, doing: str, look: Callable[[], Awaitable[object]]) -> None:
        """Wait that long, looking again at every news: a node that comes back meanwhile is not acted upon, nor after an abort."""
        with self.undertaking(doing) as waiting:
            due = waiting.began + duration
            while (remaining := due - workflow.now()) > timedelta(0):
                self.enter(doing=doing, until=due)
                await self.rest(remaining, doing)
                await look()

    @contextlib.contextmanager
    def undertaking(self, what: str, *, by_itself: bool = False) -> Iterator[Undertaking]:
        """What is done until it succeeds or has had its time. One that an earlier history has begun goes on with what is left,
        and so does whatever was undertaken within it. by_itself: not within what is under way, which the next one leaves out."""
        former = self._around
        around = self.state.undertakings if by_itself else former
        under = around.setdefault(what, Undertaking(began=workflow.now(), stood_still=self.state.stood_still))
        self._around, leaves = under.within, False
        try:
            yield under
        except NewHistory:
            leaves = True
            raise
        finally:
            self._around = former
            if not leaves:
                del around[what]

    @contextlib.contextmanager
    def insisting(self, *, failed: bool) -> Iterator[None]:
        """What is done meanwhile must be done in the end. failed: in an earlier history."""
        former, self.insists = self.insists, failed
        try:
            yield
        finally:
            self.insists = former

    @property
    def longest_hold(self) -> HoldEpisodeRequest | None:
        """The hold that lasts longest, None where there is none."""
        return max(self.state.holds, key=lambda each: each.until or LATEST, default=None)

    @property
    def holds_line(self) -> str:
        """The line for people: who holds it, until when and why; "" where it is not held."""
        return "; ".join(map(str, self.state.holds))

    @property
    def hold_owners(self) -> tuple[str, ...]:
        """The owners of the holds that are to be obeyed."""
        return tuple(each.owner for each in self.state.holds) if self.is_held else ()

    @property
    def is_held(self) -> bool:
        """Whether a hold is to be obeyed; an abort ends it."""
        return bool(self.state.holds) and self.state.abort_asked is None

    @property
    def asks_no_person(self) -> bool:
        """Whether a person has aborted it, so that none need say how it goes on (S44). Older histories ask first."""
        return self.state.abort_asked is not None and workflow.patched(ABORT_ASKS_NO_PERSON)

    async def wait_while_held(self) -> None:
        """A hold is obeyed after off too, before the next act."""
        doing, until = self.state.doing, self.state.until
        if self.is_held:
            self.state.held_since = self.state.held_since or workflow.now()
        while (held := self.longest_hold) is not None and self.is_held:
            self.enter(doing=self.holds_line, until=held.until)
            await self.rest(None, "held by a person")
        self.go_on_with(doing, until)
        since, self.state.held_since = self.state.held_since, None
        if since is not None and workflow.now() > since + LATE and workflow.patched(HOLD_TAKES_NO_TIME):
            self.lose_time(workflow.now() - since)

    def go_on_with(self, doing: str, until: datetime | None) -> None:
        """What it did before a wait."""
        if self.state.doing != doing:
            self.enter(doing=doing, until=until)

    async def wait_out(self, act: str, what: str, error: ActivityError) -> bool:
        """Note a command that failed; `what` says in people's words what it was about. True: it may have been carried out all the
        same, and nothing of it is in flight any more, so that what is read next is what it has left (S34)."""
        unclear = is_unclear(error)
        self.note(act, "unclear" if unclear else "failed", failure_line(what, error))
        if unclear:
            answered = error_type(error) is ErrorType.AMBIGUOUS  # its worker lives and has ended the act; else it may still begin
            await self.settle((timedelta(0) if answered else options.ACT_WINDOW) + options.IN_FLIGHT_MARGIN)
        return unclear

    async def settle(self, duration: timedelta) -> None:
        """Wait out an act that may still be in flight (S34). Nothing ends this early."""
        if duration > timedelta(0):
            await self.pause(duration, "waits out an act that may still be in flight")
