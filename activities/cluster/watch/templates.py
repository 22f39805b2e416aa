"""The templates that health checks name: followed by a scanner, looked at once for a person.

So that a check without its remedy says so when it is written, and is in use again once its template is there. A kind that we may
not list says nothing of its templates, and its checks go on. What a template's absence means is judged by
`policy/remediation/ladder.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from temporalio.exceptions import ApplicationError

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.refusals import ObjectNotFound
from activities.cluster.api.served_cluster import Connections, Discovery
from activities.cluster.watch.intake import Intake
from activities.cluster.watch.kinds import ReadKind, template_kind
from activities.cluster.watch.reflector import Reflector
from policy.checks.health_check import HealthCheck
from policy.fence.template_reader import is_fencing_template, is_own_template
from policy.remediation.ladder import UNKNOWN, TemplateSeen, TemplateSight, judged, templates_of
from policy.values.object_refs import ObjectRef

C = TypeVar("C")

_Kind = tuple[ClusterConnection, str, str]
"""Where it lives, its version, its name."""

NewReflector = Callable[[ReadKind, ClusterConnection, Callable[[str, Any], None], Callable[[], None]], Reflector[Any]]
"""A watch of a kind on a server, with what is called for each changed object and when the watch's own state changes."""


class TemplateWatches:
    """Those of one cluster's checks. judge: is called when anything may have changed; it has the intake judge again."""

    def __init__(
        self, connections: Connections[ClusterConnection], reflector: NewReflector, *, judge: Callable[[], None]
    ) -> None:
        self._connections = connections
        self._reflector = reflector
        self._judge = judge
        self._followed: dict[_Kind, Reflector[JsonObject]] = {}
        self._found: dict[tuple[_Kind, str], TemplateSeen] = {}
        self._fencing: dict[tuple[_Kind, str], Any] = {}
        """What FencingTemplates say."""

    def __iter__(self) -> Iterator[Reflector[Any]]:
        return iter(self._followed.values())

    def follow(self, check: HealthCheck) -> tuple[Reflector[Any], ...]:
        """The kinds of its templates; they stay followed. Those that are new, to be started."""
        new = {kind: each for each in templates_of(check) if (kind := self._kind(check, each)) not in self._followed}
        for kind in sorted(new, key=lambda each: each[1:]):
            changed = partial(self._changed, kind)
            self._followed[kind] = self._reflector(template_kind(new[kind]), kind[0], changed, self._judge)
        return tuple(self._followed[kind] for kind in new)

    def judge(self, intake: Intake, *, only: str = "") -> None:
        """All checks by what is known now, or the one of that key."""
        intake.judge_templates(self._seen, only=only)

    def fencing(self, checks: Iterable[HealthCheck]) -> list[Any]:
        """Which FencingTemplates these checks name, and what each says, as far as it is there."""
        named = ((check, template) for check in checks for template in templates_of(check) if is_fencing_template(template))
        keys = ((check.ref.key, self._kind(check, each), f"{each.namespace}/{each.name}") for check, each in named)
        return sorted([check, key, self._fencing[kind, key]] for check, kind, key in keys if (kind, key) in self._fencing)

    def _kind(self, check: HealthCheck, template: ObjectRef) -> _Kind:
        return place_of(template, check, self._connections), template.api_version, template.kind

    def _seen(self, check: HealthCheck, template: ObjectRef) -> TemplateSeen:
        kind = self._kind(check, template)
        reflector = self._followed.get(kind)
        if reflector is None or not (reflector.synced or reflector.lists):
            return UNKNOWN
        if reflector.absent:
            return TemplateSeen(sight=TemplateSight.NO_KIND)
        # A cluster-scoped kind has no namespace, whatever the reference says.
        keys = (f"{template.namespace}/{template.name}" if template.namespace else template.name, template.name)
        found = (self._found.get((kind, key)) for key in keys)
        return next((each for each in found if each is not None), TemplateSeen(sight=TemplateSight.MISSING))

    def _changed(self, kind: _Kind, key: str, found: JsonObject | None) -> None:
        if found is None:
            self._found.pop((kind, key), None)
            self._fencing.pop((kind, key), None)
        else:
            namespace, _, name = key.rpartition("/")
            ref = ObjectRef(api_version=kind[1], kind=kind[2], name=name, namespace=namespace)
            self._found[kind, key] = judged(ref, found)
            if is_fencing_template(ref):
                self._fencing[kind, key] = json.dumps(found.get("spec"), sort_keys=True)
        if self._followed[kind].synced:  # else the list is being taken in, and what is missing may be still to come
            self._judge()


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
