"""Who has spoken is what Kubernetes attests, or it is shown as not verified; where it has to be, the worker sees to it (S42).

The attacker reaches Temporal, and may make NodeActions: in nobody's name but his own.

On a real API server also that the server itself refuses another one's name and what its authorizer does not let him do, and the
command line from end to end. The simulated one enforces the policy in whole systems.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.cluster.acts.node_actions import ClusterAttestation
from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.served_cluster import ServedCluster
from activities.contracts.attestation import Verification, VerifyRequest
from activities.contracts.target import Target
from policy.episode.messages import FencingInput, Kind, Need, NeedKind, Outcome, Phase, Pinned, PreservationInput
from policy.episode.node_action import (
    ANSWERS,
    CIRCUIT_BREAKER,
    DEVICE_READS_ON,
    GROUP,
    NAMESPACE,
    NODE_ACTION_VALID_FOR,
    PLURAL,
    POLICY,
    SENT_LABEL,
    SETTLED,
    ActionName,
    NodeActionSpec,
    SealedCommand,
    Verb,
    bare_name,
    doubt,
)
from simulator.client import ApiAddress, ApiClient, ApiError
from simulator.resources import NODES
from starter.client import Nodewarden
from starter.errors import RefusedError
from tests.cel import CelPython
from tests.documents import path_of
from tests.licensing import LICENCES
from tests.node_actions import ACTIONS, LONG_AGO, Object, api_with_actions, made, shipped
from tests.system.fixtures import Standing
from tests.system.harness import SERVICE_ACCOUNTS, System
from tests.system.questions import in_phase
from tests.system.real_api import assets
from tests.system.test_api_restarts import under_shipped_rights
from workflows.kit.messages import PersonRequest

NODE, REASON = "node-2", "a drill"
USE = "test test-run one incident-1"


RULE = shipped("ValidatingAdmissionPolicy")["spec"]["matchConstraints"]["resourceRules"][0]
VALIDATIONS = shipped("ValidatingAdmissionPolicy")["spec"]["validations"]


def test_the_shipped_policy_is_believed_and_no_earlier_word() -> None:
    policy, binding = shipped("ValidatingAdmissionPolicy"), shipped("ValidatingAdmissionPolicyBinding")
    since = datetime.fromisoformat(LONG_AGO)
    assert doubt(policy, binding, since + SETTLED) == ""
    assert "before" in doubt(policy, binding, since + SETTLED - timedelta(seconds=1))
    assert "has no ValidatingAdmissionPolicy" in doubt(None, binding, since + SETTLED)
    assert "has no ValidatingAdmissionPolicy" in doubt(policy, None, since + SETTLED)


@pytest.mark.parametrize(
    ("of_policy", "of_binding"),
    [
        ({"failurePolicy": "Ignore"}, {}),
        ({"matchConditions": [{"name": "never", "expression": "false"}]}, {}),
        ({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}, {}),
        ({"matchConstraints": {"resourceRules": [RULE | {"operations": ["UPDATE"]}]}}, {}),
        ({"matchConstraints": {"resourceRules": [RULE | {"resourceNames": ["a"]}]}}, {}),
        ({"matchConstraints": {"resourceRules": [RULE], "excludeResourceRules": [RULE]}}, {}),
        ({"matchConstraints": {"resourceRules": [RULE], "objectSelector": {"matchLabels": {"a": "b"}}}}, {}),
        ({"validations": VALIDATIONS[1:]}, {}),
        ({"validations": VALIDATIONS[:1] + VALIDATIONS[2:]}, {}),
        ({"validations": VALIDATIONS[:2] + VALIDATIONS[3:]}, {}),
        ({"validations": VALIDATIONS[:3]}, {}),
        ({}, {"validationActions": ["Audit"]}),
        ({}, {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}),
        ({}, {"policyName": "another"}),
    ],
)
def test_a_policy_that_holds_less_than_the_shipped_one_is_not_believed(of_policy: Object, of_binding: Object) -> None:
    policy = shipped("ValidatingAdmissionPolicy", **of_policy)
    binding = shipped("ValidatingAdmissionPolicyBinding", **of_binding)
    assert "not as nodewarden ships it" in doubt(policy, binding, datetime.now(UTC))


# One worker and one object ----------------------------------------------------------------------------------------------


class Stage:
    """A cluster with one NodeAction, and a worker that is asked about it."""

    def __init__(self, person: ApiClient, connection: ClusterConnection) -> None:
        self.person = person
        self._connection = connection
        self.spec = NodeActionSpec(action=Verb.ABORT, node=NODE, reason=REASON)

    async def action(self, **spec: Any) -> ActionName:
        return await made(self.person, self.spec.to_dict("ada") | spec)

    async def verify(
        self,
        action: ActionName,
        *,
        use: str = "one",
        required: bool = True,
        later: timedelta = timedelta(0),
        incident: str = "incident-1",
        **asks: Any,
    ) -> Verification:
        """asks: of the workflow that asks."""
        environment = ActivityEnvironment()
        environment.info = replace(environment.info, **asks)
        attestation = ClusterAttestation(
            ServedCluster("prod", self._connection, clock=lambda: datetime.now(UTC) + later), LICENCES, required=required
        )
        request = VerifyRequest(cluster="prod", spec=self.spec, action=action, use=use, incident=incident)
        return await environment.run(attestation.verify, request)

    async def answer(self, action: ActionName, phase: str) -> None:
        path = ACTIONS.path(action.name, namespace=NAMESPACE, subresource="status")
        await self.person.patch(path, {"status": {"phase": phase}})

    async def status(self, action: ActionName) -> Object:
        found = await self.person.get(ACTIONS.path(action.name, namespace=NAMESPACE))
        return dict(found.get("status") or {})


@asynccontextmanager
async def acting(*, enforced: bool = True) -> AsyncIterator[Stage]:
    async with api_with_actions(enforced=enforced) as (person, connection):
        yield Stage(person, connection)


async def test_an_object_attests_its_makers_word_to_one_use_however_often_that_asks() -> None:
    """S33: an activity whose answer was lost asks again; another one, or another update, is another use. S49: so is another
    incident, another workflow and another run, whatever update its caller names."""
    async with acting() as stage:
        action = await stage.action()
        for _ in range(2):
            told = await stage.verify(action)
            assert (told.speaker, told.problem) == ("ada", "")
        assert (await stage.status(action))["usedBy"] == USE
        others = [{"use": "another"}, {"incident": "incident-2"}, {"workflow_id": "another"}, {"workflow_run_id": "another"}]
        for other in others:
            with pytest.raises(ApplicationError, match="used already"):
                await stage.verify(action, **other)


async def test_a_command_bears_a_seal_for_its_content_and_its_episode() -> None:
    """S42: whoever polls in a cluster worker's place answers what he likes; other workers know a verified word again."""
    pinned = Pinned(node=NODE, uid="uid-2")
    target = Target(cluster="prod", pinned=pinned, incident="incident-1", kind="Fencing", workflow_id="test", run_id="run-1")
    async with acting() as stage:
        sealed = (await stage.verify(await stage.action())).sealed
    assert sealed is not None

    def doubt_of(about: Target, word: SealedCommand | None, *verbs: Verb) -> str:
        return ActivityEnvironment().run(lambda: LICENCES.command_problem(about, None, word, *verbs))

    assert doubt_of(target, sealed, Verb.ABORT) == ""
    assert "no NodeAction attests" in doubt_of(target, None, Verb.ABORT)
    assert "and not ack-off" in doubt_of(target, sealed, Verb.ACK_OFF)
    assert "and not abort" in doubt_of(replace(target, pinned=replace(pinned, node="node-3")), sealed, Verb.ABORT)
    for forged in (
        replace(sealed, speaker="eve"),
        replace(sealed, spec=replace(sealed.spec, action=Verb.ACK_OFF)),
        replace(sealed, spec=replace(sealed.spec, node="node-3")),
        replace(sealed, spec=replace(sealed.spec, override=CIRCUIT_BREAKER)),
        replace(sealed, action="another"),
        replace(sealed, seal=""),
    ):
        assert "no worker of this deployment" in doubt_of(target, forged, Verb.ABORT, Verb.ACK_OFF)
    for elsewhere in (replace(target, incident="incident-2"), replace(target, cluster="another")):
        assert "no worker of this deployment" in doubt_of(elsewhere, sealed, Verb.ABORT)


async def test_s8_a_command_is_of_the_boot_that_its_node_shows_when_it_is_verified() -> None:
    """S49: of a silent node the one that it showed last. A word for off is no word of a machine that has run since it was given,
    the very danger that lies between a person's eyes and our reading."""
    async with acting() as stage:
        stage.spec = replace(stage.spec, action=Verb.ACK_OFF)
        silent = {"type": "Ready", "status": "Unknown", "lastTransitionTime": LONG_AGO}
        node = {"metadata": {"name": NODE}, "status": {"conditions": [silent], "nodeInfo": {"bootID": "boot-1"}}}
        uid = (await stage.person.create(NODES.path(), node))["metadata"]["uid"]
        sealed = (await stage.verify(await stage.action())).sealed
        assert sealed is not None
        assert (sealed.node_uid, sealed.boot_id) == (uid, "boot-1")
        action, since = await stage.action(), (datetime.now(UTC) + timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        for ready in ("True", "False"):  # a kubelet that says that it is not Ready runs as well, with its pods
            status = {"status": {"conditions": [silent | {"status": ready}]}}
            await stage.person.patch(NODES.path(NODE, subresource="status"), status)
            with pytest.raises(ApplicationError, match="and it is not off while it says so"):
                await stage.verify(action)
        for ready, said in (("True", True), ("False", True), ("Unknown", False)):
            reported = {"conditions": [silent | {"status": ready, "lastTransitionTime": since}], "nodeInfo": {"bootID": "boot-2"}}
            await stage.person.patch(NODES.path(NODE, subresource="status"), {"status": reported})
            if said:
                with pytest.raises(ApplicationError, match=f"has reported Ready={ready} at {since}, after it was said to be off"):
                    await stage.verify(action)
            else:
                assert (await stage.verify(action)).speaker == "ada"


async def test_what_was_answered_meanwhile_stays_answered() -> None:
    """S33: an object that is answered again would be carried out again."""
    async with acting() as stage:
        action = await stage.action()
        await stage.answer(action, "Done")
        await stage.verify(action)
        status = await stage.status(action)
    assert (status["phase"], status["usedBy"]) == ("Done", USE)


async def test_s44_what_a_workflow_uses_after_it_counted_as_refused_is_accepted() -> None:
    """It was sent while no worker ran, and half a minute later its object said that none had made use of it."""
    async with acting() as stage:
        action = await made(stage.person, stage.spec.to_dict("ada"), labels={SENT_LABEL: "true"})
        await stage.answer(action, "Refused")
        await stage.verify(action)
        status = await stage.status(action)
    assert (status["phase"], status["usedBy"]) == ("Accepted", USE)


@pytest.mark.parametrize(
    ("spec", "differs"),
    [
        ({"action": "hold"}, "action"),
        ({"node": "node-3"}, "node"),
        ({"reason": "another"}, "reason"),
        ({"powerOn": True}, "powerOn"),
        ({"override": CIRCUIT_BREAKER}, "override"),
    ],
)
async def test_an_object_attests_nothing_but_what_it_says(spec: Object, differs: str) -> None:
    async with acting() as stage:
        action = await stage.action(**spec)
        with pytest.raises(ApplicationError, match=f"its {differs} is another"):
            await stage.verify(action)
        assert await stage.status(action) == {}


async def test_an_object_that_overrides_nothing_attests_no_override() -> None:
    """S17, S42: the right to override was asked of no one for it."""
    async with acting() as stage:
        action = await stage.action()
        stage.spec = replace(stage.spec, override=CIRCUIT_BREAKER)
        with pytest.raises(ApplicationError, match="its override is another"):
            await stage.verify(action)


@pytest.mark.parametrize("kind", NeedKind)
def test_a_word_for_off_is_a_persons_whatever_need_is_named_beside_it(kind: NeedKind) -> None:
    """S8, S42: a Temporal client that begins a fencing as the scanner does has it vouch for nothing unattested."""
    need = Need(kind=kind, reason="Ready is Unknown")
    assert FencingInput(cluster="prod", node=NODE, need=need, seen_off=True).by_a_person
    assert FencingInput(cluster="prod", node=NODE, need=need).by_a_person is (kind is NeedKind.PERSON)


@pytest.mark.parametrize(
    "beyond", [{"keep": True}, {"keep": False, "isolate": True}, {"keep": False, "hold": timedelta(hours=1)}], ids=str
)
def test_s52_what_only_a_person_asks_of_a_preservation_is_a_persons_though_it_says_a_pool_has_room(
    beyond: dict[str, Any],
) -> None:
    """S42: it is written on the objects as a person writes it, and drained and cut off in every mode because of that."""
    assert PreservationInput(cluster="prod", node=NODE, automatic=True, **beyond).by_a_person
    assert not PreservationInput(cluster="prod", node=NODE, keep=False, automatic=True).by_a_person


async def test_nor_does_another_object_of_its_name_nor_an_old_one_nor_none() -> None:
    async with acting() as stage:
        action = await stage.action()
        with pytest.raises(ApplicationError, match="another object"):
            await stage.verify(ActionName(name=action.name, uid="of-another"))
        with pytest.raises(ApplicationError, match="too old"):
            await stage.verify(action, later=NODE_ACTION_VALID_FOR + timedelta(seconds=2))
        with pytest.raises(ApplicationError, match="there is none"):
            await stage.verify(ActionName(name="none", uid=action.uid))
        assert await stage.status(action) == {}


@dataclass(frozen=True)
class Rights:
    """The `authorizer` of CEL for a person who has those verbs on that node, and no others."""

    verbs: tuple[str, ...]
    narrowed: tuple[tuple[str, str], ...] = ()

    def asked(self, **said: str) -> Rights:
        return replace(self, narrowed=(*self.narrowed, *said.items()))

    def allowed(self) -> bool:
        of = dict(self.narrowed)
        verb = of.pop("verb")
        return of == {"group": GROUP, "resource": "nodes", "name": NODE} and verb in self.verbs


@pytest.mark.parametrize("override", [CIRCUIT_BREAKER, DEVICE_READS_ON, f"{CIRCUIT_BREAKER},{DEVICE_READS_ON}"])
@pytest.mark.parametrize("action", Verb)
def test_the_policy_wants_the_right_to_override_beside_that_of_each_action(action: Verb, override: str) -> None:
    """S8, S17: for that very node, and the one right never stands for the other."""

    def is_admitted(spec: Object, *verbs: str) -> bool:
        names = {
            "request": CelPython.value({"operation": "CREATE", "userInfo": {"username": "eve"}}),
            "object": CelPython.value({"spec": spec}),
            "oldObject": CelPython.value(None),
            "authorizer": Rights(verbs),
        }
        return all(CelPython.evaluate(each["expression"], names) for each in VALIDATIONS)

    plain = {"action": action.value, "node": NODE, "requestedBy": "eve", "reason": REASON}
    spec = plain | {"override": override}
    assert is_admitted(plain, action)
    assert [is_admitted(spec, *verbs) for verbs in ((action,), ("override",), (action, "override"))] == [False, False, True]
    assert not is_admitted(spec | {"node": "node-3"}, action, "override")
    assert not is_admitted({**spec, "requestedBy": "admin"}, action, "override")


async def test_without_the_policy_no_name_is_believed_and_where_it_is_needed_no_word_is_heard() -> None:
    async with acting(enforced=False) as stage:
        told = await stage.verify(await stage.action(), required=False)
        assert (told.speaker, POLICY in told.problem) == ("", True)
        with pytest.raises(ApplicationError, match=POLICY):
            await stage.verify(await stage.action())


# A whole system that hears verified words only --------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    """Its administrator may do everything, and is called so; other people are service accounts."""
    async with standing(nodes=4, demo_workloads=False) as running:
        await under_shipped_rights(running)
        began = asyncio.get_running_loop().time()
        await running.start_worker()
        await running.apply_policy(plan={"waitBeforePower": "10m"}, check={"minHealthy": 1})
        await running.start_scanner()
        if running.cluster.api is None:
            await asyncio.sleep(max(0.0, began + SETTLED.total_seconds() + 1 - asyncio.get_running_loop().time()))
        yield running


def said_by_admin(action: Verb, node: str, reason: str = REASON) -> Object:
    return NodeActionSpec(action=action, node=node, reason=reason, question=1 if action in ANSWERS else 0).to_dict("admin")


@pytest.mark.system
@pytest.mark.timeout(120)
async def test_an_unattested_command_is_refused_to_the_person(system: System) -> None:
    """S44. An episode that a person wants ends before it has looked at anything."""
    system.break_node(NODE, "kubelet-stops")
    await in_phase(system, NODE, Phase.RUNNING)
    unattested = Nodewarden(system.warden.client)
    episode = unattested.episode(system.cluster_name, NODE)
    for word in (episode.hold, episode.abort):
        with pytest.raises(RefusedError, match="only verified commands"):
            await word(who="root", reason=REASON)
    with pytest.raises(RefusedError, match="only verified commands"):
        await unattested.stop_scanner(system.cluster_name, who="root", reason=REASON)
    fencing = await unattested.fence(system.cluster_name, "node-3", reason=REASON, requester="root")
    preserving = await unattested.preserve(system.cluster_name, "node-4", reason=REASON, requester="root")
    for begun in (fencing, preserving):
        ended = await begun.result()
        assert (ended.outcome, "only verified commands" in ended.message, ended.record) == (Outcome.REFUSED, True, ())


@pytest.mark.system
@pytest.mark.timeout(120)
async def test_one_that_kubernetes_attests_is_heard_once(system: System) -> None:
    episode = system.warden.episode(system.cluster_name, NODE)
    handle = system.warden.client.get_workflow_handle(episode.workflow_id)
    action = await made(system.client, said_by_admin(Verb.HOLD, NODE), labels={SENT_LABEL: "true"})
    hold = PersonRequest(who="whoever", reason=REASON, action=action)
    await handle.execute_update("hold", hold)
    await in_phase(system, NODE, Phase.RUNNING, doing="held by admin, verified by Kubernetes (for whoever)")
    for update, why in (("hold", "used already"), ("resume", "its action is another")):
        with pytest.raises(Exception, match="Workflow update failed") as refused:
            await handle.execute_update(update, replace(hold, question=1) if update == "resume" else hold)
        assert why in str(refused.value.__cause__)
    resume = PersonRequest(who="", reason=REASON, action=hold.action, question=1)
    with pytest.raises(Exception, match="Workflow update failed"):
        await handle.execute_update("resume", resume)
    status = await episode.status()
    assert (status.kind, "held by admin" in status.doing) == (Kind.FENCING, True)


async def answered(system: System, action: ActionName) -> Object:
    """Its status, once it has been carried out or refused."""

    async def told() -> Object:
        found = await system.client.get(ACTIONS.path(action.name, namespace=NAMESPACE))
        return dict(found.get("status") or {})

    async def is_answered() -> bool:
        return (await told()).get("phase") in {"Done", "Refused"}

    await system.until(is_answered, f"{action.name} is answered", seconds=20)
    return await told()


@pytest.mark.system
@pytest.mark.timeout(120)
async def test_with_kubectl_alone_people_speak_and_are_answered_in_the_object(system: System) -> None:
    """In the name that Kubernetes attests, and at most once (S33); a refusal is theirs as well (S44)."""
    (resume, nobody, preserve) = [
        await made(system.client, said_by_admin(verb, node))
        for verb, node in ((Verb.RESUME, NODE), (Verb.ABORT, "node-9"), (Verb.PRESERVE, "node-4"))
    ]
    done = await answered(system, resume)
    assert (done["phase"], "goes on" in done["message"]) == ("Done", True)
    refused = await answered(system, nobody)
    assert (refused["phase"], refused["message"]) == ("Refused", "there is no open episode of node-9")
    begun = await answered(system, preserve)
    assert (begun["phase"], "Preservation of node-4 has begun" in begun["message"]) == ("Done", True)
    kept = system.warden.episode(system.cluster_name, "node-4")
    status = await in_phase(system, "node-4", Phase.RUNNING_PRESERVED)
    assert status.requester == "admin, verified by Kubernetes"
    asked = [entry.detail for entry in await kept.record() if entry.act == "request"]
    assert asked == [f"by admin, verified by Kubernetes: {REASON}"]
    record = await system.warden.episode(system.cluster_name, NODE).record()
    resumed = [entry.detail for entry in record if entry.act == "resume"]
    assert resumed == [f"by admin, verified by Kubernetes: {REASON}"]


# What the API server sees to --------------------------------------------------------------------------------------------

REAL = [
    pytest.mark.system,
    pytest.mark.timeout(120),
    pytest.mark.skipif(assets() is None, reason="needs a real API server, with its admission and its authorizer"),
]


async def person(system: System, name: str, *, verbs: tuple[str, ...]) -> ApiAddress:
    """A service account of that name that may make NodeActions, and has those verbs on node-2."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    await system.client.create(SERVICE_ACCOUNTS.path(namespace=NAMESPACE), account)
    rules = [
        {"apiGroups": [GROUP], "resources": [PLURAL], "verbs": ["create", "get", "patch"]},
        {"apiGroups": [GROUP], "resources": ["nodes"], "resourceNames": [NODE], "verbs": list(verbs)},
    ]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    for kind, body in (("ClusterRole", {"rules": rules}), ("ClusterRoleBinding", {"roleRef": role, "subjects": [subject]})):
        document = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}} | body
        await system.client.create(path_of(document), document)
    return replace(system.cluster.address, token=await system.token_of(known_as(name)))


def known_as(name: str) -> str:
    return f"system:serviceaccount:{NAMESPACE}:{name}"


class TestTheServer:
    pytestmark = REAL

    async def test_it_takes_no_other_name_no_action_without_its_right_and_no_change(self, system: System) -> None:
        hold = NodeActionSpec(action=Verb.HOLD, node=NODE, reason=REASON)
        fence = NodeActionSpec(action=Verb.FENCE, node=NODE, reason=REASON)
        async with ApiClient(await person(system, "eve", verbs=("hold", "fence")), user_agent="kubectl") as eve:
            for spec, why in (
                (hold.to_dict("admin"), "who is asking"),
                (NodeActionSpec(action=Verb.ABORT, node=NODE, reason=REASON).to_dict(known_as("eve")), "may not abort"),
                (NodeActionSpec(action=Verb.HOLD, node="node-3", reason=REASON).to_dict(known_as("eve")), "may not hold node-3"),
                (NodeActionSpec(action=Verb.STOP_SCAN, node="", reason=REASON).to_dict(known_as("eve")), "may not stop-scan"),
                (
                    replace(fence, override=CIRCUIT_BREAKER).to_dict(known_as("eve")),
                    "may not override the circuit-breaker for node-2",
                ),
                (replace(hold, override=CIRCUIT_BREAKER).to_dict(known_as("eve")), "only fence, remediate and ack-off override"),
            ):
                with pytest.raises(ApiError, match=why):
                    await made(eve, spec)
            action = await made(eve, hold.to_dict(known_as("eve")))
            for change in ({"requestedBy": "admin"}, {"node": "node-3"}):
                with pytest.raises(ApiError, match="never changes"):
                    await eve.patch(ACTIONS.path(action.name, namespace=NAMESPACE), {"spec": change})
            status = ACTIONS.path(action.name, namespace=NAMESPACE, subresource="status")
            with pytest.raises(ApiError) as refused:
                await eve.patch(status, {"status": {"usedBy": ""}})
            assert refused.value.status == 403
        assert (await answered(system, action))["phase"] == "Done"  # else it is obeyed in the middle of the next test

    async def test_a_command_is_from_the_user_that_kubernetes_attests(self, system: System) -> None:
        """From the command line to the record, with nothing but a kubeconfig; no token gets into a history (S12)."""
        address = await person(system, "ada", verbs=("hold", "resume"))
        await in_phase(system, NODE, Phase.RUNNING)
        kubeconfig = yaml.safe_load(system.cluster.kubeconfig_path.read_text())
        kubeconfig["users"][0]["user"] = {"token": address.token}
        hers = system.folder / "of-ada" / "kubeconfig"
        hers.parent.mkdir()
        hers.touch(mode=0o600)
        hers.write_text(yaml.safe_dump(kubeconfig))
        settings = yaml.safe_load(system.config.read_text())
        settings["clusters"][system.cluster_name]["kubeconfig"] = str(hers)
        config = hers.parent / "nodewarden.yaml"
        config.write_text(yaml.safe_dump(settings))

        async def says(command: str) -> tuple[int, str]:
            status = await system.warden.episode(system.cluster_name, NODE).status()
            asked = ["--question", str(status.question)] if command == "resume" else []
            arguments = ["-m", "starter.cli", "--config", str(config), command, NODE, "--reason", f"to {command}", *asked]
            process = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            output = (await process.communicate())[0].decode()
            assert process.returncode is not None
            return process.returncode, output

        held = system.warden.episode(system.cluster_name, NODE)
        while owners := (status := await held.status()).held_by:
            await held.resume(who="", reason=REASON, question=status.question, of=bare_name(owners[0]))
        assert (await says("hold"))[0] == 0
        assert await says("resume") == (0, await says_done(system, "goes on"))
        code, output = await says("abort")
        assert (code, "may not abort node-2" in output) == (3, True)
        episode = system.warden.episode(system.cluster_name, NODE)
        record = await episode.record()
        assert f"by {known_as('ada')}, verified by Kubernetes: to resume" in [entry.detail for entry in record]
        history = await system.warden.client.get_workflow_handle(episode.workflow_id).fetch_history()
        whole = b"".join(event.SerializeToString() for event in history.events)
        assert (b"resume-" in whole, address.token.encode() in whole) == (True, False)


async def says_done(system: System, what: str) -> str:
    status = await system.warden.episode(system.cluster_name, NODE).status()
    return f"incident {status.incident} {what}\n"
