"""How a cluster's Lease names us (S38): one Temporal namespace is one deployment, however its address is spelled.

The namespace's id is what tells two deployments apart: it is unique, it survives restarts, and every process of a
deployment reads the same one, while addresses differ (`localhost` here, a Service's name there) and would make us
strangers to ourselves.
"""

from __future__ import annotations

import getpass
import platform

from temporalio.api.namespace.v1 import UpdateNamespaceInfo
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, UpdateNamespaceRequest
from temporalio.client import Client

NAME_KEY = "nodewarden-holder"


async def holder(client: Client) -> str:
    """Our name on the cluster Lease, such as `default/01a1fda0-…` or `amy@laptop/01a1fda0-…`."""
    described = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    name = described.namespace_info.data.get(NAME_KEY) or client.namespace
    return f"{name}/{described.namespace_info.id}"


async def name_embedded(client: Client) -> None:
    """Write into an embedded server whose it is, once and for all: a name that changed with the host's would lose the Lease."""
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
