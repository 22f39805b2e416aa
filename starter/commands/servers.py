"""What serves until Ctrl-C: `nodewarden codec serve`, by which Temporal's web UI and command read encrypted histories, and
`nodewarden ui`, the page for a deployment that runs elsewhere."""

from __future__ import annotations

import logging
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.arguments import ClusterOption
from starter.commands.session import Exit, Session, folded, me, print_answer, session_of, working
from workers.errors import SettingsError

if TYPE_CHECKING:
    from temporalio.client import Client

    from activities.contracts.episode_start import TemporalUi
    from starter.client import Nodewarden
    from starter.web.auth import Doorkeeper, Sessions
    from starter.web.views import Views
    from workers.configuration.settings import Settings

log = logging.getLogger(__name__)

CODEC_PORT = 8234
"""Beside that of the embedded server's UI."""
PAGE_PORT = 8090

app = typer.Typer(help="Read encrypted payloads with Temporal's own tools.", no_args_is_help=True)


@app.callback()
def codec() -> None:
    """A group, although it has one command."""


@app.command("serve")
@working
async def serve(
    context: typer.Context,
    *,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0: any that is free.")] = CODEC_PORT,
    ui_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--ui-origin", help="Where the web UI is, such as https://ui.example.org (repeatable); default: ours.", metavar="URL"
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. Any but the loopback needs TLS and a token.")
    ] = "127.0.0.1",
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="Certificate, as a PEM file.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its private key, as a PEM file.")] = None,
    token_file: Annotated[Path | None, typer.Option("--token-file", help="A token that every request must bear.")] = None,
) -> Exit | None:
    """Decrypt payloads for Temporal's web UI and the `temporal` command, until Ctrl-C. With its URL or token all is read.

    temporal workflow show -w episode/prod/node-7 --codec-endpoint URL
    """
    from workers.configuration.setting_types import is_loopback

    session = session_of(context)
    if not is_loopback(host) and not (tls_cert and tls_key and token_file):
        raise SettingsError(
            f"--host: expected the loopback, or --tls-cert, --tls-key and --token-file as well: "
            f"a caller of it can read all histories; got {host}"
        )
    return await _serve(session, ui_origin, _token(token_file), host=host, port=port, tls=tls_of(tls_cert, tls_key))


async def _serve(
    session: Session, addresses: list[str] | None, token: str, *, host: str, port: int, tls: ssl.SSLContext | None
) -> Exit:
    """addresses: of the pages that may ask, None for the embedded server's. token: what each request must bear, "" for none."""
    from starter.output.models import CodecServed
    from workers.deployment_keys import encryption_of
    from workers.logs import configure
    from workers.os_process import keep_memory_private
    from workers.payloads.codec_server import CodecServer
    from workers.worker import stop_on_signals

    keep_memory_private()
    settings = session.settings()
    configure(settings.log)
    encryption = await encryption_of(settings.temporal, settings.connections, patience=settings.temporal.patience)
    if encryption is None:
        raise SettingsError(
            "temporal.payload_keys_file or temporal.payload_keys_secret: expected one of them; nothing is encrypted"
        )
    known = _origins(addresses, settings)
    server = CodecServer(encryption, namespace=settings.temporal.namespace, origins=known, token=token)
    async with stop_on_signals() as stop, _listening(server.listening(host, port, tls), host, port) as url:
        served = CodecServed(url=url, origins=tuple(known))
        print_answer(session, f"codec {url}, for the web UI at {' and '.join(known) or '(none)'}", lambda: served)
        await stop.wait()
    return Exit.OK


def _origins(given: list[str] | None, settings: Settings) -> list[str]:
    """Those that were named, else of the embedded server's UI, if that runs here."""
    from workers.embedded.server import running_endpoint

    if given is None:
        endpoint = running_endpoint(settings.state)
        return [endpoint.ui_url] if endpoint is not None else []
    for origin in given:
        scheme, _, rest = origin.partition("://")
        if scheme not in {"http", "https"} or not rest or set(rest) & set("/?#*@ "):
            raise SettingsError(
                f"--ui-origin: expected scheme, host and port such as https://temporal.example.org, got {origin!r}"
            )
    return given


def _token(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--token-file: expected a readable file: {error}") from error
    if len(token) < 32 or not token.isprintable() or " " in token:
        raise SettingsError(f"--token-file: {file}: expected one word of at least 32 characters (openssl rand -hex 32)")
    return token


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
    from workers.configuration.setting_types import is_loopback
    from workers.os_process import keep_memory_private
    from workers.worker import stop_on_signals

    session = session_of(context, cluster=cluster)
    try:
        from starter.web.app import serving
    except ModuleNotFoundError as missing:
        raise SettingsError(f"the page needs {missing.name}: in a checkout of nodewarden, pip install '.[ui]'") from None
    tls = tls_of(tls_cert, tls_key)
    if not is_loopback(host) and tls is None and not behind_proxy:
        raise SettingsError(f"--host: expected the loopback, or --tls-cert and --tls-key, or --behind-proxy; got {host}")
    keep_memory_private()
    sessions = _sessions(session_keys)
    async with stop_on_signals() as stop, session.connected_to_all() as (warden, settings, names):
        keeper = _keeper(warden, settings, login=not is_loopback(host) or behind_proxy)
        page = serving(_views(warden, names, settings), host=host, port=port, keeper=keeper, tls=tls, sessions=sessions)
        async with _listening(page, host, port) as address:
            typer.echo(folded(f"the page is at {address}  (Ctrl-C ends it)", sys.stdout))
            await stop.wait()
    return Exit.OK


@asynccontextmanager
async def page_beside(settings: Settings, client: Client, clusters: tuple[str, ...], *, port: int | None) -> AsyncIterator[str]:
    """The page on the loopback, while something else is done in this process: where it is, to be said behind other addresses, or
    why there is none. port: None for no page, of which nothing is said."""
    from starter.client import Nodewarden
    from starter.handles.node_actions import Speaker, own_connection

    if port is None:
        yield ""
        return
    try:
        from starter.web.app import serving
    except ModuleNotFoundError:
        yield ""
        return
    speaker = Speaker(partial(own_connection, settings), otherwise=me(), complain=log.warning)
    warden = Nodewarden(client, speaker=speaker, page=settings.page_url)
    async with AsyncExitStack() as stack:
        keeper = _keeper(warden, settings, login=False)
        page = serving(_views(warden, clusters, settings), host="127.0.0.1", port=port, keeper=keeper)
        try:
            where = f", page {await stack.enter_async_context(page)}"
        except OSError as error:
            where = f", no page: port {port}: {error.strerror or error} (--ui-port, --no-ui)"
        yield where


def _views(warden: Nodewarden, clusters: tuple[str, ...], settings: Settings) -> Views:
    from starter.plans.cluster_objects import read_named
    from starter.web.views import Views

    return Views(
        warden,
        clusters,
        source=settings.policy_source(),
        reading=partial(read_named, settings),
        temporal=_temporal_ui(settings),
        docs=settings.docs_url,
        offenders=settings.offenders.rules(),
    )


def _temporal_ui(settings: Settings) -> TemporalUi | None:
    """As the settings have it; the embedded server knows its own."""
    from activities.contracts.episode_start import TemporalUi
    from workers.embedded.server import running_endpoint

    temporal, address = settings.temporal, settings.temporal.ui_url
    if not address and not temporal.address and (endpoint := running_endpoint(settings.state)) is not None:
        address = endpoint.ui_url
    return TemporalUi(address=address, namespace=temporal.namespace) if address else None


def _sessions(file: Path | None) -> Sessions:
    from starter.web.auth import Sessions
    from workers.deployment_keys import of_file

    return of_file("--session-keys", file, Sessions) if file is not None else Sessions()


def _keeper(warden: Nodewarden, settings: Settings, *, login: bool) -> Doorkeeper:
    from starter.handles.node_actions import own_connection
    from starter.web.auth import OwnHouse, Reviewed

    opening = partial(own_connection, settings)
    return Reviewed(warden, opening, shared=settings.shared_tokens) if login else OwnHouse(warden, opening, name=me())


# What both have: where they listen, and by which certificate.


@asynccontextmanager
async def _listening(serving: AbstractAsyncContextManager[str], host: str, port: int) -> AsyncIterator[str]:
    """The address at which it serves. Raises SettingsError where it can't be listened on."""
    try:
        async with serving as address:
            yield address
    except OSError as error:
        raise SettingsError(f"--port: {host}:{port} can't be listened on: {error.strerror or error}") from error


def tls_of(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """By these PEM files, which are looked at again at each handshake; None where neither is given.

    Raises SettingsError for one of them, and for files that hold no certificate and its key.
    """
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise SettingsError("--tls-cert and --tls-key: expected both or neither")
    try:
        return _Pair(certificate, key).begun()
    except OSError as error:
        raise SettingsError(f"--tls-cert and --tls-key: expected a certificate and its key, as PEM files: {error}") from error


Stamp = tuple[tuple[int, int], ...]


@dataclass(slots=True)
class _Pair:
    certificate: Path
    key: Path
    seen: Stamp = ()
    newest: ssl.SSLContext | None = None

    def begun(self) -> ssl.SSLContext:
        """Raises OSError."""
        self.seen = self._stamp()
        self.newest = first = self._loaded()
        first.sni_callback = self._before_it_is_shown
        return first

    def _before_it_is_shown(self, connection: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
        """OpenSSL asks at each handshake, whether or not a name is asked for."""
        try:
            if (now := self._stamp()) != self.seen:
                self.newest, self.seen = self._loaded(), now
                log.info("shows the certificate that is in %s now", self.certificate)
        except OSError as error:
            # They may be half written. The old one is as good as it was.
            log.warning("%s, %s: %s; goes on with the certificate from before", self.certificate, self.key, error)
        if self.newest is not None:
            connection.context = self.newest

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context

    def _stamp(self) -> Stamp:
        return tuple((found.st_ino, found.st_mtime_ns) for found in (self.certificate.stat(), self.key.stat()))
