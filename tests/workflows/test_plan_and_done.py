"""What `nodewarden fence plan` shows of a configuration is what a fencing does: tried on random configurations.

Each is written as the ConfigMaps of the node-fencing proposal, shown, and played on the clockwork, where nothing goes wrong.
`NODEWARDEN_TEST_PLANS` says how many, `NODEWARDEN_TEST_SEED` from which number on.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from policy.episode.messages import Kind
from policy.fence.config import FenceConfig, FenceStep, Method, MethodAction, ShownAct, acts_in_order
from policy.fence.plan_compiler import compile_config
from tests.policy.builders import NODE, config, ipmi, lines, read
from tests.workflows.scenario_run import Play, arranged

PLANS = int(os.environ.get("NODEWARDEN_TEST_PLANS", "40"))
FIRST_SEED = int(os.environ.get("NODEWARDEN_TEST_SEED", "1"))


def plug(number: int, action: str, **more: str) -> str:
    return lines(agent_name="fence_apc_snmp", ip="10.0.0.9", plug=str(number), action=action, **more)


def port(number: int, action: str) -> str:
    storage = {"storage_classes": "san"} if action == "off" else {}
    return lines(agent_name="fence_brocade", ipaddr="10.0.0.8", plug=str(number), action=action, **storage)


METHODS = (
    {f"bmc-{action}": ipmi(action=action) for action in ("off", "on", "restart")}
    | {f"pdu{number}-{action}": plug(number, action) for number in (1, 2) for action in ("off", "on")}
    | {f"late{number}-{action}": plug(number, action, level="2") for number in (1, 2) for action in ("off", "on")}
    | {f"fc{number}-{action}": port(number, action) for number in (1, 2) for action in ("off", "on")}
    | {"sick": lines(agent_name="taint", key="example.com/sick", effect="NoSchedule")}
)
POWER = (
    "bmc-off bmc-on",
    "bmc-restart",
    "bmc-off",
    "pdu1-off pdu2-off pdu1-on pdu2-on",
    "bmc-off late1-off late2-off bmc-on late1-on late2-on",
    "late1-off bmc-off late1-on bmc-on",
)
FREEING = ("", "", "free-pods", "out-of-service-taint", "release-volumes", "delete-node")


def drawn(seed: int) -> FenceConfig:
    """What is read from a node's own configuration."""
    chance = Random(seed)
    isolation = [each for each in ("cordon", "sick", "drain", "fc1-off", "fc2-off") if chance.random() < 0.5]
    power = chance.choice(POWER).split()
    last_off = max(at for at, each in enumerate(power) if each.endswith(("off", "restart")))
    power[last_off + 1 : last_off + 1] = chance.choice(FREEING).split()
    recovery = [each.replace("off", "on") for each in isolation if each.startswith("fc")] + ["uncordon"]
    used = {*isolation, *power, *recovery}
    methods = {name: text for name, text in METHODS.items() if name in used}
    return read({f"fence-config-node-{NODE}": config(" ".join(isolation), " ".join(power), " ".join(recovery), **methods)})


def shown(found: FenceConfig) -> list[str]:
    """What the plan says that will be done where each level is proven off at once, in the words of the clockwork's acts."""
    first = min(each.power_level for each in found.power_management if each.power_level)
    lines = [line for each in acts_in_order(found) for line in line_of(found, each, first)]
    return lines if "mark_schedulable" in lines else [*lines, "mark_schedulable"]


def line_of(found: FenceConfig, act: ShownAct, first: int) -> list[str]:
    """first: the level that is switched."""
    match act.action:
        case None:
            return []
        case MethodAction.OUT_OF_SERVICE_TAINT:
            return ["taint_out_of_service"]
        case MethodAction.FREE_PODS:
            return ["delete_workload"]
        case MethodAction.DELETE_NODE:
            return ["delete_node"]
    method = next(each for each in found.step(act.step) if each.name == act.method)
    if act.step is not FenceStep.POWER_MANAGEMENT:
        return [act_of(method)]
    assert method.device is not None
    return [f"power_{act.action.value} {method.device.endpoint}"] if method.power_level == first else []


def act_of(method: Method) -> str:
    match method.action:
        case MethodAction.OFF | MethodAction.ON if method.device is not None:
            return f"{'cut' if method.action is MethodAction.OFF else 'restore'}_path {method.device.endpoint}"
        case MethodAction.CORDON:
            return "mark_unschedulable"
        case MethodAction.UNCORDON:
            return "mark_schedulable"
        case _:
            return method.action.value


DOES = ("power_o", "cut_path", "restore_path", "mark_", "taint", "drain", "delete_")


@pytest.fixture(autouse=True)
def _in_silence() -> None:
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)


def test_a_fencing_does_what_its_plan_shows_and_nothing_else() -> None:
    """S1, S4, S7, S32: isolation, off, freed, on, back; a level after the one that is proven off is left alone."""
    played, differs = 0, list[str]()
    for seed in range(FIRST_SEED, FIRST_SEED + PLANS):
        found = drawn(seed)
        if found.errors:
            continue
        play = Play(arranged(replace(compile_config(found), wait_before_power=timedelta(0)), kinds=(Kind.FENCING,)))
        broken = play.run()
        done = [act for act in play.adversary.acts if act.startswith(DOES)]
        played += 1
        if broken or done != shown(found):
            listed = {step.value: [each.name for each in found.step(step)] for step in FenceStep}
            differs.append(f"{seed}: {listed}\n shown {shown(found)}\n done  {done} {broken}")
    assert not differs, "\n".join(differs[:5])
    assert played > PLANS // 2
