"""What is remembered of a remediation, and by what rules the next one in a row is put off or given up.

Cluster API's `remediationStrategy`) for all machines, and the back-off of the node health check proposal.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

AUTOSCALER_PATIENCE = timedelta(minutes=15, seconds=30)
"""The cluster autoscaler gives a node 15 minutes to register before it gives up on its group; with a margin for its own pace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Each retry waits twice as long as the one before it, from `base` on and at most `limit`."""

    base: timedelta = timedelta(seconds=30)
    limit: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """max_retry None: no limit. min_healthy_period: what fails later than this after a remediation is another matter."""

    max_retry: int | None = None
    retry_period: timedelta = timedelta(0)
    min_healthy_period: timedelta = timedelta(hours=1)
    backoff: Backoff | None = None
