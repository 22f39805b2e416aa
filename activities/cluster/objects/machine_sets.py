"""MachineSets and MachineDeployments: what they say of their Machines, and who has overridden the preservation of one.

The latter is read live from the sets above a Machine that is being deleted, or is gone, and is for people: what it means is
`policy/preservation/overrides.py`. A preservation ends with its machine whether or not this can be read, so that a server that
refuses it, or does not know the kind, is told of and hinders nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import Resource, deployments_above, set_of
from activities.cluster.api.refusals import unless_gone
from activities.cluster.objects.machines_decoding import WireMetadata, preserve_timeout
from policy.preservation.overrides import Overridden, Override, WantedReplicas, overridden_by
from policy.preservation.survey import DeploymentPool
from policy.values.fields import mapping
from policy.values.object_refs import ObjectRef
from policy.values.times import moment_of

REVISIONS = ("deployment.kubernetes.io/revision", "machinedeployment.clusters.x-k8s.io/revision")
"""On a MachineSet: which roll-out it is of, as machine-controller-manager and Cluster API count them."""
LONGEST_NUMBER = 20


class _SetSpec(msgspec.Struct, rename="camel"):
    replicas: int | None = None
    auto_preserve_failed_machine_max: int | None = None
    template: _Template | None = None


class _Template(msgspec.Struct):
    metadata: dict[str, Any] | None = None
    spec: _TemplateSpec | None = None


class _TemplateSpec(msgspec.Struct, rename="camel"):
    machine_preserve_timeout: Any = None


class _Set(msgspec.Struct):
    metadata: WireMetadata
    spec: _SetSpec | None = None


def deployment_of(document: JsonObject) -> tuple[DeploymentPool, str]:
    """What a MachineDeployment or MachineSet of machine-controller-manager says of preservation, and what controls it. Raises
    ValueError (msgspec's too)."""
    found = msgspec.convert(document, _Set)
    spec = found.spec or _SetSpec()
    cap = spec.auto_preserve_failed_machine_max or 0
    if cap < 0:
        raise ValueError(f"$.spec.autoPreserveFailedMachineMax: expected a whole number of at least 0, got {cap}")
    template = spec.template or _Template()
    labels = dict(found.metadata.labels or {})
    labels |= {key: value for key, value in mapping(mapping(template.metadata).get("labels")).items() if isinstance(value, str)}
    timeout = preserve_timeout(template.spec.machine_preserve_timeout if template.spec is not None else None)
    return DeploymentPool(name=found.metadata.name, cap=cap, timeout=timeout, labels=labels), found.metadata.controller


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
    above = own.metadata.controller
    kind, _, above_name = above.partition("/")
    deployments = deployments_above(machine)
    if deployments is None or kind != deployments.kind:
        return overridden_by(_wanted(sets, own))
    deployment = await _one(connection, deployments, machine.namespace, above_name)
    if deployment is None:
        return overridden_by(_wanted(sets, own))
    found = [msgspec.convert(each, _Set) for each in await connection.list_objects(sets.path(namespace=machine.namespace))]
    others = [each for each in found if each.metadata.controller == above and each.metadata.name != name]
    return overridden_by(_wanted(sets, own), _wanted(deployments, deployment), [_wanted(sets, each) for each in others])


async def _one(connection: ClusterConnection, resource: Resource, namespace: str, name: str) -> _Set | None:
    found = await unless_gone(connection.get(resource.path(name, namespace=namespace)))
    return msgspec.convert(found, _Set) if found is not None else None


def _wanted(resource: Resource, found: _Set) -> WantedReplicas:
    metadata = found.metadata
    return WantedReplicas(
        kind=resource.kind,
        name=metadata.name,
        replicas=found.spec.replicas if found.spec is not None else None,
        deleting=metadata.deletion_timestamp is not None,
        revision=_revision(metadata.annotations or {}),
        created=moment_of(metadata.creation_timestamp),
    )


def _revision(annotations: Mapping[str, str]) -> int:
    texts = (annotations.get(key, "") for key in REVISIONS)
    return next((int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < LONGEST_NUMBER), 0)
