"""One machine as its power supply knows it: on or off, who commanded what, and how its devices lie about it.

The truth behind every simulated device that can switch the machine. How other processes reach it is in `chassis.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

Power = Literal["on", "off"]
HAND = "hand"
"""The device of a change that came through no device."""


class RefusedError(Exception):
    """The device answers with an error and does nothing."""


class NotKnownError(Exception):
    """There is no such machine, power state or fault; the text says what there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How the devices of a machine misbehave.

    ignore_off: accepts the off and leaves the machine on. answers_on_after_off: switches off and goes on saying on.
    hang: does nothing and answers nothing until it is cleared. refuse: answers commands with an error. delay: seconds
    before anything is done. settle: seconds from the answer to a command until the machine follows it, as real ones do.
    lose_answers: carries commands out and answers none of them until it is cleared; it is the device that has to ask for it.
    """

    ignore_off: bool = False
    answers_on_after_off: bool = False
    hang: bool = False
    refuse: bool = False
    delay: float = 0.0
    settle: float = 0.0
    lose_answers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerCommand:
    """One command that reached a machine: `on`, `off`, `reset` or `nmi`. from_power and to_power are the truth.

    outcome: `done`, `ignored` (accepted, nothing done) or `refused`.
    """

    machine: str
    at: datetime
    device: str
    command: str
    from_power: Power
    to_power: Power
    outcome: str = "done"


Listener = Callable[[PowerCommand], None]
Hook = Callable[["Machine", str], Awaitable[None]]


class Machine:
    """One machine: its power, who commanded what, and its faults. Use it in process or over HTTP.

    before_set and after_set are awaited with the command's name around its effect, so that a test can act at exactly
    that moment: after the state changed, say, and before the BMC has answered.
    """

    def __init__(self, name: str, power: Power = "on") -> None:
        self.name = name
        self.power: Power = power
        self.log: list[PowerCommand] = []
        self.reads: Counter[str] = Counter()
        self.before_set: Hook | None = None
        self.after_set: Hook | None = None
        self._faults = Faults()
        self._claimed: Power | None = None
        self._listeners: list[Listener] = []
        self._changed = asyncio.Event()
        self._settling: asyncio.TimerHandle | None = None

    @property
    def faults(self) -> Faults:
        """The faults in force."""
        return self._faults

    def set_faults(self, **faults: Any) -> None:
        """Put these faults in force and no others; with nothing, mend it all. Whatever hangs goes on or is let go."""
        known = {field.name: field.type for field in dataclasses.fields(Faults)}
        for name in faults:
            if name not in known:
                raise NotKnownError(f"fault {name!r} is not known: expected {', '.join(known)}")
        self._faults = Faults(**faults)
        if not self._faults.answers_on_after_off:
            self._claimed = None
        self._wake()

    def on_change(self, listener: Listener) -> None:
        """Call `listener` with every command that took effect: a change of power, a reset, an NMI."""
        self._listeners.append(listener)

    def commands(self, command: str) -> list[PowerCommand]:
        """What is in the log under this command."""
        return [entry for entry in self.log if entry.command == command]

    async def wait_for(self, power: Power) -> None:
        """Wait until the machine really is on or off."""
        while self.power != power:
            await self._changed.wait()

    async def read(self, device: str) -> Power:
        """The power state as this device tells it."""
        self.reads[device] += 1
        await self._stumble(device)
        return self._claimed or self.power

    async def set_power(self, power: Power, device: str = HAND) -> None:
        """Switch on or off through a device, or by hand."""
        await self._carry_out(power, power, device)

    async def reset(self, device: str = HAND) -> None:
        """Reset through a device; a machine that is off stays off."""
        await self._carry_out("reset", self.power, device)

    async def pulse_nmi(self, device: str = HAND) -> None:
        """Interrupt the machine; its power stays as it is."""
        await self._carry_out("nmi", self.power, device)

    async def lose_answer(self) -> None:
        """For a device that has carried a command out, before it answers: returns at once where answers arrive.

        Where they are lost it waits until that is mended and raises RefusedError, for the client has gone long since.
        """
        lost = self._faults.lose_answers
        while self._faults.lose_answers:
            await self._changed.wait()
        if lost:
            raise RefusedError(f"{self.name}: the answer was lost")

    async def _carry_out(self, command: str, power: Power, device: str) -> None:
        await self._stumble(device)
        through_device = device != HAND
        if through_device and self.before_set is not None:
            await self.before_set(self, command)
        if through_device and self._faults.refuse:
            self._enter(command, device, self.power, "refused")
            raise RefusedError(f"{self.name} refuses {command!r}")
        if through_device and command == "off" and self._faults.ignore_off:
            self._enter(command, device, self.power, "ignored")
        elif through_device and self._faults.settle:
            self._follow_later(self._enter(command, device, power, "done"))
        else:
            self._follow(self._enter(command, device, power, "done"))
        if through_device and self.after_set is not None:
            await self.after_set(self, command)

    async def _stumble(self, device: str) -> None:
        """What befalls every request that comes through a device."""
        if device == HAND:
            return
        if self._faults.delay:
            await asyncio.sleep(self._faults.delay)
        if self._faults.hang:
            while self._faults.hang:
                await self._changed.wait()
            raise RefusedError(f"{self.name} hung and has dropped the request")

    def _follow_later(self, entry: PowerCommand) -> None:
        """A later command overtakes one that the machine has not followed yet."""
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().call_later(self._faults.settle, self._follow, entry)

    def _follow(self, entry: PowerCommand) -> None:
        if self._faults.answers_on_after_off and entry.command == "off":
            self._claimed = "on"
        changed = self.power != entry.to_power
        self.power = entry.to_power
        self._wake()
        if changed or entry.command in {"reset", "nmi"}:
            for listener in self._listeners:
                listener(entry)

    def _enter(self, command: str, device: str, to_power: Power, outcome: str) -> PowerCommand:
        entry = PowerCommand(
            machine=self.name,
            at=datetime.now(UTC),
            device=device,
            command=command,
            from_power=self.power,
            to_power=to_power,
            outcome=outcome,
        )
        self.log.append(entry)
        return entry

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
