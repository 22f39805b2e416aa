"""The directory in which evidence is kept: one folder for each preservation, complete files or none, and nothing outside of it.

The worker that reads something writes it, into the same directory: workers of a cluster what its API says, workers of a site
what its devices say. So the text passes neither the workflow nor its history, which would show a console to everybody who may
read histories, and only names, sizes and hashes travel. The directory is mounted (a volume, a share, a bucket) on the workers
of both; where a site's worker mounts another one, the manifest says that its files are not there.

A mount may hang for ever. Every access runs in a thread of its own that is waited for only so long, and only a few may hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from activities.contracts.evidence import BundleName, EvidenceFile
from activities.errors import ErrorType, failure
from policy.episode.evidence import safe_name

Result = TypeVar("Result")

MANIFEST = "manifest.json"
MANIFEST_ROOM = 32 * 1024
"""Of a bundle's bytes, what is left for the manifest."""

THREADS = 4
"""Accesses at once; so many may hang in a mount that does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of evidence. patience: how long one worker spends on one bundle."""

    file_bytes: int = 1024 * 1024
    bundle_bytes: int = 8 * 1024 * 1024
    patience: timedelta = timedelta(seconds=20)


class EvidenceDirectory:
    """One directory, as this worker sees it. It must be there: what should be a mount is not made up for."""

    def __init__(self, root: Path, limits: Limits | None = None) -> None:
        self._root = root
        self.limits = limits or Limits()
        self._free = asyncio.Semaphore(THREADS)

    @asynccontextmanager
    async def patiently(self) -> AsyncIterator[None]:
        """All that one worker does for one bundle goes in here: no access to the directory is bounded by itself."""
        seconds = self.limits.patience.total_seconds()
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            problem = f"not all could be read and written to {self._root} within {seconds:g} s"
            raise failure(ErrorType.UNREACHABLE, problem) from None

    def path_of(self, bundle: BundleName) -> Path:
        """Where a bundle is; each of the names is one part of the path, whatever it contains."""
        return self._root.joinpath(*(safe_name(each) for each in (bundle.cluster, bundle.node, bundle.incident)))

    async def begin(self, bundle: BundleName) -> None:
        """Make its folder. Errors: NotSupported where the bundle is complete already (what was seen first is not written over),
        InvalidConfig where nothing can be written."""
        await self._apart(lambda: self._begin(bundle))

    async def write(self, bundle: BundleName, name: str, content: bytes, *, of: str, whole: int | None = None) -> EvidenceFile:
        """One file, complete or not at all. name: made safe here. whole: its size before it was cut, None where it is whole."""
        safe = safe_name(name)
        await self._apart(lambda: self._put(bundle, safe, content))
        return EvidenceFile(
            name=safe,
            of=of,
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            at=datetime.now(UTC),
            cut_from=whole if whole is not None and whole > len(content) else 0,
        )

    async def differs(self, bundle: BundleName, file: EvidenceFile) -> str:
        """Why a file is not there as it was written, "" where it is."""
        return await self._apart(lambda: self._differs(bundle, file))

    def _begin(self, bundle: BundleName) -> None:
        if (self._folder(bundle) / MANIFEST).exists():
            raise failure(
                ErrorType.NOT_SUPPORTED, f"incident {bundle.incident} has its evidence already: nothing is written over"
            )

    def _folder(self, bundle: BundleName) -> Path:
        if not self._root.is_dir():
            raise failure(ErrorType.INVALID_CONFIG, f"evidence.directory: expected a directory, there is none at {self._root}")
        place = self._root
        for part in self.path_of(bundle).relative_to(self._root).parts:
            place /= part
            place.mkdir(mode=0o700, exist_ok=True)
            if place.is_symlink():
                raise failure(ErrorType.INVALID_CONFIG, f"evidence.directory: {place} leads out of it")
        return place

    def _put(self, bundle: BundleName, name: str, content: bytes) -> None:
        place = self._folder(bundle)
        descriptor, unfinished = tempfile.mkstemp(dir=place, prefix=".", suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(unfinished).replace(place / name)
        except BaseException:
            Path(unfinished).unlink(missing_ok=True)
            raise

    def _differs(self, bundle: BundleName, file: EvidenceFile) -> str:
        place = self._folder(bundle) / safe_name(file.name)
        if not place.is_file():
            return "its worker wrote it into another directory: mount the same one on all workers"
        # Whole, and of the bundle: of a part that a caller chooses a hash would tell each byte (S41).
        same = not place.is_symlink() and place.stat().st_size == file.size
        same = same and hashlib.sha256(place.read_bytes()).hexdigest() == file.sha256
        return "" if same else "it is not as it was written"

    async def _apart(self, access: Callable[[], Result]) -> Result:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Result] = loop.create_future()

        def finish(result: Result | None, error: BaseException | None) -> None:
            self._free.release()
            if outcome.done():
                return
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            result, error = None, None
            try:
                result = access()
            except Exception as raised:  # noqa: BLE001 - raised where it is awaited
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
                loop.call_soon_threadsafe(finish, result, error)

        await self._free.acquire()
        threading.Thread(target=run, name="evidence", daemon=True).start()
        try:
            return await outcome
        except OSError as error:
            problem = f"evidence.directory: {error.filename or self._root}: {error.strerror or error}"
            raise failure(ErrorType.INVALID_CONFIG, problem) from error


def newest(content: bytes, limit: int) -> bytes:
    """The end of a text that is too long, from the next line on."""
    if len(content) <= limit:
        return content
    kept = content[len(content) - limit :] if limit > 0 else b""
    return kept[kept.find(b"\n") + 1 :]
