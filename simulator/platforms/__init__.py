"""What the machines of a simulated cluster are: servers with BMCs or a Redfish service, instances of a cloud, outlets of a strip.

One module each; `contract.py` says what a cluster asks of them. Each is imported only when it is used: what plays most of them
(moto, sushy-tools, pysnmp) comes with the development environment and not with nodewarden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simulator.platforms.contract import Platform, PlatformError


def _ipmi() -> type[Platform]:
    from simulator.platforms.ipmi import Ipmi

    return Ipmi


def _redfish() -> type[Platform]:
    from simulator.platforms.redfish import Redfish

    return Redfish


def _aws() -> type[Platform]:
    from simulator.platforms.aws import Aws

    return Aws


def _gce() -> type[Platform]:
    from simulator.platforms.gce import Gce

    return Gce


def _pdu() -> type[Platform]:
    from simulator.platforms.pdu import PowerStrip

    return PowerStrip


PLATFORMS: Mapping[str, Callable[[], type[Platform]]] = {
    "ipmi": _ipmi,
    "redfish": _redfish,
    "aws": _aws,
    "gce": _gce,
    "pdu": _pdu,
}


def platform_named(name: str) -> type[Platform]:
    """The platform of that name. Raises PlatformError saying which there are."""
    if name not in PLATFORMS:
        raise PlatformError(f"there is no platform {name!r}: expected one of {', '.join(PLATFORMS)}")
    return PLATFORMS[name]()
