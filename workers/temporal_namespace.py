"""What we keep in our Temporal namespace: the search attributes of our workflows, and the name by which a cluster's Lease knows
us.

Which search attributes there are and what they mean: `activities/contracts/search_attributes.py`. They must exist before the
first workflow starts: where we may, we create them, else we say how. The embedded server is started with them
(`workers/embedded/server.py`).
"""

from __future__ import annotations

import asyncio
import getpass
import platform
from datetime import timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.namespace.v1 import UpdateNamespaceInfo
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.contracts import search_attributes
from workers.errors import SearchAttributesError

VISIBLE_WITHIN = timedelta(seconds=30)


def required_search_attributes() -> dict[str, IndexedValueType.ValueType]:
    """Name and type of each attribute that our workflows set."""
    return {key.name: IndexedValueType.ValueType(key.indexed_value_type) for key in search_attributes.ALL}


async def ensure_search_attributes(client: Client, *, create: bool = True) -> tuple[str, ...]:
    """Make the search attributes exist and be usable; the names of those that were created.

    Raises SearchAttributesError where they are missing and may not be created, or have another type.
    """
    wanted = required_search_attributes()
    try:
        there = await existing_search_attributes(client)
    except RPCError as error:
        if error.status in {RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.UNAUTHENTICATED}:
            # A service that does not let us look (Temporal Cloud with a worker's key) may well have them: ask by using them.
            return await _usable(client, tuple(wanted), created=(), patience=timedelta(0))
        raise
    clashes = [name for name, kind in wanted.items() if there.get(name, kind) != kind]
    if clashes:
        found = ", ".join(f"{name} is {_type_name(there[name])}" for name in clashes)
        raise SearchAttributesError(
            f"search attributes of namespace {client.namespace!r} have another type than ours (Keyword): {found}; "
            "use a namespace of nodewarden's own"
        )
    missing = tuple(name for name in wanted if name not in there)
    if not missing:
        return ()
    if not create:
        raise SearchAttributesError(_how_to(client, missing))
    try:
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace=client.namespace, search_attributes={name: wanted[name] for name in missing})
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            raise SearchAttributesError(f"{_how_to(client, missing)} ({error.message})") from error
    return await _usable(client, missing, created=missing, patience=VISIBLE_WITHIN)


async def existing_search_attributes(client: Client) -> dict[str, IndexedValueType.ValueType]:
    """Name and type of each attribute that the namespace has beside Temporal's own."""
    answer = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace=client.namespace))
    return dict(answer.custom_attributes)


async def _usable(client: Client, names: tuple[str, ...], *, created: tuple[str, ...], patience: timedelta) -> tuple[str, ...]:
    """Wait until a query may name them: a service with several hosts learns of a new attribute one host after the other."""
    # In quotes: without them a name that SQL knows as a word, such as Mode, is no attribute.
    query = " AND ".join(f"`{name}` = 'none'" for name in names)
    clock = asyncio.get_running_loop().time
    deadline = clock() + patience.total_seconds()
    while True:
        try:
            await client.count_workflows(query)
        except RPCError as error:
            if error.status is not RPCStatusCode.INVALID_ARGUMENT:
                raise
            if clock() > deadline:
                raise SearchAttributesError(f"{_how_to(client, names)} ({error.message})") from error
            await asyncio.sleep(0.2)
        else:
            return created


def _how_to(client: Client, names: tuple[str, ...]) -> str:
    flags = " ".join(f"--name {name} --type Keyword" for name in names)
    return (
        f"namespace {client.namespace!r} lacks the search attributes {', '.join(names)} and we may not create them; "
        f"someone who may: temporal operator search-attribute create -n {client.namespace} {flags}"
    )


def _type_name(kind: IndexedValueType.ValueType) -> str:
    return IndexedValueType.Name(kind).removeprefix("INDEXED_VALUE_TYPE_").title()


async def retention(client: Client) -> timedelta | None:
    """How long the namespace remembers closed workflows; None where we may not ask."""
    try:
        described = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError as error:
        if error.status in {RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.UNAUTHENTICATED}:
            return None
        raise
    return described.config.workflow_execution_retention_ttl.ToTimedelta()


# Our name on a cluster's Lease (S38) -----------------------------------------------------------------------------------
#
# One Temporal namespace is one deployment, however its address is spelled. The namespace's id is what tells two deployments
# apart: it is unique, it survives restarts, and every process of a deployment reads the same one, while addresses differ
# (`localhost` here, a Service's name there) and would make us strangers to ourselves.

NAME_KEY = "nodewarden-holder"


async def holder(client: Client, *, timeout: timedelta | None = None) -> str:
    """Our name on the cluster Lease, such as `default/01a1fda0-…` or `amy@laptop/01a1fda0-…`. Raises RPCError."""
    asked = DescribeNamespaceRequest(namespace=client.namespace)
    described = await client.workflow_service.describe_namespace(asked, timeout=timeout)
    name = described.namespace_info.data.get(NAME_KEY) or client.namespace
    return f"{name}/{described.namespace_info.id}"


async def name_embedded(client: Client) -> None:
    """Write its user's name into an embedded server, once and for all: a name that changed with the host's would lose the
    Lease."""
    described = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    if described.namespace_info.data.get(NAME_KEY):
        return
    info = UpdateNamespaceInfo(
        description=described.namespace_info.description,
        owner_email=described.namespace_info.owner_email,
        data={**described.namespace_info.data, NAME_KEY: f"{_user()}@{platform.node() or 'unknown host'}"},
    )
    await client.workflow_service.update_namespace(UpdateNamespaceRequest(namespace=client.namespace, update_info=info))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # a container without an entry for our user id
