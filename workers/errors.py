"""Why a process has no Temporal to work with, or does not begin. The text is for people, and says what to do."""

from __future__ import annotations


class TemporalUnreachableError(Exception):
    """Nothing usable answered at that address within the time given."""


class NamespaceMissingError(Exception):
    """The service answers, but does not know the namespace."""


class EmbeddedServerError(Exception):
    """The embedded server cannot be had; the text says why and what to do."""


class StoppedError(Exception):
    """Told to stop before anything had begun."""


class SearchAttributesError(Exception):
    """Search attributes are missing and cannot be created by us, or exist with another type. The text says what to do."""
