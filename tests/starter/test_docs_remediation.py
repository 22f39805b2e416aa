"""docs/remediation.md: its objects are taken as they stand, and what it shows is what is printed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from policy.checks.fence_policies import PolicySource
from policy.dialects import common
from policy.remediation import ladder, memory
from policy.remediation.strategy_rules import Strategy
from starter.commands.remediate import app
from starter.plans.fence_plans import planned_from_files
from tests.starter.builders import nodewarden

PAGE = (Path(__file__).parents[2] / "docs" / "remediation.md").read_text(encoding="utf-8")
NOW = "2026-11-21T12:00:00Z"
FIRST = "SelfNodeRemediationTemplate/medik8s/automatic"


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The page's objects, and five nodes of which the first was remediated ten seconds ago, in vain."""
    last = {"machine": "node-1", "timestamp": "2026-11-21T11:59:50Z", "retryCount": 1, "failed": [FIRST], "incident": "abc"}
    nodes = [
        {
            "metadata": {
                "name": f"node-{number}",
                "labels": {"node-role.kubernetes.io/worker": ""},
                "annotations": {"nodewarden.io/last-remediation": json.dumps(last)} if number == 1 else {},
            },
            "status": {
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "Unknown" if number == 1 else "True",
                        "lastTransitionTime": "2026-11-21T11:50:00Z",
                    }
                ]
            },
        }
        for number in range(1, 6)
    ]
    (tmp_path / "page.yaml").write_text(block("yaml"))
    (tmp_path / "nodes.json").write_text(json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": nodes}))
    return ["-f", str(tmp_path / "page.yaml"), "-f", str(tmp_path / "nodes.json"), "--now", NOW]


async def test_the_ladder_of_the_page_is_explained_as_the_page_shows(files: list[str]) -> None:
    result = await nodewarden("explain", "node-1", *files)
    assert result.exit_code == 0, result.output
    printed = re.sub(r"\s+", "", result.stdout)
    for line in block("text").splitlines():
        assert line == "…" or re.sub(r"\s+", "", line) in printed, line


def test_every_annotation_and_every_strategy_is_on_the_page() -> None:
    annotations = {
        value
        for module in (memory, ladder, common)
        for name, value in vars(module).items()
        if name.endswith("_ANNOTATION") and str(value).startswith("nodewarden.io/")
    }
    assert len(annotations) == 9
    assert [each for each in sorted(annotations) if f"`{each}" not in PAGE] == []
    assert [each for each in Strategy if f"| `{each}` |" not in PAGE] == []


def test_its_commands_are_those_that_there_are() -> None:
    commands = {command.name for command in app.registered_commands}
    assert commands == {"plan", "begin"}
    assert all(f"remediate {name}" in PAGE for name in commands)


# The example of docs/fencing.md is a whole configuration: what it says comes out of `nodewarden fence plan -f`.

DOCUMENT = Path(__file__).parents[2] / "docs" / "fencing.md"


async def test_the_example_in_config_maps_is_complete(tmp_path: Path) -> None:
    found = re.search(r"^```yaml\n(.*?kind: ConfigMap.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    file = tmp_path / "example.yaml"
    file.write_text(found[1], encoding="utf-8")
    plan = await planned_from_files([str(file)], "node-7", source=PolicySource())
    assert plan.errors == ()
    assert plan.name == "fence-config-node-node-7"
