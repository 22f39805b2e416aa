"""The options and arguments that many commands have, and what they name."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from policy.checks.health_check import Overlap
from starter.commands import completion
from starter.commands.session import Output

if TYPE_CHECKING:
    from activities.cluster.watch.offline import ClusterSnapshot


class Overridable(StrEnum):
    """What a person may override; see `policy/episode/operator_commands.py`."""

    CIRCUIT_BREAKER = "circuit-breaker"
    DEVICE_READS_ON = "device-reads-on"


ClusterOption = Annotated[
    str,
    typer.Option("--cluster", "-c", help="Cluster; default: the current kubeconfig context.", autocompletion=completion.clusters),
]
OutputOption = Annotated[Output | None, typer.Option("--output", "-o", help="How to print the answer.")]
ReasonOption = Annotated[str, typer.Option("--reason", "-r", help="Why, for the decision record.")]
WhoOption = Annotated[str, typer.Option("--who", help="Who asks, for the decision record; default: you.")]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.", autocompletion=completion.nodes)]
OpenArgument = Annotated[
    str,
    typer.Argument(metavar="NODE", help="Name of the node that an open episode is about.", autocompletion=completion.open_nodes),
]
ForOption = Annotated[str, typer.Option("--for", metavar="DURATION", help="How long, such as 2h.")]
QuestionOption = Annotated[
    int, typer.Option("--question", metavar="NUMBER", help="The number of what it asks, as `nodewarden status` shows it.")
]
OfOption = Annotated[
    str, typer.Option("--of", metavar="NAME", help="Owner of the one to end, as shown; default: your own. The owner is told.")
]
OverrideOption = Annotated[
    list[Overridable] | None,
    typer.Option(
        "--override",
        metavar="WHAT",
        help="circuit-breaker: pass over the open circuit breaker, for this node only. device-reads-on, of ack-off: a device "
        "says on, and is wrong or was read too early. You need the right `override`.",
    ),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed where there is no terminal.")]
UntilOption = Annotated[str, typer.Option("--until", metavar="RFC3339", help="Until when.")]


# Groups that take a node's name as their first word: what is no command of theirs begins something with that node.
#
# A node that is called like a command is named by the command's full name, `nodewarden fence begin NODE`.

BEGIN = "begin"


class NodeOrCommand(TyperGroup):
    """A group with a default command, which takes what is no command's name."""

    def spelled_out(self, args: list[str], *, also: Collection[str] = ()) -> list[str]:
        """The arguments with the default command before them, unless they begin with a command or with one of `also`."""
        return args if args and args[0] in {*self.commands, *also} else [BEGIN, *args]

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The commands of the group, and the nodes that may stand in their place."""
        begin = self.commands[BEGIN]
        nodes = (found for each in begin.params if each.name == "node" for found in each.shell_complete(ctx, incomplete))
        return [*super().shell_complete(ctx, incomplete), *nodes]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Help stays the group's own, and so does the completion of its first word."""
        if ctx.resilient_parsing and not args:
            return super().parse_args(ctx, args)
        return super().parse_args(ctx, self.spelled_out(args, also=ctx.help_option_names))


# A cluster from files, for commands that look at all of one; live it is read by `starter/plans/live.py`.

FilesOption = Annotated[
    list[str] | None,
    typer.Option("--filename", "-f", help="File or directory with YAML or JSON objects, - for standard input; may be repeated."),
]
NowOption = Annotated[str, typer.Option("--now", help="The moment to evaluate at, RFC 3339; default: now.", metavar="RFC3339")]


def asked_now(text: str) -> datetime:
    """The moment that --now names. Raises SettingsError for anything else."""
    from workers.configuration.setting_sources import SettingsError

    if not text:
        return datetime.now(UTC)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or "T" not in text.upper():
        raise SettingsError(f"--now: expected a moment such as 2026-11-21T09:30:00Z, got {text!r}")
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def read_cluster(files: list[str] | None, now: datetime, *, overlap: Overlap) -> ClusterSnapshot:
    """The cluster that the files describe, mistakes and all. Raises SettingsError where no file is named."""
    from activities.cluster.watch.offline import ClusterSnapshot, ManifestMistake
    from starter.plans.manifests import Unreadable, read_files
    from workers.configuration.setting_sources import SettingsError

    if not files:
        raise SettingsError("-f: expected a file with Kubernetes objects, got nothing")
    cluster = ClusterSnapshot(now, overlap=overlap)
    for found in read_files(files):
        if isinstance(found, Unreadable):
            cluster.mistakes.append(ManifestMistake(source=found.source, message=found.problem))
        else:
            cluster.put(found.document, found.source)
    cluster.finish()
    return cluster
