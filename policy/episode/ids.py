"""Workflow ids: the names by which the server keeps one episode per node and one scanner per cluster (S13, S38).

The check of fence devices is one per cluster, too, since it remembers when each last answered.
"""

from __future__ import annotations


def episode_id(cluster: str, node: str) -> str:
    """The one id under which any kind of episode of that node runs; being taken is what makes a second one impossible."""
    return f"episode/{cluster}/{node}"


def scanner_id(cluster: str) -> str:
    """The one scanner of a cluster."""
    return f"scanner/{cluster}"


def device_check_id(cluster: str) -> str:
    """The one check of a cluster's fence devices."""
    return f"device-check/{cluster}"
