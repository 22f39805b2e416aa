"""`nodewarden fence check`: what people and programs get of the check of the fence devices."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus

from policy.episode.messages import device_check_id
from policy.fence.device_check import DeviceReport, DeviceRow, Reachability, report_of
from policy.fence.power import PowerState
from starter.client import Nodewarden
from starter.errors import RequestError, SilentError
from starter.handles import scanners
from starter.output.status_table import devices_table
from tests.starter.builders import NOW, ago
from tests.starter.drawing import drawn
from tests.starter.keyboard import nodewarden
from tests.workers.server import SILENT


async def test_a_silent_device_is_shown_first_with_the_age_of_its_last_success(
    keyboard: Path, warden: Nodewarden, cluster: str
) -> None:
    result = await nodewarden("fence", "check")
    head, silent, well, summary = result.stdout.splitlines()
    assert head.split("   ")[0] == "NODE"
    assert " ".join(silent.split()) == "node-2 ipmi://10.0.0.2:623 silent - 2h05m ago ipmi://10.0.0.2:623: no answer from the BMC"
    assert " ".join(well.split()) == "node-1 ipmi://10.0.0.1:623 on 120 ms 0s ago"
    assert summary == "1 of 2 devices of 2 nodes answered, 1 problem"
    assert result.exit_code == 1


async def test_without_a_worker_it_says_so(
    keyboard: Path, warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_NAMESPACE", SILENT)
    monkeypatch.setattr(scanners, "ANSWER_WITHIN", timedelta(seconds=0.5))
    result = await nodewarden("fence", "check")
    assert result.exit_code == 5
    assert "no worker serves the cluster" in result.stderr


async def test_a_cluster_that_does_not_answer_is_another_end_than_one_that_refuses(warden: Nodewarden, cluster: str) -> None:
    with pytest.raises(SilentError, match="can't be read: no answer"):
        await warden.check_devices(cluster, "unreadable")
    with pytest.raises(RequestError, match="nodes is forbidden") as refused:
        await warden.check_devices(cluster, "forbidden")
    assert refused.value.exit_code == 1


async def test_a_caller_that_stops_waiting_gets_its_own_time_out(warden: Nodewarden, cluster: str) -> None:
    """As `ack-off` does before its question, beside a device that hangs: the SDK has an error of its own for a cancelled wait."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await warden.check_devices(cluster, "endless")


async def test_what_one_run_has_learnt_is_handed_to_the_next(warden: Nodewarden, cluster: str) -> None:
    latencies = []
    for _ in range(3):
        report = await warden.check_devices(cluster, "node-1")
        latencies += [row.latency_ms for row in report.rows]
        await warden.client.get_workflow_handle(device_check_id(cluster)).result()
    assert latencies == [120, 121, 122]


async def test_it_is_repeated_while_the_scanner_runs(warden: Nodewarden, cluster: str) -> None:
    """Started, changed and stopped with it; a question in between is the same workflow's."""
    check = warden.client.get_workflow_handle(device_check_id(cluster))
    await warden.start_scanner(cluster, check_every=timedelta(minutes=30))
    assert await check.query("every", result_type=timedelta) == timedelta(minutes=30)
    described = await check.describe()
    run = described.run_id
    assert described.raw_description.workflow_execution_info.versioning_info.versioning_override.auto_upgrade
    await warden.check_devices(cluster)
    await warden.start_scanner(cluster)
    assert await check.query("every", result_type=timedelta) == timedelta(hours=1)
    assert (await check.describe()).run_id == run
    await warden.stop_scanner(cluster, who="amy", reason="maintenance")
    await check.result()
    await warden.device_check(cluster).stop()  # nothing to stop is no mistake


async def test_it_may_be_switched_off(keyboard: Path, warden: Nodewarden, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEWARDEN_FENCE_CHECK__ENABLED", "false")
    check = warden.client.get_workflow_handle(device_check_id(cluster))
    await warden.start_scanner(cluster)
    assert (await nodewarden("scan", "start")).exit_code == 0
    await check.result()
    assert (await check.describe()).status is WorkflowExecutionStatus.COMPLETED
    await warden.stop_scanner(cluster, who="amy", reason="maintenance")


def report(*rows: DeviceRow, nodes: int = 2, most: int = 2000) -> DeviceReport:
    return report_of("prod", rows, began=ago(1), ended=NOW, nodes=nodes, most=most)


def test_every_kind_of_line_has_its_words() -> None:
    answers = DeviceRow(
        node="node-1",
        endpoint="pdu://a/1",
        answer=Reachability.ANSWERS,
        state=PowerState.OFF,
        last_success=NOW,
        warning="off although Ready",
    )
    shown = drawn(
        devices_table(
            report(
                DeviceRow(node="node-3", endpoint="pdu://a/3", problem="no worker"),
                DeviceRow(node="node-2", problem="Node/node-2 has no providerID"),
                answers,
            )
        )
    )
    lines = [" ".join(line.split()) for line in shown]
    assert lines[1:] == [
        "node-2 - not read - - Node/node-2 has no providerID",
        "node-3 pdu://a/3 not read - not known no worker",
        "node-1 pdu://a/1 off - 0s ago off although Ready",
        "1 of 2 devices of 2 nodes answered, 2 problems",
    ]


def test_what_is_left_out_is_counted_and_an_empty_cluster_is_said() -> None:
    rows = [DeviceRow(node=f"node-{number}", endpoint=f"pdu://a/{number}", answer=Reachability.ANSWERS) for number in range(4)]
    assert "… and 2 more lines, no worse than these" in "\n".join(drawn(devices_table(report(*rows, most=2))))
    assert drawn(devices_table(report(nodes=0))) == ["no node in prod"]
