"""What each power driver is told: its parameters, which of them identify a device, and the one spelling of its endpoint.

Known here so that a plan which no driver could carry out is refused before anything is done, and so that the endpoint that is
pinned is the one its driver compares (S9). The drivers themselves are `activities/power/`; they read the same parameters for
themselves, and a test holds both to the same answers.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

IPMI_PORT = 623

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_PORT = re.compile(r"[0-9]{1,5}")


class ParameterError(ValueError):
    """A parameter that its driver could not use: which one, and what was expected."""

    def __init__(self, parameter: str, problem: str) -> None:
        super().__init__(f"{parameter}: {problem}")
        self.parameter = parameter
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverParameters:
    """One driver's. `identifying`: those that tell one node's device from another's. `login`: it needs user and password."""

    names: tuple[str, ...]
    identifying: frozenset[str]
    login: bool
    endpoint: Callable[[Mapping[str, str]], str]
    """The device in its one spelling. Raises ParameterError."""


def _ipmi_endpoint(parameters: Mapping[str, str]) -> str:
    host = _host(parameters.get("ip", ""))
    port = parameters.get("ipport", str(IPMI_PORT))
    if _PORT.fullmatch(port) is None or not 0 < int(port) < 65536:
        raise ParameterError("ipport", f"expected a number from 1 to 65535, got {port!r}")
    return f"ipmi://{f'[{host}]' if ':' in host else host}:{int(port)}"


def _host(value: str) -> str:
    if not value:
        raise ParameterError("ip", "expected the address or name of the BMC, got nothing")
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        if _HOST.fullmatch(value) is None:
            raise ParameterError("ip", f"expected an IP address or a host name, got {value!r}") from None
        return value.lower()


DRIVERS: Mapping[str, DriverParameters] = {
    "ipmi": DriverParameters(
        names=("ip", "ipport", "cipher", "privilege"),
        identifying=frozenset({"ip", "ipport"}),
        login=True,
        endpoint=_ipmi_endpoint,
    )
}

KNOWN_DRIVERS = frozenset(DRIVERS)
"""All that a plan may name."""
