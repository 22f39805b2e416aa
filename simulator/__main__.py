"""`python -m simulator`: a simulated cluster in one process, and the hands that break it from another.

    python -m simulator up --nodes 12 --zones 3 --state-dir DIR     runs until it is told to stop or its parent is gone
    python -m simulator break node-3 kubelet-stops --state-dir DIR
    python -m simulator heal node-3 --state-dir DIR
    python -m simulator state | violations | scenario FILE --state-dir DIR

`up` prints one line of JSON when everything is ready. `violations` ends with exit code 1 if there are any.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from simulator.cluster import SimulatedCluster
from simulator.control import ControlServer, describe
from simulator.machine_systems import MACHINE_SYSTEMS
from simulator.platforms import PLATFORMS
from simulator.scenario import Scenario

STATE_FILE = "simulator.json"
DEFAULT_STATE_DIR = Path.home() / ".local" / "state" / "nodewarden" / "simulator"


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.command == "up":
        logging.basicConfig(
            level=logging.WARNING - 10 * options.verbose,
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
            stream=sys.stderr,
        )
        return asyncio.run(_up(options))
    try:
        return _steer(options)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulator", description="A Kubernetes cluster to try nodewarden against.")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="run a simulated cluster")
    up.add_argument("--nodes", type=int, default=12, help="workers (default 12)")
    up.add_argument("--zones", type=int, default=3)
    up.add_argument("--control-planes", type=int, default=0, choices=range(4))
    up.add_argument("--heartbeat", type=float, default=1.0, metavar="SECONDS", help="how often kubelets renew their leases")
    up.add_argument("--grace", type=float, default=4.0, metavar="SECONDS", help="silence after which a node is Unknown")
    up.add_argument("--boot", type=float, default=5.0, metavar="SECONDS", help="from power on to the kubelet")
    up.add_argument("--platform", choices=tuple(PLATFORMS), help="what the machines are (default ipmi, or the scenario's)")
    up.add_argument(
        "--bmc", choices=("auto", "ipmi_sim", "python", "none"), default="auto", help="what plays BMCs; none: no platform at all"
    )
    up.add_argument("--machines", choices=tuple(MACHINE_SYSTEMS), help="which system's Machines the workers are (default none's)")
    up.add_argument("--crds", type=Path, action="append", default=[], metavar="PATH", help="file or folder; repeatable")
    up.add_argument("--no-workloads", action="store_true", help="no demo StatefulSet and Deployment")
    up.add_argument("--kubeconfig-out", type=Path, metavar="FILE")
    up.add_argument("--api-url", help="a real API server without controllers, instead of the simulated one")
    up.add_argument("--api-token-file", type=Path, help="file with the bearer token for --api-url")
    up.add_argument("--api-ca", metavar="FILE", help="certificate authority for --api-url")
    up.add_argument("--scenario", help="file, or the name of one that comes with the simulator")
    up.add_argument("--stay", action="store_true", help="go on when the parent process is gone")
    up.add_argument("-v", "--verbose", action="count", default=0)
    broken = commands.add_parser("break", help="break a node or its BMC")
    broken.add_argument("node")
    broken.add_argument("how", help="e.g. kubelet-stops, kernel-hangs, power-cut, bmc-lies, condition:DiskPressure=True")
    commands.add_parser("heal", help="undo all faults of a node").add_argument("node")
    commands.add_parser("state", help="nodes, power, faults")
    commands.add_parser("violations", help="two writers at once; exit code 1 if there were any")
    commands.add_parser("scenario", help="run a scenario").add_argument("file")
    for command in commands.choices.values():
        command.add_argument("--state-dir", type=Path, default=DEFAULT_STATE_DIR, metavar="DIR")
    return parser


# The process that is the cluster ---------------------------------------------------------------------------------------------


async def _up(options: argparse.Namespace) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    scenario = Scenario.load(options.scenario) if options.scenario else None
    token = options.api_token_file.read_text().strip() if options.api_token_file else ""
    cluster = SimulatedCluster(
        nodes=options.nodes,
        zones=options.zones,
        control_planes=options.control_planes,
        heartbeat_seconds=options.heartbeat,
        grace_seconds=options.grace,
        boot_seconds=options.boot,
        bmc=None if options.bmc == "none" else options.bmc,
        platform=None if options.bmc == "none" else options.platform or (scenario.platform if scenario else None),
        api_url=options.api_url,
        api_token=token,
        api_certificate_authority=options.api_ca,
        custom_resource_definitions=options.crds,
        demo_workloads=not options.no_workloads,
        state_dir=options.state_dir,
        machines=options.machines or (scenario.machines if scenario else "") or None,
    )
    async with asyncio.TaskGroup() as group:
        life = group.create_task(_live(cluster, options, scenario, stop))
        watcher = None if options.stay else group.create_task(_follow_parent(stop))
        stopper = group.create_task(_cancel_when(stop, life))
        try:
            await life
        except asyncio.CancelledError:
            if not stop.is_set():
                raise
        finally:
            stopper.cancel()
            if watcher is not None:
                watcher.cancel()
    return 0


async def _live(cluster: SimulatedCluster, options: argparse.Namespace, scenario: Scenario | None, stop: asyncio.Event) -> None:
    async with cluster, ControlServer(cluster) as control:
        state = {"control": control.url, "pid": os.getpid(), **describe(cluster)}
        state_file = options.state_dir / STATE_FILE
        state_file.write_text(json.dumps(state))
        if options.kubeconfig_out:
            options.kubeconfig_out.write_text(cluster.kubeconfig_path.read_text())
        print(json.dumps(state), flush=True)
        try:
            if scenario is not None:
                await scenario.run(cluster)
            await stop.wait()
        finally:
            state_file.unlink(missing_ok=True)


async def _cancel_when(stop: asyncio.Event, life: asyncio.Task[None]) -> None:
    """Also in the middle of the start or of a scenario a signal must end everything that was started."""
    await stop.wait()
    life.cancel()


async def _follow_parent(stop: asyncio.Event) -> None:
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 - no portable notification exists
        await asyncio.sleep(0.5)
    stop.set()


# The hands -------------------------------------------------------------------------------------------------------------------


def _steer(options: argparse.Namespace) -> int:
    match options.command:
        case "break":
            answer = _call(options.state_dir, "/break", json.dumps({"node": options.node, "how": options.how}))
        case "heal":
            answer = _call(options.state_dir, "/heal", json.dumps({"node": options.node}))
        case "scenario":
            scenario = Path(options.file)
            shipped = Path(__file__).parent / "scenarios" / f"{options.file}.yaml"
            answer = _call(options.state_dir, "/scenario", (scenario if scenario.exists() else shipped).read_text())
        case command:
            answer = _call(options.state_dir, f"/{command}")
    print(json.dumps(answer, indent=2))
    return 1 if options.command == "violations" and answer["violations"] else 0


def _call(state_dir: Path, path: str, body: str | None = None) -> Any:
    state_file = state_dir / STATE_FILE
    if not state_file.exists():
        raise ValueError(f"no simulated cluster is running with --state-dir {state_dir}")
    url = json.loads(state_file.read_text())["control"] + path
    try:
        # The address comes from our own state file.
        with urllib.request.urlopen(url, data=body.encode() if body is not None else None, timeout=10) as response:  # noqa: S310
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise ValueError(json.load(error)["error"]) from None
    except urllib.error.URLError as error:
        raise ValueError(f"the simulated cluster at {url} does not answer: {error.reason}") from None


if __name__ == "__main__":
    sys.exit(main())
