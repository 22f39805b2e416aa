"""Encrypts what goes to Temporal, where the deployment has keys for it: inputs, results, memos, messages, failures.

AES-256-GCM under keys that are derived from the lines of a file or Secret (`workers/deployment_keys.py`). The first key
encrypts, all decrypt; which one it was stands beside each payload by a name that is derived from the key as well, so that no
person has to name them. What is not encrypted is read as it is: a history from before goes on.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from activities.keyring import LEAST_BYTES
from workers.errors import SettingsError

ENCODING = "binary/encrypted"
KEY = "encryption-key-id"
"""The metadata that names the key. Both are spelled as in Temporal's samples, which tools know."""
NONCE_BYTES = 12
"""Drawn by lot for each payload: good for 2^32 of them under one key, which is millions of episodes."""
SETTINGS = "temporal.payload_keys_file or temporal.payload_keys_secret"


class Encryption(PayloadCodec):
    """Raises ValueError without a key, and for one that is too short."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < LEAST_BYTES for key in keys):
            raise ValueError(f"expected at least one key, each of at least {LEAST_BYTES} bytes")
        self._ciphers = {_derived(key, "name", 8).hex(): AESGCM(_derived(key, "key", 32)) for key in keys}
        self._newest = next(iter(self._ciphers))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Each of them encrypted with the newest key."""
        return [self._encrypted(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Each of them as it was. Raises SettingsError for what none of the keys has encrypted."""
        return [self._decrypted(payload) if is_encrypted(payload) else payload for payload in payloads]

    def _encrypted(self, payload: Payload) -> Payload:
        nonce = os.urandom(NONCE_BYTES)
        data = nonce + self._ciphers[self._newest].encrypt(nonce, payload.SerializeToString(), None)
        return Payload(metadata={"encoding": ENCODING.encode(), KEY: self._newest.encode()}, data=data)

    def _decrypted(self, payload: Payload) -> Payload:
        cipher = self._ciphers.get(payload.metadata[KEY].decode(errors="replace"))
        if cipher is None:
            raise unreadable(payload, f"known here: {', '.join(self._ciphers)}")
        try:
            return Payload.FromString(cipher.decrypt(payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:], None))
        except (InvalidTag, ValueError) as error:
            raise unreadable(payload, "it is known here, but the payload was changed since") from error


def is_encrypted(payload: Payload) -> bool:
    """Whether a key is needed to read it."""
    return payload.metadata.get("encoding") == ENCODING.encode()


def unreadable(payload: Payload, why: str) -> SettingsError:
    """The error for a reader without the key. No failure of Temporal's: a workflow that can't be read waits until it can be."""
    name = payload.metadata.get(KEY, b"").decode(errors="replace")[:100]
    return SettingsError(f"{SETTINGS}: expected the key {name or '(none is named)'}, with which a payload is encrypted; {why}")


def _derived(key: bytes, purpose: str, length: int) -> bytes:
    """So that a key that also signs gives nothing away here, nor a name its key."""
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=f"nodewarden payload {purpose}".encode()).derive(key)
