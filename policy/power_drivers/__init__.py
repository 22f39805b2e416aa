"""What each power driver is told: its parameters, which of them identify a device, and the one spelling of its endpoint.

Known here so that a plan which no driver could carry out is refused before anything is done, and so that the endpoint that is
pinned is the one its driver compares (S9). The drivers themselves are `activities/power/`; they read the same parameters for
themselves, and a test holds both to the same answers.
"""

from __future__ import annotations

from collections.abc import Mapping

from policy.power_drivers.contract import DriverParameters
from policy.power_drivers.ec2 import EC2
from policy.power_drivers.gce import GCE
from policy.power_drivers.ipmi import IPMI
from policy.power_drivers.redfish import REDFISH

DRIVERS: Mapping[str, DriverParameters] = {
    "ec2": EC2,
    "gce": GCE,
    "ipmi": IPMI,
    "redfish": REDFISH,
}


def parameters_of(driver: str) -> DriverParameters | None:
    """What a driver of that name takes; None where there is none."""
    return DRIVERS.get(driver)


def known_drivers() -> str:
    """The names that a plan may use, for people."""
    return ", ".join(sorted(DRIVERS))
