"""What all dialects' objects begin with: kind, version, name; and the readings that several of them share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from policy.objects.machines import PAUSED_ANNOTATION
from policy.values.fields import Fields
from policy.values.object_refs import ObjectRef
from policy.values.thresholds import Threshold, parse_threshold

DEFAULT_NAMESPACE = "default"
"""Where an object lives that names no namespace, as with kubectl; objects from an API server always name theirs."""

MOST_CONDITIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The object's name and version, and its spec to be read on. `fields` is the whole object."""

    ref: ObjectRef
    uid: str
    generation: int
    annotations: Mapping[str, str]
    fields: Fields
    spec: Fields
    warnings: list[str]

    @property
    def paused(self) -> str:
        """Whether the annotation pauses it, in words; any value does."""
        return f"it carries the annotation {PAUSED_ANNOTATION}" if PAUSED_ANNOTATION in self.annotations else ""


def read_head(obj: Mapping[str, object], *, kind: str, versions: Collection[str], namespaced: bool) -> Head:
    """Head and spec of an object of that kind. Raises PolicyError naming what is wrong."""
    metadata = Fields(obj, subject=kind).within("metadata")
    name = metadata.text("name")
    namespace = metadata.text("namespace", DEFAULT_NAMESPACE) if namespaced else ""
    fields = Fields(obj, subject=f"{kind}/{namespace}/{name}" if namespaced else f"{kind}/{name}")
    version = fields.text("apiVersion")
    if version not in versions:
        raise fields.refuse("apiVersion", f"expected {' or '.join(sorted(versions))}, got {version!r}")
    if (found := fields.text("kind")) != kind:
        raise fields.refuse("kind", f"expected {kind}, got {found!r}")
    fields.only("apiVersion", "kind", "metadata", "spec", "status")
    metadata = fields.within("metadata")
    annotations = metadata.within_or_empty("annotations")
    return Head(
        ref=ObjectRef(api_version=version, kind=kind, name=name, namespace=namespace),
        uid=metadata.text("uid", ""),
        generation=metadata.whole("generation", 0, minimum=0),
        annotations={key: str(annotations.value(key) or "") for key in annotations.names()},
        fields=fields,
        spec=fields.within("spec"),
        warnings=[],
    )


def threshold(spec: Fields, name: str, *, plain_text: bool = True, negative: bool = False) -> Threshold | None:
    """An int-or-percentage, None where the field is absent."""
    if not spec.has(name):
        return None
    try:
        return parse_threshold(spec.value(name), plain_text=plain_text, negative=negative)
    except ValueError as error:
        raise spec.refuse(name, str(error)) from error


def one_of(fields: Fields, name: str, allowed: Collection[str]) -> str:
    """A text that must be one of a few."""
    value = fields.text(name)
    if value not in allowed:
        raise fields.refuse(name, f"expected one of {', '.join(allowed)}, got {value!r}")
    return value


def not_too_many(found: Collection[object], spec: Fields, name: str) -> None:
    """Refuse a list that no API server would take, and that would be walked for every target."""
    if len(found) > MOST_CONDITIONS:
        raise spec.refuse(name, f"expected at most {MOST_CONDITIONS} entries, got {len(found)}")
