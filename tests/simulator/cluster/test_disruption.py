"""How disruption budgets are counted."""

from __future__ import annotations

import pytest

from simulator.controllers.disruption import budget_status
from simulator.objects import JsonObject

pytestmark = pytest.mark.timeout(10)


def pod(name: str, *, ready: bool = True, app: str = "database", **metadata: object) -> JsonObject:
    owner = {"kind": "StatefulSet", "name": "database", "uid": "owner", "controller": True}
    return {
        "metadata": {
            "name": name,
            "namespace": "demo",
            "uid": name,
            "labels": {"app": app},
            "ownerReferences": [owner],
            **metadata,
        },
        "spec": {},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


def budget(**spec: object) -> JsonObject:
    return {
        "metadata": {"name": "database", "namespace": "demo", "generation": 3},
        "spec": {"selector": {"matchLabels": {"app": "database"}}, **spec},
    }


@pytest.mark.parametrize(
    ("spec", "expected", "desired", "allowed"),
    [
        ({"minAvailable": 2}, 3, 2, 1),
        ({"minAvailable": "50%"}, 4, 2, 1),
        ({"minAvailable": "51%"}, 4, 3, 0),
        ({"maxUnavailable": 1}, 4, 3, 0),
        ({"maxUnavailable": "26%"}, 4, 2, 1),
        ({"maxUnavailable": 9}, 4, 0, 3),
        ({}, 3, 3, 0),
    ],
)
def test_budgets_of_a_set_that_wants_four_and_has_three(
    spec: dict[str, int | str], expected: int, desired: int, allowed: int
) -> None:
    pods = [pod("database-0"), pod("database-1"), pod("database-2"), pod("web-0", app="web")]
    status = budget_status(budget(**spec), pods, lambda _owner, _namespace: 4)
    assert status == {
        "observedGeneration": 3,
        "currentHealthy": 3,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
    }


def test_pods_that_are_not_ready_or_terminating_are_lost_already() -> None:
    pods = [pod("a"), pod("b", ready=False), pod("c", deletionTimestamp="2026-01-01T00:00:00Z")]
    status = budget_status(budget(minAvailable=1), pods, lambda _owner, _namespace: None)
    assert (status["currentHealthy"], status["disruptionsAllowed"]) == (1, 0)


def test_without_a_selector_a_budget_covers_nothing() -> None:
    empty = budget(maxUnavailable=1)
    del empty["spec"]["selector"]
    assert budget_status(empty, [pod("a")], lambda _owner, _namespace: None)["disruptionsAllowed"] == 0
