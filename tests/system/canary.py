"""One value that is part of every secret of the system tests, and the search for it in everything that they leave behind (S12).

Simulated platforms begin their passwords, keys and tokens with it (`secret_mark`), and each worker has it in its environment, as
`env:` references want it; so a leak needs nobody who expects it. Searched are Temporal's databases whole (histories, memos,
failures that are still pending), all files below the tests' folders, the workers' logs among them, what commands print, each
object at the moment of its writing to a simulated API server, metrics, and the arguments and environments of processes
(`process_watch.py`). An RSA key can't carry it and is learnt instead.

RUN is the one of this process of tests; `conftest.py` has it searched for, and fails the run. That each search can find is shown
by `test_canary.py`, with values of its own.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import aiohttp
import pytest

from simulator.api.storage.store import Change, StorageKey, Store
from simulator.client import ApiClient
from tests.system import process_watch

NAMES = frozenset({"username", "access-key-id"})
"""Keys of credentials that say who somebody is. What is no secret carries no canary."""

KEEPERS = frozenset({"kubeconfig", "lan.conf", "token", "tokens.csv", "etcd", "signing-keys"})
"""Files and folders that are made to hold secrets: for a user of a cluster, the program that plays a BMC, an API server,
the workers of a deployment."""

CHANNELS = ("rows of databases", "files", "objects", *(["processes"] if process_watch.possible() else []))
"""What must have been looked at wherever secrets were handed out: a search of nothing finds nothing (S7)."""

PEM = re.compile(r"PRIVATE KEY-----(?P<body>.+?)-----END", re.DOTALL)
CONTEXT = 80


class Canary:
    """A value to look for, what has been looked at, and where it was found."""

    def __init__(self) -> None:
        # Short, because an IPMI password has 16 bytes and the devices of one test must differ in theirs.
        self.value = f"canary{secrets.token_hex(2)}"
        self.found: dict[str, str] = {}
        self.searched: Counter[str] = Counter()
        self._processes: set[int] = set()
        self._needles = tuple(shapes(self.value))

    def learn(self, *credentials: Mapping[str, str]) -> None:
        """Make sure that each of these secrets would be found. Keys that can't carry the canary are searched for themselves."""
        for key, value in ((key, value) for each in credentials for key, value in each.items() if key not in NAMES):
            self.searched["secrets"] += 1
            lines = [line for body in PEM.findall(value) for line in re.split(r"\\n|\n", body) if line]
            if lines:
                # As a whole, for others search meanwhile. A key is the same for the whole run, and known after the first time.
                self._needles = tuple(dict.fromkeys((*self._needles, *shapes(lines[len(lines) // 2]))))
            elif self.value not in value:
                raise AssertionError(f"the credential {key!r} would leak unseen: expected the canary in it")

    # Searching -------------------------------------------------------------------------------------------------------

    def look(self, where: str, what: bytes | str) -> None:
        """Search one thing; the first find of each place is kept, with its surroundings."""
        data = what.encode(errors="backslashreplace") if isinstance(what, str) else what
        for needle in self._needles:
            at = data.find(needle)
            if at >= 0 and where not in self.found:
                before, after = data[max(0, at - CONTEXT) : at], data[at + len(needle) :][:CONTEXT]
                self.found[where] = f"{before!r} SECRET {after!r}"

    def look_at_files(self, folder: Path) -> None:
        """Everything below a folder but what is made to keep secrets. Databases are read as such, too: they cut long values."""
        for path in sorted(folder.rglob("*")):
            parts = path.relative_to(folder).parts
            if not KEEPERS.isdisjoint(parts) or path.is_symlink() or not path.is_file():
                continue
            where = "/".join(parts)
            content = path.read_bytes()
            self.searched["files"] += 1
            self.look(where, content)
            if content.startswith(b"SQLite format 3"):
                self.look_at_database(where, path)

    def look_at_database(self, where: str, path: Path) -> None:
        """Each row of each table of a database of SQLite's, whether or not its server runs."""
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            database.text_factory = bytes
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:
                name = table.decode()
                for row in database.execute(f'SELECT * FROM "{name}"'):  # noqa: S608 - its own table
                    self.searched["rows of databases"] += 1
                    self.look(f"{where}, table {name}", b"\0".join(cell for cell in row if isinstance(cell, bytes)))

    def look_at_report(self, report: pytest.TestReport) -> None:
        """What a test, and what of ours ran in its process, printed and logged."""
        for title, text in report.sections:
            self.look(f"{report.nodeid}, {title}", text)

    def look_at_process(self, number: int, arguments: bytes, environment: bytes) -> None:
        """What everybody can see of a process. A worker may have secrets in its environment, and nothing that it starts."""
        words = [os.path.basename(word) for word in os.fsdecode(arguments).split("\0")]  # noqa: PTH119 - they are no paths
        self.searched["processes"] += number not in self._processes
        self._processes.add(number)
        self.look(f"the arguments of {words[0]}", arguments)
        if "worker" not in words:
            self.look(f"the environment of {' '.join(words[:3]).strip()}", environment)

    async def look_at_metrics(self, address: str) -> None:
        """What a worker says of itself to whoever asks there."""
        url, patience = f"http://{address}/metrics", aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=patience, raise_for_status=True) as session, session.get(url) as page:
            self.searched["metrics pages"] += 1
            self.look(f"the metrics at {address}", await page.read())

    async def look_at_api(self, where: str, client: ApiClient) -> None:
        """Every object that an API server has but Secrets: for a server that can't be listened to."""
        groups = await client.get("/apis")
        versions = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups["groups"])]
        for version in versions:
            for kind in (await client.get(version))["resources"]:
                name = kind["name"]
                if "list" not in kind["verbs"] or "/" in name or (version, name) == ("/api/v1", "secrets"):
                    continue
                for each in (await client.list(f"{version}/{name}"))["items"]:
                    self._look_at_object(where, name, str(each))

    # Listening -------------------------------------------------------------------------------------------------------

    def listen(self, where: str, store: Store) -> None:
        """From now on see each object but Secrets as it is written, also those that will be gone at the end."""

        def written(storage: StorageKey, change: Change) -> None:
            if storage != ("", "secrets"):
                record = change.record
                self._look_at_object(f"{where}, {record.namespace}/{record.name}", storage[1], record.body)

        store.listeners.append(written)

    def _look_at_object(self, where: str, kind: str, body: bytes | str) -> None:
        self.searched["objects"] += 1
        self.look(f"{kind}, {where}", body)

    @contextmanager
    def hearing(self) -> Iterator[None]:
        """While this lasts, hear what commands print that are started by tests."""
        original = asyncio.subprocess.Process.communicate

        async def communicate(process: asyncio.subprocess.Process, data: bytes | None = None) -> tuple[bytes, bytes]:
            printed = await original(process, data)
            self.searched["commands"] += 1
            for stream in printed:
                self.look(f"what process {process.pid} printed", stream or b"")
            return printed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio.subprocess.Process, "communicate", communicate)
            yield

    # Telling ---------------------------------------------------------------------------------------------------------

    def told(self) -> str:
        """What has been searched, in a line."""
        return ", ".join(f"{number} {what}" for what, number in sorted(self.searched.items()))

    def problems(self) -> list[str]:
        """Where a secret was found, and where nobody looked although there were secrets."""
        found = [f"a secret in {where}: {what}" for where, what in self.found.items()]
        unseen = [channel for channel in CHANNELS if not self.searched[channel]] if self.searched["secrets"] else []
        return found + [f"there were secrets, and nobody looked at {channel}" for channel in unseen]


def shapes(value: str) -> Iterator[bytes]:
    """How a value may be written: as it is, in hexadecimal digits, and inside of something longer that was written in base64."""
    plain = value.encode()
    yield plain
    yield plain.hex().encode()
    for before in range(3):
        # Which characters are its own depends on how many bytes are before it; those at its ends it shares with its neighbours.
        coded = base64.b64encode(bytes(before) + plain)
        yield coded[-(-before * 8 // 6) : (before + len(plain)) * 8 // 6]


RUN = Canary()
