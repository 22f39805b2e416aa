"""What happened to nodes by the API server's store and the machines' chassis, and which of it must never happen.

A `Recorder` is told of every write as the store commits it and of every command as the chassis carries it out, with the truth
about power at that very moment. It reads nothing that nodewarden says to decide what is true; what nodewarden says is held
against it. Rules that a single write or command breaks are judged at once, those of a span of time by `audit`.

Permits: a permit must be held at least from the first off that a machine's device carries out until the API has the node Ready
again, the episode's mark is gone, or its NodeFence says that it waits for a person. Some order of grants and returns explains the
record if and only if no more of these spans than there are permits overlap at any moment (a graph of intervals needs as many
colours as intervals overlap), so that is counted.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import accumulate
from typing import Any

from activities.cluster.api.lease_view import CLUSTER_LEASE_NAME
from policy.episode.messages import EpisodeResult, EpisodeStatus, Outcome, Phase
from policy.objects.nodes import MARK_ANNOTATION
from simulator.api.storage.kinds import StorageKey
from simulator.api.storage.store import DELETED, Change, Document
from simulator.bmc.machine import HAND, PowerCommand
from simulator.cluster import SimulatedCluster
from simulator.objects import OUT_OF_SERVICE, has_taint, is_ready, is_terminating, name_of, node_of
from simulator.storage import Violation

NODES: StorageKey = ("", "nodes")
PODS: StorageKey = ("", "pods")
ATTACHMENTS: StorageKey = ("storage.k8s.io", "volumeattachments")
EVENTS: StorageKey = ("", "events")
LEASES: StorageKey = ("coordination.k8s.io", "leases")
NODE_FENCES: StorageKey = ("nodewarden.io", "nodefences")

ACT_WINDOW = timedelta(seconds=20)
"""An act may follow its last look by so much (S20: 15 s), and the busy machine of a test takes a while to see it."""
KUBERNETES_ACTS = timedelta(seconds=285)
"""So long after NotReady Kubernetes itself begins to delete pods (tolerations of 300 s)."""
COMES_LATE = timedelta(seconds=5)
"""Between a change and our record of it by another clock, on a busy machine."""
BY_HAND = "a person asked for it"
ALWAYS = datetime.min.replace(tzinfo=UTC)
NEVER = datetime.max.replace(tzinfo=UTC)
TO_BE_OFF = frozenset({"NodePoweredOff", "WorkloadsFreed"})
"""Reasons of Events that say that the machine was off."""


class Wrong(StrEnum):
    """What must never happen."""

    LOST = "lost"
    """An episode that never ends or ends without a result; a node that stays broken."""
    DOUBLE = "double"
    """Two owners of one node, or an act that is done again although nothing asks for it."""
    EARLY = "early"
    """A consequence before the machine was really off, a machine on before it was off, an act that nothing licenses."""
    LEFT_OVER = "left over"
    ABOVE_BUDGET = "above budget"
    UNTRUE = "untrue words"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, in a sentence."""

    wrong: Wrong
    at: datetime
    text: str

    def __str__(self) -> str:
        return f"{self.wrong.value} at {self.at:%H:%M:%S.%f}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Some time of a node's. what: such as the incident of a mark. ended: `NEVER` while it lasts."""

    began: datetime
    ended: datetime = NEVER
    what: str = ""

    def has(self, moment: datetime, slack: timedelta = timedelta(0)) -> bool:
        """Whether it lasted at that moment, or less than `slack` before."""
        return self.began <= moment and (self.ended == NEVER or moment <= self.ended + slack)


@dataclass(slots=True, kw_only=True)
class Silence:
    """When people had been promised that no machine is switched off. node: "" for all. programs_only: what a person asks for is
    done all the same."""

    node: str
    began: datetime
    ended: datetime = NEVER
    programs_only: bool = False


@dataclass(slots=True)
class Line:
    """Spans of one kind, one after the other; at most the last one is open."""

    spans: list[Span] = field(default_factory=list)

    @property
    def open(self) -> Span | None:
        return self.spans[-1] if self.spans and self.spans[-1].ended == NEVER else None

    def put(self, what: str, now: datetime) -> None:
        """From now on it is `what`; "" ends it."""
        if (last := self.open) is not None:
            if last.what == what:
                return
            self.spans[-1] = Span(began=last.began, ended=now, what=last.what)
        if what:
            self.spans.append(Span(began=now, what=what))

    def has(self, moment: datetime, slack: timedelta = timedelta(0)) -> bool:
        return any(each.has(moment, slack) for each in self.spans)


@dataclass(slots=True)
class NodeRecord:
    """Everything about one node. at_risk: something is wrong with what runs there, or a person asked to have it switched off, and
    its machine has not lost power since. disturbed: its device misleads, so that a command may have to be given again."""

    at_risk: Line = field(default_factory=Line)
    disturbed: Line = field(default_factory=Line)
    not_ready: Line = field(default_factory=Line)
    marks: Line = field(default_factory=Line)
    cordons: Line = field(default_factory=Line)
    off: Line = field(default_factory=Line)
    parked: Line = field(default_factory=Line)
    outages: Line = field(default_factory=Line)
    """From an off of its device to the moment until which a permit must be held."""


def most_at_once(spans: Iterable[Span]) -> int:
    """The largest number of spans at one moment; one that begins as another ends counts with it."""
    spans = tuple(spans)
    steps = sorted([*((each.began, 0, 1) for each in spans), *((each.ended, 1, -1) for each in spans)])
    return max(accumulate(step for *_, step in steps), default=0)


class Recorder:
    """Listens from the moment it is made. cap: how many permits there are. workers_needed: so many nodes must be well for an
    episode to be opened (the check's minHealthy)."""

    def __init__(self, cluster: SimulatedCluster, *, cap: int, workers_needed: int) -> None:
        assert cluster.api is not None, "it stands on a simulated API server"
        self.findings: list[Finding] = []
        self.nodes: defaultdict[str, NodeRecord] = defaultdict(NodeRecord)
        self.words = 0
        """How many sentences were held against the record."""
        self.silences: list[Silence] = []
        self._cap = cap
        self._needed = workers_needed
        self._cluster = cluster
        self._store = cluster.api.store
        self._store.listeners.append(self._written)
        self._store.restored.append(self._read_all)
        cluster.storage.on_violation(self._two_writers)
        self._commands: dict[str, int] = {}
        self._renewed = ALWAYS
        """When the cluster Lease was written last."""
        self._read_all()

    @property
    def outages(self) -> list[Span]:
        return [span for node in self.nodes.values() for span in node.outages.spans]

    def find(self, wrong: Wrong, text: str, at: datetime | None = None) -> None:
        """Once each."""
        if all((each.wrong, each.text) != (wrong, text) for each in self.findings):
            self.findings.append(Finding(wrong=wrong, at=at or datetime.now(UTC), text=text))

    def breaks(self, node: str, why: str) -> None:
        """Something is wrong with it from now on, or a person wants it off."""
        self.nodes[node].at_risk.put(why, datetime.now(UTC))

    # The API ---------------------------------------------------------------------------------------------------------

    def _written(self, storage: StorageKey, change: Change) -> None:
        after = None if change.type == DELETED else change.record.document
        before = change.previous.document if change.previous is not None else None
        if storage == NODES:
            self._node(change.record.name, before, after)
        elif storage == PODS and before is not None and node_of(before):
            began = after is None or is_terminating(after)
            if began and not is_terminating(before):
                self._consequence(node_of(before), f"pod {name_of(before)} is deleted")
        elif storage == ATTACHMENTS and before is not None:
            if (after is None or is_terminating(after)) and not is_terminating(before):
                self._consequence(before["spec"]["nodeName"], f"volume attachment {name_of(before)} is deleted")
        elif storage == LEASES and change.record.name == CLUSTER_LEASE_NAME:
            self._lease(before, after)
        elif storage == NODE_FENCES and after is not None:
            self._parked(str(after["node"]), waits=after.get("phase") == Phase.NEEDS_HUMAN.value)
        elif storage == EVENTS and after is not None and (after.get("source") or {}).get("component") == "nodewarden":
            self._event(after)

    def _read_all(self) -> None:
        """At the beginning, and after the store has become an older one."""
        for document in self._store.documents("nodes"):
            self._node(name_of(document), None, document)

    def _node(self, name: str, before: Document | None, after: Document | None) -> None:
        node, now = self.nodes[name], datetime.now(UTC)
        if name not in self._commands:
            machine = self._cluster.chassis.machine(name)
            machine.on_change(self._power_changed)
            self._commands[name] = len(machine.log)
        ready = after is not None and is_ready(after)
        node.not_ready.put("" if ready else "not Ready", now)
        value = ((after or {}).get("metadata", {}).get("annotations") or {}).get(MARK_ANNOTATION, "")
        incident = str(json.loads(value).get("incident", "")) if value else ""
        node.marks.put(incident, now)
        node.cordons.put("cordoned" if after is not None and after["spec"].get("unschedulable") else "", now)
        if ready and not node.off.has(now):
            node.outages.put("", now)
        if not incident:
            node.outages.put("", now)
        if (
            after is not None
            and has_taint(after, OUT_OF_SERVICE)
            and before is not None
            and not has_taint(before, OUT_OF_SERVICE)
        ):
            self._consequence(name, "the out-of-service taint is set")

    def _consequence(self, name: str, what: str) -> None:
        node, now = self.nodes[name], datetime.now(UTC)
        if not node.at_risk.has(now) or self._cluster.chassis.machine(name).power == "off":
            return
        silent = node.not_ready.open
        if silent is None or now - silent.began < KUBERNETES_ACTS:
            self.find(Wrong.EARLY, f"{what} on {name}, whose machine is on ({node.at_risk.spans[-1].what})")

    def _lease(self, before: Document | None, after: Document | None) -> None:
        """S38: no deployment takes the cluster from another one that has renewed its Lease and has not given it back."""
        now = datetime.now(UTC)
        holder, taker = ((each or {}).get("spec", {}).get("holderIdentity", "") for each in (before, after))
        if before is not None and holder and taker and taker != holder:
            lasts = timedelta(seconds=before["spec"]["leaseDurationSeconds"])
            if now - self._renewed < lasts:
                self.find(
                    Wrong.DOUBLE,
                    f"{taker} took the cluster Lease from {holder}, which had renewed it at {self._renewed:%H:%M:%S}",
                )
        self._renewed = now

    def _parked(self, name: str, *, waits: bool) -> None:
        node, now = self.nodes[name], datetime.now(UTC)
        node.parked.put("waits for a person" if waits else "", now)
        if waits:
            node.outages.put("", now)

    def _event(self, event: Document) -> None:
        about, reason = event["involvedObject"], event["reason"]
        if about["kind"] != "Node":
            return
        self.words += 1
        node, now = self.nodes[about["name"]], datetime.now(UTC)
        message = str(event.get("message"))
        if reason in TO_BE_OFF and not node.off.has(now, slack=timedelta(seconds=90)):
            self.find(Wrong.UNTRUE, f"Event {reason} of {about['name']}: {message!r}, and its machine was on")
        if reason == "NodeIsolated" and not node.cordons.has(now, slack=timedelta(seconds=60)):
            self.find(Wrong.UNTRUE, f"Event {reason} of {about['name']}, which was not cordoned")
        silent = node.not_ready.open
        well = silent is None or now - silent.began < timedelta(seconds=30)
        if reason == "EpisodeEnded" and message.startswith(Outcome.RECOVERED.value) and not well:
            self.find(Wrong.UNTRUE, f"Event {reason} of {about['name']}: {message!r}, and it has not been Ready for long")

    def _two_writers(self, violation: Violation) -> None:
        self.find(Wrong.EARLY, f"two writers: {violation}")

    # The devices -----------------------------------------------------------------------------------------------------

    def _power_changed(self, command: PowerCommand) -> None:
        """Told of each command that took effect."""
        node, now = self.nodes[command.machine], datetime.now(UTC)
        machine = self._cluster.chassis.machine(command.machine)
        if machine.power == "off":
            node.off.put("off by hand" if command.device == HAND else "off", now)
            node.at_risk.put("", now)
            if command.device != HAND:
                node.outages.put("outage", now)
        else:
            node.off.put("", now)

    def _of_devices(self) -> None:
        """Every command that reached a device since the last look, also one that changed nothing."""
        for name, heard in self._commands.items():
            log = self._cluster.chassis.machine(name).log
            self._commands[name] = len(log)
            for entry in log[heard:]:
                if entry.device != HAND:
                    self._command(name, entry)

    def _command(self, name: str, entry: PowerCommand) -> None:
        node, clock = self.nodes[name], f"{entry.at:%H:%M:%S.%f}"
        misled = node.disturbed.has(entry.at, slack=ACT_WINDOW)
        if entry.command == "on" and entry.from_power == "on" and not misled:
            self.find(Wrong.DOUBLE, f"{name} is switched on at {clock} before it was off", entry.at)
        if entry.command != "off":
            return
        off = next((each for each in node.off.spans if each.has(entry.at)), None)
        if entry.from_power == "off" and off is not None and off.what == "off" and not misled:
            self.find(Wrong.DOUBLE, f"{name} is switched off at {clock}, and was off since {off.began:%H:%M:%S.%f}", entry.at)
        if not node.at_risk.has(entry.at, ACT_WINDOW) and not node.not_ready.has(entry.at, ACT_WINDOW):
            self.find(Wrong.EARLY, f"{name} is switched off at {clock} although it was well", entry.at)
        by_hand = any(each.what == BY_HAND and each.has(entry.at) for each in node.at_risk.spans)
        for silence in self.silences:
            if silence.programs_only and by_hand:
                continue
            if silence.node in {"", name} and silence.began + ACT_WINDOW < entry.at < silence.ended:
                self.find(Wrong.UNTRUE, f"{name} is switched off at {clock}, which people had been told would not be", entry.at)

    # Audits ----------------------------------------------------------------------------------------------------------

    def audit(self) -> None:
        """After each fault: what must hold at any moment."""
        self._of_devices()
        if (most := most_at_once(self.outages)) > self._cap:
            self.find(
                Wrong.ABOVE_BUDGET, f"{most} machines were off at once for an episode with a permit, of {self._cap} permits"
            )

    def audit_status(self, seen: EpisodeStatus) -> None:
        """What the `status` of an episode says, now."""
        self.words += 1
        node, now = self.nodes[seen.node], datetime.now(UTC)
        proof = seen.off_proof
        if proof is not None and proof.readings and not _ever(node.off, seen.started, now):
            self.find(Wrong.UNTRUE, f"status of {seen.node} says that off is proven, and it was on since {seen.started:%H:%M:%S}")
        if seen.phase is Phase.NEEDS_HUMAN and not (seen.problem and seen.question):
            self.find(Wrong.UNTRUE, f"status of {seen.node} says that it needs a person, and not for what")

    def audit_explanation(self, name: str, told: Mapping[str, Any]) -> None:
        """What `nodewarden explain NODE --output json` says, now."""
        self.words += 1
        node, now = self.nodes[name], datetime.now(UTC)
        mark, episode = node.marks.open, told["episode"] or {}
        answered = not told["problems"] and told["silent"] is None and not node.disturbed.has(now, ACT_WINDOW)
        if answered and mark is not None and episode.get("incident") != mark.what:
            self.find(Wrong.UNTRUE, f"explain of {name} knows no episode {mark.what}, of which the mark is there")
        well = all(not line.has(now, ACT_WINDOW) for line in (node.at_risk, node.not_ready, node.marks))
        if answered and well and told["conclusion"] != "healthy":
            self.find(Wrong.UNTRUE, f"explain of {name}, which is well, says {told['conclusion']!r}")

    def audit_result(self, result: EpisodeResult) -> None:
        """How an episode ended, against what was so."""
        self.words += 1
        node, name = self.nodes[result.node], f"{result.incident} of {result.node}"
        for entry in result.record:
            if (entry.act, entry.outcome) == ("off-proven", "ok") and not node.off.has(entry.at, slack=timedelta(seconds=20)):
                self.find(Wrong.UNTRUE, f"{name} records off as proven at {entry.at:%H:%M:%S}, when its machine was on", entry.at)
        if result.outcome is Outcome.RECOVERED and not _ever(_ready(node), result.ended - COMES_LATE, result.ended + COMES_LATE):
            self.find(Wrong.UNTRUE, f"{name} ended recovered at {result.ended:%H:%M:%S}, when it was not Ready", result.ended)
        if result.left_off and not _ever(node.off, result.ended - COMES_LATE, result.ended + COMES_LATE):
            self.find(Wrong.UNTRUE, f"{name} ended with its machine off, which was on", result.ended)

    def audit_owners(self, results: Sequence[EpisodeResult]) -> None:
        """Each mark belongs to an episode that was open, and none takes a node from one that is."""
        lives = {result.incident: result for result in results}
        for name, node in self.nodes.items():
            for one, other in zip(node.marks.spans, node.marks.spans[1:], strict=False):
                owner = lives.get(one.what)
                if owner is not None and one.ended == other.began and owner.ended > other.began + COMES_LATE:
                    self.find(Wrong.DOUBLE, f"{other.what} took {name} from {one.what}, which was open until {owner.ended}")

    def audit_opening(self, node: str, started: datetime) -> None:
        """Enough nodes were well when an episode that a check asks for was opened, or shortly before (S17)."""
        moments = [started - timedelta(seconds=second) for second in range(12)]
        well = [sum(not each.not_ready.has(moment) for each in self.nodes.values()) for moment in moments]
        if max(well) < self._needed:
            self.find(
                Wrong.ABOVE_BUDGET,
                f"an episode of {node} was opened at {started:%H:%M:%S} with {max(well)} nodes well, of {self._needed} needed",
            )

    def forget(self) -> None:
        """What no rule asks any more, so that hours fit into memory: all but the last spans."""
        for node in self.nodes.values():
            for line in (node.at_risk, node.disturbed, node.not_ready, node.marks, node.cordons, node.off, node.parked):
                del line.spans[:-20]
            del node.outages.spans[:-20]
        del self.silences[:-20]


def _ever(line: Line, since: datetime, until: datetime) -> bool:
    return any(span.began <= until and span.ended >= since for span in line.spans)


def _ready(node: NodeRecord) -> Line:
    """The time between its spans of not being Ready."""
    edges = [ALWAYS, *(moment for span in node.not_ready.spans for moment in (span.began, span.ended)), NEVER]
    return Line([Span(began=edges[at], ended=edges[at + 1]) for at in range(0, len(edges), 2) if edges[at] < edges[at + 1]])
