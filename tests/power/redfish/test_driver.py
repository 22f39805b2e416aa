"""Redfish end to end: certificates, names, and the process of an operation; what answers mean is `test_answers.py`."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.errors import ErrorType
from activities.power.bmc.drivers import REDFISH_SERVER
from activities.power.driver import PowerDriver
from policy.fence.drivers.bmc import redfish_address
from policy.fence.drivers.contract import ParameterError
from policy.fence.power import PowerState, system_of
from tests.power.conformance import Bench, DriverConformance
from tests.power.conftest import PASSWORD, USERNAME, within
from tests.power.redfish.stand import (
    RESET,
    RedfishStand,
    ScriptedService,
    failure_of,
    redfish_driver,
    redfish_running,
    refusal,
    scripted_service,
)

PATIENCE = 10.0


@pytest.fixture(scope="module")
async def stand(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RedfishStand]:
    async with redfish_running(tmp_path_factory.mktemp("redfish")) as running:
        yield running


@pytest.fixture
async def service() -> AsyncIterator[ScriptedService]:
    async with scripted_service() as running:
        yield running


async def test_a_service_says_which_machine_it_serves(stand: RedfishStand) -> None:
    """S9: to be compared with the Node's systemUUID."""
    machine = stand.machine()
    system_uuid = str(stand.service.system_uuids[machine.name])
    assert (await stand.driver(machine.name).read(within(PATIENCE))).serves == (system_of(system_uuid),)


async def test_an_untrusted_certificate_is_refused_before_the_password_is_shown(stand: RedfishStand) -> None:
    """S12: trust is asked for, never assumed."""
    machine = stand.machine()
    await failure_of(
        redfish_driver(stand.service.port, system=machine.name).off(within(PATIENCE)),
        ErrorType.INVALID_CONFIG,
        "its certificate is not trusted",
    )
    assert machine.log == []


async def test_a_certificate_for_another_name_is_refused(stand: RedfishStand) -> None:
    relay = await asyncio.start_server(lambda reader, writer: _relay(reader, writer, stand.service.port), "127.0.0.2", 0)
    try:
        port = str(relay.sockets[0].getsockname()[1])
        await failure_of(
            stand.driver("node-1", ip="127.0.0.2", ipport=port).read(within(PATIENCE)), ErrorType.INVALID_CONFIG, "127.0.0.2"
        )
    finally:
        relay.close()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while chunk := await source.read(4096):
            sink.write(chunk)
        sink.close()

    behind = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(pump(reader, behind[1]), pump(behind[0], writer), return_exceptions=True)


async def test_a_pinned_certificate_needs_no_authority_and_another_one_is_told_nothing(stand: RedfishStand) -> None:
    """S12, S39: not even where an authority would vouch for it. Whoever answers in its place hears no byte of a request."""
    machine = stand.machine()
    shown = ssl.PEM_cert_to_DER_cert(await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", stand.service.port)))
    pin = hashlib.sha256(shown).hexdigest()

    def pinned(*pins: str) -> PowerDriver:
        return redfish_driver(stand.service.port, system=machine.name, tls_fingerprint=",".join(pins))

    assert (await pinned(pin).read(within(PATIENCE))).state is PowerState.ON
    assert (await pinned("00" * 32, pin.upper()).read(within(PATIENCE))).state is PowerState.ON
    for act in ("read", "off"):
        await failure_of(getattr(pinned("00" * 32), act)(within(PATIENCE)), ErrorType.INVALID_CONFIG, f"the service shows {pin}")
    assert machine.log == []


async def test_https_is_not_spoken_down_to_http(stand: RedfishStand) -> None:
    """S12: a service without TLS is told nothing."""
    heard = b""

    async def without_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        heard += await reader.read(65536)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(without_tls, "127.0.0.1", 0)
    try:
        await failure_of(
            stand.driver("1", ipport=str(server.sockets[0].getsockname()[1])).read(within(PATIENCE)),
            ErrorType.TRANSIENT,
            "the TLS handshake failed",
        )
    finally:
        server.close()
    assert heard[:2] == b"\x16\x03"
    assert b"HTTP" not in heard


async def test_a_refusal_because_the_machine_is_so_already_is_success_and_any_other_is_none(stand: RedfishStand) -> None:
    machine = stand.machine()
    machine.set_faults(refuse=True)
    await stand.driver(machine.name).on(within(PATIENCE))
    await failure_of(stand.driver(machine.name).off(within(PATIENCE)), ErrorType.TRANSIENT)
    assert machine.power == "on"
    assert [entry.outcome for entry in machine.log] == ["refused", "refused"]


async def test_credentials_that_a_service_repeats_are_not_shown(service: ScriptedService) -> None:
    """S12: `failure_of` looks for them, also in the form in which they went out."""
    token = base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()
    service.replies["POST", RESET] = refusal(403, message=f"{USERNAME} {PASSWORD} Basic {token}")
    await failure_of(service.driver().off(within(PATIENCE)), ErrorType.UNAUTHORIZED, "*** *** Basic ***")


def test_a_server_loads_little() -> None:
    """All its children carry it: sushy whole would take 0.2 s, what the worker has loaded more than a second and 100 MB."""
    program, *arguments = REDFISH_SERVER.command
    gone, control = socket.socketpair()
    gone.close()
    with control:
        server = subprocess.run(
            [program, "-X", "importtime", *arguments], stdin=control.fileno(), stderr=subprocess.PIPE, check=True
        )
    for name in (b"sushy.resources.base", b"http.client"):
        assert name in server.stderr
    for name in (b"requests", b"temporalio", b"sushy.main", b"urllib3"):
        assert name not in server.stderr


# The parameters of a Redfish device: one spelling of its endpoint, safe unless asked otherwise, and named where they are bad.


def test_a_fingerprint_is_the_sha_256_of_a_certificate_and_stands_alone() -> None:
    """S41."""
    first, second = "0A" * 32, ":".join(["b1"] * 32)
    pinned = redfish_address({"ip": "10.0.0.7", "tls-fingerprint": f"{first}, {second}"})
    assert pinned.fingerprints == ("0a" * 32, "b1" * 32)
    for bad in ("", "0a" * 20, "0a" * 32 + ",", "0g" * 32, "0a:" + "0a" * 31, ",".join(["0a" * 32] * 5)):
        with pytest.raises(ParameterError, match="SHA-256"):
            redfish_address({"ip": "10.0.0.7", "tls-fingerprint": bad})
    for beside in ({"scheme": "http"}, {"ssl-insecure": "true"}, {"ca-file": "/ca.pem"}):
        with pytest.raises(ParameterError, match="alone"):
            redfish_address({"ip": "10.0.0.7", "tls-fingerprint": first} | beside)


@given(system=st.text(alphabet="aZ1./:_-~@%? \n", min_size=1, max_size=12))
def test_a_system_leads_to_one_path_below_the_service_or_to_none(system: str) -> None:
    """S9: nothing that a server could read as another path."""
    try:
        path = redfish_address({"ip": "10.0.0.7", "system": system}).system
    except ParameterError:
        return
    assert path is not None
    segments = path.split("/")
    assert segments[:3] == ["", "redfish", "v1"]
    assert all(segment and not segment.startswith(".") for segment in segments[1:])
    assert not set(path) & set("%? \n")
    assert redfish_address({"ip": "10.0.0.7", "system": path}).system == path


# The common contract, by Redfish over HTTPS.


class RedfishBench(Bench):
    """The emulator before a machine of the chassis."""

    secrets = (PASSWORD,)
    stalls_within = 1.0

    def __init__(self, stand: RedfishStand) -> None:
        super().__init__(stand.machine())
        self._stand = stand

    def driver(self, *, password: str | None = None, target: str | None = None) -> PowerDriver:
        return self._stand.driver(target or self.machine.name, password=password or PASSWORD)

    async def be_silent(self) -> None:
        self._stand.service.freeze()


@pytest.fixture
def bench(stand: RedfishStand) -> RedfishBench:
    stand.service.thaw()
    return RedfishBench(stand)


class TestRedfish(DriverConformance):
    pass
