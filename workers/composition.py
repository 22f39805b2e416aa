"""The composition root: from settings to connections to activities to what each task queue serves.

The only module that knows every implementation. Imports of clients are inside the functions, so that a process that serves one
role loads only what that role needs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from activities.contracts.device_check import FenceDeviceActivities, FenceDevicesRequest
from activities.licences import Licences
from policy.episode.events import When
from policy.scan.data_at_risk import DataAtRisk
from workers.configuration.clusters import ClusterSettings, open_cluster, open_connection
from workers.configuration.settings import Settings
from workers.deployment_keys import keyring_of
from workers.errors import SettingsError
from workers.interceptors.activity_guards import ClusterGuard, seen_by_scanner
from workers.os_process import give_back_memory
from workers.runtime import runtime
from workers.telemetry import decision_stream
from workers.worker import Role, Serving, activities_of
from workflows.kit.options import WORKFLOW_QUEUE, cluster_queue, power_queue

if TYPE_CHECKING:
    from activities.cluster.api.connection import ClusterConnection
    from activities.cluster.watch.view import ClusterView
    from activities.decision_stream import RecordDecisions
    from activities.evidence_directory import EvidenceDirectory
    from activities.notification_sender import Notify
    from activities.power.kdump_listener import KdumpListener
    from policy.episode.notices import Notice
    from workers.configuration.credentials import ObjectSource


_log = logging.getLogger(__name__)


@asynccontextmanager
async def compose(
    settings: Settings, client: Client, *, clusters: Mapping[str, ClusterSettings], role: Role = Role.ALL
) -> AsyncIterator[list[Serving]]:
    """What this process serves, with connections that live as long as the context. Raises SettingsError for a bad connection."""
    async with AsyncExitStack() as stack:
        notify = await _notify(stack, settings)
        serves_clusters = role in {Role.ALL, Role.CLUSTER}
        record = await decision_stream(stack, settings.stream, client) if serves_clusters else None
        servings: list[Serving] = []
        if role in {Role.ALL, Role.WORKFLOWS}:
            servings.append(workflow_serving(client, page=settings.page_url))
        connections: dict[str, ClusterConnection] = {}
        if needs_clusters(settings, role):
            for name, cluster in clusters.items():
                connections[name] = await stack.enter_async_context(await open_connection(name, cluster))
        cluster_guards = {
            name: ClusterGuard(name, own=connection.cluster_uid, seen=partial(seen_by_scanner, client, name))
            for name, connection in connections.items()
        }
        licences = Licences(await keyring_of(settings, clusters, connections)) if role is not Role.WORKFLOWS else None
        if licences is not None and serves_clusters:
            for name, connection in connections.items():
                elsewhere = clusters[name].machines
                opened = open_connection(f"{name}.machines", elsewhere) if elsewhere is not None else None
                machines = await stack.enter_async_context(await opened) if opened is not None else None
                servings.append(
                    await _cluster_serving(
                        stack,
                        settings,
                        client,
                        name,
                        connection,
                        cluster_guard=cluster_guards[name],
                        licences=licences,
                        machines=machines,
                        cluster=clusters[name],
                        notify=notify,
                        record=record,
                        has_power=role is Role.ALL,
                    )
                )
        if role is not Role.WORKFLOWS and settings.evidence.directory is None:
            _log.info("evidence.directory is not set: of machines that are preserved no evidence is kept")
        if licences is not None and role in {Role.ALL, Role.POWER}:
            listener = await _kdump_listener(stack, settings.kdump.listen)
            objects = _objects_of(settings, connections, cluster_guards)
            servings += [_power_serving(settings, site, objects, licences, listener) for site in settings.sites]
        yield servings


def needs_clusters(settings: Settings, role: Role) -> bool:
    """Whether that role talks to clusters at all: power workers do so only for their credentials."""
    return role in {Role.ALL, Role.CLUSTER} or (role is Role.POWER and settings.secrets_directory is None)


def workflow_serving(client: Client, *, page: str) -> Serving:
    """Workflows, and the activities that hold the Temporal client. page: see EpisodeService."""
    from activities.episodes import EpisodeService
    from workers.temporal_namespace import holder
    from workflows.definitions.device_check import DeviceCheck, DeviceCheckPage
    from workflows.definitions.episodes import Fencing, Preservation, RecordedObservation, Remediation
    from workflows.definitions.scanner import HealthScanner

    return Serving(
        queue=WORKFLOW_QUEUE,
        workflows=(HealthScanner, Fencing, Preservation, Remediation, DeviceCheck, DeviceCheckPage, RecordedObservation),
        activities=activities_of(EpisodeService(client, task_queue=WORKFLOW_QUEUE, holder=holder, page=page)),
    )


async def _cluster_serving(
    stack: AsyncExitStack,
    settings: Settings,
    client: Client,
    name: str,
    connection: ClusterConnection,
    *,
    cluster_guard: ClusterGuard,
    licences: Licences,
    machines: ClusterConnection | None,
    cluster: ClusterSettings,
    notify: Notify,
    record: RecordDecisions | None,
    has_power: bool,
) -> Serving:
    """has_power: this process serves the power devices as well."""
    from activities.cluster.acts.evidence import ClusterEvidence
    from activities.cluster.acts.failed_volumes import ClusterFailedVolumes
    from activities.cluster.acts.fence_devices import ClusterFenceDevices
    from activities.cluster.acts.freeing import ClusterFreeing
    from activities.cluster.acts.isolation import ClusterIsolation
    from activities.cluster.acts.node_actions import ClusterAttestation
    from activities.cluster.acts.preservation import ClusterPreservation
    from activities.cluster.acts.remediation import ClusterRemediation
    from activities.cluster.acts.remediation_objects import ClusterRemediationObjects
    from activities.cluster.acts.scan import ClusterObservations, ClusterScan
    from activities.cluster.acts.targets import ClusterTarget
    from activities.cluster.api.paths import NODE_FENCES, PROPOSED_NODE_FENCES
    from activities.cluster.api.served_cluster import ServedCluster
    from activities.cluster.live.claims import Identities
    from activities.cluster.report.nodefences import NodeFences
    from activities.our_workflows import OurWorkflows
    from activities.temporal_clients import (
        DeviceCheckClient,
        MachineRepairs,
        NodeActionDispatcher,
        ObservationStarter,
        ScannerPermits,
        look_after_scanner,
        report_lost_scan,
    )

    ours = OurWorkflows(client, task_queue=WORKFLOW_QUEUE)
    device_check = DeviceCheckClient(client, ours)
    verified = settings.worker.commands == "verified"
    source, remediators = settings.policy_source(), settings.remediation.known_remediators()
    served = ServedCluster(
        name,
        connection,
        machines=machines,
        own_node=settings.node_name,
        source=source,
        remediators=remediators,
        credential_hosts=lambda: device_check.hosts(name),
        repairs=MachineRepairs(client, name, settings.offenders.rules()).found,
        record=record,
        takeover=settings.scan.takeover,
        only_verified=verified,
        retries=settings.remediation.retries(),
    )
    permits = ScannerPermits(ours)
    kind = NODE_FENCES if settings.node_fence.group == "nodewarden.io" else PROPOSED_NODE_FENCES
    fences = NodeFences(connection, kept_for=settings.node_fence.kept_for, kind=kind)
    view = _view_of(settings, cluster, connection, machines)

    def notify_with_node(notice: Notice) -> None:
        """With what the ledger knows of the node at that moment, for people who asked for some nodes only."""
        notify(replace(notice, known=view.ledger.described(notice.node)))

    devices = ClusterFenceDevices(served, licences, looked_after=lambda: bool(view.check_objects), watched=view)
    scan = await stack.enter_async_context(
        ClusterScan(
            name,
            view,
            fences=fences,
            prepare=partial(load_drivers, name, devices) if has_power else None,
            dispatch=NodeActionDispatcher(client, task_queue=WORKFLOW_QUEUE, page=settings.page_url).dispatch,
            notify_device_check=partial(device_check.notify_of_policies, name),
            report_lost_scan=partial(report_lost_scan, client, name),
            look_after_scanner=partial(look_after_scanner, client, ours, name),
            meter=runtime().metric_meter,
            notify=notify_with_node,
            record=record,
            licences=licences,
        )
    )
    identities = Identities(served.connections, scan.view)
    target = ClusterTarget(
        served,
        permits,
        licences,
        fences=fences,
        identities=identities,
        checked=device_check,
        notify=notify_with_node,
    )
    return Serving(
        queue=cluster_queue(name),
        activities=activities_of(
            scan,
            target,
            ClusterAttestation(served, licences, required=verified),
            devices,
            ClusterIsolation(
                served,
                target.last_look,
                permits,
                licences,
                fences=fences,
                identities=identities,
                notify=notify_with_node,
            ),
            ClusterFreeing(served, target.last_look, licences, identities=identities, checked=device_check),
            ClusterRemediation(served, target.last_look),
            ClusterPreservation(
                served,
                target.last_look,
                permits,
                licences=licences if verified else None,
                pools=settings.preservation.known_pools(),
            ),
            ClusterFailedVolumes(served),
            ClusterRemediationObjects(served, target.last_look),
            ClusterObservations(served, start=ObservationStarter(client, task_queue=WORKFLOW_QUEUE).start),
            ClusterEvidence(served, evidence_directory(settings), licences),
        ),
        guards=(cluster_guard,),
        without_temporal=scan.without_temporal,
    )


def _view_of(
    settings: Settings, cluster: ClusterSettings, connection: ClusterConnection, machines: ClusterConnection | None
) -> ClusterView:
    from activities.cluster.watch.freshness import ViewLimits
    from activities.cluster.watch.view import ClusterView

    return ClusterView(
        connection,
        machines=machines,
        limits=ViewLimits(grace=settings.scan.start_up_grace),
        overlap=settings.scan.overlap,
        takeover=settings.scan.takeover,
        at_risk=DataAtRisk(
            margin=settings.scan.at_risk_margin,
            repeat=settings.scan.at_risk_repeat,
            forced=cluster.force_detach_on_timeout,
        ),
        source=settings.policy_source(),
        pools=settings.preservation.known_pools(),
        retries=settings.remediation.retries(),
        remediators=settings.remediation.known_remediators(),
    )


async def warn_without_temporal(settings: Settings, clusters: Mapping[str, ClusterSettings]) -> None:
    """What a worker of these clusters does that has not reached Temporal yet, until it is cancelled: it warns of data at risk
    (S36)."""
    from activities.cluster.acts.scan import ClusterScan

    async with AsyncExitStack() as stack:
        notify, scans = await _notify(stack, settings), list[ClusterScan]()
        opened = {name: await stack.enter_async_context(open_cluster(name, each)) for name, each in clusters.items()}
        licences = Licences(await keyring_of(settings, clusters, {name: connection for name, (connection, _) in opened.items()}))
        for name, (connection, machines) in opened.items():
            view = _view_of(settings, clusters[name], connection, machines)
            scan = ClusterScan(name, view, meter=runtime().metric_meter, notify=notify, licences=licences)
            scans.append(await stack.enter_async_context(scan))
        await asyncio.gather(*(each.without_temporal() for each in scans))


async def notify_of_end(settings: Settings, clusters: Mapping[str, ClusterSettings], why: str) -> None:
    """Notify people of a worker of these clusters that ends at its start, in a few seconds at most."""
    from policy.episode.notices import Notice

    async with AsyncExitStack() as stack:
        notify = await _notify(stack, settings)
        for name in clusters:
            notify(Notice(when=When.TEMPORAL_AWAY, cluster=name, subject="temporal-away", text=why))


async def _notify(stack: AsyncExitStack, settings: Settings) -> Notify:
    """One for the process: messages of all clusters to one address are counted together."""
    from activities.notification_sender import Notifier, Recipient, discard_notice

    if not settings.notifications:
        return discard_notice
    recipients = [
        Recipient(
            name=f"notifications[{number}]",
            url_file=each.url_file,
            rule=each.rule(),
        )
        for number, each in enumerate(settings.notifications)
    ]
    return (await stack.enter_async_context(Notifier(recipients, page=settings.page_url, meter=runtime().metric_meter))).notify


def evidence_directory(settings: Settings) -> EvidenceDirectory | None:
    """Where evidence is kept, None where none is."""
    from activities.evidence_directory import EvidenceDirectory, Limits

    kept = settings.evidence
    if kept.directory is None:
        return None
    limits = Limits(file_bytes=kept.file_bytes, bundle_bytes=kept.bundle_bytes, patience=kept.patience)
    return EvidenceDirectory(kept.directory, limits)


async def _kdump_listener(stack: AsyncExitStack, listen: str) -> KdumpListener | None:
    """One for the process, whatever sites it serves."""
    if not listen:
        return None
    from activities.power.kdump_listener import listening

    host, _, port = listen.rpartition(":")
    try:
        return await stack.enter_async_context(listening(host.strip("[]"), int(port)))
    except OSError as error:
        message = f"kdump.listen: expected an address to listen on (UDP), got {listen!r}: {error.strerror or error}"
        raise SettingsError(message) from error


def _objects_of(
    settings: Settings, connections: Mapping[str, ClusterConnection], cluster_guards: Mapping[str, ClusterGuard]
) -> ObjectSource:
    """Where the credentials of devices are: mounted, or in the cluster that the episode is in."""
    from workers.configuration.credentials import ClusterObjects, MountedObjects

    async def require_meant(cluster: str) -> None:
        await cluster_guards[cluster].require_ours()

    directory = settings.secrets_directory
    return MountedObjects(directory) if directory is not None else ClusterObjects(connections, require_meant=require_meant)


def _power_serving(
    settings: Settings,
    site: str,
    objects: ObjectSource,
    licences: Licences,
    listener: KdumpListener | None,
) -> Serving:
    from activities.power.kdump_listener import EvidenceService
    from activities.power.registry import driver_for
    from activities.power.service import DeviceEvidence, DeviceReadings, PowerService
    from workers.configuration.credentials import WorkerCredentials

    directory = settings.secrets_directory
    insecure = settings.worker.insecure_devices
    credentials = WorkerCredentials(
        objects,
        directory=directory,
        withheld=licences.is_key,
        hosts=settings.worker.credential_hosts,
        variables=settings.worker.credential_variables,
        insecure=insecure,
    )
    drivers = partial(
        driver_for,
        further_agents=frozenset(settings.worker.fence_agents),
        cloud_endpoints=frozenset(each.rstrip("/") for each in settings.worker.cloud_endpoints),
    )
    return Serving(
        queue=power_queue(site),
        activities=activities_of(
            PowerService(credentials, licences, own_node=settings.node_name, drivers=drivers),
            DeviceReadings(credentials, licences, drivers=drivers, insecure=insecure),
            EvidenceService(listener, licences),
            DeviceEvidence(credentials, licences, drivers=drivers, directory=evidence_directory(settings)),
        ),
        slots=settings.worker.power_slots,
    )


# What a worker loads before the first node fails.
#
# A cloud's client library takes a noticeable time of a core to import. Left to the first act, it is imported while nodes wait to
# be isolated, and the whole worker stands still with them. Which libraries a cluster needs, its fence configuration says.


async def load_drivers(
    cluster: str, devices: FenceDeviceActivities, nodes: Sequence[str], *, loads: Callable[[str], None] | None = None
) -> None:
    """Load what the drivers of these nodes' devices need. devices: finds them. What can't be found out now, the first act
    loads."""
    from activities.power.registry import load

    try:
        found = await devices.find_devices(FenceDevicesRequest(cluster=cluster, nodes=tuple(nodes)))
    except ApplicationError as error:
        _log.info("cluster %s: no power driver is loaded yet: %s", cluster, error.message)
        return
    for driver in sorted({each.device.driver for node in found.nodes for each in node.devices}):
        await asyncio.to_thread(loads or load, driver)
    give_back_memory()
