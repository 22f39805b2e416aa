"""Where a workflow rests, by its code, and which of these places a replay reaches.

An open run that a new build takes over rests at one of them. So each has a stored history: what a change breaks for such runs
fails here, with the command that differs.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from temporalio import workflow

WORKFLOWS = Path(__file__).parents[2] / "workflows"
WAITS = {"rest", "pause", "sleep", "delay", "wait", "wait_condition"}
WRAPPED = {
    "episode/episode.py::rest",
    "episode/episode.py::pause",
    "episode/episode.py::delay",
    "episode/episode.py::finish_rest",
    "episode/episode.py::_wait_for_change",
    "episode/tries.py::rest",
    "remediation/ladder_step.py::wait",
    "definitions/device_check.py::_until",
}
"""What the others wait by: no place of a story."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A call that waits. why: as people read it, in the code's words. first, last: its lines."""

    module: str
    function: str
    why: str
    first: int
    last: int

    @property
    def name(self) -> str:
        """Its module and words; its function where the words are found elsewhere."""
        return f"{self.module}: {self.why}" if " " in self.why else f"{self.module}::{self.function}: {self.why}"


def places() -> tuple[Place, ...]:
    """All of them, in the order of the code."""
    found = set[Place]()
    for path in sorted(WORKFLOWS.rglob("*.py")):
        module = path.relative_to(WORKFLOWS).as_posix()
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.AsyncFunctionDef) and f"{module}::{function.name}" not in WRAPPED:
                found.update(_waits_of(module, function))
    return tuple(sorted(found, key=lambda each: (each.module, each.first)))


def _waits_of(module: str, function: ast.AsyncFunctionDef) -> Iterator[Place]:
    for call in ast.walk(function):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in WAITS):
            continue
        named = {each.arg: each.value for each in call.keywords}
        said = [named[key] for key in ("summary", "timeout_summary", "timeout") if key in named]
        why = call.args[-1] if len(call.args) > 1 else said[0] if said else None
        if call.func.attr == "delay":
            why = call.args[1]
        if why is not None:
            yield Place(module, function.name, ast.unparse(why).strip("f'\""), call.lineno, call.end_lineno or call.lineno)


@contextmanager
def noted() -> Iterator[set[tuple[str, int]]]:
    """Module and line of each frame in which something waits meanwhile."""
    found = set[tuple[str, int]]()

    def noting(waits: Any) -> Any:
        async def wait(*args: Any, **named: Any) -> Any:
            frame = sys._getframe(1)
            while frame is not None:
                path = Path(frame.f_code.co_filename)
                if path.is_relative_to(WORKFLOWS):
                    found.add((path.relative_to(WORKFLOWS).as_posix(), frame.f_lineno))
                frame = frame.f_back  # type: ignore[assignment]
            return await waits(*args, **named)

        return wait

    with patch.multiple(workflow, sleep=noting(workflow.sleep), wait_condition=noting(workflow.wait_condition)):
        yield found


def reached(lines: set[tuple[str, int]]) -> set[str]:
    """The names of the places to which these lines belong."""
    return {
        each.name for each in places() if any(module == each.module and each.first <= line <= each.last for module, line in lines)
    }
