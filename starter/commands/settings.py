"""`nodewarden settings show`: what counts, and where each of it comes from."""

from __future__ import annotations

import typer

from starter.commands.arguments import OutputOption
from starter.commands.session import say, session_of, working

app = typer.Typer(help="The settings, as they count.", no_args_is_help=True)


@app.callback()
def settings() -> None:
    """A group with one command is still one."""


@app.command()
@working
async def show(context: typer.Context, output: OutputOption = None) -> None:
    """Print every setting that counts, with the file or variable that it comes from. Secrets are hidden."""
    import os

    import orjson

    from starter.output.models import SettingsShown
    from workers.configuration.setting_sources import effective, find_file

    session = session_of(context, output=output)
    found = effective(session.settings(), file=find_file(os.environ, named=session.config))
    lines = [f"{each.key}: {orjson.dumps(each.value).decode()}  # {each.source}" for each in found]
    say(session, "\n".join(lines), lambda: SettingsShown(settings=found))
