"""`make demo`: nodewarden before one's eyes, with nothing but Python. What is shown is `repair.py`, or `observe.py`."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import shutil
import sys
from pathlib import Path

from demo.observe import ObserveDemo
from demo.platforms import CHOICES, DEFAULT, why_not
from demo.repair import Demo
from workers.os_process import leave

MARKER = ".nodewarden-demo"
"""Only a folder with this file in it is ever removed."""
SCENARIOS = {"repair": Demo, "observe": ObserveDemo}


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(
        prog="python -m demo", description="Break nodes of a simulated cluster and watch them being repaired."
    )
    parser.add_argument("--keep", action="store_true", help="stay up after the show")
    parser.add_argument(
        "--state", type=Path, default=Path("state/demo"), help="folder for everything that is written (default state/demo)"
    )
    parser.add_argument(
        "--platform", default=DEFAULT, metavar="NAME", help=f"what the machines are: {', '.join(CHOICES)} (default {DEFAULT})"
    )
    parser.add_argument(
        "--scenario",
        default="repair",
        choices=SCENARIOS,
        help="two repairs (the default), or a month that is only observed, and then a rack that is armed",
    )
    options = parser.parse_args()
    if refusal := why_not(options.platform):
        print(refusal, file=sys.stderr)
        return 2
    state: Path = options.state.resolve()
    state.parent.mkdir(parents=True, exist_ok=True)
    with state.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"a demo runs here already (its folder is {state}); end it, or give another --state", file=sys.stderr)
            return 2
        if state.exists() and any(state.iterdir()) and not (state / MARKER).exists():
            print(f"--state {state}: expected an empty folder or one of an earlier demo; nothing was removed", file=sys.stderr)
            return 2
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir()
        (state / MARKER).touch()
        try:
            return asyncio.run(SCENARIOS[options.scenario](state, keep=options.keep, platform=options.platform).run())
        except (KeyboardInterrupt, asyncio.CancelledError):
            print("interrupted; everything that was started has ended", file=sys.stderr)
            return 130


if __name__ == "__main__":
    leave(main())
