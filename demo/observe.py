"""`make demo SCENARIO=observe`: dare to switch it on.

First a month in which nodewarden only observes, of a fleet whose truth is written down (`month.py`); its report has to say
exactly that. Then a live cluster: one rack is armed, a node of it is repaired, one of another rack is only observed, and one
command takes the rack back. Ends with 0 only if all of that came about.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

from demo.month import LONGEST_WAIT, Month, month
from demo.platforms import CHOICES
from demo.repair import CLUSTER, LOG, PATIENCE, Demo, from_here
from demo.simulation import Simulation
from policy.episode.messages import Outcome, scanner_id
from policy.episode.modes import ClusterModes
from policy.episode.node_action import SETTLED
from policy.history.comparison import CheckComparison, Judgement, compare
from policy.values.mode import Mode
from policy.values.times import written
from simulator.fleet_history import MONTH, TIMEOUT, FleetHistory, Verdict
from starter.client import Nodewarden
from starter.handles.observations import ClusterComparison
from starter.output.comparison import as_text, parts
from workers.configuration.settings import Settings
from workflows.definitions.scanner import HealthScanner
from workflows.kit.options import WORKFLOW_QUEUE
from workflows.scanner.state import ScannerInput

FLEET, SEED, MONTH_PATIENCE = "fleet", 7, 150.0
ARMED, OTHER = "node-7", "node-1"
AGAIN = "node-8"
"""Of the armed rack, once that is taken back."""
JUDGED = {
    Verdict.FALSE: Judgement.FALSE,
    Verdict.LATER: Judgement.LATER,
    Verdict.PEOPLE: Judgement.OTHERS,
    Verdict.DEAD: Judgement.STILL_SICK,
    Verdict.HELD: Judgement.HELD,
}
"""What the plan of the month and the report call the same."""


class ObserveDemo(Demo):
    """One showing, in two acts."""

    scan: ClassVar = {"start_up_grace": "3s", "mode": "observe"}
    hints: ClassVar = (
        f"nodewarden status; nodewarden mode; nodewarden explain {OTHER}",
        f"nodewarden compare; nodewarden record {ARMED}",
        f"nodewarden mode set repair -l rack=r1 --reason 'first rack'   # {OTHER}",
        "nodewarden mode unset -l rack=r1 --reason 'enough for today'",
        f"python -m simulator heal {AGAIN} --state-dir {{state}}   # back by itself",
        "nodewarden history                                   # what became of each",
    )

    async def run(self) -> int:
        """Both; returns the exit code."""
        if problems := await self._month():
            for each in problems:
                self._console.print(f"[bold red]✗[/] {each}")
            return 1
        self._say(f"\nNow a live cluster, in real time: 12 nodes, {CHOICES[self._platform]}, mode observe.")
        return await super().run()

    # The month ------------------------------------------------------------------------------------------------------

    async def _month(self) -> list[str]:
        history = FleetHistory(SEED)
        self._say(
            f"A month of {len(history.racks)} nodes in 8 racks, mode observe. Temporal's test server skips the hours in which "
            "nothing happens; scanner, records and report are the usual ones …"
        )
        async with month(FLEET, history, state=self._state / FLEET) as played:
            warden = Nodewarden(played.client)
            began = played.now()
            await played.client.start_workflow(
                HealthScanner.run,
                ScannerInput(cluster=FLEET, holder="demo", wait=LONGEST_WAIT, modes=ClusterModes(setting=Mode.OBSERVE)),
                id=scanner_id(FLEET),
                task_queue=WORKFLOW_QUEUE,
            )
            async with asyncio.timeout(MONTH_PATIENCE):
                await self._follow_month(played, warden, began)
            found = await warden.observations.observed(FLEET, since=began)
            report = compare(found.spells, found.days, found.episodes, since=began, now=played.now())
            ahead = round((report.until - datetime.now(UTC)) / timedelta(days=1))
            self._say(
                f"\nWhat `nodewarden compare` says of it, by the clock of that server, which is {ahead} days ahead of ours:"
            )
        answer = ClusterComparison(cluster=FLEET, comparison=report, unknown=found.unknown)
        *shown, cases = parts(answer)
        self._console.print(as_text(shown))
        self._say(f"… and each of the {len(cases.rows)} cases, with the workflow that records it.")
        problems = [*found.unknown, *differences(history, report.checks[0])] if report.checks else ["nothing was recorded"]
        if not problems:
            truth = history.truth()
            self._console.print(
                "[bold green]✓[/] The plan of that month, which nodewarden never saw, has the same counts: "
                f"{truth.begun} repairs, {truth.verdicts[Verdict.FALSE]} of them false, {truth.verdicts[Verdict.HELD]} held "
                "in the outage of a zone."
            )
        return problems

    async def _follow_month(self, played: Month, warden: Nodewarden, began: datetime) -> None:
        while not played.over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(played.over.wait(), 5)
            self._say(f"  day {(played.now() - began) // timedelta(days=1):2} of {MONTH.days}")
        await _until(lambda: self._is_recorded(warden))

    async def _is_recorded(self, warden: Nodewarden) -> bool:
        """Whether no spell that is over waits for its record."""
        return all(each.ended is None for each in (await warden.scanner(FLEET).spells()).spells)

    # The live cluster -----------------------------------------------------------------------------------------------

    async def _show(self, simulation: Simulation, warden: Nodewarden, settings: Settings) -> int:
        await warden.start_scanner(CLUSTER, cap=settings.scan.cap, wait=settings.scan.wait, mode=settings.scan.mode)
        problems: list[str] = []
        try:
            async with asyncio.timeout(PATIENCE):
                await self._break(simulation, OTHER)
                await _until(lambda: self._has_spell(warden, OTHER))
                self._say(f"{OTHER} of rack r1 is only observed. You arm one rack:")
                await asyncio.sleep(SETTLED.total_seconds())  # only then is a person's word believed
                await self._command("mode", "set", "repair", "-l", "rack=r3", "--reason", "observed for 30 days")
                await self._break(simulation, ARMED)
                await _until(lambda: self._is_repaired(warden, ARMED))
                self._say(f"nodewarden repaired {ARMED} of rack r3. One command takes that back:")
                await self._command("mode", "unset", "-l", "rack=r3", "--reason", "enough for today")
                await self._break(simulation, AGAIN)
                await _until(lambda: self._has_spell(warden, AGAIN))
                self._say(f"{AGAIN} of rack r3 is only observed, as {OTHER} still is.")
        except TimeoutError:
            problems.append(f"not within {PATIENCE:.0f} s: see {from_here(self._state / LOG)}")
        boots = {name: node["boots"] for name, node in (await simulation.state())["nodes"].items()}
        if (restarted := {name for name, number in boots.items() if number != 1}) != {ARMED}:
            problems.append(f"restarted: {', '.join(sorted(restarted)) or 'none'}, and only {ARMED} should be")
        problems += [f"two writers: {violation['message']}" for violation in await simulation.violations()]
        for each in problems:
            self._console.print(f"[bold red]✗[/] {each}")
        if not problems:
            self._console.print(f"[bold green]✓[/] Of three sick nodes {ARMED} was restarted, and no other machine was touched.")
        return 1 if problems else 0

    async def _command(self, *words: str) -> None:
        """A command of a user, as it is typed. Raises RuntimeError where it fails."""
        self._say(f"  $ nodewarden {shlex.join(words)}")
        environment = os.environ | {"NODEWARDEN_CONFIG": str(self._state / "nodewarden.yaml")}
        program = Path(sys.executable).with_name("nodewarden")
        process = await asyncio.create_subprocess_exec(
            program, *words, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        self._say(said.decode().rstrip())
        if process.returncode:
            raise RuntimeError(f"nodewarden {shlex.join(words)} ended with {process.returncode}")

    async def _break(self, simulation: Simulation, node: str) -> None:
        self._say(f"{written(datetime.now(UTC))} demo: breaks {node}: kubelet-stops")
        await simulation.break_node(node, "kubelet-stops")

    async def _is_repaired(self, warden: Nodewarden, node: str) -> bool:
        ended = (await warden.status(CLUSTER)).ended
        return any(each.node == node and each.outcome is Outcome.RECOVERED for each in ended)

    async def _has_spell(self, warden: Nodewarden, node: str) -> bool:
        spells = (await warden.scanner(CLUSTER).spells()).spells
        return any(each.node == node and each.ended is None and each.mode is Mode.OBSERVE for each in spells)


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():  # noqa: ASYNC110 - it is asked of Temporal
        await asyncio.sleep(0.5)


def differences(history: FleetHistory, found: CheckComparison) -> list[str]:
    """Where the report does not say what was true, in sentences."""
    truth = history.truth()
    expected = {JUDGED[verdict]: count for verdict, count in truth.verdicts.items()}
    problems = [
        f"{each}: {found.judgements.get(each, 0)}, and {expected.get(each, 0)} is true"
        for each in Judgement
        if found.judgements.get(each, 0) != expected.get(each, 0)
    ]
    if round(found.observed_days) != round(truth.node_days):
        problems.append(f"{found.observed_days:.1f} node-days, and {truth.node_days:.1f} is true")
    for row in found.timeouts:
        longer = history.truth(TIMEOUT + row.longer)
        if (row.repairs, row.false_repairs) != (longer.begun, longer.verdicts[Verdict.FALSE]):
            problems.append(f"a time-out longer by {row.longer}: {row.false_repairs} of {row.repairs} repairs false, …")
    return problems
