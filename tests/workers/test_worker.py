"""Worker processes: what they serve, how they stop, how they register as a version."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import pkgutil
import signal
import socket
import struct
import subprocess
import sys
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import temporalio.workflow
from temporalio import activity
from temporalio.client import Client
from temporalio.common import VersioningBehavior
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import contracts, notification_sender
from activities.contracts.device_check import (
    FenceDeviceActivities,
    FenceDevices,
    FenceDevicesRequest,
    NodeNames,
    NodeNamesRequest,
    PublishDeviceNoticesRequest,
    ReadDevicesRequest,
)
from activities.contracts.evidence import BundleName, KdumpRequest, SealRequest
from activities.contracts.scan import RepetitionRequest, ScanRequest
from activities.contracts.target import Publication, PublishedEvent, PublishRequest, Target
from activities.errors import ErrorType, failure
from activities.keyring import Keyring
from activities.licences import Licences
from activities.power.registry import LIBRARIES
from policy.episode.events import EventReason, When
from policy.episode.messages import Pinned
from policy.fence.device_check import DeviceToCheck, NodeToCheck
from policy.fence.plan import CredentialRef, PowerDevice
from policy.objects.nodes import NodeView
from policy.scan.repeat_alarm import Repetition
from tests.patience import PATIENCE
from workers.composition import compose, load_drivers, needs_clusters
from workers.configuration.clusters import ClusterSettings
from workers.configuration.process_settings import NotificationSettings, TemporalSettings, WorkerSettings
from workers.configuration.settings import Settings, load
from workers.connect import connect
from workers.errors import SettingsError
from workers.runtime import alongside
from workers.worker import Role, Serving, WorkerDeployment, activities_of, build, run_until, stop_on_signals
from workflows.definitions.episodes import RecordedObservation

NOWHERE = ClusterSettings(server="http://127.0.0.1:1")


@pytest.fixture
async def client(server: str) -> Client:
    return await connect(TemporalSettings(address=server), patience=timedelta(seconds=10))


@pytest.fixture
def settings(clean: Path) -> Settings:
    return load(node_name="node-1", sites=("oslo", "berlin"))


class Slow:
    """One activity that ends when told."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.may_end = asyncio.Event()

    @activity.defn(name="slow")
    async def slow(self) -> str:
        self.started.set()
        await self.may_end.wait()
        return f"attempt {activity.info().attempt}"

    def not_an_activity(self) -> None:
        """Must not be served."""


@pytest.mark.parametrize(
    ("role", "queues"),
    [
        (Role.ALL, ["nodewarden", "cluster.prod", "power.oslo", "power.berlin"]),
        (Role.WORKFLOWS, ["nodewarden"]),
        (Role.CLUSTER, ["cluster.prod"]),
        (Role.POWER, ["power.oslo", "power.berlin"]),
    ],
)
async def test_a_role_serves_its_queues_and_no_others(settings: Settings, client: Client, role: Role, queues: list[str]) -> None:
    async with compose(settings, client, clusters={"prod": NOWHERE}, role=role) as servings:
        assert [serving.queue for serving in servings] == queues


async def test_everything_that_the_contracts_promise_is_served_exactly_once(settings: Settings, client: Client) -> None:
    async with compose(settings, client, clusters={"prod": NOWHERE}) as servings:
        served = [name(found) for serving in servings if serving.queue != "power.berlin" for found in serving.activities]
        assert sorted(served) == sorted(promised())


async def test_who_is_to_be_notified_by_the_settings_is(
    settings: Settings, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whatever of a cluster's activities there is something to tell."""
    sent = list[str]()
    monkeypatch.setattr(
        notification_sender, "_sent", lambda _to, notices, _done: sent.extend(each.title for each in notices) or ""
    )
    notifications = (
        NotificationSettings(
            url_file=Path("urls"), when=(When.NEEDS_HUMAN, When.HALTED, When.REPEATED), labels={"matchLabels": {"kind": "gpu"}}
        ),
    )
    given = settings.model_copy(update={"notifications": notifications})
    asks = Publication(events=(PublishedEvent(reason=EventReason.NEEDS_HUMAN, message="off is not proven"),))
    about = Target(
        cluster="prod", pinned=Pinned(node="node-7", uid="7"), incident="i", kind="Fencing", workflow_id="w", run_id="r"
    )
    other = Pinned(node="node-8", uid="8")
    again = Repetition(node="node-9", cause="Ready", count=3, window=timedelta(hours=1), incidents=())
    acts = {
        "target.publish": PublishRequest(target=about, publication=asks),
        "scan.publish-repetition": RepetitionRequest(cluster="prod", repetition=again),
        "scan.observe-cluster": ScanRequest(cluster="prod", holder="us", halted="paused", halted_is_new=True, wait=timedelta(0)),
    }
    async with compose(given, client, clusters={"prod": NOWHERE}, role=Role.CLUSTER) as (serving,):
        served = {name(each): each for each in serving.activities}
        ledger = getattr(served["scan.observe-cluster"], "__self__").view.ledger  # noqa: B009
        ledger.put_node(NodeView(name="node-8", uid="8", labels={"kind": "cpu"}), datetime.now(UTC))
        ledger.put_node(NodeView(name="node-9", uid="9", labels={"kind": "gpu"}), datetime.now(UTC))
        publishers = [getattr(served[act], "__self__")._publisher for act in ("target.publish", "recovery.mark-schedulable")]  # noqa: B009
        assert publishers[0]._notify == publishers[1]._notify, "the latter needs an API before it tells"
        for act, request in acts.items():
            with contextlib.suppress(ApplicationError):  # there is no API
                await ActivityEnvironment().run(served[act], request)
        with contextlib.suppress(ApplicationError):  # of a node with other labels
            await ActivityEnvironment().run(
                served["target.publish"], PublishRequest(target=replace(about, pinned=other, incident="o"), publication=asks)
            )
        async with asyncio.timeout(10):
            while len(sent) < 3:
                await asyncio.sleep(0.01)
    assert sorted(sent) == [
        "nodewarden: halted: prod",
        "nodewarden: needs-human: node-7 (prod)",
        "nodewarden: repeated: node-9 (prod)",
    ]


def promised() -> list[str]:
    modules = [importlib.import_module(f"{contracts.__name__}.{each.name}") for each in pkgutil.iter_modules(contracts.__path__)]
    classes = {found for module in modules for found in vars(module).values() if isinstance(found, type)}
    return [name(found) for contract in classes for found in activities_of(contract)]


def name(found: Any) -> str:
    return str(found.__temporal_activity_definition.name)


def test_a_site_with_mounted_credentials_needs_no_cluster(clean: Path) -> None:
    assert needs_clusters(load(), Role.POWER)
    assert not needs_clusters(load(secrets_directory=clean), Role.POWER)
    assert not needs_clusters(load(), Role.WORKFLOWS)


async def test_a_listener_for_kdump_messages_is_there_for_as_long_as_the_worker_and_a_taken_port_is_a_mistake(
    clean: Path, client: Client
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = load(secrets_directory=clean, kdump={"listen": where})
        with pytest.raises(SettingsError, match=r"^kdump\.listen: expected an address"):
            async with compose(settings, client, clusters={}, role=Role.POWER):
                pass
    async with compose(settings, client, clusters={}, role=Role.POWER) as servings:
        (read,) = (found for serving in servings for found in serving.activities if name(found).endswith("read-kdump"))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as node:
            node.sendto(struct.pack("<II", 0x1B302A40, 1), ("127.0.0.1", int(where.rpartition(":")[2])))
        request = KdumpRequest(addresses=("127.0.0.1",))
        async with asyncio.timeout(5 * PATIENCE):
            while not (await ActivityEnvironment().run(read, request)).messages:
                await asyncio.sleep(0.005)


async def test_evidence_is_kept_where_a_directory_is_set_and_nowhere_else(clean: Path, client: Client) -> None:
    (clean / "kept").mkdir()
    bundle = BundleName(cluster="prod", node="node-7", incident="1")
    seal = SealRequest(bundle=bundle, began=datetime(2026, 11, 21, tzinfo=UTC), files=(), missing=())
    clusters = {"prod": NOWHERE}
    for directory in (clean / "kept", None):
        settings = load(**({"evidence": {"directory": directory, "patience": "3s"}} if directory is not None else {}))
        async with compose(settings, client, clusters=clusters) as servings:
            served = {name(found): found for serving in servings for found in serving.activities}
            assert "evidence.read-device" in served
            if directory is not None:
                sealed = await ActivityEnvironment().run(served["evidence.seal"], seal)
                assert (directory / "prod" / "node-7" / "1" / "manifest.json").read_bytes().startswith(b"{")
                assert sealed.path.endswith("kept/prod/node-7/1/manifest.json")
                continue
            with pytest.raises(ApplicationError, match=r"evidence\.directory is not set"):
                await ActivityEnvironment().run(served["evidence.seal"], seal)


async def test_a_worker_gives_no_device_what_it_signs_with(clean: Path, client: Client) -> None:
    """S42: whoever may name its credentials would license every act."""
    key, reference = "k" * 40, CredentialRef(name="bmc", namespace="nodewarden")
    (clean / "keys").write_text(f"{key}\n")
    (clean / "nodewarden" / "bmc").mkdir(parents=True)
    (clean / "nodewarden" / "bmc" / "password").write_text(key)
    device = PowerDevice(driver="ipmi", endpoint="ipmi://127.0.0.1:1", parameters={"ip": "127.0.0.1"}, credentials=(reference,))
    sealed = Licences(Keyring([key.encode()])).sealed_device("prod", "node-7", device)
    asked = DeviceToCheck(device=sealed, node="node-7", deadline=timedelta(seconds=2))
    worker = {"signing_keys_file": clean / "keys", "credential_hosts": ["127.0.0.1"]}
    settings = load(secrets_directory=clean, worker=worker)
    async with compose(settings, client, clusters={"prod": NOWHERE}, role=Role.POWER) as servings:
        (read,) = (each for serving in servings for each in serving.activities if name(each).endswith("read-devices"))
        found = await ActivityEnvironment().run(read, ReadDevicesRequest(cluster="prod", devices=(asked,)))
    assert "it holds keys of this deployment, which are for no device" in found.answers[0].problem


async def test_a_kubeconfig_that_leads_nowhere_is_a_mistake_in_the_settings(
    settings: Settings, client: Client, clean: Path
) -> None:
    broken = ClusterSettings(kubeconfig=clean / "missing", context="prod")
    with pytest.raises(SettingsError, match=r"^clusters\.prod: "):
        async with compose(settings, client, clusters={"prod": broken}, role=Role.CLUSTER):
            pass


async def test_a_stopping_worker_lets_a_running_activity_end_on_its_first_attempt(client: Client) -> None:
    """S33: a restart of the worker is no second attempt at what was in flight."""
    slow, stop, queue = Slow(), asyncio.Event(), f"q-{uuid.uuid4().hex}"
    # As one that serves workflows, which asks for no workflow.
    serving = Serving(queue=queue, workflows=[RecordedObservation], activities=activities_of(slow))
    running = asyncio.create_task(run_until(stop, [build(client, serving, WorkerSettings())]))
    handle = await client.start_activity(
        "slow", id=queue, task_queue=queue, start_to_close_timeout=timedelta(seconds=30), result_type=str
    )
    async with asyncio.timeout(30):
        await slow.started.wait()
        stop.set()
        slow.may_end.set()
        assert await handle.result() == "attempt 1"
        await running


async def test_a_worker_that_fails_ends_the_others_and_says_why(client: Client) -> None:
    broken = build(client, Serving(queue="q1", activities=activities_of(Slow())), WorkerSettings())

    async def fail() -> None:
        await asyncio.sleep(0)
        raise RuntimeError("the namespace is gone")

    broken.run = fail  # type: ignore[method-assign]
    other = build(client, Serving(queue="q2", activities=activities_of(Slow())), WorkerSettings())
    with pytest.raises(RuntimeError, match="the namespace is gone"):
        async with asyncio.timeout(30):
            await run_until(asyncio.Event(), [broken, other])
    assert not other.is_running


async def test_without_a_deployment_the_worker_is_unversioned(client: Client) -> None:
    """The behaviour stands on the worker: on the workflow classes it would wedge every unversioned worker."""
    from workflows.definitions.episodes import Fencing
    from workflows.definitions.scanner import HealthScanner

    for workflow in (Fencing, HealthScanner):
        definition = temporalio.workflow._Definition.must_from_class(workflow)
        assert definition.versioning_behavior is VersioningBehavior.UNSPECIFIED
    for deployment, behaviour in (
        (None, VersioningBehavior.UNSPECIFIED),
        (WorkerDeployment(name="d", build_id="build-1"), VersioningBehavior.PINNED),
    ):
        worker = build(client, Serving(queue="q", workflows=[Fencing]), WorkerSettings(), deployment=deployment)
        config = worker.config(active_config=True)["deployment_config"]
        assert config is not None
        assert config.use_worker_versioning is (deployment is not None)
        assert config.default_versioning_behavior is behaviour


async def test_a_second_signal_has_its_usual_effect() -> None:
    async with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(5):
            await stop.wait()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# Companions: any failure ends all, as the one plain reason.


async def forever(log: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        log.append("ended")


async def fail(error: Exception) -> None:
    await asyncio.sleep(0)
    raise error


async def test_companions_end_with_the_main_thing() -> None:
    ended: list[str] = []
    assert await alongside(asyncio.sleep(0, "answer"), forever(ended)) == "answer"
    assert ended == ["ended"]


async def test_a_failing_companion_ends_the_main_thing_and_is_raised_itself() -> None:
    ended: list[str] = []
    with pytest.raises(ValueError, match="reason"):
        await alongside(forever(ended), fail(ValueError("reason")))
    assert ended == ["ended"]


async def test_a_failing_main_thing_ends_the_companions_and_is_raised_itself() -> None:
    ended: list[str] = []
    with pytest.raises(LookupError, match="reason"):
        await alongside(fail(LookupError("reason")), forever(ended), forever(ended))
    assert ended == ["ended", "ended"]


# A worker is ready for the devices of its clusters before the first node fails.


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
    """Google's packages come with the client, in the thread of a call, and not with the driver that every plan may name."""
    library = {"ec2": "botocore", "gce": "google.oauth2.service_account"}[driver]
    code = (
        "import sys, activities.power.gce.driver; from activities.power.registry import load; load('ipmi');"
        f" before = {library!r} in sys.modules; load({driver!r}); print(before, {library!r} in sys.modules);"
        " messages = sys.modules.get('google.cloud.compute_v1.types.compute'); print(len(vars(messages)) if messages else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    before, loaded, messages = done.stdout.split()
    assert (before, loaded) == ("False", "True")
    assert int(messages) < 100  # of two thousand, which take 57 MB


def test_a_worker_loads_no_part_of_a_client_that_it_never_uses() -> None:
    """30 MB of it; what wants such a part afterwards gets it."""
    code = """
import sys
from activities.lean_imports import import_temporal
import_temporal()
import workers.process, workers.composition
from activities.cluster.api.connection import ClusterConnection
try:
    ClusterConnection.in_cluster()
except Exception as error:
    unused = {"grpc", "kubernetes", "kubernetes.client", "requests", "urllib3"}
    print("no service account" in str(error), *unused & set(sys.modules))
import grpc, kubernetes, kubernetes.aio.watch
print(kubernetes.client.CoreV1Api.__name__, grpc.__name__)
"""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KUBERNETES_")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30 * PATIENCE, env=environment
    )
    assert done.stdout.splitlines() == ["True", "CoreV1Api grpc"]


def test_compute_engine_is_asked_without_google_s_client() -> None:
    """15 MB of it; what wants such a part afterwards gets it."""
    code = """
import asyncio, sys
from datetime import timedelta
from activities.lean_imports import import_requests, import_temporal
import_temporal()
from activities.power.driver import Deadline
from activities.power.gce.driver import GceDriver
from policy.fence.drivers.gce import GceInstance
instance = GceInstance(project="p", zone="z", instance="i", api="http://127.0.0.1:9")
try:
    asyncio.run(GceDriver(instance=instance).read(Deadline.within(timedelta(seconds=20))))
except Exception as error:
    unused = {"grpc", "google.api_core", "google.cloud.compute_v1.services", "requests"}
    print("refused" in str(error), *unused & set(sys.modules))
requests = import_requests()
print(*{"chardet", "charset_normalizer"} & set(sys.modules))
import grpc.aio, charset_normalizer
print(grpc.StatusCode.OK.name, requests.Session.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30 * PATIENCE)
    assert done.stdout.splitlines() == ["True", "", "OK Session"]


@pytest.mark.skipif(sys.platform != "linux", reason="the C library of Linux")
def test_what_threads_needed_for_a_moment_is_given_back() -> None:
    """Whatever large blocks were freed before, as by an import: a pool of threads would keep 20 MB here."""
    code = """
import threading
from pathlib import Path
from workers.os_process import keep_little_spare_memory
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
del [bytearray(30_000_000)][0]
keep_little_spare_memory()
def work():
    global before
    before = resident()
    blocks = [bytearray(1_000_000) for _ in range(20)]
    del blocks
    print(resident() - before < 5)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30 * PATIENCE)
    assert done.stdout.split() == ["True"]
