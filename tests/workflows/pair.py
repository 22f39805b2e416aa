"""A scanner and its episodes in one play, all of them the real workflows, and what only the two together can break.

The cluster is that of the scanner's player (`fleet.py`), and behind each of its nodes is the machine of the episode's
(`adversary.py`), with its referee. What each of these players has made up of the other is real here: permits, last looks,
releases, what is seen of a node, what becomes of an episode. Beside their rules it holds that more never act than may (S14,
S15), and that at rest the scanner and its episodes agree about who may.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any, cast

from activities.contracts.episodes import (
    AskPermit,
    AskPortion,
    DescribeRequest,
    EpisodeDescription,
    NotifyRequest,
    NotifyResult,
    Opened,
    OpenOutcome,
    OpenRequest,
)
from activities.episodes import ANSWERED_WITHIN
from activities.errors import ErrorType, failure
from policy.episode.gate import MODE, Objection, Operation, of_control_plane
from policy.episode.messages import (
    EpisodeStatus,
    FencingInput,
    Kind,
    Need,
    NeedKind,
    Outcome,
    Phase,
    RemediationInput,
    episode_id,
)
from policy.episode.permits import (
    PermitAnswer,
    PermitDecision,
    PermitQuestions,
    PermitRequest,
    PermitState,
    PortionAnswer,
    Release,
    ScannerAnswer,
    ScannerQuestion,
)
from policy.fence.plan import FencingPlan
from policy.objects.nodes import MARK_ANNOTATION, SERVING_LABELS, Condition, NodeView
from policy.remediation.control_plane import MemberFate, members_from_nodes, objection_to
from policy.remediation.ladder import ESCALATION_ANNOTATION
from policy.remediation.strategy_rules import Strategy
from policy.values.mode import Mode
from tests.policy.builders import WORKER, confirmed
from tests.workflows import contract
from tests.workflows.adversary import DESTRUCTIVE, Adversary, look_of
from tests.workflows.attempts import START, Attempt, Work
from tests.workflows.clockwork import Perils
from tests.workflows.executions import Execution, Word
from tests.workflows.faults import Fault
from tests.workflows.fleet import CLUSTER, SCANNER, Body, Episode, Fleet
from tests.workflows.fleet_moves import CALM, OBJECTS, PEOPLE, SERVERS, WAITS, FleetPlay
from tests.workflows.machine import OURS
from tests.workflows.plans import draw_plan, switches
from tests.workflows.plays import Move
from tests.workflows.referee import Said
from tests.workflows.scenario_run import RELEASE, draw_script, problems_of_the_end
from workflows.definitions.episodes import Fencing, Remediation
from workflows.kit.messages import AbortRequest, HoldEpisodeRequest, ResumeRequest
from workflows.scanner.story import NOT_TAKEN_OVER

SETTLED = timedelta(seconds=100)
"""So long at rest the scanner and an episode may think otherwise of its permit: holders are described each minute."""
LEFT_TO_SCANNER = "S35: our mark is left"
"""Of an episode that may not begin: what one that was terminated has left is taken away once the node is well."""
LOOKED_AT = timedelta(seconds=3)
"""How often what has come of itself of a machine is seen."""
OWN = frozenset(
    map(
        Fault,
        [
            "refused",
            "unreachable",
            "lost before",
            "lost after",
            "late",
            "slow",
            "unsure",
            "says busy",
            "flap",
            "reboot",
            "stubborn",
            "stuck",
            "silent",
            "speaks",
            "heal",
            "unmarked",
            "abort",
            "hold",
            "cancel",
            "terminate",
            "roll",
            "reset",
            "nothing",
        ],
    )
)
"""What befalls its episodes beside what the moves do; all else that an episode meets is the scanner, or the cluster's objects."""


class PlayedNode(Body):
    """A node of which an adversary knows the machine."""

    def __init__(self, name: str, rack: str, adversary: PlayedMachine) -> None:
        self.adversary = adversary
        super().__init__(name, rack, START - timedelta(days=1))

    @property
    def ready(self) -> str:
        return "True" if self.adversary.machine.ready else "Unknown"

    @ready.setter
    def ready(self, ready: str) -> None:
        machine = self.adversary.machine
        if machine.ready != (ready == "True"):
            machine.ready, machine.ready_since = ready == "True", self.adversary.fleet.now

    @property
    def present(self) -> bool:
        return self.adversary.machine.present

    @present.setter
    def present(self, present: bool) -> None:
        if not present:
            self.adversary.machine.lose_node()

    @property
    def mark(self) -> str:
        mark = self.adversary.machine.mark
        return mark.incident if mark is not None else ""

    @mark.setter
    def mark(self, mark: str) -> None:
        if not mark:
            self.adversary.machine.lose_mark()

    @property
    def uid(self) -> str:
        return self.adversary.machine.uid

    @property
    def boot_id(self) -> str:
        return self.adversary.machine.boot_id

    def view(self) -> NodeView:
        machine = self.adversary.machine
        annotations = self.annotations | ({MARK_ANNOTATION: machine.mark.to_json()} if machine.mark is not None else {})
        return NodeView(
            name=self.name,
            uid=machine.uid,
            labels={WORKER: "", "rack": self.rack, **self.labels, **confirmed(annotations)},
            annotations=annotations,
            conditions=(Condition(type="Ready", status=self.ready, since=self.since),),
            provider_id=machine.provider_id,
            boot_id=self.boot_id,
            system_uuid=machine.system_uuid,
            unschedulable=machine.unschedulable,
        )


class PlayedMachine(Adversary):
    """The machine of one node, and what befalls its episodes. Who may act with it the scanner says, and the cluster's objects."""

    def __init__(self, fleet: PairFleet, name: str, plan: FencingPlan, script: deque[tuple[Fault, float]]) -> None:
        super().__init__(plan=plan, need=Need(kind=NeedKind.CHECK, reason="Ready is Unknown"), script=script)
        self.fleet, machine = fleet, self.machine
        self.episode: Episode | None = None
        """The last one: of an act that is late its worker looks for it, too."""
        machine.name, machine.uid, machine.provider_id = name, f"{name}/1", f"sim:///{name}/{OURS}"
        machine.system_uuid, machine.boot_id = f"system-{name}", f"boot-{name}-1"
        machine.ready, machine.ready_since = True, START
        self.machine_object.present = self.referee.permit = False

    @property
    def node(self) -> str:
        return self.machine.name

    @property
    def is_member(self) -> bool:
        """Of the control plane, as its Node says."""
        body = self.fleet.nodes[self.node]
        return body.present and body.view().control_plane

    def perform(self, attempt: Attempt) -> Any:
        """As the adversary does; the fleet's referee judges each act by the look that it is done on."""
        self._follow()
        episode, method, looked = self.fleet.open.get(self.node), contract.act_of(attempt.call), self.referee.looked
        judge = self.fleet.acts
        target = getattr(look_of(attempt.request), "target", None)
        if episode is not None and target is not None:
            episode.uid = target.pinned.uid  # the machine of a Node that was made anew is pinned anew (S9: by its referee)
        if episode is not None and method in DESTRUCTIVE and looked is not None and not attempt.repeats:
            self.referee.permit = self.referee.permit or self.fleet.grants(episode)
            judge(episode, "drain" if method == "drain" else "off", looked)
            episode.done += 1
        answer = super().perform(attempt)
        look = getattr(answer, "look", None)
        if (
            episode is not None
            and method == "mark_unschedulable"
            and look is not None
            and look.verdict is contract.LookVerdict.GO
        ):
            judge(episode, "cordon", attempt.now)
        return answer

    def _follow(self) -> None:
        """What its check asks for by now."""
        check = self.fleet.checks[self.need.check.name] if self.need.check is not None else None
        wanted = check is None or check.covers(self.fleet.nodes[self.node])
        self.unwanted = None if wanted else self.unwanted or self.fleet.now
        paused = check is not None and check.paused
        self.check_paused = self.check_paused or self.fleet.now if paused else None

    # What the scanner says --------------------------------------------------------------------------------------------

    def holds_permit(self) -> bool:
        answer = self.fleet.asked(self.node, self.episode.incident) if self.episode is not None else None
        return answer is not None and answer.questions[0].held

    def kept_out(self, operation: Operation) -> Objection | None:
        """By the gate. A look at a member sees all the others as they are at that moment, too (S15)."""
        assert self.episode is not None
        fleet, needed = self.fleet, None
        if self.is_member:
            plane = members_from_nodes(each.view() for each in fleet.nodes.values() if each.present)
            needed = of_control_plane(objection_to(plane, self.node, MemberFate.STOPPED))
        answer = fleet.asked(self.node, self.episode.incident)
        return fleet.objection(self.episode, operation, answer, policies=fleet.policies, control_plane=needed)

    def _is_stopped_by_mode(self, request: contract.LookRequest) -> bool:
        why = self.kept_out(request.operation)
        return why is not None and why.rule == MODE

    def begins(self, request: contract.PinRequest) -> None:
        self._require_same(request.wanted)
        super().begins(request)

    async def pin(self, request: contract.PinRequest) -> contract.PinResult:
        return replace(await super().pin(request), control_plane=self.is_member)

    def pin_target(self, request: RemediationInput) -> contract.RemediationPin:
        self._require_same(request)
        return replace(super().pin_target(request), control_plane=self.is_member)

    def _require_same(self, wanted: FencingInput | RemediationInput) -> None:
        if self.machine.present and wanted.node_uid and wanted.node_uid != self.machine.uid:
            raise failure(ErrorType.TARGET_CHANGED, f"Node/{self.node} is another object now")

    def request_permit(self, request: AskPermit) -> Any:
        attempt = self._attempt
        assert attempt is not None
        self.judge_request(request)

        def answered(answer: ScannerAnswer) -> PermitAnswer:
            permit = answer.permit or PermitAnswer(decision=PermitDecision.REFUSED, reason="no scanner runs")
            if permit.decision is PermitDecision.GRANTED:
                self.fleet.has_permit(self.node, request.permit.incident)
            return permit

        question = ScannerQuestion(id=f"{request.permit.incident}-{attempt.run_id}-{attempt.activity_id}", permit=request.permit)
        return self.fleet.ask(question, answered)

    def ask_portion(self, request: AskPortion) -> Any:
        asked = request.portion
        question = ScannerQuestion(id=f"{asked.incident}-{asked.number}", portion=asked)
        return self.fleet.ask(question, lambda answer: answer.portion or PortionAnswer(problem="no scanner runs"))


class PairFleet(Fleet):
    """A fleet of which the episodes are the real workflows."""

    nodes: dict[str, PlayedNode]

    def __init__(self, seed: int, *, nodes: int, cap: int, setting: Mode | None, perils: Perils) -> None:
        super().__init__(seed, nodes=nodes, cap=cap, setting=setting, perils=perils)
        self.clockwork.learn((Fencing, Remediation))
        self.clockwork.heard = self._heard
        draw = Random(seed)
        self.acts: Callable[[Episode, str, datetime], None] = lambda _episode, _needs, _looked: None
        self.closed: Callable[[Episode, Execution, PlayedMachine], None] = lambda _episode, _execution, _machine: None
        self.leaves: Callable[[str], None] = lambda _node: None
        members = 3 if draw.random() < 0.3 else 0
        for name, body in sorted(self.nodes.items()):
            script = deque(each for each in draw_script(draw) if each[0] in OWN)
            machine = PlayedMachine(self, name, _plan(draw), script)
            self.nodes[name] = node = PlayedNode(name, body.rack, machine)
            self.ledger.put_node(node.view(), START)
        if draw.random() < 0.4:
            for check in self.checks.values():
                check.annotations[ESCALATION_ANNOTATION] = "reboot=5m, fence"
                self.write(check)
        self._seen = {name: body.view() for name, body in self.nodes.items()}
        self.join(members)
        self.clockwork.after(LOOKED_AT, self._settle)

    def join(self, members: int) -> None:
        """So many nodes are of the control plane from the beginning."""
        for _, node in sorted(self.nodes.items())[:members]:
            node.labels = {SERVING_LABELS[0]: ""}
            self._seen[node.name] = node.view()
            self.ledger.put_node(node.view(), START)

    def perform(self, attempt: Attempt) -> Any:
        if attempt.workflow_id == SCANNER:
            return super().perform(attempt)
        body = self.nodes[_node(attempt.workflow_id)]
        try:
            return body.adversary.perform(attempt)
        finally:
            self.refresh(body)

    def _settle(self) -> None:
        for body in self.nodes.values():
            body.adversary.machine.settle(self.now)
            self.refresh(body)
        self.clockwork.after(LOOKED_AT, self._settle)

    def refresh(self, body: PlayedNode) -> None:
        """Show what has become of a Node."""
        before = self._seen[body.name]
        if before.conditions[0].status != body.ready:
            body.since = self.now
        if body.present != bool(before.uid) or body.view() != before:
            self.put(body)

    def put(self, body: Body) -> None:
        self._seen[body.name] = body.view() if body.present else replace(body.view(), uid="")
        super().put(body)

    # Signals and questions --------------------------------------------------------------------------------------------

    def _heard(self, workflow_id: str, signal: str, argument: Any) -> None:
        if signal == "permit_granted":
            node = _node(workflow_id)
            self.has_permit(node, self.open[node].incident)
        elif signal == "release":
            self._gives_back(RELEASE.validate_python(argument))

    def _signalled(self, _workflow_id: str, signal: str, argument: Any) -> bool:
        if signal == "release":
            self._gives_back(RELEASE.validate_python(argument))
        return False

    def _gives_back(self, release: Release) -> None:
        """The episode has no permit any more, whether or not a scanner hears of it."""
        machine, found = self.nodes[release.node].adversary, self.open.get(release.node)
        machine.now = self.now
        machine.hears_release(release)
        if found is not None and found.incident == release.incident:
            found.permit, found.parked = False, True

    def has_permit(self, node: str, incident: str) -> None:
        """The scanner has granted it, and the episode has read so."""
        found = self.open.get(node)
        if found is not None and found.incident == incident:
            found.permit, found.parked = True, False
            self.nodes[node].adversary.referee.permit = True

    def grants(self, episode: Episode) -> bool:
        """Whether the scanner's table has a permit of it, also one that a stranger has asked for: it counts as its own."""
        permits = self.scanner.query("status").permits if self.scanner is not None and self.scanner.begun else ()
        return any(each.incident == episode.incident and each.state is not PermitState.PARKED for each in permits)

    def asked(self, node: str, incident: str) -> PermitQuestions | None:
        answer = super().asked(node, incident)
        if answer is not None and answer.questions[0].held:
            self.leaves(node)
        return answer

    def ask(self, question: ScannerQuestion, answered: Callable[[ScannerAnswer], Any]) -> Work:
        """As the activity does: by signal, and the answer by queries."""
        found, asked = Future[Any](), self.now
        if self.scanner is not None:
            self.scanner.signal("ask", question)

        def looks() -> None:
            scanner, answer = self.scanner, ScannerAnswer()
            if found.done():
                return
            if scanner is not None and scanner.begun:
                try:
                    answer = scanner.query("answer", question)
                except LookupError as error:
                    found.set_exception(failure(ErrorType.UNREACHABLE, f"the scanner gives no answer: {error}"))
                    return
            if scanner is None or answer != ScannerAnswer():
                found.set_result(answered(answer))
            elif self.now - asked > ANSWERED_WITHIN:
                found.set_exception(failure(ErrorType.UNREACHABLE, "the scanner gives no answer: it takes too long"))
            else:
                self.clockwork.after(timedelta(milliseconds=300), looks)

        self.clockwork.after(timedelta(milliseconds=50), looks)
        return Work(cast(Any, found), alive=True)

    # Episodes ---------------------------------------------------------------------------------------------------------

    def begin(self, asked: FencingInput | RemediationInput, *, granted: bool, by_person: bool = False) -> None:
        """The workflow, and what is known of it."""
        body, node = self.nodes[asked.node], asked.node
        machine, kind = body.adversary, Kind.FENCING if isinstance(asked, FencingInput) else Kind.REMEDIATION
        episode = Episode(node, asked.incident, body.uid, body.view().provider_id, self.now, asked, rack=body.rack)
        episode.permit, episode.parked, episode.by_person = granted, not granted, by_person
        episode.cleans_up = asked.need is not None and asked.need.kind is NeedKind.CLEAN_UP
        ladder = asked.ladder or () if isinstance(asked, RemediationInput) else ()
        self.open[node] = machine.episode = episode
        machine.need = asked.need or machine.need
        machine.referee.begins_anew()
        machine.referee.permit = granted
        machine.referee.climbs = sum(switches(each, machine.plan) for each in ladder) > 1
        frees = {Strategy.FENCE, Strategy.DETACH_VOLUMES} & {each.strategy for each in ladder}
        machine.climbs_without_freeing = kind is Kind.REMEDIATION and not frees
        started = self.clockwork.start(kind.value, episode_id(CLUSTER, node), asked, incident=asked.incident)
        assert started is not None, "one episode of a node is open at a time"
        self.began(episode)

    def execution(self, node: str) -> Execution:
        """The last one of its episodes."""
        return self.clockwork.executions[episode_id(CLUSTER, node)]

    def note_ends(self) -> None:
        """Episodes that are over."""
        for node, episode in tuple(self.open.items()):
            if (execution := self.execution(node)).closed:
                del self.open[node]
                outcome = execution.result.outcome if execution.result is not None else execution.failure
                self.ended[node] = (str(outcome), self.now, episode.incident)
                self.closed(episode, execution, self.nodes[node].adversary)

    def _opened(self, request: OpenRequest) -> Any:
        self.note_ends()
        for asked in (*request.episodes, *request.remediations):
            outcome = OpenOutcome(node=asked.node, incident=asked.incident, opened=Opened.STARTED, workflow_id="")
            found = self.open.get(asked.node)
            if found is not None:
                same = found.incident == asked.incident
                yield (
                    replace(outcome, opened=Opened.JOINED)
                    if same
                    else replace(outcome, opened=Opened.REFUSED, holder=f"Fencing {found.incident}")
                )
            elif why := self._stopped_since(asked):
                yield replace(outcome, opened=Opened.HELD_OFF, reason=why)
            else:
                self.opens(asked, self._attempt)
                self.begin(asked, granted=asked.permit_granted)
                yield outcome

    def _stopped_since(self, asked: FencingInput | RemediationInput) -> str:
        """As `open` does: a person's word to the last episode, also to one that was terminated (S44)."""
        _, ended, _ = self.ended.get(asked.node, ("", START, ""))
        if asked.node not in self.ended or asked.need is None or not asked.need.kind.automatic:
            return ""
        execution, since = self.execution(asked.node), asked.need.since
        if execution.result is not None:
            aborted = execution.result.outcome is Outcome.ABORTED and since is not None and since <= execution.result.ended
            return "it was ended by a person" if aborted else ""
        if execution.failure != "terminated" or (since is not None and since > ended):
            return ""
        try:
            status: EpisodeStatus = execution.query("status")
        except LookupError:
            return ""
        over = status.held_until is not None and status.held_until <= self.now
        return status.aborted or ("" if over else status.held)

    def _described(self, node: str) -> EpisodeDescription:
        self.note_ends()
        found, workflow_id = self.open.get(node), episode_id(CLUSTER, node)
        if found is None:
            return super()._described(node)
        known = EpisodeDescription(
            node=node, known=True, open=True, workflow_id=workflow_id, incident=found.incident, permit=True, started=found.began
        )
        try:
            status: EpisodeStatus = self.execution(node).query("status")
        except LookupError:
            return known
        return replace(
            known,
            kind=status.kind,
            parked=status.phase is Phase.NEEDS_HUMAN,
            phase=status.phase,
            permit=status.permit or status.asks_anew,
            started=status.started,
            control_plane=status.control_plane,
            node_uid=status.node_uid,
            provider_id=status.provider_id,
            by_person=status.by_person,
        )

    def describe(self, request: DescribeRequest) -> contract.DescribeResult:
        return contract.DescribeResult(episodes=tuple(map(self._described, request.nodes)))

    def notify(self, request: NotifyRequest) -> NotifyResult:
        gone = []
        for seen in request.seen_nodes:
            if (execution := self.clockwork.open(episode_id(CLUSTER, seen.node))) is not None:
                execution.signal("node_changed", seen)
            else:
                gone.append(seen.node)
        return NotifyResult(gone=tuple(gone))


class PairPlay(FleetPlay):
    """A scanner, its episodes, and all that happens to both."""

    world = PairFleet
    fleet: PairFleet

    def __init__(self, seed: int, moves: list[Move] | None = None) -> None:
        super().__init__(seed, moves if moves is not None else pair_moves(Random(seed)))
        self.fleet.acts, self.fleet.closed = self.referee.judge_act, self._judge_end
        self.fleet.began, self.fleet.leaves = lambda _episode: None, self._judge_leave
        self._differ: dict[tuple[str, str, str], datetime] = {}
        self._resets = 0
        for name, body in self.fleet.nodes.items():
            body.adversary.say = lambda fault, delay, name=name: self._says(name, fault, delay)

    def run(self) -> list[str]:
        found = super().run()
        return [*found, *(each for body in self.fleet.nodes.values() for each in dict.fromkeys(body.adversary.broken))]

    def _hear(self) -> None:
        self.fleet.note_ends()
        for name, body in self.fleet.nodes.items():
            while body.adversary.broken:
                rule, _, what = body.adversary.broken.pop(0).partition(": ")
                self.referee.fault(rule, f"{name}: {what}")
        super()._hear()

    def _judge_leave(self, node: str) -> None:
        """The scanner lets an episode go on, by its last report. What a look sees besides is no part of that (S15)."""
        self.referee.note()
        assert self.fleet.scanner is not None
        report = self.fleet.scanner.query("status").report
        for fact in (("quorum", node), ("another member", node)):
            if report is not None and self.referee.held_for(fact, report.at):
                self.referee.fault("S15", f"the scanner lets {node} be taken, a member of the control plane: {fact}")

    def _judge_end(self, episode: Episode, execution: Execution, machine: PlayedMachine) -> None:
        """Of an episode: nothing is left, and what it says is so."""
        if execution.result is not None:
            machine.machine.settle(self.fleet.now)
            for each in problems_of_the_end(machine, execution.result):
                if not (each.startswith(LEFT_TO_SCANNER) or (episode.cleans_up and "are left" in execution.result.message)):
                    self.referee.fault("end", f"{episode.node}: {each}")
        elif execution.failure not in {"terminated", "cancelled"}:
            self.referee.fault("S35", f"the episode of {episode.node} failed: {execution.failure}")

    # The end ----------------------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        for body in self.fleet.nodes.values():
            body.adversary.calm()
        super()._calm()
        for _ in range(8):
            self._pass(20)
            self._agree()
        for name, body in self.fleet.nodes.items():
            # From one that a person or another system has taken out of our hands nothing is taken.
            facts = {fact for fact in (("held", name), ("excluded", name)) if fact in self.referee.since}
            well = self.referee.held_for(("well", name), self.fleet.now, 2 * CALM)
            if body.mark and name not in self.fleet.open and well and not facts:
                self.referee.fault("S35", f"the mark of {body.mark} is left on {name}, which is well, and no episode is open")

    def _agree(self) -> None:
        """At rest the scanner and each episode think the same of its permit (S14)."""
        fleet, scanner = self.fleet, self.fleet.scanner
        if scanner is None or not scanner.begun or scanner.hears or (status := scanner.query("status")).problem == NOT_TAKEN_OVER:
            return
        table = {each.node: each for each in status.permits if each.state is not PermitState.PARKED}
        differ = set[tuple[str, str, str]]()
        for node, episode in fleet.open.items():
            execution = fleet.execution(node)
            if not execution.begun or execution.hears:
                continue
            said, permit = execution.query("status"), table.get(node)
            believes = said.permit or said.asks_anew
            held = permit is not None and permit.incident == episode.incident
            # What a reset has given back to an episode the next look takes away: no act comes of it.
            was_reset = any(each.what == "reset" for each in fleet.nodes[node].adversary.referee.said)
            if believes != held and not (believes and was_reset):
                differ.add((node, episode.incident, "believes that it has a permit" if believes else "knows of no permit"))
        differ |= {(node, each.incident, "is not open") for node, each in table.items() if node not in fleet.open}
        self._differ = {each: self._differ.get(each, fleet.now) for each in differ}
        for (node, incident, what), since in self._differ.items():
            if fleet.now - since > SETTLED:
                self.referee.fault(
                    "S14", f"episode {incident} of {node} {what}, and the scanner says otherwise, for {fleet.now - since}"
                )

    # People -----------------------------------------------------------------------------------------------------------

    def _episode(self, *, waits: bool = False) -> tuple[str, Execution, EpisodeStatus] | None:
        """Some open one. waits: for a person, or by one."""
        found = []
        for node in sorted(self.fleet.open):
            execution = self.fleet.execution(node)
            if execution.begun and not execution.closed:
                status = execution.query("status")
                if not waits or status.held or status.phase is Phase.NEEDS_HUMAN:
                    found.append((node, execution, status))
        return self.draw.choice(found) if found else None

    def _tell(self, node: str, update: str, request: Any, **said: Any) -> Word:
        word = self.fleet.execution(node).update(update, request)
        self.fleet.nodes[node].adversary.referee.said.append(Said(what=update, word=word, **said))
        return word

    def fences_by_hand(self) -> None:
        body = self.fleet.nodes[self._some().name]
        if body.name in self.fleet.open or not body.present:
            return
        need = Need(kind=NeedKind.PERSON, reason="drill", requester="ada")
        incident = f"by-hand-{self.draw.getrandbits(32):08x}"
        said = {
            "cluster": CLUSTER,
            "node": body.name,
            "incident": incident,
            "holder": "us",
            "requester": "ada",
            "reason": "drill",
        }
        self.fleet.begin(FencingInput(need=need, **said), granted=False, by_person=True)

    def aborts(self) -> None:
        if (found := self._episode()) is not None:
            power_on = self.draw.random() < 0.5
            self._tell(found[0], "abort", AbortRequest(who="bob", reason="drawn", power_on=power_on), power_on=power_on)

    def holds_episode(self) -> None:
        if (found := self._episode()) is not None:
            self._tell(found[0], "hold", HoldEpisodeRequest(who="bob", reason="drawn"))

    def resumes(self) -> None:
        if (found := self._episode(waits=True)) is not None:
            node, _, status = found
            of = status.held_by[0] if status.held_by else ""
            self._tell(node, "resume", ResumeRequest(who="ada", reason="drawn", question=status.question, of=of))

    def _says(self, node: str, fault: Fault, delay: float) -> None:
        def speak() -> None:
            execution = self.fleet.execution(node)
            if execution.closed or node not in self.fleet.open:
                return
            match fault:
                case Fault.ABORT:
                    self._tell(node, "abort", AbortRequest(who="bob", reason="drawn"), power_on=False)
                case Fault.HOLD:
                    self._tell(node, "hold", HoldEpisodeRequest(who="bob", reason="drawn"))
                case Fault.CANCEL:
                    self._cancel(node)
                case Fault.TERMINATE:
                    execution.terminate()
                case Fault.RESET:
                    self._reset(node)
                case Fault.ROLL:
                    execution.suggests_rolling = True

        self.fleet.clockwork.after(timedelta(seconds=delay), speak)

    def _cancel(self, node: str) -> None:
        self.fleet.execution(node).cancel("drawn")
        said = Said(what="cancel", word=Word(taken=self.fleet.now))
        self.fleet.nodes[node].adversary.referee.said.append(said)

    def _reset(self, node: str) -> None:
        """To some task of its history, with what was said since or without."""
        clockwork, execution = self.fleet.clockwork, self.fleet.execution(node)
        first = 0 if execution.former is None else 1
        if execution.tasks < 2 or self._resets >= 3:
            return
        self._resets += 1
        kept = max(execution.tasks - clockwork.random.choice((1, 1, 2, 5, 20, execution.tasks)), first)
        since = execution.moments[kept]
        self.fleet.nodes[node].adversary.is_reset(since, whole=kept < 2 and not first)
        clockwork.reset(execution, kept, reapplies=clockwork.chance(0.6))

    # Objects and Temporal ---------------------------------------------------------------------------------------------

    def is_made_anew(self) -> None:
        """The same machine registers again."""
        body = self.fleet.nodes[self._some().name]
        body.adversary.machine.register(self.fleet.now, another=False)
        body.labels = {key: value for key, value in body.labels.items() if key in SERVING_LABELS}
        body.annotations = {}
        self.fleet.refresh(body)

    def comes_back(self) -> None:
        body = self.fleet.nodes[self._some().name]
        if body.present and not body.well and body.adversary.machine.runs:
            body.adversary.machine.reboot(self.fleet.now)

    def episode_is_terminated(self) -> None:
        if (found := self._episode()) is not None:
            found[1].terminate()

    def episode_is_cancelled(self) -> None:
        if (found := self._episode()) is not None:
            self._cancel(found[0])

    def episode_is_reset(self) -> None:
        if (found := self._episode()) is not None:
            self._reset(found[0])

    def episode_rolls(self) -> None:
        if (found := self._episode()) is not None:
            found[1].suggests_rolling = True

    def forges_ask(self) -> None:
        """A stranger asks for a permit: in the name of an open episode or of none, as what it likes."""
        node = self.draw.choice(sorted(self.fleet.nodes))
        episode = self.fleet.open.get(node)
        incident = episode.incident if episode is not None and self.draw.random() < 0.8 else "a-stranger's"
        how = {"by_person": self.draw.random() < 0.5, "ready": self.draw.random() < 0.5}
        kind = self.draw.choice((Kind.FENCING, Kind.REMEDIATION, Kind.PRESERVATION))
        named = node if self.draw.random() < 0.8 else self._some().name
        asked = PermitRequest(node=node, workflow_id=episode_id(CLUSTER, named), incident=incident, kind=kind, **how)
        if (scanner := self.fleet.scanner) is not None:
            scanner.signal("ask", ScannerQuestion(id=f"{self.draw.getrandbits(30)}", permit=asked))


def _node(workflow_id: str) -> str:
    return workflow_id.rpartition("/")[2]


def _plan(draw: Random) -> FencingPlan:
    """One after which the machine goes on under its name."""
    drawn = draw_plan(draw)
    while drawn.terminate_instance or drawn.delete_node or not (drawn.power_on and drawn.levels):
        drawn = draw_plan(draw)
    return drawn


LEFT_OUT = {"grows", "mistypes_check", "changes_rack", "machine_fails", "is_sick_otherwise", "limits_attempts", "template_is_bad"}
OF_EPISODES = (
    "episode_is_terminated",
    "episode_is_cancelled",
    "episode_is_reset",
    "episode_rolls",
    "forges_ask",
    "forges_release",
)
OF_SCANNER = ("is_terminated", "is_cancelled", "is_reset", "rolls", "is_forgotten", "is_unreadable")
KINDS = (
    (*(each for each in OBJECTS if each not in LEFT_OUT), "limits_check", "limits_check", "follows_policies"),
    PEOPLE,
    SERVERS,
    OF_EPISODES,
    OF_SCANNER,
)


ABOUT = (
    "sickens_some@12 stops_scanner@5 sickens_some@31",
    "sickens_some@12 is_terminated@5 sickens_some@31",
    "sickens_some@12 is_reset@2 sickens_some@31",
    "sickens_some@12 pauses@5 unpauses@5",
    "sickens_some@12 sets_mode@5",
    "limits_check@2 sickens_some@12 sickens_some@31",
    "sickens_some@12 episode_is_terminated@2 forges_ask@12",
    "sickens_some@12 forges_ask@2 forges_release@5",
    "sickens_some@12 holds_episode@2 forges_ask@5 resumes@12",
    "sickens_some@12 episode_is_reset@5 aborts@5",
)
"""What is between the two: half of all plays are about one, twice."""


def pair_moves(draw: Random) -> list[Move]:
    """Of a few kinds each time, as `drawn_moves`; a node falls silent often, so that there are episodes."""
    kinds, about = draw.choices(KINDS, weights=(4, 3, 2, 3, 2), k=3), draw.choice(ABOUT) if draw.random() < 0.5 else ""
    known = [(name, float(wait)) for name, _, wait in (each.partition("@") for each in about.split())]
    names = [draw.choice(OBJECTS[:4] if draw.random() < 0.35 else draw.choice(kinds)) for _ in range(draw.randint(4, 16))]
    others = [(name, draw.choice(WAITS)) for name in ("sickens", *names)]
    return [Move(name, draw.getrandbits(30), wait) for name, wait in (*known, *others[:3], *known, *others[3:])]
