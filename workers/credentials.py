"""Where power workers find the credentials that plans only refer to: the cluster's API, or files mounted where none reaches it.

Read at the moment of use and kept nowhere (S12): a rotated password holds from the next act on. Refusals name the Secret and the
key, never a value.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from activities.errors import ErrorType, failure
from activities.power.driver import Credentials

if TYPE_CHECKING:
    from activities.cluster.connection import ClusterConnection
    from policy.plan import SecretRef


class ClusterSecrets:
    """Secrets over the API of the cluster that the episode is in."""

    def __init__(self, connections: Mapping[str, ClusterConnection]) -> None:
        self._connections = connections

    async def read(self, cluster: str, secret: SecretRef) -> Credentials:
        """The credentials now."""
        from activities.cluster.paths import SECRETS
        from activities.cluster.refusals import ObjectNotFound

        connection = self._connections.get(cluster)
        if connection is None:
            known = ", ".join(sorted(self._connections)) or "none"
            raise failure(ErrorType.INVALID_CONFIG, f"{_name(secret)}: this worker knows the clusters {known}, not {cluster!r}")
        try:
            found = await connection.get(SECRETS.path(secret.name, namespace=secret.namespace))
        except ObjectNotFound:
            raise failure(ErrorType.INVALID_CONFIG, f"{_name(secret)} does not exist in cluster {cluster!r}") from None
        values = found.get("data") or {}
        return Credentials(
            username=_decoded(values, secret.username_key, secret), password=_decoded(values, secret.password_key, secret)
        )


class MountedSecrets:
    """Secrets as files, `<directory>/<namespace>/<name>/<key>`: a mounted volume at a site whose workers see no API."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def read(self, cluster: str, secret: SecretRef) -> Credentials:  # noqa: ARG002 - one mount serves one deployment
        """The credentials now."""
        return Credentials(username=self._value(secret, secret.username_key), password=self._value(secret, secret.password_key))

    def _value(self, secret: SecretRef, key: str) -> str:
        root = self._directory.resolve()
        path = root / secret.namespace / secret.name / key
        # Names come from objects that people write: a crafted one must not lead out of the mount.
        if not path.absolute().is_relative_to(root) or ".." in path.parts:
            raise failure(ErrorType.INVALID_CONFIG, f"{_name(secret)}: {key!r} is no name inside {root}")
        try:
            return path.read_text(encoding="utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise failure(ErrorType.INVALID_CONFIG, f"{_name(secret)}: {path} cannot be read: {type(error).__name__}") from None


def _name(secret: SecretRef) -> str:
    return f"Secret/{secret.namespace}/{secret.name}"


def _decoded(values: Mapping[str, object], key: str, secret: SecretRef) -> str:
    value = values.get(key)
    if not isinstance(value, str):
        keys = ", ".join(sorted(values)) or "none"
        raise failure(ErrorType.INVALID_CONFIG, f"{_name(secret)}: expected the key {key!r}, it has {keys}")
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise failure(ErrorType.INVALID_CONFIG, f"{_name(secret)}: {key!r} is not text in base64") from None
