"""The example of docs/fencing.md is a whole configuration: what it says comes out of `nodewarden fence plan -f`."""

from __future__ import annotations

import re
from pathlib import Path

from policy.checks.fence_policies import PolicySource
from starter.plans.fence_plans import planned_from_files

DOCUMENT = Path(__file__).parents[2] / "docs" / "fencing.md"


async def test_the_example_in_config_maps_is_complete(tmp_path: Path) -> None:
    found = re.search(r"^```yaml\n(.*?kind: ConfigMap.*?)^```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    file = tmp_path / "example.yaml"
    file.write_text(found[1], encoding="utf-8")
    plan = await planned_from_files([str(file)], "node-7", source=PolicySource())
    assert plan.errors == ()
    assert plan.name == "fence-config-node-node-7"
