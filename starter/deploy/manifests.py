"""What `nodewarden deploy` prints: objects of our tables as YAML with comments, which PyYAML drops (an entry `WHY` of a mapping
is the comment above it), and files that are shipped as they are."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from policy.values.errors import PolicyError

WHY = "#"
WIDTH = 132
_PLACE = re.compile(r"( *)((?:- )?)'#': (\d+)")


class _Dumper(yaml.SafeDumper):
    """Mappings and lists of mappings as blocks, lists of words in one line, texts of several lines as they are."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - the signature is theirs
        super().increase_indent(flow, False)  # lists stand below their key, not beneath it

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - same
        return True


def _sequence(dumper: yaml.SafeDumper, items: Iterable[Any]) -> yaml.Node:
    listed = list(items)
    flow = not any(isinstance(each, (dict, list, tuple)) for each in listed)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", listed, flow_style=flow)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|" if "\n" in text else None)


_Dumper.add_representer(list, _sequence)
_Dumper.add_representer(tuple, _sequence)
_Dumper.add_representer(str, _text)
_Dumper.add_multi_representer(str, _text)  # members of an enumeration as well


def to_yaml(documents: Iterable[dict[str, Any]]) -> str:
    return "---\n".join(map(_one, documents))


def _one(document: dict[str, Any]) -> str:
    comments: list[str] = []

    def placed(value: Any) -> Any:
        """With the number of each comment in its place."""
        if isinstance(value, dict):
            if WHY in value:
                comments.append(value[WHY])
            number = len(comments) - 1
            return {key: number if key == WHY else placed(each) for key, each in value.items()}
        return [placed(each) for each in value] if isinstance(value, (list, tuple)) else value

    text = yaml.dump(placed(document), Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=WIDTH, allow_unicode=True)
    lines: list[str] = []
    item = ""
    for line in text.splitlines():
        if found := _PLACE.fullmatch(line):
            indent, item = found[1], found[1] + found[2]
            margin = f"{indent}# "
            lines += textwrap.wrap(
                comments[int(found[3])], WIDTH, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
            )
        else:
            lines.append(item + line[len(item) :])  # what follows the comment begins the list's item in its place
            item = ""
    return "\n".join(lines) + "\n"


# What a cluster needs that no table makes: definitions of our kinds, the policy about people, alerts, and the chart with them.
#
# `chart` beside this module is a link to deploy/chart/nodewarden, which links to files in deploy/; a wheel has the files.

CHART = Path(__file__).resolve().parent / "chart"
_FILES = CHART / "files"


def crds() -> list[Path]:
    """The definitions, a file each, called after the definition in it."""
    return sorted((_FILES / "crds").glob("*.yaml"))


def people() -> Path:
    """Who may say what to nodewarden (docs/security.md)."""
    return _FILES / "people.yaml"


def alerts() -> Path:
    """Rules for Prometheus (docs/metrics.md)."""
    return _FILES / "alerts.yaml"


def dashboard() -> Path:
    """For Grafana (docs/metrics.md)."""
    return _FILES / "dashboard.json"


def printed(*files: Path) -> str:
    """Their documents in one text, with their comments."""
    return "---\n".join(file.read_text(encoding="utf-8") for file in files)


def write_chart(folder: Path) -> None:
    """The chart as a folder of its own, without links. Raises PolicyError where there is something already."""
    if folder.exists():
        raise PolicyError("DIRECTORY", str(folder), "expected a folder that is not there yet")
    shutil.copytree(CHART, folder, copy_function=shutil.copyfile)
