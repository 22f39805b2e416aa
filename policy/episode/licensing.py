"""Which power act a last look that says go may license (S42): what it has looked at must be what the act takes.

The look is `activities/cluster/live/looks.py`, the signature `activities/licences.py`; why a look says no is `gate.py`.
"""

from __future__ import annotations

from policy.episode.gate import Operation
from policy.episode.messages import Pinned
from policy.episode.observation import Observation
from policy.fence.power import RESTORING, PowerAct


def licenses(looked: Operation, act: PowerAct, pinned: Pinned, seen: Observation, *, devices_compared: bool) -> bool:
    """looked: what the look was made for. devices_compared: those that are configured now with those that were pinned.

    A look before a removal licenses none: its control plane goes on with a member fewer to count, and one whose machine is
    switched off or given up with as many as before (S15).
    """
    if act in RESTORING:
        return looked is Operation.GIVE_BACK
    return looked is Operation.DISRUPT and devices_compared and not _is_blank(pinned, seen, act)


def _is_blank(pinned: Pinned, seen: Observation, act: PowerAct) -> bool:
    """Whether the pin leaves open whom it is about, by which a device's word and other Nodes' claims are compared (S9, S39). Only
    what is given up last may have lost its Node by then."""
    if not seen.present:
        return act is not PowerAct.TERMINATE or not pinned.uid
    open_ends = (seen.provider_id and not pinned.provider_id) or (seen.system_uuid and not pinned.system_uuid)
    return seen.uid != pinned.uid or bool(open_ends)
