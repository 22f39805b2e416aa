"""The API server is killed after a machine was switched off, and comes back: forbidden to us first, then half ready, then well.

Nodewarden works with the rights that are shipped, since an administrator is never refused. On a real kube-apiserver it is a real
SIGKILL; the simulated one answers in the same order and in the same words.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
import yaml

from policy.episode.messages import Outcome
from simulator.api.control.faults import restarting
from tests.cel import CelPython
from tests.documents import documents, path_of
from tests.system.fixtures import MakeSystem
from tests.system.harness import System
from tests.system.witness import Before, PowerLog

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

ACCOUNT = "nodewarden"
FORBIDDEN, INITIALIZING = 12, 6
"""Requests that a simulated server refuses while it comes back: more than any single act tries at once."""


async def under_shipped_rights(system: System) -> None:
    """Workers that start from now on are the service account of deploy/rbac.yaml, held to admission.yaml."""
    if system.cluster.api is not None:
        system.cluster.api.admission.cel = CelPython()
    for document in documents("deploy/medik8s-leases.yaml", "deploy/rbac.yaml", "deploy/admission.yaml"):
        if document["kind"] != "Namespace" or document["metadata"]["name"] != ACCOUNT:
            await system.client.create(path_of(document), document)
    token = await system.token_of(f"system:serviceaccount:{ACCOUNT}:{ACCOUNT}")
    kubeconfig = yaml.safe_load(system.cluster.kubeconfig_path.read_text())
    kubeconfig["users"][0]["user"] = {"token": token}
    ours = system.folder / "of-nodewarden" / "kubeconfig"
    ours.parent.mkdir()
    ours.touch(mode=0o600)
    ours.write_text(yaml.safe_dump(kubeconfig))
    settings = yaml.safe_load(system.config.read_text())
    settings["clusters"][system.cluster_name]["kubeconfig"] = str(ours)
    settings["worker"]["signing_keys_secret"] = f"{ACCOUNT}/nodewarden-signing-keys"
    system.config.write_text(yaml.safe_dump(settings))


async def restart_api(system: System) -> None:
    """Killed, away for a moment, and back."""
    await system.kill_api()
    if (api := system.cluster.api) is not None:
        await asyncio.sleep(0.5)
        for fault in restarting(forbidden=FORBIDDEN, initializing=INITIALIZING, user_agent="^nodewarden/"):
            api.faults.add(fault)
    await system.start_api()


async def test_an_api_server_that_is_killed_after_the_power_off_leaves_no_machine_off(make_system: MakeSystem) -> None:
    """S32, S33: a right that is missing for the moment is waited for; the episode ends by itself and nobody is asked."""
    system = await make_system(nodes=5, zones=3)
    await under_shipped_rights(system)
    await system.start_worker()
    await system.apply_policy()
    await system.start_scanner()
    for seconds_after in (0.0, 1.2):
        await system.settled()
        before = system.break_node(system.node_of_pod("demo/database-0"))
        await system.until(partial(_is_off, system, before), f"{before.node} is switched off", seconds=40)
        await asyncio.sleep(seconds_after)
        await restart_api(system)
        result = await system.ended(before, seconds=100)
        assert (result.outcome, result.left_off) == (Outcome.RECOVERED, False), result.message
        assert await system.judge(before, result) == []


def _is_off(system: System, before: Before) -> bool:
    return PowerLog.of(system.cluster.chassis.machine(before.node), before).count("off") > 0
