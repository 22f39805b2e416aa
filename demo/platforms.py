"""What the demo's machines may be, and whether they can be had here: said before anything is started."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from activities.power.fence_agent import SEARCH_PATH
from simulator.platforms import platform_named

DEFAULT = "ipmi"

CHOICES: Mapping[str, str] = {
    "ipmi": "a BMC each",
    "redfish": "a Redfish service before them all",
    "aws": "each an instance of a simulated EC2",
    "gce": "each an instance of a simulated Compute Engine",
    "pdu": "each on an outlet of a power strip that speaks SNMP",
}

PROGRAMS: Mapping[str, Mapping[str, str]] = {
    # The agent of fence-agents that switches the strip, and the tool that it starts.
    "pdu": {"fence_apc_snmp": "fence-agents", "snmpget": "snmp"},
}
"""What nodewarden itself needs on the machine, and the Debian packages that have it."""


def why_not(platform: str) -> str:
    """Why there is no demo on this platform here, for people; "" where there is."""
    if platform not in CHOICES:
        return f"there is no platform {platform!r}: expected one of {', '.join(CHOICES)}"
    missing = [
        f"{program} (Debian package {package})"
        for program, package in PROGRAMS.get(platform, {}).items()
        if shutil.which(program, path=SEARCH_PATH) is None
    ]
    if simulated := platform_named(platform).missing():
        missing.append(f"{simulated} (in the development environment that `make` installs)")
    return f"the platform {platform} needs what is not installed here: {', '.join(missing)}" if missing else ""
