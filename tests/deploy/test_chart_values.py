"""What may be set in the chart, also in the one that brings Temporal's along: one model says it, a mistake is refused by its
name, and no secret passes through.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from supply_chain.chart import AROUND, CHART, PAGE, files, table
from supply_chain.chart_values import Values
from tests.deploy.helm import NAMESPACE, RELEASE, chart, of_kind, rendered
from tests.documents import ROOT, every
from tests.test_packaging import PROJECT
from workers.configuration.settings import load


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_what_is_made_from_our_tables_is_as_they_are(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == files()[path], "make it anew: make chart"


def test_the_page_shows_every_value() -> None:
    assert table().join(AROUND) in PAGE.read_text(encoding="utf-8"), "make it anew: make chart"


def test_the_defaults_are_those_of_the_model() -> None:
    """values.yaml has them once more, with their reasons, as Helm reads no model."""
    written = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    said = Values.model_validate(written)
    assert said.model_dump() == Values(settings=said.settings).model_dump()
    missing = Values.model_fields.keys() - {"global_"} - written.keys()
    assert missing == set()


def test_chart_wheel_and_image_are_one_release() -> None:
    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert (metadata["version"], metadata["appVersion"]) == (PROJECT["project"]["version"],) * 2


def test_helm_finds_nothing_to_complain_of() -> None:
    found = helm_python.lint(CHART, {}, strict=True, namespace=NAMESPACE)
    told = [each for each in found["messages"] if each["error"] != "icon is recommended"]
    assert (told, found["errors"]) == ([], [])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"featuers": ["fencing"]}, "additional properties 'featuers' not allowed"),
        ({"features": ["fencing", "drains"]}, "at '/features/1': value must be one of 'health-checks', 'fencing'"),
        ({"image": {"tags": "1"}}, "at '/image': additional properties 'tags' not allowed"),
        ({"image": {"digest": "sha256:abc"}}, "at '/image/digest'"),
        ({"workers": []}, "at '/workers': minItems"),
        ({"workers": [{"role": "scanner"}]}, "at '/workers/0/role': value must be one of 'all'"),
        ({"workers": [{"role": "all", "replica": 3}]}, "at '/workers/0': additional properties 'replica' not allowed"),
        ({"settings": {"scan": {"cpa": 2}}}, "at '/settings/scan': additional properties 'cpa' not allowed"),
        ({"settings": {"scan": {"cap": 0}}}, "at '/settings/scan/cap': minimum"),
        ({"settings": {"scan": {"wait": "a minute"}}}, "at '/settings/scan/wait': 'a minute' does not match"),
        ({"settings": {"temporal": {"api_key": "s3cret"}}}, "at '/settings/temporal': additional properties 'api_key'"),
        ({"secrets": {"temporalTls": "Not A Name"}}, "at '/secrets/temporalTls'"),
        ({"secrets": {"notifications": [{"urls": "slack://t0ken"}]}}, "additional properties 'urls' not allowed"),
        ({"network": {"bmc": ["bmc.example.org"]}}, "at '/network/bmc/0'"),
        ({"versioning": {"previous": [{"tag": "0.1.0"}]}}, "missing property 'buildId'"),
        ({"workers": [{"role": "all"}, {"role": "power"}]}, "expected one with the role all, or some of"),
        ({"versioning": {"previous": [{"buildId": "1"}]}}, "versioning.previous: expected versioning.deployment as well"),
        ({"metrics": {"serviceMonitor": {"enabled": True}}}, "metrics.serviceMonitor: expected metrics.proxy.image as well"),
        ({"ui": {"enabled": True}}, "ui: expected tls.secretName or behindProxy, and not both"),
        (
            {"ui": {"enabled": True, "behindProxy": True, "tls": {"secretName": "t"}}},
            "ui: expected tls.secretName or behindProxy",
        ),
        ({"ui": {"enabled": True, "behindProxy": True, "replicas": 2}}, "ui.replicas: expected sessionKeys as well"),
        ({"ui": {"enabled": True, "tls": {"secret": "t"}}}, "at '/ui/tls': additional properties 'secret' not allowed"),
        ({"alerts": {"enabled": "yes"}}, "at '/alerts/enabled': got string, want boolean"),
    ],
)
def test_a_mistake_is_refused_by_its_name(values: dict[str, Any], message: str) -> None:
    """S12 for the keys that would hold a secret: values end up in Helm's own Secrets and in people's repositories."""
    with pytest.raises(helm_python.HelmError) as refused:
        rendered(values)
    assert message in str(refused.value)


def test_another_namespace_is_refused() -> None:
    """Accounts, rights and admission policies name it."""
    with pytest.raises(helm_python.HelmError, match="expected --namespace nodewarden, got default"):
        chart().render({}, name=RELEASE, namespace="default")


@pytest.mark.parametrize(
    "settings",
    [
        {
            "scan": {"cap": 3, "wait": "1m30s", "overlap": "independent"},
            "fencing": {"storms": [{"percentage": 30, "scope": "zone"}]},
        },
        {"clusters": {"prod": {"in_cluster": True, "machines": {"kubeconfig": "/k/config"}}}, "sites": ["a", "b"]},
        {"preservation": {"pools": {"gpu": {"selector": {}, "autoPreserveFailedMax": 1}}}, "remediation": {"max_retry": 3}},
    ],
)
def test_settings_that_the_chart_takes_are_ones_that_workers_read(settings: dict[str, Any], tmp_path: Path) -> None:
    [configured] = rendered({"settings": settings}, template="settings")
    (tmp_path / "nodewarden.yaml").write_text(configured["data"]["nodewarden.yaml"], encoding="utf-8")
    read = load(config=tmp_path / "nodewarden.yaml")
    assert (read.temporal.address, read.log.format) == ("temporal-frontend.temporal.svc:7233", "json")


@pytest.mark.parametrize("page", ["install.md", "page.md"])
def test_every_example_on_the_page_is_taken(page: str) -> None:
    """Each block of values, and the objects that come of it."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in text.split("```yaml\n# values.yaml")[1:]]
    assert blocks
    for block in blocks:
        assert rendered(yaml.safe_load(block.partition("\n")[2])), block


# The chart that brings Temporal's along: values reach both, and Temporal is left out on demand.
#
# No test downloads Temporal's chart. In its place is one of the same name that writes down what it was told.

BOTH = CHART.with_name("nodewarden-with-temporal")
STAND_IN = """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Values.fullnameOverride }}-frontend, namespace: {{ .Release.Namespace }}}
data:
  values: {{ omit .Values "global" | toJson | quote }}
"""


@pytest.fixture
def chart_of_both(tmp_path: Path) -> Path:
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


def test_workers_are_told_where_the_temporal_beside_them_is(chart_of_both: Path) -> None:
    objects = _rendered(chart_of_both, {"nodewarden": {"network": {"enabled": True}}})
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


def test_temporal_is_left_out_on_demand(chart_of_both: Path) -> None:
    names = [each["metadata"]["name"] for each in _rendered(chart_of_both, {"temporal": {"enabled": False}})]
    assert "nodewarden" in names
    assert "temporal-frontend" not in names


def test_ours_is_the_one_beside_it_and_mistakes_are_refused(chart_of_both: Path) -> None:
    [ours] = [each for each in _declared() if each["name"] == "nodewarden"]
    assert ours["version"] == yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["version"]
    assert (BOTH / ours["repository"].removeprefix("file://")).resolve() == CHART
    with pytest.raises(helm_python.HelmError, match="additional properties 'cpa' not allowed"):
        _rendered(chart_of_both, {"nodewarden": {"settings": {"scan": {"cpa": 2}}}})
