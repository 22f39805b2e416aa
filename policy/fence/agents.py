"""What an `agent_name=` leads to: one of our drivers, an agent of the fence-agents package, or a refusal that says why.

One parameter has several spellings (`port` is `plug`, dashes are underscores). What is merged must have one name, or a template's
`port` and a method's `plug` would both reach the agent and the wrong one could win (S11).
"""

from __future__ import annotations

from collections.abc import Mapping

from policy.fence.config import MethodAction
from policy.fence.drivers import canonical as canonical_driver
from policy.fence.drivers import parameters_of, unknown
from policy.fence.drivers.agent_parameters import canonical_name, refusal
from policy.fence.drivers.contract import DriverParameters

AGENT_PREFIX = "fence_"

NATIVE: Mapping[str, str] = {"fence_aws": "ec2", "fence_gce": "gce"}
"""Agents whose devices our own drivers speak to: fence_aws refuses to work outside of EC2, fence_gce does not read its cycles."""

NO_FENCE: Mapping[str, str] = {"ssh": "ssh asks the node itself, which is the one that can't answer, and proves nothing"}

ACTIONS: Mapping[str, MethodAction] = {
    "off": MethodAction.OFF,
    "on": MethodAction.ON,
    "reboot": MethodAction.REBOOT,
    "restart": MethodAction.RESTART,
    "disable": MethodAction.OFF,
    "enable": MethodAction.ON,
}

READING = frozenset({"status", "monitor", "list", "list-status", "metadata", "manpage", "validate-all"})
"""Actions that only look: nothing executed is never success (S7)."""

UNREAD = frozenset({"reset", "cycle", "diag"})
"""Actions after which no off can be read (S5)."""

OPTIONS_OF_AGENTS = frozenset(
    {
        "login_timeout",
        "shell_timeout",
        "power_timeout",
        "power_wait",
        "stonith_status_sleep",
        "retry_on",
        "disable_timeout",
        "method",
        "plug_separator",
        "separator",
        "skip_os_shutdown",
        "skip_race_check",
        "verbose",
        "quiet",
    }
)
"""How an agent goes about it. Our own drivers have their own time limits, so there they say nothing."""


def driver_of(agent: str) -> str:
    """The driver's name for an agent's, whichever way that is spelt."""
    driver = canonical_driver(agent)
    return NATIVE.get(driver, driver)


def known_agent(agent: str) -> DriverParameters | str:
    """What it takes, or why it is not taken."""
    driver = driver_of(agent)
    if (takes := parameters_of(driver)) is not None:
        return takes
    return NO_FENCE.get(agent) or unknown(driver)


def is_agent(driver: str) -> bool:
    """Whether the driver is an agent of the fence-agents package."""
    return driver.startswith(AGENT_PREFIX)


def canonical(driver: str, written: str) -> str:
    """The one name for a parameter of that driver, however it is written."""
    if is_agent(driver):
        return canonical_name(written)
    plain = canonical_name(written) if driver in NATIVE.values() else written.replace("-", "_")
    takes = parameters_of(driver)
    known = {name.replace("-", "_"): name for name in (*takes.names, *takes.secret)} if takes is not None else {}
    if plain == "plug" and "instance" in known:
        return "instance"
    return known.get(plain, plain)


def not_for_configuration(driver: str, name: str) -> str | None:
    """Why a parameter may not come from a fence configuration, None where it may: some make an agent run a program of the worker,
    or call something off that is not."""
    return refusal(name) if is_agent(driver) else None
