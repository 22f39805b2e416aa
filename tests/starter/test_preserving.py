"""People and programs that have a node kept: the typed client and the commands, against a real Temporal server."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from policy.episode.messages import NeedKind, Outcome, Phase, PreservationInput, RemediationInput
from policy.values.times import written
from starter.client import Nodewarden
from starter.errors import EpisodeHeldError, MissingError, RefusedError
from starter.handles import status
from starter.handles.episodes import SilentEpisode
from starter.handles.status import PreservedNode, PreservedNodes
from starter.output.status_table import preservations_table
from tests.starter.builders import NOW, nodewarden
from workers.temporal_namespace import holder


async def listed(warden: Nodewarden, cluster: str, count: int) -> PreservedNodes:
    """Visibility lags: until it shows so many."""
    async with asyncio.timeout(10):
        while True:
            found = await warden.preserved(cluster)
            if len(found.preservations) == count:
                return found
            await asyncio.sleep(0.05)


async def test_a_preservation_starts_with_all_that_people_look_for(warden: Nodewarden, cluster: str) -> None:
    """Our name on the cluster Lease goes with it: a drain or a deletion at its end needs it (S38)."""
    kept = await warden.preserve(cluster, "node-1", reason="smells of smoke", requester="amy", hold=timedelta(hours=24))
    handle = warden.client.get_workflow_handle(f"episode/{cluster}/node-1", run_id=kept.run_id)
    described = await handle.describe()
    assert described.workflow_type == "Preservation"
    assert await described.static_summary() == "node-1: smells of smoke"
    attributes = {pair.key.name: pair.value for pair in described.typed_search_attributes}
    assert {"Cluster": cluster, "Node": "node-1", "Kind": "Preservation"}.items() <= attributes.items()
    started = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
    (sent,) = await warden.client.data_converter.decode(started.input.payloads, [PreservationInput])
    assert (sent.keep, sent.hold, sent.machine, sent.holder) == (True, timedelta(hours=24), None, await holder(warden.client))
    assert (await described.memo())["incident"] == sent.incident == (await kept.status()).incident


async def test_who_preserves_a_node_that_is_preserved_joins_and_moves_no_expiry(warden: Nodewarden, cluster: str) -> None:
    """S22: whoever asks, and whatever for."""
    first = await warden.preserve(cluster, "node-1", reason="smoke", requester="amy")
    until = (await first.status()).preserved_until
    again = await warden.preserve(cluster, "node-1", reason="noise", requester="bob", hold=timedelta(hours=1))
    assert (first.joined, again.joined, again.run_id) == (False, True, first.run_id)
    assert (await again.status()).preserved_until == until


async def test_what_holds_a_node_for_something_else_is_named(warden: Nodewarden, cluster: str) -> None:
    """S13, in both directions."""
    fencing = await warden.fence(cluster, "node-1", reason="smoke")
    named = f"Fencing {(await fencing.status()).incident} (in progress): smoke"
    with pytest.raises(EpisodeHeldError) as refusal:
        await warden.preserve(cluster, "node-1", reason="smoke")
    assert refusal.value.holder == named
    for word in (warden.episode(cluster, "node-1").release(who="amy", reason="r"), fencing.extend(who="amy", reason="r")):
        with pytest.raises(RefusedError) as refused:
            await word
        assert str(refused.value) == f"node-1 is not preserved: it has an open {named}"
    await warden.preserve(cluster, "node-2", reason="evidence")
    with pytest.raises(EpisodeHeldError, match=r"Preservation \w+ \(Running:Preserved\): evidence"):
        await warden.fence(cluster, "node-2", reason="smoke")


async def test_it_is_extended_and_released(warden: Nodewarden, cluster: str) -> None:
    kept = await warden.preserve(cluster, "node-1", reason="smoke")
    until = (await kept.status()).started + timedelta(hours=100)
    answer = await warden.episode(cluster, "node-1").extend(who="amy", reason="not done", until=until)
    assert answer == f"node-1 is preserved until {written(until)}"
    assert (await kept.status()).preserved_until == until
    await warden.episode(cluster, "node-1").extend(who="amy", reason="nearly", hold=timedelta(hours=1))
    assert (await kept.status()).preserved_until == (await kept.status()).started + timedelta(hours=1)
    with pytest.raises(RefusedError, match="expected a moment that is still to come"):
        await warden.episode(cluster, "node-1").extend(who="amy", reason="r", until=datetime(2020, 1, 1, tzinfo=UTC))
    assert await warden.episode(cluster, "node-1").release(who="amy", reason="seen enough") == "node-1 is released"
    ended = await kept.result()
    assert (ended.outcome, ended.message) == (Outcome.RELEASED, "released by amy: seen enough")
    with pytest.raises(MissingError, match="no open episode of node-1"):
        await warden.episode(cluster, "node-1").release(who="amy", reason="again")


async def test_all_that_are_kept_are_listed_and_the_first_to_end_is_first(
    warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await warden.fence(cluster, "node-9", reason="smoke")
    for node, hours in (("node-1", 9), ("failed-2", 3), ("node-3", 6)):
        await warden.preserve(cluster, node, reason="a drill", requester="amy", hold=timedelta(hours=hours))
    found = await listed(warden, cluster, 3)
    assert [each.node for each in found.preservations] == ["failed-2", "node-3", "node-1"]
    first = found.preservations[0]
    assert (first.phase, first.reason, first.requester) == (Phase.FAILED_PRESERVED, "a drill", "amy")
    assert first.until == first.since + timedelta(hours=3)
    assert 0 <= first.hours < 0.1
    assert (found.silent, found.left_out) == ((), 0)
    monkeypatch.setattr(status, "SHOWN", 2)
    assert (await listed(warden, cluster, 2)).left_out == 1


async def test_preserve_extend_preserved_and_release_at_the_keyboard(keyboard: Path, warden: Nodewarden, cluster: str) -> None:
    begun = await nodewarden("preserve", "node-1", "--for", "24h", "--reason", "smoke", "--who", "amy")
    kept = await warden.episode(cluster, "node-1").status()
    assert kept.preserved_until == kept.started + timedelta(hours=24)
    until = written(kept.preserved_until)
    said = f"started preservation of node-1: Running:Preserved, until {until} (episode/{cluster}/node-1, run "
    assert (begun.exit_code, begun.stdout.startswith(said)) == (0, True), begun.output
    joined = json.loads((await nodewarden("preserve", "begin", "node-1", "-o", "json")).stdout)
    assert (joined["joined"], joined["until"]) == (True, until)
    longer = await nodewarden("preserve", "extend", "node-1", "--until", "2036-11-24T09:30:00+01:00")
    assert (longer.exit_code, longer.stdout) == (0, "node-1 is preserved until 2036-11-24T08:30:00Z\n")
    await listed(warden, cluster, 1)
    shown = " ".join((await nodewarden("preserved")).stdout.split())
    assert "node-1 Running:Preserved 2036-11-24T08:30:00Z" in shown
    assert "0.0 h by amy: smoke" in shown
    document = json.loads((await nodewarden("preserved", "-o", "json")).stdout)
    assert (document["preservations"][0]["until"], document["leftOut"]) == ("2036-11-24T08:30:00Z", 0)
    released = await nodewarden("release", "node-1", "--reason", "seen enough")
    assert (released.exit_code, released.stdout) == (0, "node-1 is released\n")
    again = await nodewarden("release", "node-1")
    assert (again.exit_code, again.stderr) == (4, "nodewarden: no open episode of node-1\n")


@pytest.mark.parametrize(
    ("node", "code", "out", "err"),
    [
        ("blind-1", 0, "started preservation of blind-1: not yet in force: nodes is forbidden (", ""),
        (
            "gone-1",
            1,
            "",
            "nodewarden: gone-1 is not preserved: released after 0s: there is no such machine\n",
        ),
    ],
)
async def test_preserve_says_what_has_become_of_it(  # noqa: PLR0917 - pytest passes them by name
    keyboard: Path, client: object, cluster: str, node: str, code: int, out: str, err: str
) -> None:
    result = await nodewarden("preserve", node)
    assert (result.exit_code, result.stderr) == (code, err)
    assert result.stdout.startswith(out)


def test_who_did_not_answer_is_in_the_list_as_well() -> None:
    kept = PreservedNode(
        node="node-1",
        phase=Phase.RUNNING_PRESERVED,
        reason="smoke",
        requester="amy",
        since=NOW - timedelta(hours=5),
        until=NOW + timedelta(hours=2),
        hours=5.0,
        incident="i",
        workflow_id="w",
        problem="nodes is forbidden",
    )
    silent = SilentEpisode(node="node-2", workflow_id="w", problem="no answer within 10 s")
    console = Console(width=140)
    with console.capture() as captured:
        console.print(
            preservations_table(PreservedNodes(cluster="prod", at=NOW, preservations=(kept,), silent=(silent,), left_out=4))
        )
    lines = [" ".join(line.split()) for line in captured.get().splitlines()]
    assert lines[1] == "node-1 Running:Preserved 2026-11-21T14:00:00Z 2h00m 5.0 h by amy: smoke"
    assert lines[2] == "nodes is forbidden"
    assert lines[3] == "node-2 no answer no answer within 10 s"
    assert lines[4:] == ["1 node preserved, 5.0 machine hours held so far", "… and 4 more"]


# People and programs that have a node remediated: the typed client and the command, against a real Temporal server.


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
    with pytest.raises(EpisodeHeldError, match=r"Remediation \w+ \(in progress\): smoke"):
        await warden.remediate(cluster, "node-1", reason="smoke", strategies=["delete-machine"])
    with pytest.raises(EpisodeHeldError, match=r"Remediation \w+ \(in progress\): smoke"):
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
    assert (other.exit_code, "nodewarden: node-1 has an open Remediation " in other.stderr) == (3, True)


async def test_a_machine_without_a_node_is_called_by_its_namespace_and_name(
    keyboard: Path, warden: Nodewarden, cluster: str
) -> None:
    begun = await nodewarden("remediate", "machine/default/w-7", "--reason", "never came up", "-y", "-o", "json")
    assert json.loads(begun.stdout)["workflowId"] == f"episode/{cluster}/machine/default/w-7"
    assert (await sent(warden, cluster, "machine/default/w-7")).node == "machine/default/w-7"
