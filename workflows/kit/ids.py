"""Where work runs: task queues by blast radius, and the workflow ids (which `policy.episode.messages` defines)."""

from __future__ import annotations

from policy.episode.messages import device_check_id, episode_id, scanner_id

__all__ = ["WORKFLOW_QUEUE", "cluster_queue", "device_check_id", "episode_id", "power_queue", "scanner_id"]

WORKFLOW_QUEUE = "nodewarden"
"""Workflows, and the activities that hold a Temporal client."""


def cluster_queue(cluster: str) -> str:
    """Whatever talks to that cluster's API."""
    return f"cluster.{cluster}"


def power_queue(site: str) -> str:
    """Whatever talks to devices that only that site reaches; a hung BMC there starves nobody else."""
    return f"power.{site}"
