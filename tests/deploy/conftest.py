"""Temporal as `tests/starter` has it."""

from tests.starter.conftest import client, cluster, server, unserved, warden

__all__ = ["client", "cluster", "server", "unserved", "warden"]
