"""The names of fence agents' parameters: their one spelling, and those that are not for a configuration to set.

An agent takes `-` for `_` and old names for new ones. What would make it do something else than switch one device and say what it
did is refused here, before a worker starts anything. What a value may look like is `agent_values.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from policy.fence.drivers.agent_values import FILES, problem_of
from policy.fence.drivers.contract import ParameterError, names_a_credential
from policy.values.errors import shown

_RENAMED: Mapping[str, str] = {
    "cmd_prompt": "command_prompt",
    "debug": "debug_file",
    "ipaddr": "ip",
    "login": "username",
    "passwd": "password",
    "passwd_script": "password_script",
    "port": "plug",
    "secure": "ssh",
    "sudo": "use_sudo",
}

_OURS = frozenset(
    {"action", "disable_timeout", "method", "plug_separator", "quiet", "retry_on", "separator", "stonith_status_sleep"}
)
_REFUSED: Mapping[str, str] = {
    "delay": "expected the device's own delay instead",
    "missing_as_off": "a plug that is missing is never off",
    "network_fencing": "it cuts the network and leaves the machine running",
    "port_as_ip": "expected the address as ip",
    "tls_fingerprint": "agents can't be told which certificate to expect: expected the driver redfish for that",
    "record_only": "it only records and switches nothing off",
    "verbose": "it would write the password to the worker's log",
    "verbose_level": "it would write the password to the worker's log",
    "debug_file": "it would write the password to a file",
}
_RUNS_OR_WRITES = frozenset(
    {
        *("cookie_file", "exec", "help", "logfile", "openrc", "password_script", "runonfail", "runonwarn"),
        *("snmp_priv_passwd_script", "ssh_options", "use_sudo", "version"),
    }
)

_USER_INFO = re.compile(r"://[^/]*@")


def canonical_name(name: str) -> str:
    """A parameter's one spelling."""
    plain = name.lstrip("-").replace("-", "_")
    return _RENAMED.get(plain, plain)


def canonical_parameters(agent: str, parameters: Mapping[str, str]) -> dict[str, str]:
    """The parameters of a device under their own names. Raises ParameterError for those that are not for it to set."""
    given: dict[str, str] = {}
    for key, value in parameters.items():
        name = canonical_name(key)
        problem = refusal(name)
        if problem is not None:
            raise ParameterError(key, problem)
        if name in FILES:
            raise ParameterError(key, "expected its content as a credential, not a path on some worker")
        if _USER_INFO.search(value) is not None:
            raise ParameterError(key, "has a user before the host: expected credentials in a Secret")
        problem = problem_of(agent, name, value)
        if problem is not None:
            raise ParameterError(key, problem if names_a_credential(name) else f"{problem}, got {shown(value)}")
        if name in given and given[name] != value:
            raise ParameterError(key, f"{name} is given twice to {agent}, under different names and with different values")
        given[name] = value
    return given


def refusal(name: str) -> str | None:
    """Why a configuration may not set the parameter of this (canonical) name; None where it may."""
    if name in _OURS:
        return "is set by nodewarden itself"
    if name.endswith("_path") and name != "api_path":
        return "names a program on the worker: its own place is used"
    if name in _RUNS_OR_WRITES:
        return "has the agent run or write something else"
    return _REFUSED.get(name)
