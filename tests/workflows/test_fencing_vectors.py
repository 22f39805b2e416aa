"""Cases of other fencing systems that are about the order and the number of acts, from what is configured to what the devices
are told. They are in `tests/vectors/fence.json`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio.testing import WorkflowEnvironment

from activities.errors import ErrorType, failure
from policy.episode.messages import Phase, RecordEntry
from policy.fence.plan import CORDON, UNCORDON, FencingPlan, PowerDevice
from policy.fence.plan_compiler import compile_config
from tests.policy.builders import PDU, config, lines, node, read
from tests.vectors.objects import VECTORS
from tests.workflows.fencing_run import fenced, fencing, parked
from tests.workflows.surroundings import eventually
from tests.workflows.world import World, plan

BY_HAND = {"isolation": (CORDON,), "recovery": (UNCORDON,)}


class Pass(asyncio.Event):
    """A gate that stands open but for the one who comes as the nth."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self._before = nth - 1

    async def wait(self) -> bool:
        if self._before:
            self._before -= 1
            return True
        self.reached.set()
        return await super().wait()


def configured(power: str, *, cluster: str = "", **methods: str) -> FencingPlan:
    """The plan that ConfigMaps of the node-fencing proposal become after a health check, with waits of seconds."""
    data = {"fence-config-node-n1": config(power=power, **methods), "fence-method-template-pdu": PDU}
    if cluster:
        data["fence-cluster-config"] = {"config.properties": cluster}
    found = compile_config(read(data, of=node()), after_health_check=True)
    return replace(found, **BY_HAND, wait_before_power=timedelta(0))  # type: ignore[arg-type]


def of(record: list[RecordEntry], act: str) -> list[RecordEntry]:
    return [entry for entry in record if entry.act == act]


async def test_n03_tries_and_restarts_are_counted_over_the_restart_of_a_worker_and_then_a_person_is_asked(
    env: WorkflowEnvironment,
) -> None:
    """N03, S5: shipped, the count began anew at each restart of the controller, and the flow was restarted for ever, at the step
    that had failed."""
    vector = VECTORS["N03"]
    settings = lines(giveup_retries=str(vector["retries"]), restarts=str(vector["restarts"]))
    world = World(plan=replace(configured("off on", cluster=settings), off_timeout=timedelta(seconds=2)), ignores_off=True)
    world.gates["off"] = gate = Pass(vector["attempts_per_flow"] + 2)
    async with fencing(env, world) as run:
        await eventually(env, gate.reached.is_set)
        await run.restart_worker()
        gate.set()
        status = await run.parked()
        counted = (vector["restarts"], vector["attempts_per_flow"])
        assert (status.restarts, status.try_number) == counted
        assert (status.most_restarts, status.tries) == counted  # what is left of either, for people
        assert world.count("off") == vector["attempts_per_flow"] * vector["flows"]
        await run.did("event NeedsHuman")
        assert world.consequences == []
        phases = [entry.outcome for entry in of(await run.record(), "phase")]
        flow = [Phase.NEW, Phase.RUNNING, Phase.ERROR]
        assert [Phase.NEW, *phases] == [*flow * vector["flows"], Phase.NEEDS_HUMAN]


async def test_n06_a_step_is_a_sequence(env: WorkflowEnvironment) -> None:
    """N06, S4, S5: shipped, the jobs of a step were created side by side, and the on could overtake the off."""
    vector = VECTORS["N06"]
    methods = {f"eaton_{action}": lines(template="pdu", plug="1", action=action) for action in ("off", "on")}
    power = vector["power_management"].replace("-", "_")
    slow = World(plan=configured(power, **methods), off_takes=timedelta(seconds=vector["off_takes_seconds"]))
    result = await fenced(env, slow)
    assert [command.split()[0] for command in slow.commands] == vector["calls"]
    (off,), (proven,), (on,) = (of(list(result.record), act) for act in ("power-off", "off-proven", "power-on"))
    assert proven.at - off.at >= slow.off_takes
    assert on.at >= proven.at
    never = World(plan=replace(configured(power, **methods), tries=1, restarts=0), ignores_off=True)
    await parked(env, never)
    assert never.count("on") == vector["on_where_off_fails"]


async def test_n07_what_became_of_no_command_is_no_success(env: WorkflowEnvironment) -> None:
    """N07, S3: shipped, jobs that were gone counted as done, only the first one was asked for, and all pods were deleted."""
    vector = VECTORS["N07"]
    jobs = tuple(PowerDevice(driver="ipmi", endpoint=f"pdu://{job}/7") for job in vector["jobs"])
    silent = [failure(ErrorType.UNREACHABLE, "no answer") for _ in range(200)]
    world = World(plan=plan(levels=(jobs,)), lost={"off": 99}, errors={"read": silent})
    async with fencing(env, world) as run:
        status = await run.parked()
        assert status.off_proof is None
        record = await run.record()
        assert {entry.outcome for entry in of(record, "power-off")} == {vector["result"]}
        assert any("try 1 of 2" in entry.detail for entry in of(record, "power-management")), "it is tried again"
    assert world.consequences == []
    assert 3 - world.pods == vector["pods_deleted"]


async def test_s03_levels_go_in_their_order_within_the_time_of_all_and_tries_are_a_total(env: WorkflowEnvironment) -> None:
    """S03. Pacemaker refuses a second try also once most of the time is used up, or after a time-out; ours are as many as are
    configured (N03), each after a reading. Of one try all levels together take no longer than its sum for them."""
    vector = VECTORS["S03"]

    def device(given: dict[str, Any]) -> PowerDevice:
        times = {key: timedelta(seconds=given.get(key, 0)) for key in ("delay", "timeout")}
        return PowerDevice(driver="ipmi", endpoint=given["id"], delay=times["delay"], off_timeout=times["timeout"])

    levels = tuple(tuple(map(device, level)) for level in vector["levels"])
    tries = vector["tries_in_total"]
    world = World(plan=plan(levels=levels, tries=tries, restarts=0), ignores_off=True)
    async with fencing(env, world, parks=True) as run:
        record = await run.record()
    assert world.commands == [f"off {each.endpoint}" for level in levels for each in level] * tries
    offs, failed = of(record, "power-off"), of(record, "power-management")
    total = timedelta(seconds=vector["total_timeout_seconds"])
    longest = sum((max(each.off_timeout or timedelta(0) for each in level) for level in levels), timedelta(0))
    first, second = failed[0].at - offs[0].at, failed[1].at - offs[len(offs) // tries].at
    assert longest <= min(first, second)
    assert max(first, second) + levels[0][0].delay <= total
