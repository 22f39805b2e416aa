"""IPMI over the network: the driver's side in the worker. The protocol itself is spoken in `ipmi_child.py`.

Here: which parameters an IPMI device has. What may be concluded from how far the child had come is `staged_child.py`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from activities.power.driver import Credentials, Deadline
from activities.power.errors import invalid
from activities.power.staged_child import StagedChild, StagedDriver, command_of

CHILD = command_of("ipmi_child")

OPERATIONS = StagedChild(
    command=CHILD,
    silences={
        "logged-in": "the login succeeded but {operation} was not answered",
        "reached": "the BMC answered but the login did not come to its end",
    },
    silence="no answer from the BMC",
)

DEFAULT_PORT = 623
CIPHERS = {"3": 3, "17": 17}
PRIVILEGES = {"operator": 3, "administrator": 4}
PARAMETERS = ("ip", "ipport", "cipher", "privilege")
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")

# Limits of the protocol itself: a BMC would cut or refuse longer ones, and say only "wrong password".
USERNAME_BYTES, PASSWORD_BYTES = 16, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class IpmiAddress:
    """Where a BMC listens and how to log in there. cipher, privilege: None lets the BMC have its best offer."""

    host: str
    port: int = DEFAULT_PORT
    cipher: int | None = None
    privilege: int | None = None

    @property
    def endpoint(self) -> str:
        """The BMC, in the one spelling used for pinning."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"ipmi://{host}:{self.port}"

    @classmethod
    def parse(cls, parameters: Mapping[str, str]) -> IpmiAddress:
        """From the parameters of a device: `ip`, and as one likes `ipport`, `cipher` (3, 17) and `privilege`."""
        for name in parameters:
            if name not in PARAMETERS:
                raise invalid(f"ipmi: parameter {name!r} is not known: expected {', '.join(PARAMETERS)}")
        port = parameters.get("ipport", str(DEFAULT_PORT))
        if re.fullmatch(r"[0-9]{1,5}", port) is None or not 0 < int(port) < 65536:
            raise invalid(f"ipmi: parameter 'ipport' is {port!r}: expected a number from 1 to 65535")
        return cls(
            host=_host(parameters.get("ip")),
            port=int(port),
            cipher=_choice("cipher", parameters, CIPHERS),
            privilege=_choice("privilege", parameters, PRIVILEGES),
        )


@dataclass(frozen=True, slots=True)
class IpmiFactory:
    """IPMI as the registry knows it."""

    def endpoint_of(self, parameters: Mapping[str, str]) -> str:
        """The endpoint to pin."""
        return IpmiAddress.parse(parameters).endpoint

    def build(self, parameters: Mapping[str, str], credentials: Credentials) -> IpmiDriver:
        """The driver of one BMC."""
        for what, text, limit in (
            ("username", credentials.username, USERNAME_BYTES),
            ("password", credentials.password, PASSWORD_BYTES),
        ):
            if not 0 < len(text.encode()) <= limit:
                raise invalid(f"ipmi: the {what} has {len(text.encode())} bytes: expected 1 to {limit}")
        return IpmiDriver(address=IpmiAddress.parse(parameters), credentials=credentials)


@dataclass(frozen=True, slots=True, kw_only=True)
class IpmiDriver(StagedDriver):
    """One BMC, by chassis control: power down, power up, diagnostic interrupt; identity from GUID, device id and inventory."""

    address: IpmiAddress

    @property
    def endpoint(self) -> str:
        """Address and port of the BMC."""
        return self.address.endpoint

    async def _perform(self, operation: str, deadline: Deadline) -> Any:
        address = {
            "host": self.address.host,
            "port": self.address.port,
            "cipher": self.address.cipher,
            "privilege": self.address.privilege,
        }
        return await OPERATIONS.perform(self.endpoint, operation, address, self.credentials, deadline)


def _host(value: str | None) -> str:
    if not value:
        raise invalid("ipmi: parameter 'ip' is missing: expected the address or name of the BMC")
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        if HOST.fullmatch(value) is None:
            raise invalid(f"ipmi: parameter 'ip' is {value!r}: expected an IP address or a host name") from None
        return value.lower()


def _choice(name: str, parameters: Mapping[str, str], choices: Mapping[str, int]) -> int | None:
    value = parameters.get(name)
    if value is None:
        return None
    if value not in choices:
        raise invalid(f"ipmi: parameter {name!r} is {value!r}: expected {' or '.join(choices)}")
    return choices[value]
