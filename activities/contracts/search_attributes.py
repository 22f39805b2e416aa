"""Typed search attributes: how an episode is found in Temporal's UI and CLI. Nothing secret: they are never encrypted."""

from __future__ import annotations

import re
from datetime import datetime

from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from policy.episode.messages import Kind, Outcome, Phase
from policy.history.offenders import Repair
from policy.history.spells import OBSERVATION, ObservationRecord
from policy.values.display_text import STAND_IN
from policy.values.times import written

CLUSTER = SearchAttributeKey.for_keyword("Cluster")
NODE = SearchAttributeKey.for_keyword("Node")
ZONE = SearchAttributeKey.for_keyword("Zone")
KIND = SearchAttributeKey.for_keyword("Kind")
PHASE = SearchAttributeKey.for_keyword("Phase")
REASON = SearchAttributeKey.for_keyword("Reason")
OUTCOME = SearchAttributeKey.for_keyword("Outcome")
"""Set once an episode has ended. Of an observation: `came-back` and the other endings, `storm`, or `node-days`."""
MODE = SearchAttributeKey.for_keyword("RepairMode")
"""Of an observation: how far a program might go with the node. Not `Mode`: that is a word of the visibility query language, which
the server would look for in small letters."""

HARDWARE = SearchAttributeKey.for_keyword("Hardware")
"""The system UUID of the machine, as `policy.history.offenders.hardware_of` spells it. Set once an episode acts on the node:
by it the repairs of a machine are found, whatever name its Node has."""

ALL = (CLUSTER, NODE, ZONE, KIND, PHASE, REASON, OUTCOME, HARDWARE, MODE)
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
    hardware: str = "",
) -> TypedSearchAttributes:
    """The search attributes of an episode. outcome: None while it is open. hardware: "" where nothing was done, or it is not
    known."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(CLUSTER, cluster),
            SearchAttributePair(NODE, node),
            SearchAttributePair(ZONE, zone),
            SearchAttributePair(KIND, kind.value),
            SearchAttributePair(PHASE, phase.value),
            SearchAttributePair(REASON, reason[:REASON_LENGTH]),
            *([SearchAttributePair(OUTCOME, outcome.value)] if outcome is not None else []),
            *([SearchAttributePair(HARDWARE, hardware)] if hardware else []),
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


_NO_LITERAL = re.compile(r"['\\\x00-\x1f\x7f]")


def literal(text: str) -> str:
    """A text in a visibility query, in its quotes. What would end the literal, or the query, is replaced by what no name has, so
    that nothing is found by it (S41)."""
    return f"'{_NO_LITERAL.sub(STAND_IN, text)}'"


def repairs(cluster: str, since: datetime, *, hardware: str = "") -> str:
    """The query for the episodes that have acted on machines since then. hardware: only of that one."""
    machine = f"Hardware = {literal(hardware)}" if hardware else "Hardware IS NOT NULL"
    begun = f"StartTime >= '{written(since)}' AND ExecutionStatus != 'ContinuedAsNew'"  # which goes on as another run
    return f"Cluster = {literal(cluster)} AND {machine} AND {begun}"


def repair(attributes: TypedSearchAttributes, started: datetime, *, is_open: bool) -> Repair:
    return Repair(
        hardware=attributes.get(HARDWARE) or "",
        node=attributes.get(NODE) or "",
        kind=attributes.get(KIND) or "",
        reason=attributes.get(REASON) or "",
        outcome=attributes.get(OUTCOME) or "",
        started=started,
        waits=is_open and attributes.get(PHASE) == Phase.NEEDS_HUMAN.value,
    )
