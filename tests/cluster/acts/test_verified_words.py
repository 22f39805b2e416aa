"""Where only verified commands are accepted, a cluster worker acts on none that none of its kind has verified (S42).

The word comes by a workflow, which knows no keys, from an activity that anybody may have answered who polls the queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.freeing import ClusterFreeing
from activities.cluster.acts.isolation import ClusterIsolation
from activities.cluster.acts.targets import ClusterTarget
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.target import DrainRequest, LookRequest, LookVerdict
from activities.errors import ErrorType
from activities.keyring import Keyring
from activities.licences import FIRST_RUN, Licences
from policy.episode.drain import DrainOptions
from policy.episode.gate import Operation
from policy.episode.messages import Need, NeedKind, OffProof
from policy.episode.modes import ClusterModes
from policy.episode.node_action import CIRCUIT_BREAKER, NodeActionSpec, SealedCommand, Verb
from policy.values.mode import Mode
from policy.values.times import moment_of
from simulator.resources import PODS
from tests.cluster.acts.world import CLUSTER, HOLDER, INCIDENT, NODE, NOW, World, refused, word
from tests.licensing import LICENCES

REASON = "smells burnt"
STRANGER = Licences(Keyring([b"a key that somebody else has made up himself"]))


BOOT = "boot-1"


def _said(
    uid: str,
    verb: Verb,
    *,
    by: Licences = LICENCES,
    incident: str = INCIDENT,
    override: str = "",
    node: str = NODE,
    boot: str = BOOT,
    ready_since: datetime | None,
) -> SealedCommand:
    """As it is answered to a workflow. uid, boot: of the Node when it was verified."""
    spec = NodeActionSpec(action=verb, node=node, reason=REASON, override=override)
    unsealed = SealedCommand(spec=spec, action="u-1", speaker="ada", node_uid=uid, boot_id=boot, ready_since=ready_since)
    return ActivityEnvironment().run(lambda: by.seal_command(CLUSTER, incident, unsealed))


Said = Callable[..., SealedCommand]


async def words_of(world: World) -> Said:
    """Of the Node that is there now."""
    node = await world.node()
    since = moment_of(node["status"]["conditions"][0]["lastTransitionTime"])
    return partial(_said, node["metadata"]["uid"], ready_since=since)


def forgeries(said: Said, verb: Verb) -> list[SealedCommand | None]:
    return [None, said(verb, by=STRANGER), said(verb, incident="incident-0"), said(Verb.HOLD)]


def wish(found: SealedCommand | None) -> Need:
    return Need(kind=NeedKind.PERSON, reason=REASON, requester="ada", command=found)


async def verdict(world: World, request: LookRequest) -> LookVerdict:
    served = ServedCluster(CLUSTER, world.connection, clock=world.clock, only_verified=True)
    target = ClusterTarget(served, world.permits, LICENCES)
    return (await ActivityEnvironment().run(target.last_look, request)).verdict


@pytest.mark.parametrize("verb", [Verb.FENCE, Verb.REMEDIATE])
async def test_a_last_look_takes_no_unverified_wish_for_a_persons(world: World, verb: Verb) -> None:
    """What is given back, or only observed, needs no word of anybody."""
    await world.hold_cluster_lease()
    said = await words_of(world)
    assert await verdict(world, await world.look(need=wish(said(verb)))) is LookVerdict.GO
    for forged in forgeries(said, verb):
        need = wish(forged)
        assert await verdict(world, await world.look(need=need)) is LookVerdict.NOT_LICENSED
        assert await verdict(world, await world.look(need=need, operation=Operation.GIVE_BACK)) is LookVerdict.GO


async def test_s49_a_word_counts_in_the_chain_of_runs_that_it_was_said_to_alone(world: World) -> None:
    """Its episode has ended, and a stranger begins a workflow of the same id with the word from its history."""
    await world.hold_cluster_lease()
    FIRST_RUN.set("the episode's")
    said = (await words_of(world))(Verb.FENCE)
    assert await verdict(world, await world.look(need=wish(said))) is LookVerdict.GO
    FIRST_RUN.set("the stranger's")
    assert await verdict(world, await world.look(need=wish(said))) is LookVerdict.NOT_LICENSED


def acknowledged(found: SealedCommand | None) -> OffProof:
    proof = word()
    assert proof.acknowledgement is not None
    return replace(proof, acknowledgement=replace(proof.acknowledgement, sealed=found))


def only_verified(world: World) -> ClusterFreeing:
    served = ServedCluster(CLUSTER, world.connection, own_node="node-1", clock=world.clock, only_verified=True)
    return ClusterFreeing(served, world.target.last_look, LICENCES)


@pytest.mark.parametrize("act", ["taint_out_of_service", "delete_workload", "delete_node"])
async def test_nor_is_a_word_for_off_a_proof(world: World, act: str) -> None:
    await world.hold_cluster_lease()
    await world.mark_as_ours(cordoned=True)
    await world.add_pod("db-0")
    said, freeing = await words_of(world), only_verified(world)
    for forged in forgeries(said, Verb.ACK_OFF):
        with refused(ErrorType.NOT_PROVEN, "is not proven off"):
            await ActivityEnvironment().run(getattr(freeing, act), await world.free(proof=acknowledged(forged)))
        assert (await world.pods(), world.writes) == (["db-0"], 0)
    await ActivityEnvironment().run(getattr(freeing, act), await world.free(proof=acknowledged(said(Verb.ACK_OFF))))
    assert world.writes > 0


OVERRIDE: dict[str, str] = {"override": CIRCUIT_BREAKER}


def tampered(said: Said) -> SealedCommand:
    """A word that was verified, to which somebody has added that it overrides the circuit breaker."""
    plain = said(Verb.FENCE)
    return replace(plain, spec=replace(plain.spec, override=CIRCUIT_BREAKER))


@pytest.mark.parametrize("only_verified", [True, False])
@pytest.mark.parametrize("verb", [Verb.FENCE, Verb.REMEDIATE, Verb.ACK_OFF])
async def test_a_permit_past_a_circuit_breaker_licenses_nothing_without_the_sealed_override(
    world: World, verb: Verb, only_verified: bool
) -> None:
    """S17, S42: also where a person's wish need not be verified, and before an eviction."""
    await world.hold_cluster_lease()
    await world.mark_as_ours(cordoned=True, boot_id=BOOT)
    world.permits.overridden = True
    served = ServedCluster(CLUSTER, world.connection, clock=world.clock, only_verified=only_verified)
    target = ClusterTarget(served, world.permits, LICENCES)
    said = await words_of(world)
    look = await world.look(need=wish(said(Verb.FENCE)))

    async def verdicts(override: SealedCommand | None) -> tuple[LookVerdict, str]:
        about, until = replace(look.target, override=override), world.now + timedelta(seconds=10)
        result = await ActivityEnvironment().run(target.last_look, replace(look, target=about))
        request = DrainRequest(target=about, options=DrainOptions(force=True), not_after=until, holder=HOLDER, need=look.need)
        try:
            await ActivityEnvironment().run(world.isolation.drain, request)
        except ApplicationError as error:
            return result.verdict, error.message.rpartition(": ")[2]
        return result.verdict, ""

    assert await verdicts(said(verb, **OVERRIDE)) == (LookVerdict.GO, "")
    forged = [None, said(verb), tampered(said), said(Verb.HOLD, **OVERRIDE), said(verb, **OVERRIDE, node="node-9")]
    forged += [said(verb, by=STRANGER, **OVERRIDE), said(verb, incident="incident-0", **OVERRIDE)]
    for each in forged:
        assert await verdicts(each) == (LookVerdict.NOT_LICENSED, "no NodeAction attests that a person overrides it"), each
    await world.set_ready("Unknown", boot_id="boot-2")  # a word for off of a boot that is over overrides nothing either
    over = (LookVerdict.NOT_LICENSED, "no NodeAction attests that a person overrides it")
    assert await verdicts(said(verb, **OVERRIDE)) == (over if verb is Verb.ACK_OFF else (LookVerdict.GO, ""))


@pytest.mark.parametrize("anew", [False, True])
async def test_s52_past_its_mode_a_node_is_drained_for_the_boot_of_the_persons_word_alone(world: World, *, anew: bool) -> None:
    """S42: the node has started again between two rows, which no look comes before."""
    await world.hold_cluster_lease()
    await world.set_ready("True")
    await world.mark_as_ours(boot_id=BOOT)
    for number in range(12):
        await world.add_pod(f"web-{number:02}")
    world.permits.set = ClusterModes(setting=Mode.OBSERVE)
    if anew:
        world.connection.before_writes.append(lambda: world.set_ready("True", boot_id="boot-2"))
    served = ServedCluster(CLUSTER, world.connection, clock=world.clock, only_verified=True)
    look = ClusterTarget(served, world.permits, LICENCES).last_look
    isolation = ClusterIsolation(served, look, world.permits, LICENCES)
    until, need = world.now + timedelta(seconds=10), wish((await words_of(world))(Verb.REMEDIATE))
    options = DrainOptions(force=True)
    request = DrainRequest(target=await world.pinned(), options=options, not_after=until, holder=HOLDER, need=need)
    drained = ActivityEnvironment().run(isolation.drain, request)
    if not anew:
        assert (await drained).evicted == 12
        return
    with refused(ErrorType.VETOED, "its mode is observe"):
        await drained
    pods = (await world.others.get(PODS.path(namespace="default")))["items"]
    assert sum("deletionTimestamp" not in each["metadata"] for each in pods) == 2


@pytest.mark.parametrize("marked", [False, True])
async def test_s42_a_persons_wish_is_used_up_with_the_repair_that_it_was_for(world: World, marked: bool) -> None:
    """It fails again days later, is silent, and a workflow of the same id and incident brings the old word: it has to mark the
    node anew, and does so in another boot than the word's."""
    await world.hold_cluster_lease()
    need = wish((await words_of(world))(Verb.FENCE))
    await world.set_ready("Unknown", boot_id="boot-2")
    look = await world.look(need=need)
    if marked:
        await ActivityEnvironment().run(world.target.mark, await world.act())
    assert await verdict(world, look) is LookVerdict.NEED_GONE


# A word is of one boot of one Node ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("anew", ["another boot", "another Node", "a kubelet that has reported"])
async def test_s8_a_sealed_word_for_off_frees_nothing_of_another_boot(world: World, anew: str) -> None:
    """S6, S49: it is found in a history, and its caller pins what is there now. The machine runs again, and need not be Ready:
    a kubelet that has reported and is silent again runs, too, with the same boot."""
    await world.hold_cluster_lease()
    found = (await words_of(world))(Verb.ACK_OFF)
    if anew == "another boot":
        await world.set_ready("Unknown", boot_id="boot-2")
    elif anew == "another Node":
        await world.recreate_node()
    else:
        await world.set_ready("Unknown", since=NOW + timedelta(minutes=1))
    await world.mark_as_ours(cordoned=True)
    await world.add_pod("db-0")
    boot = "as it was with boot boot-1; it has started again since (boot boot-2), and is not Ready: look at it, and say it again"
    why = {"another boot": boot, "another Node": "when the Node's uid was"}.get(anew, "and its kubelet has reported, or")
    for act in ("taint_out_of_service", "delete_workload", "delete_node"):
        with refused(ErrorType.NOT_PROVEN, f"ada has said ack-off of node-7{', ' if why.startswith('and') else ' '}{why}"):
            await ActivityEnvironment().run(getattr(only_verified(world), act), await world.free(proof=acknowledged(found)))
    assert (await world.pods(), world.writes) == (["db-0"], 0)


@pytest.mark.parametrize("verified", [True, False])
async def test_s8_a_word_for_off_frees_nothing_of_a_node_whose_kubelet_reports(world: World, verified: bool) -> None:
    """S6: that it is not Ready says that it runs; its pods may do so, too. Also where words are not verified."""
    await world.hold_cluster_lease()
    await world.set_ready("False")
    found = (await words_of(world))(Verb.ACK_OFF)
    await world.mark_as_ours(cordoned=True)
    await world.add_pod("db-0")
    freeing = only_verified(world) if verified else world.freeing
    with refused(ErrorType.NOT_PROVEN, "has reported Ready=False"):
        await ActivityEnvironment().run(freeing.delete_workload, await world.free(proof=acknowledged(found)))
    assert await world.pods() == ["db-0"]


@pytest.mark.parametrize("verb", [Verb.FENCE, Verb.REMEDIATE])
async def test_s42_a_persons_wish_outlives_a_restart_until_the_node_is_ready_again(world: World, verb: Verb) -> None:
    """A step of the repair may have restarted it and have changed nothing. Of one that is back, it is a word of a former boot."""
    await world.hold_cluster_lease()
    need = wish((await words_of(world))(verb))
    await world.mark_as_ours(boot_id=BOOT)
    for ready, expected in (("Unknown", LookVerdict.GO), ("False", LookVerdict.GO), ("True", LookVerdict.NEED_GONE)):
        await world.set_ready(ready, boot_id="boot-2")
        assert await verdict(world, await world.look(need=need)) is expected
    await world.recreate_node()
    assert await verdict(world, await world.look(need=need)) is LookVerdict.NEED_GONE
