"""The code of one guard exchanged in place: what a function does by a changed source, for as long as a play takes."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def changed(file: str, was: str, instead: str) -> Iterator[None]:
    """The functions of a module do what its source would say with `instead` in the place of `was`. Raises ValueError where that
    text is not there exactly once, or is no function's: what a module does when it is imported stays."""
    source = (ROOT / file).read_text(encoding="utf-8")
    if source.count(was) != 1:
        raise ValueError(f"{file}: expected once, found {source.count(was)} times: {was}")
    module = importlib.import_module(file.removesuffix(".py").replace("/", "."))
    before, after = (_functions(compile(each, file, "exec")) for each in (source, source.replace(was, instead)))
    different = [name for name, code in before.items() if _text(code) != _text(after[name])]
    if not different:
        raise ValueError(f"{file}: no function says: {was}")
    with ExitStack() as restored:
        for name in different:
            function = _found(module, name)
            restored.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = after[name]
        yield


def _functions(body: CodeType) -> dict[str, CodeType]:
    """The code of each function and method of a module, by its qualified name; what stands within a function is a part of it."""
    found = {}
    for each in body.co_consts:
        if isinstance(each, CodeType) and each.co_flags & inspect.CO_OPTIMIZED:
            found[each.co_qualname] = each
        elif isinstance(each, CodeType):
            found |= _functions(each)
    return found


def _text(code: CodeType) -> tuple[object, ...]:
    """What it does, wherever it stands in its file."""
    consts = tuple(_text(each) if isinstance(each, CodeType) else (type(each), each) for each in code.co_consts)
    return code.co_code, code.co_names, code.co_varnames, consts


def _found(module: object, name: str) -> Any:
    at: Any = module
    for part in name.split("."):
        at = vars(at)[part]
    at = getattr(at, "fget", at)
    at = getattr(at, "__func__", at)
    at = getattr(at, "__wrapped__", at)
    assert isinstance(at, FunctionType), name
    return at
