"""Typed search attributes: how an episode is found in Temporal's UI and CLI. Nothing secret: they are never encrypted."""

from __future__ import annotations

from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from policy.episode.messages import Kind, Outcome, Phase

CLUSTER = SearchAttributeKey.for_keyword("Cluster")
NODE = SearchAttributeKey.for_keyword("Node")
ZONE = SearchAttributeKey.for_keyword("Zone")
KIND = SearchAttributeKey.for_keyword("Kind")
PHASE = SearchAttributeKey.for_keyword("Phase")
REASON = SearchAttributeKey.for_keyword("Reason")
OUTCOME = SearchAttributeKey.for_keyword("Outcome")
"""Set once an episode has ended."""

ALL = (CLUSTER, NODE, ZONE, KIND, PHASE, REASON, OUTCOME)

REASON_LENGTH = 200
"""Visibility on PostgreSQL keeps 255 characters of a keyword."""


def of_episode(
    kind: Kind,
    *,
    cluster: str,
    node: str,
    reason: str,
    zone: str = "",
    phase: Phase = Phase.NEW,
    outcome: Outcome | None = None,
) -> TypedSearchAttributes:
    """The search attributes of an episode. outcome: None while it is open."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(CLUSTER, cluster),
            SearchAttributePair(NODE, node),
            SearchAttributePair(ZONE, zone),
            SearchAttributePair(KIND, kind.value),
            SearchAttributePair(PHASE, phase.value),
            SearchAttributePair(REASON, reason[:REASON_LENGTH]),
            *([SearchAttributePair(OUTCOME, outcome.value)] if outcome is not None else []),
        ]
    )
