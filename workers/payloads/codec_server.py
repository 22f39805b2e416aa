"""Temporal's remote codec: decrypts payloads for its web UI and its `temporal` command, which have no keys.

POST /encode and /decode with `{"payloads": […]}` as Temporal spells them. A caller that is answered can read every history, so it
refuses a page of another origin than the UI's (a browser always names it), and a request without its token: that of the header
or, as the UI in a browser sends none, the secret path at which it is found (S51). What it needs to serve others than this
machine is refused in `starter/commands/servers.py`.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager

from aiohttp import web
from google.protobuf.json_format import MessageToJson, Parse, ParseError
from temporalio.api.common.v1 import Payload, Payloads

from workers.errors import SettingsError
from workers.payloads.encryption import Encryption

_log = logging.getLogger(__name__)

LONGEST_BODY = 64 * 1024 * 1024
"""A page of a history, which the `temporal` command sends as a whole; in base64."""

Translate = Callable[[Sequence[Payload]], Awaitable[list[Payload]]]


class CodecServer:
    """origins: of the web UI, such as `https://temporal.example.org`. token: of each request; without it the URL is secret."""

    def __init__(self, encryption: Encryption, *, namespace: str, origins: Collection[str] = (), token: str = "") -> None:
        self._path = "" if token else f"/{secrets.token_urlsafe(16)}"
        self._encryption = encryption
        self._namespace = namespace
        self._origins = frozenset(origins)
        self._token = token

    @asynccontextmanager
    async def listening(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        """Serve for as long as the block lasts; its URL. Raises OSError where it can't listen."""
        application = web.Application(client_max_size=LONGEST_BODY)
        for path, translate in (("/encode", self._encryption.encode), ("/decode", self._encryption.decode)):
            application.router.add_post(self._path + path, self._answering(translate))
            application.router.add_options(self._path + path, self._preflight)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port, ssl_context=tls)
            await site.start()
            _, taken, *_ = runner.addresses[0]
            shown = f"[{host}]" if ":" in host else host
            yield f"{'https' if tls else 'http'}://{shown}:{taken}{self._path}"
        finally:
            await runner.cleanup()

    def _answering(self, translate: Translate) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            refusal = self._refusal(request)
            if refusal is not None:
                _log.warning("refused %s of %s: %s", request.path.removeprefix(self._path), request.remote, refusal.text)
                return refusal
            try:
                asked = Parse(await request.read(), Payloads())
                answered = Payloads(payloads=await translate(asked.payloads))
            except ParseError as error:
                return self._to(request, web.Response(status=400, text=f'expected {{"payloads": […]}}: {error}'))
            except SettingsError as error:
                return self._to(request, web.Response(status=400, text=str(error)))
            return self._to(request, web.Response(text=MessageToJson(answered), content_type="application/json"))

        return answer

    async def _preflight(self, request: web.Request) -> web.Response:
        """What a browser asks before it sends what a page has asked for. It never sends a token here."""
        if request.headers.get("Origin") not in self._origins:
            return self._foreign(request)
        allowed = {
            "Access-Control-Allow-Methods": "POST",
            "Access-Control-Allow-Headers": "Content-Type, X-Namespace, Authorization",
            "Access-Control-Max-Age": "600",
        }
        return self._to(request, web.Response(status=204, headers=allowed))

    def _refusal(self, request: web.Request) -> web.Response | None:
        origin = request.headers.get("Origin")
        if origin is not None and origin not in self._origins:
            return self._foreign(request)
        given = request.headers.get("Authorization", "")
        if self._token and not hmac.compare_digest(given.encode(errors="replace"), f"Bearer {self._token}".encode()):
            answer = web.Response(status=401, text="expected the token: Authorization: Bearer …")
            return self._to(request, answer)
        namespace = request.headers.get("X-Namespace", self._namespace)
        if namespace != self._namespace:
            answer = web.Response(status=403, text=f"expected X-Namespace: {self._namespace}, got {namespace}")
            return self._to(request, answer)
        return None

    @staticmethod
    def _foreign(request: web.Request) -> web.Response:
        origin = request.headers.get("Origin", "")
        return web.Response(status=403, text=f"expected a page of the web UI; {origin} is none (--ui-origin)")

    def _to(self, request: web.Request, response: web.Response) -> web.Response:
        """With leave for the page that asked to read it."""
        origin = request.headers.get("Origin")
        if origin in self._origins:
            response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Vary"] = "Origin"
        return response
