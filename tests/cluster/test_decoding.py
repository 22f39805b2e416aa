"""From bytes to views: nulls read as absence, times are aware, and one strange line is told apart from a strange server."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from activities.cluster.api.paths import CAPI_CLUSTERS, Resource
from activities.cluster.api.refusals import ObjectNotFound, VersionExpired, VersionUnknown, refusal
from activities.cluster.api.served_cluster import as_served
from activities.cluster.objects.decoding import NODE_DECODING, OBJECT_DECODING, EventType, decode_node
from activities.cluster.objects.machines_decoding import CLUSTER_DECODING, machine_decoding, read_machine
from activities.errors import ErrorType, error_type
from policy.objects.machines import MachineView
from policy.objects.nodes import Condition, NodeView, Taint
from policy.values.machine_apis import CLUSTER_API, MACHINE_APIS, MCM, OPENSHIFT, MachineApi

FULL = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "node-1",
        "uid": "u-1",
        "resourceVersion": "42",
        "labels": {"topology.kubernetes.io/zone": "a"},
        "annotations": {"nodewarden.io/episode": "{}"},
        "deletionTimestamp": "2026-11-21T10:00:00Z",
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
    },
    "spec": {
        "providerID": "aws:///zone/i-1",
        "unschedulable": True,
        "taints": [
            {"key": "k", "effect": "NoExecute", "timeAdded": "2026-11-21T10:00:00Z"},
            {"key": "l", "value": "v", "effect": "NoSchedule"},
        ],
    },
    "status": {
        "conditions": [
            {
                "type": "Ready",
                "status": "Unknown",
                "lastTransitionTime": "2026-11-21T10:00:00Z",
                "lastHeartbeatTime": None,
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
            },
            {"type": "Odd", "status": "True", "lastTransitionTime": None},
            {"type": "Naive", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00", "reason": None},
        ],
        "nodeInfo": {"bootID": "b", "systemUUID": "s", "kernelVersion": "6.1"},
        "images": [{"names": ["x"], "sizeBytes": 1}],
    },
}
TEN = datetime(2026, 11, 21, 10, tzinfo=UTC)


def test_every_field_that_decisions_use() -> None:
    assert decode_node(orjson.dumps(FULL)) == NodeView(
        name="node-1",
        uid="u-1",
        resource_version="42",
        labels={"topology.kubernetes.io/zone": "a"},
        annotations={"nodewarden.io/episode": "{}"},
        conditions=(
            Condition(type="Ready", status="Unknown", since=TEN, reason="NodeStatusUnknown"),
            Condition(type="Odd", status="True"),
            Condition(type="Naive", status="True", since=TEN),
        ),
        taints=(Taint(key="k", effect="NoExecute"), Taint(key="l", effect="NoSchedule", value="v")),
        unschedulable=True,
        deleting=True,
        provider_id="aws:///zone/i-1",
        boot_id="b",
        system_uuid="s",
    )


@pytest.mark.parametrize(
    "rest", [{}, {"spec": None, "status": None}, {"spec": {"taints": None}, "status": {"conditions": None, "nodeInfo": None}}]
)
def test_nulls_and_missing_fields_read_alike(rest: dict[str, object]) -> None:
    metadata = {"name": "node-1", "uid": "u-1", "labels": None, "annotations": None, "deletionTimestamp": None}
    assert decode_node(orjson.dumps({"metadata": metadata, **rest})) == NodeView(name="node-1", uid="u-1")


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"metadata": 1}', b'{"metadata": {"name": "n"}, "status": {"conditions": "Ready"}}']
)
def test_what_is_no_node_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_node(body)


def test_s41_an_identity_that_is_longer_than_any_is_not_known() -> None:
    """S41: each report and each record of the cluster would carry what one kubelet says."""
    info = {"bootID": "b" * 129, "systemUUID": "s" * 1_000_000}
    assert decode_node(orjson.dumps({"metadata": {"name": "node-1", "uid": "u-1"}, "status": {"nodeInfo": info}})) == NodeView(
        name="node-1", uid="u-1"
    )


def test_lists_of_nodes_and_of_policy_objects() -> None:
    [item] = NODE_DECODING.items(orjson.dumps({"metadata": {}, "items": [FULL]}))
    assert (item.key, item.resource_version, item.value.boot_id) == ("node-1", "42", "b")
    assert list(NODE_DECODING.items(b'{"metadata": {}, "items": null}')) == []
    [found] = OBJECT_DECODING.items(
        orjson.dumps({"items": [{"metadata": {"name": "c", "namespace": "n"}, "spec": {"odd": [1]}}]})
    )
    assert (found.key, found.value["spec"]) == ("n/c", {"odd": [1]})


UNREADABLE_MOMENTS = ["0000-12-31T00:00:00Z", "2026-11-21T10:00:00+24:00", "soon", 7]
"""The first two are stored by every API server, whoever writes them."""


@pytest.mark.parametrize("moment", UNREADABLE_MOMENTS)
def test_a_moment_that_cannot_be_read_is_not_known_and_the_rest_is(moment: object) -> None:
    bad = {"metadata": {"name": "bad"}, "status": {"conditions": [{"type": "Ready", "lastTransitionTime": moment}]}}
    first, second = NODE_DECODING.items(orjson.dumps({"items": [bad, FULL]}))
    assert first.value == NodeView(name="bad", uid="", conditions=(Condition(type="Ready", status="", since=None),))
    assert second.value == decode_node(orjson.dumps(FULL))
    times = {"creationTimestamp": moment}
    machine = {"metadata": {"name": "m", "namespace": "n"} | times, "status": {"lastUpdated": moment, "phase": "Running"}}
    [found] = machine_decoding(OPENSHIFT).items(orjson.dumps({"items": [machine]}))
    assert (found.value.created, found.value.last_updated, found.value.phase) == (None, None, "Running")


class TestStandIns:
    """S18: what can't be read is neither a reason to be blind for all the rest, nor one to count less."""

    BAD = FULL | {"status": {"conditions": "Ready"}}

    def test_a_node_that_cannot_be_read_is_there_with_what_can(self, caplog: pytest.LogCaptureFixture) -> None:
        good = {"metadata": {"name": "good"}}
        for _ in range(3):
            bad, other = NODE_DECODING.items(orjson.dumps({"items": [self.BAD, good]}))
        assert (bad.key, bad.resource_version, other.value.name) == ("node-1", "42", "good")
        node = bad.value
        assert (node.uid, node.zone, node.provider_id, node.ready) == ("u-1", "a", "aws:///zone/i-1", False)
        assert "$.status.conditions" in node.unreadable
        assert [record.getMessage().split(" can't")[0] for record in caplog.records] == ["Node node-1"]

    def test_a_watch_goes_on_over_a_node_that_cannot_be_read(self) -> None:
        line = NODE_DECODING.line(orjson.dumps({"type": "MODIFIED", "object": self.BAD}))
        assert line.item is not None
        assert (line.resource_version, line.item.key) == ("42", "node-1")
        assert line.item.value.unreadable

    @pytest.mark.parametrize("api", [OPENSHIFT, CLUSTER_API], ids=str)
    def test_a_machine_that_cannot_be_read_keeps_its_ties(self, api: MachineApi) -> None:
        labels = {"cluster.x-k8s.io/cluster-name": "blue", "odd": 7}
        metadata = {"name": "m", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": labels}
        machine = {"metadata": metadata, "spec": {"providerID": "p"}, "status": {"nodeRef": {"name": "node-1"}, "phase": 7}}
        [item] = machine_decoding(api).items(orjson.dumps({"items": [machine]}))
        found = item.value
        assert (item.key, item.resource_version, found.key) == ("n/m", "7", f"{api}/n/m")
        assert (found.cluster_name, found.node_name, found.provider_id) == ("blue", "node-1", "p")
        assert found.unreadable

    def test_a_cluster_that_cannot_be_read_is_paused(self) -> None:
        [item] = CLUSTER_DECODING.items(orjson.dumps({"items": [{"metadata": {"name": "c", "namespace": "n"}, "spec": 7}]}))
        assert item.key == item.value.key == "n/c"
        assert "can't be read" in item.value.paused

    def test_what_has_no_name_is_no_object(self) -> None:
        with pytest.raises(msgspec.DecodeError):
            NODE_DECODING.items(b'{"items": [{"metadata": 7}]}')


def test_watch_lines() -> None:
    added = NODE_DECODING.line(orjson.dumps({"type": "ADDED", "object": FULL}))
    assert added.item is not None
    assert (added.type, added.resource_version, added.item.key) == (EventType.ADDED, "42", "node-1")
    bookmark = NODE_DECODING.line(b'{"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {"resourceVersion": "77"}}}')
    assert (bookmark.type, bookmark.resource_version, bookmark.item) == (EventType.BOOKMARK, "77", None)
    error = NODE_DECODING.line(
        b'{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "metadata": {}}}'
    )
    assert error.status is not None
    assert error.status.code == 410
    with pytest.raises(msgspec.DecodeError, match="unknown type 'NEW'"):
        NODE_DECODING.line(b'{"type": "NEW", "object": {}}')


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (404, b'{"reason": "NotFound", "message": "gone"}', ObjectNotFound),
        (410, b'{"reason": "Expired"}', VersionExpired),
        (504, b'{"reason": "Timeout", "message": "Timeout: Too large resource version: 9, current: 5"}', VersionUnknown),
        (504, b'{"reason": "Timeout", "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}', VersionUnknown),
    ],
)
def test_refusals_that_callers_handle_have_a_class(code: int, body: bytes, kind: type) -> None:
    assert type(refusal(code, {}, body, "GET /x", writing=False)) is kind


def test_a_proxy_s_page_is_quoted_and_a_retry_after_is_bounded() -> None:
    error = refusal(502, {}, b"<html>Bad Gateway</html>", "GET /x", writing=False)
    assert "Bad Gateway" in error.message
    assert error_type(error) is ErrorType.TRANSIENT
    patient = refusal(429, {"Retry-After": "86400"}, b"", "GET /x", writing=False)
    assert patient.next_retry_delay is not None
    assert patient.next_retry_delay.total_seconds() == 60


# What one Machine says, whosever it is: whose, whether it goes and what holds that up, whether it will ever work, until when it
# is kept; in whichever version it is served. And that there is one decoder of it.

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
    "providerID": {"activities/cluster/objects/decoding.py", "policy: proofs.py"},  # of Nodes
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
