"""Starts and ends a simulated Redfish service: one process on a loopback port, before as many machines of the chassis as wanted.

One process and not one per machine, as a chassis manager is: twelve machines cost no more memory than one. Where each is to have
a service of its own, start one for each. What plays it is `emulator.py`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from simulator.api.access import certificates
from simulator.bmc.inventory import serial_of, system_uuid_of

ADDRESS = "127.0.0.1"
EMULATOR = Path(__file__).with_name("emulator.py")
START_SECONDS = 20.0


class StartError(RuntimeError):
    """A service that did not come up; the text says what it printed."""


@dataclass(slots=True, kw_only=True)
class RedfishService:
    """A running service. `stop` it, or it ends with this process. authority: the file with the authority to trust."""

    machines: tuple[str, ...]
    port: int
    authority: Path
    system_uuids: Mapping[str, UUID]
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def address(self) -> str:
        """Where it listens."""
        return ADDRESS

    @property
    def pid(self) -> int:
        """Its process, which also leads its process group."""
        return self.process.pid

    def endpoint(self, machine: str) -> str:
        """Where a client finds this machine."""
        return f"redfish://{ADDRESS}:{self.port}{self.system(machine)}"

    def system(self, machine: str) -> str:
        """The path of this machine."""
        return f"/redfish/v1/Systems/{machine}"

    def freeze(self) -> None:
        """Let it answer nothing at all, for none of its machines."""
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on, with what reached it in the meantime."""
        os.killpg(self.pid, signal.SIGCONT)

    async def stop(self) -> None:
        """End it. It has nothing to save."""
        await asyncio.to_thread(_end, self.process)


async def start_redfish(
    chassis_url: str,
    machines: Sequence[str],
    username: str,
    password: str,
    *,
    state_dir: Path,
    system_uuids: Mapping[str, UUID] | None = None,
    port: int = 0,
) -> RedfishService:
    """Start a service for machines that the chassis knows, and wait until it answers.

    state_dir gets a folder for it. system_uuids: of the machines that shall not have one made from their name.
    """
    if importlib.util.find_spec("sushy_tools") is None:
        raise StartError("sushy-tools is not installed: it plays the Redfish services (`pip install sushy-tools`)")
    issued = certificates.issue(ADDRESS)
    folder = _folder(state_dir)
    authority = _written(folder / "authority.pem", issued.authority_pem)
    uuids = {name: system_uuid_of(name) for name in machines} | dict(system_uuids or {})
    setting = {
        "chassis_url": chassis_url,
        "systems": {name: {"uuid": str(uuids[name]), "serial": serial_of(name)} for name in machines},
        "username": username,
        "password": password,
        "certificate": issued.server_pem.decode(),
        "address": ADDRESS,
        "port": port,
        "folder": str(folder),
    }
    process = _launch(setting, folder)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            first_line = await asyncio.to_thread(process.stdout.readline)
    except BaseException as error:
        _end(process)
        if isinstance(error, TimeoutError):
            raise StartError(f"the Redfish service did not answer within {START_SECONDS:.0f} s") from error
        raise
    if not first_line.strip().isdigit():
        _end(process)
        raise StartError(f"the Redfish service ended: {(folder / 'output').read_text(errors='replace').strip()}")
    return RedfishService(
        machines=tuple(machines), port=int(first_line), authority=authority, system_uuids=uuids, process=process
    )


def _folder(state_dir: Path) -> Path:
    state_dir.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="redfish-", dir=state_dir))


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _launch(setting: Mapping[str, object], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", str(EMULATOR)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
    assert process.stdin is not None
    process.stdin.write(json.dumps(setting).encode() + b"\n")
    process.stdin.flush()
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
