"""The keys of this deployment, and what is signed with them: authentication codes over facts that both sides know.

A code says that its maker had a key of ours, and nothing else; the side that checks it has the facts at hand and makes it
again. Where keys come from is `workers/deployment_keys.py`; what is signed and when a code is asked for is
`activities/licences.py` for devices and power.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import orjson

LEAST_BYTES = 32
"""A shorter key than a SHA-256 code is weaker than one (RFC 2104)."""

DIGITS = 64
"""Of a whole code."""


class Keyring:
    """Signs with the first key and accepts any of them. Raises ValueError without a key, and for one that is too short."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) < LEAST_BYTES for key in keys):
            raise ValueError(f"expected at least one key, each of at least {LEAST_BYTES} bytes")
        self._keys = tuple(keys)

    def is_in(self, text: str) -> bool:
        """Whether one of the keys is in that text: it must not go anywhere."""
        return any(key in text.encode(errors="replace") for key in self._keys)

    def sign(self, purpose: str, *facts: Any) -> str:
        """The code for these facts, 64 hexadecimal digits. purpose: what it is good for; a code for another one is not accepted.

        Facts are dataclasses, mappings, sequences, moments, durations, enums and plain values; None and "" differ.
        """
        return _code(self._keys[0], purpose, facts)

    def accepts(self, code: str, purpose: str, *facts: Any, digits: int = DIGITS) -> bool:
        """Whether that is a code of ours for that purpose and these facts, or the first digits of one."""
        given = code.encode(errors="replace")
        return any(hmac.compare_digest(given, _code(key, purpose, facts)[:digits].encode()) for key in self._keys)


def _code(key: bytes, purpose: str, facts: Sequence[Any]) -> str:
    said = orjson.dumps([purpose, *facts], default=_plain, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return hmac.new(key, said, hashlib.sha256).hexdigest()


def _plain(value: object) -> object:
    """What orjson has no word for. Raises TypeError for what can't be signed."""
    if isinstance(value, timedelta):
        return f"{value // timedelta(microseconds=1)} us"
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"expected facts that can be signed, got {type(value).__name__}")
