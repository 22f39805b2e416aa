"""docs/start.md is followed by somebody who types what it says: the demo, then its commands on the cluster that stays up."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from demo.repair import ACCIDENTS
from demo.summary import show
from starter.output.status_table import as_table, render
from tests.docs.reading import DOCS, ROOT, blocks
from tests.starter.process import nodewarden

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

HERE = "tests/docs/test_start.py::test_the_page_is_followed_on_a_demo"
PAGE = "docs/start.md"
STATE = "state/demo"


async def typed(text: str, state: Path) -> str:
    """What a shell prints for it. The demo is in another folder here than on the page."""
    environment = os.environ | {"COLUMNS": "130", "NODEWARDEN_CONFIG": str(state / "nodewarden.yaml")}
    environment |= {"KUBECONFIG": str(state / "none"), "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    script = ["bash", "-euo", "pipefail", "-c", text.replace(STATE, str(state)).replace(". .venv/bin/activate", "")]
    shell = await asyncio.create_subprocess_exec(
        *script, cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(shell.communicate(), 150)
    finally:
        if shell.returncode is None:
            shell.kill()
            await shell.wait()
    assert shell.returncode == 0, f"{text}\n{out.decode()}\n{err.decode()}"
    return out.decode()


async def shown(line: str, text: str, state: Path) -> None:
    """As a person looks again until it is there. A node without an episode has no record yet."""
    async with asyncio.timeout(60):
        while True:
            try:
                if text in await typed(line, state):
                    return
            except AssertionError:
                if not text:
                    raise
            await asyncio.sleep(1)


async def test_the_page_is_followed_on_a_demo(tmp_path: Path) -> None:
    first, looks, acts, modes = (block.text for block in blocks(PAGE) if block.marker == ("run-by", HERE))
    assert "-m demo --keep" in " ".join((await typed(f"{first.strip()} --dry-run", tmp_path)).split())
    assert "--keep" not in await typed("make demo --dry-run", tmp_path)
    state = tmp_path / "demo"
    async with nodewarden("--keep", "--state", str(state), module="demo", COLUMNS="130") as demo:
        await demo.says("✓ 2 nodes broken, 2 recovered on proof of off, no volume ever had two writers.", within=120)
        await demo.says("Still up.")
        for pod, how in ACCIDENTS:
            assert "Z demo: breaks node-" in await demo.says(f": {how}, under {pod}", within=1)
        looked = await typed(looks, state)
        assert "12 nodes" in looked
        assert "node-7" in looked
        assert "bmc-credentials#password" in looked
        told = await typed(acts, state)
        assert re.search(r"recovered after \d+s", told), told
        assert "off proven" in told
        assert "my first fencing" in told
        shows = {
            "nodewarden status": "WOULD HAVE",
            "nodewarden record node-1": "recovered after",
            "nodewarden mode ": "set for all nodes by",
            "nodewarden compare": "repaired by nodewarden",
        }
        for line in modes.strip().splitlines():
            text = next((said for command, said in shows.items() if line.startswith(command) and "--reason" not in line), "")
            await shown(line, text, state)
        set_now, _, changed = (await typed("nodewarden mode", state)).partition("What people changed")
        assert ("rack=r1" in set_now, "the rule for nodes with rack=r1 was taken back" in changed) == (False, True)
        demo.tell(signal.SIGINT)
        assert await demo.ended() == 0


def words_of(picture: str) -> str:
    """What it shows."""
    text = re.sub(r"<[^>]+>", " ", (DOCS / "pictures" / f"{picture}.svg").read_text(encoding="utf-8"))
    return text.replace("&#160;", " ")


def test_the_pictures_show_what_is_printed_today() -> None:
    """Taken anew by `make pictures` once the tables change."""
    table = Path(render.__code__.co_filename).read_text(encoding="utf-8").partition(f"def {as_table.__name__}(")[0]
    tables = [re.findall(r'"([A-Z ]+)"', each) for each in re.findall(r"(?:columns|names = )\((.*)\)", table)]
    headings = {
        word for each in tables if not {"ENDED", "CAN'T BE FENCED"} & set(each) for word in each
    }  # nothing has ended, and each device answers
    assert {"WAITING", "WOULD HAVE", "DATA AT RISK", "OPEN FOR", "VERDICT"} <= headings
    assert sorted(word for word in headings if word not in words_of("live")) == []
    summary = Path(show.__code__.co_filename).read_text(encoding="utf-8")
    assert "What happened" in words_of("ending")
    for sentence in ("recovered on proof of off", "no volume ever had two writers."):
        assert sentence in summary
        assert sentence in words_of("ending")
