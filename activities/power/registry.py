"""Which driver serves a device. The one place that knows all of them; each is imported only when it is first needed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from activities.errors import ErrorType
from activities.power.driver import DeviceCredentials, DriverFactory, PowerDriver, PowerError, invalid
from policy.fence.drivers import DRIVER_PARAMETERS, problem_of_credential
from policy.fence.drivers.fence_agents import agent_name
from policy.fence.plan import PowerDevice

LIBRARIES: Mapping[str, str] = {"ec2": "activities.power.ec2", "gce": "activities.power.gce.client"}
"""Of the drivers that have their client library in the worker itself: the module that loads it."""


def load(name: str) -> None:
    """Have the client library of a driver imported, where it has one. Takes a noticeable time."""
    if name in LIBRARIES:
        import_module(LIBRARIES[name])


def driver_for(
    device: PowerDevice,
    credentials: DeviceCredentials,
    *,
    further_agents: frozenset[str] = frozenset(),
    cloud_endpoints: frozenset[str] = frozenset(),
) -> PowerDriver:
    """The driver for a device of a plan. Refuses one that by its parameters is not the pinned endpoint any more (S9).

    further_agents: fence agents that this worker takes besides the published ones. cloud_endpoints: APIs beside the clouds' own
    that are given the worker's own cloud identity (S40).
    """
    factory = factory_of(device.driver, further_agents, cloud_endpoints)
    endpoint = factory.endpoint_of(device.parameters)
    if endpoint != device.endpoint:
        message = f"{device.endpoint}: the device's parameters lead to {endpoint}, not to the pinned endpoint"
        raise PowerError(ErrorType.TARGET_CHANGED, message)
    for name, value in credentials.values.items():
        if (problem := problem_of_credential(device.driver, name, value)) is not None:
            raise invalid(f"{endpoint}: credential {name!r}: {problem}")
    return factory.build(device.parameters, credentials)


def factory_of(
    name: str, further_agents: frozenset[str] = frozenset(), cloud_endpoints: frozenset[str] = frozenset()
) -> DriverFactory:
    """How devices of a driver are made, also of any fence agent that may be used. Raises PowerError."""
    match name:
        case "ec2":
            from activities.power.ec2 import Ec2Factory

            return Ec2Factory(trusted=cloud_endpoints)
        case "gce":
            from activities.power.gce.driver import GceFactory

            return GceFactory(trusted=cloud_endpoints)
        case "ipmi":
            from activities.power.bmc.drivers import IpmiFactory

            return IpmiFactory()
        case "redfish":
            from activities.power.bmc.drivers import RedfishFactory

            return RedfishFactory()
    if (agent := agent_name(name)) is None:
        expected = f"expected one of {', '.join(sorted(DRIVER_PARAMETERS))} or a fence agent's name"
        raise invalid(f"power driver {name!r} is not known: {expected}")
    from activities.power.fence_agent import FenceAgentFactory

    return FenceAgentFactory(agent=agent, further=further_agents)
