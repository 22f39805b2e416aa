"""What one Machine says, whosever it is: whose, whether it goes and what holds that up, whether it will ever work, until when it
is kept; in whichever version it is served. And that there is one decoder of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest

from activities.cluster.api.paths import CAPI_CLUSTERS, Resource
from activities.cluster.api.refusals import ObjectNotFound
from activities.cluster.api.served_cluster import as_served
from activities.cluster.objects.machines_decoding import machine_decoding, read_machine
from policy.objects.machines import MachineView
from policy.values.machine_apis import CLUSTER_API, MACHINE_APIS, MCM, OPENSHIFT, MachineApi

DELETED = "2026-11-21T12:00:00Z"


def a_machine(api: MachineApi = OPENSHIFT, **fields: Any) -> MachineView:
    """As a live read has it; and as a watch does, which is the same."""
    metadata = {"name": "m", "namespace": "n"} | fields.pop("metadata", {})
    document = {"apiVersion": api.api_version, "kind": "Machine", "metadata": metadata, **fields}
    view = read_machine(document, api)
    [item] = machine_decoding(api).items(orjson.dumps({"items": [document]}))
    assert view == machine_decoding(api).one(orjson.dumps(document)).value == item.value
    return view


def going(api: MachineApi = OPENSHIFT, **fields: Any) -> MachineView:
    """One whose deletion was asked for."""
    return a_machine(api, **{**fields, "metadata": {"deletionTimestamp": DELETED} | fields.get("metadata", {})})


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (
            going(CLUSTER_API, status={"conditions": [{"type": "Deleting", "status": "True", "message": "Drain: 2 pods left"}]}),
            "Deleting: Drain: 2 pods left",
        ),
        (going(status={"conditions": [{"type": "Drained", "status": "False", "reason": "Draining"}]}), "Drained: Draining"),
        (
            going(CLUSTER_API, metadata={"annotations": {"pre-drain.delete.hook.machine.cluster.x-k8s.io/backup": "ada"}}),
            "its hooks pre-drain.delete.hook.machine.cluster.x-k8s.io/backup",
        ),
        (
            going(spec={"lifecycleHooks": {"preDrain": [{"name": "EtcdQuorumOperator", "owner": "etcd"}]}}),
            "its hooks preDrain EtcdQuorumOperator",
        ),
        (going(metadata={"finalizers": ["machine.machine.openshift.io"]}), "its finalizers machine.machine.openshift.io"),
        (going(status={"conditions": [{"type": "Drained", "status": "True", "reason": "Drained"}]}), ""),
    ],
    ids=["drain of Cluster API", "drain of OpenShift", "hook", "lifecycle hook", "finalizer", "drained"],
)
def test_what_its_deletion_waits_for_is_told(machine: MachineView, said: str) -> None:
    """Drain, hooks, instance and object: whichever it is that does not go on."""
    assert machine.deletion_waits == said


@pytest.mark.parametrize(
    ("machine", "failed"),
    [
        (a_machine(status={"phase": "Failed", "errorMessage": "gone"}), "its phase is Failed (gone)"),
        (
            a_machine(MCM, status={"currentStatus": {"phase": "Failed"}, "lastOperation": {"description": "no quota"}}),
            "its phase is Failed (no quota)",
        ),
        (a_machine(MCM, status={"currentStatus": {"phase": "Running"}, "lastOperation": {"description": "well"}}), ""),
        (
            a_machine(status={"errorReason": "InsufficientResources", "errorMessage": "quota"}),
            "it reports a failure that it can't recover from (InsufficientResources: quota)",
        ),
        (
            a_machine(CLUSTER_API, status={"failureMessage": "no image"}),
            "it reports a failure that it can't recover from (no image)",
        ),
        (
            a_machine(CLUSTER_API, status={"deprecated": {"v1beta1": {"failureReason": "CreateError", "failureMessage": "x"}}}),
            "it reports a failure that it can't recover from (CreateError: x)",
        ),
    ],
)
def test_whether_it_will_ever_work(machine: MachineView, failed: str) -> None:
    assert machine.failed == failed


def test_the_newer_generation_of_a_condition_goes_first() -> None:
    old = {"type": "OwnerRemediated", "status": "True"}
    new = {"type": "OwnerRemediated", "status": "False", "message": "not yet"}
    found = a_machine(CLUSTER_API, status={"v1beta2": {"conditions": [new]}, "conditions": [old]}).condition("OwnerRemediated")
    assert found is not None
    assert (found.status, found.message) == ("False", "not yet")
    found = a_machine(CLUSTER_API, status={"deprecated": {"v1beta1": {"conditions": [old]}}}).condition("OwnerRemediated")
    assert found is not None
    assert found.status == "True"
    assert a_machine().condition("OwnerRemediated") is None


def test_its_node_phase_and_owner_in_each_spelling() -> None:
    owners = [{"kind": "Other", "name": "x"}, {"kind": "MachineSet", "name": "s", "controller": True}]
    machine = a_machine(metadata={"ownerReferences": owners}, status={"phase": "Running", "nodeRef": {"name": "node-1"}})
    assert (machine.controller, machine.phase, machine.node_name) == ("MachineSet/s", "Running", "node-1")
    theirs = a_machine(MCM, metadata={"labels": {"node": "node-2"}}, status={"currentStatus": {"phase": "Running"}})
    assert (theirs.controller, theirs.phase, theirs.node_name) == ("", "Running", "node-2")
    assert a_machine(MCM, status={"node": "node-3"}).node_name == "node-3"
    assert a_machine(metadata={"labels": {"node": "node-2"}}).node_name == "", "a label of that name is only theirs"


@pytest.mark.parametrize(
    ("api", "label", "value", "member"),
    [
        (OPENSHIFT, "machine.openshift.io/cluster-api-machine-role", "master", True),
        (OPENSHIFT, "machine.openshift.io/cluster-api-machine-role", "worker", False),
        (OPENSHIFT, "cluster.x-k8s.io/control-plane", "", False),
        (CLUSTER_API, "cluster.x-k8s.io/control-plane", "", True),
        (CLUSTER_API, "machine.openshift.io/cluster-api-machine-role", "master", False),
        (MCM, "cluster.x-k8s.io/control-plane", "", True),
        (MCM, "machine.openshift.io/cluster-api-machine-role", "master", True),
    ],
)
def test_s15_a_member_of_the_control_plane_is_known_by_its_label(api: MachineApi, label: str, value: str, member: bool) -> None:
    assert a_machine(api, metadata={"labels": {label: value}}).control_plane is member


@pytest.mark.parametrize("api", MACHINE_APIS, ids=str)
def test_s18_what_a_machine_says_wrongly_of_its_preservation_hides_neither_it_nor_any_other(api: MachineApi) -> None:
    """A word of one Machine that anybody may write must not make a whole list unreadable."""
    bad: dict[str, Any] = {"metadata": {"name": "bad", "annotations": {"nodewarden.io/preserve-expiry": "soon"}}}
    words = [bad]
    if api is MCM:
        words = [
            {"metadata": {"name": "bad"}, "status": {"currentStatus": {"preserveExpiryTime": "soon"}}},
            {"metadata": {"name": "bad"}, "spec": {"machinePreserveTimeout": "ever"}},
            {"metadata": {"name": "bad"}, "spec": {"machinePreserveTimeout": "-1h"}},
        ]
    for word in words:
        first, second = machine_decoding(api).items(orjson.dumps({"items": [word, {"metadata": {"name": "good"}}]}))
        assert (first.value.name, first.value.expiry, bool(first.value.preservation_problem)) == ("bad", None, True)
        assert (second.value.name, second.value.preservation_problem, second.value.unreadable) == ("good", "", "")


# One decoder ----------------------------------------------------------------------------------------------------------

DECODER = "activities/cluster/objects/machines_decoding.py"

ELSEWHERE = {
    "providerID": {"activities/cluster/objects/decoding.py", "policy: fencing.py"},  # of Nodes
    "machinePreserveTimeout": {"policy: requests.py"},  # of templates, and of Shoots
    "preserveExpiryTime": {"activities/cluster/acts/preservation.py"},  # is written there
    "failureMessage": {"policy: remediation_objects.py"},  # of remediation objects
    "currentStatus": {
        "activities/cluster/acts/preservation.py",
        "policy: evidence.py",
    },  # is written; and is quoted from what was kept
    "lastOperation": {"policy: evidence.py"},
}
"""Who else may know a field of that name, and of which objects."""

FIELDS = frozenset({"failureReason", "errorReason", "errorMessage", "nodeRef", "lifecycleHooks", *ELSEWHERE})
"""By which a Machine would be read past its decoder."""

SNAKES = {re.sub("([A-Z]+)", r"_\1", each).lower() for each in FIELDS}
SPELLED = re.compile("|".join(FIELDS | SNAKES))
"""As they stand in a module, as a text or as a field of a structure on the wire."""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def read_in(path: Path) -> Iterator[str]:
    """Those of the fields that a module spells: as a text of its own, or as a field of a structure on the wire."""
    if not SPELLED.search(text_of(path)):
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Constant) and node.value in FIELDS:
            yield str(node.value)
        if isinstance(node, ast.ClassDef) and any("Struct" in ast.unparse(base) for base in node.bases):
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    first, *words = line.target.id.split("_")
                    if (spelled := first + "".join(word.capitalize() for word in words)) in FIELDS:
                        yield spelled


ROOT = Path(__file__).parents[2]


def modules() -> Iterator[tuple[Path, Path]]:
    """All of the product, each with its place in it."""
    for room in ("policy", "workflows", "activities", "workers", "starter"):
        for path in (ROOT / room).rglob("*.py"):
            yield path, path.relative_to(ROOT)


def test_a_machine_is_read_in_one_module() -> None:
    found: dict[str, set[str]] = {field: set() for field in FIELDS}
    for path, place in modules():
        for field in read_in(path):
            found[field].add(f"policy: {path.name}" if place.parts[0] == "policy" else str(place))
    assert found == {field: {DECODER} | ELSEWHERE.get(field, set()) for field in FIELDS}


GROUPS = tuple(api.group for api in MACHINE_APIS)
VERSIONS = tuple(f"{api.group}/{version}" for api in MACHINE_APIS for version in api.versions)
NAMES_OF_A_NODE_S_MACHINE = ("machine.openshift.io/machine", "cluster.x-k8s.io/machine")


@pytest.mark.parametrize(
    ("words", "module"),
    [(GROUPS + VERSIONS, "policy/values/machine_apis.py"), (NAMES_OF_A_NODE_S_MACHINE, "policy/objects/machines.py")],
    ids=["the groups of the APIs", "how a Node names its Machine"],
)
def test_one_module_knows(words: tuple[str, ...], module: str) -> None:
    found = set()
    for path, place in modules():
        if not any(word in text_of(path) for word in words):
            continue
        texts = {node.value for node in ast.walk(parsed(path)) if isinstance(node, ast.Constant)}
        found |= {str(place)} if texts & {*words, *(f"{word}/" for word in words)} else set()
    assert found == {module}


async def test_what_is_served_in_an_older_version_only_is_read_in_that_one() -> None:
    """S15: one that is served no more is no deletion."""
    asked = list[str]()

    async def read(version: Resource) -> str:
        asked.append(version.api_version)
        if len(asked) == 1:
            raise ObjectNotFound("not served")
        return version.api_version

    assert await as_served(CAPI_CLUSTERS, read) == asked[1] != CAPI_CLUSTERS.api_version
