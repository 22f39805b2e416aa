"""docs/a-day.md is followed by somebody with two terminals: every block is typed, in its order, and says what the page shows."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.deploy import helm_command
from tests.docs.reading import ROOT, Block, blocks
from workers.embedded.server import free_ports, running_endpoint

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

HERE = "tests/docs/test_a_day.py::test_the_page_is_followed"
PAGE = "docs/a-day.md"
PORT = "18990"
DONE, FAILED = "-- done --", "-- failed:"
FAILS = "nodewarden uninstall --check"
"""Its exit code says that something is left."""
DIFFERS = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "MOMENT"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{12}\b", "ID"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"\b(\d+[dhm])*\d+s\b|\+\d+\.\d s\b|\b\d+ ms\b", "SPAN"),
)
"""What is another one each time."""


def same_words(text: str) -> str:
    """Without what differs each time, and however it is folded and padded."""
    for pattern, word in DIFFERS:
        text = re.sub(pattern, word, text)
    return " ".join(text.split())


def shows(printed: str, shown: Block) -> bool:
    """Whether it is what the page shows; "…" there stands for any lines."""
    pieces = (re.escape(same_words(piece)) for piece in re.split(r"^…$", shown.text, flags=re.MULTILINE))
    return re.fullmatch(".*?".join(pieces), same_words(printed)) is not None


class FailedError(Exception):
    """A command's exit code was not 0."""


class Terminal:
    """A shell that is typed into. What it has said since the last line was typed is in `said`."""

    def __init__(self, shell: asyncio.subprocess.Process) -> None:
        self._shell = shell
        self.said = ""

    async def type(self, text: str, *, until: str = DONE, may_fail: bool = False) -> str:
        """What is printed until a line says so: that the commands are done, or else that the last one is at work."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self.said = ""
        self._shell.stdin.write(f"{text}\necho '{DONE}'\n".encode())
        async with asyncio.timeout(60):
            while until not in self.said:
                line = await self._shell.stdout.readline()
                assert line, f"{text}\n{self.said}"
                self.said += line.decode()
        said, failed, _ = self.said.removesuffix(f"{DONE}\n").partition(FAILED)
        if failed and not may_fail:
            raise FailedError(self.said)
        return said

    async def interrupt(self) -> None:
        """Ctrl-C: what runs in the foreground ends, and nothing that was put into the background."""
        assert self._shell.stdout is not None
        os.kill(latest_child_of(self._shell.pid), signal.SIGINT)
        async with asyncio.timeout(30):
            while DONE not in self.said:
                self.said += (await self._shell.stdout.readline()).decode()


def latest_child_of(process: int) -> int:
    """What a shell has begun last."""
    return int(Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8").split()[-1])


@asynccontextmanager
async def terminal(folder: Path, environment: dict[str, str]) -> AsyncIterator[Terminal]:
    """Whatever was begun in it ends with it, and with us: also where a run of tests is killed, which closes the pipe."""
    watched, ours = os.pipe()
    shell = await asyncio.create_subprocess_exec(
        *("bash", "--norc"), cwd=folder, env=environment, start_new_session=True, pass_fds=(watched,),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    os.close(watched)
    opened = Terminal(shell)
    try:
        await opened.type(f"(read -u {watched}; kill -TERM 0) & disown")
        await opened.type(f"trap 'echo \"{FAILED} $BASH_COMMAND\"' ERR")
        yield opened
    finally:
        os.killpg(shell.pid, signal.SIGTERM)
        shell.kill()
        await shell.wait()
        os.close(ours)


def checkout(folder: Path) -> None:
    """What of one the page uses, and helm."""
    for name in ("deploy", "demo", "simulator"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "bin").mkdir()
    helm_command.put_into(folder / "bin")


def surroundings(folder: Path) -> dict[str, str]:
    """Of a person with nothing set; ports are others than the usual ones, and the first half minute is a second."""
    port, ui_port = free_ports("127.0.0.1", 2)
    return {
        "HOME": str(folder),
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "80",
        "NODEWARDEN_EMBEDDED__PORT": str(port),
        "NODEWARDEN_EMBEDDED__UI_PORT": str(ui_port),
        "NODEWARDEN_SCAN__START_UP_GRACE": "1s",
    }


def parts() -> list[tuple[str, Block | None]]:
    """What is typed, each with what the page shows below it."""
    every = blocks(PAGE)
    typed = [number for number, block in enumerate(every) if block.language == "sh"]
    assert [every[number] for number in typed if every[number].marker != ("run-by", HERE)] == []
    outputs = [every[number + 1] if number + 1 < len(every) else None for number in typed]
    return [
        (every[number].text, shown if shown is not None and shown.language in ("", "text") else None)
        for number, shown in zip(typed, outputs, strict=True)
    ]


async def followed(second: Terminal, text: str, shown: Block | None) -> None:
    """What a block shows that is one command, which only looks, it may say once the cluster has come so far."""
    may_fail = text.strip() == FAILS
    printed = await second.type(text, may_fail=may_fail)
    if shown is None:
        return
    looks = "\n" not in text.strip()
    end = asyncio.get_running_loop().time() + 60
    while not shows(printed, shown):
        again = looks and asyncio.get_running_loop().time() < end
        assert again, f"{shown} shows\n{same_words(shown.text)}\nand there was\n{same_words(printed)}"
        await asyncio.sleep(1)  # each look is a command, and costs a processor as long as that
        with suppress(FailedError):  # such as `record`, as long as nobody has heard of the node
            printed = await second.type(text, may_fail=may_fail)


async def test_the_page_is_followed(tmp_path: Path) -> None:
    """S1, S2, S44: installed, a node fenced on proof, a message, a pause, history, and removal."""
    checkout(tmp_path)
    environment = surroundings(tmp_path)
    [chat] = free_ports("127.0.0.1", 1)
    day = [(text.replace(PORT, str(chat)), shown) for text, shown in parts()]
    (install, made), (begin, _), *rest, (leave, _) = day
    assert begin.strip().endswith(" up")
    async with terminal(tmp_path, environment) as first, terminal(tmp_path, environment) as second:
        assert made is not None
        printed = await first.type(install)
        assert shows(printed, made), printed
        await first.type(begin, until="view live")
        for text, shown in rest:
            await followed(second, text, shown)
        chatted = (tmp_path / "state" / "day" / "chat").read_text(encoding="utf-8")
        assert "nodewarden: halted: simulator" in chatted
        assert "nodewarden: no longer halted: simulator" in chatted
        await first.interrupt()
        assert running_endpoint(tmp_path / ".local" / "state" / "nodewarden") is None
        await first.type(leave)


def test_what_a_page_shows_is_compared_but_for_what_differs_each_time() -> None:
    shown = Block(
        page="", line=0, language="", info="", marker=("", ""), fenced=True,
        text="node-1   on   114 ms\n…\ndone after 8s, incident 74a31b2366c0\n",
    )  # fmt: skip
    assert shows("node-1 on 3 ms\nnode-2   off\ndone after\n1m07s, incident 000000000000", shown)
    assert not shows("node-1 off 3 ms\ndone after 1m07s, incident 000000000000", shown)
    assert not shows("node-1 on 3 ms\ndone after 1m07s, incident 000000000000 and more", shown)
