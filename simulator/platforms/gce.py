"""Instances of a simulated Compute Engine (`cloud/gce.py`), one behind each node and of its name."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from simulator.cloud.gce import GceEndpoint
from simulator.cloud.gce_state import Instance
from simulator.platforms.contract import CLOUD_SECONDS, DeviceFault, Platform, Surroundings

PROJECT, REGION = "nodewarden-simulation", "us-central1"
ACCOUNT, STRANGER = (f"{name}@{PROJECT}.iam.gserviceaccount.com" for name in ("fencer", "somebody-else"))


class Gce(Platform):
    """A machine and its instance follow each other."""

    name = "gce"
    secret_name = "gce-credentials"  # noqa: S105 - a Secret's name
    faults = frozenset({DeviceFault.IGNORES_OFF, DeviceFault.LOSES_ANSWERS})
    grows = True

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.cloud = GceEndpoint()
        self.cloud.tokens.mark = around.secret_mark
        self.instances: dict[str, Instance] = {}

    @classmethod
    def zone(cls, letter: str) -> str:
        return f"{REGION}-{letter}"

    async def start(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.cloud)
        self.cloud.compute.seconds = CLOUD_SECONDS
        for name in self._around.machines:
            await self.add(name)

    async def add(self, name: str) -> None:
        machine, zone = self._around.chassis.machine(name), self._around.machines[name].zone
        self.instances[name] = self.cloud.add_instance(PROJECT, zone, name, machine)

    async def remove(self, name: str) -> None:
        self.cloud.compute.remove_instance(self.instances[name])

    def secret(self) -> Mapping[str, str]:
        return {"service-account-json": self.cloud.service_account(ACCOUNT)}

    def wrong_secret(self) -> Mapping[str, str]:
        return {"service-account-json": self.cloud.service_account(ACCOUNT, signed_by=STRANGER)}

    def facts(self) -> dict[str, Any]:
        return {"project": PROJECT, "apiEndpoint": self.cloud.url}

    def facts_of(self, name: str) -> dict[str, Any]:
        return {"instance": name}

    def provider_id(self, name: str) -> str:
        return f"gce://{PROJECT}/{self._around.machines[name].zone}/{name}"
