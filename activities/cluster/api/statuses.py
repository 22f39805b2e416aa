"""The Status objects by which an API server refuses; what each means to us is `refusals.py`."""

from __future__ import annotations

import msgspec


class _Cause(msgspec.Struct):
    reason: str | None = None
    message: str | None = None
    field: str | None = None


class _Details(msgspec.Struct, rename="camel"):
    causes: list[_Cause] | None = None
    retry_after_seconds: int | None = None


class Status(msgspec.Struct):
    """The body of a refusal, as far as we read it; also the object of a watch's ERROR event."""

    kind: str | None = None
    status: str | None = None
    message: str | None = None
    reason: str | None = None
    code: int | None = None
    details: _Details | None = None

    @property
    def causes(self) -> list[_Cause]:
        return (self.details.causes if self.details else None) or []
