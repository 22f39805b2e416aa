"""`nodewarden mode`: how far programs may go with which nodes, and why; `mode set` and `unset` change that."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.arguments import ClusterOption, OutputOption, WhoOption, complete_nodes, for_a_cluster
from starter.commands.session import Session, given, print_command_answer, show
from starter.errors import SilentError
from workers.errors import SettingsError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from policy.episode.modes import ClusterModes, ModeAnswer
    from policy.scan.ledger_snapshot import LedgerSnapshot
    from starter.output.models import ModeLine, ModesAnswer
    from workers.configuration.settings import Settings

SHOWN = 8
"""Nodes of one line, and changes; JSON has them all."""

app = typer.Typer(help="Show and set how far programs may go with nodes: observe, cordon, drain or repair.")

NodesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="NODE...", help="Names of nodes.", autocompletion=complete_nodes)
]
SelectorOption = Annotated[str, typer.Option("--selector", "-l", help="Nodes with these labels, as kubectl's, such as rack=r7.")]
WhyOption = Annotated[str, typer.Option("--reason", "-r", help="Why, as `nodewarden mode` shows it.")]


@app.callback(invoke_without_command=True)
def mode(context: typer.Context, cluster: ClusterOption = "", output: OutputOption = None) -> None:
    """Show the mode of each node under each health check, and what sets it. The cluster is read once, with your own rights."""
    if context.invoked_subcommand is None:
        _shown(context, cluster=cluster, output=output)


@for_a_cluster
async def _shown(session: Session) -> None:
    from starter.output.models import ModesAnswer

    async with session.connected() as (warden, settings, name):
        modes, changes = await warden.scanner(name).modes(), await warden.scanner(name).mode_changes()
    known, unread = await _known(session, settings, modes)
    answer = ModesAnswer(
        cluster=name,
        default=modes.default,
        why=modes.why,
        rules=modes.rules,
        nodes=_lines(known) if known is not None else (),
        unread=unread or None,
        idle=known.idle_rules() if known is not None else (),
        changes=changes,
    )
    show(session, lambda: answer, lambda: _as_text(answer))


async def _known(session: Session, settings: Settings, modes: ClusterModes) -> tuple[LedgerSnapshot | None, str]:
    """The cluster as the caller may read it, under these modes; else None, and why it can't be read."""
    try:
        found = await session.snapshot(settings)
    except (SilentError, SettingsError) as error:
        return None, str(error)
    found.ledger.put_modes(modes)
    return found.ledger.known(datetime.now(UTC)), ""


def _lines(snapshot: LedgerSnapshot) -> tuple[ModeLine, ...]:
    """All Nodes under the checks that cover them or their Machines, the most cautious first."""
    from policy.values.mode import Mode
    from policy.values.object_refs import in_natural_order
    from starter.output.models import ModeLine

    found: defaultdict[tuple[str, ModeAnswer], set[str]] = defaultdict(set)
    for name in snapshot.nodes:
        for key in snapshot.verdicts_on(name) or ("",):
            found[key, snapshot.mode_of(name, key)].add(name)
    lines = (
        ModeLine(
            mode=answer.mode, check=key, nodes=tuple(sorted(names, key=in_natural_order)), why=answer.why, problem=answer.problem
        )
        for (key, answer), names in found.items()
    )
    return tuple(sorted(lines, key=lambda line: ([*Mode].index(line.mode), line.check, line.nodes)))


def _as_text(found: ModesAnswer) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    from policy.values.display_text import counted, some_of
    from policy.values.mode import Mode

    of_all = any(not (rule.nodes or rule.selector) for rule in found.rules)
    parts: list[RenderableType] = [] if of_all else [Text(f"nodes without a rule: {found.default} ({found.why})")]
    for rule in reversed(found.rules):
        parts.append(Text(f"{rule.mode}: {rule}"))
        if rule in found.idle:
            parts.append(Text("  it covers no node now", style="yellow"))
    if found.unread:
        parts.append(Text(found.unread, style="yellow"))
    for line in found.nodes:
        names = some_of(line.nodes, SHOWN)
        shown = names if len(names) <= 40 else counted(len(line.nodes), "node")
        mode = (line.mode.value, "" if line.mode is Mode.REPAIR else "yellow")
        parts.append(Text.assemble("\n", mode, f": {shown} under {line.check or 'no health check'}: {line.why}"))
    if found.changes:
        parts.append(Text("\nWhat people changed, the newest first", style="bold"))
        parts += [Padding(Text(str(each)), (0, 0, 0, 2)) for each in reversed(found.changes[-SHOWN:])]
    if (more := len(found.changes) - SHOWN) > 0:
        parts.append(Text(f"  … and {more} before: the JSON of `nodewarden mode` has them", style="dim"))
    return Group(*parts)


@app.command("set")
@for_a_cluster
async def set_mode(
    session: Session,
    level: Annotated[str, typer.Argument(metavar="MODE", help="observe, cordon, drain or repair.")],
    node: NodesArgument = None,
    *,
    selector: SelectorOption = "",
    reason: WhyOption,
    who: WhoOption = "",
) -> None:
    """Set how far programs may go with these nodes, or with all. The newest rule that covers a node counts.

    It holds from the next last look on. A rule for all nodes replaces all others. Exit code 4: there is no such node.

    Arm a rack: `nodewarden mode set repair -l rack=r7 --reason "first rack"`. Take it back: `nodewarden mode unset -l rack=r7
    --reason "enough for today"`.
    """
    await _say(session, level, node, selector, reason=reason, who=who)


@app.command("unset")
@for_a_cluster
async def unset(
    session: Session,
    node: NodesArgument = None,
    *,
    selector: SelectorOption = "",
    everything: Annotated[bool, typer.Option("--all", help="Every rule, of all nodes.")] = False,
    reason: WhyOption,
    who: WhoOption = "",
) -> None:
    """Take the rule of exactly these nodes back, or with --all every rule: what was set before, or the setting scan.mode, holds
    again. Exit code 2: neither nodes nor a selector nor --all, since that may arm all nodes at once."""
    if everything is bool(node or selector):
        raise SettingsError("expected nodes, --selector or --all, which takes every rule back and may arm all nodes at once")
    await _say(session, None, node, selector, reason=reason, who=who)


async def _say(session: Session, level: str | None, nodes: list[str] | None, selector: str, *, reason: str, who: str) -> None:
    """level: None takes the rule back."""
    from policy.episode.modes import UNSET
    from policy.values.mode import read_mode

    if level is not None and (problem := read_mode(level)[1]):
        raise SettingsError(f"MODE: {problem}")
    async with session.connected() as (warden, settings, name):
        if level is not None:
            for node in nodes or ():
                await session.expect_node(settings, name, node)
        answer = await warden.scanner(name).set_mode(
            UNSET if level is None else level,
            who=who,
            reason=given("--reason", reason),
            nodes=tuple(nodes or ()),
            selector=selector,
        )
        modes = await warden.scanner(name).modes() if selector and level is not None else None
    if modes is not None and (known := (await _known(session, settings, modes))[0]) is not None:
        answer += f"; no node has {selector} now" if any(rule.selector == selector for rule in known.idle_rules()) else ""
    print_command_answer(session, answer, cluster=name)
