"""What a fence agent says of itself, and whether the parameters of a device fit it.

Agents ignore what they don't know and guess at what is missing; here it is refused before one is started. The rules are those
of the first node-fencing controller: what is required and has no default must be given, a boolean must be one, unknown
parameters are left out with a warning. Read on the worker by `activities/power/fence_agent.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from policy.fence.drivers.agent_parameters import canonical_name
from policy.fence.drivers.contract import ParameterError, names_a_credential

TRUE = frozenset({"on", "yes", "true", "1"})
FALSE = frozenset({"off", "no", "false", "0"})
_WHOLE = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParameter:
    """One parameter. kind: string, boolean, integer, second or select (one of `choices`). default: None where there is none."""

    kind: str = "string"
    required: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMetadata:
    """One agent: its parameters by their canonical names, and what it can be asked for."""

    agent: str
    parameters: Mapping[str, AgentParameter]
    actions: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        """Whether it takes a parameter of this name."""
        return name in self.parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedParameters:
    """Parameters as the agent takes them, and what was left out, for people."""

    values: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def fitted(metadata: AgentMetadata, given: Mapping[str, str]) -> AcceptedParameters:
    """The parameters that an agent is handed. Raises ParameterError; a credential's value is in no message (S12)."""
    values: dict[str, str] = {}
    unknown: list[str] = []
    for key, value in given.items():
        name = canonical_name(key)
        parameter = metadata.parameters.get(name)
        if parameter is None:
            unknown.append(key)
            continue
        taken = _taken(key, parameter, value)
        if taken is not None:
            values[name] = taken
    for name, parameter in metadata.parameters.items():
        if parameter.required and parameter.default is None and name not in values and name != "action":
            raise ParameterError(name, f"is required by {metadata.agent}, got nothing")
    warnings = (f"{metadata.agent} knows no {', '.join(sorted(unknown))}: left out",) if unknown else ()
    return AcceptedParameters(values=values, warnings=warnings)


def _taken(key: str, parameter: AgentParameter, value: str) -> str | None:
    """The value as the agent reads it; None for a boolean that is not to be said at all, because many agents only look whether
    it was said."""
    shown = "something else" if names_a_credential(key) else repr(value)
    if parameter.kind == "boolean":
        if value.lower() in TRUE or not value:  # a flag that is given without a value is bare, as on a command line
            return "1"
        if value.lower() in FALSE:
            return "0" if (parameter.default or "").lower() in TRUE else None
        raise ParameterError(key, f"expected on, yes, true, 1, off, no, false or 0, got {shown}")
    if parameter.kind in {"integer", "second"} and _WHOLE.fullmatch(value) is None:
        raise ParameterError(key, f"expected a whole number, got {shown}")
    if parameter.kind == "select" and value.lower() not in {choice.lower() for choice in parameter.choices}:
        raise ParameterError(key, f"expected one of {', '.join(parameter.choices)}, got {shown}")
    return value
