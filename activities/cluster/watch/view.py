"""What this worker knows of one cluster: the watches that feed the ledger, and whether the result may be acted on (S18).

One per cluster and process, shared by every scan. It decides nothing: verdicts and circuit breakers are `policy/`, the long
poll over it is `acts/scan.py`. What it knows dies with the process; a scan says how far the scanner has seen, so that a fresh
view catches up first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from activities.cluster.api.connection import ClusterConnection, JsonObject
from activities.cluster.watch.freshness import (
    ManagementCluster,
    Marks,
    Probe,
    ViewLimits,
    WatchProgress,
    listed,
    longest_silence,
    shortest_silence,
)
from activities.cluster.watch.reflector import WatchLimits
from activities.cluster.watch.watches import Following, Watches
from policy.checks.circuit_breakers import OpenReason
from policy.checks.fence_policies import DEFAULT_SOURCE, PolicySource
from policy.checks.health_check import Overlap, RetryRules
from policy.objects.machines import MachineView
from policy.objects.nodes import NodeView
from policy.preservation.preservation_index import PreservationIndex
from policy.preservation.requests import Pool
from policy.remediation.memory import DEFAULT_RETRIES
from policy.remediation.remediation_objects import REMEDIATORS, Remediator
from policy.scan.data_at_risk import DataAtRisk
from policy.scan.ledger import Ledger
from policy.scan.scan_report import AtRisk, ClusterLease, ScanReport, ViewState
from policy.scan.view_state import LargestLately, digest, view_fault, view_state
from policy.values.object_refs import Dialect, Mistaken

SHORTEST_WAIT = 0.001
LONGEST_WAIT = 60.0
JUST_PASSED = 0.02

NO_MARKS: Marks = {}


class ClusterView:
    """Nodes and health checks of one cluster, as fresh as the watches bring them."""

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        limits: ViewLimits | None = None,
        watch_limits: WatchLimits | None = None,
        clock: Callable[[], datetime] | None = None,
        machines: ClusterConnection | None = None,
        overlap: Overlap = Overlap.STRICTEST,
        takeover: bool = False,
        at_risk: DataAtRisk | None = None,
        source: PolicySource = DEFAULT_SOURCE,
        pools: Iterable[Pool] = (),
        retries: RetryRules = DEFAULT_RETRIES,
        remediators: tuple[Remediator, ...] = REMEDIATORS,
    ) -> None:
        self.connection = connection
        self.ledger = Ledger(sees_all_nodes=False, overlap=overlap, retries=retries)
        self.at_risk = at_risk or DataAtRisk()
        self._preservation_index = PreservationIndex(pools)
        self.stamp = 0
        """Another number after each change of what a report might say."""
        self._limits = limits or ViewLimits()
        self._clock = clock or connection.now
        self._waiting: set[asyncio.Event] = set()
        self._whole_since: float | None = None
        self._broken_since: float | None = None
        self._seen_at = float("-inf")
        self._shrunk_since: float | None = None
        self._largest = LargestLately()
        self._believed = 0
        self._saw = False
        self.watches = Watches(
            connection,
            self.ledger,
            machines=machines,
            clock=self.now,
            on_change=self.wake_scans,
            on_state=self._state_changed,
            limits=watch_limits,
            takeover=takeover,
            source=source,
            patience=self._limits.broken.total_seconds(),
            at_risk=self.at_risk,
            preservation_index=self._preservation_index,
            remediators=remediators,
        )
        self._progress = WatchProgress(self.watches, believed_gone=self._limits.shrunk)
        self._probe = self._probe_of(connection)
        self._management = ManagementCluster(
            self.watches, self._limits, self._probe_of(machines) if machines is not None else None
        )

    def _probe_of(self, connection: ClusterConnection) -> Probe:
        return Probe(
            connection,
            on_answer=self.wake_scans,
            on_return=partial(self.watches.retry, connection),
            every=self._limits.probe.total_seconds(),
            again=self._limits.probe_again.total_seconds(),
        )

    # Life

    async def close(self) -> None:
        await self._probe.stop()
        await self._management.stop()
        await self.watches.stop()

    # What it says

    @property
    def synced(self) -> bool:
        """Whether every collection of the cluster itself has been listed."""
        return all(reflector.synced for reflector in self.watches.here())

    @property
    def cluster_uid(self) -> str:
        """The uid of kube-system, "" while it is not known."""
        return self._probe.uid

    @property
    def check_objects(self) -> dict[str, JsonObject]:
        """The policy objects as last seen, by the key of their reference."""
        return self.watches.intake.objects

    @property
    def fencing(self) -> str:
        """A digest of the policies that name devices, "" where there is none, or not all is listed."""
        return self.watches.fencing() if self.synced else ""

    @property
    def asked(self) -> bool:
        """Whether something in the cluster asks us to look after nodes, or for one of them."""
        return bool(self.check_objects) or self.watches.requests.asking or self._preservation_index.asked

    @property
    def mistaken(self) -> tuple[Mistaken, ...]:
        """What is wrong with objects and is published on them: preservation annotations that mean nothing, and identities that
        two Nodes have."""
        return self._preservation_index.mistakes, self.ledger.strange

    def now(self) -> datetime:
        """The moment by which verdicts are judged: the connection's, never later than our own clock says."""
        return self._clock()

    def seen_at(self, now: datetime) -> datetime | None:
        """Up to when all was followed and the API server answered, by the clock that says now; None where it never did."""
        ago = asyncio.get_running_loop().time() - self._seen_at
        return now - timedelta(seconds=ago) if ago != float("inf") else None

    def report(
        self,
        *,
        lease: ClusterLease,
        known_inventory: int = 0,
        marks: Marks = NO_MARKS,
        watching: Collection[str] = (),
        notified: Iterable[tuple[str, str]] = (),
        begun: Collection[str] = (),
        spells: Collection[str] = (),
        doubt: str = "",
    ) -> ScanReport:
        """The whole report at this moment. known_inventory, marks: the size and the versions the scanner has seen. begun: the
        machines that it has had kept. notified: what the episodes of watched nodes were last notified of. spells: nodes with an
        open spell. doubt: why nothing that this worker sees may be acted on, "" for no reason."""
        now = self._clock()
        self._note_freshness()
        self.watches.hold_back(now)
        fault = self._inventory_fault(known_inventory, len(self.ledger), now) if self.synced else ""
        view = self._state(now, doubt or self._trouble() or self._progress.behind(marks) or fault)
        self._note_blindness(view, now)
        preservations, more = self._preservation_index.needs(
            now,
            self.ledger.sickness_of,
            self.ledger.sick_nodes,
            failing=self.ledger.failing(now, watching) if self._preservation_index.keeps_failed else None,
            begun=begun,
            doubt=self.watches.pools_doubt,
            mode=self.ledger.mode_for_pool,
        )
        parts = replace(
            self.ledger.report_parts(now, watching, self._preservation_index.exempt, notified, spells),
            at_risk=self._what_is_at_risk(),
            preservations=preservations,
            preservations_left_out=more,
        )
        if fault or not self.synced:
            parts = replace(parts, inventory=known_inventory)
        self._believed = parts.inventory
        return ScanReport(
            digest=digest(parts, view=view, lease=lease, cluster_uid=self.cluster_uid),
            at=now,
            resource_version=self._progress.nodes_version(marks),
            check_versions=self._progress.check_versions(marks),
            view=view,
            lease=lease,
            cluster_uid=self.cluster_uid,
            **{each.name: getattr(parts, each.name) for each in fields(parts)},
        )

    def _what_is_at_risk(self) -> AtRisk:
        volumes = self.watches.volumes
        problem = volumes.problem if volumes is not None and not volumes.streaming else ""
        return replace(self.at_risk.report(), problem=problem)

    def doubt(self) -> str:
        """Why nothing may be said of single targets by what this view shows (S18), "" where it may.

        Also on a worker that has reported nothing yet: what is to be held back is so from here on.
        """
        now = self._clock()
        self._note_freshness()
        self.watches.hold_back(now)
        fault = self._inventory_fault(self._believed, len(self.ledger), now) if self.synced else ""
        return self._state(now, self._trouble() or fault).stale

    def follow_claims(self) -> bool:
        """Follow from now on all that can claim a machine (S39), whether or not there is a policy. Whether all Nodes and Machines
        are known, and nothing speaks against what is known of them."""
        return self.watches.follow_claims() and self.synced and not self.doubt()

    def nodes(self) -> Iterable[NodeView]:
        return self.ledger.nodes()

    def machines_claiming(self, node: NodeView) -> Iterable[MachineView]:
        return self.ledger.machines_claiming(node)

    def fence_objects(self) -> list[JsonObject] | None:
        """All FencingTemplates and FenceConfigs, None where not all are known."""
        return self.watches.fence_objects()

    def fence_maps(self) -> Mapping[str, Any] | None:
        """What the ConfigMaps of fence configuration say, by name; None where not all are known."""
        return self.watches.fence_maps()

    def contested(self, node: NodeView) -> str:
        """Which other object claims to be that Node's machine, in words; "" for none (S39)."""
        return self.ledger.contested(node)

    # Waiting

    def wake_scans(self) -> None:
        """Let every waiting scan draw up a new report."""
        self.stamp += 1
        self.look_again()

    async def changed(self, since: int, seconds: float) -> None:
        """Wait until `stamp` is another than `since`, or until something can change by time alone, at most so long.

        Exact to about a millisecond: the wait ends just after the moment at which a verdict expires.
        """
        if self.stamp != since:
            return
        self._probe.ask_if_due(self._quiet())
        self._management.ask_if_due()
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            async with asyncio.timeout(max(min(seconds, *self._moments()), SHORTEST_WAIT)):
                await event.wait()
        except TimeoutError:
            return
        finally:
            self._waiting.discard(event)

    def look_again(self) -> None:
        """Let every waiting scan go on, though no report would say anything else than before."""
        for event in self._waiting:
            event.set()

    def shows_until(self) -> float:
        """The moment of the loop's clock at which a report can change though nothing happens."""
        return asyncio.get_running_loop().time() + min(self._moments())

    async def gather(self, until: float) -> None:
        """Let more changes come until that moment of the loop's clock, or until time itself changes something."""
        pause = until - asyncio.get_running_loop().time()
        if (due := self.ledger.next_due) is not None:
            pause = min(pause, (due - self._clock()).total_seconds() + SHORTEST_WAIT)
        if pause > 0:
            await asyncio.sleep(pause)

    async def first_list(self, *, before: float) -> None:
        """Wait a little for a view that has just been started. `before`: a moment of the loop's clock, as below."""
        loop = asyncio.get_running_loop()
        end = min(loop.time() + self._limits.first_list.total_seconds(), before)
        while self._still_listing() and loop.time() < end:
            await self.changed(self.stamp, end - loop.time())

    async def catch_up(self, marks: Marks, *, before: float) -> None:
        """Where another worker has seen more than we have: wait for our watch, then take a list. Gives up quietly: the report
        says that the view is behind."""
        loop = asyncio.get_running_loop()
        end = min(loop.time() + self._limits.catch_up.total_seconds(), before)
        while self._progress.behind(marks) and loop.time() < end:
            await self.changed(self.stamp, 0.1)
        lagging = {key: copy for key, copy in self._progress.lagging(marks).items() if not (copy.absent or copy.problem)}
        if not lagging or self._in_trouble():
            return
        lists, end = _lists_of(lagging), min(loop.time() + self._limits.first_list.total_seconds(), before)
        for copy in lagging.values():
            await copy.relist()
        while any(_lists_of(lagging)[key] == lists[key] for key in lagging) and loop.time() < end:
            await self.changed(self.stamp, end - loop.time())
        self._progress.drop(marks, [key for key in lagging if lagging[key].lists > lists[key]])

    # Changes

    def _state_changed(self) -> None:
        self._note_freshness()
        self.wake_scans()

    def _note_freshness(self) -> None:
        """Since when the view is whole, and since when it is broken. A kind may leave what makes it whole by time alone.

        One that is followed from now on, as with the first check, has yet to be listed: that says nothing of the nodes, and so
        the grace does not begin anew with it.
        """
        now = asyncio.get_running_loop().time()
        here = self.watches.here()
        if any(reflector.lists and not reflector.synced for reflector in here):
            self._whole_since = None
        elif self.synced and self._whole_since is None:
            self._begin_grace(now)
        if not all(reflector.streaming for reflector in here if reflector.synced):
            self._broken_since = self._broken_since or now
        elif self._broken_since is not None:
            if self._whole_since is not None and now - self._broken_since > self._limits.broken.total_seconds():
                # While we could not reach the API, nodes may not have been able to say that they are well.
                self._begin_grace(now)
            self._broken_since = None
        if self._broken_since is None:
            self._seen_at = max(self._probe.answered_at, now - self._quiet())
        self._hold()

    def _begin_grace(self, now: float) -> None:
        self._whole_since = now
        if self._saw:
            self.ledger.blind()  # also where no report was asked for meanwhile

    # Staleness

    def _note_blindness(self, view: ViewState, now: datetime) -> None:
        """A view that has only begun was not blind: what it starts from, the objects' status says."""
        if not view.stale:
            self._saw = True
            self.ledger.sees(now)
        elif self._saw:
            self.ledger.blind()

    def _hold(self) -> None:
        """Checks that are judged by what can't be followed wait, and only they."""
        unlisted = self.watches.unlisted()
        for dialect in Dialect:
            missing = [reflector for reflector, dialects in unlisted.items() if dialect in dialects]
            why = f"can't list {listed(missing)}" if missing else ""
            if dialect is Dialect.CLUSTER_API:
                why = self._management.lost() or why
            self.ledger.hold_back(dialect, OpenReason.STALE_MACHINES, why)
            if dialect is Dialect.NODE_FENCING:
                self.watches.intake.doubt_policies(why)

    def _state(self, now: datetime, fault: str) -> ViewState:
        state = view_state(
            synced_at=now - timedelta(seconds=self._whole_for()) if self._whole_since is not None else None,
            confirmed_until=now - timedelta(seconds=self._longest_silence()) if self.synced else None,
            now=now,
            silence_limit=self._limits.silence,
            grace=self._limits.grace,
            fault=fault,
        )
        unlisted = self.watches.unlisted()
        notices = [f"can't list {listed(unlisted)}: checks that need it wait"] if unlisted else []
        more = filter(None, (self.connection.skewed, self.ledger.ignored_text))
        state = replace(state, notice="; ".join([*notices, *more]))
        why = self._probe.problem or next((reflector.problem for reflector in self.watches.here() if reflector.problem), "")
        return state if state.synced or not why else replace(state, stale=f"{state.stale}: {why}")

    def _whole_for(self) -> float:
        return asyncio.get_running_loop().time() - (self._whole_since or 0.0)

    def _quiet(self) -> float:
        return shortest_silence(self.watches.here())

    def _longest_silence(self) -> float:
        return longest_silence(self.watches.here())

    def _still_listing(self) -> bool:
        """Whether a first list is still to come, and nothing says that it won't come soon."""
        missing = self._management.never_listed()
        here = not (self.synced and self.cluster_uid) and not self._in_trouble()
        return here or (bool(missing) and not any(each.problem for each in missing))

    def _in_trouble(self) -> bool:
        return bool(self._probe.problem) or any(reflector.problem for reflector in self.watches.here())

    def _trouble(self) -> str:
        return self._probe.problem or self._broken() or self._management.unlisted()

    def _broken(self) -> str:
        if (
            self._broken_since is None
            or asyncio.get_running_loop().time() - self._broken_since < self._limits.broken.total_seconds()
        ):
            return ""
        return f"the watch is down on {listed(each for each in self.watches.here() if not each.streaming)}"

    def _inventory_fault(self, known: int, size: int, now: datetime) -> str:
        """known: the size that a scanner has believed last. By the loop's clock, which is never set: five minutes are not over
        because a worker was suspended."""
        elapsed = asyncio.get_running_loop().time()
        largest = max(known, self._largest.note(size, timedelta(seconds=elapsed), within=self._limits.shrunk))
        since = self._shrunk_since
        lasting = now - timedelta(seconds=elapsed - since) if since is not None else None
        fault = view_fault(largest, size, shrunk_since=lasting, now=now, accept_after=self._limits.shrunk)
        if since is not None and not fault:
            self._largest.forget()
        self._shrunk_since = (elapsed if since is None else since) if fault else None
        return fault

    def _moments(self) -> list[float]:
        """Seconds until each moment at which a report can change though nothing happens."""
        elapsed = asyncio.get_running_loop().time()
        moments = [
            self._limits.silence.total_seconds() - self._longest_silence(),
            self._probe.seconds_left(self._quiet()),
            *self._management.moments(),
        ]
        if self._whole_since is not None:
            moments.append(self._limits.grace.total_seconds() - self._whole_for())
        if self._broken_since is not None:
            moments.append(self._broken_since + self._limits.broken.total_seconds() - elapsed)
        if (unlisted := self.watches.next_unlisted()) is not None:
            moments.append(unlisted)
        if self._shrunk_since is not None:
            moments.append(self._shrunk_since + self._limits.shrunk.total_seconds() - elapsed)
        # Those that have passed are in the report already, but for the time it took to get here.
        moments = [moment for moment in moments if moment > -JUST_PASSED]
        if (preservation := self._preservation_index.next_due(self._clock())) is not None:
            moments.append((preservation - self._clock()).total_seconds())
        if self.ledger.next_due is not None:
            moments.append((self.ledger.next_due - self._clock()).total_seconds())
        return moments or [LONGEST_WAIT]


def _lists_of(copies: Mapping[str, Following]) -> dict[str, int]:
    return {key: copy.lists for key, copy in copies.items()}
