"""What the commands share that look at all of a cluster from files; by one reading of it: `starter/plans/live.py`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from policy.checks.health_check import Overlap

if TYPE_CHECKING:
    from activities.cluster.watch.offline import ClusterSnapshot

FilesOption = Annotated[
    list[str] | None,
    typer.Option("--filename", "-f", help="File or directory with YAML or JSON objects, - for standard input; may be repeated."),
]
NowOption = Annotated[str, typer.Option("--now", help="The moment to evaluate at, RFC 3339; default: now.", metavar="RFC3339")]


def moment_of(text: str) -> datetime:
    """The moment that --now names. Raises SettingsError for anything else."""
    from workers.configuration.setting_sources import SettingsError

    if not text:
        return datetime.now(UTC)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or "T" not in text.upper():
        raise SettingsError(f"--now: expected a moment such as 2026-11-21T09:30:00Z, got {text!r}")
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def read_cluster(files: list[str] | None, now: datetime, *, overlap: Overlap) -> ClusterSnapshot:
    """The cluster that the files describe, mistakes and all. Raises SettingsError where no file is named."""
    from activities.cluster.watch.offline import ClusterSnapshot, ManifestMistake
    from starter.plans.manifests import Unreadable, read_files
    from workers.configuration.setting_sources import SettingsError

    if not files:
        raise SettingsError("-f: expected a file with Kubernetes objects, got nothing")
    cluster = ClusterSnapshot(now, overlap=overlap)
    for found in read_files(files):
        if isinstance(found, Unreadable):
            cluster.mistakes.append(ManifestMistake(source=found.source, message=found.problem))
        else:
            cluster.put(found.document, found.source)
    cluster.finish()
    return cluster
