"""The bodies of an API server's answers, before anything is made of them: cut off where no reader could read them, and refusals.

API servers take and keep what is nested ten thousand deep, where a kind leaves a field to others (the providerSpec of a Machine).
No reader of JSON here goes as deep, nor passes over it: one such object would make its whole collection unreadable (S18).
"""

from __future__ import annotations

import re

import msgspec

DEEPEST = 300
TOO_DEEP = b'"(nested too deep to be read)"'
"""In the place of what is deeper: no field takes a text for an object, so it is refused where it is used."""

_whole = msgspec.json.Decoder(msgspec.Raw)
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]')


def readable(body: bytes) -> bytes:
    """The same, cut off where no reader could read it. What is no JSON at all stays as it is."""
    try:
        _whole.decode(body)
    except RecursionError:
        return shallow(body)
    except msgspec.DecodeError:
        return body
    return body


def shallow(body: bytes) -> bytes:
    """The same JSON without what is nested deeper. For what could not be read as it is: it takes 100 times as long as reading."""
    kept, begin, depth = list[bytes](), 0, 0
    for token in _TOKENS.finditer(body):
        mark = body[token.start()]
        if mark in b"[{":
            depth += 1
            if depth == DEEPEST + 1:
                kept += [body[begin : token.start()], TOO_DEEP]
        elif mark in b"]}":
            if depth == DEEPEST + 1:
                begin = token.end()
            depth -= 1
    return b"".join([*kept, body[begin:]])


class _Cause(msgspec.Struct):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class _Details(msgspec.Struct, rename="camel"):
    causes: list[_Cause] | None = None
    retry_after_seconds: int | None = None


class Status(msgspec.Struct):
    """The body of a refusal, as far as we read it; also the object of a watch's ERROR event. What each means is `refusals.py`."""

    kind: str | None = None
    status: str | None = None
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: _Details | None = None

    @property
    def causes(self) -> list[_Cause]:
        return (self.details.causes if self.details else None) or []
