"""Health checks: how near each is to its threshold, and what a changed one would say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import Response

from activities.cluster.watch.offline import ClusterSnapshot
from policy.dialects import is_health_check
from policy.remediation.strategy_rules import Action
from policy.scan.evaluation import evaluate
from policy.scan.scan_report import CheckReport
from policy.values.display_text import counted
from policy.values.object_refs import Dialect, ObjectRef, in_natural_order
from starter.errors import RequestError, UnreadableError
from starter.output.evaluation import as_model
from starter.output.models import CheckAnswer, VerdictAnswer
from starter.plans.cluster_objects import Manifest, Unreadable, read_text
from starter.web import api
from starter.web.auth import Caller, ForbiddenError
from starter.web.login import sessions_of
from starter.web.now import overview_of
from starter.web.pages import render, templates
from starter.web.views import Views, views_of

# What a changed health check would say, beside what today's says: `nodewarden evaluate` on one reading of the cluster.
#
# Nothing is kept and nothing is written: the reading is thrown away with the answer.

LONGEST = 64 * 1024
"""Characters of what is pasted: a health check has a few hundred."""
MOST_CHECKS = 20
MOST_CHANGES = 200
PASTED = "what you pasted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedVerdict:
    """A target on which a check would say something else. null: it does not cover the target."""

    check: str
    target: str
    today: str | None
    then: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCheck:
    """today: null for one that is not there yet."""

    check: str
    today: CheckAnswer | None
    then: CheckAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfAnswer:
    """Each check that was changed, and each target that would get another verdict or action, also under checks that were not.
    left_out: how many more of those there are."""

    cluster: str
    at: datetime
    checks: tuple[ChangedCheck, ...]
    verdicts: tuple[ChangedVerdict, ...]
    left_out: int = 0


async def what_if(views: Views, cluster: str, text: str, *, who: str) -> WhatIfAnswer:
    """text: one or more health checks, as YAML or JSON. Raises UnreadableError, MissingError, SilentError."""
    pasted = _pasted(text)
    async with views.read_anew(cluster, who) as found:
        return _compared(cluster, found, pasted)


def _compared(cluster: str, found: ClusterSnapshot, pasted: list[Manifest]) -> WhatIfAnswer:
    before = as_model(evaluate(found.ledger.known(found.now)), ())
    known = len(found.mistakes)
    for each in pasted:
        found.put(each.document, PASTED)
    if refused := found.mistakes[known:]:
        raise UnreadableError("; ".join(f"{each.ref.key if each.ref else PASTED}: {each.message}" for each in refused))
    after = as_model(evaluate(found.ledger.known(found.now)), ())
    today, then = ({_key(each): each for each in answer.checks} for answer in (before, after))
    names = {str(each.document.get("metadata", {}).get("name")) for each in pasted}
    changes = [
        each for key in sorted(then) for each in _changes(key, today[key].verdicts if key in today else (), then[key].verdicts)
    ]
    return WhatIfAnswer(
        cluster=cluster,
        at=found.now,
        checks=tuple(
            ChangedCheck(check=key, today=today.get(key), then=each)
            for key, each in then.items()
            if each.name in names or (key in today and _head(today[key]) != _head(each))
        ),
        verdicts=tuple(changes[:MOST_CHANGES]),
        left_out=max(0, len(changes) - MOST_CHANGES),
    )


def _pasted(text: str) -> list[Manifest]:
    """Raises UnreadableError for anything but a few health checks."""
    if not text.strip():
        raise UnreadableError("expected a health check as YAML or JSON, got nothing")
    if len(text) > LONGEST:
        raise UnreadableError(f"expected at most {LONGEST} characters, got {len(text)}")
    found = list(read_text(text, PASTED))
    for each in found:
        if isinstance(each, Unreadable):
            raise UnreadableError(f"{each.source}: {each.problem}")
        if not is_health_check(each.document):
            raise UnreadableError(f"expected a health check, got {each.document.get('apiVersion')} {each.document.get('kind')}")
    pasted = [each for each in found if isinstance(each, Manifest)]
    if not 0 < len(pasted) <= MOST_CHECKS:
        raise UnreadableError(f"expected 1 to {counted(MOST_CHECKS, 'health check')}, got {len(pasted)}")
    return pasted


def _key(check: CheckAnswer) -> str:
    return ObjectRef(api_version=check.api_version, kind=check.kind, namespace=check.namespace, name=check.name).key


def _head(check: CheckAnswer) -> tuple[object, ...]:
    return check.healthy, check.targets, check.allowed, check.remediations_allowed, check.message


def _changes(key: str, today: tuple[VerdictAnswer, ...], then: tuple[VerdictAnswer, ...]) -> list[ChangedVerdict]:
    """In other words for the same is no change."""
    before, after = ({each.target: each for each in verdicts} for verdicts in (today, then))
    return [
        ChangedVerdict(check=key, target=target, today=_verdict_text(before.get(target)), then=_verdict_text(after.get(target)))
        for target in sorted(before.keys() | after.keys(), key=in_natural_order)
        if _judged(before.get(target)) != _judged(after.get(target))
    ]


def _judged(verdict: VerdictAnswer | None) -> tuple[object, ...] | None:
    return (verdict.verdict, verdict.standing, verdict.action, verdict.held_by is None) if verdict is not None else None


def _verdict_text(verdict: VerdictAnswer | None) -> str | None:
    if verdict is None:
        return None
    held = f", held back by {verdict.held_by}" if verdict.held_by else ""
    action = f": {verdict.action.value}" if verdict.action is not Action.NONE else ""
    return f"{verdict.verdict.value}{action}{held}"


MOST_BYTES = 4 * LONGEST
"""Of a form: what is pasted may be three times as long once a browser has written it."""

router = APIRouter()


def needed(check: CheckReport) -> int | None:
    """How many of its targets have to be healthy, or else its circuit breaker opens; None where its report does not say."""
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
        return await _page(
            request, cluster, pasted=text, found=await what_if(views_of(request), cluster, text, who=_who(request))
        )
    except (RequestError, UnreadableError) as error:
        return await _page(request, cluster, pasted=text, problem=str(error), status=api.status_of(error))


@router.post(f"{api.OF_CLUSTER}/what-if", response_class=Response, response_model=None)
async def asked(request: Request, cluster: str) -> object:
    """What one or more changed health checks, as YAML or JSON in the body, would say, beside today's. Nothing is kept."""
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip()
    if kind not in {"application/json", "application/yaml"}:
        raise UnreadableError("Content-Type: expected application/yaml or application/json")
    return api.answer(await what_if(views_of(request), cluster, await _body(request), who=_who(request)))


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


def _who(request: Request) -> str:
    caller: Caller = request.state.caller
    return caller.name


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
