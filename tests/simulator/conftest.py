"""Simulated API servers of these tests share their certificate."""

from tests.certificates import one_authority

__all__ = ["one_authority"]
