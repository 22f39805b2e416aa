"""The options and arguments that many commands have, what they name, and how the shell completes them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Concatenate

import typer
from typer.core import TyperGroup

from starter.commands.session import Exit, Options, Output, Session, session_of, working
from starter.errors import SilentError
from workers.errors import SettingsError

if TYPE_CHECKING:
    from workers.configuration.settings import Settings


# Names of nodes and clusters for the shell's completion: asked of the cluster's API, else of the scanner's view.
#
# A person who presses TAB waits, and reads no errors: what takes longer, or can't be asked, completes nothing. The process does
# nothing else, and ends with it.

COMPLETED_WITHIN = 2.0
"""Seconds, for all that is asked."""
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
"""What a shell takes as it stands. Each client of Temporal may begin a workflow under an id that looks like an episode's, and the
shell puts what is completed into the command line (S41)."""


def complete_nodes(context: typer.Context, incomplete: str) -> list[str]:
    return _completed(context, incomplete, _nodes)


def complete_open_nodes(context: typer.Context, incomplete: str) -> list[str]:
    """Those that an open episode holds: only these take commands."""
    return _completed(context, incomplete, _open_nodes)


def complete_clusters(context: typer.Context, incomplete: str) -> list[str]:
    """The clusters of the settings, else the one that kubectl would talk to."""

    async def known(_session: Session, settings: Settings) -> Sequence[str]:
        return list(settings.connections())

    return _completed(context, incomplete, known)


def _completed(
    context: typer.Context, incomplete: str, ask: Callable[[Session, Settings], Awaitable[Sequence[str]]]
) -> list[str]:
    given = {**context.find_root().params, **{name: value for name, value in context.params.items() if value}}
    session = Session(
        cluster=given.get("cluster") or "",
        config=given.get("config"),
        context=given.get("kube_context") or "",
        kubeconfig=given.get("kubeconfig"),
    )

    async def within() -> Sequence[str]:
        async with asyncio.timeout(COMPLETED_WITHIN):
            return await ask(session, session.settings())

    logging.disable()
    try:
        found = asyncio.run(within())
    except Exception:  # noqa: BLE001 - see the module: a half-typed command is no place for an error
        return []
    return sorted(name for name in found if name.startswith(incomplete) and WORD.fullmatch(name))


async def _nodes(session: Session, settings: Settings) -> Sequence[str]:
    from activities.cluster.api.paths import NODES
    from activities.cluster.objects.decoding import NODE_DECODING
    from starter.client import Nodewarden

    try:
        async with session.reading(settings) as (connection, _):
            pages = connection.list_pages(NODES.path())
            return [item.key async for page in pages for item in NODE_DECODING.items(page.body)]
    except (SilentError, SettingsError):
        async with Nodewarden.connect(settings) as warden:
            report = (await warden.scanner_status(session.one_cluster(settings))).report
        return [row.node for row in report.rows] if report is not None else []


async def _open_nodes(session: Session, settings: Settings) -> Sequence[str]:
    from policy.episode.messages import episode_id
    from starter.client import Nodewarden

    async with Nodewarden.connect(settings) as warden:
        cluster = session.one_cluster(settings)
        return [run.id.removeprefix(episode_id(cluster, "")) for run in await warden.history.open(cluster)]


class Overridable(StrEnum):
    """What a person may override; see `policy/episode/node_action.py`."""

    CIRCUIT_BREAKER = "circuit-breaker"
    DEVICE_READS_ON = "device-reads-on"


ClusterOption = Annotated[
    str,
    typer.Option(
        "--cluster",
        "-c",
        help="Cluster; default: what the settings name, else the current kubeconfig context.",
        autocompletion=complete_clusters,
    ),
]
OutputOption = Annotated[Output | None, typer.Option("--output", "-o", help="How to print the answer.")]


def for_a_cluster(work: Callable[Concatenate[Session, Options], Coroutine[Any, Any, Exit | None]]) -> Callable[..., None]:
    """A `working` command with the options --cluster and --output besides its own, which choose the session that it gets."""

    @wraps(work)
    async def command(context: typer.Context, *given: Any, cluster: str, output: Output | None, **options: Any) -> Exit | None:
        return await work(session_of(context, cluster=cluster, output=output), *given, **options)

    chosen = [
        Parameter("cluster", Parameter.KEYWORD_ONLY, default="", annotation=ClusterOption),
        Parameter("output", Parameter.KEYWORD_ONLY, default=None, annotation=OutputOption),
    ]
    _, *own = signature(work, eval_str=True).parameters.values()
    context = Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    command.__signature__ = Signature([context, *own, *chosen])  # type: ignore[attr-defined] - what typer makes the options of
    command.__annotations__ = {}
    return working(command)


ReasonOption = Annotated[str, typer.Option("--reason", "-r", help="Why, for the decision record.")]
WhoOption = Annotated[str, typer.Option("--who", help="Who asks, for the decision record; default: you.")]
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.", autocompletion=complete_nodes)]
OpenArgument = Annotated[
    str,
    typer.Argument(metavar="NODE", help="Name of the node that an open episode is about.", autocompletion=complete_open_nodes),
]
ForOption = Annotated[str, typer.Option("--for", metavar="DURATION", help="How long, such as 2h.")]
SinceOption = Annotated[str, typer.Option("--since", metavar="DURATION", help="Ended within this time, such as 24h.")]
"""Read by `began_of` (`session.py`), as every duration by `policy/values/times.py`."""
QuestionOption = Annotated[
    int, typer.Option("--question", metavar="NUMBER", help="The number of what it asks, as `nodewarden status` shows it.")
]
OfOption = Annotated[
    str, typer.Option("--of", metavar="NAME", help="Owner of the one to end, as shown; default: your own. The owner is notified.")
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


# A cluster from files, for commands that look at all of one (`starter/plans/cluster_objects.py`).

FilesOption = Annotated[
    list[str] | None,
    typer.Option("--filename", "-f", help="File or directory with YAML or JSON objects, - for standard input; may be repeated."),
]
NowOption = Annotated[str, typer.Option("--now", help="The moment to evaluate at, RFC 3339; default: now.", metavar="RFC3339")]


def asked_now(text: str) -> datetime:
    """The moment that --now names. Raises SettingsError for anything else."""
    if not text:
        return datetime.now(UTC)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or "T" not in text.upper():
        raise SettingsError(f"--now: expected a moment such as 2026-11-21T09:30:00Z, got {text!r}")
    return found if found.tzinfo else found.replace(tzinfo=UTC)
