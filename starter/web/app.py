"""The application: pages, what they are kept new by, and what every answer says about itself. Who may ask is `auth.py`."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path

import starlette_admin
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from starter.errors import RequestError, UnreadableError
from starter.web import acts, api, checks, history, login, node, now, pages
from starter.web.api import RequestProblem
from starter.web.auth import Doorkeeper, Sessions, address_of
from starter.web.now import overview_of
from starter.web.views import Views, WatchedCluster, views_of

LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEARTBEAT_SECONDS = 10.0
"""Between two signs of life of a stream in which nothing changes: a browser that misses them connects anew."""

HEADERS = {
    # Nothing inline, nothing from elsewhere, in no frame: a name of a node that is markup stays text, and does nothing.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
MOST_BYTES = 1024 * 1024
"""Of the body of a request; what is pasted into the page, and a command, are far shorter."""
UNBUFFERED = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
"""For proxies: what is said in a stream is passed on as it comes. nginx keeps it back else, and whatever compresses does."""
STRICTLY = "max-age=31536000"
"""For those that are reached by TLS, ours or a proxy's: browsers ignore it elsewhere."""
ASSETS = Path(starlette_admin.__file__).parent / "static"
"""Tabler, as that package carries it."""


def application(views: Views, keeper: Doorkeeper, sessions: Sessions | None = None) -> FastAPI:
    """Serves these views. keeper: who says who asks. sessions: None: of this process alone."""
    app = FastAPI(title="nodewarden", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.views = views
    app.state.keeper = keeper
    app.state.sessions = sessions or Sessions()
    app.state.sessions.local = not keeper.login
    app.state.sessions.apart = not keeper.shared and len(views.clusters) > 1
    app.state.document = cache(lambda: api.document(app))
    for part in (node, checks, history, now, pages, api, acts, login):
        app.include_router(part.router)
    app.mount("/static", StaticFiles(directory=pages.HERE / "static"))
    app.mount("/vendor", StaticFiles(directory=ASSETS))
    app.add_api_route("/healthz", _alive, methods=["GET"], include_in_schema=False)
    app.add_api_route(f"{api.OF_CLUSTER}/events", events, methods=["GET"], response_class=StreamingResponse)
    for kind in (RequestError, HTTPException, RequestValidationError, UnreadableError):
        app.add_exception_handler(kind, _error_page)
    app.add_middleware(_Bounded)
    if not app.state.keeper.login:
        # A foreign page with a name that is made to lead to the loopback does not get to read ours.
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK, "[::1]"])
    app.middleware("http")(_with_headers)
    return app


class _Bounded:
    """Refuses a body that is too long, whatever its length is said to be: it would be held in memory as a whole."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI asks an application."""
        taken = 0

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > MOST_BYTES:
                raise HTTPException(413, f"expected a body of at most {MOST_BYTES} bytes")
            return message

        await self._app(scope, bounded, send)


async def _alive() -> Response:
    """For probes, which have no token. Whether Temporal and the scanners answer is what the page says, without them as well."""
    return Response("ok\n", media_type="text/plain")


async def events(request: Request, cluster: str) -> StreamingResponse:
    """Server-sent events: `changed` whenever the cluster's view has changed, and a comment at least every ten seconds."""
    view = views_of(request).known(cluster)
    keeper, token = request.app.state.keeper, login.sessions_of(request).token_of(request)

    async def still() -> bool:
        try:
            await keeper.caller(token, cluster, address_of(request))
        except RequestError:
            return False
        return True

    return Events(view, still)


class Events(StreamingResponse):
    """To one reader, for as long as it is there: the generator of one that goes while it is written to ends only when its garbage
    is collected, and until then the cluster would be asked on its behalf. still: see `_stream`."""

    def __init__(self, view: WatchedCluster, still: Callable[[], Awaitable[bool]]) -> None:
        super().__init__(_stream(view, still), media_type="text/event-stream", headers=UNBUFFERED)
        self._view = view

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._view.watched():
            await super().__call__(scope, receive, send)


async def _stream(view: WatchedCluster, still: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
    """still: whether the reader may go on; a browser then asks anew, and is answered why not."""
    status, shown = None, None
    while await still():
        found = await view.next(status, within=HEARTBEAT_SECONDS)
        if found is None or (visible := now.visible(overview_of(found))) == shown:
            yield ": here\n\n"
        else:
            shown = visible
            yield "event: changed\ndata: {}\n\n"
        status = found or status


async def _with_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    answer = await login.admitted(request, call_next, _error_page)
    for name, value in HEADERS.items():
        answer.headers[name] = value
    if request.app.state.keeper.login:
        # On the loopback it would hold for whatever else listens there.
        answer.headers["Strict-Transport-Security"] = STRICTLY
    if not request.url.path.startswith(("/static", "/vendor")):
        answer.headers.setdefault("Cache-Control", "no-store")
    return answer


async def _error_page(request: Request, error: Exception) -> Response:
    """Programs get JSON, people a page."""
    http = isinstance(error, HTTPException)
    status = error.status_code if isinstance(error, HTTPException) else api.status_of(error)
    said = str(error.detail) if isinstance(error, HTTPException) else api.error_text(error)
    if request.url.path.startswith("/api/"):
        return api.answer(RequestProblem(error=said), status=status) if http else api.problem(error)
    title = {404: "Not found", 502: "No answer", 503: "No answer"}.get(status, "Refused")
    return pages.problem(request, title, said, status=status)


@asynccontextmanager
async def serving(
    views: Views,
    *,
    host: str,
    port: int,
    keeper: Doorkeeper,
    tls: ssl.SSLContext | None = None,
    sessions: Sessions | None = None,
) -> AsyncIterator[str]:
    """Serve until the context ends; its value is where people come in. Raises OSError where nothing can be bound there."""
    config = uvicorn.Config(
        application(views, keeper, sessions),
        log_config=None,  # logging is the process's own affair
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
        lifespan="off",
        proxy_headers=False,
        server_header=False,
    )
    config.load()
    config.ssl = tls
    server = _Server(config)
    listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    # Connections have it from here: asyncio sets it only where the protocol is named, and an answer then waits for 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http{'s' if tls is not None else ''}://{shown}:{listening.getsockname()[1]}/{keeper.way_in}"
    finally:
        server.should_exit = True
        await asyncio.gather(running, return_exceptions=True)
        await views.close()


class _Server(uvicorn.Server):
    """Ends when `should_exit` is set: signals belong to the process that it runs in."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
