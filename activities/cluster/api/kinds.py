"""Which resource a kind is, for kinds that users name and we have never heard of; those that we know are in `paths.py`.

Who writes asks the server's own discovery, which every authenticated client may read; what was found stays found, what was not is
asked for again, since an operator may be installed at any time. Who follows looks for the resource by its likely names, as often
as it looks for any kind that is not there.
"""

from __future__ import annotations

from urllib.parse import quote

from activities.cluster.api.connection import ClusterConnection
from activities.cluster.api.paths import Resource
from activities.cluster.api.refusals import unless_gone
from policy.checks.health_check import HealthCheck
from policy.fence.templates import is_own_template
from policy.objects.remediations import kind_of, plurals_of


class Kinds:
    """Those of one API server."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection
        self._known: dict[tuple[str, str], Resource] = {}

    async def find(self, api_version: str, kind: str) -> Resource | None:
        """The resource, None where the server does not know such a kind."""
        if (api_version, kind) not in self._known:
            root = "/apis" if "/" in api_version else "/api"
            answer = await unless_gone(self._connection.get(f"{root}/{quote(api_version, safe='/')}")) or {}
            for each in answer.get("resources") or ():
                if "/" not in each["name"]:  # else it is a subresource
                    found = Resource(
                        api_version=api_version, kind=each["kind"], plural=each["name"], namespaced=bool(each["namespaced"])
                    )
                    self._known[api_version, each["kind"]] = found
        return self._known.get((api_version, kind))


def made_for(check: HealthCheck) -> dict[tuple[str, str], list[Resource]]:
    """What the check's templates make, by group and kind: the resources that it may be, the likeliest first. Ours make none."""
    found = {}
    for template in (rung.template for rung in check.rungs if not is_own_template(rung.template)):
        group, kind = kind_of(template)
        if group and kind != template.kind:
            likely = [Resource(api_version=template.api_version, kind=kind, plural=plural) for plural in plurals_of(kind)]
            found[group, kind] = likely
    return found
