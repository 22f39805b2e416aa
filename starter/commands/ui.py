"""`nodewarden ui`: the page, served here for a deployment that runs elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.arguments import ClusterOption
from starter.commands.session import Exit, folded, me, session_of, working

if TYPE_CHECKING:
    from temporalio.client import Client

    from activities.contracts.episode_start import TemporalUi
    from starter.client import Nodewarden
    from starter.web.auth import Doorkeeper
    from starter.web.sessions import Sessions
    from workers.configuration.settings import Settings

PAGE_PORT = 8090

log = logging.getLogger(__name__)


@working
async def ui(
    context: typer.Context,
    *,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0: any that is free.")] = PAGE_PORT,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. Any but the loopback needs TLS, or a proxy that speaks it.")
    ] = "127.0.0.1",
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="Certificate, as a PEM file.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its private key, as a PEM file.")] = None,
    behind_proxy: Annotated[
        bool,
        typer.Option("--behind-proxy", help="A proxy speaks TLS and hands on the Authorization header; no other is believed."),
    ] = False,
    session_keys: Annotated[
        Path | None,
        typer.Option(
            "--session-keys",
            help="A file of keys, one to a line, the newest first, that seal browsers' sessions: processes with the same ones"
            " are one page, and a restart ends no session. Else each process makes one of its own.",
        ),
    ] = None,
    cluster: ClusterOption = "",
) -> Exit:
    """Serve the page that says whether the cluster is safe, who is needed, and why nothing happens, until Ctrl-C.

    On the loopback the page is yours: its printed address ends in a token, which programs bear as a header. Elsewhere, and behind
    a proxy, each request needs a bearer token that the cluster knows and that may `get` `nodes.nodewarden.io`; what is said is
    made with that token. It asks Temporal and the scanners only while a page is open.
    """
    from starter.commands.tls import tls_of
    from starter.plans.live import read_named
    from workers.configuration.setting_sources import SettingsError
    from workers.configuration.setting_types import is_loopback
    from workers.os_process import keep_memory_private
    from workers.worker import stop_on_signals

    session = session_of(context, cluster=cluster)
    try:
        from starter.web.app import serving
        from starter.web.views import Views
    except ModuleNotFoundError as missing:
        raise SettingsError(f"the page needs {missing.name}: in a checkout of nodewarden, pip install '.[ui]'") from None
    tls = tls_of(tls_cert, tls_key)
    if not is_loopback(host) and tls is None and not behind_proxy:
        raise SettingsError(f"--host: expected the loopback, or --tls-cert and --tls-key, or --behind-proxy; got {host}")
    keep_memory_private()
    sessions = _sessions(session_keys)
    async with stop_on_signals() as stop, session.connected_to_all() as (warden, settings, names):
        keeper = _keeper(warden, settings, login=not is_loopback(host) or behind_proxy)
        reading, temporal = partial(read_named, settings), _temporal_ui(settings)
        views = Views(
            warden,
            names,
            source=settings.policy_source(),
            reading=reading,
            temporal=temporal,
            docs=settings.docs_url,
            offenders=settings.offenders.rules(),
        )
        try:
            async with serving(views, host=host, port=port, keeper=keeper, tls=tls, sessions=sessions) as address:
                typer.echo(folded(f"the page is at {address}  (Ctrl-C ends it)", sys.stdout))
                await stop.wait()
        except OSError as error:
            raise SettingsError(f"--port: {host}:{port} can't be listened on: {error.strerror or error}") from error
    return Exit.OK


@asynccontextmanager
async def page_beside(settings: Settings, client: Client, clusters: tuple[str, ...], *, port: int | None) -> AsyncIterator[str]:
    """The page on the loopback, while something else is done in this process: where it is, to be said behind other addresses, or
    why there is none. port: None for no page, of which nothing is said."""
    from starter.client import Nodewarden
    from starter.handles.node_actions import Speaker, own_connection
    from starter.plans.live import read_named

    if port is None:
        yield ""
        return
    try:
        from starter.web.app import serving
        from starter.web.views import Views
    except ModuleNotFoundError:
        yield ""
        return
    speaker = Speaker(partial(own_connection, settings), otherwise=me(), complain=log.warning)
    warden = Nodewarden(client, speaker=speaker, page=settings.page_url)
    reading, temporal = partial(read_named, settings), _temporal_ui(settings)
    views = Views(
        warden,
        clusters,
        source=settings.policy_source(),
        reading=reading,
        temporal=temporal,
        docs=settings.docs_url,
        offenders=settings.offenders.rules(),
    )
    async with AsyncExitStack() as stack:
        page = serving(views, host="127.0.0.1", port=port, keeper=_keeper(warden, settings, login=False))
        try:
            where = f", page {await stack.enter_async_context(page)}"
        except OSError as error:
            where = f", no page: port {port}: {error.strerror or error} (--ui-port, --no-ui)"
        yield where


def _temporal_ui(settings: Settings) -> TemporalUi | None:
    """As the settings have it; the embedded server knows its own."""
    from activities.contracts.episode_start import TemporalUi
    from workers.embedded.server import running_endpoint

    temporal, address = settings.temporal, settings.temporal.ui_url
    if not address and not temporal.address and (endpoint := running_endpoint(settings.state)) is not None:
        address = endpoint.ui_url
    return TemporalUi(address=address, namespace=temporal.namespace) if address else None


def _sessions(file: Path | None) -> Sessions:
    from starter.web.sessions import Sessions
    from workers.configuration.setting_sources import SettingsError
    from workers.deployment_keys import parsed

    if file is None:
        return Sessions()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--session-keys: {file} can't be read: {error}") from error
    return parsed(text, f"--session-keys: {file}", Sessions)


def _keeper(warden: Nodewarden, settings: Settings, *, login: bool) -> Doorkeeper:
    from starter.handles.node_actions import own_connection
    from starter.web.auth import OwnHouse, Reviewed

    opening = partial(own_connection, settings)
    return Reviewed(warden, opening, shared=settings.shared_tokens) if login else OwnHouse(warden, opening, name=me())
