"""S12: secrets reach agents and their tools from a worker whose memory is closed to its own user (`keep_memory_private`), who is
not root, as in the image."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simulator.bmc.chassis import Chassis
from simulator.snmp.pdu import Access, start_pdu
from tests.power.agents.scripted import needs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="has Linux keep the memory private")

SECRET = "k3p-my-s3cret"

AS_NOBODY = """
import asyncio, json, os, sys
from activities.power import agent_process
from activities.power.fence_agent import agent_input
from policy.fence.drivers.agent_parameters import AgentMetadata, AgentParameter
from tests.power.agents.scripted import agent_driver
from tests.power.conftest import within
from workers.os_process import keep_memory_private

async def read(agent, parameters, credentials):
    return (await agent_driver(agent, parameters, **credentials).read(within(10))).state

async def hand_a_file(agent, secrets):
    metadata = AgentMetadata(agent="fence_x", parameters={name: AgentParameter() for name in secrets})
    with agent_input(metadata, secrets, secrets=secrets, patience=1.0) as told:
        ended = await agent_process.run(agent, told.lines, within(10), environment={}, files=told.files)
    return (ended.stdout + ended.stderr).decode()

os.chdir("/")
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
keep_memory_private()
print(asyncio.run(globals()[sys.argv[1]](*json.loads(sys.argv[2]))))
"""

AGENT = ("/usr/bin/python3", "-c", "import subprocess; path = input().partition('=')[2]; subprocess.run(['cat', path, path])")
"""Closes what is open, as agents do, and has a tool read the file twice, as ssh does."""


async def as_nobody(function: str, *arguments: Any) -> str:
    program = (sys.executable, "-c", AS_NOBODY, function, json.dumps(arguments))
    root = Path(__file__).parents[3]
    process = await asyncio.create_subprocess_exec(*program, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, _ = await asyncio.wait_for(process.communicate(), 30)
    return said.decode().strip()


@pytest.mark.skipif(not Path(AGENT[0]).exists(), reason="a Python that everybody may run")
async def test_the_tool_of_an_agent_reads_a_file_in_memory() -> None:
    assert await as_nobody("hand_a_file", AGENT, {"identity_file": SECRET}) == 2 * SECRET


@needs("fence_apc_snmp", "snmpget")
async def test_snmp_tools_are_told_the_community() -> None:
    chassis = Chassis()
    async with await start_pdu(chassis, {1: "node-1"}, Access(community=SECRET)) as pdu:
        parameters = {"ip": "127.0.0.1", "ipport": str(pdu.port), "plug": "1", "snmp_version": "1"}
        assert await as_nobody("read", "fence_apc_snmp", parameters, {"community": SECRET}) == "on"
