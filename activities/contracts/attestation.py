"""What a person says, and how it is verified that it was he (S42)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from temporalio import activity

from policy.episode.operator_commands import ActionName, NodeActionSpec, SealedCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """A word, and the NodeAction by which Kubernetes is to attest it. use: which update of the workflow that asks makes use of
    the object, "" where it is its beginning; no other one may. incident: of the episode that it is said to, "" where it is said
    to a scanner."""

    cluster: str
    spoken: NodeActionSpec
    action: ActionName
    use: str
    incident: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """speaker: the name by which Kubernetes knows who has spoken, "" where it can't be relied on, and the problem says why.
    sealed: the word, for whoever is to act on it."""

    speaker: str = ""
    problem: str = ""
    sealed: SealedCommand | None = None


class AttestationActivities(ABC):
    """Served on `cluster.<name>`."""

    @activity.defn(name="words.verify")
    @abstractmethod
    async def verify(self, request: VerifyRequest) -> Verification:
        """Read the object live, and note on it that it has been used.

        NotLicensed: it says another thing, is old, or was used; or it can't be relied on, where only verified words are heard.
        """
