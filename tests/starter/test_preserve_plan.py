"""`nodewarden preserve plan -f …`: what people and programs get, without any cluster or server."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from policy.preservation.requests import read_policy
from tests.starter.keyboard import nodewarden

PAGE = Path(__file__).parents[2] / "docs" / "preservation.md"
NOW = "2026-11-21T12:00:00Z"
PRESERVE = "node.machine.sapcloud.io/preserve"


async def planned(*objects: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The JSON, and the exit code."""
    text = "\n---\n".join(json.dumps(each) for each in objects)
    result = await nodewarden("preserve", "plan", "-f", "-", "--now", NOW, "-o", "json", text=text)
    found: dict[str, Any] = json.loads(result.stdout)
    return found, result.exit_code


def machine(name: str, phase: str, created: str = "2026-11-01T00:00:00Z", **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "machine.sapcloud.io/v1alpha1",
        "kind": "Machine",
        "metadata": {
            "name": name,
            "namespace": "shoot",
            "labels": {"node": f"node-of-{name}", "pool": "a"},
            "annotations": annotations,
            "creationTimestamp": created,
        },
        "status": {"currentStatus": {"phase": phase}},
    }


def policy(**spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "nodewarden.io/v1alpha1",
        "kind": "PreservationPolicy",
        "metadata": {"name": "a"},
        "spec": {"selector": {"matchLabels": {"pool": "a"}}, **spec},
    }


async def test_what_is_kept_and_what_is_given_up() -> None:
    """Every key is always there: it is an interface."""
    found, code = await planned(
        policy(autoPreserveFailedMax=1),
        machine("w-1", "Failed", "2026-11-01T00:00:00Z"),
        machine("w-2", "Failed", "2026-11-02T00:00:00Z"),
        machine("w-3", "Running", **{PRESERVE: "now", "nodewarden.io/preserve-for": "24h"}),
    )
    reason = "it has failed, and nothing keeps it: its phase is Failed"
    kept = "it has failed, and the pool keeps failed machines; for 72h"
    assert found == {
        "machines": [
            entry("w-1", "Failed", phase="Terminating", action="terminate", reason=reason),
            entry("w-2", "Failed", "auto-preserved", phase="Failed:Preserved", action="preserve", expiry="24", reason=kept),
            entry(
                "w-3",
                "Running",
                "now",
                phase="Running:Preserved",
                action="preserve",
                expiry="22",
                reason="asked for by annotation; for 24h",
            ),
        ],
        "auto": {
            "max": 1,
            "count": 0,
            "selected": ["w-2"],
            "released": [],
            "pools": [{"name": "a", "max": 1, "count": 0, "selected": ["w-2"], "released": []}],
        },
        "scaleDownOrder": ["w-1", "w-2", "w-3"],
        "warnings": [],
        "errors": [],
    }
    assert code == 0


def entry(name: str, was: str, effective: str = "", *, expiry: str = "", **fields: str) -> dict[str, Any]:
    until = f"2026-11-{expiry}T12:00:00Z" if expiry else None
    facts = {"name": name, "namespace": "shoot", "node": f"node-of-{name}", "effective": effective, "was": was}
    return facts | {"expiry": until} | fields


async def test_a_policy_that_cannot_be_used_stops_giving_up_and_nothing_else() -> None:
    """Nobody knows what it would keep. What a person says of a machine is done all the same."""
    found, code = await planned(
        policy(autoPreserveFailedMax=-1),
        machine("w-1", "Failed"),
        machine("w-2", "Failed", **{PRESERVE: "false"}),
        machine("w-3", "Running", **{PRESERVE: "now"}),
    )
    assert code == 1
    expected = "expected a whole number of at least 0 and at most 10000, got -1"
    assert found["errors"] == [f"standard input: PreservationPolicy/a: spec.autoPreserveFailedMax: {expected}"]
    first, second, third = found["machines"]
    assert (first["action"], first["phase"]) == ("none", "Failed")
    assert first["reason"].endswith("but nothing is given up while a pool's configuration can't be used")
    assert [second["action"], third["action"]] == ["terminate", "preserve"]


async def test_a_block_alone_is_a_pool_of_all() -> None:
    text = "machineControllerManager: {autoPreserveFailedMax: 1}\n---\n" + json.dumps(machine("w-1", "Failed"))
    result = await nodewarden("preserve", "plan", "-f", "-", "--now", NOW, "-o", "json", text=text)
    assert json.loads(result.stdout)["auto"]["selected"] == ["w-1"]


async def test_a_value_that_means_nothing_changes_nothing_and_is_told() -> None:
    found, code = await planned(machine("w-1", "Running", **{PRESERVE: "forever"}))
    assert (code, found["machines"][0]["action"]) == (0, "none")
    values = "now, true, when-failed, auto-preserved, false"
    expected = f"w-1: Machine: annotation {PRESERVE}: expected one of {values}, got 'forever'; it changes nothing"
    assert found["warnings"] == [expected]


async def test_people_get_a_table_and_the_reasons() -> None:
    text = "\n---\n".join(json.dumps(each) for each in (policy(machinePreserveMax=1), machine("w-1", "Failed")))
    result = await nodewarden("preserve", "plan", "-f", "-", "--now", NOW, text=text)
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    assert "w-1 node-of-w-1 auto-preserved Failed:Preserved preserve 2026-11-24T12:00:00Z" in words
    assert "a: keeps at most 1 failed machines, found 0; begins to keep w-1; releases none" in words


def test_the_policy_shown_in_the_docs_is_accepted_as_it_stands() -> None:
    docs = PAGE.read_text(encoding="utf-8")
    shown, *_ = re.findall(r"```yaml\n(.*?)```", docs, flags=re.DOTALL)
    pool = read_policy(yaml.safe_load(shown))
    assert (pool.cap, pool.timeout, pool.zones, pool.warnings) == (2, timedelta(hours=72), ("a", "b"), ())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "standard input"),
        (json.dumps(machine("w-1", "Failed") | {"status": {"currentStatus": {"phase": 7}}}), "expected a Machine"),
        (
            json.dumps(machine("w-1", "Failed") | {"status": {"currentStatus": {"preserveExpiryTime": "soon"}}}),
            "preserveExpiryTime: expected a moment",
        ),
    ],
)
async def test_what_cannot_be_read_is_code_1_and_the_rest_is_judged(text: str, problem: str) -> None:
    whole = f"{json.dumps(machine('w-2', 'Running'))}\n---\n{text}"
    result = await nodewarden("preserve", "plan", "-f", "-", "--now", NOW, "-o", "json", text=whole)
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert len(found["errors"]) == 1
    assert problem in found["errors"][0]
    assert [each["name"] for each in found["machines"]] == ["w-2"]


@pytest.mark.parametrize(("healthy", "selected"), [(1, ["n-2"]), (3, [])])
async def test_of_nodes_that_a_check_calls_failed_the_newest_is_kept_unless_its_circuit_breaker_is_open(
    healthy: int, selected: list[str]
) -> None:
    """As the scanner does it: in a storm nobody is remediated, and so nobody has to be kept (S17)."""
    check = {
        "apiVersion": "remediation.medik8s.io/v1alpha1",
        "kind": "NodeHealthCheck",
        "metadata": {"name": "all"},
        "spec": {
            "selector": {"matchLabels": {"pool": "a"}},
            "minHealthy": healthy,
            "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "duration": "5m"}],
            "remediationTemplate": {
                "apiVersion": "nodewarden.io/v1alpha1",
                "kind": "FencingTemplate",
                "name": "t",
                "namespace": "n",
            },
        },
    }
    nodes = []
    for number, (status, since) in enumerate([("True", "10"), ("Unknown", "09"), ("Unknown", "11"), ("True", "10")]):
        condition = {"type": "Ready", "status": status, "lastTransitionTime": f"2026-11-21T{since}:00:00Z"}
        metadata = {"name": f"n-{number}", "labels": {"pool": "a"}}
        nodes.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"conditions": [condition]}})
    found, _ = await planned(check, policy(autoPreserveFailedMax=1), *nodes)
    assert found["auto"]["selected"] == selected
