"""Server-side apply, as far as one applier a field goes: what a manager applied before and names no longer is taken away.

Who owns which field is not kept (no `managedFields`), so that nothing conflicts: of two managers the last one has the field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.api.storage.store import Document
from simulator.api.writes.merge_types import MERGE_TYPES, Atomic, MergedList, MergedSet, Nested, Rule, rules_of_kind
from simulator.api.writes.patch import strategic_merge_patch


class Applied:
    """What each manager has applied last to each object."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], Document] = {}

    def remember(self, uid: str, manager: str, sent: Document) -> None:
        self._last[uid, manager] = sent

    def merged(self, uid: str, manager: str, kind: str, current: Document, sent: Document) -> Document:
        """The object with this configuration in the place of the manager's last one."""
        last = self._last.get((uid, manager), {})
        return strategic_merge_patch(kind, current, _since(last, sent, rules_of_kind(kind)))


def _since(last: Mapping[str, Any], sent: Mapping[str, Any], rules: Mapping[str, Rule]) -> dict[str, Any]:
    """A strategic merge patch: all that is sent, and the removal of what is sent no longer."""
    patch: dict[str, Any] = {key: None for key in last if key not in sent}
    for key, value in sent.items():
        before, rule = last.get(key), rules.get(key)
        if isinstance(value, dict) and isinstance(before, dict) and not isinstance(rule, Atomic):
            patch[key] = _since(before, value, MERGE_TYPES[rule.type] if isinstance(rule, Nested) else {})
        elif isinstance(value, list) and isinstance(before, list) and isinstance(rule, MergedList):
            patch[key] = _items_since(before, value, rule)
        else:
            patch[key] = value
            if isinstance(rule, MergedSet) and isinstance(before, list):
                patch[f"$deleteFromPrimitiveList/{key}"] = [item for item in before if item not in value]
    return patch


def _items_since(last: list[Any], sent: list[Any], rule: MergedList) -> list[Any]:
    rules = MERGE_TYPES.get(rule.item, {})
    before = {item[rule.key]: item for item in last}
    kept = {item[rule.key] for item in sent}
    gone = [{rule.key: key, "$patch": "delete"} for key in before if key not in kept]
    return [*gone, *(_since(before.get(item[rule.key], {}), item, rules) for item in sent)]
