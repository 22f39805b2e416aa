"""The rules of each power driver that need no device: its parameters, which of them identify a device, the form of its
credentials, and the one spelling of its endpoint.

They are here so that a plan which no driver could carry out is refused before anything is done, and so that an episode pins the
endpoint that its driver compares (S9). The drivers themselves are `activities/power/`; they get the values that are read here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import Generic, TypeVar

from policy.fence.drivers import fence_agents
from policy.fence.drivers.agent_parameters import canonical_name, problem_of
from policy.fence.drivers.bmc import IPMI, REDFISH
from policy.fence.drivers.contract import DriverParameters
from policy.fence.drivers.ec2 import ACCESS_KEY, EC2, SECRET_KEY, SESSION_TOKEN
from policy.fence.drivers.fence_agents import SINGLE_MACHINE_AGENTS
from policy.fence.drivers.gce import GCE

DRIVER_PARAMETERS: Mapping[str, DriverParameters] = {
    "ec2": EC2,
    "gce": GCE,
    "ipmi": IPMI,
    "redfish": REDFISH,
}
"""The native drivers; every agent of the fence-agents package is one more, under its own name."""


def canonical_driver(driver: str) -> str:
    """The one spelling of a driver's name: agents may be written with dashes."""
    return fence_agents.agent_name(driver) or driver


def parameters_of(driver: str) -> DriverParameters | None:
    """The parameters of the driver of that name, None if there is no such driver."""
    return DRIVER_PARAMETERS.get(driver) or fence_agents.parameters_of(driver)


def unknown_driver(driver: str) -> str:
    """Why a plan may not use this driver name, for people."""
    reason = fence_agents.refusal(driver)
    if reason is not None:
        return f"{driver} can't be used: {reason}"
    known = ", ".join(sorted(DRIVER_PARAMETERS))
    return f"expected one of {known}, got {driver!r}; or an agent of fence-agents by its name, such as fence_apc_snmp"


# One device, reached by any driver.


@lru_cache(maxsize=20_000)
def device_behind(endpoint: str) -> str:
    """The device of an endpoint, without its driver: a BMC by its address, and by the system of a service that has several; an
    outlet or a guest by its address and plug. A port distinguishes devices only if it is not the protocol's usual one."""
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
        return endpoint.casefold()  # Azure's names are the same in any case
    number, *rest = where.partition("/")[2].partition("?")  # 03 is outlet 3
    parts = (each.lstrip("0") or "0" if each.isdecimal() else each for each in number.split(":"))
    outlet = "".join((":".join(parts), *rest))
    return f"plug://{host}/{outlet}" if driver.startswith("fence_") and host else endpoint


def bmc_of(behind: str) -> str:
    """The BMC of a system: it is the device of all its systems. For any other device the device itself."""
    return "/".join(behind.split("/")[:3]) if behind.startswith("bmc://") else behind


def same_device(one: str, other: str) -> bool:
    """Whether two endpoints lead to one device. A BMC without a named system is the same as each of its systems."""
    behind, theirs = device_behind(one), device_behind(other)
    return behind in {theirs, bmc_of(theirs)} or bmc_of(behind) == theirs


Owner = TypeVar("Owner")


class DeviceIndex(Generic[Owner]):
    """What has which device, by any endpoint that leads to it: what `same_device` says of each, without asking it of all."""

    def __init__(self) -> None:
        # The key is the device; the systems of a BMC are also under the BMC with a slash behind it.
        self._known: defaultdict[str, dict[Owner, int]] = defaultdict(dict)
        self._count = 0

    def add(self, owner: Owner, endpoint: str) -> None:
        behind = device_behind(endpoint)
        bmc = bmc_of(behind)
        self._count += 1
        for key in {behind, behind if bmc == behind else f"{bmc}/"}:
            self._known[key].setdefault(owner, self._count)

    def having(self, endpoint: str) -> list[Owner]:
        behind = device_behind(endpoint)
        bmc = bmc_of(behind)
        found = {**self._known.get(behind, {}), **self._known.get(bmc if bmc != behind else f"{bmc}/", {})}
        return sorted(found, key=found.__getitem__)


# The valid form of a credential, for each driver (S41). A value in a ConfigMap is checked when the ConfigMap is read; the worker
# checks every value at the moment of use, and only the worker reads Secrets, files and variables.

_LINE = re.compile(r"[^\x00-\x1f\x7f]*")
# EC2's credentials go into the headers of requests.
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{0,128}")
_PRINTED = re.compile(r"[!-~]*")
_GRAMMAR = {
    ("ec2", ACCESS_KEY): (_KEY_ID, "an access key's id of letters and digits"),
    ("ec2", SECRET_KEY): (_PRINTED, "printed characters without blanks"),
    ("ec2", SESSION_TOKEN): (_PRINTED, "printed characters without blanks"),
    # Neither protocol has arguments: IPMI sends them as bytes, Redfish in base64. So a dash in front means nothing there.
    ("ipmi", "username"): (_LINE, "a single line without control characters"),
    ("ipmi", "password"): (_LINE, "a single line without control characters"),
    ("redfish", "username"): (_LINE, "a single line without control characters"),
    ("redfish", "password"): (_LINE, "a single line without control characters"),
}


def problem_of_credential(driver: str, name: str, value: str) -> str | None:
    """Why the driver can't be given this credential, None if it can; never with the value (S12). The driver for Google checks its
    keys itself."""
    if (agent := fence_agents.agent_name(driver)) is not None:
        return problem_of(agent, canonical_name(name), value, published=agent in fence_agents.PUBLISHED)
    grammar = _GRAMMAR.get((driver, name))
    if grammar is None or grammar[0].fullmatch(value) is not None:
        return None
    return f"expected {grammar[1]}"
