"""deploy/ as a base of kustomize, by kubectl's own: all that the chart brings, and patches as docs/install.md shows them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.helm import rendered
from tests.documents import ROOT

KUBECTL = Path(sys.executable).with_name("kubectl")
SETTINGS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: nodewarden, namespace: nodewarden}
data: {nodewarden.yaml: "temporal: {address: 'temporal.example.org:7233', tls: true}"}
"""


def _built(folder: Path) -> list[dict[str, Any]]:
    done = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))


def _names(objects: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in objects}


def test_the_base_is_what_the_chart_brings() -> None:
    """But for the namespaces: ours is Helm's --create-namespace, that of the leases nobody's to delete."""
    assert _names(rendered()) ^ _names(_built(ROOT / "deploy")) == {
        ("Namespace", "", "nodewarden"),
        ("Namespace", "", "medik8s-leases"),
    }


def test_the_overlay_of_the_page_is_built(tmp_path: Path) -> None:
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    overlay = page.partition("```yaml\n# kustomization.yaml\n")[2].partition("```")[0]
    assert overlay
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "kustomization.yaml").write_text(overlay, encoding="utf-8")
    (tmp_path / "settings.yaml").write_text(SETTINGS, encoding="utf-8")
    objects = _built(tmp_path)
    [worker] = [each for each in objects if each["kind"] == "Deployment"]
    [settings] = [each for each in objects if each["kind"] == "ConfigMap"]
    assert worker["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example.org/nodewarden:0.1.0"
    assert "temporal.example.org:7233" in settings["data"]["nodewarden.yaml"]


@pytest.mark.parametrize("file", sorted((ROOT / "deploy/crds").glob("*.yaml")), ids=lambda path: path.stem)
def test_no_definition_is_forgotten(file: Path) -> None:
    listed = yaml.safe_load((ROOT / "deploy/kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    assert f"crds/{file.name}" in listed
