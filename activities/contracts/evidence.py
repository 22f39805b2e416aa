"""What can be learnt of a node without touching it, where its site's network tells. Served on `power.<site>`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from temporalio import activity

from policy.kdump import KdumpReading


@dataclass(frozen=True, slots=True, kw_only=True)
class KdumpRequest:
    """Which node, by its IP addresses (`Pinned.addresses`): a kernel that dumps has no other name."""

    addresses: tuple[str, ...]


class EvidenceActivities(ABC):
    """Reading only. What is heard here may delay an act; what else it may mean is `policy/kdump.py`."""

    @activity.defn(name="power-management.read-kdump")
    @abstractmethod
    async def read_kdump(self, request: KdumpRequest) -> KdumpReading:
        """What has been heard from these addresses. NotSupported: this worker does not listen."""
