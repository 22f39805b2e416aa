"""All machines of a cluster at one moment: which are kept, begin to be, are released, and which go first at a scale-down.

The scanner asks it before it hands a failed machine to Remediation, and `nodewarden preserve plan` shows it. Pools are tried in
the order of their names, and a machine belongs to the first that selects it.

In this order: how many failed machines a pool keeps automatically; the order of a scale-down; the survey, which decides about
all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from policy.objects.marks import is_marked
from policy.objects.nodes import ZONE_LABEL
from policy.preservation.keep_or_release import Automatic, PreservationAction, PreservationDecision, decide
from policy.preservation.machine_snapshot import BY_US, Held, MachinePhase, priority_in_its_set
from policy.preservation.requests import CAP, DEFAULT_TIMEOUT, Intent, Pool
from policy.values.times import LATEST, moment_of

# Automatic preservation: how many failed machines of a pool are kept without a request.
#
# The cap is spread over the parts of a pool (its zones, or MachineDeployments) as Gardener spreads a worker pool: all get the
# same share, and the first ones get one more of what is left over. The newest failure is kept first. A machine that only a health
# check calls failed counts by that moment, which is later than any machine's creation; all others count by their creation, as
# in the shipped system. When the cap falls, exactly what exceeds the whole of it is released, the earliest expiry first, from
# the parts that have more than their share (S23, S24). Machines that a person asked for neither count nor are released.


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What the cap has to know about machines besides their own objects, by their keys.

    barred: the cap may not begin to keep them now. begun: an episode was asked to keep them, and the objects do not show it
    yet: they go first, or the place would be given away twice.
    """

    barred: AbstractSet[str] = field(default_factory=frozenset)
    begun: AbstractSet[str] = field(default_factory=frozenset)


PLAIN = Queue()


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomaticChoice:
    """The cap's decision about one pool. count: automatic preservations as found."""

    count: int = 0
    selected: tuple[Held, ...] = ()
    released: tuple[Held, ...] = ()


def shares(cap: int, parts: Sequence[str]) -> dict[str, int]:
    """The cap of each part, in the order of their names; last the machines of an unknown part, called ""."""
    if not parts:
        return {}
    each, rest = divmod(cap, len(parts))
    ordered = sorted(parts, key=lambda part: (not part, part))
    return {part: each + (1 if index < rest else 0) for index, part in enumerate(ordered)}


def choose(parts: Mapping[str, Iterable[Held]], cap: int, *, now: datetime, queue: Queue = PLAIN) -> AutomaticChoice:
    """Which machines of one pool begin to be kept, and which are released. A preservation that is over gives its place up.

    parts: all machines by the part that they are in, also parts without machines. The shares only decide where a free place
    goes and which part gives one back first: parts appear and disappear (a Machine without its Node, a new MachineSet), and as
    long as the whole cap is not exceeded nothing is released (S21, S24).
    """
    left, count, kept, candidates = shares(cap, list(parts)), 0, list[tuple[str, Held]](), list[tuple[str, Held]]()
    for part, machines in parts.items():
        for machine in machines:
            if is_automatic(machine):
                count += 1
                if machine.failed and not machine.deleting and not machine.expired(now):
                    kept.append((part, machine))
                    left[part] -= 1
            elif machine.key not in queue.barred and _is_candidate(machine):
                candidates.append((part, machine))
    room, selected, released = cap - len(kept), list[Held](), list[Held]()
    kept.sort(key=lambda each: (each[1].expiry or LATEST, each[1].created or _BEGINNING, each[1].key))
    for part, machine in kept:
        if len(released) < -room and left[part] < 0:
            released.append(machine)
            left[part] += 1
    candidates.sort(key=lambda each: each[1].key)
    candidates.sort(key=lambda each: each[1].failed_at or each[1].created or _BEGINNING, reverse=True)
    candidates.sort(key=lambda each: each[1].key not in queue.begun)
    for part, machine in candidates:
        if len(selected) < room and left[part] > 0:
            selected.append(machine)
            left[part] -= 1
    return AutomaticChoice(count=count, selected=tuple(selected), released=tuple(released))


def is_automatic(machine: Held) -> bool:
    """Whether the cap keeps it and no person asked for it; also where its annotation was removed, which releases nothing."""
    request = machine.request
    if request.intent is Intent.AUTOMATIC:
        return not machine.ended or machine.expiry is not None
    return request.intent is Intent.NONE and machine.expiry is not None and machine.condition_reason == BY_US


NOT_WELL = "its Node is not well yet, though nothing calls it unhealthy any more"


def ends_once_well(machine: Held) -> bool:
    """Whether it is kept for its failure alone: by its pool, or as annotated `when-failed` since a health check called it
    unhealthy. Machines of machine-controller-manager are none of the latter: their phase says that they run again."""
    if machine.expiry is None:
        return False
    failed = machine.node is None or machine.tainted
    return is_automatic(machine) or (machine.intent is Intent.WHEN_FAILED and failed and not machine.has_priority)


def until_well(machine: Held) -> Held:
    """A machine that is kept for its failure has failed for as long as its Node is not well: a check that is gone, or starts its
    time again, makes none well, nor does the deletion of its Node; and it would be kept twice for one failure (S25)."""
    if not ends_once_well(machine) or machine.failed or machine.well:
        return machine
    return replace(machine, failed=NOT_WELL, phase=MachinePhase.FAILED)


def _is_candidate(machine: Held) -> bool:
    """Whether it has failed, is not annotated in any way (`false` is a way), has not been preserved for this failure before
    (S25), and is in no episode of ours: what an episode has begun with it goes on, and takes no place meanwhile."""
    if not machine.failed or machine.deleting or machine.expiry is not None or machine.ended:
        return False
    if machine.node is not None and is_marked(machine.node):
        return False
    return machine.intent is Intent.NONE


# Which machine goes first when a set is scaled down: one that is not kept.
#
# The order is that of machine-controller-manager: not kept (or no longer), then automatically kept, then kept on request; among
# the kept the earliest expiry first; then the priority that others gave, a mark for deletion, how far gone the machine is, its
# age. The number of replicas is honoured even where only kept machines remain.

_PHASES = {
    MachinePhase.TERMINATING: 0,
    MachinePhase.FAILED: 1,
    MachinePhase.CRASH_LOOP: 2,
    MachinePhase.UNKNOWN: 3,
    MachinePhase.PENDING: 4,
    MachinePhase.AVAILABLE: 5,
    MachinePhase.RUNNING: 6,
}
_BEGINNING = datetime.min.replace(tzinfo=UTC)
_NEVER = datetime.max.replace(tzinfo=UTC)


def scale_down_order(machines: Iterable[Held], now: datetime) -> list[Held]:
    """All machines, the first to go first."""

    def rank(machine: Held) -> tuple[object, ...]:
        kept = machine.expiry is not None and not machine.expired(now)
        standing = 0 if not kept else 1 if is_automatic(machine) else 2
        expiry = machine.expiry if kept and machine.expiry is not None else _BEGINNING
        phase = _PHASES[MachinePhase.TERMINATING if machine.deleting else machine.phase]
        mark = machine.marked_for_deletion
        marked = moment_of(mark) or (_BEGINNING if mark else _NEVER)
        return (standing, expiry, priority_in_its_set(machine), marked, phase, machine.created or _BEGINNING, machine.key)

    return sorted(machines, key=rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentPool:
    """The settings of a MachineDeployment (or a MachineSet of its own), used where no pool selects its machines, which
    are of its namespace.

    cap: `autoPreserveFailedMachineMax`. timeout: `machinePreserveTimeout` of its template, None where it has none. problem: why
    it can't be read, "" where it can: then neither its cap nor its labels are known.
    """

    name: str
    namespace: str = ""
    cap: int = 0
    timeout: timedelta | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def key(self) -> str:
        """As `Held.set_key` of its machines has it."""
        return f"{self.namespace}/{self.name}"


def key_of_controller(controller: str, namespace: str) -> str:
    """Kind, namespace and name of what controls an object of that namespace. controller: kind and name."""
    kind, _, name = controller.partition("/")
    return f"{kind}/{namespace}/{name}"


def deployment_name(controller: str, above: str) -> str:
    """The set that a Machine is a replica of: the MachineDeployment above its MachineSet, where that is known, else its set.

    Both as kind and name: controller of the Machine, above: the controller of that, "" where it is not known.
    """
    for kind, _, name in (above.partition("/"), controller.partition("/")):
        if kind == "MachineDeployment":
            return name
    kind, _, name = controller.partition("/")
    return name if kind == "MachineSet" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSurvey:
    """The use of one pool's cap."""

    name: str
    cap: int
    choice: AutomaticChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The whole result. `decisions` and `order` name every machine once."""

    decisions: tuple[PreservationDecision, ...]
    pools: tuple[PoolSurvey, ...]
    order: tuple[Held, ...]
    warnings: tuple[str, ...]


def survey(
    machines: Iterable[Held],
    pools: Sequence[Pool],
    deployments: Iterable[DeploymentPool] = (),
    *,
    now: datetime,
    blocked: str = "",
    parts: Mapping[str, Collection[str]] | None = None,
    queue: Queue = PLAIN,
) -> Survey:
    """Which machines are kept at this moment, and why.

    blocked: why the pools are not all known, "" where they are: then no machine is given up that one of them might keep. parts:
    of each pool, where these are not all its machines. queue: see `choose`.
    """
    known = {each.key: each for each in deployments if not each.problem}
    ordered = sorted(pools, key=lambda pool: pool.name)
    warnings = [warning for pool in ordered for warning in pool.warnings]
    members: defaultdict[str, list[Held]] = defaultdict(list)
    own: defaultdict[str, list[Held]] = defaultdict(list)
    timeouts: dict[str, timedelta] = {}
    found = []
    for machine in sorted(machines, key=lambda machine: machine.key):
        labels = labels_of(machine, known.get(machine.set_key))
        matching = [pool for pool in ordered if pool.matches(labels)]
        if len(matching) > 1:
            names = ", ".join(pool.name for pool in matching)
            warnings.append(f"{machine.name}: belongs to several pools, {names}: {matching[0].name} holds")
        if matching and matching[0].isolate:
            machine = replace(machine, pool_isolates=True)  # noqa: PLW2901 - the same machine, as its pool wants it
        found.append(machine)
        if matching:
            members[matching[0].name].append(machine)
            timeouts[machine.key] = matching[0].timeout
        else:
            own[machine.set_key].append(machine)
            deployment = known.get(machine.set_key)
            timeouts[machine.key] = (deployment.timeout if deployment else None) or DEFAULT_TIMEOUT
    chosen = []
    for pool in ordered:
        others = (parts or {}).get(pool.name) or [
            each.name for each in known.values() if not pool.zones and pool.matches(each.labels)
        ]
        choice, doubtful = _spread(pool, members[pool.name], others, now, queue)
        warnings += doubtful
        if blocked:
            # Which pool a machine is of, and how many that keeps, is not known as long as one of them can't be read.
            choice = replace(choice, released=())
        chosen.append(PoolSurvey(name=pool.name, cap=pool.cap, choice=choice))
    for key, machines_of in sorted(own.items()):
        name = machines_of[0].deployment
        if key in known and not blocked:
            choice = choose({name: machines_of}, known[key].cap, now=now, queue=queue)
            # A pool may select its machines by labels of their Nodes: without its Node a machine may be of any (S21).
            lost = {machine.key for machine in machines_of if pools and machine.node is None and machine.node_name}
            choice = replace(choice, released=tuple(machine for machine in choice.released if machine.key not in lost))
        else:
            # No pool sets a cap: no preservation begins, and one that began under a pool that is gone lasts until its expiry.
            choice = AutomaticChoice(count=sum(is_automatic(machine) for machine in machines_of))
        chosen.append(PoolSurvey(name=name, cap=known[key].cap if key in known else 0, choice=choice))
    standing = {
        **{machine.key: Automatic.SELECTED for each in chosen for machine in each.choice.selected},
        **{machine.key: Automatic.RELEASED for each in chosen for machine in each.choice.released},
    }
    decisions = tuple(
        _held_back(decision, blocked) if blocked else decision for decision in _decisions(found, timeouts, standing, now)
    )
    warnings += [f"{each.held.name}: {warning}" for each in decisions for warning in each.warnings]
    return Survey(
        decisions=decisions,
        pools=tuple(chosen),
        order=tuple(scale_down_order(found, now)),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _decisions(
    machines: Iterable[Held], timeouts: Mapping[str, timedelta], standing: Mapping[str, Automatic], now: datetime
) -> Iterator[PreservationDecision]:
    for machine in machines:
        automatic = standing.get(machine.key, Automatic.NOTHING)
        yield decide(machine, now=now, timeout=timeouts[machine.key], automatic=automatic)


def _held_back(decision: PreservationDecision, blocked: str) -> PreservationDecision:
    given_up = decision.action is PreservationAction.TERMINATE and not decision.ended
    if not given_up or decision.intent is Intent.FALSE:
        return decision
    return replace(decision, action=PreservationAction.NONE, reason=f"{decision.reason}; but nothing is given up while {blocked}")


def _spread(
    pool: Pool, machines: Sequence[Held], others: Collection[str], now: datetime, queue: Queue
) -> tuple[AutomaticChoice, list[str]]:
    """The cap's decision about the pool's machines, spread over its parts; with warnings."""
    warnings = list[str]()
    parts: defaultdict[str, list[Held]] = defaultdict(list)
    for machine in machines:
        parts[part_of(machine, pool)].append(machine)
    for part in (*pool.zones, *others):
        parts[part] += []
    named = sorted(part for part in parts if part)
    if not pool.zones and 0 < pool.cap < len(named):
        warnings.append(
            f"{pool.name}: {CAP} {pool.cap} is less than its {len(named)} parts ({', '.join(named)}): some keep no machine"
        )
    return choose(parts, pool.cap, now=now, queue=queue), warnings


def part_of(machine: Held, pool: Pool) -> str:
    """The zone or the MachineDeployment of the pool that the machine is in, "" where it is not known."""
    zone = machine.labels.get(ZONE_LABEL) or (machine.node.zone if machine.node is not None else "")
    if pool.zones:
        return zone
    return machine.deployment or zone


def labels_of(machine: Held, deployment: DeploymentPool | None) -> dict[str, str]:
    """The labels by which a pool selects it: its own replace its Node's, and those replace its deployment's."""
    node = machine.node.labels if machine.node is not None else {}
    return {**(deployment.labels if deployment else {}), **node, **machine.labels}
