"""Fence configuration from ConfigMaps and Secrets, read by name from one namespace until a reader has seen all it wants.

Nothing is listed. Of a Secret only the names of its keys leave this module (S12). What the objects mean is `policy/fence/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from temporalio.exceptions import ApplicationError

from activities.cluster.api.paths import CONFIG_MAPS, SECRETS
from activities.cluster.api.refusals import ObjectNotFound
from activities.cluster.objects.reading import ApiReader
from activities.errors import ErrorType, error_type, failure
from policy.fence.configmaps.shelf import ConfigMap, Forbidden, Found, ObjectName, Shelf, ShelfKind
from policy.values.errors import shown

MOST_ROUNDS = 8
"""Objects name others, at most a few steps deep: configuration, methods, templates, Secrets."""

Answer = TypeVar("Answer")


async def answered(reader: ApiReader, namespace: str, read: Callable[[Shelf], Answer]) -> Answer:
    """What `read` makes of the objects, once it misses none. Errors: those of reading the API; an object that we may not see is
    no error here, but something that the reader is told."""
    objects: dict[ObjectName, Found] = {}
    for _ in range(MOST_ROUNDS):
        shelf = Shelf(namespace, objects)
        answer = read(shelf)
        if not shelf.wanted:
            return answer
        for name in shelf.wanted:
            objects[name] = await _fetched(reader, namespace, name)
    raise failure(ErrorType.INVALID_CONFIG, f"the fence configuration in {namespace} names objects that name objects without end")


async def _fetched(reader: ApiReader, namespace: str, wanted: ObjectName) -> Found:
    resource = SECRETS if wanted.kind is ShelfKind.SECRET else CONFIG_MAPS
    try:
        found = await reader.get(resource.path(wanted.name, namespace=namespace))
    except ObjectNotFound:
        return None
    except ApplicationError as error:
        if error_type(error) is not ErrorType.FORBIDDEN:
            raise
        return Forbidden(reason=error.message)
    if wanted.kind is ShelfKind.SECRET:
        return tuple(sorted({*(found.get("data") or {}), *(found.get("stringData") or {})}))
    data = found.get("data") or {}
    if not isinstance(data, Mapping):
        return Forbidden(reason=f"data: expected texts by their keys, got {shown(data)}")
    return ConfigMap(name=wanted.name, namespace=namespace, data=data)
