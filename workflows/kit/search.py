"""Typed search attributes: how an episode is found in Temporal's UI and CLI. Nothing secret: they are never encrypted."""

from __future__ import annotations

from temporalio.common import SearchAttributeKey

CLUSTER = SearchAttributeKey.for_keyword("Cluster")
NODE = SearchAttributeKey.for_keyword("Node")
ZONE = SearchAttributeKey.for_keyword("Zone")
KIND = SearchAttributeKey.for_keyword("Kind")
PHASE = SearchAttributeKey.for_keyword("Phase")
REASON = SearchAttributeKey.for_keyword("Reason")

ALL = (CLUSTER, NODE, ZONE, KIND, PHASE, REASON)
