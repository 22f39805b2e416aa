"""`nodewarden ui`: the page, served here for a deployment that runs elsewhere."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from starter.commands.arguments import ClusterOption
from starter.commands.session import Exit, run, session_of


def ui(
    context: typer.Context,
    *,
    port: Annotated[int, typer.Option("--port", help="On the loopback; 0: any that is free.")] = 8090,
    cluster: ClusterOption = "",
) -> None:
    """Serve the page that says whether it is safe, whom it needs and why nothing happens, until Ctrl-C.

    On the loopback only. It asks Temporal and the scanners while somebody looks, and keeps nothing.
    """
    session = session_of(context, cluster=cluster)

    async def work() -> Exit:
        from workers.configuration.setting_sources import SettingsError

        try:
            from starter.web.app import serving
            from starter.web.views import Views
        except ModuleNotFoundError as missing:
            raise SettingsError(f"the page needs {missing.name}: pip install 'nodewarden[ui]'") from None
        async with session.connected() as (warden, settings, name):
            names = (name,) if session.cluster else tuple(settings.connections()) or (name,)
            async with serving(Views(warden, names), host="127.0.0.1", port=port) as address:
                typer.echo(f"the page is at {address}  (Ctrl-C ends it)")
                await asyncio.Event().wait()
        return Exit.OK

    run(session, work)
