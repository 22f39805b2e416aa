"""`nodewarden codec serve`: Temporal's web UI and command read encrypted histories through it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from starter.commands.session import Exit, Session, print_answer, session_of, working

if TYPE_CHECKING:
    import ssl

    from workers.configuration.settings import Settings

PORT = 8234
"""Beside that of the embedded server's UI."""

app = typer.Typer(help="Read encrypted payloads with Temporal's own tools.", no_args_is_help=True)


@app.callback()
def codec() -> None:
    """A group, although it has one command."""


@app.command("serve")
@working
async def serve(
    context: typer.Context,
    *,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0: any that is free.")] = PORT,
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
    from starter.commands.tls import tls_of
    from workers.configuration.setting_sources import SettingsError
    from workers.configuration.setting_types import is_loopback

    session = session_of(context)
    if not is_loopback(host) and not (tls_cert and tls_key and token_file):
        raise SettingsError(
            f"--host: expected the loopback, or --tls-cert, --tls-key and --token-file as well: "
            f"a caller of it can read all histories; got {host}"
        )
    door = _Door(host=host, port=port, tls=tls_of(tls_cert, tls_key), token=_token(token_file))
    return await _serve(session, door, ui_origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Door:
    """Where it is reached, and what must be shown there. token: "" for none."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    token: str


async def _serve(session: Session, door: _Door, origins: list[str] | None) -> Exit:
    from starter.output.models import CodecServed
    from workers.configuration.setting_sources import SettingsError
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
    known = _origins(origins, settings)
    server = CodecServer(encryption, namespace=settings.temporal.namespace, origins=known, token=door.token)
    async with stop_on_signals() as stop:
        try:
            async with server.listening(door.host, door.port, door.tls) as url:
                served = CodecServed(url=url, origins=tuple(known))
                print_answer(session, f"codec {url}, for the web UI at {' and '.join(known) or '(none)'}", lambda: served)
                await stop.wait()
        except OSError as error:
            raise SettingsError(f"--port: {door.host}:{door.port} can't be listened on: {error.strerror or error}") from error
    return Exit.OK


def _origins(given: list[str] | None, settings: Settings) -> list[str]:
    """Those that were named, else of the embedded server's UI, if that runs here."""
    from workers.configuration.setting_sources import SettingsError
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
    from workers.configuration.setting_sources import SettingsError

    if file is None:
        return ""
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--token-file: expected a readable file: {error}") from error
    if len(token) < 32 or not token.isprintable() or " " in token:
        raise SettingsError(f"--token-file: {file}: expected one word of at least 32 characters (openssl rand -hex 32)")
    return token
