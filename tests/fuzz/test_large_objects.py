"""Objects as large as an API server takes them, of which one author may create hundreds: little of each is held (S41).

JSON takes eight to twelve times as much memory once it is decoded: ninety objects of a tenant were more than a worker's 1 GiB,
each time that it listed them, and with it went all clusters that it served.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from activities.cluster.live.control_plane import _list, _member_pod, _pod
from activities.cluster.objects.workload import READ_AT_ONCE, TOO_MANY, PodVolumes, _items, _pods, a_few_at_once
from activities.cluster.watch.kinds import Reader, ReadKind, _all_count, read_by, template_kind
from policy.checks.fence_policies import DEFAULT_SOURCE
from policy.episode.proofs import writes_only_behind_cut
from policy.values.object_refs import ObjectRef

LARGE = 500_000
"""Bytes. etcd takes three times as many, which would only take longer."""
LARGEST = 150_000
"""Bytes of memory that may be held of it."""

Json = dict[str, Any]

FOREIGN = ObjectRef(api_version="self-node-remediation.medik8s.io/v1alpha1", kind="SelfNodeRemediationTemplate", name="t")
KINDS: list[ReadKind] = [kind for kind in read_by(Reader.WATCH) if kind.counts is not _all_count] + [template_kind(FOREIGN)]


def entries(make: Callable[[int], Any]) -> list[Any]:
    """As many as an object has room for."""
    size = len(json.dumps(make(100_000))) + 2
    return [make(number) for number in range(LARGE // size)]


def texts(number: int) -> tuple[str, str]:
    return f"{number:x}", ""


OWNER = {"apiVersion": "v1", "kind": "K", "uid": "u", "controller": False}
METADATA: dict[str, Json] = {
    "labels": {"labels": dict(entries(texts))},
    "annotations": {"annotations": dict(entries(texts)[:25_000])},
    "ownerReferences": {"ownerReferences": entries(lambda number: OWNER | {"name": f"{number:x}"})},
    "finalizers": {"finalizers": entries(lambda number: f"x/{number:x}")},
    "managedFields": {"managedFields": entries(lambda number: {"manager": f"{number:x}"})},
}
CONDITIONS = {"conditions": entries(lambda number: {"type": f"{number:x}", "status": "True"})}
PARTS: dict[str, Json] = {
    "spec": {"spec": {"sharedparameters": dict(entries(texts))}},
    "template": {"spec": {"template": dict(entries(texts))}},
    "conditions": {"status": CONDITIONS},
    "status": {"status": dict(entries(texts))},
}


def held_of(decode: Callable[[bytes], object], document: Json) -> int:
    """Bytes of memory, once it was decoded. The least of some times: tables of the interpreter grow now and then."""
    body = json.dumps(document, separators=(",", ":")).encode()
    assert len(body) > LARGE / 6
    found = sys.maxsize
    for _ in range(3):
        tracemalloc.start()
        kept = decode(body)
        found = min(found, tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        del kept
        if found < LARGEST:
            break
    return found


def large(name: str) -> Json:
    metadata = {"name": "n", "namespace": "tenants", "uid": "u", "resourceVersion": "7"}
    return {"metadata": metadata | METADATA.get(name, {})} | PARTS.get(name, {})


@pytest.mark.parametrize("where", [*METADATA, *PARTS])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.resource.kind}-{kind.destination.name}")
def test_s41_of_an_object_that_does_not_count_little_is_held(kind: ReadKind, where: str) -> None:
    decoding = kind.decoding_for(DEFAULT_SOURCE)
    assert held_of(lambda body: [*decoding.items(body)], {"items": [large(where)]}) < LARGEST


VOLUMES: dict[str, Callable[[int], Json]] = {
    "claims": lambda number: {"name": f"{number:x}", "persistentVolumeClaim": {"claimName": f"{number:x}"}},
    "ephemeral": lambda number: {"name": f"{number:x}", "ephemeral": {}},
    "emptyDir": lambda number: {"name": f"{number:x}", "emptyDir": {}},
    "disks": lambda number: {"name": f"{number:x}", "gcePersistentDisk": {"pdName": f"{number:x}"}},
    "unknown": lambda number: {"name": "v", f"{number:x}": {}},
}
SOURCES = entries(lambda number: {"secret": {"name": f"{number:x}"}})
SPECS: dict[str, Json] = {
    **{name: {"volumes": entries(make)} for name, make in VOLUMES.items()},
    "projected": {"volumes": [{"name": "v", "projected": {"sources": SOURCES}}]},
    "tolerations": {"tolerations": entries(lambda number: {"key": f"{number:x}"})},
    "one toleration": {"tolerations": entries(lambda number: {"operator": "Exists", "value": f"{number:x}"})},
    "containers": {"containers": entries(lambda number: {"name": f"{number:x}"})},
}


@pytest.mark.parametrize("where", [*METADATA, *SPECS, "conditions"])
def test_s41_of_a_pod_little_is_held(where: str) -> None:
    found = {"items": [large(where) | {"spec": {"nodeName": "node-1"} | SPECS.get(where, {})}]}
    assert held_of(lambda body: _items(_pods, body), found) < LARGEST
    assert held_of(lambda body: [_member_pod(_pod.decode(each)) for each in _list.decode(body).items or ()], found) < LARGEST


def test_s41_a_pod_with_more_claims_than_a_machine_has_room_for_is_not_behind_a_cut() -> None:
    """Each claim is a request: 25,000 of them, for which a pod has room, were sent at once."""
    found = PodVolumes(VOLUMES["claims"](number) for number in range(25_000))
    assert len(found.claims) <= 256
    assert TOO_MANY in found.sources
    assert not writes_only_behind_cut(["pv"], found.sources, {"pv"})
    assert msgspec.json.Decoder(PodVolumes, dec_hook=PodVolumes.read).decode(b"null").sources == ()


async def test_s41_few_of_what_pods_name_is_asked_for_at_once() -> None:
    asking, most = 0, 0

    async def ask(number: int) -> int:
        nonlocal asking, most
        asking += 1
        most = max(most, asking)
        await asyncio.sleep(0)
        asking -= 1
        return -number

    assert await a_few_at_once(ask, [*range(1000), 3]) == {number: -number for number in range(1000)}
    assert most <= READ_AT_ONCE
