"""EC2: what an instance's states mean, what is sent and what never is, and what each failure lets one conclude."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from activities.errors import ErrorType
from activities.power import cloud_call
from activities.power import ec2 as ec2_driver
from activities.power.driver import Deadline, DeviceCredentials, PowerDriver, PowerError
from activities.power.ec2 import CONSOLE_LENGTH, TAG, TAG_LENGTH, Ec2Driver, Ec2Factory
from policy.fence.power import InterfaceGroups, PowerCapability, PowerState, Quarantine, VolumeState, host_of, instance_of
from simulator.api.access.certificates import Certificates, issue
from simulator.cloud.ec2 import CODES, Ec2Cloud, MotoServer
from tests.power.conformance import Bench, DriverConformance
from tests.power.conftest import fails, within
from tests.power.ec2.stand import Ec2Stand, stand_in
from tests.power.raw_server import raw_server, saying

XML = "Content-Type: text/xml"
BRIEF = 0.4
"""Seconds for what is meant to hang."""


@pytest.fixture(scope="module")
async def moto() -> AsyncIterator[MotoServer]:
    async with MotoServer() as server:
        yield server


@pytest.fixture(scope="module")
async def cloud(moto: MotoServer) -> AsyncIterator[Ec2Cloud]:
    async with Ec2Cloud(moto.url) as ec2:
        yield ec2


@pytest.fixture
async def stand(cloud: Ec2Cloud) -> AsyncIterator[Ec2Stand]:
    async with stand_in(cloud) as made:
        yield made


def xml(action: str, body: str) -> str:
    return f'<{action}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">{body}</{action}Response>'


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + 10
    while not await holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("state", CODES)
async def test_only_an_instance_that_is_stopped_or_terminated_is_off(stand: Ec2Stand, state: str) -> None:
    """S3: what is on its way off may still write, and what is on its way on may be there by now."""
    stand.ec2.set_state(stand.instance, state)
    reading = await stand.driver().read(within(5))
    expected = {"running": PowerState.ON, "stopped": PowerState.OFF, "terminated": PowerState.OFF}
    assert reading.state is expected.get(state, PowerState.UNKNOWN)
    assert reading.detail == state


@pytest.mark.parametrize("reason", ["Client.UserInitiatedHibernate", "Server.SpotInstanceShutdown"])
async def test_a_hibernated_instance_is_not_off_and_is_never_started(stand: Ec2Stand, reason: str) -> None:
    """S3: started, it would go on in the middle of a write, when others have long had its volumes. A stop changes nothing."""
    stand.ec2.hibernate(stand.instance, reason)
    reading = await stand.driver().read(within(5))
    assert (reading.state, reading.detail) == (PowerState.UNKNOWN, "stopped, hibernated with its memory kept")
    for act in (stand.driver().off, stand.driver().on):
        refused = await fails(act(within(5)), ErrorType.NOT_SUPPORTED)
        assert "hibernated with its memory kept: expected a person to start or terminate it" in str(refused)
    assert stand.ec2.requests("StartInstances") == []


@pytest.mark.parametrize("reason", ["Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown"])
async def test_an_instance_that_can_hibernate_and_was_shut_down_is_off(stand: Ec2Stand, reason: str) -> None:
    stand.ec2.hibernate(stand.instance, reason)
    assert (await stand.driver().read(within(5))).state is PowerState.OFF
    await stand.driver().on(within(5))


async def test_a_stop_is_by_force_asks_no_operating_system_and_is_no_hibernation(stand: Ec2Stand) -> None:
    await stand.driver().off(within(5))
    (request,) = stand.ec2.requests("StopInstances")
    asked = {name: value for name, value in request.form.items() if name not in {"Action", "Version"}}
    assert asked == {"InstanceId.1": stand.instance, "Force": "true", "SkipOsShutdown": "true", "Hibernate": "false"}


@pytest.mark.parametrize(
    ("act", "state", "faults", "expected"),
    [
        ("off", "pending", {}, ErrorType.TRANSIENT),
        *(("off", state, {}, None) for state in ("stopping", "stopped", "shutting-down", "terminated")),
        ("on", "pending", {}, None),
        ("on", "running", {}, None),
        ("on", "stopping", {}, ErrorType.TRANSIENT),
        ("on", "shutting-down", {}, ErrorType.NOT_SUPPORTED),
        ("on", "terminated", {}, ErrorType.NOT_SUPPORTED),
        ("on", "stopped", {"no_capacity": True}, ErrorType.TRANSIENT),
    ],
)
async def test_what_is_refused_may_work_later_or_never(
    stand: Ec2Stand, act: str, state: str, faults: dict[str, bool], expected: ErrorType | None
) -> None:
    """One that is still stopping can be started later, and one that is being started be stopped; one that is terminated never."""
    stand.ec2.set_state(stand.instance, state)
    stand.ec2.set_faults(**faults)
    done = getattr(stand.driver(), act)(within(5))
    if expected is None:
        await done
    else:
        await fails(done, expected)
        assert stand.machine.log == []
    assert sum(request.is_command for request in stand.ec2.log) == 1


@pytest.mark.parametrize("state", ["running", "stopping", "stopped", "shutting-down", "terminated"])
async def test_an_instance_is_given_up_once_there_is_no_way_back(stand: Ec2Stand, state: str) -> None:
    """S2: accepted is not done."""
    stand.ec2.set_state(stand.instance, state)
    reading = await stand.driver().given_up("", within(5))
    assert (reading.given_up, reading.detail) == (state in {"shutting-down", "terminated"}, state)


async def test_an_instance_that_ec2_does_not_know_is_not_given_up(stand: Ec2Stand) -> None:
    """S3: another account or region looks the same."""
    await fails(stand.driver(instance="i-0123456789abcdef0").given_up("", within(5)), ErrorType.INVALID_CONFIG)


async def test_a_terminated_instance_reads_off_and_its_machine_is(stand: Ec2Stand) -> None:
    driver = stand.driver()
    await driver.terminate(within(5))

    async def is_off() -> bool:
        return (await driver.read(within(5))).state is PowerState.OFF

    await eventually(is_off)
    assert stand.machine.power == "off"


async def test_a_reading_says_which_instance_and_which_host_it_is_about(stand: Ec2Stand) -> None:
    """S39."""
    instance, host = (await stand.driver().read(within(5))).serves
    assert instance == instance_of(stand.instance)
    assert host == host_of(host.removeprefix("host/"))
    assert host.endswith(".internal")


@pytest.mark.parametrize("old", [False, True])
async def test_the_newest_console_output_is_read_and_bounded(stand: Ec2Stand, old: bool) -> None:
    """Older types of instances refuse the newest; what was kept is better than nothing."""
    stand.ec2.write_console(stand.instance, "x" * CONSOLE_LENGTH + "Kernel panic")
    stand.ec2.set_faults(old_console=old)
    output = await stand.driver().console(within(5))
    assert len(output) == CONSOLE_LENGTH
    assert output.endswith("Kernel panic")
    assert [request.form.get("Latest") for request in stand.ec2.requests("GetConsoleOutput")] == ["true", None][: 1 + old]


async def test_a_volume_is_attached_then_detaching_then_available(stand: Ec2Stand) -> None:
    """S1: the path is cut when the volume itself says so."""
    volume = await stand.ec2.volume(stand.instance)
    driver = stand.driver()
    by_name = {reading.volume: reading for reading in await driver.volumes(within(5))}
    assert by_name[volume].state is VolumeState.ATTACHED
    assert [reading.root for reading in by_name.values()] == [True, False]
    assert not by_name[volume].root

    stand.ec2.set_faults(settle=0.3)
    await driver.detach(volume, within(5))
    on_its_way = await driver.read_volume(volume, within(5))
    assert on_its_way.state is VolumeState.ATTACHED
    assert on_its_way.detail == f"in-use, detaching {stand.instance}"
    await driver.detach(volume, within(5))  # accepted, as it is on its way
    ended_at = datetime.now(UTC)

    async def available() -> bool:
        reading = await driver.read_volume(volume, within(5))
        return reading.state is VolumeState.AVAILABLE and reading.at >= ended_at

    await eventually(available)
    await driver.detach(volume, within(5))  # accepted, as it is free
    assert volume not in {reading.volume for reading in await driver.volumes(within(5))}
    forms = [request.form for request in stand.ec2.requests("DetachVolume")]
    assert {(form["InstanceId"], form["Force"]) for form in forms} == {(stand.instance, "true")}


async def test_a_disk_that_goes_with_the_instance_is_its_own(stand: Ec2Stand) -> None:
    """S28, S35: Bottlerocket keeps containers on one, and nobody would attach it again."""
    data, claimed = await stand.ec2.volume(stand.instance), await stand.ec2.volume(stand.instance, device="/dev/sdg")
    stand.ec2.goes_with(data, stand.instance)
    assert {each.volume for each in await stand.driver().volumes(within(5)) if not each.root} == {claimed}


async def test_a_volume_that_ec2_does_not_know_is_never_available(stand: Ec2Stand) -> None:
    """S3: it may have been deleted, or be in another account."""
    driver = stand.driver()
    reading = await driver.read_volume("vol-0123456789abcdef0", within(5))
    assert reading.state is VolumeState.UNKNOWN
    await fails(driver.detach("vol-0123456789abcdef0", within(5)), ErrorType.INVALID_CONFIG)
    for odd in ("projects/p/zones/z/disks/d", "vol-", "", "vol-0abc\n"):
        for act in (driver.read_volume, driver.detach):
            await fails(act(odd, within(5)), ErrorType.INVALID_CONFIG)


@pytest.mark.parametrize(
    ("state", "attachment", "expected"),
    [
        ("available", "", VolumeState.AVAILABLE),
        ("available", "attaching", VolumeState.UNKNOWN),
        ("in-use", "attached", VolumeState.ATTACHED),
        ("in-use", "", VolumeState.ATTACHED),
        ("creating", "", VolumeState.UNKNOWN),
        ("deleting", "", VolumeState.UNKNOWN),
        ("deleted", "", VolumeState.UNKNOWN),
        ("error", "", VolumeState.UNKNOWN),
        ("AVAILABLE", "", VolumeState.UNKNOWN),
        ("", "", VolumeState.UNKNOWN),
    ],
)
async def test_only_the_word_available_without_any_attachment_is_available(
    stand: Ec2Stand, state: str, attachment: str, expected: VolumeState
) -> None:
    """S3."""
    attached = f"<item><status>{attachment}</status><instanceId>i-0abc</instanceId></item>" if attachment else ""
    volume = f"<item><volumeId>vol-0abc</volumeId><status>{state}</status><attachmentSet>{attached}</attachmentSet></item>"
    body = xml("DescribeVolumes", f"<volumeSet>{volume}</volumeSet>")
    async with raw_server(saying("200 OK", body, XML)) as server:
        assert (await stand.driver(endpoint_url=server.url).read_volume("vol-0abc", within(5))).state is expected


async def test_a_volume_of_another_instance_is_left_there(stand: Ec2Stand) -> None:
    """S9."""
    other = await stand.ec2.launch("node-2")
    volume = await stand.ec2.volume(other)
    error = await fails(stand.driver().detach(volume, within(5)), ErrorType.TARGET_CHANGED)
    assert other in str(error)
    assert (await stand.driver(instance=other).read_volume(volume, within(5))).state is VolumeState.ATTACHED


async def test_the_root_volume_of_a_running_instance_stays(stand: Ec2Stand) -> None:
    driver = stand.driver()
    (root,) = [reading for reading in await driver.volumes(within(5)) if reading.root]
    await fails(driver.detach(root.volume, within(5)), ErrorType.NOT_SUPPORTED)


async def test_too_many_requests_are_one_request_that_carried_nothing_out(stand: Ec2Stand) -> None:
    stand.ec2.set_faults(throttle=True)
    for act in (stand.driver().read, stand.driver().off):
        await fails(act(within(5)), ErrorType.RATE_LIMITED)
    assert len(stand.ec2.log) == 2


async def test_a_command_that_fails_after_it_was_carried_out_is_one_request(stand: Ec2Stand) -> None:
    """S33: botocore alone sends up to five for one that hangs."""
    stand.ec2.set_faults(fails_after=True)
    await fails(stand.driver().off(within(5)), ErrorType.AMBIGUOUS, "may have been carried out")
    assert [request.action for request in stand.ec2.log] == ["StopInstances"]


async def test_a_missing_right_is_named_without_its_encoded_details(stand: Ec2Stand) -> None:
    stand.ec2.set_faults(denied=True)
    for act in (stand.driver().read, stand.driver().off):
        error = await fails(act(within(5)), ErrorType.UNAUTHORIZED)
        assert str(error).endswith("UnauthorizedOperation (403): You (***, ***) are not authorized to perform this operation.")


@pytest.mark.parametrize("wrong", [{"key": "AKIA0CANARY0CANARY"}, {"secret": "canary-s3cret/+"}, {"token": "canary-t0ken/+=="}])
async def test_wrong_keys_are_unauthorized_and_shown_nowhere(
    stand: Ec2Stand, wrong: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """S12: the cloud's refusals repeat what they were sent, and botocore logs whole requests."""
    caplog.set_level(logging.DEBUG)
    driver = stand.driver(**wrong)
    error = await fails(driver.off(within(5)), ErrorType.UNAUTHORIZED)
    shown = "".join([repr(driver), repr(error), str(error), *traceback.format_exception(error), caplog.text])
    shown += repr(ec2_driver._CLIENTS.__dict__)
    for secret in (*stand.keys, *wrong.values()):
        assert secret not in shown
    assert "Canonical" not in shown
    assert [request.outcome for request in stand.ec2.log] != ["accepted"]


@pytest.mark.parametrize(
    "given", [{"access-key-id": "AKIACANARY"}, {"secret-access-key": "canary"}, {"session-token": "canary", "access-key-id": ""}]
)
def test_half_a_pair_of_keys_is_refused_without_showing_it(given: dict[str, str]) -> None:
    """S12: and the worker does not act as itself in place of whom it was told to be."""
    with pytest.raises(PowerError, match="expected both access-key-id and secret-access-key") as caught:
        Ec2Factory().build({"region": "us-east-1", "instance": "i-0abc"}, DeviceCredentials(values=given))
    assert caught.value.type is ErrorType.INVALID_CONFIG
    assert "canary" not in str(caught.value).lower()


async def test_an_instance_that_is_protected_is_not_stopped(stand: Ec2Stand) -> None:
    await stand.ec2.protect(stand.instance)
    for act in (stand.driver().off, stand.driver().terminate):
        await fails(act(within(5)), ErrorType.NOT_SUPPORTED)
    assert stand.ec2.state(stand.instance) == "running"


async def test_each_call_is_signed_with_its_own_keys(stand: Ec2Stand) -> None:
    """Clients are shared by all; what signs is not."""

    async def outcome(driver: Ec2Driver) -> PowerState | ErrorType:
        try:
            return (await driver.read(within(10))).state
        except PowerError as error:
            return error.type

    drivers = [stand.driver(), stand.driver(secret="another")] * 8
    assert await asyncio.gather(*map(outcome, drivers)) == [PowerState.ON, ErrorType.UNAUTHORIZED] * 8


@pytest.mark.parametrize(
    "body", ["<html><body>Please log in</body></html>", "<StopInstancesResponse><instancesSet/></StopInstancesResponse>"]
)
async def test_an_answer_that_is_not_ec2s_proves_nothing(stand: Ec2Stand, body: str) -> None:
    """S3: of a hotel's login page, say."""
    async with raw_server(saying("200 OK", body, "Content-Type: text/html")) as server:
        driver = stand.driver(endpoint_url=server.url)
        await fails(driver.off(within(5)), ErrorType.AMBIGUOUS)
        await fails(driver.on(within(5)), ErrorType.TRANSIENT)  # whether it is hibernated is asked before
        await fails(driver.read(within(5)), ErrorType.TRANSIENT)
        await fails(driver.read_volume("vol-0abc", within(5)), ErrorType.TRANSIENT)


async def test_an_endless_answer_is_not_kept_in_memory(stand: Ec2Stand) -> None:
    async def flood(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while True:
            writer.write(b" " * 1_000_000)
            await writer.drain()

    async with raw_server(flood) as server:
        await fails(stand.driver(endpoint_url=server.url).read(within(10)), ErrorType.UNREACHABLE, "ClientPayloadError")


async def test_no_thread_is_left_with_a_call_that_has_hung(stand: Ec2Stand) -> None:
    """S34: as many as there are can meet at once afterwards."""
    stand.ec2.set_faults(silent=True)
    calls = (stand.driver().off(within(2.0)) for _ in range(5))  # time enough for a busy machine to connect and send each
    await asyncio.gather(*(fails(call, ErrorType.AMBIGUOUS) for call in calls))
    meeting = threading.Barrier(cloud_call.CALLS_AT_ONCE)
    met = [cloud_call.THREADS.submit(meeting.wait, 10) for _ in range(cloud_call.CALLS_AT_ONCE)]
    await asyncio.gather(*(asyncio.wrap_future(future) for future in met))


@dataclass
class Gate:
    """A way to a cloud that lets nothing pass, in either direction, before it is opened; the TLS handshake neither."""

    url: str
    opened: asyncio.Event


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return issue("127.0.0.1")


@pytest.fixture
async def far(
    moto: MotoServer, certificates: Certificates, stand: Ec2Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Ec2Cloud, Gate]]:
    """The same cloud by TLS, behind a gate."""
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(certificates.authority_pem)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
    async with Ec2Cloud(moto.url, tls=certificates.context) as ec2:
        ec2.access_key_id, ec2.secret_access_key, ec2.session_token = stand.keys
        opened = asyncio.Event()
        port = int(ec2.url.rpartition(":")[2])

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await opened.wait()
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
            with suppress(ConnectionError):
                await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))

        server = await asyncio.start_server(pass_on, "127.0.0.1", 0)
        async with server:
            yield ec2, Gate(url=f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", opened=opened)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    finally:
        writer.close()


async def test_an_untrusted_certificate_gets_no_command(
    stand: Ec2Stand, far: tuple[Ec2Cloud, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S12: a session token is for EC2 alone."""
    ec2, gate = far
    monkeypatch.delenv("AWS_CA_BUNDLE")
    gate.opened.set()
    await fails(stand.driver(endpoint_url=gate.url).off(within(5)), ErrorType.UNREACHABLE, "ertificate")
    assert ec2.log == []


async def test_a_command_whose_moment_passes_while_it_connects_is_not_sent(stand: Ec2Stand, far: tuple[Ec2Cloud, Gate]) -> None:
    """S20: the last look at the clock comes after the handshake."""
    ec2, gate = far
    moment = datetime.now(UTC) + timedelta(seconds=0.3)
    asyncio.get_running_loop().call_later(0.35, gate.opened.set)
    deadline = Deadline.within(timedelta(seconds=10), not_after=moment)
    await fails(stand.driver(endpoint_url=gate.url).off(deadline), ErrorType.EXPIRED)
    # A question is not licensed and so does not expire; and it comes through, so the gate was open.
    assert (await stand.driver(endpoint_url=gate.url).read(deadline)).state is PowerState.ON
    assert [request.action for request in ec2.log] == ["DescribeInstances"]


async def test_nothing_is_sent_once_a_call_is_over(stand: Ec2Stand, far: tuple[Ec2Cloud, Gate]) -> None:
    """S34: neither after its deadline nor after it was cancelled."""
    ec2, gate = far
    driver = stand.driver(endpoint_url=gate.url)
    await fails(driver.off(within(BRIEF)), ErrorType.UNREACHABLE, "no connection")
    cancelled = asyncio.create_task(driver.off(within(10)))
    await asyncio.sleep(0.1)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    gate.opened.set()
    assert (await driver.read(within(5))).state is PowerState.ON
    assert [request.action for request in ec2.log] == ["DescribeInstances"]


async def test_what_the_kernel_still_holds_of_a_call_that_is_over_is_thrown_away(stand: Ec2Stand) -> None:
    """S34: a socket that is merely closed would go on delivering it."""
    ends: asyncio.Queue[type[BaseException] | None] = asyncio.Queue()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(65536):
                pass
            ends.put_nowait(None)
        except ConnectionResetError as error:
            ends.put_nowait(type(error))
        finally:
            writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await fails(stand.driver(endpoint_url=url).off(within(2.0)), ErrorType.AMBIGUOUS)
        assert await asyncio.wait_for(ends.get(), 10) is ConnectionResetError


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker without any AWS identity, who has not looked for one yet."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ROLE_ARN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setattr(ec2_driver, "_OWN_IDENTITY", ec2_driver._OwnIdentity())


def own_identity(stand: Ec2Stand) -> Ec2Driver:
    parameters = {"region": stand.ec2.region, "instance": stand.instance, "endpoint-url": stand.ec2.url}
    return Ec2Factory(trusted=frozenset({stand.ec2.url})).build(parameters, DeviceCredentials())


@pytest.mark.parametrize(
    ("url", "goes"),
    [
        ("https://ec2.eu-west-1.amazonaws.com", True),
        ("https://vpce-1a-ec2.eu-west-1.vpce.amazonaws.com", True),
        ("https://ec2.cn-north-1.amazonaws.com.cn:443", True),
        ("https://ec2.eu-west-1.api.aws", True),
        ("https://collector.example.com", False),
        ("https://amazonaws.com.example.com", False),
        ("https://notamazonaws.com", False),
        ("http://127.0.0.1:8080", False),
    ],
)
def test_the_workers_own_identity_goes_to_amazon_and_to_what_its_operator_trusts_only(url: str, *, goes: bool) -> None:
    """S40: whoever writes a template may name any address."""
    parameters = {"region": "us-east-1", "instance": "i-0123456789abcdef0", "endpoint-url": url}
    keys = DeviceCredentials(values={"access-key-id": "a", "secret-access-key": "b"})
    for factory, credentials in ((Ec2Factory(trusted=frozenset({url})), DeviceCredentials()), (Ec2Factory(), keys)):
        factory.build(parameters, credentials)
    if goes:
        Ec2Factory().build(parameters, DeviceCredentials())
        return
    with pytest.raises(PowerError, match=r"worker\.cloud_endpoints: expected credentials \(access-key-id\)") as refusal:
        Ec2Factory().build(parameters, DeviceCredentials())
    assert refusal.value.type is ErrorType.INVALID_CONFIG


async def test_a_worker_acts_as_itself_where_no_keys_were_given(
    stand: Ec2Stand, nobody: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"), stand.keys, strict=True):
        monkeypatch.setenv(name, value)
    assert (await own_identity(stand).read(within(5))).state is PowerState.ON


async def test_a_worker_without_any_identity_is_unauthorized(stand: Ec2Stand, nobody: None) -> None:
    await fails(own_identity(stand).off(within(5)), ErrorType.UNAUTHORIZED, "no AWS identity of its own")
    assert stand.ec2.log == []


async def test_an_identity_that_does_not_come_is_waited_for_until_the_deadline_only(
    stand: Ec2Stand, nobody: None, tmp_path: Path
) -> None:
    """S34: and the one that comes late sends nothing."""
    await stand.driver().read(within(5))  # what is loaded at first is not what is waited for here
    asked = len(stand.ec2.log)
    here, gone = tmp_path / "here", tmp_path / "gone"
    script = tmp_path / "identity.sh"
    script.write_text(f"#!/bin/sh\ntouch {here}\nread line < {gone}\n")
    script.chmod(0o700)
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {script}\n")
    os.mkfifo(gone)
    await fails(own_identity(stand).off(within(BRIEF)), ErrorType.UNREACHABLE, "no credentials were had")
    await asyncio.wait_for(asyncio.to_thread(gone.write_text, "now\n"), 10)
    assert here.exists()
    gone.unlink()  # what is looked for after that look-up waits for nothing
    gone.write_text("now\n")
    await fails(own_identity(stand).off(within(5)), ErrorType.UNAUTHORIZED)
    assert len(stand.ec2.log) == asked


# The security groups of an EC2 instance: cut to one, and given back exactly, whatever is lost or changed in between.


@pytest.fixture(scope="module")
async def ec2() -> AsyncIterator[Ec2Cloud]:
    async with MotoServer() as moto, Ec2Cloud(moto.url) as cloud:
        yield cloud


@pytest.fixture(scope="module")
async def groups(ec2: Ec2Cloud) -> list[str]:
    return [await ec2.security_group(name) for name in ("shut", "nodes", "extra", "other")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ward:
    """An instance with two interfaces, and what they had."""

    stand: Ec2Stand
    shut: str
    before: dict[str, set[str]]

    @property
    def now(self) -> dict[str, set[str]]:
        return self.stand.ec2.groups(self.stand.instance)

    @property
    def cut(self) -> dict[str, set[str]]:
        return {interface: {self.shut} for interface in self.before}

    @property
    def memory(self) -> dict[str, str]:
        return {key: text for key, text in self.stand.ec2.tags(self.stand.instance).items() if key.startswith(TAG)}

    def driver(self) -> Ec2Driver:
        return self.stand.driver(quarantine_group=self.shut)

    def changes(self) -> list[str]:
        return [request.action for request in self.stand.ec2.log if request.is_command]


@pytest.fixture
async def ward(ec2: Ec2Cloud, groups: list[str]) -> AsyncIterator[Ward]:
    shut, nodes, extra, _ = groups
    async with stand_in(ec2) as stand:
        instance = await ec2.launch("node-1", interfaces=((nodes, extra), (nodes,)))
        yield Ward(stand=replace(stand, instance=instance), shut=shut, before=ec2.groups(instance))


def listed(groups: dict[str, set[str]]) -> tuple[InterfaceGroups, ...]:
    return tuple(InterfaceGroups(interface=name, groups=tuple(sorted(found))) for name, found in sorted(groups.items()))


@pytest.mark.parametrize("remembered", [True, False])
async def test_every_interface_is_cut_and_gets_back_exactly_what_it_had(ward: Ward, remembered: bool) -> None:
    quarantine = await ward.driver().quarantine(within(5))
    assert ward.now == ward.cut
    assert (quarantine.group, quarantine.former) == (ward.shut, listed(ward.before))
    assert len(ward.memory) == 2

    in_force = await ward.driver().lift_quarantine(quarantine if remembered else None, within(5))
    assert in_force == listed(ward.before)
    assert ward.now == ward.before
    assert ward.memory == {}


async def test_each_answer_may_be_lost_and_it_is_done_and_remembered_once(ward: Ward) -> None:
    """S33: what is carried out already is not asked for again, and what was there before is not forgotten over it."""
    ward.stand.ec2.set_faults(drop_answers=True)
    for _ in range(3):
        await fails(ward.driver().quarantine(within(5)), ErrorType.AMBIGUOUS)
    quarantine = await ward.driver().quarantine(within(5))
    assert quarantine.former == listed(ward.before)
    assert ward.now == ward.cut
    assert ward.changes() == ["CreateTags", "ModifyNetworkInterfaceAttribute", "ModifyNetworkInterfaceAttribute"]

    ward.stand.ec2.log.clear()
    for _ in range(3):
        await fails(ward.driver().lift_quarantine(quarantine, within(5)), ErrorType.AMBIGUOUS)
    assert await ward.driver().lift_quarantine(quarantine, within(5)) == listed(ward.before)
    assert ward.now == ward.before
    assert ward.changes() == ["ModifyNetworkInterfaceAttribute", "ModifyNetworkInterfaceAttribute", "DeleteTags"]


async def test_a_quarantine_half_done_is_ambiguous_and_names_what_is_done(ward: Ward, groups: list[str]) -> None:
    first, second = sorted(ward.before)
    driver = ward.driver()
    answered = driver.api.command

    async def refuse_the_second(act: str, operation: str, deadline: object, **parameters: object) -> object:
        if parameters.get("NetworkInterfaceId") == second:
            raise PowerError(ErrorType.RATE_LIMITED, "too many requests")
        return await answered(act, operation, deadline, **parameters)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(driver.api), "command", lambda _, *rest, **named: refuse_the_second(*rest, **named))
        with pytest.raises(PowerError, match=f"too many requests; of 2 interfaces only {first} is changed") as caught:
            await driver.quarantine(within(5))
    assert caught.value.type is ErrorType.AMBIGUOUS
    assert ward.now == {first: {ward.shut}, second: ward.before[second]}
    assert (await driver.quarantine(within(5))).former == listed(ward.before)


async def test_a_memory_that_does_not_show_yet_is_not_overwritten(ward: Ward) -> None:
    """EC2 shows tags late: a record that was made blind says the group itself, and lifting believes the tags instead."""
    await ward.driver().quarantine(within(5))
    blind = Quarantine(group=ward.shut, former=listed(ward.cut), at=(await ward.driver().read(within(5))).at)
    assert await ward.driver().lift_quarantine(blind, within(5)) == listed(ward.before)
    assert ward.now == ward.before


async def test_groups_that_were_changed_meanwhile_stay(ward: Ward, groups: list[str]) -> None:
    """S28: only what is ours is undone."""
    other = groups[-1]
    first, second = sorted(ward.before)
    quarantine = await ward.driver().quarantine(within(5))
    await by_hand(ward, first, other)
    in_force = await ward.driver().lift_quarantine(quarantine, within(5))
    assert in_force == listed({first: {other}, second: ward.before[second]})
    assert ward.now == {first: {other}, second: ward.before[second]}


async def test_an_interface_that_was_detached_meanwhile_gets_its_groups_back_too(ward: Ward) -> None:
    quarantine = await ward.driver().quarantine(within(5))
    backend = ward.stand.ec2._backend
    second = next(name for name in ward.before if backend.enis[name].device_index == 1)
    backend.detach_network_interface(backend.enis[second].attachment_id)
    assert await ward.driver().lift_quarantine(quarantine, within(5)) == listed(ward.before)
    assert {group.id for group in backend.enis[second].group_set} == ward.before[second]


@pytest.mark.parametrize("fewer_later", [False, True])
async def test_as_many_groups_as_an_interface_can_have_are_remembered(ward: Ward, *, fewer_later: bool) -> None:
    """A tag holds 256 characters. A shorter memory replaces a longer one."""
    many = [await ward.stand.ec2.security_group(f"group-{number}") for number in range(16)]
    first = min(ward.before)
    await by_hand(ward, first, *many)
    await ward.driver().quarantine(within(5))
    assert all(len(text) <= TAG_LENGTH for text in ward.memory.values())
    if fewer_later:
        await by_hand(ward, first, *many[:1])
        await ward.driver().quarantine(within(5))
    await ward.driver().lift_quarantine(None, within(5))
    assert ward.now[first] == set(many[:1] if fewer_later else many)
    assert ward.memory == {}


async def test_what_is_not_remembered_is_reported_and_left(ward: Ward) -> None:
    for interface in ward.before:
        await by_hand(ward, interface, ward.shut)
    await fails(ward.driver().lift_quarantine(None, within(5)), ErrorType.INVALID_CONFIG, "does not remember")
    assert ward.now == ward.cut


async def test_without_a_group_there_is_no_quarantine_and_one_in_force_can_be_lifted(ward: Ward) -> None:
    without = ward.stand.driver()
    assert PowerCapability.QUARANTINE not in without.capabilities
    assert PowerCapability.QUARANTINE in ward.driver().capabilities
    for act in (without.quarantine(within(5)), without.lift_quarantine(None, within(5))):
        await fails(act, ErrorType.NOT_SUPPORTED, "quarantine-group")
    quarantine = await ward.driver().quarantine(within(5))
    await without.lift_quarantine(quarantine, within(5))
    assert ward.now == ward.before


async def by_hand(ward: Ward, interface: str, *groups: str) -> None:
    await ward.stand.ec2.set_groups(interface, groups)


# The common contract, by boto3's requests to moto with EC2's rules before it.

COMMANDS = {"StopInstances": "off", "StartInstances": "on"}


class Ec2Bench(Bench):
    """An instance of a cloud. The password is the secret key."""

    stalls_within = 0.4

    def __init__(self, stand: Ec2Stand) -> None:
        super().__init__(stand.machine)
        self._stand = stand
        self.secrets = stand.keys  # type: ignore[misc]

    def driver(self, *, password: str | None = None, target: str | None = None) -> PowerDriver:
        instance = "i-0badc0ffee0ddf00d" if target is not None else self._stand.instance
        return self._stand.driver(secret=password, instance=instance)

    async def commands(self) -> list[str]:
        done = [request for request in self._stand.ec2.log if request.outcome in {"accepted", "ignored"}]
        return [COMMANDS[request.action] for request in done if request.action in COMMANDS]

    async def be_silent(self) -> None:
        self._stand.ec2.set_faults(silent=True)

    async def lose_answers(self) -> None:
        self._stand.ec2.set_faults(lose_answers=True)

    async def take_time(self, seconds: float) -> None:
        self._stand.ec2.set_faults(settle=seconds)


@pytest.fixture
async def bench(ec2: Ec2Cloud) -> AsyncIterator[Ec2Bench]:
    async with stand_in(ec2) as stand:
        yield Ec2Bench(stand)


class TestEc2(DriverConformance):
    silence = ErrorType.AMBIGUOUS
