"""The keys with which a deployment encrypts what it tells Temporal: none unless the settings name a file or a Secret.

Every process needs them that talks to Temporal: workers, and whoever types a command. They are changed as signing keys are
(`docs/security.md`), but that an old one is needed for as long as its histories are to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from workers.configuration.clusters import ClusterSettings
from workers.configuration.key_sources import KeySource
from workers.configuration.process_settings import TemporalSettings
from workers.configuration.setting_sources import SettingsError
from workers.connections import open_connection
from workers.payloads.codec import Encryption

ENTRY = "payload-keys"
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
        entry=ENTRY,
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
