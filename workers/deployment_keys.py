"""The keys of a deployment: those that encrypt what it writes to Temporal, and those with which its workers sign.

Both are read from where the settings name them: a file, or a Secret of the cluster we run in; one to a line, the newest first. A
Secret that is there and empty is filled by the first of our processes that finds it so: no person has to make the first key. How
a key is changed: `docs/security.md`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import secrets
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from temporalio.exceptions import ApplicationError

from activities.errors import ErrorType, error_type
from activities.keyring import LEAST_BYTES, Keyring
from workers.configuration.clusters import ClusterSettings, open_connection
from workers.configuration.process_settings import TemporalSettings
from workers.configuration.settings import Settings
from workers.embedded.state_directory import make_private
from workers.errors import SettingsError
from workers.payloads.encryption import Encryption

if TYPE_CHECKING:
    from activities.cluster.api.connection import ClusterConnection

_log = logging.getLogger(__name__)

T = TypeVar("T")

AGAIN = 5.0
"""Seconds between two tries to reach the API that has the Secret."""
PASSING = frozenset(
    {ErrorType.UNREACHABLE, ErrorType.TRANSIENT, ErrorType.RATE_LIMITED, ErrorType.FORBIDDEN, ErrorType.AMBIGUOUS}
)
"""An API server that has just started forbids everything for a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySource:
    """setting: what both settings begin with, such as `worker.signing_keys`. entry: the key of the Secret's data. what: that its
    keys are for, for the log."""

    setting: str
    file: Path | None
    secret: str
    entry: str
    what: str

    def home(self, clusters: Mapping[str, ClusterSettings]) -> str:
        """The cluster that has the Secret: of several the one that we run in. Raises SettingsError where that is none."""
        if len(clusters) == 1:
            return next(iter(clusters))
        inside = [name for name, each in clusters.items() if each.in_cluster]
        if len(inside) != 1:
            raise SettingsError(
                f"{self.setting}_secret: expected one cluster, or one with in_cluster: true, that has the Secret; "
                f"or set {self.setting}_file"
            )
        return inside[0]

    async def of_secret(
        self, connection: ClusterConnection, made_of: Callable[[Sequence[bytes]], T], *, patience: timedelta | None = None
    ) -> T:
        """What is made of the Secret's keys. patience None: waits for an API that is away, for ever.

        Raises SettingsError that names the setting for what can't be read, or holds no key.
        """
        from activities.cluster.api.paths import SECRETS
        from activities.cluster.api.refusals import edit

        namespace, _, own_name = self.secret.partition("/")
        path, source = SECRETS.path(own_name, namespace=namespace), f"{self.setting}_secret: Secret/{self.secret}"

        async def filled() -> str:
            secret = await connection.get(path)
            if there := str((secret.get("data") or {}).get(self.entry) or ""):
                return there
            made = base64.b64encode(new_keys().encode()).decode()
            await connection.replace(path, secret | {"data": {**(secret.get("data") or {}), self.entry: made}})
            _log.info("filled Secret/%s with a key, with which all workers of this deployment %s", self.secret, self.what)
            return made

        clock = asyncio.get_running_loop().time
        deadline = None if patience is None else clock() + patience.total_seconds()
        while True:
            try:
                return parsed(base64.b64decode(await edit(source, filled, look_again=True)).decode(), source, made_of)
            except ValueError as error:
                raise SettingsError(f"{source}: expected text in data.{self.entry}") from error
            except ApplicationError as error:
                over = deadline is not None and clock() + AGAIN > deadline
                if over or error_type(error) not in PASSING:
                    raise SettingsError(f"{source}: {error.message}") from error
                _log.warning("%s: %s; trying again", source, error.message)
                await asyncio.sleep(AGAIN)


def of_file(setting: str, file: Path, made_of: Callable[[Sequence[bytes]], T]) -> T:
    """What is made of a file's keys. Raises SettingsError that names the setting."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{setting}: {file} can't be read: {error}") from error
    return parsed(text, f"{setting}: {file}", made_of)


def new_keys() -> str:
    """One new key, as a file or Secret holds it."""
    return secrets.token_hex(LEAST_BYTES) + "\n"


def parsed(text: str, source: str, made_of: Callable[[Sequence[bytes]], T]) -> T:
    """What is made of a text's keys. Raises SettingsError that begins with the source."""
    lines = [line.strip() for line in text.splitlines()]
    keys = [line.encode() for line in lines if line and not line.startswith("#")]
    try:
        return made_of(keys)
    except ValueError as error:
        raise SettingsError(f"{source}: {error}, one to a line") from error


# Encryption is off unless the settings name a file or a Secret. Every process that talks to Temporal needs those keys: workers
# and commands. An old one is needed for as long as its histories are to be read.

PAYLOAD_ENTRY = "payload-keys"
"""The key of the Secret's data."""

Clusters = Callable[[], Mapping[str, ClusterSettings]]
"""Those of the settings, read when needed: a kubeconfig that can't be read matters only then."""


def no_clusters() -> Mapping[str, ClusterSettings]:
    return {}


async def encryption_of(
    settings: TemporalSettings, clusters: Clusters = no_clusters, *, patience: timedelta | None = None
) -> Encryption | None:
    """By the keys that the settings name; None where they name none. patience None: waits for an API that is away, for ever.

    Raises SettingsError that names the setting for what can't be read, or holds no key.
    """
    source = KeySource(
        setting="temporal.payload_keys",
        file=settings.payload_keys_file,
        secret=settings.payload_keys_secret,
        entry=PAYLOAD_ENTRY,
        what="encrypt",
    )
    if source.file is not None:
        return of_file("temporal.payload_keys_file", source.file, Encryption)
    if not source.secret:
        return None
    known = clusters()
    if not known:
        raise SettingsError("temporal.payload_keys_secret: no cluster is known here that has it; set temporal.payload_keys_file")
    home = source.home(known)
    async with await open_connection(home, known[home]) as connection:
        return await source.of_secret(connection, Encryption, patience=patience)


# The keys with which the workers of a deployment know what another one of them has signed (`activities/keyring.py`): all need the
# same ones. The first signs, all are accepted. Where the settings name neither file nor Secret a worker makes a file of its own
# in its state directory, which is right as long as it is the only one.

ENTRY = "signing-keys"
"""The key of the Secret's data."""
OWN_FILE = "signing-keys"
"""In the state directory."""


async def keyring_of(
    settings: Settings, clusters: Mapping[str, ClusterSettings], connections: Mapping[str, ClusterConnection]
) -> Keyring:
    """The keys that the settings name, else our own, made where there are none yet. Waits for an API that is away.

    Raises SettingsError that names the setting for what can't be read, or holds no key.
    """
    worker = settings.worker
    source = KeySource(
        setting="worker.signing_keys",
        file=worker.signing_keys_file,
        secret=worker.signing_keys_secret,
        entry=ENTRY,
        what="sign",
    )
    if source.file is not None:
        return of_file("worker.signing_keys_file", source.file, Keyring)
    if source.secret:
        home = source.home(clusters)
        if home not in connections:
            raise SettingsError("worker.signing_keys_secret: this worker reads no cluster's API; set worker.signing_keys_file")
        return await source.of_secret(connections[home], Keyring)
    return _own(settings.state)


def _own(state: Path) -> Keyring:
    path = state / OWN_FILE
    try:
        make_private(state)
        with contextlib.suppress(FileExistsError):
            _make(path)
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise SettingsError(f"{path}: expected a file that only its owner can read, got mode {path.stat().st_mode & 0o777:o}")
        return parsed(path.read_text(encoding="utf-8"), str(path), Keyring)
    except OSError as error:
        raise SettingsError(
            f"state: {path} can't be written ({error.strerror}): set worker.signing_keys_file to a file with keys"
        ) from error


def _make(path: Path) -> None:
    """Whole or not at all: another process of ours may be reading it."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(new_keys())
        os.link(fresh, path)
        _log.info("made %s, with which this worker signs; other workers of the same deployment need it too", path)
    finally:
        fresh.unlink()
