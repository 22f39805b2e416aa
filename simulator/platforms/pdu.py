"""Servers without any management of their own, on one switched power strip that speaks SNMP 3 (`snmp/pdu.py`)."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from simulator.platforms.contract import Platform, Surroundings

if TYPE_CHECKING:
    from simulator.snmp.pdu import Pdu

USERNAME = "fencer"


class PowerStrip(Platform):
    """The nodes' outlets are numbered from 1 in the order of the nodes."""

    name = "pdu"
    secret_name = "pdu-credentials"  # noqa: S105 - a Secret's name
    needs = {"pysnmp": "pysnmp"}  # noqa: RUF012 - declared where it is read

    strip: Pdu

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.outlets = {name: number for number, name in enumerate(around.machines, start=1)}
        self.password, self.privacy_password = self.make_up(16), self.make_up(16)

    async def start(self, stack: AsyncExitStack) -> None:
        snmp = await asyncio.to_thread(importlib.import_module, "simulator.snmp.pdu")
        access = snmp.Access(
            community=self.make_up(16),
            username=USERNAME,
            password=self.password,
            privacy_password=self.privacy_password,
        )
        outlets = {outlet: name for name, outlet in self.outlets.items()}
        self.strip = await stack.enter_async_context(await snmp.start_pdu(self._around.chassis, outlets, access))

    def secret(self) -> Mapping[str, str]:
        return {"username": USERNAME, "password": self.password, "snmp_priv_passwd": self.privacy_password}

    def wrong_secret(self) -> Mapping[str, str]:
        return {**self.secret(), "password": self.make_up(16)}

    def facts(self) -> dict[str, Any]:
        return {"address": "127.0.0.1", "port": self.strip.port}

    def facts_of(self, name: str) -> dict[str, Any]:
        return {"outlet": self.outlets[name]}
