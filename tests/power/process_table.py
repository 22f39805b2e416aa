"""Looks at processes from the outside, as another user of the machine could."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from activities.power.bmc.child_handle import ForkServer


def children_of(parent: int, *, dead: bool = False) -> list[int]:
    """The living children of a process; dead: and those that it has not waited for."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent and (dead or fields[0] != "Z"):
            found.append(int(stat.parent.name))
    return found


def servers_of(parent: int, protocol: str = "bmc.ipmi") -> list[int]:
    """The fork servers of a protocol that a process has."""
    return [pid for pid in children_of(parent) if f"fork_server.py\0{protocol}".encode() in visible(pid)]


def operations_of(parent: int, protocol: str = "bmc.ipmi") -> list[int]:
    """The operations of a protocol that a process has running."""
    return [pid for server in servers_of(parent, protocol) for pid in children_of(server)]


@contextmanager
def forked(server: ForkServer, request: bytes) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A child that has its request and no worker beside it: its own socket, and its leash, both as a worker has them."""
    operation, leash = server.fork()
    with operation, leash:
        for each in (operation, leash):
            each.setblocking(True)
        operation.sendall(request)
        operation.shutdown(socket.SHUT_WR)
        yield operation, leash


def answer_of(server: ForkServer, request: bytes) -> tuple[bytes, str]:
    """What such a child says until it ends by itself, and what the server says of its end."""
    with forked(server, request) as (operation, leash):
        said = b"".join(iter(lambda: operation.recv(4096), b""))
        return said, leash.recv(256).decode()


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
