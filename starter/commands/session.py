"""What every command shares: global options, one place where failures become a line and an exit code, output as text or JSON.

Light on purpose: importing this must not import Temporal, or `--help` and completion would take a second.
"""

from __future__ import annotations

import asyncio
import getpass
import inspect
import os
import platform
import shutil
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec, TextIO

import typer

from policy.values.display_text import in_a_line, visible
from starter.errors import NoSuchNodeError, RequestError, SilentError
from workers.errors import SettingsError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from activities.cluster.api.connection import ClusterConnection
    from activities.cluster.watch.offline import ClusterSnapshot
    from starter.client import Nodewarden
    from workers.configuration.clusters import ClusterSettings
    from workers.configuration.settings import Settings

Options = ParamSpec("Options")


class Exit(IntEnum):
    """Exit codes, the same for all commands (docs and `--help` name them)."""

    OK = 0
    FAILED = 1
    USAGE = 2
    REFUSED = 3
    MISSING = 4
    UNREACHABLE = 5
    INTERRUPTED = 130


EXIT_CODES = (
    "Exit codes: 0 done; 1 failed, or the node was not repaired; 2 wrong usage or settings; 3 refused (the reason is printed); "
    "4 no such node, episode or scanner; 5 Temporal, its workers or the cluster's API can't be reached; 130 interrupted."
)


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


@dataclass(slots=True, kw_only=True)
class Session:
    """The global options of one invocation."""

    cluster: str = ""
    output: Output | None = None
    config: Path | None = None
    debug: bool = False
    context: str = ""
    """A context of the kubeconfig; "": none was named, and the settings or the current one say which cluster is meant."""
    kubeconfig: Path | None = None

    @property
    def for_programs(self) -> bool:
        """Whether the whole answer is printed, and not what people read of it."""
        return self.output in {Output.JSON, Output.YAML}

    def settings(self) -> Settings:
        """Load them now; a mistake ends the command with code 2."""
        from workers.configuration.setting_sources import passed_over
        from workers.configuration.settings import load

        complain(passed_over(os.environ, named=self.config))
        if self.kubeconfig is not None:
            os.environ["KUBECONFIG"] = str(self.kubeconfig)
        settings = load(config=self.config)
        if not self.context:
            return settings
        return settings.model_copy(update={"clusters": self._of_context(settings)})

    def _of_context(self, settings: Settings) -> dict[str, ClusterSettings]:
        """The cluster that --context names, as the settings call it where they know it."""
        from workers.configuration.clusters import ClusterSettings, cluster_named, contexts

        if named := {name: each for name, each in settings.clusters.items() if each.context == self.context}:
            return named
        try:
            known = contexts()
        except ValueError as error:
            raise SettingsError(str(error)) from error
        if self.context not in known:
            raise SettingsError(f"--context: expected one of {', '.join(known) or 'a kubeconfig'}, got {self.context!r}")
        try:
            name = cluster_named(self.context)
        except ValueError as error:
            raise SettingsError(f"--context: {error}") from error
        if name in settings.clusters:
            # Requests go by the name alone, so that they would reach the workers of that cluster (S9).
            given = f"give {self.context!r} a name in `clusters`"
            raise SettingsError(f"--context: {name} is another cluster in the settings; {given}")
        return {name: ClusterSettings(context=self.context)}

    def clusters(self, settings: Settings) -> dict[str, ClusterSettings]:
        """The clusters to serve: the one named by --cluster, else all that the settings or the kubeconfig give."""
        known = settings.connections()
        if self.cluster:
            if self.cluster not in known:
                message = (
                    f"--cluster: {self.cluster!r} is not among the clusters known here: {', '.join(sorted(known)) or 'none'}"
                )
                raise SettingsError(message)
            return {self.cluster: known[self.cluster]}
        if not known:
            message = "clusters: there is no current kubeconfig context; name a cluster in nodewarden.yaml or set KUBECONFIG"
            named = os.environ.get("KUBECONFIG", "").split(os.pathsep)
            missing = "".join(f"; the kubeconfig {each} does not exist" for each in named if each and not Path(each).exists())
            raise SettingsError(message + missing)
        return known

    def one_cluster(self, settings: Settings) -> str:
        """The cluster that a request is about. Any name may be given: only the workers need to know how it is reached."""
        if self.cluster:
            return self.cluster
        known = sorted(self.clusters(settings))
        if len(known) > 1:
            raise SettingsError(f"--cluster: expected one of {', '.join(known)}, got nothing")
        return known[0]

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[Nodewarden, Settings, str]]:
        """Temporal, as the settings have it, and the cluster that the request is about."""
        settings = self.settings()
        name = self.one_cluster(settings)
        async with self._speaking(settings) as warden:
            await self._expect_cluster(warden, settings, name)
            yield warden, settings, name

    @asynccontextmanager
    async def connected_to_all(self, *, everywhere: bool = True) -> AsyncIterator[tuple[Nodewarden, Settings, tuple[str, ...]]]:
        """The same, and all clusters that the settings know; only one where --cluster names it, or not `everywhere` is meant."""
        if self.cluster or not everywhere:
            async with self.connected() as (warden, settings, name):
                yield warden, settings, (name,)
            return
        settings = self.settings()
        names = tuple(sorted(self.clusters(settings)))
        async with self._speaking(settings) as warden:
            yield warden, settings, names

    @asynccontextmanager
    async def _speaking(self, settings: Settings) -> AsyncIterator[Nodewarden]:
        from starter.client import Nodewarden
        from starter.handles.node_actions import Speaker, own_connection

        speaker = Speaker(partial(own_connection, settings), otherwise=me(), complain=complain)
        async with Nodewarden.connect(settings, speaker=speaker) as warden:
            yield warden

    @asynccontextmanager
    async def reading(self, settings: Settings) -> AsyncIterator[tuple[ClusterConnection, ClusterConnection | None]]:
        """The cluster that the request is about, to be read by this process, and where its Machines are. What its API refuses
        meanwhile is raised as a SilentError."""
        from temporalio.exceptions import ApplicationError

        from workers.configuration.clusters import open_cluster

        name = self.one_cluster(settings)
        async with open_cluster(name, self.clusters(settings)[name]) as (connection, machines):
            try:
                yield connection, machines
            except ApplicationError as error:
                raise SilentError(f"the cluster {name} can't be read: {error.message}") from error

    async def snapshot(self, settings: Settings) -> ClusterSnapshot:
        """All of it, read once. Raises SilentError, and SettingsError where it is not reached from here."""
        from starter.plans.cluster_objects import read_live

        async with self.reading(settings) as (connection, machines):
            return await read_live(settings, connection, machines)

    async def expect_node(self, settings: Settings, name: str, node: str) -> None:
        """Raises NoSuchNodeError where the caller may read that there is none. Where the caller may not, nothing is raised."""
        from temporalio.exceptions import ApplicationError

        from activities.cluster.api.served_cluster import Connections
        from activities.cluster.objects.live_machines import find_target
        from activities.cluster.objects.live_node import all_names
        from workers.configuration.clusters import open_cluster

        try:
            async with open_cluster(name, settings.connections()[name]) as (connection, machines):
                counting = settings.machine_namespaces
                both = Connections(nodes=connection, machines=machines or connection, machine_namespaces=counting)
                found = await find_target(both, node)
                known = await all_names(connection) if found is None else ()
        except (KeyError, SettingsError, ApplicationError):
            return
        if found is None:
            raise NoSuchNodeError(node, known)

    async def _expect_cluster(self, warden: Nodewarden, settings: Settings, name: str) -> None:
        """A name that the settings do not know, that no worker serves, and that has never had a scanner, is a slip of the pen."""
        known = settings.connections()
        if name in known or await warden.is_known(name):
            return
        raise SettingsError(
            f"--cluster: no worker serves {name!r}, and it is not among the clusters known here: "
            f"{', '.join(sorted(known)) or 'none'}"
        )


def session_of(context: typer.Context, *, cluster: str = "", output: Output | None = None) -> Session:
    """The global options, overridden by the command's own."""
    root: Session = context.find_root().obj
    return replace(root, cluster=cluster or root.cluster, output=output or root.output)


def working(
    work: Callable[Concatenate[typer.Context, Options], Coroutine[Any, Any, Exit | None]],
) -> Callable[Concatenate[typer.Context, Options], None]:
    """A command that does this and exits: with its code, or with one line on stderr and the code of what went wrong."""

    @wraps(work)
    def command(context: typer.Context, *given: Options.args, **options: Options.kwargs) -> None:
        _run(session_of(context), work(context, *given, **options))

    paragraphs = inspect.cleandoc(work.__doc__ or "").split("\n\n")
    command.__doc__ = "\n\n".join(" ".join(each.split()) for each in paragraphs)  # typer keeps the line ends of all but the first
    return command


def _run(session: Session, work: Coroutine[Any, Any, Exit | None]) -> NoReturn:
    try:
        code = asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        raise typer.Exit(Exit.OK) from None
    except Exception as error:
        text, failed = _judge(error)
        if session.debug and failed is not Exit.OK:
            raise
        complain(text)
        raise typer.Exit(failed) from None
    raise typer.Exit(code or Exit.OK)


def _judge(error: Exception) -> tuple[str, Exit]:
    from policy.scan.obstacles import WITHOUT_TEMPORAL
    from policy.values.errors import PolicyError
    from workers.errors import (
        EmbeddedServerError,
        NamespaceMissingError,
        SearchAttributesError,
        StoppedError,
        TemporalUnreachableError,
    )

    if isinstance(error, StoppedError):
        return "", Exit.OK
    if isinstance(error, SettingsError | PolicyError | NamespaceMissingError | SearchAttributesError):
        return str(error), Exit.USAGE
    if isinstance(error, RequestError):
        return in_a_line(str(error)), Exit(error.exit_code)
    if isinstance(error, TemporalUnreachableError | EmbeddedServerError):
        tried = isinstance(error, TemporalUnreachableError) and error.__cause__ is not None  # else no address is known
        return f"{error}; {WITHOUT_TEMPORAL}" if tried else str(error), Exit.UNREACHABLE
    text = " ".join(str(error).split()) or "no further details"
    return f"unexpected {type(error).__name__}: {text[:300]} (--debug shows where)", Exit.FAILED


def folded(text: str, stream: TextIO) -> str:
    """Each line broken between words where a terminal would break within one; a longer word stays whole, to be copied."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(textwrap.fill(each, width, break_long_words=False, break_on_hyphens=False) for each in text.split("\n"))


def complain(text: str) -> None:
    """A line on stderr for each line of the text, each with our name."""
    for line in filter(None, map(visible, text.split("\n"))):
        typer.secho(folded(f"nodewarden: {line}", sys.stderr), err=True, fg=typer.colors.RED if sys.stderr.isatty() else None)


def given(option: str, text: str) -> str:
    """The text, where it says something: it goes into the decision record, and people will ask for it afterwards."""
    if not text.strip():
        raise SettingsError(f"{option}: expected a name or a sentence for the decision record, got nothing")
    return text.strip()


def print_answer(session: Session, text: str, as_model: Callable[[], object]) -> None:
    """The answer: the text for people, the model on one line for programs."""
    if not session.for_programs:
        typer.echo(folded(visible(text), sys.stdout))
        return
    from starter.output.encoding import encoded

    typer.echo(encoded(as_model(), as_yaml=session.output is Output.YAML))


def show(
    session: Session,
    as_model: Callable[[], object],
    as_text: Callable[[], RenderableType],
    *,
    width: int | None = None,
) -> None:
    """A plan, or what was found: for programs, or as people read it. width: of what is printed into a pipe, where COLUMNS says
    nothing."""
    if session.for_programs:
        from starter.output.encoding import encoded

        typer.echo(encoded(as_model(), as_yaml=session.output is Output.YAML, indent=2))
        return
    from starter.output.console import fitting_console

    fitting_console(width=width).print(as_text())


def print_command_answer(session: Session, answer: str, *, cluster: str, node: str = "", workflow_id: str = "") -> None:
    from starter.output.models import CommandAnswer

    print_answer(session, answer, lambda: CommandAnswer(cluster=cluster, answer=answer, node=node, workflow_id=workflow_id))


def duration_of(option: str, text: str, longest: timedelta) -> timedelta:
    """What `--for` and its like name. Raises SettingsError for anything else."""
    from policy.values.times import parse_span

    try:
        return parse_span(text, longest)
    except ValueError as error:
        raise SettingsError(f"{option}: {error}") from None


def hold_of(text: str) -> timedelta:
    """What `--for` names. Raises SettingsError."""
    from policy.preservation.requests import LONGEST_PRESERVATION

    return duration_of("--for", text, LONGEST_PRESERVATION)


def began_of(since: str) -> datetime:
    """The moment since which `--since` asks. Raises SettingsError."""
    from policy.values.times import LONGEST_SINCE

    return datetime.now(UTC) - duration_of("--since", since, LONGEST_SINCE)


def moment_of(option: str, text: str) -> datetime:
    """What `--until` and its like name. Raises SettingsError for anything else."""
    from policy.values import times

    found = times.moment_of(text) if "T" in text.upper() else None
    if found is None:
        raise SettingsError(f"{option}: expected a moment such as 2026-11-24T09:30:00Z, got {text!r}")
    if found <= datetime.now(UTC):
        raise SettingsError(f"{option}: expected a moment to come, got {text}")
    return found


def hold_until(hold: str, until: str) -> datetime | None:
    """When what is asked for ends by itself; None: it does not. Raises SettingsError."""
    if until and hold:
        raise SettingsError("--until, --for: expected one of them or none")
    return moment_of("--until", until) if until else datetime.now(UTC) + hold_of(hold) if hold else None


def me() -> str:
    """Who asks, where no name was given."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{platform.node() or 'unknown host'}"
