"""Children of a fork server: dead by their deadline with all they started, and with nothing of anybody else's in their hands.

With protocols of a line each in the place of IPMI and Redfish, on the real server.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from activities.errors import ErrorType
from activities.power import agent_process
from activities.power.bmc.child_handle import ForkServer
from activities.power.bmc.drivers import IPMI_SERVER, REDFISH_SERVER, IpmiDriver
from activities.power.driver import Deadline, PowerError
from tests.power.conftest import fails, ipmi_driver, within
from tests.power.process_table import alive, children_of, gone, visible
from tests.power.redfish.stand import redfish_driver

PROTOCOL = """
import json, os, subprocess, sys, time
from activities.power.bmc.fork_server import Server

def request():
    read = b""
    while not read.endswith(b"\\n") and (chunk := os.read(0, 65536)):
        read += chunk
    return json.loads(read).encode()

def say(what):
    os.write(1, what + b"\\n")

def main():
    {main}

Server(main).serve()
"""
ECHO = "say(request())"
HANG = "say(request()); time.sleep(600)"
SENT_AND_HANG = """os.read(0, 65536); say(b'{"stage": "sent"}'); open("FLAG", "w"); time.sleep(600)"""
UNSENT_AND_HANG = """os.read(0, 65536); open("FLAG", "w"); time.sleep(600)"""
FAMILY = b"say(str(subprocess.Popen(['sleep', '600']).pid).encode()); time.sleep(600)"
FDS = """
def meet(word, number):
    open("FOLDER/" + word + str(os.getpid()), "w").close()
    while len(os.listdir("FOLDER")) < number:
        time.sleep(0.01)

meet("here", 3)
opened = [each for each in range(99) if os.path.exists(f"/proc/self/fd/{each}")]
say(" ".join(f"{each}:{os.readlink(f'/proc/self/fd/{each}')}" for each in opened).encode())
meet("done", 6)
"""
"""Three of them look at the same time, and stay until all have."""
OBEDIENT = "exec(request())"
SECRET = b"k3p-my-s3cret-" + b"of-the-first"

Start = Callable[[str], ForkServer]


@pytest.fixture
def start() -> Iterator[Start]:
    """A server of a protocol that is one line of Python."""
    started: list[ForkServer] = []

    def serving(main: str) -> ForkServer:
        server = ForkServer("a test's")
        server.command = (sys.executable, "-c", PROTOCOL.replace("{main}", main))
        started.append(server)
        return server

    yield serving
    for each in started:
        each.end()


@dataclass(frozen=True, slots=True)
class Ran:
    """A child that is gone: what it had said, and how it ended."""

    stdout: bytes
    timed_out: bool
    returncode: int


async def run(server: ForkServer, request: bytes, deadline: Deadline) -> Ran:
    async with server.child() as child:
        child.send(json.dumps(request.decode()).encode() + b"\n")
        said = b""
        while line := await child.line(deadline):
            said += line
        returncode = await child.returncode(deadline)
        return Ran(said, child.timed_out, returncode)


def pid_of(server: ForkServer) -> int:
    assert server.pid is not None
    return server.pid


async def child_of(server: ForkServer, *, but: int | None = None) -> int:
    async with asyncio.timeout(10):
        while server.pid is None or not (found := [each for each in children_of(server.pid) if each != but]):
            await asyncio.sleep(0.005)
        return found[0]


async def no_session_is_left(server: ForkServer) -> None:
    """Neither alive nor dead."""
    async with asyncio.timeout(5):
        while children_of(pid_of(server), dead=True):
            await asyncio.sleep(0.005)


async def test_many_at_once_do_not_get_into_each_others_way(start: Start) -> None:
    server = start("time.sleep(0.05); " + ECHO)
    requests = [f"request {number} {'x' * 200_000}".encode() for number in range(20)]
    ended = await asyncio.gather(*(run(server, each, within(30)) for each in requests))
    assert [each.stdout for each in ended] == [each + b"\n" for each in requests]
    await no_session_is_left(server)


async def test_a_child_that_stands_still_is_killed_at_its_deadline_while_others_go_on(start: Start) -> None:
    """S34. Its own alarm would not wake it."""
    server = start(OBEDIENT)
    await run(server, b"", within(20))
    began = time.monotonic()
    hanging = asyncio.create_task(run(server, b'say(b"sent"); os.kill(os.getpid(), 19)', within(3.0)))
    child = await child_of(server)
    others = 0
    while not hanging.done():
        assert (await run(server, b'say(b"done")', within(10))).stdout == b"done\n"
        others += 1
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(hanging), 0.2)
    ended = await hanging
    assert (ended.stdout, ended.timed_out, ended.returncode) == (b"sent\n", True, -signal.SIGKILL)
    assert 3.0 <= time.monotonic() - began < 9.0
    assert others > 1
    await no_session_is_left(server)
    assert not alive(child)


async def test_a_child_that_ends_in_the_moment_in_which_it_is_let_go_costs_no_other_operation(start: Start) -> None:
    """S34: the server learns of both at once, and of a new child that takes the place of the old one's leash."""
    server = start(OBEDIENT)
    await run(server, b"", within(20))
    first = pid_of(server)
    operation, leash = server.fork()
    child = await child_of(server)
    os.kill(first, signal.SIGSTOP)
    with operation, leash:
        operation.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(10):
            while alive(child):
                await asyncio.sleep(0.005)
    after = asyncio.create_task(run(server, b'time.sleep(0.3); say(b"done")', within(20)))
    await asyncio.sleep(0)
    os.kill(first, signal.SIGCONT)
    ended = await after
    assert (ended.stdout, ended.returncode, server.pid) == (b"done\n", 0, first)
    await no_session_is_left(server)


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels do not say")
async def test_no_process_of_the_same_user_looks_into_a_child(start: Start) -> None:
    """S12: it has a password, and a fence agent runs as the same user."""
    asked = b"import ctypes; say(str(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)).encode())"  # PR_GET_DUMPABLE
    assert (await run(start(OBEDIENT), asked, within(20))).stdout == b"0\n"


async def test_what_a_child_started_is_killed_with_it(start: Start) -> None:
    """S34."""
    server = start(OBEDIENT)
    await run(server, b"", within(20))
    ended = await run(server, FAMILY, within(3.0))
    assert ended.timed_out
    async with asyncio.timeout(5):
        await gone(int(ended.stdout))


async def test_a_cancelled_operation_leaves_no_process(start: Start) -> None:
    """S34."""
    server = start(HANG)
    operation = asyncio.create_task(run(server, b"", within(60)))
    child = await child_of(server)
    operation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await operation
    async with asyncio.timeout(5):
        await gone(child)
    await no_session_is_left(server)


@pytest.mark.parametrize(("main", "kind"), [(SENT_AND_HANG, ErrorType.AMBIGUOUS), (UNSENT_AND_HANG, ErrorType.TRANSIENT)])
async def test_what_was_under_way_when_the_server_died_is_as_far_as_it_had_come(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main: str, kind: ErrorType
) -> None:
    """S3, S33, S34: the child dies with its server; what it had sent may have been carried out. The next one is served."""
    flag = tmp_path / "so far"
    server = start(main.replace("FLAG", str(flag)))
    monkeypatch.setattr(IpmiDriver, "server", server)
    operation = asyncio.create_task(ipmi_driver(623).off(within(60)))
    child, dead = await child_of(server), pid_of(server)
    async with asyncio.timeout(20):
        while not flag.exists():
            await asyncio.sleep(0.005)
    os.kill(dead, signal.SIGKILL)
    await fails(asyncio.wait_for(operation, 5), kind)
    async with asyncio.timeout(5):
        await gone(child)
    assert dead not in children_of(os.getpid(), dead=True)
    server.command = (sys.executable, "-c", PROTOCOL.replace("{main}", ECHO))
    assert (await run(server, b"again", within(10))).stdout == b"again\n"
    assert pid_of(server) != dead


async def test_a_server_that_stands_still_is_killed_at_the_deadline_and_started_again(start: Start) -> None:
    """S34: and the child that it had not forked yet is never forked."""
    server = start(ECHO)
    await run(server, b"", within(10))
    still = pid_of(server)
    os.kill(still, signal.SIGSTOP)
    ended = await asyncio.wait_for(run(server, b"lost", within(0.3)), 5)
    assert (ended.stdout, ended.timed_out) == (b"", True)
    assert not alive_or_none(still)
    assert (await run(server, b"again", within(10))).stdout == b"again\n"


def alive_or_none(pid: int) -> bool:
    try:
        return alive(pid)
    except FileNotFoundError:
        return False


async def test_a_child_that_can_not_be_forked_is_transient_and_the_others_stay(start: Start) -> None:
    server = start(OBEDIENT)
    server.command = (*server.command[:2], REFUSES + server.command[2])
    first = asyncio.create_task(run(server, b'time.sleep(1); say(b"done")', within(10)))
    await child_of(server)
    await fails(run(server, b"", within(10)), ErrorType.TRANSIENT, "no process could be started for a power operation: no room")
    assert (await first).stdout == b"done\n"


async def test_a_server_that_can_not_be_started_is_transient(start: Start) -> None:
    server = start(ECHO)
    server.command = ("/no/such/program",)
    await fails(run(server, b"", within(1)), ErrorType.TRANSIENT, "no process could be started")


REFUSES = """
import os
forks = iter([os.fork])
def fork():
    for each in forks:
        return each()
    raise OSError(11, "no room")
os.fork = fork
"""


async def test_a_child_has_its_own_socket_and_nothing_else_open(start: Start, tmp_path: Path) -> None:
    """S12: neither the worker's, nor the server's, nor those of the children beside it."""
    server = start(OBEDIENT)
    looking = FDS.replace("FOLDER", str(tmp_path)).encode()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(server, looking, within(30))) for _ in range(3)]
    opened = [dict(each.split(":", 1) for each in task.result().stdout.decode().split()) for task in tasks]
    for each in opened:
        assert each.keys() == {"0", "1", "2"}
        assert each["0"] == each["1"]
        assert each["2"] == "/dev/null"
    assert len({each["0"] for each in opened}) == 3


async def test_no_secret_of_an_operation_is_in_the_server_or_in_a_later_child(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S12: not in arguments, environment or memory. What the worker may have in its environment, none of them has."""
    monkeypatch.setenv("NODEWARDEN_CREDENTIAL_BMC", SECRET.decode())
    server = start("kept = request(); say(b'has it'); time.sleep(600)")
    async with asyncio.timeout(20):
        first = asyncio.create_task(run(server, SECRET, within(60)))
        child = await child_of(server)
        while SECRET not in memory(child):
            await asyncio.sleep(0.01)
        second = asyncio.create_task(run(server, b"another", within(60)))
        later = await child_of(server, but=child)
        while b"another" not in memory(later):
            await asyncio.sleep(0.01)
    for pid in (pid_of(server), later):
        assert SECRET not in visible(pid)
        assert SECRET not in memory(pid)
    assert SECRET not in visible(child)
    for each in (first, second):
        each.cancel()
    await asyncio.gather(first, second, return_exceptions=True)


def memory(pid: int) -> bytes:
    """All that a process can write to."""
    content = bytearray()
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            where, rights = line.split()[:2]
            if rights.startswith("rw"):
                start, end = (int(each, 16) for each in where.split("-"))
                file.seek(start)
                content += file.read(end - start)
    return bytes(content)


async def test_the_servers_of_the_protocols_have_one_thread() -> None:
    """A thread that held a lock while its server forked would leave it closed in the child for ever."""
    for driver, server in ((ipmi_driver(1), IPMI_SERVER), (redfish_driver(1, system="1"), REDFISH_SERVER)):
        with pytest.raises(PowerError):
            await driver.read(within(1.0))
        assert threads_of(pid_of(server)) == 1


def threads_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - a count


# Operations in a process of their own: killed by the deadline with all they started.


async def test_what_it_says_and_how_it_ended_are_returned() -> None:
    ended = await agent_process.run(["sh", "-c", "cat; echo oh >&2; exit 3"], b"hello", within(10))
    assert (ended.stdout, ended.stderr, ended.returncode, ended.timed_out) == (b"hello", b"oh\n", 3, False)


async def test_it_is_killed_at_the_deadline_and_its_last_words_are_kept() -> None:
    ended = await agent_process.run(["sh", "-c", "echo sent; exec sleep 60"], b"", within(0.3))
    assert ended.timed_out
    assert ended.stdout == b"sent\n"
    assert ended.returncode == -9


@pytest.mark.parametrize("script", ["sleep 60 & echo $!; wait", "sleep 60 & echo $!"])
async def test_what_it_started_is_killed_too(script: str) -> None:
    """S34: also where the process itself has ended and left another that holds its output open."""
    ended = await agent_process.run(["sh", "-c", script], b"", within(0.3))
    await gone(int(ended.stdout))


@pytest.mark.parametrize(
    ("script", "seconds"),
    [
        ("setsid sh -c 'echo $$; exec sleep 60' & wait", 0.5),
        ("setsid sh -c 'echo $$; exec sleep 60' & sleep 0.2", 0.5),
        ("setsid sh -c 'echo $$; exec sleep 60 >&- 2>&-' & sleep 0.2", 10),
    ],
    ids=["with us to the deadline", "holding our output open", "behind an agent that ended well"],
)
async def test_what_has_left_its_session_is_killed_too_and_waited_for_no_longer_than_the_deadline(
    script: str, seconds: float
) -> None:
    """S34: a tool in a session of its own would command later, and hold a power slot as long as it lived."""
    async with asyncio.timeout(5):
        ended = await agent_process.run(["sh", "-c", script], b"", within(seconds))
    await gone(int(ended.stdout))


async def test_a_flood_of_output_is_cut() -> None:
    ended = await agent_process.run([sys.executable, "-c", f"print('x' * {2 * agent_process.OUTPUT_LIMIT})"], b"", within(10))
    assert len(ended.stdout) == agent_process.OUTPUT_LIMIT


async def test_it_inherits_nothing_that_may_be_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """S12: a worker may have credentials in its environment, as `env:` references want them; what it starts may not."""
    for name in ("NODEWARDEN_CREDENTIAL_BMC", "TEMPORAL_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "k3p-my-s3cret")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    ended = await agent_process.run(["env"], b"", within(10))
    assert b"k3p-my-s3cret" not in ended.stdout
    assert b"HTTPS_PROXY=http://proxy.example:3128\n" in ended.stdout


async def test_a_program_that_is_not_there_is_transient() -> None:
    await fails(agent_process.run(["/no/such/program"], b"", within(1)), ErrorType.TRANSIENT, "no process could be started")
