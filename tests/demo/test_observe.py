"""`make demo SCENARIO=observe`: a month whose truth is known is compared, one rack is armed and taken back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from demo.observe import JUDGED, SEED, differences
from policy.history.comparison import CheckComparison, LongerTimeout
from simulator.fleet_history import FleetHistory
from tests.starter.process import nodewarden


def true_report(history: FleetHistory) -> CheckComparison:
    """What the report says if it is right."""
    truth = history.truth()
    found = {JUDGED[verdict]: count for verdict, count in truth.verdicts.items()}
    rows = (LongerTimeout(longer=timedelta(0), repairs=truth.begun, false_repairs=truth.verdicts["false"], later=timedelta(0)),)
    return CheckComparison(
        check="workers",
        observed_days=truth.node_days,
        armed_days=0,
        would_repair=truth.begun,
        judgements=found,
        share=None,
        rate=None,
        others=None,
        brakes=(),
        timeouts=rows,
        armed=None,
        cases=(),
    )


def test_a_report_that_says_something_else_than_was_true_fails_the_demo() -> None:
    history = FleetHistory(SEED)
    right = true_report(history)
    assert differences(history, right) == []
    assert differences(history, replace(right, observed_days=right.observed_days - 40)) == [
        "1160.0 node-days, and 1200.0 is true"
    ]
    for judgement, count in right.judgements.items():
        wrong = replace(right, judgements=right.judgements | {judgement: count + 1})
        assert differences(history, wrong) == [f"{judgement}: {count + 1}, and {count} is true"]
    (row,) = right.timeouts
    assert len(differences(history, replace(right, timeouts=(replace(row, repairs=row.repairs + 1),)))) == 1


@pytest.mark.system
@pytest.mark.timeout(400)
async def test_the_month_is_told_as_it_was_and_a_rack_is_armed_and_taken_back(tmp_path: Path) -> None:
    """S52: what is observed is not touched, and what is armed is."""
    async with nodewarden("--scenario", "observe", "--state", str(tmp_path / "demo"), module="demo", COLUMNS="80") as demo:
        await demo.says("What `nodewarden compare` says of it, by the clock of that server, which is", within=150)
        await demo.says("has the same counts: 31", within=30)
        await demo.says("the mode of nodes with rack=r3 is repair", within=120)
        await demo.says("nodewarden repaired node-7 of rack r3.", within=90)
        await demo.says("Of three sick nodes node-7 was restarted, and no other machine was touched.", within=60)
        assert await demo.ended() == 0
