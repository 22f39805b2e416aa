"""What is written so that a machine that is kept is among the last that its MachineSet chooses when it is to have fewer.

Only machine-controller-manager has a lever for that, the priority of a Machine: the lowest goes first. OpenShift and Cluster API
know an annotation by which a Machine goes *first*, and none by which it goes last: nothing is written there. To mark all the
others instead would take the choice from the autoscaler, which marks the one that it has drained.

Whoever has said that a Machine is to go first, by a low priority or by one of those annotations, is heard: the number of
replicas, and who names the one to go, beats preservation (S21, S26). What others wrote is put back byte for byte (S28).
"""

from __future__ import annotations

from policy.preservation.kept_machine import Held
from policy.values.machine_apis import CLUSTER_API, OPENSHIFT

PRIORITY_ANNOTATION = "machinepriority.machine.sapcloud.io"
"""On a Machine of machine-controller-manager, which writes its default there itself, and 1 for what the autoscaler has chosen."""

DEFAULT_PRIORITY = 3

PRIORITY_OURS = "nodewarden.io/machinepriority"
"""Our mark: the priority that we wrote. Another one that stands there since is somebody else's."""
PRIORITY_BEFORE = "nodewarden.io/machinepriority-before"
"""What stood there before we did, put back when we stop (S28)."""

KEPT_AUTOMATICALLY = "1000"
KEPT_ON_REQUEST = "2000"
"""Far above what people use; of two that are kept, the one that nobody asked for goes first, as in `survey.py`."""

(CLUSTER_API_DELETE,) = CLUSTER_API.goes_first
"""Any value marks a Machine, also an empty one."""
OPENSHIFT_DELETE = OPENSHIFT.goes_first
"""The name of today and that of old; an empty value marks nothing."""

_LONGEST = 18
"""Digits of a number that fits into what the other side reads it into."""


def priority_of(text: str | None) -> int:
    """As machine-controller-manager reads it: what is no whole number is the default."""
    digits = (text or "").removeprefix("-") if (text or "").startswith("-") else (text or "").removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST):
        return DEFAULT_PRIORITY
    return int(text or "")


def priority_in_its_set(held: Held) -> int:
    """Who goes first when its set is scaled down: the lowest. The same for all whose set looks at no priority."""
    return priority_of(held.annotations.get(PRIORITY_ANNOTATION)) if held.has_priority else DEFAULT_PRIORITY


def ranked(held: Held, *, preserved: bool, automatic: bool) -> dict[str, str | None]:
    """The annotations of its Machine by which it goes last while it is preserved, or as it was before; None: to be removed."""
    if not held.has_priority:
        return {}
    theirs, ours = _theirs(held), KEPT_AUTOMATICALLY if automatic else KEPT_ON_REQUEST
    if not preserved or _goes_first(theirs) or priority_of(theirs) >= int(ours):
        marked = PRIORITY_OURS in held.annotations
        return {PRIORITY_ANNOTATION: theirs, PRIORITY_OURS: None, PRIORITY_BEFORE: None} if marked else {}
    return {PRIORITY_ANNOTATION: ours, PRIORITY_OURS: ours, PRIORITY_BEFORE: theirs}


def said_to_go_first(held: Held) -> str:
    """Who has said that it is the first to go when its set is to have fewer machines, "" where nobody has."""
    theirs = _theirs(held)
    if held.has_priority and _goes_first(theirs):
        return _told(f"{PRIORITY_ANNOTATION}={theirs}")
    if not held.has_priority and held.marked_for_deletion:
        key = next((key for key in (CLUSTER_API_DELETE, *OPENSHIFT_DELETE) if key in held.annotations), "")
        return _told(key)
    return ""


def _theirs(held: Held) -> str | None:
    """The priority as it would stand there without us."""
    stands = held.annotations.get(PRIORITY_ANNOTATION)
    if stands is not None and stands == held.annotations.get(PRIORITY_OURS):
        return held.annotations.get(PRIORITY_BEFORE)
    return stands


def _goes_first(priority: str | None) -> bool:
    return priority_of(priority) < DEFAULT_PRIORITY


def _told(annotation: str) -> str:
    return f"Machine: annotation {annotation}: it goes first when its set is to have fewer machines, even while it is kept"
