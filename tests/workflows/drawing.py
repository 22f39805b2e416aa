"""Episodes as a seed has them: what is planned, who wants it, what goes wrong, what people say when they are asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random

from policy.episodes import Need, NeedKind
from policy.healthcheck import ObjectRef
from policy.kdump import KdumpRule
from policy.plan import CORDON, UNCORDON, Act, CutStorage, FencingPlan, Freeing, PlannedMethod, PowerDevice
from tests.workflows.clockwork import Perils
from tests.workflows.mishaps import SELF, Ambush, Mishap
from tests.workflows.world import plan

BMC = PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623")
PDUS = tuple(PowerDevice(driver="fence_apc_snmp", endpoint=f"fence_apc_snmp://pdu-{name}/7") for name in "abc")
CLOUD = PowerDevice(driver="ec2", endpoint="ec2://eu-central-1/i-7")
PORTS = tuple(PowerDevice(driver="fence_brocade", endpoint=f"fence_brocade://switch-{name}/7") for name in "ab")
CUTS = tuple(
    PlannedMethod(name=f"fc-off-{number}", act=Act.CUT_PATH, device=port, storage=CutStorage(classes=(f"san-{number}",)))
    for number, port in enumerate(PORTS)
)
GIVEN_BACK = tuple(PlannedMethod(name=f"fc-on-{number}", act=Act.RESTORE_PATH, device=port) for number, port in enumerate(PORTS))
FREE = PlannedMethod(name="free", act=Act.FREE_CUT_PODS)
DETACH = PlannedMethod(name="detach", act=Act.DETACH_VOLUMES, device=CLOUD)
QUARANTINE = PlannedMethod(name="quarantine", act=Act.QUARANTINE, device=CLOUD)
LIFT = PlannedMethod(name="lift", act=Act.LIFT_QUARANTINE, device=CLOUD)
DRAIN = PlannedMethod(name="drain", act=Act.DRAIN, timeout=timedelta(seconds=30))
TAINT = PlannedMethod(name="taint", act=Act.TAINT, parameters={"key": "example.com/sick", "effect": "NoSchedule"})

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
REACTIONS = ("resume", "acknowledge", "abort", "abort-on")


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """One episode. script: a mishap per attempt, and how many seconds later it happens where it merely happens beside it."""

    seed: int
    plan: FencingPlan
    need: Need
    script: tuple[tuple[Mishap, float], ...]
    ambushes: tuple[Ambush, ...]
    reactions: tuple[str, ...]
    perils: Perils
    lingers: float
    permitted: bool
    boot_seconds: float
    per_minute: int | None

    @classmethod
    def of(cls, seed: int) -> Drawn:
        """The same for the same seed, whatever the machine. By turns all known evils, one after the other, in an episode that is
        calm else, and then as many wild ones."""
        random = Random(seed)
        turn = seed % (2 * len(KNOWN))
        return cls._with(*KNOWN[turn], seed, random) if turn < len(KNOWN) else cls._wild(seed, random)

    @classmethod
    def _with(cls, act: str, evil: Ambush, seed: int, random: Random) -> Drawn:
        plan = draw_plan(random)
        while act not in _acts_of(plan):
            plan = draw_plan(random)
        patient = replace(plan, free_timeout=timedelta(minutes=5), tries=max(plan.tries, 2))
        if act == "terminate":
            patient = replace(patient, freeing=Freeing.AUTOMATIC)
        speaks = len(evil.mishaps) > 1 or random.random() < 0.5
        reactions = ("acknowledge" if speaks else "resume", "resume", "abort-on")
        another = (draw_ambush(random, plan),) if random.random() < 0.2 else ()
        return replace(
            arranged(patient, evil, *another, need=random.choice(NEEDS[:2]), reactions=reactions),
            seed=seed,
            perils=random.choice((Perils(), Perils(forgets=0.1))),
            boot_seconds=random.choice((40.0, 40.0, 700.0)),
        )

    @classmethod
    def _wild(cls, seed: int, random: Random) -> Drawn:
        plan = draw_plan(random)
        return cls(
            seed=seed,
            plan=plan,
            need=random.choice(NEEDS),
            script=draw_script(random),
            ambushes=tuple(draw_ambush(random, plan) for _ in range(random.randint(0, 2))),
            reactions=tuple(random.choices(REACTIONS, weights=(3, 4, 1, 1), k=random.randint(0, 4))),
            perils=random.choice(
                (Perils(), Perils(forgets=0.05), Perils(forgets=0.02, dies=0.02, queues=0.03), Perils(queues=0.1, dies=0.05))
            ),
            lingers=random.choice((0.0, 0.0, 20.0)),
            permitted=random.random() < 0.8,
            boot_seconds=random.choice((40.0, 40.0, 700.0)),
            per_minute=random.choice((None, None, None, None, 1)),
        )


def arranged(plan: FencingPlan, *ambushes: Ambush, **changes: object) -> Drawn:
    """One in which nothing is left to chance but how long things take."""
    quiet = Drawn(
        seed=1,
        plan=plan,
        need=NEEDS[0],
        script=(),
        ambushes=ambushes,
        reactions=(),
        perils=Perils(),
        lingers=0.0,
        permitted=True,
        boot_seconds=40.0,
        per_minute=None,
    )
    return replace(quiet, **changes)  # type: ignore[arg-type]


def draw_plan(random: Random) -> FencingPlan:
    """One that `policy` would let pass: with something that proves, and nothing destroyed that would still be needed."""
    common = {
        "tries": random.randint(1, 3),
        "restarts": random.randint(0, 1),
        "freeing": random.choice((Freeing.AUTOMATIC, Freeing.AUTOMATIC, Freeing.DELETION, Freeing.NONE)),
        "power_on": random.random() < 0.85,
        "free_timeout": random.choice((timedelta(seconds=30), timedelta(minutes=5))),
        "wait_before_power": random.choice((timedelta(0), timedelta(0), timedelta(minutes=5))),
        "wait_before_isolation": random.choice((timedelta(0), timedelta(minutes=1))),
    }
    extras = tuple(method for method in (TAINT, DRAIN) if random.random() < 0.25)
    match random.choice(
        ("bmc", "dump", "levels", "supplies", "three", "ports", "ports-only", "cloud", "given-up", "volumes", "volumes-only")
    ):
        case ("bmc" | "dump") as which:
            kdump = KdumpRule(trusted=random.random() < 0.8) if which == "dump" else None
            drawn = plan(isolation=(CORDON, *extras), kdump=kdump, delete_node=random.random() < 0.3, **common)
        case "levels":
            patient = (replace(BMC, delay=timedelta(seconds=3)),)
            drawn = plan(levels=(patient, PDUS[:2]), isolation=(CORDON, *extras), **common)
        case "supplies":
            drawn = plan(levels=(PDUS[:2],), delete_node=random.random() < 0.2, **common)
        case "three":
            drawn = plan(levels=(PDUS, (BMC,)), isolation=(CORDON, *extras), **common)
        case "ports":
            free = (FREE,) if random.random() < 0.5 else ()
            drawn = plan(isolation=(CORDON, *CUTS, *free), recovery=(*GIVEN_BACK, UNCORDON), **common)
        case "ports-only":
            common["power_on"] = True
            short = timedelta(minutes=1)
            recovery = (*GIVEN_BACK, UNCORDON)
            drawn = plan(levels=(), isolation=(CORDON, *CUTS, FREE), recovery=recovery, boot_timeout=short, **common)
        case ("cloud" | "given-up") as which:
            drawn = plan(
                levels=((CLOUD,),),
                isolation=(CORDON, QUARANTINE, *extras),
                recovery=(LIFT, UNCORDON),
                terminate_instance=which == "given-up",
                **common,
            )
        case "volumes":
            drawn = plan(levels=((CLOUD,),), isolation=(CORDON, DETACH, FREE), **common)
        case _:
            common["power_on"] = True
            drawn = plan(levels=(), isolation=(CORDON, DETACH, CUTS[0], FREE), recovery=(GIVEN_BACK[0], UNCORDON), **common)
    return drawn


THEMES = (
    tuple(Mishap),
    (
        Mishap.STUCK,
        Mishap.ONE_STUCK,
        Mishap.SILENT,
        Mishap.SLOW,
        Mishap.LATE,
        Mishap.UNSURE,
        Mishap.LOCKED,
        Mishap.UNREACHABLE,
        Mishap.HEAL,
    ),
    (Mishap.OTHERS_ON, Mishap.OTHERS_OFF, Mishap.REBOOT, Mishap.FLAP, Mishap.STUBBORN, Mishap.PATH_OPENED, Mishap.ATTACHED_AGAIN),
    (Mishap.NODE_GONE, Mishap.NODE_ANEW, Mishap.NODE_REPLACED, Mishap.UNMARKED, Mishap.NEED_GONE, Mishap.NEED_BACK, Mishap.FLAP),
    (Mishap.LOST_BEFORE, Mishap.LOST_AFTER, Mishap.LATE, Mishap.OWN_NODE, Mishap.TERMINATE, Mishap.UNSURE, Mishap.REFUSED),
    (Mishap.HOLD, Mishap.ABORT, Mishap.ABORT_ON, Mishap.CANCEL, Mishap.VETO, Mishap.LEASED, Mishap.STUBBORN, Mishap.OTHERS_ON),
)
"""What goes wrong together: everything, devices, other people's hands, the Node, workers, words."""


def draw_script(random: Random) -> tuple[tuple[Mishap, float], ...]:
    """Some peace, so that the later steps have their troubles, too; then a calm or wild mixture of what belongs together."""
    calm = random.choice((0.5, 0.7, 0.85, 0.95))
    kinds = [mishap for theme in random.choices(THEMES, k=random.choice((1, 1, 2))) for mishap in theme]
    script = [(Mishap.NOTHING, 0.0)] * random.choice((0, 0, random.randint(0, 25)))
    for _ in range(random.randint(10, 80)):
        mishap = Mishap.NOTHING if random.random() < calm else random.choice(kinds)
        at_once = mishap not in SELF and random.random() < 0.4
        delay = 0.0 if at_once else round(random.choice((1.0, 10.0, 15.0 if mishap in SELF else 120.0)) * random.random(), 2)
        script.append((mishap, delay))
    return tuple(script)


AMBUSHED = (
    "mark_unschedulable",
    "last_look",
    "take_lease",
    "read_power",
    "power_off",
    "read_workload",
    "power_on",
    "mark_schedulable",
)
"""Acts at which something may befall any plan."""
OFTEN = frozenset({"last_look", "read_power", "read_kdump"})
"""What is done so often that it matters when."""
EVILS: dict[str, tuple[tuple[tuple[Mishap, float], ...], ...]] = {
    "mark_unschedulable": (((Mishap.DUMP, 0.0),), ((Mishap.DUMP, 2.0),)),
    "read_kdump": (((Mishap.DUMP, 0.0),), ((Mishap.REBOOT, 0.0),), ((Mishap.HOLD, 0.0),)),
    "free_while_dumping": (((Mishap.STUBBORN, 0.0), (Mishap.REBOOT, 0.5)), ((Mishap.STUBBORN, 0.0), (Mishap.ABORT, 5.0))),
    "taint_out_of_service": (
        ((Mishap.STUBBORN, 0.0), (Mishap.OTHERS_ON, 1.0)),  # a machine comes back while it is being freed
        ((Mishap.STUBBORN, 0.0),),
        ((Mishap.STUBBORN, 0.0), (Mishap.HOLD, 0.5)),
        ((Mishap.LOST_AFTER, 0.0),),
    ),
    "delete_workload": (
        ((Mishap.STUBBORN, 0.0), (Mishap.OTHERS_ON, 0.5)),
        ((Mishap.STUBBORN, 0.0),),
        ((Mishap.STUBBORN, 0.0), (Mishap.HOLD, 0.5)),
    ),
    "read_workload": (
        ((Mishap.OTHERS_ON, 0.0),),
        ((Mishap.HOLD, 0.0),),
        ((Mishap.HOLD, 0.0), (Mishap.OTHERS_ON, 60.0)),
        ((Mishap.NODE_REPLACED, 0.0),),
    ),
    "power_off": (
        ((Mishap.TERMINATE, 1.0), (Mishap.LATE, 14.0)),  # the next episode must wait for what the last one had begun
        ((Mishap.CANCEL, 0.1), (Mishap.CANCEL, 0.4)),
        ((Mishap.LATE, 14.0),),
        ((Mishap.NEED_GONE, 0.0),),
        ((Mishap.STUCK, 0.0),),
        ((Mishap.SILENT, 0.01),),
        ((Mishap.OWN_NODE, 0.0), (Mishap.OTHERS_OFF, 0.0)),
    ),
    "power_on": (
        ((Mishap.SLOW, 15.0),),
        ((Mishap.STUCK, 0.0), (Mishap.ABORT, 1.0)),
        ((Mishap.LOST_AFTER, 0.0), (Mishap.ABORT, 2.0)),
    ),
    "cut_path": (((Mishap.TERMINATE, 1.0), (Mishap.LATE, 14.0)), ((Mishap.LOST_BEFORE, 0.0),), ((Mishap.NEED_GONE, 0.5),)),
    "read_path": (((Mishap.NEED_GONE, 0.2), (Mishap.TERMINATE, 0.0)),),
    "free_cut_pods": (
        ((Mishap.FLAP, 0.1),),  # it is well again, and pods of it run elsewhere
        ((Mishap.STUBBORN, 0.0), (Mishap.PATH_OPENED, 0.5)),
        ((Mishap.STUBBORN, 0.0), (Mishap.ATTACHED_AGAIN, 0.5)),
        ((Mishap.STUBBORN, 0.0), (Mishap.HOLD, 0.5)),
    ),
    "detach_volume": (((Mishap.SILENT, 0.01),), ((Mishap.STUCK, 0.0),), ((Mishap.LATE, 14.0),)),
    "read_volume": (((Mishap.SILENT, 0.0),),),
    "quarantine": (((Mishap.TERMINATE, 0.5), (Mishap.LOST_AFTER, 0.0)), ((Mishap.ABORT, 0.0), (Mishap.SILENT, 0.5))),
    "terminate": (((Mishap.LOST_AFTER, 0.0),), ((Mishap.OTHERS_ON, 0.0),)),
    "last_look": (
        ((Mishap.VETO, 0.0),),
        ((Mishap.ABORT, 0.0),),
        ((Mishap.HOLD, 0.0),),
        ((Mishap.NODE_ANEW, 1.0),),
        ((Mishap.NODE_GONE, 0.0),),
    ),
    "read_power": (((Mishap.HOLD, 0.0),), ((Mishap.CANCEL, 0.0), (Mishap.CANCEL, 1.0)), ((Mishap.SILENT, 0.5),)),
}
"""Known evils, by the act at which they strike: what has broken fencers before, or us."""


KNOWN = (
    *((method, Ambush(method=method, number=1, mishaps=mishaps)) for method, each in EVILS.items() for mishaps in each),
    ("terminate", Ambush(method="read_workload", number=2, mishaps=((Mishap.HOLD, 0.0),))),
    ("several", Ambush(method="power_off", number=1, mishaps=((Mishap.ONE_STUCK, 0.0),))),
    ("delete_workload", Ambush(method="power_off", number=1, mishaps=((Mishap.STUBBORN, 0.0), (Mishap.LOCKED, 0.0)))),
    ("delete_workload", Ambush(method="power_off", number=1, mishaps=((Mishap.STUBBORN, 0.0), (Mishap.SILENT, 0.0)))),
)
"""Each beside the act that a plan must come to."""


def draw_ambush(random: Random, plan: FencingPlan) -> Ambush:
    """Where it hurts this plan: a known evil, or any one mishap at an act that matters."""
    kinds = [mishap for mishap in Mishap if mishap not in {Mishap.NOTHING, Mishap.HEAL, Mishap.NO_VETO, Mishap.NEED_BACK}]
    if random.random() < 0.7:
        method = random.choice([act for act in _acts_of(plan) if act in EVILS])
        mishaps = random.choice(EVILS[method])
    else:
        method = random.choice(AMBUSHED)
        mishaps = ((random.choice(kinds), round(random.choice((0.0, 0.0, 5.0)) * random.random(), 2)),)
    number = random.randint(1, 8) if method in OFTEN else random.choice((1, 1, 1, 2))
    return Ambush(method=method, number=number, mishaps=mishaps)


def _acts_of(plan: FencingPlan) -> list[str]:
    """Of the acts that have their evils those that this plan may come to."""
    acts = ["last_look"]
    if plan.kdump is not None:
        acts += ["mark_unschedulable", "read_kdump", "free_while_dumping"]
    if plan.levels:
        acts += ["power_off", "read_power"]
        if plan.freeing is not Freeing.NONE:
            acts += ["read_workload", "delete_workload" if plan.freeing is Freeing.DELETION else "taint_out_of_service"]
        acts += ["terminate"] if plan.terminate_instance else ["power_on"] if plan.power_on else []
    methods = {method.act for method in plan.isolation}
    own = {
        Act.CUT_PATH: ["cut_path", "read_path"],
        Act.DETACH_VOLUMES: ["detach_volume", "read_volume"],
        Act.QUARANTINE: ["quarantine"],
        Act.FREE_CUT_PODS: ["free_cut_pods"],
    }
    if plan.levels and len(plan.levels[0]) > 1:
        acts.append("several")
    return acts + [act for method, acts in own.items() if method in methods for act in acts]
