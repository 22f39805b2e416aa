"""Saying who one is to the page: a token, once, sealed into a cookie; and what a request has to pass before it is answered."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Form, Request
from fastapi.responses import RedirectResponse, Response

from starter.errors import RequestError
from starter.web.auth import (
    Doorkeeper,
    ForbiddenError,
    Sessions,
    UnknownCallerError,
    address_of,
    borne,
    cluster_in,
    from_elsewhere,
    those_open_to,
)
from starter.web.pages import render
from starter.web.views import views_of

OPEN = ("/static/", "/vendor/", "/login", "/healthz")
READS = frozenset({"GET", "HEAD"})
Answer = Callable[[Request], Awaitable[Response]]

BORNE = (
    "it came with the request: the program that sent it needs a new one. Where a proxy logs you in: log out there, and in again"
)
"""What to do about a token that no form of ours can replace."""

ONE_EACH = "a token is shown to that cluster alone (shared_tokens, where all trust one identity provider)"

router = APIRouter(include_in_schema=False)


async def admitted(request: Request, answer: Answer, refused: Callable[[Request, Exception], Awaitable[Response]]) -> Response:
    """The answer, for who may have it; the request knows who asks then, and which clusters that person may see. refused: answers
    why there is none."""
    path = request.url.path
    if request.method not in READS and (why := from_elsewhere(request)):
        return await refused(request, ForbiddenError(why))
    if path.startswith(OPEN):
        return await answer(request)
    keeper: Doorkeeper = request.app.state.keeper
    views = views_of(request)
    sessions, cluster = sessions_of(request), cluster_in(path)
    known, token_of = cluster in views.clusters, partial(sessions.token_of, request)
    try:
        if sessions.apart and borne(request) and not known:
            raise ForbiddenError(f"expected the cluster that the token is for in the path, as /c/NAME: {ONE_EACH}")
        if known:
            request.state.caller = await keeper.caller(token_of(cluster), cluster, address_of(request))
        wanted = (cluster,) if known else views.clusters
        request.state.clusters = await those_open_to(keeper, token_of, wanted, address_of(request))
    except UnknownCallerError as error:
        if request.method in READS and not path.startswith("/api/") and not borne(request):
            return RedirectResponse(f"/login?then={quote(path, safe='')}", status_code=303)
        challenge = await refused(request, UnknownCallerError(f"{error}: {BORNE}") if borne(request) else error)
        challenge.headers["WWW-Authenticate"] = "Bearer"
        return challenge
    except RequestError as error:
        return await refused(request, error)
    return await answer(request)


@router.get("/login")
async def ask(request: Request, then: str = "/", token: str = "") -> Response:
    """Where a browser says who it is; with the address that was printed for the loopback, at once."""
    if token and not request.app.state.keeper.login:
        return await begin(request, token, then)
    return _asked(request, _ours(then), cluster_in(then))


def _asked(request: Request, then: str, cluster: str, problem: str = "", status: int = 200) -> Response:
    values = {"then": then, "problem": problem, "apart": sessions_of(request).apart, "of_cluster": cluster}
    return render(request, "login.html", "Who are you?", status=status, **values)


@router.post("/login")
async def begin(
    request: Request, token: Annotated[str, Form()], then: Annotated[str, Form()] = "/", cluster: Annotated[str, Form()] = ""
) -> Response:
    """The token, which is looked at by the cluster that it is for before anything is remembered."""
    sessions, clusters, token = sessions_of(request), views_of(request).clusters, token.strip()
    name = sessions.cookie(request, cluster)
    try:
        if sessions.apart and cluster not in clusters:
            raise UnknownCallerError(f"expected the name of a cluster of this page: {ONE_EACH}")
        wanted = (cluster,) if sessions.apart else clusters
        await those_open_to(request.app.state.keeper, lambda _: token, wanted, address_of(request))
        sealed = sessions.begin(token, name)
    except RequestError as error:
        return _asked(request, _ours(then), cluster, str(error), 401)
    answer = RedirectResponse(_ours(then), status_code=303)
    secure = request.app.state.keeper.login
    answer.set_cookie(name, sealed, httponly=True, secure=secure, samesite="strict", path="/")
    return answer


@router.post("/logout")
async def end(request: Request) -> Response:
    """The browser forgets the token. A copy of the cookie may be used until the token ends, or the session."""
    answer = RedirectResponse("/login", status_code=303)
    secure = request.app.state.keeper.login  # as it was set: over plain HTTP a browser takes no other word for it
    for name in sorted({sessions_of(request).cookie(request, each) for each in ("", *views_of(request).clusters)}):
        answer.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="strict")
    return answer


def sessions_of(request: Request) -> Sessions:
    """By the keys of this process."""
    sessions: Sessions = request.app.state.sessions
    return sessions


def _ours(path: str) -> str:
    """A place of this page and of no other."""
    return path if re.fullmatch(r"/(?![/\\])[^\\\s]*", path) else "/"
