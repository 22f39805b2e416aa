"""An adversary for the property tests: it plays everything that an episode speaks to, and plays it as badly as the world can.

A script of faults is used up by one entry per attempt at an activity. What an activity does to the machine and its Node it does
as the real ones do (`activities/cluster/`, `activities/power/`), with the same predicates; whether it should have been asked at
all is for the referee, who knows the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from temporalio.exceptions import ApplicationError

from activities.clocks import problem_of
from activities.contracts.preservation import GiveUpResult
from activities.errors import ErrorType, failure
from policy.episode.messages import Kind, NeedKind, Reading, VolumeReading
from policy.episode.permits import PermitAnswer, PermitDecision, PortionAnswer, Release
from policy.fence.plan import FencingPlan
from policy.fence.power import PowerState
from tests.workflows import contract
from tests.workflows.attempts import START, Attempt, Lost
from tests.workflows.faults import LASTING, SELF, SPOKEN, Fault
from tests.workflows.machine import OURS
from tests.workflows.plans import ASKS
from tests.workflows.played_acts import DELETION_ASKED, DeviceActs, LadderActs, NodeActs
from workflows.kit.options import WORKFLOW_QUEUE

CAPPED = 700
"""So many attempts and the adversary has had its fun: from then on the world works."""
COUNTED = "read_workload"
"""A look that tells what stands against the node as well is one to be ambushed by that name."""
FORBIDDEN_NOW = "of an API server that has just started"
THEIRS = "theirs"
PASSES = timedelta(seconds=55)
"""What an API server refuses for so long may pass yet: a minute is promised, from the first try on."""
INSISTED = ("can't be removed", "can't be deleted", "can't be given back", "can't be taken", "can't be answered")
"""What is tried again however often it takes, also after a person was told."""
RIVAL = timedelta(seconds=60)
"""How long another deployment's fencing takes, from its off to its on."""
DESTRUCTIVE = frozenset({"power_off", "cut_path", "quarantine", "detach_volume", "drain"})
ASKED_FOR = frozenset(ASKS.values())
"""What a ladder has others do, and can't be undone, or not by us."""
GUARDED = frozenset({"power_off", "cut_path", "quarantine", "detach_volume", "drain", "terminate", "taint_out_of_service"}) | {
    "give_up",
    "create_object",
    "delete_workload",
    "delete_node",
    "free_cut_pods",
    "free_while_dumping",
}
"""What a worker refuses on its own node (S16)."""
WRITES = (
    ASKED_FOR
    | {"mark", "mark_unschedulable", "taint", "note_path", "mark_schedulable", "taint_out_of_service"}
    | {"delete_workload", "delete_node", "free_cut_pods", "free_while_dumping", "untaint_out_of_service", "drain"}
)
KEEPS_BOOKS = frozenset({"remember", "release_lease"})
SWITCHES = frozenset({"power_off", "power_on", "cut_path", "restore_path"})
COMMANDS = SWITCHES | {"detach_volume", "quarantine", "terminate"}


def act_of(attempt: Attempt) -> str:
    """The method that carries an attempt out: contracts of one kind name theirs as those of another do."""
    part, _, name = attempt.call.name.partition(".")
    return name.replace("-", "_") if part in {"remediation", "preservation"} else attempt.call.method


def look_of(request: Any) -> Any:
    """The look that is asked for, by itself or with an act."""
    before = getattr(request, "before", None)
    return before.look if before is not None else getattr(request, "look", request)


def mended(plan: FencingPlan) -> FencingPlan:
    """The same with other plugs."""
    levels = tuple(tuple(replace(device, endpoint=f"{device.endpoint}0") for device in level) for level in plan.levels)
    return replace(plan, levels=levels)


def regrouped(plan: FencingPlan) -> FencingPlan:
    """The same with one more supply in its first level."""
    first, *others = plan.levels
    return replace(plan, levels=((*first, replace(first[0], endpoint=f"{first[0].endpoint}1")), *others))


class Adversary(NodeActs, DeviceActs, LadderActs):
    """See the module. `perform` carries out one attempt at an activity, or has something befall it."""

    def perform(self, attempt: Attempt) -> Any:
        """Carry one out, or don't. Raises what the worker would, or `Lost`."""
        method = act_of(attempt)
        self.now, self._attempt, self._served = attempt.now, attempt, self._served + 1
        self._settle()
        act: Callable[[Any], Any] = getattr(self, method)
        if attempt.queue != WORKFLOW_QUEUE and (wrong := problem_of(self.now, self.clock)):
            raise failure(ErrorType.WRONG_CLOCK, f"its clock is {wrong}", retry_after=timedelta(seconds=1))
        if method in {"pin", "pin_target", "request_permit"}:
            self.acts.append(method)
            self._require_answer(attempt, method)
            return act(attempt.request)
        endpoint = getattr(getattr(attempt.request, "device", None), "endpoint", "")
        self.acts.append(f"{method} {endpoint}".strip())
        fault = self._next(method, COUNTED if getattr(attempt.request, "counts", False) else method)
        self._require_answer(attempt, method)
        self._hear(attempt)
        self._judge(attempt, method)
        answer = self._befall(fault, attempt, act)
        self._stream(attempt)
        return answer

    def _settle(self) -> None:
        """What has come of itself until now."""
        self.machine.settle(self.now)
        if self.machine_object.settle(self.now):
            self.machine.give_up(self.now)
            self.machine.lose_node()

    def _require_answer(self, attempt: Attempt, method: str) -> None:
        """An API server that has just started knows nobody's rights; one that is busy takes no bookkeeping."""
        since, until = self.forbidding
        if attempt.queue.startswith("cluster.") and since <= self.now < until:
            self.waited_before = attempt.decided < since - timedelta(seconds=5)
            raise failure(ErrorType.FORBIDDEN, f"{method}: 403 {FORBIDDEN_NOW}")
        if method in KEEPS_BOOKS and self.now < self.busy_until:
            raise failure(ErrorType.TRANSIENT, f"{method}: etcdserver: request timed out")

    def _next(self, method: str, also: str) -> Fault:
        """also: what else the attempt may be ambushed as."""
        if len(self.acts) == CAPPED:
            self.calm()
        fault, delay = self.script.popleft() if self.script else (Fault.NOTHING, 0.0)
        self.counted.update({method, also})
        due = {(each, self.counted[each]) for each in (method, also)}
        for placed in [each for each in self.placed_faults if (each.method, each.number) in due]:
            self.placed_faults.remove(placed)
            for fault, delay in placed.faults:
                self._strike(fault, delay)
            return fault
        self._strike(fault, delay)
        return fault

    def _strike(self, fault: Fault, delay: float) -> None:
        self._delay = delay
        if fault in SPOKEN:
            self.say(fault, delay)
        elif fault in LASTING:
            self._lasts(fault, timedelta(seconds=delay))
        elif delay and fault not in SELF:
            at = self.now + timedelta(seconds=delay)
            self.machine.later(at, lambda: self._happens(fault, at))
        else:
            self._happens(fault, self.now)
        self.machine.settle(self.now)

    def _befall(self, fault: Fault, attempt: Attempt, act: Callable[[Any], Any]) -> Any:
        method, request = act_of(attempt), attempt.request
        self._fault = fault
        not_after: datetime | None = getattr(request, "not_after", None)
        if not_after is not None and self.clock > not_after and method != "last_look":
            raise failure(ErrorType.EXPIRED, f"{method} comes too late")
        match fault:
            case Fault.REFUSED:
                raise failure(ErrorType.TRANSIENT, f"{method} was refused")
            case Fault.UNREACHABLE:
                raise failure(ErrorType.UNREACHABLE, f"{method} reached nobody")
            case Fault.LOST_BEFORE:
                if method in SWITCHES:  # for all that anybody knows it was commanded
                    state = PowerState.ON if method in {"power_on", "restore_path"} else PowerState.OFF
                    self.referee.commands_device(attempt, request.device, state, self.now, request.target.incident)
                raise Lost
            case Fault.OWN_NODE if method in GUARDED:
                raise failure(ErrorType.OWN_NODE, "this worker runs on that very node")
            case Fault.LATE if method in WRITES:
                self._later(act, request, not_after)
                raise Lost
        objections = self._objections_to(method)
        answer = act(request)
        if self._is_done(answer):
            self.referee.heeds(self.acts[-1], self.now, objections)
        if fault is Fault.UNSURE and method in COMMANDS:
            raise failure(ErrorType.AMBIGUOUS, f"{method}: the answer was lost")
        if fault in {Fault.LOST_AFTER, Fault.LATE}:
            self.referee.all_freed_by = ""  # for all that the episode knows
            raise Lost
        if isinstance(answer, Reading):
            self.referee.tells(answer, attempt.decided)
        elif isinstance(answer, VolumeReading):
            self.referee.tells_of_volume(answer, attempt.decided)
        elif isinstance(answer, contract.CommandResult) and answer.after is not None:
            self.referee.reads_back(answer.after, self.now)
        return answer

    def _later(self, act: Callable[[Any], Any], request: Any, not_after: datetime | None) -> None:
        """Its worker is cut off from Temporal, and goes on all the same until its time is over."""
        at = self.now + timedelta(seconds=8)

        def happens() -> None:
            self.now, self._fault = at, Fault.LATE
            if not_after is None or at <= not_after:
                self.zombies += 1
                try:
                    act(request)
                except ApplicationError:  # nobody hears of it
                    return
                self.referee.all_freed_by = ""  # for all that the episode knows

        self.machine.later(at, happens)

    def _judge(self, attempt: Attempt, method: str) -> None:
        """What holds of the request itself, whatever becomes of it."""
        referee, request = self.referee, attempt.request
        if method in DESTRUCTIVE:
            referee.destructive(self.acts[-1], attempt)
        if method in ASKED_FOR and request.before is not None:
            referee.require_no_objection(self.acts[-1], attempt)
        if getattr(look_of(request), "need_matters", False):
            referee.asked_need = self.now
        if method in COMMANDS and method not in {"power_on", "restore_path", "terminate"} and request.not_after is None:
            referee.fault("S20", f"{method} with no end to its time")
        if method in COMMANDS and request.not_after is not None and attempt.decided >= request.not_after:
            referee.fault("S45", f"{self.acts[-1]} is asked for on a look whose window is over by then")
        match method:
            case "power_on":
                referee.powers_on(attempt, request.target.incident)
                referee.heeds(self.acts[-1], self.now, self.vetoes(), rule="S21")
            case "restore_path":
                referee.opens_path(request.device.endpoint)
            case "taint_out_of_service" | "delete_workload" | "delete_node":
                referee.heeds(self.acts[-1], self.now, self._outdated(request.target.incident), rule="S47")
                referee.consequence(method, attempt, request, devices_on=self._says_on_since())
            case "free_while_dumping":
                referee.dumping_consequence(attempt, request)
            case "free_cut_pods":
                referee.cut_consequence(attempt, request)
            case "terminate":
                referee.require_no_objection(method, attempt)
                referee.gives_up(attempt, request.target.incident)

    def _hear(self, attempt: Attempt) -> None:
        """What people are told is so."""
        publication: contract.Publication | None = getattr(look_of(attempt.request), "publication", None)
        for event in publication.events if publication is not None else ():
            self.referee.tells_the_truth(event.message, look_of(attempt.request).target.incident)
            self.referee.warned = self.referee.warned or event.reason in {"WorkloadsLeft", "NeedsHuman"}
            self.asked_for_a_person += event.reason == "NeedsHuman"

    def _stream(self, attempt: Attempt) -> None:
        """Lines of the record, as an activity writes them to the decision stream: perhaps again, and always the same. An
        attempt that does not complete has written none, for all that can be relied on."""
        look = look_of(attempt.request)
        publication: contract.Publication | None = getattr(look, "publication", None)
        for entry in publication.entries if publication is not None else ():
            if self.streamed.setdefault((look.target.incident, entry.number), entry) != entry:
                self.broken.append(f"a line of the record is another one than was written under its id: {entry}")

    def _is_done(self, answer: Any) -> bool:
        """Whether an act that a machine may be given up by was not refused at last."""
        looked = getattr(answer, "look", None)
        if looked is not None and looked.verdict is not contract.LookVerdict.GO:
            return False
        return not isinstance(answer, GiveUpResult) or answer.detail == DELETION_ASKED

    def _objections_to(self, method: str) -> dict[str, datetime]:
        """Whatever speaks against an act, and since when. What was proven off may be freed all the same, and be given back."""
        found = self.vetoes()
        if self.paused is not None:
            found["its Cluster is paused"] = self.paused
        if method == "delete_node":
            return found
        if method not in ASKED_FOR | COMMANDS - {"power_on", "restore_path"}:
            return {}
        if self.unlicensed is not None:
            found["nobody can show its licence"] = self.unlicensed
        if self.need.kind.automatic and self.unwanted is not None:
            found["nobody asks for it any more"] = self.unwanted
        if self.need.kind is NeedKind.CHECK and self.machine.ready and self.machine.ready_since is not None:
            found["the node is well again"] = self.machine.ready_since
        return found

    def _outdated(self, incident: str) -> dict[str, datetime]:
        """What whoever looks before each round of freeing has seen by now, and since when. What was begun is finished without
        anybody's wish (S6)."""
        found = {} if self.configured is None else {"other devices are configured": self.changed}
        if self.need.kind.automatic and self.unwanted is not None and self.referee.tried_by != incident:
            found["nobody asks for it any more"] = self.unwanted
        return found

    def _says_on_since(self) -> datetime | None:
        """Since when any device would have said on to whoever had asked it; None: it would not."""
        mute = self.silent | self.locked
        speak = any(self.machine.power[each.endpoint] is PowerState.ON for each in self.plan.devices if each.endpoint not in mute)
        return self.heard_since if speak else None

    def _lasts(self, fault: Fault, duration: timedelta) -> None:
        if fault is Fault.BUSY:
            self.busy_until = self.now + duration
        elif self.now >= self.forbidding[1]:
            self.forbidding = (self.now, self.now + duration)

    def _happens(self, fault: Fault, now: datetime) -> None:
        """What merely happens beside an activity."""
        machine = self.machine
        match fault:
            case Fault.FLAP:
                machine.flap(now)
            case Fault.REBOOT:
                machine.reboot(now)
            case Fault.OTHERS_ON | Fault.OTHERS_OFF:
                state = PowerState.ON if fault is Fault.OTHERS_ON else PowerState.OFF
                self.meddled = fault is Fault.OTHERS_OFF
                self.switched_on = self.switched_on or fault is Fault.OTHERS_ON
                machine.plug(plugged=machine.plugged or fault is Fault.OTHERS_ON, now=now)
                for endpoint in machine.power:
                    machine.switch(endpoint, state, now)
            case Fault.PATH_OPENED:
                for endpoint, state in machine.paths.items():
                    if state is PowerState.OFF:
                        machine.paths[endpoint] = PowerState.ON
                        self.referee.opened_by_others[endpoint] = now
            case Fault.ATTACHED_AGAIN:
                machine.attached = dict.fromkeys(machine.attached, True)
            case Fault.NODE_GONE:
                machine.lose_node()
            case Fault.NODE_ANEW | Fault.NODE_REPLACED:
                machine.register(now, another=fault is Fault.NODE_REPLACED)
            case Fault.NEED_GONE | Fault.NEED_BACK:
                self.unwanted = (self.unwanted or now) if fault is Fault.NEED_GONE else None
            case Fault.VETO:
                self.vetoed = self.vetoed or now
            case Fault.NO_VETO:
                self.vetoed = self.machine_object.preserved = self.paused = None
            case Fault.LEASED:
                self.leased = self.leased or now
            case Fault.PRESERVED:
                self.machine_object.preserved = self.machine_object.preserved or now
            case Fault.CLUSTER_PAUSED:
                self.paused = self.paused or now
            case Fault.UNLICENSED_LONG | Fault.LICENSED_AGAIN:
                self.unlicensed = (self.unlicensed or now) if fault is Fault.UNLICENSED_LONG else None
            case Fault.BREAKER:
                self.refusing = True
            case Fault.TAKEN_OVER:
                self._is_taken_over(now)
            case Fault.BACKUP:
                machine.goes_back()
            case Fault.RECONFIGURED:
                self.reconfigure()
            case Fault.CORRECTED | Fault.REGROUPED if self.plan.levels:
                self.configured, self.changed = (mended if fault is Fault.CORRECTED else regrouped)(self.plan), now
            case Fault.UNMARKED:
                machine.mark = None
            case Fault.STUBBORN:
                machine.stubborn = True
            case Fault.STUCK:
                self.stuck = set(self.plan.endpoints)
            case Fault.ONE_STUCK:
                self.stuck = {device.endpoint for device in self.plan.levels[0][-1:]} if self.plan.levels else set()
            case Fault.SILENT:
                self.silent = set(self.plan.endpoints)
            case Fault.FIRST_SILENT:
                self.silent = {device.endpoint for level in self.plan.levels[:1] for device in level}
            case Fault.SPEAKS:
                self.silent, self.heard_since = set(self.dead), now
            case Fault.ONE_DEAD:
                self.dead = {device.endpoint for device in self.plan.levels[0][:1]} if self.several else set()
                self.silent |= self.dead
            case Fault.LOCKED:
                self.locked = set(self.plan.endpoints[:1])
            case Fault.DUMP:
                machine.crash(now)
            case Fault.HEAL:
                self.heal()

    def _is_taken_over(self, now: datetime) -> None:
        """Another deployment has the cluster Lease now, adopts our mark, and fences the node in its own time."""
        machine, power = self.machine, tuple(self.machine.power)
        if machine.mark is None or not machine.present or machine.holder != OURS or not self.plan.levels:
            return
        machine.mark = replace(machine.mark, incident=THEIRS)
        self.unlicensed, self.referee.rival = self.unlicensed or now, (now, now + RIVAL)
        off, on = now + timedelta(seconds=1), now + RIVAL
        self.meddled = self.switched_on = True

        def switch(at: datetime, state: PowerState) -> None:
            for endpoint in power:
                machine.switch(endpoint, state, at)

        def ends() -> None:
            switch(on, PowerState.ON)
            if machine.mark is not None and machine.mark.incident == THEIRS:
                machine.goes_back()

        machine.later(off, lambda: switch(off, PowerState.OFF))
        machine.later(on, ends)

    def reconfigure(self) -> None:
        """The configuration named the plug of another machine until now."""
        if self.referee.commands or not self.plan.levels or self.reconfigured:
            return
        self.reconfigured = True
        old = self.plan.endpoints
        self.plan = mended(self.plan)
        self.machine.rewire(self.plan)
        self.referee.plan = self.plan
        self.referee.disowned = dict.fromkeys(set(old) - set(self.plan.endpoints), self.now)

    def heal(self) -> None:
        """Every device works again, and nobody objects any more."""
        self.stuck, self.silent, self.locked, self.configured = set(), set(self.dead), set(), None
        self.vetoed = self.leased = self.unlicensed = self.paused = self.machine_object.preserved = None
        self.machine.stubborn = self.refusing = False
        self.busy_until, self.forbidding = START, (START, START)

    def calm(self) -> None:
        """No more faults."""
        self.script.clear()
        self.placed_faults.clear()
        self.heal()

    # Temporal -------------------------------------------------------------------------------------------------------

    def request_permit(self, request: contract.AskPermit) -> PermitAnswer:
        fault, _ = self.script.popleft() if self.script else (Fault.NOTHING, 0.0)
        incident = request.permit.incident
        if request.permit.kind is Kind.FENCING and self.only_restores(incident):
            self.referee.fault("S17", "a permit is asked for by an episode that has nothing left to do but to switch on")
        if fault is Fault.NO_PERMIT or self.refusing:
            return PermitAnswer(decision=PermitDecision.REFUSED, reason="a circuit breaker is open")
        if fault is Fault.QUEUED:
            self.grant()
            return PermitAnswer(decision=PermitDecision.QUEUED, reason="the cap is reached")
        self.referee.permit = True
        return PermitAnswer(decision=PermitDecision.GRANTED, holder="us")

    def ask_portion(self, request: contract.AskPortion) -> PortionAnswer:
        if self._fault is Fault.QUEUED:
            return PortionAnswer(again=self.now + timedelta(minutes=1))
        if self._fault is Fault.NO_PERMIT:
            return PortionAnswer(problem="no scanner runs")
        pods = min(request.portion.pods, request.portion.per_minute)
        return PortionAnswer(pods=pods, until=self.now + timedelta(seconds=30))

    def hears_release(self, release: Release) -> None:
        """The scanner's end of it. Nobody is asked for help with what passes by itself."""
        self.referee.permit = False
        since = self.now - self.forbidding[0]
        if release.parked and "comes too late" in release.problem and 0.0 in self.skews and any(self.skews):
            self.referee.fault("S18", f"a person is asked since one worker's clock is wrong: {release.problem}")
        if (
            release.parked
            and not self.waited_before
            and FORBIDDEN_NOW in release.problem
            and since < PASSES
            and not any(each in release.problem for each in INSISTED)
        ):
            self.referee.fault("S35", f"a person is asked for what has lasted for {since} and passes by itself")
