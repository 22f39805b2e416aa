"""The doors of a running simulated cluster over HTTP, on the loopback: break, heal, watch the judge.

For `python -m simulator break ...` and for programs that are not in the simulator's process. Who can reach the loopback may
use it: it can only hurt a simulation.

    GET  /state                     nodes with power, state, fault, boot id; Machines; urls
    GET  /violations                two writers at once, if there ever were
    GET  /intervals                 every write interval of every single-writer volume
    POST /break                     {"node": "node-3", "how": "kubelet-stops"}, with the targets of a scenario
    POST /heal                      {"node": "node-3"}
    POST /scenario                  a scenario in YAML; answers 202 and goes on by itself
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from simulator.cluster import SimulatedCluster
from simulator.scenario import Scenario, ScenarioError, Step
from simulator.tasks import Tasks


class ControlServer:
    """`async with ControlServer(cluster) as control:` listens on `control.url`."""

    def __init__(self, cluster: SimulatedCluster, *, port: int = 0) -> None:
        self.url = ""
        self._cluster = cluster
        self._port = port
        self._tasks = Tasks()
        application = web.Application(middlewares=[_explain])
        application.add_routes(
            [
                web.get("/state", self._state),
                web.get("/violations", self._violations),
                web.get("/intervals", self._intervals),
                web.post("/break", self._break),
                web.post("/heal", self._heal),
                web.post("/scenario", self._scenario),
            ]
        )
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._tasks.cancel_all()
        await self._runner.cleanup()

    async def _state(self, _request: web.Request) -> web.Response:
        return web.json_response(describe(self._cluster))

    async def _violations(self, _request: web.Request) -> web.Response:
        return web.json_response({"violations": [each.as_json() for each in self._cluster.storage.violations]})

    async def _intervals(self, _request: web.Request) -> web.Response:
        return web.json_response({"intervals": [each.as_json() for each in self._cluster.storage.intervals]})

    async def _break(self, request: web.Request) -> web.Response:
        return self._carry_out(Step.read({"break": await request.json()}, where="break"))

    async def _heal(self, request: web.Request) -> web.Response:
        return self._carry_out(Step.read({"heal": await request.json()}, where="heal"))

    def _carry_out(self, step: Step) -> web.Response:
        nodes = step.nodes(self._cluster)
        step.carry_out(self._cluster)
        return web.json_response({"nodes": nodes, "how": step.how or "healed"})

    async def _scenario(self, request: web.Request) -> web.Response:
        scenario = Scenario.read(await request.text())
        scenario.refuse_elsewhere(self._cluster)
        self._tasks.start(scenario.run(self._cluster), name="scenario")
        return web.json_response({"description": scenario.description, "steps": len(scenario.steps)}, status=202)


def describe(cluster: SimulatedCluster) -> dict[str, Any]:
    """What a person or a program needs to find its way about the running cluster."""
    nodes: dict[str, dict[str, Any]] = {}
    for name, node in cluster.nodes.items():
        nodes[name] = {
            "zone": node.identity.zone,
            "power": "on" if node.is_on else "off",
            "state": node.state.value,
            "fault": node.fault.value if node.fault else None,
            "bootID": node.boot_id,
            "boots": node.boots,
            "containers": [container.pod for container in node.containers],
        }
        nodes[name]["providerID"] = node.identity.provider_id
        if cluster.hardware is not None:
            nodes[name].update(cluster.platform.facts_of(name))
    machines: dict[str, dict[str, str]] | None = None
    if cluster.has_machines:
        fleet = cluster.machines
        machines = {name: {"node": fleet.node_of(name), "phase": fleet.phase(name)} for name in fleet.names}
    platform = {"name": cluster.platform.name, **cluster.platform.facts()} if cluster.hardware is not None else None
    return {
        "api": cluster.url,
        "kubeconfig": str(cluster.kubeconfig_path),
        "chassis": cluster.hardware.chassis.url if cluster.hardware else None,
        "platform": platform,
        "secret": "/".join(cluster.bmc_secret) if cluster.hardware else None,
        "violations": len(cluster.storage.violations),
        "nodes": nodes,
        "machines": machines,
    }


@web.middleware
async def _explain(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    try:
        return await handler(request)
    except (ScenarioError, ValueError, LookupError) as error:
        return web.json_response({"error": str(error)}, status=400)
