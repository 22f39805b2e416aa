"""Starts and ends simulated BMCs: one process each, on a loopback port, before a machine of the chassis.

Which program plays the BMC is `ipmi_sim.py` where it is installed and `python_bmc.py` elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from uuid import UUID

from simulator.bmc import ipmi_sim
from simulator.bmc.inventory import inventory_area, serial_of, system_uuid_of
from simulator.bmc.setting import BmcSetting

Kind = Literal["ipmi_sim", "python"]
PYTHON_BMC = Path(__file__).with_name("python_bmc.py")
START_SECONDS = 20.0
ATTEMPTS = 3


class StartError(RuntimeError):
    """A BMC that did not come up; the text says which, and what it printed."""


@dataclass(slots=True, kw_only=True)
class Bmc:
    """A running BMC. `stop` it, or it ends with this process."""

    machine: str
    kind: Kind
    address: str
    port: int
    system_uuid: UUID
    serial: str
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def pid(self) -> int:
        """Its process, which also leads its process group."""
        return self.process.pid

    @property
    def endpoint(self) -> str:
        """Where a client finds it."""
        return f"ipmi://{self.address}:{self.port}"

    def freeze(self) -> None:
        """Let it answer nothing at all, like a BMC without power or network."""
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on, with what reached it in the meantime."""
        os.killpg(self.pid, signal.SIGCONT)

    async def stop(self) -> None:
        """End it and whatever it started. It has nothing to save."""
        if self.process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        await asyncio.to_thread(self.process.wait)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


async def start_bmc(
    chassis_url: str,
    machine: str,
    username: str,
    password: str,
    *,
    state_dir: Path,
    kind: Kind | Literal["auto"] = "auto",
    system_uuid: UUID | None = None,
    port: int = 0,
) -> Bmc:
    """Start a BMC for a machine that the chassis knows, and wait until it answers. Many can be started at once.

    state_dir gets a folder for this BMC. kind `auto`: ipmi_sim where it is installed and can carry these credentials.
    """
    folder = state_dir / f"bmc-{re.sub(r'[^A-Za-z0-9._-]', '_', machine)}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    serial = serial_of(machine)
    setting = BmcSetting(
        chassis_url=chassis_url,
        machine=machine,
        username=username,
        password=password,
        system_uuid=system_uuid or system_uuid_of(machine),
        inventory=inventory_area(serial),
        port=port,
        folder=folder,
    )
    objection = ipmi_sim.objection(setting)
    if kind == "ipmi_sim" and objection is not None:
        raise ValueError(f"ipmi_sim cannot play the BMC of {machine}: {objection}")
    chosen: Kind = kind if kind != "auto" else "ipmi_sim" if ipmi_sim.installed() and objection is None else "python"
    start = _start_ipmi_sim if chosen == "ipmi_sim" else _start_python
    try:
        async with asyncio.timeout(START_SECONDS):
            process, bound_port = await start(setting)
    except TimeoutError as error:
        raise StartError(f"the {chosen} BMC of {machine} did not answer within {START_SECONDS:.0f} s") from error
    return Bmc(
        machine=machine,
        kind=chosen,
        address="127.0.0.1",
        port=bound_port,
        system_uuid=setting.system_uuid,
        serial=serial,
        process=process,
    )


async def _start_ipmi_sim(setting: BmcSetting) -> tuple[subprocess.Popen[bytes], int]:
    for _ in range(ATTEMPTS):
        process, port = ipmi_sim.launch(setting)
        try:
            if await ipmi_sim.answers(process, port):
                return process, port
        except BaseException:
            _end(process)
            raise
        _end(process)
        if setting.port:
            break
    output = (setting.folder / "output").read_text(errors="replace").strip()
    raise StartError(f"ipmi_sim for {setting.machine} ended or found its port taken: {output}")


async def _start_python(setting: BmcSetting) -> tuple[subprocess.Popen[bytes], int]:
    process = _launch_python(setting)
    assert process.stdout is not None
    try:
        first_line = await _first_line(process.stdout.fileno())
    except BaseException:
        _end(process)
        raise
    if not first_line.strip().isdigit():
        _end(process)
        output = (setting.folder / "output").read_text(errors="replace").strip()
        raise StartError(f"the python BMC for {setting.machine} ended: {output}")
    return process, int(first_line)


def _launch_python(setting: BmcSetting) -> subprocess.Popen[bytes]:
    with (setting.folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", str(PYTHON_BMC)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
    line = {
        "chassis_url": setting.chassis_url,
        "machine": setting.machine,
        "username": setting.username,
        "password": setting.password,
        "system_uuid": str(setting.system_uuid),
        "inventory": setting.inventory.hex(),
        "port": setting.port,
    }
    assert process.stdin is not None
    process.stdin.write(json.dumps(line).encode() + b"\n")
    process.stdin.flush()
    return process


async def _first_line(stream: int) -> bytes:
    """Its first line, or what there is of it when the process ends."""
    os.set_blocking(stream, False)
    line = b""
    while not line.endswith(b"\n"):
        try:
            part = os.read(stream, 64)
        except BlockingIOError:
            await asyncio.sleep(0.005)
            continue
        if not part:
            break
        line += part
    return line


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
