"""Compute Engine beyond the common contract: states, disks, what each refusal means, tokens, and what never shows."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import traceback
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from hypothesis import given, settings
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.contracts.power import CommandResult, GivenUpRequest, PowerRequest
from activities.contracts.target import Target
from activities.errors import ErrorType
from activities.power.cloud_call import CallStage, CloudCall, HttpAnswer, HttpRequest
from activities.power.driver import Deadline, DeviceCredentials, PowerDriver, PowerError
from activities.power.gce.driver import CONSOLE_BYTES, Disk, GceDriver, GceFactory
from activities.power.service import PowerService
from policy.episode.messages import Pinned
from policy.fence.drivers import parameters_of
from policy.fence.drivers.gce import GCE, PUBLIC_API, GceInstance, instance_of_provider_id
from policy.fence.plan import PowerDevice
from policy.fence.power import PowerState, VolumeState, instance_in, instance_of
from simulator.api.access.certificates import issue
from tests.licensing import BELIEVING
from tests.power.conformance import Bench, DriverConformance
from tests.power.conftest import fails, within
from tests.power.gce.stand import NAME, PROJECT, ZONE, GceStand, gce_stand, load_client
from tests.power.raw_server import Answer, RawServer, dripping, hanging_up, raw_server, saying
from tests.power.targets import endpoint_of

COMMANDS = ("stop", "start", "reset", "detachDisk", "delete")
HANDLE = f"projects/{PROJECT}/zones/{ZONE}/disks"


class NoCredentials:
    """A device that needs none."""

    async def read(self, cluster: str, device: PowerDevice) -> DeviceCredentials:
        return DeviceCredentials()


@pytest.fixture(scope="module", autouse=True)
def client_is_loaded() -> None:
    load_client()


@pytest.fixture
async def stand() -> AsyncIterator[GceStand]:
    """Without tokens, whose keys take a noticeable time to read."""
    async with gce_stand(anonymous=True) as running:
        yield running


@pytest.fixture
async def signed() -> AsyncIterator[GceStand]:
    """With a service account."""
    async with gce_stand() as running:
        yield running


def unsigned(server: RawServer | str) -> GceDriver:
    """The driver before a server that asks for no token."""
    url = server if isinstance(server, str) else server.url
    parameters = {"project": PROJECT, "zone": ZONE, "instance": NAME, "api-endpoint": url}
    return GceFactory().build(parameters, DeviceCredentials())


def worker_identity(monkeypatch: pytest.MonkeyPatch, folder: Path, key: str) -> None:
    """Application Default Credentials in a file, and none to be found anywhere else."""
    (folder / "key.json").write_text(key)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(folder / "key.json"))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(folder / "none"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


def secrets_of(key: str, *others: str) -> list[str]:
    """What a log could show of a key: each line of the private key, and its id."""
    content = json.loads(key)
    return [content["private_key_id"], *content["private_key"].splitlines()[1:-1], *others]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        *((status, PowerState.ON) for status in ("RUNNING", "STAGING", "PROVISIONING", "PENDING")),
        *((status, PowerState.OFF) for status in ("TERMINATED", "STOPPED")),
        *((status, PowerState.UNKNOWN) for status in ("STOPPING", "PENDING_STOP", "DEPROVISIONING", "SUSPENDING", "SUSPENDED")),
        *((status, PowerState.UNKNOWN) for status in ("REPAIRING", "SOME_STATE_TO_COME", "")),
    ],
)
async def test_only_a_machine_that_has_stopped_for_good_is_off(stand: GceStand, status: str, state: PowerState) -> None:
    """S3: under way, suspended, under repair or unheard of is never off."""
    stand.instance.status = status
    reading = await stand.driver().read(within(10))
    assert reading.state is state
    assert (status or "no status") in reading.detail


@pytest.mark.parametrize("command", ["off", "on"])
@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        ("SUSPENDED", ErrorType.NOT_SUPPORTED, "SUSPENDED with its memory kept: expected a person to resume or delete it"),
        ("SUSPENDING", ErrorType.TRANSIENT, "is not ready"),
    ],
)
async def test_a_suspended_machine_is_a_person_s_case_and_is_never_resumed(
    stand: GceStand, command: str, status: str, kind: ErrorType, says: str
) -> None:
    """S3, S5: it is not off, and its guest would go on in the middle of a write."""
    stand.instance.status = status
    driver = stand.driver()
    await fails((driver.off if command == "off" else driver.on)(within(10)), kind, says)
    assert (await driver.read(within(10))).state is PowerState.UNKNOWN
    assert stand.instance.machine.log == []
    assert {entry.verb for entry in stand.cloud.log} == {"stop" if command == "off" else "start", "get"}


async def test_a_stop_says_what_becomes_of_scratch_disks(stand: GceStand) -> None:
    """Compute Engine refuses a stop that leaves it open."""
    stand.cloud.compute.add_local_ssd(stand.instance)
    await stand.driver(discard_local_ssd="false").off(within(10))
    await stand.instance.machine.wait_for("off")
    (stopped,) = [entry for entry in stand.cloud.log if entry.verb == "stop"]
    assert (stopped.query["discardLocalSsd"], stopped.query["noGracefulShutdown"]) == ("false", "true")


async def test_each_command_carries_a_request_id_of_its_own(stand: GceStand) -> None:
    """S33: a copy made on the way is not carried out again."""
    driver = stand.driver()
    await driver.off(within(10))
    await driver.off(within(10))
    await driver.on(within(10))
    ids = [entry.query["requestId"] for entry in stand.cloud.log if entry.verb in COMMANDS]
    assert len(set(ids)) == 3


async def test_a_command_is_an_empty_request_of_json() -> None:
    """Google refuses a POST without a length, and its own client names the type as well."""
    async with raw_server(saying("200 OK", "{}")) as server:
        await unsigned(server).off(within(10))
    (request,) = server.requests
    head, _, body = request.partition(b"\r\n\r\n")
    assert {b"Content-Length: 0", b"Content-Type: application/json"} <= set(head.split(b"\r\n"))
    assert body == b""


async def test_an_operation_that_has_failed_at_once_is_a_refusal() -> None:
    failed = {"status": "DONE", "error": {"errors": [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "no room"}]}}
    async with raw_server(saying("200 OK", json.dumps(failed))) as server:
        with pytest.raises(PowerError, match="ZONE_RESOURCE_POOL_EXHAUSTED: no room") as caught:
            await unsigned(server).on(within(10))
    assert caught.value.type is ErrorType.TRANSIENT


async def test_the_console_is_its_newest_part_only(stand: GceStand) -> None:
    stand.instance.console = "early " * 100_000 + "Kernel panic - not syncing: é"
    output = await stand.driver().console(within(10))
    assert output.endswith("Kernel panic - not syncing: é")
    assert len(output.encode()) <= CONSOLE_BYTES + 2
    (asked,) = [entry for entry in stand.cloud.log if entry.verb == "serialPort"]
    assert asked.query["start"] == str(-CONSOLE_BYTES)


async def test_a_terminated_instance_is_gone_and_not_off(stand: GceStand) -> None:
    """S3."""
    stand.cloud.compute.seconds = 0.2
    number = instance_in((await stand.driver().read(within(10))).serves)
    await stand.driver().terminate(within(10))
    under_way = await stand.driver().given_up(number, within(10))
    assert (under_way.given_up, under_way.detail) == (False, "STOPPING")
    while stand.instance.path in stand.cloud.compute.instances:
        await asyncio.sleep(0.01)
    assert stand.instance.machine.power == "off"
    assert (await stand.driver().given_up(number, within(10))).given_up
    await fails(stand.driver().read(within(10)), ErrorType.INVALID_CONFIG, "was not found")


async def test_another_instance_of_the_name_is_told_from_the_one_that_was_given_up(stand: GceStand) -> None:
    """S9: a managed group makes a new one at once; without its number nobody can tell."""
    number = str(stand.instance.number)
    assert (await stand.driver().read(within(10))).serves == (instance_of(number),)
    assert not (await stand.driver().given_up(number, within(10))).given_up
    anew = stand.cloud.add_instance(PROJECT, ZONE, NAME)
    reading = await stand.driver().given_up(number, within(10))
    assert (reading.given_up, reading.detail) == (True, f"another instance has its name, number {anew.number}")
    assert not (await stand.driver().given_up("", within(10))).given_up


async def test_giving_a_machine_up_says_which_one_it_was(stand: GceStand) -> None:
    """S1, S9: one that says on is not given up, and its number tells it from the next one of its name."""
    parameters = {"project": PROJECT, "zone": ZONE, "instance": NAME, "api-endpoint": stand.cloud.url}
    device = PowerDevice(driver="gce", endpoint=f"gce://{PROJECT}/{ZONE}/{NAME}", parameters=parameters)
    pinned = Pinned(node=NAME, uid="uid-1", endpoints=(device.endpoint,), levels=((device.endpoint,),))
    target = Target(cluster="prod", pinned=pinned, incident="i", kind="Fencing", workflow_id="w", run_id="r")
    request = PowerRequest(target=target, device=device, deadline=timedelta(seconds=10))
    service = PowerService(NoCredentials(), BELIEVING)
    with pytest.raises(ApplicationError, match="says on, it is not given up"):
        await ActivityEnvironment().run(service.terminate, request)
    stand.instance.status = "TERMINATED"
    commanded: CommandResult = await ActivityEnvironment().run(service.terminate, request)
    assert commanded.machine == str(stand.instance.number)
    asked = GivenUpRequest(target=target, device=device, deadline=timedelta(seconds=10), machine=commanded.machine)
    while not (await ActivityEnvironment().run(service.read_given_up, asked)).given_up:
        await asyncio.sleep(0.01)
    assert stand.instance.path not in stand.cloud.compute.instances


async def test_an_answer_about_something_else_that_is_missing_says_nothing_of_the_instance(stand: GceStand) -> None:
    """S3."""
    stand.cloud.compute.set_faults(refuse=(404, "notFound"))
    with pytest.raises(PowerError):
        await stand.driver().given_up("1", within(10))


async def test_attached_disks_are_listed_as_csi_handles_with_the_boot_disk_marked(stand: GceStand) -> None:
    compute = stand.cloud.compute
    compute.attach(stand.instance, compute.add_disk(PROJECT, "data", zone=ZONE))
    compute.attach(stand.instance, compute.add_disk(PROJECT, "shared", region="europe-west1"))
    compute.attach(stand.instance, compute.add_disk(PROJECT, "containers", zone=ZONE), auto_delete=True)
    compute.add_local_ssd(stand.instance)
    volumes = await stand.driver().volumes(within(10))
    assert {volume.volume: volume.root for volume in volumes} == {
        f"{HANDLE}/{NAME}": True,
        f"{HANDLE}/containers": True,
        f"{HANDLE}/data": False,
        f"projects/{PROJECT}/regions/europe-west1/disks/shared": False,
    }
    assert {volume.state for volume in volumes} == {VolumeState.ATTACHED}


@pytest.mark.parametrize(
    "volume",
    [
        f"{HANDLE}/data",
        "data",
        f"https://www.googleapis.com/compute/v1/{HANDLE}/data",
        "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/data",
    ],
)
async def test_a_disk_is_detached_by_any_spelling_and_then_read_as_available(stand: GceStand, volume: str) -> None:
    """The path is cut only when the disk itself says that nobody uses it."""
    compute, driver = stand.cloud.compute, stand.driver()
    compute.attach(stand.instance, compute.add_disk(PROJECT, "data", zone=ZONE))
    before = await driver.read_volume(volume, within(10))
    assert (before.state, before.volume) == (VolumeState.ATTACHED, volume)
    assert NAME in before.detail
    await driver.detach(volume, within(10))
    while (await driver.read_volume(volume, within(10))).state is not VolumeState.AVAILABLE:
        assert compute.disk(f"{HANDLE}/data").users
    assert [reading.volume for reading in await driver.volumes(within(10))] == [f"{HANDLE}/{NAME}"]
    assert stand.cloud.verbs("detachDisk") == ["detachDisk"]


async def test_a_regional_disk_is_detached_from_this_machine_only(stand: GceStand) -> None:
    compute, driver = stand.cloud.compute, stand.driver()
    disk = compute.add_disk(PROJECT, "shared", region="europe-west1")
    compute.attach(stand.instance, disk)
    compute.attach(stand.cloud.add_instance(PROJECT, ZONE, "node-2"), disk)
    await driver.detach(disk.path, within(10))
    while len(disk.users) > 1:
        await asyncio.sleep(0.01)
    reading = await driver.read_volume(disk.path, within(10))
    assert reading.state is VolumeState.ATTACHED  # by the other machine, which may go on writing
    assert "node-2" in reading.detail


@pytest.mark.parametrize("status", ["CREATING", "RESTORING", "FAILED", "DELETING", "UNAVAILABLE", ""])
async def test_an_unused_disk_is_available_only_when_it_is_ready(stand: GceStand, status: str) -> None:
    """S3."""
    stand.cloud.compute.add_disk(PROJECT, "data", zone=ZONE).status = status
    assert (await stand.driver().read_volume("data", within(10))).state is VolumeState.UNKNOWN


async def test_a_disk_that_is_not_there_is_unknown_and_never_available(stand: GceStand) -> None:
    """S3."""
    for volume in ("data", f"{HANDLE}/data", f"projects/{PROJECT}/regions/europe-west1/disks/data"):
        assert (await stand.driver().read_volume(volume, within(10))).state is VolumeState.UNKNOWN


async def test_a_boot_disk_stays_with_its_running_machine(stand: GceStand) -> None:
    await fails(stand.driver().detach(NAME, within(10)), ErrorType.NOT_SUPPORTED, "boot disk cannot be detached")
    assert stand.instance.attachments[0].disk is not None


@pytest.mark.parametrize(
    "volume", ["", "Data", "projects/p/disks/d", "../x", f"{HANDLE}/data/", "data\n", "projects/../zones/z/disks/d", "vol/0abc"]
)
async def test_a_volume_of_another_kind_is_refused_before_anything_is_asked(stand: GceStand, volume: str) -> None:
    for act in (stand.driver().read_volume, stand.driver().detach):
        await fails(act(volume, within(10)), ErrorType.INVALID_CONFIG, "is none of Compute Engine")
    assert stand.cloud.log == []


@pytest.mark.parametrize(
    ("status", "reason", "asked", "commanded"),
    [
        (400, "badRequest", ErrorType.NOT_SUPPORTED, ErrorType.NOT_SUPPORTED),
        (400, "resourceNotReady", ErrorType.TRANSIENT, ErrorType.TRANSIENT),
        (401, "authError", ErrorType.UNAUTHORIZED, ErrorType.UNAUTHORIZED),
        (403, "forbidden", ErrorType.UNAUTHORIZED, ErrorType.UNAUTHORIZED),
        (403, "rateLimitExceeded", ErrorType.RATE_LIMITED, ErrorType.RATE_LIMITED),
        (403, "quotaExceeded", ErrorType.RATE_LIMITED, ErrorType.RATE_LIMITED),
        (404, "notFound", ErrorType.INVALID_CONFIG, ErrorType.INVALID_CONFIG),
        (408, "timeout", ErrorType.TRANSIENT, ErrorType.AMBIGUOUS),
        (409, "conflict", ErrorType.TRANSIENT, ErrorType.TRANSIENT),
        (412, "conditionNotMet", ErrorType.NOT_SUPPORTED, ErrorType.NOT_SUPPORTED),
        (429, "rateLimitExceeded", ErrorType.RATE_LIMITED, ErrorType.RATE_LIMITED),
        (500, "internalError", ErrorType.TRANSIENT, ErrorType.AMBIGUOUS),
        (503, "backendError", ErrorType.TRANSIENT, ErrorType.AMBIGUOUS),
    ],
)
async def test_each_refusal_has_its_type_and_is_met_once(
    stand: GceStand, status: int, reason: str, asked: ErrorType, commanded: ErrorType
) -> None:
    """S33: nothing is repeated behind the workflow's back, whatever the client would do by itself."""
    stand.cloud.set_faults(refuse=(status, reason))
    driver = stand.driver()
    for act, expected in ((driver.read, asked), (driver.off, commanded)):
        await fails(act(within(10)), expected, f"answers {status}: {reason}")
    looks_into_it = commanded in {ErrorType.TRANSIENT, ErrorType.NOT_SUPPORTED}  # is the instance suspended?
    assert stand.cloud.verbs("get", "stop") == ["get", "stop", "get"][: 3 if looks_into_it else 2]
    assert stand.instance.machine.log == []


async def test_whether_its_time_is_over_or_it_is_cancelled_an_act_lets_go_of_its_connection() -> None:
    """S34: nothing of it is left in flight."""
    async with raw_server(dripping) as server:
        began = time.monotonic()
        await fails(unsigned(server).off(within(0.3)), ErrorType.AMBIGUOUS)
        assert time.monotonic() - began < 1.3
        await asyncio.wait_for(server.gone.wait(), 5)
    async with raw_server(dripping) as server:
        act = asyncio.ensure_future(unsigned(server).off(within(30)))
        while not server.requests:
            await asyncio.sleep(0.01)
        act.cancel()
        with pytest.raises(asyncio.CancelledError):
            await act
        await asyncio.wait_for(server.gone.wait(), 5)


async def test_a_redirect_is_not_followed() -> None:
    """S33: it would send a command a second time, and the token to somebody else."""
    async with raw_server(saying("307 Temporary Redirect", "", "Location: /compute/v1/elsewhere")) as server:
        await fails(unsigned(server).off(within(10)), ErrorType.INVALID_CONFIG, "redirects to /compute/v1/elsewhere")
        assert len(server.requests) == 1


async def test_an_answer_of_something_else_is_no_state_and_no_success() -> None:
    """S3, S34: neither where all is said to be well nor where it is not. `tests/fuzz` has stranger ones."""
    body = "<html>Log in to the hotel's network</html>"
    async with raw_server(saying("200 OK", body)) as server:
        for act, expected in ((unsigned(server).read, ErrorType.UNREACHABLE), (unsigned(server).off, ErrorType.AMBIGUOUS)):
            await fails(act(within(10)), expected, "the answer is none of Compute Engine's")
    async with raw_server(saying("502 Bad Gateway", body)) as server:
        await fails(unsigned(server).off(within(10)), ErrorType.AMBIGUOUS, "answers 502")


async def test_a_dead_port_is_unreachable_and_nothing_was_commanded() -> None:
    for act in ("read", "off"):
        await fails(
            getattr(unsigned("http://127.0.0.1:9"), act)(within(10)),
            ErrorType.UNREACHABLE,
            r"Connection refused\); nothing was commanded",
        )


async def test_a_command_whose_time_passes_before_it_can_be_sent_is_not_sent(signed: GceStand) -> None:
    """S20: the token took too long."""
    signed.cloud.set_faults(delay=0.3)
    deadline = Deadline.within(timedelta(seconds=10), not_after=datetime.now(UTC) + timedelta(seconds=0.1))
    await fails(signed.driver().off(deadline), ErrorType.EXPIRED, "it was not sent")
    assert signed.cloud.verbs() == ["token"]


async def test_a_library_that_loads_slowly_is_no_fault_of_the_instance() -> None:
    """The first act of a worker pays for it; nothing was sent, and it may be tried again."""
    loaded = threading.Event()
    act = CloudCall("gce://p/z/i", "read", within(0.1), command=False)

    def load() -> None:
        act.stage = CallStage.LOADING
        loaded.wait(10)

    with pytest.raises(PowerError, match=r"was still being loaded within 0\.1 s; nothing was sent") as caught:
        await act.run(load)
    loaded.set()
    assert caught.value.type is ErrorType.TRANSIENT


async def test_a_token_serves_until_it_is_refused(signed: GceStand) -> None:
    await signed.driver().read(within(10))
    await signed.driver().read(within(10))
    assert signed.cloud.verbs() == ["token", "get", "get"]
    signed.cloud.tokens.revoke_all()
    await fails(signed.driver().read(within(10)), ErrorType.UNAUTHORIZED, "answers 401")
    await signed.driver().read(within(10))
    assert signed.cloud.verbs() == ["token", "get", "get", "get", "token", "get"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (saying("400 Bad Request", '{"error": "invalid_grant", "error_description": "no"}'), ErrorType.UNAUTHORIZED),
        (saying("403 Forbidden", "<html>"), ErrorType.UNAUTHORIZED),
        (hanging_up, ErrorType.UNREACHABLE),
        (dripping, ErrorType.UNREACHABLE),
    ],
)
async def test_without_a_token_nothing_is_asked(signed: GceStand, answer: Answer, expected: ErrorType) -> None:
    async with raw_server(answer) as server:
        key = json.dumps(json.loads(signed.key) | {"token_uri": f"{server.url}/token"})
        await fails(signed.driver(key=key).off(within(2.0 if answer is dripping else 10.0)), expected)
        assert server.requests
        assert signed.cloud.log == []


async def test_each_act_goes_out_with_its_own_token(signed: GceStand, monkeypatch: pytest.MonkeyPatch) -> None:
    """S12, S20: also where several are about to be sent at once."""
    from activities.power.gce import client

    accounts = [f"worker-{number}@test.iam.gserviceaccount.com" for number in range(4)]
    all_here, send = threading.Barrier(4, timeout=10), client._sent

    def together(call: CloudCall, request: HttpRequest, *, itself: bool, patience: float | None = None) -> HttpAnswer:
        if itself:
            all_here.wait()
        return send(call, request, itself=itself, patience=patience)

    monkeypatch.setattr(client, "_sent", together)
    drivers = [signed.driver(key=signed.cloud.service_account(account)) for account in accounts]
    await asyncio.gather(*(driver.read(within(10)) for driver in drivers))
    assert sorted(entry.account for entry in signed.cloud.log if entry.verb == "get") == accounts


@pytest.mark.parametrize(
    ("url", "goes"),
    [
        ("https://compute.googleapis.com", True),
        ("https://compute-internal.p.googleapis.com", True),
        ("https://collector.example.com", False),
        ("https://googleapis.com.example.com", False),
        ("https://notgoogleapis.com", False),
        ("https://127.0.0.1:8443", False),
    ],
)
def test_the_workers_own_identity_goes_to_google_and_to_what_its_operator_trusts_only(url: str, *, goes: bool) -> None:
    """S40: whoever writes a template may name any address."""
    parameters = {"project": PROJECT, "zone": ZONE, "instance": NAME, "api-endpoint": url}
    GceFactory(trusted=frozenset({url})).build(parameters, DeviceCredentials())
    if goes:
        GceFactory().build(parameters, DeviceCredentials())
        return
    with pytest.raises(PowerError, match=r"worker\.cloud_endpoints: expected credentials \(service-account-json\)") as refusal:
        GceFactory().build(parameters, DeviceCredentials())
    assert refusal.value.type is ErrorType.INVALID_CONFIG


async def test_without_a_key_the_worker_is_known_by_its_own_identity(
    signed: GceStand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from activities.power.gce.client import Account

    act = CloudCall("gce://p/z/i", "read", within(10), command=False)
    worker_identity(monkeypatch, tmp_path, signed.key)
    token = await asyncio.to_thread(Account(None).authorization, act)
    assert signed.cloud.tokens.account(token) == json.loads(signed.key)["client_email"]
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    await fails(
        asyncio.to_thread(Account(None).authorization, act), ErrorType.INVALID_CONFIG, "the worker has no identity of its own"
    )


async def test_in_google_s_cloud_the_metadata_server_says_who_the_worker_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It spells the names of its headers as it likes."""
    from google.auth.compute_engine import _metadata

    from activities.power.gce.client import Account

    async def answer(request: web.BaseRequest) -> web.Response:
        headers = {"Metadata-Flavor": "Google"}
        if request.path.endswith("/token"):
            return web.json_response({"access_token": "of the worker", "expires_in": 3600}, headers=headers)
        return web.json_response({"email": "worker@test.iam.gserviceaccount.com", "scopes": []}, headers=headers)

    async with RawTestServer(answer, host="127.0.0.1") as server:
        where = f"127.0.0.1:{server.port}"
        monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", where)
        monkeypatch.setattr(_metadata, "_NO_GCE_CHECK", value=False)
        monkeypatch.setenv("GCE_METADATA_IP", where)
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
        monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
        act = CloudCall("gce://p/z/i", "read", within(10), command=False)
        assert await asyncio.to_thread(Account(None).authorization, act) == "Bearer of the worker"


@pytest.mark.parametrize("trusted", [True, False])
async def test_tls_is_spoken_and_its_certificate_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, trusted: bool
) -> None:
    certificates = issue("127.0.0.1")
    if trusted:
        bundle = tmp_path / "authority.pem"
        bundle.write_bytes(certificates.authority_pem)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    async with gce_stand(tls=certificates.context) as stand:
        if trusted:
            await stand.driver().off(within(10))
            await stand.instance.machine.wait_for("off")
            stand.cloud.set_faults(silence=True)
            await fails(stand.driver().on(within(0.4)), ErrorType.AMBIGUOUS)
            return
        await fails(stand.driver().off(within(10)), ErrorType.UNREACHABLE, "CERTIFICATE_VERIFY_FAILED")
        assert stand.cloud.log == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("not JSON", "is not JSON"),
        ("[]", "is not the key of a service account"),
        ({"type": "authorized_user"}, "is not the key of a service account"),
        ({"type": "external_account"}, "is not the key of a service account"),
        ({"private_key": ""}, "has no private_key"),
        ({"token_uri": 7}, "has no token_uri"),
        ({"token_uri": "http://10.0.0.7/token"}, "token_uri: expected https://"),
        ({"token_uri": "https://user@example.org/token"}, "token_uri: expected https://"),
        ({"token_uri": "https://example.org/token?a=b"}, "token_uri: expected https://"),
        ({"token_uri": "file:///etc/passwd"}, "token_uri: expected https://"),
        ({"private_key": "k3p-my-s3cret"}, "holds no private key that can be used"),
    ],
)
async def test_a_key_that_cannot_be_used_is_refused_without_showing_it(signed: GceStand, change: object, says: str) -> None:
    """S12."""
    key = change if isinstance(change, str) else json.dumps(json.loads(signed.key) | change)

    async def read() -> None:
        await signed.driver(key=key).read(within(10))

    error = await fails(read(), ErrorType.INVALID_CONFIG, says)
    shown = "".join(traceback.format_exception(error))
    assert not any(secret in shown for secret in secrets_of(signed.key, "k3p-my-s3cret"))


async def test_no_key_and_no_token_shows_in_any_failure(signed: GceStand) -> None:
    """S12: not even where the other side repeats them."""

    async def parrot(request: bytes, writer: asyncio.StreamWriter) -> None:
        token = request.partition(b"Authorization: ")[2].partition(b"\r\n")[0].decode()
        tokens.append(token.removeprefix("Bearer "))
        said = f"{token} {json.loads(signed.key)['private_key_id']}"
        await saying("403 Forbidden", json.dumps({"error": {"message": said}}))(request, writer)

    tokens: list[str] = []
    async with raw_server(parrot) as server:
        driver = signed.driver(api_endpoint=server.url)
        for act in (driver.read, driver.off):
            with pytest.raises(PowerError, match=r"answers 403: Bearer \*\*\* \*\*\*") as caught:
                await act(within(10))
            shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(driver)
            assert not any(secret in shown for secret in secrets_of(signed.key, *tokens))
    assert all(len(token) > 20 for token in tokens)
    assert len(tokens) == 2


@pytest.mark.parametrize(
    "found",
    [
        {"name": "node-2", "status": "TERMINATED", "id": "2"},
        {"status": "TERMINATED"},
        {
            "name": NAME,
            "zone": f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/zones/europe-west1-c",
            "status": "TERMINATED",
        },
        {"kind": "compute#operation", "name": "operation-1", "status": "STOPPED"},
    ],
    ids=["another instance", "nobody's", "of another zone", "an operation"],
)
async def test_an_answer_that_is_about_something_else_is_no_state(found: dict[str, str]) -> None:
    """S3, S39: whoever stands in between may mix up answers; only of GKE's Nodes it would be seen otherwise, by their number."""
    async with raw_server(saying("200 OK", json.dumps(found).encode(), "Content-Type: application/json")) as server:
        await fails(unsigned(server).read(within(5)), ErrorType.TRANSIENT, "the answer does not name node-1")


@pytest.mark.parametrize("found", [{"name": "data-2", "status": "READY"}, {"status": "READY"}])
async def test_an_answer_about_another_disk_sets_none_free(found: dict[str, str]) -> None:
    """S3, S39."""
    async with raw_server(saying("200 OK", json.dumps(found).encode(), "Content-Type: application/json")) as server:
        await fails(unsigned(server).read_volume(f"{HANDLE}/data-1", within(5)), ErrorType.TRANSIENT, "does not name data-1")


# The common contract, against a simulated Compute Engine, with tokens of a service account.


class GceBench(Bench):
    """One instance."""

    stalls_within = 0.5

    def __init__(self, stand: GceStand) -> None:
        super().__init__(stand.instance.machine)
        self._stand = stand
        # What a log could show of the key: each line of the private key, and its id.
        content = json.loads(stand.key)
        type(self).secrets = (content["private_key_id"], *content["private_key"].splitlines()[1:-1])

    def driver(self, *, password: str | None = None, target: str | None = None) -> PowerDriver:
        key = None if password is None else self._stand.cloud.service_account(signed_by=password)
        return self._stand.driver(key=key, instance=target or self._stand.instance.name)

    async def be_silent(self) -> None:
        self._stand.cloud.set_faults(silence=True)

    async def lose_answers(self) -> None:
        self._stand.cloud.set_faults(lose_answers=True)

    async def take_time(self, seconds: float) -> None:
        self._stand.cloud.compute.seconds = seconds


@pytest.fixture
async def bench() -> AsyncIterator[GceBench]:
    async with gce_stand() as stand:
        yield GceBench(stand)


class TestGce(DriverConformance):
    pass


# How an instance of Compute Engine is named: in parameters, in a providerID, and in the one spelling that is pinned.

GIVEN = {"project": "a-project", "zone": "us-central1-a", "instance": "node-1"}

LABELS = st.from_regex(r"[a-z](?:[-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
PROJECTS = st.one_of(LABELS, st.builds("{}.{}:{}".format, LABELS, LABELS, LABELS))
ODD = st.one_of(
    LABELS, LABELS.map(str.upper), LABELS.map("{}\n".format), LABELS.map(" {}".format), st.text("a-Z0:/.% é\n", max_size=6)
)


@settings(max_examples=50)
@given(project=PROJECTS, zone=LABELS, instance=LABELS)
def test_a_provider_id_gives_what_leads_back_to_it(project: str, zone: str, instance: str) -> None:
    """S9, S10: the endpoint of a node's instance is its providerID."""
    provider_id = f"gce://{project}/{zone}/{instance}"
    found = instance_of_provider_id(provider_id)
    assert found == {"project": project, "zone": zone, "instance": instance}
    assert GCE.endpoint(found) == endpoint_of("gce", found) == provider_id


@given(
    project=ODD, zone=ODD, instance=ODD, scheme=st.sampled_from(["gce", "GCE", "aws", ""]), more=st.sampled_from(["", "/", "/x"])
)
def test_a_provider_id_is_read_whole_or_not_at_all(project: str, zone: str, instance: str, scheme: str, more: str) -> None:
    """S10: half of one would name somebody else's machine."""
    provider_id = f"{scheme}://{project}/{zone}/{instance}{more}"
    found = instance_of_provider_id(provider_id)
    assert not found or GCE.endpoint(found) == provider_id


@pytest.mark.parametrize(
    ("parameters", "api"),
    [
        ({}, PUBLIC_API),
        ({"api-endpoint": "compute.example.p.googleapis.com"}, "https://compute.example.p.googleapis.com"),
        ({"api-endpoint": "https://Compute.Example.org:8443/"}, "https://compute.example.org:8443"),
        ({"api-endpoint": "http://127.0.0.1:8080"}, "http://127.0.0.1:8080"),
        ({"api-endpoint": "http://localhost"}, "http://localhost"),
        ({"api-endpoint": "http://[::1]:80"}, "http://[::1]:80"),
        ({"api-endpoint": "https://10.0.0.7"}, "https://10.0.0.7"),
    ],
)
def test_the_api_is_asked_where_it_is_said(parameters: dict[str, str], api: str) -> None:
    found = GceInstance.parse(GIVEN | parameters)
    assert found.api == api
    assert found.endpoint == "gce://a-project/us-central1-a/node-1"


def test_the_instance_may_be_called_plug_as_fence_agents_do() -> None:
    by_plug = {"project": "a-project", "zone": "us-central1-a", "plug": "node-1"}
    assert GCE.endpoint(by_plug) == GCE.endpoint(GIVEN) == GCE.endpoint(by_plug | GIVEN)


def test_a_project_and_a_zone_alone_identify_no_node() -> None:
    """S10."""
    assert parameters_of("gce") is GCE
    assert frozenset({"instance", "plug"}) == GCE.identifying
    assert frozenset({"service-account-json"}) == GCE.secret
    assert not GCE.needed  # the worker may have an identity of its own


@pytest.mark.parametrize(
    ("volume", "handle"),
    [
        ("data", "projects/a-project/zones/us-central1-a/disks/data"),
        ("projects/other/zones/us-east1-b/disks/data", "projects/other/zones/us-east1-b/disks/data"),
        ("projects/example.com:p/regions/us-east1/disks/data", "projects/example.com:p/regions/us-east1/disks/data"),
        ("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/data", "projects/a-project/zones/us-central1-a/disks/data"),
        ("projects/UNSPECIFIED/regions/UNSPECIFIED/disks/data", "projects/a-project/regions/us-central1/disks/data"),
        ("https://www.googleapis.com/compute/v1/projects/p/zones/z/disks/data", "projects/p/zones/z/disks/data"),
    ],
)
def test_a_disk_has_one_handle(volume: str, handle: str) -> None:
    near = GceInstance.parse(GIVEN)
    assert Disk.parse(volume, near).handle == handle
    assert Disk.parse(handle, near).handle == handle
