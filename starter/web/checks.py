"""Health checks: how near each is to its threshold, and what a changed one would say."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import Response

from policy.scan.report import CheckReport
from policy.values.object_refs import Dialect
from starter.errors import RequestError
from starter.web import api
from starter.web.answers import UnreadableError
from starter.web.login import sessions_of
from starter.web.overview import overview_of
from starter.web.pages import render, templates
from starter.web.views import views_of
from starter.web.whatif import LONGEST, WhatIfAnswer, what_if
from starter.web.who import ForbiddenError

MOST_BYTES = 4 * LONGEST
"""Of a form: what is pasted may be three times as long once a browser has written it."""

router = APIRouter()


def needed(check: CheckReport) -> int | None:
    """How many of its targets have to be healthy, or else its brake closes; None where its report does not say."""
    counted = check.allowed and not check.error and check.dialect is not Dialect.NODE_FENCING
    return max(0, check.healthy - check.remaining) if counted else None


templates.env.filters["needed"] = needed


@router.get("/c/{cluster}/checks", include_in_schema=False)
async def shown(request: Request, cluster: str) -> Response:
    """What each health check counts, and whether it may act."""
    return await _page(request, cluster)


@router.post("/c/{cluster}/checks", include_in_schema=False)
async def tried(request: Request, cluster: str) -> Response:
    """The same, with what a changed check would say."""
    form = parse_qs(await _body(request), max_num_fields=2)
    if not sessions_of(request).is_ours(request, form.get("form_token", [""])[0]):
        raise ForbiddenError("this form was not made here, or is too old: open the page again")
    text = form.get("check", [""])[0]
    try:
        return await _page(request, cluster, pasted=text, found=await what_if(views_of(request), cluster, text))
    except (RequestError, UnreadableError) as error:
        return await _page(request, cluster, pasted=text, problem=str(error), status=api.status_of(error))


@router.post(f"{api.OF_CLUSTER}/what-if", response_class=Response, response_model=None)
async def asked(request: Request, cluster: str) -> object:
    """What one or more changed health checks, as YAML or JSON in the body, would say, beside today's. Nothing is kept."""
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip()
    if kind not in {"application/json", "application/yaml"}:
        raise UnreadableError("Content-Type: expected application/yaml or application/json")
    return api.answer(await what_if(views_of(request), cluster, await _body(request)))


api.ANSWERED_BY_POST[f"{api.OF_CLUSTER}/what-if"] = (WhatIfAnswer,)


async def _page(
    request: Request,
    cluster: str,
    *,
    pasted: str = "",
    found: WhatIfAnswer | None = None,
    problem: str = "",
    status: int = 200,
) -> Response:
    overview = overview_of(await views_of(request).known(cluster).status())
    return render(
        request,
        "checks.html",
        "Checks",
        status=status,
        cluster=cluster,
        overview=overview,
        pasted=pasted,
        found=found,
        problem=problem,
        longest=LONGEST,
        form_token=sessions_of(request).form_token(request),
        still=bool(pasted or problem),
    )


async def _body(request: Request) -> str:
    """Raises UnreadableError as soon as it is too long, whatever its length is said to be."""
    whole = bytearray()
    async for each in request.stream():
        whole += each
        if len(whole) > MOST_BYTES:
            raise UnreadableError(f"expected at most {LONGEST} characters")
    try:
        return whole.decode()
    except UnicodeDecodeError:
        raise UnreadableError("expected text in UTF-8") from None
