"""A real development server for the tests of workers and starter, in memory, ended by its process id."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from workers.embedded.server import DYNAMIC_CONFIGURATION, find_binary, free_ports

SILENT = "silent"
"""A namespace in which no worker ever runs."""


@contextmanager
def development_server(*, namespaces: tuple[str, ...] = (), search_attributes: tuple[str, ...] = ()) -> Iterator[str]:
    """Its address, once it listens."""
    (port,) = free_ports("127.0.0.1", 1)
    arguments = [str(find_binary()), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
    arguments += ["--log-level", "never"]
    for value in DYNAMIC_CONFIGURATION:
        arguments += ["--dynamic-config-value", value]
    for name in namespaces:
        arguments += ["--namespace", name]
    for name in search_attributes:
        arguments += ["--search-attribute", f"{name}=Keyword"]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not _listens(port):
            assert process.poll() is None, "the development server ended at once"
            assert time.monotonic() < deadline, "the development server does not listen"
            time.sleep(0.02)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
