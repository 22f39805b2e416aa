"""Our chart as Helm's own code renders it, without a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import helm_python
import orjson
import yaml

from supply_chain.chart import CHART

RELEASE = NAMESPACE = "nodewarden"


@cache
def chart() -> helm_python.Chart:
    """The chart of this checkout, read once in a process."""
    return helm_python.Chart.load(CHART)


@cache
def _rendered(values: bytes) -> dict[str, str]:
    return chart().render(orjson.loads(values), name=RELEASE, namespace=NAMESPACE)


def rendered(values: Mapping[str, Any] | None = None, *, template: str = "") -> list[dict[str, Any]]:
    """The objects with these values, of one template or of all. They are the caller's own."""
    texts = _rendered(orjson.dumps(values or {}, option=orjson.OPT_SORT_KEYS))
    chosen = [
        text for name, text in texts.items() if name.endswith(".yaml") and name.rpartition("/")[2].startswith(f"{template}")
    ]
    return [each for text in chosen for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] == kind]


def bare(document: dict[str, Any]) -> dict[str, Any]:
    """Without what says that Helm has made it."""
    metadata = {key: value for key, value in document["metadata"].items() if key not in {"labels", "annotations"}}
    return {**document, "metadata": metadata}
