"""Has the check of fence devices hear of policies that name devices: a wrong address or password is found when it is written, and
not an hour later. A Secret alone that changes is seen by nobody: it is read, and not watched (S40)."""

from __future__ import annotations

from collections.abc import Callable

from temporalio.exceptions import ApplicationError

from activities.cluster.report.background_writer import Attending
from activities.cluster.report.node_actions import Speaks


class PolicyTelling(Attending):
    """Of one cluster. One per view; `close` ends what is under way. Told again by every process: who knows it does nothing."""

    def __init__(self, cluster: str, herald: Speaks, *, on_change: Callable[[], None]) -> None:
        super().__init__(f"policies of {cluster}", on_change=on_change)
        self._cluster = cluster
        self._herald = herald
        self._told = ""

    def attend(self, policies: str) -> None:
        """Tell of these, a digest, if they are others than was told last; "" tells nothing."""
        if policies and policies != self._told and not self.busy:
            self.begin(self._tell(policies))

    async def _tell(self, policies: str) -> None:
        try:
            await self._herald.tell_policies(self._cluster, policies)
        except ApplicationError:
            return  # Temporal is away: with the next change, or the next scan
        self._told = policies
