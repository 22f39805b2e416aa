"""Imports of other people's packages without those parts of them that nothing here uses, and that would stay in memory."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
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


def import_requests() -> ModuleType:
    """That package without what guesses how a text is encoded (4 MB)."""
    with without("chardet"), without("charset_normalizer"), warnings.catch_warnings(action="ignore"):
        return import_module("requests")
