"""Fence agents for tests: drivers of the real ones, and one of our own on the real library, whose device follows a script."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from activities.power.driver import DeviceCredentials, PowerDriver
from activities.power.fence_agent import KNOWN, SEARCH_PATH, FenceAgentFactory, InstalledAgent
from activities.power.registry import driver_for
from policy.fence.drivers import fence_agents
from policy.fence.plan import PowerDevice

LIBRARY = Path("/usr/share/fence/fencing.py")


def needs(*programs: str) -> pytest.MarkDecorator:
    """Skips where one of these is not installed."""
    missing = [program for program in programs if shutil.which(program, path=SEARCH_PATH) is None]
    return pytest.mark.skipif(
        bool(missing), reason=f"not installed: {', '.join(missing)} (packages fence-agents, snmp, ipmitool)"
    )


needs_library = pytest.mark.skipif(not LIBRARY.exists(), reason="the package fence-agents is not installed")


def agent_driver(agent: str, parameters: dict[str, str], **credentials: str) -> PowerDriver:
    """The driver as a worker gets it."""
    device = PowerDevice(
        driver=agent, endpoint=fence_agents.endpoint(fence_agents.agent_name(agent), parameters), parameters=parameters
    )
    return driver_for(device, DeviceCredentials(values=credentials), further_agents=frozenset({"fence_dummy"}))


SCRIPTED = """\
#!/usr/bin/python3 -tt
import atexit, json, os, pathlib, sys, time
sys.path.append("/usr/share/fence")
from fencing import *
from fencing import all_opt, fail, fail_usage, EC_STATUS

FOLDER = pathlib.Path(sys.argv[0]).parent
SCRIPT = json.loads((FOLDER / "script").read_text())
STATE = FOLDER / "calls"

def call(word):
    with STATE.open("a") as calls:
        calls.write(word + "\\n")

def status(connection, options):
    call("status")
    time.sleep(SCRIPT.get("answer_takes", 0))
    said = SCRIPT["status"][:STATE.read_text().split().count("status")][-1]
    if said == "fails":
        fail(EC_STATUS)
    return said

def switch(connection, options):
    call(options["--action"])
    (FOLDER / "told").write_text(json.dumps({name: str(value) for name, value in options.items() if name.startswith("--")}))

def plugs(connection, options):
    call("list")
    return {plug: ("", "") for plug in SCRIPT.get("plugs", [])}

def cycle(connection, options):
    call("cycle")
    return True

def main():
    atexit.register(atexit_handler)
    wanted = ["ipaddr", "login", "no_login", "passwd", "no_password", "port", "method", "telnet", "diag", "notls"]
    if SCRIPT.get("default_method"):
        all_opt["method"]["default"] = SCRIPT["default_method"]
    options = check_input(wanted, process_input(wanted))
    (FOLDER / "environment").write_bytes(pathlib.Path("/proc/self/environ").read_bytes())
    (FOLDER / "arguments").write_bytes(pathlib.Path("/proc/self/cmdline").read_bytes())
    show_docs(options, {"shortdesc": "scripted", "longdesc": "", "vendorurl": ""})
    if SCRIPT.get("ends"):
        sys.stdout.write(SCRIPT.get("says", ""))
        sys.stdout.flush()
        sys.stderr.write(SCRIPT.get("complains", ""))
        os._exit(SCRIPT["ends"] - 1)
    if options["--action"] == "diag":  # as fence_ipmilan does it
        options |= {"--action": "reboot", "--method": "cycle"}
    sys.exit(fence_action(None, options, switch, status, plugs, cycle))

main()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedAgent:
    """An agent `fence_scripted` on the real library. Its script: `status`, what its device says one reading after the other, the
    last for ever; `plugs`, those that it lists; `ends` (a status plus one), `says` and `complains`, to end without asking."""

    folder: Path

    def script(self, **script: Any) -> None:
        (self.folder / "script").write_text(json.dumps({"plugs": ["1"]} | script))

    def driver(self, parameters: dict[str, str] | None = None, **credentials: str) -> PowerDriver:
        chosen = {"ip": self.folder.name, "plug": "1"} | (parameters or {})
        factory = FenceAgentFactory(
            agent="fence_scripted", further=frozenset({"fence_scripted"}), search_path=f"{self.folder}:{SEARCH_PATH}"
        )
        return factory.build(chosen, DeviceCredentials(values=credentials))

    def calls(self, *words: str) -> list[str]:
        """What reached the device, of these words or of all."""
        file = self.folder / "calls"
        said = file.read_text().split() if file.exists() else []
        return [word for word in said if word in words or not words]

    def told(self) -> dict[str, str]:
        """The options that the agent had when it switched."""
        found: dict[str, str] = json.loads((self.folder / "told").read_text())
        return found


def scripted_agent(folder: Path) -> ScriptedAgent:
    """Write the agent into an empty folder of its own. It is one program wherever it lies: once it has described itself to this
    process, it is not started for that again."""
    program = folder / "fence_scripted"
    program.write_text(SCRIPTED)
    program.chmod(0o755)
    described = [each.metadata for each in KNOWN.values() if each.program.name == program.name]
    if described:
        KNOWN[program, program.stat().st_mtime_ns] = InstalledAgent(program=program, metadata=described[0])
    agent = ScriptedAgent(folder=folder)
    agent.script(status=["on"])
    return agent
