"""Which parameters of a power device are credentials, told by their names alone: nobody's list of names is ever complete.

A value under such a name may stand in no object that is not a secret, and in no message (S12).
"""

from __future__ import annotations

_WHOLE = frozenset({"user", "username", "login", "pass", "kg", "hexkg", "community", "apikey", "privatekey"})
_PARTS = ("password", "passwd", "secret", "token", "credential")


def names_a_credential(key: str) -> bool:
    """Whether a parameter of this name is a credential, however it is spelled."""
    plain = key.lower().replace("-", "").replace("_", "")
    return plain in _WHOLE or any(part in plain for part in _PARTS)
