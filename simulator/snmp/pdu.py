"""A switched power strip as SNMP clients see it: real UDP, outlets that feed machines of the chassis.

It answers what `fence_apc_snmp` and `fence_eaton_snmp` ask, in SNMP 1, 2c and 3. What an outlet says and does is `Machine`'s,
faults included (`bmc/machine.py`); what the whole strip may do besides is to be silent. Ours, not a vendor's: a pass shows that
requests are well formed and answers well read, not how a real strip behaves.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

from pysnmp.carrier.asyncio.dgram import udp
from pysnmp.entity import config
from pysnmp.entity.engine import SnmpEngine
from pysnmp.entity.rfc3413 import cmdrsp, context
from pysnmp.proto.api import v2c
from pysnmp.smi import error as smi_error

from simulator.bmc.chassis import Chassis
from simulator.bmc.machine import Machine, Power, RefusedError
from simulator.tasks import Tasks

Oid = tuple[int, ...]
SYSTEM_OBJECT_ID: Oid = (1, 3, 6, 1, 2, 1, 1, 2, 0)
GENERAL_ERROR, NOT_WRITABLE, WRONG_VALUE = 5, 17, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Where a vendor keeps what: columns indexed by outlet; `first` is the first one."""

    identity: Oid
    names: Oid
    state: Oid
    control: Oid
    values: Mapping[Power, int]
    first: int = 1


_APC: Oid = (1, 3, 6, 1, 4, 1, 318, 1)
_EATON: Oid = (1, 3, 6, 1, 4, 1, 534, 6, 6, 6)
MODELS: Mapping[str, Model] = {
    "apc": Model(
        identity=(*_APC, 3, 4, 5),
        names=(*_APC, 1, 12, 3, 5, 1, 1, 2),
        state=(*_APC, 1, 12, 3, 5, 1, 1, 4),
        control=(*_APC, 1, 12, 3, 3, 1, 1, 4),
        values={"on": 1, "off": 2},
    ),
    "eaton": Model(
        identity=_EATON,
        names=(*_EATON, 1, 2, 2, 1, 1),
        state=(*_EATON, 1, 2, 2, 1, 3),
        control=(*_EATON, 1, 2, 2, 1, 3),
        values={"on": 1, "off": 0},
        first=0,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may talk to it: a community (SNMP 1 and 2c), and a user with two passwords of 8 characters or more (3: SHA, AES)."""

    community: str = field(repr=False)
    username: str = ""
    password: str = field(default="", repr=False)
    privacy_password: str = field(default="", repr=False)


class Pdu:
    """A running power strip. `async with`, or `stop` it."""

    def __init__(self, outlets: Mapping[int, Machine], access: Access, *, model: Literal["apc", "eaton"] = "apc") -> None:
        self.outlets = dict(outlets)
        self.model = MODELS[model]
        self.silent = False
        """While true, it neither answers nor does anything, as without network."""
        self.sets: list[tuple[int, Power]] = []
        """Each command as it arrived, a repeated datagram twice: outlet and state."""
        self.tasks = Tasks()
        self._engine = SnmpEngine()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        transport = _Transport(self).open_server_mode(sock=self._socket)
        config.add_transport(self._engine, udp.DOMAIN_NAME, transport)
        _admit(self._engine, access)
        names = context.SnmpContext(self._engine)
        for responder in (_Get, _Next, _Set):
            responder(self._engine, names, self)

    async def stop(self) -> None:
        """Stop listening and drop what still hangs."""
        await self.tasks.cancel_all()
        self._engine.close_dispatcher()
        self._socket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()
        self.tasks.raise_failures()

    async def value(self, name: Oid) -> Any:
        """What is at this place, as the library writes it; None where nothing is."""
        if name == SYSTEM_OBJECT_ID:
            return v2c.ObjectIdentifier(self.model.identity)
        outlet = name[-1] - self.model.first + 1
        machine = self.outlets.get(outlet)
        if machine is None:
            return None
        if name[:-1] == self.model.names:
            # Eaton's strips name outlets by their index, and the agent takes that for a number.
            return v2c.OctetString(machine.name if self.model.first else str(name[-1]))
        if name[:-1] in (self.model.state, self.model.control):
            return v2c.Integer(self.model.values[await machine.read("pdu")])
        return None

    def after(self, name: Oid) -> Oid | None:
        """The next place that holds something, in the order in which SNMP walks."""
        rows = [outlet - 1 + self.model.first for outlet in sorted(self.outlets)]
        columns = (self.model.names, self.model.state, self.model.control)
        places: Iterable[Oid] = {SYSTEM_OBJECT_ID, *((*column, row) for column in columns for row in rows)}
        return min((place for place in places if place > name), default=None)

    async def command(self, name: Oid, value: int) -> int:
        """Carry out a SET; the error status, 0 where it was accepted."""
        machine = self.outlets.get(name[-1] - self.model.first + 1)
        if name[:-1] != self.model.control or machine is None:
            return NOT_WRITABLE
        power = next((power for power, number in self.model.values.items() if number == value), None)
        if power is None:
            return WRONG_VALUE
        self.sets.append((name[-1] - self.model.first + 1, power))
        try:
            await machine.set_power(power, "pdu")
            await machine.lose_answer()
        except RefusedError:
            return GENERAL_ERROR
        return 0


async def start_pdu(
    chassis: Chassis, outlets: Mapping[int, str], access: Access, *, model: Literal["apc", "eaton"] = "apc"
) -> Pdu:
    """A power strip on a free loopback port; its outlets feed machines of the chassis by their names."""
    return Pdu({outlet: chassis.machine(name) for outlet, name in outlets.items()}, access, model=model)


class _Transport(udp.UdpAsyncioTransport):
    def __init__(self, pdu: Pdu) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._pdu = pdu

    def datagram_received(self, datagram: bytes, address: Any) -> None:
        if not self._pdu.silent:
            super().datagram_received(datagram, address)


class _Responder(cmdrsp.CommandResponderBase):
    """The library answers at once or never; a machine may need time. So the answer is sent when the machine has it."""

    view = "read"

    def handle_management_operation(self, engine: Any, reference: Any, name: Any, pdu: Any) -> None:  # noqa: ARG002 - theirs
        asked = v2c.apiPDU.get_varbinds(pdu)
        for each in asked:
            if self.verify_access(self.view, each, snmpEngine=engine):
                raise smi_error.NoAccessError
        self.cbCtx.tasks.start(self._answer(engine, reference, asked), name="an answer of a power strip")

    def release_state_information(self, reference: Any) -> None:
        """The library forgets the request when it has been handled; it is needed until it is answered."""

    async def _answer(self, engine: Any, reference: Any, asked: list[Any]) -> None:
        try:
            status, found = await self.answer(self.cbCtx, asked)
        except RefusedError:
            status, found = GENERAL_ERROR, asked
        self.send_varbinds(engine, reference, status, 1 if status else 0, found)
        super().release_state_information(reference)

    async def answer(self, pdu: Pdu, asked: list[Any]) -> tuple[int, list[Any]]:
        raise NotImplementedError


class _Get(_Responder):
    SUPPORTED_PDU_TYPES = cmdrsp.GetCommandResponder.SUPPORTED_PDU_TYPES

    async def answer(self, pdu: Pdu, asked: list[Any]) -> tuple[int, list[Any]]:
        found = [(name, await pdu.value(tuple(name))) for name, _ in asked]
        return 0, [(name, v2c.NoSuchInstance("") if value is None else value) for name, value in found]


class _Next(_Responder):
    SUPPORTED_PDU_TYPES = cmdrsp.NextCommandResponder.SUPPORTED_PDU_TYPES

    async def answer(self, pdu: Pdu, asked: list[Any]) -> tuple[int, list[Any]]:
        found = []
        for name, _ in asked:
            place = pdu.after(tuple(name))
            value = await pdu.value(place) if place is not None else None
            found.append((name, v2c.EndOfMibView("")) if place is None else (v2c.ObjectIdentifier(place), value))
        return 0, found


class _Set(_Responder):
    SUPPORTED_PDU_TYPES = cmdrsp.SetCommandResponder.SUPPORTED_PDU_TYPES
    view = "write"

    async def answer(self, pdu: Pdu, asked: list[Any]) -> tuple[int, list[Any]]:
        for name, value in asked:
            status = await pdu.command(tuple(name), int(value))
            if status:
                return status, asked
        return 0, asked


def _admit(engine: Any, access: Access) -> None:
    everything = (1, 3, 6)
    config.add_v1_system(engine, "area", access.community)
    admit = partial(config.add_vacm_user, engine, readSubTree=everything, writeSubTree=everything)
    for security_model in (1, 2):
        admit(securityModel=security_model, securityName="area", securityLevel="noAuthNoPriv")
    if access.username:
        sha, aes = config.USM_AUTH_HMAC96_SHA, config.USM_PRIV_CFB128_AES
        config.add_v3_user(engine, access.username, sha, access.password, aes, access.privacy_password)
        admit(securityModel=3, securityName=access.username, securityLevel="authPriv")
