"""The simulated cluster of the demo: a process of its own, as a real cluster would be, steered over its doors."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from simulator.client import ApiAddress, ApiClient
from simulator.cluster import TOKEN
from simulator.resources import NODES

CRDS = Path(__file__).parent.parent / "deploy" / "crds"
START_PATIENCE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """How long a single-writer volume had no writer: from the last write of the old pod to the first of its successor."""

    volume: str
    from_node: str
    to_node: str
    seconds: float


class Simulation:
    """`async with Simulation(state_dir) as simulation:` runs 12 nodes in 3 zones until the block is left."""

    def __init__(self, state_dir: Path, *, platform: str = "ipmi") -> None:
        self._state_dir = state_dir
        self._platform = platform
        self._process: asyncio.subprocess.Process | None = None
        self.facts: dict[str, Any] = {}

    @property
    def kubeconfig(self) -> Path:
        """For kubectl and for nodewarden."""
        return Path(self.facts["kubeconfig"])

    async def __aenter__(self) -> Self:
        log = self._state_dir / "simulator.log"
        with log.open("wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "simulator", "up", "--nodes", "12", "--zones", "3", "--boot", "5",
                "--platform", self._platform, "--crds", str(CRDS), "--state-dir", str(self._state_dir),
                stdout=asyncio.subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        assert self._process.stdout is not None
        async with asyncio.timeout(START_PATIENCE):
            line = await self._process.stdout.readline()
        if not line:
            last = (log.read_text().strip().splitlines() or ["it said nothing"])[-1]
            raise RuntimeError(f"the simulated cluster did not start: {last}")
        self.facts = json.loads(line)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), 10)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def apply(self, path: str, body: dict[str, Any]) -> None:
        """Create an object over the API, as kubectl would."""
        async with ApiClient(ApiAddress(url=self.facts["api"], token=TOKEN), user_agent="demo") as client:
            await client.create(path, body)

    async def label(self, node: str, labels: dict[str, str]) -> None:
        """Set labels of a Node, as its operator would."""
        async with ApiClient(ApiAddress(url=self.facts["api"], token=TOKEN), user_agent="demo") as client:
            await client.patch(NODES.path(node), {"metadata": {"labels": labels}})

    async def pods_of(self, stateful_set: str) -> dict[str, str]:
        """Where the members of a StatefulSet in namespace `demo` run, by pod name."""
        async with ApiClient(ApiAddress(url=self.facts["api"], token=TOKEN), user_agent="demo") as client:
            pods = await client.get("/api/v1/namespaces/demo/pods")
        return {
            pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
            for pod in pods["items"]
            if pod["metadata"]["name"].startswith(f"{stateful_set}-")
        }

    async def break_node(self, node: str, how: str) -> None:
        """One accident."""
        await self._call("/break", {"node": node, "how": how})

    async def violations(self) -> list[dict[str, Any]]:
        """Two writers at once on one volume: the accident that fencing exists to prevent."""
        answer = await self._call("/violations")
        found: list[dict[str, Any]] = answer["violations"]
        return found

    async def state(self) -> dict[str, Any]:
        """The nodes as the hardware sees them."""
        return await self._call("/state")

    async def gaps(self) -> list[Gap]:
        """Where a volume changed its writer, and how long it had none."""
        intervals: list[dict[str, Any]] = (await self._call("/intervals"))["intervals"]
        gaps: list[Gap] = []
        for volume in sorted({interval["volume"] for interval in intervals}):
            writers = sorted((each for each in intervals if each["volume"] == volume), key=lambda each: each["begin"])
            for before, after in itertools.pairwise(writers):
                if before["end"] is not None and before["node"] != after["node"]:
                    gap = datetime.fromisoformat(after["begin"]) - datetime.fromisoformat(before["end"])
                    gaps.append(Gap(volume=volume, from_node=before["node"], to_node=after["node"], seconds=gap.total_seconds()))
        return gaps

    async def _call(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        url = self.facts["control"] + path
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10), raise_for_status=True) as session:
            response = await (session.get(url) if body is None else session.post(url, json=body))
            answer: dict[str, Any] = await response.json()
            return answer
