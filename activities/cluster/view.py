"""What this worker knows of one cluster: the watches that feed the ledger, and whether the result may be acted on (S18).

One per cluster and process, shared by every scan. It decides nothing: verdicts and brakes are `policy/`, the long poll over it is
`scan.py`. What it knows dies with the process; a scan says how far the scanner has seen, so that a fresh view catches up first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from activities.cluster.connection import ClusterConnection, JsonObject
from activities.cluster.decoding import NODE_DECODING, OBJECT_DECODING
from activities.cluster.paths import NODE_HEALTH_CHECKS, NODES, Resource
from activities.cluster.probe import Probe
from activities.cluster.reflector import Reflector, WatchLimits, version_number
from policy.dialects import parse
from policy.errors import PolicyError
from policy.healthcheck import HealthCheck, ObjectRef
from policy.ledger import Ledger
from policy.nodes import NodeView
from policy.report import ClusterLease, ReportParts, ScanReport, ViewState
from policy.views import digest, view_fault, view_state

log = logging.getLogger(__name__)

POLICY_KINDS: tuple[Resource, ...] = (NODE_HEALTH_CHECKS,)
"""The kinds of health checks that are watched; how each is read is `policy/dialects`."""

SHORTEST_WAIT = 0.001
LONGEST_WAIT = 60.0
JUST_PASSED = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewLimits:
    """What makes a view stale (S18).

    silence: bookmarks come about once a minute, so a watch that is quiet for longer is not one. broken: how long a watch may
    take to come back before that counts. grace: after the first complete list, and after an outage, in which nodes could not
    report either. shrunk: how long an empty or halved inventory must last to be believed. probe: how long all watches may be
    quiet before the server is asked whether it is there; probe_again: how soon after it was not.
    """

    silence: timedelta = timedelta(seconds=75)
    broken: timedelta = timedelta(seconds=5)
    grace: timedelta = timedelta(seconds=15)
    shrunk: timedelta = timedelta(minutes=5)
    probe: timedelta = timedelta(seconds=10)
    probe_again: timedelta = timedelta(seconds=2)
    catch_up: timedelta = timedelta(seconds=2)
    first_list: timedelta = timedelta(seconds=10)


class ClusterView:
    """Nodes and health checks of one cluster, as fresh as the watches bring them."""

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        limits: ViewLimits | None = None,
        watch_limits: WatchLimits | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.connection = connection
        self.ledger = Ledger()
        self.stamp = 0
        """Another number after each change of what a report might say."""
        self.check_objects: dict[str, JsonObject] = {}
        """The policy objects as last seen, by the key of their reference."""
        self._checks: dict[str, HealthCheck] = {}
        self._labels: dict[str, Mapping[str, str]] = {}
        self._limits = limits or ViewLimits()
        self._clock = clock
        self._waiting: set[asyncio.Event] = set()
        self._whole_since: float | None = None
        self._broken_since: float | None = None
        self._shrunk: tuple[int, datetime] | None = None
        self._void_mark = 0
        self._nodes = Reflector(
            connection, NODES, NODE_DECODING, on_change=self._node_changed, on_state=self._state_changed, limits=watch_limits
        )
        self._policies = [
            Reflector(
                connection,
                resource,
                OBJECT_DECODING,
                on_change=partial(self._check_changed, resource),
                on_state=self._state_changed,
                optional=True,
                limits=watch_limits,
            )
            for resource in POLICY_KINDS
        ]
        self._probe = Probe(
            connection,
            on_answer=self.poke,
            every=self._limits.probe.total_seconds(),
            again=self._limits.probe_again.total_seconds(),
        )

    @property
    def _reflectors(self) -> tuple[Reflector[NodeView] | Reflector[JsonObject], ...]:
        return (self._nodes, *self._policies)

    # Life

    def start(self) -> None:
        """Begin to watch; does nothing where it has begun."""
        for reflector in self._reflectors:
            reflector.start()

    async def close(self) -> None:
        """Stop watching."""
        await self._probe.stop()
        for reflector in self._reflectors:
            await reflector.stop()

    def look_again(self) -> None:
        """Look at once for policy kinds that the server did not know when last asked."""
        for reflector in self._policies:
            if reflector.absent:
                reflector.wake()

    # What it says

    @property
    def synced(self) -> bool:
        """Whether every collection has been listed."""
        return all(reflector.synced for reflector in self._reflectors)

    @property
    def cluster_uid(self) -> str:
        """The uid of kube-system, "" while it is not known."""
        return self._probe.uid

    def check(self, key: str) -> HealthCheck | None:
        """The health check of that key, None where there is none that can be used."""
        return self._checks.get(key)

    def covered(self, check: HealthCheck, nodes: Iterable[str]) -> set[str]:
        """Those of the nodes that the check selects."""
        return {name for name in nodes if name in self._labels and check.selector.matches(self._labels[name])}

    def knows(self, node: str) -> bool:
        """Whether there is a Node object of that name."""
        return node in self._labels

    def parts(self, watching: Collection[str] = ()) -> ReportParts:
        """What the ledger says now."""
        return self.ledger.report_parts(self._clock(), watching)

    def report(
        self, *, lease: ClusterLease, known_inventory: int = 0, mark: str = "", watching: Collection[str] = ()
    ) -> ScanReport:
        """The whole report at this moment. known_inventory, mark: the size and the resourceVersion the scanner has seen."""
        now = self._clock()
        parts = self.ledger.report_parts(now, watching)
        fault = self._inventory_fault(known_inventory, parts.inventory, now) if self.synced else ""
        if fault or not self.synced:
            parts = replace(parts, inventory=known_inventory)
        view = self._state(now, self._probe.problem or self._broken() or self._behind(mark) or fault)
        return ScanReport(
            digest=digest(parts, view=view, lease=lease, cluster_uid=self.cluster_uid),
            at=now,
            resource_version=str(max(self._nodes.newest_change, self._counted(mark))),
            view=view,
            lease=lease,
            cluster_uid=self.cluster_uid,
            inventory=parts.inventory,
            checks=parts.checks,
            candidates=parts.candidates,
            candidates_left_out=parts.candidates_left_out,
            observations=parts.observations,
            control_plane=parts.control_plane,
            rows=parts.rows,
            next_due=parts.next_due,
        )

    # Waiting

    def poke(self) -> None:
        """Let every waiting scan look again."""
        self.stamp += 1
        for event in self._waiting:
            event.set()

    async def changed(self, since: int, seconds: float) -> None:
        """Wait until `stamp` is another than `since`, or until something can change by time alone, at most so long.

        Exact to about a millisecond: the wait ends just after the moment at which a verdict expires.
        """
        if self.stamp != since:
            return
        self._probe.ask_if_due(self._quiet())
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            async with asyncio.timeout(max(min(seconds, *self._moments()), SHORTEST_WAIT)):
                await event.wait()
        except TimeoutError:
            return
        finally:
            self._waiting.discard(event)

    async def first_list(self, *, before: float) -> None:
        """Wait a little for a view that has just been started. `before`: a moment of the loop's clock, as below."""
        loop = asyncio.get_running_loop()
        end = min(loop.time() + self._limits.first_list.total_seconds(), before)
        while not (self.synced and self.cluster_uid) and loop.time() < end and not self._in_trouble():
            await self.changed(self.stamp, end - loop.time())

    async def catch_up(self, mark: str, *, before: float) -> None:
        """Where another worker has seen more than we have: wait for our watch, then take a list. Gives up quietly: the report
        says that the view is behind."""
        loop = asyncio.get_running_loop()
        end = min(loop.time() + self._limits.catch_up.total_seconds(), before)
        while self._behind(mark) and loop.time() < end:
            await self.changed(self.stamp, 0.1)
        if not self._behind(mark) or self._in_trouble():
            return
        lists, end = self._nodes.lists, min(loop.time() + self._limits.first_list.total_seconds(), before)
        await self._nodes.relist()
        while self._nodes.lists == lists and loop.time() < end:
            await self.changed(self.stamp, end - loop.time())
        if self._nodes.lists > lists and self._behind(mark):
            # A list is never older than anything that was ever seen, so it is the mark that is of another history.
            log.warning("the server is at %s, a scan had seen %s: it went back in time", self._nodes.resource_version, mark)
            self._void_mark = version_number(mark)

    # Changes

    def _node_changed(self, name: str, node: NodeView | None) -> None:
        before = self.ledger.version
        if node is None:
            self.ledger.remove_node(name)
            self._labels.pop(name, None)
        else:
            self.ledger.put_node(node, self._clock())
            self._labels[name] = node.labels
        if self.ledger.version != before:
            self.poke()

    def _check_changed(self, resource: Resource, key: str, found: dict[str, Any] | None) -> None:
        namespace, _, name = key.rpartition("/")
        ref = ObjectRef(api_version=resource.api_version, kind=resource.kind, name=name, namespace=namespace)
        before = self.ledger.version
        self._checks.pop(ref.key, None)
        if found is None:
            self.check_objects.pop(ref.key, None)
            self.ledger.remove_check(ref.key)
        else:
            self.check_objects[ref.key] = found
            try:
                check = parse(found)
            except PolicyError as error:
                self.ledger.put_bad_check(ref, str(error))
            else:
                self._checks[ref.key] = check
                self.ledger.put_check(check)
        if self.ledger.version != before:
            self.poke()

    def _state_changed(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self.synced:
            self._whole_since = None
        elif self._whole_since is None:
            self._whole_since = now
        if not all(reflector.streaming for reflector in self._reflectors):
            self._broken_since = self._broken_since or now
        elif self._broken_since is not None:
            if self._whole_since is not None and now - self._broken_since > self._limits.broken.total_seconds():
                # While we could not reach the API, nodes may not have been able to say that they are well.
                self._whole_since = now
            self._broken_since = None
        self.poke()

    # Staleness

    def _state(self, now: datetime, fault: str) -> ViewState:
        state = view_state(
            synced_at=now - timedelta(seconds=self._whole_for()) if self._whole_since is not None else None,
            last_heard=now - timedelta(seconds=self._longest_silence()) if self.synced else None,
            now=now,
            silence_limit=self._limits.silence,
            grace=self._limits.grace,
            fault=fault,
        )
        why = self._probe.problem or next((reflector.problem for reflector in self._reflectors if reflector.problem), "")
        return state if state.synced or not why else replace(state, stale=f"{state.stale}: {why}")

    def _whole_for(self) -> float:
        return asyncio.get_running_loop().time() - (self._whole_since or 0.0)

    def _quiet(self) -> float:
        return min(reflector.silent_for() for reflector in self._reflectors)

    def _longest_silence(self) -> float:
        return max(reflector.silent_for() for reflector in self._reflectors)

    def _in_trouble(self) -> bool:
        return bool(self._probe.problem) or any(reflector.problem for reflector in self._reflectors)

    def _broken(self) -> str:
        if (
            self._broken_since is None
            or asyncio.get_running_loop().time() - self._broken_since < self._limits.broken.total_seconds()
        ):
            return ""
        broken = [
            f"{reflector.resource.plural} ({reflector.problem or 'no answer'})"
            for reflector in self._reflectors
            if not reflector.streaming
        ]
        return f"not being told of changes of {', '.join(broken)}"

    def _counted(self, mark: str) -> int:
        number = version_number(mark)
        return 0 if number <= self._void_mark else number

    def _behind(self, mark: str) -> str:
        reached = max(self._nodes.newest_change, version_number(self._nodes.resource_version))
        if self._counted(mark) <= reached:
            return ""
        return f"another worker has seen version {mark}, this view has not come so far yet"

    def _inventory_fault(self, known: int, size: int, now: datetime) -> str:
        since = self._shrunk[1] if self._shrunk is not None and self._shrunk[0] == known else None
        fault = view_fault(known, size, shrunk_since=since, now=now, accept_after=self._limits.shrunk)
        self._shrunk = (known, since or now) if fault else None
        return fault

    def _moments(self) -> list[float]:
        """Seconds until each moment at which a report can change though nothing happens."""
        elapsed = asyncio.get_running_loop().time()
        moments = [
            self._limits.silence.total_seconds() - self._longest_silence(),
            self._probe.seconds_left(self._quiet()),
        ]
        if self._whole_since is not None:
            moments.append(self._limits.grace.total_seconds() - self._whole_for())
        if self._broken_since is not None:
            moments.append(self._broken_since + self._limits.broken.total_seconds() - elapsed)
        if self._shrunk is not None:
            moments.append((self._shrunk[1] + self._limits.shrunk - self._clock()).total_seconds())
        # Those that have passed are in the report already, but for the time it took to get here.
        moments = [moment for moment in moments if moment > -JUST_PASSED]
        if self.ledger.next_due is not None:
            moments.append((self.ledger.next_due - self._clock()).total_seconds())
        return moments or [LONGEST_WAIT]
