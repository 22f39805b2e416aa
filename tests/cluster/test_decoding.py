"""From bytes to views: nulls read as absence, times are aware, and one strange line is told apart from a strange server."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import orjson
import pytest

from activities.cluster.api.refusals import ObjectNotFound, VersionExpired, VersionUnknown, refusal
from activities.cluster.objects.decoding import NODE_DECODING, OBJECT_DECODING, EventType, decode_node
from activities.cluster.objects.machines_decoding import CLUSTER_DECODING, machine_decoding
from activities.errors import ErrorType, error_type
from policy.objects.nodes import Condition, NodeView, Taint
from policy.values.machine_apis import CLUSTER_API, OPENSHIFT, MachineApi

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
