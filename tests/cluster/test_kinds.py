"""What is read of a cluster is one table: a row taken out, or put in, shows in the watches, a snapshot, files and rights."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import orjson
import pytest

from activities.cluster.api.connection import ClusterConnection, Page
from activities.cluster.api.paths import (
    CAPI_MACHINE_HEALTH_CHECKS,
    MACHINES,
    NODE_HEALTH_CHECKS,
    OPENSHIFT_MACHINE_HEALTH_CHECKS,
    Resource,
)
from activities.cluster.objects.machines_decoding import CLUSTER_DECODING
from activities.cluster.watch import kinds
from activities.cluster.watch.kinds import EVERY_READER, KINDS, Destination, Reader, ReadKind, Since
from activities.cluster.watch.offline import ClusterSnapshot
from activities.cluster.watch.snapshot import take_snapshot
from activities.cluster.watch.watches import Watches
from policy.checks.circuit_breakers import LEADER_LEASES
from policy.checks.health_check import Overlap
from policy.objects.nodes import ETCD_NAMESPACE
from policy.scan.data_at_risk import DataAtRisk
from policy.scan.ledger import Ledger
from policy.values.machine_apis import CLUSTER_API
from policy.values.object_refs import Dialect
from starter.deploy.rights import RIGHTS, rights_to

NOW = datetime(2026, 1, 31, tzinfo=UTC)
SITE = ReadKind(
    resource=Resource(api_version="example.org/v1", kind="Site", plural="sites"),
    destination=Destination.CLUSTERS,
    decoding=CLUSTER_DECODING,
    readers=EVERY_READER,
)
OWNER = {"kind": "KubeadmControlPlane", "name": "cp", "uid": "1", "controller": True}
OWNED = {"metadata": {"name": "m", "namespace": "default", "ownerReferences": [OWNER]}}

CHECK = {"metadata": {"name": "workers"}}
HEALTH_CHECKS = (NODE_HEALTH_CHECKS, OPENSHIFT_MACHINE_HEALTH_CHECKS, CAPI_MACHINE_HEALTH_CHECKS)


class Server:
    """Has a health check of each dialect and a Machine that a control plane owns: a snapshot asks for all that it may ask for."""

    url = "https://here"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._objects: dict[str, Any] = {
            **{resource.path(): CHECK for resource in HEALTH_CHECKS},
            MACHINES[CLUSTER_API].path(): OWNED,
        }

    def now(self) -> datetime:
        return NOW

    async def list_pages(self, path: str, *, query: Mapping[str, str] | None = None) -> AsyncGenerator[Page, None]:
        self.asked.append(f"{path} {query}")
        there = self._objects.get(path)
        body = orjson.dumps({"metadata": {}, "items": [there] if there else []})
        yield Page(body=body, resource_version="1", last=True)

    async def get(self, path: str) -> dict[str, Any]:
        return {}


def followed() -> int:
    """How many collections are followed once everything has happened that has one followed."""
    nowhere = ClusterConnection.to("http://localhost:1")
    watches = Watches(
        nowhere,
        Ledger(),
        machines=None,
        clock=lambda: NOW,
        on_change=lambda: None,
        on_state=lambda: None,
        limits=None,
        at_risk=DataAtRisk(forced=True),
    )
    for since in set(Since) - {Since.TEMPLATE}:
        for dialect in Dialect:
            watches._follow(since, dialect)
    return len([*watches, *watches._beside()])


async def listed() -> int:
    """How many collections a snapshot lists."""
    server = Server()
    await take_snapshot(cast("ClusterConnection", server), machines=None, overlap=Overlap.STRICTEST, takeover=False)
    return len(server.asked)


def rows_are(monkeypatch: pytest.MonkeyPatch, rows: tuple[ReadKind, ...]) -> None:
    monkeypatch.setattr(kinds, "KINDS", rows)
    kinds.read_by.cache_clear()


@pytest.fixture(autouse=True)
def all_rows_again() -> Iterator[None]:
    yield
    kinds.read_by.cache_clear()


def is_known_in_files(kind: ReadKind) -> bool:
    """Whether an object of that kind is read as one, and not passed over."""
    metadata = {"name": "node-a", "namespace": "default"}
    match kind.destination:
        case Destination.FENCE_POLICIES:
            metadata["name"] = "fence-cluster-config"
        case Destination.SURROUNDINGS:
            metadata |= {"name": "etcd-guard-a", "namespace": ETCD_NAMESPACE}
        case Destination.NODE_LEASES:
            metadata["namespace"] = "medik8s-leases"
    cluster = ClusterSnapshot(NOW)
    cluster.put({"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, "metadata": metadata}, "a file")
    return not cluster._others


def is_granted(kind: ReadKind, rights: tuple[Any, ...]) -> bool:
    group = kind.resource.api_version.rpartition("/")[0]
    return any(
        group in right.groups
        and kind.resource.plural in right.resources
        and "watch" in right.verbs
        and (kind.only in right.names if kind.only else not right.names)
        for right in rights
    )


@pytest.mark.parametrize("kind", KINDS[1:], ids=lambda kind: f"{kind.resource.plural}-{kind.destination.name}")
async def test_without_its_row_a_kind_is_read_nowhere(kind: ReadKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the row of Nodes can be taken out. Templates are followed as a check names them: their rows are the rights."""
    watched = Reader.WATCH in kind.readers and kind.destination is not Destination.TEMPLATES
    before = followed(), await listed()
    assert is_granted(kind, RIGHTS) == (Reader.WATCH in kind.readers)
    assert is_known_in_files(kind) or Reader.FILES not in kind.readers
    left = tuple(each for each in KINDS if each is not kind)
    rows_are(monkeypatch, left)
    after = followed(), await listed()
    lost = tuple(some > fewer for some, fewer in zip(before, after, strict=True))
    assert lost == (watched, Reader.SNAPSHOT in kind.readers)
    assert not (Reader.FILES in kind.readers and is_known_in_files(kind))
    others = tuple(each for each in left if (each.resource, each.only) != (kind.resource, kind.only))
    assert not is_granted(kind, rights_to(others))


async def test_a_new_row_is_followed_listed_read_from_files_and_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    before = followed(), await listed()
    assert not is_known_in_files(SITE)
    rows_are(monkeypatch, (*KINDS, SITE))
    assert (followed(), await listed()) == tuple(number + 1 for number in before)
    assert is_known_in_files(SITE)
    assert not is_granted(SITE, RIGHTS)
    assert is_granted(SITE, rights_to((*KINDS, SITE)))


def test_the_leader_of_every_system_is_looked_for() -> None:
    assert {kind.dialect: kind.only for kind in KINDS if kind.destination is Destination.LEADERS} == LEADER_LEASES


def test_a_right_to_read_single_ones_comes_with_the_row() -> None:
    """What a last look reads as well as a watch takes the verb get."""
    singly = replace(SITE, read_singly=True)
    assert [right.verbs for right in rights_to((SITE, singly)) if "sites" in right.resources] == [
        ("list", "watch"),
        ("get", "list", "watch"),
    ]
