"""Each benchmark of the whole system once, as small as it can be: it runs, and every figure is there. Nothing is timed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from benchmarks import burst, detection, episode, power
from benchmarks.stage import floor
from tests.system.harness import Pace

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]


MOST_REQUESTS = {
    "create events": 18,
    "get nodes": 12,
    "patch nodes": 6,
    "get leases": 16,
    "create leases": 1,
    "update nodefences": 7,
    "get secrets": 6,
    "get nodehealthchecks": 7,
    "get fencingtemplates": 7,
    "get configmaps": 6,
    "discover machines": 3,
}
"""Of one fencing by a worker that has had one, for those kinds of request that do not depend on how long it takes; some more than
it needs, for what is looked at or read once more where all is slow."""


async def test_one_fencing_is_counted_and_timed() -> None:
    measured = await episode.measure("gce", fencings=1, pod_garbage=0.5, idle=1, warm_up=1)
    assert measured.problems == []
    figures = measured.figures()
    assert all(value is not None for value in figures.values()), figures
    assert (figures["activities"] or 0) >= 6, "cordon, off, on, uncordon and two readings"
    assert (figures["events"] or 0) > 3 * (figures["activities"] or 0)
    assert (figures["CPU of the bare floor, s"] or 0) > 0
    moments = [figures[f"deadline to {moment}, s"] or 0 for moment in ("cordoned", "off", "freed", "in service")]
    assert moments == sorted(moments)
    assert set(episode.as_json([measured])["gce"]["average"]) == {name.strip() for name in figures}
    requests = measured.by_request()
    assert {kind: requests[kind] for kind, most in MOST_REQUESTS.items() if requests.get(kind, 0) > most} == {}
    assert "create events" in requests
    shown = episode.show([measured])
    assert all(name in shown for name in episode.TARGETS)


async def test_a_burst_of_two_is_measured_and_judged() -> None:
    shape = burst.Shape(broken=2, nodes=4, cap=4, members=3, pace=Pace(), duration=timedelta(seconds=1), patience=60)
    outcome = await burst.burst(shape)
    assert outcome.problems == []
    assert [spread.count for spread in outcome.after_deadline.values()] == [2, 2, 2, 2]
    assert 1 <= outcome.most_in_hand <= 2
    assert outcome.oldest_look is not None
    assert outcome.spent.ours > 0
    assert outcome.as_json()["afterDeadline"]["in_service"]["count"] == 2
    assert "2 of 4 at once" in burst.show(outcome)


async def test_detection_sees_the_act_after_the_first_activity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "DURATION", timedelta(seconds=1))
    monkeypatch.setattr(floor, "AHEAD", timedelta(seconds=0.5))
    measured = await detection.measure(12, "object", alone=1, rounds=1, idle=1, together=2)
    stated = measured.as_json()["failing"]
    assert {how: each["visible"]["count"] for how, each in stated.items()} == {"alone": 1, "2 together": 2}
    for each in stated.values():
        assert each["visible"]["p50"] > each["firstActivity"]["p50"] > 0
        assert each["floor"]["p50"] > 0
    assert measured.cost_together()[0] > 0
    assert "12 nodes, the object is there, alone" in detection.show([measured])


async def test_a_power_operation_is_measured_cold_and_warm() -> None:
    measured = {each.name: each for each in await power.measure(2)}
    assert {"ipmi", "redfish", "gce"} <= measured.keys()
    for each in (measured["ipmi"], measured["redfish"]):
        assert each.cold.processes > each.warm.processes  # which may be less than the kernel counts
        assert (each.megabytes or 0) > 0
    assert "redfish" in power.show(list(measured.values()))
    assert set(power.as_json(list(measured.values()))) == set(measured)
