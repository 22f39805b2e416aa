"""The one list of what keeps a node from a permit, as docs/semantics.md has it, and that its rows keep their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from policy.checks.circuit_breakers import OpenReason
from policy.checks.fence_policies import FencePolicies
from policy.episode.permits import PermitDecision, PermitRequest, PermitState
from policy.objects.scopes import CLUSTER, GroupCount
from policy.scan.admission import admit, answer_request
from policy.scan.permit_rules import RULES, AdmissionRefusal, Asker, PermitRule
from policy.scan.scan_report import ClusterLease, ScanReport, ViewState
from tests.policy.builders import NOW, a_candidate, a_check_report, a_permit, a_report

DOCS = Path(__file__).parents[3] / "docs" / "semantics.md"
HEADER = ["rule", "source", "says no while", *(asker.value for asker in Asker)]


def documented() -> Iterator[tuple[str, ...]]:
    """Code, source and the cells of each row of the table in the docs."""
    section = DOCS.read_text().partition("\n## What keeps a node from a permit\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
    assert rows[0] == HEADER
    for code, source, _, *cells in rows[2:]:
        yield code.strip("`"), source, *cells


def of(rule: PermitRule) -> tuple[str, ...]:
    waits = {Asker.EPISODE, Asker.PERSON, Asker.HOLDER} if rule.waits else set[Asker]()
    cells = ("waits" if asker in waits else "no" if asker in rule.stops else "" for asker in Asker)
    cells = ("" if asker not in rule.stops else cell for asker, cell in zip(Asker, cells, strict=True))
    return rule.code.value, rule.source, *cells


def test_the_docs_have_each_rule_in_its_place() -> None:
    """S13, S14, S15, S17, S18, S19, S20, S38, S44."""
    assert [*documented()] == [of(rule) for rule in RULES]


def test_every_code_has_a_rule() -> None:
    assert {rule.code for rule in RULES} == set(AdmissionRefusal)


CLOSED = a_check_report(allowed=False, reason=OpenReason.TOO_MANY_UNHEALTHY, message="3 of 7 nodes are healthy")
CLUSTER_DOWN = (GroupCount(group=CLUSTER, nodes=4, without_storage=4),)

OBSTACLES = {
    AdmissionRefusal.STALE_VIEW: {"view": ViewState(synced=True, stale="quiet")},
    AdmissionRefusal.NO_CLUSTER_LEASE: {"lease": ClusterLease(held=False)},
    AdmissionRefusal.BAD_POLICIES: {"policies": FencePolicies(problem="no number")},
    AdmissionRefusal.CIRCUIT_BREAKER: {"checks": (CLOSED,)},
    AdmissionRefusal.STORAGE_DOWN: {"policies": FencePolicies(storage_percentage=50), "groups": CLUSTER_DOWN},
    AdmissionRefusal.CAP: {},
}
"""In the order of the table; a cap of 0 stands for the last one."""


@pytest.mark.parametrize("first", range(len(OBSTACLES)))
@pytest.mark.parametrize("by_person", [False, True])
def test_the_first_of_several_reasons_is_the_same_for_a_scan_and_a_request(first: int, *, by_person: bool) -> None:
    """S14, S17, S18, S38: a person who reads one reason here and another one there takes the wrong one away."""
    codes = [*OBSTACLES][first:]
    fields: dict[str, object] = {}
    for code in reversed(codes):
        fields |= OBSTACLES[code]
    report: ScanReport = a_report(a_candidate("a"), **fields)
    (refused,) = admit(report, (), cap=0, now=NOW).refused
    request = PermitRequest(node="a", workflow_id="episode/c/a", incident="i", by_person=by_person)
    answer = answer_request(report, (), request, cap=0)
    assert refused.reason is codes[0]
    assert refused.message in answer.reason or refused.reason is AdmissionRefusal.CIRCUIT_BREAKER
    assert (answer.decision is PermitDecision.QUEUED) is (codes[0] is AdmissionRefusal.CAP)


def test_an_episode_with_a_permit_has_it_still_whatever_keeps_others_from_one() -> None:
    """S17: what stops new episodes stops none that is open; S44: but a pause does."""
    report = replace(a_report(checks=(CLOSED,)), view=ViewState(synced=True, stale="quiet"))
    request = PermitRequest(node="a", workflow_id="episode/c/a", incident="incident-a")
    held = a_permit("a", PermitState.OPEN)
    assert answer_request(report, [held], request, cap=0).decision is PermitDecision.GRANTED
    assert answer_request(report, [held], request, cap=0, paused="by ada").decision is PermitDecision.QUEUED
