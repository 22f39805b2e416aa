"""An adversary for the property tests: it plays everything that an episode speaks to, and plays it as badly as the world can.

A script of mishaps is used up by one entry per attempt at an activity. What an activity does to the machine and its Node it does
as the real ones do (`activities/cluster/`, `activities/power/`), with the same predicates; whether it should have been asked at
all is for the referee, who knows the truth.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from temporalio.exceptions import ApplicationError

from activities.errors import ErrorType, failure
from policy.episodes import Reading, VolumeReading
from policy.freeing_pace import PortionAnswer
from policy.permits import Decision, PermitAnswer, Release
from policy.power import PowerState
from tests.workflows import contract
from tests.workflows.attempts import Attempt, Lost
from tests.workflows.device_acts import DeviceActs
from tests.workflows.mishaps import SELF, SPOKEN, Mishap
from tests.workflows.node_acts import NodeActs

CAPPED = 700
"""So many attempts and the adversary has had its fun: from then on the world works."""
DESTRUCTIVE = frozenset({"power_off", "cut_path", "quarantine", "detach_volume", "drain", "mark_unschedulable", "taint"})
GUARDED = frozenset({"power_off", "cut_path", "quarantine", "detach_volume", "drain", "terminate", "taint_out_of_service"}) | {
    "delete_workload",
    "delete_node",
    "free_cut_pods",
    "free_while_dumping",
}
"""What a worker refuses on its own node (S16)."""
WRITES = frozenset({"mark", "mark_unschedulable", "taint", "note_path", "mark_schedulable", "taint_out_of_service"}) | {
    "delete_workload",
    "delete_node",
    "free_cut_pods",
    "free_while_dumping",
    "untaint_out_of_service",
    "drain",
}
SWITCHES = frozenset({"power_off", "power_on", "cut_path", "restore_path"})
COMMANDS = SWITCHES | {"detach_volume", "quarantine", "terminate"}


class Adversary(NodeActs, DeviceActs):
    """See the module. `perform` carries out one attempt at an activity, or has something befall it."""

    def perform(self, attempt: Attempt) -> Any:
        """Carry one out, or don't. Raises what the worker would, or `Lost`."""
        method = attempt.call.method
        self.now, self._attempt = attempt.now, attempt
        self.machine.settle(self.now)
        act: Callable[[Any], Any] = getattr(self, method)
        if method in {"pin", "mirror", "request_permit"}:
            if method != "mirror":
                self.acts.append(method)
            return act(attempt.request)
        endpoint = getattr(getattr(attempt.request, "device", None), "endpoint", "")
        self.acts.append(f"{method} {endpoint}".strip())
        mishap = self._next(method)
        self._judge(attempt)
        return self._befall(mishap, attempt, act)

    def _next(self, method: str) -> Mishap:
        if len(self.acts) == CAPPED:
            self.calm()
        mishap, delay = self.script.popleft() if self.script else (Mishap.NOTHING, 0.0)
        number = sum(each.partition(" ")[0] == method for each in self.acts)
        for ambush in [each for each in self.ambushes if (each.method, each.number) == (method, number)]:
            self.ambushes.remove(ambush)
            for mishap, delay in ambush.mishaps:
                self._strike(mishap, delay)
            return mishap
        self._strike(mishap, delay)
        return mishap

    def _strike(self, mishap: Mishap, delay: float) -> None:
        self._delay = delay
        if mishap in SPOKEN:
            self.say(mishap, delay)
        elif delay and mishap not in SELF:
            at = self.now + timedelta(seconds=delay)
            self.machine.later(at, lambda: self._happens(mishap, at))
        else:
            self._happens(mishap, self.now)
        self.machine.settle(self.now)

    def _befall(self, mishap: Mishap, attempt: Attempt, act: Callable[[Any], Any]) -> Any:
        method, request = attempt.call.method, attempt.request
        self._mishap = mishap
        not_after: datetime | None = getattr(request, "not_after", None)
        if not_after is not None and self.now > not_after:
            raise failure(ErrorType.EXPIRED, f"{method} comes too late")
        match mishap:
            case Mishap.REFUSED:
                raise failure(ErrorType.TRANSIENT, f"{method} was refused")
            case Mishap.UNREACHABLE:
                raise failure(ErrorType.UNREACHABLE, f"{method} reached nobody")
            case Mishap.LOST_BEFORE:
                if method in SWITCHES:  # for all that anybody knows it was commanded
                    state = PowerState.ON if method in {"power_on", "restore_path"} else PowerState.OFF
                    self.referee.commands_device(attempt, request.device, state, self.now, request.target.incident)
                raise Lost
            case Mishap.OWN_NODE if method in GUARDED:
                raise failure(ErrorType.OWN_NODE, "this worker runs on that very node")
            case Mishap.LATE if method in WRITES:
                self._later(act, request, not_after)
                raise Lost
        try:
            answer = act(request)
        except Lost:
            raise
        if mishap is Mishap.UNSURE and method in COMMANDS:
            raise failure(ErrorType.AMBIGUOUS, f"{method}: the answer was lost")
        if mishap in {Mishap.LOST_AFTER, Mishap.LATE}:
            raise Lost
        if isinstance(answer, Reading):
            self.referee.tells(answer, attempt.decided)
        elif isinstance(answer, VolumeReading):
            self.referee.tells_of_volume(answer, attempt.decided)
        return answer

    def _later(self, act: Callable[[Any], Any], request: Any, not_after: datetime | None) -> None:
        """Its worker is cut off from Temporal, and goes on all the same until its time is over."""
        at = self.now + timedelta(seconds=8)

        def happens() -> None:
            self.now = at
            if not_after is None or at <= not_after:
                self.zombies += 1
                try:
                    act(request)
                except ApplicationError:  # nobody hears of it
                    return

        self.machine.later(at, happens)

    def _judge(self, attempt: Attempt) -> None:
        """What holds of the request itself, whatever becomes of it."""
        referee, request, method = self.referee, attempt.request, attempt.call.method
        if method in DESTRUCTIVE:
            referee.destructive(self.acts[-1], attempt, request.target)
        if method in COMMANDS and method not in {"power_on", "restore_path", "terminate"} and request.not_after is None:
            referee.fault("S20", f"{method} with no end to its time")
        match method:
            case "record_event":
                referee.warned = referee.warned or request.reason in {"WorkloadsLeft", "NeedsHuman"}
            case "last_look" if request.need_matters:
                referee.asked_need = self.now
            case "power_on":
                referee.powers_on(request.target.incident)
            case "restore_path":
                referee.opens_path(request.device.endpoint)
            case "taint_out_of_service" | "delete_workload" | "delete_node":
                referee.consequence(method, attempt, request)
            case "free_while_dumping":
                referee.dumping_consequence(attempt, request)
            case "free_cut_pods":
                if attempt.number == 1 and referee.looked is None:
                    referee.fault("S20", "free-cut-pods without a last look before it")
                referee.looked = None
                referee.cut_consequence(attempt, request)
            case "terminate":
                referee.nobody_says_no(method, attempt)
                if referee.said_before("abort", attempt.decided):
                    referee.fault("S20", "a machine is given up after an abort")
                referee.gives_up(attempt, request.target.incident)

    def _happens(self, mishap: Mishap, now: datetime) -> None:
        """What merely happens beside an activity."""
        machine = self.machine
        match mishap:
            case Mishap.FLAP:
                machine.flap(now)
            case Mishap.REBOOT:
                machine.reboot(now)
            case Mishap.OTHERS_ON | Mishap.OTHERS_OFF:
                state = PowerState.ON if mishap is Mishap.OTHERS_ON else PowerState.OFF
                self.meddled = mishap is Mishap.OTHERS_OFF
                self.switched_on = self.switched_on or mishap is Mishap.OTHERS_ON
                machine.plug(plugged=machine.plugged or mishap is Mishap.OTHERS_ON, now=now)
                for endpoint in machine.power:
                    machine.switch(endpoint, state, now)
            case Mishap.PATH_OPENED:
                for endpoint, state in machine.paths.items():
                    if state is PowerState.OFF:
                        machine.paths[endpoint] = PowerState.ON
                        self.referee.opened_by_others[endpoint] = now
            case Mishap.ATTACHED_AGAIN:
                machine.attached = dict.fromkeys(machine.attached, True)
            case Mishap.NODE_GONE:
                machine.lose_node()
            case Mishap.NODE_ANEW | Mishap.NODE_REPLACED:
                machine.register(now, another=mishap is Mishap.NODE_REPLACED)
            case Mishap.NEED_GONE | Mishap.NEED_BACK:
                self.wanted = mishap is Mishap.NEED_BACK
            case Mishap.VETO | Mishap.NO_VETO:
                self.vetoed = mishap is Mishap.VETO
            case Mishap.LEASED:
                self.leased = True
            case Mishap.UNMARKED:
                machine.mark = None
            case Mishap.STUBBORN:
                machine.stubborn = True
            case Mishap.STUCK:
                self.stuck = set(self.plan.endpoints)
            case Mishap.ONE_STUCK:
                self.stuck = {device.endpoint for device in self.plan.levels[0][-1:]} if self.plan.levels else set()
            case Mishap.SILENT:
                self.silent = set(self.plan.endpoints)
            case Mishap.LOCKED:
                self.locked = set(self.plan.endpoints[:1])
            case Mishap.DUMP:
                machine.crash(now)
            case Mishap.HEAL:
                self.heal()

    def heal(self) -> None:
        """Every device works again, and nobody objects any more."""
        self.stuck, self.silent, self.locked = set(), set(), set()
        self.vetoed = self.leased = self.machine.stubborn = False

    def calm(self) -> None:
        """No more mishaps."""
        self.script.clear()
        self.ambushes.clear()
        self.heal()

    # Temporal -------------------------------------------------------------------------------------------------------

    def request_permit(self, request: contract.AskPermit) -> PermitAnswer:
        mishap, _ = self.script.popleft() if self.script else (Mishap.NOTHING, 0.0)
        if mishap is Mishap.NO_PERMIT:
            return PermitAnswer(decision=Decision.REFUSED, reason="a brake is closed")
        if mishap is Mishap.QUEUED:
            self.grant()
            return PermitAnswer(decision=Decision.QUEUED, reason="the cap is reached")
        self.referee.permit = True
        return PermitAnswer(decision=Decision.GRANTED, holder="us")

    def ask_portion(self, request: contract.AskPortion) -> PortionAnswer:
        if self._mishap is Mishap.QUEUED:
            return PortionAnswer(again=self.now + timedelta(minutes=1))
        if self._mishap is Mishap.NO_PERMIT:
            return PortionAnswer(problem="no scanner runs")
        pods = min(request.portion.pods, request.portion.per_minute)
        return PortionAnswer(pods=pods, until=self.now + timedelta(seconds=30))

    def hears_release(self, release: Release) -> None:
        """The scanner's end of it."""
        self.referee.permit = False
