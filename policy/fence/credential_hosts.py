"""Which hosts a credential is for: the operator names them in an annotation of its object or in the worker's settings.

A writer of fence configurations chooses the address of a device. That alone must not send a password there (S40).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from policy.fence.drivers.agent_parameters import ValueKind, canonical_name, kind_of
from policy.fence.plan import ON_THE_WORKER, PowerDevice

HOSTS_ANNOTATION = "nodewarden.io/hosts"
"""On a Secret or ConfigMap: names, wildcards (`*.bmc.example.com`), addresses and networks, separated by commas or spaces."""

EVERYWHERE = "*"

CredentialHosts = Mapping[str, Collection[str]]
"""The hosts that each credential has gone to so far, by its `subject`."""

_NAME = re.compile(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?")
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?(?:[/?#][^@\\]*)?")
_URLS = frozenset({"endpoint-url", "api-endpoint"})
_CLOUDS = {"gce": "compute.googleapis.com", "ec2": "ec2.{region}.amazonaws.com"}
"""The hosts of the clouds' own APIs, as the annotation names them."""


def hosts_written(text: str) -> tuple[str, ...]:
    """The hosts in the annotation's text. Raises ValueError naming a text that is no host."""
    found = tuple(each.lower().rstrip(".") for each in re.split(r"[\s,]+", text) if each)
    for each in found:
        if each != EVERYWHERE and _network(each) is None and _NAME.fullmatch(each) is None:
            raise ValueError(f"expected names, *.names, addresses or networks, got {each!r}")
    return found


def hosts_of(device: PowerDevice) -> frozenset[str]:
    """The hosts to which a device's credentials are sent, in lower case; empty if its parameters do not say."""
    found: set[str] = set()
    for key, value in device.parameters.items():
        if kind_of(device.driver, canonical_name(key)) is ValueKind.HOST:  # of the device, or of a proxy that sees everything
            found.add(value)
        elif key in _URLS or "://" in value:
            found.add(_host_of_url(value))
    if not found and device.driver in _CLOUDS:
        found.add(_CLOUDS[device.driver].format(region=device.parameters.get("region", "")))
    return frozenset(each.lower().strip("[]").rstrip(".") for each in found)


def destinations(device: PowerDevice) -> dict[str, frozenset[str]]:
    """The hosts to which each Secret and ConfigMap of a device is sent; "" is a host that its parameters do not say."""
    hosts = hosts_of(device) or frozenset({""})
    return {each.subject: hosts for each in device.credentials if each.kind not in ON_THE_WORKER}


def compared(device: PowerDevice, known: CredentialHosts) -> PowerDevice:
    """The device with the list of its credentials that have gone to other hosts only. known: the remembered hosts of each; a
    credential without remembered hosts is new and may go anywhere."""
    sent = destinations(device).items() if known else ()
    strange = tuple(name for name, hosts in sent if name in known and not hosts <= {*known[name]})
    return replace(device, strange_to=strange) if strange != device.strange_to else device


def not_for(hosts: Collection[str], allowed: Collection[str]) -> str:
    """Why credentials are not for these hosts; "" if they are for all of them. The host "" is not known."""
    if EVERYWHERE in allowed:
        return ""
    named = ", ".join(allowed) or "none"
    if not hosts:
        return f"it is for the hosts {named}, and the device's parameters do not say where it would be sent"
    strange = next((host for host in sorted(hosts) if not any(_is(host, each) for each in allowed)), None)
    return "" if strange is None else f"it is for the hosts {named}, not for {strange}"


def _is(host: str, allowed: str) -> bool:
    network = _network(allowed)
    if network is not None:
        try:
            return ipaddress.ip_address(host) in network
        except ValueError:
            return False
    if allowed.startswith("*."):
        return host.endswith(allowed[1:]) and host != allowed[1:]
    return host == allowed


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _host_of_url(url: str) -> str:
    """The host of a URL; any other text stays as it is, and matches no name."""
    found = _URL.fullmatch(url)
    return found["host"].strip("[]") if found is not None else url


def annotated(annotations: Mapping[str, object] | None) -> str | None:
    """The value of an object's annotation, None without one."""
    written = (annotations or {}).get(HOSTS_ANNOTATION)
    return None if written is None else str(written)
