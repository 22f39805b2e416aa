"""What an episode may have done to the devices of the played machine, each act as `activities/power/` does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from activities.errors import ErrorType, failure
from activities.licences import DeviceCommand
from policy.episode.messages import GivenUpReading, Reading, VolumeReading
from policy.fence.kdump import KdumpReading
from policy.fence.power import PowerAct, PowerState, Quarantine, VolumeState
from tests.licensing import is_licensed
from tests.workflows import contract
from tests.workflows.acting import Acting
from tests.workflows.attempts import START
from tests.workflows.machine import OURS
from tests.workflows.mishaps import Mishap

SPEAKS = timedelta(seconds=10)
"""How often fence_kdump does."""


class DeviceActs(Acting):
    """Power, paths, volumes, quarantine, and what is heard of a crash."""

    def read_power(self, request: contract.PowerRequest) -> Reading:
        return self._read(request, self.machine.power)

    def read_path(self, request: contract.PowerRequest) -> Reading:
        return self._read(request, self.machine.paths)

    def power_off(self, request: contract.PowerRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.OFF)
        return self._command(request, PowerState.OFF, self._switch)

    def power_on(self, request: contract.PowerRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.ON)
        return self._command(request, PowerState.ON, self._switch)

    def cut_path(self, request: contract.PowerRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.CUT_PATH)
        if self._noted(request.device.endpoint) is False:
            self.referee.fault("S35", f"{request.device.endpoint} is cut without a note")
        return self._command(request, PowerState.OFF, self._set_path)

    def restore_path(self, request: contract.PowerRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.RESTORE_PATH)
        return self._command(request, PowerState.ON, self._set_path)

    def terminate(self, request: contract.PowerRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.TERMINATE)
        endpoint = request.device.endpoint
        self._require_voice(endpoint)
        if self.machine.power[endpoint] is not PowerState.OFF:
            raise failure(ErrorType.NOT_PROVEN, f"{endpoint} is not off")
        if endpoint not in self.stuck:
            at = self.now + timedelta(seconds=self._delay if self._mishap in {Mishap.SLOW, Mishap.LATE} else 0)
            self.machine.later(at, lambda: self.machine.give_up(at))
        return contract.CommandResult(sent=True, before=PowerState.OFF)

    def read_given_up(self, request: contract.GivenUpRequest) -> GivenUpReading:
        self._require_voice(request.device.endpoint)
        return GivenUpReading(endpoint=request.device.endpoint, given_up=self.machine.terminated, at=self.now)

    def quarantine(self, request: contract.PowerRequest) -> Quarantine:
        self._require_licence(request, PowerAct.QUARANTINE)
        endpoint = request.device.endpoint
        self._require_voice(endpoint)
        if self._noted(f"{endpoint}#quarantine") is False:
            self.referee.fault("S35", f"{endpoint} is put into quarantine without a note")
        self.machine.quarantined = True
        return Quarantine(group="sg-quarantine", former=(), at=self.now)

    def lift_quarantine(self, request: contract.LiftRequest) -> contract.QuarantineLifted:
        self._require_licence(request, PowerAct.LIFT_QUARANTINE)
        self._require_voice(request.device.endpoint)
        self.machine.quarantined = False
        return contract.QuarantineLifted(groups=())

    def list_volumes(self, request: contract.PowerRequest) -> contract.VolumesResult:
        self._require_voice(request.device.endpoint)
        root = VolumeReading(volume="vol-root", state=VolumeState.ATTACHED, at=self.now, root=True)
        attached = [name for name, attached in self.machine.attached.items() if attached]
        readings = [VolumeReading(volume=name, state=VolumeState.ATTACHED, at=self.now) for name in attached]
        return contract.VolumesResult(volumes=(root, *readings))

    def detach_volume(self, request: contract.VolumeRequest) -> contract.CommandResult:
        self._require_licence(request, PowerAct.DETACH_VOLUME)
        self._require_voice(request.device.endpoint)
        end = self.now + (request.deadline if self._mishap in {Mishap.LATE, Mishap.SLOW} else timedelta(0))
        self.referee.detached[request.volume] = end if self._mishap is Mishap.LATE else self.now
        if request.device.endpoint not in self.stuck:
            self.machine.later(end, lambda: self.machine.attached.__setitem__(request.volume, False))
        return contract.CommandResult(sent=True, before=PowerState.UNKNOWN)

    def read_volume(self, request: contract.VolumeRequest) -> VolumeReading:
        self._require_voice(request.device.endpoint)
        state = VolumeState.ATTACHED if self.machine.attached.get(request.volume) else VolumeState.AVAILABLE
        return VolumeReading(volume=request.volume, state=state, at=self.now)

    def read_kdump(self, request: contract.KdumpRequest) -> KdumpReading:
        silent = KdumpReading(at=self.now, listening=START - timedelta(hours=1), address="10.0.0.7")
        if (dump := self.machine.dump) is None:
            return silent
        messages = int((min(self.now, dump[1]) - dump[0]) / SPEAKS)
        return replace(silent, first=dump[0], last=dump[0] + messages * SPEAKS, messages=messages + 1)

    def _require_licence(self, request: DeviceCommand, act: PowerAct) -> None:
        if not is_licensed(request, act):
            self.referee.fault("S42", f"{act} without a licence of a look, but {request.licence!r}")

    def _read(self, request: contract.PowerRequest, states: dict[str, PowerState]) -> Reading:
        endpoint = request.device.endpoint
        self._require_voice(endpoint)
        return Reading(endpoint=endpoint, state=states[endpoint], at=self.clock)

    def _command(
        self, request: contract.PowerRequest, state: PowerState, change: Callable[[str, PowerState, datetime], None]
    ) -> contract.CommandResult:
        endpoint, began, mishap = request.device.endpoint, self.now, self._mishap
        self._require_voice(endpoint)
        before = (self.machine.power | self.machine.paths)[endpoint]
        at = began
        if mishap is Mishap.LATE:  # its worker stands still for a while, and goes on as long as it may
            assert request.not_after is not None, "every command has an end to its time"
            at = min(began + timedelta(seconds=self._delay), request.not_after - self.skew) + request.deadline
        elif mishap is Mishap.UNSURE:
            at = began + timedelta(seconds=1)
        assert self._attempt is not None
        self.referee.commands_device(self._attempt, request.device, state, at, request.target.incident)
        if mishap is Mishap.SLOW:
            at = began + timedelta(seconds=self._delay)
        if state is PowerState.ON or endpoint not in self.stuck:
            if at > began:
                self.machine.later(at, lambda: change(endpoint, state, at))
            else:
                change(endpoint, state, began)
        after = Reading(endpoint=endpoint, state=self.machine.power[endpoint], at=self.clock) if request.read_back else None
        return contract.CommandResult(sent=True, before=before, after=after)

    def _switch(self, endpoint: str, state: PowerState, at: datetime) -> None:
        self.machine.switch(endpoint, state, at)

    def _set_path(self, endpoint: str, state: PowerState, at: datetime) -> None:
        self.machine.paths[endpoint] = state
        if state is PowerState.ON:
            self.referee.opened_by_others.pop(endpoint, None)

    def _require_voice(self, endpoint: str) -> None:
        if endpoint in self.locked:
            raise failure(ErrorType.UNAUTHORIZED, f"{endpoint} takes our password no more")
        if endpoint in self.silent:
            raise failure(ErrorType.UNREACHABLE, f"{endpoint}: no answer")

    def _noted(self, endpoint: str) -> bool | None:
        """Whether our mark tells of a path; None where others have meddled with the mark."""
        mark = self.machine.mark
        return None if mark is None or self.machine.holder != OURS else endpoint in mark.paths
