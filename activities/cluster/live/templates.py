"""The templates that a health check names, looked at once; whether they do is judged by `policy/remediation/templates.py`."""

from __future__ import annotations

from typing import TypeVar

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.refusals import ObjectNotFound
from activities.cluster.api.served_cluster import Connections, Discovery
from policy.checks.health_check import HealthCheck
from policy.fence.templates import is_own_template
from policy.remediation.templates import TemplateSeen, TemplateSight, judged, templates_of
from policy.values.object_refs import ObjectRef

C = TypeVar("C")


def place_of(template: ObjectRef, check: HealthCheck, connections: Connections[C]) -> C:
    """Ours live where the nodes are, those of other controllers where the check is that names them."""
    return connections.nodes if is_own_template(template) else connections.of(check.ref.api_version)


async def see_templates(
    check: HealthCheck, connections: Connections[ClusterConnection], kinds: Connections[Discovery]
) -> dict[ObjectRef, TemplateSeen]:
    """Each as it is now. What the API refuses to show is not known, and says why."""
    return {
        each: await _see(each, place_of(each, check, connections), place_of(each, check, kinds)) for each in templates_of(check)
    }


async def _see(template: ObjectRef, connection: ClusterConnection, kinds: Discovery) -> TemplateSeen:
    try:
        resource = await kinds.find(template.api_version, template.kind)
        if resource is None:
            return TemplateSeen(sight=TemplateSight.NO_KIND)
        if resource.namespaced and not template.namespace:
            return TemplateSeen(sight=TemplateSight.MISSING)
        path = resource.path(template.name, namespace=template.namespace if resource.namespaced else "")
        return judged(template, await connection.get(path))
    except ObjectNotFound:
        return TemplateSeen(sight=TemplateSight.MISSING)
    except ApplicationError as error:
        return TemplateSeen(sight=TemplateSight.UNKNOWN, problem=error.message)
