"""The metrics are one table; the page about them and the dashboard are made from it, and the shipped alerts go by nothing else.

The page's table is made and compared by `tests/docs/reference.py`.
"""

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

PAGE = ROOT / "docs" / "metrics.md"
ALERTS = ROOT / "deploy" / "alerts.yaml"
PLAYED = ROOT / "tests" / "deploy" / "alerts.test.yaml"


def rules() -> list[dict[str, str | dict[str, str]]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def test_names_are_unique_and_made_in_the_table_only() -> None:
    names = {each.name for each in TABLE}
    assert len(names) == len(TABLE)
    quoted = re.compile(r"""["'](nodewarden_[a-z_]+)["']""")
    for room in ("policy", "workflows", "activities", "workers", "starter"):
        for file in (ROOT / room).rglob("*.py"):
            if file.name != "metrics.py":
                assert not names & set(quoted.findall(file.read_text(encoding="utf-8"))), file


def test_what_documents_call_a_metric_is_one() -> None:
    names = {each.name for each in TABLE}
    for file in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        named = set(re.findall(r"`(?:cluster:)?(nodewarden_\w+)`", file.read_text(encoding="utf-8")))
        assert named <= names, file


def test_alerts_go_by_metrics_of_the_table_and_each_has_its_runbook() -> None:
    names, recorded = {each.name for each in TABLE}, {rule["record"] for rule in rules() if "record" in rule}
    headings = re.findall(r"^### (\w+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for rule in rules():
        named = set(re.findall(r"(?:\w+:)?nodewarden[_:]\w+", str(rule["expr"])))
        assert named <= names | recorded, rule
    alerts = {str(rule["alert"]): rule["annotations"] for rule in rules() if "alert" in rule}
    assert sorted(alerts) == sorted(headings)
    for alert, notes in alerts.items():
        assert isinstance(notes, dict)
        assert notes["runbook_url"] == f"docs/metrics.md#{alert.lower()}"


def test_every_alert_is_seen_to_come_and_seen_not_to_come() -> None:
    played = [each for test in yaml.safe_load(PLAYED.read_text(encoding="utf-8"))["tests"] for each in test["alert_rule_test"]]
    alerts = {rule["alert"]: rule["annotations"] for rule in rules() if "alert" in rule}
    assert {each["alertname"] for each in played if each.get("exp_alerts")} == set(alerts)
    silent = {each["alertname"] for each in played if not each.get("exp_alerts")}
    assert set(alerts) - silent == {"NodewardenWorkerClock"}, "whose three workers are told apart in one moment"
    for each in played:  # also where there is no promtool, which compares them whole
        for expected in each.get("exp_alerts", ()):
            assert set(expected["exp_annotations"]) == set(alerts[each["alertname"]]), each


@pytest.mark.parametrize("check", [("check", "rules", ALERTS), ("test", "rules", PLAYED)], ids=["check", "test"])
def test_prometheus_takes_the_rules_and_alerts_as_it_should(check: tuple[str, str, Path]) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool (Debian: prometheus)")
    ran = subprocess.run(["promtool", *map(str, check)], capture_output=True, text=True, timeout=50, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


# The dashboard for Grafana is made from the table of metrics, asks for nothing else, and shows what every alert goes by.

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
"""Those of the SDK's that we show; `tests/workers/test_connect.py` sees it serve them."""

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
