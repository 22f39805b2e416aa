"""Temporal's side of the installation: search attributes, who asks the task queues for work, the scanner, the fence devices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from policy.fence.device_check import acted_on
from policy.scan import readiness
from policy.scan.mode_table import limited
from policy.values.display_text import counted
from policy.values.times import written
from starter import wording
from starter.client import Nodewarden
from starter.doctor.findings import Finding, ok, problem, warning
from starter.errors import MissingError, RequestError
from workers.errors import SearchAttributesError
from workers.temporal_namespace import ensure_search_attributes, retention
from workflows.kit.options import WORKFLOW_QUEUE, cluster_queue, power_queue

EXPECTED_MEMORY = timedelta(days=90)
"""As the Temporal that we ship remembers: a quarter, so that a month can be compared with the one before."""
MOST_SHOWN = 5
"""Devices with a problem; `nodewarden fence check` shows the others."""


async def search_attributes(warden: Nodewarden, *, fix: bool) -> list[Finding]:
    """Whether episodes can be found at all. fix: make those that are missing."""
    try:
        made = await ensure_search_attributes(warden.client, create=fix)
    except SearchAttributesError as error:
        return [problem(str(error), "`nodewarden doctor --fix` makes those that are missing, where you may")]
    return [ok(f"made {', '.join(made)}" if made else "all there")]


async def memory(warden: Nodewarden) -> list[Finding]:
    """How far back `history`, `report` and `compare` can look: Temporal deletes what ended before."""
    kept = await retention(warden.client)
    if kept is None:
        what = "how long Temporal remembers what has ended can't be read: the namespace may not be described"
        return [warning(what, f"ask its administrator for the retention of {warden.client.namespace!r}")]
    what = f"what has ended is remembered for {counted(kept // timedelta(days=1), 'day')}"
    if kept >= EXPECTED_MEMORY:
        return [ok(what)]
    told = f"{what}: `history` and `compare --since` see nothing older, and count too little where they are asked for more"
    return [
        warning(told, f"`temporal operator namespace update -n {warden.client.namespace} --retention 90d`, or in Temporal Cloud")
    ]


async def workers(warden: Nodewarden, cluster: str, sites: Iterable[str]) -> list[Finding]:
    """Whether a worker polls for the work that an episode makes. Temporal remembers a poller for some five minutes."""
    queues = {
        WORKFLOW_QUEUE: "nodewarden worker --role workflows",
        cluster_queue(cluster): f"nodewarden worker --role cluster -c {cluster}",
        **{power_queue(site): "nodewarden worker --role power" for site in sites},
    }
    found = []
    for queue, command in queues.items():
        if await warden.polled(queue, workflows=queue == WORKFLOW_QUEUE):
            found.append(ok(f"a worker serves {queue}"))
        else:
            found.append(
                problem(f"no worker has asked for work on {queue} lately", f"start one: `{command}`, or `nodewarden up`")
            )
    return found


async def scanner(warden: Nodewarden, cluster: str) -> list[Finding]:
    """Whether anything is begun without a person."""
    try:
        status = await warden.scanner_status(cluster)
    except MissingError as error:
        without_its_own = re.sub(r"[;:] `nodewarden scan start` starts it$", "", str(error))
        return [problem(without_its_own, f"`nodewarden scan start -c {cluster}` starts it")]
    except RequestError as error:
        return [problem(str(error), "look at the log of the worker that serves workflows")]
    view = wording.view(status, datetime.now(UTC))
    if halted := readiness.halted(status.report, status.pauses):
        return [warning(f"it runs, and begins nothing: {halted}", "end it once it is no longer meant")]
    report = status.report
    if status.problem or report is None or report.view.stale or not report.view.synced or report.lease.problem:
        return [problem(f"it runs, and begins nothing: {view}", "look at the log of the cluster's worker")]
    if status.stopping:
        return [warning("it is being stopped", f"`nodewarden scan start -c {cluster}` starts another")]
    if mode := limited(status.modes):
        return [warning(f"it runs, and {mode}", "docs/modes.md says how to arm nodes, and how to take it back")]
    return [ok(f"it runs: {view}")]


async def devices(warden: Nodewarden, cluster: str) -> list[Finding]:
    """What the last check of the fence devices has found, and open episodes since. None is read for this."""
    read = f"`nodewarden fence check -c {cluster}` reads them now"
    try:
        report = await warden.device_check(cluster).last_report()
    except MissingError:
        return [warning("no workflow checks the fence devices regularly: that begins with the scanner", read)]
    if report is None:
        return [warning("they have not been checked since this check was begun", read)]
    when = f"at {written(report.ended)}"
    report = acted_on(report, wording.failing((await warden.status(cluster)).episodes))
    found = [problem(f"{row.node}: {row.named}", f"correct it; {read}") for row in report.rows if row.problem]
    if len(found) > MOST_SHOWN:
        found = [*found[:MOST_SHOWN], problem(f"{report.problems - MOST_SHOWN} more", f"`nodewarden fence check -c {cluster}`")]
    unread = dict.fromkeys(f"{row.node}: {row.warning}" for row in report.rows if row.held and not row.problem)
    held = [warning(each, "look at what its episode says of it") for each in unread]
    devices_of = f"{counted(report.devices, 'device')} of {counted(report.nodes, 'node')}"
    return [
        *found,
        *held[:MOST_SHOWN],
        (ok if not found else _warning)(f"{report.answering} of {devices_of} answered {when}"),
    ]


def _warning(what: str) -> Finding:
    return warning(what, "a node can't be fenced while its device does not answer")
