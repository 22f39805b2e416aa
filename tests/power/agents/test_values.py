"""S41, on every agent that is installed: what it says of itself is held to no grammar that its own words would not pass."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from activities.power.fence_agent import SEARCH_PATH, installed
from policy.fence.drivers.agent_parameters import FILES, TRUE, ValueKind, kind_of, problem_of, refusal
from policy.fence.drivers.fence_agents import PUBLISHED, insecurity
from tests.power.agents.scripted import needs_library
from tests.power.conftest import within

OF_IPMI = {ValueKind.CIPHER, ValueKind.IPMI_2, ValueKind.NO_IPMI_1_5}
"""Stricter than the agents, whose default is IPMI 1.5."""

INSTALLED = sorted(agent for agent in PUBLISHED if shutil.which(agent, path=SEARCH_PATH))


@needs_library
@pytest.mark.timeout(120)
async def test_the_default_and_the_choices_of_every_parameter_of_every_installed_agent_are_taken() -> None:
    """And with them the parameter's kind: a default that is no value of its kind would be a wrong grammar."""
    assert INSTALLED
    free = asyncio.Semaphore(4)
    seen: set[str] = set()

    async def refused_by(agent: str) -> list[str]:
        async with free:
            metadata = (await installed(agent, within(60))).metadata
        found = []
        for name, parameter in metadata.parameters.items():
            if refusal(name) is not None or name in FILES or kind_of(agent, name) in OF_IPMI:
                continue
            seen.add(name)
            values = {*parameter.choices, parameter.default or ""}
            if name == "ipport":
                values -= {"0"}  # it says that there is none yet: no device could be reached at it
            problems = {value: problem_of(agent, name, value, published=True) for value in values}
            found += [f"{agent} {name}={value}: {problem}" for value, problem in problems.items() if problem is not None]
        return found

    assert [problem for problems in await asyncio.gather(*map(refused_by, INSTALLED)) for problem in problems] == []
    assert {"username", "password", "plug", "ip", "ipport", "command_prompt", "power_timeout"} <= seen
    assert not seen & {"ssh_options", "ssh_path", "password_script", "use_sudo"}


@needs_library
@pytest.mark.timeout(120)
async def test_which_agents_let_others_listen_by_default_is_what_they_say_themselves() -> None:
    free = asyncio.Semaphore(4)

    async def listened_to(agent: str) -> bool:
        async with free:
            parameters = (await installed(agent, within(60))).metadata.parameters
        default = {name: each.default or "" for name, each in parameters.items()}
        return (
            ("ssl" in default and default["ssl"] not in TRUE)
            or ("community" in default and default["snmp_version"] != "3")
            or bool({"telnet_path", "ssh"} & default.keys())
        )

    says = dict(zip(INSTALLED, await asyncio.gather(*map(listened_to, INSTALLED)), strict=True))
    ours = {agent: insecurity(agent, {"ip": "10.0.0.7", "plug": "1"}) != "" for agent in INSTALLED}
    say_nothing_of_it = {"fence_eps", "fence_powerman"}
    assert {agent for agent in INSTALLED if ours[agent] != says[agent]} <= say_nothing_of_it
