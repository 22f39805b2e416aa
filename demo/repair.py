"""The main job before one's eyes: two nodes of a simulated cluster are broken in different ways, and repaired.

Runs an embedded Temporal server and the cluster, shows the live table until both nodes are back, and sums up. Ends with 0 only if
everything was repaired. With `keep` it stays up to be played with. What the nodes' machines are is `platform`: the story is the
same on each, reported by another driver.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import yaml

from demo.manifests import NAMESPACE, fencing_template, health_check
from demo.platforms import CHOICES, DEFAULT
from demo.simulation import Simulation
from demo.summary import Accident, judge, show
from policy.episode.messages import EpisodeResult
from policy.values.times import written
from starter.client import Nodewarden
from starter.deploy.manifests import people
from starter.handles.status import ClusterStatus
from starter.output.console import fitting_console
from starter.output.display import LineDisplay, LiveDisplay, watch
from workers import process
from workers.configuration.settings import Settings, load
from workers.logs import configure
from workers.runtime import alongside, start_runtime
from workers.worker import stop_on_signals

CLUSTER = "demo"
LOG = "nodewarden.log"
ACCIDENTS = (("database-0", "kubelet-stops"), ("database-1", "kernel-hangs"))
RACKS = ("r1", "r2", "r3", "r4")
"""Of three nodes each, as their label `rack` has it."""
PATIENCE = 170.0
"""Seconds until both nodes must be back; the demo promises three minutes in all."""


class RepairedError(Exception):
    """Not an error: how the watching ends."""


class Demo:
    """One showing. `console` None where stdout is no terminal: then plain lines follow it."""

    scan: ClassVar[Mapping[str, str]] = {"start_up_grace": "3s"}
    """Settings of the scanner."""
    hints: ClassVar[Sequence[str]] = (
        "kubectl get nodes,nodehealthchecks; kubectl describe node node-1",
        "python -m simulator break node-7 kubelet-stops \\\n       --state-dir {state}; nodewarden status --watch",
        "nodewarden fence node-5 --reason 'my first fencing' --wait",
        "nodewarden mode set observe --reason 'only look'; docs/start.md goes on",
    )
    """What to type while it stays up. {state}: the folder of the demo."""

    def __init__(self, state: Path, *, keep: bool, platform: str = DEFAULT) -> None:
        self._state = state
        self._keep = keep
        self._platform = platform
        self._console = fitting_console(markup=True)
        self._accidents: list[Accident] = []
        self._results: dict[str, EpisodeResult] = {}
        self._began = datetime.now(UTC)
        self._where = ""
        self._address = ""

    async def run(self) -> int:
        """The whole show; returns the exit code."""
        self._say(f"A simulated cluster: 12 nodes in 3 zones, {CHOICES[self._platform]}, an API that kubectl can talk to …")
        async with AsyncExitStack() as stack:
            simulation = await stack.enter_async_context(Simulation(self._state, platform=self._platform))
            settings = self._settings(simulation)
            stop = await stack.enter_async_context(stop_on_signals())
            self._say("Temporal, with its history in a file …")
            running = await stack.enter_async_context(process.temporal(settings, embed=True, stop=stop))
            self._address = running.address
            for line in self.addresses(running.endpoint.ui_url if running.endpoint else "", simulation.kubeconfig):
                self._say(line)
            await simulation.apply(
                f"/apis/nodewarden.io/v1alpha1/namespaces/{NAMESPACE}/fencingtemplates",
                fencing_template(simulation.facts),
            )
            await simulation.apply("/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks", health_check())
            for document in yaml.safe_load_all(people().read_text(encoding="utf-8")):  # who may say what
                plural = document["kind"].lower().removesuffix("y") + ("ies" if document["kind"].endswith("y") else "s")
                await simulation.apply(f"/apis/{document['apiVersion']}/{plural}", document)
            for number in range(12):
                await simulation.label(f"node-{number + 1}", {"rack": RACKS[number // 3]})
            code = 1

            async def show_it() -> None:
                nonlocal code
                code = await self._show(simulation, Nodewarden(running.client), settings)
                if self._keep and not stop.is_set():
                    self._invite(simulation, running.endpoint.ui_url if running.endpoint else "")
                    await stop.wait()
                stop.set()

            await alongside(process.work(settings, running, clusters=settings.connections()), running.failed(), show_it())
        return code

    def addresses(self, ui_url: str, kubeconfig: Path) -> list[str]:
        """An address to look at; none where all of it is gone before a person can."""
        if not self._keep:
            return []
        self._where = f"Temporal UI {ui_url}" if ui_url else ""
        return [*([f"  web UI   {ui_url}"] if ui_url else []), f"  kubectl  KUBECONFIG={from_here(kubeconfig)}"]

    async def _show(self, simulation: Simulation, warden: Nodewarden, settings: Settings) -> int:
        await warden.start_scanner(CLUSTER, cap=settings.scan.cap, wait=settings.scan.wait)
        watching = asyncio.create_task(self._watch(warden))
        try:
            await asyncio.sleep(4)
            places = await simulation.pods_of("database")
            for pod, how in ACCIDENTS:
                accident = Accident(node=places[pod], how=f"{how}, under {pod}", at=datetime.now(UTC))
                self._accidents.append(accident)
                self._say(f"{written(accident.at)} demo: breaks {accident.node}: {accident.how}")
                await simulation.break_node(places[pod], how)
                await asyncio.sleep(2)
            await asyncio.wait_for(asyncio.shield(watching), PATIENCE)
        except RepairedError:
            self._say("Both are back.")
        except TimeoutError:
            self._say(f"not repaired within {PATIENCE:.0f} s")
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await self._settled(simulation)
        state = await simulation.state()
        verdict = judge(self._accidents, self._results, state["nodes"], await simulation.violations())
        show(self._console, self._accidents, self._results, await simulation.gaps(), verdict)
        return verdict.exit_code

    async def _watch(self, warden: Nodewarden) -> None:
        display = LiveDisplay(self._console, where=self._where) if self._console.is_terminal else LineDisplay()
        await watch(warden, [CLUSTER], display, each=self._follow)

    def _follow(self, statuses: Sequence[ClusterStatus]) -> None:
        """Collect how this showing's episodes ended; leave once every accident has an end."""
        for status in statuses:
            for result in status.ended:
                if result.started >= self._began:
                    self._results.setdefault(result.node, result)
        broken = {accident.node for accident in self._accidents}
        if len(broken) == len(ACCIDENTS) and broken <= self._results.keys():
            raise RepairedError

    async def _settled(self, simulation: Simulation) -> None:
        """Let the database's members come to rest, so that the summary can say how long each volume had no writer."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            state = await simulation.state()
            running = [pod for node in state["nodes"].values() for pod in node["containers"] if "database-" in pod]
            if len(running) >= 3:
                return
            await asyncio.sleep(0.5)

    def _settings(self, simulation: Simulation) -> Settings:
        """Settings as a user would write them, left in the state folder so that the CLI can be pointed at the same place."""
        written = {
            "clusters": {CLUSTER: {"kubeconfig": str(simulation.kubeconfig)}},
            "scan": dict(self.scan),
            "state": str(self._state / "temporal"),
        }
        path = self._state / "nodewarden.yaml"
        path.write_text(yaml.safe_dump(written))
        path.chmod(0o600)  # whatever the umask is: a file that others may write is refused
        settings = load(config=path)
        configure(settings.log, file=self._state / LOG)
        start_runtime(metrics=settings.metrics)
        return settings

    def _invite(self, simulation: Simulation, ui_url: str) -> None:
        self._say(f"\nStill up. Temporal's web UI: {ui_url}")
        self._say("In another terminal, in this folder:")
        self._say("  . .venv/bin/activate")
        self._say(f"  export KUBECONFIG={from_here(simulation.kubeconfig)}")
        self._say(f"  export NODEWARDEN_CONFIG={from_here(self._state / 'nodewarden.yaml')}")
        self._say(f"  export TEMPORAL_ADDRESS={self._address}     # for the temporal command")
        self._say("Things to try there:")
        for number, line in enumerate(self.hints, start=1):
            self._say(f"  {number}. {line.format(state=from_here(self._state))}")
        self._say(f"What the worker logs is in {from_here(self._state / LOG)}. Ctrl-C ends everything.")

    def _say(self, text: str) -> None:
        # A command is copied from there, so a line with one is not broken by us.
        self._console.print(text, highlight=False, soft_wrap=text.startswith("  "))


def from_here(path: Path) -> Path:
    """The same, shorter where it is below the folder that the demo was started in."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
