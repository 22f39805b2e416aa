"""Objects of other systems that ask for a node: followed for the ledger, looked at live, and answered in their own conditions.

None of them is ever created, deleted or given a finalizer by us: its operator deletes it when the node is well, and that must not
wait for us. What an episode has to undo it undoes from its own record, with the object or without it. What the objects mean
is `policy/episode/fencing_requests.py` and `policy/episode/fencing_requests.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.api.paths import FENCE_AGENTS_REMEDIATIONS
from activities.cluster.api.refusals import ObjectNotFound, edit, unless_gone
from activities.cluster.objects.check_statuses import (
    ConditionText,
    conditions,
    leader_lease,
    newest_foreign_write,
    seconds,
    status_of,
)
from activities.cluster.objects.object_reader import ApiReader
from activities.errors import ErrorType, as_invalid_config, failure
from activities.worker_clock import Clock
from policy.checks.circuit_breakers import LeaderLease, StatusWrite, conflict
from policy.episode.fencing_requests import (
    RequestAnswer,
    Stage,
    conditions_of,
    is_another,
    plan_of,
    read_request,
    uncounted,
    why_ended,
    why_withdrawn,
)
from policy.episode.messages import Need
from policy.fence.plan import FencingPlan
from policy.remediation.remediation_objects import made_by_us
from policy.scan.ledger import Ledger
from policy.values.errors import PolicyError
from policy.values.object_refs import ObjectRef

log = logging.getLogger(__name__)

UPDATED = "lastUpdateTime"


class FencingRequests:
    """Feeds one ledger with what asks for nodes, and with whether the controller that it is made for is at work.

    Evidence counts as long as it is fresh, and no longer: the operator that creates the objects goes on running when that
    controller is taken away, and taking its checks over is not what its user wants then. takeover: the user knows, and wants us
    to act all the same. namespaces: where objects are obeyed (S46).
    """

    def __init__(self, ledger: Ledger, *, takeover: bool, namespaces: Collection[str]) -> None:
        self._ledger = ledger
        self._namespaces = namespaces
        self._takeover = takeover
        self.objects: dict[str, JsonObject] = {}
        """As last seen, by the key of their reference."""
        self._leases: dict[str, LeaderLease] = {}
        self._writes: dict[str, StatusWrite] = {}

    @property
    def asking(self) -> bool:
        return any(not why_ended(each) for each in self.objects.values())

    def put(self, ref: ObjectRef, found: JsonObject | None) -> None:
        """An object as it is now, None for one that is gone. One of ours asks another controller, and not us."""
        key = ref.key
        if found is None or made_by_us(found):
            self.objects.pop(key, None)
            self._writes.pop(key, None)
            self._ledger.remove_request(key)
            return
        stranger = uncounted(ref, self._namespaces)
        try:
            request = read_request(found, uncounted=stranger)
        except PolicyError as error:
            log.warning("%s asks for nothing: %s", key, error)
            return
        self.objects[key] = found
        write = newest_foreign_write(ref, found)
        if write is None or stranger:  # a request that is not obeyed holds up no other either
            self._writes.pop(key, None)
        else:
            self._writes[key] = write
        self._ledger.put_request(replace(request, taken_up=request.taken_up and not self._takeover))

    def lease_changed(self, key: str, lease: JsonObject | None, now: datetime) -> None:
        """That controller's leader Lease as it is since this moment, None for one that is gone."""
        if lease is None:
            self._leases.pop(key, None)
        else:
            self._leases[key] = leader_lease(key, lease).seen(self._leases.get(key), now)

    def hold_back(self, now: datetime) -> None:
        """Hold back the requests that another controller acts on."""
        why = conflict(self._leases.values(), self._writes.values(), (), now, upon="FenceAgentsRemediations")
        self._ledger.hold_back_requests("" if self._takeover else why)


async def find_request(connection: ApiReader, need: Need | None, namespaces: Collection[str]) -> JsonObject | None:
    """The object that asks as it is now, None where it was deleted or none is meant. Errors: InvalidConfig for one of a namespace
    that is none of these (S46)."""
    if need is None:
        return None
    if need.check is None or need.check.kind != FENCE_AGENTS_REMEDIATIONS.kind:
        raise failure(ErrorType.INVALID_CONFIG, f"the need is another system's, but {need.check} is no object of a kind we know")
    if stranger := uncounted(need.check, namespaces):
        raise failure(ErrorType.INVALID_CONFIG, stranger)
    return await unless_gone(connection.get(_path(need.check)))


async def plan_asked_for(
    connection: ApiReader, need: Need, node: str, namespaces: Collection[str], *, taint_honoured: bool
) -> FencingPlan:
    """The plan that the object becomes, read live. Errors: InvalidConfig, also where it no longer asks."""
    found = await find_request(connection, need, namespaces)
    key = need.check.key if need.check else "it"
    if found is None or is_another(found, need.object_uid):
        raise failure(ErrorType.INVALID_CONFIG, f"{key} was deleted")
    if ended := why_ended(found):
        raise failure(ErrorType.INVALID_CONFIG, f"{key}: {ended}")
    with as_invalid_config():
        return plan_of(found, node, taint_honoured=taint_honoured)


async def answer(connection: ClusterConnection, given: RequestAnswer, *, clock: Clock) -> str:
    """Write how far a wish has come, where its object says something else. Returns why there is no object to answer, "" for done.

    Where the operator has given it up the answer is that it was interrupted, whatever became of it since.
    """
    path = _path(given.about)

    async def once() -> str:
        found = await connection.get(path)
        if is_another(found, given.uid):
            return f"{given.about.key} is another object now"
        withdrawn = why_withdrawn(found)
        if found["metadata"].get("deletionTimestamp"):
            return withdrawn
        stage, message = (Stage.INTERRUPTED, withdrawn) if withdrawn else (given.stage, given.message)
        status = answered(status_of(found), stage, message, clock())
        if status:
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            await connection.patch_merge(f"{path}/status", {"metadata": version, "status": status})
        return withdrawn

    try:
        return await edit(given.about.key, once)
    except ObjectNotFound:
        return f"{given.about.key} was deleted"


def answered(current: Mapping[str, Any], stage: Stage, message: str, now: datetime) -> JsonObject:
    """What is to be written over the status as it stands, nothing where it says so already. As its controller does it, a
    condition of unchanged status keeps its message, and the time of the last update moves with the conditions only."""
    listed = current.get("conditions") or []
    stands = {each.get("type"): each.get("status") for each in listed}
    wanted: dict[str, ConditionText | None] = {
        kind: ConditionText(status=status, reason=stage.value, message=message)
        for kind, status in conditions_of(stage, current).items()
        if stands.get(kind) != status
    }
    return {"conditions": conditions(listed, wanted, now), UPDATED: seconds(now)} if wanted else {}


def _path(ref: ObjectRef) -> str:
    return FENCE_AGENTS_REMEDIATIONS.path(ref.name, namespace=ref.namespace)
