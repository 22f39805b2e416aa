"""The `NodeFence` of the node-fencing proposal (seed 002): its names and spellings for an episode, for `kubectl get nodefences
-w`.

Temporal stays the truth: no code of ours reads a NodeFence to decide anything. `workflows/episode/publisher.py` says when one is
written, `activities/cluster/report/nodefences.py` writes it, its schema is in `deploy/crds/`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from policy.episode.messages import EpisodeStatus, Phase, Reading, RecordEntry
from policy.fence.config import FenceStep
from policy.values.object_refs import LONGEST_NAME

PREFIX = "node-fence-"
DIGEST_LENGTH = 16

MAXIMUM_JOBS = 50

STEPS = {
    FenceStep.ISOLATION.value: "Isolation",
    FenceStep.POWER_MANAGEMENT.value: "Power-Management",
    FenceStep.RECOVERY.value: "Recovery",
}
"""The steps as the seed spells them."""

STATUSES = {
    Phase.NEW: "New",
    Phase.QUEUED: "New",
    Phase.RUNNING: "Running",
    Phase.DONE: "Done",
    Phase.FINAL: "Final",
    Phase.ERROR: "Error",
    Phase.NEEDS_HUMAN: "Error",
}
"""The states of the seed's automaton as it spells them; our phase, which has two more, is shown beside it."""

_OF_THE_EPISODE = frozenset(
    {
        "abort",
        "acknowledge-off",
        "adopt",
        "end",
        "event",
        "free-workloads",
        "hold",
        "last-look",
        "look",
        "off-proven",
        "path-cut-proven",
        "permit",
        "phase",
        "pin",
        "plan",
        "read-path",
        "read-power",
        "release-lease",
        "restart",
        "resume",
        "return-path",
        *FenceStep,
    }
)
"""Entries of the decision record that are not the work of a method."""

_RAN = frozenset({"ok", "sent", "unclear", "failed", "incomplete"})
"""Outcomes of a method that was begun: a method that was needless, skipped or dropped is no job."""


def node_fence_name(node: str) -> str:
    """`node-fence-<node>`. A name that is too long, or that no object could have, is cut and ends with a digest of the whole."""
    plain = re.sub(r"[^a-z0-9.-]", "-", node.lower())
    if plain == node and len(PREFIX) + len(node) <= LONGEST_NAME:
        return f"{PREFIX}{node}"
    digest = hashlib.sha256(node.encode()).hexdigest()[:DIGEST_LENGTH]
    room = LONGEST_NAME - len(PREFIX) - len(digest) - 1
    return f"{PREFIX}{plain[:room].strip('.-')}-{digest}"


def job_of(entry: RecordEntry, incident: str, before: int) -> str:
    """The seed's name for the job in a line of the decision record: `<method>-<id>`; "" if the line is about none.

    before: how often that method has run in this incident already; from the second time on its number is added.
    """
    if entry.act in _OF_THE_EPISODE or entry.outcome not in _RAN:
        return ""
    return f"{entry.act}-{incident}" + (f"-{before + 1}" if before else "")


def retries(status: EpisodeStatus) -> int:
    """How often the present step has been tried again."""
    return max(status.try_number - 1, 0)


def shown_status(status: EpisodeStatus) -> EpisodeStatus:
    """The part of a status that a NodeFence shows, and no more: each state goes through the episode's history, six in a plain
    fencing."""
    off = status.off_proof
    return EpisodeStatus(
        incident=status.incident,
        cluster=status.cluster,
        node=status.node,
        kind=status.kind,
        phase=status.phase,
        step=status.step,
        doing="",
        reason=status.reason,
        started=status.started,
        try_number=status.try_number,
        restarts=status.restarts,
        problem=status.problem,
        off_proof=replace(off, readings=_shown(off.readings)) if off is not None else None,
        restart_proof=status.restart_proof,
        path_proofs=tuple(
            replace(
                path,
                readings=_shown(path.readings),
                volumes=tuple(replace(each, root=False, detail="", seal="") for each in path.volumes),
            )
            for path in status.path_proofs
        ),
    )


def _shown(readings: tuple[Reading, ...]) -> tuple[Reading, ...]:
    return tuple(Reading(endpoint=each.endpoint, state=each.state, at=each.at) for each in readings)


def transition(status: EpisodeStatus) -> tuple[object, ...]:
    """The fields by which two states of an episode are one state of its NodeFence."""
    problem = status.problem if status.phase is Phase.NEEDS_HUMAN else ""
    return (status.step, status.phase, retries(status), status.restarts, problem)
