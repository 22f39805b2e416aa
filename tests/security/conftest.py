"""The cluster of `tests/cluster/acts`, for attacks on one act."""

from tests.cluster.acts.conftest import empty, world

__all__ = ["empty", "world"]
