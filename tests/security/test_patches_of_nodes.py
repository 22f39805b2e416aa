"""A worker that was taken over may patch Nodes: of those only our own fields, by an admission policy (S41 in depth).

The same patches are made on the simulated API server, which enforces the shipped policy, and on a real one where there is one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from policy.checks.rules.medik8s import CONFIRMED_ANNOTATION
from policy.episode.gate import DELETION_TRIGGER_ANNOTATION, HOLD_ANNOTATION
from policy.objects.machines import CAPI_MACHINE_ANNOTATION, OPENSHIFT_MACHINE_ANNOTATION
from policy.objects.marks import TERMINATING_ANNOTATION, TERMINATING_LABEL
from policy.objects.nodes import EXCLUDE_LABEL, MARK_ANNOTATION, MARK_LABEL, OUR_TAINT, PRESERVE_ANNOTATION
from policy.preservation.machine_snapshot import (
    ENDED_ANNOTATION,
    EXPIRY_ANNOTATION,
    SCALE_DOWN_DISABLED,
    SCALE_DOWN_DISABLED_OURS,
    TAINT,
)
from policy.preservation.requests import ISOLATE_ANNOTATION, PRESERVE_FOR_ANNOTATION
from policy.values.errors import PolicyError
from simulator.api.server import ApiServer
from simulator.client import ApiAddress, ApiClient, ApiError
from simulator.resources import NODES
from starter.deploy.admission import admission, kept_nodes
from starter.deploy.features import Process
from starter.deploy.manifests import to_yaml
from tests.cel import CelPython
from tests.documents import ROOT, documents, every, path_of
from tests.system.real_api import RealApiServer, assets, simulated_only

NODE = "node-1"
THEIRS = {"key": "security/quarantine", "effect": "NoSchedule"}
SICK = {"key": "example.com/sick", "effect": "NoSchedule"}
OURS = {"key": OUR_TAINT.key, "value": OUR_TAINT.value, "effect": OUR_TAINT.effect}
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
STATUS = "status"


def a_node() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "labels": {"pool": "a"}, "annotations": {"theirs": "x"}},
        "spec": {"providerID": "sim:///1", "taints": [THEIRS]},
        "status": {"conditions": [READY], "capacity": {"cpu": "4"}},
    }


ALLOWED: dict[str, tuple[str, dict[str, Any]]] = {
    "a cordon": ("", {"spec": {"unschedulable": True}}),
    "the out-of-service taint": ("", {"spec": {"taints": [THEIRS, OURS]}}),
    "the taint of what is kept": ("", {"spec": {"taints": [THEIRS, {"key": TAINT, "effect": "NoSchedule"}]}}),
    "the taint of a fence configuration": ("", {"spec": {"taints": [THEIRS, SICK]}}),
    "a mark": ("", {"metadata": {"annotations": {MARK_ANNOTATION: "{}"}, "labels": {MARK_LABEL: "0"}}}),
    "the claim of a deletion": (
        "",
        {"metadata": {"annotations": {TERMINATING_ANNOTATION: "x"}, "labels": {TERMINATING_LABEL: "0"}}},
    ),
    "the condition of what is kept": (STATUS, {"status": {"conditions": [READY, {"type": "Preserved", "status": "True"}]}}),
}
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "its pods' network": ("", {"spec": {"podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"]}}),
    "somebody's taint taken away": ("", {"spec": {"taints": []}}),
    "somebody's taint with another effect": ("", {"spec": {"taints": [THEIRS | {"effect": "NoExecute"}]}}),
    "a taint that nobody has named": ("", {"spec": {"taints": [THEIRS, {"key": "a", "effect": "NoSchedule"}]}}),
    "a named taint that drives pods out": ("", {"spec": {"taints": [THEIRS, SICK | {"effect": "NoExecute"}]}}),
    "the out-of-service taint with another value": ("", {"spec": {"taints": [THEIRS, OURS | {"value": "x"}]}}),
    "an annotation of others": ("", {"metadata": {"annotations": {"theirs": "y"}}}),
    "an annotation of others, removed": ("", {"metadata": {"annotations": {"theirs": None}}}),
    "a word of people": ("", {"metadata": {"annotations": {"nodewarden.io/hold": "true"}}}),
    "a label that places pods": ("", {"metadata": {"labels": {"pool": "b"}}}),
    "a finalizer": ("", {"metadata": {"finalizers": ["example.com/stay"]}}),
    "an owner": ("", {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "y"}]}}),
    "that it is well": (STATUS, {"status": {"conditions": [READY | {"status": "False"}]}}),
    "its capacity": (STATUS, {"status": {"capacity": {"cpu": "400"}}}),
    "a label beside its status": (STATUS, {"metadata": {"labels": {"pool": "b"}}}),
}


@pytest.fixture(scope="module")
def printed() -> list[dict[str, Any]]:
    """With the key of a taint that a fence configuration names."""
    return every(to_yaml(admission(taints=[SICK["key"]])))


def test_the_shipped_policies_are_what_the_command_prints() -> None:
    assert to_yaml(admission()) == Path(ROOT, "deploy/admission.yaml").read_text(encoding="utf-8")


def test_every_policy_denies_and_fails_closed() -> None:
    policies = [each for each in documents("deploy/admission.yaml") if each["kind"] == "ValidatingAdmissionPolicy"]
    bindings = [each for each in documents("deploy/admission.yaml") if each["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert [each["spec"]["policyName"] for each in bindings] == [each["metadata"]["name"] for each in policies]
    fails = {each["metadata"]["name"]: each["spec"]["failurePolicy"] for each in policies}
    assert fails == {"nodewarden-node-patches": "Fail", "nodewarden-kept-nodes": "Ignore"}  # no kubelet is kept from reporting
    assert all(each["spec"]["validationActions"] == ["Deny"] for each in bindings)


def test_a_taint_of_a_fence_configuration_is_named_first() -> None:
    for strange in ("it's", "a b", ""):
        with pytest.raises(PolicyError, match="expected the key of a taint"):
            admission(taints=[strange])


# Each field, on an API server ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clients:
    """Of a cluster where the policies are in force: a person's, those of our accounts, and those of two kubelets."""

    person: ApiClient
    workers: Sequence[ApiClient]
    kubelet: ApiClient
    other: ApiClient


@pytest.fixture(scope="module", params=["simulated", "real"])
async def clients(request: pytest.FixtureRequest, printed: list[dict[str, Any]]) -> AsyncIterator[Clients]:
    """All accounts of ours on a simulated API server, that of `deploy/rbac.yaml` on a real one."""
    names = [f"system:node:{name}" for name in (NODE, "node-2")]
    async with AsyncExitStack() as stack:
        if request.param == "simulated":
            simulated_only("[real] is the same on a real one")
            accounts = {process.value: f"system:serviceaccount:nodewarden:{process.account}" for process in Process}
            kubelets = [f"token-of-{name}" for name in names]
            known = {"administrator": "admin"} | accounts | dict(zip(kubelets, names, strict=True))
            simulated = await stack.enter_async_context(ApiServer(tokens=known))
            simulated.admission.cel = CelPython()
            address = ApiAddress(url=simulated.url, token="administrator")
        else:
            if (folder := assets()) is None:
                pytest.skip("needs a real API server (KUBEBUILDER_ASSETS)")
            temporary = request.getfixturevalue("tmp_path_factory").mktemp("api")
            real = await stack.enter_async_context(RealApiServer(folder, temporary, users=names))
            kubelets = [real.token_of(name) for name in names]
            address = ApiAddress(url=real.url, token=real.token, certificate_authority=real.certificate_authority)
        person = await stack.enter_async_context(ApiClient(address, user_agent="person"))
        for document in [*documents("deploy/medik8s-leases.yaml", "deploy/rbac.yaml"), *printed]:
            await person.create(path_of(document), document)
        await person.create(NODES.path(), a_node())
        if request.param == "simulated":
            tokens = [process.value for process in Process]
            (binding,) = [each for each in documents("deploy/rbac.yaml") if each["kind"] == "ClusterRoleBinding"]
            ours = {"kind": "Group", "name": "system:serviceaccounts:nodewarden"}
            await person.create(path_of(binding), binding | {"metadata": {"name": "all-of-ours"}, "subjects": [ours]})
        else:
            account = "/api/v1/namespaces/nodewarden/serviceaccounts/nodewarden/token"
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
            tokens = [(await person.create(account, body))["status"]["token"]]
        workers = [
            await stack.enter_async_context(ApiClient(replace(address, token=token), user_agent="worker")) for token in tokens
        ]
        await restore(person)
        await in_force(workers[0], NODE)
        others = [
            await stack.enter_async_context(ApiClient(replace(address, token=token), user_agent="kubelet")) for token in kubelets
        ]
        yield Clients(person, workers, *others)


async def restore(person: ApiClient) -> None:
    """The Node as `a_node` has it, whatever was written since."""
    annotations, labels = (MARK_ANNOTATION, TERMINATING_ANNOTATION), (MARK_LABEL, TERMINATING_LABEL)
    metadata = {"annotations": dict.fromkeys(annotations), "labels": dict.fromkeys(labels)}
    await person.patch(NODES.path(NODE), {"metadata": metadata, "spec": {"unschedulable": None, "taints": [THEIRS]}})
    await person.patch(f"{NODES.path(NODE)}/status", {"status": a_node()["status"]})


async def in_force(worker: ApiClient, node: str) -> None:
    """The API server takes a policy up some moments after it was made."""
    async with asyncio.timeout(30):
        while True:
            try:
                await worker.patch(f"{NODES.path(node)}?dryRun=All", {"metadata": {"labels": {"is-it-in-force": "yes"}}})
            except ApiError as error:
                if "nodewarden-node-patches" in str(error):
                    return
                raise
            await asyncio.sleep(0.2)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("what", [*ALLOWED, *REFUSED])
async def test_a_patch_by_us_changes_our_fields_only(what: str, clients: Clients) -> None:
    """S28, S32, S41. Those who are not nodewarden may do what they like."""
    subresource, change = (ALLOWED | REFUSED)[what]
    path = "/".join(part for part in (NODES.path(NODE), subresource) if part)
    for worker in clients.workers:
        if what in REFUSED:
            with pytest.raises(ApiError) as refused:
                await worker.patch(path, change)
            assert (refused.value.status, "nodewarden-node-patches" in str(refused.value)) == (422, True), refused.value
            await clients.person.patch(f"{path}?dryRun=All", change)
        else:
            await worker.patch(path, change)
            await restore(clients.person)


KEPT = {
    "metadata": {
        "annotations": {
            PRESERVE_ANNOTATION: "now",
            EXPIRY_ANNOTATION: "2126-11-24T09:30:00Z",
            SCALE_DOWN_DISABLED: "true",
            SCALE_DOWN_DISABLED_OURS: "true",
        }
    }
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("subresource", ["", STATUS])
async def test_s21_a_kubelet_takes_back_nothing_of_what_keeps_its_machine(subresource: str, clients: Clients) -> None:
    """S41: NodeRestriction lets it write every annotation of its own Node, and the Node's value beats that of its Machine. What
    it reports else is taken, and a person's word as well."""
    path = "/".join(part for part in (NODES.path(NODE), subresource) if part)
    await clients.person.patch(NODES.path(NODE), KEPT)
    for key, value in (
        (PRESERVE_ANNOTATION, "false"),
        (PRESERVE_ANNOTATION, None),
        (EXPIRY_ANNOTATION, "2026-01-01T00:00:00Z"),
        (PRESERVE_FOR_ANNOTATION, "1s"),
        (ISOLATE_ANNOTATION, "false"),
        (ENDED_ANNOTATION, "2026-01-01T00:00:00Z"),
        (DELETION_TRIGGER_ANNOTATION, "true"),
        (HOLD_ANNOTATION, "true"),
        (CONFIRMED_ANNOTATION, ""),
        (OPENSHIFT_MACHINE_ANNOTATION, "machines/another"),
        (CAPI_MACHINE_ANNOTATION, "another"),
        (SCALE_DOWN_DISABLED, "false"),
        (SCALE_DOWN_DISABLED, None),
    ):
        with pytest.raises(ApiError, match="a kubelet says nothing of whether its machine is"):
            await clients.kubelet.patch(path, {"metadata": {"annotations": {key: value}}})
    await clients.kubelet.patch(
        path, {"metadata": {"annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}}
    )
    await clients.kubelet.patch(f"{NODES.path(NODE)}/status", {"status": {"conditions": [READY | {"message": "posts"}]}})
    registers = a_node() | {"metadata": {"name": "node-2", "annotations": {PRESERVE_ANNOTATION: "false"}}}
    with pytest.raises(ApiError, match="a kubelet says nothing"):
        await clients.other.create(NODES.path(), registers)
    await clients.other.create(NODES.path(), a_node() | {"metadata": {"name": "node-2"}})
    await clients.person.delete(NODES.path("node-2"))
    found = (await clients.person.get(NODES.path(NODE)))["metadata"]["annotations"]
    assert {key: found[key] for key in KEPT["metadata"]["annotations"]} == KEPT["metadata"]["annotations"]
    gone = dict.fromkeys(KEPT["metadata"]["annotations"])
    await clients.person.patch(NODES.path(NODE), {"metadata": {"annotations": {**gone, PRESERVE_FOR_ANNOTATION: None}}})
    await clients.kubelet.patch(path, {"metadata": {"labels": {EXCLUDE_LABEL: "true"}}})  # as an operator on it may, too
    for value in ("false", None):
        with pytest.raises(ApiError, match="a kubelet ends no exclusion of its machine"):
            await clients.kubelet.patch(path, {"metadata": {"labels": {EXCLUDE_LABEL: value}}})
    await clients.person.patch(NODES.path(NODE), {"metadata": {"labels": {EXCLUDE_LABEL: None}}})
    await clients.kubelet.patch(path, {"metadata": {"annotations": {SCALE_DOWN_DISABLED: "true"}}})  # of one that is not kept
    await clients.kubelet.patch(path, {"metadata": {"annotations": {SCALE_DOWN_DISABLED: None}}})


def test_s21_no_expression_about_kubelets_walks_what_they_write() -> None:
    """An API server ends an expression after so many steps (a million), and a policy that fails so lets the kubelet's write pass:
    with 150,000 labels, for which its Node has room, a kubelet ended the exclusion of its machine."""
    policy, _ = kept_nodes().objects()
    for each in policy["spec"]["validations"]:
        assert not re.search(r"(variables|object|oldObject)[\w.]*\.(all|exists|exists_one|filter|map)\(", each["expression"])


async def test_the_refusal_of_a_taint_says_how_it_is_named(clients: Clients) -> None:
    change = {"spec": {"taints": [THEIRS, SICK | {"key": "example.com/other"}]}}
    with pytest.raises(ApiError, match="nodewarden deploy admission --taints"):
        await clients.workers[0].patch(NODES.path(NODE), change)
