"""IPMI over the network: the driver's side in the worker. The protocol itself is spoken in `child.py`.

Here: what an IPMI device is told. Its parameters are `policy/fence/drivers/ipmi.py`, and what may be concluded from how far the
child had come is `processes/staged_child.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from activities.power.driver import DeviceCredentials
from activities.power.errors import invalid, parameters_of
from activities.power.processes.fork_server import ForkServer
from activities.power.processes.staged_child import StagedChild, StagedDriver
from policy.fence.drivers.ipmi import IpmiAddress, ipmi_address
from policy.objects.machines import same_system

SERVER = ForkServer("ipmi.child")

# Limits of the protocol itself: a BMC would cut or refuse longer ones, and say only "wrong password".
USERNAME_BYTES, PASSWORD_BYTES = 16, 20

MOST_GUIDS = 10_000

_guids: dict[str, dict[str, str]] = {}
"""By endpoint, the GUID that a BMC's login tells and what it means: asked for once for each device and process."""


@dataclass(frozen=True, slots=True)
class IpmiFactory:
    """IPMI as the registry knows it."""

    def endpoint_of(self, parameters: Mapping[str, str]) -> str:
        """The endpoint to pin."""
        return _address(parameters).endpoint

    def build(self, parameters: Mapping[str, str], credentials: DeviceCredentials) -> IpmiDriver:
        """The driver of one BMC."""
        for what, text, limit in (
            ("username", credentials.username, USERNAME_BYTES),
            ("password", credentials.password, PASSWORD_BYTES),
        ):
            if not 0 < len(text.encode()) <= limit:
                raise invalid(f"ipmi: the {what} has {len(text.encode())} bytes: expected 1 to {limit}")
        return IpmiDriver(address=_address(parameters), credentials=credentials)


@dataclass(frozen=True, slots=True, kw_only=True)
class IpmiDriver(StagedDriver):
    """One BMC, by chassis control: power down, power up, diagnostic interrupt; identity from GUID, device id and inventory."""

    operations: ClassVar = StagedChild(
        server=SERVER,
        silences={
            "logged-in": "the login succeeded but {operation} was not answered",
            "reached": "the BMC answered but the login did not come to its end",
        },
        silence="no answer from the BMC",
    )

    def _known(self) -> Mapping[str, Any]:
        return {"known": _guids.get(self.endpoint, {})}

    def _learn(self, answer: Mapping[str, Any]) -> None:
        """Only of a BMC whose login tells the system's GUID: then the login is enough to see that it is the same machine's."""
        login, told = answer["login_guid"], answer["system_uuid"]
        if login and told and same_system(login, told):
            if len(_guids) >= MOST_GUIDS:
                _guids.clear()
            _guids[self.endpoint] = {"login_guid": login, "system_uuid": told}
        else:
            _guids.pop(self.endpoint, None)


def _address(parameters: Mapping[str, str]) -> IpmiAddress:
    with parameters_of("ipmi"):
        return ipmi_address(parameters)
