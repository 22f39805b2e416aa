"""`fence-cluster-config`: what holds for all nodes of a cluster: how long, how often, which policies, and common parameters.

The policies themselves and what else this object means (it is a health check of its own) are read elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from policy.fence.agents import AGENT_PREFIX, canonical
from policy.fence.config import DEFAULTS, LONGEST_WAIT, MOST_RESTARTS, MOST_TRIES
from policy.fence.configmaps.lines import Line, read_lines, seconds, whole_number
from policy.fence.configmaps.object_lookup import ConfigMap
from policy.fence.drivers import DRIVER_PARAMETERS, parameters_of
from policy.fence.plan import FencingPlan
from policy.fence.validation import Findings

NAME = "fence-cluster-config"
CONFIG_KEY = "config.properties"

SETTINGS = ("grace_timeout", "giveup_retries", "policies", "restarts", "power_management_wait")
OF_POLICIES = ("fencing", "fencing_off")
"""Read with the policies, not here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """Settings, and parameters for every method whose driver has them."""

    settings: FencingPlan = DEFAULTS
    common: Mapping[str, Line] = field(default_factory=dict)


def read_cluster_config(found: ConfigMap | None, findings: Findings) -> ClusterConfig:
    """Each wrong line is an error of its own, and none of them becomes a default."""
    if found is None:
        return ClusterConfig()
    lines: dict[str, Line] = {}
    with findings.collecting():
        lines = read_lines(found, CONFIG_KEY)
    common = {}
    settings = DEFAULTS
    for written, line in lines.items():
        with findings.collecting():
            if written in SETTINGS:
                settings = _with(settings, line)
            elif written in OF_POLICIES:
                continue
            elif is_common_parameter(written):
                common[written] = line
            else:
                raise line.refuse(f"is neither a setting ({', '.join(SETTINGS)}) nor a parameter of any driver")
    return ClusterConfig(settings=settings, common=common)


def _with(settings: FencingPlan, line: Line) -> FencingPlan:
    match line.written:
        case "grace_timeout":
            return replace(settings, wait_before_isolation=seconds(line, maximum=LONGEST_WAIT))
        case "giveup_retries":
            # N retries are N + 1 tries. None at all is refused as a count below 1 is everywhere (S7).
            return replace(settings, tries=1 + whole_number(line, minimum=1, maximum=MOST_TRIES - 1))
        case "restarts":
            return replace(settings, restarts=whole_number(line, minimum=0, maximum=MOST_RESTARTS))
        case "power_management_wait":
            return replace(settings, wait_before_power=seconds(line, maximum=LONGEST_WAIT))
        case _:
            return settings  # the names of its policies are read where these are (`policy/dialects/node_fencing.py`)


def is_common_parameter(written: str) -> bool:
    """Whether the key is a parameter that some driver knows, so that it may stand here for all nodes."""
    agents = parameters_of(f"{AGENT_PREFIX}any")
    drivers = {**DRIVER_PARAMETERS, **({f"{AGENT_PREFIX}any": agents} if agents is not None else {})}
    return any(canonical(name, written) in {*takes.names, *takes.secret} for name, takes in drivers.items())
