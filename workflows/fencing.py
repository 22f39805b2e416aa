"""Fencing: isolate a node, switch it off, prove that it is off, free what ran there, switch it on, see it come back, restore.

The story is `FencingStory.run`, from top to bottom; `Fencing` at the end is the thin workflow round it (Remediation awaits the
same story). It is the automaton of the node-fencing proposal, made safe:

    new --isolation--> running --power-management--> done --Ready and restart proven--> recovery --> final
    a step fails beyond its tries --> error --> the flow again while restarts are left, keeping what is proven, else needs-human

Power is `workflows/power.py`, consequences `workflows/freeing.py`, looking `workflows/looks.py`, what follows from a look
`workflows/sighting.py`, tries `workflows/tries.py`; what all kinds of episode share is `workflows/episode.py`.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.contracts.evidence import EvidenceActivities, KdumpRequest
from activities.contracts.target import (
    PinResult,
    Target,
    TargetActivities,
)
from activities.errors import error_message
from policy.episodes import (
    EpisodeResult,
    FencingInput,
    Kind,
    Need,
    NeedKind,
    OffProof,
    Outcome,
    Phase,
    Step,
)
from policy.fencing import may_restore_path, power_due
from policy.fencing_requests import Stage
from policy.kdump import KdumpReading, kdump_wait
from policy.permits import PermitRequest, Release
from policy.plan import UNCORDON, FencingPlan
from workflows import options
from workflows.answering import Answering
from workflows.bookkeeping import Bookkeeping
from workflows.conversation import EpisodeConversation, by_a_person
from workflows.episode import Episode
from workflows.freeing import FreeingSequence
from workflows.isolation import IsolationSequence
from workflows.looks import Looks
from workflows.messages import AbortRequest, AcknowledgeRequest
from workflows.mirror import Mirror
from workflows.power import PowerSequence
from workflows.sighting import Sighting
from workflows.tries import Tries
from workflows.turns import AbortAsked, Hopeless, NeedGone, ProofLost, StepFailed, TargetChanged, Turn, Vetoed

LOOK_AGAIN = timedelta(seconds=20)
"""While waiting for a node: a live look this often, in case no scanner tells us of the change."""
SEEN_DOWN_AGAIN = timedelta(seconds=5)
HEARD_AGAIN = timedelta(seconds=10)
"""fence_kdump speaks every 10 seconds."""


class FencingStory:
    """One fencing of one node. What is declared here without a value exists once the target is pinned."""

    looks: Looks
    desk: Bookkeeping
    answering: Answering
    power: PowerSequence
    freeing: FreeingSequence
    isolation: IsolationSequence
    sighting: Sighting
    tries: Tries
    _plan: FencingPlan
    _need: Need

    def __init__(self, request: FencingInput) -> None:
        incident = request.incident or workflow.uuid4().hex[:12]
        reason = request.need.reason if request.need else request.reason
        self._request = request
        self.episode = Episode(kind=Kind.FENCING, cluster=request.cluster, node=request.node, incident=incident, reason=reason)
        self._resumed_at: datetime | None = None
        self._adopts = False
        self._dump_due: datetime | None = None
        """When power-off was due for the first time: what delays it counts from there, whatever is restarted."""
        self.episode.permit = request.permit_granted
        self.episode.holder = request.holder
        self.episode.mirror = self._mirror = Mirror(incident)

    # The story ------------------------------------------------------------------------------------------------------

    async def run(self) -> EpisodeResult:
        """From the first look to the end, whatever happens in between."""
        refused = await self._begin()
        if refused:
            return await self._end(Outcome.REFUSED, refused)
        if self._need.kind is NeedKind.CLEAN_UP:
            return await self._clean_up()
        while True:
            try:
                return await self._flow()
            except NeedGone as turn:
                ended = await self._way_back(Outcome.RECOVERED, f"nothing more to do: {turn.reason}")
            except Vetoed as turn:
                ended = await self._way_back(Outcome.RELEASED, f"given up before power-off: {turn.reason}")
            except AbortAsked as turn:
                return await self._aborted(turn.reason)
            except StepFailed as turn:
                if isinstance(turn, ProofLost):
                    await self.desk.note_off(None)
                ended = await self._start_over(turn.reason)
            except (Hopeless, TargetChanged) as turn:
                ended = await self._park(turn.reason)
            if ended is not None:
                return ended

    async def _flow(self) -> EpisodeResult:
        """The three steps. A restart of the flow finds what is proven and does only the rest (S5)."""
        if not self._plan.levels and self.power.proof is None:
            return await self._fence_by_paths()
        if not self.freeing.done:
            if self.power.proof is None and not await self._was_switched_off():
                await self._isolate()
                await self._wait_before_power()
                await self._wait_for_a_dump()
                await self.tries.carry_out(Step.POWER_MANAGEMENT, self._power_off)
            await self.tries.carry_out(Step.POWER_MANAGEMENT, self._free)
        if self._leaves_off():
            return await self._left_off()
        if self._plan.terminate_instance and self.power.proof is not None:
            await self.tries.carry_out(Step.POWER_MANAGEMENT, self._terminate)
            return await self._restore(Outcome.FENCED_OFF, "off is proven, and the machine is given up for good")
        if not self._plan.power_on:
            await self._say_finished("off is proven, and the machine is left off")
            return await self._restore(Outcome.FENCED_OFF, "off is proven, and the plan leaves the machine off")
        await self.tries.carry_out(Step.POWER_MANAGEMENT, self._power_on)
        await self._say_finished("off was proven, and the machine is switched on again")
        await self._wait_for_return()
        return await self._returned()

    async def _fence_by_paths(self) -> EpisodeResult:
        """Without any power device: the paths are cut, what lies behind them is freed, the restart is somebody else's."""
        await self._isolate()
        await self._wait_for_return()
        return await self._returned()

    # Beginning ------------------------------------------------------------------------------------------------------

    async def _begin(self) -> str:
        """Pin the target, get the permit, leave the mark. Returns why the episode may not begin, "" when it may."""
        self.episode.enter(step=Step.ISOLATION, doing="looks at the node")
        self.episode.introduce(zone="", reason=self.episode.reason)
        try:
            pin: PinResult = await workflow.execute_activity_method(
                TargetActivities.pin,
                self._request,
                **(options.cluster_read(self.episode.cluster) | {"summary": f"isolation: pins {self.episode.node}"}),
            )
        except ActivityError as error:
            return error_message(error)
        self._take_pin(pin)
        if not self.episode.permit and self._need.kind is not NeedKind.CLEAN_UP:
            refused = await self.episode.obtain_permit(self._permit_request())
            if refused:
                return refused
        self.episode.enter(phase=Phase.NEW, doing="marks the node as ours")
        try:
            await self.tries.carry_out(Step.ISOLATION, self._mark)
            if self._adopts and self._need.kind is not NeedKind.CLEAN_UP:
                # A taint of a predecessor goes on freeing without any proof of ours (S1, S6).
                await self.tries.carry_out(Step.ISOLATION, self.freeing.untaint)
            await self.tries.carry_out(Step.ISOLATION, self.answering.begin)
        except Turn as turn:
            await self.desk.remove_marks(self._plan.retry_interval)  # an answer may have been lost
            return turn.reason
        await self.power.settle()  # a terminated predecessor's last act: what is looked at from here on is what it has left
        return ""

    async def _mark(self) -> None:
        await self.desk.write(TargetActivities.mark, "isolation: marks the node")

    async def _clean_up(self) -> EpisodeResult:
        """Marks that nobody owns go from a node that is well; one that is not keeps them, and a person or a check decides."""
        reason = await self.looks.why_not_clean_up()
        if reason:
            return await self._end(Outcome.RELEASED, f"the marks of an earlier episode are left: {reason}")
        return await self._restore(Outcome.RECOVERED, "the node is healthy; the marks of an earlier episode are gone")

    def _take_pin(self, pin: PinResult) -> None:
        info = workflow.info()
        self._plan, self._need = pin.plan, pin.need
        self.episode.cause = pin.need.cause
        self.episode.control_plane = pin.control_plane
        self.episode.observation = pin.observation
        self.episode.target = Target(
            cluster=self.episode.cluster,
            pinned=pin.pinned,
            incident=self.episode.incident,
            kind=self.episode.kind.value,
            workflow_id=info.workflow_id,
            run_id=info.run_id,
        )
        self.looks = Looks(self.episode, self._need)
        self.desk = Bookkeeping(self.episode, delegate=self._need.delegate)
        self.answering = Answering(self.episode, self._need, ask_for_a_person=self.desk.ask_for_a_person)
        self.power = PowerSequence(self.episode, self._plan)
        self.freeing = FreeingSequence(self.episode, self._plan, self.power)
        self.tries = Tries(self.episode, self._plan, before_next=self._may_try_again)
        self.isolation = IsolationSequence(self.episode, self._plan, self.desk, self.looks, self.tries)
        self.sighting = Sighting(self.episode, self._need, self.power, self.isolation)
        self.episode.introduce(zone=pin.pinned.zone, reason=pin.need.reason)
        self.episode.note("pin", "ok", f"uid {pin.pinned.uid}, boot id {pin.pinned.boot_id}, plan {pin.plan.source}")
        for warning in pin.plan.warnings:
            self.episode.note("plan", "warning", warning)
        if pin.adopted_incident:
            self.episode.note("adopt", "ok", f"the marks of incident {pin.adopted_incident}, which is not open")
            self._adopts = True
            self.power.expect_in_flight()
            self.isolation.adopt(pin.adopted_paths)

    # Isolation ------------------------------------------------------------------------------------------------------

    async def _isolate(self) -> None:
        await self.looks.may_go_on()
        self.episode.enter(phase=Phase.NEW, step=Step.ISOLATION, doing="reads the power state")
        await self.power.try_out()
        await self._wait_before_isolation()
        await self.isolation.carry_out()
        self.episode.enter(phase=Phase.RUNNING, doing="is isolated")

    async def _wait_before_isolation(self) -> None:
        """A node that a check calls sick has waited already; one that a person named gets the plan's time to show itself well."""
        due = self.episode.started + self._plan.wait_before_isolation
        while self._need.kind is not NeedKind.CHECK and not self.isolation.began and workflow.now() < due:
            self.episode.enter(doing="waits before isolation", until=due)
            await self.episode.rest(due - workflow.now(), "the wait before isolation")
            await self.looks.may_go_on()

    async def _wait_before_power(self) -> None:
        """The seed's wait, counted from NotReady; a node that comes back meanwhile goes to recovery."""
        while (remaining := self._wait_that_remains()) > timedelta(0):
            self.episode.enter(doing="waits before power-management", until=workflow.now() + remaining)
            await self.episode.rest(remaining, "the wait before power-management")
            await self.looks.may_go_on()
            if self.sighting.seems_changed():
                await self.looks.before_destruction()

    async def _wait_for_a_dump(self) -> None:
        """While the node writes its crash dump power-off waits, bounded; messages that anybody can forge prove nothing (S2)."""
        rule = self._plan.kdump
        if rule is None or not self._plan.levels or not self.power.untouched:
            return
        self._dump_due = self._dump_due or workflow.now()
        since = self.sighting.pinned.not_ready_since
        while True:
            reading = await self._kdump_reading()
            answer = kdump_wait(rule, reading, not_ready_since=since, due=self._dump_due, now=workflow.now())
            self.episode.enter(doing=f"kdump: {answer.reason}", until=workflow.now() + answer.wait if answer.wait else None)
            if answer.wait <= timedelta(0):
                self.episode.note("kdump", answer.state.value, answer.reason)
                return
            await self.episode.rest(min(answer.wait, HEARD_AGAIN), "while a crash dump may be written")
            await self.looks.may_go_on()
            if self.sighting.seems_changed():
                await self.looks.before_destruction()

    async def _kdump_reading(self) -> KdumpReading | None:
        """What the listener of the node's site has heard; None where none answers."""
        site = self._plan.levels[0][0].site
        try:
            return await workflow.execute_activity_method(
                EvidenceActivities.read_kdump,
                KdumpRequest(addresses=self.sighting.pinned.addresses),
                **(options.power_read(site, self._plan) | {"summary": "power-management: asks whether the node dumps"}),
            )
        except ActivityError as error:
            self.episode.note("kdump", "failed", error_message(error))
            return None

    # Power-management -----------------------------------------------------------------------------------------------

    async def _power_off(self) -> None:
        """One try: whatever an earlier try may have done is waited out and read before anything is sent."""
        if not await self.power.already_off() and not self._take_acknowledgement():
            await self.desk.take_node_lease(theirs_matters=not self._touched())
            await self.power.switch_off(self._last_look_before_off)
            await self.desk.tell("NodePoweredOff", "off is proven")
        await self.desk.note_off(workflow.now())
        await self.answering.say(Stage.FENCED, "off is proven")

    async def _last_look_before_off(self) -> None:
        await self.looks.before_destruction()
        self.sighting.pin_boot()

    async def _free(self) -> None:
        """The consequences: none starts once the need is gone (S6), and none without the proof (S1)."""
        if self.freeing.done:
            return
        await self._seen_down()
        if not self.freeing.began and await self.looks.need_is_gone():
            self.freeing.drop("the need was gone before any consequence began")
            return
        await self.freeing.free()
        if self.freeing.left_over:
            await self.desk.tell("WorkloadsLeft", self.freeing.left_over, warning=True)

    async def _terminate(self) -> None:
        """There is no way back from this one: a last look with all that a destructive act needs (S20), and no abort since."""
        await self.episode.wait_while_held()
        self._heed_an_abort()
        await self.looks.before_destruction()
        await self.power.terminate()

    def _heed_an_abort(self) -> None:
        """An abort that came while we waited or tried: after off it means that the machine is left as it is (S35)."""
        abort = self.episode.abort_asked
        if abort is not None and self._leaves_off():
            raise AbortAsked(f"aborted by {abort.who} ({abort.reason})")

    async def _seen_down(self) -> None:
        """Wait until the API server has noticed the power-off too: a node that goes on saying Ready is another machine than
        the one we switched off, and nothing of it is freed."""
        deadline = workflow.now() + self._plan.free_timeout
        while not (seen := await self.looks.refresh()) or self.sighting.says_ready():
            if workflow.now() >= deadline:
                if not seen:
                    raise StepFailed("the node can't be looked at")
                raise Hopeless("the node still says Ready although its devices say off: is it the right machine?")
            self.episode.enter(doing="waits until the API server sees the node down", until=deadline)
            await self.episode.rest(SEEN_DOWN_AGAIN, "until the node is seen down")

    async def _power_on(self) -> None:
        await self.episode.wait_while_held()
        await self.desk.take_node_lease(theirs_matters=False)
        await self.freeing.untaint()
        await self.desk.note_off(None)
        await self.looks.before_restoring()
        if self.power.powered_on_at is None:
            self.sighting.remember_boot()
        self._heed_an_abort()
        await self.power.turn_on()

    async def _wait_for_return(self) -> None:
        """Until the node is Ready with a new boot id. A machine that is merely slow is a person's case, not fenced again."""
        began = [moment for moment in (self.power.powered_on_at, self._resumed_at) if moment is not None]
        deadline = max(began, default=workflow.now()) + self._plan.boot_timeout
        self.episode.enter(phase=Phase.DONE, doing="waits for the node to come back Ready", until=deadline)
        while not (await self.looks.refresh() and self.sighting.is_back()):
            if not self._plan.levels and await self.looks.need_is_gone():
                raise NeedGone("the node is well again, though nobody restarted it")
            remaining = deadline - workflow.now()
            if remaining <= timedelta(0):
                minutes = self._plan.boot_timeout.total_seconds() / 60
                since = "power-on" if self._plan.levels else "its paths were cut"
                raise Hopeless(f"the node is not back Ready with a new boot id {minutes:g} minutes after {since}")
            await self.episode.rest(min(LOOK_AGAIN, remaining), "the node's return")

    # Recovery and the ends ------------------------------------------------------------------------------------------

    async def _returned(self) -> EpisodeResult:
        """The machine is back: whose is it, and was an abort asked for meanwhile?"""
        if self.sighting.is_replaced():
            return await self._replaced()
        if (abort := self.episode.abort_asked) is not None:
            return await self._restore(Outcome.ABORTED, f"aborted by {abort.who} ({abort.reason}); the node is back")
        proven = "off was proven; " if self.episode.off_proof is not None else ""
        return await self._restore(Outcome.RECOVERED, f"{proven}the node is back Ready with a new boot id")

    async def _replaced(self) -> EpisodeResult:
        message = f"another machine has taken the name {self.episode.node}"
        return await self._end(Outcome.REPLACED, f"{message}{self.isolation.left}")

    async def _way_back(self, outcome: Outcome, message: str) -> EpisodeResult | None:
        """Nothing more may be done, or need be. A machine whose power we touched is switched on first; one whose off was proven
        is a person's case, since nobody else knows by now what should become of it."""
        if self._touched() and (self.power.proof is not None or outcome is not Outcome.RECOVERED):
            return await self._park(message)
        if problem := await self._switch_on_again():
            return await self._park(f"{message}; but {problem}")
        return await self._restore(outcome, message)

    async def _switch_on_again(self) -> str:
        """Why a machine that we touched can't be switched on; "" where it is on again, or was never touched."""
        if self._touched():
            try:
                await self.tries.carry_out(Step.POWER_MANAGEMENT, self._power_on)
            except Turn as turn:
                return turn.reason
        return ""

    async def _restore(self, outcome: Outcome, message: str) -> EpisodeResult:
        """Recovery: give the paths back and undo what carries our mark, however long the API is away; no brake holds this up
        (S17).

        After an abort, and where the machine is left off, a path whose pods were freed stays cut: that is a decision of its own
        (S35).
        """
        if not self._touched() and self._plan.levels and self._need.kind is not NeedKind.CLEAN_UP:
            self.episode.note(Step.POWER_MANAGEMENT.value, "skipped", message)
        patient = outcome not in {Outcome.ABORTED, Outcome.FENCED_OFF}
        left = await self.isolation.undo(may_restore=self._may_restore_path, patient=patient)
        keep_cordon = UNCORDON.act not in {method.act for method in self._plan.recovery}
        await self.desk.remove_marks(self._plan.retry_interval, keep_cordon=keep_cordon)
        return await self._end(outcome, f"{message}{left}")

    def _may_restore_path(self) -> bool:
        consequences = self.freeing.began or self.isolation.consequences
        if consequences and self.episode.restart_proof is None:
            self.sighting.is_back()  # keeps the proof of a restart that somebody else made
        return may_restore_path(consequences=consequences, restart=self.episode.restart_proof)

    async def _aborted(self, reason: str) -> EpisodeResult:
        """Aborted while we waited or tried. An off that was commanded is waited out and read before anything is undone."""
        if not self._touched():
            return await self._restore(Outcome.ABORTED, reason)
        abort, is_off, but = self.episode.abort_asked, await self._is_off_after_all(), ""
        if is_off:
            try:
                await self._free()
            except Turn as turn:
                but = f"; not all is freed: {turn.reason}"
            if self._leaves_off():
                return await self._left_off(but)
        if is_off or (abort is not None and abort.power_on):
            try:
                await self._power_on()
                await self._wait_for_return()
            except Turn as turn:
                but += f"; power on: {turn.reason}"
        elif self.power.powered_on_at is None:
            but = "; the power state is not known, it may be off"
        return await self._restore(Outcome.ABORTED, f"{reason}{but}")

    async def _left_off(self, but: str = "") -> EpisodeResult:
        """Consequences are finished and power stays off: switching it on again is a decision of its own (S35)."""
        abort = self.episode.abort_asked
        who = f"{abort.who} ({abort.reason})" if abort else "nobody"
        proof = self.power.proof
        how = "acknowledged" if proof is not None and proof.acknowledgement is not None else "proven"
        return await self._restore(Outcome.ABORTED, f"aborted by {who} after off was {how}: left off{but}")

    async def _end(self, outcome: Outcome, message: str) -> EpisodeResult:
        began = outcome is not Outcome.REFUSED
        if began:
            await self.desk.release_node_lease()
            await self.answering.finish(outcome, message)
            await self.desk.tell("EpisodeEnded", f"{outcome.value}: {message}", warning=outcome is not Outcome.RECOVERED)
        self.episode.note("end", outcome.value, message)
        await self.episode.give_back_permit(
            Release(
                node=self.episode.node,
                incident=self.episode.incident,
                outcome=outcome.value,
                problem=message,
                powered_on_at=self.power.powered_on_at if began else None,
                powered_off_at=self.power.off_commanded_at if began else None,
            )
        )
        self.episode.enter(phase=Phase.FINAL, doing=f"{outcome.value}: {message}")
        ended = workflow.now()
        await self._mirror.finish()
        return EpisodeResult(
            outcome=outcome,
            incident=self.episode.incident,
            cluster=self.episode.cluster,
            node=self.episode.node,
            message=message,
            started=self.episode.started,
            ended=ended,
            off_proof=self.episode.off_proof,
            restart_proof=self.episode.restart_proof,
            left_off=began and self._leaves_off(),
            freed_pods=self.freeing.freed_pods + self.isolation.freed_pods if began else 0,
            record=tuple(self.episode.record),
        )

    async def _say_finished(self, message: str) -> None:
        """Whoever asked hears of it now, as he is used to: the node's return is for him to see."""
        left = f"; {self.freeing.left_over}" if self.freeing.left_over else ""
        await self.answering.say(Stage.FINISHED, f"{message}{left}")

    # Failing --------------------------------------------------------------------------------------------------------

    async def _may_try_again(self) -> None:
        """While there is a way back, a hold or an abort is heard between two tries as well."""
        if self.power.proof is None and not self.freeing.done:
            await self.looks.may_go_on()

    async def _start_over(self, reason: str) -> EpisodeResult | None:
        """A step used up its tries: the whole flow again, keeping what is proven, while restarts are left."""
        self.episode.enter(phase=Phase.ERROR, doing=reason)
        if self.episode.restarts >= self._plan.restarts:
            return await self._park(reason)
        self.episode.restarts += 1
        self.episode.note("restart", "begins", f"{self.episode.restarts} of {self._plan.restarts}: {reason}")
        return None

    async def _park(self, problem: str) -> EpisodeResult | None:
        """Wait for a person: nothing in flight, permit given back, id kept. Returns the end, or None to go on."""
        await self.power.settle()
        self.power.remember_what_is_said()
        self.episode.resumed = None
        await self.freeing.pause()
        await self.desk.ask_for_a_person(problem)
        await self.answering.say(Stage.FAILED, problem)
        while True:
            if (abort := self.episode.abort_asked) is not None:
                return await self._aborted(f"aborted by {abort.who} ({abort.reason}): {problem}")
            if self.sighting.seems_changed() and (ended := await self._ended_by_itself()):
                return ended
            if self.episode.resumed is not None or self._acknowledged():
                refused = await self.episode.obtain_permit(self._permit_request())
                if not refused:
                    break
                self.episode.resumed = self.episode.acknowledgement = None
                self.episode.problem = f"{problem}; a person's word came, but no permit: {refused}"
                self.episode.enter(phase=Phase.NEEDS_HUMAN, doing="needs a person")
            if self.episode.abort_asked is None:  # it may have come while we looked elsewhere
                await self.episode.rest(None, "a person's word")
        self.episode.restarts, self.episode.problem, self._resumed_at = 0, "", workflow.now()
        self._take_acknowledgement()
        self.episode.enter(phase=Phase.RUNNING, doing="goes on")
        return None

    async def _ended_by_itself(self) -> EpisodeResult | None:
        """A parked node that came back, or was replaced, needs nobody any more. Believed only of what was read just now."""
        if not await self.looks.refresh():
            return None
        if self.sighting.is_replaced():
            return await self._replaced()
        if self.sighting.is_back():
            return await self._returned()
        if self.power.proof is None and await self.looks.need_is_gone():
            return await self._back_by_itself()
        return None

    async def _back_by_itself(self) -> EpisodeResult | None:
        """A parked episode whose need is gone. Where the machine can't be switched on again it stays parked, and says so."""
        message = "the node came back by itself" if self.sighting.says_ready() else "the need is gone"
        if problem := await self._switch_on_again():
            self.episode.problem = f"{message}; but {problem}"
            self.episode.enter(doing="needs a person")
            return None
        return await self._restore(Outcome.RECOVERED, message)

    def _wait_that_remains(self) -> timedelta:
        """A check's node has been failing at the latest since we began; a person may ask for a node that is Ready."""
        started = self.episode.started if self._need.kind is NeedKind.CHECK else None
        return power_due(self.sighting.pinned.not_ready_since, self._plan, workflow.now(), started=started)

    async def _was_switched_off(self) -> bool:
        """Whether an off of an earlier round of the flow turns out to be proven: then only the rest is to be done (S5)."""
        return self.power.off_commanded_at is not None and await self.power.already_off()

    # What is known --------------------------------------------------------------------------------------------------

    def _touched(self) -> bool:
        """Whether anything has been done to the machine or its workloads that more than our marks would have to be undone for."""
        return not self.power.untouched or self.power.proof is not None or self.freeing.began

    def wants_acknowledgement(self) -> bool:
        """Whether a person's word that the machine is off would be of use now."""
        return self.episode.phase is Phase.NEEDS_HUMAN and self.power.proof is None and not self.freeing.done

    def _acknowledged(self) -> bool:
        return self.episode.acknowledgement is not None and self.power.proof is None and not self.freeing.done

    def _take_acknowledgement(self) -> bool:
        """Let a person's word stand for the proof (S8); once taken it is used up."""
        word = self.episode.acknowledgement
        if word is None or not self._acknowledged():
            return False
        self.power.accept(OffProof(commanded_at=None, acknowledgement=word))
        self.episode.acknowledgement = None
        self.episode.note("off-proven", "acknowledged", f"by {word.who}: {word.why}")
        return True

    async def _is_off_after_all(self) -> bool:
        try:
            return self.power.proof is not None or await self.power.already_off()
        except Turn as turn:
            self.episode.note("abort", "power state unknown", turn.reason)
            return False

    def _leaves_off(self) -> bool:
        abort = self.episode.abort_asked
        return abort is not None and not abort.power_on and self.power.proof is not None

    def _permit_request(self) -> PermitRequest:
        return PermitRequest(
            node=self.episode.node,
            workflow_id=workflow.info().workflow_id,
            incident=self.episode.incident,
            reason=self._need.reason,
            provider_id=self.sighting.pinned.provider_id,
            zone=self.sighting.pinned.zone,
            control_plane=self.episode.control_plane,
            node_uid=self.sighting.pinned.uid,
            ready=self.episode.observation is not None and self.episode.observation.ready,
        )


@workflow.defn(name="Fencing")
class Fencing(EpisodeConversation):
    """The workflow round the story. Cancelling it is an abort: it undoes what it did, and ends as `aborted`."""

    @workflow.init
    def __init__(self, request: FencingInput) -> None:
        self._story = FencingStory(request)
        super().__init__(self._story.episode)

    @workflow.run
    async def run(self, request: FencingInput) -> EpisodeResult:
        self.check_identity(request.cluster, request.node)
        story = asyncio.create_task(self._story.run())
        try:
            result = await asyncio.shield(story)
        except asyncio.CancelledError:
            self.episode.take_abort(AbortRequest(who="Temporal", reason="the workflow was cancelled"))
            result = await story
        await workflow.wait_condition(workflow.all_handlers_finished)
        return result

    @workflow.update
    def acknowledge_off(self, request: AcknowledgeRequest) -> str:
        """A person saw the machine off; stands for the proof (S8)."""
        return self.episode.take_acknowledgement(request)

    @acknowledge_off.validator
    def _check_acknowledge_off(self, request: AcknowledgeRequest) -> None:
        by_a_person(request.who, request.reason)
        if not self._story.wants_acknowledgement():
            doing = f"{self.episode.phase.value}, {self.episode.doing}"
            raise ValueError(
                f"acknowledge_off: expected an episode that needs a person because off is not proven; this one: {doing}"
            )
