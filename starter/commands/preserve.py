"""`nodewarden preserve …`: which machines are kept for analysis."""

from __future__ import annotations

import typer

from starter.commands import preserve_plan

app = typer.Typer(help="See which machines would be preserved, released or given up.", no_args_is_help=True)
app.command("plan")(preserve_plan.plan)


@app.callback()
def group() -> None:
    """A group also while it has one command."""
