"""Isolation in the order of its plan, and its undoing: paths are cut, read as cut, and given back only when that is safe."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.testing import WorkflowEnvironment

from activities.contracts.target import DrainResult
from activities.errors import ErrorType, failure
from policy.episode.messages import Outcome
from policy.episode.needs import Need, NeedKind
from policy.episode.observation import Observation
from policy.episode.permits import PermitAnswer, PermitDecision
from policy.fence.kdump import KdumpRule
from policy.fence.plan import CORDON, UNCORDON, Act, Chosen, CutStorage, FencingPlan, PlannedMethod, PowerDevice
from policy.fence.power import PowerState, VolumeState
from tests.workflows.fencing_run import fenced, fencing, parked
from tests.workflows.surroundings import let_pass
from tests.workflows.world import World, left_by, plan

PORT = PowerDevice(driver="fence_brocade", endpoint="fence_brocade://switch-1/2")
FC_OFF = PlannedMethod(name="fc-off", act=Act.CUT_PATH, device=PORT)
SAN = CutStorage(classes=("san-gold",))
FC_OFF_SAN = PlannedMethod(name="fc-off", act=Act.CUT_PATH, device=PORT, storage=SAN)
FREE = PlannedMethod(name="clean-pods", act=Act.FREE_CUT_PODS)
FC_ON = PlannedMethod(name="fc-on", act=Act.RESTORE_PATH, device=PORT)


def bare_metal(**changes: object) -> FencingPlan:
    """The proposal's example: the port off, the node off and on, the port on."""
    return plan(**({"isolation": (CORDON, FC_OFF), "recovery": (FC_ON, UNCORDON)} | changes))


async def test_the_port_is_cut_before_power_and_given_back_after_the_restart(env: WorkflowEnvironment) -> None:
    world = World(plan=bare_metal())
    await fenced(env, world)
    order = [
        act for act in world.acts if act in {"cordon", "note cut", "cut-path", "off", "taint", "on", "restore-path", "note back"}
    ]
    assert order == ["cordon", "note cut", "cut-path", "off", "taint", "on", "restore-path", "note back"]
    assert world.acts.index("restore-path") < world.acts.index("uncordon")
    assert world.noted == set()


async def test_a_node_that_is_back_before_power_off_gets_its_port_back_by_itself(env: WorkflowEnvironment) -> None:
    """No consequence was carried out: no reboot is needed for what was never freed."""
    world = World(plan=bare_metal(wait_before_power=timedelta(hours=1)))
    async with fencing(env, world) as run:
        await run.until(lambda status: bool(status.path_proofs))
        await run.sees(ready=True)
        await run.result(Outcome.RECOVERED)
    assert world.count("restore-path") == 1
    assert world.commands == []


async def test_a_port_that_does_not_close_fails_the_step_and_touches_no_power(env: WorkflowEnvironment) -> None:
    """S2: the proposal's automaton; an accepted command is no proof."""
    world = World(plan=bare_metal(tries=2, restarts=1), stuck={PORT.endpoint})
    async with fencing(env, world) as run:
        status = await run.parked()
        assert "the path is not cut" in status.problem
        assert status.restarts == 1
        assert world.count("cut-path") == 4
        assert world.commands == []
        await run.abort()
        await run.result(Outcome.ABORTED)
    assert world.count("restore-path") == 1  # it may have been cut after all: what we commanded is given back


async def test_an_abort_after_the_workload_was_freed_leaves_the_port_cut_and_says_so(env: WorkflowEnvironment) -> None:
    """S35: un-fencing after an abort is a decision of its own."""
    world = World(plan=bare_metal())
    async with fencing(env, world, at="taint") as run:
        await run.abort()
        result = await run.result(Outcome.ABORTED)
    assert result.left_off
    assert f"left cut: {PORT.endpoint}" in result.message
    assert world.count("restore-path") == 0


async def test_a_port_that_a_predecessor_cut_is_given_back_on_a_persons_word(env: WorkflowEnvironment) -> None:
    """What it had freed is not known."""
    clean_up = Need(kind=NeedKind.CLEAN_UP, reason="left over")
    world = World(plan=bare_metal(), need=clean_up, ready=True, mark=left_by("older", paths=(PORT.endpoint,)))
    async with fencing(env, world) as run:
        status = await run.parked()
        assert "left cut" in status.problem
        assert world.count("restore-path") == 0
        world.word = True
        await run.resume("nobody else uses it")
        await run.result(Outcome.RECOVERED)
    assert world.count("restore-path") == 1


async def test_a_switch_that_is_away_keeps_the_node_fenced_until_it_is_back(env: WorkflowEnvironment) -> None:
    world = World(plan=bare_metal())
    async with fencing(env, world) as run:
        await run.did("on")
        world.silent.add(PORT.endpoint)
        status = await run.parked()
        assert "can't be given back" in status.problem
        assert world.count("uncordon") == 0
        world.silent.clear()
        await run.result(Outcome.RECOVERED)


async def test_a_machine_that_the_plan_leaves_off_ends_fenced_off(env: WorkflowEnvironment) -> None:
    world = World(plan=plan(power_on=False))
    await fenced(env, world, Outcome.FENCED_OFF)
    assert world.count("on") == 0
    assert world.consequences


async def test_without_mark_schedulable_in_recovery_the_cordon_stays(env: WorkflowEnvironment) -> None:
    world = World(plan=plan(recovery=()))
    await fenced(env, world)
    assert world.cordoned
    assert world.marked == ""


async def test_a_person_s_node_waits_before_isolation_and_a_check_s_does_not(env: WorkflowEnvironment) -> None:
    """The proposal's time in `new`."""
    patient = plan(wait_before_isolation=timedelta(hours=2))
    world = World(plan=patient, need=Need(kind=NeedKind.PERSON, reason="drill"))
    result = await fenced(env, world)
    assert result.ended - result.started >= timedelta(hours=2)
    world = World(plan=patient)
    result = await fenced(env, world)
    assert result.ended - result.started < timedelta(hours=1)


def fabric_only(**changes: object) -> FencingPlan:
    """No power device at all: the port is the fence."""
    return plan(**({"levels": (), "isolation": (CORDON, FC_OFF_SAN, FREE), "recovery": (FC_ON, UNCORDON)} | changes))


async def test_pods_behind_a_cut_path_are_freed_while_the_machine_runs(env: WorkflowEnvironment) -> None:
    """S1: under `path cut proven`, and only those; the port is given back after the restart that somebody else made."""
    world = World(plan=fabric_only())
    async with fencing(env, world) as run:
        await run.did("free-cut-pods")
        assert world.storage == SAN
        assert world.count("restore-path") == 0
        await run.sees(ready=True, boot_id="boot-2")
        result = await run.result()
    assert (result.outcome, result.freed_pods) == (Outcome.RECOVERED, 2)
    assert world.count("restore-path") == 1
    assert world.commands == []


async def test_a_path_that_others_open_before_its_pods_are_freed_is_cut_once_more(env: WorkflowEnvironment) -> None:
    """S2, S35: it was read as open for ever after, and no resume helped."""
    world = World(plan=fabric_only(tries=1, restarts=1))
    async with fencing(env, world, at="event PathCut") as run:
        world.paths[PORT.endpoint] = PowerState.ON
        run.go_on()
        await run.did("free-cut-pods")
        assert (world.count("cut-path"), world.paths[PORT.endpoint]) == (2, PowerState.OFF)
        await run.sees(ready=True, boot_id="boot-2")
        await run.result(Outcome.RECOVERED)


async def test_a_node_that_comes_back_unrestarted_after_its_pods_were_freed_stays_cut(env: WorkflowEnvironment) -> None:
    """Its processes may hold what somebody else writes by now: a restart or a person's word first."""
    world = World(plan=fabric_only())
    async with fencing(env, world) as run:
        await run.did("free-cut-pods")
        await run.sees(ready=True)
        status = await run.parked()
        assert f"{PORT.endpoint} is left cut: pods were freed" in status.problem
        assert world.count("restore-path") == 0
        world.word = True
        await run.resume("its processes are gone")
        await run.result(Outcome.RECOVERED)
    assert world.count("restore-path") == 1


async def test_a_node_that_reboots_in_the_queue_for_a_permit_is_freed_as_the_boot_that_it_is_on(env: WorkflowEnvironment) -> None:
    """S9: who is fenced stays pinned from the start, which boot of it only once it may be fenced."""
    queued = PermitAnswer(decision=PermitDecision.QUEUED, reason="one node at a time")
    world = World(plan=fabric_only(), answers=[queued])
    async with fencing(env, world, permit_granted=False, at="ask-permit") as run:
        world.boot_id = "boot-2"
        run.go_on()
        await run.did("free-cut-pods")
        assert [entry.detail for entry in await run.record() if entry.outcome == "boot id"] == ["boot-1 has become boot-2"]
        await run.sees(ready=True)
        assert "left cut" in (await run.parked()).problem  # it is on the boot whose pods were freed
    assert world.count("restore-path") == 0


async def test_a_node_that_is_another_one_after_the_queue_is_not_pinned_anew(env: WorkflowEnvironment) -> None:
    """S9."""
    queued = PermitAnswer(decision=PermitDecision.QUEUED, reason="one node at a time")
    world = World(plan=fabric_only(), answers=[queued])
    async with fencing(env, world, permit_granted=False, at="ask-permit") as run:
        world.boot_id, world.uid, world.provider_id = "boot-2", "uid-2", "sim://8"
        await run.result(Outcome.REPLACED)
        assert [entry for entry in await run.record() if entry.outcome == "boot id"] == []
    assert world.consequences == []


async def test_a_node_that_reboots_while_it_is_parked_is_freed_as_the_boot_that_it_is_on(
    env: WorkflowEnvironment,
) -> None:
    """S9: as after the first queue, as long as nothing has been done to it."""
    world = World(plan=fabric_only(tries=1, restarts=0), silent={PORT.endpoint})
    async with fencing(env, world) as run:
        await run.parked()
        world.silent, world.boot_id = set(), "boot-2"
        await run.resume("the switch answers again")
        await run.did("free-cut-pods")


async def test_nothing_is_freed_behind_a_path_that_is_open_again(env: WorkflowEnvironment) -> None:
    """S2: read again just before."""
    world = World(plan=fabric_only(tries=1, restarts=0))
    async with fencing(env, world, at="event PathCut") as run:
        world.paths[PORT.endpoint] = PowerState.ON
        assert "not proven cut" in (await run.parked()).problem
    assert world.count("free-cut-pods") == 0


INSTANCE = PowerDevice(driver="ec2", endpoint="ec2://eu-west-1/i-7")
DETACH = PlannedMethod(name="detach-volumes", act=Act.DETACH_VOLUMES, device=INSTANCE)


def volumes_only(**changes: object) -> FencingPlan:
    """The machine keeps running; its volumes are taken away."""
    return plan(**({"levels": (), "isolation": (CORDON, DETACH, FREE), "recovery": (UNCORDON,)} | changes))


async def test_pods_of_volumes_that_read_available_are_freed_and_the_root_stays(env: WorkflowEnvironment) -> None:
    """S1: the machine runs on, for analysis."""
    attached = {"vol-1": VolumeState.ATTACHED, "vol-2": VolumeState.ATTACHED}
    world = World(plan=volumes_only(), volumes=attached)
    async with fencing(env, world) as run:
        await run.did("free-cut-pods")
        assert [act for act in world.acts if act.startswith("detach ")] == ["detach vol-1", "detach vol-2"]
        assert world.storage == CutStorage(handles=("vol-1", "vol-2"))
        await run.sees(ready=True, boot_id="boot-2")
        await run.result(Outcome.RECOVERED)


async def test_a_volume_that_stays_attached_frees_nothing(env: WorkflowEnvironment) -> None:
    """S3."""
    world = World(
        plan=volumes_only(tries=1, restarts=0),
        volumes={"vol-1": VolumeState.ATTACHED, "vol-2": VolumeState.UNKNOWN},
        stuck={"vol-1"},
    )
    assert "vol-1 is attached" in (await parked(env, world)).problem
    assert world.consequences == []


async def test_a_volume_that_the_cloud_does_not_know_any_more_is_not_detached(env: WorkflowEnvironment) -> None:
    """S3: unknown is not available."""
    volumes = {"vol-1": VolumeState.ATTACHED}
    plan = volumes_only(tries=1, restarts=0)
    world = World(plan=plan, volumes=volumes, after_detaching=VolumeState.UNKNOWN)
    assert "vol-1 is unknown" in (await parked(env, world)).problem
    assert world.consequences == []


async def test_a_lost_answer_to_a_detachment_is_read_and_not_repeated(env: WorkflowEnvironment) -> None:
    """S33, S34."""
    world = World(plan=volumes_only(), volumes={"vol-1": VolumeState.ATTACHED}, off_lost=1)
    async with fencing(env, world) as run:
        await run.did("free-cut-pods")
    assert world.count("detach vol-1") == 1


async def test_a_quarantine_is_noted_licenses_nothing_and_is_lifted_in_recovery(env: WorkflowEnvironment) -> None:
    """S1: open connections live on; an answer that was lost is waited out and asked for again."""
    quarantine = PlannedMethod(name="quarantine", act=Act.QUARANTINE, device=INSTANCE)
    lift = PlannedMethod(name="lift-quarantine", act=Act.LIFT_QUARANTINE, device=INSTANCE)
    world = World(plan=plan(isolation=(quarantine,), recovery=(lift,), wait_before_power=timedelta(hours=1)), off_lost=1)
    async with fencing(env, world) as run:
        await run.until(lambda status: status.doing.startswith("waits before power"))
        assert world.noted == {f"{INSTANCE.endpoint}#quarantine"}
        assert world.consequences == []
        await run.sees(ready=True)
        await run.result(Outcome.RECOVERED)
    assert (world.count("quarantine"), world.count("lift-quarantine")) == (2, 1)
    assert world.noted == set()


DRAIN = PlannedMethod(name="drain", act=Act.DRAIN, parameters={"ignore-daemonsets": "true"}, timeout=timedelta(minutes=1))


async def test_a_drain_is_repeated_until_it_is_done_and_does_not_wait_for_the_proof(
    env: WorkflowEnvironment,
) -> None:
    """S30."""
    rounds = [
        DrainResult(evicted=2, left=1, names=("default/web",)),
        DrainResult(evicted=1, withheld=("db-0: attached",)),
    ]
    world = World(plan=plan(isolation=(CORDON, DRAIN)), drains=rounds)
    result = await fenced(env, world)
    assert (world.count("drain"), [entry.detail for entry in result.record if entry.act == "drain"]) == (
        2,
        ["3 pods evicted; left: db-0: attached"],
    )


async def test_a_budget_that_blocks_a_drain_does_not_hold_up_fencing_for_ever(env: WorkflowEnvironment) -> None:
    blocked = DrainResult(left=1, names=("default/db-0",), blocked=("default/db-0: budget db",))
    world = World(plan=plan(isolation=(DRAIN,)), drains=[blocked] * 100)
    result = await fenced(env, world)
    assert [entry.outcome for entry in result.record if entry.act == "drain"] == ["incomplete"]


async def test_a_pod_that_a_filter_refuses_fails_the_step_before_anything_is_evicted(env: WorkflowEnvironment) -> None:
    """S29."""
    refused = DrainResult(errors=("default/bare: nothing manages it",))
    world = World(plan=plan(isolation=(DRAIN,), tries=1, restarts=0), drains=[refused])
    assert "default/bare: nothing manages it" in (await parked(env, world)).problem
    assert world.commands == []


async def test_a_taint_of_the_configuration_is_set_in_its_place(env: WorkflowEnvironment) -> None:
    taint = PlannedMethod(name="keep-away", act=Act.TAINT, parameters={"key": "example.org/sick", "effect": "NoSchedule"})
    world = World(plan=plan(isolation=(taint, CORDON)))
    await fenced(env, world)
    assert world.acts.index("taint example.org/sick") < world.acts.index("cordon")


async def test_power_off_waits_for_a_crash_dump_and_no_longer(env: WorkflowEnvironment) -> None:
    """S2: messages delay, they prove nothing."""
    world = World(plan=plan(kdump=KdumpRule()), kdump=timedelta(minutes=2))
    result = await fenced(env, world)
    heard = [entry for entry in result.record if entry.act == "kdump"]
    assert [entry.outcome for entry in heard] == ["ended"]
    assert heard[0].at - result.started >= timedelta(minutes=2)
    assert world.acts.index("read-kdump") < world.acts.index("off")


async def test_messages_that_never_end_hold_power_off_no_longer_than_the_bound(env: WorkflowEnvironment) -> None:
    """Anybody can send them."""
    world = World(plan=plan(kdump=KdumpRule(longest=timedelta(minutes=5))), kdump=timedelta(days=1))
    result = await fenced(env, world)
    (heard,) = [entry for entry in result.record if entry.act == "kdump"]
    assert (heard.outcome, heard.at - result.started < timedelta(minutes=6)) == ("overdue", True)


async def test_without_a_listener_a_configured_wait_is_short_and_said(env: WorkflowEnvironment) -> None:
    world = World(plan=plan(kdump=KdumpRule()))
    result = await fenced(env, world)
    assert "no listener of kdump messages answers" in [entry.detail for entry in result.record if entry.act == "kdump"]


TRUSTED = KdumpRule(trusted=True)


async def test_pods_of_a_trusted_dump_are_freed_before_power_off_which_follows_all_the_same(env: WorkflowEnvironment) -> None:
    """S1, S20: each round after a last look and a fresh message; the rest of the proof is what it always is."""
    world = World(plan=plan(kdump=TRUSTED), kdump=timedelta(minutes=2), dumping_frees=2)
    result = await fenced(env, world)
    assert (result.outcome, result.freed_pods) == (Outcome.RECOVERED, 3)
    assert result.kernel_dead is not None
    told = [entry.detail for entry in result.record if (entry.act, entry.outcome) == ("kernel-dead", "trusted")]
    assert told == ["kernel dead (fence_kdump, trusted network): 3 messages from 10.0.0.7, the last one 0s ago"]
    rounds = [place for place, act in enumerate(world.acts) if act == "free-while-dumping"]
    assert [world.acts[place - 2 : place] for place in rounds] == [["look", "read-kdump"]] * 2
    assert [act for act in world.acts if act in {"free-while-dumping", "off", "on"}][-2:] == ["off", "on"]
    (ended,) = [entry for entry in result.record if (entry.act, entry.outcome) == ("kdump", "ended")]
    assert ended.at - result.started >= timedelta(minutes=2)
    assert result.off_proof is not None


async def test_without_the_option_a_dump_frees_nothing(env: WorkflowEnvironment) -> None:
    """S2: the messages are unauthenticated."""
    world = World(plan=plan(kdump=KdumpRule()), kdump=timedelta(minutes=2))
    result = await fenced(env, world)
    assert result.kernel_dead is None
    assert world.acts.index("off") < world.acts.index(world.consequences[0])
    assert "free-while-dumping" not in world.acts


async def test_a_trusted_dump_that_is_over_frees_nothing_more(env: WorkflowEnvironment) -> None:
    """S6: after the dump the machine boots."""
    world = World(plan=plan(kdump=TRUSTED), kdump=timedelta(seconds=20), dumping_frees=0)
    result = await fenced(env, world)
    assert result.kernel_dead is not None
    assert world.acts.count("free-while-dumping") <= 4
    assert world.acts.index("off") < world.acts.index("taint")
    assert result.freed_pods == 3


async def test_a_message_from_another_address_is_no_word_of_the_node(env: WorkflowEnvironment) -> None:
    """S9."""
    world = World(plan=plan(kdump=TRUSTED, tries=1), kdump=timedelta(seconds=20), kdump_address="10.0.0.8")
    result = await fenced(env, world)
    assert "free-while-dumping" not in world.acts
    assert result.kernel_dead is None


async def test_a_node_that_boots_after_its_trusted_dump_needs_no_power_command(env: WorkflowEnvironment) -> None:
    """S35: restart proven, by its new boot id."""
    world = World(plan=plan(kdump=TRUSTED, wait_before_power=timedelta(days=3650)), kdump=timedelta(days=1))
    async with fencing(env, world, at="free-while-dumping") as run:
        await run.sees(boot_id="boot-2", ready=True)
        result = await run.result()
    assert (result.outcome, world.commands) == (Outcome.RECOVERED, [])
    assert result.restart_proof.boot_id == "boot-2"


async def test_a_node_that_was_said_to_be_dead_and_is_well_on_the_same_boot_is_a_person_s_case(env: WorkflowEnvironment) -> None:
    """S2: the message was a lie, and its pods run twice. Nobody calls that recovered, however often it is seen."""
    world = World(plan=plan(kdump=TRUSTED, wait_before_power=timedelta(days=3650)), kdump=timedelta(days=1))
    async with fencing(env, world, at="free-while-dumping") as run:
        await run.sees(ready=True)
        status = await run.parked()
        assert "no restart of it is proven" in status.problem
        await run.tell(world.observation())
        await run.until(lambda status: "came back by itself; but its pods" in status.problem)
        await run.abort()
        result = await run.result()
    assert (result.outcome, world.commands) == (Outcome.ABORTED, [])
    assert "its pods may have been freed while its kernel dumped" in result.message


async def test_the_first_power_command_ends_the_trust_in_messages(env: WorkflowEnvironment) -> None:
    """S6: whoever speaks after an off that had no effect is no kernel that is known to be dead."""
    rule = KdumpRule(trusted=True, longest=timedelta(minutes=1))
    world = World(plan=plan(kdump=rule, tries=1), kdump=timedelta(days=1), dumping_frees=0, ignores_off=True)
    async with fencing(env, world) as run:
        status = await run.parked()
    assert (status.restarts, world.count("off"), world.broken) == (1, 2, [])
    assert "free-while-dumping" not in world.acts[world.acts.index("off") :]
    assert world.pods == 3


async def test_what_goes_wrong_while_a_dump_is_trusted_leaves_the_rest_to_the_proof_of_off(env: WorkflowEnvironment) -> None:
    """S6: a node that has booted meanwhile is refused by whoever writes."""
    world = World(plan=plan(kdump=TRUSTED), kdump=timedelta(seconds=5))
    world.dumping_errors.extend(failure(ErrorType.NOT_PROVEN, "it has booted") for _ in range(9))
    result = await fenced(env, world)
    assert (result.outcome, result.freed_pods) == (Outcome.RECOVERED, 3)
    assert world.acts.index("off") < world.acts.index("taint")


async def test_the_mark_says_off_from_the_proof_to_the_power_on(env: WorkflowEnvironment) -> None:
    """S36: nobody is warned of data at risk while the machine is proven off."""
    world = World()
    await fenced(env, world)
    order = [act for act in world.acts if act in {"off", "note-off", "taint", "note-on", "on"}]
    assert order == ["off", "note-off", "taint", "note-on", "on"]


async def test_the_node_is_deleted_last_and_its_machine_registers_anew(env: WorkflowEnvironment) -> None:
    """S1, S9: only under the proof; the new Node is the same machine."""
    world = World(plan=plan(delete_node=True))
    await fenced(env, world)
    order = [act for act in world.acts if act in {"taint", "delete-node", "on"}]
    assert order == ["taint", "delete-node", "on"]


async def test_a_machine_is_given_up_only_once_it_is_off_and_freed(env: WorkflowEnvironment) -> None:
    """S1."""
    world = World(plan=plan(terminate_instance=True))
    result = await fenced(env, world, Outcome.FENCED_OFF)
    assert world.count("on") == 0
    order = [act for act in world.acts if act in {"off", "taint", "terminate", "read-given-up"}]
    assert order == ["off", "taint", "terminate", "read-given-up"]
    assert "given up for good (ipmi://10.0.0.7:623: number-1 is gone)" in result.message


async def test_a_machine_is_given_up_once_and_read_until_it_is(env: WorkflowEnvironment) -> None:
    """S2, S33: accepted is not given up, a lost answer is read and not repeated, and a slow cloud is waited for."""
    lost = failure(ErrorType.AMBIGUOUS, "the answer was lost")
    world = World(plan=plan(terminate_instance=True), terminate_errors=[lost], stays=6)
    await fenced(env, world, Outcome.FENCED_OFF)
    assert world.count("terminate") == 1
    assert world.count("read-given-up") == 7  # which takes longer than one try


async def test_a_machine_that_is_still_there_is_nowhere_called_given_up(env: WorkflowEnvironment) -> None:
    """S2: whatever was accepted."""
    world = World(plan=plan(terminate_instance=True, tries=1, restarts=0), stays=10_000)
    async with fencing(env, world) as run:
        assert (
            "whether the machine is given up is not known: ipmi://10.0.0.7:623: number-1 is there" in (await run.parked()).problem
        )
        await run.abort()
        result = await run.result()
    assert (result.outcome, result.left_off, "for good" in result.message) == (Outcome.ABORTED, True, False)


async def test_a_machine_that_nobody_wants_given_up_any_more_is_switched_on_by_a_word(env: WorkflowEnvironment) -> None:
    """S17, S20, S35: its check is gone before it is given up. Whoever has it go on gets it back, and no brake holds that up."""
    refusal = PermitAnswer(decision=PermitDecision.REFUSED, reason="NodeHealthCheck/workers is in short circuit")
    world = World(plan=plan(terminate_instance=True, power_on=False), answers=[refusal] * 50)
    async with fencing(env, world, at="off") as run:
        world.excused = True
        assert "given up" in (await run.parked()).problem
        await run.resume("we keep it")
        result = await run.result()
    assert (result.outcome, world.count("on"), world.count("terminate")) == (Outcome.RECOVERED, 1, 0)


async def test_a_word_that_was_given_before_the_cut_gives_no_path_back(env: WorkflowEnvironment) -> None:
    """S1: what counts is a word about this path, after its pods were freed."""
    world = World(plan=fabric_only(tries=1, restarts=0), silent={PORT.endpoint})
    async with fencing(env, world) as run:
        await run.parked()
        world.silent.clear()
        await run.resume("the switch answers again")
        await run.did("free-cut-pods")
        await run.sees(ready=True)
        assert "left cut" in (await run.parked()).problem
    assert world.count("restore-path") == 0


async def test_a_restart_made_by_hand_gives_the_path_back_without_a_word(env: WorkflowEnvironment) -> None:
    world = World(plan=fabric_only())
    async with fencing(env, world) as run:
        await run.did("free-cut-pods")
        await run.sees(ready=True)
        await run.parked()
        await run.sees(boot_id="boot-2", ready_since=None)
        await run.result(Outcome.RECOVERED)
    assert world.count("restore-path") == 1


async def test_an_abort_during_a_hold_terminates_nothing(env: WorkflowEnvironment) -> None:
    """S20, S35: the wait ends, and what it waited for is not done."""
    world = World(plan=plan(terminate_instance=True))
    async with fencing(env, world, at="taint") as run:
        await run.hold("we look first")
        run.go_on()
        await run.until(lambda status: status.doing.startswith("held by"))
        await run.abort()
        result = await run.result()
    assert (result.outcome, world.count("terminate")) == (Outcome.ABORTED, 0)


async def test_an_abort_during_a_hold_switches_nothing_on(env: WorkflowEnvironment) -> None:
    """S35."""
    world = World()
    async with fencing(env, world, at="taint") as run:
        await run.hold("we look first")
        run.go_on()
        await run.until(lambda status: status.doing.startswith("held by"))
        await run.abort()
        result = await run.result()
    assert (result.outcome, result.left_off, world.count("on")) == (Outcome.ABORTED, True, 0)


async def test_a_slow_detachment_is_waited_for_by_the_next_try(env: WorkflowEnvironment) -> None:
    """S3: what is under way is neither detached nor forgotten."""
    world = World(plan=volumes_only(tries=3), volumes={"vol-1": VolumeState.ATTACHED}, after_detaching=VolumeState.UNKNOWN)
    async with fencing(env, world) as run:
        await run.until(lambda status: status.try_number == 2)
        world.volumes["vol-1"] = VolumeState.AVAILABLE
        await run.did("free-cut-pods")
    assert world.storage == CutStorage(handles=("vol-1",))
    assert world.count("detach vol-1") == 1


async def test_another_machine_under_the_name_gives_no_path_back(env: WorkflowEnvironment) -> None:
    """S1: pods were freed behind the cut; the old machine still runs. Its replacement is no restart of it."""
    world = World(plan=fabric_only())
    async with fencing(env, world) as run:
        await run.did("free-cut-pods")
        await run.sees(ready=True)
        await run.parked()
        real = world.observation

        def replaced() -> Observation:
            return replace(real(), uid="uid-new", boot_id="boot-of-another", provider_id="", system_uuid="sys-99")

        world.observation = replaced  # type: ignore[method-assign,assignment]
        await run.sees(word=True)
        await let_pass(env, run.handle, timedelta(hours=1))
        assert world.count("restore-path") == 0


@pytest.mark.parametrize("ahead", [timedelta(minutes=-2), timedelta(0), timedelta(minutes=2)], ids=["behind", "right", "ahead"])
async def test_a_message_from_before_the_node_fell_silent_is_no_word_of_this_crash(
    env: WorkflowEnvironment, ahead: timedelta
) -> None:
    """S1, S6: a listener's clock that is ahead makes no old message a new one, and none that is behind does the reverse."""
    old, new = (World(plan=plan(kdump=TRUSTED), kdump=each, ahead=ahead) for each in (timedelta(seconds=2), timedelta(minutes=1)))
    old.heard_ago = timedelta(seconds=6)
    for world in (old, new):
        async with fencing(env, world) as run:
            await run.result(Outcome.RECOVERED)
    assert old.count("free-while-dumping") == 0
    assert new.count("free-while-dumping") == 1


async def test_volumes_that_were_detached_before_a_person_was_asked_are_freed_after_his_word(env: WorkflowEnvironment) -> None:
    """S35: a machine without its volumes is not one that nothing was done to; it is not looked up anew."""
    world = World(
        plan=plan(levels=((INSTANCE,),), isolation=(DETACH, FREE), tries=1, restarts=0),
        volumes={"vol-1": VolumeState.ATTACHED},
    )
    async with fencing(env, world, at="event VolumesDetached") as run:
        world.volumes["vol-1"] = VolumeState.UNKNOWN
        assert "not proven detached" in (await run.parked()).problem
        world.volumes["vol-1"] = VolumeState.AVAILABLE
        await run.resume("the cloud answers again")
        await run.result(Outcome.RECOVERED)
    assert world.count("free-cut-pods") == 1
    assert world.storage == CutStorage(handles=("vol-1",))


async def test_what_is_left_behind_the_cut_is_freed_under_an_abort_that_asks_for_power_on(env: WorkflowEnvironment) -> None:
    """S35: what was begun is finished before the machine is switched on, and nothing goes round without a pause meanwhile."""
    chosen = Chosen(handles=("vol-1",), volumes=("pv-1",))
    later = replace(FREE, only=chosen)
    world = World(plan=bare_metal(isolation=(CORDON, FC_OFF_SAN, later)), ready=True, lingers=1)
    world.need = Need(kind=NeedKind.PERSON, reason="drill")
    async with fencing(env, world, at="event NodePoweredOff") as run:
        await run.abort(power_on=True)
        await run.result(Outcome.ABORTED)
    assert world.count("free-cut-pods") == 1
    assert world.count("read-path") < 10
    assert "event WorkloadsLeft" not in world.acts
    assert world.count("on") == 1
