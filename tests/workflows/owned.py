"""The truth about the Machine behind the Node: its deletion, its successor, what its owner and other controllers were asked for.

Everything that comes of itself follows from the moment at which it is looked at. What may be done to it is `ladder_acts.py`;
whether it should have been is for the referee.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from policy.values.object_refs import ObjectRef

MACHINE = ObjectRef(api_version="cluster.x-k8s.io/v1beta1", kind="Machine", name="w-7", namespace="capi")
MACHINE_UID = "uid-w-7"
SUCCESSOR = "w-8"


@dataclass(slots=True)
class Handed:
    """A remediation object of another controller. by: the incident that made it."""

    by: str
    created: datetime
    succeeds_at: datetime | None = None
    fails_at: datetime | None = None
    timed_out: bool = False
    goes_at: datetime | None = None


@dataclass
class Owned:
    """One Machine of an owner that replaces what is deleted."""

    goes_after: timedelta | None = timedelta(minutes=2)
    """How long its deletion takes; None: a finalizer holds it up for ever."""
    owner_acts_after: timedelta | None = timedelta(minutes=1)
    """How long its owner takes once it is asked; None: it does nothing."""
    operator_acts_after: timedelta | None = timedelta(minutes=1)
    """How long other controllers take to start the machine anew; None: they fail after two minutes."""
    deleting: datetime | None = None
    gone: datetime | None = None
    claimed_by: str = ""
    """Whose claim that it is being deleted stands on the Node."""
    preserved: datetime | None = None
    """Since when the Machine alone is annotated preserve=now."""
    asked: datetime | None = None
    asked_by: str = ""
    annotated: datetime | None = None
    annotated_by: str = ""
    objects: dict[str, Handed] = field(default_factory=dict)
    memory: str = ""
    successor_memory: str = ""

    @property
    def present(self) -> bool:
        """Whether the Machine is still there."""
        return self.gone is None

    def settle(self, now: datetime) -> bool:
        """What has come of itself until now. True: the machine has just gone for good."""
        if self.asked is not None and self.owner_acts_after is not None and self.deleting is None:
            due = self.asked + self.owner_acts_after
            self.deleting = due if now >= due else None
        for name, each in list(self.objects.items()):
            if each.goes_at is not None and now >= each.goes_at:
                del self.objects[name]
        if self.deleting is None or self.goes_after is None or self.gone is not None or now < self.deleting + self.goes_after:
            return False
        self.gone = self.deleting + self.goes_after
        return True
