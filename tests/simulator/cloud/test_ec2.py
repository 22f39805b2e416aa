"""The simulated EC2 is as strict as EC2 is said to be, to a plain boto3 client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError

from simulator.bmc.machine import Machine, NotKnownError
from simulator.cloud.ec2 import Ec2Cloud, MotoServer


@pytest.fixture(scope="module")
async def running() -> AsyncIterator[Ec2Cloud]:
    async with MotoServer() as moto, Ec2Cloud(moto.url) as cloud:
        yield cloud


@pytest.fixture
def ec2(running: Ec2Cloud) -> Ec2Cloud:
    running.set_faults()
    running.log.clear()
    return running


@pytest.fixture(scope="module")
def client(running: Ec2Cloud) -> Any:
    return client_of(running, running.secret_access_key)


def client_of(ec2: Ec2Cloud, secret: str) -> Any:
    return boto3.client(
        "ec2",
        region_name=ec2.region,
        endpoint_url=ec2.url,
        aws_access_key_id=ec2.access_key_id,
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}, read_timeout=5),
    )


async def refusal(call: Any, **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        await asyncio.to_thread(call, **parameters)
    return str(caught.value.response["Error"]["Code"])


async def becomes(ec2: Ec2Cloud, instance: str, state: str) -> None:
    async with asyncio.timeout(10):
        while ec2.state(instance) != state:
            await asyncio.sleep(0.01)


async def test_an_instance_passes_through_the_states_in_between_and_its_machine_follows(ec2: Ec2Cloud, client: Any) -> None:
    machine = Machine("node-1")
    instance = await ec2.launch("node-1", machine=machine)
    ec2.set_faults(settle=0.2)
    answer = await asyncio.to_thread(client.stop_instances, InstanceIds=[instance])
    (change,) = answer["StoppingInstances"]
    assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "stopping")
    assert (ec2.state(instance), machine.power) == ("stopping", "on")
    await becomes(ec2, instance, "stopped")
    assert machine.power == "off"
    await asyncio.to_thread(client.start_instances, InstanceIds=[instance])
    assert (ec2.state(instance), machine.power) == ("pending", "off")
    await becomes(ec2, instance, "running")
    assert machine.power == "on"
    await asyncio.to_thread(client.terminate_instances, InstanceIds=[instance])
    assert ec2.state(instance) == "shutting-down"
    await becomes(ec2, instance, "terminated")
    assert [entry.command for entry in machine.log] == ["off", "on", "off"]


@pytest.mark.parametrize(
    ("state", "refuses"),
    [
        ("pending", {"stop_instances", "reboot_instances"}),
        ("running", set()),
        ("stopping", {"start_instances", "reboot_instances"}),
        ("stopped", {"reboot_instances"}),
        ("shutting-down", {"start_instances", "stop_instances", "reboot_instances"}),
        ("terminated", {"start_instances", "stop_instances", "reboot_instances"}),
    ],
)
async def test_what_a_state_does_not_allow_is_refused(ec2: Ec2Cloud, client: Any, state: str, refuses: set[str]) -> None:
    instance = await ec2.launch("node-1")
    for operation in ("start_instances", "stop_instances", "reboot_instances"):
        ec2.set_state(instance, state)
        ec2.set_faults(settle=60.0)
        call = getattr(client, operation)
        if operation in refuses:
            assert await refusal(call, InstanceIds=[instance]) == "IncorrectInstanceState"
            assert ec2.state(instance) == state
        else:
            await asyncio.to_thread(call, InstanceIds=[instance])


async def test_a_volume_has_one_place_and_takes_time_to_leave_it(ec2: Ec2Cloud, client: Any) -> None:
    here, there = await ec2.launch("node-1"), await ec2.launch("node-2")
    volume = await ec2.volume(here)
    assert await refusal(client.attach_volume, VolumeId=volume, InstanceId=there, Device="/dev/sdg") == "VolumeInUse"
    assert await refusal(client.detach_volume, VolumeId=volume, InstanceId=there) == "InvalidAttachment.NotFound"
    ec2.set_faults(settle=0.1)
    await asyncio.to_thread(client.detach_volume, VolumeId=volume)
    described = await asyncio.to_thread(client.describe_volumes, VolumeIds=[volume])
    assert described["Volumes"][0]["State"] == "in-use"
    async with asyncio.timeout(10):
        while described["Volumes"][0]["State"] != "available":
            described = await asyncio.to_thread(client.describe_volumes, VolumeIds=[volume])
    assert await refusal(client.detach_volume, VolumeId=volume) == "IncorrectState"


async def test_a_request_must_be_signed_with_the_right_key(ec2: Ec2Cloud) -> None:
    stranger = client_of(ec2, "another")
    assert await refusal(stranger.describe_instances) == "SignatureDoesNotMatch"


async def test_an_instance_that_is_not_there_is_said_to_be_so(ec2: Ec2Cloud, client: Any) -> None:
    for call in (client.stop_instances, client.start_instances, client.terminate_instances, client.describe_instances):
        assert await refusal(call, InstanceIds=["i-0badc0ffee0ddf00d"]) == "InvalidInstanceID.NotFound"
    assert await refusal(client.send_diagnostic_interrupt, InstanceId="i-0badc0ffee0ddf00d") == "InvalidInstanceID.NotFound"


async def test_protection_against_stop_and_termination_holds(ec2: Ec2Cloud, client: Any) -> None:
    instance = await ec2.launch("node-1")
    await ec2.protect(instance)
    for call in (client.stop_instances, client.terminate_instances):
        assert await refusal(call, InstanceIds=[instance]) == "OperationNotPermitted"
    assert ec2.state(instance) == "running"


async def test_a_fault_that_is_not_known_is_refused(ec2: Ec2Cloud) -> None:
    with pytest.raises(NotKnownError, match="'ignore_of' is not known: expected silent,"):
        ec2.set_faults(ignore_of=True)


async def test_one_instance_may_ignore_a_stop_or_lose_answers_and_its_neighbour_does_neither(ec2: Ec2Cloud, client: Any) -> None:
    machine, other = Machine("node-1"), Machine("node-2")
    instance, neighbour = await ec2.launch("node-1", machine=machine), await ec2.launch("node-2", machine=other)
    machine.set_faults(ignore_off=True)
    for each in (instance, neighbour):
        await asyncio.to_thread(client.stop_instances, InstanceIds=[each])
    await becomes(ec2, neighbour, "stopped")
    assert (ec2.state(instance), machine.power, other.power) == ("running", "on", "off")
    assert [(entry.command, entry.outcome) for entry in machine.log] == [("off", "ignored")]
    machine.set_faults(lose_answers=True)
    stop = asyncio.create_task(asyncio.to_thread(client.stop_instances, InstanceIds=[instance]))
    async with asyncio.timeout(10):
        while machine.power != "off":  # before that moto's own idea of the state may be seen between two steps
            await asyncio.sleep(0.01)
    await becomes(ec2, instance, "stopped")
    answer = await asyncio.to_thread(client.describe_instances, InstanceIds=[instance])
    assert answer["Reservations"][0]["Instances"][0]["State"]["Name"] == "stopped"
    assert not stop.done()
    machine.set_faults()
    with pytest.raises(HTTPClientError):
        await stop


async def test_a_provider_id_is_what_the_clouds_controller_writes(ec2: Ec2Cloud) -> None:
    instance = await ec2.launch("node-1", zone="b")
    assert ec2.provider_id(instance) == f"aws:///us-east-1b/{instance}"
