"""The cluster of `tests/cluster/acts`, for attacks on one act; and Temporal as `tests/starter` has it, for those on the page."""

from tests.cluster.acts.conftest import empty, world
from tests.starter.conftest import client, cluster, server, unserved, warden

__all__ = ["client", "cluster", "empty", "server", "unserved", "warden", "world"]
