"""Fence agents: what is refused, what they are told, what their ends let one conclude. Cases: `tests/vectors/fence.json`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from activities.errors import ErrorType
from activities.power import fence_agent
from activities.power.driver import DeviceCredentials, PowerDriver, PowerError
from activities.power.fence_agent import SEARCH_PATH, FenceAgentFactory, installed, is_listed
from activities.power.registry import driver_for
from policy.fence.drivers import fence_agents
from policy.fence.drivers.agent_parameters import FILES, TRUE, ValueKind, kind_of, problem_of, refusal
from policy.fence.drivers.fence_agents import PUBLISHED, insecurity
from policy.fence.plan import PowerDevice
from policy.fence.power import PowerState
from simulator.bmc import ipmi_sim
from simulator.bmc.bmc import start_bmc
from simulator.bmc.chassis import Chassis
from simulator.bmc.machine import Machine
from simulator.snmp.pdu import Access, Pdu, start_pdu
from tests.power.agents.scripted import ScriptedAgent, agent_driver, needs, needs_library, scripted_agent
from tests.power.conformance import PATIENCE, Bench, DriverConformance
from tests.power.conftest import PASSWORD, USERNAME, fails, within
from tests.power.process_table import alive, children_of, gone, visible
from tests.power.targets import endpoint_of
from tests.vectors.objects import VECTORS

COMMUNITY = "c0mmunity-s3cret"


@pytest.fixture
def agent(tmp_path: Path) -> ScriptedAgent:
    return scripted_agent(tmp_path)


@pytest.fixture
def chassis_in_process() -> Chassis:
    return Chassis()


@pytest.fixture
async def pdu(chassis_in_process: Chassis) -> AsyncIterator[Pdu]:
    async with await start_pdu(chassis_in_process, {1: "node-1", 2: "node-2"}, Access(community=COMMUNITY)) as running:
        yield running


def on_pdu(pdu: Pdu, agent: str = "fence_apc_snmp", **parameters: str) -> Any:
    chosen = {"ip": "127.0.0.1", "ipport": str(pdu.port), "plug": "1", "snmp-version": "2c"} | parameters
    return agent_driver(agent, chosen, community=COMMUNITY)


@needs_library
@pytest.mark.parametrize("case", VECTORS["F01"]["cases"], ids=lambda case: case["id"])
async def test_f01_off_asks_first_sets_once_and_is_no_proof(agent: ScriptedAgent, case: dict[str, Any]) -> None:
    """S2, S33."""
    agent.script(status=case["status"])
    driver = agent.driver()
    if case["error"] is None:
        await driver.off(within(6))
    else:
        await fails(driver.off(within(4)), case["error"])
    assert len(agent.calls("off")) == case["sets"]
    if case["reads"]:
        assert (await driver.read(within(5))).state == case["reads"]


@needs_library
@pytest.mark.parametrize(
    ("status", "parameters", "sent"),
    [
        (["off"], {}, False),
        (["off"], {"trust-off": "false"}, False),
        (["off"], {"trust-off": "true"}, True),
        (["on", "on", "off"], {}, True),
    ],
)
async def test_a_machine_that_an_agent_may_call_off_while_it_is_suspended_is_off_only_by_our_command(
    agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch, status: list[str], parameters: dict[str, str], *, sent: bool
) -> None:
    """S2, S3: as fence_vmware_rest and fence_virsh do, which send nothing to what they call off; and that was a proof."""
    monkeypatch.setattr(fence_agents, "_SUSPENDS", frozenset({"fence_scripted"}))
    agent.script(status=status)
    driver = agent.driver(parameters)
    if sent:
        await driver.off(within(6))
    else:
        await fails(driver.off(within(6)), ErrorType.NOT_SUPPORTED, "as it does of what is only suspended")
    assert (await driver.read(within(5))).state is PowerState.OFF
    assert not any("trust" in warning for warning in (await driver.read(within(5))).detail.split("; "))


@needs_library
@pytest.mark.parametrize("answer_takes", VECTORS["F05"]["answer_takes_seconds"])
async def test_f05_an_agent_that_counts_polls_ends_by_our_clock(agent: ScriptedAgent, answer_takes: float) -> None:
    """S34: and by itself, so that it can say what it knows."""
    vector = VECTORS["F05"]
    agent.script(status=vector["status"], answer_takes=answer_takes)
    began = time.monotonic()
    await fails(
        agent.driver({"power_timeout": "20"}).off(within(vector["deadline_seconds"])),
        vector["error"],
        "Timed out waiting to power OFF",
    )
    assert time.monotonic() - began < vector["deadline_seconds"]
    assert len(agent.calls("off")) == vector["sets"]


@needs_library
async def test_f06_a_method_that_verifies_nothing_is_never_asked_for(agent: ScriptedAgent) -> None:
    """S2, S5."""
    vector = VECTORS["F06"]
    agent.script(status=["on", "on", "off"], default_method=vector["default_method"])
    await agent.driver().off(within(6))
    assert agent.told()["--method"].lower() == vector["asked"]
    assert len(agent.calls("cycle")) == vector["cycles"]
    with pytest.raises(PowerError, match="'method': is set by nodewarden itself"):
        agent.driver({"method": "cycle"})


@needs_library
@pytest.mark.parametrize("status", VECTORS["F09"]["ends_with"])
async def test_f09_no_end_but_the_agents_own_word_for_off_reads_off(agent: ScriptedAgent, status: int) -> None:
    """S3: every failure is status 1, and 2 is also how Python ends where it can't open a program."""
    agent.script(ends=status + 1, says=VECTORS["F09"]["says"], complains="can't open file")
    driver = agent.driver()
    if status in {0, 2}:
        assert (await driver.read(within(5))).state is PowerState.UNKNOWN
    else:
        with pytest.raises(PowerError, match="nothing was commanded"):
            await driver.read(within(5))
    with pytest.raises(PowerError, match="nothing was commanded"):
        await driver.off(within(5))
    assert agent.calls() == []


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("Unable to connect/login to fencing device", ErrorType.UNREACHABLE),
        ("snmpget: Authentication failure (incorrect password, community or key)", ErrorType.UNAUTHORIZED),
        ("Failed: You have to set login name", ErrorType.INVALID_CONFIG),
        ("something new", ErrorType.TRANSIENT),
    ],
)
@needs_library
async def test_what_an_agent_says_of_a_question_that_failed_is_a_hint(
    agent: ScriptedAgent, says: str, expected: ErrorType
) -> None:
    agent.script(ends=2, complains=f"2026-11-21 12:00:00,123 ERROR: {says}\n\n\nPlease use '-h' for usage\n")
    error = await fails(agent.driver().off(within(5)), expected, r"nothing was commanded")
    assert says in str(error)
    assert "Please use" not in str(error)


@needs_library
async def test_f10_a_missing_plug_is_never_off_though_the_agent_calls_it_so(agent: ScriptedAgent) -> None:
    """S3, S10."""
    vector = VECTORS["F10"]
    with pytest.raises(PowerError, match="a plug that is missing is never off") as caught:
        endpoint_of(vector["agent"], {"ip": "hypervisor", "plug": vector["plug"]} | vector["parameters"])
    assert caught.value.type == vector["error"]

    agent.script(status=["off"], plugs=["vm-1", "vm-2"])
    driver = agent.driver({"plug": vector["plug"]})
    for act in (driver.read, driver.off):
        await fails(act(within(5)), vector["error"], r"no plug 'vm-typo'.*it has vm-1, vm-2")
    assert agent.calls("off", "on") == []


@needs_library
async def test_a_plug_that_was_seen_on_need_not_be_listed(agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some agents list only what runs, so a machine that we have switched off would be missing."""
    agent.script(status=["on", "off"], plugs=["another"])
    driver = agent.driver()
    assert (await driver.read(within(5))).state is PowerState.ON
    assert (await driver.read(within(5))).state is PowerState.OFF
    assert agent.calls("list") == []
    monkeypatch.setattr(fence_agent, "SIGHTING_LASTS", 0.0)
    with pytest.raises(PowerError, match="no plug '1'"):
        await driver.read(within(5))


@needs("fence_apc_snmp", "snmpget")
@pytest.mark.parametrize("agent_name", ["fence_apc_snmp", "fence-tripplite-snmp"])
async def test_an_outlet_that_the_strip_does_not_have_is_never_off(pdu: Pdu, agent_name: str) -> None:
    """S3: asked by SNMP 2c, these agents call any outlet off that the strip does not answer for with "on"."""
    await fails(on_pdu(pdu, agent_name, plug="9").read(within(5)), ErrorType.INVALID_CONFIG, "no plug '9'")


@needs("fence_eaton_snmp", "snmpget")
async def test_the_seeds_eaton_strip_is_switched(chassis_in_process: Chassis) -> None:
    machine = chassis_in_process.machine("node-1")
    access = Access(community=COMMUNITY)
    async with await start_pdu(chassis_in_process, {1: "node-1", 2: "node-2"}, access, model="eaton") as strip:
        driver = on_pdu(strip, "fence_eaton_snmp", power_wait="0", **{"snmp-version": "1"})
        await driver.off(within(8))
        assert (await driver.read(within(5))).state is PowerState.OFF
    assert [entry.command for entry in machine.log] == ["off"]
    assert chassis_in_process.machine("node-2").log == []


@needs_library
async def test_an_agent_sees_nothing_of_ours_and_its_secrets_by_its_input_only(
    agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S12. The mark by which its processes are found is a number of its own run."""
    monkeypatch.setenv("CANARY", "k3p-my-s3cret")
    agent.script(status=["on", "on", "off"])
    secret = ' "quoted" = \' #k3p '
    await agent.driver(passwd=secret, username="fencer").off(within(5))
    told = agent.told()
    assert told["--password"] == secret
    assert told["--username"] == "fencer"
    assert told["--retry-on"] == "0"
    seen = (agent.folder / "environment").read_bytes() + (agent.folder / "arguments").read_bytes()
    assert b"k3p" not in seen
    assert sorted(part.split(b"=")[0] for part in (agent.folder / "environment").read_bytes().split(b"\0") if b"=" in part) == [
        b"LC_ALL",
        b"NODEWARDEN_OPERATION",
        b"PATH",
        b"PYTHONWARNINGS",
    ]


@needs("fence_apc_snmp", "snmpget")
async def test_no_tool_of_an_snmp_agent_shows_the_community(pdu: Pdu, chassis_in_process: Chassis) -> None:
    """S12: the agent would write it into the arguments of snmpget, where every user of the machine can read it. The tool soon
    blanks it there, and so does ipmitool: too late for who looks at the right moment. Here it never was."""
    asked = asyncio.Event()

    async def never(machine: Machine, command: str) -> None:
        asked.set()
        await asyncio.Event().wait()

    chassis_in_process.machine("node-1").before_set = never
    off = asyncio.create_task(on_pdu(pdu).off(within(8.0)))
    async with asyncio.timeout(8):
        await asked.wait()
    family = await _family_with(b"snmpset", os.getpid())
    seen = b"".join(family.values())
    error = await fails(off, ErrorType.AMBIGUOUS)
    assert COMMUNITY.encode() not in seen
    assert f"\x00-c\x00\x00127.0.0.1:{pdu.port}\x00".encode() in seen
    assert COMMUNITY not in f"{error}{on_pdu(pdu)!r}"


@needs("fence_ipmilan", "ipmitool")
@pytest.mark.skipif(not ipmi_sim.installed(), reason="ipmi_sim is not installed")
async def test_ipmitool_gets_the_password_unseen(chassis: Chassis, tmp_path: Path) -> None:
    """S12, S2: the agent would write it into ipmitool's arguments. On OpenIPMI's simulator."""
    machine = chassis.machine("node-1")
    bmc = await start_bmc(chassis.url, machine.name, USERNAME, PASSWORD, kind="ipmi_sim", state_dir=tmp_path)
    parameters = {"ip": "127.0.0.1", "ipport": str(bmc.port), "cipher": "3", "power_wait": "0"}
    family: list[bytes] = []

    async def look(machine: Machine, command: str) -> None:
        family.extend(seen for seen in _family(os.getpid()).values() if b"ipmi_sim" not in seen)

    machine.before_set = look
    try:
        driver = agent_driver("fence_ipmilan", parameters, username=USERNAME, password=PASSWORD)
        await driver.off(within(10))
        assert (await driver.read(within(5))).state is PowerState.OFF
        wrong = agent_driver("fence_ipmilan", parameters, username=USERNAME, password="not-the-one")
        # Not what Python thinks of the agent's imports; that the password is wrong it does not say.
        with pytest.raises(PowerError, match=r"'on': Failed: Unable to obtain correct plug status .*; nothing was commanded"):
            await wrong.on(within(5))
    finally:
        await bmc.stop()
    assert [entry.command for entry in machine.log] == ["off"]
    assert any(b"/usr/bin/ipmitool" in seen and b"power\0off" in seen for seen in family)
    assert not any(b"/usr/bin/ipmitool" in seen and b"-I\0lanplus" not in seen for seen in family), "IPMI 1.5"
    assert not any(PASSWORD.encode() in seen or b"X" * len(PASSWORD) in seen for seen in family)


@needs("fence_dummy")
async def test_an_agent_that_only_pretends_needs_the_workers_leave(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("on")
    driver = agent_driver("fence-dummy", {"status-file": str(state)})
    await driver.off(within(5))
    assert state.read_text() == "off"
    assert (await driver.read(within(5))).state is PowerState.OFF
    device = PowerDevice(driver="fence_dummy", endpoint=driver.endpoint, parameters={"status-file": str(state)})
    with pytest.raises(PowerError, match=r"not allowed on this worker: it has no device.* worker\.fence_agents") as caught:
        driver_for(device, DeviceCredentials())
    assert caught.value.type is ErrorType.INVALID_CONFIG


@needs("fence_ipmilan")
async def test_parameters_are_held_against_the_agents_own_description() -> None:
    """N09 on a real agent: what it does not know is left out and said, what it can't take is refused before it is started."""
    with pytest.raises(PowerError, match="'privlvl': expected one of callback, user, operator, administrator, got 'king'"):
        await agent_driver("fence_ipmilan", {"ip": "127.0.0.1", "privlvl": "king"}).read(within(5))
    with pytest.raises(PowerError, match="'target': expected letters"):
        await agent_driver("fence_ipmilan", {"ip": "127.0.0.1", "target": "3,v"}).read(within(5))
    with pytest.raises(PowerError, match="expected the driver ipmi instead") as caught:
        await agent_driver("fence_ipmilan", {"ip": "127.0.0.1"}, hexadecimal_kg="c0ffee").read(within(5))
    assert "c0ffee" not in str(caught.value)


@needs("fence_apc")
async def test_what_a_plan_knows_of_agents_is_what_they_say_of_themselves() -> None:
    """S9, S10: their default ports, whether they have plugs, what they can be asked for."""
    for name in ("apc", "brocade", "cisco_ucs", "eaton_snmp", "ipmilan", "lpar", "redfish", "rsb"):
        agent_name = f"fence_{name}"
        metadata = (await installed(agent_name, within(10))).metadata
        port = metadata.parameters["ipport"].default
        assert f":{port}" in endpoint_of(agent_name, {"ip": "a"} | ({} if metadata.has("port_as_ip") else {"plug": "1"}))
        assert metadata.has("port_as_ip") == (agent_name in fence_agents.SINGLE_MACHINE_AGENTS)
        assert {"status", "on", "off"} <= metadata.actions


@needs("fence_apc_snmp", "snmpget")
async def test_a_cancelled_operation_leaves_no_process_and_no_file(
    pdu: Pdu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """S34, S12."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pdu.silent = True
    of_other_tests = _family(os.getpid())  # for example a Temporal server that this process shares
    reading = asyncio.create_task(on_pdu(pdu).read(within(10)))
    family = (await _family_with(b"snmpwalk", os.getpid())).keys() - of_other_tests.keys()
    assert _links(tmp_path) == ["snmp.conf"]
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert family
    async with asyncio.timeout(5):
        for pid in family:
            await gone(pid)
    assert _links(tmp_path) == []


@needs("fence_apc_snmp")
async def test_without_a_folder_for_its_links_nothing_is_begun(pdu: Pdu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container whose root is read-only and that has no /tmp."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    await fails(on_pdu(pdu).read(within(5)), ErrorType.TRANSIENT, "TMPDIR")


WORKER = """
import asyncio, pathlib, sys
from tests.power.agents.scripted import ScriptedAgent
from tests.power.conftest import within
asyncio.run(ScriptedAgent(folder=pathlib.Path(sys.argv[1])).driver().off(within(4.0)))
"""


@needs_library
async def test_an_agent_dies_by_its_deadline_when_the_worker_was_killed(agent: ScriptedAgent) -> None:
    """S34: after deadline and margin nothing of a lost worker is in flight."""
    agent.script(status=["on"], answer_takes=60)
    root = Path(__file__).parents[3]
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, str(agent.folder), cwd=root)
    try:
        async with asyncio.timeout(20):
            while not agent.calls("status"):
                await asyncio.sleep(0.01)
        family = _family(worker.pid)
    finally:
        worker.kill()
        await worker.wait()
    assert any(b"fence_scripted" in seen and alive(pid) for pid, seen in family.items())
    async with asyncio.timeout(8):
        for pid in family:
            await gone(pid)


@pytest.mark.parametrize(
    ("agent_name", "reason"),
    [
        ("fence_kdump", "switches nothing off"),
        ("fence_sbd", "message"),
        ("fence_crosslink", "does not answer a ping"),  # S3
        ("fence-aws", "the driver ec2"),
        ("fence_scsi", "the machine runs on"),
        ("fence_ovh", "can't be read"),
        ("fence_ack_manual", "acknowledge"),
        ("fence_lpar", "not allowed on this worker: it calls every partition off that does not run where it is"),
        ("fence_ibmz", "not allowed on this worker: it calls every partition off that is not active"),
        ("fence_vmware", "not allowed on this worker: it puts the password into the arguments"),
        ("fence_apc_smnp", "it is none of the published package's"),
    ],
)
def test_agents_that_cannot_prove_off_or_are_unknown_are_refused(agent_name: str, reason: str) -> None:
    """S2, S12."""
    parameters = {"ip": "device", "plug": "1"}
    device = PowerDevice(driver=agent_name, endpoint=endpoint_of(agent_name, parameters), parameters=parameters)
    with pytest.raises(PowerError, match=reason) as caught:
        driver_for(device, DeviceCredentials())
    assert caught.value.type is ErrorType.INVALID_CONFIG


@pytest.mark.parametrize(
    ("credentials", "reason"),
    [
        ({"ip": "another"}, "would choose the device"),
        ({"port": "2"}, "would choose the device"),
        ({"action": "on"}, "is set by nodewarden itself"),
        ({"password_script": "/bin/sh"}, "run or write"),
        ({"password": "k3p\naction=on"}, "a single line"),
        ({"password": "k3p", "passwd": "another"}, "given twice"),
    ],
)
def test_credentials_choose_no_device_and_no_action(credentials: dict[str, str], reason: str) -> None:
    """S9: they are pinned by nothing. S12: their values are in no message."""
    with pytest.raises(PowerError, match=reason) as caught:
        _factory("fence_apc").build({"ip": "strip", "plug": "1"}, DeviceCredentials(values=credentials))
    assert caught.value.type is ErrorType.INVALID_CONFIG
    assert "k3p" not in str(caught.value)


def test_credentials_ask_for_no_insecurity() -> None:
    """S40: what was judged is what the parameters say."""
    credentials = DeviceCredentials(values={"ssl_insecure": "", "password": "http://k3p@"})
    with pytest.raises(PowerError, match="its credentials ask for TLS without verifying") as caught:
        _factory("fence_redfish").build({"ip": "bmc"}, credentials)
    assert "k3p" not in str(caught.value)
    _factory("fence_redfish").build({"ip": "bmc", "notls": "1"}, credentials)


@needs_library
async def test_what_makes_a_device_secure_is_not_left_out(agent: ScriptedAgent) -> None:
    """S40: a parameter that the agent does not know protects nobody."""
    with pytest.raises(PowerError, match="fence_scripted knows no ssl, without which it is spoken to by a way that is not known"):
        await agent.driver({"ssl": "1"}, password=PASSWORD).read(within(5))
    assert agent.calls() == []


async def test_an_agent_that_is_not_installed_is_said_to_be() -> None:
    driver = FenceAgentFactory(agent="fence_apc", search_path="/nonexistent").build({"ip": "a", "plug": "1"}, DeviceCredentials())
    with pytest.raises(PowerError, match="fence_apc is not installed on this worker: expected the package fence-agents"):
        await driver.read(within(5))


def _factory(agent: str) -> FenceAgentFactory:
    return FenceAgentFactory(agent=agent)


def _family(parent: int) -> dict[int, bytes]:
    """All that came of a process but servers that stay for other drivers, and what others see of each."""
    found: dict[int, bytes] = {}
    for child in children_of(parent):
        try:
            seen = visible(child)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"fork_server.py" not in seen:
            found |= {child: seen} | _family(child)
    return found


async def _family_with(program: bytes, parent: int) -> dict[int, bytes]:
    async with asyncio.timeout(10):
        while not any(program in seen for seen in _family(parent).values()):
            await asyncio.sleep(0.01)
    return _family(parent)


def _links(folder: Path) -> list[str]:
    return [file.name for inner in folder.iterdir() for file in inner.iterdir() if file.is_symlink()]


# What an agent's words mean.


@pytest.mark.parametrize(
    ("plug", "switch", "listed", "there"),
    [
        ("7", "1", {"1": "7", "2": "8"}, False),
        ("7", "2", {"2:1": "7", "2:2": "8"}, False),
        ("7", "2", {"2:7": "db", "2:8": ""}, True),
        ("7", "1", {"7": "db"}, True),
        ("db", "1", {"7": "db"}, True),
        ("7", "1", {"5f6b-a1": "7"}, True),
        ("7", "1", {"outlet-1": "7", "2": "8"}, True),
    ],
)
def test_a_number_is_no_other_plugs_name_where_plugs_have_numbers(
    plug: str, switch: str, listed: dict[str, str], there: bool
) -> None:
    """S3: an agent takes it for the number, and calls an outlet off that the strip does not have; people name outlets by the
    unit of the rack that they feed."""
    assert is_listed(plug, switch, listed) is there


# S41, on every agent that is installed: what it says of itself is held to no grammar that its own words would not pass.

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


# The common contract, by `fence_apc_snmp` and SNMP 3 on a power strip.

ACCESS = Access(community="c0mmunity-s3cret", username="fencer", password="k3p-my-s3cret", privacy_password="pr1vacy-s3cret")
SNMP3 = {"snmp_version": "3", "snmp_auth_prot": "SHA", "snmp_priv_prot": "AES"}


class PduBench(Bench):
    """Outlet 3 of a strip feeds the machine; there is no outlet 9."""

    secrets = (ACCESS.password, ACCESS.privacy_password, ACCESS.username)
    stalls_within = 2.0

    def __init__(self, pdu: Pdu, machine: Machine) -> None:
        super().__init__(machine)
        self._pdu = pdu

    def driver(self, *, password: str | None = None, target: str | None = None) -> PowerDriver:
        parameters = {"ip": "127.0.0.1", "ipport": str(self._pdu.port), "plug": "9" if target else "3"} | SNMP3
        return agent_driver(
            "fence_apc_snmp",
            parameters,
            username=ACCESS.username,
            password=password or ACCESS.password,
            snmp_priv_passwd=ACCESS.privacy_password,
        )

    async def commands(self) -> list[str]:
        return [power for _, power in self._pdu.sets]

    async def be_silent(self) -> None:
        self._pdu.silent = True


@pytest.fixture
async def bench() -> AsyncIterator[PduBench]:
    chassis = Chassis()
    async with await start_pdu(chassis, {3: "node-1", 4: "node-2"}, ACCESS) as pdu:
        yield PduBench(pdu, chassis.machine("node-1"))
        assert chassis.machine("node-2").log == []


@needs("fence_apc_snmp", "snmpget")
class TestFenceAgent(DriverConformance):
    async def test_off_that_is_accepted_and_not_carried_out_reads_on(self, bench: Bench) -> None:
        """S2: the agent waits for off by itself, and when it gives up that may have been too early. So it is never a failure."""
        bench.machine.set_faults(ignore_off=True)
        driver = bench.driver()
        await fails(driver.off(within(PATIENCE / 2)), ErrorType.AMBIGUOUS, "may have been carried out")
        assert await bench.commands() == ["off"]
        assert (await driver.read(within(PATIENCE))).state is PowerState.ON


# S12: secrets reach agents and their tools from a worker whose memory is closed to its own user (`keep_memory_private`), who is
# not root, as in the image.

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="has Linux keep the memory private")
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


@ON_LINUX
@pytest.mark.skipif(not Path(AGENT[0]).exists(), reason="a Python that everybody may run")
async def test_the_tool_of_an_agent_reads_a_file_in_memory() -> None:
    assert await as_nobody("hand_a_file", AGENT, {"identity_file": SECRET}) == 2 * SECRET


@ON_LINUX
@needs("fence_apc_snmp", "snmpget")
async def test_snmp_tools_are_told_the_community() -> None:
    chassis = Chassis()
    async with await start_pdu(chassis, {1: "node-1"}, Access(community=SECRET)) as pdu:
        parameters = {"ip": "127.0.0.1", "ipport": str(pdu.port), "plug": "1", "snmp_version": "1"}
        assert await as_nobody("read", "fence_apc_snmp", parameters, {"community": SECRET}) == "on"
