"""The keys of a deployment: those that encrypt what it writes to Temporal, and those with which its workers sign.

Encryption is off unless the settings name a file or a Secret. Every process that talks to Temporal needs those keys: workers and
commands. They are changed as signing keys are (`docs/security.md`), but an old one is needed for as long as its histories are to
be read.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from activities.keyring import Keyring
from workers.configuration.clusters import ClusterSettings
from workers.configuration.key_sources import KeySource, new_keys, parsed
from workers.configuration.process_settings import TemporalSettings
from workers.configuration.setting_sources import SettingsError
from workers.configuration.settings import Settings
from workers.connections import open_connection
from workers.embedded.state_directory import make_private
from workers.payloads.codec import Encryption

if TYPE_CHECKING:
    from activities.cluster.api.connection import ClusterConnection

PAYLOAD_ENTRY = "payload-keys"
"""The key of the Secret's data."""

Clusters = Callable[[], Mapping[str, ClusterSettings]]
"""Those of the settings, for whoever needs them: a kubeconfig that can't be read concerns nobody else."""


def no_clusters() -> Mapping[str, ClusterSettings]:
    """Of a process that has none."""
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
        return source.of_file(Encryption)
    if not source.secret:
        return None
    known = clusters()
    if not known:
        raise SettingsError("temporal.payload_keys_secret: no cluster is known here that has it; set temporal.payload_keys_file")
    home = source.home(known)
    async with await open_connection(home, known[home]) as connection:
        return await source.of_secret(connection, Encryption, patience=patience)


# The keys with which the workers of a deployment know each other's words (`activities/keyring.py`): all need the same ones.
#
# The first signs, all are accepted. A key is changed in three steps (`docs/security.md`): the new one last, then first, then the
# old one goes once no episode from before is open. Where the settings name neither file nor Secret
# (`workers/configuration/key_sources.py`) a worker makes a file of its own in its state directory, which is right
# as long as it is the only one.

_log = logging.getLogger(__name__)

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
        return source.of_file(Keyring)
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
