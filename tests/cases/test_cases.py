"""Stored worlds are decided as their files say. What differs is shown; what is meant to differ is written anew."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest

from tests.cases.decisions import peers_view, played
from tests.cases.worlds import FOLDER, case_files, read
from tests.cases.write import rewritten

PEERS = ("cluster-api", "machine-api-operator", "machine-controller-manager", "node-healthcheck-operator")


@pytest.mark.parametrize("path", case_files(), ids=lambda path: path.stem)
def test_a_stored_world_is_decided_as_before(path: Path) -> None:
    """S13, S15, S17, S19, S20, S52."""
    stored = path.read_text(encoding="utf-8")
    differs = list(unified_diff(stored.splitlines(), rewritten(path).splitlines(), "stored", "decided now", lineterm="", n=12))
    assert not differs, "\n".join([*differs[:200], "if that is meant: python -m tests.cases.write"])


@pytest.mark.parametrize("peer", PEERS)
def test_a_peers_case_is_decided_as_by_the_peer_or_says_why_not(peer: str) -> None:
    for case in read(FOLDER / f"{peer}.yaml"):
        ours = peers_view(case)
        differs = {
            key: f"{peer}: {theirs}, ours: {ours.get(key)}"
            for key, theirs in case["peer"].items()
            if not agrees(key, theirs, ours)
        }
        assert differs.keys() == case.get("differs", {}).keys(), f"{case['case']}: {differs}"


def agrees(key: str, theirs: Any, ours: dict[str, Any]) -> bool:
    match key:
        case "says":
            return theirs in ours[key]
        case "first":
            return bool(theirs == ours["order"][: len(theirs)])
        case _:
            return bool(theirs == ours[key])


def test_a_case_says_why_it_is_kept() -> None:
    cases = [case for path in case_files() for case in read(path)]
    assert [case["case"] for case in cases if not case["why"].strip()] == []
    assert len({case["case"] for case in cases}) == len(cases), "a name stands for one case"
    assert len(cases) > 800


@pytest.mark.parametrize("case", [{"given": [], "scan": {"pause": "drill"}}, {"given": [], "pause": True}])
def test_a_key_that_means_nothing_is_refused(case: dict[str, object]) -> None:
    """Else the opposite of what its author meant would be stored."""
    with pytest.raises(ValueError, match="a case: pause: expected one of"):
        played(case)
