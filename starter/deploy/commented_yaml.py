"""Kubernetes objects as YAML with comments, which PyYAML drops. An entry `WHY` of a mapping is the comment above it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from typing import Any

import yaml

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
    """Several documents in one text."""
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
