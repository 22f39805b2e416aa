"""A worker is ready for the devices of its clusters before the first node fails."""

from __future__ import annotations

import subprocess
import sys

import pytest

from activities.contracts.device_check import (
    FenceDeviceActivities,
    FenceDevices,
    FenceDevicesRequest,
    NodeNames,
    NodeNamesRequest,
    PublishDeviceNoticesRequest,
)
from activities.errors import ErrorType, failure
from activities.power.registry import LIBRARIES
from policy.fence.device_check import DeviceToCheck, NodeToCheck
from policy.fence.plan import PowerDevice
from workers.composition import load_drivers


class Devices(FenceDeviceActivities):
    """Of a cluster whose nodes have these drivers' devices."""

    def __init__(self, *drivers: str) -> None:
        self.drivers = drivers

    async def list_nodes(self, request: NodeNamesRequest) -> NodeNames:
        raise AssertionError(request)

    async def find_devices(self, request: FenceDevicesRequest) -> FenceDevices:
        if not self.drivers:
            raise failure(ErrorType.UNREACHABLE, "the API server is away")
        devices = tuple(DeviceToCheck(device=PowerDevice(driver=each, endpoint=f"{each}://a")) for each in self.drivers)
        return FenceDevices(nodes=tuple(NodeToCheck(node=node, devices=devices) for node in request.nodes))

    async def publish_device_notices(self, request: PublishDeviceNoticesRequest) -> None:
        raise AssertionError(request)


async def test_each_driver_of_the_cluster_is_loaded_once() -> None:
    loaded = list[str]()
    await load_drivers("prod", Devices("ipmi", "gce"), ("a", "b"), loads=loaded.append)
    assert loaded == ["gce", "ipmi"]


async def test_a_cluster_that_can_not_be_asked_now_harms_nothing() -> None:
    loaded = list[str]()
    await load_drivers("prod", Devices(), ("a",), loads=loaded.append)
    assert loaded == []


@pytest.mark.parametrize("driver", sorted(LIBRARIES))
def test_what_is_loaded_is_what_a_first_act_would_wait_for(driver: str) -> None:
    """Google's library comes with the client, in the thread of a call, and not with the driver that every plan may name."""
    library = {"ec2": "botocore", "gce": "google.cloud.compute_v1.services.instances"}[driver]
    code = (
        "import sys, activities.power.gce.driver; from activities.power.registry import load; load('ipmi');"
        f" before = {library!r} in sys.modules; load({driver!r}); print(before, {library!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.split() == ["False", "True"]
