"""Every cell of the matrix: what somebody who was taken over tries comes off, or does not, as docs/security.md says.

The cluster is one with our shipped rights and admission policies in force, our worker and our scanner, healthy nodes, one that
people keep for themselves (a cordon and taints of their own), and one where the kubelet is silent and the machine runs.
"""

from __future__ import annotations

import ast
import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

import pytest
from aiohttp import web
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.worker import Worker

from activities.contracts.target import ActRequest, Added, RestoreRequest
from policy.episode.gate import HOLD_ANNOTATION
from policy.episode.messages import FencingInput, Need, NeedKind, Outcome, episode_id, scanner_id
from policy.episode.node_action import DEVICE_READS_ON, ActionName
from policy.fence.credential_hosts import HOSTS_ANNOTATION
from policy.objects.nodes import EXCLUDE_LABEL, MARK_ANNOTATION
from policy.values.object_refs import ObjectRef
from simulator.api.access.certificates import issue
from simulator.client import ApiClient, ApiError
from simulator.objects import is_terminating, key_of, node_of
from simulator.resources import LEASES, NAMESPACES, NODES, PODS, SECRETS
from starter.client import Nodewarden
from starter.doctor import protection
from starter.errors import EpisodeHeldError, RefusedError
from tests.cluster.acts.world import World
from tests.cluster.fencing_requests import remediation
from tests.cluster.machines import CLUSTER_API, OPENSHIFT, sick_when_ready
from tests.documents import ROOT
from tests.power.agents.scripted import needs
from tests.power.raw_server import Listener, listening
from tests.security.matrix import ADMINISTRATORS, CELLS, Act, Principal
from tests.security.test_laundered_taints import SECURITY, SPELLED
from tests.system.fixtures import Standing
from tests.system.harness import CHECK, CHECKS, TEMPLATE, TEMPLATES, System
from tests.system.questions import commands, is_open, parked
from tests.system.test_api_restarts import under_shipped_rights
from workers.configuration.settings import Settings
from workers.payloads.converter import DATA_CONVERTER
from workflows.kit.messages import AcknowledgeRequest
from workflows.kit.options import WORKFLOW_QUEUE, cluster_queue

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
REQUESTS = "/apis/fence-agents-remediation.medik8s.io/v1alpha1/namespaces/{}/fenceagentsremediations"
CONFIG_MAPS = "/api/v1/namespaces/nodewarden/configmaps"
ACTIONS = "/apis/nodewarden.io/v1alpha1/namespaces/nodewarden/nodeactions"
HIS_HOST, BMC_SECRET = "127.0.0.3", "redfish-credentials"
HEALTHY, KEPT, SILENT, OF_KUBELET, PATIENT, PARKED = "node-1", "node-2", "node-3", "node-4", "node-5", "node-6"
PATIENT_LABEL = "patient"
LONG_ENOUGH = 8.0
"""Seconds in which an episode that somebody has talked us into would have done its worst."""
SLOW = "a" * 16_000 + "!"
"""Held the event loop of a worker for 13 s, as a host."""
REFUSED_WITHIN = 20.0
OBEYED = (TimeoutError, EpisodeHeldError, WorkflowAlreadyStartedError)
"""A wish that is not refused at once, and what then stands in the next one's way: that is seen by what it does."""
WORKERS = ObjectRef(api_version=CHECKS.api_version, kind=CHECKS.kind, name=CHECK)
A_MOMENT = 15.0
"""Seconds within which a flooded scanner still does what it does in one."""

ROLES: Mapping[Principal, tuple[str, dict[str, Any]]] = {
    Principal.TENANT: (
        "tenant",
        {
            "apiGroups": ["", "fence-agents-remediation.medik8s.io"],
            "resources": ["configmaps", "secrets", "pods", "fenceagentsremediations", "fenceagentsremediationtemplates"],
            "verbs": ["*"],
        },
    ),
    Principal.MACHINE_AUTHOR: (
        "apps",
        {"apiGroups": ["machine.openshift.io", "cluster.x-k8s.io", "machine.sapcloud.io"], "resources": ["*"], "verbs": ["*"]},
    ),
    Principal.TEMPLATE_AUTHOR: (
        "team",
        {
            "apiGroups": ["", "nodewarden.io"],
            "resources": ["secrets", "fencingtemplates", "fenceconfigs", "reboottemplates"],
            "verbs": ["*"],
        },
    ),
    Principal.CONFIGMAP_AUTHOR: ("nodewarden", {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}),
}
"""The namespace that each has rights in, and which."""
PEOPLE = tuple(who.name.lower() for who in (*ROLES, Principal.VIEWER))


@dataclass(slots=True)
class Attacked:
    """The cluster, a client with each attacker's rights, the attackers' own host, and the truth."""

    system: System
    clients: Mapping[Principal, ApiClient]
    host: Listener
    docker: Docker
    silent: tuple[str, ...]
    """The nodes where machines run and kubelets are silent."""
    pods: frozenset[str]
    """Uids of the pods on these."""
    assaults: set[Callable[[Attacked], Awaitable[None]]] = field(default_factory=set)
    """What has been done: two who can have us do the same have it done once."""
    answered: list[str] = field(default_factory=list)
    """What an episode or the scanner has said to a word that was none."""

    async def assault(self, who: Principal) -> None:
        """Everything that this one can have us do, once, and time for it to work."""
        if (assault := ASSAULTS.get(who)) is None or assault in self.assaults:
            return
        self.assaults.add(assault)
        await assault(self)
        await asyncio.sleep(LONG_ENOUGH)

    async def comes_off(self, who: Principal, act: Act) -> bool:
        """By that one's own rights in Kubernetes, or by what we did on its account."""
        return await self.by_right(who, act) or await TRUTHS[act](self)

    async def by_right(self, who: Principal, act: Act) -> bool:
        if (client := self.clients.get(who)) is None:
            return False
        return any([await allowed(client, *each) for each in directly(client.user_agent)[act]])


async def allowed(client: ApiClient, method: str, path: str, body: Any = None) -> bool:
    """Whether the API server lets that one do that. What is not there was not refused."""
    try:
        match method:
            case "get":
                await client.get(path)
            case "create":
                await client.create(path, body)
            case "patch":
                await client.patch(path, body)
            case _:
                await client.delete(path)
    except ApiError as error:
        if error.status == 403 or "ValidatingAdmissionPolicy" in str(error):
            return False
        if error.status != 404:
            raise
    return True


def action(name: str, person: str, node: str = HEALTHY) -> dict[str, Any]:
    """A NodeAction in that person's name."""
    spec = {"action": name, "requestedBy": person, "reason": "x"} | ({"node": node} if node else {})
    return {"apiVersion": "nodewarden.io/v1alpha1", "kind": "NodeAction", "metadata": {"generateName": "x-"}, "spec": spec}


def directly(user: str) -> dict[Act, tuple[tuple[Any, ...], ...]]:
    """What that user can try at the API server itself."""
    return {
        Act.POWER_OFF: (("create", ACTIONS, action("fence", user)),),
        Act.FREE: (
            ("delete", PODS.path("database-0", namespace="demo")),
            ("create", PODS.path("database-0", namespace="demo", subresource="eviction"), {"metadata": {"name": "database-0"}}),
            (
                "patch",
                NODES.path(SILENT),
                {"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]}},
            ),
        ),
        Act.READ_SECRET: tuple(
            ("get", SECRETS.path(name, namespace="nodewarden"))
            for name in ("", "nodewarden-signing-keys", "nodewarden-payload-keys", BMC_SECRET)
        ),
        Act.SEND_CREDENTIAL: (
            ("patch", TEMPLATES.path(TEMPLATE, namespace="nodewarden"), {"spec": {"template": {"spec": {"bootTimeout": "61s"}}}}),
            (
                "patch",
                SECRETS.path(BMC_SECRET, namespace="nodewarden"),
                {"metadata": {"annotations": {HOSTS_ANNOTATION: "*"}}},
            ),
        ),
        Act.UNTAINT: (
            ("patch", NODES.path(KEPT), {"spec": {"taints": []}}),
            ("patch", NODES.path(KEPT), {"spec": {"unschedulable": None}}),
        ),
        Act.IMPERSONATE: tuple(("create", ACTIONS, action(each, "ada")) for each in ("fence", "ack-off", "hold")),
        Act.SILENCE: (
            ("delete", LEASES.path("nodewarden", namespace="kube-system")),
            ("create", ACTIONS, action("pause", user, "")),
            ("delete", "/apis/remediation.medik8s.io/v1alpha1/nodehealthchecks/workers"),
            ("delete", "/apis/apps/v1/namespaces/nodewarden/deployments/nodewarden"),
        ),
        Act.FLOOD: (),
    }


# The truth ----------------------------------------------------------------------------------------------------------------


async def switched(attacked: Attacked) -> bool:
    return any(commands(attacked.system, name) for name in (HEALTHY, KEPT, SILENT, OF_KUBELET))


async def freed(attacked: Attacked) -> bool:
    silent = [each for name in attacked.silent for each in on_node(attacked.system, name)]
    left = {each["metadata"]["uid"] for each in silent if not is_terminating(each)}
    taints = [each for name in attacked.silent for each in (await attacked.system.live_node(name))["spec"].get("taints") or ()]
    tainted = any(each["key"] == "node.kubernetes.io/out-of-service" for each in taints)
    return tainted or not attacked.pods <= left


async def told_a_secret(attacked: Attacked) -> bool:
    """Only by right; what we read is told nobody, which the search for secrets in all that is left behind says (S12)."""
    return False


async def sent(attacked: Attacked) -> bool:
    return any(credential in heard for heard in attacked.host.heard for credential in (b"uthorization", b"assword"))


async def untainted(attacked: Attacked) -> bool:
    spec = (await attacked.system.live_node(KEPT))["spec"]
    return not (spec.get("unschedulable") is True and all(each in spec["taints"] for each in SECURITY))


async def obeyed(attacked: Attacked) -> bool:
    """In anybody's name: none of these nodes has an episode, and no episode heard a word."""
    return bool(attacked.answered) or any([await is_open(attacked.system, name) for name in (HEALTHY, KEPT, SILENT, OF_KUBELET)])


async def silenced(attacked: Attacked) -> bool:
    """A node that is really sick is not fenced."""
    system = attacked.system
    before = system.break_node(PATIENT)
    try:
        result = await system.ended(before, seconds=30)
    except AssertionError:
        return True
    return result.outcome is not Outcome.RECOVERED


async def flooded(attacked: Attacked) -> bool:
    """The scanner soon reports what has changed: which nodes the check selects. (Scans are not counted: one may be under way that
    saw neither change, and the next sees both, which is none.)"""
    system = attacked.system

    async def selected() -> int:
        now = await system.scanner()
        if now is None or now.report is None or now.report.view.stale:
            return -1
        return next(each.total for each in now.report.checks if each.ref == WORKERS)

    async def is_reported(nodes: int) -> bool:
        return await selected() == nodes

    before = await selected()
    try:
        assert before > 0, "the scanner does not answer"
        for value, nodes in ((None, before - 1), ("yes", before)):
            await system.client.patch(NODES.path(PATIENT), {"metadata": {"labels": {PATIENT_LABEL: value}}})
            await system.until(partial(is_reported, nodes), f"the scanner reports {nodes} nodes", seconds=A_MOMENT)
    except AssertionError as error:
        logging.getLogger(__name__).warning("%s", error)  # shown where the test fails
        return True
    return False


TRUTHS: Mapping[Act, Callable[[Attacked], Awaitable[bool]]] = {
    Act.POWER_OFF: switched,
    Act.FREE: freed,
    Act.READ_SECRET: told_a_secret,
    Act.SEND_CREDENTIAL: sent,
    Act.UNTAINT: untainted,
    Act.IMPERSONATE: obeyed,
    Act.SILENCE: silenced,
    Act.FLOOD: flooded,
}


# What attackers do --------------------------------------------------------------------------------------------------------


class Docker:
    """An attacker's device, in Docker's words: every container is stopped, but that of a healthy node at first."""

    port = 0

    def __init__(self) -> None:
        self.asked: list[str] = []
        """Paths of requests for a change."""

    async def answer(self, request: web.BaseRequest) -> web.Response:
        if request.method == "POST":
            self.asked.append(request.path)
        if request.path.endswith("/containers/json"):
            stopped = {"Names": ["/x"], "Status": "Exited (0)"}
            return web.json_response([{"Id": name, **stopped} for name in (HEALTHY, KEPT, SILENT, PATIENT)])
        return web.json_response({"State": {"Running": f"/{HEALTHY}/" in request.path and not self.asked}})


async def by_a_tenant(attacked: Attacked) -> None:
    """Requests for each node: by a device of his own, with Secrets and files of others, and with values made to be slow."""
    tenant, system = attacked.clients[Principal.TENANT], attacked.system
    namespace, secret = system.cluster.bmc_secret

    async def ask(name: str, node: str, agent: str, parameters: Mapping[str, str], *, shared_secret: str = "") -> None:
        asked = {
            "agent": agent,
            "sharedSecretName": shared_secret,
            "sharedparameters": dict(parameters),
            "nodeparameters": {"--plug": {node: node}},
            "retrycount": 1,
            "retryinterval": "1s",
            "timeout": "5s",
        }
        annotations = {"remediation.medik8s.io/node-name": node}
        await tenant.create(
            REQUESTS.format("tenant"),
            remediation(name, spec=asked, annotations=annotations, ownerReferences=[], namespace="tenant"),
        )

    his = {"--ip": HIS_HOST, "--ipport": str(attacked.docker.port), "--ssl-insecure": ""}
    for node in (SILENT, HEALTHY, KEPT, PATIENT):
        await ask(node, node, "fence_docker", his)
    listener = {"--ip": HIS_HOST, "--ipport": str(attacked.host.port)}
    await ask("with-a-secret", HEALTHY, "fence_redfish", listener, shared_secret=secret)
    await ask("with-another-ones", HEALTHY, "fence_redfish", listener, shared_secret=f"{namespace}/{secret}")
    await asyncio.sleep(LONG_ENOUGH)
    for number in range(20):
        await ask(f"slow-{number}", HEALTHY, "fence_docker", {"--ip": SLOW})


async def by_a_machine_author(attacked: Attacked) -> None:
    """Machines that claim nodes that have none, one that has the providerID of a node which is soon to be fenced, and checks by
    which a node that is well is to be: of a Cluster that they have made, too, and more than anyone can read."""
    author, system = attacked.clients[Principal.MACHINE_AUTHOR], attacked.system
    for theirs in (replace(OPENSHIFT, namespace="apps"), replace(CLUSTER_API, namespace="apps")):
        await theirs.install(system.client)
        await theirs.add_cluster(author)
        for name, claims in ((HEALTHY, HEALTHY), (KEPT, KEPT), (PATIENT, "another-node")):
            await theirs.add_machine(author, name, node=claims)
            spec = {"providerID": (await system.live_node(name))["spec"].get("providerID")}
            await author.patch(theirs.path("machines", name), {"spec": spec})
        for number in range(50):
            await author.create(theirs.path("machinehealthchecks"), sick_when_ready(theirs, f"mine-{number}"))


async def by_a_template_author(attacked: Attacked) -> None:
    """Templates and configurations that say of every node that its device is theirs."""
    author, system = attacked.clients[Principal.TEMPLATE_AUTHOR], attacked.system
    _, secret = system.cluster.bmc_secret
    device = {
        "driver": "redfish",
        "parameters": {"scheme": "http", "ip": HIS_HOST, "ipport": str(attacked.host.port)},
        "nodeParameters": {name: {"system": name} for name in system.cluster.nodes},
        "secretRef": {"name": secret, "namespace": "nodewarden"},
    }
    template = system.fencing_template({"power": [device]})
    await author.create(TEMPLATES.path(namespace="team"), template | {"metadata": {"name": "mine"}})


async def by_a_kubelet(attacked: Attacked) -> None:
    """All that it may write of its Node, and what it may not, of others."""
    kubelet = attacked.clients[Principal.KUBELET]
    forged = '{"incident": "x", "kind": "Fencing", "workflow_id": "x", "cordoned": true, "out_of_service": true}'
    for name in (OF_KUBELET, KEPT):
        change = {"metadata": {"annotations": {MARK_ANNOTATION: forged, "nodewarden.io/preserve": "x" * 10_000}}}
        assert await allowed(kubelet, "patch", NODES.path(name), change) is (name == OF_KUBELET)


async def _are_free(system: System, *nodes: str) -> bool:
    return not any([await is_open(system, name) for name in nodes])


async def by_a_client_of_temporal(attacked: Attacked) -> None:
    """All that people may wish and say, in a person's name, also as one that Kubernetes has attested; and wishes that look like a
    program's. It needs no account for that, where nothing but the network keeps it away."""
    system, cluster = attacked.system, attacked.system.cluster_name
    his = Nodewarden(await Client.connect(system.temporal.address, namespace=system.namespace, data_converter=DATA_CONVERTER))
    invented = ActionName(name="fence-x1y2z", uid="0b5ee1d4-made-up")

    async def wish(node: str) -> None:
        for begin in (his.fence, his.remediate, his.preserve):
            with suppress(*OBEYED):
                await asyncio.wait_for((await begin(cluster, node, reason="x", requester="ada")).result(), REFUSED_WITHIN)
        for need in NeedKind:
            wanted = FencingInput(
                cluster=cluster,
                node=node,
                reason="x",
                requester="ada",
                incident=f"{need.value}-1",
                need=Need(kind=need, reason="x", requester="ada", check=WORKERS, cause="ReadyUnknown"),
                action=invented if need is NeedKind.PERSON else None,
                permit_granted=True,
            )
            begun = {"id": episode_id(cluster, node), "task_queue": WORKFLOW_QUEUE}
            with suppress(*OBEYED):
                await asyncio.wait_for(his.client.execute_workflow("Fencing", wanted, **begun), REFUSED_WITHIN)

    await asyncio.gather(*map(wish, (HEALTHY, KEPT, SILENT)))
    with suppress(AssertionError):  # what goes on after that is seen
        await system.until(lambda: _are_free(system, HEALTHY, KEPT, SILENT), "each of them has ended", seconds=A_MOMENT)
    needy, word = his.episode(cluster, PARKED), {"who": "ada", "reason": "x"}
    question = (await needy.status()).question
    for say in (
        partial(needy.ack_off, question=question, override=DEVICE_READS_ON),
        partial(needy.resume, question=question),
        partial(needy.return_path, question=question),
        needy.hold,
        needy.abort,
        his.scanner(cluster).pause,
        partial(his.stop_scanner, cluster),
    ):
        with suppress(RefusedError):
            attacked.answered.append(str(await say(**word)))


ASSAULTS: Mapping[Principal, Callable[[Attacked], Awaitable[None]]] = {
    Principal.TENANT: by_a_tenant,
    Principal.MACHINE_AUTHOR: by_a_machine_author,
    Principal.TEMPLATE_AUTHOR: by_a_template_author,
    Principal.KUBELET: by_a_kubelet,
    Principal.TEMPORAL_CLIENT: by_a_client_of_temporal,
    Principal.LOCAL_USER: by_a_client_of_temporal,
}
"""Whoever is on the host where `nodewarden up` runs is a client of its Temporal: that has no login."""


# The cluster --------------------------------------------------------------------------------------------------------------


def on_node(system: System, name: str) -> list[dict[str, Any]]:
    return [each for each in system.cluster.view.pods if node_of(each) == name]


async def give_rights(system: System) -> dict[Principal, str]:
    """The user of each attacker who has one in Kubernetes, with exactly its rights."""
    for who, (namespace, rule) in ROLES.items():
        if namespace != "nodewarden":
            await system.client.create(NAMESPACES.path(), {"metadata": {"name": namespace}})
        place, metadata = f"{RBAC}/namespaces/{namespace}", {"name": f"of-{who.name.lower()}"}
        await system.client.create(f"{place}/roles", {"metadata": metadata, "rules": [rule]})
        role = {"apiGroup": GROUP, "kind": "Role", "name": metadata["name"]}
        subject = {"apiGroup": GROUP, "kind": "User", "name": who.name.lower()}
        await system.client.create(f"{place}/rolebindings", {"metadata": metadata, "roleRef": role, "subjects": [subject]})
    role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "nodewarden-viewer"}
    subject = {"apiGroup": GROUP, "kind": "User", "name": Principal.VIEWER.name.lower()}
    binding = {"metadata": {"name": "of-viewer"}, "roleRef": role, "subjects": [subject]}
    await system.client.create(f"{RBAC}/clusterrolebindings", binding)
    return dict(zip((*ROLES, Principal.VIEWER), PEOPLE, strict=True)) | {Principal.KUBELET: f"system:node:{OF_KUBELET}"}


@pytest.fixture(scope="module")
async def attacked(standing: Standing) -> AsyncIterator[Attacked]:
    docker = Docker()
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(listening(HIS_HOST))
        server = web.Server(docker.answer)
        listening_docker = await asyncio.get_running_loop().create_server(server, HIS_HOST, 0, ssl=issue(HIS_HOST).context)
        stack.push_async_callback(server.shutdown)
        stack.callback(listening_docker.close)
        docker.port = listening_docker.sockets[0].getsockname()[1]
        system = await stack.enter_async_context(standing(nodes=6, platform="redfish", users=PEOPLE))
        await under_shipped_rights(system)
        users = await give_rights(system)
        clients = {}
        for who, user in users.items():
            address = replace(system.cluster.address, token=await system.token_of(user))
            clients[who] = await stack.enter_async_context(ApiClient(address, user_agent=user))
        patients = {"matchExpressions": [{"key": PATIENT_LABEL, "operator": "Exists"}]}
        await system.client.patch(NODES.path(PATIENT), {"metadata": {"labels": {PATIENT_LABEL: "yes"}}})
        await system.client.patch(NODES.path(KEPT), {"spec": {"taints": list(SECURITY), "unschedulable": True}})
        await system.start_worker()
        await system.apply_policy(check={"minHealthy": 0, "selector": patients})
        await system.start_scanner(cap=4)
        await system.until(
            lambda: all(on_node(system, each) for each in (SILENT, PARKED)), "the nodes that fall silent have pods"
        )
        pods = frozenset(each["metadata"]["uid"] for name in (SILENT, PARKED) for each in on_node(system, name))
        for name in (SILENT, PARKED):
            system.break_node(name, "kubelet-stops")
        system.break_node(PARKED, "bmc-refuses")
        await system.client.patch(NODES.path(PARKED), {"metadata": {"labels": {PATIENT_LABEL: "yes"}}})
        await parked(system, PARKED)
        yield Attacked(system, clients, host, docker, (SILENT, PARKED), pods)


# The cells ----------------------------------------------------------------------------------------------------------------

HERE = frozenset({*ROLES, Principal.VIEWER, *ASSAULTS})


def played() -> list[Any]:
    """The cells that are played here; one that another test shows as well is played all the same."""
    return [
        pytest.param(who, act, id=f"{who.name}-{act.name}") for (who, act), cell in CELLS.items() if not cell.yes and who in HERE
    ]


@pytest.mark.system
@pytest.mark.timeout(180)
@needs("fence_docker")
@pytest.mark.parametrize(("who", "act"), played())
async def test_what_is_tried_does_not_come_off(who: Principal, act: Act, attacked: Attacked) -> None:
    await attacked.assault(who)
    assert not await attacked.comes_off(who, act)


async def test_s28_a_mark_that_a_client_of_temporal_has_made_up_takes_nothing_of_others_away(empty: World) -> None:
    """It schedules two activities of ours: a mark that says we had added people's cordon and taints, then its removal."""
    await empty.hold_cluster_lease()
    await empty.add_node(ready="True", unschedulable=True, taints=tuple(dict(each) for each in SECURITY))
    target = await empty.pinned()
    added = Added(cordoned=True, taints=SPELLED)
    for act_of_ours, request in (
        (empty.target.mark, ActRequest(target=target, added=added)),
        (empty.isolation.mark_schedulable, RestoreRequest(target=target, added=added)),
    ):
        with suppress(ApplicationError):
            await act_of_ours(request)
    spec = (await empty.node())["spec"]
    assert spec.get("unschedulable") is True
    assert all(dict(each) in spec["taints"] for each in SECURITY)


# What docs/security.md calls a yes ------------------------------------------------------------------------------------------


async def deletes_pods_of_its_node(attacked: Attacked) -> bool:
    pod = key_of(on_node(attacked.system, OF_KUBELET)[0])
    return await allowed(attacked.clients[Principal.KUBELET], "delete", PODS.path_of_key(pod))


async def excludes_its_own_node(attacked: Attacked) -> bool:
    """By the label; a hold is a person's, and refused to it."""
    kubelet, node = attacked.clients[Principal.KUBELET], NODES.path(OF_KUBELET)
    assert not await allowed(kubelet, "patch", node, {"metadata": {"annotations": {HOLD_ANNOTATION: "true"}}})
    return await allowed(kubelet, "patch", node, {"metadata": {"labels": {EXCLUDE_LABEL: "true"}}})


async def keeps_its_machine_unproven(attacked: Attacked) -> bool:
    return bool((await parked(attacked.system, PARKED)).problem)


async def ends_the_scanner(attacked: Attacked) -> bool:
    system = attacked.system
    his = await Client.connect(system.temporal.address, namespace=system.namespace)
    await his.get_workflow_handle(scanner_id(system.cluster_name)).terminate()
    ended = await system.warden.scanner(system.cluster_name).ended()
    await system.start_scanner(cap=4)
    return ended


async def starts_workflows(attacked: Attacked) -> bool:
    system = attacked.system
    his = await Client.connect(system.temporal.address, namespace=system.namespace, data_converter=DATA_CONVERTER)
    begun = [f"of-nobody-{number}" for number in range(20)]
    for name in begun:
        await his.start_workflow("HealthScanner", {"cluster": name}, id=scanner_id(name), task_queue=WORKFLOW_QUEUE)
    running = [(await his.get_workflow_handle(scanner_id(name)).describe()).status for name in begun]
    for name in begun:
        await his.get_workflow_handle(scanner_id(name)).terminate()
    return set(running) == {WorkflowExecutionStatus.RUNNING}


async def switches_fencing_off(attacked: Attacked) -> bool:
    author, cluster = attacked.clients[Principal.CONFIGMAP_AUTHOR], "fence-cluster-config"
    await author.create(CONFIG_MAPS, {"metadata": {"name": cluster}, "data": {"config.properties": "fencing=off"}})

    async def is_said() -> bool:
        return f"fencing=off in ConfigMap/nodewarden/{cluster}" in str(await attacked.system.scanner())

    await attacked.system.until(is_said, "the scanner says who has switched fencing off", seconds=20)
    await author.delete(f"{CONFIG_MAPS}/{cluster}")
    return True


async def says_which_device_is_a_nodes(attacked: Attacked) -> bool:
    """Of the silent node, that it is a container of his own host, which bears a healthy node's name."""
    author = attacked.clients[Principal.CONFIGMAP_AUTHOR]
    method = f"plug={HEALTHY}\nagent_name=fence_docker\nip={HIS_HOST}\nipport={attacked.docker.port}\nssl_insecure=1"
    of_node = {"config.properties": "power_management=his", "fence-method-his": f"{method}\naction=off"}
    for name, lines in (
        (f"fence-config-node-{SILENT}", of_node),
        ("fence-cluster-config", {"config.properties": "grace_timeout=1\npower_management_wait=1"}),
    ):
        await author.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": lines})
    await attacked.system.until(lambda: freed(attacked), "the silent node is freed while its machine runs", seconds=40)
    return attacked.system.cluster.chassis.machine(SILENT).power == "on"


async def commands_a_healthy_nodes_device(attacked: Attacked) -> bool:
    """By the same writing."""
    return any(f"/{HEALTHY}/" in path for path in attacked.docker.asked)


OPENINGS: Mapping[tuple[Principal, Act], Callable[[Attacked], Awaitable[bool]]] = {
    (Principal.KUBELET, Act.FREE): deletes_pods_of_its_node,
    (Principal.KUBELET, Act.SILENCE): excludes_its_own_node,
    (Principal.BMC, Act.SILENCE): keeps_its_machine_unproven,
    **{(who, Act.SILENCE): ends_the_scanner for who in (Principal.TEMPORAL_CLIENT, Principal.POLLER, Principal.LOCAL_USER)},
    **{(who, Act.FLOOD): starts_workflows for who in (Principal.TEMPORAL_CLIENT, Principal.POLLER, Principal.LOCAL_USER)},
    (Principal.CONFIGMAP_AUTHOR, Act.SILENCE): switches_fencing_off,
    (Principal.CONFIGMAP_AUTHOR, Act.FREE): says_which_device_is_a_nodes,
    (Principal.CONFIGMAP_AUTHOR, Act.POWER_OFF): commands_a_healthy_nodes_device,
}
"""In their order: the last ones have a node freed."""


@pytest.mark.system
@pytest.mark.timeout(180)
@needs("fence_docker")
@pytest.mark.parametrize(("who", "act"), [pytest.param(*each, id=f"{each[0].name}-{each[1].name}") for each in OPENINGS])
async def test_what_the_page_calls_a_yes_comes_off(who: Principal, act: Act, attacked: Attacked) -> None:
    """A yes that has become a no is one in the table, too."""
    assert CELLS[who, act].yes
    assert await OPENINGS[who, act](attacked)


@pytest.mark.system
@pytest.mark.timeout(180)
async def test_what_does_come_off_is_seen(attacked: Attacked) -> None:
    """Last, and by an administrator: otherwise none of the above would say anything. A freed node was seen before."""
    system, administrator = attacked.system, attacked.system.client
    await (await system.warden.fence(system.cluster_name, HEALTHY, reason="a drill", requester="ada")).status()
    assert await obeyed(attacked)
    await system.until(lambda: bool(commands(system, HEALTHY)), "it is switched off")
    assert await switched(attacked)
    await administrator.patch(NODES.path(KEPT), {"spec": {"unschedulable": None}})
    assert await untainted(attacked)
    _, writer = await asyncio.open_connection(HIS_HOST, attacked.host.port)
    writer.write(b"GET / HTTP/1.1\r\nAuthorization: Basic x\r\n\r\n")
    await system.until(lambda: bool(attacked.host.heard), "the listener hears it")
    writer.close()
    assert await sent(attacked)
    await system.warden.stop_scanner(system.cluster_name, who="ada", reason="a drill")
    assert await flooded(attacked)
    for act, tries in directly("admin").items():
        # In another name the admission policy lets no one speak.
        lets = [await allowed(administrator, *each) for each in tries]
        assert all(lets) is (act is not Act.IMPERSONATE), (act, lets)


# Who answers in our place ---------------------------------------------------------------------------------------------------


class Impostor:
    """Polls the queue of a cluster worker, and says of every word that Kubernetes attests it, and of every look that it is a go.
    The rest it leaves to others."""

    def __init__(self) -> None:
        self.told: set[str] = set()

    @activity.defn(dynamic=True)
    async def answer(self, given: Sequence[RawValue]) -> Any:
        """Whatever is asked."""
        kind = activity.info().activity_type
        request = activity.payload_converter().from_payload(given[0].payload)
        self.told.add(kind)
        match kind:
            case "commands.verify":
                sealed = {
                    "spec": request["spec"],
                    "action": "x",
                    "speaker": "ada",
                    "seal": f"{int(time.time()):x}.{'0' * 32}",
                }
                return {"speaker": "ada", "sealed": sealed}
            case "target.last-look":
                seen = {"verdict": "go", "reason": "", "at": datetime.now(UTC).isoformat(), "licence": f"x.{'0' * 32}"}
                pinned = request["target"]["pinned"]
                known = ("node", "uid", "boot_id", "provider_id", "system_uuid")
                return seen | {"seen": {key: pinned[key] for key in known if key in pinned}}
        raise ApplicationError("left to others", next_retry_delay=timedelta(milliseconds=200))


@pytest.fixture(scope="module")
async def polled(standing: Standing) -> AsyncIterator[Attacked]:
    """A cluster with a poller, who says in ada's name that the machine of a silent node is off, and that a healthy one is to be
    fenced; his own polling has it verified."""
    async with standing(nodes=4) as system:
        await system.start_worker()
        await system.apply_policy(check={"minHealthy": 0})
        await system.start_scanner(cap=4)
        await system.until(lambda: bool(on_node(system, SILENT)), "the node that falls silent has pods")
        pods = frozenset(each["metadata"]["uid"] for each in on_node(system, SILENT))
        system.break_node(SILENT, "kubelet-stops")
        system.break_node(SILENT, "bmc-dead")
        question = (await parked(system, SILENT)).question
        attacked = Attacked(system, {}, Listener(), Docker(), (SILENT,), pods)
        his = await Client.connect(system.temporal.address, namespace=system.namespace, data_converter=DATA_CONVERTER)
        impostor, invented = Impostor(), ActionName(name="x", uid="x")

        async def obeyed_in_her_name(update: str, word: Any) -> bool:
            """Ours has refused it until his own answers."""
            episode = his.get_workflow_handle(episode_id(system.cluster_name, SILENT))
            with suppress(WorkflowUpdateFailedError):
                attacked.answered.append(await episode.execute_update(update, word, result_type=str))
            return bool(attacked.answered)

        ours = cluster_queue(system.cluster_name)
        async with Worker(his, task_queue=ours, activities=[impostor.answer], max_concurrent_activities=20):
            wanted = FencingInput(cluster=system.cluster_name, node=HEALTHY, reason="x", requester="ada", action=invented)
            begun = {"id": episode_id(system.cluster_name, HEALTHY), "task_queue": WORKFLOW_QUEUE}
            with suppress(TimeoutError):
                while True:  # until it is not refused
                    await asyncio.wait_for(his.execute_workflow("Fencing", wanted, **begun), 3)
            ack = AcknowledgeRequest(who="ada", reason="x", action=invented, question=question, override=DEVICE_READS_ON)
            await system.until(partial(obeyed_in_her_name, "acknowledge_off", ack), "his own worker has verified it", seconds=60)
            await system.until(lambda: {"commands.verify", "target.last-look"} <= impostor.told, "he is asked", seconds=60)
            await asyncio.sleep(LONG_ENOUGH)
            yield attacked


@pytest.mark.system
@pytest.mark.timeout(180)
@pytest.mark.parametrize("act", [Act.POWER_OFF, Act.FREE, Act.IMPERSONATE], ids=lambda act: act.name)
async def test_commands_verified_in_our_place_need_no_seal(act: Act, polled: Attacked) -> None:
    assert await TRUTHS[act](polled) is bool(CELLS[Principal.POLLER, act].yes)


# The table ----------------------------------------------------------------------------------------------------------------


def test_every_cell_is_there_and_shown() -> None:
    assert set(CELLS) == {(who, act) for who in Principal for act in Act}
    polled_here = {(Principal.POLLER, Act.IMPERSONATE)}
    unshown = {each for each, cell in CELLS.items() if cell.yes and not cell.shown_by} - set(OPENINGS) - polled_here
    assert unshown == set()


@cache
def names_of(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return frozenset(each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


def test_what_shows_a_cell_is_a_test() -> None:
    named = {name.partition("::")[::2] for cell in CELLS.values() for name in cell.shown_by}
    assert [f"{file}::{function}" for file, function in sorted(named) if function not in names_of(file)] == []


def test_only_an_administrator_switches_off_a_healthy_machine_or_frees_a_running_one() -> None:
    """But for what is theirs anyway, and where a setting that `nodewarden doctor` names makes a no of it."""
    taken = {
        (who, act)
        for (who, act), cell in CELLS.items()
        if cell.yes and act in {Act.POWER_OFF, Act.FREE} and who not in ADMINISTRATORS and not (cell.own or cell.closed_by)
    }
    assert taken == set()


async def test_the_doctor_names_each_setting_that_makes_a_no_of_a_yes() -> None:
    told = {each.what.partition(":")[0] for each in await protection(Settings())}
    assert {cell.closed_by.partition(":")[0] for cell in CELLS.values() if cell.closed_by} <= told
