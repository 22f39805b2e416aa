"""The definitions of kinds, and deploy/ as a base of kustomize: all of the chart, and patches as docs/install.md shows them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from policy.dialects import parse
from policy.remediation.ladder import Body, ladder_of
from policy.remediation.strategy_rules import Strategy
from simulator.client import ApiClient, ApiError
from tests.deploy.helm import rendered
from tests.documents import ROOT, documents, path_of
from tests.policy.builders import check_object
from tests.system.real_api import api_server

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


# Templates that only stand for a step: an API server takes them as the page shows them, and a ladder may name them.


@pytest.mark.parametrize(
    ("kind", "plural", "strategy"),
    [
        ("RebootTemplate", "reboottemplates", Strategy.REBOOT),
        ("MachineDeletionTemplate", "machinedeletiontemplates", Strategy.DELETE_MACHINE),
    ],
)
async def test_a_template_without_settings_is_taken_and_is_a_step(
    kind: str, plural: str, strategy: Strategy, tmp_path: Path
) -> None:
    (definition,) = documents(f"deploy/crds/{plural}.nodewarden.io.yaml")
    path = f"/apis/nodewarden.io/v1alpha1/namespaces/default/{plural}"
    typed = {"apiVersion": "nodewarden.io/v1alpha1", "kind": kind}
    async with api_server(tmp_path) as address, ApiClient(address, user_agent="a-person") as person:
        await person.create(path_of(definition), definition)
        await person.until_served(definition)
        for name, template in (("empty", {"spec": {}}), ("emptier", {})):
            created = await person.create(path, typed | {"metadata": {"name": name}, "spec": {"template": template}})
            assert (created["kind"], created["spec"]) == (kind, {"template": template})
        with pytest.raises(ApiError, match="template"):
            await person.create(path, typed | {"metadata": {"name": "none"}, "spec": {}})
    reference = {"apiVersion": "nodewarden.io/v1alpha1", "kind": kind, "namespace": "default", "name": "empty"}
    check = parse(check_object(remediationTemplate=reference))
    (step,) = ladder_of(check, Body(has_node=True))
    assert step.strategy is strategy
