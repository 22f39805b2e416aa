"""The `NodeFence` of the node-fencing proposal (seed 002): how an episode is called there, for `kubectl get nodefences -w`.

Only names and spellings. Temporal stays the truth: nothing of ours ever reads a NodeFence to decide anything. When one is
written is `workflows/episode/publisher.py`, how is `activities/cluster/report/nodefences.py`, its schema `deploy/crds/`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from policy.episode.messages import EpisodeStatus, PathProof, Phase, Reading, RecordEntry
from policy.fence.config import FenceStep

PREFIX = "node-fence-"
LONGEST_NAME = 253
"""Of an object in Kubernetes; a node's own name may be as long."""
DIGEST_LENGTH = 16

MAXIMUM_JOBS = 50

STEPS = {
    FenceStep.ISOLATION.value: "Isolation",
    FenceStep.POWER_MANAGEMENT.value: "Power-Management",
    FenceStep.RECOVERY.value: "Recovery",
}
"""As the seed spells the steps."""

STATUSES = {
    Phase.NEW: "New",
    Phase.QUEUED: "New",
    Phase.RUNNING: "Running",
    Phase.DONE: "Done",
    Phase.FINAL: "Final",
    Phase.ERROR: "Error",
    Phase.NEEDS_HUMAN: "Error",
}
"""As the seed spells the states of its automaton; our phase, which knows two more, stands beside it."""

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
"""What the decision record notes that is not the work of a method."""

_RAN = frozenset({"ok", "sent", "unclear", "failed", "incomplete"})
"""Outcomes of a method that was begun: what was needless, skipped or dropped is no job."""


def node_fence_name(node: str) -> str:
    """`node-fence-<node>`. One that is too long, or that no object could have, is cut and told apart by a digest of the whole."""
    plain = re.sub(r"[^a-z0-9.-]", "-", node.lower())
    if plain == node and len(PREFIX) + len(node) <= LONGEST_NAME:
        return f"{PREFIX}{node}"
    digest = hashlib.sha256(node.encode()).hexdigest()[:DIGEST_LENGTH]
    room = LONGEST_NAME - len(PREFIX) - len(digest) - 1
    return f"{PREFIX}{plain[:room].strip('.-')}-{digest}"


def job_of(entry: RecordEntry, incident: str, before: int) -> str:
    """How the seed would call the job that a line of the decision record is about: `<method>-<id>`; "" where it is about none.

    before: how often that method has run in this incident already; from the second time on its number is added.
    """
    if entry.act in _OF_THE_EPISODE or entry.outcome not in _RAN:
        return ""
    return f"{entry.act}-{incident}" + (f"-{before + 1}" if before else "")


def retries(status: EpisodeStatus) -> int:
    """How often the step in hand has been tried again."""
    return max(status.try_number - 1, 0)


def told(status: EpisodeStatus) -> EpisodeStatus:
    """What a NodeFence shows of a status, and no more: each state goes through the episode's history, six in a plain fencing."""
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
        off_proof=replace(off, readings=_told(off.readings)) if off is not None else None,
        restart_proof=status.restart_proof,
        path_proofs=tuple(_told_path(each) for each in status.path_proofs),
    )


def _told(readings: tuple[Reading, ...]) -> tuple[Reading, ...]:
    return tuple(Reading(endpoint=each.endpoint, state=each.state, at=each.at) for each in readings)


def _told_path(path: PathProof) -> PathProof:
    volumes = tuple(replace(each, root=False, detail="", seal="") for each in path.volumes)
    return replace(path, readings=_told(path.readings), volumes=volumes)


def transition(status: EpisodeStatus) -> tuple[object, ...]:
    """Two states of an episode that are equal in this are one state of its NodeFence."""
    problem = status.problem if status.phase is Phase.NEEDS_HUMAN else ""
    return (status.step, status.phase, retries(status), status.restarts, problem)
