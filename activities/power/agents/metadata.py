"""Finds an installed fence agent and has it describe itself; what fits it is judged in
`policy/fence/drivers/agent_parameters.py`.

Asked once per program and version of it, because an agent takes 0.1 to 0.7 s to start.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from activities.errors import ErrorType
from activities.power.driver import Deadline
from activities.power.errors import PowerError, invalid
from activities.power.processes import child_process
from policy.fence.drivers.agent_parameters import AgentMetadata, AgentParameter, canonical_name

SEARCH_PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
"""Where agents and the tools that they start are found, whatever the worker's own PATH is."""

ENVIRONMENT = {"PATH": SEARCH_PATH, "LC_ALL": "C", "PYTHONWARNINGS": "ignore"}
"""All that an agent gets to see beside the mark of its run: nothing of ours, English texts,
and no wish to say what is old-fashioned about itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledAgent:
    """An agent's program, and what it says of itself."""

    program: Path
    metadata: AgentMetadata


KNOWN: dict[tuple[Path, int], InstalledAgent] = {}


async def installed(agent: str, deadline: Deadline, *, search_path: str = SEARCH_PATH) -> InstalledAgent:
    """The agent as it is installed now. Raises PowerError: InvalidConfig where it is not, Transient where it gives no answer."""
    found = shutil.which(agent, path=search_path)
    if found is None:
        raise invalid(f"{agent} is not installed on this worker: expected the package fence-agents there")
    program, version = _version(found)
    if version not in KNOWN:
        ended = await child_process.run((found,), b"action=metadata\n", deadline, environment=ENVIRONMENT)
        KNOWN[version] = InstalledAgent(program=program, metadata=_read(agent, ended))
    return KNOWN[version]


def _version(found: str) -> tuple[Path, tuple[Path, int]]:
    program = Path(found)
    return program, (program, program.stat().st_mtime_ns)


def _read(agent: str, ended: child_process.Ended) -> AgentMetadata:
    try:
        # The program's own words, and it was chosen from an allow-list.
        described = ElementTree.fromstring(ended.stdout)  # noqa: S314
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # an encoding that nobody knows is no XML either
        reason = "in time" if ended.timed_out else f"as XML ({error}), it ended with status {ended.returncode}"
        message = f"{agent} did not describe itself {reason}; nothing was commanded"
        raise PowerError(ErrorType.TRANSIENT, message) from error
    parameters: dict[str, AgentParameter] = {}
    for each in described.iter("parameter"):
        name = canonical_name(each.get("name", ""))
        # An old name of the same parameter stands beside the new one.
        if name and not (each.get("deprecated") == "1" and name in parameters):
            parameters[name] = _parameter(each)
    actions = frozenset(each.get("name", "") for each in described.iter("action"))
    return AgentMetadata(agent=agent, parameters=parameters, actions=actions)


def _parameter(described: ElementTree.Element) -> AgentParameter:
    content = described.find("content")
    if content is None:
        return AgentParameter(required=described.get("required") == "1")
    return AgentParameter(
        kind=content.get("type", "string"),
        required=described.get("required") == "1",
        default=content.get("default"),
        choices=tuple(option.get("value", "") for option in content.iter("option")),
    )
