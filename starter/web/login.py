"""Saying who one is to the page: a token, once, sealed into a cookie; and what a request has to pass before it is answered."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from starter.errors import RequestError
from starter.web.pages import render
from starter.web.sessions import Sessions, borne
from starter.web.views import views_of
from starter.web.who import Doorkeeper, ForbiddenError, UnknownCallerError, from_elsewhere, those_open_to

OPEN = ("/static/", "/vendor/", "/login", "/healthz")
READS = frozenset({"GET", "HEAD"})
Answer = Callable[[Request], Awaitable[Response]]
OF_ONE = re.compile(r"/(?:c|api/v1/clusters)/([^/]+)")

BORNE = (
    "it came with the request, and whoever has put it there has to get a new one. "
    "Where a proxy logs you in: log out there, and in again"
)
"""What to do about a token that no form of ours can replace."""

router = APIRouter(include_in_schema=False)


async def admitted(request: Request, answer: Answer, told: Callable[[Request, Exception], Awaitable[Response]]) -> Response:
    """The answer, for who may have it; the request knows who asks then, and which clusters he may see. told: how it is said
    why there is none."""
    path = request.url.path
    if request.method not in READS and (why := from_elsewhere(request)):
        return await told(request, ForbiddenError(why))
    if path.startswith(OPEN):
        return await answer(request)
    keeper: Doorkeeper = request.app.state.keeper
    views = views_of(request)
    token = sessions_of(request).token_of(request)
    named = OF_ONE.match(path)
    cluster = unquote(named[1]) if named else ""
    try:
        if cluster and views.of(cluster) is not None:
            request.state.caller = await keeper.caller(token, cluster)
        request.state.clusters = await those_open_to(keeper, token, (cluster,) if views.of(cluster) else views.clusters)
    except UnknownCallerError as error:
        if request.method in READS and not path.startswith("/api/") and not borne(request):
            return RedirectResponse(f"/login?then={quote(path, safe='')}", status_code=303)
        refused = await told(request, UnknownCallerError(f"{error}: {BORNE}") if borne(request) else error)
        refused.headers["WWW-Authenticate"] = "Bearer"
        return refused
    except RequestError as error:
        return await told(request, error)
    return await answer(request)


@router.get("/login")
async def ask(request: Request, then: str = "/", token: str = "") -> Response:
    """Where a browser says who it is; with the address that was printed for the loopback, at once."""
    if token and not request.app.state.keeper.login:
        return await begin(request, token, then)
    return render(request, "login.html", "Who are you?", then=_ours(then), token=sessions_of(request).form_token(request))


@router.post("/login")
async def begin(request: Request, token: Annotated[str, Form()], then: Annotated[str, Form()] = "/") -> Response:
    """The token, which is looked at by the cluster before anything is remembered."""
    views = views_of(request)
    try:
        await those_open_to(request.app.state.keeper, token.strip(), views.clusters)
        sealed = sessions_of(request).begin(token.strip())
    except RequestError as error:
        return render(request, "login.html", "Who are you?", status=401, then=_ours(then), problem=str(error))
    answer = RedirectResponse(_ours(then), status_code=303)
    secure, name = request.app.state.keeper.login, sessions_of(request).cookie(request)
    answer.set_cookie(name, sealed, httponly=True, secure=secure, samesite="strict", path="/")
    return answer


@router.post("/logout")
async def end(request: Request) -> Response:
    """The browser forgets the token. Whoever has copied the cookie may go on until the token ends, or the session."""
    answer = RedirectResponse("/login", status_code=303)
    answer.delete_cookie(sessions_of(request).cookie(request), path="/", secure=True, httponly=True, samesite="strict")
    return answer


def sessions_of(request: Request) -> Sessions:
    """By the keys of this process."""
    sessions: Sessions = request.app.state.sessions
    return sessions


def _ours(path: str) -> str:
    """A place of this page and of no other."""
    return path if re.fullmatch(r"/(?![/\\])[^\\\s]*", path) else "/"
