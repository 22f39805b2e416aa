"""System UUIDs (SMBIOS), as a Node shows them and as a management controller tells them."""

from __future__ import annotations

import re

PLACEHOLDERS = frozenset(
    {
        "03000200-0400-0500-0006-000700080009",  # American Megatrends' default
        "12345678-1234-5678-90ab-cddeefaabbcc",
        "fefefefe-fefe-fefe-fefe-fefefefefefe",
    }
)
"""System UUIDs of firmware into which nobody has written one: thousands of machines have them, and they tell nothing."""

_DIGITS = re.compile(r"[0-9a-f]{32}")
_EMPTY = frozenset(bytes.fromhex(each.replace("-", "")) for each in PLACEHOLDERS)


def tells_nothing(uuid: str) -> bool:
    """Whether a system UUID is one that nobody has written."""
    return uuid.casefold() in PLACEHOLDERS or len(set(uuid) - {"-"}) <= 1


def same_system(told: str, shown: str) -> bool | None:
    """Whether a device's GUID is the system UUID that a Node shows; None where they can't be compared.

    Firmwares disagree on the byte order of a GUID (SMBIOS, RFC 4122, wholly reversed), so each is accepted.
    """
    theirs, ours = _read(told), _read(shown)
    if theirs is None or ours is None:
        return None
    orders = {_swapped(theirs), theirs, theirs[::-1], _swapped(theirs[::-1]), _swapped(theirs)[::-1]}
    return None if orders & _EMPTY or ours in _EMPTY else ours in orders


def _read(uuid: str) -> bytes | None:
    """None for what is no UUID, or one whose digits are all the same."""
    digits = uuid.casefold().replace("-", "")
    return bytes.fromhex(digits) if _DIGITS.fullmatch(digits) and len(set(digits)) > 1 else None


def _swapped(uuid: bytes) -> bytes:
    """With its first three fields in the other byte order, as SMBIOS keeps them."""
    return uuid[3::-1] + uuid[5:3:-1] + uuid[7:5:-1] + uuid[8:]
