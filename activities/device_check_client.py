"""A worker's side of the check of fence devices: which devices it has found to be configured for several nodes, asked of it by
looks (S39), where it has met each credential (S40), and which policies it is to look at.

It resolves all nodes, every hour; a look could not. What it says is where to look, not what is so: a look resolves those nodes
itself. It is asked once a minute and process, however many nodes are looked at, and where it can't be asked, what it said last is
all that is known: it can only say no.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from activities.errors import ErrorType, failure
from policy.episode.messages import device_check_id
from policy.fence.credential_hosts import CredentialHosts

ASKED_AGAIN_SECONDS = 60.0
QUERY_TIMEOUT = timedelta(seconds=2)
SIGNAL_TIMEOUT = timedelta(seconds=12)

log = logging.getLogger(__name__)


class DeviceCheckClient:
    """Of the clusters that this process serves."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: defaultdict[str, _Known] = defaultdict(_Known)

    async def shared(self, cluster: str) -> Mapping[str, Collection[str]]:
        """The nodes that have it, by the device."""
        known, now = self._known[cluster], asyncio.get_running_loop().time()
        async with known.asking:
            if now >= known.asked_again:
                known.asked_again = now + ASKED_AGAIN_SECONDS
                known.nodes = await self._ask(cluster) or known.nodes
        return known.nodes

    async def hosts(self, cluster: str) -> CredentialHosts:
        """Where each credential may go, by its name, as it is now: a person may just have admitted one."""
        known = self._known[cluster]
        found: dict[str, tuple[str, ...]] | None = await self._query(cluster, "hosts", dict[str, tuple[str, ...]])
        known.hosts = known.hosts if found is None else found
        return known.hosts

    async def notify_of_policies(self, cluster: str, policies: str) -> None:
        """Have the check look at the policies that name devices now, where one runs. policies: their digest. Raises
        Unreachable."""
        check = self._client.get_workflow_handle(device_check_id(cluster))
        try:
            await check.signal("note_policies", policies, rpc_timeout=SIGNAL_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise failure(ErrorType.UNREACHABLE, f"Temporal has not answered yet: {error}") from error

    async def _query(self, cluster: str, name: str, answer: Any) -> Any:
        """None where it can't be asked."""
        check = self._client.get_workflow_handle(device_check_id(cluster))
        try:
            return await check.query(name, result_type=answer, rpc_timeout=QUERY_TIMEOUT)
        except (RPCError, WorkflowQueryFailedError) as error:
            log.debug("the check of the fence devices of %s can't be asked (%s): %s", cluster, name, error)
            return None

    async def _ask(self, cluster: str) -> dict[str, set[str]] | None:
        pairs = await self._query(cluster, "shared", tuple[tuple[str, str], ...])
        if pairs is None:
            return None
        found: defaultdict[str, set[str]] = defaultdict(set)
        for node, endpoint in pairs:
            found[endpoint].add(node)
        return found


@dataclass(slots=True)
class _Known:
    """Of one cluster. asked_again: from then on, by the loop's clock."""

    nodes: Mapping[str, Collection[str]] = field(default_factory=dict)
    hosts: CredentialHosts = field(default_factory=dict)
    asked_again: float = 0.0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
