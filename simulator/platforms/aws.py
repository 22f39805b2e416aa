"""Instances of a simulated EC2 (`cloud/ec2.py`), one behind each node, in one region with the cluster's zones."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from simulator.disks import DiskBusyError, Disks
from simulator.platforms.contract import CLOUD_SECONDS, DeviceFault, Platform, PlatformError, Surroundings

if TYPE_CHECKING:
    from simulator.cloud.ec2 import Ec2Cloud

REGION, ZONES = "us-east-1", "abcdef"


class Aws(Platform):
    """A machine follows its instance. Not the other way round: one that loses power goes on as `running`, as EC2 has it."""

    name = "aws"
    secret_name = "aws-credentials"  # noqa: S105 - a Secret's name
    needs = {"moto": "moto[ec2,server]"}  # noqa: RUF012 - declared where it is read
    faults = frozenset({DeviceFault.IGNORES_OFF, DeviceFault.LOSES_ANSWERS})
    grows = True

    cloud: Ec2Cloud

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        self.instances: dict[str, str] = {}

    @classmethod
    def zone(cls, letter: str) -> str:
        if letter not in ZONES:
            raise PlatformError(f"{REGION} has {len(ZONES)} zones: expected no more, got one called {letter!r}")
        return f"{REGION}{letter}"

    async def start(self, stack: AsyncExitStack) -> None:
        # boto3 takes a while to load, in which others want to be heard.
        ec2 = await asyncio.to_thread(importlib.import_module, "simulator.cloud.ec2")
        moto = await stack.enter_async_context(ec2.MotoServer())
        self.cloud = await stack.enter_async_context(ec2.Ec2Cloud(moto.url, region=REGION))
        self.cloud.secret_access_key = self.make_up(40)
        self.cloud.set_faults(settle=CLOUD_SECONDS)
        for name in self._around.machines:
            await self.add(name)

    async def add(self, name: str) -> None:
        machine, zone = self._around.chassis.machine(name), self._around.machines[name].zone
        self.instances[name] = await self.cloud.launch(name, machine=machine, zone=zone[-1])

    async def remove(self, name: str) -> None:
        self.cloud.set_state(self.instances[name], "terminated")

    def secret(self) -> Mapping[str, str]:
        return {"access-key-id": self.cloud.access_key_id, "secret-access-key": self.cloud.secret_access_key}

    def wrong_secret(self) -> Mapping[str, str]:
        return {"access-key-id": self.cloud.access_key_id, "secret-access-key": self.make_up(40)}

    def facts(self) -> dict[str, Any]:
        return {"region": REGION, "endpointUrl": self.cloud.url}

    def facts_of(self, name: str) -> dict[str, Any]:
        return {"instance": self.instances[name]}

    def disks(self) -> Disks:
        return EbsVolumes(self)

    def provider_id(self, name: str) -> str:
        return self.cloud.provider_id(self.instances[name])


class EbsVolumes(Disks):
    """An EBS volume behind each PersistentVolume."""

    def __init__(self, platform: Aws) -> None:
        super().__init__()
        self._platform = platform
        platform.cloud.on_detached(self._has_left)

    async def create(self, volume: str, *, node: str) -> str:  # noqa: ARG002 - it has a name of its own
        return await self._platform.cloud.make_volume(self._platform.instances[node])

    async def attach(self, disk: str, node: str) -> None:
        if not await self._platform.cloud.attach(disk, self._platform.instances[node]):
            raise DiskBusyError(f"{disk} is attached to another instance")

    async def detach(self, disk: str, node: str) -> None:
        await self._platform.cloud.detach(disk, self._platform.instances[node])

    def _has_left(self, disk: str, instance: str) -> None:
        for name, known in self._platform.instances.items():
            if known == instance:
                self.gone(disk, name)
