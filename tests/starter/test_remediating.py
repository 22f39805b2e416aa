"""People and programs that have a node remediated: the typed client and the command, against a real Temporal server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from policy.episode.messages import NeedKind, RemediationInput
from starter.client import Nodewarden
from starter.errors import EpisodeHeldError
from tests.starter.keyboard import nodewarden


async def sent(warden: Nodewarden, cluster: str, node: str) -> RemediationInput:
    """What the workflow was started with."""
    history = await warden.client.get_workflow_handle(f"episode/{cluster}/{node}").fetch_history()
    payloads = history.events[0].workflow_execution_started_event_attributes.input.payloads
    (found,) = await warden.client.data_converter.decode(payloads, [RemediationInput])
    return found  # type: ignore[no-any-return]


async def test_a_remediation_starts_with_all_that_people_look_for(warden: Nodewarden, cluster: str) -> None:
    begun = await warden.remediate(
        cluster, "node-1", reason="disk is dying", requester="amy", strategies=["reboot=10m", "delete-machine"]
    )
    described = await warden.client.get_workflow_handle(begun.workflow_id, run_id=begun.run_id).describe()
    assert (described.workflow_type, described.id) == ("Remediation", f"episode/{cluster}/node-1")
    assert {pair.key.name: pair.value for pair in described.typed_search_attributes}["Kind"] == "Remediation"
    asked = await sent(warden, cluster, "node-1")
    assert asked.strategies == ("reboot=10m", "delete-machine")
    assert asked.need is not None
    assert (asked.need.kind, asked.need.requester) == (NeedKind.PERSON, "amy")
    assert (asked.ladder, asked.permit_granted, asked.machine_uid) == (None, False, "")


async def test_the_same_wish_joins_and_another_one_is_refused(warden: Nodewarden, cluster: str) -> None:
    """S13: also where only the steps differ."""
    first = await warden.remediate(cluster, "node-1", reason="smoke", strategies=["reboot"])
    again = await warden.remediate(cluster, "node-1", reason="smoke", strategies=["reboot"])
    assert (again.joined, again.run_id) == (True, first.run_id)
    with pytest.raises(EpisodeHeldError, match=r"Remediation \w+ \(running\): smoke"):
        await warden.remediate(cluster, "node-1", reason="smoke", strategies=["delete-machine"])
    with pytest.raises(EpisodeHeldError, match=r"Remediation \w+ \(running\): smoke"):
        await warden.fence(cluster, "node-1", reason="smoke")


async def test_remediate_at_the_keyboard_names_its_steps_in_their_order(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    words = (
        "remediate",
        "node-1",
        "--with",
        "reboot=10m",
        "--with",
        "delete-machine=1h",
        "--reason",
        "smoke",
        "--who",
        "amy",
        "-y",
    )
    begun = await nodewarden(*words)
    assert (begun.exit_code, begun.stdout.split(" (")[0]) == (0, "started remediation of node-1: it has its permit"), begun.output
    assert (await sent(warden, cluster, "node-1")).strategies == ("reboot=10m", "delete-machine=1h")
    joined = json.loads((await nodewarden(*words, "-o", "json")).stdout)
    assert (joined["joined"], joined["permit"], joined["workflowId"]) == (True, True, f"episode/{cluster}/node-1")
    other = await nodewarden("remediate", "begin", "node-1", "--reason", "noise", "-y")
    assert (other.exit_code, "nodewarden: node-1 is held by Remediation " in other.stderr) == (3, True)


async def test_a_machine_without_a_node_is_called_by_its_namespace_and_name(
    keyboard: Path, warden: Nodewarden, cluster: str
) -> None:
    begun = await nodewarden("remediate", "machine/default/w-7", "--reason", "never came up", "-y", "-o", "json")
    assert json.loads(begun.stdout)["workflowId"] == f"episode/{cluster}/machine/default/w-7"
    assert (await sent(warden, cluster, "machine/default/w-7")).node == "machine/default/w-7"
