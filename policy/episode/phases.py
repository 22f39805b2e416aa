"""The automaton of each kind of episode: which phase may follow which, each arrow with its reason.

The phases are those of the node-fencing proposal, with ours for waiting on people and permits, and those of the preservation
proposal. The story of an episode decides what it does next (`workflows/fencing/story.py` and the others); these tables say which
changes people may see, and the drawing in docs/architecture.md is made from them. `Episode.enter` compares each change of phase
with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from policy.episode.messages import Kind, Phase

Arrows = Mapping[Phase, Mapping[Phase, str]]
"""From a phase to each that may follow it, and why it does."""

NEW, QUEUED, RUNNING, DONE, FINAL = Phase.NEW, Phase.QUEUED, Phase.RUNNING, Phase.DONE, Phase.FINAL
ERROR, NEEDS_HUMAN, TERMINATING = Phase.ERROR, Phase.NEEDS_HUMAN, Phase.TERMINATING
RUNNING_PRESERVED, FAILED_PRESERVED = Phase.RUNNING_PRESERVED, Phase.FAILED_PRESERVED


class UnexpectedPhaseError(ValueError):
    """A phase has followed another one to which no arrow leads."""


FENCING: Arrows = {
    NEW: {
        QUEUED: "it has no permit yet and asks the scanner for one",
        RUNNING: "the node is isolated",
        DONE: "a person had said off, the pods are freed, and the machine is switched on",
        ERROR: "a method of isolation has used up its tries",
        NEEDS_HUMAN: "it can't begin: a wrong password, another machine, no licence",
        FINAL: "it was refused, aborted, or is not needed any more",
    },
    QUEUED: {
        NEW: "it has its permit and marks the node",
        RUNNING: "a person has answered, and it has its permit: it goes on",
        NEEDS_HUMAN: "it was given no permit, or the answer is void: it waits for a person",
        FINAL: "it was refused or aborted before anything was done",
    },
    RUNNING: {
        NEW: "the flow begins again: another boot or Node object of the machine, or a person's answer",
        DONE: "off is proven or paths are cut, the pods are freed: it waits for the node's return",
        ERROR: "a step has used up its tries",
        NEEDS_HUMAN: "trying again can't help",
        FINAL: "it is not needed any more, was aborted, or leaves the machine off as planned",
    },
    DONE: {
        NEW: "off or the cut does not hold any more: the flow begins again",
        ERROR: "switching on has used up its tries in a further round",
        NEEDS_HUMAN: "the node is not back in time, or a path can't be given back",
        FINAL: "the node is back, and all that is ours is taken off",
    },
    ERROR: {
        NEW: "restarts are left: the flow begins again",
        DONE: "off was proven before: only the rest was done again",
        NEEDS_HUMAN: "no restart is left",
        FINAL: "off was proven before: what was left to do is done, or it was aborted",
    },
    NEEDS_HUMAN: {
        QUEUED: "a person has answered: it asks for a permit anew",
        RUNNING: "a person has answered, and only restoring is left, which needs no permit",
        DONE: "the machine is switched on again, or a path may be given back",
        ERROR: "what had to be done first is done: the step counts as failed",
        FINAL: "it was aborted, or the node came back by itself",
    },
}

REMEDIATION: Arrows = {
    NEW: {
        QUEUED: "it has no permit yet and asks the scanner for one",
        RUNNING: "a step begins, or a fencing as a step has isolated the node",
        TERMINATING: "the machine goes already, or is given up after its preservation",
        ERROR: "a step of a fencing has used up its tries",
        NEEDS_HUMAN: "no step could be begun, or its retries are used up",
        FINAL: "it was refused, aborted, or is not needed any more",
    },
    QUEUED: {
        NEW: "it has its permit and marks the node",
        TERMINATING: "it may give up the machine after its preservation",
        NEEDS_HUMAN: "it was given no permit: the person's answer waits",
        FINAL: "it was refused or aborted before anything was done",
    },
    RUNNING: {
        NEW: "a fencing as a step begins with isolation",
        QUEUED: "its permit was lost: a fencing as a step asks for one",
        DONE: "a fencing as a step waits for the node's return",
        TERMINATING: "the machine goes",
        ERROR: "a step of a fencing has used up its tries",
        NEEDS_HUMAN: "every step has failed",
        FINAL: "the target is well, or it was aborted",
    },
    DONE: {
        NEW: "off or the cut does not hold any more: the fencing begins again",
        QUEUED: "its machine was switched on and is not back, and a person has answered",
        RUNNING: "the node was not back in time: the next step begins",
        TERMINATING: "the node is back, and its machine goes all the same",
        ERROR: "switching on has used up its tries in a further round",
        NEEDS_HUMAN: "the node was not back in time, and no step is left",
        FINAL: "the node is back, and what the steps have left is taken back",
    },
    ERROR: {
        NEW: "restarts are left: the fencing begins again",
        RUNNING: "no restart is left: the next step begins",
        DONE: "off was proven before: only the rest was done again",
        TERMINATING: "the machine goes, as an earlier step has asked",
        NEEDS_HUMAN: "no restart and no step is left",
        FINAL: "what was left to do is done, or it was aborted",
    },
    TERMINATING: {
        QUEUED: "it gives up a machine after its preservation, and asks for a permit",
        RUNNING: "the deletion has had its time: the next step begins",
        NEEDS_HUMAN: "the deletion has had its time, and no step is left, or it can't be asked for",
        FINAL: "the machine is gone",
    },
    NEEDS_HUMAN: {
        NEW: "a person has answered, and a permit had come meanwhile",
        QUEUED: "a person has answered: it asks for a permit anew",
        RUNNING: "the machine is switched on again at a person's word, or the next step begins",
        DONE: "the machine is switched on again, or a path may be given back",
        TERMINATING: "the machine goes, or is gone",
        ERROR: "what had to be done first is done: the step counts as failed",
        FINAL: "it was aborted, or the target is well or gone by itself",
    },
    RUNNING_PRESERVED: {
        TERMINATING: "it has failed and is not kept any longer: the machine is given up",
    },
    FAILED_PRESERVED: {
        TERMINATING: "it is not kept any longer: the machine is given up",
    },
}

PRESERVATION: Arrows = {
    NEW: {
        RUNNING_PRESERVED: "it is kept",
        FAILED_PRESERVED: "it has failed and is kept",
        NEEDS_HUMAN: "what an earlier episode has left can't be removed",
        FINAL: "there is nothing to keep",
    },
    RUNNING_PRESERVED: {
        FAILED_PRESERVED: "it has failed",
        NEEDS_HUMAN: "our marks can't be removed, or its paths can't be given back",
        FINAL: "its time is over, or a person has released it",
    },
    FAILED_PRESERVED: {
        RUNNING_PRESERVED: "it is well again",
        NEEDS_HUMAN: "our marks can't be removed, or its paths can't be given back",
        FINAL: "its time is over, a person has released it, or its machine is gone",
    },
    TERMINATING: {
        RUNNING_PRESERVED: "a person keeps it, before its deletion was asked for; it is well again",
        FAILED_PRESERVED: "a person keeps it, before its deletion was asked for",
        NEEDS_HUMAN: "a person keeps it, and our marks can't be removed",
        FINAL: "a person keeps it, and it is gone all the same",
    },
    NEEDS_HUMAN: {
        RUNNING_PRESERVED: "our marks are removed, or a person keeps it",
        FAILED_PRESERVED: "our marks are removed, or a person keeps it",
        FINAL: "its paths are given back, or an abort leaves them cut",
    },
}

ARROWS: Mapping[Kind, Arrows] = MappingProxyType(
    {Kind.FENCING: FENCING, Kind.REMEDIATION: REMEDIATION, Kind.PRESERVATION: PRESERVATION}
)
"""The arrows of each kind. A remediation may take a fencing as a step and so has its arrows; a preservation that hands over goes
on as a remediation in its present phase, and back."""


def reason_for(kind: Kind, before: Phase, after: Phase) -> str:
    """Why an episode of that kind goes from one phase to the other. Raises UnexpectedPhaseError if there is no arrow."""
    following = ARROWS[kind].get(before, {})
    if after not in following:
        expected = ", ".join(following) or "no other phase"
        raise UnexpectedPhaseError(f"{kind.value}: after {before.value} expected {expected}, got {after.value}")
    return following[after]
