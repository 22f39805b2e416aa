"""Which kinds the API server has: ours, which have to be there, and those of others, whose version we must speak."""

from __future__ import annotations

from typing import Any

import yaml

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import (
    CAPI_MACHINE_HEALTH_CHECKS,
    CUSTOM_RESOURCE_DEFINITIONS,
    FENCE_AGENTS_REMEDIATIONS,
    FENCE_CONFIGS,
    FENCING_TEMPLATES,
    MACHINE_DELETIONS,
    NODE_ACTIONS,
    NODE_FENCES,
    NODE_HEALTH_CHECKS,
    OPENSHIFT_MACHINE_HEALTH_CHECKS,
    PRESERVATION_POLICIES,
    REBOOTS,
    VOLUME_DETACHMENTS,
    Resource,
    versions_of,
)
from starter.deploy.shipped import crds
from starter.doctor.findings import Finding, ok, problem, warning

APPLY = "`nodewarden deploy crds | kubectl apply -f -`"

OURS = (
    FENCE_CONFIGS,
    FENCING_TEMPLATES,
    MACHINE_DELETIONS,
    NODE_ACTIONS,
    NODE_FENCES,
    PRESERVATION_POLICIES,
    REBOOTS,
    VOLUME_DETACHMENTS,
)
OTHERS = (
    NODE_HEALTH_CHECKS,
    OPENSHIFT_MACHINE_HEALTH_CHECKS,
    CAPI_MACHINE_HEALTH_CHECKS,
    FENCE_AGENTS_REMEDIATIONS,
)
CHECKS = OTHERS[:3]


def definition_name(resource: Resource) -> str:
    """How its definition is called."""
    return f"{resource.plural}.{resource.api_version.partition('/')[0]}"


async def definitions(connection: ClusterConnection, *, fix: bool) -> list[Finding]:
    """Whether our kinds are served, and those of others in a version that we speak. fix: make those of ours that are missing."""
    there = await served(connection)
    made = [name for each in OURS if (name := definition_name(each)) not in there] if fix else []
    for name in made:
        await connection.create(CUSTOM_RESOURCE_DEFINITIONS.path(), shipped(name))
    if made:
        there = await served(connection)
    found = [each for resource in (*OURS, *OTHERS) if (each := _judged(resource, there)) is not None]
    if not any(definition_name(each) in there for each in CHECKS):
        found.append(
            warning(
                "no kind of health check is served: nothing is done but what people ask for",
                "install the NodeHealthCheck of medik8s, or apply simulator/crds/nodehealthchecks.yaml",
            )
        )
    named = f"; made {', '.join(made)}" if made else ""
    return found or [ok(f"all of ours are served, and those of others in versions that we speak{named}")]


def shipped(name: str) -> dict[str, Any]:
    """Our definition of that name."""
    [file] = [each for each in crds() if each.stem == name]
    document: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return document


async def served(connection: ClusterConnection) -> dict[str, tuple[str, ...]]:
    """The versions that are served of each kind that has a definition."""
    return {
        each["metadata"]["name"]: _versions(each) for each in await connection.list_objects(CUSTOM_RESOURCE_DEFINITIONS.path())
    }


def _versions(definition: JsonObject) -> tuple[str, ...]:
    versions = (definition.get("spec") or {}).get("versions") or ()
    return tuple(str(each["name"]) for each in versions if each.get("served"))


def _judged(resource: Resource, there: dict[str, tuple[str, ...]]) -> Finding | None:
    name, ours = definition_name(resource), resource in OURS
    if name not in there:
        return problem(f"{name} is not there", f"{APPLY}, or `nodewarden doctor --fix`") if ours else None
    spoken = {each.api_version.partition("/")[2] for each in versions_of(resource)}
    if spoken.isdisjoint(there[name]):
        what = f"{name} is served as {', '.join(there[name]) or 'nothing'}, and we speak {', '.join(sorted(spoken))}"
        return problem(what, APPLY if ours else "serve that version, or use a nodewarden that knows it")
    return None
