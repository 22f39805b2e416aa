"""Whoever reads Temporal's namespace or its database reads nothing of a deployment with keys for its payloads (S12).

One system, whose keys come and change while episodes are open: its first episode is begun without any.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from temporalio.api.history.v1 import HistoryEvent

from policy.episode.messages import Outcome, Phase
from starter.client import Nodewarden
from tests.starter.process import nodewarden
from tests.system.canary import Canary
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.questions import episode, in_phase
from tests.system.witness import Before
from workers.configuration.settings import load
from workers.deployment_keys import new_keys
from workers.embedded.server import find_binary

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

FIRST, SECOND = new_keys(), new_keys()
WHY = "its fan"


@dataclass(slots=True)
class Deployment:
    """What of it a test may change: the keys that all its processes have."""

    system: System
    stack: AsyncExitStack
    keys: tuple[str, ...] = ()

    async def rekey(self, *keys: str) -> None:
        """New settings, and a worker and a client by them; those before are gone."""
        if keys == self.keys:
            return
        self.keys = keys
        for worker in self.system.workers:
            await worker.stop()
        config = self.with_keys(self.system.config, *keys)
        self.system.settings = load(config=config)
        self.system.warden = await self.stack.enter_async_context(Nodewarden.connect(self.system.settings))
        await self.system.start_worker(anew=True)

        async def answers() -> bool:
            return await self.system.scanner() is not None

        await self.system.until(answers, "the new worker answers")  # a word that nobody hears would be an error of its own

    def with_keys(self, config: Path, *keys: str) -> Path:
        written = yaml.safe_load(self.system.config.read_text())
        written["temporal"].pop("payload_keys_file", None)
        if keys:
            file = config.with_suffix(".keys")
            file.write_text("".join(keys))
            written["temporal"]["payload_keys_file"] = str(file)
        config.write_text(yaml.safe_dump(written))
        return config

    def stored(self, planted: Canary) -> dict[str, str]:
        """Where in the server's database it is."""
        planted.look_at_database("temporal.db", self.system.temporal.database)
        assert planted.searched["rows of databases"]
        return planted.found


@pytest.fixture(scope="module")
async def deployment(standing: Standing) -> AsyncIterator[Deployment]:
    async with AsyncExitStack() as stack:
        system = await stack.enter_async_context(standing(nodes=4))
        await system.start_worker(anew=True)
        await system.apply_policy(check={"minHealthy": 1})
        await system.start_scanner(cap=2)
        yield Deployment(system, stack)


async def held(system: System, node: str, planted: Canary) -> Before:
    """A sick node whose episode is held by a person before anything destructive."""
    before = system.break_node(node, "kubelet-stops")
    await in_phase(system, node, Phase.RUNNING, seconds=40)
    await system.warden.episode(system.cluster_name, node).hold(who="ada", reason=f"{planted.value}: {WHY}")
    await in_phase(system, node, Phase.RUNNING, doing="held by")
    return before


async def finished(system: System, before: Before) -> Outcome:
    await system.warden.episode(system.cluster_name, before.node).resume(who="ada", reason="go on", question=1)
    return (await system.ended(before)).outcome


async def test_an_episode_from_before_goes_on_with_keys_and_a_later_one_is_unreadable(deployment: Deployment) -> None:
    """The search finds what was said before there were keys: it can find."""
    system, plain, secret = deployment.system, Canary(), Canary()
    first = await held(system, "node-1", plain)
    await deployment.rekey(FIRST)
    second = await held(system, "node-2", secret)
    await deployment.rekey(SECOND, FIRST)
    assert await finished(system, first) is Outcome.RECOVERED
    assert await finished(system, second) is Outcome.RECOVERED
    assert deployment.stored(plain)
    assert deployment.stored(secret) == {}
    whole = (await episode(system, "node-2").fetch_history()).events
    secret.look("the history", b"".join(event.SerializeToString() for event in whole))
    assert secret.found == {}
    known = {encoding for event in whole for encoding in ENCODINGS.findall(told(event))}
    assert known == {"binary/encrypted"}


ENCODINGS = re.compile(r'key: "encoding"\s*value: "([^"]*)"')


def told(event: HistoryEvent) -> str:
    """Without its search attributes, which are for searching."""
    event.workflow_execution_started_event_attributes.ClearField("search_attributes")
    event.upsert_workflow_search_attributes_event_attributes.ClearField("search_attributes")
    return str(event)


async def test_a_command_without_the_key_says_which_setting_is_missing(deployment: Deployment, tmp_path: Path) -> None:
    await deployment.rekey(SECOND, FIRST)
    for keys, told in (((), "none is known here"), ((FIRST,), "known here: ")):
        config = deployment.with_keys(tmp_path / "nodewarden.yaml", *keys)
        async with nodewarden("--config", str(config), "-c", deployment.system.cluster_name, "status") as command:
            await command.says("scanner of sim: its answer can't be read here")
            assert await command.ended() == 5
            said = " ".join(command.said)
            assert "temporal.payload_keys_file or temporal.payload_keys_secret: expected the key" in said
            assert told in said


async def test_temporals_own_command_reads_through_the_codec(deployment: Deployment) -> None:
    system = deployment.system
    async with nodewarden("--config", str(system.config), "codec", "serve", "--port", "0") as serving:
        url = (await serving.says("codec http://127.0.0.1:")).split()[1].rstrip(",")
        readable = await shown(system, "--codec-endpoint", url)
        stranger = await shown(system)
    assert WHY in readable
    assert WHY not in stranger
    assert "isolation.pin" in stranger  # types of activities are for searching, too


async def shown(system: System, *options: str) -> str:
    """The history of node-2's episode, as `temporal` prints it, with what of it is in base64."""
    where = ["--address", system.temporal.address, "--namespace", system.namespace, "-w", episode(system, "node-2").id]
    process = await asyncio.create_subprocess_exec(
        *(str(find_binary()), "workflow", "show", *where, "-o", "json", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "HOME": str(system.folder)},
    )
    printed, complained = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, complained.decode()
    data = re.findall(r'"data": *"([^"]*)"', printed.decode())
    return printed.decode() + b"".join(base64.b64decode(each) for each in data).decode(errors="replace")


def test_a_worker_and_what_it_starts_leave_no_core_dump(deployment: Deployment) -> None:
    """S12."""
    worker = deployment.system.workers[-1]
    limits = Path(f"/proc/{worker.pid}/limits").read_text()
    (core,) = [line.split() for line in limits.splitlines() if line.startswith("Max core file size")]
    assert core[4] == ("0" if core[5] == "0" else "1")
