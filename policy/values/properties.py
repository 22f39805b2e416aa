"""The lines `key=value` in which the node-fencing proposal writes its configuration (`config.properties`, `method.properties`).

A value may contain `=`: base64 passwords do. Blank lines and lines that begin with `#` say nothing; a line without `=`, an empty
key and a key written twice are refused, since whichever was meant, the other would be carried out. What the keys mean is said by
the readers. Texts of errors never repeat a value: it may be a password (S12).
"""

from __future__ import annotations

from policy.values.errors import PolicyError


def parse_properties(text: str, *, subject: str, field: str) -> dict[str, str]:
    """The keys and values in their order. Raises PolicyError naming object, field and line."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        written = line.strip()
        if not written or written.startswith("#"):
            continue
        key, separator, value = written.partition("=")
        key = key.strip()
        if not separator or not key:
            raise PolicyError(subject, field, f"line {number}: expected key=value")
        if key in found:
            raise PolicyError(subject, field, f"line {number}: {key} is written twice")
        found[key] = value.strip()
    return found
