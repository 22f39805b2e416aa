"""How each kind of object enters a ledger, or the index of what is preserved: one way in for watches, snapshots and files alike.

Which kinds go where is the table of `kinds.py`. Health checks go through `policy/dialects`; a bad one is put as bad, never
dropped. What says that an upgrade goes on, and what etcd can do without, is folded into one `Surroundings`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from activities.cluster.api.paths import (
    CLUSTER_VERSIONS,
    CONFIG_MAPS,
    DISRUPTION_BUDGETS,
    MACHINE_CONFIG_POOLS,
    PRESERVATION_POLICIES,
    Resource,
)
from activities.cluster.objects.machines_decoding import deployment_of
from activities.cluster.watch.kinds import MACHINE_API_OF, Destination, ReadKind
from policy.checks.fence_policies import DEFAULT_SOURCE, PolicySource, stricter, unusable
from policy.checks.health_check import HealthCheck
from policy.dialects import parse, refuse_update
from policy.dialects.node_fencing import CLUSTER_CONFIG, POLICY_PREFIX, holds_back_only, read_policies
from policy.objects.machines import IgnoredObjects, MachineView, counted_in, machine_key, uncounted
from policy.objects.nodes import EtcdGuard, Surroundings
from policy.preservation.machine_snapshot import REASON as MISTAKEN
from policy.preservation.pool_cap import DeploymentPool
from policy.preservation.preservation_index import PreservationIndex
from policy.preservation.requests import read_policy
from policy.remediation.ladder import NoRemedy, TemplateSeen, no_remedy
from policy.scan.ledger import Ledger
from policy.values.errors import PolicyError, shown
from policy.values.fields import mapping, mappings
from policy.values.object_refs import Mistake, ObjectRef

if TYPE_CHECKING:
    from activities.cluster.api.connection import JsonObject

_UPGRADES = {CLUSTER_VERSIONS.kind: "Progressing", MACHINE_CONFIG_POOLS.kind: "Updating"}
"""The condition by which each kind tells of an upgrade."""

LONGEST_MESSAGE = 300

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fact:
    """What one object tells. upgrade: that one is going on; allowance: of a budget; guard: node and readiness."""

    upgrade: str = ""
    allowance: int | None = None
    guard: tuple[str, str] | None = None


class Intake:
    """Feeds one ledger. `clock` is asked for the moment at which an object was received."""

    def __init__(self, ledger: Ledger, clock: Callable[[], datetime], *, source: PolicySource = DEFAULT_SOURCE) -> None:
        self.ledger = ledger
        self.policy_mistake: PolicyError | None = None
        """Why the fence configuration of the cluster can't be used, None where it can."""
        self.objects: dict[str, JsonObject] = {}
        """The policy objects as last seen, by the key of their reference."""
        self.checks: dict[str, HealthCheck] = {}
        """Those of them that are written as they should be."""
        self._no_remedy: dict[str, NoRemedy] = {}
        """Of these the ones that lack their templates, by key."""
        self._clock = clock
        self._facts: dict[tuple[str, str], _Fact] = {}
        self._source = source
        self._cluster_config: JsonObject | None = None
        self._fence_policies: dict[str, JsonObject] = {}
        self._unread = ""
        self.ledger.follow(source.policies)

    def take(self, kind: ReadKind, key: str, found: Any) -> None:
        """One object as it is now, None for one that is gone, where its kind goes. Health checks go in by `put_check`.

        Raises ValueError for one that can't be read: nothing of it counts then.
        """
        ledger, now = self.ledger, self._clock()
        namespace, _, name = key.rpartition("/")
        match kind.destination:
            case Destination.NODES if found is None:
                ledger.remove_node(key)
            case Destination.NODES:
                ledger.put_node(found, now)
            case Destination.FENCE_POLICIES:
                self.put_config_map(name, found)
            case Destination.MACHINES if found is None:
                ledger.remove_machine(machine_key(MACHINE_API_OF[kind.resource], namespace, name))
            case Destination.MACHINES:
                ledger.put_machine(counted_in(self._source.machines, found), now)
            case Destination.CLUSTERS if found is None:
                ledger.remove_cluster(key)
            case Destination.CLUSTERS:
                ledger.put_cluster(found, now)
            case Destination.SURROUNDINGS:
                self._put_surrounding(kind.resource.kind, key, found)
            case Destination.REMEDIATIONS if found is None:
                ledger.remove_remediation(kind.resource.ref(name, namespace).key)
            case Destination.REMEDIATIONS:
                ledger.put_remediation(found, now)
            case _:
                raise TypeError(kind.destination)

    def put_config_map(self, name: str, obj: JsonObject | None) -> None:
        """A ConfigMap of the node-fencing proposal, None for one that is gone; any other ConfigMap of such a name is ignored.

        The cluster's configuration and its policies are one: where any of it can't be used, the health check that it is counts
        as a bad one, and nothing new is begun under any.
        """
        if name == CLUSTER_CONFIG:
            self._cluster_config = _plain_config_map(obj)
        elif name.startswith(POLICY_PREFIX):
            if obj is None:
                self._fence_policies.pop(name, None)
            else:
                self._fence_policies[name] = _plain_config_map(obj) or {}
        else:
            return
        self._read_policies()

    def doubt_policies(self, why: str) -> None:
        """Why the ConfigMaps can't be followed, "" where they are: what is not read may say off."""
        if why != self._unread:
            self._unread = why
            self._read_policies()

    def _read_policies(self) -> None:
        cluster, self.policy_mistake = self._cluster_config, None
        metadata = mapping((cluster or {}).get("metadata"))
        name = str(metadata.get("name") or CLUSTER_CONFIG)
        namespace = str(metadata.get("namespace") or self._source.namespace)
        ref = CONFIG_MAPS.ref(name, namespace)
        try:
            found = stricter(self._source.policies, read_policies(cluster, self._fence_policies))
        except PolicyError as error:
            self.policy_mistake = error
            self.refuse_check(ref, cluster or {}, error)
            found = unusable(self._source.policies, str(error))
        else:
            if cluster is None or holds_back_only(cluster):
                for key in [key for key in self.objects if key.startswith(f"{CONFIG_MAPS.kind}/")]:
                    self.remove_check(key)
            else:
                self.put_check(ref, cluster)
        self.ledger.follow(unusable(found, self._unread) if self._unread else found)

    def put_check(self, ref: ObjectRef, obj: JsonObject, *, update: bool = False) -> PolicyError | None:
        """A health check as written. update: judge it as a change of the one that is known. What is wrong with it, or None.

        One that is being deleted is gone, however long a finalizer keeps it: a last look takes it so as well, and were the two to
        disagree, episodes would begin and end without end. Of one that does not count nothing but its name is known (S46).
        """
        if mapping(obj.get("metadata")).get("deletionTimestamp"):
            self.remove_check(ref.key)
            return None
        if uncounted(ref, self._source.machines):
            self.ledger.ignore_check(ref)
            return None
        before, stood = self.checks.pop(ref.key, None), self.objects.get(ref.key)
        self.objects[ref.key] = obj
        try:
            check = parse(obj)
            if update and before is not None and stood is not None:
                refuse_update(before, check, stood)
        except PolicyError as error:
            self.refuse_check(ref, obj, error)
            return error
        self.checks[ref.key] = check
        self._take(check)
        return None

    def judge_templates(self, seen: Callable[[HealthCheck, ObjectRef], TemplateSeen], *, only: str = "") -> None:
        """Which checks can be used, by the templates that are there now; or whether the one of that key can."""
        for key, check in self.checks.items() if not only else [(only, self.checks[only])]:
            lacks = no_remedy(check, partial(seen, check), self._source.templates)
            if lacks == self._no_remedy.get(key):
                continue
            if lacks is None:
                del self._no_remedy[key]
            else:
                self._no_remedy[key] = lacks
            self._take(check)

    def _take(self, check: HealthCheck) -> None:
        """Into the ledger: for use, or as one that can't be used. What was known of its templates counts until they are judged
        again."""
        lacks = self._no_remedy.get(check.ref.key)
        if lacks is None:
            self.ledger.put_check(check)
        else:
            about = check.ref
            self.ledger.put_bad_check(
                about,
                f"{about.key}: {lacks.message}",
                uid=check.uid,
                generation=check.generation,
                reason=lacks.reason,
                check=check,
            )

    def refuse_check(self, ref: ObjectRef, obj: JsonObject, error: PolicyError) -> None:
        """A health check that can't be used; the version before counts no more."""
        self._forget(ref.key)
        self.objects[ref.key] = obj
        metadata = mapping(obj.get("metadata"))
        uid, generation = metadata.get("uid"), metadata.get("generation")
        self.ledger.put_bad_check(
            ref,
            str(error),
            uid=uid if isinstance(uid, str) else "",
            generation=generation if isinstance(generation, int) else 0,
        )

    def remove_check(self, key: str) -> None:
        self._forget(key)
        self.objects.pop(key, None)
        self.ledger.remove_check(key)

    def _forget(self, key: str) -> None:
        self.checks.pop(key, None)
        self._no_remedy.pop(key, None)

    def _put_surrounding(self, kind: str, key: str, obj: JsonObject | None) -> None:
        self._facts.pop((kind, key), None)
        if obj is not None:
            self._facts[kind, key] = _fact(kind, key, obj)
        facts = [fact for _, fact in sorted(self._facts.items())]
        allowances = tuple(fact.allowance for fact in facts if fact.allowance is not None)
        guards = dict(fact.guard for fact in facts if fact.guard is not None)
        etcd = EtcdGuard(known=bool(allowances or guards), disruptions_allowed=allowances, guards=guards)
        self.ledger.surround(Surroundings(upgrade="; ".join(fact.upgrade for fact in facts if fact.upgrade), etcd=etcd))


class PreservationIntake:
    """Feeds the index of preserved machines with Machines, the sets above them, and the pools."""

    def __init__(
        self,
        preservation_index: PreservationIndex,
        clock: Callable[[], datetime],
        *,
        namespaces: Collection[str] = (),
        ignored: IgnoredObjects | None = None,
    ) -> None:
        """namespaces: in which Machines count; ignored: is given the others."""
        self._preservation_index = preservation_index
        self._clock = clock
        self._namespaces = namespaces
        self._ignored = ignored or IgnoredObjects()

    def take(self, kind: ReadKind, version: Resource, key: str, found: Any) -> None:
        """One object as it is now, None for one that is gone. version: of its kind, that the server has."""
        name = key.rpartition("/")[2]
        match kind.destination:
            case Destination.POOLS:
                self._put_pool(name, found)
            case Destination.SETS:
                counts = not uncounted(version.ref(name, key.rpartition("/")[0]), self._namespaces)
                self._put_set(version, key, found if counts else None)
            case _ if found is None:
                self._ignored.drop(machine_key(MACHINE_API_OF[kind.resource], key.rpartition("/")[0], name))
                self._preservation_index.remove_machine(key)
            case _:
                self._put_machine(version, key, counted_in(self._namespaces, found))

    def _put_machine(self, version: Resource, key: str, machine: MachineView) -> None:
        self._ignored.note(machine)
        if machine.uncounted:
            self._preservation_index.remove_machine(key)
            return
        ref = version.ref(machine.name, machine.namespace)
        if machine.preservation_problem:
            log.warning("%s is left out of preservation: %s", ref.key, machine.preservation_problem)
        self._preservation_index.put_machine(ref, machine, self._clock())

    def _put_set(self, version: Resource, path: str, found: JsonObject | None) -> None:
        key = f"{version.kind}/{path}"
        if found is None:
            self._preservation_index.put_deployment(key, None)
            return
        try:
            deployment, above = deployment_of(found)
        except (msgspec.MsgspecError, ValueError) as error:
            namespace, _, name = path.rpartition("/")
            what = "until then its failed machines are neither kept nor repaired"
            why = f"it can't be read: {str(error)[:LONGEST_MESSAGE]}; {what}"
            log.warning("%s: %s", key, why)
            uid = str(mapping(found.get("metadata")).get("uid") or "")
            mistake = Mistake(about=version.ref(name, namespace), uid=uid, reason=MISTAKEN, messages=(why,))
            unread = DeploymentPool(name=name, namespace=namespace, problem=why)
            self._preservation_index.put_deployment(key, unread, mistake=mistake)
        else:
            self._preservation_index.put_deployment(key, deployment, above)

    def _put_pool(self, name: str, found: JsonObject | None) -> None:
        if found is None:
            self._preservation_index.put_pool(name, None)
            return
        try:
            self._preservation_index.put_pool(name, read_policy(PRESERVATION_POLICIES.whole(found)))
        except PolicyError as error:
            log.warning("%s", error)
            self._preservation_index.put_pool(name, None, str(error))


def _plain_config_map(obj: JsonObject | None) -> JsonObject | None:
    """As a single object says it is: the items of a list do not. One on its way out is gone."""
    if obj is None or mapping(obj.get("metadata")).get("deletionTimestamp"):
        return None
    return CONFIG_MAPS.whole(obj)


def _fact(kind: str, key: str, obj: JsonObject) -> _Fact:
    status = mapping(obj.get("status"))
    if kind in _UPGRADES:
        condition = _condition(status, _UPGRADES[kind])
        if condition.get("status") != "True":
            return _Fact()
        message = condition.get("message")
        return _Fact(upgrade=f"{kind} {key} is {_UPGRADES[kind]}" + (f": {str(message)[:LONGEST_MESSAGE]}" if message else ""))
    if kind == DISRUPTION_BUDGETS.kind:
        allowed = status.get("disruptionsAllowed", 0)
        if not isinstance(allowed, int):
            raise ValueError(f"status.disruptionsAllowed: expected a whole number, got {shown(allowed)}")
        return _Fact(allowance=allowed)
    node = mapping(obj.get("spec")).get("nodeName")
    return _Fact(guard=(str(node or ""), str(_condition(status, "Ready").get("status", ""))))


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((each for each in mappings(status.get("conditions")) if each.get("type") == kind), {})
