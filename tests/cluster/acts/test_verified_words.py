"""Where only verified words are heard, a cluster worker acts on none that none of its kind has verified (S42).

The word comes by a workflow, which knows no keys, from an activity that anybody may have answered who polls the queue.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.freeing import ClusterFreeing
from activities.cluster.acts.targets import ClusterTarget
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.target import LookRequest, LookVerdict
from activities.errors import ErrorType
from activities.keyring import Keyring
from activities.licences import Licences
from policy.episode.gate import Operation
from policy.episode.messages import OffProof
from policy.episode.needs import Need, NeedKind
from policy.episode.words import SealedWord, Spoken, Verb
from tests.cluster.acts.world import CLUSTER, INCIDENT, NODE, World, refused, word
from tests.licensing import LICENCES

REASON = "smells burnt"
STRANGER = Licences(Keyring([b"a key that somebody else has made up himself"]))


def said(verb: Verb, *, by: Licences = LICENCES, incident: str = INCIDENT) -> SealedWord:
    """As it is answered to a workflow."""
    spoken = Spoken(action=verb, node=NODE, reason=REASON)
    unsealed = SealedWord(spoken=spoken, action="u-1", speaker="ada")
    return ActivityEnvironment().run(lambda: by.sealed_word(CLUSTER, incident, unsealed))


def forgeries(verb: Verb) -> list[SealedWord | None]:
    return [None, said(verb, by=STRANGER), said(verb, incident="incident-0"), said(Verb.HOLD)]


def wish(found: SealedWord | None) -> Need:
    return Need(kind=NeedKind.PERSON, reason=REASON, requester="ada", word=found)


async def verdict(world: World, request: LookRequest) -> LookVerdict:
    target = ClusterTarget(
        ServedCluster(CLUSTER, world.connection, clock=world.clock), world.permits, LICENCES, verified_words=True
    )
    return (await ActivityEnvironment().run(target.last_look, request)).verdict


@pytest.mark.parametrize("verb", [Verb.FENCE, Verb.REMEDIATE])
async def test_a_last_look_takes_no_wish_for_a_persons_that_nobody_has_verified(world: World, verb: Verb) -> None:
    """What is given back, or only observed, needs no word of anybody."""
    await world.hold_cluster_lease()
    assert await verdict(world, await world.look(need=wish(said(verb)))) is LookVerdict.GO
    for forged in forgeries(verb):
        need = wish(forged)
        assert await verdict(world, await world.look(need=need)) is LookVerdict.NOT_LICENSED
        assert await verdict(world, await world.look(need=need, operation=Operation.GIVE_BACK)) is LookVerdict.GO


def acknowledged(found: SealedWord | None) -> OffProof:
    proof = word()
    assert proof.acknowledgement is not None
    return replace(proof, acknowledgement=replace(proof.acknowledgement, sealed=found))


@pytest.mark.parametrize("act", ["taint_out_of_service", "delete_workload", "delete_node"])
async def test_nor_is_a_word_for_off_a_proof(world: World, act: str) -> None:
    await world.hold_cluster_lease()
    await world.mark_as_ours(cordoned=True)
    await world.add_pod("db-0")
    looks: ClusterTarget = world.target
    freeing = ClusterFreeing(
        ServedCluster(CLUSTER, world.connection, own_node="node-1", clock=world.clock),
        looks.last_look,
        LICENCES,
        verified_words=True,
    )
    for forged in forgeries(Verb.ACK_OFF):
        with refused(ErrorType.NOT_PROVEN, "is not proven off"):
            await ActivityEnvironment().run(getattr(freeing, act), await world.free(proof=acknowledged(forged)))
        assert (await world.pods(), world.writes) == (["db-0"], 0)
    await ActivityEnvironment().run(getattr(freeing, act), await world.free(proof=acknowledged(said(Verb.ACK_OFF))))
    assert world.writes > 0
