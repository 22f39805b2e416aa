"""Which machines of a cluster are not as their preservation wants them: what the scanner acts on, kept change by change.

A report looks only at machines that have failed, are kept, or are annotated, and at those of a pool that keeps failed machines
while a health check calls them unhealthy. All others are only counted, by the part of the pool that they belong to. A machine
that is kept on request and is as it should be is quiet: it is looked at again when it changes, when its time is over, or when a
health check calls it unhealthy, and costs nothing until then. The index has no clock.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import nsmallest

from policy.checks.verdict import MACHINE
from policy.objects.machines import MachineView
from policy.objects.nodes import PRESERVE_ANNOTATION, NodeView
from policy.preservation.keep_or_release import Automatic, PreservationAction, PreservationDecision, effects, within_mode
from policy.preservation.machine_snapshot import (
    BY_US,
    CONDITION,
    ENDED_ANNOTATION,
    EXPIRY_ANNOTATION,
    PRIORITY_OURS,
    SCALE_DOWN_DISABLED_OURS,
    WISHES,
    Held,
    MachinePhase,
    Mistakes,
)
from policy.preservation.pool_cap import (
    DeploymentPool,
    Queue,
    deployment_name,
    key_of_controller,
    labels_of,
    part_of,
    survey,
    until_well,
)
from policy.preservation.requests import DEFAULT_SETTLE_TIME, LAST_APPLIED_ANNOTATION, Intent, Pool
from policy.values.agenda import Agenda
from policy.values.mode import Mode
from policy.values.object_refs import Mistake, ObjectRef
from policy.values.times import later, moment_of

# The nodes that preservation exempts from remediation: one decision over one report says of each failed node whether it is
# kept.
#
# `policy/preservation/preservation_index.py` fills it. `policy/scan/candidates.py` offers no node as a candidate that is named
# here (S21).


@dataclass(frozen=True, slots=True, kw_only=True)
class ExemptNodes:
    """The exempt nodes, by the names under which they would be candidates. kept: why, also for those that only begin to be kept
    with this report.

    unsettled: failed so lately that their pool has not decided yet: they are neither kept nor remediated.
    """

    kept: Mapping[str, str] = field(default_factory=dict)
    unsettled: frozenset[str] = frozenset()


NONE_EXEMPT = ExemptNodes()


UnhealthyText = Callable[[str], str]
"""Which health checks call the Node of that name unhealthy, in words; "" while none does. A Machine without a Node has its
victim name."""

PoolMode = Callable[[str, bool], Mode]
"""The mode of the victim of that name for its pool. The flag: nothing but health checks can call it failed."""

MAXIMUM_PRESERVATIONS = 50
"""The most needs in one report."""

ON_NODE = frozenset({PRESERVE_ANNOTATION, EXPIRY_ANNOTATION, SCALE_DOWN_DISABLED_OURS, ENDED_ANNOTATION})
ON_MACHINE = frozenset({PRESERVE_ANNOTATION, EXPIRY_ANNOTATION, LAST_APPLIED_ANNOTATION, ENDED_ANNOTATION, PRIORITY_OURS})


REPORT_GONE_FOR = timedelta(seconds=90)
"""How long a report shows that a kept machine is gone: its episode gets the signal again after a minute, in case it was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreservationNeed:
    """A machine that is not as its preservation wants it: begin a preservation, or let the open episode look again.

    victim: the Node, or `machine/<namespace>/<name>`, the name of its episode. machine: None for a Node alone. action: of
    `policy/preservation/keep_or_release.py`. automatic: kept by the pool's cap; released: why the cap gives it up. unhealthy:
    which health check calls it unhealthy, where nothing else calls it failed. stamp: another one after each change of this.
    going: another controller deletes the machine, or has: an open episode gets a signal, and none is begun.
    """

    victim: str
    action: str
    reason: str
    stamp: str
    machine: ObjectRef | None = None
    automatic: bool = False
    released: str = ""
    unhealthy: str = ""
    going: bool = False


@dataclass(slots=True)
class _GoneMachine:
    """A kept machine that is gone, to be reported for a while. until: None before the first report."""

    need: PreservationNeed
    until: datetime | None = None


@dataclass(slots=True)
class _Entry:
    """A Machine without its Node. owner: kind and name of its controller."""

    ref: ObjectRef
    held: Held
    owner: str
    failed_at: datetime | None = None


class PreservationIndex:
    """Machines, Nodes and pools of one cluster. Not thread-safe: one event loop owns it."""

    def __init__(self, pools: Iterable[Pool] = ()) -> None:
        """pools: from the settings; an object with the same name replaces one."""
        self._machines: dict[str, _Entry] = {}
        self._nodes: dict[str, NodeView] = {}
        self._machine_of: dict[str, str] = {}
        self._deployments: dict[str, tuple[DeploymentPool, str]] = {}
        self._given = {pool.name: pool for pool in pools}
        self._pools: dict[str, Pool] = dict(self._given)
        self._bad_pools: dict[str, str] = {}
        self._open: set[str] = set()
        """Keys of machines that the next report has to look at."""
        self._quiet = Agenda[str]()
        """Keys of quiet machines, by when they have to be looked at again."""
        self._gone: dict[str, _GoneMachine] = {}
        """Kept machines that are gone, by victim."""
        self.mistakes = Mistakes()
        self._parts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._part_of: dict[str, tuple[str, str]] = {}
        self._settling: dict[str, datetime] = {}
        """By key: until when no pool decides, since a health check has called the machine unhealthy only lately."""
        self.exempt = NONE_EXEMPT
        """The nodes exempt from remediation, as of the last `needs`."""
        self.version = 0

    @property
    def asked(self) -> bool:
        """Whether a machine is kept or annotated, or a pool keeps any: whether we have anything to do."""
        return bool(self._open or self._quiet or self._gone or self.mistakes) or any(pool.cap for pool in self._pools.values())

    @property
    def has_pools(self) -> bool:
        """Whether there is a pool, however many it keeps."""
        return bool(self._pools)

    @property
    def keeps_failed(self) -> bool:
        """Whether any pool keeps failed machines automatically."""
        sets = (each for each, _ in self._deployments.values())
        return any(pool.cap for pool in self._pools.values()) or any(each.cap or each.problem for each in sets)

    # What is seen ---------------------------------------------------------------------------------------------------

    def put_node(self, node: NodeView) -> None:
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        key = self._machine_of.get(node.name, f"node/{node.name}")
        if before is None or _matters(before, node) or before.labels != node.labels:
            self._weigh(key)

    def remove_node(self, name: str) -> None:
        node = self._nodes.pop(name, None)
        if node is not None:
            if name not in self._machine_of:
                self._report_gone(_alone(node), None)
            self._weigh(self._machine_of.get(name, f"node/{name}"))

    def put_machine(self, ref: ObjectRef, machine: MachineView, now: datetime) -> None:
        """A Machine as last seen. One that can hardly be read stays as it was: no preservation of it begins or ends."""
        if machine.unreadable or machine.preservation_problem:
            return
        held, owner = Held.of(machine), machine.controller
        before = self._machines.get(held.key)
        failed_at = (before.failed_at if before is not None else None) or now if held.failed else None
        entry = _Entry(ref=ref, held=held, owner=owner, failed_at=failed_at)
        if before is not None and (before.held, before.owner) == (held, owner):
            return
        self._machines[held.key] = entry
        if before is not None and before.held.node_name != held.node_name:
            self._untie(before.held)
        if held.node_name:
            self._machine_of[held.node_name] = held.key
            self._weigh(f"node/{held.node_name}")
        self._weigh(held.key)

    def remove_machine(self, key: str) -> None:
        entry = self._machines.pop(key, None)
        if entry is not None:
            self._report_gone(entry.held, entry.ref)
            self._untie(entry.held)
            self._weigh(key)

    def put_deployment(
        self, key: str, deployment: DeploymentPool | None, owner: str = "", *, mistake: Mistake | None = None
    ) -> None:
        """A MachineSet or MachineDeployment, None for one that is gone. key: `<kind>/<namespace>/<name>`. mistake: why it can't
        be read, for people."""
        self.mistakes.note(mistake, key)
        if deployment is None:
            self._deployments.pop(key, None)
        elif self._deployments.get(key) != (deployment, owner):
            self._deployments[key] = (deployment, owner)
        else:
            return
        self._count_again()

    def put_pool(self, name: str, pool: Pool | None, problem: str = "") -> None:
        """A PreservationPolicy: None for one that is gone, or that can't be used; `problem` says why."""
        if pool is None and not problem:
            pool = self._given.get(name)
        before = self._pools.pop(name, None), self._bad_pools.pop(name, "")
        if pool is not None:
            self._pools[name] = pool
        if problem:
            self._bad_pools[name] = problem
        if before != (pool, problem):
            self._count_again()

    # What follows ---------------------------------------------------------------------------------------------------

    def needs(
        self,
        now: datetime,
        unhealthy: UnhealthyText,
        sick: Iterable[str] = (),
        *,
        failing: Mapping[str, datetime | None] | None = None,
        begun: Iterable[str] = (),
        doubt: str = "",
        mode: PoolMode = lambda _victim, _called: Mode.REPAIR,
    ) -> tuple[tuple[PreservationNeed, ...], int]:
        """Machines that are not as they should be, the most urgent first, and how many more there are. Sets `exempt`.

        sick: the names of all nodes for which `unhealthy` has a text. failing: those of them that a check would have acted on,
        and since when; only for those does a pool begin to keep by a check's verdict. begun: the victims with an episode that
        was asked to keep them. doubt: why the pools are not known, "" where they are: then no preservation is given up. mode: how
        far pools may go (S52).
        """
        self._wake(now)
        self._settling = {}
        unread = {entry.held.victim for entry in self._failing_of_unread_sets(failing or {})}
        self.exempt = ExemptNodes(unsettled=frozenset(unread))
        failed_at = {key: moment for name, moment in (failing or {}).items() if self._cap(key := self._key_of(name))}
        quiet_ones = {key for name in sick if (key := self._key_of(name)) in self._quiet}
        looked_at = sorted(self._open | quiet_ones | failed_at.keys())
        self._gone = {victim: each for victim, each in self._gone.items() if each.until is None or each.until > now}
        gone = [each.need for each in self._gone.values()]
        if not looked_at and not gone:
            return (), 0
        machines, modes, barred, settling = list[Held](), dict[str, Mode](), set[str](), set(unread)
        for key in looked_at:
            held = self._held(key, now, unhealthy, failed_at.get(key))
            if held is not None:
                machines.append(held)
                called = not self._says_failed(key)
                modes[held.key] = mode(held.victim, called)
                unsettled = bool(held.failed) and called and not self._settled(key, failed_at, now)
                if unsettled or modes[held.key] is Mode.OBSERVE or held.victim in unread:
                    barred.add(key)
            elif key in failed_at and (entry := self._machines.get(key)) is not None:
                settling.add(entry.held.victim)
        parts = {pool: tuple(counter) for pool, counter in self._parts.items()}
        found = survey(
            machines,
            list(self._pools.values()),
            [self._deployment(key) for key in {machine.set_key for machine in machines} if key],
            now=now,
            blocked="; ".join((*([doubt] if doubt else []), *sorted(self._bad_pools.values()))),
            parts=parts,
            queue=Queue(barred=barred, begun={self._key_of(name) for name in begun}),
        )
        self.exempt = self._exempt(found.decisions, settling)
        asked = [each for each in found.decisions if not (each.begins_for_pool and modes[each.held.key] is Mode.OBSERVE)]
        within = [within_mode(each, modes[each.held.key]) for each in asked]
        wanted = [need for decision in within if (need := self._need(decision)) is not None]
        named = {need.victim for need in wanted}
        wanted += [need for need in gone if need.victim not in named]
        for decision in found.decisions:
            self._quieten(decision)
        chosen = nsmallest(MAXIMUM_PRESERVATIONS, wanted, key=lambda need: (_URGENCY[need.action], need.victim))
        for need in chosen:
            reported = self._gone.get(need.victim)
            if reported is not None and reported.need is need and reported.until is None:
                reported.until = later(now, REPORT_GONE_FOR)
        return tuple(chosen), len(wanted) - len(chosen)

    def _failing_of_unread_sets(self, failing: Iterable[str]) -> list[_Entry]:
        """Failed machines of sets that can't be read: whether these keep them is not known, and so they are left as they are."""
        if not any(each.problem for each, _ in self._deployments.values()):
            return []
        entries = [self._machines.get(key) for key in {*self._open, *map(self._key_of, failing)}]
        failed = [each for each in entries if each is not None and (each.held.failed or each.held.victim in failing)]
        return [each for each in failed if self._has_unread_set(each)]

    def _has_unread_set(self, entry: _Entry) -> bool:
        own, _ = self._deployments.get(key_of_controller(entry.owner, entry.held.namespace), (None, ""))
        above = self._deployment(f"{entry.held.namespace}/{self._deployment_name(entry)}")
        return bool((own.problem if own is not None else "") or above.problem)

    def _settled(self, key: str, failed_at: Mapping[str, datetime | None], now: datetime) -> bool:
        """Whether a pool may begin to keep a machine that only a health check calls failed."""
        if key not in failed_at:
            return False
        moment = failed_at[key]
        end = later(moment, self._settle(key)) if moment is not None else now
        if end > now:
            # Not yet: an annotation written at the moment of the failure takes precedence.
            self._settling[key] = end
        return end <= now

    def _exempt(self, decisions: Iterable[PreservationDecision], settling: Iterable[str]) -> ExemptNodes:
        """The machines of pools that are kept, or not decided upon, are exempt (S21). One that is being released is kept until
        the release is written."""
        kept, unsettled = dict[str, str](), set(settling)
        for decision in decisions:
            held = decision.held
            if decision.preserved or held.expiry is not None:
                kept[held.victim] = f"it is preserved: {decision.reason}"
            elif held.key in self._settling and decision.intent is Intent.NONE and not held.ended:
                unsettled.add(held.victim)
        return ExemptNodes(kept=kept, unsettled=frozenset(unsettled))

    def _wake(self, now: datetime) -> None:
        """Look again at machines that were quiet until now."""
        while (key := self._quiet.take(now)) is not None:
            self._open.add(key)

    def _quieten(self, decision: PreservationDecision) -> None:
        held = decision.held
        on_request = decision.intent in {Intent.NOW, Intent.WHEN_FAILED} and decision.preserved and held.expiry is not None
        if held.key not in self._open or not on_request or decision.action is not PreservationAction.NONE:
            return
        if effects(decision).nothing and (not held.failed or self._says_failed(held.key)):
            assert held.expiry is not None
            self._open.discard(held.key)
            self._quiet.put(held.key, held.expiry)

    def next_due(self, now: datetime) -> datetime | None:
        """The first moment at which time alone changes something: an expiry, or a failure that has settled."""
        moments = [first] if (first := self._quiet.first) is not None else []
        moments += [gone.until for gone in self._gone.values() if gone.until is not None]
        moments += [end for end in self._settling.values() if end > now]
        for key in self._open:
            entry = self._machines.get(key)
            expiry = entry.held.expiry if entry is not None else None
            moments += [expiry] if expiry is not None and expiry > now else []
            if entry is not None and entry.failed_at is not None:
                settled = later(entry.failed_at, self._settle(key))
                moments += [settled] if settled > now else []
        return min(moments, default=None)

    def _need(self, decision: PreservationDecision) -> PreservationNeed | None:
        held, action = decision.held, decision.action
        differs = effects(decision)
        stands = decision.preserved or held.expiry is not None or held.deleting
        if action is PreservationAction.TERMINATE and not stands:
            return None  # it is not kept: no preservation has to do with it
        if action is PreservationAction.NONE and (differs.nothing or not (stands or held.ended)):
            return None
        entry = self._machines.get(held.key)
        shown = f"{action.value} {decision.intent.value} {held.failed}"
        if action is not PreservationAction.PRESERVE:  # until it is written, the end of a new one moves on, which is no change
            shown += f" {decision.expiry} {differs}"
        return PreservationNeed(
            victim=held.victim,
            machine=entry.ref if entry is not None else None,
            action=action.value,
            automatic=decision.automatic is Automatic.SELECTED,
            released=decision.reason if decision.automatic is Automatic.RELEASED else "",
            unhealthy=held.failed if held.failed and not self._says_failed(held.key) else "",
            reason=decision.reason,
            stamp=hashlib.sha256(shown.encode()).hexdigest()[:12],
            going=held.deleting,
        )

    def _report_gone(self, held: Held, ref: ObjectRef | None) -> None:
        """Report that it is gone: its episode would else wait for its expiry. Not if its preservation was over before the
        object went: that has been reported already."""
        if held.expiry is None:
            return
        victim = held.victim
        need = PreservationNeed(
            victim=victim,
            machine=ref,
            action=PreservationAction.NONE.value,
            reason="it is gone, and was kept",
            stamp=hashlib.sha256(f"gone {held.expiry}".encode()).hexdigest()[:12],
            going=True,
        )
        self._gone[victim] = _GoneMachine(need)

    def _held(self, key: str, now: datetime, unhealthy: UnhealthyText, called_at: datetime | None = None) -> Held | None:
        """The machine with its Node and its deployment, and as a health check sees it, since `called_at`. None: nothing to be
        decided yet."""
        entry = self._machines.get(key)
        if entry is None:
            name = key.removeprefix("node/")
            node = self._nodes.get(name)
            if node is None or name in self._machine_of:
                return None
            held, failed_at = _alone(node), None
        else:
            held = replace(entry.held, node=self._nodes.get(entry.held.node_name), deployment=self._deployment_name(entry))
            failed_at = entry.failed_at
        if not held.failed and (words := unhealthy(held.victim)):
            return replace(held, failed=words, phase=MachinePhase.FAILED, failed_at=called_at)
        if (kept := until_well(held)) is not held:
            return kept
        settling = failed_at is not None and now < later(failed_at, self._settle(key))
        if settling and held.expiry is None:
            # Not yet: an annotation written at the moment of the failure takes precedence.
            return None
        return held

    def _key_of(self, name: str) -> str:
        """The key of a Node, or of a Machine by its victim name."""
        if name.startswith(MACHINE):
            return name.removeprefix(MACHINE)
        return self._machine_of.get(name, f"node/{name}")

    def _cap(self, key: str) -> int:
        """How many machines the pool of that machine keeps automatically."""
        if key in self._part_of:
            return self._pools[self._part_of[key][0]].cap
        entry = self._machines.get(key)
        return self._deployment(f"{entry.held.namespace}/{self._deployment_name(entry)}").cap if entry is not None else 0

    def _says_failed(self, key: str) -> bool:
        entry = self._machines.get(key)
        return entry is not None and bool(entry.held.failed)

    # Bookkeeping ----------------------------------------------------------------------------------------------------

    def _weigh(self, key: str) -> None:
        """Whether a machine is looked at from now on; it has changed."""
        self.version += 1
        self._quiet.drop(key)
        entry, node = self._machines.get(key), self._node_of(key)
        on_node = node is not None and not ON_NODE.isdisjoint(node.annotations)
        if entry is None:
            known = node is not None and node.name not in self._machine_of
            interesting = known and on_node
        else:
            held = entry.held
            annotated = on_node or not ON_MACHINE.isdisjoint(held.annotations)
            interesting = bool(held.failed) or held.expiry is not None or annotated
        (self._open.add if interesting else self._open.discard)(key)
        self._note_mistakes(key, entry, node)
        self._count(key, entry, node)

    def _note_mistakes(self, key: str, entry: _Entry | None, node: NodeView | None) -> None:
        """Hardly any machine has such an annotation: only for those a snapshot is made."""
        on_node = node is not None and not WISHES.isdisjoint(node.annotations)
        if entry is not None:
            annotated = on_node or not WISHES.isdisjoint(entry.held.annotations)
            self.mistakes.look(replace(entry.held, node=node) if annotated else None, key, entry.ref)
        else:
            alone = node if node is not None and node.name not in self._machine_of else None
            self.mistakes.look(_alone(alone) if alone is not None and on_node else None, key, None)

    def _count(self, key: str, entry: _Entry | None, node: NodeView | None) -> None:
        """Count the machine in its part of its pool: the cap is spread over all machines, not only over those that failed."""
        before = self._part_of.pop(key, None)
        if before is not None:
            pool, part = before
            self._parts[pool][part] -= 1
            if not self._parts[pool][part]:
                del self._parts[pool][part]
        if entry is None and (node is None or node.name in self._machine_of):
            return
        held = replace(entry.held, node=node, deployment=self._deployment_name(entry)) if entry is not None else None
        if held is None:
            assert node is not None
            held = _alone(node)
        labels = labels_of(held, self._deployment(held.set_key) if held.deployment else None)
        mine = next((pool for _, pool in sorted(self._pools.items()) if pool.matches(labels)), None)
        if mine is not None:
            self._part_of[key] = mine.name, part_of(held, mine)
            self._parts[mine.name][self._part_of[key][1]] += 1

    def _count_again(self) -> None:
        """Count all machines again; pools and deployments change rarely."""
        self.version += 1
        for key in [*self._machines, *(f"node/{name}" for name in self._nodes if name not in self._machine_of)]:
            self._count(key, self._machines.get(key), self._node_of(key))

    def _settle(self, key: str) -> timedelta:
        pool = self._pools.get(self._part_of[key][0]) if key in self._part_of else None
        return pool.settle if pool is not None else DEFAULT_SETTLE_TIME

    def _node_of(self, key: str) -> NodeView | None:
        entry = self._machines.get(key)
        return self._nodes.get(entry.held.node_name if entry is not None else key.removeprefix("node/"))

    def _untie(self, held: Held) -> None:
        if self._machine_of.get(held.node_name) == held.key:
            del self._machine_of[held.node_name]
            self._weigh(f"node/{held.node_name}")

    def _deployment_name(self, entry: _Entry) -> str:
        """The MachineDeployment above its MachineSet, where that is known."""
        if entry.held.deployment:
            return entry.held.deployment
        _, above = self._deployments.get(key_of_controller(entry.owner, entry.held.namespace), (None, ""))
        return deployment_name(entry.owner, above)

    def _deployment(self, key: str) -> DeploymentPool:
        """By `Held.set_key`."""
        for kind in ("MachineDeployment", "MachineSet"):
            found = self._deployments.get(f"{kind}/{key}")
            if found is not None:
                return found[0]
        namespace, _, name = key.partition("/")
        return DeploymentPool(name=name, namespace=namespace)


_ORDER = (
    PreservationAction.STOP,
    PreservationAction.TERMINATE,
    PreservationAction.PRESERVE,
    PreservationAction.DRAIN,
    PreservationAction.NONE,
)
_URGENCY = {action.value: place for place, action in enumerate(_ORDER)}


def _alone(node: NodeView) -> Held:
    held = Held.alone(node)
    return held if held.expiry is not None else replace(held, expiry=_automatic_expiry(node))


def _automatic_expiry(node: NodeView) -> datetime | None:
    """The expiry of a Node that is kept automatically with a Machine that we do not see: its condition's message ends with it."""
    condition = node.condition(CONDITION)
    if condition is None or (condition.status, condition.reason) != ("True", BY_US):
        return None
    return moment_of(condition.message.rpartition(" ")[2].removesuffix("."))


def _matters(before: NodeView, node: NodeView) -> bool:
    """Whether a field of the Node that a preservation looks at has changed."""
    return (before.annotations, before.taints, before.conditions, before.deleting, before.uid) != (
        node.annotations,
        node.taints,
        node.conditions,
        node.deleting,
        node.uid,
    )
