"""Redfish over HTTPS: `ip`, and optionally `ipport`, `system`, `scheme`, `ssl-insecure`, `ca-file` and
`check-system`.

`system` is the path or the id of one machine of the service (`1` is `/redfish/v1/Systems/1`); without it the service must have
only one. Certificates are verified unless `ssl-insecure` is asked for, and plain HTTP is spoken only where `scheme` is `http`:
whoever sits between could read the password and switch machines off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from policy.fence.drivers.contract import DriverParameters, ParameterError, answer_of, authority, host_of, port_of

NAMES = ("ip", "ipport", "system", "scheme", "ssl-insecure", "ca-file", "check-system")
PORTS = {"https": 443, "http": 80}
SYSTEMS = "/redfish/v1/Systems"

_SEGMENT = r"[A-Za-z0-9_~:@+-][A-Za-z0-9._~:@+-]*"
_ID = re.compile(_SEGMENT)
_PATH = re.compile(rf"/redfish/v1(/{_SEGMENT})+")
_FILE = re.compile(r"/[A-Za-z0-9_.:@+=~ /-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedfishAddress:
    """Where a service listens and which of its systems is meant. system: its path, None for the only one there is.

    ca_file: a file on the worker with the authorities to trust, None for those that its operating system trusts. check_system:
    whether the UUID that it tells must be the Node's system UUID.
    """

    host: str
    port: int
    system: str | None = None
    scheme: str = "https"
    verify: bool = True
    ca_file: str | None = None
    check_system: bool = True

    @property
    def endpoint(self) -> str:
        """Service and system, in the one spelling used for pinning."""
        return f"redfish://{authority(self.host, self.port)}{self.system or ''}"


def redfish_address(parameters: Mapping[str, str]) -> RedfishAddress:
    """From the parameters of a device. Raises ParameterError."""
    for name in parameters:
        if name not in NAMES:
            raise ParameterError(name, f"is not known: expected one of {', '.join(NAMES)}")
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
        check_system=answer_of(parameters, "check-system", default="true"),
    )
    if address.ca_file is not None:
        if _FILE.fullmatch(address.ca_file) is None or ".." in address.ca_file.split("/"):
            raise ParameterError("ca-file", f"expected the absolute path of a file on the power worker, got {address.ca_file!r}")
        if scheme == "http" or not address.verify:
            raise ParameterError(
                "ca-file", "verifies nothing together with scheme http or ssl-insecure: expected one or the other"
            )
    return address


def _endpoint(parameters: Mapping[str, str]) -> str:
    return redfish_address(parameters).endpoint


def _system(value: str | None) -> str | None:
    if value is None:
        return None
    written = value.removesuffix("/")
    path = f"{SYSTEMS}/{written}" if _ID.fullmatch(written) else written
    if _PATH.fullmatch(path) is None:
        raise ParameterError("system", f"expected the id of a system or its path below /redfish/v1, got {value!r}")
    return path


REDFISH = DriverParameters(
    names=NAMES,
    identifying=frozenset({"ip", "ipport", "system"}),
    secret=frozenset({"username", "password"}),
    needed=frozenset({"username", "password"}),
    endpoint=_endpoint,
)
