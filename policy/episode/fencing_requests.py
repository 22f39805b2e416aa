"""Objects of other systems that ask for a node to be fenced: whether one still asks, and what it is answered.

A `FenceAgentsRemediation` is created by an operator that goes on running (NodeHealthCheck of medik8s), and which reads from its
conditions how its wish fares. Here is only what is true of the wish; how the node is to be fenced is
`policy/episode/fence_agents_remediations.py`, who may be fenced now `policy/scan/admission.py`, writing the answer
`activities/cluster/objects/fencing_requests.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from policy.episode.messages import Outcome
from policy.objects.remediations import GIVEN_UP_ANNOTATION
from policy.values.fields import mapping, mappings
from policy.values.object_refs import ObjectRef

FINALIZER = "fence-agents-remediation.medik8s.io/far-finalizer"
"""The first thing that fence-agents-remediation does to an object, before any agent runs: with it the object is in its hands."""

PROCESSING = "Processing"
ACTION_SUCCEEDED = "FenceAgentActionSucceeded"
SUCCEEDED = "Succeeded"

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"


class Stage(StrEnum):
    """How far a wish has come. The values are the reasons that stand in its conditions; all but `held-back` are those of
    fence-agents-remediation, so that whoever reads its objects reads these.
    """

    STARTED = "RemediationStarted"
    FENCED = "FenceAgentSucceeded"
    """Off is proven."""
    FINISHED = "RemediationFinishedSuccessfully"
    """The node's workloads are free, and the machine is on again, or off if that was asked for."""
    FAILED = "FenceAgentFailed"
    """Tries and restarts are used up, or trying is hopeless: the operator may try something else at once."""
    INTERRUPTED = "RemediationInterruptedByNHC"
    NODE_NOT_FOUND = "RemediationFinishedNodeNotFound"
    HELD_BACK = "RemediationHeldBack"
    """Stopped without having failed (a veto, a person's abort): the operator waits for as long as it is used to."""


_CONDITIONS: Mapping[Stage, tuple[str, str, str]] = {
    Stage.STARTED: (TRUE, UNKNOWN, UNKNOWN),
    Stage.FENCED: ("", TRUE, ""),
    Stage.FINISHED: (FALSE, TRUE, TRUE),
    Stage.FAILED: (FALSE, FALSE, FALSE),
    Stage.INTERRUPTED: (FALSE, FALSE, FALSE),
    Stage.NODE_NOT_FOUND: (FALSE, FALSE, FALSE),
    Stage.HELD_BACK: (FALSE, UNKNOWN, UNKNOWN),
}
"""Processing, FenceAgentActionSucceeded, Succeeded; "" leaves what stands."""


def conditions_of(stage: Stage, status: Mapping[str, Any]) -> dict[str, str]:
    """The status of each condition that is to be written. That the agent has succeeded once stays true until a new beginning, and
    what has succeeded is not interrupted any more."""
    if stage is Stage.INTERRUPTED and _condition(status, SUCCEEDED) == TRUE:
        return {}
    wanted = dict(zip((PROCESSING, ACTION_SUCCEEDED, SUCCEEDED), _CONDITIONS[stage], strict=True))
    if stage is not Stage.STARTED and _condition(status, ACTION_SUCCEEDED) == TRUE:
        wanted[ACTION_SUCCEEDED] = TRUE
    return {kind: value for kind, value in wanted.items() if value}


def last_stage(outcome: Outcome, said: Stage | None) -> Stage:
    """What the wish is answered at the end of an episode. said: what it was answered before; a final word stays."""
    if said in {Stage.FINISHED, Stage.FAILED}:
        return said
    match outcome:
        case Outcome.FENCED_OFF:
            return Stage.FINISHED
        case Outcome.RECOVERED:
            return Stage.INTERRUPTED  # without a word of success only because nobody asks any more
        case Outcome.REPLACED:
            return Stage.FAILED
        case Outcome.RELEASED | Outcome.ABORTED | Outcome.REFUSED:
            return Stage.HELD_BACK


@dataclass(frozen=True, slots=True, kw_only=True)
class FencingRequest:
    """One such object as last seen. `node`: whom it is about, by name.

    delegate: how the operator that owns it calls itself on the node's lease; "" where nobody owns it. ended: why it asks no more,
    "" while it does. withdrawn: the same where its maker ended it, and no answer of ours. taken_up: the controller that
    it was made for has it in its hands. problem: what is wrong with it as it is written, so that it can't be carried out.
    uncounted: why objects of its namespace are not obeyed, "" where they are; nothing else is read of such a one (S46).
    """

    ref: ObjectRef
    uid: str
    node: str
    created: datetime | None = None
    requester: str = ""
    delegate: str = ""
    ended: str = ""
    withdrawn: str = ""
    taken_up: bool = False
    problem: str = ""
    uncounted: str = ""

    @property
    def asks(self) -> bool:
        """Whether anything is still to be done about it."""
        return not self.ended


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAnswer:
    """How far a wish has come, for the object that it stands in. uid: another object of that name is told nothing."""

    about: ObjectRef
    uid: str
    stage: Stage
    message: str


def why_ended(obj: Mapping[str, Any]) -> str:
    """Why the object asks no more, "" while it does; for an object from the API, whose metadata are sound."""
    metadata: Mapping[str, Any] = obj["metadata"]
    if withdrawn := why_withdrawn(obj):
        return withdrawn
    said = _condition(obj.get("status"), SUCCEEDED)
    return f"{metadata['name']} has its answer: {SUCCEEDED} is {said}" if said in {TRUE, FALSE} else ""


def uncounted(ref: ObjectRef, namespaces: Collection[str]) -> str:
    """Why an object of that namespace is not obeyed, "" where it is (S46): who may create objects in a namespace of their own has
    no right to any node."""
    if ref.namespace in namespaces:
        return ""
    counting = ", ".join(namespaces) or "no namespace"
    return f"{ref.key} is not obeyed: requests count in {counting} (setting request_namespaces)"


def is_another(found: Mapping[str, Any], uid: str) -> bool:
    """Whether an object only has the name of the one with that uid."""
    return bool(uid) and found["metadata"].get("uid") != uid


def why_withdrawn(obj: Mapping[str, Any]) -> str:
    """Why whoever made the object wants it no more, "" while that is not so. An answer of ours withdraws nothing."""
    metadata: Mapping[str, Any] = obj["metadata"]
    if metadata.get("deletionTimestamp"):
        return f"{metadata['name']} is being deleted"
    if GIVEN_UP_ANNOTATION in mapping(metadata.get("annotations")):
        return f"{metadata['name']} has timed out: {GIVEN_UP_ANNOTATION} says that something else is tried"
    return ""


def is_taken_up(obj: Mapping[str, Any]) -> bool:
    """Whether fence-agents-remediation has the object in its hands."""
    finalizers = obj["metadata"].get("finalizers")
    return isinstance(finalizers, list) and FINALIZER in finalizers


def _condition(status: object, kind: str) -> str:
    listed = mappings(mapping(status).get("conditions"))
    return next((str(each.get("status", "")) for each in listed if each.get("type") == kind), "")
