"""The drivers of BMCs, IPMI and Redfish: what their parameters are, and the address that comes of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from policy.fence.drivers.contract import DriverParameters, ParameterError, answer_of, authority, host_of, port_of
from policy.values.errors import shown

# IPMI over the network: `ip`, and optionally `ipport`, `cipher` (3, 17), `privilege` (operator, administrator) and
# `check-system`.
#
# It is IPMI 2.0 with a cipher suite that encrypts and checks: 17 if the BMC accepts it, else 3, and no other. IPMI 1.5 and suites
# below 3 are never used.

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


# Redfish over HTTPS: `ip`, and optionally `ipport`, `system`, `scheme`, `ssl-insecure`, `ca-file`, `tls-fingerprint` and
# `check-system`.
#
# `system` is the path or the id of one machine of the service (`1` is `/redfish/v1/Systems/1`); without it the service must have
# only one. Certificates are verified unless `ssl-insecure` is set, and plain HTTP is used only if `scheme` is `http`: anyone on
# the network path could read the password and switch machines off. `tls-fingerprint` is for certificates that no authority has
# signed: the SHA-256 of the expected one (or of several, with commas between them, so that the next one can be named before it is
# installed).

REDFISH_NAMES = ("ip", "ipport", "system", "scheme", "ssl-insecure", "ca-file", "tls-fingerprint", "check-system")
PORTS = {"https": 443, "http": 80}
SYSTEMS = "/redfish/v1/Systems"

_SEGMENT = r"[A-Za-z0-9_~:@+-][A-Za-z0-9._~:@+-]*"
_ID = re.compile(_SEGMENT)
_PATH = re.compile(rf"/redfish/v1(/{_SEGMENT})+")
_FILE = re.compile(r"/[A-Za-z0-9_.:@+=~ /-]+")
_FINGERPRINT = re.compile(r"[0-9A-Fa-f]{64}|[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){31}")
MOST_FINGERPRINTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RedfishAddress:
    """Where a service listens and which of its systems to use. system: its path, None for the only one.

    ca_file: a file on the worker with the authorities to trust, None for those that its operating system trusts. fingerprints:
    of the certificates to trust instead of any authority, SHA-256 in lower case. check_system: whether the UUID that it reports
    must be the Node's system UUID.
    """

    host: str
    port: int
    system: str | None = None
    scheme: str = "https"
    verify: bool = True
    ca_file: str | None = None
    fingerprints: tuple[str, ...] = ()
    check_system: bool = True

    @property
    def endpoint(self) -> str:
        """Service and system, in the one spelling used for pinning."""
        return f"redfish://{authority(self.host, self.port)}{self.system or ''}"

    @property
    def insecurity(self) -> str:
        """How others could listen or answer in its place, "" if they could not."""
        if self.scheme == "http":
            return "plain HTTP (scheme)"
        return "" if self.verify else "TLS without verifying its certificate (ssl-insecure)"


def redfish_address(parameters: Mapping[str, str]) -> RedfishAddress:
    """From the parameters of a device. Raises ParameterError."""
    for name in parameters:
        if name not in REDFISH_NAMES:
            raise ParameterError(name, f"is not known: expected one of {', '.join(REDFISH_NAMES)}")
    scheme = parameters.get("scheme", "https")
    if scheme not in PORTS:
        raise ParameterError("scheme", f"expected https or http, got {scheme!r}")
    address = RedfishAddress(
        host=host_of(parameters, "ip", what="Redfish service"),
        port=port_of(parameters, "ipport", PORTS[scheme]),
        system=_system(parameters.get("system")),
        scheme=scheme,
        verify=not answer_of(parameters, "ssl-insecure", default="false"),
        ca_file=parameters.get("ca-file"),
        fingerprints=_fingerprints(parameters.get("tls-fingerprint")),
        check_system=answer_of(parameters, "check-system", default="true"),
    )
    if address.fingerprints and (address.insecurity or address.ca_file is not None):
        raise ParameterError("tls-fingerprint", "expected it alone, without scheme http, ssl-insecure or ca-file")
    if address.ca_file is not None:
        if _FILE.fullmatch(address.ca_file) is None or ".." in address.ca_file.split("/"):
            raise ParameterError("ca-file", f"expected the absolute path of a file on the power worker, got {address.ca_file!r}")
        if address.insecurity:
            raise ParameterError(
                "ca-file", "verifies nothing together with scheme http or ssl-insecure: expected one or the other"
            )
    return address


def _fingerprints(value: str | None) -> tuple[str, ...]:
    written = [each.strip() for each in value.split(",")] if value is not None else []
    if len(written) > MOST_FINGERPRINTS or any(_FINGERPRINT.fullmatch(each) is None for each in written):
        expected = (
            f"expected the SHA-256 of a certificate in 64 hexadecimal digits, or up to {MOST_FINGERPRINTS} with commas between"
        )
        raise ParameterError("tls-fingerprint", f"{expected}, got {shown(value)}")
    return tuple(each.replace(":", "").lower() for each in written)


def _system(value: str | None) -> str | None:
    if value is None:
        return None
    written = value.removesuffix("/")
    path = f"{SYSTEMS}/{written}" if _ID.fullmatch(written) else written
    if _PATH.fullmatch(path) is None:
        raise ParameterError("system", f"expected the id of a system or its path below /redfish/v1, got {value!r}")
    return path


REDFISH = DriverParameters(
    names=REDFISH_NAMES,
    identifying=frozenset({"ip", "ipport", "system"}),
    secret=frozenset({"username", "password"}),
    needed=frozenset({"username", "password"}),
    endpoint=lambda parameters: redfish_address(parameters).endpoint,
    insecurity=lambda parameters: redfish_address(parameters).insecurity,
)
