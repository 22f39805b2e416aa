"""Writes the decisions of the stored cases anew, so that a changed decision is a diff in review; or draws the random ones.

python -m tests.cases.write                 # every `then`, from what policy decides now
python -m tests.cases.write --draw 500      # drawn.yaml: up to 500 random worlds, each with a way to a decision of its own
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from tests.cases.decisions import decisions
from tests.cases.drawn_worlds import drawn
from tests.cases.worlds import FOLDER, Json, case_files, heading, read, text

_NAMES = re.compile(r"\b[nm]\d+\b|(MachineHealthCheck|NodeHealthCheck)[\w./-]*|\d[\d.:TZ-]*")


def rewritten(path: Path) -> str:
    """The file with the decisions as they are now."""
    cases = read(path)
    return heading(path) + text(
        [{key: value for key, value in case.items() if key != "then"} | {"then": decisions(case)} for case in cases]
    )


# Drawing --------------------------------------------------------------------------------------------------------------


def _short(name: re.Match[str]) -> str:
    return name[1] or ("a node" if name[0][0] in "nm" else "#")


def ways(then: Json) -> set[str]:
    """By which ways its decisions are reached, without names and numbers: one for each node, and one for each check."""
    scan, by_victim = then.get("scan", {}), dict[str, set[str]]()
    for check, verdicts in then.get("verdicts", {}).items():
        for target, verdict in verdicts.items():
            by_victim.setdefault(target.rpartition(" of ")[2], set()).add(f"{check.partition('/')[0]}: {verdict}")
    found = {_NAMES.sub(_short, f"circuit breaker: {line}") for line in then.get("checks", {}).values()}
    for victim, verdicts in by_victim.items():
        mine = [f"admitted to {line.rpartition(': ')[2]}" for line in scan.get("admits", ()) if victim in line]
        mine += [f"refused {why}" for name, why in scan.get("refuses", {}).items() if name.endswith(victim)]
        mine += ["a person is asked"] if victim in scan.get("asks a person", ()) else []
        found.add(_NAMES.sub(_short, " | ".join([*sorted(verdicts), *mine])))
    return found


def drawn_cases(stored: list[Json], wanted: int) -> Iterator[Json]:
    """Those that are stored, and as many random worlds as are wanted beside them, each made as small as it can be and still have
    a way that no earlier one has."""
    known, names = set[str](), {each["case"] for each in stored}
    for each in stored:
        then = decisions(each)
        known |= ways(then)
        yield each | {"then": then}
    seeds = (seed for seed in count(1) if f"drawn-{seed}" not in names)
    for _ in range(wanted - len(stored)):
        while True:
            seed = next(seeds)
            world = drawn(seed, scanner=True)
            if new := sorted(ways(decisions(world)) - known, key=lambda way: (len(way), way)):
                break
        world = _smallest(world, lambda less, way=new[0]: way in ways(decisions(less)))
        then = decisions(world)
        known |= ways(then)
        yield {"case": f"drawn-{seed}", "why": new[0], **world, "then": then}


def _smallest(world: Json, still: Callable[[Json], bool]) -> Json:
    """The world without all that it can do without: objects first, then their fields."""
    for places in (_objects, _fields):
        for *way, last in places(world):
            less = copy.deepcopy(world)
            inner = less
            for step in way:
                inner = inner[step]
            del inner[last]
            try:
                world = less if still(less) else world
            except (KeyError, TypeError, ValueError):
                continue  # an object that lacks what it must have
    return {key: value for key, value in world.items() if value}


def _objects(world: Json) -> list[tuple[Any, ...]]:
    return [("given", at) for at in reversed(range(len(world["given"])))] + [("scan", key) for key in world.get("scan", {})]


def _fields(world: Json) -> list[tuple[Any, ...]]:
    found = list[tuple[Any, ...]]()
    for at, each in enumerate(world["given"]):
        for key in [key for key in each if key[0].islower() and key not in {"api", "spec"}]:
            found += [("given", at, key, part) for part in each[key] if isinstance(each[key], dict)] + [("given", at, key)]
    return found


def main(args: list[str]) -> None:
    if args[:1] == ["--draw"]:
        path = FOLDER / "drawn.yaml"
        path.write_text(heading(path) + text(drawn_cases(read(path), int(args[1]))), encoding="utf-8")
        return
    for path in case_files():
        path.write_text(rewritten(path), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
