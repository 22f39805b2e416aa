"""The rules of a power driver's parameters: which there are, which of them identify a device, which are secret."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0[Xx][0-9A-Fa-f]*)")
"""A text that every resolver takes for an address, perhaps for the wrong one: 10.0.0.010 is 10.0.0.8 to the C library (S9)."""
_ZONE = re.compile(r"[^%]*(%[A-Za-z0-9._-]{1,32})?")
"""Python accepts any text behind the % of an IPv6 address; here it must be the name of an interface (S41)."""
_PORT = re.compile(r"[0-9]{1,5}")
_SECURE = re.compile(r"https://(?P<host>[A-Za-z0-9._-]+)(?::[0-9]{1,5})?(?:/[^?#@]*)?")


class ParameterError(ValueError):
    """A parameter that its driver could not use: which one, and what was expected."""

    def __init__(self, parameter: str, problem: str) -> None:
        super().__init__(f"{parameter}: {problem}")
        self.parameter = parameter
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverParameters:
    """The parameters of one driver.

    names: all that it accepts; with `any_name` it accepts others, too, and its own metadata decides (fence agents). identifying:
    those that distinguish the devices of nodes (S10). secret: those that only a reference may give (S12). needed: the secret
    ones that it needs to log in; empty if the worker has an identity of its own (a cloud account). from_provider_id: the
    identifying parameters that a Node's `spec.providerID` gives; empty for another platform's. fabric: off cuts a path to
    storage or network, and the machine runs on: never a power device (S1).
    """

    names: tuple[str, ...]
    identifying: frozenset[str]
    endpoint: Callable[[Mapping[str, str]], str]
    """The device in its one spelling. Raises ParameterError."""
    insecurity: Callable[[Mapping[str, str]], str] = lambda _parameters: ""
    """How others could listen to the connection or answer in the device's place, as text; "" if they could not."""
    secret: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()
    any_name: bool = False
    fabric: bool = False
    from_provider_id: Callable[[str], Mapping[str, str]] | None = None
    off_takes: timedelta | None = None
    """How long a machine of this kind may take until it reads off, if that is longer than a plan's default."""


def unidentified(node: str, identifying: Iterable[str], where: str) -> str:
    """Why no device of this node may be touched (S10): no parameter ties one to it. where: at which place one was expected."""
    return f"nothing identifies the device of node {node}: expected one of {', '.join(sorted(identifying)) or 'nothing'} {where}"


def host_of(parameters: Mapping[str, str], name: str, *, what: str) -> str:
    """An address or a host name in its one spelling."""
    value = parameters.get(name, "")
    if not value:
        raise ParameterError(name, f"expected the address or name of the {what}, got nothing")
    if (":" in value or value[-1].isdigit()) and _ZONE.fullmatch(value) is not None:  # else no address: a refusal costs 40 µs
        with suppress(ValueError):
            address = ipaddress.ip_address(value)
            return str(getattr(address, "ipv4_mapped", None) or address)
    if HOST.fullmatch(value) is None or _NUMBER.fullmatch(value) is not None:
        raise ParameterError(name, f"expected an IP address or a host name, got {value!r}")
    return value.lower()


def port_of(parameters: Mapping[str, str], name: str, default: int) -> int:
    port = parameters.get(name, str(default))
    if _PORT.fullmatch(port) is None or not 0 < int(port) < 65536:
        raise ParameterError(name, f"expected a number from 1 to 65535, got {port!r}")
    return int(port)


_ANSWERS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def answer_of(parameters: Mapping[str, str], name: str, *, default: str) -> bool:
    value = parameters.get(name, default)
    if value.lower() not in _ANSWERS:
        raise ParameterError(name, f"expected true or false, got {value!r}")
    return _ANSWERS[value.lower()]


def authority(host: str, port: int) -> str:
    return f"{f'[{host}]' if ':' in host else host}:{port}"


def is_under(url: str, domains: Sequence[str]) -> bool:
    """Whether that URL is over TLS, and its host is one of those domains or below one."""
    found = _SECURE.fullmatch(url)
    host = found["host"].casefold().rstrip(".") if found is not None else ""
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


# Which parameters of a power device are credentials, judged by parts of their names: no list of whole names is ever complete.
#
# A value under such a name may be in no object that is not a secret, and in no message (S12).

_WHOLE = frozenset({"user", "username", "login", "pass", "kg", "hexkg", "community", "apikey", "privatekey"})
_PARTS = ("password", "passwd", "secret", "token", "credential")


def names_a_credential(key: str) -> bool:
    """Whether a parameter of this name is a credential, in any spelling."""
    plain = key.lower().replace("-", "").replace("_", "")
    return plain in _WHOLE or any(part in plain for part in _PARTS)
