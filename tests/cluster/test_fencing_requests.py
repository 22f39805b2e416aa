"""FenceAgentsRemediations of an operator that goes on running, as a scan sees them: candidates like others, or refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from activities.cluster.acts.scan import ClusterScan
from activities.cluster.objects.fencing_requests import FencingRequests
from activities.cluster.report.status_writer import Published
from activities.contracts.scan import OpenEpisode
from policy.checks.fence_policies import DEFAULT_SOURCE
from policy.episode.messages import NeedKind
from policy.scan.admission import Refused, admit
from policy.scan.candidates import MOST_UNCOUNTED
from policy.scan.ledger import Ledger
from policy.scan.scan_report import ScanReport
from simulator.client import ApiClient
from tests.cluster.builders import CHECKS, DEFINITIONS, NODES, check, definition, node, stamp, with_template_of
from tests.cluster.fencing_requests import (
    NAMESPACE,
    OBEYED,
    REMEDIATIONS,
    conditions_of,
    leader,
    reference,
    remediation,
    request_definition,
)
from tests.cluster.scans import Open, asked, observe, observe_until
from tests.cluster.skipping import now

pytestmark = pytest.mark.timeout(20)

EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
SICK = "node-0"
FINALIZER = "fence-agents-remediation.medik8s.io/far-finalizer"

REF = reference(SICK)


@pytest.fixture
def open_scan(open_scan: Open) -> Open:
    """Of workers that obey the operator."""
    return partial(open_scan, source=OBEYED)


async def furnish(person: ApiClient, **metadata: Any) -> None:
    """Four nodes, one of them sick, and a request for that one."""
    await person.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    await person.create(DEFINITIONS, request_definition())
    since = now() - timedelta(minutes=10)
    for number in range(4):
        await person.create(NODES, node(f"node-{number}", "Unknown" if number == 0 else "True", since))
    await person.create(REMEDIATIONS, remediation(SICK, **metadata))


async def first(scan: ClusterScan) -> ScanReport:
    report = await observe(scan, asked())
    return await observe_until(scan, report, lambda seen: seen.view.synced and not seen.view.stale and seen.lease.held)


async def publish(scan: ClusterScan, report: ScanReport, *in_flight: OpenEpisode) -> Published:
    """What a scanner publishes: every refusal of its admission."""
    refused = admit(report, (), cap=9, now=now()).refused
    refusals = tuple(Refused(node=each.node, check=each.check, reason=each.reason, message=each.message) for each in refused)
    result = await scan.publishing.publish(report, in_flight, refusals)
    assert result.failed == ()
    return result


async def test_a_request_becomes_a_candidate_of_the_same_admission(person: ApiClient, open_scan: Open) -> None:
    await furnish(person)
    report = await first(await open_scan())
    [found] = report.candidates
    created = await person.get(f"{REMEDIATIONS}/{SICK}")
    assert (found.node, found.refused, found.need) == (SICK, "", NeedKind.FOREIGN_OBJECT)
    assert (found.check.key, found.object_uid) == (f"FenceAgentsRemediation/medik8s/{SICK}", created["metadata"]["uid"])
    assert (found.delegate, found.message) == ("NodeHealthCheck-workers", "asked for by NodeHealthCheck/workers")
    assert found.uid == (await person.get(f"{NODES}/{SICK}"))["metadata"]["uid"]
    assert admit(report, (), cap=1, now=now()).admitted == (found,)


async def test_the_end_of_a_request_that_was_told_of_a_failure_is_heard_though_nothing_else_changes(
    person: ApiClient, open_scan: Open
) -> None:
    """S35: who waits for a person over it would otherwise wait until something else happens in the cluster."""
    await furnish(person)
    scan = await open_scan()
    report = await observe(scan, asked(await first(scan), watching=(SICK,)))
    uid = report.candidates[0].object_uid
    said = {"status": "False", "reason": "FenceAgentFailed", "message": "", "lastTransitionTime": "2026-11-21T12:00:00Z"}
    failed = [{"type": kind, **said} for kind in ("Processing", "Succeeded")]
    await person.patch(f"{REMEDIATIONS}/{SICK}/status", {"status": {"conditions": failed}})
    report = await observe(scan, asked(report, watching=(SICK,)))
    assert (report.candidates, report.seen_nodes[0].asked_by) == ((), (uid,))
    await person.delete(f"{REMEDIATIONS}/{SICK}")
    report = await observe(scan, asked(report, watching=(SICK,)))
    assert report.seen_nodes[0].asked_by == ()


async def test_while_its_own_controller_is_alive_a_request_is_left_to_it(person: ApiClient, open_scan: Open) -> None:
    """S17: two that act on one object take one node down twice. The Event says why; the status is the other one's."""
    await furnish(person)
    await leader(person, "cb305759.medik8s.io")
    scan = await open_scan()
    report = await first(scan)
    assert "medik8s/cb305759.medik8s.io is renewed by manager-0" in report.candidates[0].refused
    assert admit(report, (), cap=1, now=now()).admitted == ()
    await publish(scan, report)
    [event] = [each for each in (await person.list(EVENTS))["items"] if each["involvedObject"]["name"] == SICK]
    assert (event["reason"], "another controller acts on FenceAgentsRemediations" in event["message"]) == (
        "RemediationSkipped",
        True,
    )
    assert "status" not in await person.get(f"{REMEDIATIONS}/{SICK}")


def test_a_status_written_by_another_controller_counts_for_a_while() -> None:
    """As an API server records it in managedFields; ours do not count."""
    ledger, moment = Ledger(), now()
    requests, found = FencingRequests(ledger, takeover=False, namespaces=(NAMESPACE,)), remediation(SICK)
    entry = {"operation": "Update", "subresource": "status", "time": stamp(moment)}
    found["metadata"]["managedFields"] = [{**entry, "manager": "nodewarden"}]
    requests.put(REF, found)
    requests.hold_back(moment)
    assert ledger.known(moment).requests_held_back == ""
    found["metadata"]["managedFields"].append({**entry, "manager": "manager"})
    requests.put(REF, found)
    requests.hold_back(moment)
    assert "manager writes the status of FenceAgentsRemediation/medik8s/node-0" in ledger.known(moment).requests_held_back
    requests.hold_back(moment + timedelta(minutes=11))
    assert ledger.known(moment).requests_held_back == ""


async def test_the_operator_that_asks_holds_nothing_up_by_being_alive(person: ApiClient, open_scan: Open) -> None:
    """Its checks are its own to act by, and this is how it acts."""
    await furnish(person)
    await leader(person, "e1f13584.medik8s.io")
    await person.create(DEFINITIONS, definition())
    group, kind = "fence-agents-remediation.medik8s.io/v1alpha1", "FenceAgentsRemediationTemplate"
    template = {"apiVersion": group, "kind": kind, "name": "ipmi", "namespace": NAMESPACE}
    await with_template_of(person, template)
    await person.create(CHECKS, check(duration="1s", remediationTemplate=template))
    report = await first(await open_scan())
    [of_operator] = report.checks
    assert (of_operator.allowed, of_operator.reason) == (False, "ConflictingController")
    assert [each.node for each in admit(report, (), cap=1, now=now()).admitted] == [SICK]


@dataclass(frozen=True)
class Never:
    """A wish that nothing but another one could mend."""

    node: str
    words: str
    reason: str
    spec: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize(
    "wish",
    [
        Never("ghost", "does not exist", "RemediationFinishedNodeNotFound"),
        Never(SICK, "spec.retrycount", "FenceAgentFailed", {"retrycount": -1}),
    ],
    ids=["no-such-node", "A05"],
)
async def test_what_can_never_be_carried_out_is_answered_at_once(person: ApiClient, open_scan: Open, wish: Never) -> None:
    """S7, A05: never a success without a run, and whoever asks need not wait for its time-out."""
    await furnish(person)
    await person.delete(f"{REMEDIATIONS}/{SICK}")
    await person.create(REMEDIATIONS, remediation(wish.node, spec=wish.spec))
    scan = await open_scan()
    report = await first(scan)
    [found] = report.candidates
    assert wish.words in found.refused
    await publish(scan, report, OpenEpisode(node=wish.node, since="", incident="i"))
    assert conditions_of(await person.get(f"{REMEDIATIONS}/{wish.node}")) == {}, "its episode answers"
    await publish(scan, report)
    answered = await person.get(f"{REMEDIATIONS}/{wish.node}")
    assert conditions_of(answered) == {"Processing": "False", "FenceAgentActionSucceeded": "False", "Succeeded": "False"}
    assert {each["reason"] for each in answered["status"]["conditions"]} == {wish.reason}
    assert answered["status"]["lastUpdateTime"]
    report = await observe_until(scan, report, lambda seen: not seen.candidates)
    await publish(scan, report)
    assert (await person.get(f"{REMEDIATIONS}/{wish.node}"))["metadata"]["resourceVersion"] == answered["metadata"][
        "resourceVersion"
    ]


async def test_a_request_from_a_namespace_that_no_setting_names_is_refused_to_its_author_and_moves_nothing(
    person: ApiClient, open_scan: Open
) -> None:
    """S46, S44, S19: whoever may create objects in a namespace of their own has no node acted upon, and holds none off. The first
    few are told, so that a flood of them makes no flood of Events."""
    await furnish(person)
    for number in range(1, 4 * MOST_UNCOUNTED):
        await person.create(NODES, node(f"more-{number}"))
        await person.create(REMEDIATIONS, remediation(f"more-{number}"))
    scan = await open_scan(source=DEFAULT_SOURCE)
    report = await first(scan)
    held = scan.view.watches.requests.objects.values()
    assert {"spec" in each for each in held} == {False}, "S41: there may be any number, each of a megabyte"
    assert len(report.candidates) == MOST_UNCOUNTED
    assert report.candidates_left_out == 3 * MOST_UNCOUNTED
    assert admit(report, (), cap=99, now=now()).admitted == ()
    words = "requests count in no namespace (setting request_namespaces)"
    assert [words in each.refused for each in report.candidates] == [True] * MOST_UNCOUNTED
    await publish(scan, report)
    told = (await person.list(EVENTS))["items"]
    assert {each["reason"] for each in told} == {"RemediationSkipped"}
    assert all(words in each["message"] for each in told)
    assert len(told) == MOST_UNCOUNTED
    assert (await person.list("/api/v1/namespaces/default/events"))["items"] == [], (
        "nothing is said on Nodes in a stranger's name"
    )
    answered = await person.list(REMEDIATIONS)
    assert not any("status" in each for each in answered["items"]), "once a setting names it, it is carried out"
    report = await observe(scan, asked(report, watching=(SICK,), wait=0.1))
    assert [each.asked_by for each in report.seen_nodes] == [()], "there may be any number"
