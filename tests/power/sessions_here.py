"""Sessions with BMCs in this process and not in a child each, so that every odd answer can be tried."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from activities.power.bmc import child, ipmi, redfish, redfish_http
from activities.power.bmc.child import DeviceSession, OperationError
from activities.power.driver import Deadline

SAID: ContextVar[list[bytes]] = ContextVar("said")
"""The lines of the session that is under way."""


def say(**line: Any) -> None:
    SAID.get().append(json.dumps(line).encode() + b"\n")


class SessionsHere:
    """In place of a `ForkServer`. log_in: of the protocol."""

    def __init__(self, log_in: Callable[[dict[str, Any]], DeviceSession]) -> None:
        self._log_in = log_in

    def patch(self, monkeypatch: pytest.MonkeyPatch, driver: type) -> None:
        """Have devices of this kind spoken to here."""
        monkeypatch.setattr(driver, "server", self)
        for module in (child, ipmi, redfish, redfish_http):
            monkeypatch.setattr(module, "write_line", say)

    def answer(self, device: dict[str, Any], logged_in: list[DeviceSession], asked: dict[str, Any]) -> None:
        """Say what a child would."""
        try:
            if not logged_in:
                logged_in.append(self._log_in(device))
            say(answer=logged_in[0].answer(asked))
        except OperationError as error:
            say(error=error.kind, message=str(error))

    @asynccontextmanager
    async def child(self) -> AsyncIterator[ChildHere]:
        yield ChildHere(self)


class ChildHere:
    """In place of a `ChildHandle`."""

    timed_out = False

    def __init__(self, sessions: SessionsHere) -> None:
        self._sessions = sessions
        self._lines: list[dict[str, Any]] = []
        self._logged_in: list[DeviceSession] = []
        self._said: list[bytes] = []

    def send(self, line: bytes) -> None:
        self._lines.append(json.loads(line))

    async def line(self, _deadline: Deadline) -> bytes:
        if len(self._lines) > 1:
            SAID.set(self._said)
            await asyncio.to_thread(self._sessions.answer, self._lines[0], self._logged_in, self._lines.pop())
        return self._said.pop(0) if self._said else b""

    async def returncode(self, _deadline: Deadline) -> int:
        return 0
