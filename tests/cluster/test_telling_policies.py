"""The check of fence devices hears of policies that name devices when they are written, and of none that it has heard of."""

from __future__ import annotations

import pytest

from activities.errors import ErrorType, failure
from simulator.client import ApiClient
from tests.cluster.builders import CHECKS, check, templates
from tests.cluster.scans import Open, asked, fleet, observe, observe_until, with_policy

pytestmark = pytest.mark.timeout(15)


class DeviceCheck:
    """Is notified of policies, the first time in vain."""

    def __init__(self) -> None:
        self.notified: list[str] = []
        self.away = True

    async def notify(self, policies: str) -> None:
        if self.away:
            self.away = False
            raise failure(ErrorType.UNREACHABLE, "Temporal is away")
        self.notified.append(policies)


async def test_a_policy_that_is_new_or_says_something_else_is_told_once(person: ApiClient, open_scan: Open) -> None:
    """Also where Temporal was away meanwhile; a check's own change tells nothing of devices."""
    await fleet(person)
    device_check = DeviceCheck()
    scan = await open_scan(notify_device_check=device_check.notify)
    report = await observe(scan, asked())
    assert scan.view.fencing == ""
    await with_policy(person, duration="300s")
    report = await observe_until(scan, report, lambda _: len(device_check.notified) == 1, wait=0.2)
    await person.patch(f"{CHECKS}/workers", {"spec": check(duration="301s")["spec"]})
    power = [{"driver": "ipmi", "parameters": {"ip": "192.0.2.7"}}]
    await person.patch(f"{templates()}/default", {"spec": {"template": {"spec": {"power": power}}}})
    report = await observe_until(scan, report, lambda _: len(device_check.notified) == 2, wait=0.2)
    await observe(scan, asked(report, wait=0.2))
    assert len(set(device_check.notified)) == len(device_check.notified) == 2
