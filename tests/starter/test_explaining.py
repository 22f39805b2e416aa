"""What `explain` and `status` say of a node on whose behalf nothing is done: what keeps it, and the way out (S44)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from policy.checks.circuit_breakers import CircuitBreaker, Counts, OpenReason
from policy.checks.fence_policies import FencePolicies
from policy.checks.health_check import HealthCheck, Storm
from policy.checks.verdict import Health, Standing, Verdict
from policy.dialects import parse
from policy.episode.events import When
from policy.episode.messages import EpisodeStatus, Kind, OffProof, Phase
from policy.episode.modes import ModeAnswer, ModeChange, ModeRule
from policy.episode.permits import HoldOff, Permit, PermitState
from policy.fence.device_check import DeviceToCheck, NodeToCheck, checked, report_of
from policy.fence.plan import PowerDevice
from policy.remediation.strategy_rules import Action
from policy.scan.admission import Refused
from policy.scan.evaluation import CheckEvaluation, TargetEvaluation
from policy.scan.explanation import CheckOpinion, Explanation
from policy.scan.obstacles import ObstacleCode, alarms
from policy.scan.pauses import Pause
from policy.scan.permit_rules import AdmissionRefusal
from policy.scan.scan_report import AtRisk, ClusterLease, NodeAtRisk, ViewState
from policy.values.mode import Mode
from policy.values.times import written
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from starter import wording
from starter.client import Nodewarden
from starter.commands.mode import _as_text as modes_as_text
from starter.handles.episodes import NodeEpisodes
from starter.handles.status import PreservedNode, PreservedNodes
from starter.output import status_table
from starter.output.explanation import NodeExplanation, as_model, as_text, conclusion, scanner_lines
from starter.output.models import ModeLine, ModesAnswer
from tests.starter import builders
from tests.starter.builders import (
    CHECK,
    CIRCUIT_BREAKER,
    NOW,
    ago,
    check,
    episode,
    nodewarden,
    report,
    result,
    row,
    scanner,
    status,
)
from tests.starter.conftest import SETTINGS
from tests.starter.test_status_table import drawn
from workflows.kit.messages import ScannerStatus

WAY_OUT = "until it is healthy once, or a person asks: `nodewarden fence node-7 --reason …`"
ABORTED = HoldOff(node="node-7", reason=f"aborted by amy (wrong rack) (incident i); {WAY_OUT}")
REFUSED = Refused(check=CHECK, node="node-7", reason=AdmissionRefusal.HELD_OFF.value, message=f"held off: {ABORTED.reason}")
SHORT = check(allowed=False, total=2, healthy=1, message="only 1 of 2 nodes is healthy")


def a_check() -> HealthCheck:
    conditions = [{"type": "Ready", "status": "False", "duration": "5s"}]
    template = {"apiVersion": "nodewarden.io/v1alpha1", "kind": "FencingTemplate", "namespace": "nodewarden", "name": "bmc"}
    spec = {"selector": {"matchLabels": {"role": "worker"}}, "unhealthyConditions": conditions, "remediationTemplate": template}
    head = {"apiVersion": "remediation.medik8s.io/v1alpha1", "kind": "NodeHealthCheck", "metadata": {"name": "w"}}
    found = parse(head | {"spec": spec})
    assert isinstance(found, HealthCheck)
    return found


def fence_is_due() -> Explanation:
    """Of node-7, which one check finds unhealthy."""
    verdict = Verdict(health=Health.UNHEALTHY, standing=Standing.UNHEALTHY, reason="ReadyFalse")
    target = TargetEvaluation(target="node-7", node="node-7", machine="", verdict=verdict, due_in=None, action=Action.FENCE)
    evaluated = CheckEvaluation(
        check=a_check(),
        counts=Counts(healthy=0, unhealthy=1),
        breaker=CircuitBreaker(allowed=True, remaining=1, reason=OpenReason.NO, message="1 of 1"),
        storm=Storm(),
        verdicts=(target,),
        next_look=None,
    )
    return Explanation(
        node="node-7",
        found=True,
        ready="False",
        opinions=(
            CheckOpinion(
                check=evaluated, target=target, mode=ModeAnswer(mode=Mode.REPAIR, why="the setting scan.mode is repair")
            ),
        ),
    )


def explained(
    *, seen: ScannerStatus | None = None, explanation: Explanation | None = None, opened: EpisodeStatus | None = None
) -> NodeExplanation:
    return NodeExplanation(node="node-7", at=NOW, explanation=explanation, scanner=seen, episodes=NodeEpisodes(episode=opened))


def page_of(answer: NodeExplanation, *, width: int = 80) -> str:
    return " ".join(" ".join(builders.drawn(as_text(answer), width=width)).split())


def test_what_is_held_off_is_not_called_due_and_the_way_out_is_named() -> None:
    held = scanner(report(row("node-7")), held_off=(ABORTED,), refused=(REFUSED,))
    assert conclusion(explained(explanation=fence_is_due())) == "fence is due under NodeHealthCheck/w"
    answer = explained(explanation=fence_is_due(), seen=held)
    assert conclusion(answer) == f"unhealthy, and held off: {ABORTED.reason}"
    assert f"may act not now: held off: {ABORTED.reason}" in page_of(answer), "of this node"


def test_no_act_is_named_as_if_it_were_done_while_nothing_is_begun() -> None:
    """S44: by a pause, by the mode, or while another node has the permit; the mode is said where it is, and once more above."""
    full = Refused(check=CHECK, node="node-7", reason=AdmissionRefusal.CAP.value, message="1 of 1 permits are held: node-2")
    pause = Pause(who="amy", owner="amy", reason="drill", since=NOW)
    paused = scanner(report(row("node-7")), pauses=(pause,))
    for kept, why in (
        (scanner(report(row("node-7")), refused=(full,)), "not begun (CapReached)"),
        (paused, "the cluster is paused"),
    ):
        shown = page_of(explained(explanation=fence_is_due(), seen=kept))
        assert f"may act not now: {why}" in shown
        assert "action fence, but not now" in shown
    shown = page_of(explained(explanation=fence_is_due(), seen=scanner(report(row("node-7")))))
    assert "may act yes" in shown
    assert "action fence" in shown
    assert "but not now" not in shown
    mode = ModeAnswer(mode=Mode.OBSERVE, why="set for all nodes by amy: only look")
    [opinion] = fence_is_due().opinions
    held = replace(opinion, target=replace(opinion.target, action=Action.NONE, held_by=str(mode)), mode=mode)
    shown = page_of(explained(explanation=replace(fence_is_due(), opinions=(held,)), seen=scanner(report(row("node-7")))))
    assert shown.count(mode.why) == 2
    assert "may act not now: its mode is observe mode observe: set for all" in shown


def test_what_a_candidate_waits_for_is_the_conclusion() -> None:
    full = Refused(check=CHECK, node="node-7", reason=AdmissionRefusal.CAP.value, message="1 of 1 permits are held: node-2")
    waits = explained(explanation=fence_is_due(), seen=scanner(report(row("node-7")), refused=(full,)))
    assert conclusion(waits) == "unhealthy, and not begun (CapReached): 1 of 1 permits are held: node-2"


def test_what_is_held_off_is_said_once() -> None:
    held = scanner(report(row("node-7")), held_off=(ABORTED,), refused=(REFUSED,))
    shown = " ".join(drawn(status(scanner=held)))
    assert shown.count("aborted by amy") == 1
    assert page_of(explained(seen=held)).count("aborted by amy") == 1


def test_what_a_device_answers_is_said_while_it_is_tried_again() -> None:
    """What hides the BMC's failure until a person is asked costs him the minutes in which he could mend it."""
    tried = episode(problem="no answer from the BMC within 4.0 s", doing="commands power off", try_number=2, tries=3, permit=True)
    trouble = "try 2 of 3; the last problem: no answer from the BMC within 4.0 s"
    assert conclusion(explained(opened=tried)) == f"an episode is in progress: commands power off; {trouble}"
    assert f"it does: commands power off {trouble}" in page_of(explained(opened=tried))
    again = replace(tried, doing=f"will try again: {tried.problem}")
    assert conclusion(explained(opened=again)) == f"an episode is in progress: will try again: {tried.problem}; try 2 of 3"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"checks": (SHORT,)}, CIRCUIT_BREAKER),
        ({}, ""),
    ],
)
def test_who_is_asked_to_resume_hears_what_would_keep_it_all_the_same(changes: dict[str, Any], said: str) -> None:
    parked = episode(phase=Phase.NEEDS_HUMAN, problem="the BMC refuses our password", advice="mend it", control_plane=False)
    mine = Permit(
        node="node-7", workflow_id="w", incident=parked.incident, kind=Kind.FENCING, state=PermitState.PARKED, granted_at=NOW
    )
    seen = scanner(report(row("node-7"), **changes), permits=(mine,))
    assert "first step: `nodewarden fence check --node node-7` reads its devices" in page_of(explained(seen=seen, opened=parked))
    words = f"it goes on only once there is a permit for it: {said}"
    table = " ".join(" ".join(drawn(status(scanner=seen, episodes=(parked,)))).split())
    for page in (page_of(explained(seen=seen, opened=parked)), table):
        assert (words in page) is bool(said), page
        assert ("only once there is a permit" in page) is bool(said)


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        (scanner(report(view=ViewState(synced=True, stale="its API is away"))), ObstacleCode.VIEW),
        (scanner(report(view=ViewState(synced=False))), ObstacleCode.VIEW),
        (scanner(report()), ObstacleCode.VIEW),  # it is old by then
        (scanner(report(lease=ClusterLease(held=False, needed=True, holder="another"))), ObstacleCode.LEASE),
        (scanner(report(policies=FencePolicies(problem="two defaults"))), ObstacleCode.POLICIES),
        (scanner(report(), problem="its worker is away"), ObstacleCode.SCANNER),
        (scanner(None), ObstacleCode.UNSEEN),
    ],
)
def test_what_keeps_us_from_acting_is_said_as_everywhere_else(seen: ScannerStatus, code: ObstacleCode) -> None:
    """S44: `policy/scan/obstacles.py` is the one answer, of `explain` and the alarms, too."""
    now = NOW + timedelta(hours=1)
    found = wording.obstacles(seen, now)
    (said,) = (each.text for each in found if each.code is code)
    answer = replace(explained(seen=seen), at=now)
    assert scanner_lines(answer, seen)[: len(found)] == [each.text for each in found]
    blind = [each.text for each in alarms(seen.report, 0) if each.when is When.VIEW_STALE] if seen.report is not None else []
    now_blind = code is ObstacleCode.VIEW and seen.report is not None and (seen.report.view.stale or not seen.report.view.synced)
    assert blind == ([f"nothing is begun: {said}"] if now_blind else [])


def test_the_episode_of_a_preserved_node_says_who_why_and_until_when() -> None:
    until = NOW + timedelta(hours=2)
    kept = episode(
        kind=Kind.PRESERVATION, phase=Phase.RUNNING_PRESERVED, requester="amy", reason="kernel hangs", preserved_until=until
    )
    assert conclusion(explained(opened=kept)) == "preserved until 2026-11-21T14:00:00Z by amy: kernel hangs"
    assert "Running:Preserved, until 2026-11-21T14:00:00Z by amy: kernel hangs" in page_of(explained(opened=kept))


def test_who_is_preserved_why_and_until_when_is_readable_at_80_columns() -> None:
    kept = PreservedNode(
        node="ip-10-0-1-1.eu-west-1.compute.internal",
        phase=Phase.RUNNING_PRESERVED,
        reason="kernel hangs, ask ada",
        requester="system:serviceaccount:ops:amy",
        since=ago(3600),
        until=NOW + timedelta(hours=2),
        hours=1.0,
        incident="i",
        workflow_id="w",
    )
    lines = builders.drawn(
        status_table.preservations_table(PreservedNodes(cluster="prod", at=NOW, preservations=(kept,))), width=80
    )
    assert f"{kept.node}: by system:serviceaccount:ops:amy: kernel hangs, ask ada" in " ".join(lines)
    assert "2026-11-21T14:00:00Z" in lines[1]


def test_data_is_not_at_risk_where_off_is_proven() -> None:
    """S36: the scan that would say so comes seconds later."""
    found = AtRisk(nodes=2, nearest=tuple(NodeAtRisk(node=each, since=ago(60), volumes=1) for each in ("node-7", "node-8")))
    proven = episode(off_proof=OffProof(commanded_at=ago(9)))
    seen = scanner(report(row("node-7"), at_risk=found))
    shown = drawn(status(scanner=seen, episodes=(proven,)))
    assert not any(line.startswith("node-7") and "not proven off" in line for line in shown)
    assert any(line.startswith("node-8") and "not proven off" in line for line in shown)
    assert "data at risk" not in page_of(explained(seen=seen, opened=proven))
    assert "data at risk" in page_of(explained(seen=seen, opened=episode()))


def test_what_an_episode_waits_for_counts_down_there_too() -> None:
    """A person who asks of one node sees how long nothing will be done to it yet."""
    waits = episode(doing="waits before power-management", waiting_until=NOW + timedelta(seconds=8))
    assert "an episode is in progress: waits before power-management, at most 8s" in conclusion(explained(opened=waits))


@pytest.mark.parametrize(
    ("verdict", "due_in", "said"),
    [
        (Verdict(health=Health.SOON, standing=Standing.HEALTHY, due=NOW), 0.4, "soon, becomes unhealthy in 1s"),
        (Verdict(health=Health.SOON, standing=Standing.HEALTHY, due=NOW), 0, "soon, becomes unhealthy now"),
        (Verdict(health=Health.HEALTHY, standing=Standing.HEALTHY), 1, "healthy, is judged again in 1s"),
    ],
)
def test_when_a_verdict_changes_is_never_in_0_seconds(verdict: Verdict, due_in: float, said: str) -> None:
    due = fence_is_due()
    target = replace(due.opinions[0].target, verdict=verdict, due_in=timedelta(seconds=due_in), action=Action.NONE)
    assert said in page_of(explained(explanation=replace(due, opinions=(replace(due.opinions[0], target=target),))))


def test_a_machine_on_its_way_back_is_not_called_done() -> None:
    waits = episode(phase=Phase.DONE, doing="waits for the node to come back Ready")
    (line,) = [each for each in drawn(status(episodes=(waits,))) if each.startswith("node-7")]
    assert ("returning" in line, "done" in line) == (True, False)


def test_a_stopped_scanner_leaves_what_it_saw_last() -> None:
    stopped = status(scanner=None, problem="no open scanner of prod", last=scanner(report(row("node-3"), at=ago(60))))
    lines = drawn(stopped)
    assert "as the scanner saw it last, at 2026-11-21T11:59:00Z:" in lines
    assert any(line.startswith("node-3") for line in lines)


def test_devices_that_are_left_to_an_open_episode_are_said_to_be_unread() -> None:
    device = DeviceToCheck(device=PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623"))
    rows = checked(NodeToCheck(node="node-7", held="i7", devices=(device,)), ()).rows
    found = report_of("prod", rows, began=NOW, ended=NOW, nodes=1)
    page = " ".join(" ".join(builders.drawn(status_table.devices_table(found), width=80)).split())
    assert (
        "node-7 ipmi://10.0.0.7:623: not read: incident i7 is open; `nodewarden fence check --node node-7` reads it all the same"
        in page
    )
    assert page.endswith("0 of 1 device of 1 node answered; not read: those of 1 node with an open episode")


@pytest.fixture
async def at_home(keyboard: Path, api: ApiServer, cluster: str, person: ApiClient) -> ApiClient:
    """The caller's own kubeconfig reaches the cluster of the test, in which node-1 is."""
    (keyboard / "token").write_text("administrator")
    known = f"clusters: {{{cluster}: {{server: '{api.url}', token_file: '{keyboard / 'token'}'}}}}"
    (keyboard / SETTINGS).write_text(known, encoding="utf-8")
    await person.create("/api/v1/nodes", {"metadata": {"name": "node-1"}})
    return person


@pytest.mark.parametrize(
    "words",
    [
        ("abort",),
        ("hold",),
        ("resume",),
        ("return-path", "--reason", "x"),
        ("release",),
        ("ack-off", "--who", "amy", "--reason", "saw it", "--yes"),
        ("preserve", "extend", "--for", "1h"),
        ("mode", "set", "observe", "--reason", "x"),
        ("explain",),
        ("fence", "plan"),
        ("remediate", "plan"),
        ("fence", "check", "--node"),
    ],
)
async def test_a_name_that_no_node_has_is_one_wording_and_code_4_everywhere(
    at_home: ApiClient, warden: Nodewarden, cluster: str, words: tuple[str, ...]
) -> None:
    result = await nodewarden(*words, "nod-1")
    assert (result.exit_code, result.stdout, result.stderr) == (
        4,
        "",
        "nodewarden: nod-1: there is no such Node or Machine; did you mean node-1?\n",
    )


async def test_a_mode_that_there_is_not_is_named_with_those_that_there_are(at_home: ApiClient, warden: Nodewarden) -> None:
    for level in ("unset", "Repair"):
        result = await nodewarden("mode", "set", level, "node-1", "--reason", "x")
        expected = f"nodewarden: MODE: expected observe, cordon, drain or repair, got {level!r}\n"
        assert (result.exit_code, result.stderr) == (2, expected)


async def test_all_rules_of_modes_are_taken_back_only_where_that_is_asked_for(at_home: ApiClient, warden: Nodewarden) -> None:
    """S52: a forgotten -l armed all nodes at once."""
    for words in ((), ("node-1", "--all"), ("-l", "a=b", "--all")):
        result = await nodewarden("mode", "unset", *words, "--reason", "x")
        assert (result.exit_code, "or --all, which takes every rule back" in result.stderr) == (2, True)
    result = await nodewarden("mode", "unset", "--all", "--reason", "x")
    assert result.exit_code != 2


def test_the_modes_are_a_line_each_and_nodes_without_a_rule_are_named_only_where_there_may_be_some() -> None:
    rule = ModeRule(mode=Mode.OBSERVE, by="ada, verified by Kubernetes", reason="only look", at=NOW)
    line = ModeLine(mode=Mode.OBSERVE, check="NodeHealthCheck/workers", nodes=("node-1", "node-2"), why=str(rule), problem="")
    for rules in ((), (rule,)):
        found = ModesAnswer(cluster="c", default=Mode.REPAIR, why="w", rules=rules, nodes=(line,), unread=None)
        shown = builders.drawn(modes_as_text(found), width=80)
        assert shown[0].startswith("observe: set for all" if rules else "nodes without a rule: repair (w)")
        assert any(written(NOW) in each for each in shown[-3:])
        assert "observe: node-1, node-2 under NodeHealthCheck/workers: set for all nodes" in " ".join(shown)


def test_the_last_changes_of_modes_are_listed_the_newest_first() -> None:
    """S44: who set this to observe, and when? Also where the cluster can't be read."""
    changes = [ModeChange(at=ago(60 - n), by="ada", mode="observe", scope="all nodes", reason=f"drill {n}") for n in range(9)]
    changes.append(ModeChange(at=ago(1), by="bob", mode="unset", scope="nodes with rack=r7", reason="enough"))
    found = ModesAnswer(cluster="c", default=Mode.REPAIR, why="w", rules=(), nodes=(), unread="no rights", changes=tuple(changes))
    shown = builders.drawn(modes_as_text(found), width=120)
    at = shown.index("What people changed, the newest first")
    assert shown[at + 1] == f"  {written(ago(1))}: the rule for nodes with rack=r7 was taken back by bob: enough"
    assert shown[at + 2].endswith(": observe was set for all nodes by ada: drill 8")
    assert shown[-1] == "  … and 2 before: the JSON of `nodewarden mode` has them"


async def test_what_is_changed_is_listed_after_the_next_start(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    """As a pause, it is the cluster's and not the scanner's."""
    scanner = warden.scanner(cluster)
    assert await scanner.mode_changes() == ()
    await warden.start_scanner(cluster)
    await scanner.set_mode("drain", who="ada", reason="careful here", nodes=("node-1",))
    await warden.stop_scanner(cluster, who="ada", reason="new settings")
    await warden.start_scanner(cluster)
    await scanner.set_mode("unset", who="bob", reason="done", nodes=("node-1",))
    known = [(each.mode, each.scope, each.by, each.reason) for each in await scanner.mode_changes()]
    assert known == [("drain", "node-1", "ada", "careful here"), ("unset", "node-1", "bob", "done")]


async def test_a_node_without_an_episode_is_there_all_the_same(at_home: ApiClient, warden: Nodewarden, cluster: str) -> None:
    result = await nodewarden("abort", "node-1")
    assert (result.exit_code, result.stderr) == (4, "nodewarden: no open episode of node-1\n")


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", ""], ids=["down", "401"])
async def test_a_cluster_that_cannot_be_read_says_so_and_is_not_code_4(
    keyboard: Path, warden: Nodewarden, api: ApiServer, cluster: str, address: str
) -> None:
    (keyboard / "token").write_text("nobody's")
    known = f"clusters: {{{cluster}: {{server: '{address or api.url}', token_file: '{keyboard / 'token'}'}}}}"
    (keyboard / SETTINGS).write_text(known, encoding="utf-8")
    result = await nodewarden("explain", "node-1")
    page = " ".join(result.stdout.split())
    assert result.exit_code == 5
    assert page.startswith("node-1 it is not known whether there is such a node: the cluster can't be read")
    assert f"note: the cluster {cluster} can't be read: " in page
    planned = await nodewarden("fence", "plan", "node-1")
    assert (planned.exit_code, f"the cluster {cluster} can't be read: " in planned.stderr) == (5, True)


def test_of_a_cluster_that_cannot_be_read_it_is_not_said_that_no_check_covers_the_node() -> None:
    seen = NodeExplanation(node="node-7", at=NOW, episodes=NodeEpisodes(ended=(result("node-7"),)), unread=True)
    not_known = "what health checks say of it is not known: the cluster can't be read"
    assert as_model(seen).conclusion == not_known
    said = " ".join(" ".join(builders.drawn(as_text(seen), width=200)).split())
    assert said.startswith(f"node-7 {not_known}")
    began, ended = written(result("node-7").started), written(result("node-7").ended)
    assert f"{began} to {ended} incident-node-7: recovered after" in said, "`history` has when it began"


@pytest.mark.parametrize("words", [("status",), ("scan", "status"), ("history",), ("abort", "node-1"), ("preserved",)])
async def test_a_cluster_that_there_is_none_of_is_not_told_to_start_a_scanner(
    keyboard: Path, warden: Nodewarden, cluster: str, words: tuple[str, ...]
) -> None:
    result = await nodewarden(*words, "-c", f"{cluster}x")
    said = f"--cluster: no worker serves '{cluster}x', and it is not among the clusters known here: {cluster}"
    assert (result.exit_code, result.stderr) == (2, f"nodewarden: {said}\n")


async def test_a_cluster_that_has_had_a_scanner_needs_no_settings_here(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    await warden.start_scanner(cluster)
    (keyboard / SETTINGS).write_text("clusters: {another: {context: test}}", encoding="utf-8")
    assert (await nodewarden("status", "-c", cluster)).exit_code == 0


async def test_status_after_a_stop_still_shows_the_nodes(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    await warden.start_scanner(cluster)
    await warden.stop_scanner(cluster, who="amy", reason="drill")
    await warden.scanner(cluster).ended()
    result = await nodewarden("status", "-c", cluster)
    assert result.exit_code == 4
    assert "as the scanner saw it last, at 2" in result.stdout
    assert "node-1 zone-a Unknown" in " ".join(result.stdout.split())
