"""People hear in time that Kubernetes is about to take volumes away, over real HTTP: an Event on the Node and a metric (S36)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.common import MetricCounter, MetricGaugeFloat, MetricMeter
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.scan import ClusterScan
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.events import EventRecorder, Happening
from activities.cluster.api.paths import NODES as NODES_KIND
from activities.cluster.report.alarms import REASON, DataAtRiskReporter
from activities.cluster.watch.freshness import ViewLimits
from activities.cluster.watch.reflector import WatchLimits
from activities.contracts.metrics import DATA_AT_RISK
from activities.notification_sender import Notice
from policy.episode.events import When
from policy.objects.marks import Mark
from policy.objects.nodes import READY, Condition, NodeView
from policy.scan.data_at_risk import DataAtRisk
from policy.scan.scan_report import ScanReport
from policy.values.times import written
from simulator.api.control.faults import Accident, Fault
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from tests.cluster.builders import CHECKS, DEFINITIONS, NODES, check, conditions, definition, node, until
from tests.cluster.scans import LIVE, OURS, WATCHES, Open, asked, observe, observe_until
from tests.cluster.skipping import now
from tests.licensing import LICENCES
from tests.policy.builders import mark_metadata
from workers.connect import watch_temporal

pytestmark = pytest.mark.timeout(15)

ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
VOLUMES = "/api/v1/persistentvolumes"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
EVENTS = "/api/v1/namespaces/default/events"
SICK = "node-1"
PATIENCE = timedelta(seconds=300 + 360 - 60)
"""From NotReady until people are told, for a pod with the default tolerations."""


class Counter(MetricCounter):
    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def add(self, value: int, additional_attributes: Mapping[str, Any] | None = None) -> None:
        self._meter.counted.append((value, dict(additional_attributes or {})))

    name = DATA_AT_RISK.name
    description = unit = None

    def with_additional_attributes(self, additional_attributes: Mapping[str, Any]) -> MetricCounter:
        raise AssertionError


class Meter:
    """What the SDK would have passed on to Prometheus."""

    def __init__(self) -> None:
        self.counted: list[tuple[int, dict[str, Any]]] = []

    def with_additional_attributes(self, additional_attributes: Mapping[str, Any]) -> Meter:
        return self

    def create_counter(self, name: str, description: str | None = None, unit: str | None = None) -> MetricCounter:
        assert name == DATA_AT_RISK.name
        return Counter(self)

    def create_gauge_float(self, name: str, description: str | None = None, unit: str | None = None) -> MetricGaugeFloat:
        return MetricMeter.noop.create_gauge_float(name, description, unit)


class Scans:
    """Scans of one cluster, as so many workers would have them, and what all of them count."""

    def __init__(self, open_scan: Open) -> None:
        self.meter = Meter()
        self.notices = list[Notice]()
        self._open = open_scan

    async def open(
        self,
        limits: ViewLimits = LIVE,
        watches: WatchLimits = WATCHES,
        *,
        meter: Any = MetricMeter.noop,
        lease_lasts: timedelta = timedelta(seconds=3),
        **options: Any,
    ) -> ClusterScan:
        risks = DataAtRisk(**options)
        opened: ClusterScan = await self._open(
            limits, watches, at_risk=risks, notify=self.notices.append, meter=meter, lease_lasts=lease_lasts
        )
        return opened

    async def observe(self, scan: ClusterScan, known: ScanReport | None = None, wait: float = 0.25) -> ScanReport:
        return await observe(scan, asked(known, wait=wait), meter=self.meter)

    async def observe_until(self, scan: ClusterScan, fits: Callable[[ScanReport], object], **changes: Any) -> ScanReport:
        return await observe_until(scan, None, fits, meter=self.meter, **({"wait": 0.25} | changes))


async def ended(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def scans(open_scan: Open) -> Scans:
    return Scans(open_scan)


@pytest.fixture
async def cluster(person: ApiClient) -> ApiClient:
    """Four nodes under a health check whose circuit breaker opens with the first that is sick, and a pod with a volume on that
    one."""
    for number in range(4):
        await person.create(NODES, node(f"node-{number}"))
    await person.create(DEFINITIONS, definition())
    await person.create(CHECKS, check(minHealthy="100%"))
    await add_pod(person, "db-0")
    await attach(person, "va-1")
    return person


async def add_pod(person: ApiClient, name: str, *, claim: str = "data", seconds: int | None = 300) -> None:
    wait = {} if seconds is None else {"tolerationSeconds": seconds}
    spec = {
        "nodeName": SICK,
        "containers": [{"name": "main", "image": "example"}],
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", **wait}
            for key in ("not-ready", "unreachable")
        ],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}] if claim else [],
    }
    await person.create(PODS, {"metadata": {"name": name}, "spec": spec})


async def attach(person: ApiClient, name: str, *, node: str = SICK, claim: str = "data") -> None:
    """With the volume, which is bound to that claim."""
    spec = {"attacher": "csi.example", "nodeName": node, "source": {"persistentVolumeName": f"pv-{name}"}}
    await person.create(ATTACHMENTS, {"metadata": {"name": name}, "spec": spec})
    volume = {
        "claimRef": {"namespace": "default", "name": claim},
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "csi.example", "volumeHandle": name},
    }
    await person.create(VOLUMES, {"metadata": {"name": f"pv-{name}"}, "spec": volume})


async def fall(person: ApiClient, age: timedelta, *, ready: str = "Unknown") -> None:
    await person.patch(f"{NODES}/{SICK}/status", {"status": {"conditions": conditions(ready, now() - age)}})


async def told(person: ApiClient) -> list[dict[str, Any]]:
    return [event for event in (await person.list(EVENTS))["items"] if event["reason"] == REASON]


async def test_people_are_told_when_the_time_comes_though_a_circuit_breaker_holds_everything_back(
    cluster: ApiClient, scans: Scans
) -> None:
    """S36: no episode, no candidate, an open circuit breaker; told within a moment of the deadline, and not before."""
    scan = await scans.open()
    await fall(cluster, PATIENCE - timedelta(seconds=2))
    report = await scans.observe_until(scan, lambda report: report.at_risk.nearest and not report.at_risk.unread)
    (row,) = report.at_risk.nearest
    assert (row.node, row.volumes) == (SICK, 1)
    assert row.due is not None
    assert await told(cluster) == []
    assert scans.meter.counted == []
    watching = asyncio.create_task(scans.observe(scan, report, wait=4.0))
    await until(lambda: scans.meter.counted, 4)
    late = now() - (row.due - timedelta(minutes=1))  # told so long before the detachment
    (event,) = await told(cluster)
    await ended(watching)
    assert timedelta(0) <= late < timedelta(seconds=0.5)
    assert scans.meter.counted == [(1, {"cluster": "prod"})]
    assert (event["type"], event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("Warning", "Node", SICK)
    assert "1 volume is attached" in event["message"]
    assert not any(each.allowed for each in report.checks)


async def test_what_is_past_already_is_told_at_once_and_once_whatever_worker_scans(cluster: ApiClient, scans: Scans) -> None:
    """S36: a worker that starts late tells; the next one, and the one after a restart, do not tell it again."""
    await fall(cluster, timedelta(hours=1))
    first = await scans.open()
    await scans.observe_until(first, lambda _: scans.meter.counted)
    second = await scans.open()
    await scans.observe_until(second, lambda report: report.at_risk.nodes and second.view.at_risk.next_due is not None)
    await until(lambda: (second.view.at_risk.next_due or now()) > now() + timedelta(minutes=29))
    (event,) = await told(cluster)
    assert event["count"] == 1
    assert len(scans.meter.counted) == 1
    at_risk = {(When.DATA_AT_RISK, SICK)}
    assert {(each.when, each.node) for each in scans.notices} == {(When.CIRCUIT_BREAKER, ""), *at_risk}


@pytest.mark.parametrize("beside", ["", "shared-nfs"], ids=["alone", "beside a pod with a claim that nothing attaches"])
@pytest.mark.parametrize("late", [True, False], ids=["down for long", "down for a moment"])
async def test_s36_a_volume_that_no_pod_needs_is_warned_of_whatever_else_is_claimed_on_the_node(
    cluster: ApiClient, scans: Scans, beside: str, late: bool
) -> None:
    """S36, S41: its pod was taken away by force before a worker looked, and Kubernetes detaches it six minutes after NotReady.
    Beside it is a pod that stays for ever: an agent with a claim of NFS, or a tenant's with a claim that is not there."""
    await cluster.delete(f"{PODS}/db-0", grace_seconds=0)
    if beside:
        await add_pod(cluster, "agent", claim=beside, seconds=None)
    scan = await scans.open()
    await fall(cluster, timedelta(minutes=20) if late else timedelta(minutes=5, seconds=-2))
    report = await scans.observe_until(scan, lambda report: report.at_risk.nodes and not report.at_risk.unread)
    assert late or not scans.meter.counted
    watching = asyncio.create_task(scans.observe(scan, report, wait=4.0))
    await until(lambda: scans.meter.counted, 4)
    await ended(watching)


@pytest.mark.parametrize("fault", [None, "gone", "refused", "inline"])
async def test_s36_of_a_volume_that_can_not_be_traced_people_are_warned_early_and_of_one_with_a_pod_that_stays_never(
    api: ApiServer, cluster: ApiClient, scans: Scans, fault: str | None
) -> None:
    """S36, S41: a doubt is a warning."""
    await cluster.delete(f"{PODS}/db-0", grace_seconds=0)
    await add_pod(cluster, "db-1", seconds=None)
    if fault == "gone":
        await cluster.delete(f"{VOLUMES}/pv-va-1")
    elif fault == "refused":
        api.faults.add(Fault(accident=Accident.STATUS, path="persistentvolumes", status=403, user_agent="nodewarden/"))
    elif fault == "inline":
        source = {"inlineVolumeSpec": {"csi": {"driver": "csi.example", "volumeHandle": "1"}, "accessModes": ["ReadWriteOnce"]}}
        spec = {"attacher": "csi.example", "nodeName": SICK, "source": source}
        await cluster.delete(f"{ATTACHMENTS}/va-1")
        await cluster.create(ATTACHMENTS, {"metadata": {"name": "va-2"}, "spec": spec})
    scan = await scans.open()
    await fall(cluster, timedelta(hours=1))
    report = await scans.observe_until(scan, lambda report: report.at_risk.nodes and not report.at_risk.unread)
    watching = asyncio.create_task(scans.observe(scan, report, wait=4.0))
    if fault:
        await until(lambda: scans.meter.counted, 4)
    else:
        risk = scan.view.at_risk
        await until(lambda: risk.next_due is not None and risk.next_due > now() + timedelta(minutes=4))
        assert scans.meter.counted == []
    await ended(watching)


async def test_s36_no_event_of_another_author_silences_us(cluster: ApiClient, scans: Scans) -> None:
    """S36: a kubelet may create Events, and knows all that ours tells of its Node."""
    await fall(cluster, timedelta(hours=1))
    seen = await cluster.get(f"{NODES}/{SICK}")
    since = next(each["lastTransitionTime"] for each in seen["status"]["conditions"] if each["type"] == "Ready")
    happening = Happening(about=NODES_KIND.ref(SICK), uid=seen["metadata"]["uid"], reason=REASON, message="", identity=since)
    about = {"apiVersion": "v1", "kind": "Node", "name": SICK}
    forged = {"metadata": {"name": happening.name}, "involvedObject": about, "reason": "Forged", "lastTimestamp": written(now())}
    await cluster.create(EVENTS, forged)
    scan = await scans.open()
    await scans.observe_until(scan, lambda _: scans.meter.counted)
    assert [each.node for each in scans.notices if each.when is When.DATA_AT_RISK] == [SICK]


async def test_s41_an_event_of_another_author_under_our_name_says_nothing_in_its_place(
    cluster: ApiClient, connection: ClusterConnection
) -> None:
    """S41, S44: what most names are made of is public, and a kubelet may write Events. Its own was counted as ours, and ours was
    written nowhere; and by the largest count there is the API server refused every later one."""
    about = NODES_KIND.ref(SICK)
    recorder, happening = (
        EventRecorder(connection),
        Happening(about=about, uid="u", reason=REASON, message="see to it", warning=True),
    )
    forged = {"metadata": {"name": happening.name}, "reason": REASON, "message": "all is well", "type": "Normal"}
    others = {"apiVersion": "v1", "kind": "Node", "name": "other"}
    await cluster.create(EVENTS, forged | {"involvedObject": others, "count": 2**31 - 1, "lastTimestamp": written(now())})
    assert [await recorder.publish_unless_kept(happening) for _ in range(2)] == [True, False]
    (event,) = (await cluster.list(EVENTS))["items"]
    assert (event["message"], event["type"], event["involvedObject"]["name"]) == ("see to it", "Warning", SICK)
    assert event["count"] == 2**31 - 1
    await cluster.patch(f"{EVENTS}/{happening.name}", {"message": "never mind"})
    assert await recorder.publish_unless_kept(happening)


async def test_s36_no_moment_that_an_event_says_silences_a_repetition(cluster: ApiClient, connection: ClusterConnection) -> None:
    """S36: who may patch Events in `default` writes into ours that it was just repeated. Another worker of ours is still known by
    it, in each period."""
    began, at, notices = now() - timedelta(hours=3), timedelta(), list[Notice]()
    reporters = []
    for _ in range(2):
        at_risk = DataAtRisk()
        down = Condition(type=READY, status="Unknown", since=began)
        at_risk.put_node(NodeView(name=SICK, uid="u-1", conditions=(down,)), began)
        at_risk.put_attachment("va-1", SICK, began)
        clock: Callable[[], datetime] = lambda: began + at  # noqa: E731
        reporters.append(
            DataAtRiskReporter(
                "prod", connection, at_risk, licences=LICENCES, clock=clock, on_change=lambda: None, notify=notices.append
            )
        )
    for turn in range(3):
        at = timedelta(minutes=10 + 30 * turn)
        for reporter in reporters:
            reporter.begin_due_work(Meter())  # type: ignore[arg-type]
            await until(lambda each=reporter: not each.busy)
        assert len(notices) == turn + 1
        for event in await told(cluster):
            await cluster.patch(f"{EVENTS}/{event['metadata']['name']}", {"lastTimestamp": written(now())})


async def test_s36_an_event_from_the_future_is_not_a_recent_one(cluster: ApiClient, connection: ClusterConnection) -> None:
    """S36: its moment would silence us until then."""
    about = NODES_KIND.ref(SICK)
    recorder, happening = EventRecorder(connection), Happening(about=about, uid="u", reason=REASON, message="")
    assert [await recorder.publish(happening, quiet=timedelta(hours=1)) for _ in range(2)] == [True, False]
    await cluster.patch(f"{EVENTS}/{happening.name}", {"lastTimestamp": "2099-01-01T00:00:00Z"})
    assert await recorder.publish(happening, quiet=timedelta(hours=1))


@pytest.mark.parametrize("scanned", [True, False], ids=["after-a-scan", "never-scanned"])
async def test_people_are_told_while_temporal_is_away_and_no_scan_runs(cluster: ApiClient, scans: Scans, scanned: bool) -> None:
    """S36, S37: by a worker that had the scan, and by one that has just begun; no Lease is taken for that (S38)."""
    scan = await scans.open(meter=scans.meter)
    if scanned:
        await scans.observe(scan)
    before = (await cluster.list(LEASES))["items"]
    assert len(before) == scanned
    alone = asyncio.create_task(scan.without_temporal())
    await fall(cluster, timedelta(hours=1))
    await until(lambda: scans.meter.counted, 10)
    (event,) = await told(cluster)
    await ended(alone)
    assert (event["involvedObject"]["name"], event["count"]) == (SICK, 1)
    assert (await cluster.list(LEASES))["items"] == before
    away = [each for each in scans.notices if each.when is When.TEMPORAL_AWAY]
    assert [each.over for each in away] == [False, True]
    assert [each.node for each in scans.notices if each.when is When.DATA_AT_RISK] == [SICK]


class Temporal:
    """One that may be away, in one of two ways."""

    def __init__(self) -> None:
        self.namespace, self.workflow_service = "default", self
        self.away = ""

    async def describe_namespace(self, _: object) -> None:
        if self.away == "hangs":
            await asyncio.Event().wait()
        if self.away:
            raise RPCError("Connection refused", RPCStatusCode.UNAVAILABLE, b"")


@pytest.mark.timeout(2 * 60 * 60)  # by the loop's clock
@pytest.mark.parametrize("events", [201, 500])
async def test_an_hour_without_temporal_is_known_within_15_s_and_data_at_risk_is_told_once_in_each_period(
    api: ApiServer, cluster: ApiClient, scans: Scans, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    """S36, S37: by the metric and to people, by two workers and also where no Event can be written; nothing else is written."""
    gauge = list[tuple[datetime, float]]()
    shown = SimpleNamespace(on=lambda _: SimpleNamespace(set=lambda value: gauge.append((now(), value))))
    monkeypatch.setattr("workers.connect.metrics.TEMPORAL_AWAY", shown)
    monkeypatch.setattr("tests.cluster.skipping.SHARE", 0.001)
    usual = (ViewLimits(grace=timedelta(0)), WatchLimits(shortest_watch=7200.0, longest_watch=7200.0, absence=7200.0))
    temporal, shipped = Temporal(), dict[str, Any](meter=scans.meter, lease_lasts=timedelta(seconds=30))
    first, second = await scans.open(*usual, **shipped), await scans.open(*usual, **shipped)
    await scans.observe(first)
    await until(lambda: second.view.synced)
    turns = iter(range(4000))

    def counted(changed: Callable[..., Any]) -> Callable[..., Any]:
        def turn(*since: Any) -> Any:
            assert next(turns, None) is not None, "more than one turn of a worker in two seconds"
            return changed(*since)

        return turn

    for each in (first, second):
        monkeypatch.setattr(each.view, "changed", counted(each.view.changed))
    client: Any = temporal
    watching = [asyncio.create_task(watch_temporal(client, [each.without_temporal])) for each in (first, second)]
    await asyncio.sleep(30)
    written, before = len(api.requests.log), now()
    if events >= 500:
        api.faults.add(Fault(accident=Accident.STATUS, path="events", status=events, user_agent="nodewarden/"))
    for temporal.away in ("hangs", "refuses"):
        if temporal.away == "hangs":
            await fall(cluster, timedelta(0))
        await asyncio.sleep(30 * 60)
    temporal.away, after = "", now()
    await asyncio.sleep(15)
    await ended(*watching)
    told_at = [(at, value) for at, value in gauge if at > before]
    assert [value for _, value in told_at] == [1, 1, 0, 0]
    assert all(at - before < timedelta(seconds=15) for at, _ in told_at[:2])
    assert all(at - after < timedelta(seconds=15) for at, _ in told_at[2:])
    ours = [each.path for each in list(api.requests.log)[written:] if each.user_agent.startswith(OURS)]
    assert [path for path in ours if not path.startswith(EVENTS)] == []
    notices = [each.when for each in scans.notices if each.when in {When.DATA_AT_RISK, When.TEMPORAL_AWAY}]
    workers = 2 if events >= 500 else 1  # of an Event that is not there another worker knows nothing
    assert notices.count(When.DATA_AT_RISK) == 2 * workers, "after 10 and after 40 minutes"
    assert len(scans.meter.counted) == 2 * workers
    assert [each["count"] for each in await told(cluster)] == ([1, 1] if events < 500 else [])
    assert notices.count(When.TEMPORAL_AWAY) == 4
    assert next(turns, None) is not None


@pytest.mark.parametrize("why", ["stopped", "another's"])
async def test_a_cluster_that_is_not_ours_is_warned_of_nothing_while_temporal_is_away(
    cluster: ApiClient, scans: Scans, why: str
) -> None:
    """S38: its scanner was stopped, or another deployment's has the cluster, as before."""
    if why == "another's":
        await observe(await scans.open(), asked(holder="temporal-b/default", work_in_hand=True))
    scan = await scans.open(meter=scans.meter)
    await scans.observe(scan)
    if why == "stopped":
        await ActivityEnvironment().run(scan.release_lease, asked())
    alone = asyncio.create_task(scan.without_temporal())
    await fall(cluster, timedelta(hours=1))
    await until(lambda: scan.view.at_risk.next_due)
    with pytest.raises(TimeoutError):
        await until(lambda: scans.meter.counted, 0.5)
    await ended(alone)
    assert scans.meter.counted == []
    assert await told(cluster) == []


@pytest.mark.parametrize("stopped", [False, True])
async def test_s36_people_are_told_where_temporal_answers_and_no_scan_runs(
    cluster: ApiClient, scans: Scans, stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that was refused, a scanner that is stuck: no one renews the Lease. One that is stopped has given it back (S38)."""
    monkeypatch.setattr("activities.cluster.acts.scan.ABANDONED_AFTER", 0.0)
    scan = await scans.open(meter=scans.meter)
    await scans.observe(scan)
    if stopped:
        await ActivityEnvironment().run(scan.release_lease, asked())
    await fall(cluster, timedelta(hours=1))
    if stopped:
        with pytest.raises(TimeoutError):
            await until(lambda: scans.meter.counted, 2)
        return
    await until(lambda: scans.meter.counted, 5)
    (event,) = await told(cluster)
    assert (event["involvedObject"]["name"], event["count"]) == (SICK, 1)


@pytest.mark.parametrize("why", ["ready", "detached", "off", "gone"])
async def test_what_is_over_before_the_time_comes_is_never_told(cluster: ApiClient, scans: Scans, why: str) -> None:
    """S36: Ready again, nothing attached, off proven, the node gone."""
    scan = await scans.open()
    await fall(cluster, PATIENCE - timedelta(seconds=10))
    await scans.observe_until(scan, lambda report: report.at_risk.nodes)
    if why == "ready":
        await fall(cluster, timedelta(0), ready="True")
    elif why == "detached":
        await cluster.delete(f"{ATTACHMENTS}/va-1")
    elif why == "off":
        mark = Mark(incident="i", kind="Fencing", workflow_id="w", off_proven="2026-11-21T12:00:00Z").to_json()
        await cluster.patch(f"{NODES}/{SICK}", {"metadata": mark_metadata(mark)})
    else:
        await cluster.delete(f"{NODES}/{SICK}")
    await scans.observe_until(scan, lambda report: not report.at_risk.nodes)
    assert scan.view.at_risk.next_due is None
    assert await told(cluster) == []
    assert scans.meter.counted == []


async def test_a_node_that_no_cloud_knows_is_at_risk_though_its_object_is_deleted(cluster: ApiClient, scans: Scans) -> None:
    """S36: on bare metal nobody but a person deletes a Node, and its machine may run on."""
    await cluster.delete(f"{NODES}/{SICK}")
    await cluster.create(NODES, {**node(SICK), "spec": {}})
    scan = await scans.open()
    await fall(cluster, PATIENCE - timedelta(seconds=10))
    await scans.observe_until(scan, lambda report: report.at_risk.nodes and not report.at_risk.unread)
    await cluster.delete(f"{NODES}/{SICK}")
    report = await scans.observe_until(scan, lambda report: report.checks[0].total == 3)
    assert report.at_risk.nodes == 1
    await cluster.delete(f"{ATTACHMENTS}/va-1")
    await scans.observe_until(scan, lambda report: not report.at_risk.nodes)


async def test_the_deletion_of_a_pod_counts_from_when_it_was_asked_for(cluster: ApiClient, scans: Scans) -> None:
    """S36: its deletionTimestamp lies a grace period later than that."""
    await cluster.patch(f"{PODS}/db-0", {"metadata": {"finalizers": ["example.com/stays"]}})
    await cluster.delete(f"{PODS}/db-0", grace_seconds=240)
    asked = now()
    await fall(cluster, timedelta(seconds=60))
    scan = await scans.open()
    report = await scans.observe_until(scan, lambda report: report.at_risk.nodes and not report.at_risk.unread)
    due = report.at_risk.nearest[0].due
    assert due is not None
    assert abs(due - asked - timedelta(seconds=360)) < timedelta(seconds=2)


async def test_an_event_that_cannot_be_written_is_counted_by_the_metric_all_the_same(
    api: ApiServer, cluster: ApiClient, scans: Scans
) -> None:
    api.faults.add(Fault(accident=Accident.STATUS, path="events", status=500, user_agent="nodewarden/"))
    await fall(cluster, timedelta(hours=1))
    scan = await scans.open()
    await scans.observe_until(scan, lambda _: scans.meter.counted)
    assert await told(cluster) == []
    assert len(scans.meter.counted) == 1


async def test_while_another_deployment_holds_the_cluster_it_is_the_one_that_tells(cluster: ApiClient, scans: Scans) -> None:
    """S38."""
    theirs, ours = await scans.open(forced=False), await scans.open()
    await scans.observe_until(theirs, lambda report: report.lease.held, holder="temporal-b/default")
    await fall(cluster, timedelta(hours=1))
    report = await scans.observe_until(ours, lambda report: report.at_risk.nodes)
    report = await scans.observe(ours, report)
    assert not report.lease.held
    assert await told(cluster) == []
