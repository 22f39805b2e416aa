"""The sets above a Machine that is being deleted, or is gone, read live: who has overridden its preservation.

Reading only, and for people: what it means is `policy/preservation/overriding.py`. A preservation ends with its machine whether
or not this can be read, so that a server that refuses it, or does not know the kind, is told of and hinders nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.machine_paths import deployments_above, set_of
from activities.cluster.api.paths import Resource
from activities.cluster.api.refusals import ObjectNotFound
from policy.preservation.overriding import Overridden, Override, Wanted, overridden_by
from policy.values.moments import moment_of
from policy.values.object_refs import ObjectRef

REVISIONS = ("deployment.kubernetes.io/revision", "machinedeployment.clusters.x-k8s.io/revision")
"""On a MachineSet: which roll-out it is of, as machine-controller-manager and Cluster API count them."""


class _Owner(msgspec.Struct):
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    creation_timestamp: Any = None
    deletion_timestamp: Any = None


class _Spec(msgspec.Struct):
    replicas: int | None = None


class _Set(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None


async def overridden(connection: ClusterConnection, machine: ObjectRef, owner: str) -> Overridden:
    """machine: by its group, version and namespace. owner: kind and name of what controls it, "" where that is not known."""
    try:
        return await _read(connection, machine, owner)
    except (ApplicationError, msgspec.MsgspecError) as error:
        return Overridden(override=Override.DELETION, why=f"what is above it can't be read: {error}")


async def _read(connection: ClusterConnection, machine: ObjectRef, owner: str) -> Overridden:
    found_set = set_of(machine, owner)
    if found_set is None or (own := await _one(connection, found_set[0], machine.namespace, found_set[1])) is None:
        return overridden_by(None)
    sets, name = found_set
    above = _controller(own.metadata)
    deployments = deployments_above(machine)
    if deployments is None or above is None or above.kind != deployments.kind:
        return overridden_by(_wanted(sets, own))
    deployment = await _one(connection, deployments, machine.namespace, above.name)
    if deployment is None:
        return overridden_by(_wanted(sets, own))
    found = [msgspec.convert(each, _Set) for each in await connection.list_objects(sets.path(namespace=machine.namespace))]
    others = [each for each in found if _controller(each.metadata) == above and each.metadata.name != name]
    return overridden_by(_wanted(sets, own), _wanted(deployments, deployment), [_wanted(sets, each) for each in others])


async def _one(connection: ClusterConnection, resource: Resource, namespace: str, name: str) -> _Set | None:
    try:
        return msgspec.convert(await connection.get(resource.path(name, namespace=namespace)), _Set)
    except ObjectNotFound:
        return None


def _controller(metadata: _Metadata) -> _Owner | None:
    return next((owner for owner in metadata.owner_references or () if owner.controller), None)


def _wanted(resource: Resource, found: _Set) -> Wanted:
    metadata = found.metadata
    return Wanted(
        kind=resource.kind,
        name=metadata.name,
        replicas=found.spec.replicas if found.spec is not None else None,
        deleting=metadata.deletion_timestamp is not None,
        revision=_revision(metadata.annotations or {}),
        created=moment_of(metadata.creation_timestamp),
    )


def _revision(annotations: Mapping[str, str]) -> int:
    texts = (annotations.get(key, "") for key in REVISIONS)
    return next((int(text) for text in texts if text.isascii() and text.isdigit()), 0)
