"""NodeActions in tests: made as kubectl makes them, on a simulated server that keeps the shipped policy and obeys none of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from activities.cluster.api.connection import ClusterConnection
from policy.episode import node_action
from policy.episode.node_action import GROUP, NAMESPACE, PLURAL, POLICY, VERSION, ActionName
from simulator.api.server import ApiServer
from simulator.api.storage.store import Store
from simulator.client import ApiAddress, ApiClient
from simulator.resources import Resource
from tests.documents import documents, path_of
from tests.system.real_api import simulated_only

ACTIONS = Resource(api_version=f"{GROUP}/{VERSION}", kind="NodeAction", plural=PLURAL)
PEOPLE = documents("deploy/people.yaml")
LONG_AGO = "2026-01-01T00:00:00Z"

Object = dict[str, Any]


def shipped(kind: str, **changes: Any) -> Object:
    """The policy or its binding, of old; changes: of its spec."""
    (found,) = [each for each in PEOPLE if each["kind"] == kind]
    return found | {"metadata": {"name": POLICY, "creationTimestamp": LONG_AGO}, "spec": found["spec"] | changes}


async def made(client: ApiClient, spec: Mapping[str, Any], **metadata: Any) -> ActionName:
    """As kubectl would make it."""
    kind = {"apiVersion": ACTIONS.api_version, "kind": ACTIONS.kind}
    document = kind | {"metadata": {"generateName": f"{spec['action']}-"} | metadata, "spec": dict(spec)}
    created = await client.create(ACTIONS.path(namespace=NAMESPACE), document)
    return ActionName(name=created["metadata"]["name"], uid=created["metadata"]["uid"])


@asynccontextmanager
async def api_with_actions(*, enforced: bool = True) -> AsyncIterator[tuple[ApiClient, ClusterConnection]]:
    """An administrator and a worker, beside a policy that is in force since long; enforced: whether there is one."""
    simulated_only("a policy that is made for one test is in force since long")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(node_action, "SETTLED", timedelta(0))
        async with (
            ApiServer(tokens={"administrator": "admin"}) as server,
            ApiClient(ApiAddress(url=server.url, token="administrator"), user_agent="administrator") as person,
            ClusterConnection.to(server.url, token="administrator") as connection,
        ):
            await person.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            for document in documents("deploy/crds/nodeactions.nodewarden.io.yaml"):
                await person.create(path_of(document), document)
            for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding") if enforced else ():
                await person.create(path_of(shipped(kind)), shipped(kind))
            yield person, connection


def of_old(store: Store) -> None:
    """The policy has been in force since long: a simulated server can be told so, and nobody waits."""
    for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        kind = ("admissionregistration.k8s.io", plural)
        for found in store.documents(plural, group=kind[0]):
            store.put(kind, found | {"metadata": found["metadata"] | {"creationTimestamp": LONG_AGO}})
