"""IPMI over the network: `ip`, and as one likes `ipport`, `cipher` and `privilege`."""

from __future__ import annotations

from collections.abc import Mapping

from policy.power_drivers.contract import DriverParameters, authority, host_of, port_of

PORT = 623


def _endpoint(parameters: Mapping[str, str]) -> str:
    return f"ipmi://{authority(host_of(parameters, 'ip', what='BMC'), port_of(parameters, 'ipport', PORT))}"


IPMI = DriverParameters(
    names=("ip", "ipport", "cipher", "privilege"),
    identifying=frozenset({"ip", "ipport"}),
    secret=frozenset({"username", "password"}),
    needed=frozenset({"username", "password"}),
    endpoint=_endpoint,
)
