"""What each power driver is told: its parameters, which of them identify a device, and the one spelling of its endpoint.

Known here so that a plan which no driver could carry out is refused before anything is done, and so that the endpoint that is
pinned is the one its driver compares (S9). The drivers themselves are `activities/power/`; they are given what is read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from policy.fence.drivers import fence_agents
from policy.fence.drivers.contract import DriverParameters
from policy.fence.drivers.ec2 import EC2
from policy.fence.drivers.fence_agents import SINGLE_MACHINE_AGENTS
from policy.fence.drivers.gce import GCE
from policy.fence.drivers.ipmi import IPMI
from policy.fence.drivers.redfish import REDFISH

DRIVER_PARAMETERS: Mapping[str, DriverParameters] = {
    "ec2": EC2,
    "gce": GCE,
    "ipmi": IPMI,
    "redfish": REDFISH,
}
"""Those with a name of their own; every agent of the fence-agents package is one more, under its name."""


def canonical(driver: str) -> str:
    """The one spelling of a driver's name: agents are written with dashes, too."""
    return fence_agents.canonical(driver) or driver


def parameters_of(driver: str) -> DriverParameters | None:
    """What a driver of that name takes; None where there is none."""
    return DRIVER_PARAMETERS.get(driver) or fence_agents.parameters_of(driver)


@lru_cache(maxsize=20_000)
def device_behind(endpoint: str) -> str:
    """The device that an endpoint leads to, whichever driver is told of it: a BMC by its address, and by the system of a service
    that has several; an outlet or a guest by the address and its plug. Each protocol has its usual port: only another one tells
    devices apart."""
    driver, _, where = endpoint.partition("://")
    address, _, query = where.partition("?")
    host, _, plug = address.partition("/")
    bare, _, port = host.rpartition(":")
    host = bare if port in fence_agents.USUAL_PORTS else host
    places = {name: value for name, _, value in (each.partition("=") for each in query.split("&")) if name}
    if driver in {"ipmi", "redfish"} | SINGLE_MACHINE_AGENTS or (driver == "fence_drac5" and not plug):
        system = (plug or places.pop("systems_uri", "").replace("%2F", "/")).strip("/")
        rest = "".join(f"?{name}={value}" for name, value in places.items())
        return f"bmc://{host}{rest}{'/' if system else ''}{system}"
    if driver == "fence_gce":
        return f"gce://{places.get('project', '')}/{places.get('zone', '')}/{plug}"
    if driver == "fence_azure_arm":
        return endpoint.casefold()  # to Azure names are the same in any case
    number, *rest = where.partition("/")[2].partition("?")  # 03 is outlet 3
    parts = (each.lstrip("0") or "0" if each.isdecimal() else each for each in number.split(":"))
    outlet = "".join((":".join(parts), *rest))
    return f"plug://{host}/{outlet}" if driver.startswith("fence_") and host else endpoint


def bmc_of(behind: str) -> str:
    """Of a system behind a BMC the BMC, which is the device of all of them; any other device itself."""
    return "/".join(behind.split("/")[:3]) if behind.startswith("bmc://") else behind


def same_device(one: str, other: str) -> bool:
    """Whether two endpoints lead to one device. A BMC without a system named is the same as each of its systems."""
    behind, theirs = device_behind(one), device_behind(other)
    return behind in {theirs, bmc_of(theirs)} or bmc_of(behind) == theirs


def known_drivers() -> str:
    """The names that a plan may use, for people."""
    return ", ".join(sorted(DRIVER_PARAMETERS))


def unknown(driver: str) -> str:
    """Why a plan may not use this name, for people."""
    reason = fence_agents.refusal(driver)
    if reason is not None:
        return f"{driver} can't be used: {reason}"
    return f"expected one of {known_drivers()}, got {driver!r}; or an agent of fence-agents by its name, such as fence_apc_snmp"
