"""The whole systems of `tests/system`, for attacks on them, and the cluster of `tests/cluster/acts`, for attacks on one act."""

from tests.cluster.acts.conftest import empty, world
from tests.system.conftest import free_namespaces, no_secret_gets_out, nursery, pytest_runtest_makereport, temporal

__all__ = ["empty", "free_namespaces", "no_secret_gets_out", "nursery", "pytest_runtest_makereport", "temporal", "world"]
