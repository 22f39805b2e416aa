"""Why an episode exists, and when that reason is gone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from policy.checks.verdicts import Health, Verdict
from policy.episode.operator_commands import SealedWord
from policy.values.object_refs import ObjectRef


class NeedKind(StrEnum):
    """What asks for the episode, and so when that ends. check: gone when the verdict is healthy. person: gone on abort. clean-up:
    the node is healthy and only carries the marks of an episode that is no longer open. foreign-object: an object of another
    system asks, as `policy/episode/fencing_requests.py` reads it; gone when that object is deleted or its operator has given it
    up. preservation: a failed machine that is kept is to be cut off; gone when its Node no longer says that it is kept as
    failed."""

    CHECK = "check"
    PERSON = "person"
    CLEAN_UP = "clean-up"
    FOREIGN_OBJECT = "foreign-object"
    PRESERVATION = "preservation"

    @property
    def automatic(self) -> bool:
        """Whether a program has decided, and no person: what keeps programs from a node keeps this need from it."""
        return self in {NeedKind.CHECK, NeedKind.FOREIGN_OBJECT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Why an episode exists. `since`: when the node became unhealthy; None if not known. cause: what ails the node, in a word
    that is the same each time (`ReadyUnknown`); "" if a person asks. check: the health check or object that asks; object_uid: its
    uid, because another object of the same name is another need. delegate: the controller that asked us to act and may therefore
    hold the node's lease. word: the person's, if Kubernetes attests it."""

    kind: NeedKind = NeedKind.PERSON
    reason: str = ""
    check: ObjectRef | None = None
    requester: str = ""
    since: datetime | None = None
    cause: str = ""
    object_uid: str = ""
    delegate: str = ""
    word: SealedWord | None = None


def need_gone(need: Need, verdict: Verdict | None) -> bool:
    """Whether an episode's reason to exist has gone. `verdict`: of the need's check, None where it no longer covers the node.

    A verdict of soon or skipped keeps the need: the conditions still offend, only their time starts anew or a person objects.
    """
    if need.kind is not NeedKind.CHECK:
        return False
    return verdict is None or verdict.health is Health.HEALTHY
