"""The worker's side of `fork_server.py`: a child for one session with a device, forked by a server that has the library loaded.

What `agent_process.py` promises of a program holds of such a child: its credentials go in by its own socket only (S12), and it is
dead by the deadline of what it was last asked, whatever hangs inside it (S34). It costs a fork instead of an interpreter and the
imports of a library.

The server is started by the first session, and again by the next one after it has died. Its children die with it: what was asked
of them then has ended without an answer, and how far it had come says what that means (`drivers.py`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from activities.power.agent_process import OUTPUT_LIMIT, inherited, not_started
from activities.power.driver import Deadline

KILLED_WITHIN = 1.0
"""Seconds in which a child that is let go of must be gone; else the server stands still, and is killed with all its children.
Less than `IN_FLIGHT_MARGIN`."""


class ForkServer:
    """The server of one protocol, by the module of `activities/power/` that speaks it. A worker has one of each."""

    def __init__(self, protocol: str) -> None:
        # By path and with -P, so that neither the working folder nor ours decides what it imports.
        self.command: tuple[str, ...] = (sys.executable, "-P", str(Path(__file__).with_name("fork_server.py")), protocol)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        atexit.register(self.end)

    @property
    def pid(self) -> int | None:
        """The server's process, None where none was started."""
        return self._process.pid if self._process else None

    @asynccontextmanager
    async def child(self) -> AsyncIterator[ChildHandle]:
        """A child of its own. However this is left, the child ends: by itself where it is asked for nothing more, else killed.

        Raises PowerError (Transient) where none can be forked.
        """
        operation, leash = self.fork()
        with operation, leash:
            reader, writer = await asyncio.open_unix_connection(sock=operation, limit=OUTPUT_LIMIT)
            child = ChildHandle(self, reader, writer, leash)
            try:
                yield child
                await child.end()
            except Exception:
                await child.end()  # a device has room for few sessions, so this one is ended in order
                raise
            finally:
                writer.transport.abort()

    def fork(self) -> tuple[socket.socket, socket.socket]:
        """Have a child forked. Returns what it reads and writes, and the leash: it is killed once that is let go of.

        Raises PowerError (Transient).
        """
        try:
            operation, its_operation = socket.socketpair()
            leash, its_leash = socket.socketpair()
            leash.setblocking(False)
            with its_operation, its_leash:
                if self._process is None or self._process.poll() is not None:
                    self._start()
                assert self._control is not None
                socket.send_fds(self._control, [b"\0"], [its_operation.fileno(), its_leash.fileno()])
        except OSError as error:
            raise not_started(str(error.strerror)) from error
        return operation, leash

    def end(self) -> None:
        """Kill the server, and with it all its children. The next session starts another."""
        if self._process is not None and self._control is not None:
            self._control.close()
            self._process.kill()
            self._process.wait()
        self._process = self._control = None

    def _start(self) -> None:
        self.end()
        control, its_control = socket.socketpair()
        control.setblocking(False)
        with its_control:
            self._process = subprocess.Popen(
                self.command,
                stdin=its_control.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env=inherited(),
            )
        self._control = control


class ChildHandle:
    """A child: it is sent lines and says lines. timed_out: it was killed because the deadline of a line was over."""

    def __init__(
        self, server: ForkServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, leash: socket.socket
    ) -> None:
        self.timed_out = False
        self._server = server
        self._pid = server.pid
        self._reader = reader
        self._writer = writer
        self._leash = leash
        self._status: str | None = None

    def send(self, line: bytes) -> None:
        """Have it read that, as soon as it can."""
        self._writer.write(line)

    async def line(self, deadline: Deadline) -> bytes:
        """Its next line; b"" where there is none, because it has ended. At the deadline it is killed, and what it said in its
        last moments follows: that decides between "not sent" and "may have been carried out"."""
        if not self.timed_out:
            try:
                async with asyncio.timeout(deadline.remaining().total_seconds()):
                    return await self._read()
            except TimeoutError:
                self._kill()
        for _ in ("the child", "what a server that stands still has left behind"):
            try:
                async with asyncio.timeout(KILLED_WITHIN):
                    return await self._read()
            except TimeoutError:
                self._end_server()
        return b""

    async def returncode(self, deadline: Deadline) -> int:
        """With which it has ended, negative for a signal. Raises PowerError (Transient) where it was never begun."""
        if not self.timed_out and self._status is None:
            try:
                async with asyncio.timeout(deadline.remaining().total_seconds()):
                    self._status = await self._read_status()
            except TimeoutError:
                self._kill()
        kind, _, what = (self._status or "").partition(" ")
        if kind == "refused":
            raise not_started(what)
        if not kind and not self.timed_out:
            self._end_server()  # it has died, and the child with it
        return int(what) if kind else -signal.SIGKILL

    async def end(self) -> None:
        """Let it end by itself, as it does once it is asked for nothing more: it ends its session with the device first."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            if not self.timed_out and self._status is None:
                self._writer.write_eof()
                async with asyncio.timeout(KILLED_WITHIN):
                    self._status = await self._read_status()

    async def _read(self) -> bytes:
        """By a stream, which loses nothing when it is interrupted. A line that was cut off by its death is none."""
        try:
            line = await self._reader.readline()
        except ConnectionError:  # it ended before it had read all that it was sent
            return b""
        except ValueError:  # longer than any answer
            self._leash.close()
            self._status = f"ended {-signal.SIGKILL}"
            return b""
        return line if line.endswith(b"\n") else b""

    async def _read_status(self) -> str:
        """What the server says of the child's end; "" where it has died itself, or the child is let go of."""
        with contextlib.suppress(ConnectionError):
            return (await asyncio.get_running_loop().sock_recv(self._leash, 256)).decode()
        return ""

    def _kill(self) -> None:
        self.timed_out = True
        self._leash.close()

    def _end_server(self) -> None:
        """Not another one that was started since."""
        if self._server.pid == self._pid:
            self._server.end()
