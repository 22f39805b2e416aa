"""The templates that health checks name: followed by kind from the first check on that names one, and judged with every change.

So that a check without its remedy says so when it is written, and is in use again once its template is there. A kind that we may
not list tells nothing of its templates, and its checks go on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.intake import Intake
from activities.cluster.api.machine_paths import Connections
from activities.cluster.api.paths import Resource
from activities.cluster.live.templates import place_of
from activities.cluster.objects.decoding import OBJECT_DECODING
from activities.cluster.watch.reflector import Reflector, WatchLimits
from policy.checks.healthcheck import HealthCheck
from policy.fence.templates import is_fencing_template
from policy.objects.remediations import plurals_of
from policy.remediation.templates import UNKNOWN, TemplateSeen, TemplateSight, judged, templates_of
from policy.values.object_refs import ObjectRef

_Kind = tuple[ClusterConnection, str, str]
"""Where it lives, its version, its name."""


class TemplateWatches:
    """Those of one cluster's checks. judge: is called when anything may have changed; it has the intake judge again."""

    def __init__(
        self, connections: Connections[ClusterConnection], *, judge: Callable[[], None], limits: WatchLimits | None
    ) -> None:
        self._connections = connections
        self._judge = judge
        self._limits = limits
        self._followed: dict[_Kind, Reflector[JsonObject]] = {}
        self._found: dict[tuple[_Kind, str], TemplateSeen] = {}
        self._fencing: dict[tuple[_Kind, str], Any] = {}
        """What FencingTemplates say."""

    def __iter__(self) -> Iterator[Reflector[Any]]:
        return iter(self._followed.values())

    def follow(self, check: HealthCheck) -> tuple[Reflector[Any], ...]:
        """The kinds of its templates; they stay followed. Those that are new, to be started."""
        new = {self._kind(check, each) for each in templates_of(check)} - self._followed.keys()
        for kind in sorted(new, key=lambda each: each[1:]):
            connection, version, name = kind
            first, *others = (Resource(api_version=version, kind=name, plural=plural) for plural in plurals_of(name))
            self._followed[kind] = Reflector(
                connection,
                first,
                OBJECT_DECODING,
                on_change=partial(self._changed, kind),
                on_state=self._judge,
                optional=True,
                alternatives=others,
                limits=self._limits,
            )
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
