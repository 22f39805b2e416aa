"""Rights and admission: what RBAC grants by groups and paths, what a kubelet may do, and what admission policies deny."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.api.server import ApiServer
from tests.cel import CelPython
from tests.simulator.api.client import CONFIG_MAPS, NODES, PODS, Client

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
POLICIES = "/apis/admissionregistration.k8s.io/v1"
SECRETS = "/api/v1/namespaces/default/secrets"
TOKENS = {"abc": "admin", "kubelet": "system:node:n1", "account": "system:serviceaccount:default:app", "eve": "eve"}


@pytest.fixture
async def clients(api: ApiServer, client: Client) -> dict[str, Client]:
    """By user, beside two Nodes and a pod of each that uses a Secret of its own."""
    api.authorization.tokens = dict(TOKENS)
    for number in (1, 2):
        await client.post(NODES, {"metadata": {"name": f"n{number}"}})
        await client.post(SECRETS, {"metadata": {"name": f"s{number}"}})
        volumes = [{"name": "v", "secret": {"secretName": f"s{number}"}}]
        spec = {"nodeName": f"n{number}", "containers": [{"name": "main", "image": "x"}], "volumes": volumes}
        assert (await client.post(PODS, {"metadata": {"name": f"p{number}"}, "spec": spec})).status == 201
    return {token: Client(client.url, client.session, token) for token in TOKENS}


async def grant(client: Client, rule: dict[str, Any], subject: dict[str, Any]) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x"}
    await client.post(f"{RBAC}/clusterroles", {"metadata": {"name": "x"}, "rules": [rule]})
    await client.post(f"{RBAC}/clusterrolebindings", {"metadata": {"name": "x"}, "roleRef": reference, "subjects": [subject]})


@pytest.mark.parametrize(
    ("group", "users"),
    [
        ("system:serviceaccounts", {"account"}),
        ("system:serviceaccounts:default", {"account"}),
        ("system:serviceaccounts:other", set()),
        ("system:nodes", {"kubelet"}),
        ("system:authenticated", {"account", "kubelet", "eve"}),
    ],
)
async def test_a_right_of_a_group_is_its_members(group: str, users: set[str], clients: dict[str, Client]) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    await grant(clients["abc"], rule, {"kind": "Group", "name": group})
    allowed = {user for user in ("account", "kubelet", "eve") if (await clients[user].get(CONFIG_MAPS)).status == 200}
    assert allowed == users


async def test_a_right_to_a_path_is_no_right_to_others(clients: dict[str, Client]) -> None:
    await grant(clients["abc"], {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}, {"kind": "User", "name": "eve"})
    for path, verb, allowed in (("/metrics", "get", True), ("/logs", "get", False), ("/metrics", "post", False)):
        spec = {"user": "eve", "nonResourceAttributes": {"path": path, "verb": verb}}
        answer = await clients["abc"].post(REVIEWS, {"spec": spec})
        assert answer.document["status"]["allowed"] is allowed, (path, verb)


async def test_a_kubelet_changes_its_own_node_and_neither_taints_nor_withheld_labels(clients: dict[str, Client]) -> None:
    async def patch(name: str, change: dict[str, Any]) -> int:
        return (await clients["kubelet"].patch(f"{NODES}/{name}", change)).status

    assert await patch("n1", {"metadata": {"annotations": {"a": "b"}, "labels": {"pool": "b"}}}) == 200
    assert await patch("n1", {"spec": {"unschedulable": True}}) == 200
    assert await patch("n2", {"metadata": {"annotations": {"a": "b"}}}) == 403
    assert await patch("n1", {"spec": {"taints": []}}) == 403
    for label in ("x.node-restriction.kubernetes.io/a", "node-role.kubernetes.io/worker", "example.k8s.io/a"):
        assert await patch("n1", {"metadata": {"labels": {label: "b"}}}) == 403, label
    assert (await clients["kubelet"].delete(f"{NODES}/n1")).status == 403


async def test_a_kubelet_reads_and_deletes_what_is_of_its_pods(clients: dict[str, Client]) -> None:
    kubelet = clients["kubelet"]
    assert [(await kubelet.get(f"{SECRETS}/s{number}")).status for number in (1, 2)] == [200, 403]
    assert (await kubelet.get(SECRETS)).status == 403
    assert (await kubelet.delete(f"{PODS}/p2")).status == 403
    assert (await kubelet.delete(f"{PODS}/p1")).status == 200
    pod = {"metadata": {"name": "p3"}, "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "x"}]}}
    assert (await kubelet.post(PODS, pod)).status == 403


async def test_a_policy_denies_once_something_evaluates_it(api: ApiServer, clients: dict[str, Client]) -> None:
    """In the words of a real server; whoever is meant, and the authorizer's answer, count as well."""
    person = clients["abc"]
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}
    await grant(person, rule, {"kind": "User", "name": "eve"})
    spec = {
        "matchConstraints": {
            "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
        },
        "matchConditions": [{"name": "eve", "expression": "request.userInfo.username == 'eve'"}],
        "variables": [{"name": "name", "expression": "object.metadata.name"}],
        "validations": [
            {"expression": "variables.name != 'a'", "messageExpression": "'not ' + variables.name"},
            {
                "expression": "authorizer.group('').resource('nodes').name(variables.name).check('get').allowed()",
                "message": "no such node",
            },
        ],
    }
    await person.post(f"{POLICIES}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}
    await person.post(f"{POLICIES}/validatingadmissionpolicybindings", binding)

    async def create(user: str, name: str) -> tuple[int, str]:
        answer = await clients[user].post(CONFIG_MAPS, {"metadata": {"name": name}})
        return answer.status, answer.document.get("message", "")

    assert (await create("eve", "z"))[0] == 201
    api.admission.cel = CelPython()
    denied = "is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request:"
    assert await create("eve", "a") == (422, f'configmaps "a" {denied} not a')
    assert await create("eve", "b") == (422, f'configmaps "b" {denied} no such node')
    assert (await create("abc", "a"))[0] == 201
