"""The metrics are one table, the page about them is made from it, and the shipped alerts go by nothing else.

The page's table is made and compared by `tests/docs/reference.py`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from activities.contracts.metrics import TABLE

ROOT = Path(__file__).resolve().parent.parent
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
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    assert {each["alertname"] for each in played if each.get("exp_alerts")} == alerts
    silent = {each["alertname"] for each in played if not each.get("exp_alerts")}
    assert alerts - silent == {"NodewardenWorkerClock"}, "whose three workers are told apart in one moment"


@pytest.mark.parametrize("check", [("check", "rules", ALERTS), ("test", "rules", PLAYED)], ids=["check", "test"])
def test_prometheus_takes_the_rules_and_alerts_as_it_should(check: tuple[str, str, Path]) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("needs promtool (Debian: prometheus)")
    ran = subprocess.run(["promtool", *map(str, check)], capture_output=True, text=True, timeout=50, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
