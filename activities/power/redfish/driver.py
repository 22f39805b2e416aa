"""Redfish: the driver's side in the worker. The protocol itself is spoken in `child.py`.

Here: what a Redfish device is told. Its parameters are `policy/fence/drivers/redfish.py`, and what may be concluded from how far
the child had come is `processes/staged_child.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from activities.power.driver import DeviceCredentials
from activities.power.errors import invalid, parameters_of
from activities.power.processes.fork_server import ForkServer
from activities.power.processes.staged_child import StagedChild, StagedDriver
from policy.fence.drivers.redfish import RedfishAddress, redfish_address

SERVER = ForkServer("redfish.child")


@dataclass(frozen=True, slots=True)
class RedfishFactory:
    """Redfish as the registry knows it."""

    def endpoint_of(self, parameters: Mapping[str, str]) -> str:
        """The endpoint to pin."""
        return _address(parameters).endpoint

    def build(self, parameters: Mapping[str, str], credentials: DeviceCredentials) -> RedfishDriver:
        """The driver of one system."""
        for what, text in (("username", credentials.username), ("password", credentials.password)):
            if not text:
                raise invalid(f"redfish: the {what} is empty: expected one, since a Redfish service refuses a login without it")
        if ":" in credentials.username:
            raise invalid("redfish: the username holds a colon: expected none, since Basic authentication cannot carry it")
        return RedfishDriver(address=_address(parameters), credentials=credentials)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedfishDriver(StagedDriver):
    """One system of one service, by ComputerSystem.Reset: ForceOff; On, or ForceOn where only that is allowed."""

    operations: ClassVar = StagedChild(
        server=SERVER,
        silences={
            "admitted": "the service described the system but {operation} did not come to its end",
            "reached": "the service was reached but did not answer",
        },
        silence="no connection to the service",
    )


def _address(parameters: Mapping[str, str]) -> RedfishAddress:
    with parameters_of("redfish"):
        return redfish_address(parameters)
