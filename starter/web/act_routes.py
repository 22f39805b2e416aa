"""The acts over HTTP: a preview, then the word and what was answered; as pages and, under `/api/v1`, for programs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import Response
from pydantic import ValidationError

from policy.episode.operator_commands import Verb
from starter.errors import RequestError
from starter.output.models import Begun, Told
from starter.web import api
from starter.web.acts import WITH_A_TIME, ActPreview, WordToSay, in_a_line, preview, said, said_by
from starter.web.answers import UnreadableError
from starter.web.auth import Caller, ForbiddenError
from starter.web.login import sessions_of
from starter.web.pages import render
from starter.web.views import views_of

router = APIRouter()
api.KINDS[f"{api.OF_CLUSTER}/acts/{{word}}"] = ActPreview


@router.get(f"{api.OF_CLUSTER}/acts/{{word}}", response_class=Response, response_model=None)
async def previewed(request: Request, cluster: str, word: Verb, node: str = "") -> object:
    """What would come of a word. Nothing is said."""
    known, caller = views_of(request).known(cluster).cluster, _caller(request)
    return api.answer(await preview(views_of(request), caller, known, word, node))


@router.post(f"{api.OF_CLUSTER}/acts", response_class=Response, response_model=None)
async def acted(request: Request, cluster: str, act: WordToSay) -> object:
    """Say a word, as who asks: the answer is Told, and Begun of `fence`, `remediate` and `preserve`."""
    if request.headers.get("Content-Type", "").partition(";")[0].strip() != "application/json":
        raise UnreadableError("Content-Type: expected application/json")
    view = views_of(request).known(cluster)
    answer = await said(_caller(request), view.cluster, act)
    await view.renewed()
    return api.answer(answer)


@router.get("/c/{cluster}/acts/{word}", include_in_schema=False)
async def shown(request: Request, cluster: str, word: Verb, node: str = "") -> Response:
    """The preview, with the form that says it."""
    return await _form(request, cluster, word, node)


@router.post("/c/{cluster}/acts", include_in_schema=False)
async def sent(
    request: Request,
    cluster: str,
    *,
    word: Annotated[Verb, Form()],
    form_token: Annotated[str, Form()] = "",
    node: Annotated[str, Form()] = "",
    reason: Annotated[str, Form()] = "",
    hold: Annotated[str, Form(alias="for")] = "",
    power_on: Annotated[bool, Form()] = False,
    question: Annotated[int, Form()] = 0,
    of: Annotated[str, Form()] = "",
    override: Annotated[tuple[str, ...], Form()] = (),
    node_name: Annotated[str, Form()] = "",
) -> Response:
    """Say it, and show the answer or the refusal."""
    if not sessions_of(request).is_ours(request, form_token):
        raise ForbiddenError("this form was not made here, or is too old: open the page again")
    try:
        given = {
            "power_on": power_on,
            "question": question,
            "of": of,
            "override": ",".join(override),
            "node_name": node_name.strip(),
        }
        act = WordToSay(word=word, node=node, reason=reason, hold=hold.strip(), **given)
        view = views_of(request).known(cluster)
        answer: Told | Begun = await said(_caller(request), view.cluster, act)
        await view.renewed()
    except (RequestError, UnreadableError, ValidationError) as error:
        return await _form(request, cluster, word, node, refused=str(error), code=api.status_of(error))
    return render(
        request, "said.html", word.value, still=True, cluster=cluster, node=node, word=word.value, answer=in_a_line(answer, word)
    )


async def _form(request: Request, cluster: str, word: Verb, node: str, *, refused: str = "", code: int = 200) -> Response:
    known = views_of(request).known(cluster).cluster
    found = await preview(views_of(request), _caller(request), known, word, node)
    return render(
        request,
        "act.html",
        f"{word.value} {node}".strip(),
        status=code,
        cluster=cluster,
        preview=found,
        who=await said_by(_caller(request), known),
        refused=refused,
        entered=await request.form(),
        still=True,
        with_time=word in WITH_A_TIME,
        needs_time=WITH_A_TIME.get(word, False),
        form_token=sessions_of(request).form_token(request),
    )


def _caller(request: Request) -> Caller:
    """Of a cluster that is known here: of others nobody has been asked."""
    caller: Caller = request.state.caller
    return caller
