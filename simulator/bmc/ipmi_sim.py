"""A BMC played by `ipmi_sim` of the OpenIPMI project, which was written by others: a pass against it is interoperability.

It asks for the power and switches it by a script; ours asks the chassis (`chassis.py`). While the script waits, so does
the whole BMC. Its event log has one entry, of a power supply. It knows no NMI and no cipher suite 17. Started by `bmc.py`.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import subprocess
from pathlib import Path
from urllib.parse import quote

from simulator.bmc.setting import BmcSetting

PORTS_IN_USE = Path("/proc/net/udp")

PASSWORD_BYTES = 16
PLAIN = re.compile(r"[!#-\[\]-~]+")
"""What its configuration can carry inside quotes: printable, without blank, quote and backslash."""

CONFIGURATION = """\
name "bmc"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_admin none md5
    guid {guid}
  endlan
  chassis_control "{script}"
  user 1 false "" "" admin 10 none md5
  user 2 true "{username}" "{password}" admin 10 none md5
"""

MANAGEMENT_CONTROLLER = """\
mc_setbmc 0x20
mc_add 0x20 0x20 no-device-sdrs 0x01 0x01 0x07 0x8e 0x0 0x0
mc_add_fru_data 0x20 0 {inventory_size:#x} data {inventory}
sel_enable 0x20 100 0x0a
sel_add 0x20 0x02 0x40 0x54 0x20 0x69 0x20 0x00 0x04 0x08 0x51 0x6f 0x01 0xff 0xff
mc_enable 0x20
"""

# Bash alone, because it is started for each question: 3 ms instead of 30 for anything that has to be loaded first.
CHASSIS_SCRIPT = """\
#!/bin/bash
request() {{
    exec 3<>/dev/tcp/127.0.0.1/{port} || exit 1
    printf '%s /machines/{machine}/%s?device=ipmi_sim HTTP/1.0\\r\\nContent-Length: %d\\r\\n\\r\\n%s' \\
        "$1" "$2" "${{#3}}" "$3" >&3
    IFS= read -r -d '' -u 3 answer
    [[ $answer == 'HTTP/1.'?' 200 '* ]] || exit 1
}}
case "$*" in
    'get power')
        request GET power ''
        case $answer in
            *'"power": "on"'*) echo power:1 ;;
            *'"power": "off"'*) echo power:0 ;;
            *) exit 1 ;;
        esac ;;
    'set power 0') request PUT power '{{"power": "off"}}' ;;
    'set power 1') request PUT power '{{"power": "on"}}' ;;
    'set reset 1') request POST reset '' ;;
    *) exit 1 ;;
esac
"""

# Get Channel Authentication Capabilities: the first thing every client asks, and answered without a session.
PROBE = bytes.fromhex("0600ff07000000000000000000092018c88100388e04b5")


def installed() -> bool:
    """Whether this machine can run it, and show us that it has the port to itself."""
    return shutil.which("ipmi_sim") is not None and shutil.which("bash") is not None and PORTS_IN_USE.exists()


def objection(setting: BmcSetting) -> str | None:
    """Why ipmi_sim cannot play this BMC, or None."""
    if PLAIN.fullmatch(setting.username) is None or PLAIN.fullmatch(setting.password) is None:
        return "user and password may hold printable characters alone, without blanks, quotes and backslashes"
    if len(setting.password) > PASSWORD_BYTES or len(setting.username) > PASSWORD_BYTES:
        return f"user and password may have up to {PASSWORD_BYTES} bytes"
    if re.search(r"\s", str(setting.folder)):
        return f"the path of its folder must be without blanks: {setting.folder}"
    return None


def launch(setting: BmcSetting) -> tuple[subprocess.Popen[bytes], int]:
    """Write its files, readable by no other user, and start it on a port that is free just now."""
    port = setting.port or _free_port()
    script = _write(setting.folder / "chassis", _script(setting), mode=0o700)
    username, password, guid = setting.username, setting.password, setting.system_uuid.bytes_le.hex()
    configuration = _write(
        setting.folder / "lan.conf",
        CONFIGURATION.format(port=port, guid=guid, script=script, username=username, password=password),
    )
    controller = _write(
        setting.folder / "controller.conf",
        MANAGEMENT_CONTROLLER.format(
            inventory_size=len(setting.inventory),
            inventory=" ".join(f"{byte:#04x}" for byte in setting.inventory),
        ),
    )
    state = setting.folder / "state"
    state.mkdir(mode=0o700, exist_ok=True)
    with (setting.folder / "output").open("wb") as output:
        # Standard input stays open: it ends with us, and ipmi_sim ends with it.
        process = subprocess.Popen(
            ["ipmi_sim", "-c", str(configuration), "-f", str(controller), "-s", str(state)],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return process, port


async def answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until the BMC answers; False where it ended, or shares its port with another process."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        while process.poll() is None:
            await loop.sock_sendto(probe, PROBE, ("127.0.0.1", port))
            try:
                async with asyncio.timeout(0.02):
                    await loop.sock_recv(probe, 512)
            except (TimeoutError, ConnectionRefusedError):
                await asyncio.sleep(0.005)
                continue
            holders = _holders(port)
            if holders & _sockets_of(process.pid):
                return len(holders) == 1
    return False


def _script(setting: BmcSetting) -> str:
    port = setting.chassis_url.rpartition(":")[2]
    # A quoted name holds no character that means anything to the shell, only percent signs, which printf would read.
    return CHASSIS_SCRIPT.format(port=int(port), machine=quote(setting.machine, safe="").replace("%", "%%"))


def _write(path: Path, content: str, mode: int = 0o600) -> Path:
    path.unlink(missing_ok=True)
    path.touch(mode=mode)
    path.write_text(content)
    return path


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as candidate:
        candidate.bind(("127.0.0.1", 0))
        return int(candidate.getsockname()[1])


def _holders(port: int) -> set[str]:
    """The sockets that hold the port: ipmi_sim shares it silently with a process that took it in the meantime."""
    lines = [line.split() for line in PORTS_IN_USE.read_text().splitlines()[1:]]
    return {f"socket:[{fields[9]}]" for fields in lines if fields[1].endswith(f":{port:04X}")}


def _sockets_of(pid: int) -> set[str]:
    try:
        return {str(handle.readlink()) for handle in Path(f"/proc/{pid}/fd").iterdir()}
    except FileNotFoundError:
        # It ended, or closed one of its files, while we looked.
        return set()
