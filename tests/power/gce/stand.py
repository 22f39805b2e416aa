"""A simulated Compute Engine with one instance, and drivers for it by the plan's own way."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache

from activities.power.driver import CloudDriver, DeviceCredentials
from activities.power.gce.driver import GceDriver
from activities.power.registry import driver_for
from policy.fence.plan import PowerDevice
from simulator.cloud.gce import GceEndpoint
from simulator.cloud.gce_state import Instance
from tests.power.targets import endpoint_of

PROJECT, ZONE, NAME = "a-project", "europe-west1-b", "node-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class GceStand:
    """The cloud and the instance in it."""

    cloud: GceEndpoint
    instance: Instance
    key: str

    def driver(self, *, key: str | None = None, **parameters: str) -> GceDriver:
        """The driver, for other parameters than the instance's where given; key "": without a service account."""
        chosen = {"project": PROJECT, "zone": ZONE, "instance": NAME, "api-endpoint": self.cloud.url}
        chosen |= {name.replace("_", "-"): value for name, value in parameters.items()}
        device = PowerDevice(driver="gce", endpoint=endpoint_of("gce", chosen), parameters=chosen)
        found = driver_for(device, DeviceCredentials(values={"service-account-json": self.key if key is None else key}))
        assert isinstance(found, GceDriver)
        cloud_driver: CloudDriver = found  # it has all that this asks for
        assert cloud_driver is found
        return found


@cache
def load_client() -> None:
    """The client library takes seconds to load: a matter of the first act of a worker, and not of each test's time-outs."""
    import activities.power.gce.client  # noqa: F401


@asynccontextmanager
async def gce_stand(*, anonymous: bool = False, tls: ssl.SSLContext | None = None) -> AsyncIterator[GceStand]:
    """anonymous: the cloud wants no token, and the driver has no key."""
    await asyncio.to_thread(load_client)
    async with GceEndpoint(anonymous=anonymous, tls=tls) as cloud:
        instance, key = cloud.add_instance(PROJECT, ZONE, NAME), "" if anonymous else cloud.service_account()
        yield GceStand(cloud=cloud, instance=instance, key=key)
