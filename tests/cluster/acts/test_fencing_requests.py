"""An episode that another system's object asked for: its plan, its last looks, its lease, and what it writes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.targets import ClusterTarget
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.target import AnswerRequest, Configured, LookResult, LookVerdict, PinRequest, PinResult
from activities.errors import ErrorType
from policy.checks.fence_policies import DEFAULT_SOURCE, PolicySource
from policy.episode.fencing_requests import RequestAnswer, Stage
from policy.episode.gate import Operation
from policy.episode.messages import FencingInput, Need, NeedKind
from simulator.api.control.faults import Accident, Fault
from simulator.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from tests.cluster.acts.world import CLUSTER, INCIDENT, NODE, TEMPLATE_NAMESPACE, TEMPLATES, World, refused
from tests.cluster.fencing_requests import (
    NAMESPACE,
    OBEYED,
    REMEDIATIONS,
    conditions_of,
    reference,
    remediation,
    request_definition,
)
from tests.licensing import LICENCES

REF = reference(NODE)
PATH = f"{REMEDIATIONS}/{NODE}"
OPERATOR = "NodeHealthCheck-workers"
FINALIZER = "fence-agents-remediation.medik8s.io/far-finalizer"
TIMED_OUT = {"metadata": {"annotations": {"remediation.medik8s.io/nhc-timed-out": "2026-11-21T12:00:00Z"}}}


@pytest.fixture
async def asked(world: World) -> World:
    """Its operator has asked for the sick node, and holds the node's lease meanwhile."""
    await world.others.create(NAMESPACES.path(), {"metadata": {"name": NAMESPACE}})
    await world.others.create(CUSTOM_RESOURCE_DEFINITIONS.path(), request_definition())
    await world.others.create(REMEDIATIONS, remediation(NODE))
    await world.hold_cluster_lease()
    await world.hold_node_lease(OPERATOR)
    await world.install_kinds()
    await world.add_template()
    obeying(world, OBEYED)
    world.server.requests.reset()
    return world


def obeying(world: World, source: PolicySource) -> None:
    """Settings of the worker."""
    served = ServedCluster(CLUSTER, world.connection, clock=world.clock, source=source)
    world.target = ClusterTarget(served, world.permits, LICENCES)


async def need(world: World) -> Need:
    uid = (await world.others.get(PATH))["metadata"]["uid"]
    return Need(kind=NeedKind.FOREIGN_OBJECT, reason="asked for", check=REF, object_uid=uid, delegate=OPERATOR)


async def pin(world: World, why: Need) -> PinResult:
    asked_for = FencingInput(cluster=CLUSTER, node=NODE, incident=INCIDENT, need=why)
    result: PinResult = await ActivityEnvironment().run(world.target.pin, PinRequest(wanted=asked_for))
    return result


async def look(world: World, why: Need, **fields: Any) -> LookResult:
    return await world.target.last_look(await world.look(need=why, **fields))


async def answer(world: World, why: Need, stage: Stage) -> str:
    word = RequestAnswer(about=REF, uid=why.object_uid, stage=stage, message=f"as a test has it: {stage}")
    return (await world.target.answer_request(AnswerRequest(target=await world.pinned(), answer=word))).withdrawn


# The plan ---------------------------------------------------------------------------------------------------------------


async def test_the_plan_is_the_objects_and_the_device_is_the_operators_own(asked: World) -> None:
    """S46: with its own parameters and Secret; of what the object says of a device nothing is spoken to."""
    result = await pin(asked, await need(asked))
    assert (result.plan.source, result.plan.tries) == (f"FenceAgentsRemediation/{NAMESPACE}/{NODE}", 5)
    assert result.pinned.endpoints == ("ipmi://10.0.0.7:623",)
    [device] = result.plan.devices
    assert [(each.namespace, each.name) for each in device.credentials] == [("nodewarden", "bmc-credentials")]
    assert "lanplus" not in device.parameters
    assert result.need.kind is NeedKind.FOREIGN_OBJECT


async def test_a_device_that_the_operator_has_not_configured_for_the_node_proves_nothing(asked: World) -> None:
    """S46, S2, S10: anybody's device may say that it is off. Nothing is pinned, marked or cordoned."""
    why = await need(asked)
    await asked.others.patch(PATH, {"spec": {"nodeparameters": {"--ip": {NODE: "203.0.113.66"}}}})
    words = "fence_ipmilan://203.0.113.66:623 is not the node's device by FencingTemplate/nodewarden/blades, which names ipmi"
    with refused(ErrorType.INVALID_CONFIG, words):
        await pin(asked, why)
    assert asked.writes == 0


async def test_a_device_that_the_object_names_later_frees_nothing(asked: World) -> None:
    """S46, S9: what is pinned is compared with what is configured and asked for at every look."""
    why = await need(asked)
    pinned = await asked.pinned(pinned=(await pin(asked, why)).pinned)
    configured = Configured(template=None)
    assert (await look(asked, why, target=pinned, configured=configured)).verdict is LookVerdict.GO
    await asked.others.patch(PATH, {"spec": {"nodeparameters": {"--ip": {NODE: "203.0.113.66"}}}})
    result = await look(asked, why, target=pinned, configured=configured)
    assert result.verdict is LookVerdict.NOT_LICENSED, result.reason
    assert "is not the node's device" in result.reason


async def test_a_node_with_two_supplies_is_off_when_both_are_whichever_the_object_names(asked: World) -> None:
    """S46, S4."""
    path = TEMPLATES.path("blades", namespace=TEMPLATE_NAMESPACE)
    second = {"driver": "ipmi", "nodeParameters": {NODE: {"ip": "10.0.1.7"}}, "secretRef": {"name": "bmc-credentials"}}
    power = (await asked.others.get(path))["spec"]["template"]["spec"]["power"]
    await asked.others.patch(path, {"spec": {"template": {"spec": {"power": [*power, second]}}}})
    result = await pin(asked, await need(asked))
    assert result.pinned.levels == (("ipmi://10.0.0.7:623", "ipmi://10.0.1.7:623"),)


async def test_an_object_of_a_namespace_that_no_setting_names_is_obeyed_nowhere(asked: World) -> None:
    """S46: whoever starts a workflow may name a tenant's object, and settings may change while an episode is open."""
    why, target = await need(asked), await asked.pinned()
    obeying(asked, DEFAULT_SOURCE)
    words = "requests count in no namespace (setting request_namespaces)"
    with refused(ErrorType.INVALID_CONFIG, words):
        await pin(asked, why)
    result = await look(asked, why, target=target)
    assert (result.verdict, words in result.reason) == (LookVerdict.NOT_LICENSED, True), result.reason
    assert asked.writes == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (TIMED_OUT, "has timed out"),
        ({"spec": {"retrycount": 0}}, "spec.retrycount"),
        ({"spec": {"nodeparameters": {"--ip": {NODE: None, "node-8": "10.0.0.8"}}}}, "expected a value for node node-7"),
    ],
)
async def test_an_object_that_has_changed_since_it_was_seen_begins_nothing(
    asked: World, change: dict[str, Any], words: str
) -> None:
    """S20, A05, A06: the plan is read live."""
    why = await need(asked)
    await asked.others.patch(PATH, change)
    with refused(ErrorType.INVALID_CONFIG, words):
        await pin(asked, why)


async def test_the_object_itself_says_which_lease_does_not_count(asked: World) -> None:
    """S20: whoever starts a workflow may name an object that is there, and somebody who services the node."""
    named = replace(await need(asked), delegate="somebody's maintenance")
    assert (await pin(asked, named)).need.delegate == OPERATOR


async def test_an_object_that_asks_for_another_node_is_no_need_of_this_one(asked: World) -> None:
    """S9, S41."""
    await asked.others.create(REMEDIATIONS, remediation("node-8"))
    other = replace(await need(asked), check=replace(REF, name="node-8"), object_uid="")
    with refused(ErrorType.INVALID_CONFIG, "asks for node node-8, not for node-7"):
        await pin(asked, other)


async def test_an_object_that_has_its_answer_begins_nothing(asked: World) -> None:
    """S33: a scan may not have seen the answer yet; the node would go down a second time."""
    why = await need(asked)
    assert await answer(asked, why, Stage.FINISHED) == ""
    with refused(ErrorType.INVALID_CONFIG, "Succeeded is True"):
        await pin(asked, why)


async def test_another_object_of_that_name_is_another_need(asked: World) -> None:
    """S9 of the one who asks."""
    why = await need(asked)
    await asked.others.delete(PATH)
    await asked.others.create(REMEDIATIONS, remediation(NODE))
    with refused(ErrorType.INVALID_CONFIG, "was deleted"):
        await pin(asked, why)
    assert (await look(asked, why)).verdict is LookVerdict.NEED_GONE
    assert await answer(asked, why, Stage.FAILED) == f"{REF.key} is another object now"
    assert conditions_of(await asked.others.get(PATH)) == {}


# The last look ------------------------------------------------------------------------------------------------------------


async def test_go_while_it_asks_and_its_operators_lease_is_no_veto(asked: World) -> None:
    """S20: whoever asks us and holds the node's lease for it has delegated it; before off and before on."""
    why = await need(asked)
    assert (await look(asked, why)).verdict is LookVerdict.GO
    assert (await look(asked, why, operation=Operation.GIVE_BACK)).verdict is LookVerdict.GO
    assert asked.writes == 0
    stranger = replace(why, delegate="NodeHealthCheck-others")
    assert (await look(asked, stranger)).verdict is LookVerdict.VETOED


async def _going(world: World) -> None:
    await world.others.patch(PATH, {"metadata": {"finalizers": ["example.com/slow"]}})
    await world.others.delete(PATH)


async def _unreadable(world: World) -> None:
    world.server.faults.add(Fault(accident=Accident.STATUS, status=403, path="fenceagentsremediations"))


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        (lambda world: world.others.delete(PATH), LookVerdict.NEED_GONE, "was deleted"),
        (_going, LookVerdict.NEED_GONE, "is being deleted"),
        (lambda world: world.others.patch(PATH, TIMED_OUT), LookVerdict.NEED_GONE, "nhc-timed-out"),
        (  # it comes back from an upgrade and begins by itself, with an agent of its own
            lambda world: world.others.patch(PATH, {"metadata": {"finalizers": [FINALIZER]}}),
            LookVerdict.VETOED,
            "in the hands of",
        ),
        (_unreadable, LookVerdict.NOT_LICENSED, "what asks for it could not be read"),
    ],
    ids=["deleted", "a finalizer keeps it", "its operator tries something else", "its controller takes it up", "S20 unread"],
)
async def test_what_becomes_of_what_asks_is_seen_live(
    asked: World, change: Callable[[World], Awaitable[Any]], verdict: LookVerdict, words: str
) -> None:
    why, target = await need(asked), await asked.pinned()
    await change(asked)
    result = await look(asked, why, target=target)
    assert (result.verdict, words in result.reason) == (verdict, True), result.reason
    if verdict is LookVerdict.NEED_GONE:
        assert words in await answer(asked, why, Stage.FAILED), "whoever answers is told so"


# The answers ----------------------------------------------------------------------------------------------------------------


async def test_conditions_of_others_stay(asked: World) -> None:
    theirs = {"type": "Theirs", "status": "True", "reason": "X", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    await asked.others.patch(f"{PATH}/status", {"status": {"conditions": [theirs]}})
    await answer(asked, await need(asked), Stage.STARTED)
    assert (await asked.others.get(PATH))["status"]["conditions"][0] == theirs
