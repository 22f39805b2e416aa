"""Are locked packages known to be vulnerable? Asked of a file of advisories, without a network: `make audit ADVISORIES=file`.

The file holds records of OSV (https://ossf.github.io/osv-schema): one, a list, the answer of its API, or a zip with one in each
file, as OSV publishes them for the whole of PyPI. What can't be judged counts as a finding. pip-audit would ask a service.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

LOCKED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ \\;]+)", re.MULTILINE)

Advisory = dict[str, Any]


def advisories_in(path: Path) -> Iterator[Advisory]:
    """The records in force. Raises ValueError for what is no JSON, OSError for what can't be read."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            texts = [archive.read(name) for name in archive.namelist() if name.endswith(".json")]
    else:
        texts = [path.read_bytes()]
    for text in texts:
        found = json.loads(text)
        records = found.get("vulns", [found]) if isinstance(found, dict) else found
        yield from (each for each in records if not each.get("withdrawn"))


def locked_in(path: Path) -> dict[str, str]:
    """The packages of a lock with their versions."""
    return {str(canonicalize_name(each["name"])): each["version"] for each in LOCKED.finditer(path.read_text(encoding="utf-8"))}


def problem_of(advisory: Advisory, name: str, version: str) -> str:
    """What an advisory says of that version of a package, for people; "" where it does not concern it."""
    for affected in advisory.get("affected", ()):
        package = affected.get("package", {})
        if package.get("ecosystem") != "PyPI" or canonicalize_name(package.get("name", "")) != name:
            continue
        ranges = [each for each in affected.get("ranges", ()) if each.get("type") in {"ECOSYSTEM", "SEMVER"}]
        try:
            hit = _is_listed(version, affected.get("versions", ())) or any(_is_within(version, each) for each in ranges)
        except InvalidVersion as error:
            return f"{advisory['id']}: can't be judged: {error}"
        if hit:
            fixed = sorted({event["fixed"] for each in ranges for event in each.get("events", ()) if "fixed" in event})
            until = f" (fixed in {', '.join(fixed)})" if fixed else ""
            return f"{advisory['id']}: {advisory.get('summary') or 'see there'}{until}"
    return ""


def _is_listed(version: str, listed: list[str]) -> bool:
    """Versions in spellings of long ago are among them, and are never a locked one."""
    return any(each == version or (_known(each) is not None and _known(each) == Version(version)) for each in listed)


def _known(version: str) -> Version | None:
    try:
        return Version(version)
    except InvalidVersion:
        return None


def _is_within(version: str, span: Advisory) -> bool:
    """The algorithm of the schema: events in their order, the last one at or below the version decides."""
    locked, within = Version(version), False
    events = [(Version(at), kind) for event in span.get("events", ()) for kind, at in event.items() if kind != "limit"]
    for at, kind in sorted(events):
        if kind == "introduced" and locked >= at:
            within = True
        elif (kind == "fixed" and locked >= at) or (kind == "last_affected" and locked > at):
            within = False
    return within


def main(arguments: list[str]) -> str | int:
    """Print the findings. Answers what a process ends with: 1 where there are any, a text where nothing could be judged."""
    advisories, *locks = map(Path, arguments)
    by_package: dict[str, list[Advisory]] = {}
    try:
        for advisory in advisories_in(advisories):
            names = (each.get("package", {}) for each in advisory.get("affected", ()))
            for concerned in {canonicalize_name(each.get("name", "")) for each in names if each.get("ecosystem") == "PyPI"}:
                by_package.setdefault(concerned, []).append(advisory)
    except (OSError, ValueError, AttributeError) as error:
        return f"{advisories}: expected OSV records as JSON, or a zip of them: {error}"
    if not by_package:
        return f"{advisories}: no advisory in it is about a package of PyPI: nothing was judged"
    judged, findings = 0, 0
    for lock in locks:
        for name, version in locked_in(lock).items():
            judged += 1
            for advisory in by_package.get(name, ()):
                if problem := problem_of(advisory, name, version):
                    findings += 1
                    print(f"{lock}: {name} {version}: {problem}")
    print(f"{judged} locked packages held against {len(by_package)} with advisories: {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
