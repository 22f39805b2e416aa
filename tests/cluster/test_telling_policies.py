"""The check of fence devices hears of policies that name devices when they are written, and of none that it has heard of."""

from __future__ import annotations

import pytest

from activities.errors import ErrorType, failure
from policy.episode.operator_commands import ActionName, Spoken
from simulator.client import ApiClient
from tests.cluster.builders import CHECKS, check, templates
from tests.cluster.scans import Open, asked, fleet, observe, observe_until, with_policy

pytestmark = pytest.mark.timeout(15)


class NodeActionDispatcher:
    """Hears of policies, the first time in vain."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.away = True

    async def say(self, cluster: str, spoken: Spoken, action: ActionName, who: str) -> str:
        raise AssertionError("nobody has spoken")

    async def tell_policies(self, cluster: str, policies: str) -> None:
        assert cluster == "prod"
        if self.away:
            self.away = False
            raise failure(ErrorType.UNREACHABLE, "Temporal is away")
        self.told.append(policies)


async def test_a_policy_that_is_new_or_says_something_else_is_told_once(person: ApiClient, open_scan: Open) -> None:
    """Also where Temporal was away meanwhile; a check's own change tells nothing of devices."""
    await fleet(person)
    herald = NodeActionDispatcher()
    scan = await open_scan(herald=herald)
    report = await observe(scan, asked())
    assert scan.view.fencing == ""
    await with_policy(person, duration="300s")
    report = await observe_until(scan, report, lambda _: len(herald.told) == 1, wait=0.2)
    await person.patch(f"{CHECKS}/workers", {"spec": check(duration="301s")["spec"]})
    power = [{"driver": "ipmi", "parameters": {"ip": "192.0.2.7"}}]
    await person.patch(f"{templates()}/default", {"spec": {"template": {"spec": {"power": power}}}})
    report = await observe_until(scan, report, lambda _: len(herald.told) == 2, wait=0.2)
    await observe(scan, asked(report, wait=0.2))
    assert len(set(herald.told)) == len(herald.told) == 2
