"""Playing one drawn episode on the clockwork, from its start to its end, with the people who are asked and those who are not."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import groupby
from random import Random
from typing import Any

from pydantic import TypeAdapter

from policy.episode.gate import MAY_NOT_ACT
from policy.episode.messages import (
    EpisodeResult,
    FencingInput,
    Kind,
    Need,
    NeedKind,
    Outcome,
    Phase,
    RemediationInput,
    SeenNode,
)
from policy.episode.node_action import CIRCUIT_BREAKER, DEVICE_READS_ON, ActionName, Verb
from policy.episode.permits import Release
from policy.fence.plan import FencingPlan, Freeing
from policy.fence.power import PowerState
from policy.remediation.ladder import EscalationStep
from policy.remediation.strategy_rules import Strategy
from policy.values.object_refs import ObjectRef
from tests.workflows.adversary import OTHERS_HEARD, THEIRS, Adversary, look_of
from tests.workflows.attempts import START, Attempt, Lost
from tests.workflows.clockwork import Clockwork, Perils
from tests.workflows.contract import Call, LookVerdict, act_of
from tests.workflows.executions import Execution, Word
from tests.workflows.faults import FAULT_PRONE, FAULTS_AT, FOUND_LATER, KNOWN, OFTEN, SELF, THEMES, Fault, Known, PlacedFault
from tests.workflows.ladder_referee import LadderReferee
from tests.workflows.machine import NODE, OURS, Machine, MachineObject, RemediationObject
from tests.workflows.plans import ASKS, MINUTE, acts_of, draw_ladder, draw_plan, step, switches
from tests.workflows.plays import least
from tests.workflows.referee import EXPOSED, Said
from workflows.definitions.episodes import Fencing, Remediation
from workflows.kit.interrupts import Unlicensed
from workflows.kit.messages import AbortRequest, AcknowledgeRequest, PersonRequest, ResumeRequest

# Episodes as a seed has them: what is planned, who wants it, what goes wrong, what people say when they are asked.

NEEDS = (
    Need(kind=NeedKind.CHECK, reason="NodeHealthCheck/workers: Ready is Unknown", cause="ReadyUnknown"),
    Need(kind=NeedKind.PERSON, reason="drill"),
    Need(
        kind=NeedKind.FOREIGN_OBJECT,
        reason="asked for",
        check=ObjectRef(api_version="fence-agents-remediation.medik8s.io/v1alpha1", kind="FenceAgentsRemediation", name="node-7"),
        object_uid="uid-far",
        delegate="NodeHealthCheck-workers",
    ),
)
REACTIONS = ("resume", "acknowledge", "abort", "abort-on", "mend")
SUCCESSIONS = (
    (Kind.FENCING,),
    (Kind.FENCING,),
    (Kind.FENCING, Kind.REMEDIATION),
    (Kind.REMEDIATION, Kind.FENCING),
    (Kind.REMEDIATION,),
    (Kind.REMEDIATION,),
)
"""Of which kinds the episodes of one machine are, each after the termination of the one before."""
SKEWS = ((0.0,),) * 4 + ((9.0,), (-2.0, 2.0), (0.0, 120.0), (600.0, 0.0, -600.0))
"""How far the clocks of the workers are off."""


CLIMBED = ("mark", "remember", "mark_unschedulable", "last_look", "power_off", "read_power", "power_on", "follow_machine")
"""Acts that a ladder may come to, beside those by which others are asked."""
HINDRANCES = (
    *(((Fault.HOLD, seconds),) for seconds in (0.0, 0.01, 5.0)),
    ((Fault.LOWERED, 0.0),),
    ((Fault.UNLICENSED_LONG, 0.0), (Fault.LICENSED_AGAIN, 1500.0)),
    ((Fault.UNLICENSED_LONG, 0.0), (Fault.LICENSED_AGAIN, 3000.0)),
    ((Fault.FORGOTTEN, 0.0), (Fault.BREAKER, 0.0), (Fault.HEAL, 1500.0)),
    *(((Fault.AWAY, seconds),) for seconds in (90.0, 600.0, 3600.0, 3600.0)),
    ((Fault.FORBIDDEN, 30.0), (Fault.AWAY, 600.0)),
    ((Fault.FORBIDDEN, 630.0), (Fault.AWAY, 600.0)),
    ((Fault.AWAY, 600.0), (Fault.LOST_AFTER, 0.0)),
    ((Fault.CLOCK_BEHIND, 0.0),),
    ((Fault.CLOCK_AHEAD, 0.0),),
    ((Fault.OWN_NODE, 0.0),),
    ((Fault.HOLD, 0.0), (Fault.CLOCK_BEHIND, 0.0)),
)
"""What a step has to wait for."""
PEACE = (Fault.NOTHING, 0.0)
QUIET: dict[str, Any] = {
    "perils": Perils(),
    "lingers": 0.0,
    "permitted": True,
    "boot_seconds": 40.0,
    "per_minute": None,
    "miswired": False,
    "skews": (0.0,),
}
"""What a scenario has where nothing was drawn."""
Part = tuple[str, int]
"""A field of a scenario, and which one where it is a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One episode. script: a fault per attempt, and how many seconds later it happens where it merely happens beside it."""

    seed: int
    plan: FencingPlan
    need: Need
    script: tuple[tuple[Fault, float], ...]
    placed_faults: tuple[PlacedFault, ...]
    reactions: tuple[str, ...]
    perils: Perils
    lingers: float
    permitted: bool
    boot_seconds: float
    per_minute: int | None
    kinds: tuple[Kind, ...] = (Kind.FENCING,)
    """Of the episodes, one after the other; then from the first on."""
    ladder: tuple[EscalationStep, ...] = ()
    goes_after: timedelta | None = timedelta(minutes=2)
    owner_acts_after: timedelta | None = timedelta(minutes=1)
    operator_acts_after: timedelta | None = timedelta(minutes=1)
    operator_lies: bool = False
    follows_after: timedelta | None = timedelta(seconds=5)
    """As of `MachineObject`."""
    miswired: bool = False
    skews: tuple[float, ...] = (0.0,)
    nodeless: bool = False
    """Its Machine has got no Node, as yet."""
    earlier: timedelta | None = None
    """Until when the deletion of an earlier object of other controllers takes, which is under way."""
    left: timedelta | None = None
    """So long before the failure a terminated predecessor has made an object, which is there."""
    judges_steps: bool = False
    """Whether nothing goes wrong that a step could be left for but what it has to wait for."""
    overrides: str = ""
    """The first episode is a person's, who overrides an open circuit breaker: "attested" by Kubernetes, or "forged"."""

    def parts(self) -> list[Part]:
        """Each that can be left out of it: a fault, what people say, whatever is not as in a quiet one."""
        lists = {name: getattr(self, name) for name in ("script", "placed_faults", "reactions")}
        listed = [(name, number) for name, items in lists.items() for number, each in enumerate(items) if each != PEACE]
        return listed + [(name, 0) for name, quiet in QUIET.items() if getattr(self, name) != quiet]

    def of_parts(self, parts: list[Part]) -> Scenario:
        """The same with no other parts than these. A fault leaves peace in its place, so that the others strike where they
        did."""
        kept = set(parts)
        script = tuple(each if ("script", number) in kept else PEACE for number, each in enumerate(self.script))
        others = {
            name: tuple(each for number, each in enumerate(getattr(self, name)) if (name, number) in kept)
            for name in ("placed_faults", "reactions")
        }
        quiet = {name: value for name, value in QUIET.items() if (name, 0) not in kept}
        return replace(self, script=script, **others, **quiet)  # type: ignore[arg-type]

    def machine_object(self) -> MachineObject:
        """The Machine behind the Node."""
        return MachineObject(
            goes_after=self.goes_after,
            owner_acts_after=self.owner_acts_after,
            operator_acts_after=self.operator_acts_after,
            operator_lies=self.operator_lies,
            follows_after=self.follows_after,
            objects_go_after=timedelta(seconds=5),
        )

    @classmethod
    def of(cls, seed: int) -> Scenario:
        """The same for the same seed, whatever the machine. Two known faults, each in an episode that is calm else, then a wild
        one; and so on until each known fault has had its turn, and again."""
        random, (rounds, turn) = Random(seed), divmod(seed, 3)
        return cls._with(KNOWN[(2 * rounds + turn) % len(KNOWN)], seed, random) if turn < 2 else cls._wild(seed, random)

    @classmethod
    def climbing(cls, seed: int) -> Scenario:
        """A ladder in a world that works, but for what its steps have to wait for. The same for the same seed."""
        random = Random(f"a ladder of {seed}")
        plan = draw_plan(random)
        while not plan.levels or not plan.power_on or plan.terminate_instance or plan.delete_node:
            plan = draw_plan(random)
        plan, ladder = replace(plan, wait_before_power=timedelta(0), wait_before_isolation=timedelta(0)), draw_climb(random)
        acts = [each for each in (*CLIMBED, *acts_of(plan, ladder)) if each in CLIMBED or each in ASKS.values()]
        placed = tuple(
            PlacedFault(method=method, number=random.randint(1, 4) if method in OFTEN else 1, faults=random.choice(HINDRANCES))
            for method in random.choices(acts, k=random.choice((1, 1, 2)))
        )
        return arranged(
            plan,
            *placed,
            seed=seed,
            need=NEEDS[0],
            kinds=(Kind.REMEDIATION,),
            ladder=ladder,
            reactions=("later",) * 4,
            earlier=random.choice((None, None, timedelta(minutes=70))),
            permitted=random.random() < 0.8,
            boot_seconds=random.choice((40.0, 700.0)),
            owner_acts_after=random.choice((MINUTE, 7 * MINUTE, None)),
            operator_acts_after=random.choice((MINUTE, 7 * MINUTE, None)),
            judges_steps=True,
        )

    @classmethod
    def _with(cls, known: Known, seed: int, random: Random) -> Scenario:
        act, ladder = known.act, known.changes.get("ladder", ())
        plan = draw_plan(random)
        while act not in acts_of(plan, ladder) or not _comes_to(known, plan):
            plan = draw_plan(random)
        patient = replace(plan, free_timeout=timedelta(minutes=5), tries=max(plan.tries, 2))
        if act == "terminate":
            patient = replace(patient, freeing=Freeing.AUTOMATIC)
        speaks = any(len(each.faults) > 1 for each in known.placed_faults) or random.random() < 0.5
        reactions = ("acknowledge" if speaks else "resume", "resume", "abort-on")
        another = (draw_placed_fault(random, plan, ladder),) if random.random() < 0.2 else ()
        drawn = replace(
            arranged(patient, *known.placed_faults, *another, need=random.choice(NEEDS[:2]), reactions=reactions),
            seed=seed,
            perils=random.choice((Perils(), Perils(forgets=0.1))),
            boot_seconds=random.choice((40.0, 40.0, 700.0)),
        )
        drawn = replace(drawn, **known.changes)
        return replace(drawn, need=NEEDS[1]) if drawn.overrides else drawn

    @classmethod
    def _wild(cls, seed: int, random: Random) -> Scenario:
        plan, kinds = draw_plan(random), random.choice(SUCCESSIONS)
        climbs = Kind.REMEDIATION in kinds
        ladder = draw_ladder(random) if climbs else ()
        return cls(
            seed=seed,
            plan=plan,
            need=random.choice(NEEDS[:2] if climbs else NEEDS),
            kinds=kinds,
            ladder=ladder,
            goes_after=random.choice((timedelta(minutes=2), timedelta(minutes=2), None)),
            owner_acts_after=random.choice((MINUTE, MINUTE, 7 * MINUTE, None)),
            operator_acts_after=random.choice((MINUTE, MINUTE, 7 * MINUTE, None)),
            operator_lies=random.random() < 0.1,
            follows_after=random.choice((timedelta(seconds=5), timedelta(seconds=5), None)),
            miswired=len(plan.levels) > 1 and len(plan.levels[0]) == 1 and random.random() < 0.3,
            skews=random.choice(SKEWS),
            script=draw_script(random),
            placed_faults=tuple(draw_placed_fault(random, plan, ladder) for _ in range(random.randint(0, 2))),
            reactions=tuple(random.choices(REACTIONS, weights=(3, 4, 1, 1, 1), k=random.randint(0, 4))),
            perils=random.choice(
                (Perils(), Perils(forgets=0.05), Perils(forgets=0.02, dies=0.02, queues=0.03), Perils(queues=0.1, dies=0.05))
            ),
            lingers=random.choice((0.0, 0.0, 20.0)),
            permitted=random.random() < 0.8,
            boot_seconds=random.choice((40.0, 40.0, 700.0)),
            per_minute=random.choice((None, None, None, None, 1)),
        )


def arranged(plan: FencingPlan, *placed_faults: PlacedFault, **changes: object) -> Scenario:
    """One in which nothing is left to chance but how long things take."""
    quiet = Scenario(seed=1, plan=plan, need=NEEDS[0], script=(), placed_faults=placed_faults, reactions=(), **QUIET)
    return replace(quiet, **changes)  # type: ignore[arg-type]


def draw_script(random: Random) -> tuple[tuple[Fault, float], ...]:
    """Some peace, so that the later steps have their troubles, too; then a calm or wild mixture of what belongs together."""
    calm = random.choice((0.5, 0.7, 0.85, 0.95))
    themes = random.choices(THEMES, k=random.choice((1, 1, 2)))
    kinds = [fault for theme in themes for fault in theme]
    script = [(Fault.NOTHING, 0.0)] * random.choice((0, 0, random.randint(0, 25)))
    for _ in range(random.randint(10, 80)):
        fault = Fault.NOTHING if random.random() < calm else random.choice(kinds)
        at_once = fault not in SELF and random.random() < 0.4
        delay = 0.0 if at_once else round(random.choice((1.0, 10.0, 15.0 if fault in SELF else 120.0)) * random.random(), 2)
        script.append((fault, delay))
    return tuple(script)


def draw_climb(random: Random) -> tuple[EscalationStep, ...]:
    """Some steps, each with an end to its time, and then the deletion of the machine."""
    milder = [each for each in Strategy if each is not Strategy.DELETE_MACHINE]
    chosen = random.sample(milder, k=random.choice((1, 1, 2)))
    steps = tuple(step(each, random.choice((2, 5, 15)) * MINUTE) for each in chosen)
    return (*steps, step(Strategy.DELETE_MACHINE, 30 * MINUTE))


def draw_placed_fault(random: Random, plan: FencingPlan, ladder: tuple[EscalationStep, ...] = ()) -> PlacedFault:
    """Where it hurts this plan: a known fault, or any one fault at an act that matters."""
    kinds = [fault for fault in Fault if fault not in FOUND_LATER | {Fault.NOTHING, Fault.HEAL, Fault.NO_VETO, Fault.NEED_BACK}]
    if random.random() < 0.7:
        method = random.choice([act for act in acts_of(plan, ladder) if act in FAULTS_AT])
        faults = random.choice(FAULTS_AT[method])
    else:
        method = random.choice(FAULT_PRONE)
        faults = ((random.choice(kinds), round(random.choice((0.0, 0.0, 5.0)) * random.random(), 2)),)
    number = random.randint(1, 8) if method in OFTEN else random.choice((1, 1, 1, 2))
    return PlacedFault(method=method, number=number, faults=faults)


def _comes_to(known: Known, plan: FencingPlan) -> bool:
    """Whether each act at which it strikes is one that the plan comes to; a ladder comes to its own."""
    return known.act != "power_on" or (plan.power_on and not plan.terminate_instance and not plan.delete_node)


CLUSTER = "adversity"
EPISODE = f"episode/{CLUSTER}/{NODE}"
STILL = timedelta(hours=2)
WEARY = timedelta(hours=3)
SCANNED = timedelta(minutes=1)
RELEASE = TypeAdapter(Release)
LATEST = timedelta(seconds=30)
"""So long after an episode has ended nothing that it had asked for is under way any more."""
PINNED = 2
"""After so many tasks an episode knows what it is about."""
LAST = 150
"""So many acts of a story are told."""
LONGEST = 100_000
"""Events of the clock; hardly any episode needs a hundredth of it. One that waits for hours, with a new history after each rest
and two wrong clocks of three, needs a third."""


class Play:
    """One machine, its episodes one after the other, and what was wrong with them."""

    def __init__(self, drawn: Scenario, *, rolls: bool = False) -> None:
        """rolls: whether each history is left at its first rest."""
        self.drawn = drawn
        self.adversary = Adversary(
            plan=drawn.plan,
            need=drawn.need,
            script=deque(drawn.script),
            placed_faults=list(drawn.placed_faults),
            lingers=drawn.lingers,
        )
        self.adversary.machine.boot_seconds, self.adversary.machine.per_minute = drawn.boot_seconds, drawn.per_minute
        self.adversary.machine.miswired, self.adversary.skews = drawn.miswired, drawn.skews
        self.adversary.machine_object = drawn.machine_object()
        self.adversary.machine.present = not drawn.nodeless
        self.adversary.refusing, self.adversary.attests = bool(drawn.overrides), drawn.overrides != "forged"
        self.adversary.referee.climbs = sum(switches(each, drawn.plan) for each in drawn.ladder) > 1
        self.adversary.say, self.adversary.grant = self._say, self._grant
        self.problems: list[str] = []
        self._reactions = deque(drawn.reactions)
        self._mended = self._thinking = False
        self._kind, self._asked_before = drawn.kinds[0], 0
        self._resumed = self._answered = 0
        self._episodes = self._resets = 0
        self._last_word: Callable[[Execution], object] = lambda _execution: None
        self._late: list[tuple[Word, bool]] = []
        """Words that were said again, and whether another question was asked by then."""
        self._hasty: list[Word] = []
        """Words for off of a machine of which a device says on."""
        self._seen: SeenNode | None = None
        self.clockwork = Clockwork(
            (Fencing, Remediation),
            self._perform,
            Random(drawn.seed),
            perils=drawn.perils,
            unheard=self._unheard,
            decided=self._decided,
        )
        self.clockwork.rolls = rolls
        self.ladder = LadderReferee(drawn.ladder, drawn.plan)
        self.adversary.machine_object.objects |= {
            each.template.kind.removesuffix("Template"): RemediationObject(created=START, goes_at=START + drawn.earlier)
            for each in drawn.ladder
            if each.template is not None and drawn.earlier is not None
        }
        if drawn.left is not None:
            self.adversary.machine_object.objects |= {
                each.template.kind.removesuffix("Template"): RemediationObject(created=START - drawn.left, by="incident-0")
                for each in drawn.ladder
                if each.template is not None
            }

    def run(self) -> list[str]:
        """Which rules it broke, each with all that is needed to see why."""
        with self.clockwork as clockwork:
            self._start(granted=self.drawn.permitted)
            self._scan()
            clockwork.after(WEARY, self._lose_patience)
            for _ in range(LONGEST):
                execution = clockwork.executions[EPISODE]
                if execution.closed:
                    if execution.failure != "terminated" or self.adversary.machine.holder != OURS:
                        break
                    self._start(granted=True)
                elif not self._thinking and (execution.waits or self._answered < self.adversary.asked_for_a_person):
                    self._react(execution)
                clockwork.turn()
                self.ladder.note(clockwork.now, free=self.adversary.may_act)
            self._judge_the_end(clockwork.executions[EPISODE])
        if any(word.taken and stale for word, stale in self._late):
            self.problems.append("S48: a word is taken for an answer to another question than the person has seen")
        if any(word.taken for word in self._hasty):
            self.problems.append("S8: a word for off is taken although a device says on, which the person does not override")
        found = [*self.adversary.broken, *clockwork.problems, *self.problems]
        return [f"seed {self.drawn.seed}: {each}" for each in dict.fromkeys(found)]

    @property
    def result(self) -> EpisodeResult:
        """How the last episode ended."""
        result: EpisodeResult = self.clockwork.executions[EPISODE].result
        return result

    def story(self) -> str:
        """What happened, for a reader who looks for the reason."""
        drawn, acts = self.drawn, [(act, len(list(same))) for act, same in groupby(self.adversary.acts)]
        ladder = ", ".join(each.name for each in drawn.ladder)
        told = [f"{', '.join(drawn.kinds)} ({ladder}), {drawn.need.kind}, {drawn.reactions}, {drawn.perils}, {drawn.skews}"]
        told += [
            f"at act {number + 1}: {fault} {delay:g}"
            for number, (fault, delay) in enumerate(drawn.script)
            if fault is not Fault.NOTHING
        ]
        told += [str(each) for each in drawn.placed_faults]
        return "\n".join(
            [str(drawn.plan), *told, *(f"  {act}" + (f", {times} times" if times > 1 else "") for act, times in acts[-LAST:])]
        )

    # Beginning ------------------------------------------------------------------------------------------------------

    def _start(self, *, granted: bool) -> None:
        self._episodes += 1
        referee = self.adversary.referee
        referee.begins_anew()
        referee.permit = granted
        self._kind = self.drawn.kinds[(self._episodes - 1) % len(self.drawn.kinds)]
        frees = {Strategy.FENCE, Strategy.DETACH_VOLUMES} & {each.strategy for each in self.drawn.ladder}
        self.adversary.climbs_without_freeing = self._kind is Kind.REMEDIATION and not frees
        given = {
            "cluster": CLUSTER,
            "node": NODE,
            "need": self.drawn.need,
            "incident": f"incident-{self._episodes}",
            "permit_granted": granted,
            "holder": "us",
        }
        if self.drawn.overrides and self._episodes == 1:
            said = {"requester": "ada", "reason": "drawn", "override": CIRCUIT_BREAKER, "need": None}
            given |= said | {"action": ActionName(name="ada-1", uid="uid-ada-1")}
        request = FencingInput(**given) if self._kind is Kind.FENCING else RemediationInput(**given, ladder=self.drawn.ladder)
        self.clockwork.start(self._kind.value, EPISODE, request)

    def _grant(self) -> None:
        def grant() -> None:
            if (execution := self.clockwork.open(EPISODE)) is not None:
                self.adversary.referee.permit = True
                execution.signal("permit_granted")

        self.clockwork.after(self.clockwork.moments(0, 300), grant)

    def _unheard(self, workflow_id: str, signal: str, argument: Any) -> bool:
        if signal == "release":
            self.adversary.now = self.clockwork.now
            self.adversary.hears_release(release := RELEASE.validate_python(argument))
            if release.parked and self.drawn.judges_steps and "not licensed" in release.problem:
                since = self.adversary.unlicensed or self.clockwork.now
                if (lacked := self.clockwork.now - since - self.adversary.without_us(since)) < Unlicensed.patience - MINUTE:
                    self.problems.append(f"S35: a person is asked for a licence that has been missing for {lacked}")
        return self.clockwork.chance(0.5)

    def _scan(self) -> None:
        """The scanner tells of the node whenever it has changed."""
        adversary = self.adversary
        adversary.machine.settle(self.clockwork.now)
        seen, execution = adversary.machine.seen_node(), self.clockwork.open(EPISODE)
        if execution is not None and seen != self._seen:
            self._seen = seen
            asked = (adversary.need.object_uid,) if adversary.wanted else ()
            execution.signal("node_changed", replace(seen, asked_by=asked))
        lowered = adversary.lowered is not None and self.clockwork.now - adversary.lowered > OTHERS_HEARD
        if lowered and execution is not None and execution.begun and not execution.hears:
            status = execution.query("status")
            if status.permit and status.doing.startswith(MAY_NOT_ACT) and adversary.unlicensed is None:
                self.problems.append(f"S14: it keeps its permit, and its mode allows no act: {status.doing}")
        self._judge_hold(execution)
        self.clockwork.after(SCANNED, self._scan)

    def _judge_hold(self, execution: Execution | None) -> None:
        """S14: what is held before anything was done keeps no permit from others."""
        adversary, now = self.adversary, self.clockwork.now
        since = adversary.referee.held_since
        if execution is None or not execution.begun or execution.hears or since is None or now - since < OTHERS_HEARD:
            return
        status = execution.query("status")
        if status.permit and status.doing.startswith("held by") and not adversary.done_by - {""}:
            self.problems.append(f"S14: it keeps its permit while it is held, and nothing is done yet: {status.doing}")

    def _perform(self, attempt: Attempt) -> Any:
        try:
            answer = self.adversary.perform(attempt)
        except Lost:
            self.ladder.tries(act_of(attempt.call), self.clockwork.now)
            raise
        looked = getattr(answer, "look", None)
        if looked is None or looked.verdict is LookVerdict.GO:
            self.ladder.tries(act_of(attempt.call), self.clockwork.now)
        return answer

    def _decided(self, call: Call, request: Any) -> None:
        if getattr(look_of(request), "need_matters", False):
            self.adversary.referee.asked_need = self.clockwork.now

    # People ---------------------------------------------------------------------------------------------------------

    def _say(self, fault: Fault, delay: float) -> None:
        def stand_still() -> None:
            clockwork = self.clockwork
            began, clockwork.now = clockwork.now, clockwork.now + timedelta(seconds=delay)
            self.adversary.away.append((began, clockwork.now))
            self.ladder.away.append((began, clockwork.now))

        if fault is Fault.AWAY:
            self.clockwork.after(self.clockwork.moments(0, 30), stand_still)
            return

        def speak() -> None:
            if (execution := self.clockwork.open(EPISODE)) is None:
                return
            match fault:
                case Fault.ABORT | Fault.ABORT_ON:
                    self._abort(execution, who="bob", power_on=fault is Fault.ABORT_ON)
                case Fault.HOLD:
                    self._tell(execution, "hold", PersonRequest(who="bob", reason="drawn"))
                case Fault.CANCEL:
                    execution.cancel("drawn")
                    self.adversary.referee.said.append(Said(what="cancel", word=Word(taken=self.clockwork.now)))
                case Fault.TERMINATE if self._episodes < 3:
                    execution.terminate()
                case Fault.RESET if self._resets < 3:
                    self._reset(execution)
                case Fault.SAID_TWICE:
                    self._last_word(execution)
                case Fault.BUILD:
                    execution.is_of_old_build = True
                case Fault.ROLL:
                    execution.suggests_rolling = True
                case Fault.HEARSAY:
                    seen, now = self.adversary.machine.seen_node(), self.clockwork.now
                    lie = replace(seen, present=True, ready=True, ready_since=now, boot_id=f"{seen.boot_id}-or-so")
                    execution.signal("node_changed", lie)

        self.clockwork.after(timedelta(seconds=delay), speak)

    def _reset(self, execution: Execution) -> None:
        """To any task of its history, or of one that it goes on with; what was said since is said again, or not."""
        clockwork, base = self.clockwork, execution
        while base.former is not None and clockwork.chance(0.3):
            base = base.former
        if base.tasks < 2:
            return
        self._resets += 1
        first = 0 if base.former is None else 1  # that of a history that goes on with another one is not noticed
        kept = max(base.tasks - clockwork.random.choice((1, 1, 2, 5, 20, base.tasks)), first)
        since = base.moments[kept]
        if base is not execution:
            execution.terminate()
        self.adversary.is_reset(since, whole=kept < PINNED and not first)
        clockwork.reset(base, kept, reapplies=clockwork.chance(0.6))

    def _abort(self, execution: Execution, *, who: str, power_on: bool) -> None:
        self._tell(execution, "abort", AbortRequest(who=who, reason="drawn", power_on=power_on), power_on=power_on)

    def _tell(self, execution: Execution, update: str, request: Any, **said: Any) -> Word:
        """A person's word, which may be long on its way, or arrive twice."""
        word = execution.update(update, request)
        self.adversary.referee.said.append(Said(what=update.replace("_", "-"), word=word, **said))
        self._last_word = lambda later: self._tell(later, update, request, **said)
        return word

    def _react(self, execution: Execution) -> None:
        """It waits for a person: as drawn, and in the end everything is mended and it is to go on."""
        clockwork, adversary = self.clockwork, self.adversary
        if not self._reactions and not self._mended:
            adversary.calm()
            clockwork.perils = Perils()
            self._mended = True
        reaction = self._reactions.popleft() if self._reactions else "abort-on" if self._patience_is_over() else "resume"
        self._thinking, self._answered = True, adversary.asked_for_a_person
        longest = 3600 if reaction == "later" or clockwork.chance(0.2) else 5
        clockwork.after(clockwork.moments(600 if reaction == "later" else 0, longest), lambda: self._speak(reaction))

    def _patience_is_over(self) -> bool:
        self._resumed += 1
        adversary, machine = self.adversary, self.adversary.machine
        machine.settle(self.clockwork.now)
        ours = machine.holder == OURS and not machine.terminated and machine.plugged and adversary.machine_object.deleting is None
        ours = (
            ours
            and not adversary.vetoes()
            and adversary.check_paused is None
            and (machine.mark is None or machine.mark.incident != THEIRS)
        )
        ours = ours and not adversary.is_off_by_others()
        works = not (adversary.dead or adversary.machine.silent or adversary.machine.locked or adversary.machine.stuck)
        works = works and (self._kind is Kind.FENCING or any(switches(each, adversary.plan) for each in self.drawn.ladder))
        again = adversary.asked_for_a_person > self._asked_before
        if self._resumed == 3 and again and ours and works and not machine.runs and adversary.plan.power_on:
            problem = self.clockwork.executions[EPISODE].query("status").problem
            self.problems.append(f"S35: all is mended, and twice `resume` does not bring the machine back: {problem}")
        return self._resumed > 2

    def _speak(self, reaction: str) -> None:
        execution = self.clockwork.open(EPISODE)
        if execution is not None and not execution.begun:  # in a history that has just begun
            self.clockwork.after(timedelta(seconds=1), lambda: self._speak(reaction))
            return
        self._thinking, self._asked_before = False, self.adversary.asked_for_a_person
        if execution is None:
            return
        adversary, referee, now = self.adversary, self.adversary.referee, self.clockwork.now
        adversary.machine.settle(now)
        if reaction == "acknowledge" and self._kind is Kind.REMEDIATION:
            reaction = "resume"  # no such word is asked for there
        if reaction == "mend":
            adversary.heal()
            adversary.reconfigure()
            reaction = "resume"
        reaction = "resume" if reaction == "later" else reaction
        status = execution.query("status")
        of = status.held_by[0] if status.held_by else ""
        answer = ResumeRequest(who="ada", reason="drawn", question=status.question, of=of)
        match reaction:
            case "resume" if any(way.verb is Verb.RETURN_PATH for way in status.ways):
                referee.path_command = True
                self._tell(execution, "return_path", answer)
            case "resume":
                self._tell(execution, "resume", answer)
                self._say_it_again(answer)
            case "acknowledge":
                if any(each.state is PowerState.ON for each in status.readings):  # S8: a hasty word, of who has not looked
                    hasty = AcknowledgeRequest(who="bob", reason="drawn", question=status.question)
                    self._hasty.append(execution.update("acknowledge_off", hasty))
                adversary.machine.plug(plugged=False, now=now)  # who says so has pulled the plug
                adversary.meddled = True
                if self.clockwork.chance(0.7):  # and puts it back, when all is well again
                    self.clockwork.after(self.clockwork.moments(0, 30), self._plug_in)
                referee.hears_word()
                sure = AcknowledgeRequest(who="ada", reason="drawn", question=status.question, override=DEVICE_READS_ON)
                self._tell(execution, "acknowledge_off", sure)
            case _:
                self._abort(execution, who="ada", power_on=reaction == "abort-on")
        self.clockwork.after(STILL, self._ask_again)

    def _say_it_again(self, answer: ResumeRequest) -> None:
        """A second click, or a word that was long on its way. The person has seen nothing but the question of then (S48)."""

        def again() -> None:
            if (execution := self.clockwork.open(EPISODE)) is not None and execution.begun:
                asked = execution.query("status").question
                self._late.append((execution.update("resume", answer), asked != answer.question))

        if self.clockwork.chance(0.3):
            self.clockwork.after(self.clockwork.moments(0, 1200), again)

    def _plug_in(self) -> None:
        adversary, now = self.adversary, self.clockwork.now
        adversary.machine.settle(now)
        adversary.now = now
        adversary.heal()
        adversary.machine.plug(plugged=True, now=now)
        adversary.switched_on = True

    def _lose_patience(self) -> None:
        """What has no end to its time waits as long as there is no objection."""
        self.adversary.calm()
        if (execution := self.clockwork.open(EPISODE)) is not None:
            self._abort(execution, who="ada", power_on=True)
        self.clockwork.after(WEARY, self._lose_patience)

    def _ask_again(self) -> None:
        """A person who has reacted looks later whether that was enough."""
        execution = self.clockwork.open(EPISODE)
        if execution is not None and execution.begun and execution.query("status").phase is Phase.NEEDS_HUMAN:
            self._answered = -1

    # The end --------------------------------------------------------------------------------------------------------

    def _judge_the_end(self, execution: Execution) -> None:
        if not execution.closed:
            status = execution.query("status")
            self.problems.append(f"S35: it never ended: {status.phase}, {status.doing}, {status.problem}")
            return
        if execution.failure == "terminated":
            return  # and another machine has taken the name
        if execution.failure:
            self.problems.append(f"S35: the workflow failed: {execution.failure}")
            return
        self.adversary.machine.settle(self.clockwork.now + LATEST)  # also what a worker that was given up still does
        self.problems += problems_of_the_end(self.adversary, execution.result)
        self.problems += self._unheard_words(execution.result)
        result: EpisodeResult = execution.result
        if self.drawn.judges_steps:
            self.problems += self.ladder.judge(result.record)
        written = self.adversary.streamed.values()
        unwritten = [each for each in result.record if each not in written]
        if unwritten and not self.drawn.skews:  # with a wrong clock no worker of the cluster may be left to write them
            self.problems.append(f"lines of its record are not in the decision stream: {unwritten}")

    def _unheard_words(self, result: EpisodeResult) -> list[str]:
        """S44: one that a person holds does not end by itself while its node is sick; one that is aborted is an aborted one."""
        machine, referee = self.adversary.machine, self.adversary.referee
        sick = machine.present and machine.holder == OURS and not machine.ready and self.adversary.machine_object.present
        if referee.held_now and sick and result.outcome in {Outcome.RELEASED, Outcome.REFUSED, Outcome.RECOVERED}:
            return [f"S44: it has ended while a person held it ({result.outcome}: {result.message})"]
        if referee.aborted_at is not None and result.outcome is Outcome.RELEASED:
            return [f"S44: a person has aborted it, and it has ended as {result.outcome}: {result.message}"]
        return []


def story(drawn: Scenario, *, rolls: bool) -> str:
    """What went wrong in that play, with as little of it as it takes; "" where nothing did."""
    if not Play(drawn, rolls=rolls).run():
        return ""
    small = drawn.of_parts(least(drawn.parts(), lambda parts: Play(drawn.of_parts(parts), rolls=rolls).run()))
    play = Play(small, rolls=rolls)
    return "\n".join([*play.run(), play.story()])


def problems_of_the_end(adversary: Adversary, result: EpisodeResult) -> list[str]:
    """What is left behind, and what is said of it that is not so."""
    machine = adversary.machine
    found = [*_left_over(machine, result, adversary.noted, zombies=bool(adversary.zombies)), *_untrue(adversary, result)]
    found += _still_asked_for(adversary.machine_object, result) if not adversary.zombies else []
    found += [*_goes_untold(adversary.machine_object, result), *_memory(adversary, result)]
    exposed = machine.exposed_ready if adversary.referee.on_word else machine.exposed  # what no source can say is not known
    if exposed > EXPOSED:
        found.append(f"S6: our out-of-service taint stood for {exposed} on a machine that ran")
    return [f"{each} (ended {result.outcome}: {result.message})" for each in found]


def _left_over(machine: Machine, result: EpisodeResult, noted: set[str], *, zombies: bool) -> list[str]:
    """S35: one of the ends, with its compensation done, or people told of what is left.

    noted: what the last episode cut, or found to be cut by the one before it. zombies: a worker that was given up has written all
    the same, perhaps after the end; that mark is the scanner's to clean up.
    """
    told = "left cut" in result.message
    ours = result.outcome not in {Outcome.REPLACED, Outcome.REFUSED}
    mine = machine.present and machine.mark is not None and machine.mark.incident == result.incident
    found = []
    if mine and machine.holder == OURS and not told and result.outcome is not Outcome.REPLACED and not zombies:
        found.append("S35: our mark is left")
    if mine and machine.out_of_service and result.outcome is not Outcome.REPLACED:
        found.append("S32: our taint is left")
    cut = [endpoint for endpoint in sorted(noted) if machine.paths.get(endpoint) is PowerState.OFF]
    if cut and ours and not told:
        found.append(f"S35: {cut} are left cut and no person is told")
    if machine.quarantined and any("#" in each for each in noted) and ours and not told and not machine.terminated:
        found.append("S35: it is left in quarantine and no person is told")
    return found


def _goes_untold(machine_object: MachineObject, result: EpisodeResult) -> list[str]:
    """S35: a machine that goes by our wish is not called well, nor left alone without a word of that."""
    ours = machine_object.claimed_by == result.incident and bool(machine_object.deletions)
    ours = ours or (machine_object.owner_asked is not None and machine_object.owner_asked_by == result.incident)
    if not ours or machine_object.deleting is None or result.outcome is Outcome.REPLACED:
        return []
    if result.outcome is Outcome.ABORTED and ("deletion" in result.message or "is gone" in result.message):
        return []
    return ["S35: its machine goes, as it has asked for, and no person is told"]


def _memory(adversary: Adversary, result: EpisodeResult) -> list[str]:
    """S19: what was done is known to the machine that came for it; what came to nothing is no try."""
    machine_object, incident = adversary.machine_object, result.incident
    reset = any(each.what == "reset" for each in adversary.referee.said)
    found = []
    came, asked = machine_object.came, bool(machine_object.deletions) and machine_object.claimed_by == incident
    if asked and came is not None and not came.memory and result.outcome is Outcome.REPLACED and not reset:
        found.append("S19: the machine that came for it knows of no try")
    failed = any(each.act == "forget" and each.outcome == "failed" for each in result.record)
    nothing = incident not in adversary.done_by and not (reset or failed or adversary.zombies)
    if nothing and machine_object.present and any(incident in each for each in machine_object.stands):
        found.append("S19: what came to nothing is remembered as a try")
    return found


def _still_asked_for(machine_object: MachineObject, result: EpisodeResult) -> list[str]:
    """S35: nothing that others were asked for stands any longer, or people are told."""
    if not machine_object.present or "can't be" in result.message:
        return []
    found = [
        f"S35: its {name} is left"
        for name, each in machine_object.objects.items()
        if (each.by, each.goes_at) == (result.incident, None)
    ]
    if machine_object.annotated and machine_object.annotated_by == result.incident:
        found.append("S35: its operator is still asked to remediate it")
    if (
        machine_object.deleting is None
        and machine_object.owner_asked is not None
        and machine_object.owner_asked_by == result.incident
    ):
        found.append("S35: its owner is still asked to remediate it")
    if machine_object.deleting is None and machine_object.claimed_by == result.incident:
        found.append("S35: our claim that it is being deleted is left")
    return found


def _untrue(adversary: Adversary, result: EpisodeResult) -> list[str]:
    """What the end says of the machine is so, unless others have been at it."""
    machine, found = adversary.machine, []
    off = {
        each.endpoint for each in adversary.referee.commands if each.incident == result.incident and each.state is PowerState.OFF
    }
    proof = result.off_proof
    if proof is not None and proof.acknowledgement is None and not off & set(machine.power):
        found.append("S7: off is called proven, and nothing was ever commanded")
    found += [
        f"S3: off is called proven by a reading of {reading.endpoint} that was never given"
        for reading in (proof.readings if proof is not None else ())
        if adversary.referee.answered(reading) is not PowerState.OFF
    ]
    adversary.referee.tells_the_truth(result.message, result.incident)
    well = not adversary.wanted or adversary.need.kind is not NeedKind.CHECK or not machine.present
    last = adversary.ready_last
    unwell = last == START or result.ended - last > OTHERS_HEARD
    if result.outcome is Outcome.RECOVERED and unwell and not (well or adversary.meddled):
        found.append("S35: recovered, it says, and the node has not been well lately")
    recovered = result.outcome is Outcome.RECOVERED and proof is not None
    if recovered and not (machine.runs or machine.terminated or adversary.meddled):
        found.append("S35: recovered, and the machine is off")
    mine = [
        each.state for each in adversary.referee.commands if each.incident == result.incident and each.endpoint in machine.power
    ]
    ours = machine.holder == OURS and not machine.terminated and not adversary.meddled and mine[-1:] == [PowerState.OFF]
    told = "off" in result.message or "power on: " in result.message
    if ours and not machine.runs and result.outcome is not Outcome.FENCED_OFF and not told:
        found.append("S35: it is left off and no person is told")
    ends = [each for each in adversary.referee.said if each.what in {"abort", "cancel"} and each.word.taken is not None]
    asked_on = (
        bool(ends)
        and all(each.power_on for each in ends)
        and result.outcome is Outcome.ABORTED
        and adversary.machine_object.present
    )
    if ours and not machine.runs and asked_on and "power on: " not in result.message:
        found.append("S35: aborted with power-on, and left off")
    stays_off = result.left_off or result.outcome is Outcome.FENCED_OFF
    read = max((reading.at for reading in proof.readings), default=None) if proof is not None else None
    if stays_off and machine.runs and not adversary.switched_on and not adversary.ran_unseen(read):
        found.append("S35: left off, it says, and the machine runs")
    if "given up for good" in result.message and not machine.terminated:
        found.append("S7: given up for good, it says, and the machine is still there")
    if result.outcome is Outcome.FENCED_OFF and proof is None:
        found.append("S7: fenced off without a proof")
    freed = bool(mine) and adversary.referee.all_freed_by == result.incident and result.message.startswith("off was ")
    if machine.pods and freed and not adversary.referee.warned and "still standing" not in result.message:
        found.append("S32: pods are left and no person is told")
    return found
