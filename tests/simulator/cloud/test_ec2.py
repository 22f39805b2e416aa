"""The simulated EC2 is as strict as EC2 is said to be, to a plain boto3 client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError

from simulator.bmc.machine import Machine
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
