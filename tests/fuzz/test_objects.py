"""Objects as anybody may write them: one that is strange is told by its name and field, and holds up no other (S18)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError

from activities.cluster.api import paths
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.paths import MACHINE_DEPLOYMENTS, MACHINES
from activities.cluster.api.served_cluster import Connections
from activities.cluster.live.plans import plan_for
from activities.cluster.objects.object_reader import FileObjects
from activities.cluster.report.status_writer import StatusWriter
from activities.cluster.watch.view import ClusterView
from activities.cluster.watch.watches import Watches
from activities.contracts.scan import OpenEpisode
from activities.errors import ErrorType, error_type
from policy.checks.fence_policies import PolicySource
from policy.episode.messages import Need, NeedKind
from policy.preservation.preservation_index import PreservationIndex
from policy.scan.data_at_risk import DataAtRisk
from policy.scan.evaluation import evaluate
from policy.scan.explanation import explain
from policy.scan.ledger import Ledger
from policy.scan.scan_report import ReportParts
from policy.values.machine_apis import MCM, OPENSHIFT
from tests.cluster.fencing_requests import OBEYED, reference, remediation
from tests.fuzz.strange import (
    A_LEASE,
    A_SET,
    CLUSTER_CONFIG,
    DEEP,
    NODE,
    OF_NODE,
    OWN_CONFIG,
    PATIENCE,
    SWITCH,
    TEMPLATE,
    WATCHED,
    Json,
    as_bytes,
    as_value,
    changed,
    examples,
    named,
)
from tests.policy.builders import a_node, report_of
from tests.policy.fence.test_templates import template
from tests.vectors.objects import NOW

pytestmark = PATIENCE

VOUCHED = frozenset({("metadata", "name"), ("metadata", "namespace"), ("metadata", "resourceVersion")})
"""What an API server lets nobody leave out or write as anything but text."""


class Followed:
    """The watches of one cluster, told what a server would tell them."""

    def __init__(self, watched: Iterable[tuple[paths.Resource, Json]] = WATCHED, source: PolicySource = OBEYED) -> None:
        nowhere, self.ledger = ClusterConnection.to("http://localhost:1"), Ledger()
        self.kept = PreservationIndex()
        heard = {
            "on_change": lambda: None,
            "on_state": lambda: None,
            "limits": None,
            "at_risk": DataAtRisk(forced=True),
            "source": source,
            "preservation_index": self.kept,
        }
        self.watches = Watches(nowhere, self.ledger, machines=None, clock=lambda: NOW, **heard)  # type: ignore[arg-type]
        for resource, document in watched:
            self.hear(resource, [document])

    def hear(self, resource: paths.Resource, documents: Iterable[Json]) -> set[str]:
        """A list of that kind, as a reflector takes it in. Returns whom it names."""
        following = [each for each in (*self.watches, *self.watches._beside()) if each.resource == resource]
        for reflector in following:
            items = list(reflector._decoding.items(as_bytes({"metadata": {}, "items": list(documents)})))
            for item in items:
                reflector._on_change(item.key, item.value)
        return {item.key.rpartition("/")[2] for item in items}

    def conclude(self) -> ReportParts:
        """All that is told to people, and written. Returns what a scanner is told."""
        self.watches.hold_back(NOW)
        known = self.ledger.known(NOW)
        evaluate(known)
        explain(known, NODE)
        needs, _ = self.kept.needs(NOW, self.ledger.sickness_of, self.ledger.sick_nodes, failing=self.ledger.failing(NOW))
        parts = self.ledger.report_parts(NOW, [NODE], self.kept.exempt, spells=self.ledger.sick_nodes)
        report = report_of(parts)
        view = cast("ClusterView", SimpleNamespace(ledger=self.ledger, look_again=None, watches=SimpleNamespace(machines=None)))
        publishing, episode = (
            StatusWriter(view, clock=lambda: NOW),
            OpenEpisode(node=NODE, incident="i", kind="Fencing", since=""),
        )
        for check in report.checks:
            publishing._change(check, self.watches.intake.objects.get(check.ref.key, {}), [episode], report)
        return replace(parts, preservations=needs)


def other(document: Json, **fields: object) -> Json:
    return document | {
        name: document.get(name, {}) | value if isinstance(value, dict) else value for name, value in fields.items()
    }


MACHINE, CHECK = dict(WATCHED)[MACHINES[OPENSHIFT]], dict(WATCHED)[paths.NODE_HEALTH_CHECKS]


@examples(120)
@given(st.sampled_from(WATCHED).flatmap(lambda each: st.tuples(st.just(each[0]), changed(each[1], keeps=VOUCHED, stored=True))))
@example((MACHINES[OPENSHIFT], other(MACHINE, spec={"providerSpec": {"value": DEEP}})))
@example((MACHINE_DEPLOYMENTS[MCM], other(A_SET, spec={"template": {"metadata": {"labels": ["x"]}}})))
@example((paths.LEASES, other(A_LEASE, spec={"leaseDurationSeconds": "1e999"})))
@example((paths.NODE_HEALTH_CHECKS, other(CHECK, status={"conditions": 7, "inFlightRemediations": "x"})))
@example((paths.NODE_HEALTH_CHECKS, other(CHECK, metadata={"managedFields": [None]})))
def test_whatever_one_object_holds_the_others_of_its_kind_are_there(written: tuple[paths.Resource, Json]) -> None:
    """S18: from the bytes of a list to what people read of it."""
    (resource, document), followed = written, Followed()
    twin = dict(WATCHED)[resource]
    before, after = (other(twin, metadata={"name": name, "uid": f"uid-{name}"}) for name in ("before", "after"))
    assert followed.hear(resource, [before, document, after]) >= {"before", "after"}
    followed.conclude()


SAME_DEVICE = named(template([{"driver": "ipmi", "nodeParameters": {NODE: {"ip": "10.0.0.7"}}, "secretRef": {"name": "bmc"}}]))
PLANS: dict[str, tuple[Need, list[Json]]] = {
    "template": (Need(), [TEMPLATE]),
    "own object": (Need(), [OWN_CONFIG]),
    "ConfigMaps": (Need(), [OF_NODE, SWITCH, CLUSTER_CONFIG]),
    "request": (
        Need(kind=NeedKind.FOREIGN_OBJECT, check=reference(NODE)),
        [remediation(NODE), SAME_DEVICE],
    ),
}
PLACES = [(spelling, index) for spelling, (_, found) in PLANS.items() for index in range(len(found))]
SEEN = a_node(NODE, provider_id="aws:///us-east-1a/i-0123456789abcdef0", labels={"a": "b"})
FOUND = VOUCHED | {("apiVersion",), ("kind",)}


def planned(need: Need, found: list[Json]) -> object:
    """The plan as it is read live."""
    files = FileObjects(found)
    return asyncio.run(plan_for(Connections(nodes=files, machines=files), SEEN, None, need, source=OBEYED))


@pytest.mark.parametrize("spelling", PLANS)
def test_what_is_right_is_a_plan(spelling: str) -> None:
    """Or the next test would prove nothing."""
    assert planned(*PLANS[spelling])


@examples(100)
@given(
    st.sampled_from(PLACES).flatmap(lambda at: st.tuples(st.just(at), changed(PLANS[at[0]][1][at[1]], keeps=FOUND, stored=True)))
)
def test_a_strange_fence_configuration_is_a_plan_or_is_refused_by_its_name_and_field(
    written: tuple[tuple[str, int], Json],
) -> None:
    """S10, S41: never anything else, and never half of it."""
    ((spelling, index), document), refused = written, None
    need, found = PLANS[spelling]
    try:
        planned(need, [as_value(document) if number == index else each for number, each in enumerate(found)])
    except ApplicationError as error:
        refused = error
    if refused is not None:
        assert error_type(refused) is ErrorType.INVALID_CONFIG, refused
        assert document["metadata"]["name"] in refused.message or NODE in refused.message
        assert len(refused.message) < 10_000
