"""Imports of other people's packages without those parts of them that nothing here uses, and that would stay in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from types import ModuleType


@contextmanager
def without(package: str) -> Iterator[None]:
    """While this holds, a package that is not loaded yet counts as not installed, for what takes it where it is there."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]


class _Empty(type):
    """The type of classes that have no content, and of which each attribute is another one."""

    def __getattr__(cls, name: str) -> type:
        return _empty(name)


class _StandIn(ModuleType):
    """Has a class without content by each name that it is asked for."""

    def __getattr__(self, name: str) -> type:
        return _empty(name)


def _empty(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Empty(name, (Exception,), {})


@contextmanager
def with_stand_ins(package: str, *parts: str) -> Iterator[None]:
    """While this holds, a package that is not loaded yet is empty, for what derives classes from those that it expects there and
    never makes one. parts: modules of it that are imported by their names."""
    spec = find_spec(package) if package not in sys.modules else None
    if spec is None:
        yield
        return
    names = [package, *(f"{package}.{part}" for part in parts)]
    for name in names:
        sys.modules[name] = module = _StandIn(name)
        module.__spec__ = spec  # by which it is asked for whether it is installed
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


@contextmanager
def without_its_own_module(package: str) -> Iterator[ModuleType | None]:
    """While this holds, parts of a package are imported without its own module, which imports all of them; gives what stands for
    that. What else in the process wants the package whole may import it before, and then it is used as it is (None), or after."""
    spec = find_spec(package) if package not in sys.modules else None
    if spec is None or spec.origin is None:
        yield None
        return
    bare = sys.modules[package] = module_from_spec(spec)
    try:
        yield bare
    finally:
        del sys.modules[package]


def import_temporal() -> None:
    """Temporal's SDK, of which the core talks to the service. Its stubs for Python's gRPC, which it loads wherever that is
    installed (as it is with Google's client), would take 16 MB."""
    with without("grpc"):
        import temporalio.client  # noqa: F401 - whatever is imported of it later finds its parts there
