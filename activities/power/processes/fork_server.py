"""The worker's side of `operation_server.py`: one operation in a child of a process that has the protocol's library loaded.

What `child_process.py` promises of a program holds of such a child: its credentials go in by its own socket only (S12), and it is
dead by its deadline, whatever hangs inside it (S34). It costs a fork instead of an interpreter and the imports of a library.

The server is started by the first operation, and again by the next one after it has died. Its children die with it: what was
under way then has ended without an answer, and how far it had come says what that means (`staged_child.py`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from activities.power.driver import Deadline
from activities.power.processes.child_process import Ended, collect, inherited, not_started

KILLED_WITHIN = 1.0
"""Seconds in which a child that was let go of must be gone; else the server stands still, and is killed with all its children.
Less than `IN_FLIGHT_MARGIN`."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that was started, and the socket on which it hears of children to fork."""

    process: subprocess.Popen[bytes]
    control: socket.socket

    @property
    def alive(self) -> bool:
        """Whether it has not been seen to end."""
        return self.process.poll() is None

    def ask_for(self, sockets: list[int]) -> None:
        """Hand over what the child is to have. Raises OSError where the server has died or takes no more."""
        socket.send_fds(self.control, [b"\0"], sockets)

    def end(self) -> None:
        """Kill it, and with it all its children."""
        self.control.close()
        self.process.kill()
        self.process.wait()


class ForkServer:
    """The server of one protocol, by the module of `activities/power/` that speaks it. A worker has one of each."""

    def __init__(self, protocol: str) -> None:
        # By path and with -P, so that neither the working folder nor ours decides what it imports.
        self.command: tuple[str, ...] = (sys.executable, "-P", str(Path(__file__).with_name("operation_server.py")), protocol)
        self._running: RunningServer | None = None
        atexit.register(self.end)

    @property
    def pid(self) -> int | None:
        """The server's process, None where none was started."""
        return self._running.process.pid if self._running else None

    async def run(self, request: bytes, deadline: Deadline) -> Ended:
        """Have a child read `request` until it ends or the deadline does. However this is left, it ends.

        Raises PowerError (Transient) where no child could be started.
        """
        server, operation, leash = self.fork()
        with operation, leash:
            return await _carried_out(server, request, deadline, operation, leash)

    def fork(self) -> tuple[RunningServer, socket.socket, socket.socket]:
        """Have a child forked. Returns by whom, what it reads and writes, and the leash: it is killed once that is let go of.

        Raises PowerError (Transient).
        """
        try:
            operation, its_operation = socket.socketpair()
            leash, its_leash = socket.socketpair()
            leash.setblocking(False)
            with its_operation, its_leash:
                return self._ask_for([its_operation.fileno(), its_leash.fileno()]), operation, leash
        except OSError as error:
            raise not_started(str(error.strerror)) from error

    def end(self) -> None:
        """Kill the server. The next operation starts another."""
        if self._running is not None:
            self._running.end()
            self._running = None

    def _ask_for(self, sockets: list[int]) -> RunningServer:
        if self._running is None or not self._running.alive:
            self._running = self._start()
        self._running.ask_for(sockets)
        return self._running

    def _start(self) -> RunningServer:
        self.end()
        control, its_control = socket.socketpair()
        control.setblocking(False)
        with its_control:
            process = subprocess.Popen(
                self.command,
                stdin=its_control.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env=inherited(),
            )
        return RunningServer(process, control)


async def _carried_out(
    server: RunningServer, request: bytes, deadline: Deadline, operation: socket.socket, leash: socket.socket
) -> Ended:
    stdout, status, timed_out = bytearray(), "", False
    reader, writer = await asyncio.open_unix_connection(sock=operation)
    try:
        writer.write(request)
        writer.write_eof()
        async with asyncio.timeout(deadline.remaining().total_seconds()):
            await _read(reader, stdout)
            status = await _status(leash)
    except TimeoutError:
        timed_out = True
        leash.close()
        await _last_words(server, reader, stdout)
    finally:
        writer.transport.abort()
    word, _, what = status.partition(" ")
    if word == "refused":
        raise not_started(what)
    if not word and not timed_out:
        server.end()  # it has died, and the child with it
    returncode = int(what) if word else -signal.SIGKILL
    return Ended(stdout=bytes(stdout), stderr=b"", returncode=returncode, timed_out=timed_out)


async def _last_words(server: RunningServer, reader: asyncio.StreamReader, stdout: bytearray) -> None:
    """What it said in its last moments: that decides between "not sent" and "may have been carried out"."""
    for _ in (server, "what it left behind"):
        try:
            async with asyncio.timeout(KILLED_WITHIN):
                await _read(reader, stdout)
                return
        except TimeoutError:
            server.end()


async def _read(reader: asyncio.StreamReader, into: bytearray) -> None:
    """Until nobody is left who could say more. By a stream, which loses nothing when it is interrupted."""
    with contextlib.suppress(ConnectionError):  # it ended before it had read its request
        await collect(reader, into)


async def _status(leash: socket.socket) -> str:
    """What the server says of the child's end; "" where it has died itself."""
    with contextlib.suppress(ConnectionError):
        return (await asyncio.get_running_loop().sock_recv(leash, 256)).decode()
    return ""
