"""`nodewarden uninstall --check`: whatever of ours is left is listed with what removes it, and nothing that is others'."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from activities.cluster.api.connection import ClusterConnection
from policy.objects.marks import Mark
from policy.objects.nodes import MARK_ANNOTATION, MARK_LABEL
from simulator.api.server import ApiServer
from simulator.client import ApiClient
from starter import uninstall
from starter.client import Nodewarden
from starter.deploy.rights import leases as leases_namespace
from starter.uninstall import Leftover
from tests.cluster.builders import NODES, node
from tests.cluster.machines import CLUSTER_API, machine_of
from tests.documents import ROOT, documents, path_of
from tests.starter.builders import nodewarden
from tests.starter.conftest import SETTINGS
from workers.temporal_namespace import required_search_attributes

LEASES = "/apis/coordination.k8s.io/v1/namespaces"
DEPLOYED = (
    "deploy/medik8s-leases.yaml",
    "deploy/rbac.yaml",
    *(f"deploy/crds/{path.name}" for path in sorted((ROOT / "deploy/crds").glob("*.yaml"))),
)
MARK = Mark(incident="i-1", kind="Fencing", workflow_id="w", cordoned=True, out_of_service=True, taints=("acme=x:NoSchedule",))


@pytest.fixture
async def connection(api: ApiServer) -> AsyncIterator[ClusterConnection]:
    async with ClusterConnection.to(api.url, token="administrator") as opened:
        yield opened


def commands(found: list[Leftover]) -> list[str]:
    return [each.remove for each in found]


async def test_what_an_episode_left_on_a_node_is_told_and_what_is_others_is_not(
    person: ApiClient, connection: ClusterConnection
) -> None:
    """S28, S41: only what a mark of ours says that we added is ours."""
    peoples = {"nodewarden.io/hold": "amy", "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    marked = node("node-1", **{MARK_ANNOTATION: MARK.to_json()}, **peoples)
    ours = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    acme, theirs = {"key": "acme", "value": "x", "effect": "NoSchedule"}, {"key": "theirs", "effect": "NoSchedule"}
    marked["spec"] |= {"unschedulable": True, "taints": [ours, acme, theirs]}
    await person.create(NODES, marked)
    bare = replace(MARK, cordoned=False, out_of_service=False, taints=())
    held = node("node-3", **{MARK_ANNOTATION: bare.to_json()})
    held["spec"] |= {"unschedulable": True, "taints": [ours, acme]}
    await person.create(NODES, held)
    strange = node("node-4", **{MARK_ANNOTATION: MARK.to_json()})
    strange["metadata"]["labels"][MARK_LABEL] = "no-digest"
    strange["spec"] |= {"unschedulable": True, "taints": [ours, acme]}
    await person.create(NODES, strange)
    others = node("node-2", **peoples)
    others["spec"] |= {"unschedulable": True, "taints": [ours]}
    await person.create(NODES, others)
    assert commands(await uninstall.nodes(connection)) == [
        "kubectl uncordon node-1",
        "kubectl taint node node-1 node.kubernetes.io/out-of-service-",
        "kubectl taint node node-1 acme-",
        f"kubectl annotate node/node-1 {MARK_ANNOTATION}-",
        f"kubectl label node node-1 {MARK_LABEL}-",
        f"kubectl annotate node/node-3 {MARK_ANNOTATION}-",
        f"kubectl label node node-3 {MARK_LABEL}-",
        f"kubectl annotate node/node-4 {MARK_ANNOTATION}-",
        f"kubectl label node node-4 {MARK_LABEL}-",
    ]


async def test_annotations_of_machines_are_found_where_machines_are(person: ApiClient, connection: ClusterConnection) -> None:
    assert await uninstall.machines(connection, None) == []
    await CLUSTER_API.install(person)
    await CLUSTER_API.add_cluster(person)
    machine = machine_of("node-1")
    await CLUSTER_API.add_machine(person, machine, node="node-1")
    path = CLUSTER_API.path("machines", machine)
    await person.patch(path, {"metadata": {"annotations": {"nodewarden.io/last-remediation": "{}", "theirs": "x"}}})
    target = f"-n {CLUSTER_API.namespace} machines.cluster.x-k8s.io/{machine}"
    assert commands(await uninstall.machines(connection, None)) == [f"kubectl annotate {target} nodewarden.io/last-remediation-"]


async def test_our_leases_are_told_and_those_of_others_are_not(person: ApiClient, connection: ClusterConnection) -> None:
    for document in leases_namespace():
        await person.create(path_of(document), document)
    for namespace, name, holder in (
        ("kube-system", "nodewarden", "prod"),
        ("medik8s-leases", "node-1", "nodewarden"),
        ("medik8s-leases", "node-2", "node-maintenance"),
    ):
        await person.create(f"{LEASES}/{namespace}/leases", {"metadata": {"name": name}, "spec": {"holderIdentity": holder}})
    assert commands(await uninstall.leases(connection)) == [
        "kubectl delete lease -n kube-system nodewarden",
        "kubectl delete lease -n medik8s-leases node-1",
    ]


async def deploy(person: ApiClient) -> None:
    for document in documents(*DEPLOYED):
        await person.create(path_of(document), document)


async def test_all_that_deploy_brings_is_found_but_for_the_namespace_that_medik8s_may_use(
    person: ApiClient, connection: ClusterConnection
) -> None:
    looks = (uninstall.rights, uninstall.definitions, uninstall.namespaces, uninstall.node_fences)
    for look in looks:
        assert await look(connection) == [], look
    await deploy(person)
    found = [each for look in looks for each in await look(connection)]
    brought = {
        "/".join(filter(None, (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])))
        for each in documents(*DEPLOYED)
        if each["kind"] not in {"ServiceAccount", "Secret", "CustomResourceDefinition"}
    }
    told = " ".join(each.what for each in found).replace(",", "").split()
    assert brought - set(told) == {"Namespace/medik8s-leases"}
    definitions = {each["metadata"]["name"] for each in documents(*DEPLOYED) if each["kind"] == "CustomResourceDefinition"}
    assert definitions <= set(told)
    assert not any("namespace medik8s-leases" in each.remove for each in found)


async def test_open_workflows_are_told_with_what_ends_each(warden: Nodewarden, cluster: str) -> None:
    await warden.start_scanner(cluster, check_every=None)
    await warden.fence(cluster, "node-1", reason="smoke")
    await warden.preserve(cluster, "node-2", reason="look at it")
    async with asyncio.timeout(20):
        while len(found := await uninstall.workflows(warden, cluster)) < 3:
            await asyncio.sleep(0.1)
    assert commands(found)[0] == f"nodewarden scan stop -c {cluster} --reason uninstalled"
    assert sorted(commands(found)[1:]) == [
        f"nodewarden abort node-1 -c {cluster} --reason uninstalled",
        f"nodewarden release node-2 -c {cluster} --reason uninstalled",
    ]
    assert "Phase" in (await uninstall.search_attributes(warden))[0].what


async def test_a_check_of_devices_without_its_scanner_is_ended_without_a_worker(warden: Nodewarden, cluster: str) -> None:
    """A worker that goes in the seconds after `scan stop` leaves it, and `scan stop` answers that there is no scanner."""
    await warden.device_check(cluster).repeat(timedelta(hours=1))
    async with asyncio.timeout(20):
        while not (found := await uninstall.workflows(warden, cluster)):
            await asyncio.sleep(0.1)
    namespace = warden.client.namespace
    assert commands(found) == [f"temporal workflow terminate -n {namespace} --workflow-id device-check/{cluster}"]


async def test_open_workflows_are_found_without_search_attributes(
    warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing those is the last advice, and who followed it looks once more."""
    queries = list[str]()
    listed = warden.client.list_workflows
    monkeypatch.setattr(warden.client, "list_workflows", lambda query, **more: queries.append(query) or listed(query, **more))
    await uninstall.workflows(warden, cluster)
    assert not any(re.search(rf"\b{name}\b", query) for name in required_search_attributes() for query in queries)


async def test_without_a_look_something_may_be_left(keyboard: Path, client: object, cluster: str) -> None:
    """It is no proof that nothing is there: exit code 1, and each place is named."""
    (keyboard / SETTINGS).write_text(f"clusters: {{{cluster}: {{server: 'http://127.0.0.1:1'}}}}", encoding="utf-8")
    result = await nodewarden("uninstall", "--check", "-c", cluster, "-o", "json")
    left = {each["place"]: each["what"] for each in json.loads(result.stdout)["left"]}
    assert result.exit_code == 1
    assert all(left[place].startswith("not looked at: ") for place in ("Nodes", "Leases", "rights", "namespaces")), left
    refused = await nodewarden("uninstall", "-c", cluster)
    assert (refused.exit_code, refused.stdout) == (2, "")


async def test_what_is_gone_is_code_0(
    keyboard: Path, api: ApiServer, cluster: str, client: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(_warden: Nodewarden) -> list[Leftover]:
        return []  # the tests' other clusters need them

    monkeypatch.setattr(uninstall, "search_attributes", none)
    (keyboard / "token").write_text("administrator", encoding="utf-8")
    known = {"server": api.url, "token_file": str(keyboard / "token")}
    (keyboard / SETTINGS).write_text(json.dumps({"clusters": {cluster: known}}), encoding="utf-8")
    result = await nodewarden("uninstall", "--check", "-c", cluster)
    assert (result.exit_code, "Nodes" in result.stdout, ">" in result.stdout) == (0, True, False), result.output
