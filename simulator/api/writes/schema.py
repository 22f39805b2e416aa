"""Structural schemas of custom resources: prune, default and validate, as a definition's `openAPIV3Schema` says.

Validation rules in CEL (`x-kubernetes-validations`) are stored and not evaluated.
"""

from __future__ import annotations

import copy
import ipaddress
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson

from simulator.api import errors
from simulator.api.errors import Cause
from simulator.api.storage.kinds import Resource
from simulator.api.storage.store import Document, Record

SUMMARY = 30
"""So much of a body is repeated in a refusal."""

Schema = dict[str, Any]

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_OBJECT_HEAD = frozenset({"apiVersion", "kind", "metadata"})


def prune(value: Any, schema: Schema, *, root: bool = True) -> list[str]:
    """Remove, in place, what the schema does not name; returns the paths removed."""
    removed: list[str] = []
    _prune(value, schema, "", removed, root=root)
    return removed


def _prune(value: Any, schema: Schema, path: str, removed: list[str], *, root: bool) -> None:
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for position, item in enumerate(value):
                _prune(item, items, f"{path}[{position}]", removed, root=False)
        return
    if not isinstance(value, dict):
        return
    properties: dict[str, Schema] = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    preserve = schema.get(_PRESERVE) is True
    for key in list(value):
        below = f"{path}.{key}" if path else key
        if key in properties:
            if not (root and key == "metadata"):
                _prune(value[key], properties[key], below, removed, root=False)
        elif (root or schema.get(_EMBEDDED)) and key in _OBJECT_HEAD:
            continue
        elif isinstance(additional, dict):
            _prune(value[key], additional, below, removed, root=False)
        elif additional is not True and not preserve:
            del value[key]
            removed.append(below)


def apply_defaults(value: Any, schema: Schema) -> None:
    """Fill, in place, what is missing and has a default; a null that may not be null counts as missing."""
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for item in value:
                apply_defaults(item, items)
        return
    if not isinstance(value, dict):
        return
    properties: dict[str, Schema] = schema.get("properties") or {}
    for key, below in properties.items():
        if "default" in below and (key not in value or (value[key] is None and not below.get("nullable"))):
            value[key] = copy.deepcopy(below["default"])
        if key in value:
            apply_defaults(value[key], below)
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        for key, item in value.items():
            if key not in properties:
                apply_defaults(item, additional)


def as_read(record: Record, resource: Resource) -> Record:
    """As its version is served now: what was written under an earlier schema is pruned and defaulted whenever it is read, and
    stored so with its next write."""
    custom = resource.custom
    if custom is None or record.revision > custom.since:
        return record
    document = record.copy()
    prune(document, custom.schema)
    apply_defaults(document, custom.schema)
    return replace(record, document=document, body=orjson.dumps(document))


def require_head(document: Document, resource: Resource) -> None:
    """A custom resource says of what kind and version it is; others are taken for what is expected."""
    kind, version = document.get("kind"), document.get("apiVersion") or ""
    if not kind:
        body = orjson.dumps(document).decode()
        short = body if len(body) <= SUMMARY else f"{body[:SUMMARY]} ..."
        missing = f"Object 'Kind' is missing in '{body}' ({short})"
        raise errors.bad_request(f"the object provided is unrecognized (must be of type {resource.kind}): {missing}")
    if version != resource.api_version:
        told = f"the API version in the data ({version}) does not match the expected API version ({resource.api_version})"
        raise errors.bad_request(told)
    if kind != resource.kind:
        name = str((document.get("metadata") or {}).get("name", ""))
        wrong = Cause(field="kind", message=f'Invalid value: "{kind}": must be {resource.kind}')
        raise errors.invalid(resource.group, kind, name, [wrong])


def validate(value: Any, schema: Schema) -> list[Cause]:
    """Everything that is wrong with a custom resource, by field."""
    causes: list[Cause] = []
    _validate(value, schema, "", causes)
    return causes


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: (
        not isinstance(value, bool) and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return "null" if value is None else ("integer" if isinstance(value, int) else "number")


def _validate(value: Any, schema: Schema, path: str, causes: list[Cause]) -> None:
    where = path or "<nil>"
    if value is None and schema.get("nullable"):
        return
    expected = schema.get("type")
    if schema.get(_INT_OR_STRING):
        if not (isinstance(value, str) or _TYPES["integer"](value)):
            _wrong_type(value, "integer,string", where, causes)
            return
    elif expected and not _TYPES[expected](value):
        _wrong_type(value, expected, where, causes)
        return
    if "enum" in schema and not any(value == allowed and type(value) is type(allowed) for allowed in schema["enum"]):
        supported = ", ".join(orjson.dumps(allowed).decode() for allowed in schema["enum"])
        shown = orjson.dumps(value).decode()
        message = f"Unsupported value: {shown}: supported values: {supported}"
        causes.append(Cause(field=where, message=message, reason="FieldValueNotSupported"))
    if isinstance(value, str):
        _validate_string(value, schema, where, causes)
    elif isinstance(value, dict):
        _validate_object(value, schema, path, causes)
    elif isinstance(value, list):
        _validate_array(value, schema, path, causes)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _validate_number(value, schema, where, causes)
    _validate_combinations(value, schema, path, causes)


def _wrong_type(value: Any, expected: str, where: str, causes: list[Cause]) -> None:
    told = _told(value)
    message = f'Invalid value: "{told}": {where} in body must be of type {expected}: "{told}"'
    causes.append(Cause(field=where, message=message, reason="FieldValueTypeInvalid"))


def _refuse(value: Any, where: str, rule: str, causes: list[Cause]) -> None:
    shown = orjson.dumps(value).decode() if not isinstance(value, (dict, list)) else f'"{_told(value)}"'
    causes.append(Cause(field=where, message=f"Invalid value: {shown}: {where} in body {rule}"))


def _validate_string(value: str, schema: Schema, where: str, causes: list[Cause]) -> None:
    if len(value) < schema.get("minLength", 0):
        _refuse(value, where, f"should be at least {schema['minLength']} chars long", causes)
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        message = f"Too long: may not be more than {schema['maxLength']} bytes"
        causes.append(Cause(field=where, message=message, reason="FieldValueTooLong"))
    if "pattern" in schema and not re.search(schema["pattern"], value):
        _refuse(value, where, f"should match '{schema['pattern']}'", causes)
    check = _FORMATS.get(schema.get("format", ""))
    if check is not None and not check(value):
        _refuse(value, where, f'must be of type {schema["format"]}: "{value}"', causes)


def _validate_number(value: float, schema: Schema, where: str, causes: list[Cause]) -> None:
    if "minimum" in schema:
        low = schema["minimum"]
        if value < low or (schema.get("exclusiveMinimum") and value == low):
            _refuse(value, where, f"should be greater than or equal to {low}", causes)
    if "maximum" in schema:
        high = schema["maximum"]
        if value > high or (schema.get("exclusiveMaximum") and value == high):
            _refuse(value, where, f"should be less than or equal to {high}", causes)
    if "multipleOf" in schema and value % schema["multipleOf"]:
        _refuse(value, where, f"should be a multiple of {schema['multipleOf']}", causes)
    limit = {"int32": 2**31, "int64": 2**63}.get(schema.get("format", ""))
    if limit is not None and not -limit <= value < limit:
        _refuse(value, where, f"must be a {schema['format']}", causes)


def _validate_object(value: dict[str, Any], schema: Schema, path: str, causes: list[Cause]) -> None:
    def under(key: str) -> str:
        return f"{path}.{key}" if path else key

    properties: dict[str, Schema] = schema.get("properties") or {}
    causes.extend(
        Cause(field=under(key), message="Required value", reason="FieldValueRequired")
        for key in schema.get("required") or ()
        if key not in value
    )
    additional = schema.get("additionalProperties")
    for key, item in value.items():
        if key in properties:
            if path or key != "metadata":
                _validate(item, properties[key], under(key), causes)
        elif isinstance(additional, dict):
            _validate(item, additional, under(key), causes)
    if len(value) < schema.get("minProperties", 0):
        _refuse(value, path or "<nil>", f"should have at least {schema['minProperties']} properties", causes)
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        message = f"Too many: {len(value)}: must have at most {schema['maxProperties']} items"
        causes.append(Cause(field=path or "<nil>", message=message, reason="FieldValueTooMany"))


def _validate_array(value: list[Any], schema: Schema, path: str, causes: list[Cause]) -> None:
    if len(value) < schema.get("minItems", 0):
        _refuse(value, path, f"should have at least {schema['minItems']} items", causes)
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        message = f"Too many: {len(value)}: must have at most {schema['maxItems']} items"
        causes.append(Cause(field=path, message=message, reason="FieldValueTooMany"))
    items = schema.get("items")
    if isinstance(items, dict):
        for position, item in enumerate(value):
            _validate(item, items, f"{path}[{position}]", causes)
    _validate_uniqueness(value, schema, path, causes)


def _validate_uniqueness(value: list[Any], schema: Schema, path: str, causes: list[Cause]) -> None:
    list_type = schema.get("x-kubernetes-list-type")
    if list_type not in ("set", "map") and not schema.get("uniqueItems"):
        return
    keys = schema.get("x-kubernetes-list-map-keys") or () if list_type == "map" else None
    seen: set[bytes] = set()
    for position, item in enumerate(value):
        identity = {key: item.get(key) for key in keys} if keys and isinstance(item, dict) else item
        encoded = orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)
        if encoded in seen:
            message = f"Duplicate value: {encoded.decode()}"
            causes.append(Cause(field=f"{path}[{position}]", message=message, reason="FieldValueDuplicate"))
        seen.add(encoded)


def _validate_combinations(value: Any, schema: Schema, path: str, causes: list[Cause]) -> None:
    where = path or "<nil>"

    def failures(branch: Schema) -> list[Cause]:
        found: list[Cause] = []
        _validate(value, branch, path, found)
        return found

    for branch in schema.get("allOf") or ():
        causes.extend(failures(branch))
    if (branches := schema.get("anyOf")) and all(failures(branch) for branch in branches):
        _refuse(value, where, "must validate at least one schema (anyOf)", causes)
    if (branches := schema.get("oneOf")) and sum(not failures(branch) for branch in branches) != 1:
        _refuse(value, where, "must validate one and only one schema (oneOf)", causes)
    if (branch := schema.get("not")) and not failures(branch):
        _refuse(value, where, "must not validate the schema (not)", causes)


# Go's durations: "1h30m", "300ms", "-1.5s", "0".
DURATION = re.compile(r"^[-+]?(0|(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+$")


def is_date_time(value: str) -> bool:
    """RFC 3339 with a zone, as Go reads it."""
    if not re.match(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$", value):
        return False
    try:
        datetime.fromisoformat(re.sub(r"\.(\d{1,6})\d*", r".\1", value))
    except ValueError:
        return False
    return True


def _is_address(kind: Callable[[str], object]) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            kind(value)
        except ValueError:
            return False
        return True

    return check


_FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": is_date_time,
    "duration": lambda value: bool(DURATION.match(value)),
    "ipv4": _is_address(ipaddress.IPv4Address),
    "ipv6": _is_address(ipaddress.IPv6Address),
    "cidr": _is_address(lambda value: ipaddress.ip_network(value, strict=False)),
    "uuid": lambda value: bool(re.match(r"^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$", value)),
}
