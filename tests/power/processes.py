"""Looks at processes from the outside, as another user of the machine could."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path


def children_of(parent: int) -> list[int]:
    """The living children of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def operations_of(parent: int) -> list[int]:
    """The IPMI operations that a process has running."""
    return [pid for pid in children_of(parent) if b"ipmi_child" in visible(pid)]


def visible(pid: int) -> bytes:
    """What `ps` shows of a process: its arguments and its environment."""
    folder = Path(f"/proc/{pid}")
    return (folder / "cmdline").read_bytes() + b"\0" + (folder / "environ").read_bytes()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


async def gone(pid: int) -> None:
    """Wait until a process that is perhaps not our child has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)
