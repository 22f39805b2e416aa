"""What a fence agent is handed: lines on its standard input, and its secrets where no other user of the machine can see them.

An agent's own arguments and environment are clean. But some agents pass a secret on in the arguments of the tool that they start,
where everybody can read it (S12): the SNMP tools and ipmitool. There the agent isn't told the secret; the tool reads it from a
file in memory that is on no disk and ends with the run. The agent's own process holds it open, and a link leads there: into ours
only root may look (`workers/os_process.py`), and what an agent has open it closes before it starts a tool.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from activities.power.agents.metadata import ENVIRONMENT
from activities.power.errors import invalid
from activities.power.processes.child_process import not_started
from policy.fence.drivers.agent_parameters import FILES, AgentMetadata

# What the SNMP tools call what agents would write into their arguments.
_SNMP_WORDS = {
    "community": "defCommunity",
    "username": "defSecurityName",
    "password": "defAuthPassphrase",
    "snmp_priv_passwd": "defPrivPassphrase",
}
_PLAIN = re.compile(r"[A-Za-z0-9._:@/+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInput:
    """For one run of an agent."""

    lines: bytes = field(repr=False)
    environment: Mapping[str, str]
    files: Mapping[Path, int]
    """Files in memory: the paths that the agent is told, each for `child_process.run` to link to what it opens there."""


@contextmanager
def agent_input(
    metadata: AgentMetadata, values: Mapping[str, str], *, secrets: Mapping[str, str], patience: float
) -> Iterator[AgentInput]:
    """The input for one run; its files are there as long as the context. `patience`: seconds for one answer of a device.

    Raises PowerError, InvalidConfig, where the agent can't be told safely.
    """
    told = dict(values)
    environment = dict(ENVIRONMENT)
    with ExitStack() as stack:
        files = _FilesInMemory(stack)
        for name in FILES & secrets.keys() & told.keys():
            told[name] = str(files.add(name, secrets[name]))
        if metadata.has("snmpget_path"):
            _tell_snmp_tools(files, metadata, told, environment, secrets=secrets, patience=patience)
        elif metadata.has("ipmitool_path"):
            _tell_ipmitool(files, metadata, told)
        lines = b"".join(_line(name, value) for name, value in told.items())
        yield AgentInput(lines=lines, environment=environment, files=files.opened)


class _FilesInMemory:
    """Files that nobody but our user can open, and that are gone with the stack. opened: by the paths that lead there."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.opened: dict[Path, int] = {}

    @cached_property
    def folder(self) -> Path:
        """A private one, for the links."""
        try:
            return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="nodewarden-")))
        except OSError as error:
            raise not_started(f"no folder for links to its files (TMPDIR): {error.strerror}") from error

    def add(self, name: str, content: str) -> Path:
        """Where the agent and its tools will find it."""
        handle = os.memfd_create("nodewarden")
        self._stack.callback(os.close, handle)
        os.fchmod(handle, 0o600)
        os.write(handle, content.encode())
        self.opened[self.folder / name] = handle
        return self.folder / name


def _tell_snmp_tools(
    files: _FilesInMemory,
    metadata: AgentMetadata,
    told: dict[str, str],
    environment: dict[str, str],
    *,
    secrets: Mapping[str, str],
    patience: float,
) -> None:
    if {"password", "snmp_priv_passwd"} <= secrets.keys():
        told.setdefault("snmp_sec_level", "authPriv")  # what the agent itself concludes from having both
    lines = [f"{word} {_quoted(told.pop(name))}\n" for name, word in _SNMP_WORDS.items() if name in secrets and name in told]
    if "community" in secrets:
        told["community"] = ""  # or the agent's own default would go before ours
    folder = files.add("snmp.conf", "".join(lines)).parent
    (folder / "cert_indexes").mkdir()  # or the tools make it, and say so among their answers
    environment |= {"SNMPCONFPATH": str(folder), "SNMP_PERSISTENT_DIR": str(folder)}
    # A question is asked once more where no answer comes; a command is sent once (S33).
    for tool, retries in (("snmpget", 1), ("snmpwalk", 1), ("snmpset", 0)):
        program = metadata.parameters[f"{tool}_path"].default or tool
        told[f"{tool}_path"] = f"{program} -r {retries} -t {patience:.1f}"


def _tell_ipmitool(files: _FilesInMemory, metadata: AgentMetadata, told: dict[str, str]) -> None:
    for name, value in told.items():
        # The agent puts these into ipmitool's command line as they are.
        if name not in {"password", "username"} and _PLAIN.fullmatch(value) is None:
            raise invalid(f"{metadata.agent}: parameter {name!r}: expected letters, digits and . _ : @ / + -")
    told["lanplus"] = "1"  # the default of most of them is IPMI 1.5, which is not spoken
    if "hexadecimal_kg" in told:
        raise invalid(
            f"{metadata.agent} would put hexadecimal_kg into the arguments of its tool: expected the driver ipmi instead"
        )
    if "password" in told:
        file = files.add("password", told.pop("password") + "\n")
        told["ipmitool_timeout"] = f"{told.get('ipmitool_timeout', '2')} -f {file}"


def _line(name: str, value: str) -> bytes:
    """Agents cut blanks off and take one pair of quotes away."""
    quoted = not value or value != value.strip() or value[0] == value[-1] == '"'
    return (f'{name}="{value}"\n' if quoted else f"{name}={value}\n").encode()


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
