"""Episodes as a seed has them: what is planned, who wants it, what goes wrong, what people say when they are asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random

from policy.episode.messages import Kind, Need, NeedKind
from policy.fence.plan import FencingPlan, Freeing
from policy.remediation.ladder import EscalationStep
from policy.values.object_refs import ObjectRef
from tests.workflows.clockwork import Perils
from tests.workflows.faults import FAULT_PRONE, FAULTS_AT, KNOWN, OFTEN, SELF, THEMES, Fault, Known, PlacedFault
from tests.workflows.machine import MachineObject
from tests.workflows.plans import MINUTE, acts_of, draw_ladder, draw_plan

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
    """As of `MachineObject`."""
    miswired: bool = False
    skews: tuple[float, ...] = (0.0,)

    def machine_object(self) -> MachineObject:
        """The Machine behind the Node."""
        return MachineObject(
            goes_after=self.goes_after, owner_acts_after=self.owner_acts_after, operator_acts_after=self.operator_acts_after
        )

    @classmethod
    def of(cls, seed: int) -> Scenario:
        """The same for the same seed, whatever the machine. Two known faults, each in an episode that is calm else, then a wild
        one; and so on until each known fault has had its turn, and again."""
        random, (rounds, turn) = Random(seed), divmod(seed, 3)
        return cls._with(KNOWN[(2 * rounds + turn) % len(KNOWN)], seed, random) if turn < 2 else cls._wild(seed, random)

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
        return replace(drawn, **known.changes)

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
            owner_acts_after=random.choice((MINUTE, MINUTE, None)),
            operator_acts_after=random.choice((MINUTE, MINUTE, None)),
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
    quiet = Scenario(
        seed=1,
        plan=plan,
        need=NEEDS[0],
        script=(),
        placed_faults=placed_faults,
        reactions=(),
        perils=Perils(),
        lingers=0.0,
        permitted=True,
        boot_seconds=40.0,
        per_minute=None,
    )
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


def draw_placed_fault(random: Random, plan: FencingPlan, ladder: tuple[EscalationStep, ...] = ()) -> PlacedFault:
    """Where it hurts this plan: a known fault, or any one fault at an act that matters."""
    kinds = [fault for fault in Fault if fault not in {Fault.NOTHING, Fault.HEAL, Fault.NO_VETO, Fault.NEED_BACK}]
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
