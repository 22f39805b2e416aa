"""A cluster from the objects that a test has written down."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from activities.cluster.api.connection import JsonObject
from activities.cluster.watch.offline import ClusterSnapshot
from policy.checks.health_check import Overlap


def load(objects: Iterable[tuple[JsonObject, str]], now: datetime, *, overlap: Overlap = Overlap.STRICTEST) -> ClusterSnapshot:
    """The one that these objects (each with its source) describe at that moment."""
    cluster = ClusterSnapshot(now, overlap=overlap)
    for obj, source in objects:
        cluster.put(obj, source)
    cluster.finish()
    return cluster
