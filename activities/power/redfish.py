"""Redfish: the driver's side in the worker. The protocol itself is spoken in `redfish_child.py`.

Here: what a Redfish device is told. Its parameters are `policy/power_drivers/redfish.py`, and what may be concluded from how far
the child had come is `staged_child.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from activities.power.driver import Credentials, Deadline
from activities.power.errors import invalid
from activities.power.staged_child import CAPABILITIES, StagedChild, StagedDriver, command_of
from policy.power import PowerCapability
from policy.power_drivers.contract import ParameterError
from policy.power_drivers.redfish import RedfishAddress, redfish_address

CHILD = command_of("redfish_child")

OPERATIONS = StagedChild(
    command=CHILD,
    silences={
        "admitted": "the service described the system but {operation} did not come to its end",
        "reached": "the service was reached but did not answer",
    },
    silence="no connection to the service",
)


@dataclass(frozen=True, slots=True)
class RedfishFactory:
    """Redfish as the registry knows it."""

    def endpoint_of(self, parameters: Mapping[str, str]) -> str:
        """The endpoint to pin."""
        return _address(parameters).endpoint

    def build(self, parameters: Mapping[str, str], credentials: Credentials) -> RedfishDriver:
        """The driver of one system."""
        for what, text in (("username", credentials.username), ("password", credentials.password)):
            if not text:
                raise invalid(f"redfish: the {what} is empty: expected one, since a Redfish service lets nobody in without")
        if ":" in credentials.username:
            raise invalid("redfish: the username holds a colon: expected none, since Basic authentication cannot carry it")
        return RedfishDriver(address=_address(parameters), credentials=credentials)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedfishDriver(StagedDriver):
    """One system of one service, by ComputerSystem.Reset: ForceOff; On, or ForceOn where only that is allowed; Nmi."""

    address: RedfishAddress

    @property
    def endpoint(self) -> str:
        """Address, port and system."""
        return self.address.endpoint

    @property
    def capabilities(self) -> frozenset[PowerCapability]:
        """As of all such drivers, and the event log."""
        return CAPABILITIES | {PowerCapability.EVENT_LOG}

    async def event_log(self, deadline: Deadline) -> str:
        """The logs of the system and of its manager."""
        return str((await self._perform("event-log", deadline))["text"])

    async def _perform(self, operation: str, deadline: Deadline) -> Any:
        address = {
            "scheme": self.address.scheme,
            "host": self.address.host,
            "port": self.address.port,
            "system": self.address.system,
            "verify": self.address.verify,
            "ca_file": self.address.ca_file,
        }
        return await OPERATIONS.perform(self.endpoint, operation, address, self.credentials, deadline)


def _address(parameters: Mapping[str, str]) -> RedfishAddress:
    try:
        return redfish_address(parameters)
    except ParameterError as error:
        raise invalid(f"redfish: parameter {error.parameter!r}: {error.problem}") from None
