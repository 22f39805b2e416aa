"""A cluster's fence policies as they are at this moment, for a last look: never from the watch cache (S20).

How they are written is `policy/dialects/node_fencing.py`; what a scan makes of them goes through `intake.py`.
"""

from __future__ import annotations

from datetime import datetime

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import CONFIG_MAPS, LEASES
from activities.cluster.api.refusals import unless_gone
from activities.errors import ErrorType, failure
from policy.checks.fence_policies import FencePolicies, PolicySource, stricter
from policy.dialects.node_fencing import CLUSTER_CONFIG, POLICY_PREFIX, parse_cluster_config, read_policies
from policy.values.errors import PolicyError
from policy.values.moments import moment_of

NODE_LEASES = "kube-node-lease"
"""The namespace in which every kubelet renews a Lease that is named as its node."""


async def live_policies(connection: ClusterConnection, source: PolicySource) -> FencePolicies:
    """All policies that hold now. Errors: NotLicensed for those that can't be used: nobody knows what they were to say."""
    cluster = await _config_map(connection, source, CLUSTER_CONFIG)
    if cluster is None:
        return source.policies
    try:
        written = {}
        for name in parse_cluster_config(cluster).names:
            found = await _config_map(connection, source, f"{POLICY_PREFIX}{name}")
            if found is not None:
                written[f"{POLICY_PREFIX}{name}"] = found
        return stricter(source.policies, read_policies(cluster, written))
    except PolicyError as error:
        raise failure(ErrorType.NOT_LICENSED, f"the fence policies can't be used: {error}") from error


async def lease_renewed(connection: ClusterConnection, node: str) -> datetime | None:
    """When the node's kubelet last renewed its Lease; None where there is none, or it does not say."""
    lease = await unless_gone(connection.get(LEASES.path(node, namespace=NODE_LEASES)))
    return moment_of((lease.get("spec") or {}).get("renewTime")) if lease is not None else None


async def _config_map(connection: ClusterConnection, source: PolicySource, name: str) -> JsonObject | None:
    return await unless_gone(connection.get(CONFIG_MAPS.path(name, namespace=source.namespace)))
