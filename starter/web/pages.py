"""The pages: how each is rendered, and the routes of those that show an answer as it is. A page that works something out has a
module of its own, named as its template and its path are. Each answers one question of the night, from the same views as the
command line."""

from __future__ import annotations

import math
import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import Response
from markupsafe import Markup
from starlette.templating import Jinja2Templates

from activities.contracts.episode_start import queries
from policy.episode.advice import ONLY_IF, advice, section_of
from policy.episode.messages import episode_id, scanner_id
from policy.episode.modes import only_some
from policy.episode.proofs import OFF_PROVEN
from policy.fence.device_check import fenceable
from policy.history.spells import would_have
from policy.objects.scopes import POOL, group_phrase
from policy.values import display_text
from policy.values.times import written
from starter import wording
from starter.errors import RequestError, UnreadableError
from starter.handles.status import still_stopped_by
from starter.web.auth import Caller, borne
from starter.web.fleet import NodeState
from starter.web.views import views_of

HERE = Path(__file__).parent
COLOUR = {"green": "green", "yellow": "yellow", "red": "red", "dim": "secondary"}
VIEWS = (
    ("Now", ""),
    ("Fleet", "/fleet"),
    ("Checks", "/checks"),
    ("Kept", "/kept"),
    ("Devices", "/devices"),
    ("History", "/history"),
    ("Would have", "/compare"),
)

GLYPHS = {
    NodeState.NEEDS_PERSON: "✕",
    NodeState.UNHEALTHY: "■",
    NodeState.SOON: "▲",
    NodeState.IN_HAND: "▶",
    NodeState.NOT_READY: "□",
    NodeState.SKIPPED: "–",
    NodeState.CORDONED: "◇",
    NodeState.HEALTHY: "●",
}
"""One shape for each state, so that no reader has to know colours apart."""
COLOURS = {
    NodeState.NEEDS_PERSON: "red",
    NodeState.UNHEALTHY: "red",
    NodeState.SOON: "yellow",
    NodeState.IN_HAND: "blue",
    NodeState.NOT_READY: "red",
    NodeState.SKIPPED: "secondary",
    NodeState.CORDONED: "secondary",
    NodeState.HEALTHY: "green",
}
DEVICES_SHOWN = 200
LONG = 30
"""Characters of a word that a column of a phone's page may have no room for."""
EVERY = 15
"""Seconds after which an open page is drawn anew though nothing has changed but the time."""

router = APIRouter(include_in_schema=False)
templates = Jinja2Templates(directory=HERE / "templates")


def _shown(found: object) -> object:
    """Each value that a template shows; what is markup was made of such."""
    return display_text.visible(found) if isinstance(found, str) and not isinstance(found, Markup) else found


def _with_commands(text: str) -> Markup:
    """What stands between backticks is code. Everything else is text, whatever it looks like (S40). A path or an address that is
    longer than a narrow column may be broken after each slash."""
    code = Markup("<code>{}</code>")
    found = (
        (index, Markup("<wbr>").join(re.split("(?<=/)(?=[^/])", word)) if len(word) > LONG else word)
        for index, part in enumerate(display_text.visible(text).split("`"))
        for word in (re.split(r"(\s+)", part) if index % 2 == 0 else [part])
    )
    return Markup().join(code.format(each) if index % 2 else each for index, each in found)


_FILTERS: dict[str, Any] = {
    "rfc3339": written,
    "span": wording.span,
    "seconds": lambda seconds: wording.span(timedelta(seconds=seconds)),
    "left": lambda left: wording.span(timedelta(seconds=math.ceil(left.total_seconds()))),
    "may_act": wording.may_act,
    "only_some": only_some,
    "end_style": wording.end_style,
    "colour": lambda row: COLOUR[wording.HEALTH_STYLE[row.health]],
    "health": lambda health: COLOUR[wording.HEALTH_STYLE[health]],
    "kept_by": wording.kept_by,
    "not_yet": wording.not_yet,
    "ending": wording.ending,
    "phase": wording.phase,
    "repeated": wording.repeated,
    "commanded": wording.commanded,
    "more_advice": lambda episode: episode.advice if episode.advice != advice(episode.ways) else "",
    "commands": _with_commands,
    "group_phrase": group_phrase,
    "shell": shlex.quote,  # of a command that is shown to be copied, what a link or a caller has put into it (S41)
}
_GLOBALS: dict[str, Any] = {"only_if": ONLY_IF, "episode_id": episode_id, "scanner_id": scanner_id}
_GLOBALS |= {
    "glyphs": GLYPHS,
    "state_colours": COLOURS,
    "fenceable": fenceable,
    "section_of": section_of,
    "still_stopped_by": still_stopped_by,
}
templates.env.finalize = _shown
templates.env.filters.update(_FILTERS)
templates.env.globals.update(_GLOBALS)


def render(request: Request, template: str, title: str, *, cluster: str = "", status: int = 200, **values: Any) -> Response:
    """A page. title: which of the views it is, for the eye and for the browser's tab. One that is `still` is not renewed."""
    base = f"/c/{quote(cluster, safe='')}"
    return templates.TemplateResponse(
        request,
        template,
        {
            "title": title,
            "cluster": cluster,
            "views": [(name, base + path) for name, path in VIEWS],
            "local": not request.app.state.keeper.login,
            "reader": _reader(request),
            "has_session": not borne(request),
            "static": "/static",
            "vendor": "/vendor",
            "now": datetime.now(UTC),
            "temporal": views_of(request).temporal,
            "docs": views_of(request).docs,
            "queries": queries(cluster),
            **values,
        },
        status_code=status,
    )


def problem(request: Request, title: str, said: str, *, status: int) -> Response:
    """A page that says why there is no other. Of a cluster that is known, its menu leads on."""
    asked = request.path_params.get("cluster", "")
    cluster = asked if asked in views_of(request).clusters else ""
    return render(request, "problem.html", title, status=status, cluster=cluster, problem=said)


def _reader(request: Request) -> str:
    """Who has logged in, "" where none has to, or has."""
    caller: Caller | None = getattr(request.state, "caller", None)
    return caller.name if caller is not None and request.app.state.keeper.login else ""


@router.get("/c/{cluster}/fleet")
async def fleet(request: Request, cluster: str, by: str = POOL) -> Response:
    """The same for the eye."""
    found, problem = None, ""
    try:
        found = await views_of(request).known(cluster).fleet(by.strip() or POOL)
    except (RequestError, UnreadableError) as error:
        views_of(request).known(cluster)
        problem = str(error)
    return render(request, "fleet.html", "Fleet", cluster=cluster, fleet=found, by=by, problem=problem, every=EVERY)


@router.get("/c/{cluster}/kept")
async def kept(request: Request, cluster: str) -> Response:
    """Machines that are kept for analysis: for which person, until when, and what ends it."""
    return render(
        request, "kept.html", "Kept", cluster=cluster, kept=await views_of(request).known(cluster).kept.get(), every=EVERY
    )


@router.get("/c/{cluster}/devices")
async def devices(request: Request, cluster: str) -> Response:
    """What the last check of all fence devices has found, and episodes since, the worst first."""
    view = views_of(request).known(cluster)
    report, problem = None, f"The fence devices of {cluster} have not been checked yet: `nodewarden fence check` does it."
    try:
        report = await view.fence_devices()
    except RequestError as error:
        problem = str(error)
    rows = report.rows[:DEVICES_SHOWN] if report is not None else ()
    return render(request, "devices.html", "Devices", cluster=cluster, report=report, devices=rows, problem=problem, every=EVERY)


@router.get("/c/{cluster}/record/{name}")
async def record(request: Request, cluster: str, name: str) -> Response:
    """What one episode saw, decided and did."""
    found = await views_of(request).warden.observations.record(views_of(request).known(cluster).cluster, name)
    standing = found.outcome if found.ended is not None or found.kind is None else wording.phase(found.outcome)
    return render(
        request,
        "record.html",
        f"Record of {found.node}",
        cluster=cluster,
        record=found,
        proven=OFF_PROVEN,
        standing=standing,
        proof=found.proof,
        unrepaired=[(each, would_have(each)) for each in reversed(found.spells)],
    )
