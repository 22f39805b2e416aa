"""Settings tests must not see the settings of whoever runs them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.server import development_server


@pytest.fixture(scope="package")
def server() -> Iterator[str]:
    """A Temporal server without any of our search attributes."""
    with development_server() as address:
        yield address


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No variables, no files, no kubeconfig of the person at the keyboard; the working directory is empty."""
    for name in list(os.environ):
        if name.startswith(("NODEWARDEN_", "TEMPORAL_", "KUBE", "XDG_")) or name == "NODE_NAME":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path
