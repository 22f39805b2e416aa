"""Which override it was, from what the sets above a machine say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from policy.preservation.decision import NOT_OVERRIDDEN, Override, WantedReplicas, overridden_by

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
OLD = WantedReplicas(kind="MachineSet", name="w-1", replicas=2, revision=1, created=NOW)
NEW = WantedReplicas(kind="MachineSet", name="w-2", replicas=2, revision=2, created=NOW + timedelta(hours=1))
TOP = WantedReplicas(kind="MachineDeployment", name="w", replicas=4)


@pytest.mark.parametrize(
    ("own", "top", "others", "override", "words"),
    [
        (None, None, (), Override.DELETION, "no MachineSet is known above it"),
        (replace(OLD, replicas=None), None, (), Override.DELETION, "or by MachineSet w-1"),
        (OLD, None, (), Override.DELETION, "by MachineSet w-1, which is to have 2"),
        (replace(OLD, replicas=0), None, (), Override.HIBERNATION, "MachineSet w-1 is scaled to 0"),
        (OLD, replace(TOP, replicas=0), (NEW,), Override.HIBERNATION, "MachineDeployment w is scaled to 0"),
        (
            OLD,
            TOP,
            (NEW,),
            Override.ROLLING_UPDATE,
            "MachineDeployment w replaces the machines of MachineSet w-1 by those of MachineSet w-2",
        ),
        (replace(OLD, replicas=0), TOP, (NEW,), Override.ROLLING_UPDATE, "by those of MachineSet w-2"),
        (NEW, TOP, (OLD,), Override.DELETION, "by MachineSet w-2"),
        (NEW, TOP, (replace(OLD, revision=3),), Override.ROLLING_UPDATE, "by those of MachineSet w-1"),
        (OLD, TOP, (replace(NEW, replicas=0),), Override.DELETION, "by MachineSet w-1"),
        (OLD, TOP, (replace(NEW, deleting=True),), Override.DELETION, "by MachineSet w-1"),
        (replace(OLD, revision=0), TOP, (replace(NEW, revision=0),), Override.ROLLING_UPDATE, "MachineSet w-2"),
        (replace(OLD, replicas=0), TOP, (), Override.HIBERNATION, "MachineSet w-1 is scaled to 0"),
        (OLD, replace(TOP, deleting=True), (NEW,), Override.DELETION, "MachineDeployment w is being deleted"),
    ],
)
def test_which_override_it_was(
    own: WantedReplicas | None, top: WantedReplicas | None, others: tuple[WantedReplicas, ...], override: Override, words: str
) -> None:
    """S21: recorded by its name. A roll-back is a roll-out, too: the set with the newest revision counts."""
    found = overridden_by(own, top, others)
    assert found.override is override
    assert words in found.sentence
    assert found.sentence.startswith(f"{override.value}: ")


def test_nothing_is_said_where_nothing_was_overridden() -> None:
    assert NOT_OVERRIDDEN.sentence == ""
