"""What a cluster needs that no table makes: definitions of our kinds, the policy about people, alerts, and the chart with them.

`chart` beside this module is a link to deploy/chart/nodewarden, which links to files in deploy/; a wheel has the files.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from policy.values.errors import PolicyError

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
