"""A worker that stands still for a while (SIGSTOP, a suspended laptop) and goes on: what it was about to do comes late (S45).

Real processes: a worker stops itself at an exact moment, another one or a whole second deployment goes on without it, and only
then it is continued. What it must not write or send is `tests/cluster/acts/test_writes.py` and
`tests/cluster/acts/test_last_look.py`. One system for both stories, in this order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from policy.episode.messages import EpisodeStatus, Outcome, Phase, episode_id
from simulator.client import ApiError
from simulator.resources import LEASES
from starter.client import Nodewarden
from tests.system import impatient_worker
from tests.system.fixtures import Standing
from tests.system.harness import System
from tests.system.witness import NODE_LEASES, Before, PowerLog
from tests.system.worker_process import KillOrder, When, WorkerProcess
from workers.configuration.settings import load
from workflows.definitions.episodes import Fencing

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

VICTIM = "demo/database-0"


@pytest.fixture(scope="module")
async def system(standing: Standing) -> AsyncIterator[System]:
    async with standing() as running:
        await running.start_worker()
        await running.apply_policy()
        await running.start_scanner()
        yield running


async def has_node_lease(system: System, node: str) -> bool:
    try:
        await system.client.get(LEASES.path(f"node-{node}", namespace=NODE_LEASES))
    except ApiError as error:
        if not error.not_found:
            raise
        return False
    return True


async def a_worker_that_stands_still(system: System, order: KillOrder) -> tuple[WorkerProcess, Before]:
    """The only worker is frozen by the order, while the victim's node is fenced. Answers how the node was before, too."""
    await system.settled()
    worker = system.workers[0]
    worker.obey(order)
    before = system.break_node(system.node_of_pod(VICTIM))
    await system.until(lambda: worker.obeyed, f"the worker stands still {order.when} {order.activity}", seconds=60)
    return worker, before


async def test_a_worker_that_is_continued_takes_no_lease_of_a_node_that_is_back(system: System) -> None:
    """S45: it was about to; 25 s after the node was back it took the node's lease, and nobody was left to give it back."""
    order = KillOrder(when=When.BEFORE, activity="target.last-look", freezes=True)
    frozen, before = await a_worker_that_stands_still(system, order)
    other = await system.start_worker()
    result = await system.ended(before, seconds=150)
    assert result.outcome is Outcome.RECOVERED
    assert not await has_node_lease(system, before.node)

    await other.stop()
    status = await system.scanner()
    scans = status.scans if status is not None else 0
    frozen.thaw()

    async def scans_again() -> bool:
        now = await system.scanner()
        return now is not None and now.scans > scans + 1

    await system.until(scans_again, "the worker that stood still works again", seconds=90, tolerate=True)
    assert not await has_node_lease(system, before.node)


class SecondDeployment:
    """Another Temporal namespace with a worker and a scanner of its own, for the same cluster under the same name."""

    def __init__(self, system: System, namespace: str) -> None:
        self._system = system
        self.namespace = namespace
        self.config: Path = system.folder / "second.yaml"

    async def start(self) -> None:
        """Its scanner waits for the Lease from now on."""
        written = yaml.safe_load(self._system.config.read_text())
        written["temporal"]["namespace"] = self.namespace
        written["state"] = str(self._system.folder / "second-state")
        self.config.write_text(yaml.safe_dump(written))
        worker = await WorkerProcess.start(
            self._system.folder, config=self.config, name="second", module=impatient_worker.__name__
        )
        self._system.workers.append(worker)
        connection = Nodewarden.connect(load(config=self.config), address=self._system.temporal.address, namespace=self.namespace)
        async with connection as warden:
            await warden.start_scanner(self._system.cluster_name, cap=1)


async def test_a_deployment_that_was_superseded_while_it_stood_still_switches_nothing_on(
    system: System, free_namespaces: list[str]
) -> None:
    """S5, S38: it had taken its taint off and was about to switch on. Meanwhile the other one has taken the Lease and the node,
    and has commanded an off of its own: an on in between would undo the proof under which pods are freed."""
    order = KillOrder(when=When.AFTER, activity="power-management.untaint-out-of-service", freezes=True)
    first, before = await a_worker_that_stands_still(system, order)
    machine = system.cluster.chassis.machine(before.node)
    assert PowerLog.of(machine, before).count("off") == 1

    second = SecondDeployment(system, free_namespaces.pop(0))
    await second.start()
    await system.until(
        lambda: PowerLog.of(machine, before).count("off") == 2, "the second deployment commands its off", seconds=120
    )
    first.thaw()

    episode = system.warden.client.get_workflow_handle_for(Fencing.run, episode_id(system.cluster_name, before.node))
    seen: list[EpisodeStatus] = []

    async def waits() -> bool:
        status = await episode.query(Fencing.status)
        seen.append(status)
        return status.phase in {Phase.NEEDS_HUMAN, Phase.FINAL}

    await system.until(waits, "the first deployment gives way", seconds=60, tolerate=True)
    assert seen[-1].phase is Phase.NEEDS_HUMAN
    gives_way = (
        "the node is held by Fencing",
        "calls the out-of-service taint its own",
        "the node's lease is held by 'nodewarden/",
    )
    assert any(each in seen[-1].problem for each in gives_way), seen[-1].problem
    await system.settled(seconds=120)
    log = PowerLog.of(machine, before)
    assert (log.count("off"), log.count("on")) == (2, 1), log.commands
    assert log.transitions == ["on→off", "off→on"]
    assert not [each for each in system.witness.tainted_at_power_on if each.at >= before.at]
