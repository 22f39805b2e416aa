"""Objects with a word that is as long as one object may be, or with a very long list: what a scan says of all stays short (S41).

It goes whole to Temporal, which takes 2 MiB at once, and then the scanner has it in its state and in what it asks next.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import pytest

from activities.cluster.api import paths
from policy.episode.gate import HOLD_ANNOTATION
from policy.objects.machines import EVERY_NAMESPACE
from policy.objects.remediations import NODE_NAME_ANNOTATION
from policy.remediation.memory import LAST_REMEDIATION_ANNOTATION, LastRemediation, written_memory
from tests.cluster.fencing_requests import OBEYED, remediation
from tests.fuzz.strange import NODE, PATIENCE, WATCHED, Json, Path, a_node, at, named, places
from tests.fuzz.test_objects import Followed, other
from tests.policy.builders import check_object
from tests.policy.dialects.test_bad_objects import TEMPLATE
from tests.vectors.objects import NOW
from workers.payloads.converter import DATA_CONVERTER

pytestmark = PATIENCE

LONG, LONG_ANNOTATION, MANY = "x" * 300_000, "x" * 250_000, 5_000
LARGEST = 100_000
"""Characters; what is said of this cluster without such an object takes some 10,000."""

BOUNDED = {"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "labels", "managedFields"}
"""What an API server makes, or bounds, of all that an object says of itself."""

REMEMBERED = written_memory(LastRemediation(of="m", at=NOW, retry=1, failed=("s",), incident="i"))
LADDER = {"x/ladder": ""}


def standing(name: str, **metadata: Json) -> Json:
    """A Node that nobody has in hand."""
    node = other(a_node(name), metadata={"annotations": {}, **metadata}, spec={"providerID": name})
    return other(node, status={"nodeInfo": {"bootID": name, "systemUUID": name}})


def settled(document: Json) -> Json:
    """Without a sign of another controller."""
    return other(document, metadata={"managedFields": []})


HOLD_BACK = {"ClusterVersion", "MachineConfigPool", "Lease"}
"""While such an object is there no node is due."""
MADE = {"apiVersion": "self-node-remediation.medik8s.io/v1alpha1", "kind": "SelfNodeRemediation"}
OWNER = {"kind": "NodeHealthCheck", "name": "ladder", "uid": "uid-of-ladder", "controller": False}
OF_A_TENANT = named(remediation("of-a-tenant", namespace="tenant"), annotations={NODE_NAME_ANNOTATION: NODE})
WORLD: list[tuple[paths.Resource, Json]] = [
    *((resource, settled(document)) for resource, document in WATCHED if resource.kind not in HOLD_BACK),
    (paths.NODES, standing("held", annotations={HOLD_ANNOTATION: "h"})),
    (paths.NODES, standing("due", labels=LADDER, annotations={LAST_REMEDIATION_ANNOTATION: REMEMBERED})),
    (
        paths.NODE_HEALTH_CHECKS,
        check_object("ladder", selector={"matchLabels": LADDER}, remediationTemplate=TEMPLATE, minHealthy="0%"),
    ),
    (paths.NODE_HEALTH_CHECKS, check_object("paused", pauseRequests=["upgrade"])),
    (paths.FENCE_AGENTS_REMEDIATIONS, settled(OF_A_TENANT)),
    (
        paths.Resource(api_version=MADE["apiVersion"], kind=MADE["kind"], plural="selfnoderemediations"),
        MADE
        | named(
            {"metadata": {"name": "gone", "namespace": "default", "ownerReferences": [OWNER]}},
            annotations={NODE_NAME_ANNOTATION: "gone"},
        ),
    ),
]


EVERYWHERE = replace(OBEYED, machines=(EVERY_NAMESPACE,))


def length(found: object) -> int:
    return len(DATA_CONVERTER.payload_converter.to_payload(found).data)


def lengthened(document: Json) -> Iterator[tuple[Path, Json]]:
    """The object with one word long, or one list, and where."""
    for path in places(document):
        old, bounded = (
            at(document, path),
            path[0] in {"apiVersion", "kind"} or (path[0] == "metadata" and path[1:2] and path[1] in BOUNDED),
        )
        if bounded or not isinstance(old, str | list):
            continue
        found = copy.deepcopy(document)
        more = old * MANY if isinstance(old, list) else old + (LONG_ANNOTATION if "annotations" in path else LONG)
        at(found, path[:-1])[path[-1]] = more
        yield path, found


OBJECTS = [*WORLD, *(each for each in WATCHED if each[0].kind in HOLD_BACK)]


@pytest.mark.parametrize(
    ("resource", "document"), OBJECTS, ids=[f"{resource.kind}-{found['metadata']['name']}" for resource, found in OBJECTS]
)
def test_s41_no_long_word_of_one_object_makes_a_report_long(resource: paths.Resource, document: Json) -> None:
    followed = Followed(WORLD, EVERYWHERE)
    assert length(followed.conclude()) < LARGEST / 4
    found = dict[Path, int]()
    for path, written in lengthened(document):
        followed.hear(resource, [written])
        found[path] = length(followed.conclude())
    assert not {path: each for path, each in found.items() if each > LARGEST}
