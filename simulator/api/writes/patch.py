"""The three patch types: JSON merge patch, JSON patch and strategic merge patch, with the API server's own deviations.

A JSON patch `replace` of a missing map key succeeds here, as it does in a real API server. Server-side apply is `apply.py`.
Nothing here changes its arguments.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from simulator.api import errors
from simulator.api.writes.merge_types import MERGE_TYPES, Atomic, MergedList, MergedSet, Nested, Rule, rules_of_kind

_DIRECTIVE = "$patch"
_ORDER = "$setElementOrder/"
_DROP = "$deleteFromPrimitiveList/"
_RETAIN = "$retainKeys"


def merge_patch(current: Any, patch: Any) -> Any:
    """RFC 7386: null deletes, maps merge, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(current) if isinstance(current, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


# JSON patch -----------------------------------------------------------------------------------------------------------


def json_patch(current: Any, operations: Any) -> Any:
    """RFC 6902 over a copy; the first operation that fails refuses the whole patch."""
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise errors.bad_request("error decoding patch: a JSON patch is a list of operations")
    document = copy.deepcopy(current)
    for operation in operations:
        document = _apply(document, operation)
    return document


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    path = _pointer(operation, "path")
    match operation.get("op"):
        case "add":
            return _add(document, path, copy.deepcopy(_value(operation)))
        case "replace":
            if not path:
                return copy.deepcopy(_value(operation))
            parent = _walk(document, path[:-1])
            if isinstance(parent, list):
                parent[_position(parent, path[-1], "replace")] = copy.deepcopy(_value(operation))
            else:
                _map(parent, path)[path[-1]] = copy.deepcopy(_value(operation))
            return document
        case "remove":
            _take(document, path)
            return document
        case "move":
            return _add(document, path, _take(document, _pointer(operation, "from")))
        case "copy":
            return _add(document, path, copy.deepcopy(_walk(document, _pointer(operation, "from"))))
        case "test":
            if not _equal(_walk(document, path, missing=None), operation.get("value")):
                raise errors.patch_failed(f"testing value {operation['path']} failed")
            return document
        case other:
            raise errors.patch_failed(f"Unexpected kind: {other!r} is no JSON patch operation")


def _equal(left: Any, right: Any) -> bool:
    # True == 1 in Python, not in JSON.
    return left == right and isinstance(left, bool) is isinstance(right, bool)


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise errors.patch_failed(f"operation {operation.get('op')!r} on {operation.get('path')!r} misses its value")
    return operation["value"]


def _pointer(operation: dict[str, Any], name: str) -> list[str]:
    text = operation.get(name)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise errors.patch_failed(f"operation {operation.get('op')!r}: {name} {text!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


_REQUIRED = object()


def _walk(document: Any, path: list[str], missing: Any = _REQUIRED) -> Any:
    for depth, part in enumerate(path):
        if isinstance(document, list):
            document = document[_position(document, part, "read")]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        elif missing is not _REQUIRED:
            return missing
        else:
            raise errors.patch_failed(f"missing path: /{'/'.join(path[: depth + 1])}")
    return document


def _position(items: list[Any], part: str, act: str) -> int:
    if part.isdigit() and int(part) < len(items):
        return int(part)
    raise errors.patch_failed(f"Unable to {act} index {part!r} of a list of {len(items)}")


def _map(parent: Any, path: list[str]) -> dict[str, Any]:
    if not isinstance(parent, dict):
        raise errors.patch_failed(f"missing path: /{'/'.join(path)}")
    return parent


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _walk(document, path[:-1])
    if isinstance(parent, list):
        if path[-1] == "-":
            parent.append(value)
        elif path[-1].isdigit() and int(path[-1]) <= len(parent):
            parent.insert(int(path[-1]), value)
        else:
            raise errors.patch_failed(f"Unable to access invalid index: {path[-1]}")
    else:
        _map(parent, path)[path[-1]] = value
    return document


def _take(document: Any, path: list[str]) -> Any:
    if not path:
        raise errors.patch_failed("the whole document cannot be removed")
    parent = _walk(document, path[:-1])
    if isinstance(parent, list):
        return parent.pop(_position(parent, path[-1], "remove"))
    if path[-1] not in _map(parent, path):
        raise errors.patch_failed(f"Unable to remove nonexistent key: {path[-1]}: missing value")
    return parent.pop(path[-1])


# Strategic merge patch ------------------------------------------------------------------------------------------------


def strategic_merge_patch(kind: str, current: dict[str, Any], patch: Any) -> dict[str, Any]:
    """Merge by the rules of a built-in kind: lists by key, with `$patch` and its sisters obeyed."""
    if not isinstance(patch, dict):
        raise errors.bad_request("error decoding patch: a strategic merge patch is an object")
    return _merge_map(current, patch, rules_of_kind(kind))


def _merge_map(current: Mapping[str, Any], patch: dict[str, Any], rules: Mapping[str, Rule]) -> dict[str, Any]:
    directive = patch.get(_DIRECTIVE)
    if directive == "delete":
        return {}
    if directive == "replace":
        return {key: value for key, value in patch.items() if not key.startswith("$")}
    if directive not in (None, "merge"):
        raise errors.bad_request(f"unknown $patch type: {directive}")
    merged = dict(current)
    if _RETAIN in patch:
        kept = set(patch[_RETAIN])
        merged = {key: value for key, value in merged.items() if key in kept}
    for key, value in patch.items():
        if key.startswith(_DROP):
            name = key.removeprefix(_DROP)
            merged[name] = [item for item in merged.get(name) or [] if item not in value]
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_value(merged.get(key), value, rules.get(key), patch.get(_ORDER + key))
    for key, order in patch.items():
        name = key.removeprefix(_ORDER)
        if key.startswith(_ORDER) and name not in patch and isinstance(merged.get(name), list):
            merged[name] = _ordered(merged[name], order, rules.get(name))
    return merged


def _merge_value(current: Any, value: Any, rule: Rule | None, order: Any) -> Any:
    if isinstance(value, dict):
        if isinstance(rule, Atomic):
            return value
        nested = MERGE_TYPES[rule.type] if isinstance(rule, Nested) else {}
        return _merge_map(current if isinstance(current, dict) else {}, value, nested)
    if isinstance(value, list):
        present = current if isinstance(current, list) else []
        if isinstance(rule, MergedSet):
            return _ordered([*present, *(item for item in value if item not in present)], order, rule)
        if isinstance(rule, MergedList):
            return _ordered(_merge_items(present, value, rule), order, rule)
        return [item for item in value if not (isinstance(item, dict) and item.get(_DIRECTIVE) == "replace")]
    return value


def _merge_items(present: list[Any], patch: list[Any], rule: MergedList) -> list[Any]:
    rules = MERGE_TYPES.get(rule.item, {})
    if any(item.get(_DIRECTIVE) == "replace" and rule.key not in item for item in patch):
        return [_merge_map({}, item, rules) for item in patch if _DIRECTIVE not in item]
    merged = list(present)
    for item in patch:
        if rule.key not in item:
            raise errors.bad_request(f"map: {item} does not contain declared merge key: {rule.key}")
        found = next((at for at, held in enumerate(merged) if held.get(rule.key) == item[rule.key]), None)
        if item.get(_DIRECTIVE) == "delete":
            if found is not None:
                del merged[found]
        elif found is None:
            merged.append(_merge_map({}, item, rules))
        else:
            merged[found] = _merge_map(merged[found], item, rules)
    return merged


def _ordered(items: list[Any], order: Any, rule: Rule | None) -> list[Any]:
    """`$setElementOrder`: named items in the given order, the others keep their place behind the one they followed."""
    if not isinstance(order, list):
        return items
    if isinstance(rule, MergedList):
        wanted = [entry.get(rule.key) if isinstance(entry, dict) else entry for entry in order]
        names = [item.get(rule.key) for item in items]
    else:
        wanted, names = order, items
    queue = [item for name in wanted for item, held in zip(items, names, strict=True) if held == name]
    named = iter(queue)
    return [next(named) if name in wanted else item for item, name in zip(items, names, strict=True)]
