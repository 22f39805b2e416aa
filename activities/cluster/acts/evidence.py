"""What the cluster's API says of a machine when it is first kept: the objects, Events about them, their conditions.

All of it is read at once and for so long only; what has not come by then is named in the manifest. Secrets are no
evidence, and of the objects that are, what is named like a credential is not kept (`policy/episode/evidence.py`, S12). Which
devices may be asked besides follows from the node's fence configuration; they are read at their site
(`activities/power/service.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.events import CLUSTER_SCOPED_NAMESPACE
from activities.cluster.api.paths import EVENTS, NODES
from activities.cluster.api.served_cluster import ClusterActivities, ServedCluster
from activities.cluster.live.plans import plan_for
from activities.cluster.live.preserved_machine import PreservedMachineReader
from activities.cluster.objects.decoding import decode_node
from activities.contracts.evidence import (
    BundleName,
    Collected,
    CollectRequest,
    EvidenceCollection,
    EvidenceFile,
    NotFetched,
    Sealed,
    SealRequest,
)
from activities.errors import ErrorType, failure
from activities.evidence_directory import MANIFEST, MANIFEST_ROOM, EvidenceDirectory
from activities.licences import Licences
from policy.episode.evidence import last_seen_at, timeline, without_secrets
from policy.episode.messages import Need
from policy.fence.plan import PowerDevice

READING_SHARE = 0.5
"""Of the patience with one bundle; the rest is for writing."""

EVENTS_READ = 2000
"""Of one object, at most."""

DEVICES_ASKED = 4
"""Of one machine, at most: those that say something of it, not every socket that feeds it."""

TALKING_DRIVERS = frozenset({"ec2", "gce", "ipmi"})
"""The drivers that can read a console or an event log."""

WHY_LENGTH = 300

Parts = dict[str, Awaitable[Any]]


@dataclass(slots=True, kw_only=True)
class _Writing:
    directory: EvidenceDirectory
    bundle: BundleName
    room: int
    files: list[EvidenceFile] = field(default_factory=list)
    missing: list[NotFetched] = field(default_factory=list)

    def miss(self, of: str, why: str) -> None:
        self.missing.append(NotFetched(of=of, why=why[:WHY_LENGTH]))

    async def write(self, name: str, content: bytes, *, of: str, whole: int = 0) -> None:
        """As much of it as may be kept."""
        limit = min(self.room, self.directory.limits.file_bytes)
        if limit <= 0:
            self.miss(of, "the bundle has no room for it")
            return
        kept = content[:limit]
        file = await self.directory.write(self.bundle, name, kept, of=of, whole=whole or len(content))
        self.room -= file.size
        self.files.append(file)


class ClusterEvidence(ClusterActivities, EvidenceCollection):
    """Served by the workers of one cluster's queue. directory None: nothing is kept."""

    def __init__(self, served: ServedCluster, directory: EvidenceDirectory | None, licences: Licences) -> None:
        super().__init__(served)
        self._licences = licences
        self._directory = directory
        self._keeping = PreservedMachineReader(self._connections)

    async def collect(self, request: CollectRequest) -> Collected:
        directory = self._kept_in()
        async with directory.patiently():
            await directory.begin(request.bundle)
            return await self._collected(request, directory)

    async def _collected(self, request: CollectRequest, directory: EvidenceDirectory) -> Collected:
        writing = _Writing(directory=directory, bundle=request.bundle, room=max(0, directory.limits.bundle_bytes - MANIFEST_ROOM))
        found = await self._fetch(self._parts(request), writing)
        objects: dict[str, JsonObject] = {}
        for kind, uid in (("node", request.node_uid), ("machine", request.machine_uid)):
            document = found.get(kind)
            if document is not None and uid and document["metadata"].get("uid") != uid:
                writing.miss(kind, "another one has its name now")
            elif document is not None:
                objects[kind] = without_secrets(document)
                await writing.write(f"{kind}.json", _json(objects[kind]), of=kind)
        events = {kind: found.get(f"{kind}-events") or [] for kind in ("node", "machine")}
        entries = timeline(objects.get("node"), objects.get("machine"), (each for kind in events for each in events[kind]))
        await self._write_list(writing, "timeline.json", entries)
        for kind, several in events.items():
            if f"{kind}-events" in found:
                await self._write_list(writing, f"{kind}-events.json", [without_secrets(each) for each in several])
        devices = await self._devices(found, objects, writing)
        return Collected(files=tuple(writing.files), missing=tuple(writing.missing), devices=devices, room=writing.room)

    async def seal(self, request: SealRequest) -> Sealed:
        """The manifest is the last file: a bundle without one was not finished."""
        directory = self._kept_in()
        async with directory.patiently():
            return await _sealed(request, directory)

    def _kept_in(self) -> EvidenceDirectory:
        if self._directory is None:
            raise failure(ErrorType.NOT_SUPPORTED, "evidence.directory is not set: no evidence is kept")
        return self._directory

    def _parts(self, request: CollectRequest) -> Parts:
        parts: Parts = {}
        if (machine := request.machine) is not None:
            connection = self._keeping.connection_of(machine)
            parts["machine"] = connection.get(self._keeping.path_of(machine))
            parts["machine-events"] = _events(connection, machine.namespace, machine.kind, machine.name)
        if request.node:
            parts["node"] = self._connection.get(NODES.path(request.node))
            parts["node-events"] = _events(self._connection, CLUSTER_SCOPED_NAMESPACE, "Node", request.node)
        return parts

    async def _fetch(self, parts: Parts, writing: _Writing) -> dict[str, Any]:
        """All at once. One that fails or hangs keeps none of the others."""
        seconds = writing.directory.limits.patience.total_seconds() * READING_SHARE
        answers = await asyncio.gather(*(_within(seconds, each) for each in parts.values()), return_exceptions=True)
        found = {}
        for name, answer in zip(parts, answers, strict=True):
            if isinstance(answer, ApplicationError):
                writing.miss(name, answer.message)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[name] = answer
        return found

    async def _write_list(self, writing: _Writing, name: str, entries: list[JsonObject] | list[dict[str, str]]) -> None:
        """Whole entries, the newest ones where not all may be kept."""
        limit, size, first = min(writing.room, writing.directory.limits.file_bytes), 4, len(entries)
        encoded = [_json(each) for each in entries]
        while first and size + len(encoded[first - 1]) + 1 <= limit:
            first -= 1
            size += len(encoded[first]) + 1
        whole = sum(len(each) + 1 for each in encoded) + 4
        content = b"[\n" + b",".join(encoded[first:]) + b"]\n"
        await writing.write(name, content, of=name.removesuffix(".json"), whole=whole if first else 0)

    async def _devices(
        self, found: Mapping[str, Any], objects: Mapping[str, JsonObject], writing: _Writing
    ) -> tuple[PowerDevice, ...]:
        """Those by which a fencing would switch this machine, where they have more to tell."""
        if "node" not in objects:
            writing.miss("console", "there is no Node by which to find its device")
            return ()
        seconds = writing.directory.limits.patience.total_seconds() * READING_SHARE / 2
        try:
            async with asyncio.timeout(seconds):
                node = decode_node(orjson.dumps(found["node"]))
                plan = await plan_for(self._connections, node, None, Need(), source=self._source)
        except TimeoutError:
            writing.miss("console", f"its fence configuration could not be read within {seconds:g} s")
            return ()
        except (ApplicationError, msgspec.MsgspecError, ValueError) as error:
            writing.miss("console", f"no device is known: {getattr(error, 'message', error)}")
            return ()
        hosts = await self._served.credential_hosts()
        devices = {device.endpoint: device for device in self._licences.sealed(self._cluster, node.name, plan, hosts).devices}
        talking = [device for device in devices.values() if device.driver in TALKING_DRIVERS]
        for device in devices.values():
            if device not in talking[:DEVICES_ASKED]:
                silent = f"{device.driver} reads neither console nor event log"
                writing.miss(device.endpoint, f"{DEVICES_ASKED} devices are asked at most" if device in talking else silent)
        return tuple(talking[:DEVICES_ASKED])


async def _sealed(request: SealRequest, directory: EvidenceDirectory) -> Sealed:
    files, missing = list[EvidenceFile](), list(request.missing)
    for each in request.files:
        if why := await directory.differs(request.bundle, each):
            missing.append(NotFetched(of=each.of, why=why))
        else:
            files.append(each)
    manifest = {
        "version": 1,
        **asdict(request.bundle),
        "began": request.began,
        "sealed": datetime.now(UTC),
        "files": [asdict(each) for each in files],
        "notFetched": [asdict(each) for each in missing],
    }
    written = await directory.write(request.bundle, MANIFEST, _json(manifest), of="the bundle")
    return Sealed(
        path=str(directory.path_of(request.bundle) / MANIFEST),
        sha256=written.sha256,
        files=len(files),
        size=sum(each.size for each in files),
        missing=tuple(missing),
    )


async def _within(seconds: float, reading: Awaitable[Any]) -> Any:
    try:
        async with asyncio.timeout(seconds):
            return await reading
    except TimeoutError:
        raise failure(ErrorType.UNREACHABLE, f"the API did not answer within {seconds:g} s") from None


async def _events(connection: ClusterConnection, namespace: str, kind: str, name: str) -> list[JsonObject]:
    """Oldest first. Kubelets give a Node's name for its uid, so they are found by name."""
    query = {"fieldSelector": f"involvedObject.kind={kind},involvedObject.name={name}"}
    found: list[JsonObject] = []
    async for page in connection.list_pages(EVENTS.path(namespace=namespace), query=query):
        found += orjson.loads(page.body).get("items") or []
        if len(found) >= EVENTS_READ:
            break
    return sorted(_about(found, kind, name), key=last_seen_at)


def _about(events: Iterable[JsonObject], kind: str, name: str) -> list[JsonObject]:
    """A name with a comma in it would select others."""
    about = ((each, each.get("involvedObject") or {}) for each in events)
    return [each for each, of in about if (of.get("kind"), of.get("name")) == (kind, name)]


def _json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE)
