"""Answers as JSON, spelled as Temporal's payloads are: the same pydantic rules, so that a field has one spelling everywhere."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter


def to_json(answer: Any) -> str:
    """One line."""
    return TypeAdapter(type(answer)).dump_json(answer).decode()
