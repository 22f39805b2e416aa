"""Whether a node is still the machine that an episode has pinned (S9).

`activities/cluster/` pins; the workflows decide what follows from a difference (`TargetChanged`, `replaced`).
"""

from __future__ import annotations

from collections.abc import Collection

from policy.episode.messages import Observation, Pinned
from policy.objects.nodes import NodeView


def same_machine(pinned: Pinned, seen: NodeView | Observation) -> bool:
    """Whether a Node object, perhaps a new one, stands for the pinned machine.

    The same providerID and system UUID are the same machine, with any uid of the object. Fields that one side does not know are
    not compared; if none can be compared, only the same object is the same machine.
    """
    pairs = (
        (pinned.provider_id, seen.provider_id),
        (pinned.system_uuid.casefold(), seen.system_uuid.casefold()),
    )
    known = [(ours, theirs) for ours, theirs in pairs if ours and theirs]
    if not known:
        return bool(pinned.uid) and pinned.uid == seen.uid
    return all(ours == theirs for ours, theirs in known)


def compare_identity(
    pinned: Pinned,
    observation: Observation,
    *,
    destructive: bool,
    endpoints: Collection[str] | None = None,
    levels: Collection[Collection[str]] | None = None,
    machine_uids: Collection[str] | None = None,
) -> str:
    """The field that differs from the pinned target, with both values; "" if none does.

    Before a destructive act: uid, providerID and system UUID; a pinned value that has vanished is a difference. Before a
    restoring act only the providerID, if the node has one, so that no machine stays off because its Node object was deleted or
    re-created meanwhile. endpoints: those that the configuration gives now; levels: the endpoints that prove off by their OFF,
    level by level (S4), in any order; machine_uids: those of the Machines that belong to the Node now. Each is compared if it is
    known. A value that was empty when it was pinned is never compared: a later value neither confirms nor denies it.
    """
    if endpoints is not None and set(endpoints) != set(pinned.endpoints):
        return f"fence endpoints: pinned {_listed(pinned.endpoints)}, now {_listed(endpoints)}"
    if levels is not None and pinned.levels and {*map(frozenset, levels)} != {*map(frozenset, pinned.levels)}:
        return f"power levels: pinned {_each(pinned.levels)}, now {_each(levels)}"
    if not observation.present:
        return f"the Node object is gone: pinned uid {pinned.uid}" if destructive and pinned.uid else ""
    if not destructive:
        vanished = not observation.provider_id
        return "" if vanished else _difference("providerID", pinned.provider_id, observation.provider_id)
    if machine_uids is not None and (gone := set(pinned.machine_uids) - set(machine_uids)):
        return f"Machine uid: pinned {_listed(gone)}, now {_listed(machine_uids)}"
    return (
        _difference("uid", pinned.uid, observation.uid)
        or _difference("providerID", pinned.provider_id, observation.provider_id)
        or _difference("systemUUID", pinned.system_uuid.casefold(), observation.system_uuid.casefold())
    )


def _difference(field: str, pinned: str, now: str) -> str:
    return "" if not pinned or pinned == now else f"{field}: pinned {pinned}, now {now or 'none'}"


def _each(levels: Collection[Collection[str]]) -> str:
    return "; ".join(" and ".join(level) for level in levels) or "none"


def _listed(endpoints: Collection[str]) -> str:
    return ", ".join(sorted(endpoints)) or "none"
