"""Which resource a kind is at one API server, for kinds that users name and we have never heard of.

Kinds that we know are in `paths.py`. Asked by the server's own discovery, which every authenticated client may read; what was
found stays found, what was not is asked for again, since an operator may be installed at any time.
"""

from __future__ import annotations

from urllib.parse import quote

from activities.cluster.connection import ClusterConnection
from activities.cluster.paths import Resource
from activities.cluster.refusals import ObjectNotFound


class Kinds:
    """Those of one API server."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection
        self._known: dict[tuple[str, str], Resource] = {}

    async def find(self, api_version: str, kind: str) -> Resource | None:
        """The resource, None where the server does not know such a kind."""
        if (api_version, kind) not in self._known:
            root = "/apis" if "/" in api_version else "/api"
            try:
                answer = await self._connection.get(f"{root}/{quote(api_version, safe='/')}")
            except ObjectNotFound:
                return None
            for each in answer.get("resources") or ():
                if "/" not in each["name"]:  # else it is a subresource
                    found = Resource(
                        api_version=api_version, kind=each["kind"], plural=each["name"], namespaced=bool(each["namespaced"])
                    )
                    self._known[api_version, each["kind"]] = found
        return self._known.get((api_version, kind))
