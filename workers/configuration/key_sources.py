"""Reads keys from where the settings name them: a file, or a Secret of the cluster we run in. One to a line, the newest first.

A Secret that is there and empty is filled by whichever of our processes finds it so: nobody has to make the first key. What keys
are for is with those who ask: `workers/deployment_keys.py`, `workers/deployment_keys.py`.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from temporalio.exceptions import ApplicationError

from activities.errors import ErrorType, error_type
from activities.keyring import LEAST_BYTES
from workers.configuration.setting_sources import SettingsError

if TYPE_CHECKING:
    from activities.cluster.api.connection import ClusterConnection, JsonObject
    from workers.configuration.clusters import ClusterSettings

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

    def of_file(self, made_of: Callable[[Sequence[bytes]], T]) -> T:
        """What is made of the file's keys. Raises SettingsError that names the setting."""
        assert self.file is not None
        try:
            text = self.file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{self.setting}_file: {self.file} can't be read: {error}") from error
        return parsed(text, f"{self.setting}_file: {self.file}", made_of)

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
            if there := _data(secret, self.entry):
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


def _data(secret: JsonObject, entry: str) -> str:
    return str((secret.get("data") or {}).get(entry) or "")
