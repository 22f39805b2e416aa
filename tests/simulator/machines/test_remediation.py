"""How the sets of simulated Machines of Cluster API remediate what a health check has condemned."""

from __future__ import annotations

import pytest

from simulator.machine_systems.contract import SetSighting
from simulator.machine_systems.remediation import DEFERRED, DELETING, OWNER_REMEDIATED, REMEDIATE, acts_of_set
from simulator.objects import JsonObject, condition_of, name_of
from tests.simulator.machines.fleets import FAST, condition

pytestmark = pytest.mark.timeout(40)


def machine(name: str, *, second: int = 0, marked: bool = False, going: bool = False, well: bool = False) -> JsonObject:
    """One that was created in that second. going: its set is deleting it. Otherwise it is condemned, unless it is well."""
    reason = DELETING if going else "WaitingForRemediation"
    listed = [condition("HealthCheckSucceeded", "True" if well else "False", "AsJudged")]
    listed += [] if well else [condition(OWNER_REMEDIATED, "False", reason)]
    metadata = {
        "name": name,
        "creationTimestamp": f"2026-01-01T00:00:{second:02}Z",
        "annotations": {REMEDIATE: ""} if marked else {},
        **({"deletionTimestamp": "2026-01-01T00:01:00Z"} if going else {}),
    }
    return {"metadata": metadata, "status": {"conditions": listed}}


def round_of(
    *machines: JsonObject, limit: int | str | None = None, replicas: int = 3, preflight: str = ""
) -> tuple[list[str], list[str]]:
    """Whom the set deletes, in order, and whom it tells to wait."""
    deployment = {"spec": {"replicas": replicas, **({} if limit is None else {"remediation": {"maxInFlight": limit}})}}
    seen = SetSighting(
        machine_set={}, machines=machines, node_of=lambda _: None, settings=FAST, deployment=deployment, preflight=preflight
    )
    acts = acts_of_set(seen)
    for each, act in acts:
        listed = condition_of({"status": act.status}, OWNER_REMEDIATED)
        assert listed is not None
        assert listed["reason"] == (DELETING if act.delete else DEFERRED), f"{name_of(each)} is told what becomes of it"
    return [name_of(each) for each, act in acts if act.delete], [name_of(each) for each, act in acts if not act.delete]


OLD, MIDDLE, NEW = machine("old", second=1), machine("middle", second=2), machine("new", second=3)


def test_the_newest_goes_first_unless_a_person_has_marked_another() -> None:
    assert round_of(OLD, NEW, MIDDLE) == (["new", "middle", "old"], [])
    assert round_of(OLD, NEW, MIDDLE, limit=1) == (["new"], ["middle", "old"])
    marked = machine("marked", second=0, marked=True)
    assert round_of(OLD, marked, NEW, limit=1) == (["marked"], ["new", "old"])
    assert round_of(machine("b", second=1), machine("a", second=1), limit=1) == (["a"], ["b"])
    assert round_of(OLD, machine("well", well=True)) == (["old"], [])


@pytest.mark.parametrize(
    ("limit", "replicas", "going", "deleted"),
    [
        (None, 3, 2, 3),
        (0, 3, 0, 0),
        (2, 3, 0, 2),
        (2, 3, 1, 1),
        (2, 3, 2, 0),
        (2, 3, 3, 0),
        ("34%", 3, 0, 2),
        ("33%", 3, 0, 1),
        ("1%", 3, 0, 1),
        ("0%", 3, 0, 0),
        ("100%", 3, 0, 3),
    ],
)
def test_as_many_at_once_as_the_deployment_lets_it(limit: int | str | None, replicas: int, going: int, deleted: int) -> None:
    on_their_way = [machine(f"going-{number}", going=True) for number in range(going)]
    found, waiting = round_of(OLD, MIDDLE, NEW, *on_their_way, limit=limit, replicas=replicas)
    assert (len(found), len(waiting)) == (deleted, 3 - deleted)
