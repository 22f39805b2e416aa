"""The files of an embedded server: its data, its log, where it listens, and the two locks that say who is alive.

A lock is the kernel's: it goes with the process that holds it. The pid file is written by the server's own process just
before it becomes the server, so that while `server.lock` is held the pid in it is the server's and no recycled one.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from workers.errors import SettingsError

HOST = "127.0.0.1"
LARGEST_LOG = 5_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the server of a state directory listens."""

    port: int
    ui_port: int
    ui_host: str = HOST

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def ui_url(self) -> str:
        return f"http://{self.ui_host}:{self.ui_port}"


class StateDirectory:
    """Paths and locks under one directory. Reading changes nothing and needs no directory to be there."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self.root = state / "temporal"
        self.database = self.root / "temporal.db"
        self.log = self.root / "server.log"
        self.pid_file = self.root / "server.pid"
        self._endpoint_file = self.root / "endpoint.json"
        self._server_lock = self.root / "server.lock"
        self._owner_lock = self.root / "owner.lock"

    def prepare(self) -> None:
        """Make it for its owner only, and close to others what is there: workflow history names nodes and people.

        Raises SettingsError for a directory that is another user's.
        """
        make_private(self._state)
        make_private(self.root)
        for each in self.root.iterdir():
            if each.is_file() and not each.is_symlink() and stat.S_IMODE(each.stat().st_mode) & 0o077:
                each.chmod(0o600)

    def lock_server(self) -> int | None:
        """The lock that a server holds for its life, as a descriptor to hand over; None where another holds it."""
        return _lock(self._server_lock)

    def lock_owner(self) -> int | None:
        """The lock of the process that looks after the server; None where another holds it."""
        return _lock(self._owner_lock)

    def server_alive(self) -> bool:
        """Whether a server of this directory runs, started by any process."""
        if not self._server_lock.exists():
            return False
        held = self.lock_server()
        if held is None:
            return True
        os.close(held)
        return False

    def pid(self) -> int | None:
        """The server's process id; meaningful only while `server_alive`."""
        try:
            return int(self.pid_file.read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return None

    def endpoint(self) -> Endpoint | None:
        """Where the last server listened; None where there never was one or the record cannot be read (then it is made anew)."""
        try:
            recorded = json.loads(self._endpoint_file.read_text(encoding="utf-8"))
            host = str(recorded.get("ui_host", HOST))
            return Endpoint(port=int(recorded["port"]), ui_port=int(recorded["ui_port"]), ui_host=host)
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def record(self, endpoint: Endpoint) -> None:
        """Remember where the server is about to listen, and forget the former one's process."""
        self.pid_file.unlink(missing_ok=True)
        fresh = self._endpoint_file.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(asdict(endpoint)), encoding="utf-8")
        fresh.replace(self._endpoint_file)

    def open_log(self) -> AbstractContextManager[BinaryIO]:
        """The server's log, to append to; a large one is set aside first (one former log is kept)."""
        if self.log.exists() and self.log.stat().st_size > LARGEST_LOG:
            self.log.replace(self.log.with_suffix(".log.1"))
        self.log.touch(mode=0o600)
        return self.log.open("ab")

    def log_tail(self) -> str:
        try:
            text = self.log.read_bytes()[-4000:].decode(errors="replace")
        except FileNotFoundError:
            return "(no log)"
        return " / ".join(line.strip() for line in text.splitlines()[-3:] if line.strip()) or "(empty)"


def make_private(directory: Path) -> None:
    """Make it for its owner only; one that others can look into is closed to them.

    Raises SettingsError for one of another user, who could open it again or put files of his own there, and OSError where none
    can be made.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = directory.stat()
    if found.st_uid != os.geteuid():
        raise SettingsError(
            f"state: expected a directory of our own (user {os.geteuid()}), but {directory} belongs to user {found.st_uid}; "
            "name one that is not there yet"
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        directory.chmod(0o700)


def _lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
