"""What a look licenses is what it was made for, of a machine that is known (S42)."""

from __future__ import annotations

from typing import Any

import pytest

from policy.episode.fencing import licenses
from policy.episode.gate import Operation
from policy.fence.power import RESTORING, PowerAct
from tests.policy.builders import pinned, seen


@pytest.mark.parametrize("act", PowerAct)
@pytest.mark.parametrize("looked", Operation)
def test_an_act_is_licensed_by_a_look_for_it_and_by_no_other(act: PowerAct, looked: Operation) -> None:
    """S15: one before a removal counts on a control plane that has a member fewer to wait for."""
    wanted = Operation.GIVE_BACK if act in RESTORING else Operation.DISRUPT
    assert licenses(looked, act, pinned(), seen(), devices_compared=True) is (looked is wanted)
    assert licenses(looked, act, pinned(), seen(), devices_compared=False) is (looked is wanted and act in RESTORING)


@pytest.mark.parametrize(
    ("ours", "theirs", "off", "terminate"),
    [
        ({"uid": ""}, {}, False, False),
        ({"uid": "uid-2"}, {}, False, False),
        ({"provider_id": ""}, {}, False, False),
        ({"system_uuid": ""}, {}, False, False),
        ({"provider_id": "", "system_uuid": ""}, {"provider_id": "", "system_uuid": ""}, True, True),
        ({}, {"present": False}, False, True),
        ({"uid": ""}, {"present": False}, False, False),
    ],
)
def test_a_pin_that_leaves_open_whom_it_is_about_licenses_nothing_that_destroys(
    ours: dict[str, Any], theirs: dict[str, Any], off: bool, terminate: bool
) -> None:
    """S9, S39: what it does not say is compared with nothing. Only what is given up last may have lost its Node."""
    for act, licensed in ((PowerAct.OFF, off), (PowerAct.TERMINATE, terminate)):
        assert licenses(Operation.DISRUPT, act, pinned(**ours), seen(**theirs), devices_compared=True) is licensed
    assert licenses(Operation.GIVE_BACK, PowerAct.ON, pinned(**ours), seen(**theirs), devices_compared=True)
