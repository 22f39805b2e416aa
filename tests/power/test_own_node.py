"""No worker acts on the node that it runs on: another one takes the step over."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Never

import pytest
from temporalio.exceptions import ApplicationError

from activities.contracts.power import PowerRequest, VolumeRequest
from activities.errors import ErrorType
from activities.power.driver import DeviceCredentials
from activities.power.service import PowerService
from policy.fence.plan import CredentialRef, PowerDevice
from tests.power.targets import target_with

DEVICE = PowerDevice(driver="ec2", endpoint="ec2://eu-west-1/i-7")
TARGET = target_with(DEVICE)
REQUEST = PowerRequest(target=TARGET, device=DEVICE, deadline=timedelta(seconds=10))
DETACH = VolumeRequest(target=TARGET, device=DEVICE, volume="vol-a", deadline=timedelta(seconds=10))


class NoCredentials:
    """Asked for nothing: what is refused is refused before anything is read or sent."""

    async def read(self, cluster: str, references: Sequence[CredentialRef]) -> DeviceCredentials:
        raise AssertionError("credentials were read")


def nobody(_device: PowerDevice, _credentials: DeviceCredentials) -> Never:
    raise AssertionError("the device was spoken to")


@pytest.mark.parametrize(
    ("act", "request_"),
    [
        ("power_off", REQUEST),
        ("cut_path", REQUEST),
        ("quarantine", REQUEST),
        ("detach_volume", DETACH),
        ("terminate", REQUEST),
    ],
)
async def test_a_worker_refuses_to_act_on_its_own_node_before_anything_is_sent(
    act: str, request_: PowerRequest | VolumeRequest
) -> None:
    """S16."""
    service = PowerService(NoCredentials(), own_node="node-7", drivers=nobody)
    with pytest.raises(ApplicationError) as refused:
        await getattr(service, act)(request_)
    assert refused.value.type == ErrorType.OWN_NODE
