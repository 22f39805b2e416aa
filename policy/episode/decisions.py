"""The decision stream: what the scanner and the episodes have decided, seen and done, as versioned records.

They are for the operator's own store. How they reach it at least once: docs/adr/011-the-decision-stream.md; what writes them:
`activities/decision_stream.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from policy.episode.messages import Phase, RecordEntry

VERSION = 1
"""Of `Decision`. It grows by fields within a version; a field that goes or means something else makes another version."""


class DecisionKind(StrEnum):
    """What a record is about; `MEANINGS` has each."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    LOOKED = "looked"
    ACTED = "acted"
    READ_BACK = "read-back"
    ENTERED = "entered"
    ASKED = "asked"
    ANSWERED = "answered"
    ENDED = "ended"
    MODE_CHANGED = "mode-changed"
    OBSERVED = "observed"


MEANINGS: Mapping[DecisionKind, str] = {
    DecisionKind.ADMITTED: "An episode is begun, or an open one is given a permit to disrupt its node.",
    DecisionKind.REFUSED: "A node that something asks to act on is not acted on, or has to queue: `rule` says by which rule. "
    "One record for each change of the rule, and not for each scan.",
    DecisionKind.LOOKED: "The node, its devices or its objects were read before an act.",
    DecisionKind.ACTED: "A step, or a part of one, was done, has failed, or was left out.",
    DecisionKind.READ_BACK: "A device was read after a command, or something is proven by such readings.",
    DecisionKind.ENTERED: "The episode has entered another phase.",
    DecisionKind.ASKED: "The episode waits for a person.",
    DecisionKind.ANSWERED: "A person has commanded something: an answer, or a wish of their own.",
    DecisionKind.ENDED: "The episode is over; `outcome` and `numbers` say how.",
    DecisionKind.MODE_CHANGED: "A person has set how far programs may go with nodes, or has taken that back.",
    DecisionKind.OBSERVED: "A spell of sickness that was not repaired has ended.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One record of the decision stream. Texts that are not known or do not apply are empty.

    id: the same for each copy of the record; the part behind the last `/` counts the records of one scanner or one episode
    without a gap. at: by Temporal's clock. uid: of the Node. workflow_id, run_id, incident: of the episode. act, outcome: as the
    episode's own record has them. rule: by which rule something was refused. who: the person who acted, and how that is known.
    check: the health check or other object that asks. versions: resourceVersions of the objects that the decision rests on, by
    kind. numbers: what can be counted, by name.
    """

    id: str
    at: datetime
    cluster: str
    kind: DecisionKind
    version: int = VERSION
    node: str = ""
    uid: str = ""
    workflow_id: str = ""
    run_id: str = ""
    incident: str = ""
    step: str = ""
    act: str = ""
    outcome: str = ""
    rule: str = ""
    who: str = ""
    check: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    message: str = ""


_LOOKS = frozenset({"last-look", "look", "pin", "plan", "seal", "find-volumes", "follow", "adopt"})
_PROOFS = frozenset(
    {"read-power", "read-given-up", "given-up", "off-proven", "path-cut-proven", "check-volumes", "kernel-dead", "kdump"}
)
_PERMITS = {"granted": DecisionKind.ADMITTED, "queued": DecisionKind.REFUSED, "refused": DecisionKind.REFUSED}


def kind_of(entry: RecordEntry) -> DecisionKind:
    """What a line of an episode's record is about."""
    if entry.who:
        return DecisionKind.ANSWERED
    if entry.act == "phase":
        return DecisionKind.ASKED if entry.outcome == Phase.NEEDS_HUMAN else DecisionKind.ENTERED
    if entry.act == "permit":
        return _PERMITS.get(entry.outcome, DecisionKind.REFUSED)
    if entry.act == "end":
        return DecisionKind.ENDED
    if entry.act in _PROOFS:
        return DecisionKind.READ_BACK
    return DecisionKind.LOOKED if entry.act in _LOOKS else DecisionKind.ACTED


def decision_of(
    entry: RecordEntry, *, cluster: str, node: str, uid: str, workflow_id: str, run_id: str, incident: str
) -> Decision:
    """The record of a line of an episode's record. run_id: of the run in which the episode began."""
    return Decision(
        id=f"{run_id}/{entry.number}",
        at=entry.at,
        cluster=cluster,
        kind=kind_of(entry),
        node=node,
        uid=uid,
        workflow_id=workflow_id,
        run_id=run_id,
        incident=incident,
        step=entry.step,
        act=entry.act,
        outcome=entry.outcome,
        rule=entry.rule,
        who=entry.who,
        versions={"Node": entry.version} if entry.version else {},
        numbers=entry.numbers or {},
        message=entry.detail,
    )
