"""Whether the devices that would fence the nodes answer: what a reading means, what is remembered, what is published.

Without this check a device that stopped answering months ago is noticed on the day it is needed. Nothing here acts or licenses
anything: no reading of a check is ever a proof (S2). `workflows/definitions/device_check.py` has the order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from policy.fence.config import with_node_name
from policy.fence.credential_hosts import destinations
from policy.fence.drivers import DeviceIndex, canonical_driver, parameters_of, same_device
from policy.fence.drivers.contract import DriverParameters, ParameterError
from policy.fence.plan import Act, FencingPlan, PowerDevice
from policy.fence.power import PowerState, another_machine
from policy.values.display_text import counted, some_of
from policy.values.object_refs import in_natural_order
from policy.values.times import written

MOST_ROWS = 2000
"""Devices in one report; those with a problem first. A report must fit into one message, whatever the size of the cluster."""

LONGEST_PROBLEM = 300
MOST_NAMED = 3
"""How many nodes that share a device a message names."""

MOST_CREDENTIALS = 5000
"""How many credentials have remembered hosts; any further one may go anywhere."""

MOST_CHARACTERS = 1_000_000
"""The memory travels in one message, too: half of what Temporal accepts."""


class Reachability(StrEnum):
    """The result of a reading. unread: it says nothing about the device, which could not be asked (no worker, rate limit) or
    named no state (a machine that is just being started). Only silence counts as silence."""

    ANSWERS = "answers"
    SILENT = "silent"
    UNREAD = "unread"


class DeviceEventReason(StrEnum):
    """Reasons of Events about a fence device, on its Node. A published one is never renamed."""

    FENCE_DEVICE_SILENT = "FenceDeviceSilent"
    FENCE_DEVICE_ANSWERS = "FenceDeviceAnswers"
    FENCE_DEVICE_SHARED = "FenceDeviceShared"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceToCheck:
    """One device of a node's fence configuration. path: off is a cut path, not a machine without power. deadline: of an act.
    node: the node in the device's seal."""

    device: PowerDevice
    path: bool = False
    deadline: timedelta = timedelta(seconds=15)
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeToCheck:
    """A node with its devices. problem: why there are none to read. held: an open episode's incident, or "".

    publishes: its fencing was configured, or remediation is wanted in this cluster, so that silence is published as Events.
    provider_id, system_uuid, instance_id: which machine it is, for comparing with what a device says.
    """

    node: str
    uid: str = ""
    ready: bool = False
    held: str = ""
    publishes: bool = False
    devices: tuple[DeviceToCheck, ...] = ()
    problem: str = ""
    provider_id: str = ""
    system_uuid: str = ""
    instance_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAnswer:
    """The result of reading one device. latency: None without an answer. serves: the machine that the device says it serves.
    insecurity: how others could listen or answer in its place, "" if they could not or its worker allows it."""

    endpoint: str
    answer: Reachability
    at: datetime
    state: PowerState = PowerState.UNKNOWN
    latency: timedelta | None = None
    problem: str = ""
    serves: tuple[str, ...] = ()
    insecurity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One line for people. endpoint: "" if the node has no usable configuration. last_success: None if none is known.

    problem: why the node could not be fenced by it now. warning: what looks wrong although the device answers.
    """

    node: str
    endpoint: str = ""
    driver: str = ""
    site: str = ""
    answer: Reachability = Reachability.UNREAD
    state: PowerState = PowerState.UNKNOWN
    latency_ms: int | None = None
    last_success: datetime | None = None
    problem: str = ""
    warning: str = ""
    held: str = ""
    """The incident of the open episode on the node; its devices are left to that episode and were not read."""

    @property
    def named(self) -> str:
        """The problem, with its device in front unless the problem names it."""
        return self.problem if self.endpoint in self.problem else f"{self.endpoint}: {self.problem}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedNode:
    """A node as its page leaves it to the check of all: without what only the reading of its devices needs. rows: one for each
    device, with `last_success` where it has just answered; one without a device where none is configured rightly."""

    node: str
    uid: str = ""
    held: str = ""
    publishes: bool = False
    rows: tuple[DeviceRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """The outcome of a check. problems: the number of lines with one, shown or left out; 0 means that every node can be fenced
    as it is configured, as far as readings show."""

    cluster: str
    began: datetime
    ended: datetime
    nodes: int = 0
    devices: int = 0
    answering: int = 0
    problems: int = 0
    rows: tuple[DeviceRow, ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNotice:
    """A device that stopped answering, answers again, or is configured for another node, too. since: its last success before,
    None if it has never answered."""

    node: str
    node_uid: str
    endpoint: str
    reason: DeviceEventReason
    since: datetime | None = None
    problem: str = ""

    @property
    def message(self) -> str:
        if self.reason is DeviceEventReason.FENCE_DEVICE_SHARED:
            return self.problem
        last = f"its last answer was at {written(self.since)}" if self.since is not None else "it has not answered before"
        if self.reason is DeviceEventReason.FENCE_DEVICE_SILENT:
            return f"the node could not be fenced by {self.endpoint}: {self.problem}; {last}"
        return f"{self.endpoint} answers again; {last}"

    @property
    def identity(self) -> str:
        """The same for every repetition of the same notice, whatever the message says."""
        if self.reason is DeviceEventReason.FENCE_DEVICE_SHARED:
            return f"{self.endpoint} shared"
        return f"{self.endpoint} {written(self.since) if self.since is not None else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """What one check leaves to the next. answered: by node and endpoint, the last success in whole seconds since 1970. silent:
    node and endpoint of devices with a silence that was reported. shared: the same for devices that were reported as another
    node's, too; claimed: for all devices that are. policies: a digest of the policies that name devices, as last reported; ""
    before the first report."""

    answered: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    silent: tuple[tuple[str, str], ...] = ()
    shared: tuple[tuple[str, str], ...] = ()
    policies: str = ""
    claimed: tuple[tuple[str, str], ...] = ()
    hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Where each credential went when a check of all devices first met it, and where a person has admitted it (S40)."""


def devices_of(plan: FencingPlan) -> tuple[DeviceToCheck, ...]:
    """Every device that the plan may touch, each once."""
    found: dict[str, DeviceToCheck] = {}
    for device in plan.devices:
        found.setdefault(device.endpoint, DeviceToCheck(device=device, deadline=plan.act_deadline))
    for method in (*plan.isolation, *plan.recovery):
        if method.device is not None:
            path = method.act in {Act.CUT_PATH, Act.RESTORE_PATH}
            found.setdefault(method.device.endpoint, DeviceToCheck(device=method.device, path=path, deadline=plan.act_deadline))
    return tuple(found.values())


def checked(node: NodeToCheck, answers: Sequence[DeviceAnswer]) -> CheckedNode:
    """The node with its lines. answers: in the order of its devices; none where an open episode has them."""
    if node.problem:
        rows = [DeviceRow(node=node.node, problem=node.problem[:LONGEST_PROBLEM])]
    elif node.held and not answers:
        rows = [_held_row(node, each.device) for each in node.devices]
    else:
        rows = [row_of(node, each, answer) for each, answer in zip(node.devices, answers, strict=True)]
    return CheckedNode(node=node.node, uid=node.uid, held=node.held, publishes=node.publishes, rows=tuple(rows))


def row_of(node: NodeToCheck, checked: DeviceToCheck, answer: DeviceAnswer) -> DeviceRow:
    return DeviceRow(
        node=node.node,
        endpoint=checked.device.endpoint,
        driver=checked.device.driver,
        site=checked.device.site,
        answer=answer.answer,
        state=answer.state,
        latency_ms=round(answer.latency / timedelta(milliseconds=1)) if answer.latency is not None else None,
        last_success=answer.at if answer.answer is Reachability.ANSWERS else None,
        problem=(answer.problem or another_machine(answer.serves, node))[:LONGEST_PROBLEM],
        warning=_warning(node, checked, answer),
    )


def _held_row(node: NodeToCheck, device: PowerDevice) -> DeviceRow:
    how = f"`nodewarden fence check --node {node.node}` reads it all the same"
    return DeviceRow(
        node=node.node,
        endpoint=device.endpoint,
        driver=device.driver,
        site=device.site,
        held=node.held,
        warning=f"not read: incident {node.held} is open; {how}",
    )


def _warning(node: NodeToCheck, checked: DeviceToCheck, answer: DeviceAnswer) -> str:
    if node.held:
        return f"incident {node.held} is open"
    state = ""
    if answer.state is PowerState.OFF and node.ready:
        state = "cut although the node is Ready" if checked.path else "off although the node is Ready: is it the right machine?"
    return "; ".join(filter(None, (state, answer.insecurity and f"insecure: {answer.insecurity}")))


Hosts = Mapping[str, tuple[str, ...]]
"""To where each credential of some devices is sent, by its `subject`."""


def hosts_met(nodes: Iterable[NodeToCheck]) -> dict[str, tuple[str, ...]]:
    """By the configuration of these nodes."""
    return merged(destinations(each.device) for node in nodes for each in node.devices)


def merged(all_hosts: Iterable[Mapping[str, Collection[str]]]) -> dict[str, tuple[str, ...]]:
    """Those of several devices, or of several pages, together."""
    found = defaultdict[str, set[str]](set)
    for each in all_hosts:
        for name, hosts in each.items():
            found[name].update(hosts)
    return {name: tuple(sorted(hosts)) for name, hosts in found.items()}


class DeviceClaims:
    """The nodes of each device, by the configuration of all nodes together (S39), for one check. Two endpoints may lead to one
    device."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[str, str], CheckedNode] = {}
        self._index = DeviceIndex[tuple[str, str]]()

    def add(self, *nodes: CheckedNode) -> None:
        for node in nodes:
            for endpoint in (row.endpoint for row in node.rows if row.endpoint):
                self._nodes[node.node, endpoint] = node
                self._index.add((node.node, endpoint), endpoint)

    def _others(self, node: str, endpoint: str) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self._index.having(endpoint) if name != node))

    def problem(self, node: str, endpoint: str) -> str:
        """The problem that other nodes are configured with that device, too; "" for none."""
        others = self._others(node, endpoint)
        if not others:
            return ""
        named = some_of([f"Node/{each}" for each in others], MOST_NAMED)
        shared = f"{endpoint} is configured as the device of Node/{node} and of {named}"
        return f"{shared}: find out which node it belongs to, or the wrong machine is switched off"

    @property
    def shared(self) -> tuple[tuple[str, str], ...]:
        """Node and endpoint of each device that is another node's, too; also those without a notice."""
        return tuple(self._sharing())

    def _sharing(self) -> dict[tuple[str, str], CheckedNode]:
        return {key: node for key, node in self._nodes.items() if self._others(*key)}

    def notices(self) -> list[DeviceNotice]:
        """One notice for each node that shares a device; none for a node without `publishes`."""
        return [
            DeviceNotice(
                node=node.node,
                node_uid=node.uid,
                endpoint=endpoint,
                reason=DeviceEventReason.FENCE_DEVICE_SHARED,
                problem=self.problem(node.node, endpoint)[:LONGEST_PROBLEM],
            )
            for (_, endpoint), node in self._sharing().items()
            if node.publishes
        ]

    def noted(self, rows: Iterable[DeviceRow]) -> list[DeviceRow]:
        """The lines, each with the problem of a shared device."""
        return [
            replace(row, problem="; ".join(filter(None, (shared, row.problem)))[:LONGEST_PROBLEM])
            if row.endpoint and (shared := self.problem(row.node, row.endpoint))
            else row
            for row in rows
        ]


class Remembered:
    """When each device last answered, and which silent devices were reported. Bounded by the number of devices."""

    def __init__(self, memory: DeviceMemory) -> None:
        self._answered = {node: dict(endpoints) for node, endpoints in memory.answered.items()}
        self._silent = set(memory.silent)
        self._shared = set(memory.shared)
        self.policies = memory.policies
        self.hosts = dict(memory.hosts)
        self.claimed = tuple(sorted({*memory.claimed, *memory.shared}))
        """Node and endpoint of each device that is another node's, too, by the last check of all; reported or not."""

    def last_successes(self, node: str) -> dict[str, datetime]:
        return {endpoint: datetime.fromtimestamp(at, UTC) for endpoint, at in self._answered.get(node, {}).items()}

    def note_answer(self, node: CheckedNode, row: DeviceRow) -> DeviceNotice | None:
        """Note one answer. Returns the notice that it needs, again each time until `mark_published` is called with it."""
        key, since = (node.node, row.endpoint), self.last_successes(node.node).get(row.endpoint)
        if row.answer is Reachability.ANSWERS and row.last_success is not None:
            self._answered.setdefault(node.node, {})[row.endpoint] = int(row.last_success.timestamp())
        edge = {Reachability.ANSWERS: key in self._silent, Reachability.SILENT: key not in self._silent and node.publishes}
        if node.held or not edge.get(row.answer, False):
            return None
        silent = row.answer is Reachability.SILENT
        return DeviceNotice(
            node=node.node,
            node_uid=node.uid,
            endpoint=row.endpoint,
            reason=DeviceEventReason.FENCE_DEVICE_SILENT if silent else DeviceEventReason.FENCE_DEVICE_ANSWERS,
            since=since,
            problem=row.problem,
        )

    def note_claims(self, claims: DeviceClaims) -> list[DeviceNotice]:
        """Note which devices are shared now, and return the notices that are not reported yet. A device that is shared no more
        is forgotten, and reported again if it comes back."""
        notices = claims.notices()
        self.claimed = claims.shared
        self._shared &= set(self.claimed)
        return [each for each in notices if (each.node, each.endpoint) not in self._shared]

    def mark_published(self, notice: DeviceNotice) -> None:
        """Note that the notice was published: not again until it changes."""
        key = (notice.node, notice.endpoint)
        if notice.reason is DeviceEventReason.FENCE_DEVICE_SHARED:
            self._shared.add(key)
        elif notice.reason is DeviceEventReason.FENCE_DEVICE_SILENT:
            self._silent.add(key)
        else:
            self._silent.discard(key)

    def keep_hosts(self, met: Hosts, *, admits: bool = False) -> None:
        """Note the hosts of all devices' credentials: new credentials may go to the hosts configured now. They are never
        forgotten: a credential that is not configured for an hour is not new afterwards. admits: known credentials may go to the
        present hosts, too."""
        for name, hosts in met.items():
            if (name in self.hosts) is admits and len(self.hosts) < MOST_CREDENTIALS:
                self.hosts[name] = tuple(sorted({*hosts, *self.hosts.get(name, ())}))

    def keep_devices(self, node: str, endpoints: Collection[str]) -> None:
        """Forget devices that a node's configuration no longer names. Not for a configuration that could not be read: it may
        still name them."""
        known = self._answered.get(node, {})
        for endpoint in [each for each in known if each not in endpoints]:
            del known[endpoint]
        self._silent -= {key for key in self._silent if key[0] == node and key[1] not in endpoints}

    def keep_nodes(self, nodes: Collection[str]) -> None:
        """Forget nodes that no longer exist."""
        for node in [each for each in self._answered if each not in nodes]:
            del self._answered[node]
        self._silent -= {key for key in self._silent if key[0] not in nodes}

    def carried(self, most: int = MOST_CHARACTERS) -> DeviceMemory:
        """The memory for the next run. If it is too much, the last nodes' successes are left out, and the next check reads them
        anew; reported silences are kept."""
        room = most - sum(len(node) + len(endpoint) + 6 for node, endpoint in (*self._silent, *self._shared, *self.claimed))
        room -= sum(len(name) + 4 + sum(len(host) + 3 for host in hosts) for name, hosts in self.hosts.items())
        answered: dict[str, dict[str, int]] = {}
        for node, endpoints in sorted(self._answered.items()):
            room -= len(node) + 6 + sum(len(endpoint) + 14 for endpoint in endpoints)
            if room < 0:
                break
            if endpoints:
                answered[node] = dict(endpoints)
        silent, shared = (tuple(sorted(each)) for each in (self._silent, self._shared))
        return DeviceMemory(
            answered=answered,
            silent=silent,
            shared=shared,
            policies=self.policies,
            claimed=tuple(sorted(self.claimed)),
            hosts=self.hosts,
        )


def report_of(
    cluster: str, rows: Iterable[DeviceRow], *, began: datetime, ended: datetime, nodes: int, most: int = MOST_ROWS
) -> DeviceReport:
    """The report, problems first; only devices that answer are left out, unless even the problems are too many."""
    ordered = sorted(rows, key=_worst_first)
    return DeviceReport(
        cluster=cluster,
        began=began,
        ended=ended,
        nodes=nodes,
        devices=sum(1 for row in ordered if row.endpoint),
        answering=sum(1 for row in ordered if row.answer is Reachability.ANSWERS),
        problems=sum(1 for row in ordered if row.problem),
        rows=tuple(ordered[:most]),
        left_out=max(0, len(ordered) - most),
    )


def fenceable(report: DeviceReport) -> tuple[bool | None, str]:
    """Whether all nodes could be fenced as they are configured (None if that is not known of each), and a sentence why."""
    if report.problems:
        return False, f"Not all: {counted(report.problems, 'line')} below {'has' if report.problems == 1 else 'have'} a problem"
    if unread := report.devices - report.answering:
        of = f"{counted(unread, 'device')} of {report.devices}"
        return None, f"Not known of all: {of} {'was' if unread == 1 else 'were'} not read"
    if not report.devices:
        return None, "No fence device is configured"
    return True, "Yes: every device answers as it is configured"


def acted_on(report: DeviceReport, failing: Mapping[str, str]) -> DeviceReport:
    """The report with failures of acts since it was made. failing: by node, how acting by its devices fails: a device may answer
    every reading, and carry out no command."""
    rows = [
        replace(row, problem=failing[row.node][:LONGEST_PROBLEM])
        if not row.problem and row.endpoint in _words(failing.get(row.node, ""))
        else row
        for row in report.rows
    ]
    found = sum(1 for before, after in zip(report.rows, rows, strict=True) if before is not after)
    return replace(report, rows=tuple(sorted(rows, key=_worst_first)), problems=report.problems + found)


def _words(text: str) -> set[str]:
    """Whole words: the name of an outlet may be the beginning of another's."""
    return {word.strip(":;,.") for word in text.split()}


def _worst_first(row: DeviceRow) -> tuple[bool, bool, list[tuple[bool, int, str]], str]:
    return not row.problem, not row.warning, in_natural_order(row.node), row.endpoint


# Which nodes the fence configuration names for a device: a copying mistake there would switch off the wrong machine (S39).
#
# Written names only: `nodeParameters` of templates and FenceConfigs, and a FenceConfig's `nodeName`. These nodes may claim a
# device; the caller resolves whether a node's configuration really gives it that device.

Written = Mapping[str, Any]


def named_beside(objects: Iterable[Written], endpoints: Collection[str], node: str) -> dict[str, str]:
    """The other nodes that these objects name for one of these devices, each with the device. An entry that can't be read is
    refused when its own node is resolved; it can't mean this device."""
    found: dict[str, str] = {}
    specs = [obj.get("spec") for obj in objects]
    devices = [(spec, *each) for spec in specs for each in _devices(spec)]
    for spec, device, takes in devices:
        alone = spec.get("nodeName") if isinstance(spec, Mapping) else None
        shared, by_node = _values(device.get("parameters")), device.get("nodeParameters")
        own = {str(name): _values(values) for name, values in by_node.items()} if isinstance(by_node, Mapping) else {}
        if isinstance(alone, str):
            own = {alone: own.get(alone, {})}
        if len(devices) == 1 and node in own:
            break  # an entry for two nodes is refused when it is read
        for other, values in own.items():
            theirs = _endpoint(takes, {**shared, **values}, other) if other != node else ""
            if theirs and (mine := next((each for each in endpoints if same_device(each, theirs)), "")):
                found.setdefault(other, mine)
    return found


def _devices(value: object) -> Iterator[tuple[Written, DriverParameters]]:
    """All devices in the value: of power, of methods, of paths."""
    if isinstance(value, Mapping):
        driver = value.get("driver")
        takes = parameters_of(canonical_driver(driver)) if isinstance(driver, str) else None
        if takes is not None:
            yield value, takes
        else:
            for each in value.values():
                yield from _devices(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _devices(each)


def _values(written: object) -> dict[str, str]:
    return {str(key): str(value).strip() for key, value in written.items()} if isinstance(written, Mapping) else {}


def _endpoint(takes: DriverParameters, values: Mapping[str, str], node: str) -> str:
    try:
        return takes.endpoint({key: with_node_name(value, node) for key, value in values.items()})
    except ParameterError:
        return ""
