"""One whole system under chaos: accidents, faults, people, and an audit after every fault.

What a round does is drawn before it begins, from the seed and its number: which nodes break and how, which faults strike when and
for how long. The moments at which processes meet them are the machine's own. Between rounds everything is repaired as an operator
would: devices first, then the questions of episodes are answered, and what nodewarden leaves alone is switched on by hand.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import cycle
from math import ceil
from random import Random
from typing import Any
from uuid import uuid4

import yaml
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.service import RPCError

from activities.cluster.api.lease_view import NODE_LEASE_NAMESPACE
from policy.episode.messages import EpisodeStatus, Outcome, Phase, scanner_id
from policy.episode.permits import PermitState
from policy.values.mode import Mode
from simulator.api.server import ApiServer
from simulator.api.storage.store import Snapshot
from simulator.client import ApiError
from simulator.node import NodeFault, NodeState
from simulator.objects import OUT_OF_SERVICE, has_taint, is_ready, name_of, uid_of
from starter.client import Nodewarden
from starter.errors import MissingError, RefusedError, RequestError
from starter.handles.calls import CANNOT_REPLAY
from starter.handles.status import ClusterStatus
from tests.system.chaos.faults import FAULTS, WHY, Fault
from tests.system.chaos.recorder import BY_HAND, Finding, Recorder, Silence, Wrong
from tests.system.harness import TEMPLATE, TEMPLATE_NAMESPACE, TEMPLATES, System
from tests.system.questions import acts, episode, is_open
from tests.system.witness import LEASE_LEFT, Before, left_over
from tests.system.worker_process import WorkerProcess
from workers.configuration.settings import load

ACCIDENTS = ("kernel-hangs", "kernel-hangs", "kubelet-stops", "kubelet-stops", "runtime-down", "power-cut")
STORMY = 0.06
"""How often more nodes break at once than the check's minHealthy allows to repair."""
REST_WITHIN = 600.0
"""Seconds for all repairs of a round, after its faults are undone."""
STORM_LASTS = 20.0
LOOK_EVERY = 2.0
"""Each look asks every open episode, and is work for the workers."""
ARMED_BEFORE = 0.2
BREAK_A_SECOND = 2.0
"""So many nodes, where many break: a cluster is not hit by one accident in one moment."""
PLAN = {"actDeadline": "15s", "offTimeout": "30s"}
"""Patience with BMCs that share a busy machine with all that goes on here; the deadline is the product's own."""
LONGEST_ACT = 15.0
"""Seconds, by that plan."""
PATIENT = 15.0
SECOND = "second"
"""The Temporal namespace of a second deployment."""
LOST_ENDS = frozenset({"failed", "terminated", "timed-out", "canceled", "unreadable"})


@dataclass(slots=True)
class Worker:
    """One of the arena's."""

    process: WorkerProcess
    frozen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """One node of a round: how it breaks, and how many seconds after the round's beginning."""

    node: str
    how: str
    after: float = 0.0

    def __str__(self) -> str:
        return f"{self.node} {self.how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One fault of a round: on which node, when after the round's beginning (armed ones: shortly before the node breaks), for how
    long."""

    fault: Fault
    node: str
    after: float
    lasts: float

    def __str__(self) -> str:
        when = "armed" if self.fault.armed else f"after {self.after:.1f} s"
        return f"{self.fault.name} ({self.node}, {when}, for {self.lasts:.1f} s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What is done."""

    number: int
    broken: tuple[Breakdown, ...]
    strikes: tuple[Strike, ...]
    storm: bool

    def __str__(self) -> str:
        storm = "storm: " if self.storm else ""
        accidents = ", ".join(str(each) for each in self.broken)
        return f"round {self.number}: {storm}{accidents}; {'; '.join(str(each) for each in self.strikes)}"


def drawn(seed: int, number: int, nodes: list[str], needed: int, faults: tuple[Fault, ...]) -> Round:
    """The round of that number: the same for the same seed. needed: nodes that must be well for an episode to be opened. A larger
    cluster has more that breaks, one after the other, and more faults; they strike as many nodes as there are."""
    rng = Random(f"{seed}/{number}")
    storm = rng.random() < STORMY
    most, times = len(nodes) - needed, max(1, len(nodes) // 24)
    count = most + 1 if storm else rng.randint(3 * most // 4, most)
    spread = 0.0 if storm else count / BREAK_A_SECOND
    broken = tuple(
        Breakdown(node=node, how="kubelet-stops" if storm else rng.choice(ACCIDENTS), after=rng.uniform(0, spread))
        for node in rng.sample(nodes, count)
    )
    kills, others = ([fault for fault in faults if fault.kills is kills] for kills in (True, False))
    if storm:  # in which nothing is commanded
        kills = [fault for fault in kills if "in mid power" not in fault.name]
    more_kills = kills * min(times, 2)  # a large cluster meets the same one twice
    kill_count, other_count = rng.randint(3 * times // 2, 3 * times), rng.randint(times, 3 * times)
    chosen = [
        *rng.sample(more_kills, min(kill_count, len(more_kills))),
        *rng.sample(others, min(other_count, len(others))),
    ]
    chosen = [fault for fault in chosen if not any(other.name == fault.never_with for other in chosen)]
    orders = [at for at, fault in enumerate(chosen) if fault.name.endswith("an act")]  # a worker obeys one order at a time
    apart, *others_struck = rng.sample([each.node for each in broken], count)
    struck = cycle(others_struck)
    strikes = tuple(
        Strike(
            fault=fault,
            node=apart if fault.alone else next(struck),
            after=rng.uniform(0, 9 + spread),
            lasts=rng.uniform(*fault.lasts),
        )
        for at, fault in enumerate(chosen)
        if at not in orders[1:]
    )
    return Round(number=number, broken=broken, strikes=strikes, storm=storm)


class Arena:
    """A `System` that stands, its recorder, and the hands that disturb it. `prepare` it, then `play` rounds."""

    def __init__(self, system: System, *, seed: int, workers: int, stack: AsyncExitStack) -> None:
        """It has a permit for every sixth node, three at least; as many have to be well as `System.health_check` says."""
        assert system.cluster.api is not None
        cap, needed = max(3, len(system.cluster.nodes) // 6), ceil(len(system.cluster.nodes) * 0.51)
        self.system = system
        self.warden: Nodewarden = system.warden
        self.name = system.cluster_name
        self.api: ApiServer = system.cluster.api
        self.stack = stack
        self.cap = cap
        self.number = 0
        self.counts: Counter[str] = Counter()
        self.episodes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.audits = 0
        self.journal: list[tuple[datetime, str]] = []
        self.activities: list[str] = []
        self.of_temporal, self.of_api = asyncio.Lock(), asyncio.Lock()
        self.recorder = Recorder(system.cluster, cap=cap, workers_needed=needed)
        self._seed = seed
        self._needed = needed
        self._wanted = workers
        self._workers: list[Worker] = []
        self._dying: set[int] = set()
        self._before: dict[str, Before] = {}
        self._lapsing: set[str] = set()
        self._devices: dict[str, Any] = {}
        self._counted: set[str] = set()
        self._terminated: set[str] = set()
        self._possible = tuple(fault for fault in FAULTS if not fault.left_out)

    async def prepare(self) -> None:
        """Workers, policy, scanner, and one episode that nothing disturbs: its history says what can be killed."""
        await self._know_second_deployment()
        await self.fill_up()
        await self.system.apply_policy(plan=PLAN)
        await self.system.start_scanner(cap=self.cap)
        await self.system.settled()
        self._size = len(self.system.cluster.nodes)
        await self._meet_nodes()
        node = self.system.node_of_pod("demo/database-0")
        self.recorder.breaks(node, "kernel-hangs")
        await self.system.ended(self.system.break_node(node), seconds=90)
        self.activities = sorted({"episodes.open", "scan.observe-cluster", *await acts(self.system, node)})
        await self._rest(storm=False)
        await self._audit_at_rest(datetime.now(UTC) - timedelta(minutes=5))

    async def _meet_nodes(self) -> None:
        """How each new one stands, and its device in the template, as who installs machines does it; that of one that is gone
        stays there."""
        new = [name for name in self.system.cluster.nodes if name not in self._before]
        for name in new:
            self._before[name] = Before.of(self.system.cluster, name)
        if len(self._before) > self._size and new:
            template = self.system.fencing_template(PLAN)
            (device,) = template["spec"]["template"]["spec"]["power"]
            self._devices |= device["nodeParameters"]
            device["nodeParameters"] = self._devices
            path = TEMPLATES.path(TEMPLATE, namespace=TEMPLATE_NAMESPACE)
            await self.insists("new devices", lambda: self.system.client.patch(path, {"spec": template["spec"]}))

    # Rounds ----------------------------------------------------------------------------------------------------------

    def drawn(self, number: int) -> Round:
        """See `drawn`."""
        return drawn(self._seed, number, sorted(self.system.cluster.nodes), self._needed, self._possible)

    async def play(self, plan: Round) -> None:
        """One round, until all is at rest and judged."""
        self.number = plan.number
        began = datetime.now(UTC)
        self.note(str(plan))
        breaks_after = {each.node: each.after for each in plan.broken}
        strikes = [self._strike(each, breaks_after[each.node] if each.fault.armed else each.after) for each in plan.strikes]
        async with asyncio.TaskGroup() as tasks:  # where one fails, the others end while workers and Temporal still stand
            for each in (*strikes, *(self._break(each) for each in plan.broken)):
                tasks.create_task(each)
        nodes = [each.node for each in plan.broken]
        asked = next((node for node in nodes if self.is_marked(node)), nodes[0])
        await asyncio.gather(self._explain(asked), self._rest(storm=plan.storm))
        await asyncio.gather(self._explain(nodes[0]), self._audit_at_rest(began))
        self.recorder.forget()

    async def _break(self, breakdown: Breakdown) -> None:
        await asyncio.sleep(ARMED_BEFORE + breakdown.after)
        if self.system.cluster.nodes[breakdown.node].state is NodeState.OFF and breakdown.how != NodeFault.POWER_CUT:
            self.note(f"{breakdown.node} does not break ({breakdown.how}): a person has it off now")
            return
        self.recorder.breaks(breakdown.node, breakdown.how)
        self.system.cluster.break_node(breakdown.node, breakdown.how)

    async def _strike(self, strike: Strike, after: float) -> None:
        """Counted is what came about: not a command that a person was refused, nor a moment that did not come."""
        fault, rng = strike.fault, Random(f"{self._seed}/{self.number}/{strike.fault.name}/{strike.node}")
        await asyncio.sleep(after)
        async with asynccontextmanager(fault.strike)(self, strike.node, rng) as has_struck:
            if has_struck:
                self.note(f"{fault.name} strikes {strike.node}")
                self.faults[fault.name] += 1
                self._audit()
                await asyncio.sleep(strike.lasts)
        self.note(f"{fault.name} is over")
        self._audit()
        await self.look()

    def _audit(self) -> None:
        self.audits += 1
        self.recorder.audit()

    async def _explain(self, node: str) -> None:
        """The command as a person gives it, held against the record where nothing has changed meanwhile."""
        before = self.recorder.nodes[node].marks.open
        said = self.system.folder / "explain.log"
        process = await self.system.command("explain", node, "--output", "json", log=said)
        try:
            async with asyncio.timeout(60):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            code = await process.wait()
        if code == 0 and self.recorder.nodes[node].marks.open == before:
            text = said.read_text()
            told, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])  # warnings are there, too
            self.recorder.audit_explanation(node, told)

    async def look(self) -> ClusterStatus | None:
        """Everything that `status` says, held against the record; None where it does not answer now."""
        try:
            async with asyncio.timeout(PATIENT):
                status = await self.warden.status(self.name)
        except (RequestError, TimeoutError, OSError):
            return None
        except RPCError as error:
            self.recorder.find(Wrong.UNTRUE, f"status was answered with {error!r} and no sentence (S44)")
            return None
        for each in status.episodes:
            self.recorder.audit_status(each)
        if status.scanner is not None:
            self.recorder.words += 1
            held = [permit.node for permit in status.scanner.permits if permit.state is not PermitState.PARKED]
            if len(held) > self.cap:
                self.recorder.find(Wrong.ABOVE_BUDGET, f"the scanner shows permits of {', '.join(held)}")
        return status

    async def _rest(self, *, storm: bool) -> None:
        """Until all is as it was, by nodewarden's own work and what an operator has to do."""
        began, quiet, status = time.monotonic(), 0, None
        await self.fill_up()
        while time.monotonic() - began < REST_WITHIN:
            status = await self.look()
            if status is not None:
                await self._end_what_is_stuck(status)
            if status is not None and status.scanner is not None:
                await self._take_back(status)
                await self._answer(status, storm=storm and time.monotonic() - began > STORM_LASTS)
                scanner = status.scanner
                open_ones = [*status.episodes, *status.silent, *scanner.permits, *scanner.queue]
                quiet = quiet + 1 if self._is_whole() and not open_ones else 0
                if quiet == 2:
                    await self._meet_nodes()
                    return
            await asyncio.sleep(0.7 if quiet else LOOK_EVERY)
        self.recorder.find(Wrong.LOST, f"not at rest {REST_WITHIN:.0f} s after the faults were undone: {self._where(status)}")

    async def _take_back(self, status: ClusterStatus) -> None:
        """What a request has done that arrived after its answer was given up, and what took it back came before it."""
        assert status.scanner is not None
        scanner = self.warden.scanner(self.name)
        if status.scanner.pauses:
            await self.says("unpause", scanner.unpause(who=WHY, reason=WHY))
        for rule in status.scanner.modes.rules:
            if rule.mode is not Mode.REPAIR:
                mode = "unset" if rule.nodes else "repair"
                await self.says(f"mode set {mode}", scanner.set_mode(mode, who=WHY, reason=WHY, nodes=rule.nodes))
        for each in status.episodes:
            if each.held_by:
                held = self.warden.episode(self.name, each.node)
                await self.says("resume", held.resume(who=WHY, reason=WHY, question=each.question))

    def _is_whole(self) -> bool:
        return self.system.at_rest() and sum(1 for _ in self.system.cluster.view.nodes) == self._size

    async def _end_what_is_stuck(self, status: ClusterStatus) -> None:
        """What `status` says to do with an episode that no worker can go on with: the SDK may write a history that it can't read
        (temporalio/sdk-python#1591), after an update to a workflow with a task that had timed out. A scanner has to go on by
        itself."""
        for each in status.silent:
            if CANNOT_REPLAY in each.problem:
                self.counts["stuck episodes terminated"] += 1
                self.note(each.problem)
                with self.disturbed(each.node, "terminated"):
                    await self.says("temporal workflow terminate", self.terminate(each.node))
                    await asyncio.sleep(2 * LONGEST_ACT)

    async def _answer(self, status: ClusterStatus, *, storm: bool) -> None:
        """What an operator does who reads that status: repairs devices, answers questions, helps what is left alone."""
        assert status.scanner is not None
        for each in status.episodes:
            if each.phase is Phase.NEEDS_HUMAN:
                self._repair(each)
                asking = self.warden.episode(self.name, each.node)
                await self.says("resume", asking.resume(who=WHY, reason="repaired", question=each.question))
        busy = {each.node for each in (*status.episodes, *status.silent)} | {each.node for each in status.scanner.permits}
        alone = {each.node for each in status.scanner.held_off}
        for node in self.system.cluster.view.nodes:
            name = node["metadata"]["name"]
            if name not in busy and not is_ready(node) and (name in alone or storm):
                self.counts["nodes helped by hand"] += 1
                self.heal(name)
                await self.system.cluster.chassis.machine(name).set_power("on")

    def _repair(self, seen: EpisodeStatus) -> None:
        self.counts["questions answered"] += 1
        if seen.node not in self.system.cluster.nodes:
            return
        self.system.cluster.platform.heal(seen.node)
        if self.system.cluster.node(seen.node).fault == "never-boots":
            self.heal(seen.node)

    async def _audit_at_rest(self, since: datetime) -> None:
        """Nothing of ours is left, every episode has ended with a result, and what it says was so."""
        self._audit()
        for before in self._before.values():
            problems = await left_over(self.system.cluster, before)
            if LEASE_LEFT not in problems:
                self._lapsing.discard(before.node)
            for problem in problems:
                if problem == LEASE_LEFT and before.node in self._lapsing:
                    continue
                self.recorder.find(Wrong.LEFT_OVER, f"{before.node}: {problem}")
            is_there = before.node in self.system.cluster.nodes
            if is_there and self.system.cluster.chassis.machine(before.node).power != "on":
                self.recorder.find(Wrong.LOST, f"{before.node} is off")
        ended = await self.warden.history.ended(self.name, since=since - timedelta(seconds=30))
        for each in ended.episodes:
            if each.run_id in self._counted:
                continue
            self._counted.add(each.run_id)
            self.episodes[f"{each.kind.value}: {each.outcome}"] += 1
            if each.outcome in LOST_ENDS and each.run_id not in self._terminated:
                self.recorder.find(Wrong.LOST, f"{each.kind.value} {each.incident} of {each.node} {each.outcome}: {each.message}")
            if each.result is not None:
                self.recorder.audit_result(each.result)
                if each.result.check and each.outcome != Outcome.REFUSED:
                    self.recorder.audit_opening(each.node, each.started)
        self.recorder.audit_owners([each.result for each in ended.episodes if each.result is not None])

    # Hands -----------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[Worker]:
        return [each for each in self._workers if each.process.alive]

    def any_worker(self, rng: Random) -> Worker:
        """One that runs, if there is one."""
        return rng.choice([each for each in self.alive if not each.frozen] or self.alive or self._workers)

    async def start_worker(self, *, environment: Mapping[str, str] | None = None) -> Worker:
        """One beside the others, which the arena does not replace."""
        return Worker(await self.system.start_worker(environment=environment))

    async def kill_worker(self, worker: Worker) -> bool:
        """False where it had ended already, also while this was waiting for its end."""
        if killed := worker.process.alive and id(worker) not in self._dying:
            self._dying.add(id(worker))
            await worker.process.kill()
            self._dying.discard(id(worker))
            self.counts["kills of workers"] += 1
        return killed

    async def kill_temporal(self) -> bool:
        """False where it did not run."""
        if killed := self.system.temporal.running:
            self.counts["kills of Temporal"] += 1
            await self.system.temporal.kill()
        return killed

    async def start_temporal(self) -> None:
        """Where it does not run, by the one that has `of_temporal`; once more where another fault kills it as it starts."""
        for _ in range(5):
            if self.system.temporal.running:
                return
            try:
                await self.system.temporal.start()
            except RuntimeError as error:
                self.note(f"Temporal is started once more: {str(error)[:160]}")
        assert self.system.temporal.running, "Temporal can't be started"

    @staticmethod
    def freeze(worker: Worker) -> None:
        worker.frozen = True
        with suppress(ProcessLookupError):  # other faults may have killed all
            os.kill(worker.process.pid, signal.SIGSTOP)

    @staticmethod
    def thaw(worker: Worker) -> None:
        worker.frozen = False
        with suppress(ProcessLookupError):  # it was killed as it stood still
            worker.process.thaw()

    async def fill_up(self) -> None:
        """As many workers as there should be."""
        while len(self.alive) < self._wanted:
            self._workers = [*self.alive, await self.start_worker()]

    def note(self, text: str) -> None:
        now = datetime.now(UTC)
        self.journal.append((now, text))
        with (self.system.folder / "journal.log").open("a") as file:
            file.write(f"{now:%H:%M:%S} {text}\n")

    def heal(self, node: str) -> None:
        self.system.cluster.heal_node(node)
        self.recorder.nodes[node].at_risk.put("", datetime.now(UTC))

    @contextmanager
    def disturbed(self, node: str, why: str) -> Iterator[None]:
        """Its device misleads."""
        self.recorder.nodes[node].disturbed.put(why, datetime.now(UTC))
        try:
            yield
        finally:
            self.recorder.nodes[node].disturbed.put("", datetime.now(UTC))

    @contextmanager
    def silence(self, node: str | None, *, programs_only: bool = False) -> Iterator[None]:
        """People have been answered that no machine is switched off: that of the node, "" all. None: they were not."""
        if node is None:
            yield
            return
        silence = Silence(node=node, began=datetime.now(UTC), programs_only=programs_only)
        self.recorder.silences.append(silence)
        try:
            yield
        finally:
            silence.ended = datetime.now(UTC)

    def another(self, node: str, rng: Random) -> str:
        """A node that is well, if there is one."""
        others = [name for name in self.system.cluster.nodes if name != node]
        well = [name for name in others if self.recorder.nodes[name].at_risk.open is None]
        return rng.choice(well or others)

    def asks_for(self, node: str) -> None:
        """A person wants it switched off."""
        self.recorder.breaks(node, BY_HAND)

    async def until_open(self, node: str, rng: Random) -> bool:
        """Until some moment of the node's episode, or half a minute is over: False."""
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                while True:
                    with suppress(RPCError, RequestError):
                        if await is_open(self.system, node):
                            break
                    await asyncio.sleep(0.3)
            await asyncio.sleep(rng.uniform(0, 7))
            return True
        return False

    async def _know_second_deployment(self) -> None:
        """Another one for the same cluster: its settings and its client. It has workers only while it strikes."""
        self._second_config = self.system.folder / "second.yaml"
        written = yaml.safe_load(self.system.config.read_text())
        written["temporal"]["namespace"], written["state"] = SECOND, str(self.system.folder / "second-state")
        self._second_config.write_text(yaml.safe_dump(written))
        settings, address = load(config=self._second_config), self.system.temporal.address
        self._second = await self.stack.enter_async_context(Nodewarden.connect(settings, address=address, namespace=SECOND))

    @asynccontextmanager
    async def second_deployment(self) -> AsyncIterator[bool]:
        """Whether its scanner has said in time that the cluster Lease is another's, which it waits for from then on."""
        worker = await self.system.start_worker(config=self._second_config)
        try:
            with suppress(RequestError, RPCError, TimeoutError, OSError):
                async with asyncio.timeout(PATIENT):
                    await self._second.start_scanner(self.name, cap=self.cap)
                    while not await self._is_refused():
                        await asyncio.sleep(0.5)
            yield await self._is_refused()
        finally:
            await worker.kill()

    async def _is_refused(self) -> bool:
        with suppress(RequestError, RPCError):
            report = (await self._second.scanner_status(self.name)).report
            return report is not None and not report.lease.held and bool(report.lease.holder)
        return False

    async def delete_machine(self, node: str) -> None:
        fleet = self.system.cluster.machines
        path = fleet.system.machines.path(fleet.of_node(node), namespace=fleet.system.namespace)
        await self.system.client.delete(path)

    async def terminate(self, node: str) -> None:
        """Its open episode, by Temporal's own command."""
        handle = episode(self.system, node)
        now = await handle.describe()
        await handle.terminate(WHY)
        self._terminated.add(now.run_id or "")
        self.recorder.nodes[node].outages.put("", datetime.now(UTC))

    async def reset_scanner(self, rng: Random) -> None:
        """To one of its last ten workflow tasks."""
        handle = self.warden.client.get_workflow_handle(scanner_id(self.name))
        now = await handle.describe()
        tasks = [
            event.event_id
            async for event in handle.fetch_history_events()
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        ]
        await self.warden.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=self.warden.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=now.run_id),
                reason=WHY,
                request_id=str(uuid4()),
                workflow_task_finish_event_id=rng.choice(tasks[-10:]),
            )
        )

    def pods(self) -> dict[str, str]:
        """Which pod is where."""
        return {uid_of(pod): str(pod["spec"].get("nodeName")) for pod in self.system.cluster.view.pods}

    def has_volumes(self, node: str) -> bool:
        return any(True for _ in self.system.cluster.view.attachments_by_node[node])

    def restore(self, saved: Snapshot) -> None:
        """etcd as it was. An episode takes its mark away before its Lease of the node: a backup from between the two brings back
        a Lease without a mark. That one lapses, so it keeps no other operator out, and the node's next episode takes it with it.
        A Lease with a mark has to go: the scanner opens an episode for that."""
        held = self._leased()
        self.api.store.restore(saved)
        self._lapsing |= {node for node in self._leased() - held if not self.is_marked(node)}

    def _leased(self) -> set[str]:
        leases = self.api.store.documents("leases", "coordination.k8s.io", NODE_LEASE_NAMESPACE)
        return {name_of(lease).removeprefix("node-") for lease in leases}

    def is_marked(self, node: str) -> bool:
        return self.recorder.nodes[node].marks.open is not None

    def any_out_of_service(self) -> bool:
        return any(has_taint(node, OUT_OF_SERVICE) for node in self.system.cluster.view.nodes)

    async def wait_for(self, condition: Callable[[], bool], *, seconds: float) -> None:
        """Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.05)

    @staticmethod
    @contextmanager
    def patiently() -> Iterator[None]:
        """What does not come about is not waited for any longer."""
        with suppress(TimeoutError):
            yield

    async def question(self, node: str) -> int:
        """The number of what the node's episode asks now, 0 where it can't be asked."""
        try:
            async with asyncio.timeout(PATIENT):
                return (await self.warden.episode(self.name, node).status()).question
        except (RequestError, TimeoutError):
            return 0

    async def asked(self, node: str, *, seconds: float) -> int:
        """The number of what the node's episode asks, once it needs a person; of what it asks then, where it does not in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    with suppress(RequestError):
                        status = await self.warden.episode(self.name, node).status()
                        if status.phase is Phase.NEEDS_HUMAN:
                            return status.question
                    await asyncio.sleep(0.5)
        return await self.question(node)

    async def says(self, what: str, command: Awaitable[Any]) -> bool:
        """A person's command; False where it was refused, or not answered in time."""
        try:
            async with asyncio.timeout(2 * PATIENT):
                await command
        except (RequestError, RPCError, TimeoutError, ApiError, OSError) as error:
            if isinstance(error, RPCError) and not what.startswith("temporal workflow"):
                self.recorder.find(Wrong.UNTRUE, f"{what} was answered with {error!r} and no sentence (S44)")
            self.counts[f"refused: {what}"] += 1
            self.note(f"{what}: {type(error).__name__}: {str(error)[:160]}")
            return False
        self.counts[f"done: {what}"] += 1
        self.note(f"{what}: done")
        return True

    async def insists(self, what: str, command: Callable[[], Awaitable[Any]], *, of_scanner: bool = False) -> None:
        """A command that is said again until it is answered: done, or refused because there is nothing to do. of_scanner: which
        another fault may have stopped, until it is started again."""
        for _ in range(20):
            try:
                async with asyncio.timeout(2 * PATIENT):
                    await command()
            except (RefusedError, MissingError) as error:
                self.note(f"{what}: {error}"[:200])
                if of_scanner and isinstance(error, MissingError):
                    await asyncio.sleep(2)
                    continue
                return
            except (RequestError, RPCError, TimeoutError, ApiError, OSError) as error:
                self.note(f"{what}: {type(error).__name__}, once more")
                await asyncio.sleep(2)
            else:
                self.note(f"{what}: done")
                return
        self.recorder.find(Wrong.LOST, f"{what} was never answered")

    def expect_refused(self, done: bool, what: str) -> None:
        if done:
            self.recorder.find(Wrong.UNTRUE, f"{what} was accepted (S48)")

    # What is printed -------------------------------------------------------------------------------------------------

    def before(self, finding: Finding) -> str:
        """The journal's last lines before it."""
        lines = [f"{at:%H:%M:%S} {text}" for at, text in self.journal if at <= finding.at]
        return "\n    ".join(lines[-8:])

    def _where(self, status: ClusterStatus | None) -> str:
        if status is None or status.scanner is None:
            return f"no scanner answers{f': {status.problem}' if status else ''}"
        parts = [f"{each.node} {each.phase.value}: {each.doing} {each.problem}" for each in status.episodes]
        parts += [f"{each.node} does not answer: {each.problem}" for each in status.silent]
        parts += [f"permit of {each.node} {each.state.value}" for each in status.scanner.permits]
        parts += [f"{each.node} is left alone: {each.reason}" for each in status.scanner.held_off]
        parts += [f"{each.node} waits: {each.message}" for each in status.scanner.refused]
        nodes = [node for node in self.system.cluster.view.nodes if not is_ready(node) or node["spec"].get("unschedulable")]
        parts += [f"{node['metadata']['name']} {'is cordoned' if is_ready(node) else 'is not Ready'}" for node in nodes]
        return "; ".join(parts) or "pods are not where they should be"
