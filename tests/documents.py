"""The objects of the repository's YAML files, each file parsed once in a process.

Parsing the definition of a kind takes PyYAML fifty milliseconds, and hundreds of tests begin with it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import orjson
import yaml

ROOT = Path(__file__).resolve().parents[1]


def documents(*files: str) -> list[dict[str, Any]]:
    """The objects of these files, named from the root of the repository, in their order. They are the caller's own."""
    return [orjson.loads(each) for file in files for each in _read(file)]


def document(file: str) -> dict[str, Any]:
    """The only object of that file."""
    (found,) = documents(file)
    return found


@cache
def _read(file: str) -> list[bytes]:
    text = (ROOT / file).read_text(encoding="utf-8")
    return [orjson.dumps(each) for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def validate(document: Any, schema: Any) -> None:
    """Raises what is wrong with it. The validator is imported by whoever validates: its grammars take longer to build than most
    files of tests take to run, and every process of them imports every file."""
    import jsonschema

    jsonschema.validate(document, schema)
