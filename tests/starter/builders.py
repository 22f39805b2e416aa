"""Small honest statuses to render and compare."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import RenderableType
from typer.testing import CliRunner, Result

from policy.checks.verdict import Health
from policy.episode.messages import EpisodeResult, EpisodeStatus, Kind, OffProof, Outcome, Phase, Reading
from policy.fence.power import PowerState
from policy.scan.scan_report import CheckReport, ClusterLease, ScanReport, TargetRow, ViewState
from policy.values.object_refs import ObjectRef
from starter.cli import app
from starter.handles.status import ClusterStatus
from starter.output.console import PlainConsole
from workflows.kit.messages import ScannerStatus

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
CHECK = ObjectRef(api_version="remediation.medik8s.io/v1alpha1", kind="NodeHealthCheck", name="workers")

CIRCUIT_BREAKER = (
    "NodeHealthCheck/workers has its circuit breaker open: only 1 of 2 nodes is healthy; until it closes no request begins, "
    "not even on nodes that this check does not cover"
)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def row(node: str, health: Health = Health.HEALTHY, **changes: Any) -> TargetRow:
    return replace(TargetRow(node=node, zone="zone-a", ready="True", health=health), **changes)


def check(**changes: Any) -> CheckReport:
    return replace(CheckReport(ref=CHECK, total=12, healthy=11, unhealthy=1, remaining=4, allowed=True), **changes)


def report(*rows: TargetRow, **changes: Any) -> ScanReport:
    made = ScanReport(
        digest="d",
        at=NOW,
        resource_version="1",
        inventory=len(rows),
        view=ViewState(synced=True),
        lease=ClusterLease(held=True, holder="us"),
        checks=(check(),),
        rows=rows,
    )
    return replace(made, **changes)


def scanner(seen: ScanReport | None, **changes: Any) -> ScannerStatus:
    made = ScannerStatus(cluster="prod", holder="us", started=ago(3600), cap=1, scans=3, opened=1, report=seen)
    return replace(made, **changes)


def status(*rows: TargetRow, **changes: Any) -> ClusterStatus:
    made = ClusterStatus(cluster="prod", at=NOW, scanner=scanner(report(*rows)))
    return replace(made, **changes)


def episode(node: str = "node-7", **changes: Any) -> EpisodeStatus:
    made = EpisodeStatus(
        incident=f"incident-{node}",
        cluster="prod",
        node=node,
        kind=Kind.FENCING,
        phase=Phase.RUNNING,
        step="power-management",
        doing="waits before power is touched",
        reason="NodeHealthCheck/workers: Ready is Unknown",
        started=ago(75),
        try_number=1,
    )
    return replace(made, **changes)


def result(node: str = "node-7", **changes: Any) -> EpisodeResult:
    made = EpisodeResult(
        outcome=Outcome.RECOVERED,
        incident=f"incident-{node}",
        cluster="prod",
        node=node,
        message="the node is back Ready with a new boot id",
        started=ago(130),
        ended=ago(3),
        off_proof=proof(),
    )
    return replace(made, **changes)


def proof(devices: int = 1) -> OffProof:
    readings = tuple(Reading(endpoint=f"ipmi://10.0.0.{n}:623", state=PowerState.OFF, at=ago(60)) for n in range(devices))
    return OffProof(commanded_at=ago(70), readings=readings)


# A command as at a keyboard, in this process.


async def nodewarden(*arguments: str, text: str | None = None) -> Result:
    """text: what comes by standard input. In a thread, because a command has an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, app, list(arguments), input=text, prog_name="nodewarden")


# What is printed, as plain text of a given width.


def drawn(shown: RenderableType, *, width: int = 140) -> list[str]:
    """The lines that are not empty."""
    console = PlainConsole(file=io.StringIO(), width=width, force_terminal=False, highlight=False, markup=False, emoji=False)
    console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]
