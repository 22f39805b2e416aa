"""Every answer for programs goes through here: one spelling of all of them, and the JSON Schema that says it.

Names are camelCase. Moments are RFC 3339 in UTC and whole seconds, durations are as Kubernetes objects write them (`1h30m`).
Every field is always there; null stands for what is not known. What travels in Temporal's payloads is spelled otherwise, and is
no concern of this module.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, cast

import yaml
from pydantic import ConfigDict, RootModel
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from policy.values.display_text import visible
from policy.values.times import format_duration, written

T = TypeVar("T")
DURATION = {
    "type": "string",
    "description": "A duration as Kubernetes objects write it, such as 5m or 1h30m.",
    "examples": ["5m"],
}


class _Answer(RootModel[T], Generic[T]):
    """Of any dataclass: what is configured here holds for all dataclasses within it."""

    model_config = ConfigDict(alias_generator=to_camel)


class _Schema(GenerateJsonSchema):
    """Without what pydantic says of how an answer would be read: none is sent to us."""

    def timedelta_schema(self, schema: Any) -> JsonSchemaValue:  # noqa: ARG002 - whatever it is, it is written as one
        return dict(DURATION)

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: ARG002 - the library's own
        return True

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - a name in other letters says nothing
        return False


def _answers(kind: type[Any]) -> type[_Answer[Any]]:
    """The library keeps each that was made."""
    return cast("type[_Answer[Any]]", _Answer.__class_getitem__(kind))


def to_json(answer: object, *, indent: int | None = None) -> str:
    """The answer, a dataclass; on one line unless it is indented."""
    plain = _answers(type(answer))(answer).model_dump(by_alias=True)
    return visible(json.dumps(plain, indent=indent, ensure_ascii=False, default=_spelled))


def decoded(kind: type[T], text: str) -> T:
    """What `to_json` has written of a dataclass; unknown fields are passed over. Raises pydantic's ValidationError."""
    found: T = _answers(kind).model_validate_json(text).root
    return found


def encoded(answer: object, *, as_yaml: bool, indent: int | None = None) -> str:
    """As JSON, or the same document as YAML. Without a line break at the end."""
    said = to_json(answer, indent=indent)
    return yaml.safe_dump(json.loads(said), sort_keys=False, allow_unicode=True).rstrip("\n") if as_yaml else said


def _spelled(value: object) -> object:
    """What JSON has no word for."""
    if isinstance(value, datetime):
        return written(value)
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"expected what the schema has a type for, got {type(value).__name__}")


def schemas_of(kinds: Mapping[str, type[Any]]) -> dict[str, Any]:
    """One JSON Schema document for all of these answers: `commands` has one by each name, and `$defs` what they are made of.

    Raises ValueError where two types of one name are not the same.
    """
    commands, defs = dict[str, Any](), dict[str, Any]()
    for name, kind in kinds.items():
        schema = _answers(kind).model_json_schema(by_alias=True, mode="serialization", schema_generator=_Schema)
        for each, definition in schema["$defs"].items():
            if defs.setdefault(each, definition) != definition:
                raise ValueError(f"{name}: expected one type of the name {each}, got two")
        commands[name] = {"$ref": schema["$ref"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What nodewarden's commands print with -o json",
        "commands": commands,
        "$defs": dict(sorted(defs.items())),
    }
