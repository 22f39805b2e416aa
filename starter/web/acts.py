"""What people command on the page, and what they are shown before: the commands of the command line, by the same functions; at
the end the routes, as pages and, under `/api/v1`, for programs."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from temporalio.exceptions import ApplicationError

from policy.episode.messages import EpisodeResult, EpisodeStatus, Outcome
from policy.episode.node_action import (
    ANSWERS,
    CIRCUIT_BREAKER,
    NOT_VERIFIED,
    OVERRIDES,
    Verb,
    override_problem,
    reason_problem,
)
from policy.fence.config import ShownConfig, shown_config
from policy.preservation.requests import parse_hold
from policy.scan.permit_rules import OVERRIDABLE, against_requests
from starter import wording
from starter.client import Nodewarden
from starter.errors import MissingError, RefusedError, RequestError, SilentError, UnreadableError
from starter.handles.episodes import EpisodeHandle
from starter.handles.node_actions import name_of
from starter.handles.status import refused_now, still_stopped_by
from starter.output.models import Begun, CommandAnswer
from starter.plans.fence_plans import SECONDS_TO_READ, device_lines, planned, pods_on, unread
from starter.web import api
from starter.web.auth import Caller, ForbiddenError
from starter.web.login import sessions_of
from starter.web.now import Overview, overview_of, stop_of
from starter.web.pages import render
from starter.web.views import Views, views_of

CONSEQUENCES = {
    Verb.PAUSE: "nothing new is begun in this cluster and nothing destructive is done, until `unpause` or for a while; what is "
    "off already is still freed and switched on again",
    Verb.UNPAUSE: "your own pause ends, or the one that you choose; the cluster goes on when none is left",
    Verb.FENCE: "the machine is switched off and on again, and its pods are freed once it is proven off",
    Verb.REMEDIATE: "the node is repaired or replaced, as the health check that covers it says",
    Verb.PRESERVE: "the machine is kept as it is, powered, until its time is over or a person releases it",
}
"""Of the commands that need no open episode."""

NONE_BEGINS = "no episode of this node is begun until `resume`"
OF_THE_CLUSTER = frozenset({Verb.PAUSE, Verb.UNPAUSE})
WITH_A_TIME = {Verb.PAUSE: False, Verb.HOLD: False, Verb.PRESERVE: False, Verb.EXTEND: True}
"""Whether that command needs one."""
POWERS = frozenset({Verb.FENCE, Verb.ACK_OFF, Verb.ABORT, Verb.REMEDIATE})
"""Before these the page shows what runs on the machine."""


class CommandRequest(BaseModel):
    """A command to be carried out. node: "" of `pause` and `unpause`. for: how long, such as 2h. powerOn: of `abort`, whether a
    machine that is off by then is switched on again. question: of what answers one, its number as the person has seen it. of: of
    `unpause` and `resume`, the owner of the pause or hold, "" for one's own. override: what it passes over, with commas
    between (`circuit-breaker`; of `ack-off` also `device-reads-on`). nodeName: with an override, and with `ack-off`, the node's
    name, which the person has typed once more."""

    model_config = ConfigDict(frozen=True, populate_by_name=True, extra="forbid")

    verb: Verb
    node: str = ""
    reason: str
    hold: Annotated[str, Field(alias="for")] = ""
    power_on: Annotated[bool, Field(alias="powerOn")] = False
    question: int = 0
    of: str = ""
    override: str = ""
    node_name: Annotated[str, Field(alias="nodeName")] = ""

    def checked(self) -> CommandRequest:
        """Raises UnreadableError that names the field."""
        if said := reason_problem(self.reason):
            raise UnreadableError(f"reason: {said}")
        if self.verb in {Verb.STOP_SCAN, Verb.SET_MODE}:
            raise UnreadableError("verb: expected another one; use `nodewarden scan stop` on the command line")
        if bool(self.node) is (self.verb in OF_THE_CLUSTER):
            raise UnreadableError(f"node: expected {'none' if self.node else 'a node'} with {self.verb.value}")
        if self.hold and self.verb not in WITH_A_TIME:
            raise UnreadableError(f"for: expected nothing with {self.verb.value}, got {self.hold!r}")
        if self.of and self.verb not in {Verb.UNPAUSE, Verb.RESUME}:
            raise UnreadableError(f"of: expected nothing with {self.verb.value}, got {self.of!r}")
        if self.override and (problem := override_problem(self.override, self.verb)):
            raise UnreadableError(f"override: {problem}")
        if (self.override or self.verb is Verb.ACK_OFF) and self.node_name != self.node:
            raise UnreadableError(f"nodeName: expected {self.node}, typed once more, got {self.node_name!r}")
        if WITH_A_TIME.get(self.verb) and not self.hold:
            raise UnreadableError(f"for: expected a duration such as 24h with {self.verb.value}, got nothing")
        return self

    @property
    def span(self) -> timedelta | None:
        """Raises UnreadableError."""
        found = parse_hold(self.hold)
        if self.hold and found is None:
            raise UnreadableError(f"for: expected a duration above 0 such as 24h or 90m, got {self.hold!r}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ActPreview:
    """What would come of a command. accepted: whether it is, now; why_not: else why not. refused: why a new episode would
    get no permit now, also where the verb may override that. known: what is known of the machine and
    of what stands in the way. plan: what fencing would do, of `fence`. command: how it is said on the
    command line, "" where it is not accepted. owners: of the pauses or holds of which the command ends one. overridable:
    whether a circuit breaker is open that the verb may override."""

    cluster: str
    verb: Verb
    node: str
    accepted: bool
    why_not: str
    refused: str
    consequence: str
    known: tuple[str, ...]
    permits_used: int
    permits_of: int
    plan: ShownConfig | None = None
    command: str = ""
    question: int = 0
    owners: tuple[str, ...] = ()
    overridable: bool = False


async def carry_out(caller: Caller, cluster: str, act: CommandRequest) -> CommandAnswer | Begun:
    """With the caller's own rights. Raises UnreadableError, RefusedError, MissingError, SilentError."""
    act.checked()
    span = act.span
    warden, reason = caller.warden, act.reason.strip()
    if act.verb in OF_THE_CLUSTER:
        scanner = warden.scanner(cluster)
        if act.verb is Verb.PAUSE:
            until = datetime.now(UTC) + span if span is not None else None
            return CommandAnswer(cluster=cluster, answer=await scanner.pause(who="", reason=reason, until=until))
        return CommandAnswer(cluster=cluster, answer=await scanner.unpause(who="", reason=reason, of=act.of))
    if act.verb in CONSEQUENCES:
        return await _new_episode(warden, cluster, act, reason, span)
    episode = warden.episode(cluster, act.node)
    answer = await _answer_of_episode(warden, episode, act, reason, span)
    return CommandAnswer(cluster=cluster, answer=answer, node=act.node, workflow_id=episode.workflow_id)


async def _answer_of_episode(
    warden: Nodewarden, episode: EpisodeHandle, act: CommandRequest, reason: str, span: timedelta | None
) -> str:
    commands: dict[Verb, Callable[[], Awaitable[str]]] = {
        Verb.ABORT: lambda: episode.abort(who="", reason=reason, power_on=act.power_on),
        Verb.ACK_OFF: lambda: episode.ack_off(who="", reason=reason, question=act.question, override=act.override),
        Verb.RETURN_PATH: lambda: episode.return_path(who="", reason=reason, question=act.question),
        Verb.HOLD: lambda: episode.hold(who="", reason=reason, until=datetime.now(UTC) + span if span is not None else None),
        Verb.RELEASE: lambda: episode.release(who="", reason=reason),
        Verb.EXTEND: lambda: episode.extend(who="", reason=reason, hold=span),
        Verb.ISOLATE: lambda: episode.isolate(who="", reason=reason),
    }
    if act.verb is not Verb.RESUME:
        return await commands[act.verb]()
    before = await warden.in_the_way(episode)
    return "; ".join(filter(None, (await episode.resume(who="", reason=reason, question=act.question, of=act.of), before)))


async def _new_episode(warden: Nodewarden, cluster: str, act: CommandRequest, reason: str, span: timedelta | None) -> Begun:
    if act.verb is Verb.PRESERVE:
        episode = await warden.preserve(cluster, act.node, reason=reason, hold=span)
        found = await episode.kept()
    else:
        begin = warden.fence if act.verb is Verb.FENCE else warden.remediate
        episode = await begin(cluster, act.node, reason=reason, override=act.override)
        found = await episode.decided()
    if isinstance(found, EpisodeResult):
        if found.missing:
            raise MissingError(found.message)
        raise RefusedError(found.message if found.outcome is Outcome.REFUSED else wording.ending(found))
    if act.verb is Verb.PRESERVE:
        stands = wording.kept(found) if found is not None else wording.standing(None)
        return Begun.of(episode, stands, until=found.preserved_until if found is not None else None)
    return Begun.of(episode, wording.standing(found), permit=found is not None and found.permit)


def in_a_line(answer: CommandAnswer | Begun, verb: Verb) -> str:
    """For people."""
    nouns = {Verb.FENCE: "fencing", Verb.REMEDIATE: "remediation", Verb.PRESERVE: "preservation"}
    return answer.answer if isinstance(answer, CommandAnswer) else answer.sentence(nouns[verb])


async def preview(views: Views, caller: Caller, cluster: str, verb: Verb, node: str) -> ActPreview:
    """What would come of it, as far as the views and the caller's own rights let it be seen. Raises UnreadableError."""
    CommandRequest(verb=verb, node=node, node_name=node, reason="-", hold="1h" if WITH_A_TIME.get(verb) else "").checked()
    status = await views.known(cluster).status()
    overview = overview_of(status)
    episode, why_not, consequence = None, "", CONSEQUENCES.get(verb, "")
    if node:
        try:
            episode = await views.warden.episode(cluster, node).status()
        except RequestError as error:
            begins = verb in CONSEQUENCES and not isinstance(error, SilentError)
            why_not = "" if begins or verb is Verb.HOLD else str(error)
            consequence = consequence or (NONE_BEGINS if verb is Verb.HOLD else "")
    if episode is not None:
        why_not, consequence = _acceptance(episode, verb, consequence)
    known = _in_the_way(overview, verb) if verb in CONSEQUENCES and node else []
    asks = verb in {Verb.FENCE, Verb.REMEDIATE} and not why_not
    refused = refused_now(status.scanner, cluster, node, status.at) if asks else ""
    known = [each for each in known if each != refused]
    known += [wording.at_risk(row, status.at) for row in overview.at_risk if row.node == node]
    if verb in POWERS:
        known += [f"its fence device {row.endpoint} has a problem: {row.problem}" for row in status.devices if row.node == node]
    if episode is not None and verb is Verb.RESUME and (stopped := still_stopped_by(status.scanner, episode, status.at)):
        known.append(wording.not_yet(stopped))
    plan = None
    if episode is not None and verb is Verb.ACK_OFF and not why_not:
        known += await device_lines(episode, views.known(cluster).devices_of(node))
    if node and verb in POWERS:
        plan, seen = await _looked(caller, views, cluster, node, verb)
        known += seen
    return ActPreview(
        cluster=cluster,
        verb=verb,
        node=node,
        accepted=not why_not,
        why_not=why_not,
        refused=refused,
        consequence=consequence,
        known=tuple(known),
        permits_used=overview.permits_used,
        permits_of=overview.permits_of,
        plan=plan,
        command=_command(episode, verb, node),
        question=episode.question if episode is not None and verb in ANSWERS else 0,
        owners=_owners(overview, episode, verb),
        overridable=verb in OVERRIDES[CIRCUIT_BREAKER]
        and any(not each.allowed and each.reason in OVERRIDABLE for each in overview.checks),
    )


def _owners(overview: Overview, episode: EpisodeStatus | None, verb: Verb) -> tuple[str, ...]:
    if verb is Verb.UNPAUSE:
        return tuple(each.owner for each in overview.pauses)
    return episode.held_by if episode is not None and verb is Verb.RESUME else ()


def _in_the_way(overview: Overview, verb: Verb) -> list[str]:
    """Of all that keeps the scanner from acting what keeps it from this. To keep a machine no check is asked, for what disrupts
    all are: in the words of the refusal. A mode keeps programs back, and no person (S52)."""
    of_checks = {stop_of(check): against_requests(check) if verb is not Verb.PRESERVE else "" for check in overview.checks}
    of_all = {each: each for each in overview.blocked}
    return [said for each in overview.stops if (said := (of_all | of_checks).get(each, ""))]


def _command(episode: EpisodeStatus | None, verb: Verb, node: str) -> str:
    """As the open episode has it; of what needs none, its verb."""
    if verb in CONSEQUENCES:
        return f"nodewarden {verb.value} {shlex.quote(node) if node else ''}".strip()
    return next((way.command for way in episode.ways if way.verb is verb), "") if episode is not None else ""


def _acceptance(episode: EpisodeStatus, verb: Verb, consequence: str) -> tuple[str, str]:
    """Why an open episode does not accept that command, "" where it does, and what comes of it."""
    if verb in CONSEQUENCES:
        return f"{episode.node} has an open episode already: {episode.kind.value}, {episode.doing}", consequence
    found = next((way for way in episode.ways if way.verb is verb), None)
    if found is not None:
        return "", found.consequence
    accepts = ", ".join(way.verb.value for way in episode.ways)
    return f"the episode of {episode.node} does not accept {verb.value} now{f', but {accepts}' if accepts else ''}", consequence


async def speaker_of(caller: Caller, cluster: str) -> str:
    """By what name the command is recorded: Kubernetes', where it gives one."""
    async with caller.opening(cluster) as connection:
        with suppress(ApplicationError, TimeoutError):
            async with asyncio.timeout(SECONDS_TO_READ):
                if connection is not None:
                    return f"{await name_of(connection)}, if Kubernetes verifies it"
    return f"{caller.name}{NOT_VERIFIED}" if caller.name else ""


async def _looked(caller: Caller, views: Views, cluster: str, node: str, verb: Verb) -> tuple[ShownConfig | None, list[str]]:
    """By the caller's own rights: what runs there, and what fencing would do."""
    async with caller.opening(cluster) as connection:
        if connection is None:
            return None, []
        seen, plan = [await pods_on(connection, node)], None
        try:
            async with asyncio.timeout(SECONDS_TO_READ):
                if verb is Verb.FENCE and views.source is not None:
                    plan = shown_config(await planned(connection, node, source=views.source))
        except (ApplicationError, RequestError, TimeoutError) as error:
            seen.append(unread("what would be done", error))
        return plan, seen


# The routes: a preview, then the command and what was answered.

router = APIRouter()
api.KINDS[f"{api.OF_CLUSTER}/acts/{{verb}}"] = ActPreview


@router.get(f"{api.OF_CLUSTER}/acts/{{verb}}", response_class=Response, response_model=None)
async def previewed(request: Request, cluster: str, verb: Verb, node: str = "") -> object:
    """What would come of a command. Nothing is done."""
    known, caller = views_of(request).known(cluster).cluster, _caller(request)
    return api.answer(await preview(views_of(request), caller, known, verb, node))


@router.post(f"{api.OF_CLUSTER}/acts", response_class=Response, response_model=None)
async def acted(request: Request, cluster: str, act: CommandRequest) -> object:
    """Carry out a command with the caller's own rights: the answer is CommandAnswer, and Begun of `fence`, `remediate` and
    `preserve`."""
    if request.headers.get("Content-Type", "").partition(";")[0].strip() != "application/json":
        raise UnreadableError("Content-Type: expected application/json")
    view = views_of(request).known(cluster)
    answer = await carry_out(_caller(request), view.cluster, act)
    await view.renewed()
    return api.answer(answer)


@router.get("/c/{cluster}/acts/{verb}", include_in_schema=False)
async def shown(request: Request, cluster: str, verb: Verb, node: str = "") -> Response:
    """The preview, with the form that sends it."""
    return await _form(request, cluster, verb, node)


@router.post("/c/{cluster}/acts", include_in_schema=False)
async def sent(
    request: Request,
    cluster: str,
    *,
    verb: Annotated[Verb, Form()],
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
    """Carry it out, and show the answer or the refusal."""
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
        act = CommandRequest(verb=verb, node=node, reason=reason, hold=hold.strip(), **given)
        view = views_of(request).known(cluster)
        answer: CommandAnswer | Begun = await carry_out(_caller(request), view.cluster, act)
        await view.renewed()
    except (RequestError, UnreadableError, ValidationError) as error:
        return await _form(request, cluster, verb, node, refused=str(error), code=api.status_of(error))
    return render(
        request,
        "act_answer.html",
        verb.value,
        still=True,
        cluster=cluster,
        node=node,
        verb=verb.value,
        answer=in_a_line(answer, verb),
    )


async def _form(request: Request, cluster: str, verb: Verb, node: str, *, refused: str = "", code: int = 200) -> Response:
    known = views_of(request).known(cluster).cluster
    found = await preview(views_of(request), _caller(request), known, verb, node)
    return render(
        request,
        "act.html",
        f"{verb.value} {node}".strip(),
        status=code,
        cluster=cluster,
        preview=found,
        who=await speaker_of(_caller(request), known),
        refused=refused,
        entered=await request.form(),
        still=True,
        with_time=verb in WITH_A_TIME,
        needs_time=WITH_A_TIME.get(verb, False),
        form_token=sessions_of(request).form_token(request),
    )


def _caller(request: Request) -> Caller:
    """Of a cluster that is known here; who asks about another one is not looked up."""
    caller: Caller = request.state.caller
    return caller
