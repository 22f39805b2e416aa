"""What there is: all nodes in groups, machines that are kept, fence devices; as pages, and the fleet for programs, too."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from policy.fence.device_check import fenceable
from policy.objects.scopes import POOL, group_phrase
from starter.errors import RequestError
from starter.web import api
from starter.web.answers import UnreadableError
from starter.web.fleet import FleetAnswer, NodeState
from starter.web.pages import EVERY, render, templates
from starter.web.views import views_of

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
"""One shape for each state, so that no reader has to tell colours apart."""
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

router = APIRouter()
api.KINDS[f"{api.OF_CLUSTER}/fleet"] = FleetAnswer
_GLOBALS: dict[str, Any] = {"glyphs": GLYPHS, "state_colours": COLOURS, "fenceable": fenceable}
templates.env.globals.update(_GLOBALS)
templates.env.filters["group_phrase"] = group_phrase


@router.get(f"{api.OF_CLUSTER}/fleet", response_class=Response, response_model=None)
async def whole_fleet(request: Request, cluster: str, by: str = POOL) -> object:
    """All nodes by zone and one more group, `pool` or the key of a label: how many are well, and who is not."""
    return api.answer(await views_of(request).known(cluster).fleet(by))


@router.get("/c/{cluster}/fleet", include_in_schema=False)
async def fleet(request: Request, cluster: str, by: str = POOL) -> Response:
    """The same for the eye."""
    found, problem = None, ""
    try:
        found = await views_of(request).known(cluster).fleet(by.strip() or POOL)
    except (RequestError, UnreadableError) as error:
        views_of(request).known(cluster)
        problem = str(error)
    return render(request, "fleet.html", "Fleet", cluster=cluster, fleet=found, by=by, problem=problem, every=EVERY)


@router.get("/c/{cluster}/kept", include_in_schema=False)
async def kept(request: Request, cluster: str) -> Response:
    """Machines that are kept for analysis: for which person, until when, and what ends it."""
    return render(
        request, "kept.html", "Kept", cluster=cluster, kept=await views_of(request).known(cluster).kept.get(), every=EVERY
    )


@router.get("/c/{cluster}/devices", include_in_schema=False)
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
