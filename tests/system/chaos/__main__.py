"""`python -m tests.system.chaos`: chaos for some minutes or hours, judged by itself. Exit code 0 if nothing was found, 1 if
something was, 2 if it was interrupted before its time, 3 if it broke off with an error of its own.

Everything it starts is on the loopback, in a folder of its own, and ends with it by process id, also after Ctrl-C or a kill.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from simulator.machine_systems.contract import MachineSettings
from simulator.machines import MachineOptions
from tests.system.chaos.arena import LONGEST_ACT, SECOND, Arena, Round
from tests.system.chaos.faults import FAULTS
from tests.system.chaos.recorder import Wrong, most_at_once
from tests.system.harness import Pace, System
from tests.system.nursery import Nursery
from tests.system.temporal_server import TemporalServer
from tests.system.worker_process import ROOT

RESULTS = ROOT / "benchmarks" / "results"
QUICK = MachineSettings(create=0.5, switch_off=0.5, destroy=0.5, remove_node=0.5)
NODES = 12
HELPED = ("questions answered", "nodes helped by hand", "stuck episodes terminated")
VERDICTS = ("nothing found", "found something", "interrupted", "broke off with an error of its own")


async def run(
    *,
    seed: int,
    seconds: float,
    workers: int,
    nodes: int = NODES,
    folder: Path,
    report: dict[str, object],
    file: Path | None = None,
    only: int | None = None,
    first: Round | None = None,
    nursery: Nursery | None = None,
) -> Arena:
    """Rounds until the time is over, or one has found something; `report` grows with each, and is kept in `file`. only: number
    of the one that is played. first: a round that is played before all that are drawn."""
    ends = time.monotonic() + seconds
    async with AsyncExitStack() as stack:
        temporal = await stack.enter_async_context(TemporalServer(folder, namespaces=("default", SECOND)))
        nursery = nursery or await stack.enter_async_context(Nursery(ROOT, folder / "nursery.log"))
        system = await stack.enter_async_context(
            System(
                folder / "system",
                temporal=temporal,
                nursery=nursery,
                cluster_name="chaos",
                nodes=nodes,
                zones=3,
                pace=Pace(heartbeat=max(1.0, nodes / 48), grace=6.0, boot=1.0),
                longest_act=LONGEST_ACT,
                workers_as=MachineOptions(system="openshift", settings=QUICK),
            )
        )
        arena = Arena(system, seed=seed, workers=workers, stack=stack)
        await arena.prepare()
        number = only or 1
        while not arena.recorder.findings:
            began, plan = time.monotonic(), first if first and number == 1 else arena.drawn(number)
            print(f"{datetime.now(UTC):%H:%M:%S} {plan}", flush=True)
            await arena.play(plan)
            report |= figures(arena, rounds=number)
            if file is not None:
                write(report, file)
            so_far = f"{report['episodes_in_all']} episodes under {report['kills_in_all']} kills so far"
            print(f"{datetime.now(UTC):%H:%M:%S} at rest after {time.monotonic() - began:.1f} s; {so_far}", flush=True)
            if only is not None or time.monotonic() > ends:
                break
            number += 1
        return arena


def figures(arena: Arena, *, rounds: int) -> dict[str, object]:
    """What is counted so far."""
    kills = {name: count for name, count in sorted(arena.counts.items()) if name.startswith("kills of")}
    return {
        "rounds": rounds,
        "episodes": dict(sorted(arena.episodes.items())),
        "episodes_in_all": arena.episodes.total(),
        "kills": kills,
        "kills_in_all": sum(kills.values()),
        "faults": dict(sorted(arena.faults.items())),
        "left_out": {fault.name: fault.left_out for fault in FAULTS if fault.left_out},
        "people": {name: count for name, count in sorted(arena.counts.items()) if name.startswith(("done:", "refused:"))},
        "killed_at": {name: count for name, count in sorted(arena.counts.items()) if name.startswith(("killed ", "frozen "))},
        "helped": {name: arena.counts[name] for name in HELPED},
        "audits": arena.audits,
        "sentences_held_against_the_record": arena.recorder.words,
        "machines_off_at_once": most_at_once(arena.recorder.outages),
        "permits": arena.cap,
        "found": {wrong.value: sum(each.wrong is wrong for each in arena.recorder.findings) for wrong in Wrong},
        "findings": [str(each) for each in arena.recorder.findings],
    }


def write(report: dict[str, object], file: Path) -> None:
    """As JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(report, indent=1) + "\n")


def machine() -> str:
    """What it ran on."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def commit() -> str:
    """Of the checkout, marked where it is changed."""
    told = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def table(report: dict[str, object]) -> str:
    """The report for a terminal."""
    lines = []
    for name, value in report.items():
        shown = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else value
        lines.append(f"{name.replace('_', ' '):34}{shown}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.system.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="of what is drawn (default: a new one)")
    parser.add_argument("--minutes", type=float, default=10.0, help="after which no other round begins (default: 10)")
    parser.add_argument("--hours", type=float, default=0.0, help="the same in hours")
    parser.add_argument("--workers", type=int, default=2, help="worker processes (default: 2)")
    parser.add_argument("--nodes", type=int, default=NODES, help="of the cluster, with which faults grow (default: 12)")
    parser.add_argument("--round", type=int, help="play only the round of that number")
    parser.add_argument("--json", type=Path, help="where the figures are written; default: benchmarks/results/chaos-SEED.json")
    chosen = parser.parse_args()
    minutes = 60 * chosen.hours or chosen.minutes
    folder = Path(tempfile.mkdtemp(prefix="nodewarden-chaos-"))
    report: dict[str, object] = {
        "seed": chosen.seed,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "commit": commit(),
        "workers": chosen.workers,
        "nodes": chosen.nodes,
    }
    print(f"chaos with seed {chosen.seed} for {minutes:g} minutes in {folder}", flush=True)
    began, code, file = time.monotonic(), 3, chosen.json or RESULTS / f"chaos-{chosen.seed}.json"
    try:
        arena = asyncio.run(
            _until_told(
                run(seed=chosen.seed, seconds=60 * minutes, workers=chosen.workers, nodes=chosen.nodes, only=chosen.round,
                    folder=folder, report=report, file=file)
            )
        )  # fmt: skip
        code = 1 if arena.recorder.findings else 0
        for finding in arena.recorder.findings:
            print(f"\n{finding}\n  before it, in round {arena.number} of seed {chosen.seed}:\n    {arena.before(finding)}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = 2
    finally:
        report["minutes"] = round((time.monotonic() - began) / 60, 1)
        report["verdict"] = VERDICTS[code]
        print(f"\n{table(report)}")
        write(report, file)
        if code in {1, 3}:
            print(f"logs and databases are kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(code)


async def _until_told(work: Coroutine[Any, Any, Arena]) -> Arena:
    """SIGTERM ends it as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work


if __name__ == "__main__":
    main()
