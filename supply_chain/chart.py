"""`make chart`: writes what of deploy/chart and docs/install.md is made from our own tables, so that no right is written twice.

Chart.yaml, values.yaml and the templates are written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from starter.deploy.admission import admission
from starter.deploy.manifests import to_yaml
from starter.deploy.rights import RIGHTS, Right
from supply_chain.chart_values import Values

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy" / "chart" / "nodewarden"
PAGE = ROOT / "docs" / "install.md"
AROUND = ("<!-- values: make chart -->\n\n", "\n<!-- end of values -->\n")
NAMED = "taints.nodewarden.io/named"
"""Stands in files/admission.yaml where the template puts the keys of `taints`."""
SECRET = ("api_key",)
"""Settings that would put a secret into values, and so into Helm's history."""
DURATION = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
_WRITTEN = "Written by `make chart`: change starter/deploy/{}.py instead.\n"


def files() -> dict[Path, str]:
    """What each generated file holds."""
    return {
        CHART / "values.schema.json": json.dumps(schema(), indent=1) + "\n",
        CHART / "files" / "rights.yaml": to_yaml([{"#": _WRITTEN.format("rights"), "rights": list(map(_entry, RIGHTS))}]),
        CHART / "files" / "admission.yaml": to_yaml(admission(taints=(NAMED,))),
    }


def _entry(right: Right) -> dict[str, Any]:
    rule: dict[str, Any] = {"apiGroups": right.groups, "resources": right.resources}
    if right.names:
        rule["resourceNames"] = right.names
    return {
        "role": right.place.role if right.place else "",
        "namespace": right.place.namespace if right.place else "",
        "features": sorted(right.features),
        "processes": sorted(right.processes),
        "credentials": right.resources == ("secrets",) and not right.names,
        "rule": rule | {"verbs": right.verbs},
    }


class _Plain(GenerateJsonSchema):
    """Without titles and defaults, which say nothing to a refused user; durations as our settings spell them."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the signature is theirs
        return False

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def timedelta_schema(self, schema: Any) -> JsonSchemaValue:  # noqa: ARG002 - same
        return {"type": "string", "pattern": DURATION}


def schema() -> dict[str, Any]:
    """Of all values. An unknown key is refused wherever it stands, in `settings` as well."""
    found = Values.model_json_schema(by_alias=True, schema_generator=_Plain)
    for name in SECRET:
        del found["$defs"]["TemporalSettings"]["properties"][name]
    return {"$schema": "http://json-schema.org/draft-07/schema#", **found}


def table() -> str:
    """The values as a table, without those of `settings`, which are nodewarden.yaml's."""
    lines = ["| value | default | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {default} | {meaning} |" for name, default, meaning in _rows(Values, "")]
    return "\n".join(lines) + "\n"


def _rows(model: type[BaseModel], before: str) -> Iterator[tuple[str, str, str]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        meaning = (field.description or "").replace("|", "\\|") or "-"
        if isinstance(kind, type) and issubclass(kind, BaseModel) and name != "settings":
            told = [*_rows(kind, f"{before}{name}.")]
            if field.description:
                told[0] = (*told[0][:2], meaning if told[0][2] == "-" else f"{meaning}; {told[0][2]}")
            yield from told
        elif name == "settings":
            yield f"{before}{name}", "see values.yaml", meaning
        elif not field.alias:
            default = field.get_default(call_default_factory=True)
            yield f"{before}{name}", f"`{json.dumps(default, default=_dumped)}`", meaning


def _dumped(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(exclude_defaults=True)


def main() -> None:
    """Write all of them."""
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    (before, first, rest), last = page.partition(AROUND[0]), AROUND[1]
    _, found, after = rest.partition(last)
    if not found:
        raise SystemExit(f"{PAGE}: expected {first + last!r} around the table")
    PAGE.write_text(before + first + table() + last + after, encoding="utf-8")


if __name__ == "__main__":
    main()
