"""Why an episode exists, and when that reason is gone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from policy.checks.verdicts import Health, Verdict
from policy.episode.words import SealedWord
from policy.values.object_refs import ObjectRef


class NeedKind(StrEnum):
    """Where the need comes from, and so when it is gone.

    check: gone when the verdict is healthy. person: gone on abort. clean-up: the node is healthy and only carries the
    marks of an episode that is no longer open. foreign-object: an object of another system asks, as
    `policy/episode/fencing_requests.py` reads it; gone when that is deleted or its operator has given it up. preservation: a
    machine that has failed and is kept is to be cut off; gone when its Node no longer says that it is kept as failed.
    """

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
    """Why an episode exists. `since`: when the node began to offend; None where nobody said.

    cause: what ails the node, in a word that is the same each time (`ReadyUnknown`); "" where a person asks. check: the health
    check, or the object that asks; object_uid: that object's, since another one of its name is another need. delegate: who may
    hold the node's lease although we act, because it is he who asked us to. word: the person's, where Kubernetes attests it.
    """

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
