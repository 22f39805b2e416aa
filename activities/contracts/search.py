"""Typed search attributes: how an episode is found in Temporal's UI and CLI. Nothing secret: they are never encrypted."""

from __future__ import annotations

from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from policy.episode.messages import Kind, Outcome, Phase
from policy.observation.spells import OBSERVATION, ObservationRecord

CLUSTER = SearchAttributeKey.for_keyword("Cluster")
NODE = SearchAttributeKey.for_keyword("Node")
ZONE = SearchAttributeKey.for_keyword("Zone")
KIND = SearchAttributeKey.for_keyword("Kind")
PHASE = SearchAttributeKey.for_keyword("Phase")
REASON = SearchAttributeKey.for_keyword("Reason")
OUTCOME = SearchAttributeKey.for_keyword("Outcome")
"""Set once an episode has ended. Of an observation: `came-back` and the other endings, `storm`, or `node-days`."""
MODE = SearchAttributeKey.for_keyword("Mode")
"""Of an observation: how far a program might go with the node."""

ALL = (CLUSTER, NODE, ZONE, KIND, PHASE, REASON, OUTCOME, MODE)
STORM, NODE_DAYS = "storm", "node-days"

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


def of_observation(record: ObservationRecord) -> TypedSearchAttributes:
    """The search attributes of a record: it starts with all of them, for it ends in its first task."""
    first = record.spells[0] if record.spells else None
    storm = first is not None and bool(first.storm)
    ending = STORM if storm else first.ending.value if first is not None and first.ending is not None else NODE_DAYS
    pairs = [
        SearchAttributePair(CLUSTER, record.cluster),
        SearchAttributePair(KIND, OBSERVATION),
        SearchAttributePair(OUTCOME, ending),
        SearchAttributePair(REASON, first.cause[:REASON_LENGTH] if first is not None else NODE_DAYS),
    ]
    if first is not None:
        pairs.append(SearchAttributePair(MODE, first.mode.value))
        pairs += [] if storm else [SearchAttributePair(NODE, first.node)]
    return TypedSearchAttributes(pairs)
