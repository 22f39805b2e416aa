"""IPMI over the network: `ip`, and optionally `ipport`, `cipher` (3, 17), `privilege` (operator, administrator) and
`check-system`.

It is IPMI 2.0 with a cipher suite that encrypts and checks: 17 if the BMC accepts it, else 3, and no other. IPMI 1.5 and suites
below 3 are never used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from policy.fence.drivers.contract import DriverParameters, ParameterError, answer_of, authority, host_of, port_of

NAMES = ("ip", "ipport", "cipher", "privilege", "check-system")
PORT = 623
CIPHERS = {"3": 3, "17": 17}
PRIVILEGES = {"operator": 3, "administrator": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class IpmiAddress:
    """Where a BMC listens and how to log in there. cipher, privilege: None takes the BMC's best offer.

    check_system: whether the GUID that the BMC reports must be the Node's system UUID.
    """

    host: str
    port: int = PORT
    cipher: int | None = None
    privilege: int | None = None
    check_system: bool = True

    @property
    def endpoint(self) -> str:
        """The BMC, in the one spelling used for pinning."""
        return f"ipmi://{authority(self.host, self.port)}"


def ipmi_address(parameters: Mapping[str, str]) -> IpmiAddress:
    """From the parameters of a device. Raises ParameterError."""
    for name in parameters:
        if name not in NAMES:
            raise ParameterError(name, f"is not known: expected one of {', '.join(NAMES)}")
    return IpmiAddress(
        host=host_of(parameters, "ip", what="BMC"),
        port=port_of(parameters, "ipport", PORT),
        cipher=_choice("cipher", parameters, CIPHERS),
        privilege=_choice("privilege", parameters, PRIVILEGES),
        check_system=answer_of(parameters, "check-system", default="true"),
    )


def _choice(name: str, parameters: Mapping[str, str], choices: Mapping[str, int]) -> int | None:
    value = parameters.get(name)
    if value is None:
        return None
    if value not in choices:
        raise ParameterError(name, f"expected {' or '.join(choices)}, got {value!r}")
    return choices[value]


IPMI = DriverParameters(
    names=NAMES,
    identifying=frozenset({"ip", "ipport"}),
    secret=frozenset({"username", "password"}),
    needed=frozenset({"username", "password"}),
    endpoint=lambda parameters: ipmi_address(parameters).endpoint,
)
