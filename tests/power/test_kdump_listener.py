"""Real datagrams of crashing kernels, in both byte orders, and what is remembered of them."""

from __future__ import annotations

import asyncio
import socket
import struct
from datetime import timedelta

import pytest
from temporalio.testing import ActivityEnvironment

from activities.contracts.evidence import KdumpRequest
from activities.errors import ErrorType
from activities.power.kdump_listener import KEPT_SECONDS, EvidenceService, KdumpListener, listening
from policy.fence.kdump import KdumpReading
from tests.cluster.acts.world import refused
from tests.licensing import LICENCES

pytestmark = pytest.mark.timeout(10)

LITTLE, BIG = struct.pack("<II", 0x1B302A40, 1), struct.pack(">II", 0x1B302A40, 1)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def listener(**options: int) -> tuple[KdumpListener, Clock]:
    clock = Clock()
    return KdumpListener(clock=clock, **options), clock


async def read(service: EvidenceService, *addresses: str) -> KdumpReading:
    reading = await ActivityEnvironment().run(service.read_kdump, KdumpRequest(addresses=addresses))
    assert isinstance(reading, KdumpReading)
    return reading


@pytest.mark.parametrize("message", [LITTLE, BIG])
async def test_a_message_in_either_byte_order_is_heard_over_udp(message: bytes) -> None:
    async with listening("127.0.0.1", 0) as heard:
        service, port = EvidenceService(heard, LICENCES), port_of(heard)
        assert not (await read(service, "127.0.0.2")).messages
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as node:
            node.bind(("127.0.0.2", 0))
            node.sendto(message, ("127.0.0.1", port))
            node.sendto(b"\0" * 8, ("127.0.0.1", port))
            node.sendto(message, ("127.0.0.1", port))
        async with asyncio.timeout(5):
            while (reading := await read(service, "192.0.2.1", "127.0.0.2")).messages < 2:
                await asyncio.sleep(0.002)
        assert reading.address == "127.0.0.2"
        assert reading.first is not None
        assert reading.last is not None
        assert reading.listening <= reading.first <= reading.last <= reading.at
        assert not (await read(service, "127.0.0.3")).messages


def port_of(heard: KdumpListener) -> int:
    assert heard.address is not None
    return int(heard.address[1])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        LITTLE[:7],
        LITTLE + b"\0",
        b"\0" * 8,
        struct.pack("<II", 0x1B302A40, 2),
        struct.pack("<I", 0x1B302A40) + struct.pack(">I", 1),
    ],
)
def test_anything_else_is_no_message(data: bytes) -> None:
    heard, _ = listener()
    heard.datagram_received(data, ("10.0.0.7", 40000))
    assert not heard.read(["10.0.0.7"]).messages


def test_the_ages_of_what_was_heard_are_told() -> None:
    heard, clock = listener()
    for wait in (0, 10, 10):
        clock.now += wait
        heard.datagram_received(LITTLE, ("10.0.0.7", 40000))
    clock.now += 7
    reading = heard.read(["10.0.0.7"])
    assert reading.first is not None
    assert reading.last is not None
    assert (reading.at - reading.first, reading.at - reading.last) == (timedelta(seconds=27), timedelta(seconds=7))
    assert (reading.messages, reading.at - reading.listening) == (3, timedelta(seconds=27))


def test_of_several_addresses_of_one_node_the_newest_counts() -> None:
    heard, clock = listener()
    heard.datagram_received(LITTLE, ("10.0.0.7", 1))
    clock.now += 5
    heard.datagram_received(LITTLE, ("203.0.113.7", 1))
    assert heard.read(["203.0.113.7", "10.0.0.7", "not an address"]).address == "203.0.113.7"


@pytest.mark.parametrize(
    ("source", "asked"), [("::ffff:10.0.0.7", "10.0.0.7"), ("fe80::1%eth0", "fe80::1"), ("2001:db8::7", "2001:0db8:0:0::7")]
)
def test_one_address_has_many_spellings(source: str, asked: str) -> None:
    heard, _ = listener()
    heard.datagram_received(BIG, (source, 1, 0, 0))
    assert heard.read([asked]).messages == 1


def test_after_a_long_silence_it_is_another_dump_and_in_the_end_it_is_forgotten() -> None:
    heard, clock = listener()
    heard.datagram_received(LITTLE, ("10.0.0.7", 1))
    clock.now += 121
    heard.datagram_received(LITTLE, ("10.0.0.7", 1))
    assert heard.read(["10.0.0.7"]).messages == 1
    clock.now += KEPT_SECONDS + 1
    assert not heard.read(["10.0.0.7"]).messages
    assert len(heard) == 0


def test_a_flood_from_made_up_addresses_costs_no_more_memory_and_hides_no_node_that_speaks_on() -> None:
    heard, clock = listener(sources=100)
    for number in range(5000):
        clock.now += 0.01
        heard.datagram_received(LITTLE, (f"10.1.{number // 250}.{number % 250}", 1))
        if number % 50 == 0:
            heard.datagram_received(LITTLE, ("10.0.0.7", 1))
    assert len(heard) == 100
    assert heard.read(["10.0.0.7"]).messages == 100


async def test_a_worker_that_does_not_listen_says_so() -> None:
    with refused(ErrorType.NOT_SUPPORTED, "kdump.listen"):
        await read(EvidenceService(None, LICENCES), "10.0.0.7")
