"""The page: what it answers, that it is kept new, and that nothing but itself gets a say in it."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock

import aiohttp
import pytest
from starlette.requests import ClientDisconnect

from activities.contracts.episode_start import TemporalUi
from policy.checks.circuit_breakers import OpenReason
from policy.checks.verdict import Health
from policy.episode.messages import Kind, Phase, RecordEntry
from policy.episode.modes import ClusterModes, ModeChanges
from policy.episode.node_action import AcceptedCommand, Verb
from policy.episode.permits import HoldOff, PermitRequest
from policy.fence.device_check import DeviceReport, DeviceRow
from policy.history.offenders import OffenderRules, Repair, RepairedMachine, machines
from policy.history.spells import Spell, would_have
from policy.scan.admission import Refused
from policy.scan.pauses import Pause, Pauses, described
from policy.scan.permit_rules import AdmissionRefusal, unblocks
from policy.scan.scan_report import AtRisk, ClusterLease, NodeAtRisk, ViewState
from policy.values.mode import Mode
from starter.client import Nodewarden
from starter.errors import MissingError, SilentError
from starter.handles.episodes import NodeEpisodes, SilentEpisode
from starter.handles.history import EndedEpisode, EndedEpisodes, EpisodeRecord
from starter.handles.observations import SpellsThen
from starter.handles.status import ClusterStatus, PreservedNodes
from starter.web import views
from starter.web.app import Events
from starter.web.now import overview_of
from starter.web.views import Views, WatchedCluster
from tests.patience import PATIENCE
from tests.policy.builders import spell
from tests.starter.builders import CHECK, check, episode, proof, report, result, row, scanner, status
from tests.unlocked import unlocked

CLUSTER = "prod"
NOW = datetime.now(UTC)
PAUSE = Pause(who="ann", owner="ann", reason="storage", since=NOW, until=NOW + timedelta(hours=1))


class ScriptedWarden:
    """Answers what a test has it answer, and counts how often it is asked."""

    def __init__(self, answer: ClusterStatus) -> None:
        self.answer: ClusterStatus | Exception = answer
        self.asked = 0
        self.cluster = CLUSTER
        self.began = datetime.now(UTC)
        self.episodes = NodeEpisodes()
        self.records: tuple[EpisodeRecord, ...] = ()
        self.past: tuple[EndedEpisode, ...] = ()
        self.repairs: tuple[Repair, ...] = ()
        self.entries: tuple[RecordEntry, ...] = ()
        self.heard: Pauses = ()
        self.spells: tuple[Spell, ...] = ()
        self.devices: DeviceReport | None = None

    async def status(self, cluster: str) -> ClusterStatus:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        now, seen = datetime.now(UTC), self.answer.scanner
        if seen is not None and seen.report is not None and seen.report.answered_at is None:
            seen = dataclasses.replace(seen, report=dataclasses.replace(seen.report, answered_at=self.began))
        return dataclasses.replace(self.answer, cluster=cluster, at=now, scanner=seen)

    def episode(self, cluster: str, node: str) -> ScriptedWarden:
        raise MissingError(f"no episode of {node} is open")

    async def of_node(self, cluster: str, node: str) -> NodeEpisodes:
        return self.episodes

    @property
    def history(self) -> ScriptedWarden:
        return self

    @property
    def observations(self) -> ScriptedWarden:
        return self

    async def spells_at(self, cluster: str, moment: datetime, *, node: str = "") -> SpellsThen:
        return SpellsThen(spells=self.spells)

    def scanner(self, cluster: str) -> ScriptedWarden:
        return self

    async def mode_changes(self) -> ModeChanges:
        return ()

    async def ended_spells(self, cluster: str, **_: Any) -> SpellsThen:
        return SpellsThen(spells=tuple(each for each in self.spells if each.ended is not None))

    async def last_spells(self, cluster: str, node: str, *, lasting: bool = True) -> SpellsThen:
        return SpellsThen(spells=self.spells) if lasting else await self.ended_spells(cluster)

    def device_check(self, cluster: str) -> ScriptedWarden:
        return self

    async def pauses(self) -> Pauses:
        return self.heard

    async def last_report(self) -> DeviceReport | None:
        return self.devices

    async def preserved(self, cluster: str) -> PreservedNodes:
        return PreservedNodes(cluster=cluster, at=NOW)

    async def offenders(self, cluster: str, since: datetime, rules: OffenderRules) -> tuple[tuple[RepairedMachine, ...], bool]:
        return machines(self.repairs, rules), False

    async def ended(self, cluster: str, **_: Any) -> EndedEpisodes:
        return EndedEpisodes(cluster=cluster, episodes=self.past)

    async def between(self, cluster: str, *_: datetime, **__: str) -> tuple[tuple[EpisodeRecord, ...], bool]:
        return self.records, False

    async def was_scanned(self, cluster: str, moment: datetime) -> bool:
        return True

    async def record(self, cluster: str, name: str) -> EpisodeRecord:
        open_one = self.episodes.episode
        assert open_one is not None
        return EpisodeRecord(
            cluster=cluster,
            node=open_one.node,
            kind=open_one.kind,
            outcome=open_one.phase.value,
            message=open_one.doing,
            why=open_one.reason,
            incident=open_one.incident,
            started=open_one.started,
            entries=self.entries,
        )


@pytest.fixture
def scripted() -> ScriptedWarden:
    return ScriptedWarden(status(row("node-1"), row("node-2", Health.UNHEALTHY)))


@pytest.fixture
async def page(scripted: ScriptedWarden) -> AsyncIterator[aiohttp.ClientSession]:
    views_of_it = Views(scripted, (CLUSTER,))  # type: ignore[arg-type]
    async with unlocked(views_of_it) as url, aiohttp.ClientSession(url) as session:
        yield session


async def text(page: aiohttp.ClientSession, path: str, *, expected: int = 200) -> str:
    async with page.get(path) as answer:
        assert answer.status == expected
        return await answer.text()


# What it answers -------------------------------------------------------------------------------------------------------


STALE = ViewState(synced=True, stale="no news for 20s")
ELSEWHERE = ClusterLease(held=False, problem="another has it")
CLOSED = check(allowed=False, message="5 of 9 healthy")


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({}, "Yes: nodes are watched"),
        ({"scanner": None, "problem": "no open scanner of prod"}, "No: no open scanner of prod"),
        ({"scanner": scanner(None)}, "No: the scanner has not seen the cluster yet"),
        ({"scanner": scanner(report(), pauses=(PAUSE,))}, "No: paused by ann"),
        ({"scanner": scanner(report(), problem="the cluster can't be scanned")}, "No: the cluster can't be scanned"),
        ({"scanner": scanner(report(view=STALE))}, "No: view not live: no news"),
        ({"scanner": scanner(report(lease=ELSEWHERE))}, "No: the cluster Lease is not held"),
        ({"scanner": scanner(report(checks=(CLOSED,)))}, "No: NodeHealthCheck/workers: circuit breaker open"),
        ({"scanner": scanner(report(), modes=ClusterModes(setting=Mode.OBSERVE))}, "It holds back: programs only observe nodes"),
        ({"scanner": scanner(report(), modes=ClusterModes(setting=Mode.OBSERVE), pauses=(PAUSE,))}, "No: paused by ann"),
        ({"episodes": (episode(phase=Phase.NEEDS_HUMAN),)}, "Yes, but 1 episode waits for a person"),
    ],
)
def test_the_headline_says_what_stops_us_first(changes: dict[str, Any], headline: str) -> None:
    """S44."""
    assert overview_of(dataclasses.replace(status(), **changes)).headline.startswith(headline)


LOST = AtRisk(nodes=1, nearest=(NodeAtRisk(node="node-9", since=NOW, volumes=3),))


def test_data_at_risk_comes_before_whatever_else_is_not_as_it_should_be_but_a_pause() -> None:
    """S36, S44: nobody has to read on to find it, also where nothing keeps us from acting."""
    risk = "data of node-9 is at risk: it is down with 3 volumes attached, and not proven off"
    waits = (episode(phase=Phase.NEEDS_HUMAN),)
    plain = overview_of(dataclasses.replace(status(), scanner=scanner(report(at_risk=LOST))))
    assert (plain.headline, plain.also, plain.safe) == (f"No: {risk}", (), False)
    closed = scanner(report(at_risk=LOST, checks=(CLOSED,)))
    found = overview_of(dataclasses.replace(status(), scanner=closed, episodes=waits))
    assert found.headline == f"No: {risk}"
    assert found.also == ("NodeHealthCheck/workers: circuit breaker open: 5 of 9 healthy", "1 episode waits for a person")
    paused = overview_of(dataclasses.replace(status(), scanner=scanner(report(at_risk=LOST), pauses=(PAUSE,))))
    assert (paused.headline, paused.also) == (f"No: {described((PAUSE,))}", (risk,))
    many = overview_of(dataclasses.replace(status(), scanner=scanner(report(at_risk=AtRisk(nodes=7, nearest=LOST.nearest)))))
    assert many.headline.startswith("No: data of 7 nodes is at risk")


def test_a_node_that_could_not_be_fenced_is_named_before_it_is_needed() -> None:
    """S44: in the night in which it fails it is too late."""
    broken = tuple(DeviceRow(node=f"node-{number}", endpoint="e", problem="silent") for number in (10, 9, 9))
    found = overview_of(dataclasses.replace(status(), devices=broken))
    assert found.headline == "Yes, but fence devices of node-9, node-10 have problems: fencing might wait for a person"
    assert (found.also, found.safe) == ((), True)
    waits = overview_of(dataclasses.replace(status(), devices=broken[:1], episodes=(episode(phase=Phase.NEEDS_HUMAN),)))
    assert waits.headline == "Yes, but 1 episode waits for a person"
    assert waits.also == ("a fence device of node-10 has a problem: fencing might wait for a person",)


def test_a_node_that_is_proven_off_has_no_data_at_risk_any_more() -> None:
    """S2: the report is older than the proof."""
    seen = scanner(report(at_risk=LOST))
    found = overview_of(dataclasses.replace(status(), scanner=seen, episodes=(episode("node-9", off_proof=proof()),)))
    assert (found.safe, found.at_risk) == (True, ())


async def test_the_nodes_that_an_open_breaker_keeps_waiting_need_a_person(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    """S44: with what would close it; nothing else on the page told of them."""
    why = "5 of 9 nodes are healthy, minHealthy 51% needs 6"
    breaker = check(unhealthy=4, allowed=False, reason=OpenReason.TOO_MANY_UNHEALTHY, message=why)
    seen = report(row("node-1"), row("node-2", Health.UNHEALTHY, check=CHECK.key), checks=(breaker,))
    scripted.answer = dataclasses.replace(status(), scanner=scanner(seen))
    section = (await text(page, f"/c/{CLUSTER}")).partition("Needs a person")[2].partition("Under way")[0]
    plain = " ".join(re.sub("<[^>]+>", " ", section).split())
    assert "NodeHealthCheck/workers circuit breaker open 5 of 9 nodes are healthy, minHealthy 51% needs 6" in plain
    assert "It keeps node-2 and 3 more waiting: enough targets of the check have to be healthy again" in plain


async def test_what_needs_a_person_first_stands_first_and_data_at_risk_offers_an_act(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    """S36, S44: the nearest forced detachment; where no episode is open, as under an open breaker, a fencing is offered."""
    ways_ = tuple(AcceptedCommand(verb=each, command="", consequence="c") for each in (Verb.ACK_OFF, Verb.ABORT))
    persons = tuple(episode(f"node-{each}", phase=Phase.NEEDS_HUMAN, ways=ways_) for each in (2, 5))
    lost = tuple(NodeAtRisk(node=f"node-{each}", since=NOW, volumes=3, due=NOW) for each in (5, 4, 3))
    closed = check(allowed=False, reason=OpenReason.TOO_MANY_UNHEALTHY, message="5 of 9 healthy")
    asks = PermitRequest(node="node-7", workflow_id="w", incident="i")
    seen = scanner(report(at_risk=AtRisk(nodes=3, nearest=lost), checks=(closed,)))
    scripted.answer = dataclasses.replace(status(), scanner=seen, episodes=(*persons, episode("node-3")))
    body = await text(page, f"/c/{CLUSTER}")
    needs = body.partition("Needs a person</h2>")[2].partition("Under way</h2>")[0]
    assert re.findall('aria-label="(.+?) needs a person"', needs) == ["node-5", "node-2"]
    risk = body.partition("Data at risk</h2>")[2].partition("Needs a person</h2>")[0]
    assert re.findall('/acts/(.+?)"', risk) == ["ack-off?node=node-5", "fence?node=node-4"]
    assert "its fencing is under way" in risk
    assert "No node is queued; the circuit breaker above keeps others waiting." in body
    await asyncio.sleep(views.FRESH.total_seconds())
    scripted.answer = dataclasses.replace(scripted.answer, scanner=dataclasses.replace(seen, queue=(asks,)))
    assert "No node is queued" not in await text(page, f"/c/{CLUSTER}")


@pytest.mark.parametrize("seen_before", [False, True])
async def test_while_temporal_is_away_no_view_says_that_there_is_none(
    page: aiohttp.ClientSession, scripted: ScriptedWarden, seen_before: bool
) -> None:
    """S37, S44: neither to people nor to programs, also where the last answer had none."""
    why = "episodes of prod: Temporal is not available: Connection refused"
    of = f"/api/v1/clusters/{CLUSTER}"
    if seen_before:
        await text(page, f"/c/{CLUSTER}")
        await asyncio.sleep(views.FRESH.total_seconds())
    scripted.answer = SilentError(why)
    now = " ".join(re.sub("<[^>]+>", " ", await text(page, f"/c/{CLUSTER}")).split())
    assert f"No: {why}" in now
    for section in ("Data at risk", "Needs a person", "Under way", "Waiting"):
        assert f"{section} Not known: {why}" in now
    assert "Paused not known" in now
    assert ("as they were" in now) == seen_before
    pages = [now, *[await text(page, path) for path in ("/c/prod/checks", "/c/prod/acts/fence?node=node-1")]]
    claims = ("needs a person.", "Nothing is being", "No node", "no health check", "0 of 0", "What follows fence:")
    assert [claim for claim in claims for body in pages if claim in body] == []
    for part, answers in {"nodes": seen_before, "checks": seen_before, "episodes": seen_before, "waiting": seen_before}.items():
        async with page.get(f"{of}/{part}") as answer:
            found = await answer.json()
            assert (answer.status, found.get("error")) == ((200, None) if answers else (503, why)), found
    for part in ("", "/status", "/stops"):
        async with page.get(of + part) as answer:
            assert why in await answer.text()


async def test_now_says_what_is_not_known_of_data_at_risk_how_many_more_there_are_and_what_ended_lately(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    """S36, S44: as `status` does."""
    lost = AtRisk(nodes=3, nearest=(NodeAtRisk(node="node-4", since=NOW, volumes=3, due=NOW),), problem="LIST: 403")
    seen = scanner(report(at_risk=lost))
    scripted.answer = dataclasses.replace(status(), scanner=seen, ended=(result("node-5"),))
    body = await text(page, f"/c/{CLUSTER}")
    risk = body.partition("Data at risk</h2>")[2].partition("Needs a person</h2>")[0]
    assert "… and 2 more nodes, no nearer than these" in risk
    assert "Not known: what is attached can&#39;t be followed: LIST: 403" in risk.replace("can't", "can&#39;t")
    assert "recovered after 2m07s: the node is back Ready" in body.partition("Ended lately</h2>")[2]


async def test_resume_says_what_it_comes_to_where_it_is_offered(page: aiohttp.ClientSession, scripted: ScriptedWarden) -> None:
    """S17: as `status` and `explain` do."""
    parked = episode(
        "node-7", phase=Phase.NEEDS_HUMAN, ways=(AcceptedCommand(verb=Verb.RESUME, command="", consequence="tries again"),)
    )
    closed = check(allowed=False, reason=OpenReason.TOO_MANY_UNHEALTHY, message="5 of 9 healthy")
    seen = scanner(report(checks=(closed,)))
    scripted.answer = dataclasses.replace(status(), scanner=seen, episodes=(parked,))
    scripted.episodes = NodeEpisodes(episode=parked)
    for path in (f"/c/{CLUSTER}", f"/c/{CLUSTER}/nodes/node-7"):
        body = await text(page, path)
        offered = body.partition("tries again</span>")[2].partition("</li>")[0]
        assert "it goes on only once there is a permit for it: NodeHealthCheck/workers has its circuit breaker open" in offered


async def test_the_preview_of_a_fencing_under_an_open_breaker_says_that_it_is_refused_and_by_what_it_may_go_on(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    """S17: the large sentence was that the machine is switched off."""
    closed = check(allowed=False, reason=OpenReason.TOO_MANY_UNHEALTHY, message="5 of 9 healthy")
    for changes, command in (({"checks": (closed,)}, True), ({"view": ViewState(synced=True, stale="away")}, False)):
        scripted.answer = dataclasses.replace(status(), scanner=scanner(report(**changes)))
        await asyncio.sleep(views.FRESH.total_seconds())
        body = await text(page, f"/c/{CLUSTER}/acts/fence?node=node-4")
        assert '<p class="headline text-red">fence is refused now: ' in body
        assert ("With the override below: the machine is switched off" in body) is command
        assert ("--override circuit-breaker</code>" in body) is command


@pytest.mark.parametrize(
    ("changes", "said"), [({"pauses": (PAUSE,)}, "None of them acts now: paused by ann"), ({}, "Yes, all of them may act")]
)
async def test_no_check_is_said_to_act_while_all_is_halted(
    page: aiohttp.ClientSession, scripted: ScriptedWarden, changes: dict[str, Any], said: str
) -> None:
    """S44: during a pause the view was green."""
    scripted.answer = dataclasses.replace(status(), scanner=scanner(report(checks=(check(),)), **changes))
    body = await text(page, f"/c/{CLUSTER}/checks")
    assert said in body
    assert (">not now<" in body) is bool(changes)
    assert ("Healthy, of all its targets" in body, "11 of 12, at least 7 must be" in body) == (True, True), "of either knob"


async def test_s52_a_check_that_may_act_on_some_of_its_nodes_is_not_said_to_act_on_all(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    few = check(modes=((Mode.OBSERVE, 9), (Mode.REPAIR, 3)))
    scripted.answer = dataclasses.replace(status(), scanner=scanner(report(checks=(few,))))
    body = await text(page, f"/c/{CLUSTER}/checks")
    assert "Yes, but 1 of 1 only on some of its nodes" in body
    assert "only on 3 of 12, the mode of the others is observe" in body


async def test_what_is_old_is_dated_and_answers_nothing_as_if_it_were_now(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    """S18, S44: the API server had been frozen for a minute, and the page said that it was seen 2 s ago."""
    blind = ViewState(synced=True, stale="nothing heard for 1m15s")
    answered = datetime.now(UTC) - timedelta(seconds=1)
    seen = report(row("node-1"), view=blind, answered_at=answered, seen_at=answered - timedelta(seconds=74))
    scripted.answer = dataclasses.replace(status(), scanner=scanner(seen))
    body = re.sub("<[^>]+>", " ", text_ := await text(page, f"/c/{CLUSTER}"))
    plain = " ".join(body.split())
    assert re.search("Seen 1m1[5-9]s ago", plain)
    assert re.search("Not known: view not live since [^ ]+Z: nothing heard for 1m15s", plain), "whether data is at risk"
    assert re.search("as it was seen 1m1[5-9]s ago ?, and may be otherwise now", plain)
    assert 'class="old">' in text_
    unheard = report(view=ViewState(synced=False, stale="the watch cache is not complete yet"), answered_at=answered)
    scripted.answer = dataclasses.replace(status(), scanner=scanner(unheard))
    await asyncio.sleep(views.FRESH.total_seconds())
    plain = " ".join(re.sub("<[^>]+>", " ", await text(page, f"/c/{CLUSTER}")).split())
    assert "Seen not yet" in plain, "a worker that was started meanwhile has heard nothing"


async def test_only_the_word_that_is_valid_is_offered(page: aiohttp.ClientSession, scripted: ScriptedWarden) -> None:
    """A pause is not offered to be ended where there is none; beside one of another person one may be begun (S44)."""
    body = await text(page, f"/c/{CLUSTER}")
    assert ("/acts/pause" in body, "/acts/unpause" in body, "by ann, <time" in body) == (True, False, False)
    scripted.answer = dataclasses.replace(status(), scanner=scanner(report(), pauses=(PAUSE,)))
    await asyncio.sleep(views.FRESH.total_seconds())
    body = await text(page, f"/c/{CLUSTER}")
    assert ("/acts/pause" in body, "/acts/unpause" in body, "by ann, <time" in body) == (True, True, True)


def test_one_that_only_waits_for_a_permit_is_not_under_way() -> None:
    asks = PermitRequest(node="node-3", workflow_id="w", incident="i")
    queued, runs = episode("node-3", phase=Phase.QUEUED), episode("node-4")
    found = overview_of(dataclasses.replace(status(), scanner=scanner(report(), queue=(asks,)), episodes=(queued, runs)))
    assert (found.under_way, [each.node for each in found.waiting]) == ((runs,), ["node-3"])
    unknown = overview_of(dataclasses.replace(status(), scanner=None, episodes=(queued,)))
    assert unknown.under_way == (queued,)


def test_everybody_who_waits_is_named_with_what_holds_him() -> None:
    asks = PermitRequest(node="node-3", workflow_id="w", incident="i")
    seen = scanner(report(), queue=(asks,), held_off=(HoldOff(node="node-4", reason="aborted", until=NOW),))
    waits = episode("node-3", queued="node-1 has the only permit")
    found = overview_of(dataclasses.replace(status(), scanner=seen, episodes=(waits,)))
    assert [(each.node, each.why, each.until) for each in found.waiting] == [
        ("node-3", "node-1 has the only permit", None),
        ("node-4", "aborted", NOW),
    ]
    assert [each.turn for each in found.waiting] == [1, None]  # who is held off stands in no queue
    assert (found.waiting[0].guard, found.waiting[0].moves) == ("CapReached", "an episode that ends gives its permit back")
    paused = overview_of(dataclasses.replace(status(), scanner=dataclasses.replace(seen, pauses=(PAUSE,)), episodes=(waits,)))
    ends = "each pause has to end: `nodewarden unpause --of NAME`"
    assert (paused.waiting[0].guard, paused.waiting[0].moves) == ("Paused", ends), "a permit given back ends no pause (S44)"


async def test_the_only_cluster_is_what_one_sees(page: aiohttp.ClientSession) -> None:
    body = await text(page, "/")
    assert "Yes: nodes are watched" in body
    assert "unhealthy" in body


async def test_an_episode_that_needs_a_person_says_what_to_do(page: aiohttp.ClientSession, scripted: ScriptedWarden) -> None:
    """S44."""
    advice = "fix the cause, then `nodewarden resume node-2 --question 3`"
    waits = episode("node-2", phase=Phase.NEEDS_HUMAN, problem="the BMC is silent", advice=advice)
    scripted.answer = dataclasses.replace(status(), episodes=(waits,))
    body = await text(page, f"/c/{CLUSTER}")
    assert "the BMC is silent" in body
    assert "fix the cause, then <code>nodewarden resume node-2 --question 3</code>" in body
    scripted.episodes = NodeEpisodes(episode=waits, ended=(result("node-2"),))
    assert "the BMC is silent" in await text(page, f"/c/{CLUSTER}/nodes/node-2")


@pytest.mark.parametrize("docs", ["", "https://docs.example.com/nodewarden/"])
async def test_the_first_step_of_the_runbook_stands_beside_the_buttons(scripted: ScriptedWarden, docs: str) -> None:
    """S44: with a link to its section, where the settings say where our documentation is."""
    waits = episode("node-2", phase=Phase.NEEDS_HUMAN, problem="off is not proven within 60 s: ipmi://10.0.0.2:623: no answer")
    scripted.answer = dataclasses.replace(status(), episodes=(waits, episode("node-3", problem="off is not proven")))
    scripted.episodes = NodeEpisodes(episode=waits)
    async with unlocked(Views(scripted, (CLUSTER,), docs=docs)) as url, aiohttp.ClientSession(url) as page:  # type: ignore[arg-type]
        for path in ("", "/nodes/node-2"):
            body = await text(page, f"/c/{CLUSTER}{path}")
            assert body.count("First step: <code>nodewarden fence check --node node-2</code> reads its devices now") == 1
            link = f'href="{docs}runbooks/needs-a-person.html#off-is-not-proven">Runbook: Off is not proven</a>'
            assert body.count(link) == bool(docs)
            assert ("Runbook:" in body) is bool(docs)


async def test_nodes_are_in_the_order_of_the_command_line(page: aiohttp.ClientSession, scripted: ScriptedWarden) -> None:
    """A report orders those of one verdict for itself: by how long, and by the letters of their names."""
    scripted.answer = status(row("node-10"), row("node-2"), row("node-30", Health.UNHEALTHY))
    body = await text(page, f"/c/{CLUSTER}")
    assert re.findall(r'<tr data-key="(node-[0-9]+)">', body) == ["node-30", "node-2", "node-10"]


async def test_how_often_a_step_is_tried_is_said_as_on_the_command_line(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    counts = {"try_number": 2, "tries": 3, "restarts": 1, "most_restarts": 1}
    tried = episode("node-2", problem="the BMC says on", **counts)
    parked = dataclasses.replace(tried, node="node-3", incident="inc-3", phase=Phase.NEEDS_HUMAN)
    scripted.answer = dataclasses.replace(status(), episodes=(tried, parked))
    assert (await text(page, f"/c/{CLUSTER}")).count("try 2 of 3, restart 1 of 1") == 2
    scripted.episodes = NodeEpisodes(episode=tried)
    assert "try 2 of 3, restart 1 of 1" in await text(page, f"/c/{CLUSTER}/nodes/node-2")


async def test_a_wait_that_is_over_is_overdue_and_a_machine_on_its_way_back_is_not_done(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    """S44: the timeline said "done, 36s so far" of a node that booted; History called a pause in force ended."""
    late = episode("node-2", waiting_until=datetime.now(UTC) - timedelta(seconds=7))
    scripted.answer = dataclasses.replace(status(), episodes=(late,))
    assert "overdue by <time" in await text(page, f"/c/{CLUSTER}")
    scripted.episodes = NodeEpisodes(episode=late)
    scripted.entries = (RecordEntry(at=NOW, step="recovery", act="phase", outcome=Phase.DONE),)
    shown = await text(page, f"/c/{CLUSTER}/nodes/node-2")
    assert ("<strong>returning</strong>" in shown, "<strong>done</strong>" in shown) == (True, False)
    assert f'<h1 class="page-title mb-3">History of {CLUSTER}</h1>' in await text(page, f"/c/{CLUSTER}/history")


async def test_no_view_shows_a_backtick(page: aiohttp.ClientSession, scripted: ScriptedWarden) -> None:
    """A terminal marks a command by them; the page has a typeface for it."""
    mark = "`nodewarden resume` helps"
    held = episode("node-2", doing=mark, problem=f"problem: {mark}", held=f"held: {mark}")
    parked = episode(
        "node-3",
        phase=Phase.NEEDS_HUMAN,
        problem=mark,
        advice=f"or {mark}",
        ways=(AcceptedCommand(verb=Verb.ABORT, command="nodewarden abort node-3", consequence=mark),),
    )
    seen = scanner(
        report(row("node-1")),
        pauses=(PAUSE,),
        held_off=(HoldOff(node="node-4", reason=mark),),
        refused=(Refused(check=CHECK, node="node-5", reason=AdmissionRefusal.CAP, message=mark),),
    )
    silent = SilentEpisode(node="node-6", workflow_id="w", problem=mark)
    scripted.answer = dataclasses.replace(status(), scanner=seen, episodes=(held, parked), silent=(silent,))
    scripted.episodes = NodeEpisodes(episode=parked, ended=(result("node-3", message=mark),))
    scripted.entries = (RecordEntry(at=NOW, step="recovery", act="power-on", outcome="failed", detail=mark),)
    scripted.devices = DeviceReport(
        cluster=CLUSTER,
        began=NOW,
        ended=NOW,
        rows=(DeviceRow(node="node-3", problem=mark), DeviceRow(node="node-4", warning=mark)),
    )
    at = f"/c/{CLUSTER}"
    for path in ("", "/nodes/node-3", "/record/inc-3", "/devices", "/checks", "/history"):
        body = await text(page, at + path)
        assert "`" not in body, path
    scripted.answer = SilentError(mark)
    await asyncio.sleep(views.FRESH.total_seconds())
    assert "`" not in await text(page, at)


async def test_a_source_without_an_answer_is_named_and_the_page_stays(
    page: aiohttp.ClientSession, scripted: ScriptedWarden
) -> None:
    """S44: what was known is shown, with the reason why it is old."""
    await text(page, f"/c/{CLUSTER}")
    scripted.answer = SilentError("Temporal does not answer")
    await asyncio.sleep(views.FRESH.total_seconds())
    body = await text(page, f"/c/{CLUSTER}")
    assert "No: Temporal does not answer" in body
    assert "node-2" in body


async def test_a_waiting_node_is_shown_with_what_would_move_it(page: aiohttp.ClientSession, scripted: ScriptedWarden) -> None:
    """S44: also where somebody has to do something before anything moves."""
    seen = scanner(
        report(), held_off=(HoldOff(node="node-4", reason="aborted"), HoldOff(node="node-5", reason="tried", until=NOW))
    )
    scripted.answer = dataclasses.replace(status(), scanner=seen)
    body = await text(page, f"/c/{CLUSTER}")
    assert "until it is healthy once, or a person asks: <code>nodewarden fence node-4" in body
    assert "nodewarden fence node-5" not in body


def test_each_guard_that_people_are_told_of_has_an_end() -> None:
    by_the_gate = {AdmissionRefusal.MODE, AdmissionRefusal.HELD_OFF}
    shown = set(AdmissionRefusal) - {AdmissionRefusal.IN_HAND, AdmissionRefusal.NOT_CARRIED_OUT} - by_the_gate
    assert {code for code in AdmissionRefusal if unblocks(code)} == shown


# Nothing but itself ----------------------------------------------------------------------------------------------------


async def test_what_is_shown_leads_to_temporals_own_page_of_it(scripted: ScriptedWarden) -> None:
    """And to lists of what people look for there. Without its address nothing seems to lead anywhere."""
    waits = episode("node-2", phase=Phase.NEEDS_HUMAN)
    scripted.answer = status(row("node-2", Health.UNHEALTHY), episodes=(episode("machine/ns/m-1"), waits))
    scripted.episodes = NodeEpisodes(episode=waits)
    temporal = TemporalUi(address="https://temporal.example.com/ui", namespace="nodes")
    views_of_it = Views(scripted, (CLUSTER,), temporal=temporal)  # type: ignore[arg-type]
    async with unlocked(views_of_it) as url, aiohttp.ClientSession(url) as page:
        body = await text(page, f"/c/{CLUSTER}")
        there = "https://temporal.example.com/ui/namespaces/nodes/workflows"
        for name in ("node-2", "machine%2Fns%2Fm-1"):
            assert f'href="{there}/episode%2F{CLUSTER}%2F{name}"' in body
        assert f'href="{there}/scanner%2F{CLUSTER}"' in body
        assert f"{there}?query=Cluster%20%3D%20%27{CLUSTER}%27%20AND%20Phase%20%3D%20%27needs-human%27" in body
        assert f'href="{there}/episode%2F{CLUSTER}%2Fnode-2"' in await text(page, f"/c/{CLUSTER}/nodes/node-2")
    async with unlocked(Views(scripted, (CLUSTER,))) as url, aiohttp.ClientSession(url) as page:  # type: ignore[arg-type]
        assert "in Temporal" not in await text(page, f"/c/{CLUSTER}")


async def test_the_browser_is_told_to_run_nothing_that_is_not_ours(page: aiohttp.ClientSession) -> None:
    """S40: names and reasons come from whoever writes objects."""
    for path in (f"/c/{CLUSTER}", "/static/page.js", "/nowhere"):
        async with page.get(path) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "http" not in policy


async def test_the_loopback_is_not_bound_to_tls(page: aiohttp.ClientSession) -> None:
    """It would hold for every other port of it, too."""
    async with page.get("/healthz") as answer:
        assert (answer.status, answer.headers.get("Strict-Transport-Security")) == (200, None)


async def test_markup_in_a_name_stays_text(page: aiohttp.ClientSession, scripted: ScriptedWarden) -> None:
    """S40."""
    evil = "<script>alert(1)</script>"
    scripted.answer = dataclasses.replace(status(row(evil, reason=evil)), episodes=(episode(evil, doing=evil, problem=evil),))
    for path in (f"/c/{CLUSTER}", f"/c/{CLUSTER}/nodes/%3Cscript%3Ealert(1)%3C%2Fscript%3E"):
        body = await text(page, path)
        assert "<script>alert" not in body
        assert "&lt;script&gt;" in body


async def test_a_name_that_was_made_to_lead_here_reads_nothing(page: aiohttp.ClientSession) -> None:
    """S42: DNS rebinding turns any page that is open in the same browser into a reader of the loopback."""
    async with page.get(f"/c/{CLUSTER}", headers={"Host": "evil.example.com"}) as answer:
        assert answer.status == 400
        assert "node-1" not in await answer.text()


@pytest.mark.parametrize("path", ["/c/staging", "/c/staging/history", "/nowhere", "/static/../app.py"])
async def test_what_is_not_there_is_said(page: aiohttp.ClientSession, path: str) -> None:
    assert "Not found" in await text(page, path, expected=404)


# Kept new --------------------------------------------------------------------------------------------------------------


async def changed(stream: aiohttp.StreamReader) -> None:
    async with asyncio.timeout(5 * PATIENCE):
        while await stream.readline() != b"event: changed\n":
            pass


async def test_an_open_page_hears_of_a_change_and_of_nothing_else(
    page: aiohttp.ClientSession, scripted: ScriptedWarden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "until_next", lambda _status: timedelta(milliseconds=20))
    async with page.get(f"/api/v1/clusters/{CLUSTER}/events") as answer:
        await changed(answer.content)
        asked = scripted.asked
        while scripted.asked < asked + 3:
            await asyncio.sleep(0.01)
        scripted.answer = status(row("node-9"))
        await changed(answer.content)
        scripted.answer = status(row("node-9", Health.UNHEALTHY))
        await changed(answer.content)
    assert "node-9" in await text(page, f"/c/{CLUSTER}")


async def test_many_pages_cost_what_one_costs_and_none_costs_nothing(
    page: aiohttp.ClientSession, scripted: ScriptedWarden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "until_next", lambda _status: timedelta(milliseconds=20))
    monkeypatch.setattr(views, "LINGERS", timedelta(milliseconds=50))
    streams = [await page.get(f"/api/v1/clusters/{CLUSTER}/events") for _ in range(5)]
    for each in streams:
        await changed(each.content)
    before = scripted.asked
    for _ in range(5):
        await text(page, f"/c/{CLUSTER}")
    assert scripted.asked - before < 5 * len(streams)
    for each in streams:
        each.close()
    await until_it_rests(scripted)


async def until_it_rests(scripted: ScriptedWarden) -> None:
    async with asyncio.timeout(5 * PATIENCE):
        asked = -1
        while asked != scripted.asked:
            asked = scripted.asked
            await asyncio.sleep(0.3)


async def test_a_reader_that_goes_while_it_is_written_to_costs_nothing_more(
    scripted: ScriptedWarden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever keeps the answer to it in memory."""
    monkeypatch.setattr(views, "until_next", lambda _status: timedelta(milliseconds=20))
    monkeypatch.setattr(views, "LINGERS", timedelta(milliseconds=50))
    events = Events(WatchedCluster(scripted, CLUSTER, None), AsyncMock(return_value=True))  # type: ignore[arg-type]
    gone = AsyncMock(side_effect=[None, None, OSError])
    with pytest.raises(ClientDisconnect):
        await events({"type": "http", "asgi": {"spec_version": "2.4"}}, AsyncMock(), gone)
    await until_it_rests(scripted)
    assert (scripted.asked > 0, gone.await_count, events.status_code) == (True, 3, 200)


async def test_a_record_says_on_what_off_rests_and_a_node_without_an_episode_has_its_spells(
    page: aiohttp.ClientSession, scripted: ScriptedWarden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same sentences as `nodewarden record`."""
    sick = spell("node-1", lasted=None)
    none = EpisodeRecord(cluster=CLUSTER, node="node-1", message="no episode, as far as Temporal remembers", started=NOW)
    found = dataclasses.replace(none, kind=Kind.FENCING, outcome="recovered", ended=NOW, off_proof=proof())
    shown = {}
    for name, each in (("spells", dataclasses.replace(none, spells=(sick,))), ("episode", found)):
        monkeypatch.setattr(scripted, "record", AsyncMock(return_value=each))
        shown[name] = await text(page, f"/c/{CLUSTER}/record/node-1")
    assert "There is no episode, as far as Temporal remembers." in shown["spells"]
    assert would_have(sick) in shown["spells"]
    assert "Off was" not in shown["spells"]
    assert "Off was proven by ipmi://10.0.0.0:623, read off at" in shown["episode"]


async def test_the_whole_way_from_temporal_to_the_page(warden: Nodewarden, cluster: str) -> None:
    """Past and open episodes, by the names that the command line gives them."""
    handle = await warden.fence(cluster, "node-1", reason="hold")
    async with unlocked(Views(warden, (cluster,))) as url, aiohttp.ClientSession(url) as page:
        assert "node-1" in await text(page, f"/c/{cluster}")
        assert Kind.FENCING.value in await text(page, f"/c/{cluster}/nodes/node-1")
        await handle.abort(who="ann", reason="enough")
        await handle.result()
        async with asyncio.timeout(10):
            while "/record/" not in (body := await text(page, f"/c/{cluster}/history")):
                await asyncio.sleep(0.1)
        assert "aborted" in body
        assert "What happened" in await text(page, f"/c/{cluster}/record/node-1")
