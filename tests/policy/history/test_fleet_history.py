"""A month of a fleet whose truth is known, played through the policy: what the report says is what was true, for every seed.

`simulator/fleet_history.py` writes the month down and counts it. Here its Nodes go the way of a live cluster's: decoded, judged
by a ledger, reported, refused, kept as spells, compared. Only Temporal is left out, and the wait: time goes from one event to the
next. `NODEWARDEN_TEST_FLEETS` says how many seeds are played.
"""

from __future__ import annotations

import os
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import orjson
import pytest

from activities.cluster.acts.scan import hands_on
from activities.cluster.watch.kinds import Destination, Reader, read_by
from policy.episode.modes import ClusterModes
from policy.history.comparison import Comparison, Judgement, RecordedSpell, compare
from policy.history.spell_lifecycle import counted_days, next_spells, to_be_watched, with_traces
from policy.history.spells import NodeDays, Spell
from policy.scan.admission import admit
from policy.scan.ledger import Ledger
from policy.scan.permit_rules import AdmissionRefusal
from policy.scan.scan_report import ClusterLease, ScanReport, ViewState
from policy.values.mode import Mode
from simulator.fleet_history import MIN_HEALTHY, MONTH, REPAIR, TIMEOUT, Fate, FleetHistory, Verdict
from simulator.objects import JsonObject
from tests.policy.builders import a_check

SEEDS = int(os.environ.get("NODEWARDEN_TEST_FLEETS", "12"))
START = datetime(2026, 11, 1, tzinfo=UTC)
LONGEST_WAIT = timedelta(hours=6)
NODES = next(kind for kind in read_by(Reader.FILES) if kind.destination is Destination.NODES)
LIVE: dict[str, Any] = {"digest": "", "resource_version": "", "view": ViewState(synced=True), "lease": ClusterLease(held=True)}

JUDGED = {
    Verdict.FALSE: Judgement.FALSE,
    Verdict.LATER: Judgement.LATER,
    Verdict.PEOPLE: Judgement.OTHERS,
    Verdict.DEAD: Judgement.STILL_SICK,
    Verdict.HELD: Judgement.HELD,
}
NEEDED = frozenset({Verdict.LATER, Verdict.PEOPLE, Verdict.DEAD})


class Observed:
    """A scanner that may only observe, without its workflow."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.ledger.put_modes(ClusterModes(setting=Mode.OBSERVE))
        timeouts = [{"type": "Ready", "status": status, "duration": f"{TIMEOUT.seconds}s"} for status in ("False", "Unknown")]
        self.ledger.put_check(a_check("workers", minHealthy=MIN_HEALTHY, unhealthyConditions=timeouts))
        self.documents: dict[str, JsonObject] = {}
        self.spells: dict[str, Spell] = {}
        self.ended: list[Spell] = []
        self.days: tuple[NodeDays, ...] = ()
        self.report: ScanReport | None = None
        self.at: datetime | None = None

    def put(self, name: str, document: JsonObject | None, now: datetime) -> None:
        if document is None:
            self.ledger.remove_node(name)
        else:
            self.documents[name] = document
            self.ledger.put_node(NODES.decoding.one(orjson.dumps(document)).value, now)

    def scan(self, now: datetime) -> None:
        """Again, as long as another report is asked for than was given: at once, as the scanner does."""
        self.ledger.advance(now)
        watched: tuple[str, ...] | None = None
        while watched != (watched := to_be_watched(self.spells, self.report, room=200, now=now)):
            self.decide(now, watched)

    def decide(self, now: datetime, watched: tuple[str, ...]) -> None:
        parts = self.ledger.report_parts(now, spells=watched)
        told = {each.name: getattr(parts, each.name) for each in fields(parts)}
        if self.report is not None:
            self.days = counted_days(self.days, self.report, self.at, now, longest=LONGEST_WAIT)
        self.report = ScanReport(**LIVE, at=now, **told)
        decided = admit(self.report, (), cap=1, now=now)
        assert decided.admitted == ()
        changes = next_spells(self.spells, self.report, decided.refused, begun={}, now=now)
        self.spells = changes.spells
        self.ended += [with_traces(each, tuple(hands_on(self.documents[each.node], each.since))) for each in changes.ended]
        self.at = now


def play(history: FleetHistory) -> Observed:
    """A scan at each event and each moment at which a verdict expires, at midnight, and some in between."""
    observed, end = Observed(), START + MONTH
    happens = [(START + each.at, each) for each in history.events(START)]
    quiet = (START + LONGEST_WAIT * number for number in range(MONTH // LONGEST_WAIT + 1))
    moments = sorted({*quiet, *(at for at, _ in happens)})
    while moments or happens:
        now = min(filter(None, [moments[0], observed.ledger.next_due]))
        moments = [at for at in moments if at > now]
        while happens and happens[0][0] <= now:
            _, event = happens.pop(0)
            observed.put(event.name, event.node, now)
        observed.scan(now)
    assert observed.at == end
    return observed


def compared(observed: Observed) -> Comparison:
    spells = chain(observed.ended, observed.spells.values())
    recorded = [RecordedSpell(spell=each) for each in spells]
    return compare(recorded, observed.days, (), since=START, now=START + MONTH)


@pytest.mark.parametrize("seed", sorted({*range(SEEDS), 130}))  # 130: a node that would have been repaired before the outage
def test_the_report_says_what_was_true(seed: int) -> None:
    history = FleetHistory(seed)
    truth, observed = history.truth(), play(history)
    (found,) = compared(observed).checks
    assert found.judgements == {JUDGED[verdict]: count for verdict, count in truth.verdicts.items()}
    assert (found.would_repair, found.false_repairs) == (truth.begun, truth.verdicts[Verdict.FALSE])
    assert found.share is not None
    assert (found.share.cases, found.share.of) == (truth.verdicts[Verdict.FALSE], truth.begun)
    assert found.observed_days == pytest.approx(truth.node_days)
    waited, others = truth.waited, found.others
    assert others is not None
    assert others.after == waited[(len(waited) - 1) // 2]
    assert others.sooner == others.after - REPAIR
    (brake,) = found.brakes
    braked = [sick.fate for sick, each in truth.repairs.items() if each.verdict is Verdict.HELD]
    assert (brake.code, brake.spells, brake.storms) == (AdmissionRefusal.CIRCUIT_BREAKER, len(braked), 1)
    assert brake.rightly == sum(fate in {Fate.CAME_BACK, Fate.OUTAGE} for fate in braked)
    for row in found.timeouts:
        longer = history.truth(TIMEOUT + row.longer)
        assert (row.repairs, row.false_repairs) == (longer.begun, longer.verdicts[Verdict.FALSE])
        late = [(each.begins, truth.repairs[sick].begins) for sick, each in longer.repairs.items() if each.verdict in NEEDED]
        assert row.later == sum((then - now for then, now in late if then and now), timedelta(0))
