"""The read API, `/api/v1`: the answers of the command line over HTTP, in its one spelling (`starter/output/encoding.py`).

What is a part of one status is encoded once for each view, however many ask. The OpenAPI document is made of the routes here and
of the schema generator that makes docs/schemas/answers.json.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response

from policy.episode.messages import EpisodeStatus
from policy.episode.modes import ModeChanges
from policy.episode.permits import HoldOff, Permit, PermitRequest
from policy.fence.device_check import DeviceReport
from policy.history.step_outcomes import OutcomesReport
from policy.objects.scopes import POOL
from policy.scan.pauses import Pause
from policy.scan.scan_report import CheckReport, TargetRow
from policy.values.times import LONGEST_SINCE, USUAL_SINCE, parse_span
from starter.errors import MissingError, RefusedError, SilentError, UnattestedError, UnreadableError
from starter.handles.episodes import SilentEpisode
from starter.handles.history import MOST_LISTED, OPEN_LISTED, EpisodeRecord, outcomes_of
from starter.handles.observations import ClusterComparison
from starter.handles.status import ClusterStatus, PreservedNodes
from starter.output import explanation, history_table, models
from starter.output.cluster_moment import ClusterMoment, cluster_moment
from starter.output.cluster_moment import asked_moment as command_moment
from starter.output.encoding import schemas_of, to_json
from starter.web.auth import ForbiddenError, UnknownCallerError
from starter.web.fleet import FleetAnswer
from starter.web.now import Overview, WaitingNode, overview_of
from starter.web.views import explained, views_of
from workers.errors import expectations

# What is answered where the command line has no model of its own: parts of one status, each a question of a program.


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownClusters:
    """Those that the settings name."""

    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestProblem:
    """Why there is no other answer, in the words of the command line."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesAnswer:
    """The sickest first. of: how many nodes the scanner watches."""

    cluster: str
    at: datetime
    nodes: tuple[TargetRow, ...]
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksAnswer:
    """What each health check counts, and whether it may act."""

    cluster: str
    at: datetime
    checks: tuple[CheckReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodesAnswer:
    """The open ones. left_out: those beyond the ones shown."""

    cluster: str
    at: datetime
    episodes: tuple[EpisodeStatus, ...]
    silent: tuple[SilentEpisode, ...]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingAnswer:
    """Everybody who waits, in the order in which they are served, with what holds each."""

    cluster: str
    at: datetime
    waiting: tuple[WaitingNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PermitsAnswer:
    """cap: how many nodes may be disrupted at once. null where no scanner answers."""

    cluster: str
    at: datetime
    cap: int | None
    permits: tuple[Permit, ...]
    queue: tuple[PermitRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldEpisode:
    """An episode that a person holds. held: which person, until when and why."""

    node: str
    incident: str
    held: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopsAnswer:
    """Whatever keeps nodewarden from acting: stops, each in a sentence with its way out; the pauses that are in force; episodes
    that are held; nodes that get no episode for now."""

    cluster: str
    at: datetime
    headline: str
    stops: tuple[str, ...]
    pauses: tuple[Pause, ...]
    held: tuple[HeldEpisode, ...]
    held_off: tuple[HoldOff, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChangesAnswer:
    """Which person changed a mode, when and why, the oldest first: the last 20, also of rules that are gone."""

    cluster: str
    changes: ModeChanges


def nodes_of(status: ClusterStatus) -> NodesAnswer:
    """As the page shows them."""
    found = overview_of(status)
    return NodesAnswer(cluster=found.cluster, at=found.at, nodes=found.rows, of=found.nodes)


def checks_of(status: ClusterStatus) -> ChecksAnswer:
    """As the page shows them."""
    found = overview_of(status)
    return ChecksAnswer(cluster=found.cluster, at=found.at, checks=found.checks)


def episodes_of(status: ClusterStatus) -> EpisodesAnswer:
    """Those that a status has."""
    return EpisodesAnswer(
        cluster=status.cluster, at=status.at, episodes=status.episodes, silent=status.silent, left_out=status.left_out
    )


def waiting_of(status: ClusterStatus) -> WaitingAnswer:
    """As the page shows them."""
    return WaitingAnswer(cluster=status.cluster, at=status.at, waiting=overview_of(status).waiting)


def permits_of(status: ClusterStatus) -> PermitsAnswer:
    """As the scanner has them."""
    scanner = status.scanner
    return PermitsAnswer(
        cluster=status.cluster,
        at=status.at,
        cap=scanner.cap if scanner is not None else None,
        permits=scanner.permits if scanner is not None else (),
        queue=scanner.queue if scanner is not None else (),
    )


def stops_of(status: ClusterStatus) -> StopsAnswer:
    """S44: with who, why and until when."""
    found, scanner = overview_of(status), status.scanner
    return StopsAnswer(
        cluster=status.cluster,
        at=status.at,
        headline=found.headline,
        stops=found.stops,
        pauses=scanner.pauses if scanner is not None else (),
        held=tuple(HeldEpisode(node=each.node, incident=each.incident, held=each.held) for each in status.episodes if each.held),
        held_off=scanner.held_off if scanner is not None else (),
    )


# The routes.

PREFIX = "/api/v1"
OF_CLUSTER = f"{PREFIX}/clusters/{{cluster}}"
PROBLEMS = {
    401: "the request does not say who asks",
    403: "the caller may not do that",
    404: "there is no such cluster, node, episode or report",
    409: "refused, with the reason",
    413: "the body of the request is too long",
    422: "the request can't be read",
    502: "Temporal or a cluster's API has failed",
    503: "no answer: no worker runs, Temporal is away, or the cluster's objects are not read here",
}
"""Which status an answer has that is a RequestProblem."""

router = APIRouter()
KINDS: dict[str, type[Any]] = {f"{PREFIX}/clusters": KnownClusters}
"""By path, as OpenAPI writes it: the type of the answer."""
ANSWERED_BY_POST: dict[str, tuple[type[Any], ...]] = {f"{OF_CLUSTER}/acts": (models.CommandAnswer, models.Begun)}
"""The same of what is asked or said by POST, which may be answered in several ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """lists: its answer is nothing but a list, and refused where nothing is known: an empty one reads as none."""

    path: str
    kind: type[Any]
    make: Callable[[ClusterStatus], object]
    summary: str
    lists: bool = False


PARTS = (
    _Part(path="", kind=Overview, make=overview_of, summary="The page's own view: is it safe, what needs a person, what waits."),
    _Part(path="/status", kind=ClusterStatus, make=lambda status: status, summary="As `nodewarden status` has it."),
    _Part(path="/nodes", kind=NodesAnswer, make=nodes_of, summary="Nodes with their verdicts.", lists=True),
    _Part(path="/checks", kind=ChecksAnswer, make=checks_of, summary="Health checks with their counts.", lists=True),
    _Part(path="/episodes", kind=EpisodesAnswer, make=episodes_of, summary="Open episodes.", lists=True),
    _Part(path="/waiting", kind=WaitingAnswer, make=waiting_of, summary="Nodes that wait, and what holds each.", lists=True),
    _Part(path="/permits", kind=PermitsAnswer, make=permits_of, summary="Permits and the queue for them."),
    _Part(path="/stops", kind=StopsAnswer, make=stops_of, summary="Pauses, holds, and all else that stops us."),
)


def _of_status(part: _Part) -> None:
    async def answered(request: Request, cluster: str) -> Response:
        view = views_of(request).known(cluster)
        status = await view.status()
        if part.lists and status.is_unknown:
            raise SilentError(status.problem)
        body, tag = await view.encoded(part.path, part.make)
        if request.headers.get("If-None-Match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(body, media_type="application/json", headers={"ETag": tag, "Cache-Control": "no-cache"})

    KINDS[OF_CLUSTER + part.path] = part.kind
    router.add_api_route(OF_CLUSTER + part.path, answered, methods=["GET"], summary=part.summary, name=part.path or "overview")


for each in PARTS:
    _of_status(each)


def _reading(path: str, kind: type[Any]) -> Callable[[Callable[..., Awaitable[object]]], Callable[..., Awaitable[object]]]:
    """A question that is asked anew each time."""
    KINDS[path.replace(":path", "")] = kind
    return router.get(path, response_class=Response, response_model=None)


def answer(found: object, *, status: int = 200) -> Response:
    """In the one spelling."""
    return Response(to_json(found), status_code=status, media_type="application/json")


@router.get(f"{PREFIX}/clusters", response_class=Response, response_model=None)
async def clusters(request: Request) -> object:
    """The clusters that are known here."""
    return answer(KnownClusters(clusters=request.state.clusters))


@_reading(f"{OF_CLUSTER}/nodes/{{node:path}}", models.ExplainAnswer)
async def node(request: Request, cluster: str, node: str) -> object:
    """Why one node is, or is not, touched: as `nodewarden explain`, without what the cluster's own API says."""
    return answer(explanation.as_model(await explained(views_of(request), cluster, node)))


@_reading(f"{OF_CLUSTER}/fleet", FleetAnswer)
async def whole_fleet(request: Request, cluster: str, by: str = POOL) -> object:
    """All nodes by zone and one more group, `pool` or the key of a label: how many are well, and who is not."""
    return answer(await views_of(request).known(cluster).fleet(by))


@_reading(f"{OF_CLUSTER}/preserved", PreservedNodes)
async def preserved(request: Request, cluster: str) -> object:
    """Machines that are kept for analysis, the first to end before the others."""
    return answer(await views_of(request).known(cluster).kept.get())


@_reading(f"{OF_CLUSTER}/devices", DeviceReport)
async def devices(request: Request, cluster: str) -> object:
    """What the last check of all fence devices has found, and open episodes since."""
    report = await views_of(request).known(cluster).fence_devices()
    if report is None:
        raise MissingError(f"the fence devices of {cluster} have not been checked yet")
    return answer(report)


@_reading(f"{OF_CLUSTER}/history", models.HistoryAnswer)
async def history(
    request: Request,
    cluster: str,
    *,
    node: str = "",
    since: str = "24h",
    outcome: Annotated[list[str], Query()] = [],  # noqa: B006 - FastAPI copies it
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = MOST_LISTED,
) -> object:
    """Episodes that have ended, the newest first, and observations of nodes that were not repaired. outcome: only those; else all
    but requests that were refused. The cluster's pauses, where neither node nor outcome is given."""
    if wrong := history_table.outcome_problem(outcome):
        raise UnreadableError(f"outcome: {wrong}")
    views = views_of(request)
    known = views.known(cluster).cluster
    found = await history_table.read_history(views.warden, known, since=_began(since), node=node, outcomes=outcome, limit=limit)
    return answer(history_table.as_model(*found))


@_reading(f"{OF_CLUSTER}/mode-changes", ModeChangesAnswer)
async def mode_changes(request: Request, cluster: str) -> object:
    """The last changes of modes by people: as `nodewarden mode` has them."""
    views = views_of(request)
    known = views.known(cluster).cluster
    return answer(ModeChangesAnswer(cluster=known, changes=await views.warden.scanner(known).mode_changes()))


@_reading(f"{OF_CLUSTER}/compare", ClusterComparison)
async def compared(request: Request, cluster: str, *, since: str = USUAL_SINCE, check: str = "") -> object:
    """What health checks would have repaired, and how often that would have been wrong: as `nodewarden compare`. check: the key
    or name of one, else all."""
    views, began = views_of(request), _began(since)
    found, _ = await views.warden.observations.compared(views.known(cluster).cluster, since=began, check=check)
    return answer(found)


@_reading(f"{OF_CLUSTER}/offenders", models.OffendersAnswer)
async def offenders(request: Request, cluster: str, *, since: str = "") -> object:
    """Machines that are repaired again and again: as `nodewarden offenders`. since: else the setting offenders.window."""
    views, now = views_of(request), datetime.now(UTC)
    began = _began(since) if since else now - views.offenders.window
    known = views.known(cluster).cluster
    machines, more = await views.warden.history.offenders(known, began, views.offenders)
    limit = views.offenders.limit
    return answer(models.OffendersAnswer(cluster=known, since=began, limit=limit, machines=machines, more=more))


@_reading(f"{OF_CLUSTER}/report", OutcomesReport)
async def report(request: Request, cluster: str, *, since: str = USUAL_SINCE) -> object:
    """What helps, by reason and step: as `nodewarden report`."""
    views, began = views_of(request), _began(since)
    ended = await views.warden.history.ended(views.known(cluster).cluster, since=began, limit=OPEN_LISTED)
    return answer(outcomes_of(ended, began))


def _began(since: str) -> datetime:
    try:
        return datetime.now(UTC) - parse_span(since, LONGEST_SINCE)
    except ValueError as error:
        raise UnreadableError(f"since: {error}") from None


@_reading(f"{OF_CLUSTER}/moment", ClusterMoment)
async def moment(request: Request, cluster: str, at: str, *, node: str = "") -> object:
    """The whole cluster at a moment, in UTC where it has no offset: as `nodewarden history --at`; or a node: as `nodewarden
    explain NODE --at`."""
    warden, known = views_of(request).warden, views_of(request).known(cluster).cluster
    return answer(await cluster_moment(warden, known, asked_moment(at, datetime.now(UTC)), node=node))


@_reading(f"{OF_CLUSTER}/record/{{name:path}}", EpisodeRecord)
async def record(request: Request, cluster: str, name: str) -> object:
    """What one episode saw, decided and did: of a node the open one, else the last; or the one with that incident."""
    return answer(await views_of(request).warden.observations.record(views_of(request).known(cluster).cluster, name))


@router.get(f"{PREFIX}/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """The document that says all of this."""
    return Response(json.dumps(request.app.state.document()), media_type="application/json")


def asked_moment(text: str, now: datetime) -> datetime:
    """As on the command line, but in UTC where it has no offset. Raises UnreadableError."""
    try:
        return command_moment(text, now, UTC)
    except ValueError as error:
        raise UnreadableError(str(error)) from None


def problem(error: Exception) -> Response:
    """For programs: why there is no other answer."""
    return answer(RequestProblem(error=error_text(error)), status=status_of(error))


def error_text(error: Exception) -> str:
    """What people read of it."""
    if isinstance(error, RequestValidationError):
        return expectations([{**each, "loc": each["loc"][1:]} for each in error.errors()], "request")
    return str(error)


def status_of(error: Exception) -> int:
    """Which HTTP status an error has."""
    kinds = (
        (UnknownCallerError, 401),
        (ForbiddenError, 403),
        (UnattestedError, 403),
        (MissingError, 404),
        (RefusedError, 409),
        (UnreadableError, 422),
        (RequestValidationError, 422),
        (SilentError, 503),
    )
    return next((status for kind, status in kinds if isinstance(error, kind)), 502)


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document."""
    whole = get_openapi(title="nodewarden", version="v1", summary="What the page shows, for programs.", routes=app.routes)
    by_post = {f"{path} {kind.__name__}": kind for path, kinds in ANSWERED_BY_POST.items() for kind in kinds}
    schemas = schemas_of({**KINDS, **by_post, "problem": RequestProblem})
    components = whole.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        components.pop(name, None)
    components.update(schemas["$defs"])
    refused = {"application/json": {"schema": schemas["commands"]["problem"]}}
    for path, operations in whole["paths"].items():
        for operation in operations.values():
            operation["responses"].update(
                {str(status): {"description": why, "content": refused} for status, why in PROBLEMS.items()}
            )
            if path in KINDS:
                operation["responses"]["200"]["content"] = {"application/json": {"schema": schemas["commands"][path]}}
    for path, kinds in ANSWERED_BY_POST.items():
        said = [schemas["commands"][f"{path} {kind.__name__}"] for kind in kinds]
        schema = said[0] if len(said) == 1 else {"anyOf": said}
        whole["paths"][path]["post"]["responses"]["200"]["content"] = {"application/json": {"schema": schema}}
    text = json.dumps(whole).replace("#/$defs/", "#/components/schemas/")
    described: dict[str, Any] = json.loads(text)
    return described
