"""Every fault that the chaos run strikes with, as data: its name, who does it in life, how it is done and undone here.

A fault is a generator: it strikes up to its one `yield`, which says whether it came about, and is undone after it. Some arm a
moment before the accident (`armed`), the others strike while episodes go on. `left_out` says why a fault can't be made on this
machine.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from policy.objects.nodes import EXCLUDE_LABEL
from simulator.api.control.faults import Accident, restarting
from simulator.api.control.faults import Fault as ApiFault
from simulator.bmc.bmc import start_bmc
from simulator.bmc.machine import Machine
from simulator.platforms.contract import DeviceFault
from simulator.platforms.ipmi import Ipmi
from simulator.resources import NODES, SECRETS
from tests.system.questions import episode
from tests.system.worker_process import KillOrder, When

if TYPE_CHECKING:
    from tests.system.chaos.arena import Arena

OURS = "^nodewarden/"
LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
WHY = "chaos"
Strike = Callable[["Arena", str, Random], AsyncIterator[bool]]
"""On a node, with dice of its own: strikes up to its one yield, and is undone after it. It yields False where nothing came about:
a person was refused, a moment did not come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One row. lasts: seconds, the fewest and the most. armed: it strikes a moment before the accident. alone: no other fault of
    a round strikes its node. never_with: a fault that is not in the same round. left_out: why it can't be had here, "" where it
    can."""

    name: str
    in_life: str
    how: str
    undone: str
    strike: Strike
    lasts: tuple[float, float] = (0.0, 0.0)
    armed: bool = False
    alone: bool = False
    never_with: str = ""
    left_out: str = ""

    @property
    def kills(self) -> bool:
        """Whether it ends processes: each round has one that does."""
        return "killed" in self.name


def _api_faults(*faults: ApiFault) -> Strike:
    async def strike(arena: Arena, _node: str, _rng: Random) -> AsyncIterator[bool]:
        ids = [arena.api.faults.add(fault) for fault in faults]
        try:
            yield True
        finally:
            for each in ids:
                arena.api.faults.remove(each)

    return strike


def _device(fault: DeviceFault) -> Strike:
    async def strike(arena: Arena, node: str, _rng: Random) -> AsyncIterator[bool]:
        with arena.disturbed(node, fault.value):
            arena.system.cluster.break_node(node, fault.value)
            try:
                yield True
            finally:
                arena.system.cluster.platform.heal(node)

    return strike


# Processes --------------------------------------------------------------------------------------------------------------


async def _worker_killed(arena: Arena, _node: str, rng: Random) -> AsyncIterator[bool]:
    yield await arena.kill_worker(arena.any_worker(rng))
    await arena.fill_up()


async def _workers_killed(arena: Arena, _node: str, _rng: Random) -> AsyncIterator[bool]:
    yield any(await asyncio.gather(*(arena.kill_worker(each) for each in arena.alive)))
    await arena.fill_up()


def _at_a_moment(when: When, *, freezes: bool = False) -> Strike:
    async def strike(arena: Arena, _node: str, rng: Random) -> AsyncIterator[bool]:
        order = KillOrder(when=when, activity=rng.choice(arena.activities), freezes=freezes)
        armed = [each for each in arena.alive if not each.frozen]
        for each in armed:
            each.process.obey(order)
        with arena.patiently():
            await arena.wait_for(lambda: any(each.process.obeyed for each in armed), seconds=rng.uniform(12, 16))
        struck = [each for each in armed if not each.process.forget_order()]
        if struck:
            arena.counts[f"{'frozen' if freezes else 'killed'} {order}"] += len(struck)
        if freezes:
            yield bool(struck)
            for each in struck:
                arena.thaw(each)
        elif struck:
            arena.counts["kills of workers"] += len(struck)
            await asyncio.gather(*(each.process.wait() for each in struck))
            yield True
        else:  # the moment has not come: any moment
            yield await arena.kill_worker(arena.any_worker(rng))
        await arena.fill_up()

    return strike


def _in_mid_power(when: When, *, worker: bool, temporal: bool) -> Strike:
    """While a device has a command in hand: before the machine has followed it, or after, but before the device has answered."""

    async def strike(arena: Arena, node: str, rng: Random) -> AsyncIterator[bool]:
        struck, over, command = asyncio.Event(), asyncio.Event(), rng.choice(("off", "off", "on"))
        machine = arena.system.cluster.chassis.machine(node)

        async def kill(_machine: Machine, commanded: str) -> None:
            if commanded != command or struck.is_set():
                return
            struck.set()
            arena.counts[f"killed in mid power-{command}, {when.value} its effect"] += 1
            if worker:  # which of them sent it is not known here
                await asyncio.gather(*(arena.kill_worker(each) for each in arena.alive))
            if temporal:
                await arena.kill_temporal()
            over.set()

        if when is When.BEFORE:
            machine.before_set = kill
        else:
            machine.after_set = kill
        try:
            with arena.patiently():
                await arena.wait_for(over.is_set, seconds=60)
            yield over.is_set()
        finally:
            machine.before_set = machine.after_set = None
            async with arena.of_temporal:
                await arena.start_temporal()
            await arena.fill_up()

    return strike


async def _worker_frozen(arena: Arena, _node: str, rng: Random) -> AsyncIterator[bool]:
    worker = arena.any_worker(rng)
    arena.freeze(worker)
    try:
        yield True
    finally:
        arena.thaw(worker)


async def _temporal_killed(arena: Arena, _node: str, _rng: Random) -> AsyncIterator[bool]:
    async with arena.of_temporal:
        try:
            yield await arena.kill_temporal()
        finally:
            await arena.start_temporal()


async def _temporal_frozen(arena: Arena, _node: str, _rng: Random) -> AsyncIterator[bool]:
    temporal = arena.system.temporal
    async with arena.of_temporal:
        await arena.start_temporal()
        os.kill(temporal.pid, signal.SIGSTOP)
        try:
            yield True
        finally:
            if temporal.running:  # it may have been killed meanwhile, in mid command
                os.kill(temporal.pid, signal.SIGCONT)


async def _disk_full(arena: Arena, _node: str, _rng: Random) -> AsyncIterator[bool]:
    temporal = arena.system.temporal
    async with arena.of_temporal:
        await arena.start_temporal()
        largest = max(path.stat().st_size for path in temporal.database.parent.glob(f"{temporal.database.name}*"))
        soft, hard = resource.prlimit(temporal.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(temporal.pid, resource.RLIMIT_FSIZE, (largest // 2, hard))
        try:
            yield True
        finally:
            if temporal.running:
                resource.prlimit(temporal.pid, resource.RLIMIT_FSIZE, (soft, hard))
            await arena.start_temporal()


async def _clock_jumps(arena: Arena, _node: str, rng: Random) -> AsyncIterator[bool]:
    """A worker whose clock follows a file; it comes beside the others and goes with the fault."""
    clock = arena.system.folder / f"clock-{arena.number}"
    clock.write_text("+0\n")
    environment = {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    worker = await arena.start_worker(environment=environment)
    try:
        await asyncio.sleep(8)
        for jump in rng.sample(("+600", "-600", "+40", "-40", "+7200"), 2):
            clock.write_text(f"{jump}\n")
            await asyncio.sleep(5)
        yield True
        clock.write_text("+0\n")
    finally:
        await arena.kill_worker(worker)


# The API server ---------------------------------------------------------------------------------------------------------


async def _api_killed(arena: Arena, _node: str, _rng: Random) -> AsyncIterator[bool]:
    async with arena.of_api:
        await arena.system.kill_api()
        arena.counts["kills of the API server"] += 1
        try:
            yield True
        finally:
            for fault in restarting(forbidden=12, initializing=6, user_agent=OURS):
                arena.api.faults.add(fault)
            await arena.system.start_api()


async def _api_restored(arena: Arena, node: str, rng: Random) -> AsyncIterator[bool]:
    """To what it was before the node was marked. Only while its pods are still there: what else a restore breaks is no one's
    fault of ours."""
    saved, pods, restored = arena.api.store.snapshot(), arena.pods(), False
    with arena.patiently():
        async with asyncio.timeout(30):
            while not arena.is_marked(node):
                if not arena.any_out_of_service():
                    saved, pods = arena.api.store.snapshot(), arena.pods()
                await asyncio.sleep(0.4)
            await asyncio.sleep(rng.uniform(0, 1.2))
            if arena.pods() == pods and not arena.any_out_of_service():
                arena.restore(saved)
                restored = True
    yield restored


# People -----------------------------------------------------------------------------------------------------------------


async def _aborts(arena: Arena, node: str, rng: Random) -> AsyncIterator[bool]:
    await arena.until_open(node, rng)
    power_on = rng.random() < 0.5
    yield await arena.says("abort", arena.warden.episode(arena.name, node).abort(who=WHY, reason=WHY, power_on=power_on))


async def _holds(arena: Arena, node: str, rng: Random) -> AsyncIterator[bool]:
    await arena.until_open(node, rng)
    held_one = arena.warden.episode(arena.name, node)
    held = await arena.says("hold", held_one.hold(who=WHY, reason=WHY))
    with arena.silence(node if held else None):
        yield held
    question = await arena.question(node)
    await arena.insists("resume", lambda: held_one.resume(who=WHY, reason=WHY, question=question))


async def _pauses(arena: Arena, _node: str, _rng: Random) -> AsyncIterator[bool]:
    scanner = arena.warden.scanner(arena.name)
    paused = await arena.says("pause", scanner.pause(who=WHY, reason=WHY))
    with arena.silence("" if paused else None):
        yield paused
    await arena.insists("unpause", lambda: scanner.unpause(who=WHY, reason=WHY), of_scanner=True)


async def _observes(arena: Arena, node: str, rng: Random) -> AsyncIterator[bool]:
    scanner = arena.warden.scanner(arena.name)
    names = (node,) if rng.random() < 0.5 else ()
    lowered = await arena.says("mode set observe", scanner.set_mode("observe", who=WHY, reason=WHY, nodes=names))
    with arena.silence("".join(names) if lowered else None, programs_only=True):
        yield lowered
    mode = "unset" if names else "repair"
    await arena.insists(f"mode set {mode}", lambda: scanner.set_mode(mode, who=WHY, reason=WHY, nodes=names), of_scanner=True)


async def _excludes(arena: Arena, node: str, _rng: Random) -> AsyncIterator[bool]:
    """S6: from programs and people alike."""
    labels = {EXCLUDE_LABEL: "true"}
    await arena.insists("exclude", lambda: arena.system.client.patch(NODES.path(node), {"metadata": {"labels": labels}}))
    with arena.silence(node):
        yield True
    labels = {EXCLUDE_LABEL: None}
    await arena.insists("include", lambda: arena.system.client.patch(NODES.path(node), {"metadata": {"labels": labels}}))


async def _rotates_the_password(arena: Arena, _node: str, _rng: Random) -> AsyncIterator[bool]:
    """The Secret is ahead of the devices."""
    platform, (namespace, name) = arena.system.cluster.platform, arena.system.cluster.bmc_secret
    path, wrong = SECRETS.path(name, namespace=namespace), {"stringData": dict(platform.wrong_secret())}
    await arena.insists("rotate", lambda: arena.system.client.patch(path, wrong))
    yield True
    await arena.insists("rotate back", lambda: arena.system.client.patch(path, {"stringData": dict(platform.secret())}))


async def _terminates(arena: Arena, node: str, rng: Random) -> AsyncIterator[bool]:
    """What it had in flight is not known to the next one, which may command again. Its permit ends with it."""
    await arena.until_open(node, rng)
    with arena.disturbed(node, "terminated"):
        yield await arena.says("temporal workflow terminate", arena.terminate(node))


async def _cancels(arena: Arena, node: str, rng: Random) -> AsyncIterator[bool]:
    await arena.until_open(node, rng)
    yield await arena.says("temporal workflow cancel", episode(arena.system, node).cancel())


async def _resets_the_scanner(arena: Arena, _node: str, rng: Random) -> AsyncIterator[bool]:
    yield await arena.says("temporal workflow reset", arena.reset_scanner(rng))


async def _fences_by_hand(arena: Arena, node: str, rng: Random) -> AsyncIterator[bool]:
    other = arena.another(node, rng)
    arena.asks_for(other)
    yield await arena.says("fence", arena.warden.fence(arena.name, other, reason=WHY, requester=WHY))


async def _remediates_by_hand(arena: Arena, node: str, rng: Random) -> AsyncIterator[bool]:
    other = arena.another(node, rng)
    arena.asks_for(other)
    how = ["reboot=1m"] if rng.random() < 0.7 else ["fence"]
    asked = arena.warden.remediate(arena.name, other, reason=WHY, requester=WHY, strategies=how)
    yield await arena.says("remediate", asked)


async def _preserves(arena: Arena, node: str, rng: Random) -> AsyncIterator[bool]:
    other = arena.another(node, rng)
    hold = timedelta(seconds=rng.uniform(10, 20))
    preserved = await arena.says("preserve", arena.warden.preserve(arena.name, other, reason=WHY, requester=WHY, hold=hold))
    yield preserved
    if preserved and rng.random() < 0.7:
        await arena.says("release", arena.warden.episode(arena.name, other).release(who=WHY, reason=WHY))


async def _pulls_the_plug(arena: Arena, node: str, _rng: Random) -> AsyncIterator[bool]:
    """The device is silent; a person pulls the plug, and says so when asked."""
    with arena.disturbed(node, "bmc-dead"):
        arena.system.cluster.break_node(node, DeviceFault.DEAD.value)
        try:
            question = await arena.asked(node, seconds=150)  # when all tries are used up
            await arena.system.cluster.chassis.machine(node).set_power("off")
            asking = arena.warden.episode(arena.name, node)
            yield await arena.says("ack-off", asking.ack_off(who=WHY, reason="I have pulled the plug", question=question))
        finally:
            arena.system.cluster.platform.heal(node)


async def _answers_an_old_question(arena: Arena, node: str, rng: Random) -> AsyncIterator[bool]:
    """S48: of a question that was never asked."""
    is_open = await arena.until_open(node, rng)
    asking = arena.warden.episode(arena.name, node)
    answer = await arena.says("resume of another question", asking.resume(who=WHY, reason=WHY, question=977))
    arena.expect_refused(answer, "a resume that names a question that was never asked")
    yield is_open


async def _stops_scanning(arena: Arena, _node: str, _rng: Random) -> AsyncIterator[bool]:
    stopped = await arena.says("scan stop", arena.warden.stop_scanner(arena.name, who=WHY, reason=WHY))
    with arena.silence("" if stopped else None):
        yield stopped
    await arena.insists("scan start", lambda: arena.warden.start_scanner(arena.name, cap=arena.cap))


async def _second_deployment(arena: Arena, _node: str, _rng: Random) -> AsyncIterator[bool]:
    """Another Temporal namespace, with a worker and a scanner of its own, for the same cluster under the same name (S38). It goes
    before a Lease lapses that is not renewed."""
    async with arena.second_deployment() as waits_for_the_lease:
        yield waits_for_the_lease


async def _deletes_the_machine(arena: Arena, node: str, rng: Random) -> AsyncIterator[bool]:
    """In the middle of the node's episode, as an autoscaler does, too. Its MachineSet makes another one. Not of a
    node with volumes: nothing drains it here, and Kubernetes itself takes six minutes to detach them."""
    await arena.until_open(node, rng)
    yield not arena.has_volumes(node) and await arena.says("delete machine", arena.delete_machine(node))


# Nodes and devices ------------------------------------------------------------------------------------------------------


async def _comes_back(arena: Arena, node: str, _rng: Random) -> AsyncIterator[bool]:
    if is_on := arena.system.cluster.chassis.machine(node).power == "on":
        arena.heal(node)
    yield is_on


async def _does_not_boot(arena: Arena, node: str, _rng: Random) -> AsyncIterator[bool]:
    arena.system.cluster.break_node(node, "never-boots")
    try:
        yield True
    finally:
        arena.heal(node)


async def _answers_for_a_sibling(arena: Arena, node: str, rng: Random) -> AsyncIterator[bool]:
    """At the node's address stands another machine's BMC, as after a lease of DHCP that was handed on (S39)."""
    platform = arena.system.cluster.platform
    assert isinstance(platform, Ipmi)
    sibling, own = arena.another(node, rng), platform.bmcs[node]
    uuids = {name: platform.bmcs[name].system_uuid for name in (node, sibling)}

    async def stand_in(machine: str, place: str) -> None:
        platform.bmcs[node] = await start_bmc(
            arena.system.cluster.chassis.url, machine, platform.username, platform.password,
            state_dir=arena.system.folder / f"{place}-{arena.number}-{node}",
            kind=own.kind, system_uuid=uuids[machine], port=own.port,
        )  # fmt: skip
        arena.stack.push_async_callback(platform.bmcs[node].stop)

    with arena.disturbed(node, "answers for a sibling"):
        await own.stop()
        await stand_in(sibling, "sibling")
        try:
            yield True
        finally:
            await platform.bmcs[node].stop()
            await stand_in(node, "own")


def _people(name: str, how: str, strike: Strike, undone: str = "-", lasts: tuple[float, float] = (0, 0)) -> Fault:
    return Fault(name=name, in_life="an operator", how=how, undone=undone, strike=strike, lasts=lasts)


NEXT = "another worker is started"
FAULTS: Sequence[Fault] = (
    Fault(name="worker killed", in_life="out-of-memory killer, a node's death", how="SIGKILL", undone=NEXT,
          strike=_worker_killed, lasts=(0, 4)),
    Fault(name="all workers killed", in_life="a bad roll-out, a zone", how="SIGKILL of each", undone="all are started again",
          strike=_workers_killed, lasts=(1, 8)),
    Fault(name="worker killed before an act", in_life="the same, at the worst moment", how="SIGKILL as an activity begins",
          undone=NEXT, strike=_at_a_moment(When.BEFORE), armed=True),
    Fault(name="worker killed after an act", in_life="the same", how="SIGKILL when the effect is there and not reported",
          undone=NEXT, strike=_at_a_moment(When.AFTER), armed=True),
    Fault(name="workers killed in mid power command", in_life="the same", how="SIGKILL before the machine follows", undone=NEXT,
          strike=_in_mid_power(When.BEFORE, worker=True, temporal=False), armed=True),
    Fault(name="workers and Temporal killed in mid power command", in_life="a zone", how="SIGKILL before the device answers",
          undone="all are started again", strike=_in_mid_power(When.AFTER, worker=True, temporal=True), armed=True),
    Fault(name="Temporal killed in mid power command", in_life="an outage", how="SIGKILL before the machine follows",
          undone="started again", strike=_in_mid_power(When.BEFORE, worker=False, temporal=True), armed=True),
    Fault(name="worker frozen before an act", in_life="a suspended VM", how="SIGSTOP as an activity begins",
          undone="SIGCONT past every deadline", strike=_at_a_moment(When.BEFORE, freezes=True), lasts=(20, 30),
          armed=True),
    Fault(name="worker frozen", in_life="a suspended VM, swapping", how="SIGSTOP", undone="SIGCONT",
          strike=_worker_frozen, lasts=(8, 30)),
    Fault(name="clock jumps", in_life="NTP, a restored VM", how="libfaketime in one worker: two jumps of -600 to +7200 s",
          undone="it jumps back, and the worker goes", strike=_clock_jumps, lasts=(2, 6),
          left_out="" if LIBRARIES else "not installed: faketime (package faketime)"),
    Fault(name="Temporal killed", in_life="an outage", how="SIGKILL", undone="started on the same database",
          strike=_temporal_killed, lasts=(0, 8)),
    Fault(name="Temporal frozen", in_life="a stalled disk", how="SIGSTOP", undone="SIGCONT",
          strike=_temporal_frozen, lasts=(3, 12)),
    Fault(name="Temporal's disk full", in_life="a disk", how="RLIMIT_FSIZE of half its database", undone="the limit is raised",
          strike=_disk_full, lasts=(3, 10), left_out="" if hasattr(resource, "prlimit") else "no prlimit on this system"),
    Fault(name="API server killed", in_life="an upgrade", how="connections dropped; back 403 at first, then 503",
          undone="started", strike=_api_killed, lasts=(0.2, 1.5)),
    Fault(name="API server half-open", in_life="a lost route, a proxy", how="it accepts and never answers; watches fall silent",
          undone="it answers again",
          strike=_api_faults(ApiFault(accident=Accident.HALF_OPEN, user_agent=OURS),
                             ApiFault(accident=Accident.DELAY, user_agent=OURS, latency=timedelta(minutes=10))), lasts=(3, 20)),
    Fault(name="API answers lost", in_life="a connection that breaks", how="six of our writes are carried out and not answered",
          undone="-", strike=_api_faults(*(ApiFault(accident=Accident.LOSE_ANSWER, method=each, user_agent=OURS, count=2)
                                          for each in ("PATCH", "PUT", "DELETE"))), lasts=(10, 15)),
    Fault(name="API overloaded", in_life="priority and fairness", how="429, then 503 to twenty requests of ours", undone="-",
          strike=_api_faults(ApiFault(accident=Accident.STATUS, status=429, retry_after=1, user_agent=OURS, count=10),
                             ApiFault(accident=Accident.STATUS, status=503, user_agent=OURS, count=10)), lasts=(5, 10)),
    Fault(name="etcd restored", in_life="a backup", how="the store as it was before the node was marked", undone="-",
          strike=_api_restored, armed=True),
    *(Fault(name=each.value, in_life="firmware, network", how=each.name.lower().replace("_", " "), undone="repaired",
            strike=_device(each), lasts=(6, 20), armed=True)
      for each in (DeviceFault.LIES, DeviceFault.IGNORES_OFF, DeviceFault.HANGS, DeviceFault.DEAD, DeviceFault.REFUSES,
                   DeviceFault.SLOW, DeviceFault.FOLLOWS_LATE)),
    Fault(name="bmc of a sibling", in_life="an address handed on by DHCP", how="another machine's BMC at the node's address",
          undone="its own again", strike=_answers_for_a_sibling, lasts=(8, 15), armed=True),
    Fault(name="comes back by itself", in_life="a network that was away", how="the node's software goes on", undone="-",
          strike=_comes_back),
    Fault(name="does not boot", in_life="firmware", how="the machine stays in its firmware after power-on", undone="it boots",
          strike=_does_not_boot, lasts=(10, 20), armed=True),
    _people("abort", "with power on, or without", _aborts),
    _people("hold", "hold of the node's episode", _holds, "resume", (3, 10)),
    _people("pause", "pause of the cluster", _pauses, "unpause", (3, 12)),
    _people("mode observe", "for the node or for all", _observes, "unset, or repair", (3, 12)),
    _people("exclude label", "remediation.medik8s.io/exclude-from-remediation", _excludes, "taken away", (4, 14)),
    _people("password rotated", "the Secret is ahead of the devices", _rotates_the_password, "the right one again", (4, 14)),
    _people("episode terminated", "temporal workflow terminate", _terminates, "-", (25, 30)),
    _people("episode cancelled", "temporal workflow cancel", _cancels),
    _people("scanner reset", "temporal workflow reset, to one of its last ten tasks", _resets_the_scanner),
    _people("fence by hand", "of a well node", _fences_by_hand),
    _people("remediate by hand", "reboot or fence a well node", _remediates_by_hand),
    _people("preserve", "a well node for 10 to 20 s", _preserves, "release, or its end", (4, 10)),
    Fault(name="plug pulled, ack-off", in_life="an operator", how="of a machine with a silent device",
          undone="the device answers", strike=_pulls_the_plug, lasts=(4, 4), armed=True),
    _people("answer to an old question", "resume of question 977", _answers_an_old_question),
    Fault(name="Machine deleted", in_life="an operator, an autoscaler", how="the Machine of a node that is broken",
          undone="its MachineSet makes another one", strike=_deletes_the_machine, alone=True),
    Fault(name="second deployment", in_life="another team installs it, too", how="a worker and a scanner of its own for 25 s",
          undone="it goes", strike=_second_deployment, lasts=(5, 10), never_with="scan stop"),
    _people("scan stop", "the scanner is stopped", _stops_scanning, "scan start", (3, 12)),
)  # fmt: skip
