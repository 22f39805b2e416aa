"""How much of policy/ the fast tests hold: break one thing at a time in a copy of the repository, and see whether a test fails.

    python -m tests.mutation                                  # forty mutants of policy/, drawn by seed 1
    python -m tests.mutation policy/fence --sample 100        # of one room; --sample 0 takes every mutant there is
    python -m tests.mutation --tests tests/cluster/acts       # does another layer notice?

Each mutant is printed with the test that fails first, or as a survivor: a rule that none of these tests holds, or a change that
means the same. It is a figure to read and no gate: `make test` does not run it. A survivor takes as long as all of the tests.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAST = ("tests/policy", "tests/cases", "tests/vectors")
PATIENCE = 4.0
"""A mutant may take so many times what the tests take without one, and that it does not end counts as noticed."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
SUMS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of one file. start, end: bytes of the file that `text` takes the place of."""

    file: str
    line: int
    start: int
    end: int
    was: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {_short(self.was)} -> {_short(self.text)}"

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants(file: str, source: str) -> list[Mutant]:
    """Every change that this file can be given."""
    data = source.encode()
    offsets = [0]
    for each in data.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(each))
    found = []
    for node, text in _changes(ast.parse(source)):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = offsets[node.lineno - 1] + node.col_offset, offsets[node.end_lineno - 1] + node.end_col_offset
        found.append(Mutant(file=file, line=node.lineno, start=start, end=end, was=data[start:end].decode(), text=text))
    return found


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Nodes of the tree, each with what is to stand in its place."""
    match node:
        case ast.Compare(ops=[op], left=left, comparators=compared) if type(op) in COMPARISONS:
            yield node, _written(ast.Compare(left, [COMPARISONS[type(op)]()], compared))
        case ast.BoolOp(op=op, values=values):
            yield node, _written(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield node, _written(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SUMS and not isinstance(right, ast.Constant | ast.JoinedStr):
            yield node, _written(ast.BinOp(left, SUMS[type(op)](), right))
        case ast.Constant(value=bool(value)):
            yield node, str(not value)
        case ast.Constant(value=int(number)):
            yield node, str(number + 1)
        case ast.If(body=body) | ast.For(body=body):
            yield from ((each, "pass") for each in body if isinstance(each, ast.Return | ast.Continue | ast.Break | ast.Raise))
    for child in _children(node):
        yield from _changes(child)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Those that run: no annotations and decorators, nor f-strings, whose parts have no place of their own in the source."""
    if isinstance(node, ast.JoinedStr):
        return
    for name, value in ast.iter_fields(node):
        if name not in {"annotation", "returns", "decorator_list", "bases", "type_params"}:
            yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, ast.AST))


def _written(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 70 else f"{line[:67]}..."


class Copy:
    """The repository's files elsewhere, in which each mutant stands for the time of its tests."""

    def __init__(self, root: Path, tests: Sequence[str]) -> None:
        self.root = root
        self._tests = tests
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)

    def failing(self, first: str = "", *, seconds: float | None = None, keeps_bytecode: bool = False) -> str | None:
        """The first test that fails, None where none does. first: those of the tests that begin."""
        mirrors = first and (self.root / first).exists() and any(Path(first).is_relative_to(each) for each in self._tests)
        begin = [first] if mirrors else []
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        if not keeps_bytecode:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        options = ["-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider"]
        options += ["--hypothesis-profile=mutants", "--hypothesis-seed=0"]
        command = [sys.executable, "-m", "pytest", *options, *begin, *self._tests]
        try:
            told = subprocess.run(
                command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return "time is up"
        if told.returncode == 0:
            return None
        named = [line for line in told.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return named[0].split(" ", 1)[1].partition(" - ")[0] if named else f"pytest ended with {told.returncode}"

    def noticed(self, mutant: Mutant, *, seconds: float) -> str | None:
        """The test that notices it."""
        file = self.root / mutant.file
        whole, times = file.read_bytes(), file.stat()
        file.write_bytes(mutant.applied(whole))
        try:
            return self.failing(_beside(mutant.file), seconds=seconds)
        finally:
            file.write_bytes(whole)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def _beside(file: str) -> str:
    """The folder of tests that mirrors a file's."""
    return str(Path("tests") / Path(file).parent)


def main() -> None:
    """Draw mutants, try them and print what became of each."""
    options = argparse.ArgumentParser(description="Break policy/ one change at a time and see which test notices.")
    options.add_argument("where", nargs="*", default=["policy"], help="files or folders (policy)")
    options.add_argument("--sample", type=int, default=40, help="how many mutants, 0 for all (40)")
    options.add_argument("--seed", type=int, default=1, help="which sample (1)")
    options.add_argument("--tests", nargs="+", default=list(FAST), help=f"the tests that should notice ({' '.join(FAST)})")
    asked = options.parse_args()
    paths = [ROOT / each for each in asked.where]
    files = sorted({found for path in paths for found in (path.rglob("*.py") if path.is_dir() else [path])})
    names = [str(file.relative_to(ROOT)) for file in files]
    every = [mutant for name in names for mutant in mutants(name, (ROOT / name).read_text(encoding="utf-8"))]
    drawn = every if not asked.sample else sorted(random.Random(asked.seed).sample(every, min(asked.sample, len(every))), key=str)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(Path(folder), asked.tests)
        begun = time.monotonic()
        if (failing := copy.failing(keeps_bytecode=True)) is not None:
            sys.exit(f"without any mutant {failing} fails: expected tests that pass")
        seconds = 10 + PATIENCE * (time.monotonic() - begun)
        print(
            f"{len(drawn)} of {len(every)} mutants of {' '.join(asked.where)}, seed {asked.seed}; tests: {' '.join(asked.tests)}"
        )
        killed = 0
        for mutant in drawn:
            test = copy.noticed(mutant, seconds=seconds)
            killed += test is not None
            print(f"{'killed  ' if test else 'SURVIVED'} {mutant}{f'   by {test}' if test else ''}", flush=True)
    print(f"{killed} of {len(drawn)} were noticed ({killed / max(len(drawn), 1):.0%})")


if __name__ == "__main__":
    main()
