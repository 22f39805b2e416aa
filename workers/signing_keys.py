"""Where the keys of a deployment come from, with which its workers know each other's words (`activities/keyring.py`).

All workers of a deployment need the same ones. A file or a Secret holds them, one to a line, the newest first: the first signs,
all are accepted. A key is changed in three steps (`docs/security.md`): the new one last, then first, then the old one goes once
no episode from before is open. Nobody has to make the first: an empty Secret is filled by whichever worker finds it so, and where
neither is configured a worker makes a file of its own in its state directory, which is right as long as it is the only one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from temporalio.exceptions import ApplicationError

from activities.errors import ErrorType, error_type
from activities.keyring import LEAST_BYTES, Keyring
from workers.setting_sources import SettingsError
from workers.settings import Settings

if TYPE_CHECKING:
    from activities.cluster.api.connection import ClusterConnection, JsonObject
    from workers.clusters import ClusterSettings

_log = logging.getLogger(__name__)

ENTRY = "signing-keys"
"""The key of the Secret's data."""
OWN_FILE = "signing-keys"
"""In the state directory."""
AGAIN = 5.0
"""Seconds between two tries to reach the API that has the Secret."""
PASSING = frozenset(
    {ErrorType.UNREACHABLE, ErrorType.TRANSIENT, ErrorType.RATE_LIMITED, ErrorType.FORBIDDEN, ErrorType.AMBIGUOUS}
)
"""An API server that has just started forbids everything for a moment."""


async def keyring_of(
    settings: Settings, clusters: Mapping[str, ClusterSettings], connections: Mapping[str, ClusterConnection]
) -> Keyring:
    """The keys that the settings name, else our own, made where there are none yet. Waits for an API that is away.

    Raises SettingsError that names the setting for what can't be read, or holds no key.
    """
    worker = settings.worker
    if worker.signing_keys_file is not None:
        return _parsed(_read(worker.signing_keys_file), f"worker.signing_keys_file: {worker.signing_keys_file}")
    if worker.signing_keys_secret:
        home = _home(clusters)
        if home not in connections:
            raise SettingsError("worker.signing_keys_secret: this worker reads no cluster's API; set worker.signing_keys_file")
        return await _of_secret(connections[home], worker.signing_keys_secret)
    return _own(settings.state)


def new_keys() -> str:
    """One new key, as a file or Secret holds it."""
    return secrets.token_hex(LEAST_BYTES) + "\n"


def _home(clusters: Mapping[str, ClusterSettings]) -> str:
    """Of several clusters the one that we run in has it."""
    if len(clusters) == 1:
        return next(iter(clusters))
    inside = [name for name, each in clusters.items() if each.in_cluster]
    if len(inside) != 1:
        raise SettingsError("worker.signing_keys_secret: expected one cluster, or one with in_cluster: true, that has the Secret")
    return inside[0]


def _parsed(text: str, source: str) -> Keyring:
    lines = [line.strip() for line in text.splitlines()]
    keys = [line.encode() for line in lines if line and not line.startswith("#")]
    try:
        return Keyring(keys)
    except ValueError as error:
        raise SettingsError(f"{source}: {error}, one to a line") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"worker.signing_keys_file: {path} can't be read: {error}") from error


def _own(state: Path) -> Keyring:
    path = state / OWN_FILE
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            _make(path)
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise SettingsError(f"{path}: expected a file that nobody else can read, got mode {path.stat().st_mode & 0o777:o}")
        return _parsed(path.read_text(encoding="utf-8"), str(path))
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


async def _of_secret(connection: ClusterConnection, name: str) -> Keyring:
    from activities.cluster.api.editing import edit
    from activities.cluster.api.paths import SECRETS

    namespace, _, own_name = name.partition("/")
    path, source = SECRETS.path(own_name, namespace=namespace), f"worker.signing_keys_secret: Secret/{name}"

    async def filled() -> str:
        secret = await connection.get(path)
        if there := _data(secret):
            return there
        made = base64.b64encode(new_keys().encode()).decode()
        await connection.replace(path, secret | {"data": {**(secret.get("data") or {}), ENTRY: made}})
        _log.info("filled Secret/%s with a key, with which all workers of this deployment sign", name)
        return made

    while True:
        try:
            return _parsed(base64.b64decode(await edit(source, filled, look_again=True)).decode(), source)
        except (ValueError, UnicodeDecodeError) as error:
            raise SettingsError(f"{source}: expected text in data.{ENTRY}") from error
        except ApplicationError as error:
            if error_type(error) not in PASSING:
                raise SettingsError(f"{source}: {error.message}") from error
            _log.warning("%s: %s; trying again", source, error.message)
            await asyncio.sleep(AGAIN)


def _data(secret: JsonObject) -> str:
    return str((secret.get("data") or {}).get(ENTRY) or "")
