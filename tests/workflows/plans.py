"""Plans of fencings and ladders of remediations as a seed has them, and the acts that they may come to."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

from policy.fence.kdump import KdumpRule
from policy.fence.plan import CORDON, UNCORDON, WITH_VOLUMES, Act, CutStorage, FencingPlan, Freeing, PlannedMethod, PowerDevice
from policy.remediation.ladder import EscalationStep
from policy.remediation.strategy_rules import Strategy
from policy.values.object_refs import ObjectRef


def plan(**changes: object) -> FencingPlan:
    """A plan with one BMC and short waits."""
    devices = (PowerDevice(driver="ipmi", endpoint="ipmi://10.0.0.7:623"),)
    short = FencingPlan(
        source="test",
        levels=(devices,),
        wait_before_power=timedelta(0),
        tries=2,
        restarts=1,
        retry_interval=timedelta(seconds=1),
        act_deadline=timedelta(seconds=2),
        off_timeout=timedelta(seconds=4),
        free_timeout=timedelta(seconds=30),
        boot_timeout=timedelta(minutes=10),
    )
    return replace(short, **changes)  # type: ignore[arg-type]


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

PORT = PowerDevice(driver="fence_brocade", endpoint="fence_brocade://switch-1/2")
SAN = CutStorage(classes=("san-gold",))
CUT = PlannedMethod(name="fc-off", act=Act.CUT_PATH, device=PORT, storage=SAN)
BACK = PlannedMethod(name="fc-on", act=Act.RESTORE_PATH, device=PORT)

MINUTE = timedelta(minutes=1)
TEMPLATE = ObjectRef(
    api_version="self-node-remediation.medik8s.io/v1alpha1",
    kind="SelfNodeRemediationTemplate",
    name="automatic",
    namespace="medik8s",
)


ASKS = {
    Strategy.DELETE_MACHINE: "give_up",
    Strategy.REQUEST_OWNER: "request_owner",
    Strategy.ANNOTATE_EXTERNAL: "annotate_external",
    Strategy.EXTERNAL: "create_object",
}
"""By which act a step has others do it: what needs a permit, a last look and an end to its time."""


def step(strategy: Strategy, timeout: timedelta | None = None) -> EscalationStep:
    """One step of a ladder."""
    template = TEMPLATE if strategy is Strategy.EXTERNAL else None
    name = template.key if template is not None else strategy.value
    return EscalationStep(strategy=strategy, name=name, template=template, timeout=timeout)


def switches(step: EscalationStep, plan: FencingPlan) -> bool:
    """Whether a step switches the machine itself. One without a device for it has failed before it touches anything."""
    match step.strategy:
        case Strategy.FENCE:
            return True
        case Strategy.REBOOT:
            return bool(plan.levels)
        case Strategy.DETACH_VOLUMES:
            named = (method.device for method in plan.isolation if method.act is Act.DETACH_VOLUMES)
            known = any(device is not None and device.driver in WITH_VOLUMES for device in (*plan.devices, *named))
            return known and bool(plan.levels)
        case _:
            return False


def switched(**changes: object) -> FencingPlan:
    """A node whose storage hangs behind one port of a switch: the port off, the node off and on, the port on."""
    return plan(**({"isolation": (CORDON, CUT), "recovery": (BACK, UNCORDON)} | changes))


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


def draw_ladder(random: Random) -> tuple[EscalationStep, ...]:
    """Some steps, each but the last with an end to its time."""
    chosen = random.sample(list(Strategy), k=random.choice((1, 2, 2, 3)))
    patience = [timedelta(minutes=random.choice((2, 5, 15))) for _ in chosen[:-1]]
    return tuple(
        step(*each)
        for each in zip(chosen, [*patience, random.choice((None, 15 * MINUTE, 15 * MINUTE, 15 * MINUTE))], strict=True)
    )


def acts_of(plan: FencingPlan, ladder: tuple[EscalationStep, ...] = ()) -> list[str]:
    """Of the acts that have known faults those that this plan may come to."""
    acts = ["last_look"]
    if plan.kdump is not None:
        acts += ["mark_unschedulable", "read_kdump", "free_while_dumping"]
    if plan.levels:
        acts += ["power_off", "read_power", "read_again"]
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
    if len(plan.levels) > 1 and len(plan.levels[0]) == 1:
        acts.append("levels")
    if not plan.levels and Act.FREE_CUT_PODS in methods:
        acts.append("paths alone")
    if plan.delete_node and plan.levels:
        acts.append("delete_node")
    acts += ["mark_schedulable"] if plan.levels else []
    acts += ["untaint_out_of_service"] if plan.levels and plan.power_on and not plan.terminate_instance else []
    acts += [ASKS[each.strategy] for each in ladder if each.strategy in ASKS]
    return acts + [act for method, acts in own.items() if method in methods for act in acts]
