"""Servers in a chassis with one manager that speaks Redfish for all of them (`redfish/service.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

from simulator.platforms.contract import MACHINE_FAULTS, Platform, Surroundings
from simulator.redfish.service import RedfishService, start_redfish


class Redfish(Platform):
    """One service, so that none of its machines can be without network while the others have one."""

    name = "redfish"
    secret_name = "redfish-credentials"  # noqa: S105 - a Secret's name
    needs = {"sushy_tools": "sushy-tools"}  # noqa: RUF012 - declared where it is read
    faults = frozenset(MACHINE_FAULTS)

    service: RedfishService

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.username = "admin"
        self.password = self.make_up(16)

    async def start(self, stack: AsyncExitStack) -> None:
        machines = self._around.machines
        self.service = await start_redfish(
            self._around.chassis.url,
            list(machines),
            self.username,
            self.password,
            state_dir=self._around.state_dir,
            system_uuids={name: UUID(identity.system_uuid) for name, identity in machines.items()},
        )
        stack.push_async_callback(self.service.stop)

    def secret(self) -> Mapping[str, str]:
        return {"username": self.username, "password": self.password}

    def wrong_secret(self) -> Mapping[str, str]:
        return {"username": self.username, "password": self.make_up(16)}

    def facts(self) -> dict[str, Any]:
        return {"address": self.service.address, "port": self.service.port, "authority": str(self.service.authority)}

    def facts_of(self, name: str) -> dict[str, Any]:
        return {"system": self.service.system(name)}
