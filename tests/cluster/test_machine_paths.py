"""Kinds of Cluster API in whichever version a server has of them."""

from activities.cluster.api.machine_paths import as_served
from activities.cluster.api.paths import CAPI_CLUSTERS, Resource
from activities.cluster.api.refusals import ObjectNotFound


async def test_what_is_served_in_an_older_version_only_is_read_in_that_one() -> None:
    """S15: one that is served no more is no deletion."""
    asked = list[str]()

    async def read(version: Resource) -> str:
        asked.append(version.api_version)
        if len(asked) == 1:
            raise ObjectNotFound("not served")
        return version.api_version

    assert await as_served(CAPI_CLUSTERS, read) == asked[1] != CAPI_CLUSTERS.api_version


async def test_what_is_there_in_no_version_is_not_there() -> None:
    async def read(version: Resource) -> str:
        raise ObjectNotFound(version.api_version)

    assert await as_served(CAPI_CLUSTERS, read) is None
