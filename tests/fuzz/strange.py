"""Documents with something strange in them: one of `STRANGE` at a place drawn from all there are, a field too few, one too many.

`NODEWARDEN_FUZZ=20` tries twenty times as many as a usual run does.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from hypothesis import settings
from hypothesis import strategies as st

from activities.cluster.api import paths
from activities.cluster.api.paths import MACHINE_DEPLOYMENTS, MACHINES, Resource
from policy.objects.marks import MARK_ANNOTATION, MARK_LABEL, Mark, digest_of
from policy.objects.nodes import PRESERVE_ANNOTATION
from policy.preservation.requests import ISOLATE_ANNOTATION, PRESERVE_FOR_ANNOTATION
from policy.values.machine_apis import CLUSTER_API, MCM, OPENSHIFT
from tests.cluster.fencing_requests import remediation
from tests.policy.builders import WORKER, a_cluster_config, a_policy, check_object, config_map
from tests.policy.dialects import test_bad_objects as dialects
from tests.policy.fence.test_own_objects import an_object
from tests.policy.fence.test_templates import template
from tests.power.raw_server import hanging_up, raw_server, saying
from tests.vectors.objects import moment

Json = dict[str, Any]
Path = tuple[str | int, ...]

DEEP, DEPTH = "@deep@", 3000
"""Stands for so many lists within each other, which no writer of JSON here would write."""

STRANGE: list[Any] = [
    *(None, True, False, 0, -1, 7, 1.5, 10**12, 2**63, -(2**63), 1e308),
    *("", " ", "7", "-1", "1e999", "9" * 5000, "٣", "²", "x" * 3000, "\x00", "\n\r\t", "a\nb=c", "é💥\u202e", "{{", "None"),
    *("-oProxyCommand=x", "../..", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "2026-11-21T10:00:00", "99999999h", "1h"),
    *([], {}, [None], [[]], [{}], ["x"], {"": None}, {"x": {"y": []}}, {"x": "\x00"}, [7] * 3000, DEEP, {"conditions": 7}),
]
NO_JSON: list[Any] = [10**400, -(10**4000), float("nan"), float("inf"), "\ud800"]
"""What no API server stores, and a device or a program may say all the same."""


TIMES = int(os.environ.get("NODEWARDEN_FUZZ", "1"))
PATIENCE = pytest.mark.timeout(120 * TIMES)


def examples(count: int) -> settings:
    """So many, or more where somebody has the time."""
    return settings(max_examples=count * TIMES)


def places(found: Any, path: Path = ()) -> Iterator[Path]:
    """Where something stands, the whole excepted."""
    inside = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for step, value in inside:
        yield (*path, step)
        yield from places(value, (*path, step))


def at(found: Any, path: Path) -> Any:
    """What stands there."""
    for step in path:
        found = found[step]
    return found


@st.composite
def changed(draw: st.DrawFn, document: Mapping[str, Any], *, keeps: frozenset[Path] = frozenset(), stored: bool = False) -> Json:
    """The document with one or two things strange. keeps: what stays as it is. stored: an API server has taken it."""
    found: Json = copy.deepcopy(dict(document))
    strange = st.sampled_from(STRANGE if stored else STRANGE + NO_JSON)
    for _ in range(draw(st.integers(1, 2))):
        where = [
            path for path in places(found) if not any(path == kept[: len(path)] or path[: len(kept)] == kept for kept in keeps)
        ]
        if not where:
            break
        path = draw(st.sampled_from(where))
        holder, step = at(found, path[:-1]), path[-1]
        match draw(st.sampled_from(("other", "other", "other", "gone", "more", "twin"))):
            case "other":
                holder[step] = copy.deepcopy(draw(strange))
            case "gone":
                del holder[step]
            case "more" if isinstance(holder, dict):
                holder[draw(st.sampled_from(("", "x", "é\x00", "-x")))] = copy.deepcopy(draw(strange))
            case _:
                holder[step] = [copy.deepcopy(holder[step])] * 2
    return found


def as_bytes(document: Any) -> bytes:
    """As somebody would send it."""
    deep = b"[" * DEPTH + b"]" * DEPTH
    return json.dumps(document).encode().replace(json.dumps(DEEP).encode(), deep)


def as_value(document: Any) -> Any:
    """As whoever has read it would have it: as deep as readers of JSON go, which here is not as deep."""
    if document == DEEP:
        nested: list[Any] = []
        for _ in range(900):
            nested = [nested]
        return nested
    if isinstance(document, dict):
        return {key: as_value(value) for key, value in document.items()}
    return [as_value(each) for each in document] if isinstance(document, list) else document


# A server that says whatever a test wants it to say, in the one loop in which the tests of a file ask it.


class Server:
    """`runner` is where it runs."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner, self.url, self._answer = runner, "", hanging_up

    def say(self, status: int, body: bytes, *headers: str) -> None:
        """From now on."""
        self._answer = saying(f"{status} Said", body, *headers, "Connection: close")

    async def answer(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        await self._answer(request, writer)
        writer.close()


@contextmanager
def served() -> Iterator[Server]:
    with asyncio.Runner() as runner:
        server = Server(runner)
        running = raw_server(server.answer)
        server.url = runner.run(running.__aenter__()).url
        yield server
        runner.run(running.__aexit__(None, None, None))


# Objects as people and controllers write them, one of each kind that is read: what is right before it is made strange.

NODE = "node-1"


def flow(text: str) -> Json:
    """From YAML. M: an hour ago."""
    found: Json = yaml.load(text.replace("M,", f"'{moment(3600)}',"), yaml.CSafeLoader)
    return found


OWNER = flow("{kind: NodeHealthCheck, name: workers, uid: uid-of-workers, controller: true}")
CONDITION = flow("{type: Ready, status: Unknown, lastTransitionTime: M, reason: r, message: m}")
STATUS = {
    "conditions": [CONDITION, CONDITION | {"type": "Disabled"}, CONDITION | {"type": "StormActive", "status": "True"}],
    "unhealthyNodes": [{"name": NODE, "remediations": [{"resource": OWNER, "started": moment(60)}]}],
    "inFlightRemediations": {NODE: moment(60)},
    "v1beta2": {"conditions": [CONDITION]},
    "deprecated": {"v1beta1": {"conditions": [CONDITION], "failureReason": "f", "failureMessage": "m"}},
}
OF_MACHINES = flow("{currentStatus: {phase: Failed, preserveExpiryTime: M, x: 1}, lastOperation: {description: d}, node: node-1}")
KEPT = {PRESERVE_ANNOTATION: "now", PRESERVE_FOR_ANNOTATION: "24h", ISOLATE_ANNOTATION: "true"}
MARK = Mark(incident="i", kind="Fencing", workflow_id="w", cordoned=True, taints=("k=v:NoSchedule",)).to_json()


def named(document: Json, status: Json | None = None, **metadata: Any) -> Json:
    """With what an API server adds, and with a status where one is given."""
    added = flow("{uid: u, resourceVersion: '7', generation: 1, creationTimestamp: M, x: y}")
    added["managedFields"] = [{"manager": "somebody", "subresource": "status", "time": moment(5)}]
    told = {"status": document.get("status", {}) | status} if status else {}
    return document | told | {"metadata": added | document["metadata"] | metadata}


def a_node(name: str = NODE) -> Json:
    node = flow("""
    {apiVersion: v1, kind: Node, spec: {providerID: p, unschedulable: true, taints: [{key: k, effect: NoSchedule, value: v}]},
     status: {nodeInfo: {bootID: b, systemUUID: s}, addresses: [{type: InternalIP, address: 10.0.0.7}]}}""")
    node["metadata"] = {"name": name, "labels": {WORKER: "", "x/rack": "r", MARK_LABEL: digest_of(MARK)}}
    return named(node, {"conditions": [CONDITION]}, annotations={MARK_ANNOTATION: MARK} | KEPT)


def a_machine(dialect: str) -> Json:
    hook = {"pre-drain.delete.hook.machine.cluster.x-k8s.io/x": "y"}
    machine = named(dialects.a_machine_object(dialect, NODE), STATUS | OF_MACHINES, annotations=KEPT | hook)
    hooks = flow("{providerID: p, lifecycleHooks: {preDrain: [{name: n, owner: o}]}, machinePreserveTimeout: 96h}")
    return machine | {"spec": machine.get("spec", {}) | hooks | {"providerSpec": {"value": {"x": 1}}}}


def tells(kind: str, condition: str) -> Json:
    return named({"kind": kind, "metadata": {"name": "x"}}, {"conditions": [CONDITION | {"type": condition, "status": "True"}]})


A_SET = named(
    flow("""
    {metadata: {name: set, namespace: machines, annotations: {deployment.kubernetes.io/revision: '3'}},
     spec: {replicas: 3, autoPreserveFailedMachineMax: 1,
            template: {metadata: {labels: {a: b}}, spec: {machinePreserveTimeout: 1h}}}}"""),
    ownerReferences=[OWNER],
)
A_LEASE = named(
    flow("""
    {metadata: {name: lease, namespace: medik8s},
     spec: {holderIdentity: m, leaseDurationSeconds: 15, renewTime: '2026-11-21T11:59:59.000000Z', leaseTransitions: 3}}""")
)
A_POOL = named(
    flow("""
    {metadata: {name: pool}, spec: {selector: {matchLabels: {a: b}}, zones: [z], settleTime: 5s, isolate: true,
                                    autoPreserveFailedMax: 2, machinePreserveTimeout: 72h}}""")
)
A_VOLUME = named(flow("{metadata: {name: v}, spec: {nodeName: node-1, attacher: a, source: {persistentVolumeName: pv}}}"))
A_POD = named(
    flow("{metadata: {name: p, namespace: n}, spec: {nodeName: node-1, volumes: [{persistentVolumeClaim: {claimName: c}}]}}")
)

METHOD = "agent_name=fence_ipmilan\nip=10.0.0.7\naction=off\nlogin=env:USER\npassword=file:nodewarden/bmc/password"
OF_NODE = config_map(
    f"fence-config-node-{NODE}",
    "isolation=cut\npower_management=off on\nrecovery=",
    **{"fence-method-off": METHOD, "fence-method-on": METHOD.replace("off", "on")},
    **{"fence-method-cut": "agent_name=fence_brocade\ntemplate=sw\nplug=3"},
)
SWITCH = config_map("fence-template-sw", None, **{"template.properties": "agent_name=fence_brocade\nipaddr=10.0.0.8"})
CLUSTER_CONFIG = a_cluster_config(grace_timeout=30, giveup_retries=2, policies="racks skip-if-host-lost-storage")
OWN_CONFIG = an_object(NODE, nodeName=NODE)
TEMPLATE = named(template())

WATCHED: list[tuple[Resource, Json]] = [
    (paths.NODES, a_node()),
    (paths.NODE_HEALTH_CHECKS, named(check_object("workers"), STATUS)),
    (paths.OPENSHIFT_MACHINE_HEALTH_CHECKS, named(dialects.a_machine_check(dialects.OPENSHIFT, "mhc"), STATUS)),
    (paths.CAPI_MACHINE_HEALTH_CHECKS, named(dialects.a_machine_check(dialects.SECOND, "mhc"), STATUS)),
    (paths.CAPI_MACHINE_HEALTH_CHECKS, named(dialects.a_machine_check(dialects.FIRST, "old"), STATUS)),
    (paths.CONFIG_MAPS, CLUSTER_CONFIG),
    (paths.CONFIG_MAPS, a_policy("racks", scope="x/rack", cap=1)),
    (paths.FENCE_AGENTS_REMEDIATIONS, named(remediation(NODE), STATUS)),
    (MACHINES[OPENSHIFT], a_machine(dialects.OPENSHIFT)),
    (MACHINES[CLUSTER_API], a_machine(dialects.SECOND)),
    (MACHINES[MCM], a_machine(dialects.OPENSHIFT)),
    (MACHINE_DEPLOYMENTS[MCM], A_SET),
    (paths.CAPI_CLUSTERS, named(dialects.a_cluster_object(dialects.SECOND))),
    (paths.PRESERVATION_POLICIES, A_POOL),
    (paths.CLUSTER_VERSIONS, tells("ClusterVersion", "Progressing")),
    (paths.MACHINE_CONFIG_POOLS, tells("MachineConfigPool", "Updating")),
    (paths.LEASES, A_LEASE),
    (paths.VOLUME_ATTACHMENTS, A_VOLUME),
]
"""What a scanner follows."""
