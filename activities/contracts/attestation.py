"""How a person's command is verified (S42)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from temporalio import activity

from activities.contracts import ActivityContract
from policy.episode.node_action import ActionName, NodeActionSpec, SealedCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """A person's command, and the NodeAction by which Kubernetes attests it. use: the update of the asking workflow that uses
    the NodeAction, "" for the start of the workflow; no other update may use it. incident: of the episode that gets the
    command, "" for a command to a scanner."""

    cluster: str
    spec: NodeActionSpec
    action: ActionName
    use: str
    incident: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """speaker: the name by which Kubernetes knows the person, "" if it can't be relied on; `problem` says why. sealed: the
    verified command, for the worker that acts on it."""

    speaker: str = ""
    problem: str = ""
    sealed: SealedCommand | None = None


class AttestationActivities(ActivityContract):
    """Served on `cluster.<name>`."""

    @activity.defn(name="commands.verify")
    @abstractmethod
    async def verify(self, request: VerifyRequest) -> Verification:
        """Read the object live, and note on it that it has been used.

        NotLicensed: it names another command, is old, or was used; or it can't be relied on, and only verified commands are
        accepted.
        """
