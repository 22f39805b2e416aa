"""The dashboard for Grafana is made from the table of metrics, asks for nothing else, and shows what every alert goes by."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from activities.contracts.metrics import TABLE, Histogram
from supply_chain.dashboard import FILE, made
from tests.documents import ROOT

BOARD: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [each for each in BOARD["panels"] if each["type"] != "row"]
EXPRESSIONS: list[str] = [target["expr"] for panel in PANELS for target in panel["targets"]]
RULES = [rule for group in yaml.safe_load((ROOT / "deploy/alerts.yaml").read_text())["groups"] for rule in group["rules"]]
TEMPORALS = {
    "temporal_activity_execution_failed",
    "temporal_activity_execution_latency",
    "temporal_num_pollers",
    "temporal_request_failure",
    "temporal_worker_task_slots_available",
    "temporal_workflow_task_execution_latency",
}
"""Those of the SDK's that we show; `tests/workers/test_runtime.py` sees it serve them."""

HISTOGRAMS = {each.name for each in TABLE if isinstance(each, Histogram)} | {each for each in TEMPORALS if "latency" in each}


def names_in(expression: str) -> set[str]:
    """The metrics of an expression: without what a histogram's series end in, and of a level's recording rule the metric."""
    found = set[str]()
    for name in re.findall(r"\b((?:cluster:)?(?:nodewarden|temporal)_\w+)", re.sub(r'"[^"]*"', '""', expression)):
        plain = name.removeprefix("cluster:")
        histograms = {each.name for each in TABLE if isinstance(each, Histogram)} | {
            each for each in TEMPORALS if "latency" in each
        }
        base = re.sub(r"_(bucket|count|sum)$", "", plain)
        found.add(base if base in histograms else plain)
    return found


def test_the_file_is_what_its_maker_makes() -> None:
    assert FILE.read_text(encoding="utf-8") == made(), "make it anew: python -m supply_chain.dashboard"


def test_grafana_s_own_types_read_it_and_write_the_same() -> None:
    """As far as the SDK goes: an unknown field is lost on the way."""
    register_default_plugins()
    assert json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(BOARD))) == BOARD


def test_it_asks_for_metrics_of_the_table_and_of_temporal_s_sdk() -> None:
    names, recorded = {each.name for each in TABLE}, {rule["record"] for rule in RULES if "record" in rule}
    for expression in EXPRESSIONS:
        assert names_in(expression) <= names | TEMPORALS, expression
        assert set(re.findall(r"\bcluster:\w+", expression)) <= recorded, expression


def test_every_metric_of_ours_and_every_one_that_an_alert_goes_by_is_shown() -> None:
    shown = set[str]().union(*map(names_in, EXPRESSIONS))
    assert {each.name for each in TABLE} <= shown
    assert shown - {each.name for each in TABLE} == TEMPORALS
    for rule in RULES:
        assert "record" in rule or names_in(rule["expr"]) <= shown, rule


def test_levels_are_asked_for_by_the_rules_that_know_the_latest_worker() -> None:
    """Else a worker that scans no longer would still show what it knew."""
    levels = {rule["record"].removeprefix("cluster:") for rule in RULES if rule.get("record", "").startswith("cluster:")}
    for expression in EXPRESSIONS:
        assert not set(re.findall(r"(?<![:\w])nodewarden_\w+", expression)) & levels, expression


def test_every_panel_says_what_it_means_and_stands_where_no_other_does() -> None:
    assert all(panel["title"] and panel["description"] for panel in PANELS)
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    assert len({each["id"] for each in BOARD["panels"]}) == len(BOARD["panels"])
    assert {panel["datasource"]["uid"] for panel in PANELS} == {"${datasource}"}
    assert [each["name"] for each in BOARD["templating"]["list"]] == ["datasource", "cluster"]
    places = [(each["title"], each["gridPos"]) for each in BOARD["panels"]]
    for (one, a), (other, b) in combinations(places, 2):
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"] or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        assert apart, (one, other)
    assert all(place["x"] + place["w"] <= 24 for _, place in places)


def test_prometheus_understands_every_expression(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool (Debian: prometheus)")
    plain = [each.replace("$__rate_interval", "5m").replace("$cluster", "c") for each in EXPRESSIONS]
    rules = [{"record": f"panel_{number}", "expr": each} for number, each in enumerate(plain)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}), encoding="utf-8")
    command = ["promtool", "check", "rules", str(tmp_path / "rules.yaml")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
