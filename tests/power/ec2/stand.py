"""A cloud of moto's with EC2's rules before it, and drivers for its instances."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from activities.power.driver import DeviceCredentials
from activities.power.ec2 import Ec2Driver, Ec2Factory
from simulator.bmc.machine import Machine
from simulator.cloud.ec2 import Ec2Cloud

TOKEN = "t0ken-that-nobody/may+see=="


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Stand:
    """An instance and its machine."""

    ec2: Ec2Cloud
    instance: str
    machine: Machine
    keys: tuple[str, str, str]

    def driver(
        self, *, key: str | None = None, secret: str | None = None, token: str | None = None, **parameters: str
    ) -> Ec2Driver:
        chosen = {"region": self.ec2.region, "instance": self.instance, "endpoint-url": self.ec2.url}
        chosen |= {name.replace("_", "-"): value for name, value in parameters.items()}
        values = {
            "access-key-id": key or self.keys[0],
            "secret-access-key": secret or self.keys[1],
            "session-token": token or self.keys[2],
        }
        return Ec2Factory().build(chosen, DeviceCredentials(values=values))

    def sent(self, action: str) -> int:
        """How many requests of that kind have reached the cloud."""
        return len(self.ec2.requests(action))


@asynccontextmanager
async def stand_in(ec2: Ec2Cloud) -> AsyncIterator[Ec2Stand]:
    """A new instance in a cloud that other tests have used and left well."""
    ec2.log.clear()
    ec2.session_token = TOKEN
    machine = Machine("node-1")
    instance = await ec2.launch(machine.name, machine=machine)
    try:
        yield Ec2Stand(
            ec2=ec2, instance=instance, machine=machine, keys=(ec2.access_key_id, ec2.secret_access_key, ec2.session_token)
        )
    finally:
        ec2.set_faults()
