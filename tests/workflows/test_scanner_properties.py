"""Whatever happens to a scanner, it gives no permit too many and forgets no abort: random plays on its own class.

What is played against is the truth: which episodes are open, and which of them may act. The scanner hears of it by releases,
requests, reports and descriptions alone. Among the moves are those that were made against it: a check replaced, mended or
limited, a pool that grows, a request that comes while more wait than a report names, a new history, and a reset of the scanner's
workflow.
`NODEWARDEN_TEST_PLAYS` sets how many plays, `NODEWARDEN_TEST_SEED` from which number on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Coroutine
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from activities.contracts.episodes import (
    DescribeResult,
    EpisodeActivities,
    EpisodeDescription,
    FoundOpen,
    Opened,
    OpenOutcome,
    OpenResult,
)
from policy.episode.messages import FencingInput, NeedKind, episode_id
from policy.episode.permits import PermitDecision, PermitRequest, Release
from policy.objects.nodes import Condition
from policy.scan import candidates
from policy.scan.ledger import Ledger
from policy.scan.scan_report import ScanReport
from policy.values.fields import Threshold
from tests.policy.builders import NOW, a_check, a_node
from tests.workflows.scanner_run import carried_over, report_of
from workflows.definitions.scanner import HealthScanner
from workflows.scanner.permits import DESCRIBE_EVERY
from workflows.scanner.releases import CONFIRMED
from workflows.scanner.state import ScannerInput, ScannerState

pytestmark = pytest.mark.timeout(600)

PLAYS = int(os.environ.get("NODEWARDEN_TEST_PLAYS", "20"))
FIRST_SEED = int(os.environ.get("NODEWARDEN_TEST_SEED", "1"))
MOVES = 30
CAP = 4
ANY: dict[str, object] = {"minHealthy": None, "maxUnhealthy": "100%"}
CHECKS = [
    a_check("workers", **ANY),
    a_check("disks", unhealthyConditions=[{"type": "DiskPressure", "status": "True", "duration": "10s"}], **ANY),
]


@dataclass
class Body:
    """A node as it really is."""

    ready: bool = True
    disk: bool = False
    since: datetime = NOW
    mark: str = ""


@dataclass
class Episode:
    """One that is open. permit: it may act; parked: it waits for a person, and asks for none."""

    incident: str
    permit: bool
    parked: bool = False


@dataclass
class Play:
    """The cluster, its open episodes, and the scanner that hears of them."""

    chance: Random
    now: datetime = NOW
    nodes: dict[str, Body] = field(default_factory=dict)
    open: dict[str, Episode] = field(default_factory=dict)
    aborted: dict[str, datetime] = field(default_factory=dict)
    begun: list[Coroutine[Any, Any, None]] = field(default_factory=list)
    granted: list[str] = field(default_factory=list)
    saved: list[tuple[ScannerState, dict[str, datetime]]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=lambda: ["first"])

    def __post_init__(self) -> None:
        self.ledger = Ledger()
        for check in CHECKS:
            self.ledger.put_check(check)
        for number in range(6):
            self.nodes[f"n{number}"] = Body()
        self.start(ScannerState(started=NOW, known=True, described_at=NOW))

    def start(self, state: ScannerState) -> None:
        self.scanner = HealthScanner(ScannerInput(cluster="c", holder="us", cap=CAP, state=state))
        background: Any = SimpleNamespace(begin=lambda work, **_: self.begun.append(work))
        self.scanner._story._background = self.scanner._story.releases._background = background
        self.state = self.scanner._state

    # What the scanner sees and asks ---------------------------------------------------------------------------------

    def see(self) -> ScanReport:
        for name, body in self.nodes.items():
            conditions = (
                Condition(type="Ready", status="True" if body.ready else "Unknown", since=body.since),
                Condition(type="DiskPressure", status=str(body.disk), since=body.since),
            )
            self.ledger.put_node(a_node(name, conditions=conditions, mark=body.mark), self.now)
            if body.ready and not body.disk:
                self.aborted.pop(name, None)
        watching = self.scanner._story._scan_request().watching
        self.shown = self.state.report = replace(report_of(self.ledger, watching, self.now), run=self.runs[-1])
        return self.shown

    async def activity(self, method: object, request: Any, **_: object) -> object:
        if method is EpisodeActivities.describe:
            return DescribeResult(episodes=tuple(map(self.describe, request.nodes)))
        if method is EpisodeActivities.find_open:
            return FoundOpen(nodes=tuple(self.open))
        return OpenResult(outcomes=tuple(map(self.opens, request.episodes)))

    def describe(self, node: str) -> EpisodeDescription:
        found = self.open.get(node)
        return EpisodeDescription(
            node=node,
            known=found is not None,
            open=found is not None,
            workflow_id=episode_id("c", node),
            incident=found.incident if found is not None else "",
            permit=found is not None and found.permit,
            parked=found is not None and found.parked,
            control_plane=False,
            node_uid=f"uid-of-{node}",
        )

    def opens(self, asked: FencingInput) -> OpenOutcome:
        outcome = OpenOutcome(node=asked.node, incident=asked.incident, opened=Opened.STARTED, workflow_id="")
        if asked.node in self.open:
            return replace(outcome, opened=Opened.REFUSED, holder="an episode")
        if asked.need is not None and asked.need.kind is NeedKind.CLEAN_UP:
            self.nodes[asked.node].mark = ""
            self.scanner.release(Release(node=asked.node, incident=asked.incident, outcome="recovered"))
            return outcome
        at, since = self.aborted.get(asked.node), asked.need.since if asked.need is not None else None
        if at is not None and (since is None or since <= at):
            self.wrong.append(f"the abort of {asked.node} is forgotten")
        self.open[asked.node] = Episode(asked.incident, permit=True)
        self.granted.append(asked.node)
        return outcome

    def hears(self, workflow_id: str) -> Any:
        async def signal(_: str) -> None:
            node = workflow_id.rpartition("/")[2]
            if node not in self.open:
                raise ApplicationError("there is no such workflow")
            if not self.open[node].permit:  # else it is one that was forgotten, and acts already
                self.granted.append(node)
            self.open[node].permit = True

        return SimpleNamespace(signal=signal)

    async def admit(self) -> None:
        """Until nothing more comes of it."""
        self.state.settling.clear()
        for run in self.runs:
            await self.scanner._story._holders.rebuild(replace(self.see(), run=run))
        del self.runs[:-1]
        for _ in range(2):
            await self.scanner._story._admit(self.see())
            while self.begun:
                await self.begun.pop(0)
            for node in self.granted:
                self.nodes[node].mark = self.open[node].incident
            self.audit()

    def audit(self) -> None:
        """S14, of all that act: the cap always, a check's limit whenever one more of its targets was let in."""
        acting = [node for node, episode in self.open.items() if episode.permit]
        if len(acting) > CAP:
            self.wrong.append(f"{len(acting)} act, {CAP} may")
        for limit in self.shown.checks:
            targets = self.ledger.covered(limit.ref.key, acting) if not limit.error else set[str]()
            if limit.at_once is not None and len(targets) > limit.at_once and targets.intersection(self.granted):
                self.wrong.append(f"{limit.ref.key} lets {limit.at_once}, {sorted(targets)} act, {self.granted} were let in")
        self.granted.clear()

    # Moves ----------------------------------------------------------------------------------------------------------

    def sicken(self) -> None:
        name = self.chance.choice([*self.nodes])
        body = self.nodes[name]
        if body.ready and not body.disk:
            body.ready, body.disk = self.chance.choice([(False, False), (True, True)])
            body.since = self.now
            self.now += timedelta(seconds=15)

    def grow(self) -> None:
        """A pool gets more nodes than a report has room for, all of them sick."""
        for _ in range(self.chance.randint(1, 3)):
            self.nodes[f"n{len(self.nodes)}"] = Body(ready=False, since=self.now)
        self.now += timedelta(seconds=15)

    def heal(self) -> None:
        body = self.nodes[self.chance.choice([*self.nodes])]
        body.ready, body.disk, body.since = True, False, self.now

    def end(self) -> None:
        """An episode is over: well again, or by a person's word."""
        for node, episode in self.some(permit=True):
            del self.open[node]
            self.nodes[node].mark = ""
            outcome = self.chance.choice(["recovered", "aborted"])
            if outcome == "aborted" and len(self.shown.checks) == len(CHECKS):  # one that comes later is another wish
                self.aborted[node] = self.now
            else:
                self.nodes[node] = Body(since=self.now)
            self.scanner.release(Release(node=node, incident=episode.incident, outcome=outcome, problem="by ada"))

    def park(self) -> None:
        for node, episode in self.some(permit=True):
            episode.permit, episode.parked = False, True
            self.scanner.release(Release(node=node, incident=episode.incident, parked=True))

    def resume(self) -> None:
        for node, _ in self.some(permit=False):
            self.ask(node)

    def by_hand(self) -> None:
        node = self.chance.choice([*self.nodes])
        if node not in self.open and self.state.permits.get(node) is None:
            self.open[node] = Episode(f"by-hand-{self.chance.random()}", permit=False)
            self.aborted.pop(node, None)
            self.ask(node)

    def ask(self, node: str) -> None:
        self.open[node].parked = False
        asked = PermitRequest(node=node, workflow_id=episode_id("c", node), incident=self.open[node].incident, by_person=True)
        answer = self.scanner._story.queue._answer(self.see(), asked)
        if answer.decision is PermitDecision.GRANTED:
            self.open[node].permit = True
            self.granted.append(node)
            self.nodes[node].mark = asked.incident
        elif answer.decision is PermitDecision.REFUSED and self.state.permits.get(node) is None:
            del self.open[node]

    def some(self, *, permit: bool) -> list[tuple[str, Episode]]:
        found = [each for each in self.open.items() if each[1].permit is permit]
        return [self.chance.choice(found)] if found else []

    def limit(self) -> None:
        self.put(max_in_flight=Threshold(value=self.chance.randint(1, 3)))

    def replace_check(self) -> None:
        """Another object, or the same one with something else in it."""
        self.put(uid=f"uid-{self.chance.random()}")

    def remove_check(self) -> None:
        """Or it can't be read any more; either is put back later."""
        ref = self.chance.choice(CHECKS).ref
        if self.chance.random() < 0.5:
            self.ledger.remove_check(ref.key)
        else:
            self.ledger.put_bad_check(ref, "a typo")

    def put(self, **fields: Any) -> None:
        self.ledger.put_check(replace(self.chance.choice(CHECKS), **fields))

    def wait(self) -> None:
        self.now += DESCRIBE_EVERY

    def save(self) -> None:
        self.saved.append((carried_over(self.scanner), dict(self.aborted)))

    def roll(self) -> None:
        """A new history begins with all that the old one remembers."""
        self.start(carried_over(self.scanner))

    def reset(self) -> None:
        """Of the scanner's workflow: what it learnt since that point it has never known. Aborts of that time are lost, too."""
        if self.saved:
            state, aborted = self.chance.choice(self.saved)
            self.start(deepcopy(state))
            self.runs = [self.runs[-1], f"after {len(self.done)}"]
            self.aborted = {node: at for node, at in self.aborted.items() if aborted.get(node) == at}


async def played(seed: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """What has gone wrong in that play."""
    chance = Random(seed)
    monkeypatch.setattr(workflow, "now", lambda: play.now)
    monkeypatch.setattr(workflow, "uuid4", lambda: UUID(int=chance.getrandbits(128)))
    monkeypatch.setattr(workflow, "info", lambda: SimpleNamespace(workflow_id="scanner/c", run_id="run"))
    monkeypatch.setattr(workflow, "patched", lambda name: name == CONFIRMED)
    monkeypatch.setattr(workflow, "logger", logging.getLogger("temporalio.workflow"))
    monkeypatch.setattr(candidates, "MAXIMUM_CANDIDATES", 3)
    play = Play(chance)
    monkeypatch.setattr(workflow, "execute_activity_method", play.activity)
    monkeypatch.setattr(workflow, "get_external_workflow_handle", play.hears)
    await play.admit()
    moves = [play.sicken] * 6 + [play.end] * 3 + [play.limit, play.replace_check, play.remove_check, play.put, play.put]
    moves += [play.grow, play.heal, play.park, play.resume, play.by_hand, play.wait, play.save, play.reset, play.roll, play.roll]
    for _ in range(MOVES):
        move = chance.choice(moves)
        move()
        play.done.append(move.__name__)
        play.now += timedelta(seconds=1)
        await play.admit()
        if play.wrong:
            return f"play {seed}: {play.wrong} after {play.done}"
    return ""


async def test_no_play_makes_a_scanner_give_too_many_permits_or_forget_an_abort(monkeypatch: pytest.MonkeyPatch) -> None:
    """S14, S19, S44."""
    for seed in range(FIRST_SEED, FIRST_SEED + PLAYS):
        assert not await played(seed, monkeypatch)
