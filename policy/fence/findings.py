"""What a reader found wrong or doubtful: all of it, so that a person mends a configuration in one go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from policy.values.errors import PolicyError


class Findings:
    """Errors and warnings in the order in which they were found, each once."""

    __slots__ = ("_errors", "_warnings")

    def __init__(self) -> None:
        self._errors: dict[str, None] = {}
        self._warnings: dict[str, None] = {}

    @property
    def errors(self) -> tuple[str, ...]:
        """With one of them there is no plan."""
        return tuple(self._errors)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What holds all the same."""
        return tuple(self._warnings)

    def refuse(self, subject: str, field: str, problem: str) -> None:
        """An error, without leaving the reader."""
        self._errors[str(PolicyError(subject, field, problem))] = None

    def warn(self, subject: str, field: str, problem: str) -> None:
        """A warning, worded like an error."""
        self._warnings[str(PolicyError(subject, field, problem))] = None

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep a PolicyError as one more error and go on behind the block."""
        try:
            yield
        except PolicyError as error:
            self._errors[str(error)] = None
