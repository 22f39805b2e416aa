"""`nodewarden uninstall --check`: what of ours is left where, and what removes it. docs/uninstall.md has the order."""

from __future__ import annotations

from typing import Annotated

import typer

from starter.commands.arguments import ClusterOption, OutputOption
from starter.commands.session import Exit, session_of, show, working


@working
async def uninstall(
    context: typer.Context,
    *,
    check: Annotated[bool, typer.Option("--check", help="List what is left. Nothing is ever removed by this command.")] = False,
    cluster: ClusterOption = "",
    output: OutputOption = None,
) -> Exit:
    """List what of nodewarden is left in the cluster and in Temporal, each with the command that removes it.

    Exit code 1 while something is left, or where it could not be looked for.
    """
    from starter.uninstall.leftovers import as_model, as_table, left_of
    from workers.configuration.setting_sources import SettingsError

    session = session_of(context, cluster=cluster, output=output)
    if not check:
        raise SettingsError("--check: expected it: what is removed, and in which order, is yours to say (docs/uninstall.md)")
    settings = session.settings()
    name = session.one_cluster(settings)
    found = await left_of(settings, name)
    show(session, lambda: as_model(name, found), lambda: as_table(found))
    return Exit.FAILED if any(each.left for each in found) else Exit.OK
