"""The chart that brings Temporal's along: values reach both, and Temporal is left out on demand.

No test downloads Temporal's chart. In its place is one of the same name that writes down what it was told.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from supply_chain.chart import CHART
from tests.deploy.helm import NAMESPACE, RELEASE, of_kind
from tests.documents import ROOT, every

BOTH = CHART.with_name("nodewarden-with-temporal")
STAND_IN = """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Values.fullnameOverride }}-frontend, namespace: {{ .Release.Namespace }}}
data:
  values: {{ omit .Values "global" | toJson | quote }}
"""


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """As `helm dependency build` leaves it."""
    whole = tmp_path / "whole"
    shutil.copytree(BOTH, whole)
    shutil.copytree(CHART, whole / "charts" / "nodewarden")
    stand_in = whole / "charts" / "temporal"
    (stand_in / "templates").mkdir(parents=True)
    [dependency] = [each for each in _declared() if each["name"] == "temporal"]
    lowest = dependency["version"].removeprefix(">=").split()[0]
    (stand_in / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": "temporal", "version": lowest}))
    (stand_in / "templates" / "told.yaml").write_text(STAND_IN)
    return whole


def _declared() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((BOTH / "Chart.yaml").read_text(encoding="utf-8"))["dependencies"]
    return found


def _rendered(chart: Path, values: dict[str, Any]) -> list[dict[str, Any]]:
    with helm_python.Chart.load(chart) as loaded:
        texts = loaded.render(values, name=RELEASE, namespace=NAMESPACE)
    return [each for name, text in texts.items() if name.endswith(".yaml") for each in every(text)]


def test_workers_are_told_where_the_temporal_beside_them_is(chart: Path) -> None:
    objects = _rendered(chart, {"nodewarden": {"network": {"enabled": True}}})
    told = {each["metadata"]["name"]: each["data"] for each in of_kind(objects, "ConfigMap")}
    settings = yaml.safe_load(told["nodewarden"]["nodewarden.yaml"])["temporal"]
    service, namespace, _ = settings["address"].split(".")
    assert (service, namespace) == ("temporal-frontend", NAMESPACE)
    values = yaml.safe_load(told["temporal-frontend"]["values"])
    assert settings["namespace"] in [each["name"] for each in values["server"]["config"]["namespaces"]["namespace"]]
    assert values["server"]["dynamicConfig"] == yaml.safe_load((ROOT / "deploy/temporal/dynamic-config.yaml").read_text())
    [policy] = of_kind(objects, "NetworkPolicy")
    assert {"kubernetes.io/metadata.name": namespace} in [
        peer.get("namespaceSelector", {}).get("matchLabels") for rule in policy["spec"]["egress"] for peer in rule.get("to", ())
    ]


def test_temporal_is_left_out_on_demand(chart: Path) -> None:
    names = [each["metadata"]["name"] for each in _rendered(chart, {"temporal": {"enabled": False}})]
    assert "nodewarden" in names
    assert "temporal-frontend" not in names


def test_ours_is_the_one_beside_it_and_mistakes_are_refused(chart: Path) -> None:
    [ours] = [each for each in _declared() if each["name"] == "nodewarden"]
    assert ours["version"] == yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["version"]
    assert (BOTH / ours["repository"].removeprefix("file://")).resolve() == CHART
    with pytest.raises(helm_python.HelmError, match="additional properties 'cpa' not allowed"):
        _rendered(chart, {"nodewarden": {"settings": {"scan": {"cpa": 2}}}})
