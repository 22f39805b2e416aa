"""The whole systems of `tests/system`, for attacks on them."""

from tests.system.conftest import free_namespaces, no_secret_gets_out, nursery, pytest_runtest_makereport, temporal

__all__ = ["free_namespaces", "no_secret_gets_out", "nursery", "pytest_runtest_makereport", "temporal"]
