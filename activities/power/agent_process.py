"""Runs a fence agent in a process of its own that is dead by its deadline, whatever hangs inside it.

An agent is another project's program: it can block for ever, and a command must not be in flight after its deadline (S34).
Secrets go in by standard input only: argv and environment of a process can be read by others (S12). IPMI and Redfish are spoken
by a child of `bmc/fork_server.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from activities.errors import ErrorType
from activities.power.driver import Deadline, PowerError

OUTPUT_LIMIT = 256 * 1024

MARK = "NODEWARDEN_OPERATION"
"""The variable by which all processes of one run are found, whatever session they are in."""

KILLED_WITHIN, MOST_ROUNDS = 1.0, 5
"""Seconds in which what was killed has let go of its output; rounds of killing what is found."""

OURS_ALONE = ("NODEWARDEN_", "TEMPORAL_", "AWS_")
"""Variables that nothing we start gets: settings, credentials of devices (`env:`), the keys to Temporal and to a cloud."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A child that is gone: what it had said, and whether it was killed because its time was over."""

    stdout: bytes
    stderr: bytes
    returncode: int
    timed_out: bool


async def run(
    command: Sequence[str],
    stdin: bytes,
    deadline: Deadline,
    *,
    environment: Mapping[str, str] | None = None,
    files: Mapping[Path, int] = MappingProxyType({}),
) -> Ended:
    """Run `command` until it ends or the deadline does. However this is left, no process of it is left behind: also none that has
    begun a session of its own, as daemons and what a terminal is made for do. Those are found by our mark in what they inherit,
    on Linux; one that has thrown that away is not waited for.

    environment: all of the child's; None: what it may inherit of ours. Never for secrets (S12).
    files: what the child holds open as well, and the paths by which it and what it starts open that; they lead into the child.
    """
    mark = f"{MARK}={secrets.token_hex(8)}"
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**(inherited() if environment is None else environment), MARK: mark.partition("=")[2]},
            pass_fds=tuple(files.values()),
        )
    except OSError as error:
        raise not_started(str(error.strerror)) from error
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    stdout, stderr = bytearray(), bytearray()
    timed_out = False
    try:
        _link(files, process.pid)
        process.stdin.write(stdin)
        process.stdin.close()
        try:
            async with asyncio.timeout(deadline.remaining().total_seconds()):
                await asyncio.gather(collect(process.stdout, stdout), collect(process.stderr, stderr))
                await process.wait()
        except TimeoutError:
            timed_out = True
    except BaseException:
        _kill_group(process.pid)
        _kill_marked(mark)
        raise
    if timed_out:
        _kill_group(process.pid)
    _kill_marked(mark)
    if timed_out:
        # What it said in its last moments decides between "not sent" and "may have been carried out".
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILLED_WITHIN):
                await asyncio.gather(collect(process.stdout, stdout), collect(process.stderr, stderr))
    return Ended(stdout=bytes(stdout), stderr=bytes(stderr), returncode=await process.wait(), timed_out=timed_out)


def _link(files: Mapping[Path, int], pid: int) -> None:
    """Nothing was begun yet: it waits for its input."""
    try:
        for path, handle in files.items():
            path.symlink_to(f"/proc/{pid}/fd/{handle}")
    except OSError as error:
        raise not_started(str(error.strerror)) from error


def inherited() -> dict[str, str]:
    """Our environment without what may be secret in it: a process shows its environment to all who may see that process (S12)."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OURS_ALONE)}


def not_started(reason: str) -> PowerError:
    """No process was had, so nothing was begun."""
    return PowerError(ErrorType.TRANSIENT, f"no process could be started for a power operation: {reason}")


async def collect(stream: asyncio.StreamReader, into: bytearray) -> None:
    """Read to the end, and keep no more than OUTPUT_LIMIT bytes of it."""
    while chunk := await stream.read(4096):
        into += chunk[: OUTPUT_LIMIT - len(into)]


def _kill_marked(mark: str) -> None:
    """Kill what has that mark in its environment, until nothing has: it may have been about to start another."""
    for _ in range(MOST_ROUNDS):
        found = [pid for pid in _processes() if mark.encode() in _environment_of(pid)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return


def _processes() -> list[int]:
    """All that there are; none elsewhere than on Linux, where they can't be listed."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - a Path of each takes longer
    except FileNotFoundError:
        return []


def _environment_of(pid: int) -> bytes:
    """Nothing of a process that is dead, gone, or another user's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:  # noqa: PTH123 - as above
            return environment.read()
    except OSError:
        return b""


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        # It ended by itself a moment ago; the event loop does not know yet.
        return
